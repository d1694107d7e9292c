//! `--from`, `--to` and `--last`: time ranges.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use flightline_consumer::time_range::{self, Bound};
use jfr_format::edit;
use jfr_format::header::ChunkHeader;

use crate::diagnostics::shown;
use crate::usage_error::bail_usage;

/// A time range.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct RangeArgs {
    /// Start: seconds (also 90s, 2m, 1h) from the start of the recording, negative from its end, 25% of its
    /// length, a clock time (21:44:22, UTC), or a date (2026-11-20T21:44:22Z)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<Bound>,
    /// End, in the same formats
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<Bound>,
    /// Select this span before the end: 30s, 10m, 2h
    #[arg(long, value_name = "SPAN", value_parser = last, conflicts_with_all = ["from", "to"])]
    pub last: Option<Bound>,
}

impl RangeArgs {
    /// Returns the start.
    pub fn earliest(&self) -> Option<Bound> {
        self.from.or(self.last)
    }

    /// Returns true if no range is given.
    pub fn is_everything(&self) -> bool {
        self.earliest().is_none() && self.to.is_none()
    }

    /// Returns both ends in ns since 1970, given the recording's own range.
    pub fn moments(&self, start: i64, end: i64) -> (Option<i64>, Option<i64>) {
        time_range::moments(self.earliest(), self.to, start, end)
    }

    /// Returns the ends that are given.
    pub fn bounds(&self) -> impl Iterator<Item = Bound> {
        [self.earliest(), self.to].into_iter().flatten()
    }
}

/// Parses the value of `--last`: a span before the end.
///
/// # Errors
/// Returns an error if the text is not a span.
pub fn last(text: &str) -> Result<Bound, String> {
    match text.parse::<Bound>() {
        Ok(Bound::FromStart(nanos)) if nanos > 0 => Ok(Bound::FromEnd(nanos)),
        _ => Err("give a duration such as 30s, 10m or 2h".into()),
    }
}

/// # Errors
/// Returns an error if the range is empty, whatever the recording.
pub fn check(range: &RangeArgs) -> Result<()> {
    let empty = match (range.from, range.to) {
        (Some(Bound::FromStart(from)), Some(Bound::FromStart(to)))
        | (Some(Bound::Absolute(from)), Some(Bound::Absolute(to))) => from > to,
        (Some(Bound::Part(from)), Some(Bound::Part(to))) => from > to,
        (Some(Bound::FromEnd(from)), Some(Bound::FromEnd(to))) => from < to,
        _ => false,
    };
    if empty {
        bail_usage!("--from must be before --to");
    }
    Ok(())
}

/// Time range of recordings in files.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Start of the first recording, in ns since 1970.
    pub first: i64,
    /// The earliest start, in ns since 1970.
    pub start: i64,
    /// The latest end, in ns since 1970.
    pub end: i64,
}

impl Times {
    /// Reads the range from the headers; `None` if there is no chunk.
    pub fn read(inputs: &[PathBuf]) -> Result<Option<Self>> {
        let mut times: Option<Self> = None;
        for path in inputs {
            if !path.is_file() {
                bail_usage!(
                    "{}: a time relative to the recording needs a file; for a stream, give dates such as 2026-11-20T21:44:22Z",
                    shown(path)
                );
            }
            let source = edit::Source::open(path).with_context(|| format!("cannot open {}", shown(path)))?;
            let Some((start, end)) = edit::time_range(&source) else { continue };
            let first = ChunkHeader::decode(source.bytes()).map_or(start, |header| header.start_nanos);
            let before = times.unwrap_or(Self { first, start, end });
            times = Some(Self { start: before.start.min(start), end: before.end.max(end), ..before });
        }
        Ok(times)
    }
}

/// Returns the selected range in ns since 1970, both ends inclusive.
///
/// # Errors
/// Returns an error if the range is empty, or relative and an input is not a file.
pub fn nanos(paths: &[PathBuf], range: &RangeArgs) -> Result<[i64; 2]> {
    check(range)?;
    if range.is_everything() {
        return Ok([i64::MIN, i64::MAX]);
    }
    let Some(times) = Times::read(paths)? else { return Ok([i64::MIN, i64::MAX]) };
    let (from, to) = range.moments(times.first, times.end);
    Ok([from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX)])
}
