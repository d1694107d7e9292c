//! The recorder's own accounting: CPU time per thread, sampled and lost, and causes of losses.

use std::collections::{BTreeMap, BTreeSet};

use jfr_format::event::{EventRef, StructRef};

use crate::decode::losses::{EVENT_LOSS, SAMPLE_LOSS};

/// CPU time of one thread, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// By the thread's clock, at the last report.
    pub cpu: u64,
    /// By the thread's clock, at the first report.
    pub first_cpu: u64,
    /// Weight of its samples.
    pub sampled: u64,
    /// Weight of its lost samples, for all causes.
    pub lost: u64,
}

/// Losses by one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Samples.
    pub samples: u64,
    /// CPU time that they represent, in ns.
    pub cpu: u64,
}

/// The accounting of a recording.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Ledger {
    /// By process and thread id. A list, because ids are reused.
    pub threads: BTreeMap<(String, i64), Vec<(String, ThreadTime)>>,
    /// By cause.
    pub losses: BTreeMap<String, Cause>,
    /// Lost events of engines other than CPU time, by type.
    pub events_lost: BTreeMap<String, u64>,
    /// Truncated samples, by cause.
    pub truncated: BTreeMap<String, u64>,
    /// Messages of the recorder.
    pub notices: Vec<String>,
    /// Values of each label.
    pub labels: BTreeMap<String, BTreeSet<String>>,
}

const THREAD_CPU: &str = "flightline.ThreadCpu";
const SAMPLE_TRUNCATED: &str = "flightline.SampleTruncated";
const NOTICE: &str = "flightline.Notice";
const LABEL: &str = "flightline.Label";
/// Maximum number of label names, and of values per label.
const MAX_LABELS: usize = 256;

impl Ledger {
    /// Returns true if events of this type belong to the accounting.
    pub(super) fn knows(name: &str) -> bool {
        matches!(name, THREAD_CPU | SAMPLE_LOSS | EVENT_LOSS | SAMPLE_TRUNCATED | NOTICE | LABEL)
    }

    /// Adds an event; one that cannot be decoded is ignored. Thread times are totals, the other values
    /// are increments since the event before.
    pub(super) fn take(&mut self, event: &EventRef<'_>) {
        let number = |name| {
            let value = event.field(name).ok().flatten().and_then(|v| v.as_i64());
            value.and_then(|v| u64::try_from(v).ok()).unwrap_or(0)
        };
        let text = |name| {
            let value = event.field(name).ok().flatten().and_then(|v| v.text().ok().flatten());
            value.map(|t| t.into_owned()).unwrap_or_default()
        };
        match &*event.class().name {
            THREAD_CPU => {
                let cpu = number("cpuTime");
                let (sampled, lost) = (number("sampled"), number("lost"));
                self.thread(event, ThreadTime { cpu, first_cpu: cpu, sampled, lost });
            }
            SAMPLE_LOSS => {
                let cause = self.losses.entry(text("cause")).or_default();
                cause.samples = cause.samples.saturating_add(number("samples"));
                cause.cpu = cause.cpu.saturating_add(number("cpuTime"));
            }
            EVENT_LOSS => {
                let count = self.events_lost.entry(text("event")).or_default();
                *count = count.saturating_add(number("count"));
            }
            SAMPLE_TRUNCATED => {
                let samples = self.truncated.entry(text("cause")).or_default();
                *samples = samples.saturating_add(number("samples"));
            }
            NOTICE => self.notices.push(text("message")),
            LABEL => self.label(text("name"), text("value")),
            _ => {}
        }
    }

    fn label(&mut self, name: String, value: String) {
        if self.labels.len() < MAX_LABELS || self.labels.contains_key(&name) {
            let values = self.labels.entry(name).or_default();
            if values.len() < MAX_LABELS {
                values.insert(value);
            }
        }
    }

    fn thread(&mut self, event: &EventRef<'_>, time: ThreadTime) {
        let thread = event.field("eventThread").ok().flatten().and_then(|v| v.record().ok().flatten());
        let text = |of: &StructRef<'_>, field: &str| {
            let value = of.field(field).ok().flatten().and_then(|v| v.text().ok().flatten());
            value.map(|t| t.into_owned()).unwrap_or_default()
        };
        let name = thread.map(|t| text(&t, "osName")).unwrap_or_default();
        let id = thread.and_then(|t| t.field("osThreadId").ok().flatten()?.as_i64()).unwrap_or(0);
        let group = thread.and_then(|t| t.field("group").ok().flatten()?.record().ok().flatten());
        let process = group.map(|g| text(&g, "name")).unwrap_or_default();
        follow(self.threads.entry((process, id)).or_default(), name, time);
    }

    /// Merges the accounting of a later part. The result is the same as for all events in order.
    pub(super) fn merge(&mut self, later: Self) {
        for (id, holders) in later.threads {
            let known = self.threads.entry(id).or_default();
            let mut holders = holders.into_iter();
            if let Some((name, time)) = holders.next() {
                follow(known, name, time);
            }
            known.extend(holders);
        }
        for (cause, loss) in later.losses {
            let sum = self.losses.entry(cause).or_default();
            sum.samples = sum.samples.saturating_add(loss.samples);
            sum.cpu = sum.cpu.saturating_add(loss.cpu);
        }
        for (of_all, more) in
            [(&mut self.truncated, later.truncated), (&mut self.events_lost, later.events_lost)]
        {
            for (name, count) in more {
                let sum = of_all.entry(name).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        self.notices.extend(later.notices);
        for (name, values) in later.labels {
            values.into_iter().for_each(|value| self.label(name.clone(), value));
        }
    }
}

/// Adds a report of a thread.
fn follow(holders: &mut Vec<(String, ThreadTime)>, name: String, time: ThreadTime) {
    match holders.last_mut() {
        // A clock does not run backwards: a smaller total belongs to another thread.
        Some(last) if last.1.cpu <= time.first_cpu => {
            *last = (name, ThreadTime { first_cpu: last.1.first_cpu, ..time });
        }
        _ => holders.push((name, time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(told: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        for &cpu in told {
            let time = ThreadTime { cpu, first_cpu: cpu, ..ThreadTime::default() };
            follow(ledger.threads.entry((String::new(), 1)).or_default(), format!("at {cpu}"), time);
        }
        ledger
    }

    #[test]
    fn merged_partial_ledgers_equal_whole_ledger() {
        // Three threads had the id; the last total of the second exceeds that of the first.
        let told = [3, 5, 9, 2, 8, 11, 12, 1];
        let whole = account(&told);
        let totals = |ledger: &Ledger| {
            let holders = ledger.threads.values().flatten();
            holders.map(|(name, time)| (name.clone(), time.cpu)).collect::<Vec<_>>()
        };
        assert_eq!(totals(&whole), [("at 9".into(), 9), ("at 12".into(), 12), ("at 1".into(), 1)]);
        for first in 0..told.len() {
            for second in first..told.len() {
                let mut merged = account(&told[..first]);
                merged.merge(account(&told[first..second]));
                merged.merge(account(&told[second..]));
                assert_eq!(merged.threads, whole.threads, "cut at {first} and {second}");
            }
        }
    }
}
