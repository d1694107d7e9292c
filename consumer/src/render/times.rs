//! When the samples of a tree were taken: columns for the page of a flame graph, thread by thread.
//!
//! Stacks are numbered by how often they were seen, so that most numbers are a byte, and named by their box once. Of each thread travel
//! the times between samples, in ticks, then the numbers of their stacks; of a measure by which not all samples weigh the same, their
//! weights.

use std::cmp::Reverse;
use std::collections::HashMap;

use jfr_format::varint;
use serde_json::{Value, json};

use crate::convert::{Moment, Track, Tracks};
use crate::model::FrameKind;
use crate::tree::{Label, Tree};

/// Most samples whose times a page holds: what is read on the way to it takes 32 bytes each.
pub const MOST: u64 = 4 << 20;
/// Above so many samples a tick is [`COARSE`], below [`FINE`].
const MANY: usize = 500_000;
const FINE: i64 = 100_000;
const COARSE: i64 = 1_000_000;
/// Twenty years: clocks of recordings made to do harm tell more, and a map of them would have no end.
const LONGEST: i64 = 20 * 365 * 86_400 * 1_000_000_000;

/// Which of the samples' two weights a measure of the page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// [`Moment::weight`].
    Weight,
    /// [`Moment::otherwise`].
    Otherwise,
}

impl By {
    fn of(self, moment: &Moment) -> u64 {
        match self {
            Self::Weight => moment.weight,
            Self::Otherwise => moment.otherwise,
        }
    }
}

/// Times of all samples of a tree.
#[derive(Clone, Debug)]
pub struct Times {
    pub(super) told: Value,
    pub(super) columns: Vec<u8>,
}

impl Times {
    /// The samples in `tracks`, which are those of the trees, with times from `origin` on, in ns since 1970; `frames` are the boxes that
    /// stand below the stacks of a thread. `None` if they are not those of the first tree, to the last sample, or lie decades apart: then it would be untrue to
    /// tell when they were. By a measure of which they are not, ranges of time cannot be looked at.
    pub fn new(
        tracks: &Tracks,
        measures: &[(&Tree, By)],
        origin: i64,
        frames: impl Fn(&Track) -> Vec<String>,
    ) -> Option<Self> {
        let &(tree, _) = measures.first()?;
        let placed = placed(tracks, tree, frames)?;
        let known: Vec<bool> =
            measures.iter().map(|(tree, by)| adds_up(tracks, &placed, tree, *by)).collect();
        if known.first() != Some(&true) {
            return None;
        }
        let (stacks, numbers) = by_frequency(&placed);
        let mut columns = Vec::new();
        stacks.iter().for_each(|&at| varint::put(&mut columns, u64::from(at)));
        let samples: usize = tracks.tracks.iter().map(|track| track.samples.len()).sum();
        let tick = if samples > MANY { COARSE } else { FINE };
        // A clock that was set back may have put samples before the beginning.
        let begin = tracks.start.saturating_sub(origin).max(0);
        let ticks = |moment: &Moment| begin.saturating_add(moment.time) / tick;
        let mut last = 0;
        for track in &tracks.tracks {
            let mut before = 0;
            for moment in &track.samples {
                let now = ticks(moment);
                varint::put(&mut columns, now.saturating_sub(before).unsigned_abs());
                before = now;
            }
            last = last.max(before);
        }
        if last > LONGEST / tick {
            return None;
        }
        for track in &placed {
            track.iter().for_each(|at| varint::put(&mut columns, numbers[at]));
        }
        let moments = || tracks.tracks.iter().flat_map(|track| &track.samples);
        let weights: Vec<Value> = measures
            .iter()
            .zip(known)
            .map(|(&(_, by), known)| {
                if !known {
                    return json!(false);
                }
                let each = moments().next().map(|moment| by.of(moment));
                match each.filter(|&each| moments().all(|moment| by.of(moment) == each)) {
                    Some(each) => json!(each),
                    None => {
                        moments().for_each(|moment| varint::put(&mut columns, by.of(moment)));
                        Value::Null
                    }
                }
            })
            .collect();
        let lane = |track: &Track| json!({"name": track.label, "process": track.process, "samples": track.samples.len()});
        let told = json!({
            "tick": tick,
            "last": last,
            "stacks": stacks.len(),
            "weights": weights,
            "lanes": tracks.tracks.iter().map(lane).collect::<Vec<_>>(),
        });
        Some(Self { told, columns })
    }
}

