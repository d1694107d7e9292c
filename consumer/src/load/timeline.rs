//! The times of samples, collected in the pass that adds the samples up.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use crate::model::{SampleKey, Weight};

/// Length of a tick in ns.
const TICK: i64 = 100_000;
/// Factor of the tick in the number of a sample.
const SLOT: u64 = 1 << 32;

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
    pub fn push(&mut self, count: usize, weight: u64) {
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

    /// Returns the weight of a sample.
    pub fn at(&self, sample: usize) -> u64 {
        match self {
            Self::Same(each) => *each,
            Self::Each(all) => all.get(sample).copied().unwrap_or(0),
        }
    }
}

/// The samples of an event type, in the order of the recording.
#[derive(Clone, Debug, Default)]
struct TypeSamples {
    /// Ticks since the origin in the upper half, index of the key in the lower half.
    samples: Vec<u64>,
    counts: Weights,
    values: Weights,
    /// In ns.
    durations: Durations,
}

/// The durations of the samples of a type.
#[derive(Clone, Debug, Default)]
enum Durations {
    #[default]
    None,
    /// They are the values.
    Values,
    Each(Vec<u64>),
}

/// A sample with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedSample {
    /// Ticks since the origin.
    pub tick: u64,
    /// Index of its key in [`Timeline::keys`].
    pub key: usize,
    /// Its weight.
    pub weight: Weight,
    /// Duration in ns, if its type has one.
    pub duration_nanos: Option<u64>,
}

/// The times of samples by event type. A sample takes 8 bytes, and 8 or 16 more if weights differ; another 8
/// where types alternate.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Start, in ns since 1970. Earlier samples are placed there, because a clock may have been set back.
    origin: i64,
    /// Length of a tick in ns.
    tick: i64,
    /// Maximum number of samples.
    most: usize,
    count: usize,
    keys: Vec<SampleKey>,
    numbers: HashMap<SampleKey, u32, KeyHash>,
    types: Vec<TypeSamples>,
    type_numbers: HashMap<Arc<str>, usize>,
    /// Number of samples by type whose keys are resolved.
    resolved: Vec<usize>,
    /// The order of the types: each with the number of its samples in sequence.
    runs: Vec<(u32, u32)>,
}

impl TypeSamples {
    fn sample(&self, at: usize) -> TimedSample {
        let sample = self.samples[at];
        TimedSample {
            tick: sample / SLOT,
            key: (sample % SLOT) as usize,
            weight: Weight { count: self.counts.at(at), value: self.values.at(at) },
            duration_nanos: match &self.durations {
                Durations::None => None,
                Durations::Values => Some(self.values.at(at)),
                Durations::Each(all) => all.get(at).copied(),
            },
        }
    }
}

impl Timeline {
    /// Creates a timeline that begins at `origin`, in ns since 1970, for at most `most` samples.
    pub fn new(origin: i64, most: usize) -> Self {
        Self {
            origin,
            tick: TICK,
            most,
            count: 0,
            keys: Vec::new(),
            numbers: HashMap::default(),
            types: Vec::new(),
            type_numbers: HashMap::new(),
            resolved: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Returns true if there were too many samples. The timeline is then incomplete.
    pub fn is_full(&self) -> bool {
        self.count > self.most
    }

    /// Returns the length of a tick in ns.
    pub fn tick(&self) -> i64 {
        self.tick
    }

    /// Returns the distinct keys of samples.
    pub fn keys(&self) -> &[SampleKey] {
        &self.keys
    }

    /// Returns the samples of the event types for which `includes` returns true, in the order of the recording.
    pub fn samples(&self, includes: impl Fn(&str) -> bool) -> impl Iterator<Item = TimedSample> + '_ {
        let mut is_included = vec![false; self.types.len()];
        for (name, &number) in &self.type_numbers {
            is_included[number] = includes(name);
        }
        let mut next = vec![0; self.types.len()];
        let runs = self.runs.iter().map(|&(number, count)| (number as usize, count as usize));
        runs.filter(move |&(number, _)| is_included[number]).flat_map(move |(number, count)| {
            let start = next[number];
            next[number] += count;
            (start..start + count).map(move |at| self.types[number].sample(at))
        })
    }

    /// Returns the number of an event type for [`Self::add`].
    pub(super) fn event_type(&mut self, name: &Arc<str>) -> usize {
        let next = self.types.len();
        let number = *self.type_numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.types.push(TypeSamples::default());
            self.resolved.push(0);
        }
        number
    }

    /// Removes the samples of a type if there are more than `most`; returns true if there were.
    pub(super) fn drop_above(&mut self, event_type: usize, most: usize) -> bool {
        let is_above = self.types[event_type].samples.len() > most;
        if is_above {
            self.count -= self.types[event_type].samples.len();
            self.types[event_type] = TypeSamples::default();
            self.runs.retain(|&(number, _)| number as usize != event_type);
            self.resolved[event_type] = 0;
        }
        is_above
    }

