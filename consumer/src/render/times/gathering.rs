//! Collects the samples of a page, in 8 bytes each: tick and stack, and also the weight if weights differ.

use super::lasting::{self, Lasted, Lasting};
use super::{COARSE, FINE, MANY};
use crate::convert::{Collecting, Track, Tracks};
use crate::fold::{self, Filter, Measure, Types};
use crate::latency::{self, Histogram, Summary};
use crate::live::Item;
use crate::load::{Timeline, Weights};
use crate::model::Model;

/// The samples of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Ticks since the origin in the upper half, index in [`Tracks::stacks`] in the lower half.
    /// [`Gathering::finish`] orders them by tick; samples of one tick remain in input order.
    pub(super) samples: Vec<u64>,
    /// Weights, by [`super::WeightMeasure`].
    pub(super) weights: [Weights; 2],
}

/// All collected samples.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Threads by process and id, without samples; labels and stacks.
    pub(super) tracks: Tracks,
    /// For each event of the page a lane for each thread, which may be empty.
    pub(super) events: Vec<Vec<Lane>>,
    /// The event of the page whose samples represent CPU time.
    pub(super) cpu: Option<usize>,
    /// Length of a tick in ns.
    pub(super) tick: i64,
    /// Duration events.
    pub(super) lasted: Lasted,
}

/// An event of a page, and the samples that it draws.
#[derive(Clone, Copy, Debug)]
pub struct PageEvent<'m> {
    /// The types of the samples.
    pub types: &'m Types,
    /// The model with the samples.
    pub model: &'m Model,
    /// Their times.
    pub timeline: &'m Timeline,
}

/// Collects duration events while a recording is loaded, then the samples of its timelines.
#[derive(Debug)]
pub struct Gathering<'a> {
    collecting: Collecting<'a>,
    lasting: Lasting,
}

/// The samples by event of the page and by thread.
#[derive(Debug)]
struct Lanes {
    events: Vec<Vec<Lane>>,
    tick: i64,
    count: usize,
}

impl<'a> Gathering<'a> {
    /// Creates a collector for the threads that `collecting` selects. Times count from `origin`, in ns since
    /// 1970.
    pub fn new(collecting: Collecting<'a>, origin: i64) -> Self {
        Self { collecting, lasting: Lasting::new(origin, lasting::MOST) }
    }

    /// Adds a duration event to the lanes of threads.
    pub(crate) fn take(&mut self, item: &Item) {
        self.lasting.take(item, &mut self.collecting);
    }

    /// The duration in ns below which events of a type will not be on the page.
    pub(crate) fn shortest(&self, event: &str) -> u64 {
        self.lasting.shortest(event)
    }

    /// Returns the samples and duration events of a page, in order. Threads without them are left out. A
    /// duration event that is in all events of the page is not repeated above its stacks.
    pub fn finish(mut self, page: &[PageEvent<'_>], measure: Measure) -> Moments {
        let is_drawn = |event: &str| page.iter().all(|of| of.types.includes(event, None));
        let mut lasted = self.lasting.finish(is_drawn, &mut self.collecting);
        let tick = page.iter().map(|of| of.timeline.tick()).max().unwrap_or(FINE);
        let mut lanes = Lanes { events: Vec::new(), tick, count: 0 };
        for event in page {
            lanes.add(event, measure, &mut self.collecting);
        }
        lanes.coarsen();
        let Lanes { mut events, tick, .. } = lanes;
        let mut tracks = self.collecting.threads();
        let threads = std::mem::take(&mut tracks.tracks);
        lasted.lanes.resize_with(threads.len(), Vec::new);
        let cpu = page.iter().position(|of| of.types.is_cpu());
        events.iter_mut().for_each(|lanes| lanes.resize_with(threads.len(), Lane::default));
        let mut order: Vec<usize> = (0..threads.len()).collect();
        let is_used = |thread: usize| {
            events.iter().any(|lanes| !lanes[thread].samples.is_empty()) || !lasted.lanes[thread].is_empty()
        };
        order.retain(|&thread| is_used(thread));
        order.sort_by(|&a, &b| Track::in_order(&threads[a], &threads[b]));
        for lanes in &mut events {
            *lanes = order.iter().map(|&thread| std::mem::take(&mut lanes[thread])).collect();
            lanes.iter_mut().for_each(Lane::sort);
        }
        lasted.lanes = order.iter().map(|&thread| std::mem::take(&mut lasted.lanes[thread])).collect();
        tracks.tracks = order.iter().map(|&thread| threads[thread].clone()).collect();
        Moments { tracks, events, cpu, tick, lasted }
    }
}

impl Lanes {
    /// Adds the samples of an event of the page.
    fn add(&mut self, event: &PageEvent<'_>, measure: Measure, collecting: &mut Collecting<'_>) {
        let PageEvent { types, model, timeline } = *event;
        let factor = (self.tick / timeline.tick()).unsigned_abs().max(1);
        let mut lanes: Vec<Lane> = Vec::new();
        // By key; `None` if it was not seen yet.
        let mut known: Vec<Option<Option<(usize, u32)>>> = vec![None; timeline.keys().len()];
        for sample in timeline.samples(|name| types.names.contains(name)) {
            let key = &timeline.keys()[sample.key];
            let selected = *known[sample.key].get_or_insert_with(|| {
                let kind = model.kinds.get(key.kind);
                let is_drawn = types.includes(&kind.name, kind.variant.as_deref());
                if is_drawn { collecting.select_key(model, key) } else { None }
            });
            let Some((track, stack)) = selected else { continue };
            if track >= lanes.len() {
                lanes.resize_with(track + 1, Lane::default);
            }
            let value = fold::value(model, key, sample.weight);
            let (weight, otherwise) = match measure {
                Measure::Samples => (sample.weight.count, value),
                Measure::Total => (value, sample.weight.count),
            };
            let lane = &mut lanes[track];
            let (count, tick) = (lane.samples.len(), sample.tick / factor);
            lane.samples.push(tick * SLOT + u64::from(stack));
            lane.weights[0].push(count, weight);
            lane.weights[1].push(count, otherwise);
            self.count += 1;
        }
        self.events.push(lanes);
    }