/// By thread and sample the position of its box.
fn placed(tracks: &Tracks, tree: &Tree, frames: impl Fn(&Track) -> Vec<String>) -> Option<Vec<Vec<u32>>> {
    let labels: HashMap<&Label, usize> = tree.labels.iter().zip(0..).collect();
    let known: Vec<Option<usize>> = tracks.labels.iter().map(|label| labels.get(label).copied()).collect();
    // Above each box those by label; roots stand on `NONE`.
    const NONE: u32 = u32::MAX;
    let mut above: HashMap<(u32, usize), u32> = HashMap::with_capacity(tree.nodes.len());
    let mut path: Vec<u32> = Vec::new();
    for (node, at) in tree.nodes.iter().zip(0..) {
        path.truncate(node.depth as usize);
        above.insert((path.last().copied().unwrap_or(NONE), node.label.index()), at);
        path.push(at);
    }
    let up = |from: u32, label: Option<usize>| above.get(&(from, label?)).copied();
    let mut ends: HashMap<(u32, u32), u32> = HashMap::new();
    tracks
        .tracks
        .iter()
        .map(|track| {
            let below = frames(track).into_iter().try_fold(NONE, |from, text| {
                let label = Label { text: text.into(), module: None, kind: FrameKind::Marker };
                up(from, labels.get(&label).copied())
            })?;
            let end = |moment: &Moment| {
                if let Some(&end) = ends.get(&(below, moment.stack)) {
                    return Some(end);
                }
                let mut path = tracks.path(moment.stack).iter();
                let end = path.try_fold(below, |from, label| up(from, known[label.index()]));
                let end = end.filter(|&end| end != NONE)?;
                ends.insert((below, moment.stack), end);
                Some(end)
            };
            track.samples.iter().map(end).collect()
        })
        .collect()
}

/// Whether the samples weigh what the boxes do.
fn adds_up(tracks: &Tracks, placed: &[Vec<u32>], tree: &Tree, by: By) -> bool {
    let mut own = vec![0u64; tree.nodes.len()];
    for (track, ends) in tracks.tracks.iter().zip(placed) {
        for (moment, &end) in track.samples.iter().zip(ends) {
            let sum = &mut own[end as usize];
            *sum = sum.saturating_add(by.of(moment));
        }
    }
    tree.nodes.iter().zip(own).all(|(node, own)| node.own == own)
}

/// Boxes that samples end at, most frequent first, and their numbers in that order.
fn by_frequency(placed: &[Vec<u32>]) -> (Vec<u32>, HashMap<u32, u64>) {
    let mut counts: HashMap<u32, u64> = HashMap::new();
    placed.iter().flatten().for_each(|&end| *counts.entry(end).or_default() += 1);
    let mut stacks: Vec<(u32, u64)> = counts.into_iter().collect();
    stacks.sort_unstable_by_key(|&(end, count)| (Reverse(count), end));
    let stacks: Vec<u32> = stacks.into_iter().map(|(end, _)| end).collect();
    let numbers = stacks.iter().copied().zip(0..).collect();
    (stacks, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded;

    fn tracks(tree: &Tree) -> Tracks {
        let mut tracks = Tracks::of_tree(tree, "t");
        tracks.start = 2_000_000_000;
        let sample = |stack: u32, ms: i64| Moment { time: ms * 1_000_000, stack, weight: 1, otherwise: 10 };
        tracks.tracks[0].samples = vec![sample(0, 0), sample(1, 10), sample(1, 20)];
        tracks
    }

    #[test]
    fn columns_are_stacks_by_frequency_then_times_then_numbers() {
        let tree = folded::read("a;b 1\na;c 2\n".as_bytes()).unwrap();
        let times =
            Times::new(&tracks(&tree), &[(&tree, By::Weight)], 1_999_000_000, |_| Vec::new()).unwrap();
        assert_eq!((&times.told["tick"], &times.told["last"]), (&json!(FINE), &json!(210)));
        assert_eq!((&times.told["weights"], &times.told["stacks"]), (&json!([1]), &json!(2)));
        // c, b; 1 ms after the beginning, then each 10 ms later; b, c, c.
        assert_eq!(times.columns, [2, 1, 10, 100, 100, 1, 0, 0]);
    }

    #[test]
    fn what_is_not_of_the_tree_has_no_times() {
        let tree = folded::read("a;b 1\na;c 2\n".as_bytes()).unwrap();
        let other = folded::read("a;b 2\na;c 1\n".as_bytes()).unwrap();
        let of = |measures: &[(&Tree, By)], frames: &[&str]| {
            let frames = |_: &Track| frames.iter().map(|&text| text.to_owned()).collect();
            Times::new(&tracks(&tree), measures, 0, frames).is_some()
        };
        assert!(of(&[(&tree, By::Weight)], &[]));
        assert!(!of(&[(&other, By::Weight)], &[]), "other weights");
        assert!(!of(&[(&tree, By::Otherwise), (&tree, By::Weight)], &[]), "ten times as much");
        let both =
            Times::new(&tracks(&tree), &[(&tree, By::Weight), (&tree, By::Otherwise)], 0, |_| Vec::new());
        assert_eq!(both.unwrap().told["weights"], json!([1, false]));
        assert!(!of(&[(&tree, By::Weight)], &["[t]"]), "no such thread");
        let mut far = tracks(&tree);
        far.tracks[0].samples[2].time = i64::MAX;
        assert!(Times::new(&far, &[(&tree, By::Weight)], 0, |_| Vec::new()).is_none(), "centuries");
    }
}
