//! Parses the records that a program wrote to its ring into samples and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flightline_in_signal::layout::{MAX_EXTRA, SampleRecord, event_kind, record, sample_flags};
use flightline_in_signal::payload::fatal;

use super::context;
use super::thread::name_from_words;
use crate::{
    recording::{Worked, events},
    shared_memory::journal::Entry,
};

/// A sample from the ring. Its addresses are in [`Record::stack`].
pub(super) struct Sample {
    pub(super) time_ns: u64,
    pub(super) tid: u32,
    pub(super) slot: u32,
    pub(super) weight_ns: u64,
    /// A timer sent the signal.
    pub(super) by_timer: bool,
    pub(super) reason: Option<u16>,
}

/// A parsed record.
pub(super) enum Parsed {
    Sample(Sample),
    Event(Sample, events::Head),
    Name(Renamed),
}

/// A thread's new name.
pub(super) struct Renamed {
    pub(super) time_ns: u64,
    pub(super) tid: u32,
    pub(super) slot: u32,
    pub(super) name: String,
}

/// Words of a sample before its addresses.
const FIXED: usize = size_of::<SampleRecord>() / 8;

/// The variable part of the record that was read last. Its buffers are reused for the next one.
#[derive(Default)]
pub(super) struct Record {
    /// Raw stack: [`super::stack_resolver::STACK_HEAD`] words, then addresses.
    pub(super) stack: Vec<u64>,
    /// Additional words of an event.
    pub(super) extra: Vec<u64>,
    /// The context words as read by the thread's handler; empty if there is none.
    pub(super) context_words: Vec<u64>,
    /// The decoded context.
    pub(super) context: Option<Arc<Worked>>,
    /// Its copy in the journal, until a waiting sample takes it.
    pub(super) entry: Option<Entry>,
}

impl Parsed {
    /// Returns true if a record is the report of a fatal signal, which ends the process.
    pub(super) fn is_fatal_signal(&self) -> bool {
        matches!(self, Parsed::Event(_, head) if head.kind == event_kind::SIGNAL && head.index == fatal::FATAL)
    }
}

impl Record {
    /// Parses a record; `None` if its kind is unknown or its contents are invalid.
    #[inline]
    pub(super) fn parse(&mut self, kind: u8, payload: &[AtomicU64]) -> Option<Parsed> {
        match kind {
            record::SAMPLE => self.parse_sample(payload, FIXED).map(Parsed::Sample),
            record::EVENT => self.parse_event(payload).map(|(sample, head)| Parsed::Event(sample, head)),
            record::NAME => parse_name(payload).map(Parsed::Name),
            _ => None,
        }
    }

    /// Parses a sample record. Its stack goes to `self.stack`.
    #[inline]
    fn parse_sample(&mut self, payload: &[AtomicU64], stack_at: usize) -> Option<Sample> {
        let word = |i: usize| payload.get(i).map(|w| w.load(Relaxed));
        let (tid_slot, depth_flags) = (word(1)?, word(3)?);
        let addresses = payload.get(stack_at..)?;
        let depth = (depth_flags & 0xffff) as usize;
        let addresses = addresses.get(..depth)?;
        let flags = (depth_flags >> 16) as u16;
        let truncated = flags & sample_flags::TRUNCATED != 0;
        self.stack.clear();
        self.stack.push(u64::from(truncated));
        self.stack.push(word(4)?);
        self.stack.extend(addresses.iter().map(|a| a.load(Relaxed)));
        self.context_words.clear();
        if flags & sample_flags::CONTEXT != 0 {
            let behind = payload.get(stack_at.checked_add(depth)?..)?;
            let words = behind.get(..context::length(behind.first()?.load(Relaxed))?)?;
            self.context_words.extend(words.iter().map(|w| w.load(Relaxed)));
        }
        Some(Sample {
            time_ns: word(0)?,
            tid: tid_slot as u32,
            slot: (tid_slot >> 32) as u32,
            weight_ns: word(2)?,
            by_timer: flags & sample_flags::TIMER != 0,
            reason: truncated.then_some((flags >> sample_flags::REASON_SHIFT) & sample_flags::REASON_MASK),
        })
    }

    /// Parses an event record. Its additional words go to `self.extra`, its stack to `self.stack`.
    fn parse_event(&mut self, payload: &[AtomicU64]) -> Option<(Sample, events::Head)> {
        let word = payload.get(FIXED)?.load(Relaxed);
        let extra = (word >> 32) as usize;
        let stack_at = (FIXED + 1).checked_add(extra).filter(|_| extra <= MAX_EXTRA)?;
        self.extra.clear();
        self.extra.extend(payload.get(FIXED + 1..stack_at)?.iter().map(|w| w.load(Relaxed)));
        let sample = self.parse_sample(payload, stack_at)?;
        let head = events::Head { kind: word as u16, index: (word >> 16) as u16, value: sample.weight_ns };
        // Wall-clock events are created by the drain, never by a program.
        (head.kind != event_kind::WALL).then_some((sample, head))
    }
}

fn parse_name(payload: &[AtomicU64]) -> Option<Renamed> {
    let word = |i: usize| payload.get(i).map(|w| w.load(Relaxed));
    let (time_ns, tid_slot) = (word(0)?, word(1)?);
    let name = name_from_words([word(2)?, word(3)?]);
    Some(Renamed { time_ns, tid: tid_slot as u32, slot: (tid_slot >> 32) as u32, name })
}
