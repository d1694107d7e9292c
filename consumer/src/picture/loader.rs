//! Loads the recordings of a page in one pass: the sums of samples, their times, and duration events.

use std::sync::Mutex;

use jfr_format::error::Error;
use jfr_format::header::{ChunkHeader, LEN};
use jfr_format::read::{Decoder, Delivery, Item, Recording};

use super::{DrawnTypes, MOST_OTHER_SAMPLES};
use crate::convert::Collecting;
use crate::fold::{Filter, Measure};
use crate::latency::Summary;
use crate::live::{self, StoredEvents};
use crate::load::{Loaded, Loader, Timeline};
use crate::model::Model;
use crate::render::times::{self, Gathering, Moments, PageEvent};
use crate::warnings::Warnings;

/// Reads recordings one after the other.
#[derive(Debug)]
pub struct PageLoader<'a> {
    loader: Loader,
    stored: StoredEvents,
    gathering: Gathering<'a>,
}

/// The times of the samples of a page, and its duration events.
#[derive(Debug)]
pub struct PageTimes<'a> {
    timeline: Timeline,
    /// Samples of the types that were not selected.
    others: Option<(Model, Timeline)>,
    gathering: Gathering<'a>,
}

impl<'a> PageLoader<'a> {
    /// Creates a loader. `collecting` selects threads. The timeline begins at `origin`, in ns since 1970, and
    /// has at most `most` samples.
    pub fn new(loader: Loader, collecting: Collecting<'a>, origin: i64, most: usize) -> Self {
        let loader = loader.with_timeline(origin, most).with_stash(live::may_last);
        Self { loader, stored: StoredEvents::new(), gathering: Gathering::new(collecting, origin) }
    }

    /// Also loads the samples of types that the options do not select, as far as a page can include them.
    pub fn with_others(mut self, origin: i64) -> Self {
        self.loader = self.loader.with_others(origin, MOST_OTHER_SAMPLES as usize);
        self
    }

    /// Reads a recording. Returns false if there are more samples than the timeline can have; the reading
    /// then ends early. `progress` is called with the number of bytes processed.
    ///
    /// # Errors
    /// It is not a recording.
    pub fn take_recording(
        &mut self,
        recording: &Recording,
        progress: impl Fn(u64) + Sync,
    ) -> Result<bool, Error> {
        self.stored = StoredEvents::new();
        let this = Mutex::new(self);
        let read = |decoder: &mut Decoder| {
            let Ok(mut this) = this.lock() else { return Ok(false) };
            decoder.set_filter(this.loader.event_filter());
            loop {
                progress(decoder.consumed());
                let Some(item) = decoder.next() else { return Ok(true) };
                this.take(item)?;
                if this.loader.has_full_timeline() {
                    return Ok(false);
                }
            }
        };
        let mut is_complete = true;
        recording.run(Delivery::KeysOnly, 1, read, |outcome: Result<bool, Error>| {
            is_complete = outcome?;
            Ok(())
        })?;
        Ok(is_complete)
    }

    fn take(&mut self, item: Item<'_>) -> Result<(), Error> {
        if let Item::ChunkEnd(end) = &item {
            self.gathering.take(&self.stored.begin(end.chunk));
            for event in self.loader.take_stash() {
                let shortest = |event: &str| self.gathering.shortest(event);
                if let Some(item) = self.stored.item(end.chunk, &event, shortest) {
                    self.gathering.take(&item);
                }
            }
        }
        self.loader.take(item)
    }

    /// Returns the warnings since the last call.
    pub fn take_warnings(&mut self) -> Warnings {
        self.loader.take_warnings()
    }

    /// Returns the model of the selected samples, and the times.
    pub fn finish(self) -> (Loaded, Option<PageTimes<'a>>) {
        let (loaded, timeline, others) = self.loader.finish_timed();
        let gathering = self.gathering;
        (loaded, timeline.map(|timeline| PageTimes { timeline, others, gathering }))
    }
}

impl PageTimes<'_> {
    /// Returns the samples of the types that were not selected.
    pub fn others(&self) -> Option<&Model> {
        self.others.as_ref().map(|(model, _)| model)
    }

    /// Returns how long the samples of each event lasted; `None` for events without durations.
    pub fn latencies(&self, model: &Model, drawn: &[DrawnTypes], filter: &Filter) -> Vec<Option<Summary>> {
        let events = events((model, &self.timeline), self.others.as_ref(), drawn);
        events.iter().map(|event| times::latency(event, filter)).collect()
    }

    /// Returns the times of the samples of all events.
    pub fn moments(self, model: &Model, drawn: &[DrawnTypes], measure: Measure) -> Moments {
        let Self { timeline, others, gathering } = self;
        gathering.finish(&events((model, &timeline), others.as_ref(), drawn), measure)
    }
}

/// Returns the events of a page with their models and times.
fn events<'m>(
    selected: (&'m Model, &'m Timeline),
    others: Option<&'m (Model, Timeline)>,
    drawn: &'m [DrawnTypes],
) -> Vec<PageEvent<'m>> {
    let event = |DrawnTypes { types, is_other }: &'m DrawnTypes| {
        let others = others.filter(|_| *is_other).map(|(model, timeline)| (model, timeline));
        let (model, timeline) = others.unwrap_or(selected);
        PageEvent { types, model, timeline }
    };
    drawn.iter().map(event).collect()
}

/// Returns the earliest start of recordings in ns since 1970, in whatever order they are given; `None` if none
/// has a valid header.
pub fn beginning<'r>(recordings: impl Iterator<Item = &'r Recording>) -> Option<i64> {
    let header = |of: &Recording| ChunkHeader::decode(of.as_bytes().get(..LEN).unwrap_or_default()).ok();
    recordings.filter_map(header).map(|header| header.start_nanos).min()
}
