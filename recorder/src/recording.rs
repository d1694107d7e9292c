//! One output: its chunks, its clock, and everything that is written into it.

use std::collections::HashMap;

use jfr_format::{
    ids::{Ticks, TypeId},
    schema::{self, thread_state},
    write::{ChunkWriter, ClockLine, FieldWriter, Geometry, WriteError, min_fixed_size},
};

use crate::{
    clock::{TICKS_PER_SECOND, TickLine, both_ns},
    error::Error,
    intern::{Interner, TraceIndex},
    settings::{CHUNK_BYTES, DICTIONARY_BYTES, Settings},
    sink::{Sink, Target},
};

/// Why a pipe failed.
const READER_GONE: &str = "the reader is gone";

/// A fixed chunk is closed after this time even if there is room left, ns.
const FIXED_CHUNK_NS: u64 = 15_000_000_000;
/// Time for which the size of the next fixed chunk is chosen, ns.
const AIM_NS: u64 = 3_000_000_000;
/// Smallest and largest fixed chunk beside its frame, bytes.
const FIXED_BYTES: [u64; 2] = [48 << 10, 8 << 20];
/// Time between clock anchors, ns.
const ANCHOR_NS: u64 = 10_000_000_000;

/// A thread as the output knows it.
struct ThreadConstant {
    chunk: u32,
    key: u32,
    tid: u32,
    name: String,
    group: u32,
}

struct Group {
    chunk: u32,
    name: String,
}

/// Where the first key for threads that cannot have their tid as key is.
const FIRST_FREE_KEY: u32 = 1 << 22;

/// A recording being written.
pub struct Recording {
    sink: Sink,
    writer: ChunkWriter,
    line: ClockLine,
    ticks: TickLine,
    fixed: bool,
    flush_ns: u64,
    /// Dictionary of stacks.
    pub interner: Interner,
    threads: Vec<ThreadConstant>,
    keys_taken: HashMap<u32, ()>,
    next_key: u32,
    groups: Vec<Group>,
    chunk: u32,
    chunk_start_ns: u64,
    chunk_start_byte: u64,
    last_flush_ns: u64,
    last_anchor_ns: u64,
    /// ExecutionSample events written.
    pub events: u64,
    /// Bytes and number of chunks.
    pub chunks: u64,
    failure: Option<String>,
    finished: bool,
    unwritten: u64,
}

impl Recording {
    /// Opens the output of process `pid` and begins its first chunk.
    pub fn open(target: &Target, pid: u32, settings: &Settings) -> Result<Recording, Error> {
        let sink = Sink::open(target, pid)?;
        let (mono, wall) = both_ns();
        let ticks = TickLine::new(mono);
        let line = ClockLine {
            start_ticks: Ticks(0),
            start_epoch_ns: i64::try_from(wall).unwrap_or(0),
            ticks_per_second: TICKS_PER_SECOND,
        };
        let fixed = matches!(sink, Sink::Pipe(_));
        let geometry = if fixed { Geometry::Fixed { size: first_size(settings) } } else { Geometry::Patched };
        let writer = ChunkWriter::begin(geometry, &line, sink.position(), Ticks(0)).map_err(defect)?;
        let mut recording = Recording {
            sink,
            writer,
            line,
            ticks,
            fixed,
            flush_ns: u64::try_from(settings.flush.as_nanos()).unwrap_or(u64::MAX),
            interner: Interner::new(),
            threads: Vec::new(),
            keys_taken: HashMap::new(),
            next_key: FIRST_FREE_KEY,
            groups: Vec::new(),
            chunk: 1,
            chunk_start_ns: mono,
            chunk_start_byte: 0,
            last_flush_ns: mono,
            last_anchor_ns: 0,
            events: 0,
            chunks: 1,
            failure: None,
            finished: false,
            unwritten: 0,
        };
        // The first bytes at once: an output that cannot be written is noticed before the program runs.
        recording.write_out(mono);
        match &recording.failure {
            // A pipe or device may fail at any time: the program's run is worth more than its recording.
            Some(reason) if !recording.fixed => {
                Err(Error::Setting { name: "output", problem: reason.clone() })
            }
            _ => Ok(recording),
        }
    }

    /// Why nothing can be written any more, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether samples must be dropped: too much waits for the reader, or the output is gone.
    #[inline]
    pub fn full(&self) -> bool {
        self.failure.is_some() || self.sink.full()
    }

