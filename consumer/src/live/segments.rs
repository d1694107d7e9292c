//! Holds items until the checksum of their segment is verified.

use std::collections::VecDeque;

use jfr_format::constants::STATE_FINISHED;
use jfr_format::read::Chunk;

use super::Stats;
use super::contexts::Contexts;
use super::item::{DAMAGE, Item, Loss, Segment, Time, Warning};
use super::plan::{CONTEXT, SEGMENT};
use super::value::count;
use super::window::Window;
use crate::decode::losses::STREAM_LOSS;

/// Maximum number of items and values held. A larger segment is released before its checksum is verified.
const MOST: usize = 1 << 18;
/// Weight of a sample without fields, counted against [`MOST`].
const SAMPLE: usize = 4;

/// The content of a `flightline.Segment` event. Offsets are offsets in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentEvent {
    pub(super) time: Time,
    pub(super) sequence: u64,
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) crc32: u64,
    pub(super) events: u64,
    /// Offset of the event itself.
    pub(super) at: u64,
    pub(super) end: u64,
}

/// Trust in the current chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// There is no chunk.
    #[default]
    Between,
    /// Its types are not known yet.
    Unknown,
    /// It has no segments and is not verified.
    Without,
    /// All segments so far were correct.
    Good,
    /// A segment was damaged. Constants may be wrong or missing until the end of the chunk.
    Damaged,
}

#[derive(Debug, Default)]
pub(super) struct Segments {
    pub(super) window: Window,
    /// Items that can be returned.
    pub(super) ready: VecDeque<Item>,
    held: Vec<Item>,
    /// Contexts of the held samples.
    pub(super) contexts: Contexts,
    /// The chunk may have contexts.
    joins: bool,
    /// Weight of `held`, limited by [`MOST`].
    weight: usize,
    trust: Trust,
    /// The chunk's size was known from the start.
    fixed: bool,
    /// Events since the last segment.
    events: u64,
    /// True once the current chunk, or the stream, has had a segment.
    in_chunk: bool,
    in_stream: bool,
    /// Skipped events of the current chunk.
    lost: u64,
    last: Option<u64>,
    /// The recorder reported a loss to this reader since the last segment.
    behind: bool,
}

impl Segments {
    /// Starts a chunk. `goes_on` is true if it is of the same recorder as the chunk before.
    pub(super) fn begin(&mut self, start: u64, chunk: &Chunk, goes_on: bool) {
        self.in_stream &= goes_on;
        self.window.begin(start);
        self.trust = Trust::Unknown;
        self.fixed = chunk.header.state == STATE_FINISHED;
        (self.in_chunk, self.events, self.lost) = (false, 0, 0);
    }

    /// The types of the chunk are known.
    pub(super) fn declared(&mut self, chunk: &Chunk, base: u64) {
        self.joins = self.joins || chunk.types.by_name(CONTEXT).is_some();
        if self.trust == Trust::Unknown {
            let segments = self.fixed && chunk.types.by_name(SEGMENT).is_some();
            self.trust = match (segments, self.in_stream) {
                (true, _) => Trust::Good,
                (false, false) => Trust::Without,
                // Earlier chunks had segments, so this chunk's header or metadata is damaged.
                (false, true) => Trust::Damaged,
            };
            if self.distrusted() {
                let message = "a chunk without segments in a stream of segments: it is left out".into();
                let offset = chunk.offset.0 + base;
                self.ready.push_back(Item::Warning(Warning { offset, message, damage: true }));
            }
        }
    }

    pub(super) fn distrusted(&self) -> bool {
        self.trust == Trust::Damaged
    }

    pub(super) fn between_chunks(&self) -> bool {
        self.trust == Trust::Between
    }

    /// Counts an event.
    pub(super) fn count(&mut self) {
        self.events += 1;
    }

    pub(super) fn put(&mut self, item: Item) {
        if let Item::Loss(loss) = &item {
            self.behind |= *loss.told_by == *STREAM_LOSS;
        }
        match self.trust {
            Trust::Good | Trust::Damaged => {}
            // Hold until the next watermark.
            Trust::Without if self.joins => {}
            _ => return self.ready.push_back(item),
        }
        if self.held.is_empty() {
            self.weight = 0;
        }
        self.weight += match &item {
            Item::Sample(sample) => SAMPLE + count(&sample.fields),
            Item::Other(event) => SAMPLE + count(&event.fields),
            _ => SAMPLE,
        };
        self.held.push(item);
        if self.weight > MOST {
            self.release();
        }
    }

    /// Releases the held items and sets the spans of samples.
    fn release(&mut self) {
        for mut item in self.held.drain(..) {
            self.contexts.give(&mut item);
            self.ready.push_back(item);
        }
        self.contexts.flushed();
    }

    /// The recorder has flushed. A chunk with segments releases its items at the end of the segment,
    /// which follows.
    pub(super) fn watermark(&mut self) {
        if self.trust == Trust::Without {
            self.release();
        }
    }

