//! Losses that a recording reports.

use std::collections::BTreeMap;

/// Maximum number of stored causes.
const MOST: usize = 256;

/// Losses of a recording, by the type of the reporting event and the cause or type that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<(&'static str, String), Lost>);

/// An amount of lost data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) events: u64,
    pub(crate) nanos: u64,
    pub(crate) bytes: u64,
}

impl Lost {
    pub(crate) fn add(&mut self, other: Self) {
        self.events = self.events.saturating_add(other.events);
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Losses {
    /// Adds a loss that an event of the type `told_by` reports for `of`.
    pub(crate) fn add(&mut self, told_by: &'static str, of: String, lost: Lost) {
        let key = (told_by, of);
        if self.0.len() < MOST || self.0.contains_key(&key) {
            self.0.entry(key).or_default().add(lost);
        }
    }

    /// Adds the losses of a later part.
    pub(super) fn merge(&mut self, later: Self) {
        later.0.into_iter().for_each(|((told_by, of), lost)| self.add(told_by, of, lost));
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the reporting event type, the cause or type, and the amount of each loss.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &str, Lost)> {
        self.0.iter().map(|((told_by, of), lost)| (*told_by, of.as_str(), *lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_cause_count_is_bounded() {
        let mut losses = Losses::default();
        (0..2 * MOST).for_each(|i| losses.add("", i.to_string(), Lost { events: 1, ..Lost::default() }));
        assert_eq!(losses.iter().count(), MOST);
        let before = losses.clone();
        losses.merge(before);
        assert!(losses.iter().all(|(.., lost)| lost.events == 2) && losses.iter().count() == MOST);
    }
}