    /// Bytes of the output so far.
    pub fn bytes(&self) -> u64 {
        self.sink.bytes()
    }

    /// What to call the output in messages.
    pub fn name(&self) -> String {
        self.sink.name().display().to_string()
    }

    /// Ticks of a CLOCK_MONOTONIC time.
    pub fn ticks(&self, mono_ns: u64) -> Ticks {
        Ticks(self.ticks.ticks(mono_ns))
    }

    /// A group for the threads of a process.
    pub fn add_group(&mut self, name: String) -> u32 {
        self.groups.push(Group { chunk: 0, name });
        self.groups.len() as u32 - 1
    }

    /// A thread: its key is its tid for the first holder, a fresh one above all tids for any other or after a rename.
    pub fn add_thread(&mut self, tid: u32, name: &str, group: u32) -> usize {
        let key = if tid > 0 && tid < FIRST_FREE_KEY && self.keys_taken.insert(tid, ()).is_none() {
            tid
        } else {
            self.next_key += 1;
            self.next_key
        };
        self.threads.push(ThreadConstant { chunk: 0, key, tid, name: name.to_owned(), group });
        self.threads.len() - 1
    }

    /// Writes a sample as `count` events.
    #[inline]
    pub fn sample(&mut self, thread: usize, trace: TraceIndex, time_ns: u64, count: u32) {
        let time = self.ticks(time_ns);
        for done in 0..count {
            let cost = |r: &Recording| r.interner.cost(trace) + r.thread_cost(thread) + EVENT_BYTES;
            if !self.make_room(cost) {
                self.unwritten += u64::from(count - done);
                return;
            }
            let key = self.thread_key(thread);
            let trace_key = self.interner.key(trace);
            let constants = self.interner.write(trace, &mut self.writer);
            let written = constants.and_then(|()| {
                self.writer.event(schema::EXECUTION_SAMPLE, |e| {
                    e.ticks(time).key(key).key(trace_key).key(thread_state::DEFAULT);
                })
            });
            match written {
                Ok(()) => self.events += 1,
                Err(_) => self.unwritten += 1,
            }
        }
    }

