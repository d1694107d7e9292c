//! From registers to a record in the ring: walk, claim, fill, publish. Used by handlers, by [`sync_event`] outside
//! handlers, and by [`fatal`] for last samples.

pub mod fatal;
pub mod sync_event;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context;
use crate::layout::{MAX_EXTRA, SampleRecord, ThreadSlot, event_word, loss, record};
use crate::ring::Refused;
use crate::state::ProcState;
use crate::state::scratch::Scratch;
use crate::unwind::interrupted::Regs;
use crate::unwind::modules::Modules;
use crate::unwind::rule_cache::Tag;
use crate::unwind::stack::Local;
use crate::unwind::walk::{self, Lookup};

/// Known stack of a thread; (0, 0) if unknown.
#[inline]
pub fn bounds(slot: &ThreadSlot) -> (u64, u64) {
    (slot.memory.stack_lo.load(Relaxed), slot.memory.stack_hi.load(Relaxed))
}

/// The result of a walk.
#[derive(Clone, Copy, Debug, Default)]
pub struct CapturedStack<'s> {
    /// Addresses, leaf first.
    pub frames: &'s [u64],
    /// The thread's context, see [`crate::context`]; may be empty.
    pub context: &'s [u64],
}

impl<'s> CapturedStack<'s> {
    /// Wraps the result that [`walk()`] wrote to the parts of a scratch buffer.
    #[inline]
    pub fn new(frames: &'s [u64], depth: u16, context: &'s [u64], words: usize) -> CapturedStack<'s> {
        CapturedStack {
            frames: frames.get(..usize::from(depth)).unwrap_or_default(),
            context: context.get(..words).unwrap_or_default(),
        }
    }

    #[inline]
    fn words(&self) -> usize {
        self.frames.len().wrapping_add(self.context.len())
    }
}

/// Walks from `regs` in the thread that called the handler, copies its context, and stores the outcome in
/// `fixed`.
#[inline]
pub fn walk<'s>(
    state: &ProcState,
    stack: (u64, u64),
    regs: &Regs,
    fixed: &mut SampleRecord,
    scratch: &'s mut Scratch,
) -> CapturedStack<'s> {
    let slot = state.slots.get(fixed.slot as usize);
    scratch.context_words = context::take(state, slot, fixed, &mut scratch.context);
    let modules = Modules::now(state.tables, &state.header.modules.generation);
    let epoch = state.private.epoch.load(Relaxed);
    let tag = Tag(modules.generation().wrapping_add(epoch) as u16);
    let lookup = Lookup {
        modules,
        rows: state.rows,
        rule_cache: &state.private.rule_cache,
        tag,
        jvm: Some(&state.header.jvm),
    };
    // SAFETY: the interrupted stack pointer of this thread, and the stack that it was registered with.
    let mut memory = unsafe { Local::new(state.pid, stack, regs.sp(), &mut scratch.windows) };
    walk::prefetch(&lookup, regs, &memory, scratch.frames.get(..scratch.depth).unwrap_or_default());
    let limit = (state.fixed.max_depth as usize).min(scratch.frames.len());
    let frames = scratch.frames.get_mut(..limit).unwrap_or_default();
    let walked = walk::walk(&lookup, regs, &mut memory, &mut scratch.machine, frames);
    scratch.depth = walked.depth;
    fixed.depth = walked.depth as u16;
    fixed.flags |= walked.flags;
    fixed.modules_gen = modules.generation();
    fixed.exact_frames = walked.exact_frames;
    if walked.unknown_pcs != 0 {
        state.header.modules.unknown_pcs.fetch_add(u64::from(walked.unknown_pcs), Relaxed);
    }
    CapturedStack::new(&scratch.frames, fixed.depth, &scratch.context, scratch.context_words)
}

/// Counts a sample with a context in its thread's slot.
#[inline]
fn count(state: &ProcState, fixed: &SampleRecord, taken: &CapturedStack<'_>) {
    if let (false, Some(slot)) = (taken.context.is_empty(), state.slots.get(fixed.slot as usize)) {
        slot.ledger.span_samples.fetch_add(1, Relaxed);
    }
}

