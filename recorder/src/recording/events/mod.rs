//! Engines other than CPU time: convert the program's records to events, one file for each engine.

use flightline_in_signal::{layout::event_kind, payload};

use jfr_format::schema;

use crate::{names::intern::TraceIndex, recording::Recording};

pub mod alloc;
pub mod io;
mod lock;
mod mappings;
mod perf;
mod signal;
mod span;
mod throw;
mod trace;
mod wall;

/// The head of every event record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// [`event_kind`].
    pub kind: u16,
    /// Index within its kind.
    pub index: u16,
    /// Value; its meaning depends on the kind.
    pub value: u64,
}

/// An event from a program's ring. Its contents are untrusted.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Kind, index, value.
    pub head: Head,
    /// Additional words; their meaning depends on the kind.
    pub extra: &'a [u64],
}

/// An [`Event`] that waits for symbols.
#[derive(Clone, Debug)]
pub struct Owned {
    head: Head,
    extra: Box<[u64]>,
}

impl Event<'_> {
    /// Returns a copy.
    pub fn owned(&self) -> Owned {
        Owned { head: self.head, extra: self.extra.into() }
    }

    /// Returns start and duration, ns. The start comes from the record, but is never later than the end.
    pub fn span(&self, start: usize, end_ns: u64) -> (u64, u64) {
        let start = self.word(start).min(end_ns);
        (start, self.head.value.min(end_ns - start))
    }

    /// Returns the start time of the event in the recording, ns. `time_ns` is the record's time.
    pub fn start_ns(&self, time_ns: u64) -> u64 {
        match self.head.kind {
            event_kind::LOCK => self.span(payload::lock::START, time_ns).0,
            event_kind::IO => self.span(payload::io::START, time_ns).0,
            event_kind::TRACE => self.word(0).min(time_ns),
            _ => time_ns,
        }
    }

    /// Returns additional word `i`, 0 if the record does not have it.
    pub fn word(&self, i: usize) -> u64 {
        self.extra.get(i).copied().unwrap_or(0)
    }

    /// Returns the text whose length in bytes is additional word `at` and whose bytes follow.
    pub fn text(&self, at: usize) -> String {
        String::from_utf8_lossy(&self.bytes(at).0).into_owned()
    }

    /// Returns this text as bytes, and the index of the word after it.
    pub fn bytes(&self, at: usize) -> (Vec<u8>, usize) {
        let mut bytes = Vec::new();
        let next = payload::read_text(self.extra, at, &mut |byte| bytes.push(byte));
        (bytes, next)
    }
}

impl Owned {
    /// Returns the event as a borrowed one.
    pub fn borrowed(&self) -> Event<'_> {
        Event { head: self.head, extra: &self.extra }
    }
}

/// The thread, stack and time of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventSite {
    /// Constant of the thread in the recording.
    pub thread: usize,
    /// The kernel's TID.
    pub tid: u32,
    /// Resolved stack, if the event has one.
    pub trace: Option<TraceIndex>,
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
}

/// The engines' state of one process.
#[derive(Default)]
pub struct Engines {
    /// Events that arrived, by kind.
    arrived: [u64; event_kind::KINDS],
    /// Events for which the output had no room, by kind: number and sum of values.
    lost: [(u64, u64); event_kind::KINDS],
    /// The totals that were written to the recording.
    pub reported: ReportedTotals,
    /// Sampled allocations not freed yet.
    pub live: alloc::Live,
}

/// The totals that were written to the recording, by kind: number and sum of values.
#[derive(Clone, Copy, Default)]
pub struct ReportedTotals {
    /// All losses.
    lost: [(u64, u64); event_kind::KINDS],
    /// The losses that the program counted.
    pub of_program: [(u64, u64); event_kind::KINDS],
    /// Events below their threshold, which the program counts too.
    pub short: [(u64, u64); event_kind::KINDS],
}

