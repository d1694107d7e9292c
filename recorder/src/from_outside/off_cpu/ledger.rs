//! What was recorded of off-CPU time, and what was not and why, told in each output.

use std::collections::BTreeMap;

use jfr_format::schema;

use crate::recording::{Recording, RecordingId};

/// Why an interval is not in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Records are missing in it: it may have been several.
    Doubtful,
    /// Its end was not seen.
    Unseen,
    /// The output had no room.
    OutputFull,
    /// The guard held recording back.
    Guard,
    /// Recording paused.
    Paused,
    /// Records are missing in a system call or a request to a device.
    CallDoubtful,
    /// Its beginning or its end was not seen.
    CallUnseen,
    /// The output had no room for it.
    CallOutputFull,
    /// The guard held recording back in it.
    CallGuard,
    /// Recording paused in it.
    CallPaused,
}

impl Cause {
    /// Returns true if the cause is of a system call or a request to a device, not of an interval off CPU.
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

/// A number of intervals and how long they were together, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// How long.
    pub ns: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

#[derive(Default)]
struct Untold {
    short: BTreeMap<&'static str, Sum>,
    lost: BTreeMap<Cause, Sum>,
    /// Of the records that rings had no room for, those told.
    records: u64,
    /// Of the switches that were held back, those told.
    held: u64,
}

/// The account.
#[derive(Default)]
pub struct Ledger {
    /// Switches are recorded, and what is lost may be of them.
    switches: bool,
    outputs: BTreeMap<RecordingId, Untold>,
    /// Records that rings had no room for.
    records: u64,
    /// Switches while the guard held recording back.
    held: u64,
    /// Intervals written.
    pub written: u64,
    /// Calls, requests and growth written.
    pub written_io: u64,
    lost_intervals: u64,
    lost_calls: u64,
}

impl Ledger {
    /// Nothing yet; `switches`: they are recorded.
    pub fn new(switches: bool) -> Ledger {
        Ledger { switches, ..Ledger::default() }
    }

    /// Something of a recording is shorter than asked for.
    pub fn short(&mut self, what: &'static str, id: RecordingId, ns: u64) {
        self.outputs.entry(id).or_default().short.entry(what).or_default().add(ns);
    }

    /// An interval of a recording is lost.
    pub fn lose(&mut self, id: RecordingId, cause: Cause, ns: u64) {
        match cause.concerns_calls() {
            true => self.lost_calls += 1,
            false => self.lost_intervals += 1,
        }
        self.outputs.entry(id).or_default().lost.entry(cause).or_default().add(ns);
    }

    /// Rings had no room for so many records.
    pub fn no_room(&mut self, records: u64) {
        self.records = self.records.saturating_add(records);
    }

    /// So many switches were not looked at.
    pub fn hold_back(&mut self, switches: u64) {
        self.held = self.held.saturating_add(switches);
    }

    /// An output has intervals. `true` if they are its first.
    pub fn uses(&mut self, id: RecordingId) -> bool {
        let before = self.outputs.len();
        self.outputs.entry(id).or_default();
        self.outputs.len() > before
    }

    /// Returns how many intervals, and how many calls and requests, are lost. Records that rings had no room for are among the intervals
    /// if switches are recorded, as in the recording.
    pub fn total_lost(&self) -> (u64, u64) {
        let records = self.records.saturating_add(self.held);
        let (of_intervals, of_calls) = if self.switches { (records, 0) } else { (0, records) };
        (self.lost_intervals.saturating_add(of_intervals), self.lost_calls.saturating_add(of_calls))
    }

    /// Tells what is new to a recording.
    pub fn write_losses(&mut self, id: RecordingId, recording: &mut Recording, now_ns: u64) {
        let Some(untold) = self.outputs.get_mut(&id) else { return };
        let now = recording.ticks(now_ns);
        for (what, short) in std::mem::take(&mut untold.short) {
            recording.event(schema::BELOW_THRESHOLD, None, what.len(), |e, _| {
                e.ticks(now).string(what).long(short.count as i64).long(short.ns as i64);
            });
        }
        let records = self.records - std::mem::replace(&mut untold.records, self.records);
        let held = self.held - std::mem::replace(&mut untold.held, self.held);
        let of_all = match self.switches {
            true => [("off-cpu: records, ring full", records), ("off-cpu: switches held back", held)],
            false => [("kernel-io: records, ring full", records), ("kernel-io: calls held back", held)],
        };
        let of_all = of_all.map(|(name, count)| (name, Sum { count, ns: 0 }));
        let lost = std::mem::take(&mut untold.lost).into_iter().map(|(cause, sum)| (cause.text(), sum));
        for (name, Sum { count, ns }) in of_all.into_iter().chain(lost).filter(|(_, sum)| sum.count > 0) {
            if recording.defer_unread_loss(schema::EVENT_LOSS, name, (count, ns)) {
                continue;
            }
            recording.event(schema::EVENT_LOSS, None, name.len(), |e, _| {
                e.ticks(now).string(name).long(count as i64).long(ns as i64);
            });
        }
    }

    /// A recording is retired.
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
