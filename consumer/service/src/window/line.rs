//! Samples by time, in bounded memory.

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
    /// By number of the step since 1970, in order: there is one of these for each chunk that is kept, so it is small.
    counts: Vec<(i64, u64)>,
}

impl Default for Line {
    fn default() -> Self {
        Self { step: STEP, counts: Vec::new() }
    }
}

impl Line {
    /// Counts samples at a moment, UTC ms.
    pub fn add(&mut self, at: i64, samples: u64) {
        let step = at.div_euclid(self.step);
        // Mostly in the last step or behind it.
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
        // Moments ages apart, of a clock made to do harm.
        if self.counts.len() > MOST {
            self.counts.remove(0);
        }
    }

    /// The same, in no more memory than it needs.
    pub fn kept(&self) -> Self {
        Self { step: self.step, counts: self.counts.clone() }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
    }

    /// Steps with samples, as (begin, end, samples), UTC ms.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (i64, i64, u64)> + '_ {
        self.counts.iter().map(|&(at, samples)| {
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
