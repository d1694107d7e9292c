//! Unfinished span activations, which would be recorded at their end. They are recorded early if the program
//! is killed, or outlives the recording.
//!
//! The program itself is not involved. From time to time, the drain reads the contexts of sampled threads
//! from the process's memory: the active record and those below it. It retains them until the end of the
//! activation is recorded. For a program that is killed, this covers activations older than [`LOOK_NS`].
//!
//! A chain of records is used only if its first record has the same address and version before and after the
//! reading. The activations are recorded when the process or the recording ends.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use flightline_in_signal::context::{CAR_BYTES, car, finish, is_car};
use flightline_in_signal::layout::{HEAD_WORDS, MAX_CONTEXT, RECORD_BYTES, slot_state};
use flightline_in_signal::os::sys;

use super::context::decode;
use super::process_state::ProcessState;
use super::sample::Origin;
use super::threads::ThreadIndex;
use crate::recording::{OpenSpan, Recording, Scope, Span, Worked};
use crate::shared_memory::proc_file::ProcFile;

/// Time between two readings.
const LOOK_NS: u64 = 250_000_000;
/// Limit of nested activations; deeper nesting is a cycle, or useless.
const DEEPEST: usize = 64;
/// Limit of threads, ended or not.
const MOST_THREADS: usize = 8192;
/// Limit of a name, bytes.
const NAME: usize = 255;

/// An activation that had not ended when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    /// Its start, and when it was last known to be active, `CLOCK_MONOTONIC` ns.
    pub start_ns: u64,
    pub seen_ns: u64,
    pub worked: Worked,
    pub parent: u64,
    /// The span that was active before, or 0.
    pub previous: u64,
    pub name: String,
}

impl Open {
    pub fn scope(&self) -> Scope {
        Scope {
            start_ns: self.start_ns,
            took_ns: self.seen_ns.saturating_sub(self.start_ns),
            span: self.worked.context.span,
            previous: self.previous,
            seq: self.worked.seq,
            open: true,
        }
    }
}

#[derive(Debug, Default)]
struct ThreadScopes {
    /// When the thread was last sampled.
    sampled_ns: u64,
    /// It has been sampled since its activations were last read.
    again: bool,
    open: Vec<Open>,
}

/// The threads of a process that have activations.
#[derive(Debug, Default)]
pub(super) struct OpenScopes {
    threads: HashMap<ThreadIndex, ThreadScopes>,
    checked_ns: u64,
}

impl OpenScopes {
    /// Notes a sample of a thread with a context.
    pub fn sampled(&mut self, thread: ThreadIndex, time_ns: u64) {
        let of = self.threads.entry(thread).or_default();
        of.again = true;
        of.sampled_ns = of.sampled_ns.max(time_ns);
        for open in &mut of.open {
            open.seen_ns = open.seen_ns.max(time_ns);
        }
    }

    /// Notes that an activation's end was recorded, or was lost.
    pub fn ended(&mut self, thread: ThreadIndex, seq: u64) {
        if let Some(of) = self.threads.get_mut(&thread) {
            of.open.retain(|open| open.worked.seq != seq);
        }
    }

    /// Returns the threads with activations whose end was not recorded yet.
    pub fn threads(&self) -> impl Iterator<Item = ThreadIndex> {
        self.threads.iter().filter(|(_, of)| !of.open.is_empty()).map(|(thread, _)| *thread)
    }

    /// Updates the indices of threads, and forgets threads without a new index.
    pub fn threads_moved(&mut self, now: impl Fn(ThreadIndex) -> Option<ThreadIndex>) {
        let threads = std::mem::take(&mut self.threads);
        self.threads = threads.into_iter().filter_map(|(thread, of)| Some((now(thread)?, of))).collect();
    }

    /// Returns true if the next reading is due.
    pub fn is_due(&self, now_ns: u64) -> bool {
        !self.threads.is_empty() && now_ns.saturating_sub(self.checked_ns) >= LOOK_NS
    }

