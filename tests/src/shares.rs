//! Shares of samples by function, and their comparison with the ground truth.

use std::collections::{BTreeMap, HashSet};

use crate::recording::Recording;

/// Share of each function in all samples, in percent: present anywhere in the stack (`inclusive`) or on top of it.
pub fn by_function(recording: &Recording, inclusive: bool) -> BTreeMap<String, f64> {
    let mut count: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &recording.samples {
        let stack = &recording.stacks[sample.stack];
        let frames = if inclusive { &stack.frames[..] } else { &stack.frames[..stack.frames.len().min(1)] };
        let seen: HashSet<&str> = frames.iter().map(|f| f.method.as_str()).collect();
        for name in seen {
            *count.entry(name.to_owned()).or_default() += 1;
        }
    }
    let all = recording.samples.len().max(1) as f64;
    count.into_iter().map(|(name, n)| (name, 100.0 * n as f64 / all)).collect()
}

/// Panics unless every function's share is within `tolerance` percentage points of the ground truth.
#[track_caller]
pub fn compare(
    truth: &BTreeMap<String, u64>,
    all_ns: u64,
    measured: &BTreeMap<String, f64>,
    tolerance: f64,
) -> f64 {
    let mut worst: f64 = 0.0;
    let mut table = String::new();
    for (name, &ns) in truth {
        let is = measured.get(name).copied().unwrap_or(0.0);
        let should = 100.0 * ns as f64 / all_ns as f64;
        worst = worst.max((is - should).abs());
        table += &format!("{name:24} true {should:6.2} %  recorded {is:6.2} %  {:+.2}\n", is - should);
    }
    eprintln!("{table}worst difference {worst:.2} points");
    assert!(worst <= tolerance, "a share is off by {worst:.2} points (> {tolerance}):\n{table}");
    worst
}
