//! Selects the samples of a profile by their labels.

use std::collections::BTreeSet;

use super::proto::{Label, Sample};

/// Labels listed in the message for a label that does not exist.
const TOLD: usize = 8;

/// The requested labels, and the labels in the profile.
pub(super) struct Choice<'a> {
    wanted: Vec<(&'a str, &'a str, Option<i64>)>,
    /// Samples that matched.
    taken: u64,
    /// Names of the samples' labels.
    names: BTreeSet<&'a str>,
    /// Labels with a requested name, as text.
    values: BTreeSet<String>,
}

impl<'a> Choice<'a> {
    /// Selects samples that have all of these labels; numbers are in decimal.
    pub(super) fn new(wanted: &'a [(String, String)]) -> Self {
        let of = |(key, value): &'a (String, String)| (&**key, &**value, value.parse().ok());
        let wanted = wanted.iter().map(of).collect();
        Self { wanted, taken: 0, names: BTreeSet::new(), values: BTreeSet::new() }
    }

    /// Returns true if a sample has all requested labels.
    pub(super) fn takes(&mut self, sample: &Sample, text: impl Fn(i64) -> &'a str) -> bool {
        // Stores one more than is listed, to know that there are more.
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
            // An empty string and the number 0 have the same encoding.
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

    /// Returns the number of matching samples and the labels that exist: those with a requested name,
    /// else all names.
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
