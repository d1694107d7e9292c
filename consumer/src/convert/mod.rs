//! Profiles for other tools, and theirs for us: selected stacks, whatever they were read from. What needs all that a recording says
//! of a sample (spans, labels, attributes) is `flightline-export`.
//!
//! ```text
//! Tree (summed up) ───► d3-flame-graph, folded; pprof (flightline-export)
//! Tracks (one by one) ─► speedscope, Firefox Profiler, Chrome's trace events
//! perf script, speedscope ─► folded text ─► Tree
//! ```

pub mod chrome;
pub mod d3;
pub mod firefox;
mod perf;
pub mod speedscope;
mod tracks;

pub use tracks::{Collecting, Moment, Track, Tracks};

use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::error::Error;

/// Bytes looked at to tell what a text is.
const HEAD: usize = 64 << 10;

/// Folded text, and what its values count if that is known.
pub struct Text {
    /// Folded text.
    pub text: Box<dyn BufRead>,
    /// As of trees.
    pub unit: Option<String>,
}

impl Text {
    /// Folded text that is at hand.
    pub fn of(text: Vec<u8>, unit: Option<String>) -> Self {
        Self { text: Box::new(Cursor::new(text)), unit }
    }
}

/// Folded text of what other tools write as text: `perf script`, speedscope's file. Anything else is passed on.
///
/// # Errors
/// It cannot be read, or is not what it begins as.
pub fn folded(mut text: Box<dyn BufRead>) -> Result<Text, Error> {
    let mut head = Vec::new();
    text.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(Error::Read)?;
    let (is_speedscope, is_perf, unit) = (speedscope::is(&head), perf::is(&head), perf::unit(&head));
    let mut whole = BufReader::new(Cursor::new(head).chain(text));
    if is_speedscope {
        return speedscope::read(whole);
    }
    if is_perf {
        let mut folded = Vec::new();
        perf::read(&mut whole, None, &mut folded)?;
        return Ok(Text::of(folded, unit));
    }
    Ok(Text { text: Box::new(whole), unit: None })
}

/// The folded text of some events of `perf script`, and how many samples there are of each.
pub struct Counter {
    /// Weights are periods where the script tells them.
    pub text: Text,
    /// Number of samples.
    pub samples: u64,
}

/// The folded text of each of `events` of what `perf script` has written; `None`, and the text again, if it is something else. All of it
/// is held at once.
///
/// # Errors
/// It cannot be read, or has no sample of one of the events.
pub fn counters(mut text: Box<dyn BufRead>, events: &[&str]) -> Result<Result<Vec<Counter>, Text>, Error> {
    let mut head = Vec::new();
    text.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(Error::Read)?;
    if !perf::is(&head) {
        return folded(Box::new(BufReader::new(Cursor::new(head).chain(text)))).map(Err);
    }
    let mut script = head;
    text.read_to_end(&mut script).map_err(Error::Read)?;
    let present = perf::events(&script);
    let counter = |&event: &&str| {
        let Some((_, samples)) = present.iter().find(|(name, _)| name == event) else {
            let present = present.iter().map(|(name, _)| name.clone()).collect();
            return Err(Error::NoSuchEvent { asked: event.to_owned(), present });
        };
        let mut folded = Vec::new();
        perf::read(&mut &script[..], Some(event), &mut folded)?;
        Ok(Counter { text: Text::of(folded, Some(event.to_owned())), samples: *samples })
    };
    events.iter().map(counter).collect::<Result<_, _>>().map(Ok)
}

/// An error of serde's, which may be one of the input or output below.
fn of_json(error: serde_json::Error, or: impl Fn(io::Error) -> Error) -> Error {
    or(error.into())
}
