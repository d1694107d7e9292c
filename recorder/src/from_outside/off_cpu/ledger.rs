//! Counts the recorded and lost off-CPU intervals, by cause, and writes the losses to each output.

use std::collections::BTreeMap;

use jfr_format::schema;

use crate::recording::{Recording, RecordingId};

/// Why an interval is not in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Records are missing within it, so it may have been several intervals.
    Doubtful,
    /// No event reported its end.
    Unseen,
    /// The output had no room.
    OutputFull,
    /// The guard held recording back.
    Guard,
    /// Recording paused.
    Paused,
    /// Records are missing within a system call or block I/O request.
    CallDoubtful,
    /// No event reported its start, or its end.
    CallUnseen,
    /// The output had no room for it.
    CallOutputFull,
    /// The guard held recording back during it.
    CallGuard,
    /// Recording was paused during it.
    CallPaused,
}

impl Cause {
    /// Returns true if the cause concerns a system call or block I/O request, not an off-CPU interval.
    fn concerns_calls(self) -> bool {
        self >= Cause::CallDoubtful
    }

    fn text(self) -> &'static str {
        match self {
            Cause::Doubtful => "off-cpu: over lost records",
            Cause::Unseen => "off-cpu: end not seen",
            Cause::OutputFull => "off-cpu: output full",
            Cause::Guard => "off-cpu: held back",
            Cause::Paused => "off-cpu: paused",
            Cause::CallDoubtful => "kernel-io: over lost records",
            Cause::CallUnseen => "kernel-io: beginning or end not seen",
            Cause::CallOutputFull => "kernel-io: output full",
            Cause::CallGuard => "kernel-io: held back",
            Cause::CallPaused => "kernel-io: paused",
        }
    }
}

/// A number of intervals and their total duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of intervals.
    pub count: u64,
    /// Total duration, ns.
    pub ns: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

#[derive(Default)]
struct Unwritten {
    short: BTreeMap<&'static str, Sum>,
    lost: BTreeMap<Cause, Sum>,
    /// Records lost to full rings that have been written to this output.
    records: u64,
    /// Skipped switches that have been written to this output.
    skipped: u64,
}

/// The counters.
#[derive(Default)]
pub struct Ledger {
    /// Switches are recorded, so lost records may be switches.
    switches: bool,
    outputs: BTreeMap<RecordingId, Unwritten>,
    /// Records lost to full rings.
    records: u64,
    /// Switches skipped while the guard held recording back.
    skipped: u64,
    /// Intervals written.
    pub written: u64,
    /// Calls, requests and growth written.
    pub written_io: u64,
    lost_intervals: u64,
    lost_calls: u64,
}

impl Ledger {
    /// Returns a ledger with all counters at zero. `switches`: they are recorded.
    pub fn new(switches: bool) -> Ledger {
        Ledger { switches, ..Ledger::default() }
    }

    /// Counts an interval that is shorter than the selected minimum.
    pub fn short(&mut self, what: &'static str, id: RecordingId, ns: u64) {
        self.outputs.entry(id).or_default().short.entry(what).or_default().add(ns);
    }

    /// Counts a lost interval of a recording.
    pub fn lose(&mut self, id: RecordingId, cause: Cause, ns: u64) {
        match cause.concerns_calls() {
            true => self.lost_calls += 1,
            false => self.lost_intervals += 1,
        }
        self.outputs.entry(id).or_default().lost.entry(cause).or_default().add(ns);
    }

    /// Counts records lost to full rings.
    pub fn no_room(&mut self, records: u64) {
        self.records = self.records.saturating_add(records);
    }

    /// Counts skipped switches.
    pub fn hold_back(&mut self, switches: u64) {
        self.skipped = self.skipped.saturating_add(switches);
    }

    /// Notes that an output has intervals. Returns true if they are its first.
    pub fn uses(&mut self, id: RecordingId) -> bool {
        let before = self.outputs.len();
        self.outputs.entry(id).or_default();
        self.outputs.len() > before
    }

    /// Returns the number of lost intervals, and of lost calls and requests. If switches are recorded,
    /// records lost to full rings count as intervals, as in the recording.
    pub fn total_lost(&self) -> (u64, u64) {
        let records = self.records.saturating_add(self.skipped);
        let (of_intervals, of_calls) = if self.switches { (records, 0) } else { (0, records) };
        (self.lost_intervals.saturating_add(of_intervals), self.lost_calls.saturating_add(of_calls))
    }

    /// Writes the losses that a recording does not have yet.
    pub fn write_losses(&mut self, id: RecordingId, recording: &mut Recording, now_ns: u64) {
        let Some(unwritten) = self.outputs.get_mut(&id) else { return };
        let now = recording.ticks(now_ns);
        for (what, short) in std::mem::take(&mut unwritten.short) {
            recording.event(schema::BELOW_THRESHOLD, None, what.len(), |e, _| {
                e.ticks(now).string(what).long(short.count as i64).long(short.ns as i64);
            });
        }
        let records = self.records - std::mem::replace(&mut unwritten.records, self.records);
        let skipped = self.skipped - std::mem::replace(&mut unwritten.skipped, self.skipped);
        let of_all = match self.switches {
            true => [("off-cpu: records, ring full", records), ("off-cpu: switches held back", skipped)],
            false => [("kernel-io: records, ring full", records), ("kernel-io: calls held back", skipped)],
        };
        let of_all = of_all.map(|(name, count)| (name, Sum { count, ns: 0 }));
        let lost = std::mem::take(&mut unwritten.lost).into_iter().map(|(cause, sum)| (cause.text(), sum));
        for (name, Sum { count, ns }) in of_all.into_iter().chain(lost).filter(|(_, sum)| sum.count > 0) {
            if recording.defer_unread_loss(schema::EVENT_LOSS, name, (count, ns)) {
                continue;
            }
            recording.event(schema::EVENT_LOSS, None, name.len(), |e, _| {
                e.ticks(now).string(name).long(count as i64).long(ns as i64);
            });
        }
    }

    /// Forgets a recording that is retired.
    pub fn forget(&mut self, id: RecordingId) {
        self.outputs.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_and_call_losses_are_counted_separately() {
        let [one, two] = [0, 1].map(RecordingId::first);
        for (switches, lost) in [(true, (112, 1)), (false, (2, 111))] {
            let mut ledger = Ledger { written: 3, ..Ledger::new(switches) };
            ledger.short("off-cpu", one, 5);
            ledger.lose(one, Cause::Doubtful, 7);
            ledger.lose(two, Cause::Paused, 7);
            ledger.lose(two, Cause::CallDoubtful, 7);
            ledger.no_room(10);
            ledger.hold_back(100);
            assert_eq!((ledger.written, ledger.total_lost()), (3, lost));
        }
    }
}
