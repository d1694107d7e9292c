//! Where everything of a store is: `TABLE/day=YYYY-MM-DD/service=NAME/FILE.parquet`, as Hive lays tables out and every engine reads them.

use std::fmt;

use anyhow::{Result, bail};
use chrono::{Datelike, NaiveDate};

/// What the tables are partitioned by: both texts in every engine.
pub const PARTITIONED_BY: [&str; 2] = ["day", "service"];
/// How names of data files end.
pub const SUFFIX: &str = ".parquet";
/// Bytes of a service's name.
pub const LONGEST_SERVICE: usize = 200;
/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// A table of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// A row for each sample.
    Samples,
    /// The nodes on the way to each stack's end.
    Stacks,
    /// The tree that all stacks are: each node a frame on its parent.
    Nodes,
    /// What frames are.
    Frames,
    /// What was not recorded, by cause.
    Losses,
    /// Samples added up by minute.
    Minutes,
    /// Samples added up by hour.
    Hours,
    /// Samples added up by day.
    Days,
}

impl Table {
    /// All of them.
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
    /// Those that say what stacks are.
    pub const DICTIONARY: [Self; 3] = [Self::Frames, Self::Nodes, Self::Stacks];
    /// Those of samples added up, finest first.
    pub const SUMS: [Self; 3] = [Self::Minutes, Self::Hours, Self::Days];

    /// Its name in SQL and of its folder.
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

    /// The column of its ids: rows of the same id are the same, and may be in several files.
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
    /// The one that a time in µs since 1970 is in. Times that no calendar has are on its first or last day.
    pub fn of_micros(micros: i64) -> Self {
        let days =
            i32::try_from(micros.div_euclid(DAY)).unwrap_or(if micros < 0 { i32::MIN } else { i32::MAX });
        Self(days.clamp(Self::of(0, 1, 1), Self::of(9999, 12, 31)))
    }

    fn of(year: i32, month: u32, day: u32) -> i32 {
        NaiveDate::from_ymd_opt(year, month, day).map_or(0, |date| date.to_epoch_days())
    }

    /// As `YYYY-MM-DD`; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
        Some(Self(date.to_epoch_days())).filter(|day| day.to_string() == text)
    }

    /// Its begin, in µs since 1970.
    pub fn begin(self) -> i64 {
        i64::from(self.0) * DAY
    }

    /// Its end, in µs since 1970.
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

/// What files of a folder have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// Day of the samples, by their own time.
    pub day: Day,
    /// Whose they are.
    pub service: String,
}

impl Partition {
    /// Its folder below a table's.
    pub fn folder(&self) -> String {
        format!("day={}/service={}", self.day, encoded(&self.service))
    }

    /// The values of [`PARTITIONED_BY`].
    pub fn values(&self) -> [String; 2] {
        [self.day.to_string(), self.service.clone()]
    }
}

/// Checks the name of a service.
///
/// # Errors
/// It is empty or too long.
pub fn check_service(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > LONGEST_SERVICE {
        bail!("the name of a service has 1 to {LONGEST_SERVICE} bytes, this one {}", name.len());
    }
    Ok(())
}

/// A value as the name of a folder: ASCII characters that not every file system, object store and engine takes are written as %XX. All others
/// stay as they are, since Hive and Spark read each %XX as a character of its own.
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

/// The value in the name of a folder.
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
    fn values_of_folders_are_what_was_written() {
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
    fn days_are_of_utc_and_of_any_time() {
        assert_eq!(Day::of_micros(0).to_string(), "1970-01-01");
        assert_eq!(Day::of_micros(-1).to_string(), "1969-12-31");
        assert_eq!(Day::of_micros(1_769_904_000_000_000 - 1).to_string(), "2026-01-31");
        assert_eq!(Day::of_micros(i64::MAX).to_string(), "9999-12-31");
        assert_eq!(Day::of_micros(i64::MIN).to_string(), "0000-01-01");
        let day = Day::parse("2024-02-29").unwrap();
        assert_eq!((day.to_string().as_str(), day.end() - day.begin()), ("2024-02-29", DAY));
        for text in ["2024-2-29", "2023-02-29", "x", "2024-02-29 "] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
