//! Histograms of how long calls, waits and times off CPU lasted, as bcc's `biolatency` and `funclatency` print them.

mod histogram;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use histogram::{Bucket, Histogram, Summary};

use crate::decode::losses::SAMPLE_LOSS;
use crate::fold;
use crate::live::{Event, Item, Kind, Loss, Sample, Value};
use crate::off_cpu;

/// The event types that have histograms without a selection, for [`live::Options::samples`](crate::live::Options::samples).
pub const EVENTS: [&str; 8] = [
    "io",
    "block",
    "lock",
    "nativelock",
    "trace",
    off_cpu::EVENT,
    "jdk.ThreadSleep",
    "jdk.VirtualThreadPinned",
];

/// Groups with their own histogram. Further groups share one, which bounds memory (about 600 kB each).
const MOST_GROUPS: usize = if cfg!(test) { 4 } else { 256 };
/// Names of events that are counted below their threshold; Flightline has fewer than 20.
const MOST_NAMES: usize = 64;

/// Names of groups that do not depend on a field of the event.
const NAMES: [(&str, &str); 13] = [
    ("jdk.FileRead", "file read"),
    ("jdk.FileWrite", "file write"),
    ("jdk.FileForce", "file sync"),
    ("jdk.SocketRead", "socket read"),
    ("jdk.SocketWrite", "socket write"),
    ("flightline.SocketConnect", "socket connect"),
    ("flightline.SocketAccept", "socket accept"),
    ("jdk.JavaMonitorEnter", "lock"),
    ("jdk.JavaMonitorWait", "condition wait"),
    ("jdk.ThreadPark", "park, semaphore or futex"),
    ("profiler.NativeLock", "native lock"),
    ("jdk.ThreadSleep", "sleep"),
    ("jdk.VirtualThreadPinned", "pinned virtual thread"),
];

/// States of `flightline.OffCpu`, named as in ps(1).
const STATES: [(char, &str); 9] = [
    ('R', "preempted"),
    ('S', "interruptible sleep"),
    ('D', "uninterruptible sleep"),
    ('T', "stopped"),
    ('t', "stopped by a debugger"),
    ('X', "dead"),
    ('Z', "zombie"),
    ('P', "parked"),
    ('I', "idle kernel thread"),
];

/// The durations of one kind of event.
#[derive(Clone, Debug)]
pub struct Group {
    /// The event type; empty for the group that all further groups share.
    pub event: Arc<str>,
    /// Name for people: `file read`, `disk write`, `lock`, `off-CPU S (interruptible sleep)`, the name of
    /// a traced function, or the event type.
    pub name: String,
    /// The durations.
    pub latency: Summary,
}

/// Calls that were counted but not recorded, because they were shorter than the recording's threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// Number of calls.
    pub count: u64,
    /// Sum of their durations, in ns.
    pub nanos: u64,
}

/// Collects durations of samples by kind of event. Samples without a duration are ignored.
#[derive(Debug, Default)]
pub struct Latencies {
    groups: HashMap<Key, Histogram>,
    below: BTreeMap<Arc<str>, Below>,
    lost: u64,
}

/// The histogram of a sample: its event type, and the field that selects the group.
type Key = (Arc<str>, Arc<str>);

impl Latencies {
    /// Adds the duration of a sample.
    pub fn add(&mut self, sample: &Sample) {
        let Some(nanos) = nanos(sample) else { return };
        let key = (sample.event.clone(), detail(sample));
        let key = if self.groups.len() < MOST_GROUPS || self.groups.contains_key(&key) {
            key
        } else {
            Key::default()
        };
        self.groups.entry(key).or_default().add(nanos);
    }

    /// Records what the recording lacks: calls below its threshold, and lost events. Losses of CPU
    /// samples are ignored.
    pub fn note(&mut self, item: &Item) {
        match item {
            Item::Other(event) if *event.event == *"flightline.BelowThreshold" => self.below(event),
            Item::Loss(Loss { told_by, events, .. }) if **told_by != *SAMPLE_LOSS => {
                self.lost = self.lost.saturating_add(events.unwrap_or(1));
            }
            _ => {}
        }
    }

