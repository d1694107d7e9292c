//! Layout of a store: `TABLE/day=YYYY-MM-DD/service=NAME/FILE.parquet`, the Hive layout that every engine
//! reads.

use std::fmt;

use anyhow::{Result, bail};
use chrono::{Datelike, NaiveDate};

/// Partition columns of the tables; strings in every engine.
pub const PARTITIONED_BY: [&str; 2] = ["day", "service"];
/// Suffix of data files.
pub const SUFFIX: &str = ".parquet";
/// Maximum bytes of a service name.
pub const LONGEST_SERVICE: usize = 200;
/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// A table of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One row per sample.
    Samples,
    /// The nodes from the root to each stack's leaf.
    Stacks,
    /// The tree of all stacks: each node is a frame below its parent.
    Nodes,
    /// Frames.
    Frames,
    /// Lost events by cause.
    Losses,
    /// Samples aggregated by minute.
    Minutes,
    /// Samples aggregated by hour.
    Hours,
    /// Samples aggregated by day.
    Days,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 8] = [
        Self::Samples,
        Self::Stacks,
        Self::Nodes,
        Self::Frames,
        Self::Losses,
        Self::Minutes,
        Self::Hours,
        Self::Days,
    ];
    /// Tables that define stacks.
    pub const DICTIONARY: [Self; 3] = [Self::Frames, Self::Nodes, Self::Stacks];
    /// Tables of aggregated samples, finest first.
    pub const SUMS: [Self; 3] = [Self::Minutes, Self::Hours, Self::Days];

    /// Name in SQL and of the folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Stacks => "stacks",
            Self::Nodes => "nodes",
            Self::Frames => "frames",
            Self::Losses => "losses",
            Self::Minutes => "samples_minute",
            Self::Hours => "samples_hour",
            Self::Days => "samples_day",
        }
    }

    /// Id column. Rows with the same id are equal, and may occur in several files.
    pub fn id(self) -> Option<&'static str> {
        match self {
            Self::Stacks => Some("stack_id"),
            Self::Nodes => Some("node_id"),
            Self::Frames => Some("frame_hash"),
            _ => None,
        }
    }
}

/// A day, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i32);

impl Day {
    /// Returns the day of a time in µs since 1970, clamped to the first or last day of the calendar.
    pub fn from_micros(micros: i64) -> Self {
        let days =
            i32::try_from(micros.div_euclid(DAY)).unwrap_or(if micros < 0 { i32::MIN } else { i32::MAX });
        Self(days.clamp(Self::from_date(0, 1, 1), Self::from_date(9999, 12, 31)))
    }

    fn from_date(year: i32, month: u32, day: u32) -> i32 {
        NaiveDate::from_ymd_opt(year, month, day).map_or(0, |date| date.to_epoch_days())
    }

    /// Parses `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Option<Self> {
        let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
        Some(Self(date.to_epoch_days())).filter(|day| day.to_string() == text)
    }

    /// Start in µs since 1970.
    pub fn begin(self) -> i64 {
        i64::from(self.0) * DAY
    }

    /// End in µs since 1970.
    pub fn end(self) -> i64 {
        self.begin() + DAY
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = NaiveDate::from_epoch_days(self.0).unwrap_or_default();
        write!(f, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day())
    }
}

/// Partition values of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// Day of the samples, by their timestamps.
    pub day: Day,
    /// Service that was recorded.
    pub service: String,
}

impl Partition {
    /// Returns its folder below that of a table.
    pub fn folder(&self) -> String {
        format!("day={}/service={}", self.day, encoded(&self.service))
    }

    /// Returns the values of [`PARTITIONED_BY`].
    pub fn values(&self) -> [String; 2] {
        [self.day.to_string(), self.service.clone()]
    }
}

/// Checks a service name.
///
/// # Errors
/// Returns an error if it is empty or too long.
pub fn check_service(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > LONGEST_SERVICE {
        bail!("the name of a service has 1 to {LONGEST_SERVICE} bytes, this one {}", name.len());
    }
    Ok(())
}

/// Encodes a value as a folder name. ASCII characters that some file system, object store or engine rejects
/// become %XX. Other characters are unchanged, since Hive and Spark decode each %XX as a separate character.
pub fn encoded(value: &str) -> String {
    use std::fmt::Write;

    value.chars().fold(String::new(), |mut text, c| {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => text.push(c),
            c if c.is_ascii() => {
                let _ = write!(text, "%{:02X}", u32::from(c)); // to a String
            }
            c => text.push(c),
        }
        text
    })
}

/// Decodes a folder name.
pub fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.filter(|_| byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                plain.push(decoded);
                at += 3;
            }
            None => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_round_trip_values() {
        for (folder, value) in
            [("a%2Fb", "a/b"), ("100%", "100%"), ("%zz", "%zz"), ("%C3%A9é", "éé"), ("", "")]
        {
            assert_eq!(decoded(folder), value);
        }
        for value in ["api", "a/b", "a=b c", "../x", "%41", "é\u{1}", "'\"*?"] {
            let folder = encoded(value);
            assert_eq!(decoded(&folder), value);
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-%".contains(c) || !c.is_ascii();
            assert!(folder.chars().all(plain), "{folder}");
        }
    }

    #[test]
    fn days_are_utc_for_any_timestamp() {
        assert_eq!(Day::from_micros(0).to_string(), "1970-01-01");
        assert_eq!(Day::from_micros(-1).to_string(), "1969-12-31");
        assert_eq!(Day::from_micros(1_769_904_000_000_000 - 1).to_string(), "2026-01-31");
        assert_eq!(Day::from_micros(i64::MAX).to_string(), "9999-12-31");
        assert_eq!(Day::from_micros(i64::MIN).to_string(), "0000-01-01");
        let day = Day::parse("2024-02-29").unwrap();
        assert_eq!((day.to_string().as_str(), day.end() - day.begin()), ("2024-02-29", DAY));
        for text in ["2024-2-29", "2023-02-29", "x", "2024-02-29 "] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