    /// Writes another event; it may need `bytes` and belong to a thread (key 0: to none).
    pub fn event(
        &mut self,
        id: TypeId,
        thread: Option<usize>,
        bytes: usize,
        fields: impl FnOnce(&mut FieldWriter<'_>, u64),
    ) {
        if !self.make_room(|r| bytes + EVENT_BYTES + thread.map_or(0, |t| r.thread_cost(t))) {
            return;
        }
        let key = thread.map_or(0, |t| self.thread_key(t));
        let written = self.writer.event(id, |e| fields(e, key));
        debug_assert!(written.is_ok(), "{written:?}");
    }

    fn thread_cost(&self, thread: usize) -> usize {
        match self.threads.get(thread) {
            Some(t) if t.chunk != self.chunk => {
                t.name.len() + self.groups.get(t.group as usize).map_or(0, |g| g.name.len()) + 160
            }
            _ => 0,
        }
    }

    /// The thread's key; its constant is queued if this chunk does not have it yet.
    fn thread_key(&mut self, thread: usize) -> u64 {
        let Some(t) = self.threads.get_mut(thread) else { return 0 };
        if t.chunk == self.chunk {
            return u64::from(t.key);
        }
        let group_key = u64::from(t.group) + 1;
        if let Some(group) = self.groups.get_mut(t.group as usize).filter(|g| g.chunk != self.chunk) {
            let written = self.writer.constant(schema::THREAD_GROUP, group_key, |g| {
                g.key(0).string(&group.name);
            });
            if written.is_ok() {
                group.chunk = self.chunk;
            }
        }
        let written = self.writer.constant(schema::THREAD, u64::from(t.key), |c| {
            c.string(&t.name).long(i64::from(t.tid)).null().long(0).key(group_key);
        });
        if written.is_ok() {
            t.chunk = self.chunk;
        }
        u64::from(t.key)
    }

    /// Makes sure that `cost` bytes fit: by a flush, or by the next chunk. `false` if the output is gone.
    #[inline]
    fn make_room(&mut self, cost: impl Fn(&Recording) -> usize) -> bool {
        if self.failure.is_some() || self.finished {
            return false;
        }
        self.writer.room() >= cost(self) || self.make_room_slowly(&cost)
    }

    #[cold]
    fn make_room_slowly(&mut self, cost: &dyn Fn(&Recording) -> usize) -> bool {
        let now = crate::clock::monotonic_ns();
        self.write_out(now);
        // In a new chunk it costs more, as nothing is written there yet; so perhaps another, larger one.
        for _ in 0..2 {
            if self.writer.room() < cost(self) && self.failure.is_none() {
                self.next_chunk(now, cost(self) as u64, usize::MAX);
            }
        }
        self.failure.is_none() && self.writer.room() >= cost(self)
    }

    /// After a round of the drain: writes out what is queued if it is much, so that little is lost by a full disk.
    pub fn settle(&mut self, now_ns: u64) {
        if self.writer.pending() > QUEUED_BYTES && self.failure.is_none() && !self.finished {
            self.write_out(now_ns);
        }
    }

    /// Whether it is time for [`Recording::flush`].
    pub fn flush_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_flush_ns) >= self.flush_ns
    }

    /// Writes out what is queued; begins another chunk when this one is old or big.
    pub fn flush(&mut self, now_ns: u64) {
        if self.failure.is_some() || self.finished {
            return;
        }
        self.last_flush_ns = now_ns;
        if now_ns.saturating_sub(self.last_anchor_ns) >= ANCHOR_NS {
            self.last_anchor_ns = now_ns;
            self.anchor();
        }
        self.write_out(now_ns);
        let size = self.sink.bytes() - self.chunk_start_byte;
        let old = self.fixed && now_ns.saturating_sub(self.chunk_start_ns) > FIXED_CHUNK_NS;
        let big = !self.fixed && size > CHUNK_BYTES;
        if old || big || self.interner.bytes() > DICTIONARY_BYTES {
            self.next_chunk(now_ns, 0, DICTIONARY_BYTES);
        }
    }

    /// Pushes what waits for a slow reader.
    pub fn push(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.sink.push()
        {
            self.fail(&error);
        }
    }

    /// Bytes that wait for a slow reader.
    pub fn waiting(&self) -> usize {
        if self.failure.is_some() { 0 } else { self.sink.waiting() }
    }

    /// Both clocks, now.
    fn anchor(&mut self) {
        let (mono, wall) = both_ns();
        let time = self.ticks(mono);
        self.event(schema::CLOCK_ANCHOR, None, 40, |e, _| {
            e.ticks(time).long(mono as i64).long(wall as i64);
        });
    }

    fn write_out(&mut self, now_ns: u64) {
        let now = self.ticks(now_ns);
        if let Err(error) = self.writer.flush(now, &mut self.sink) {
            self.fail(&error);
        }
    }

    fn next_chunk(&mut self, now_ns: u64, need: u64, dictionary: usize) {
        let now = self.ticks(now_ns);
        let size = self.sink.bytes() - self.chunk_start_byte;
        if let Err(error) = self.writer.finish(now, false, &mut self.sink) {
            return self.fail(&error);
        }
        let geometry = if self.fixed {
            let lasted = now_ns.saturating_sub(self.chunk_start_ns).max(1);
            let wished = size.saturating_mul(AIM_NS) / lasted;
            Geometry::Fixed { size: fixed_size(wished.max(2 * need)) }
        } else {
            Geometry::Patched
        };
        match ChunkWriter::begin(geometry, &self.line, self.sink.position(), now) {
            Ok(writer) => self.writer = writer,
            Err(error) => return self.fail(&std::io::Error::other(error)),
        }
        self.chunk += 1;
        self.chunks += 1;
        self.interner.next_chunk(dictionary);
        self.chunk_start_ns = now_ns;
        self.chunk_start_byte = self.sink.bytes();
    }

    /// Whether the output failed otherwise than by a reader that left, which is its good right.
    pub fn broken(&self) -> bool {
        self.failure.as_ref().is_some_and(|reason| !reason.ends_with(READER_GONE))
    }

    /// The output is gone or full: keeps what is valid and says why, once.
    fn fail(&mut self, error: &std::io::Error) {
        if self.failure.is_some() {
            return;
        }
        let reason = match error.kind() {
            std::io::ErrorKind::BrokenPipe => READER_GONE.to_owned(),
            _ => crate::error::plain(error),
        };
        self.failure = Some(format!("{}: {reason}", self.name()));
        // A file keeps what it has: the header must only say where that ends.
        if !self.fixed {
            self.writer.discard();
            let now = self.ticks(crate::clock::monotonic_ns());
            let _ = self.writer.finish(now, true, &mut self.sink);
        }
    }

    /// Ends the recording.
    pub fn finish(&mut self) {
        if self.finished {
            return;
        }
        if self.failure.is_none() {
            self.anchor();
            let now = self.ticks(crate::clock::monotonic_ns());
            if let Err(error) = self.writer.finish(now, true, &mut self.sink) {
                self.fail(&error);
            }
        }
        self.finished = true;
    }

    /// Events that could not be written although their samples were booked (the output failed in between).
    pub fn unwritten(&self) -> u64 {
        self.unwritten
    }
}

