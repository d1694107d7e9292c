//! Reads items of a recording or stream and computes the resources spent by span.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jfr_format::pool::KeyHash;
use regex::Regex;

use super::board::Board;
use super::ids::TraceId;
use super::infer::{Inference, Inferred};
use super::join::{Counts, JoinedSample, Limits, Path};
use super::moments::Moments;
use super::profile::{Profile, SampleHandles};
use crate::live::{self, Item, Kind, Loss, Sample, Time, Value};
use crate::model::{EventKind, Frame, Id, Stack, Unit};

/// Maximum number of distinct kinds of losses; there are about ten.
const MOST_CAUSES: usize = 256;
/// Maximum number of stored inferred spans; further ones are counted.
const MOST_INFERRED: usize = 1 << 19;
/// Maximum number of stacks cached by address; beyond that, the cache is cleared.
const MOST_STACKS: usize = 1 << 17;

/// Options for reading a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limits for waiting records.
    pub limits: Limits,
    /// Options for inferring spans; `None`: do not infer.
    pub inference: Option<Inference>,
    /// Functions to exclude from inferred spans, as `class.function`, or `module` for native code.
    pub exclude: Vec<Regex>,
    /// Store single events of this trace.
    pub trace: Option<TraceId>,
    /// Earliest sample and span, in ns since 1970.
    pub from: i64,
    /// Latest sample and span, in ns since 1970.
    pub to: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::FILE,
            inference: None,
            exclude: Vec::new(),
            trace: None,
            from: i64::MIN,
            to: i64::MAX,
        }
    }
}

/// Spans and samples use different clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockMismatch(String);

impl std::fmt::Display for ClockMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ClockMismatch {}

/// Clocks that differ by more than this, in ns, are different clocks.
const SAME_CLOCK: i64 = 1_000_000_000;
/// If all spans are before or after all samples by more than this, in ns, they use different clocks.
const APART: i64 = 60_000_000_000;

/// Reads the items of a recording. See the module's documentation.
#[derive(Debug)]
pub struct Spans {
    options: Options,
    board: Board<SampleHandles>,
    inferred: Vec<Inferred>,
    inferred_left_out: u64,
    /// By address. The stored references keep an address from being reused.
    stacks: HashMap<usize, KnownStack, KeyHash>,
    /// Difference between monotonic time and wall-clock time according to the anchors of the recording.
    clock: Option<i64>,
    mismatch: Option<ClockMismatch>,
    sampled: (i64, i64),
    lost: Lost,
}

/// Losses that a recording reports, by lost type and cause: number, and the CPU time in ns that they
/// represent.
pub type Lost = BTreeMap<(Arc<str>, Arc<str>), (u64, u64)>;

/// Frames of inferred spans, root first.
type Frames = Arc<[Id<Frame>]>;

#[derive(Debug)]
struct KnownStack {
    stack: Id<Stack>,
    path: Option<Frames>,
    _lies: Arc<live::Stack>,
}

/// The result of reading a recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct SpanReport {
    /// Resources spent by span.
    pub profile: Profile,
    /// Inferred spans, if requested.
    pub inferred: Vec<Inferred>,
    /// Inferred spans that were dropped because there were too many.
    pub inferred_left_out: u64,
    /// Statistics.
    pub counts: Counts,
    /// Losses that the recording reports.
    pub lost: Lost,
    /// Single events of [`Options::trace`].
    pub moments: Option<Moments>,
}

impl Spans {
    /// Creates a reader with these options.
    pub fn new(options: Options) -> Self {
        Self {
            board: Board::new(
                options.limits,
                options.inference.clone(),
                options.trace,
                [options.from, options.to],
            ),
            options,
            inferred: Vec::new(),
            inferred_left_out: 0,
            stacks: HashMap::default(),
            clock: None,
            mismatch: None,
            sampled: (i64::MAX, i64::MIN),
            lost: Lost::new(),
        }
    }

