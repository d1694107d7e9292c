//! What is different between two profiles, by inferno.

use std::io::{BufRead, Write};

use inferno::{differential, flamegraph};

use super::PictureOptions;
use crate::error::Error;

/// Writes `frame;frame before after`, of two profiles in folded text.
///
/// # Errors
/// `out` cannot be written.
pub fn folded(before: impl BufRead, after: impl BufRead, out: &mut impl Write) -> Result<(), Error> {
    differential::from_readers(differential::Options::default(), before, after, out).map_err(Error::Write)
}

/// Draws the second of two profiles in folded text, red where there is more than in the first, blue where there is less.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn svg(
    before: impl BufRead,
    after: impl BufRead,
    options: &PictureOptions,
    out: &mut impl Write,
) -> Result<(), Error> {
    let mut both = Vec::new();
    folded(before, after, &mut both)?;
    if both.is_empty() {
        return Err(Error::NoSamples);
    }
    let mut picture = flamegraph::Options::default();
    picture.title = options.title.clone();
    picture.subtitle = options.subtitle.clone();
    picture.deterministic = true;
    picture.image_width = None;
    let text = String::from_utf8_lossy(&both);
    flamegraph::from_lines(&mut picture, text.lines(), out).map_err(Error::Write)
}