/// Bytes queued before they are written out ahead of the flush.
const QUEUED_BYTES: usize = 32 << 10;

/// Most bytes of an event without text: size, type, time, keys, a few numbers.
const EVENT_BYTES: usize = 96;

fn defect(error: WriteError) -> Error {
    Error::Setting { name: "output", problem: error.to_string() }
}

/// A size for a fixed chunk that leaves `content` bytes beside its frame.
fn fixed_size(content: u64) -> u32 {
    let size = content.clamp(FIXED_BYTES[0], FIXED_BYTES[1]) + u64::from(min_fixed_size());
    (size.next_multiple_of(4096)) as u32
}

/// The first chunk's size: its frame, names and stacks, and the samples that a busy thread makes in three seconds.
fn first_size(settings: &Settings) -> u32 {
    fixed_size((settings.rate() * 3.0 * 14.0) as u64 + FIXED_BYTES[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::Path, sync::Arc};

    fn open(dir: &Path) -> Recording {
        Recording::open(&Target::Path(dir.join("x.jfr")), 1, &Settings::default()).unwrap()
    }

    #[test]
    fn keys_of_threads() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = open(dir.path());
        let group = recording.add_group("prog (1)".into());
        let keys: Vec<u32> = [(17, "a"), (18, "b"), (17, "renamed"), (0, "none")]
            .iter()
            .map(|(tid, name)| {
                let thread = recording.add_thread(*tid, name, group);
                recording.threads[thread].key
            })
            .collect();
        assert_eq!(keys[..2], [17, 18]);
        assert!(keys[2] > FIRST_FREE_KEY && keys[3] > keys[2]);
    }

    fn fill(recording: &mut Recording, samples: u64) {
        let group = recording.add_group("prog (1)".into());
        let thread = recording.add_thread(5, "main", group);
        for i in 0..samples {
            let method = recording
                .interner
                .method(1, i % 300, || (Arc::from("prog"), format!("function_{}", i % 300)));
            let trace = recording.interner.trace(&[0, method]);
            recording.sample(thread, trace, recording.chunk_start_ns + i * 1000, 1 + (i % 2) as u32);
        }
        recording.finish();
    }

    #[test]
    fn chunks_of_a_pipe_fill_their_size() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::fs::File::from(read), &mut bytes).unwrap();
            bytes
        });
        let target = Target::Descriptor(Arc::new(write));
        let mut recording = Recording::open(&target, 1, &Settings::default()).unwrap();
        drop(target);
        fill(&mut recording, 30_000);
        while recording.waiting() > 0 {
            recording.push();
            std::thread::yield_now();
        }
        let (events, chunks, expected) = (recording.events, recording.chunks, recording.bytes());
        assert_eq!((events, recording.failure()), (45_000, None));
        drop(recording);
        let bytes = reader.join().unwrap();
        assert_eq!(bytes.len() as u64, expected);
        let mut at = 0;
        let mut found = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 4], b"FLR\0", "chunk {found} at {at}");
            at += u64::from_be_bytes(bytes[at + 8..at + 16].try_into().unwrap()) as usize;
            found += 1;
        }
        assert_eq!((at, found), (bytes.len(), chunks));
        assert!(found > 1);
    }

    #[test]
    fn full_device_is_told_once() {
        let target = Target::Path("/dev/full".into());
        let mut recording = Recording::open(&target, 1, &Settings::default()).unwrap();
        fill(&mut recording, 100);
        assert!(recording.full() || recording.failure().is_some() || recording.unwritten() > 0);
    }
}