    /// Adds a sample. Its key is given by its position among the sums of the chunk.
    #[inline]
    pub(super) fn add(
        &mut self,
        event_type: usize,
        time: i64,
        position: usize,
        weight: Weight,
        duration: Option<u64>,
    ) {
        if self.count >= self.most {
            self.count = self.most + 1;
            return;
        }
        self.count += 1;
        let since = time.saturating_sub(self.origin).max(0);
        while since / self.tick > i64::from(u32::MAX) {
            self.coarsen();
        }
        match self.runs.last_mut() {
            Some((number, count)) if *number as usize == event_type && *count < u32::MAX => *count += 1,
            _ => self.runs.push((event_type as u32, 1)),
        }
        let of_type = &mut self.types[event_type];
        let before = of_type.samples.len();
        of_type.samples.push((since / self.tick) as u64 * SLOT + position as u64);
        of_type.counts.push(before, weight.count);
        of_type.values.push(before, weight.value);
        match (&mut of_type.durations, duration) {
            (Durations::Each(all), duration) => all.push(duration.unwrap_or(0)),
            (_, None) => {}
            (durations, Some(nanos)) if nanos == weight.value => *durations = Durations::Values,
            (durations, Some(nanos)) => {
                let mut all: Vec<u64> = match durations {
                    Durations::Values => (0..before).map(|at| of_type.values.at(at)).collect(),
                    _ => vec![0; before],
                };
                all.push(nanos);
                *durations = Durations::Each(all);
            }
        }
    }

    /// Makes ticks ten times as long.
    fn coarsen(&mut self) {
        self.tick *= 10;
        let samples = self.types.iter_mut().flat_map(|of_type| &mut of_type.samples);
        samples.for_each(|sample| *sample = *sample / SLOT / 10 * SLOT + *sample % SLOT);
    }

    /// Replaces the positions of samples of this chunk by their keys. `keys` has the key of each position.
    pub(super) fn resolve(&mut self, keys: &[SampleKey]) {
        let numbers: Vec<u32> = keys
            .iter()
            .map(|key| {
                let next = self.keys.len() as u32;
                let number = *self.numbers.entry(*key).or_insert(next);
                if number == next {
                    self.keys.push(*key);
                }
                number
            })
            .collect();
        for (of_type, resolved) in self.types.iter_mut().zip(&mut self.resolved) {
            for sample in of_type.samples.iter_mut().skip(*resolved) {
                let position = (*sample % SLOT) as usize;
                let number = numbers.get(position).copied().unwrap_or(0);
                *sample = *sample / SLOT * SLOT + u64::from(number);
            }
            *resolved = of_type.samples.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EventKind, Interner, Unit};

    fn keys() -> [SampleKey; 2] {
        let mut kinds = Interner::default();
        ["a", "b"].map(|name| {
            let unit = Unit::Samples;
            let kind = kinds.intern(EventKind { name: name.into(), variant: None, unit, period_nanos: None });
            SampleKey { kind, thread: None, stack: None, state: None, class: None, title: None }
        })
    }

    #[test]
    fn samples_have_times_weights_and_keys() {
        let [a, b] = keys();
        let mut timeline = Timeline::new(1_000_000_000, 10);
        let number = timeline.event_type(&"a".into());
        let weight = |value| Weight { count: 1, value };
        timeline.add(number, 1_000_250_000, 0, weight(5), None);
        timeline.add(number, 999_000_000, 1, weight(6), None);
        timeline.resolve(&[b, a]);
        timeline.add(number, 1_000_000_000 + 7 * 86_400 * 1_000_000_000, 0, weight(6), Some(9));
        timeline.resolve(&[a]);
        assert_eq!((timeline.tick(), timeline.keys()), (10 * TICK, &[b, a][..]));
        let samples: Vec<TimedSample> = timeline.samples(|name| name == "a").collect();
        let sample = |tick, key, value, nanos| TimedSample {
            tick,
            key,
            weight: weight(value),
            duration_nanos: Some(nanos),
        };
        assert_eq!(samples, [sample(0, 0, 5, 0), sample(0, 1, 6, 0), sample(604_800_000, 1, 6, 9)]);
        assert_eq!(timeline.samples(|name| name == "b").count(), 0);
        assert!(!timeline.is_full());
    }

    #[test]
    fn too_many_samples_are_reported() {
        let mut timeline = Timeline::new(0, 2);
        let number = timeline.event_type(&"a".into());
        (0..3).for_each(|time| timeline.add(number, time, 0, Weight::default(), None));
        assert!(timeline.is_full());
        assert_eq!(timeline.samples(|_| true).count(), 2);
    }
}