    /// Processes an item.
    pub fn take(&mut self, item: &Item) {
        self.board.take(item);
        match item {
            Item::ChunkStart(_) => {
                // Stacks are shared only within a chunk.
                self.stacks.clear();
                self.advance();
            }
            Item::Sample(sample) => self.sample(sample),
            Item::Other(event) if *event.event == *"flightline.ClockAnchor" => self.anchor(&event.time),
            Item::Other(event) if *event.event == *"datadog.DatadogProfilerConfig" => {
                let millis = event.field("cpuInterval").and_then(Value::integer).unwrap_or(0);
                if let Some(nanos) = u64::try_from(millis).ok().and_then(|ms| ms.checked_mul(1_000_000)) {
                    let periods = &mut self.board.profile.periods;
                    periods.entry("datadog.ExecutionSample".into()).or_insert(nanos);
                }
            }
            Item::Segment(_) => self.advance(),
            Item::Loss(loss) => self.lost(loss),
            _ => {}
        }
        if self.board.joiner.is_full() {
            self.advance();
        }
    }

    fn lost(&mut self, loss: &Loss) {
        let of = loss.event_type.clone().unwrap_or_else(|| loss.told_by.clone());
        let key = (of, loss.cause.clone());
        if self.lost.len() < MOST_CAUSES || self.lost.contains_key(&key) {
            let sums = self.lost.entry(key).or_default();
            sums.0 = sums.0.saturating_add(loss.events.unwrap_or(0));
            sums.1 = sums.1.saturating_add(loss.cpu_nanos.unwrap_or(0));
        }
    }

    /// Sets the sampling periods of types without a value; see [`live::Feed::period`] for `period`. To be
    /// called at each chunk and at the end.
    pub fn periods(&mut self, period: impl Fn(&str) -> Option<u64>) {
        let Profile { model, periods, .. } = &mut self.board.profile;
        for (_, kind) in model.kinds.iter().filter(|(_, kind)| kind.unit == Unit::Samples) {
            if !periods.contains_key(&kind.name)
                && let Some(period) = period(&kind.name)
            {
                periods.insert(kind.name.clone(), period);
            }
        }
    }

    /// Starts another recording, which has its own clock.
    pub fn next_input(&mut self) {
        self.clock = None;
        self.stacks.clear();
    }

    /// Returns the inferred spans since the last call.
    pub fn take_inferred(&mut self) -> Vec<Inferred> {
        std::mem::take(&mut self.inferred)
    }

    /// Returns the profile so far.
    pub fn profile(&self) -> &Profile {
        &self.board.profile
    }

    /// Returns the statistics so far.
    pub fn counts(&self) -> Counts {
        self.board.joiner.counts()
    }

