//! A sample event type of the current chunk, and the samples that are equal except for their start.

use std::num::NonZero;

use jfr_format::error::Error;
use jfr_format::read::{Batch, Chunk, Class, Frame};

use super::LoadOptions;
use super::sums::{RawKey, Repeats};
use crate::decode::schema::{Columns, Detail, SampleSchema};
use crate::model::{EventKind, Id, Interner, Model, Weight};

#[derive(Debug)]
pub(super) struct Bound {
    kind: Id<EventKind>,
    schema: SampleSchema,
    /// The time range is limited, and the type has a start time.
    is_ranged: bool,
    /// Samples that are equal except for their start.
    pub(super) repeats: Repeats,
    /// Its number in the timeline.
    pub(super) timeline: Option<usize>,
    pub(super) is_stashed: bool,
}

/// A sample whose keys are not resolved.
pub(super) struct BoundSample {
    pub(super) key: RawKey,
    pub(super) weight: Weight,
    /// In ticks of the chunk.
    pub(super) start: i64,
    /// In ns.
    pub(super) duration: Option<u64>,
}

impl Bound {
    pub(super) fn new(
        chunk: &Chunk,
        class: &Class,
        options: &LoadOptions,
        (timeline, is_stashed): (Option<usize>, bool),
        kinds: &mut Interner<EventKind>,
    ) -> Self {
        let needs_start = options.is_ranged() || timeline.is_some();
        let columns = if needs_start { Columns::Times } else { Columns::Sums };
        let schema = SampleSchema::new(chunk, class, columns);
        let kind =
            EventKind { name: class.name.clone(), variant: None, unit: schema.unit, period_nanos: None };
        Self {
            kind: kinds.intern(kind),
            is_ranged: options.is_ranged() && schema.has_start(),
            timeline: timeline.filter(|_| schema.has_start()),
            schema,
            repeats: Repeats::default(),
            is_stashed,
        }
    }

    /// Returns true if events can be compared without decoding.
    pub(super) fn is_plain(&self) -> bool {
        self.schema.is_plain()
    }

    /// Returns the bytes that equal samples share, if samples can be compared without decoding.
    #[inline(always)]
    pub(super) fn likeness(&self, frame: &Frame<'_>) -> Option<NonZero<u64>> {
        self.schema.likeness(frame)
    }

    /// Returns the sample in `frame`; `None` if it is outside the requested time.
    #[inline(always)]
    pub(super) fn read(
        &self,
        options: &LoadOptions,
        model: &Model,
        batch: &Batch<'_>,
        frame: &Frame<'_>,
    ) -> Result<Option<BoundSample>, Error> {
        let chunk = batch.chunk();
        let sample = self.schema.decode(chunk, frame)?;
        if self.is_ranged && !options.includes_time(model, chunk, sample.start) {
            return Ok(None);
        }
        let key = RawKey {
            kind: self.kind,
            thread: sample.thread,
            stack: sample.stack,
            state: if self.schema.has_state() { sample.state } else { u64::MAX },
            detail: if self.schema.detail == Detail::None { u64::MAX } else { sample.detail },
        };
        let weight = Weight { count: sample.samples, value: sample.value };
        Ok(Some(BoundSample { key, weight, start: sample.start, duration: sample.duration }))
    }
}
