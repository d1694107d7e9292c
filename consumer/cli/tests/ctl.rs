//! `ctl` without a program.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::convert::{flightline, stdout};

/// A recording that ends when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The program reads its standard input and ends when it is closed; then the recorder ends.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn record(folder: &std::path::Path, name: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.args(["record", "-q", "-o", folder.join(name).to_str().unwrap(), "--", "cat"]);
    Running(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// Returns the answer of `ctl status --json` as soon as it has recordings with these outputs, whose programs have joined.
fn status_with(outputs: &[String]) -> Value {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let answer: Value = serde_json::from_str(&stdout(&["ctl", "--json", "status"])).unwrap();
        let recordings = answer["recordings"].as_array().unwrap().iter();
        let joined = recordings.filter(|recording| recording["processes"][0].is_object());
        let listed: Vec<&str> = joined.flat_map(names).collect();
        if outputs.iter().all(|output| listed.contains(&output.as_str())) {
            return answer;
        }
        assert!(Instant::now() < until, "{outputs:?}: {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn names(recording: &Value) -> impl Iterator<Item = &str> {
    recording["outputs"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[test]
fn status_without_program_lists_every_recording() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = ["a.jfr", "b.jfr"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let running = ["a.jfr", "b.jfr"].map(|name| record(folder.path(), name));
    let answer = status_with(&outputs);
    for recording in answer["recordings"].as_array().unwrap() {
        if names(recording).any(|name| outputs.iter().any(|output| output == name)) {
            assert_eq!(recording["state"], "recording", "{recording}");
            assert_eq!(recording["processes"].as_array().unwrap().len(), 1, "{recording}");
        }
    }
    let text = stdout(&["ctl", "status"]);
    let blocks: Vec<&str> =
        text.split("\n\n").filter(|block| outputs.iter().any(|o| block.contains(o))).collect();
    assert_eq!(blocks.len(), 2, "{text}");
    assert!(blocks.iter().all(|block| block.starts_with("state ") && block.contains(" cat: ")), "{text}");
    drop(running);
}

#[test]
fn actions_without_program_report_missing_option() {
    for action in [&["pause"][..], &["resume"], &["stop"], &["dump"], &["start"], &["engines", "cpu"]] {
        let done = flightline(&[&["ctl"], action].concat());
        let error = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{action:?}: {error}");
        let usage = format!("`flightline ctl -p PID|NAME {}`", action[0]);
        assert!(error.contains(&usage) && error.contains("`flightline ctl status`"), "{action:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{action:?}: {error}");
    }
}