    /// Reads the activations of threads that were sampled since the last reading, or of all threads if
    /// `last`. `pointer` returns the thread pointer of a thread that has not ended.
    fn look(
        &mut self,
        file: &ProcFile,
        now_ns: u64,
        last: bool,
        pointer: impl Fn(ThreadIndex) -> Option<u64>,
    ) {
        self.checked_ns = now_ns;
        let offset = file.context_offsets()[0];
        let few = self.threads.len() <= MOST_THREADS;
        self.threads.retain(|thread, of| {
            let pointer = pointer(*thread);
            if let Some(pointer) = pointer
                && (of.again || last)
                && offset != 0
            {
                of.again = false;
                let (pid, at) = (file.pid, pointer.wrapping_add(offset));
                if let Some(found) = chain(pid, at, now_ns, |index| file.label_name(index)) {
                    // Later activations have no sample.
                    let had_sample = |open: &Open| open.start_ns != 0 && open.start_ns <= of.sampled_ns;
                    let before = std::mem::take(&mut of.open);
                    of.open = found.into_iter().filter(had_sample).collect();
                    if last {
                        // The ring is not read again, so no end will be recorded for these.
                        let known: HashSet<u64> = of.open.iter().map(|open| open.worked.seq).collect();
                        of.open.extend(before.into_iter().filter(|open| !known.contains(&open.worked.seq)));
                    }
                }
            }
            pointer.is_some() || few && !of.open.is_empty()
        });
    }

    /// Removes and returns all known activations, outermost first in each thread.
    pub fn take(&mut self) -> Vec<(ThreadIndex, Open)> {
        let threads = std::mem::take(&mut self.threads);
        let mut all: Vec<_> = threads
            .into_iter()
            .flat_map(|(thread, of)| of.open.into_iter().map(move |open| (thread, open)))
            .collect();
        all.sort_by_key(|(thread, open)| (*thread, open.worked.seq));
        all
    }
}

impl ProcessState {
    /// Notes that the activation of a sample's context is still active.
    #[inline]
    pub(super) fn note_open(&mut self, origin: Origin<'_>) {
        if origin.context.is_some_and(|context| context.seq != 0) {
            self.open.sampled(origin.thread, origin.time_ns);
        }
    }

    /// Reads the activations of threads.
    pub(super) fn look_for_open(&mut self, file: &ProcFile, now_ns: u64, last: bool) {
        if !file.trusted_pid() {
            return;
        }
        let threads = &self.threads.list;
        self.open.look(file, now_ns, last, |index| {
            // A slot whose thread has ended may already belong to another thread.
            let (number, generation) = threads.get(index)?.slot?;
            let slot = file.slot(number)?;
            let alive = slot.state.load(Acquire) == generation | slot_state::LIVE;
            alive.then(|| slot.memory.thread_pointer.load(Relaxed)).filter(|pointer| *pointer != 0)
        });
    }

    /// Gives the recording the current activations, which it writes at the end of a chunk if chunks must be
    /// complete in themselves.
    pub(super) fn update_open_spans(&mut self, file: &ProcFile, recording: &mut Recording) {
        if !recording.writes_open_spans() {
            return;
        }
        let mut all = Vec::new();
        for (index, of) in &self.open.threads {
            let Some(thread) = self.threads.list.get_mut(*index).filter(|_| !of.open.is_empty()) else {
                continue;
            };
            if !thread.selected(file, self.threads.selection.as_ref()) {
                continue;
            }
            let thread = thread.constant(file, self.group, recording);
            all.extend(of.open.iter().map(|open| OpenSpan {
                thread,
                scope: open.scope(),
                name: open.name.clone(),
                parent: open.parent,
                context: open.worked.context.clone(),
            }));
        }
        all.sort_by_key(|open| (open.thread, open.scope.seq));
        recording.open_now(file.key(), all);
    }

