//! Flame charts as SVG: stacks in order of time, one part per thread. Boxes are merged only if they are
//! adjacent.

use std::io::Write;

use super::svg::{self, Row, SvgOptions, Text};
use crate::convert::Tracks;
use crate::error::Error;
use crate::model::FrameKind;
use crate::tree::Label;

/// Draws the samples of each thread in order of time. The width of a box is the weight of its samples;
/// threads follow one another.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn svg(tracks: &Tracks, options: &SvgOptions, out: &mut impl Write) -> Result<(), Error> {
    let label = |label: &Label| svg::name(&label.text);
    let frames = tracks.labels.iter();
    let frames = frames.map(|of| Text { text: label(of), name: &of.text, kind: options.java.kind(of) });
    let lanes = tracks.tracks.iter();
    let lanes = lanes.map(|of| Text { text: svg::name(&of.label), name: &of.label, kind: FrameKind::Marker });
    let texts: Vec<Text> = frames.chain(lanes).collect();
    let java = tracks.labels.iter().any(|label| label.kind.is_java());
    let mut rows: Vec<Row> = Vec::new();
    for (track, lane) in tracks.tracks.iter().zip(tracks.labels.len()..) {
        for sample in track.samples.iter().filter(|sample| sample.weight > 0) {
            let frames = tracks.path(sample.stack).iter().map(|label| label.index());
            let path: Vec<usize> = std::iter::once(lane).chain(frames).collect();
            match rows.last_mut() {
                Some(last) if last.path == path => last.weight = last.weight.saturating_add(sample.weight),
                _ => rows.push(Row { path, weight: sample.weight }),
            }
        }
    }
    svg::rows(&rows, &texts, &tracks.unit, java, options, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::Moment;
    use crate::folded;

    #[test]
    fn recurring_frame_is_drawn_as_new_box() {
        let mut tracks = Tracks::from_tree(&folded::read("a;b 1\na;c 1\n".as_bytes()).unwrap(), "t");
        let sample = |stack: u32, time: i64| Moment { time, stack, weight: 2, otherwise: 0 };
        tracks.tracks[0].samples = vec![sample(0, 0), sample(0, 1), sample(1, 2), sample(0, 3)];
        let mut out = Vec::new();
        svg(&tracks, &SvgOptions::default(), &mut out).unwrap();
        let picture = String::from_utf8(out).unwrap();
        let find = |title: &str| -> Vec<(f64, f64)> {
            let title = format!("<title>{title}</title>");
            let parts = picture.split(&title).skip(1);
            let value = |part: &str, name: &str| -> f64 {
                let text = part.split(&format!(" {name}=\"")).nth(1).unwrap();
                text.split('%').next().unwrap().parse().unwrap()
            };
            parts.map(|part| (value(part, "x"), value(part, "width"))).collect()
        };
        assert_eq!(find("b (4 samples, 50.00%)"), [(0.0, 50.0)]);
        assert_eq!(find("c (2 samples, 25.00%)"), [(50.0, 25.0)]);
        assert_eq!(find("b (2 samples, 25.00%)"), [(75.0, 25.0)]);
        assert_eq!(find("a (8 samples, 100.00%)"), [(0.0, 100.0)]);
    }
}
