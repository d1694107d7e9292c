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
        perf::read(&mut whole, &mut folded)?;
        return Ok(Text::of(folded, unit));
    }
    Ok(Text { text: Box::new(whole), unit: None })
}

/// An error of serde's, which may be one of the input or output below.
fn of_json(error: serde_json::Error, or: impl Fn(io::Error) -> Error) -> Error {
    or(error.into())
}
