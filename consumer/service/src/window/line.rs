//! Samples by time, in bounded memory.

use std::collections::BTreeMap;

use serde::Serialize;

/// Steps of a line that are held; beyond that they get twice as long.
const MOST: usize = 512;
/// The shortest step, ms.
const STEP: i64 = 1000;
/// The longest step that can be asked for and is: 2^30 s.
const LONGEST: i64 = STEP << 30;

/// How many samples there were in each step of a time: a second, or longer where they lie further apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    step: i64,
    /// By number of the step since 1970.
    counts: BTreeMap<i64, u64>,
}

impl Default for Line {
    fn default() -> Self {
        Self { step: STEP, counts: BTreeMap::new() }
    }
}

impl Line {
    /// Counts samples at a moment, UTC ms.
    pub fn add(&mut self, at: i64, samples: u64) {
        let count = self.counts.entry(at.div_euclid(self.step)).or_default();
        *count = count.saturating_add(samples);
        while self.counts.len() > MOST && self.step < LONGEST {
            self.step *= 2;
            for (at, samples) in std::mem::take(&mut self.counts) {
                let count = self.counts.entry(at.div_euclid(2)).or_default();
                *count = count.saturating_add(samples);
            }
        }
        // Moments ages apart, of a clock made to do harm.
        while self.counts.len() > MOST {
            self.counts.pop_first();
        }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.counts.values().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Steps with samples, as (begin, end, samples), UTC ms.
    fn steps(&self) -> impl Iterator<Item = (i64, i64, u64)> + '_ {
        self.counts.iter().map(|(&at, &samples)| {
            let begin = at.saturating_mul(self.step);
            (begin, begin.saturating_add(self.step), samples)
        })
    }
}

/// Samples a second over an interval, for a page to draw.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// When it begins, UTC ms.
    pub from: i64,
    /// Length of a step, ms.
    pub step: i64,
    /// Samples a second in each step; null where something is kept that has not been counted.
    pub rates: Vec<Option<f64>>,
}

impl Timeline {
    /// Of nothing yet: `steps` steps from `from` to `to`.
    pub(super) fn new(from: i64, to: i64, steps: usize) -> Self {
        let steps = i64::try_from(steps.max(1)).unwrap_or(1);
        let length = i128::from(to) - i128::from(from);
        let step =
            i64::try_from((length + i128::from(steps) - 1) / i128::from(steps)).unwrap_or(i64::MAX).max(1);
        let needed = usize::try_from((length + i128::from(step) - 1) / i128::from(step)).unwrap_or(0);
        Self { from, step, rates: vec![Some(0.0); needed] }
    }

    /// Steps that an interval reaches into, with how much of it lies in each, ms.
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

    /// Adds what was counted.
    pub(super) fn add(&mut self, line: &Line) {
        for (begin, end, samples) in line.steps() {
            let each = samples as f64 / (end - begin).max(1) as f64;
            for (at, within) in self.touched(begin, end) {
                if let Some(Some(rate)) = self.rates.get_mut(at) {
                    *rate += each * within * 1000.0 / self.step as f64;
                }
            }
        }
    }

    /// Something is kept of this interval, but it is not known how many samples.
    pub(super) fn unknown(&mut self, begin: i64, end: i64) {
        for (at, _) in self.touched(begin, end.saturating_add(1)) {
            if let Some(rate) = self.rates.get_mut(at) {
                *rate = None;
            }
        }
    }
}
