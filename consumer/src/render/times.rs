//! When the samples of a tree were taken: columns for the page of a flame graph, thread by thread.
//!
//! Stacks are numbered by how often they were seen, so that most numbers are a byte, and named by their box once. Of each thread travel
//! the times between samples, in ticks, then the numbers of their stacks; of a measure by which not all samples weigh the same, their
//! weights. Events that last follow.

mod gathering;
mod lasting;

pub use gathering::{Gathering, Lane, Moments, Weights};

use std::cmp::Reverse;
use std::collections::HashMap;

use jfr_format::varint;
use serde_json::{Value, json};

use self::gathering::SLOT;
use crate::convert::Track;
use crate::model::FrameKind;
use crate::tree::{Label, Tree};

/// Most samples whose times a page holds: on the way to it they take 8 bytes each, those of other weights 8 or 16 more; in the browser 8.
pub const MOST: u64 = 16 << 20;
/// Above so many samples a tick is [`COARSE`], below [`FINE`].
const MANY: usize = 500_000;
const FINE: i64 = 100_000;
const COARSE: i64 = 1_000_000;
/// Twenty years: clocks of recordings made to do harm tell more, and a map of them would have no end.
const LONGEST: u64 = 20 * 365 * 86_400 * 1_000_000_000;

/// Which of the samples' two weights a measure of the page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// What the sample weighs by the measure that was asked for.
    Weight,
    /// What it weighs by the other one.
    Otherwise,
}

/// Times of all samples of a tree.
#[derive(Clone, Debug)]
pub struct Times {
    pub(super) told: Value,
    pub(super) columns: Vec<u8>,
}

impl Times {
    /// Of `moments`, if they are the samples of the trees; `frames` are the boxes that stand below the stacks of a thread. `None` if they are not
    /// those of the first tree, to the last sample, or lie decades apart: then it would be untrue to tell when they were. By a measure of
    /// which they are not, ranges of time cannot be looked at.
    pub fn new(
        mut moments: Moments,
        measures: &[(&Tree, By)],
        frames: impl Fn(&Track) -> Vec<String>,
    ) -> Option<Self> {
        let &(tree, _) = measures.first()?;
        place(&mut moments, tree, frames)?;
        let Moments { tracks, lanes, tick, lasted } = moments;
        let known: Vec<bool> = measures.iter().map(|(tree, by)| adds_up(&lanes, tree, *by)).collect();
        if known.first() != Some(&true) {
            return None;
        }
        let last = lanes.iter().filter_map(|lane| lane.samples.last()).max().map_or(0, |last| last / SLOT);
        if last > LONGEST / tick.unsigned_abs() {
            return None;
        }
        let (stacks, numbers) = by_frequency(&lanes, tree.nodes.len());
        let mut columns = Vec::with_capacity(lanes.iter().map(|lane| 3 * lane.samples.len()).sum());
        stacks.iter().for_each(|&at| varint::put(&mut columns, u64::from(at)));
        for lane in &lanes {
            let mut before = 0;
            for sample in &lane.samples {
                varint::put(&mut columns, sample / SLOT - before);
                before = sample / SLOT;
            }
        }
        for sample in lanes.iter().flat_map(|lane| &lane.samples) {
            varint::put(&mut columns, u64::from(numbers[(sample % SLOT) as usize]));
        }
        let weights: Vec<Value> = measures
            .iter()
            .zip(known)
            .map(|(&(_, by), known)| {
                if !known {
                    return json!(false);
                }
                let weights = || lanes.iter().map(|lane| lane.weights(by));
                let first = weights().next();
                if let Some(Weights::Same(each)) = first.filter(|&first| weights().all(|of| of == first)) {
                    return json!(each);
                }
                for (lane, weights) in lanes.iter().zip(weights()) {
                    (0..lane.samples.len()).for_each(|at| varint::put(&mut columns, weights.at(at)));
                }
                Value::Null
            })
            .collect();
        let lane = |(track, lane): (&Track, &Lane)| json!({"name": track.label, "process": track.process, "samples": lane.samples.len()});
        let mut told = json!({
            "tick": tick,
            "last": last,
            "stacks": stacks.len(),
            "weights": weights,
            "lanes": tracks.tracks.iter().zip(&lanes).map(lane).collect::<Vec<_>>(),
        });
        if let Some(events) = lasted.tell(&mut columns) {
            told["events"] = events;
        }
        Some(Self { told, columns })
    }
}

impl Lane {
    fn weights(&self, by: By) -> &Weights {
        &self.weights[match by {
            By::Weight => 0,
            By::Otherwise => 1,
        }]
    }
}

