//! SVG by inferno.

use std::io::Write;

use inferno::flamegraph::color::{BasicPalette, MultiPalette, Palette};
use inferno::flamegraph::{self, Direction};

use super::PictureOptions;
use crate::error::Error;
use crate::folded;
use crate::model::FrameKind;
use crate::tree::Tree;

/// Draws `tree` as SVG with zoom and search.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn write(tree: &Tree, options: &PictureOptions, out: &mut impl Write) -> Result<(), Error> {
    if tree.total == 0 || tree.nodes.is_empty() {
        return Err(Error::NoSamples);
    }
    let mut picture = flamegraph::Options::default();
    picture.title = options.title.clone();
    picture.subtitle = options.subtitle.clone();
    picture.count_name = tree.unit.clone();
    picture.deterministic = true;
    // As wide as the window.
    picture.image_width = None;
    picture.direction = if options.inverted { Direction::Inverted } else { Direction::Straight };
    let java = tree.labels.iter().any(|l| l.kind.is_java());
    picture.colors =
        if java { Palette::Multi(MultiPalette::Java) } else { Palette::Basic(BasicPalette::Hot) };
    let mut lines = Vec::new();
    folded::write(&annotated(tree, java), &mut lines)?;
    let text = String::from_utf8_lossy(&lines);
    flamegraph::from_lines(&mut picture, text.lines(), out).map_err(Error::Write)
}

/// Where there are Java frames, the palette goes by the suffixes of the stackcollapse family; inferno does not show
/// them.
fn annotated(tree: &Tree, java: bool) -> Tree {
    let mut tree = tree.clone();
    for label in tree.labels.iter_mut().filter(|_| java) {
        let suffix = match label.kind {
            FrameKind::Kernel => "_[k]",
            FrameKind::Inlined | FrameKind::NativeInlined => "_[i]",
            FrameKind::Interpreted | FrameKind::Compiled | FrameKind::Jit => "_[j]",
            FrameKind::Native | FrameKind::Marker | FrameKind::Unknown => continue,
        };
        if !label.text.ends_with(suffix) {
            label.text = format!("{}{suffix}", label.text).into();
        }
    }
    tree
}
