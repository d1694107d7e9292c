//! `--from` and `--to`: which part of recordings is wanted.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flightline_consumer::time_range::Bound;
use jfr_format::edit;
use jfr_format::header::ChunkHeader;

use crate::select::SampleArgs;
use crate::talk::shown;

/// # Errors
/// Nothing can lie in the range, whatever the recording.
pub fn check(from: Option<Bound>, to: Option<Bound>) -> Result<()> {
    let empty = match (from, to) {
        (Some(Bound::FromStart(from)), Some(Bound::FromStart(to)))
        | (Some(Bound::Absolute(from)), Some(Bound::Absolute(to))) => from > to,
        (Some(Bound::Part(from)), Some(Bound::Part(to))) => from > to,
        (Some(Bound::FromEnd(from)), Some(Bound::FromEnd(to))) => from < to,
        _ => false,
    };
    if empty {
        bail!("--from is after --to: nothing lies between them");
    }
    Ok(())
}

/// A length of time, without a unit in µs, as bcc's off-CPU tools take it.
///
/// # Errors
/// It is none.
pub fn micros(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_micros).or_else(|_| flightline_recorder::settings::text::duration(text))
}

/// The same in ms, as bcc's `fileslower` takes it.
///
/// # Errors
/// It is none.
pub fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).or_else(|_| flightline_recorder::settings::text::duration(text))
}

/// What recordings in files tell of their time.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Start of the first one's first chunk, in ns since 1970.
    pub first: i64,
    /// The earliest start, in ns since 1970.
    pub start: i64,
    /// The latest end, in ns since 1970.
    pub end: i64,
}

impl Times {
    /// Looks them up; `None` if there is no chunk.
    pub fn of(inputs: &[PathBuf]) -> Result<Option<Self>> {
        let mut times: Option<Self> = None;
        for path in inputs {
            if !path.is_file() {
                bail!(
                    "{}: what counts from the start or end of a recording needs a file to look it up in",
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

/// The range of time that is asked for, in ns since 1970, both ends included.
///
/// # Errors
/// It is empty, or has to be looked up in what is no file.
pub fn nanos(paths: &[PathBuf], samples: &SampleArgs) -> Result<[i64; 2]> {
    let (from, to) = (samples.earliest(), samples.to);
    check(from, to)?;
    if from.is_none() && to.is_none() {
        return Ok([i64::MIN, i64::MAX]);
    }
    let Some(times) = Times::of(paths)? else { return Ok([i64::MIN, i64::MAX]) };
    let at = |bound: Option<Bound>, or: i64| bound.map_or(or, |bound| bound.at(times.first, times.end));
    Ok([at(from, i64::MIN), at(to, i64::MAX)])
}
