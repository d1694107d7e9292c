//! Histogram of samples over time, in bounded memory.

use serde::Serialize;

/// Maximum number of steps; beyond it, steps double in length.
const MOST: usize = 512;
/// Minimum step, ms.
const STEP: i64 = 1000;
/// Maximum step: 2^30 s.
const LONGEST: i64 = STEP << 30;

/// Number of samples per time step. A step is one second, or longer if the samples span more time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    step: i64,
    /// Counts by step number since 1970, in order. Every chunk has such a list, so it is compact.
    counts: Vec<(i64, u64)>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { step: STEP, counts: Vec::new() }
    }
}

impl Histogram {
    /// Adds samples at a time (UTC ms).
    pub fn add(&mut self, at: i64, samples: u64) {
        let step = at.div_euclid(self.step);
        // Usually the last step or a later one.
        let place = match self.counts.last() {
            Some(&(last, _)) if last == step => Ok(self.counts.len() - 1),
            Some(&(last, _)) if last < step => Err(self.counts.len()),
            _ => self.counts.binary_search_by_key(&step, |&(at, _)| at),
        };
        match place {
            Ok(place) => {
                if let Some((_, count)) = self.counts.get_mut(place) {
                    *count = count.saturating_add(samples);
                }
            }
            Err(place) => self.counts.insert(place, (step, samples)),
        }
        while self.counts.len() > MOST && self.step < LONGEST {
            self.step *= 2;
            self.counts.iter_mut().for_each(|(at, _)| *at = at.div_euclid(2));
            self.counts.dedup_by(|next, first| {
                let same = next.0 == first.0;
                if same {
                    first.1 = first.1.saturating_add(next.1);
                }
                same
            });
        }
        // Timestamps far apart, from a corrupt or malicious clock.
        if self.counts.len() > MOST {
            self.counts.remove(0);
        }
    }

    /// Returns a copy without spare capacity.
    pub fn compact(&self) -> Self {
        Self { step: self.step, counts: self.counts.clone() }
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns the number of all samples.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
    }

    /// Returns the steps with samples, as (begin, end, samples) in UTC ms.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (i64, i64, u64)> + '_ {
        self.counts.iter().map(|&(at, samples)| {
            let begin = at.saturating_mul(self.step);
            (begin, begin.saturating_add(self.step), samples)
        })
    }
}

/// Samples per second over an interval, for charts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// Start, UTC ms.
    pub from: i64,
    /// Length of a step, ms.
    pub step: i64,
    /// Samples per second in each step; null where data has not been counted yet.
    pub rates: Vec<Option<f64>>,
}

impl Timeline {
    /// Creates an empty timeline of `steps` steps from `from` to `to`.
    pub(super) fn new(from: i64, to: i64, steps: usize) -> Self {
        let steps = i64::try_from(steps.max(1)).unwrap_or(1);
        let length = i128::from(to) - i128::from(from);
        let step =
            i64::try_from((length + i128::from(steps) - 1) / i128::from(steps)).unwrap_or(i64::MAX).max(1);
        let needed = usize::try_from((length + i128::from(step) - 1) / i128::from(step)).unwrap_or(0);
        Self { from, step, rates: vec![Some(0.0); needed] }
    }

    /// Returns the steps that an interval overlaps, with the overlap in ms.
    fn touched(&self, begin: i64, end: i64) -> impl Iterator<Item = (usize, f64)> + use<> {
        let (from, step) = (i128::from(self.from), i128::from(self.step));
        let (begin, end) = (i128::from(begin) - from, i128::from(end) - from);
        let last = self.rates.len() as i128 - 1;
        let first = begin.max(0) / step;
        let last = if end <= 0 { -1 } else { ((end - 1) / step).min(last) };
        (first..=last).map(move |at| {
            let within = end.min((at + 1) * step) - begin.max(at * step);
            (at as usize, within as f64)
        })
    }

    /// Adds the samples of a histogram.
    pub(super) fn add(&mut self, line: &Histogram) {
        for (begin, end, samples) in line.steps() {
            let each = samples as f64 / (end - begin).max(1) as f64;
            for (at, within) in self.touched(begin, end) {
                if let Some(Some(rate)) = self.rates.get_mut(at) {
                    *rate += each * within * 1000.0 / self.step as f64;
                }
            }
        }
    }

    /// Marks an interval whose samples have not been counted.
    pub(super) fn unknown(&mut self, begin: i64, end: i64) {
        for (at, _) in self.touched(begin, end.saturating_add(1)) {
            if let Some(rate) = self.rates.get_mut(at) {
                *rate = None;
            }
        }
    }
}
