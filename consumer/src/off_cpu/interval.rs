//! Converts events to intervals with interned threads, frames and stacks.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::idle;
use super::kind::Kind;
use super::state::KnownStates;
use crate::live::{self, Sample, Value};
use crate::model::{Frame, Id, Model, Stack, Thread};

/// The event of a thread that was switched out and in again.
pub const EVENT: &str = "flightline.OffCpu";
/// The event of a thread that was still switched out when its recording ended.
pub const OPEN_EVENT: &str = "flightline.OpenOffCpu";

/// An interval in which a thread was off CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) thread: Id<Thread>,
    /// Start, in ns since 1970.
    pub(super) start: i64,
    /// Duration, in ns.
    pub(super) nanos: u64,
    /// The part of it after the wake-up, in ns.
    pub(super) run_queue: u64,
    pub(super) state: Id<Arc<str>>,
    pub(super) stack: Option<Id<Stack>>,
    pub(super) waker: Waker,
}

impl Interval {
    pub(super) fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.nanos)
    }

    /// Returns the time of the wake-up.
    pub(super) fn woken(&self) -> i64 {
        self.start.saturating_add_unsigned(self.nanos - self.run_queue)
    }
}

/// The waker of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Waker {
    /// Not recorded, or none.
    Unknown,
    /// An interrupt, for example of a timer, a disk or the network.
    Interrupt(Option<Id<Stack>>),
    /// A thread.
    Thread(Id<Thread>, Option<Id<Stack>>),
}

impl Waker {
    pub(super) fn is_unknown(self) -> bool {
        self == Self::Unknown
    }
}

/// Maximum number of stacks cached by address; beyond that, the cache is cleared.
const MOST_STACKS: usize = 1 << 16;

/// Converts events.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Holds threads, frames and stacks only.
    pub(super) model: Model,
    pub(super) states: KnownStates,
    /// By address. The stored references keep an address from being reused.
    stacks: HashMap<usize, (Id<Stack>, Arc<live::Stack>), KeyHash>,
    /// By stack: whether it is idle, if already known.
    idle: Vec<Option<bool>>,
}

impl Reader {
    /// Clears the cache of stacks, which are shared only within a chunk.
    pub(super) fn next_chunk(&mut self) {
        self.stacks.clear();
    }

    /// Converts an event; `None` if it has no thread or no duration.
    pub(super) fn read(&mut self, sample: &Sample) -> Option<Interval> {
        let number =
            |name: &str| sample.field(name).and_then(Value::integer).and_then(|n| u64::try_from(n).ok());
        let start = sample.time.epoch_nanos;
        // Limits a damaged duration.
        let nanos = number("nanos").or(sample.duration_nanos)?;
        let nanos = nanos.min(i64::MAX.saturating_sub(start).unsigned_abs());
        let thread = self.model.threads.intern((**sample.thread.as_ref()?).clone());
        let state = match &sample.state {
            Some(state) => self.states.intern(state),
            None => self.states.intern(&"".into()),
        };
        let waker_stack = match sample.field("wakerStackTrace") {
            Some(Value::Stack(stack)) => Some(self.stack(stack)),
            _ => None,
        };
        let waker = match (sample.field("wakerKind").and_then(Value::text), sample.field("wakerThread")) {
            (Some("interrupt"), _) => Waker::Interrupt(waker_stack),
            (Some("thread"), Some(Value::Thread(thread))) => {
                Waker::Thread(self.model.threads.intern((**thread).clone()), waker_stack)
            }
            _ => Waker::Unknown,
        };
        Some(Interval {
            thread,
            start,
            nanos,
            run_queue: number("runQueue").unwrap_or(0).min(nanos),
            state,
            stack: sample.stack.as_ref().map(|stack| self.stack(stack)),
            waker,
        })
    }

    /// Returns true if the thread was idle.
    pub(super) fn is_idle(&mut self, interval: &Interval) -> bool {
        if idle::is_state(self.states.name(interval.state)) {
            return true;
        }
        let Some(stack) = interval.stack else { return false };
        self.idle.resize(self.model.stacks.len(), None);
        let model = &self.model;
        *self.idle[stack.index()].get_or_insert_with(|| idle::is_stack(model, model.stacks.get(stack)))
    }

    /// Returns the kind of wait.
    pub(super) fn kind(&self, interval: &Interval) -> Kind {
        let stack = interval.stack.map(|stack| self.model.stacks.get(stack));
        Kind::classify(&self.model, stack, self.states.name(interval.state))
    }

    /// Interns thread and stack of any sample.
    pub(super) fn intern_sample(
        &mut self,
        thread: &Arc<Thread>,
        stack: Option<&Arc<live::Stack>>,
    ) -> (Id<Thread>, Option<Id<Stack>>) {
        (self.model.threads.intern((**thread).clone()), stack.map(|stack| self.stack(stack)))
    }

    fn stack(&mut self, stack: &Arc<live::Stack>) -> Id<Stack> {
        let at = Arc::as_ptr(stack) as usize;
        if let Some((known, _)) = self.stacks.get(&at) {
            return *known;
        }
        if self.stacks.len() >= MOST_STACKS {
            self.stacks.clear();
        }
        let frames = stack.frames.iter().map(|frame| {
            let class = if frame.kind.in_library() { &frame.module } else { &frame.class };
            let (function, class) = (frame.function.clone(), class.clone());
            self.model.frames.intern(Frame {
                function,
                class,
                kind: frame.kind,
                line: frame.line,
                place: None,
            })
        });
        let frames = frames.collect();
        let id = self.model.stacks.intern(Stack { frames, truncated: stack.truncated });
        self.stacks.insert(at, (id, stack.clone()));
        id
    }
}
