//! The footer of a data file: which chunks it contains and which files it replaces. This is the only place
//! with that information, so nothing can contradict it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::layout::SUFFIX;

/// Prefix of the names of files that replace others; names of deliveries are hexadecimal.
const MERGED: char = 'm';
/// Key of the footer entry.
pub const KEY: &str = "flightline";

/// A 64-bit id, written in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Id(pub u64);

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for Id {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

/// Provenance of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Chunks whose rows it contains, by delivery.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chunks: BTreeMap<Id, Vec<Id>>,
    /// Deliveries that are complete because this file exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complete: Vec<Id>,
    /// Names of files in the same folder that this one replaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// Original label keys by column name, where characters were replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Provenance {
    /// Serializes it for the footer.
    ///
    /// # Errors
    /// No error is known to occur.
    pub fn text(&self) -> Result<String> {
        serde_json::to_string(self).context("cannot write what a file is made of")
    }

    /// Parses a footer entry.
    ///
    /// # Errors
    /// Returns an error if the entry has another form.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("the footer does not say what the file is made of")
    }

    /// Returns the chunks of complete deliveries.
    pub fn chunks_complete(&self) -> impl Iterator<Item = Id> {
        self.complete.iter().filter_map(|delivery| self.chunks.get(delivery)).flatten().copied()
    }

    /// Adds the provenance of another file of the same folder.
    pub fn merge(&mut self, other: Self) {
        for (delivery, chunks) in other.chunks {
            let known = self.chunks.entry(delivery).or_default();
            known.extend(chunks);
            known.sort_unstable();
            known.dedup();
        }
        self.complete.extend(other.complete);
        self.complete.sort_unstable();
        self.complete.dedup();
        self.labels.extend(other.labels);
    }
}

/// Returns the name of a file that replaces others in its folder. It sorts after their names. A client that
/// lists the folder page by page during a compaction thus sees the old files, the new one, or both, but never
/// neither.
pub fn merged_name(replaces: &[String]) -> String {
    let generation = |name: &String| name.strip_prefix(MERGED)?.get(..4)?.parse::<u32>().ok();
    let generation = replaces.iter().filter_map(generation).max().map_or(0, |last| last + 1).min(9999);
    let of = Id(XxHash3_64::oneshot(replaces.join("/").as_bytes()));
    format!("{MERGED}{generation:04}-{of}{SUFFIX}")
}

/// Returns true if a file of this name replaces others.
pub fn is_merged(name: &str) -> bool {
    name.starts_with(MERGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_file_names_sort_after_their_inputs() {
        let delivered = format!("{}-0000.parquet", Id(u64::MAX));
        let mut before = vec![delivered.clone()];
        for _ in 0..12 {
            let next = merged_name(&[delivered.clone(), before[before.len() - 1].clone()]);
            assert!(before.iter().all(|name| *name < next), "{before:?} {next}");
            before.push(next);
        }
        assert_eq!(before[12].get(..6), Some("m0011-"));
    }

    #[test]
    fn footer_round_trips_and_counts_only_complete_deliveries() {
        let told = Provenance {
            chunks: BTreeMap::from([(Id(1), vec![Id(10), Id(u64::MAX)]), (Id(2), vec![Id(20)])]),
            complete: vec![Id(1), Id(3)],
            replaces: vec!["a.parquet".to_owned()],
            labels: BTreeMap::new(),
        };
        assert_eq!(Provenance::parse(&told.text().unwrap()).unwrap(), told);
        assert_eq!(told.chunks_complete().collect::<Vec<_>>(), [Id(10), Id(u64::MAX)]);
        assert_eq!(Provenance::parse("{}").unwrap(), Provenance::default());
        assert!(Provenance::parse("{\"complete\":[\"x\"]}").is_err());
    }
}