/// Puts the position of its box in the place of each sample's stack; `None` if one has none.
fn place(moments: &mut Moments, tree: &Tree, frames: impl Fn(&Track) -> Vec<String>) -> Option<()> {
    let labels: HashMap<&Label, usize> = tree.labels.iter().zip(0..).collect();
    let tracks = &moments.tracks;
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
    // Where stacks end on `on`; what was found on another is forgotten.
    let mut ends = vec![NONE; tracks.stacks.len()];
    let (mut found, mut on): (Vec<u32>, u32) = (Vec::new(), NONE);
    for (track, lane) in tracks.tracks.iter().zip(&mut moments.lanes) {
        let below = frames(track).into_iter().try_fold(NONE, |from, text| {
            let label = Label { text: text.into(), module: None, kind: FrameKind::Marker };
            up(from, labels.get(&label).copied())
        })?;
        if below != on {
            found.drain(..).for_each(|stack| ends[stack as usize] = NONE);
            on = below;
        }
        for sample in &mut lane.samples {
            let stack = (*sample % SLOT) as u32;
            let end = ends.get_mut(stack as usize)?;
            if *end == NONE {
                let mut path = tracks.path(stack).iter();
                *end = path.try_fold(below, |from, label| up(from, known[label.index()]))?;
                if *end == NONE {
                    return None;
                }
                found.push(stack);
            }
            *sample = *sample / SLOT * SLOT + u64::from(*end);
        }
    }
    Some(())
}

/// Whether the samples weigh what the boxes do.
fn adds_up(lanes: &[Lane], tree: &Tree, by: By) -> bool {
    let mut own = vec![0u64; tree.nodes.len()];
    for lane in lanes {
        let weights = lane.weights(by);
        for (at, sample) in lane.samples.iter().enumerate() {
            let sum = &mut own[(sample % SLOT) as usize];
            *sum = sum.saturating_add(weights.at(at));
        }
    }
    tree.nodes.iter().zip(own).all(|(node, own)| node.own == own)
}

/// Boxes that samples end at, most frequent first, and by box its number in that order.
fn by_frequency(lanes: &[Lane], boxes: usize) -> (Vec<u32>, Vec<u32>) {
    let mut counts = vec![0u64; boxes];
    lanes.iter().flat_map(|lane| &lane.samples).for_each(|sample| counts[(sample % SLOT) as usize] += 1);
    let mut stacks: Vec<u32> = (0..boxes as u32).filter(|&at| counts[at as usize] > 0).collect();
    stacks.sort_by_key(|&at| Reverse(counts[at as usize]));
    let mut numbers = vec![0; boxes];
    stacks.iter().zip(0..).for_each(|(&at, number)| numbers[at as usize] = number);
    (stacks, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::Tracks;
    use crate::folded;

    /// Of stacks 0 and 1 of a tree: ticks and stacks; the other measure says ten.
    fn moments(tree: &Tree, samples: &[(u64, u64)]) -> Moments {
        let samples = samples.iter().map(|&(tick, stack)| tick * SLOT + stack).collect();
        let lane = Lane { samples, weights: [Weights::Same(1), Weights::Same(10)] };
        Moments {
            tracks: Tracks::of_tree(tree, "t"),
            lanes: vec![lane],
            tick: FINE,
            lasted: Default::default(),
        }
    }
    const SAMPLES: [(u64, u64); 3] = [(10, 0), (110, 1), (210, 1)];

    #[test]
    fn columns_are_stacks_by_frequency_then_times_then_numbers() {
        let tree = folded::read("a;b 1\na;c 2\n".as_bytes()).unwrap();
        let times = Times::new(moments(&tree, &SAMPLES), &[(&tree, By::Weight)], |_| Vec::new()).unwrap();
        assert_eq!((&times.told["tick"], &times.told["last"]), (&json!(FINE), &json!(210)));
        assert_eq!((&times.told["weights"], &times.told["stacks"]), (&json!([1]), &json!(2)));
        // c, b; 1 ms after the beginning, then each 10 ms later; b, c, c.
        assert_eq!(times.columns, [2, 1, 10, 100, 100, 1, 0, 0]);
    }

    #[test]
    fn weights_that_differ_are_told_one_by_one() {
        let tree = folded::read("a;b 1\na;c 7\n".as_bytes()).unwrap();
        let mut all = moments(&tree, &SAMPLES);
        all.lanes[0].weights[0] = Weights::Each(vec![1, 3, 4]);
        let times = Times::new(all, &[(&tree, By::Weight)], |_| Vec::new()).unwrap();
        assert_eq!(times.told["weights"], json!([null]));
        assert_eq!(times.columns[8..], [1, 3, 4]);
    }

    #[test]
    fn what_is_not_of_the_tree_has_no_times() {
        let tree = folded::read("a;b 1\na;c 2\n".as_bytes()).unwrap();
        let other = folded::read("a;b 2\na;c 1\n".as_bytes()).unwrap();
        let of = |measures: &[(&Tree, By)], frames: &[&str]| {
            let frames = |_: &Track| frames.iter().map(|&text| text.to_owned()).collect();
            Times::new(moments(&tree, &SAMPLES), measures, frames)
        };
        assert!(of(&[(&tree, By::Weight)], &[]).is_some());
        assert!(of(&[(&other, By::Weight)], &[]).is_none(), "other weights");
        assert!(of(&[(&tree, By::Otherwise), (&tree, By::Weight)], &[]).is_none(), "ten times as much");
        let both = of(&[(&tree, By::Weight), (&tree, By::Otherwise)], &[]);
        assert_eq!(both.unwrap().told["weights"], json!([1, false]));
        assert!(of(&[(&tree, By::Weight)], &["[t]"]).is_none(), "no such thread");
        let mut far = moments(&tree, &[(10, 0), (110, 1), (u64::from(u32::MAX), 1)]);
        far.tick = 1_000_000_000;
        assert!(Times::new(far, &[(&tree, By::Weight)], |_| Vec::new()).is_none(), "a century");
    }
}