impl Engines {
    /// Writes an event.
    pub fn write(&mut self, recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
        // A summary of live memory is not an event of the program.
        let arrived = u64::from(!alloc::is_written_here(&event.head));
        if let Some(count) = self.arrived.get_mut(usize::from(event.head.kind)) {
            *count += arrived;
        }
        match event.head.kind {
            event_kind::PERF => perf::write(recording, place, event),
            event_kind::WALL => wall::write(recording, place, event),
            event_kind::ALLOC | event_kind::FREE => alloc::write(recording, place, event),
            event_kind::LOCK => lock::write(recording, place, event),
            event_kind::IO => io::write(recording, place, event),
            event_kind::THROW => throw::write(recording, place, event),
            event_kind::TRACE => trace::write(recording, place, event),
            event_kind::SIGNAL => signal::write(recording, place, event),
            event_kind::SPAN => span::write(recording, place, event),
            event_kind::SCOPE => span::write_scope(recording, place, event),
            _ => {}
        }
    }

    /// Counts an event for which the output had no room.
    pub fn lose(&mut self, kind: u16, value: u64) {
        self.lose_many(kind, 1, value);
    }

    /// Counts `events` lost events, with the sum of their values.
    pub fn lose_many(&mut self, kind: u16, events: u64, value: u64) {
        if let Some((count, sum)) = self.lost.get_mut(usize::from(kind)) {
            *count = count.saturating_add(events);
            *sum = sum.saturating_add(value);
        }
    }

    /// Writes new losses. `in_program` are the losses that the program counted.
    pub fn write_losses(
        &mut self,
        recording: &mut Recording,
        in_program: &[(u64, u64); event_kind::KINDS],
        now_ns: u64,
    ) {
        for (kind, name) in event_kind::NAMES.iter().enumerate() {
            let count = self.lost[kind].0.saturating_add(in_program[kind].0);
            let value = self.lost[kind].1.saturating_add(in_program[kind].1);
            let (old_count, old_value) = self.reported.lost[kind];
            if count <= old_count {
                continue;
            }
            self.reported.lost[kind] = (count, value);
            self.reported.of_program[kind] = in_program[kind];
            let now = recording.ticks(now_ns);
            let (count, value) = (count - old_count, value.saturating_sub(old_value));
            if recording.defer_unread_loss(schema::EVENT_LOSS, name, (count, value)) {
                continue;
            }
            recording.event(schema::EVENT_LOSS, None, name.len(), |e, _| {
                e.ticks(now).string(name).long(count as i64).long(value as i64);
            });
        }
    }

    /// Writes new counts of events below their threshold, which the program counts.
    pub fn write_short_events(
        &mut self,
        recording: &mut Recording,
        in_program: &[(u64, u64); event_kind::KINDS],
        now_ns: u64,
    ) {
        for (kind, name) in event_kind::NAMES.iter().enumerate() {
            let (count, value) = in_program[kind];
            let (old_count, old_value) = self.reported.short[kind];
            if count <= old_count {
                continue;
            }
            self.reported.short[kind] = (count, value);
            let now = recording.ticks(now_ns);
            let (count, value) = (count - old_count, value.saturating_sub(old_value));
            recording.event(schema::BELOW_THRESHOLD, None, name.len(), |e, _| {
                e.ticks(now).string(name).long(count as i64).long(value as i64);
            });
        }
    }

    /// Continues after these counts of the program were written: losses, and events below their threshold.
    pub fn resume(&mut self, lost: [(u64, u64); event_kind::KINDS], short: [(u64, u64); event_kind::KINDS]) {
        self.reported = ReportedTotals { lost, of_program: lost, short };
    }

    /// Returns the numbers of recorded and lost events, including losses in the program, by kind.
    pub fn counts(&self) -> [(u64, u64); event_kind::KINDS] {
        std::array::from_fn(|kind| (self.arrived[kind], self.reported.lost[kind].0))
    }
}
