//! Times of a tree's samples, encoded as columns by thread for the page of a flame graph.
//!
//! Stacks are numbered by frequency, so that most numbers need one byte, and are identified by their box.
//! The columns have for each thread the times between samples in ticks, then the stack numbers, then the
//! weights by each measure in which weights differ. Duration events follow.

mod gathering;
mod lasting;

pub(crate) use gathering::latency;
pub use gathering::{Gathering, Lane, Moments, PageEvent};

use std::cmp::Reverse;
use std::collections::HashMap;

use jfr_format::varint;
use serde_json::{Value, json};

use self::gathering::SLOT;
use crate::convert::Track;
use crate::load::Weights;
use crate::model::FrameKind;
use crate::tree::{Label, Tree};

/// Maximum number of samples with times on a page. Collecting them takes 8 bytes each, and 8 or 16 more
/// with different weights; the browser needs 8 bytes each.
pub const MOST: u64 = 16 << 20;
/// With more samples a tick is [`COARSE`], otherwise [`FINE`].
const MANY: usize = 500_000;
const FINE: i64 = 100_000;
const COARSE: i64 = 1_000_000;
/// Twenty years. Clocks in hostile recordings can span more, which would make the timeline endless.
const LONGEST: u64 = 20 * 365 * 86_400 * 1_000_000_000;

/// The weight of samples that a measure of the page uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WeightMeasure {
    /// The weight by the measure that the samples were collected by.
    Weight,
    /// The weight by the other measure.
    Otherwise,
}

/// Times of all samples of a page.
#[derive(Clone, Debug)]
pub struct Times {
    pub(super) told: Value,
    pub(super) columns: Vec<u8>,
    known: Vec<bool>,
}

impl Times {
    /// Encodes `moments` for a page. `events` has, for each event of the page, its trees: one for each measure, all with the same boxes.
    /// `frames` returns the boxes below the stacks of a thread.
    ///
    /// An event has times only if its samples add up to its first tree; a measure to which they do not add up has none. Returns `None` if no
    /// event has times, or if samples lie decades apart.
    pub fn new(
        mut moments: Moments,
        events: &[&[&Tree]],
        frames: impl Fn(&Track) -> Vec<String>,
    ) -> Option<Self> {
        let placed: Vec<bool> =
            (0..events.len()).map(|at| place(&mut moments, at, events[at], &frames).is_some()).collect();
        let Moments { tracks, events: lanes, cpu, tick, lasted } = moments;
        let last = |lanes: &Vec<Lane>| lanes.iter().filter_map(|lane| lane.samples.last()).max().copied();
        let drawn = || lanes.iter().zip(&placed).filter(|&(_, &placed)| placed).map(|(lanes, _)| lanes);
        let last = drawn().filter_map(last).max().map_or(0, |last| last / SLOT);
        if last > LONGEST / tick.unsigned_abs() {
            return None;
        }
        let mut columns = Vec::with_capacity(drawn().flatten().map(|lane| 3 * lane.samples.len()).sum());
        let told: Vec<Value> = (0..events.len())
            .map(|at| match placed[at] {
                true => encode(&lanes[at], events[at], &mut columns),
                false => Value::Null,
            })
            .collect();
        let known: Vec<bool> = told.iter().map(|of| !of.is_null()).collect();
        if !known.contains(&true) {
            return None;
        }
        let thread = |track: &Track| json!({"name": track.label, "process": track.process});
        let mut told = json!({
            "tick": tick,
            "last": last,
            "threads": tracks.tracks.iter().map(thread).collect::<Vec<_>>(),
            "sets": told,
        });
        if let Some(cpu) = cpu.filter(|at| known.get(*at) == Some(&true)) {
            told["cpu"] = json!(cpu);
        }
        if let Some(events) = lasted.encode(&mut columns) {
            told["events"] = events;
        }
        Some(Self { told, columns, known })
    }

    /// Returns true if the times of the event at position `at` are known.
    pub fn has(&self, at: usize) -> bool {
        self.known.get(at) == Some(&true)
    }
}

