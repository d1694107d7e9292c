//! The selection of threads to record.

use std::ops::RangeInclusive;

use regex::Regex;

use crate::error::Error;

/// Threads by name or TID.
#[derive(Clone, Debug, Default)]
pub struct ThreadSelection {
    names: Vec<Regex>,
    ids: Vec<RangeInclusive<u32>>,
}

impl ThreadSelection {
    /// Parses a selection. Each text is a list of TIDs and ranges (`17,20-30`), or a regular expression for a
    /// part of the name.
    ///
    /// # Errors
    /// The invalid expression.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<ThreadSelection, Error> {
        let mut selection = ThreadSelection::default();
        for text in texts.iter().map(AsRef::as_ref) {
            match text.split(',').map(range).collect::<Option<Vec<_>>>() {
                Some(ids) => selection.ids.extend(ids),
                None => selection.names.push(Regex::new(text).map_err(|_| Error::Setting {
                    name: "threads",
                    problem: format!(
                        "{text:?} is neither a list of thread ids, such as 17,20-30, nor a regular expression"
                    ),
                })?),
            }
        }
        Ok(selection)
    }

    /// Adds the threads with TIDs in this range.
    pub fn add_ids(&mut self, ids: RangeInclusive<u32>) {
        self.ids.push(ids);
    }

    /// Adds the threads whose names match a regular expression.
    ///
    /// # Errors
    /// The invalid expression.
    pub fn add_pattern(&mut self, pattern: &str) -> Result<(), Error> {
        self.names.push(Regex::new(pattern).map_err(|e| Error::Setting {
            name: "threads",
            problem: format!("{pattern:?} is not a regular expression: {e}"),
        })?);
        Ok(())
    }

    /// Returns texts from which [`ThreadSelection::parse`] makes an equal selection.
    pub fn texts(&self) -> Vec<String> {
        let ids = self.ids.iter().map(|range| format!("{}-{}", range.start(), range.end()));
        let names = self.names.iter().map(|regex| match regex.as_str() {
            text if text.split(',').all(|part| range(part).is_some()) => format!("(?:{text})"),
            text => text.to_owned(),
        });
        ids.chain(names).collect()
    }

    /// Returns true if a thread is selected.
    pub fn holds(&self, tid: u32, name: &str) -> bool {
        self.ids.iter().any(|range| range.contains(&tid))
            || self.names.iter().any(|regex| regex.is_match(name))
    }
}

fn range(text: &str) -> Option<RangeInclusive<u32>> {
    let (from, to) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
    Some(from.parse().ok()?..=to.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_selected_by_name_or_id() {
        let selection = ThreadSelection::parse(&["17,20-30", "^worker-[0-9]+$", "io"]).unwrap();
        for (tid, name, expected) in [
            (17, "x", true),
            (18, "x", false),
            (25, "", true),
            (1, "worker-3", true),
            (1, "my-io-1", true),
            (1, "worker-x", false),
        ] {
            assert_eq!(selection.holds(tid, name), expected, "{tid} {name}");
        }
        let again = ThreadSelection::parse(&selection.texts()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{selection:?}"));
        let mut digits = ThreadSelection::default();
        digits.add_pattern("17").unwrap();
        let again = ThreadSelection::parse(&digits.texts()).unwrap();
        assert!(again.holds(1, "x17") && !again.holds(17, "x"), "{again:?}");
        assert!(ThreadSelection::parse(&["("]).unwrap_err().to_string().contains("thread ids"));
        assert!(!ThreadSelection::parse::<&str>(&[]).unwrap().holds(1, "x"));
    }
}