    fn below(&mut self, event: &Event) {
        let number =
            |name| event.field(name).and_then(Value::integer).map_or(0, |n| u64::try_from(n).unwrap_or(0));
        let Some(Value::Text(name)) = event.field("event") else { return };
        if self.below.len() >= MOST_NAMES && !self.below.contains_key(name) {
            return;
        }
        let below = self.below.entry(name.clone()).or_default();
        below.count = below.count.saturating_add(number("count"));
        below.nanos = below.nanos.saturating_add(number("value"));
    }

    /// Returns calls below the threshold by the recorder's name of the event, such as `io` or
    /// `syscall-io`.
    pub fn below_threshold(&self) -> impl Iterator<Item = (&str, Below)> {
        self.below.iter().map(|(name, below)| (&**name, *below))
    }

    /// Returns the number of lost events.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the groups, those with the largest total first.
    pub fn into_groups(self) -> Vec<Group> {
        let mut histograms: Vec<(Key, Histogram)> = self.groups.into_iter().collect();
        histograms.sort_by(|(a, of_a), (b, of_b)| of_b.total().cmp(&of_a.total()).then_with(|| a.cmp(b)));
        let group = |((event, detail), histogram): (Key, Histogram)| {
            Some(Group { name: name(&event, &detail), event, latency: histogram.summary()? })
        };
        histograms.into_iter().filter_map(group).collect()
    }
}

/// Returns true if events of a type have histograms without a selection.
pub fn has_durations(event: &str) -> bool {
    let group = fold::alias(event).unwrap_or(event);
    EVENTS.contains(&group)
}

/// Returns the duration of a sample's event in ns, if it has one.
pub fn nanos(sample: &Sample) -> Option<u64> {
    // Its `duration` is rounded to the recording's ticks.
    let exact = sample.field("nanos").filter(|_| *sample.event == *off_cpu::EVENT).and_then(Value::integer);
    exact.and_then(|nanos| u64::try_from(nanos).ok()).or(sample.duration_nanos)
}

/// The field by which samples of one event type are grouped; empty if there is none.
fn detail(sample: &Sample) -> Arc<str> {
    match &*sample.event {
        off_cpu::EVENT => state(sample.state.as_ref()),
        "flightline.BlockIo" => match sample.field("operation") {
            Some(Value::Text(operation)) => operation.clone(),
            _ => Arc::default(),
        },
        _ if sample.kind == Kind::Trace => {
            let stack = sample.stack.as_ref();
            let Some(frame) = stack.and_then(|stack| stack.innermost()) else { return Arc::default() };
            match frame.class.is_empty() {
                true => frame.function.clone(),
                false => format!("{}.{}", frame.class, frame.function).into(),
            }
        }
        _ => Arc::default(),
    }
}

/// Returns the state without the kernel's additions to its letter, as in `R+` and `D|K`.
fn state(name: Option<&Arc<str>>) -> Arc<str> {
    let Some(name) = name else { return Arc::default() };
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), Some(_)) if letter.is_ascii_alphabetic() => letter.to_string().into(),
        _ => name.clone(),
    }
}

/// Returns the name of a group for people.
fn name(event: &str, detail: &str) -> String {
    let known = NAMES.iter().find(|(name, _)| *name == event);
    match (event, detail, known) {
        ("", ..) => "other events".to_owned(),
        (off_cpu::EVENT, state, _) => {
            let known = STATES.iter().find(|(letter, _)| state.starts_with(*letter));
            let meaning = known.map(|(_, meaning)| format!(" ({meaning})")).unwrap_or_default();
            format!("off-CPU {state}{meaning}").trim_end().to_owned()
        }
        ("flightline.BlockIo", operation, _) => format!("disk {operation}").trim_end().to_owned(),
        (_, "", Some((_, name))) => (*name).to_owned(),
        (_, "", None) => event.to_owned(),
        (_, function, _) => function.to_owned(),
    }
}

#[cfg(test)]
mod tests;
