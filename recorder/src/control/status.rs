//! The status that a drain reports as JSON.

use flightline_in_signal::layout::{engine, event_kind, loss};
use serde_json::{Value, json};

use crate::loss::{Report, engine_name};

/// Returns the [`Report`] of the recording so far.
pub(crate) fn report_json(report: &Report) -> Value {
    let lost: Vec<Value> = loss::NAMES
        .iter()
        .zip(report.cpu.lost)
        .filter(|(_, (samples, ns))| samples + ns > 0)
        .map(|(cause, (samples, ns))| json!({"cause": cause, "samples": samples, "cpuSeconds": seconds(ns)}))
        .collect();
    let kinds: Vec<Value> = event_kind::NAMES
        .iter()
        .zip(report.kinds)
        .filter(|(_, (count, lost))| count + lost > 0)
        .map(|(kind, (count, lost))| json!({"kind": kind, "events": count, "lost": lost}))
        .collect();
    json!({
        "samples": report.cpu.samples,
        "cpuSeconds": seconds(report.cpu.cpu_ns),
        "sampledCpuSeconds": seconds(report.cpu.sampled_ns),
        "lost": lost,
        "cutStacks": report.stacks.cut,
        "events": kinds,
        "threads": report.threads,
        "threadsWithoutSlot": report.no_slot,
        "processesRefused": report.refused,
        // Null until an engine is chosen.
        "engine": report.engine.filter(|(code, _)| *code != engine::AUTO).map(|(code, _)| engine_name(code)),
    })
}

/// Converts ns to seconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