    /// Records the activations that had not ended at the end of the process or of the recording.
    pub(super) fn record_open_spans(&mut self, file: &ProcFile, recording: &mut Recording) {
        recording.open_now(file.key(), Vec::new());
        let mut written = HashSet::new();
        for (index, open) in self.open.take() {
            let Some(thread) = self.threads.list.get_mut(index) else { continue };
            if recording.full() || !thread.selected(file, self.threads.selection.as_ref()) {
                continue;
            }
            let constant = thread.constant(file, self.group, recording);
            let scope = open.scope();
            recording.scope_end(constant, &scope);
            // Spans without a name are recorded by the library that created them.
            if open.name.is_empty() || !written.insert(scope.span) {
                continue;
            }
            let Open { start_ns, parent, name, worked: Worked { context, .. }, .. } = open;
            let (took_ns, samples) = (scope.took_ns, None);
            let span = Span { start_ns, took_ns, name: &name, parent, samples, context };
            recording.span_end(constant, &span);
        }
    }
}

fn word(pid: u32, at: u64) -> Option<u64> {
    let mut word = 0u64;
    // SAFETY: the word is as long as the given size.
    let got = unsafe { sys::read_process(pid, at, (&raw mut word).cast(), size_of::<u64>()) };
    (got == size_of::<u64>()).then_some(word)
}

/// Returns the activations of the thread whose slot is at `slot`, outermost first; `None` if the thread
/// entered or left one in the meantime.
fn chain(pid: u32, slot: u64, now_ns: u64, name: impl Fn(u8) -> Option<String>) -> Option<Vec<Open>> {
    let top = word(pid, slot)?;
    let mut at = top;
    let (mut found, mut version) = (Vec::new(), 0);
    while at != 0 && found.len() < DEEPEST {
        let Some((open, own_version, previous)) = one(pid, at, now_ns, &name) else { break };
        if at == top {
            version = own_version;
        }
        found.push(open);
        at = previous;
    }
    // The records below the active one do not change while it is active.
    let version_at = top.wrapping_sub((CAR_BYTES - 8 * car::VERSION) as u64);
    let same = word(pid, slot)? == top && (found.is_empty() || word(pid, version_at)? == version);
    for i in 1..found.len() {
        found[i - 1].previous = found[i].worked.context.span;
    }
    found.reverse();
    same.then_some(found)
}

