//! Converts profiles to and from the formats of other tools, for selected stacks from any input. Formats
//! that need a sample's spans, labels and attributes are in `flightline-export`.
//!
//! ```text
//! Tree (summed up) ───► d3-flame-graph, folded; pprof (flightline-export)
//! Tracks (one by one) ─► speedscope, Firefox Profiler, Chrome's trace events
//! perf script, bpftrace, DTrace, VTune, speedscope ─► folded text ─► Tree
//! ```

mod bpftrace;
pub mod chrome;
pub mod d3;
mod dtrace;
pub mod firefox;
mod perf;
pub mod speedscope;
mod tracks;
mod utf16;
mod vtune;

pub(crate) use bpftrace::is as is_bpftrace;
pub(crate) use dtrace::is as is_dtrace;
pub use perf::Roots;
pub(crate) use perf::is as is_perf_script;
pub(crate) use speedscope::is as is_speedscope;
pub use tracks::{Collecting, Moment, Track, Tracks};
pub(crate) use vtune::is as is_vtune;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::error::Error;
use crate::input_format::{self, Format};

/// Bytes that are read to recognize the format of a text.
const HEAD: usize = 64 << 10;

/// Folded text, and the unit of its values if it is known.
pub struct Text {
    /// Folded text.
    pub text: Box<dyn BufRead>,
    /// Unit, as in [`Tree`](crate::tree::Tree).
    pub unit: Option<String>,
    /// Remarks for the user on how the input was read, one sentence each.
    pub notes: Vec<String>,
    /// The input is folded text itself.
    pub is_folded: bool,
    /// Each stack has two values: before and after.
    pub is_differential: bool,
}

impl Text {
    /// Wraps folded text that is in memory.
    pub fn from_folded(text: Vec<u8>, unit: Option<String>) -> Self {
        Self {
            text: Box::new(Cursor::new(text)),
            unit,
            notes: Vec::new(),
            is_folded: false,
            is_differential: false,
        }
    }
}

/// Selects the samples and root frames of `perf script`.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Names of events; if empty, the event of the first sample.
    pub events: Vec<String>,
    /// Frames to add below the stacks.
    pub roots: Roots,
}

/// Reads the beginning of a text, and decodes UTF-16. Returns the beginning and the whole text.
fn peek(mut text: Box<dyn BufRead>) -> Result<(Vec<u8>, Box<dyn BufRead>), Error> {
    let read = |text: &mut dyn BufRead| -> Result<Vec<u8>, Error> {
        let mut head = Vec::new();
        text.take(HEAD as u64).read_to_end(&mut head).map_err(Error::Read)?;
        Ok(head)
    };
    let mut head = read(&mut *text)?;
    if let Some(order) = utf16::order(&head) {
        text = Box::new(BufReader::new(utf16::Decoder::new(Cursor::new(head).chain(text), order)));
        head = read(&mut *text)?;
    }
    let whole = BufReader::new(Cursor::new(head.clone()).chain(text));
    Ok((head, Box::new(whole)))
}

/// Converts the text formats of other tools to folded text: `perf script`, bpftrace, DTrace, VTune,
/// speedscope's file. Other text is returned unchanged.
///
/// # Errors
/// The input cannot be read, or does not have the format that its beginning indicates.
pub fn to_folded(text: Box<dyn BufRead>, choice: &Choice) -> Result<Text, Error> {
    let (head, whole) = peek(text)?;
    Ok(match input_format::detect_text(&head) {
        Format::Speedscope => speedscope::read(whole)?,
        Format::PerfScript => {
            let script = perf::read(whole, choice.roots)?;
            let chosen = script.choose(&choice.events)?;
            let text = chosen.folded()?;
            Text { notes: chosen.notes, ..Text::from_folded(text, chosen.unit) }
        }
        Format::Bpftrace => {
            let maps = bpftrace::read(whole)?;
            let notes = maps.notes();
            Text { notes, ..Text::from_folded(maps.folded(), None) }
        }
        Format::Vtune => Text::from_folded(vtune::read(whole)?, Some("ns".into())),
        Format::Dtrace => Text::from_folded(dtrace::read(whole)?, None),
        format => {
            let is_differential = format == Format::Differential;
            Text { text: whole, unit: None, notes: Vec::new(), is_folded: true, is_differential }
        }
    })
}

/// The folded text of some events of `perf script`, and how many samples there are of each.
pub struct Counter {
    /// Weights are periods if the script has them.
    pub text: Text,
    /// Number of samples.
    pub samples: u64,
}

/// Returns the folded text of each of `events` from the output of `perf script`. Other text is returned
/// unchanged, as the inner error.
///
/// # Errors
/// The input cannot be read, or has no sample of one of the events.
pub fn counters(text: Box<dyn BufRead>, events: &[&str]) -> Result<Result<Vec<Counter>, Text>, Error> {
    let (head, whole) = peek(text)?;
    if input_format::detect_text(&head) != Format::PerfScript {
        return to_folded(whole, &Choice::default()).map(Err);
    }
    let script = perf::read(whole, Roots::default())?;
    let counter = |&event: &&str| {
        let chosen = script.choose(&[event])?;
        let text = Text::from_folded(chosen.folded()?, Some(event.to_owned()));
        Ok(Counter { text, samples: chosen.samples })
    };
    events.iter().map(counter).collect::<Result<_, _>>().map(Ok)
}

/// Folded text of stacks and their values.
fn folded_text(stacks: &BTreeMap<String, u64>) -> Vec<u8> {
    stacks.iter().map(|(stack, value)| format!("{stack} {value}\n")).collect::<String>().into_bytes()
}

/// Converts an error of serde, which may be an I/O error of the input or output.
fn from_json(error: serde_json::Error, or: impl Fn(io::Error) -> Error) -> Error {
    or(error.into())
}

/// Calls `check` with variants of the text: cut at each position, with each of `bytes` at each position,
/// and with a two-byte character before it.
#[cfg(test)]
fn for_each_change(text: &[u8], bytes: &[u8], mut check: impl FnMut(&[u8])) {
    for at in 0..text.len() {
        check(&text[..at]);
        for &byte in bytes {
            let mut changed = text.to_vec();
            changed[at] = byte;
            check(&changed);
            changed.splice(at..at, "ä".bytes());
            check(&changed);
        }
    }
}
