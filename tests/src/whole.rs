//! The share of a recording's CPU time on stacks that the walk followed to the root, and where other walks
//! ended.

use std::collections::HashMap;

use crate::recording::Recording;

/// The CPU time of a recording, and the part of it on complete stacks.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// All CPU time of the recorded threads by their clocks, losses included, seconds.
    pub seconds: f64,
    /// The part of it on stacks that reach the root, in seconds.
    pub whole: f64,
}

impl Share {
    /// In percent of the recorded threads' CPU time.
    pub fn percent(self) -> f64 {
        100.0 * self.whole / self.seconds
    }
}

/// The share of the CPU time of all threads, including losses, whose stack the walk followed to its root.
pub fn share(recording: &Recording, period_ns: f64) -> Share {
    let clock: HashMap<u64, u64> = recording.ledger.iter().map(|l| (l.tid, l.cpu_ns)).collect();
    let whole = recording.samples.iter().filter(|s| !recording.stacks[s.stack].truncated).count() as f64;
    Share { seconds: clock.values().map(|&ns| ns as f64).sum::<f64>() / 1e9, whole: whole * period_ns / 1e9 }
}

/// Samples by the frame in which complete stacks end, most frequent first.
pub fn roots(recording: &Recording) -> Vec<(String, usize)> {
    let whole = recording.samples.iter().map(|s| &recording.stacks[s.stack]).filter(|s| !s.truncated);
    counted(whole.filter_map(|s| s.frames.last()).map(|f| format!("{} {}", f.class, f.method)))
}

/// Where the walk ended too early, most frequent first, and the losses.
pub fn cut(recording: &Recording, lines: usize) -> String {
    let cut = recording.samples.iter().map(|s| &recording.stacks[s.stack]).filter(|s| s.truncated);
    let at = counted(cut.map(|stack| {
        let last = stack.frames.last().map_or(String::new(), |f| format!("{} {}", f.class, f.method));
        let first = stack.frames.first().map_or(String::new(), |f| format!("{} {}", f.class, f.method));
        format!("{} frames, {first} … {last}", stack.frames.len())
    }));
    let mut lost: HashMap<&str, u64> = HashMap::new();
    for loss in &recording.losses {
        *lost.entry(&loss.cause).or_default() += loss.cpu_ns;
    }
    let at: Vec<String> = at.into_iter().take(lines).map(|(place, n)| format!("{n:6} × {place}")).collect();
    format!("cut short:\n{}\nlost {lost:?}", at.join("\n"))
}

fn counted(places: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut count: HashMap<String, usize> = HashMap::new();
    for place in places {
        *count.entry(place).or_default() += 1;
    }
    let mut count: Vec<_> = count.into_iter().collect();
    count.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    count
}
