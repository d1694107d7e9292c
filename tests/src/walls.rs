//! Reads wall-clock time and metrics of a recording with `flightline print --json`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::run::run;
use crate::victim::flightline;

/// A `profiler.WallClockSample`.
#[derive(Clone, Debug)]
pub struct WallSample {
    /// Kernel thread id.
    pub tid: u64,
    /// Thread name.
    pub thread: String,
    /// `STATE_…` without the prefix.
    pub state: String,
    /// The number of intervals that it represents.
    pub samples: u64,
    /// The stack is complete.
    pub whole: bool,
    /// Functions, leaf first.
    pub stack: Vec<String>,
}

/// The values of all events of these types.
#[track_caller]
pub fn events(recording: &Path, types: &str) -> Vec<(String, Value)> {
    let mut command = Command::new(flightline());
    command.args(["print", "--json", "--stack-depth", "64", "--events", types]).arg(recording);
    let printed = run(&mut command, Duration::from_secs(120)).expect_success("print");
    let mut json: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let Value::Array(list) = json["recording"]["events"].take() else { panic!("no list of events") };
    list.into_iter()
        .map(|mut event| (event["type"].as_str().unwrap().to_owned(), event["values"].take()))
        .collect()
}

/// All wall-clock samples.
#[track_caller]
pub fn wall_samples(recording: &Path) -> Vec<WallSample> {
    events(recording, "profiler.WallClockSample").iter().map(|(_, values)| wall_sample(values)).collect()
}

fn wall_sample(values: &Value) -> WallSample {
    let frames = values["stackTrace"]["frames"].as_array();
    let name = |frame: &Value| frame["method"]["name"].as_str().unwrap_or_default().to_owned();
    let state = &values["state"];
    let state = state.as_str().or_else(|| state["name"].as_str()).unwrap_or_default();
    WallSample {
        tid: values["sampledThread"]["osThreadId"].as_u64().unwrap(),
        thread: values["sampledThread"]["osName"].as_str().unwrap_or_default().to_owned(),
        state: state.strip_prefix("STATE_").unwrap_or(state).to_owned(),
        samples: values["samples"].as_u64().unwrap(),
        whole: values["stackTrace"]["truncated"] == Value::Bool(false),
        stack: frames.map(|f| f.iter().map(name).collect()).unwrap_or_default(),
    }
}

/// Σ samples of those that satisfy a condition.
pub fn sum(samples: &[WallSample], condition: impl Fn(&WallSample) -> bool) -> u64 {
    samples.iter().filter(|s| condition(s)).map(|s| s.samples).sum()
}
