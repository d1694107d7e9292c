//! The spans that `span_load` counts itself, and the same figures from `flightline spans`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::run::run;
use crate::truth::Truth;
use crate::victim::flightline;

/// Names of spans.
pub const NAMES: [&str; 8] = ["cart", "order", "query", "render", "commit", "batch", "parse", "index"];
/// Number of traces. All requests of a trace are of one endpoint and one tenant.
pub const TRACES: usize = 6;
/// The known figures of a span: the number of spans; CPU time, time as the innermost span of a thread, time
/// off CPU and time in the run queue, each in ns; allocated bytes; and ns waited for locks.
pub const METRICS: [&str; 7] = ["count", "cpu", "wall", "off", "queued", "bytes", "lock"];
/// The same figures in the JSON of `flightline spans`; empty where it has none.
const KEYS: [&str; 7] = ["", "cpuNanos", "wallNanos", "offCpuNanos", "", "allocatedBytes", "lockNanos"];
/// The endpoint of the plain threads' jobs.
pub const JOBS: &str = "batch";

/// Name of the outermost span of a trace.
pub fn endpoint(trace: usize) -> &'static str {
    ["cart", "order", JOBS][trace % 3]
}

/// Label of a trace.
pub fn tenant(trace: usize) -> &'static str {
    ["t0", "t1"][trace / 3]
}

/// As `flightline spans` writes it.
pub fn trace_id(trace: usize) -> String {
    format!("{:02x}", trace + 1).repeat(16)
}

/// Sums of one row, as in [`METRICS`].
pub type Sums = [u64; METRICS.len()];

/// The groupings of `flightline spans --by`.
pub const BY: [&str; 4] = ["name", "endpoint", "trace", "label=tenant"];

/// The program's figures, by row key.
pub fn known(truth: &Truth, by: &str) -> BTreeMap<String, Sums> {
    let mut rows: BTreeMap<String, Sums> = BTreeMap::new();
    for (key, value) in &truth.counts {
        let words: Vec<&str> = key.split(' ').collect();
        let [name, trace, metric] = words[..] else { continue };
        let trace: usize = trace.parse().unwrap();
        let row = match by {
            "name" => name.to_owned(),
            "endpoint" => endpoint(trace).to_owned(),
            "trace" => trace_id(trace),
            _ => tenant(trace).to_owned(),
        };
        let at = METRICS.iter().position(|known| *known == metric).unwrap();
        // Endpoints and traces count only their outermost spans.
        let counts = at != 0 || !["endpoint", "trace"].contains(&by) || name == endpoint(trace);
        rows.entry(row).or_default()[at] += if counts { u64::try_from(*value).unwrap() } else { 0 };
    }
    rows.retain(|_, sums| sums[0] > 0);
    rows
}

/// The figures of `flightline spans`, and all of its JSON.
#[track_caller]
pub fn attributed(recording: &Path, by: &str) -> (BTreeMap<String, Sums>, Value) {
    let mut command = Command::new(flightline());
    command.args(["spans", "--json", "--by", by]).arg(recording);
    let told = run(&mut command, Duration::from_secs(120)).expect_success("spans");
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let mut rows = BTreeMap::new();
    for row in told["rows"].as_array().unwrap() {
        let mut sums = Sums::default();
        sums[0] = row["count"].as_u64().unwrap();
        for (sum, key) in sums.iter_mut().zip(KEYS).filter(|(_, key)| !key.is_empty()) {
            *sum = row["spent"][key].as_u64().unwrap();
        }
        rows.insert(row["key"].as_str().unwrap().to_owned(), sums);
    }
    (rows, told)
}