    /// Makes ticks ten times as long if there are many samples.
    fn coarsen(&mut self) {
        if self.count <= MANY || self.tick >= COARSE {
            return;
        }
        self.tick *= 10;
        let samples = self.events.iter_mut().flatten().flat_map(|lane| &mut lane.samples);
        samples.for_each(|sample| *sample = *sample / SLOT / 10 * SLOT + *sample % SLOT);
    }
}

/// Returns how long the samples of an event lasted; `None` if its types have no durations.
pub(crate) fn latency(event: &PageEvent<'_>, filter: &Filter) -> Option<Summary> {
    let PageEvent { types, model, timeline } = *event;
    let mut histogram = Histogram::default();
    let mut known: Vec<Option<bool>> = vec![None; timeline.keys().len()];
    for sample in timeline.samples(|name| types.names.contains(name) && latency::has_durations(name)) {
        let key = &timeline.keys()[sample.key];
        let is_selected = *known[sample.key].get_or_insert_with(|| {
            let kind = model.kinds.get(key.kind);
            types.includes(&kind.name, kind.variant.as_deref()) && fold::passes(model, key, filter)
        });
        if let Some(nanos) = sample.duration_nanos.filter(|_| is_selected) {
            histogram.add(nanos);
        }
    }
    histogram.summary()
}

/// Factor of the tick in a sample's number.
pub(super) const SLOT: u64 = 1 << 32;

impl Lane {
    fn sort(&mut self) {
        let tick = |sample: &u64| sample / SLOT;
        if self.samples.is_sorted_by_key(tick) {
            return;
        }
        if self.weights.iter().all(|weights| matches!(weights, Weights::Same(_))) {
            return self.samples.sort_by_key(tick);
        }
        let mut order: Vec<u32> = (0..self.samples.len() as u32).collect();
        order.sort_by_key(|&at| tick(&self.samples[at as usize]));
        let sorted = |of: &Vec<u64>| order.iter().map(|&at| of[at as usize]).collect();
        self.samples = sorted(&self.samples);
        for weights in &mut self.weights {
            if let Weights::Each(all) = weights {
                *all = sorted(all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(samples: &[(u64, u64, u64)]) -> Lanes {
        let mut lane = Lane::default();
        for &(tick, stack, weight) in samples {
            let count = lane.samples.len();
            lane.samples.push(tick * SLOT + stack);
            lane.weights[0].push(count, weight);
            lane.weights[1].push(count, 7);
        }
        Lanes { count: lane.samples.len(), events: vec![vec![lane]], tick: FINE }
    }

    #[test]
    fn samples_are_sorted_by_tick_with_their_weights() {
        let mut lane = lanes(&[(20, 5, 1), (10, 6, 3), (10, 4, 1), (0, 9, 1)]).events.remove(0).remove(0);
        lane.sort();
        assert_eq!(lane.samples, [9, 10 * SLOT + 6, 10 * SLOT + 4, 20 * SLOT + 5]);
        assert_eq!(lane.weights, [Weights::Each(vec![1, 3, 1, 1]), Weights::Same(7)]);
    }

    #[test]
    fn tick_length_grows_with_samples() {
        for (count, tick, first) in [(MANY, FINE, 105), (MANY + 1, COARSE, 10)] {
            let mut lanes = lanes(&vec![(105, 3, 1); count]);
            lanes.coarsen();
            assert_eq!((lanes.tick, lanes.events[0][0].samples[0]), (tick, first * SLOT + 3));
            assert_eq!(lanes.events[0][0].weights[0], Weights::Same(1));
        }
    }
}