/// Returns the activation whose record is at `at`, its version, and the address of the previous one.
fn one(pid: u32, at: u64, now_ns: u64, name: impl Fn(u8) -> Option<String>) -> Option<(Open, u64, u64)> {
    if !at.is_multiple_of(CAR_BYTES as u64) {
        return None;
    }
    let mut raw = [0u64; (CAR_BYTES + RECORD_BYTES) / 8];
    // SAFETY: the array is as long as the given size.
    let got = unsafe {
        sys::read_process(pid, at.wrapping_sub(CAR_BYTES as u64), raw.as_mut_ptr().cast(), size_of_val(&raw))
    };
    let (header, record) = raw.split_first_chunk::<{ CAR_BYTES / 8 }>()?;
    if got < size_of_val(&raw) || !is_car(header) || header[car::VERSION] == 0 {
        return None;
    }
    let mut words = [0u64; MAX_CONTEXT];
    words[HEAD_WORDS..].copy_from_slice(record);
    let len = finish(&mut words, Some(header));
    let worked = decode(words.get(..len)?, name)?;
    let mut bytes = [0u8; NAME];
    let len = ((header[car::MAGIC] >> 32) as usize).min(NAME);
    // SAFETY: the array is at least as long as the given size.
    let got = unsafe { sys::read_process(pid, header[car::NAME], bytes.as_mut_ptr(), len) };
    let name = String::from_utf8_lossy(&bytes[..got.min(len)]).into_owned();
    let start_ns = header[car::START].min(now_ns);
    let parent = header[car::PARENT];
    let open = Open { start_ns, seen_ns: now_ns, worked, parent, previous: 0, name };
    Some((open, header[car::VERSION], header[car::PREVIOUS]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct RecordWithCar([u64; (CAR_BYTES + RECORD_BYTES) / 8]);

    const MAGIC: u64 = flightline_in_signal::context::CAR_MAGIC as u64;
    static TEXT: &str = "a name";

    fn record_with_car(seq: u64, previous: u64) -> Box<RecordWithCar> {
        let mut record = Box::new(RecordWithCar([0; (CAR_BYTES + RECORD_BYTES) / 8]));
        let words = &mut record.0;
        words[car::MAGIC] = MAGIC | (TEXT.len() as u64) << 32;
        words[car::VERSION] = seq;
        words[car::SEQ] = seq;
        words[car::PREVIOUS] = previous;
        words[car::START] = 10 * seq;
        words[car::NAME] = TEXT.as_ptr() as u64;
        words[CAR_BYTES / 8 + 2] = (100 + seq).to_be();
        words[CAR_BYTES / 8 + 3] = 1;
        record
    }

    fn look(top: u64) -> Option<Vec<(u64, u64, u64, String)>> {
        let slot = Box::new(top);
        let found = chain(std::process::id(), &raw const *slot as u64, 1000, |_| None)?;
        let of = |open: Open| (open.worked.seq, open.start_ns, open.previous, open.name);
        Some(found.into_iter().map(of).collect())
    }

    fn at(record: &RecordWithCar) -> u64 {
        &raw const record.0[CAR_BYTES / 8] as u64
    }

    #[test]
    fn active_spans_are_read() {
        let name = || TEXT.to_owned();
        assert_eq!(look(0), Some(Vec::new()));
        let outer = record_with_car(1, 0);
        let inner = record_with_car(2, at(&outer));
        assert_eq!(look(at(&inner)), Some(vec![(1, 10, 0, name()), (2, 20, 101, name())]));
        assert_eq!(look(8), Some(Vec::new()), "no memory there");
        assert_eq!(look(at(&inner) + 8), Some(Vec::new()), "none of ours");
        let mut filled = record_with_car(3, at(&outer));
        filled.0[car::VERSION] = 0;
        assert_eq!(look(at(&filled)), Some(Vec::new()), "being written");
        // Names of any length, times in the future, a cycle.
        let mut hostile = record_with_car(4, 0);
        hostile.0[car::MAGIC] = MAGIC | u64::from(u32::MAX) << 32;
        hostile.0[car::START] = u64::MAX;
        hostile.0[car::PREVIOUS] = at(&hostile);
        let found = look(at(&hostile)).unwrap();
        assert_eq!((found.len(), found[0].1), (DEEPEST, 1000));
    }

    fn scope(seq: u64) -> Open {
        let worked = Worked { seq, ..Worked::default() };
        Open { start_ns: seq, seen_ns: 5, worked, parent: 0, previous: 0, name: String::new() }
    }

    #[test]
    fn ended_spans_are_not_open() {
        let mut open = OpenScopes::default();
        open.sampled(3, 9);
        open.threads.get_mut(&3).unwrap().open = [1, 2, 4].map(scope).to_vec();
        open.sampled(3, 12);
        open.ended(3, 2);
        open.ended(7, 1);
        let left = open.take();
        let left: Vec<_> =
            left.iter().map(|(thread, open)| (*thread, open.worked.seq, open.scope().took_ns)).collect();
        assert_eq!(left, [(3, 1, 11), (3, 4, 8)]);
        assert!(open.take().is_empty());
    }

    #[test]
    fn removed_threads_reindex_open_scopes() {
        let mut open = OpenScopes::default();
        for thread in [1, 2, 5] {
            open.sampled(thread, 9);
        }
        open.threads.get_mut(&1).unwrap().open = vec![scope(1)];
        open.threads.get_mut(&5).unwrap().open = vec![scope(7), scope(8)];
        let mut threads: Vec<ThreadIndex> = open.threads().collect();
        threads.sort_unstable();
        assert_eq!(threads, [1, 5], "thread 2 has nothing that is open");
        open.threads_moved(|thread| [Some(0), Some(1), None, None, None, Some(2)][thread]);
        open.ended(2, 7);
        let left: Vec<_> = open.take().into_iter().map(|(thread, open)| (thread, open.worked.seq)).collect();
        assert_eq!(left, [(1, 1), (2, 8)]);
    }
}