/// Appends the samples of an event to `columns` and returns their description; null if they do not add up
/// to the first tree.
fn encode(lanes: &[Lane], measures: &[&Tree], columns: &mut Vec<u8>) -> Value {
    let sums = [WeightMeasure::Weight, WeightMeasure::Otherwise]
        .map(|by| (by, sums(lanes, measures.first().map_or(0, |tree| tree.nodes.len()), by)));
    let known: Vec<Option<(WeightMeasure, u64)>> = measures
        .iter()
        .map(|tree| sums.iter().find_map(|(by, sums)| Some((*by, factor(sums, tree)?))))
        .collect();
    let Some((first, Some(_))) = measures.first().zip(known.first().copied()) else { return Value::Null };
    let (stacks, numbers) = by_frequency(lanes, first.nodes.len());
    stacks.iter().for_each(|&at| varint::put(columns, u64::from(at)));
    for lane in lanes {
        let mut before = 0;
        for sample in &lane.samples {
            varint::put(columns, sample / SLOT - before);
            before = sample / SLOT;
        }
    }
    for sample in lanes.iter().flat_map(|lane| &lane.samples) {
        varint::put(columns, u64::from(numbers[(sample % SLOT) as usize]));
    }
    let used = || lanes.iter().filter(|lane| !lane.samples.is_empty());
    let weights: Vec<Value> = known
        .into_iter()
        .map(|known| {
            let Some((by, factor)) = known else { return json!(false) };
            let weights = || used().map(|lane| lane.weights(by));
            let first = weights().next();
            if let Some(Weights::Same(each)) = first.filter(|&first| weights().all(|of| of == first)) {
                return json!(each.saturating_mul(factor));
            }
            for (lane, weights) in used().zip(weights()) {
                (0..lane.samples.len())
                    .for_each(|at| varint::put(columns, weights.at(at).saturating_mul(factor)));
            }
            Value::Null
        })
        .collect();
    // Position of the thread, and number of samples.
    let lanes: Vec<(usize, usize)> =
        lanes.iter().map(|lane| lane.samples.len()).enumerate().filter(|&(_, samples)| samples > 0).collect();
    json!({"stacks": stacks.len(), "weights": weights, "lanes": lanes})
}

impl Lane {
    fn weights(&self, by: WeightMeasure) -> &Weights {
        &self.weights[match by {
            WeightMeasure::Weight => 0,
            WeightMeasure::Otherwise => 1,
        }]
    }
}