    /// Returns the numbers of waiting records and threads, for tests of limits.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.board.joiner.waiting()
    }

    /// Settles all records like [`finish`](Self::finish), but reading continues.
    pub fn settle(&mut self) {
        self.board.undoubted();
        let Self { board: Board { joiner, profile, .. }, inferred, inferred_left_out, .. } = self;
        joiner.finish(&mut |part| profile.take(&part), &mut |span| keep(inferred, inferred_left_out, span));
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Spans and samples use different clocks, so they cannot be joined.
    pub fn finish(mut self) -> Result<SpanReport, ClockMismatch> {
        self.settle();
        self.board.nest();
        let (sampled, told) = (self.sampled, self.board.told);
        let apart = |before: (i64, i64), after: (i64, i64)| after.0.saturating_sub(before.1) > APART;
        let both = sampled.0 <= sampled.1 && told.0 <= told.1;
        if self.mismatch.is_none() && both && (apart(sampled, told) || apart(told, sampled)) {
            self.mismatch = Some(ClockMismatch(format!(
                "spans and samples are told by different clocks: samples lie between {} and {}, spans between {} and {} (seconds since \
                 1970), so that it cannot be said which belongs to which; record both by one clock (async-profiler: clock=monotonic)",
                seconds(sampled.0),
                seconds(sampled.1),
                seconds(told.0),
                seconds(told.1)
            )));
        }
        if let Some(mismatch) = self.mismatch {
            return Err(mismatch);
        }
        let Board { mut profile, joiner, .. } = self.board;
        let keeper = profile.keeper.take();
        Ok(SpanReport {
            moments: keeper.map(|keeper| keeper.finish(&profile)),
            counts: joiner.counts(),
            profile,
            inferred: self.inferred,
            inferred_left_out: self.inferred_left_out,
            lost: self.lost,
        })
    }

    fn advance(&mut self) {
        self.board.undoubted();
        let Self { board: Board { joiner, profile, .. }, inferred, inferred_left_out, .. } = self;
        joiner.advance(&mut |part| profile.take(&part), &mut |span| keep(inferred, inferred_left_out, span));
    }

    /// An anchor states both clocks at one time; their difference must remain constant.
    fn anchor(&mut self, time: &Time) {
        let Some(monotonic) = time.monotonic_nanos else { return };
        let apart = monotonic.saturating_sub(time.epoch_nanos);
        let known = *self.clock.get_or_insert(apart);
        if apart.abs_diff(known) > SAME_CLOCK.unsigned_abs() && self.mismatch.is_none() {
            self.mismatch = Some(ClockMismatch(format!(
                "the recording goes by two clocks, {} s apart: spans and samples cannot be brought together; give the recordings it was \
                 made of one by one",
                seconds(i64::try_from(apart.abs_diff(known)).unwrap_or(i64::MAX))
            )));
        }
    }

    fn wants(&self, time: i64) -> bool {
        (self.options.from..=self.options.to).contains(&time)
    }

    fn sample(&mut self, sample: &Sample) {
        let Some(thread) = &sample.thread else { return };
        let time = sample.time.epoch_nanos;
        // Events of other kinds without a stack do not show where a thread was.
        let nowhere = sample.kind == Kind::Other && sample.stack.is_none();
        if !self.wants(time) || sample.kind == Kind::Live || nowhere {
            return;
        }
        if sample.weight.unit == Unit::Nanoseconds && matches!(sample.kind, Kind::Cpu | Kind::Wall) {
            let period = sample.weight.value / sample.weight.samples.max(1);
            self.board.profile.periods.entry(sample.event.clone()).or_insert(period);
        }
        self.sampled = (self.sampled.0.min(time), self.sampled.1.max(time));
        let number = self.board.joiner.number(thread);
        let stack = sample.stack.as_ref().map(|stack| self.stack(stack));
        let model = &mut self.board.profile.model;
        let event = EventKind {
            name: sample.event.clone(),
            variant: sample.variant.clone(),
            unit: if sample.kind == Kind::Cpu { Unit::Samples } else { sample.weight.unit },
            period_nanos: None,
        };
        let thread = model.threads.intern((**thread).clone());
        let seen = SampleHandles {
            event: model.kinds.intern(event),
            thread,
            stack: stack.as_ref().map(|known| known.0),
            state: sample.state.clone().map(|state| model.states.intern(state)),
            class: sample.class().map(|class| model.classes.intern(class)),
        };
        let path = stack.and_then(|known| known.1).map(|frames| Path { thread, frames });
        let taken = JoinedSample { path, ..JoinedSample::new(sample, seen) };
        self.board.joiner.sample(number, taken);
    }

    fn stack(&mut self, stack: &Arc<live::Stack>) -> (Id<Stack>, Option<Frames>) {
        let at = Arc::as_ptr(stack) as usize;
        if let Some(known) = self.stacks.get(&at) {
            return (known.stack, known.path.clone());
        }
        if self.stacks.len() >= MOST_STACKS {
            self.stacks.clear();
        }
        let model = &mut self.board.profile.model;
        let mut path = Vec::new();
        let mut frames = Vec::with_capacity(stack.frames.len());
        for frame in stack.frames.iter() {
            let id = model.frames.intern(Frame { line: 0, ..frame.to_model() });
            frames.push(id);
            let excluded = || {
                let name = format!("{}.{}", model.frames.get(id).class, frame.function);
                self.options.exclude.iter().any(|regex| regex.is_match(&name))
            };
            if self.options.inference.is_some() && !excluded() {
                path.push(id);
            }
        }
        path.reverse();
        let id = model.stacks.intern(Stack { frames: frames.into(), truncated: stack.truncated });
        let path: Option<Frames> = self.options.inference.is_some().then(|| path.into());
        self.stacks.insert(at, KnownStack { stack: id, path: path.clone(), _lies: stack.clone() });
        (id, path)
    }
}

fn keep(inferred: &mut Vec<Inferred>, left_out: &mut u64, span: Inferred) {
    if inferred.len() < MOST_INFERRED {
        inferred.push(span);
    } else {
        *left_out += 1;
    }
}

fn seconds(nanos: i64) -> String {
    format!("{:.3}", nanos as f64 / 1e9)
}