    /// Calls `each` for the items of the unfinished segment.
    pub(super) fn each_held(&mut self, mut each: impl FnMut(&mut Item)) {
        self.held.iter_mut().for_each(&mut each);
    }

    /// All events before `to` have been examined.
    pub(super) fn passed(&mut self, to: u64) {
        match self.trust {
            Trust::Good | Trust::Damaged => self.window.hash(to),
            _ => self.window.skip(to),
        }
    }

    /// No further event begins before `to`, and no chunk begins at `to`.
    pub(super) fn settled(&mut self, to: u64) {
        if matches!(self.trust, Trust::Between | Trust::Without) {
            self.window.skip(to);
        }
    }

    /// Processes the event that ends a segment.
    pub(super) fn segment(&mut self, told: &SegmentEvent, stats: &mut Stats) {
        if !matches!(self.trust, Trust::Good | Trust::Damaged) {
            return;
        }
        // Excludes this event.
        let here = std::mem::take(&mut self.events).saturating_sub(1);
        let seen = self.window.end(told.at);
        let size = told.at.checked_sub(told.start);
        let good = seen.is_some_and(|(start, crc)| start == told.start && u64::from(crc) == told.crc32)
            && size == Some(told.size);
        self.window.begin(told.end);
        let next = self.last.map_or(told.sequence, |last| last.wrapping_add(1));
        let missing = told.sequence.checked_sub(next).filter(|&n| n > 0 && self.last.is_some());
        (self.in_chunk, self.in_stream) = (true, true);
        if good {
            stats.segments += 1;
            if let Some(missing) = missing {
                stats.segments_missing = stats.segments_missing.saturating_add(missing);
                if !self.behind {
                    let message = format!(
                        "{missing} segments are missing before segment {} (at offset {}): the bytes they were in did not come",
                        told.sequence, told.start
                    );
                    self.ready.push_back(Item::Warning(Warning {
                        offset: told.start,
                        message,
                        damage: true,
                    }));
                }
            }
            self.last = Some(told.sequence);
            self.behind = false;
            let SegmentEvent { time, sequence, start, size, events, .. } = *told;
            if self.trust == Trust::Damaged {
                // A loss event has its values in its own bytes, which are correct.
                let losses = self.held.iter().filter(|item| matches!(item, Item::Loss(_))).count();
                self.lost = self.lost.saturating_add(events.saturating_sub(losses as u64));
                self.held.retain(|item| matches!(item, Item::Loss(_)));
            }
            self.release();
            self.ready.push_back(Item::Segment(Segment { sequence, time, offset: start, size, events }));
            return;
        }
        stats.segments_damaged += 1;
        // The segment's own sequence number may be damaged.
        self.last = self.last.map(|last| last.wrapping_add(1));
        self.held.clear();
        self.contexts.distrust();
        let plausible = seen.is_some_and(|(start, _)| start == told.start) && size == Some(told.size);
        let events = if plausible { told.events } else { here };
        self.lost = self.lost.saturating_add(events);
        let from = seen.map_or(told.start, |(start, _)| start);
        let message = format!(
            "the segment from byte {from} to byte {} is not what was written (checksum): it is left out, and the samples \
             behind it in its chunk, whose constants may be wrong",
            told.at
        );
        self.ready.push_back(Item::Warning(Warning { offset: from, message, damage: true }));
        self.trust = Trust::Damaged;
    }

    /// The chunk has ended, completely or not.
    pub(super) fn end(&mut self, complete: bool, at: u64, time: Time) {
        self.watermark();
        self.joins = false;
        let trusted = self.trust == Trust::Good;
        let covered = self.in_chunk || self.in_stream || !complete && self.fixed;
        let losses = self.held.iter().filter(|item| matches!(item, Item::Loss(_))).count() as u64;
        let mut bare = if self.distrusted() { self.events.saturating_sub(losses) } else { 0 };
        for item in self.held.drain(..) {
            match item {
                // A disconnected reader gets its losses after the last segment, where no checksum covers
                // them.
                Item::Loss(_) | Item::Segment(_) | Item::Warning(_) => self.ready.push_back(item),
                mut item if trusted && !covered => {
                    self.contexts.give(&mut item);
                    self.ready.push_back(item);
                }
                _ => bare += 1,
            }
        }
        if bare > 0 && trusted {
            let message = format!(
                "{bare} events before byte {at} are in no segment that was completed: they are left out"
            );
            self.ready.push_back(Item::Warning(Warning { offset: at, message, damage: true }));
        }
        let lost = std::mem::take(&mut self.lost).saturating_add(bare);
        if lost > 0 {
            let cause = if self.distrusted() { "damaged" } else { "cut off" };
            self.ready.push_back(Item::Loss(Loss {
                time,
                told_by: DAMAGE.into(),
                cause: cause.into(),
                event_type: None,
                thread: None,
                events: Some(lost),
                bytes: None,
                cpu_nanos: None,
            }));
        }
        self.trust = Trust::Between;
        self.events = 0;
    }
}
