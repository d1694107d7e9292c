//! Processes parts of a recording with one viewer each. Merged, they give the same result as one viewer
//! for the whole recording.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use jfr_format::read::{Decoder, Delivery, Recording};

use super::{Options, Room, Rows, Viewer, cut_lists};

/// Tables of two parts of a recording cannot be merged.
#[derive(Debug)]
struct Unlike;

/// The configuration of a viewer without data.
#[derive(Debug)]
struct Blank {
    options: Options,
    rows: Vec<Rows>,
}

impl Blank {
    fn from_viewer(viewer: &Viewer) -> Self {
        let own: Vec<usize> = viewer.own.values().copied().collect();
        let plans = viewer.rows.iter().enumerate().filter(|(at, _)| !own.contains(at));
        Self { options: viewer.options.clone(), rows: plans.map(|(_, rows)| rows.blank()).collect() }
    }

    fn viewer(&self) -> Viewer {
        let rows = self.rows.iter().map(Rows::blank).collect();
        Viewer { rows, ..Viewer::new(Vec::new(), self.options.clone()) }
    }
}

impl Viewer {
    /// Processes a recording on up to `jobs` threads. The tables do not depend on their number: if they
    /// would (more groups than the limit), a single thread processes everything. The same applies if
    /// events are listed without a limit. `progress` is called with the number of bytes.
    pub fn take_recording(&mut self, recording: &Recording, jobs: usize, progress: impl Fn(u64) + Sync) {
        let done = AtomicU64::new(0);
        let decode = |decoder: &mut Decoder, viewer: &mut Self| {
            let mut at = decoder.consumed();
            while let Some(item) = decoder.next() {
                viewer.take(item);
                let passed =
                    decoder.consumed().saturating_sub(std::mem::replace(&mut at, decoder.consumed()));
                progress(done.fetch_add(passed, Ordering::Relaxed) + passed);
            }
            viewer.next_chunk();
        };
        // Each part could be as large as the limit for all of them.
        let lists = self.options.limit.is_none()
            && (self.options.all_event_types || !self.options.event_types.is_empty());
        if jobs > 1 && !lists {
            let blank = Blank::from_viewer(self);
            let mut sum: Option<Self> = None;
            let part = |decoder: &mut Decoder| {
                let mut viewer = blank.viewer();
                decode(decoder, &mut viewer);
                viewer
            };
            let take = |part: Self| match &mut sum {
                Some(sum) => sum.merge(part),
                None => {
                    sum = Some(part);
                    Ok(())
                }
            };
            let merged = recording.run_grouped(Delivery::WholeChunks, jobs, part, take);
            if let (Ok(()), Some(sum)) = (merged, sum)
                && self.merge(sum).is_ok()
            {
                return;
            }
            done.store(0, Ordering::Relaxed);
        }
        let all = Mutex::new(self);
        let part = |decoder: &mut Decoder| {
            if let Ok(mut viewer) = all.lock() {
                decode(decoder, &mut viewer);
            }
        };
        let Ok(()) = recording.run_grouped(Delivery::WholeChunks, 1, part, |()| Ok::<(), Infallible>(()));
    }

    /// Merges a viewer with the same plans and options that processed later events.
    fn merge(&mut self, later: Self) -> Result<(), Unlike> {
        let own: HashMap<usize, &String> = later.own.iter().map(|(name, &at)| (at, name)).collect();
        // Plans come first, in the same order; tables of event types are matched by name.
        let place = |at: usize| match own.get(&at) {
            Some(name) => self.own.get(*name).copied(),
            None => Some(at),
        };
        let places: Vec<Option<usize>> = (0..later.rows.len()).map(place).collect();
        let merges = places.iter().zip(&later.rows).all(|(place, rows)| match place {
            Some(at) => self.rows.get(*at).is_some_and(|own| own.can_merge(rows)),
            None => true,
        });
        if !merges || !self.room.has_for(&later.rows) {
            return Err(Unlike);
        }
        for (at, (place, rows)) in places.into_iter().zip(later.rows).enumerate() {
            match place.and_then(|at| self.rows.get_mut(at)) {
                Some(own) => own.merge(rows),
                None => {
                    if let Some((name, _)) = later.own.iter().find(|&(_, &of)| of == at) {
                        self.own.insert(name.clone(), self.rows.len());
                    }
                    self.rows.push(rows);
                }
            }
        }
        self.room = Room::left_by(&self.rows);
        cut_lists(&mut self.rows);
        for (name, events) in later.counts {
            *self.counts.entry(name).or_default() += events;
        }
        self.declared.extend(later.declared);
        self.enabled.extend(later.enabled);
        self.warnings.merge(later.warnings);
        Ok(())
    }
}