/// The fixed part of a record whose stack continues in the kernel with `kernel` frames.
fn head(fixed: &SampleRecord, kernel: usize) -> [u64; 5] {
    let depth = fixed.depth.wrapping_add(kernel as u16);
    // The innermost kernel frame is an exact address too.
    let exact = match kernel {
        0 => fixed.exact_frames,
        n => fixed.exact_frames.checked_shl(n as u32).unwrap_or(0) | 1,
    };
    [
        fixed.time_ns,
        u64::from(fixed.tid) | u64::from(fixed.slot) << 32,
        fixed.weight_ns,
        u64::from(depth) | u64::from(fixed.flags) << 16 | u64::from(fixed.modules_gen) << 32,
        exact,
    ]
}

fn cause(refused: Refused) -> usize {
    match refused {
        Refused::Full => loss::RING_FULL,
        Refused::Contended => loss::CONTENDED,
    }
}

/// Copies the parts to `words`, one after the other.
#[inline]
fn copy<const N: usize>(words: &[AtomicU64], parts: [&[u64]; N]) {
    let mut rest = words;
    for part in parts {
        for (word, value) in rest.iter().zip(part) {
            word.store(*value, Relaxed);
        }
        rest = rest.get(part.len()..).unwrap_or_default();
    }
}

/// Copies a CPU sample into the ring, kernel frames before those of the program; `Err` is the cause of a loss.
#[inline]
pub fn sample(
    state: &ProcState,
    fixed: &SampleRecord,
    kernel: &[u64],
    taken: &CapturedStack<'_>,
) -> Result<(), usize> {
    let head = head(fixed, kernel.len());
    let words = head.len().wrapping_add(kernel.len()).wrapping_add(taken.words());
    let claim = state.ring.claim(record::SAMPLE, words).map_err(cause)?;
    copy(claim.words, [&head, kernel, taken.frames, taken.context]);
    claim.publish();
    count(state, fixed, taken);
    Ok(())
}

/// An event, written as a [`crate::layout::record::EVENT`].
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// [`crate::layout::event_kind`].
    pub kind: u16,
    /// Index within its kind.
    pub index: u16,
    /// Meaning by kind.
    pub value: u64,
    /// Meaning by kind; at most [`MAX_EXTRA`] words are stored.
    pub extra: &'a [u64],
}

/// Copies an event into the ring; `fixed.weight_ns` is replaced by its value. An event that finds no room is
/// counted in the header by kind.
pub fn event(
    state: &ProcState,
    fixed: &SampleRecord,
    event: &Event<'_>,
    kernel: &[u64],
    taken: &CapturedStack<'_>,
) -> Result<(), usize> {
    let mut head = head(fixed, kernel.len());
    head[2] = event.value;
    let extra = event.extra.get(..MAX_EXTRA.min(event.extra.len())).unwrap_or_default();
    let word = [event_word(event.kind, event.index, extra.len() as u32)];
    let stack = kernel.len().wrapping_add(taken.words());
    let words = stack.wrapping_add(head.len()).wrapping_add(1).wrapping_add(extra.len());
    let claim = match state.ring.claim(record::EVENT, words) {
        Ok(claim) => claim,
        Err(refused) => {
            lose(state, event);
            return Err(cause(refused));
        }
    };
    copy(claim.words, [&head, &word, extra, kernel, taken.frames, taken.context]);
    claim.publish();
    count(state, fixed, taken);
    Ok(())
}

/// Copies a thread's new name into the ring. If the ring is more than half full, the space is left to
/// samples: the drain reads the names from /proc once a second and finds this one then.
pub fn name(state: &ProcState, time_ns: u64, thread: (u32, u32), name: &[u8; 16]) {
    if state.ring.is_half_full() {
        return;
    }
    let (tid, slot) = thread;
    let name = u128::from_le_bytes(*name);
    let words = [time_ns, u64::from(tid) | u64::from(slot) << 32, name as u64, (name >> 64) as u64];
    if let Ok(claim) = state.ring.claim(record::NAME, words.len()) {
        copy(claim.words, [&words]);
        claim.publish();
    }
}

/// Counts an event that is not recorded.
pub fn lose(state: &ProcState, event: &Event<'_>) {
    let kind = usize::from(event.kind);
    if let (Some(count), Some(value)) =
        (state.header.counters.event_lost.get(kind), state.header.counters.event_lost_value.get(kind))
    {
        count.fetch_add(1, Relaxed);
        value.fetch_add(event.value, Relaxed);
    }
}
