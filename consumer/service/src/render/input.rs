//! Reads several open recordings as one.

use std::io;
use std::os::unix::fs::FileExt;

use flightline_consumer::format;
use flightline_consumer::live::{self, Feed, Item};
use jfr_format::edit;
use jfr_format::read::Recording;

use super::{Error, Source};

/// Read size in bytes.
const READ: usize = 256 << 10;
/// Maximum bytes of one chunk that may be buffered because its constants follow its events.
const MOST_KEPT: u64 = 256 << 20;
const MILLI: i64 = 1_000_000;

/// Recordings within the size limit.
pub(super) struct Inputs<'a> {
    sources: &'a [Source],
}

impl<'a> Inputs<'a> {
    pub(super) fn new(sources: &'a [Source], most: u64) -> Result<Self, Error> {
        let mut bytes = 0u64;
        for source in sources {
            let metadata = source.metadata().map_err(unreadable)?;
            if !metadata.is_file() {
                return Err(Error::Read(
                    "The recording is not a regular file; remove it and record again.".into(),
                ));
            }
            bytes = bytes.saturating_add(metadata.len());
        }
        if bytes == 0 {
            return Err(Error::Refused("No recording in this interval; choose another interval.".into()));
        }
        if bytes > most {
            return Err(Error::TooLarge(format!(
                "The recordings have {}, but flame graphs are limited to {}; choose a shorter interval, or download the JFR files.",
                format::bytes(bytes),
                format::bytes(most)
            )));
        }
        Ok(Self { sources })
    }

    /// Maps the recordings for loading.
    pub(super) fn recordings(&self) -> Result<Vec<Recording>, Error> {
        Ok(self.sources.iter().map(Recording::file).collect::<Result<_, _>>()?)
    }

    /// Maps the recordings for editing.
    pub(super) fn editable(&self) -> Result<Vec<edit::Source>, Error> {
        Ok(self.sources.iter().map(edit::Source::file).collect::<Result<_, _>>()?)
    }

    /// Passes the items of all recordings to `take`. Returns the first message about unreadable data.
    pub(super) fn each(
        &self,
        wanted: &live::Options,
        mut take: impl FnMut(&Item) -> Result<(), Error>,
    ) -> Result<Option<String>, Error> {
        let mut damage = None;
        let mut feed = Feed::new(live::Options { memory: MOST_KEPT, ..wanted.clone() });
        let mut pass_on = |feed: &mut Feed| {
            while let Some(item) = feed.next() {
                if let Item::Warning(warning) = &item
                    && warning.damage
                    && damage.is_none()
                {
                    damage = Some(left_out(warning));
                }
                take(&item)?;
            }
            Ok::<(), Error>(())
        };
        let mut buffer = vec![0; READ];
        for source in self.sources {
            let mut at = 0;
            loop {
                let bytes = read_at(source, &mut buffer, at)?;
                if bytes == 0 {
                    break;
                }
                feed.push(buffer.get(..bytes).unwrap_or_default());
                pass_on(&mut feed)?;
                at += bytes as u64;
            }
        }
        feed.close();
        pass_on(&mut feed)?;
        Ok(damage)
    }
}

/// Formats a message about unreadable data.
pub(super) fn left_out(warning: &impl std::fmt::Display) -> String {
    format!("A part could not be read and is omitted: {warning}.")
}

fn unreadable(error: io::Error) -> Error {
    Error::Read(format!("The recording cannot be read: {error}."))
}

fn read_at(source: &Source, buffer: &mut [u8], at: u64) -> Result<usize, Error> {
    loop {
        match source.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(unreadable),
        }
    }
}

/// A time range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    from_ms: Option<i64>,
    to_ms: Option<i64>,
}

impl Range {
    pub(super) fn new(from_ms: Option<i64>, to_ms: Option<i64>) -> Result<Self, Error> {
        match (from_ms, to_ms) {
            (Some(from), Some(to)) if from >= to => {
                Err(Error::Refused("The interval is empty: `from` must be before `to`.".into()))
            }
            _ => Ok(Self { from_ms, to_ms }),
        }
    }

    pub(super) fn is_all(self) -> bool {
        self.from_ms.is_none() && self.to_ms.is_none()
    }

    /// Start in ns since 1970, inclusive.
    pub(super) fn from(self) -> Option<i64> {
        self.from_ms.map(|ms| ms.saturating_mul(MILLI))
    }

    /// End in ns since 1970, inclusive.
    pub(super) fn last(self) -> Option<i64> {
        self.to_ms.map(|ms| ms.saturating_mul(MILLI).saturating_sub(1))
    }

    /// Returns start and end if the range has both.
    pub(super) fn interval(self) -> Option<(i64, i64)> {
        self.from().zip(self.last())
    }

    /// Start and end; missing ones are the limits of `i64`.
    pub(super) fn both(self) -> [i64; 2] {
        [self.from().unwrap_or(i64::MIN), self.last().unwrap_or(i64::MAX)]
    }
}
