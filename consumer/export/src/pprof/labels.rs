//! Samples of a profile by their labels.

use std::collections::BTreeSet;

use super::proto::{Label, Sample};

/// Labels told to who asked for one that is not there.
const TOLD: usize = 8;

/// What was asked for, and what there is.
pub(super) struct Choice<'a> {
    wanted: Vec<(&'a str, &'a str, Option<i64>)>,
    /// Samples that were taken.
    taken: u64,
    /// Names of labels of samples.
    names: BTreeSet<&'a str>,
    /// Labels with a name that was asked for, as text.
    values: BTreeSet<String>,
}

impl<'a> Choice<'a> {
    /// Samples with all of these; a number is told in decimal.
    pub(super) fn new(wanted: &'a [(String, String)]) -> Self {
        let of = |(key, value): &'a (String, String)| (&**key, &**value, value.parse().ok());
        let wanted = wanted.iter().map(of).collect();
        Self { wanted, taken: 0, names: BTreeSet::new(), values: BTreeSet::new() }
    }

    /// Whether a sample has all that is wanted.
    pub(super) fn takes(&mut self, sample: &Sample, text: impl Fn(i64) -> &'a str) -> bool {
        // One more than is told says that there are more; what is there need not be kept.
        let room = |len: usize| len <= TOLD;
        for label in sample.label.iter().filter(|_| !self.wanted.is_empty()) {
            let name = text(label.key);
            if room(self.names.len()) {
                self.names.insert(name);
            }
            if room(self.values.len()) && self.wanted.iter().any(|(key, ..)| *key == name) {
                self.values.insert(match label.str {
                    0 => format!("{name}={}", label.num),
                    index => format!("{name}={}", text(index)),
                });
            }
        }
        let is = |label: &Label, value: &str, number: Option<i64>| match label.str {
            // A text of no bytes and the number 0 are written alike.
            0 => number == Some(label.num) || value.is_empty() && label.num == 0,
            index => text(index) == value,
        };
        let has = |&(key, value, number): &(&str, &str, Option<i64>)| {
            sample.label.iter().any(|label| text(label.key) == key && is(label, value, number))
        };
        let takes = self.wanted.iter().all(has);
        self.taken += u64::from(takes);
        takes
    }

    /// Of so many samples, and what labels there are: those with a name that was asked for, else their names.
    pub(super) fn finish(self) -> (u64, Vec<String>) {
        let names = || self.names.iter().map(|&name| name.to_owned()).collect();
        let mut there: Vec<String> =
            if self.values.is_empty() { names() } else { self.values.into_iter().collect() };
        if there.len() > TOLD {
            there.truncate(TOLD);
            there.push("…".to_owned());
        }
        (self.taken, there)
    }
}
