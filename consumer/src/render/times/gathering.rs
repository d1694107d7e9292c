//! Stores samples while reading, in 8 bytes each: tick and stack, and also the weight if weights differ.

use super::lasting::{self, Lasted, Lasting};
use super::{COARSE, FINE, MANY};
use crate::convert::{Collecting, Moment, Track, Tracks};
use crate::fold::Types;
use crate::live::{Item, Kind};

/// The samples of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Ticks since the origin in the upper half, index in [`Tracks::stacks`] in the lower half.
    /// [`Gathering::finish`] orders them by tick; samples of one tick remain in input order.
    pub(super) samples: Vec<u64>,
    /// Weights, by [`super::By`].
    pub(super) weights: [Weights; 2],
}

/// Weights of samples by a measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The same for all samples.
    Same(u64),
    /// For each sample.
    Each(Vec<u64>),
}

impl Default for Weights {
    fn default() -> Self {
        Self::Same(0)
    }
}

impl Weights {
    /// Adds the weight of a sample after `count` others.
    fn push(&mut self, count: usize, weight: u64) {
        match self {
            Self::Same(each) if count == 0 => *each = weight,
            Self::Same(each) if *each == weight => {}
            Self::Same(each) => {
                let mut all = vec![*each; count];
                all.push(weight);
                *self = Self::Each(all);
            }
            Self::Each(all) => all.push(weight),
        }
    }

    pub(super) fn at(&self, sample: usize) -> u64 {
        match self {
            Self::Same(each) => *each,
            Self::Each(all) => all.get(sample).copied().unwrap_or(0),
        }
    }
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

/// Collects single samples and duration events.
#[derive(Debug)]
pub struct Gathering<'a> {
    collecting: Collecting<'a>,
    lasting: Lasting,
    /// For each event of the page: its types, and a lane for each thread.
    events: Vec<(Types, Vec<Lane>)>,
    origin: i64,
    tick: i64,
    count: usize,
}

impl<'a> Gathering<'a> {
    /// Creates a collector for the samples that `collecting` selects. Times count from `origin`, in ns
    /// since 1970. Earlier samples are placed at `origin`, because a clock may have been set back.
    /// `drawn` has the types for each event of the page.
    pub fn new(collecting: Collecting<'a>, origin: i64, drawn: &[Types]) -> Self {
        let lasting = Lasting::new(origin, lasting::MOST);
        let events = drawn.iter().map(|types| (types.clone(), Vec::new())).collect();
        Self { collecting, lasting, events, origin, tick: FINE, count: 0 }
    }

    /// Adds a sample to each event of the page that includes it, and a duration event to the lanes of
    /// threads. A duration event that is in all events of the page is not repeated above its stacks.
    pub fn take(&mut self, item: &Item) {
        let Item::Sample(sample) = item else { return self.lasting.take(item, &mut self.collecting) };
        let drawn: Vec<usize> =
            (0..self.events.len()).filter(|&event| sample.matches(&self.events[event].0)).collect();
        let may_last = matches!(sample.kind, Kind::Lock | Kind::Io) || !sample.contextual.is_empty();
        if may_last && drawn.len() < self.events.len() {
            self.lasting.take(item, &mut self.collecting);
        }
        if drawn.is_empty() {
            return;
        }
        if let Some((track, moment)) = self.collecting.select(sample) {
            drawn.into_iter().for_each(|event| self.put(event, track, &moment));
        }
    }

    /// The duration in ns below which duration events will not be on the page; see
    /// [`Feed::plain_below`](crate::live::Feed::plain_below).
    pub fn shortest(&self) -> u64 {
        self.lasting.shortest()
    }

    fn put(&mut self, event: usize, track: usize, moment: &Moment) {
        let since = moment.time.saturating_sub(self.origin).max(0);
        while since / self.tick > i64::from(u32::MAX) {
            self.coarsen();
        }
        let lanes = &mut self.events[event].1;
        if track >= lanes.len() {
            lanes.resize_with(track + 1, Lane::default);
        }
        let lane = &mut lanes[track];
        let count = lane.samples.len();
        lane.samples.push((since / self.tick) as u64 * SLOT + u64::from(moment.stack));
        lane.weights[0].push(count, moment.weight);
        lane.weights[1].push(count, moment.otherwise);
        self.count += 1;
        if self.count > MANY && self.tick < COARSE {
            self.coarsen();
        }
    }

    /// Makes ticks ten times as long.
    fn coarsen(&mut self) {
        self.tick *= 10;
        let lanes = self.events.iter_mut().flat_map(|(_, lanes)| lanes);
        let samples = lanes.flat_map(|lane| &mut lane.samples);
        samples.for_each(|sample| *sample = *sample / SLOT / 10 * SLOT + *sample % SLOT);
    }

    /// Returns everything that was collected, in order. Threads without samples and events are left out.
    pub fn finish(mut self) -> Moments {
        let mut lasted = self.lasting.finish(&mut self.collecting);
        let mut tracks = self.collecting.threads();
        let threads = std::mem::take(&mut tracks.tracks);
        let cpu = self.events.iter().position(|(types, _)| types.is_cpu());
        let mut events: Vec<Vec<Lane>> = self.events.into_iter().map(|(_, lanes)| lanes).collect();
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
        Moments { tracks, events, cpu, tick: self.tick, lasted }
    }
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
    use crate::fold::FoldOptions;
    use crate::reshape::Reshape;

    fn gathered(moments: &[(i64, u32, u64)]) -> (i64, Lane) {
        let (options, reshape) = (FoldOptions::default(), Reshape::default());
        let collecting = Collecting::new(&options, &reshape, [i64::MIN, i64::MAX]);
        let mut gathering = Gathering::new(collecting, 1_000_000_000, &[Types::default()]);
        for &(time, stack, weight) in moments {
            gathering.put(0, 0, &Moment { time, stack, weight, otherwise: 7 });
        }
        let mut lane = gathering.events.remove(0).1.remove(0);
        lane.sort();
        (gathering.tick, lane)
    }

    #[test]
    fn samples_are_sorted_by_tick_with_their_weights() {
        let ms = |ms: i64| 1_000_000_000 + ms * 1_000_000;
        let (tick, lane) = gathered(&[(ms(2), 5, 1), (ms(1), 6, 3), (ms(1) + 1, 4, 1), (0, 9, 1)]);
        assert_eq!(tick, FINE);
        assert_eq!(lane.samples, [9, 10 * SLOT + 6, 10 * SLOT + 4, 20 * SLOT + 5]);
        assert_eq!(lane.weights, [Weights::Each(vec![1, 3, 1, 1]), Weights::Same(7)]);
    }

    #[test]
    fn tick_length_grows_with_samples_and_duration() {
        let week = 1_000_000_000 + 7 * 86_400 * 1_000_000_000;
        let (tick, lane) = gathered(&[(1_000_100_000, 0, 1), (1_010_000_000, 1, 1), (week, 2, 1)]);
        assert_eq!(tick, 10 * FINE);
        assert_eq!(lane.samples, [0, 10 * SLOT + 1, 604_800_000 * SLOT + 2]);
        let (tick, lane) = gathered(&vec![(1_010_500_000, 3, 1); MANY + 1]);
        assert_eq!((tick, lane.samples[0]), (COARSE, 10 * SLOT + 3));
        assert_eq!(lane.weights[0], Weights::Same(1));
    }
}