/// Replaces the stack of each sample of an event by the position of its box; `None` if a stack has no
/// box.
fn place(
    moments: &mut Moments,
    event: usize,
    measures: &[&Tree],
    frames: impl Fn(&Track) -> Vec<String>,
) -> Option<()> {
    let &tree = measures.first()?;
    let labels: HashMap<&Label, usize> = tree.labels.iter().zip(0..).collect();
    let tracks = &moments.tracks;
    let known: Vec<Option<usize>> = tracks.labels.iter().map(|label| labels.get(label).copied()).collect();
    // The boxes above each box, by label; roots are above `NONE`.
    const NONE: u32 = u32::MAX;
    let mut above: HashMap<(u32, usize), u32> = HashMap::with_capacity(tree.nodes.len());
    let mut path: Vec<u32> = Vec::new();
    for (node, at) in tree.nodes.iter().zip(0..) {
        path.truncate(node.depth as usize);
        above.insert((path.last().copied().unwrap_or(NONE), node.label.index()), at);
        path.push(at);
    }
    let up = |from: u32, label: Option<usize>| above.get(&(from, label?)).copied();
    // Boxes at which stacks end, above the box `on`; reset if `on` changes.
    let mut ends = vec![NONE; tracks.stacks.len()];
    let (mut found, mut on): (Vec<u32>, u32) = (Vec::new(), NONE);
    for (track, lane) in tracks.tracks.iter().zip(moments.events.get_mut(event)?) {
        if lane.samples.is_empty() {
            continue;
        }
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

/// Adds up the samples by box.
fn sums(lanes: &[Lane], boxes: usize, by: WeightMeasure) -> Vec<u64> {
    let mut own = vec![0u64; boxes];
    for lane in lanes {
        let weights = lane.weights(by);
        for (at, sample) in lane.samples.iter().enumerate() {
            let sum = &mut own[(sample % SLOT) as usize];
            *sum = sum.saturating_add(weights.at(at));
        }
    }
    own
}

/// Returns the factor between the weights of samples and those of the boxes of `tree`, if it is the same
/// for all boxes: 1, or the sampling period if it follows after the samples in the recording.
fn factor(sums: &[u64], tree: &Tree) -> Option<u64> {
    let box_of_first = sums.iter().position(|&sum| sum > 0)?;
    let factor =
        tree.nodes.get(box_of_first)?.own.checked_div(sums[box_of_first]).filter(|&factor| factor > 0)?;
    let is_product = |(own, sum): (u64, &u64)| sum.checked_mul(factor) == Some(own);
    tree.nodes.iter().map(|node| node.own).zip(sums).all(is_product).then_some(factor)
}

/// Returns the boxes at which samples end, most frequent first, and for each box its rank.
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

    /// Samples of stacks 0 and 1 of a tree, as ticks and stacks; their weight by the other measure is
    /// ten.
    fn moments(tree: &Tree, samples: &[(u64, u64)]) -> Moments {
        let samples = samples.iter().map(|&(tick, stack)| tick * SLOT + stack).collect();
        let lane = Lane { samples, weights: [Weights::Same(1), Weights::Same(10)] };
        Moments {
            tracks: Tracks::from_tree(tree, "t"),
            events: vec![vec![lane]],
            cpu: None,
            tick: FINE,
            lasted: Default::default(),
        }
    }
    const SAMPLES: [(u64, u64); 3] = [(10, 0), (110, 1), (210, 1)];

    #[test]
    fn time_columns_are_stacks_times_and_stack_numbers() {
        let tree = folded::read("a;b 1\na;c 2\n".as_bytes()).unwrap();
        let times = Times::new(moments(&tree, &SAMPLES), &[&[&tree]], |_| Vec::new()).unwrap();
        assert_eq!((&times.told["tick"], &times.told["last"]), (&json!(FINE), &json!(210)));
        assert_eq!(times.told["sets"], json!([{"weights": [1], "stacks": 2, "lanes": [[0, 3]]}]));
        // c, b; 1 ms after the start, then every 10 ms; b, c, c.
        assert_eq!(times.columns, [2, 1, 10, 100, 100, 1, 0, 0]);
    }

    #[test]
    fn differing_weights_are_written_individually() {
        let tree = folded::read("a;b 1\na;c 7\n".as_bytes()).unwrap();
        let mut all = moments(&tree, &SAMPLES);
        all.events[0][0].weights[0] = Weights::Each(vec![1, 3, 4]);
        let times = Times::new(all, &[&[&tree]], |_| Vec::new()).unwrap();
        assert_eq!(times.told["sets"][0]["weights"], json!([null]));
        assert_eq!(times.columns[8..], [1, 3, 4]);
    }

    #[test]
    fn timeline_is_omitted_if_samples_do_not_match_tree() {
        let tree = folded::read("a;b 1\na;c 2\n".as_bytes()).unwrap();
        let other = folded::read("a;b 2\na;c 1\n".as_bytes()).unwrap();
        let [tenfold, periods] =
            ["a;b 10\na;c 20\n", "a;b 7\na;c 14\n"].map(|text| folded::read(text.as_bytes()).unwrap());
        let of = |measures: &[&Tree], frames: &[&str]| {
            let frames = |_: &Track| frames.iter().map(|&text| text.to_owned()).collect();
            Times::new(moments(&tree, &SAMPLES), &[measures], frames)
        };
        assert!(of(&[&tree], &[]).is_some());
        assert!(of(&[&other], &[]).is_none(), "other weights");
        // A tree can have either of the two weights.
        assert_eq!(
            of(&[&tenfold, &tree, &other], &[]).unwrap().told["sets"][0]["weights"],
            json!([10, 1, false])
        );
        // The recording states the period after the samples.
        assert_eq!(of(&[&periods, &tree], &[]).unwrap().told["sets"][0]["weights"], json!([7, 1]));
        assert!(of(&[&tree], &["[t]"]).is_none(), "no such thread");
        let mut far = moments(&tree, &[(10, 0), (110, 1), (u64::from(u32::MAX), 1)]);
        far.tick = 1_000_000_000;
        assert!(Times::new(far, &[&[&tree]], |_| Vec::new()).is_none(), "a century");
    }

    #[test]
    fn each_event_has_its_own_samples() {
        let tree = folded::read("a;b 1\na;c 2\n".as_bytes()).unwrap();
        let second = folded::read("a;b 0\na;c 1\n".as_bytes()).unwrap();
        let mut both = moments(&tree, &SAMPLES);
        both.events.push(moments(&tree, &[(40, 1)]).events.remove(0));
        let trees = crate::tree::aligned(&[&tree, &second]);
        let times = Times::new(both.clone(), &[&[&trees[0]], &[&trees[1]]], |_| Vec::new()).unwrap();
        assert_eq!((times.has(0), times.has(1), times.has(2)), (true, true, false));
        assert_eq!(times.told["sets"][1], json!({"weights": [1], "stacks": 1, "lanes": [[0, 1]]}));
        assert_eq!(times.columns, [2, 1, 10, 100, 100, 1, 0, 0, 2, 40, 0]);
        // Both events have the same weights, but only the samples of the first add up to them.
        let times = Times::new(both, &[&[&trees[0]], &[&trees[0]]], |_| Vec::new()).unwrap();
        assert_eq!((times.has(0), times.has(1)), (true, false));
        assert_eq!((&times.told["sets"][1], times.columns.len()), (&Value::Null, 8));
    }
}
