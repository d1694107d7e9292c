//! Process titles that programs set by overwriting their arguments.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs for 1.5 s of CPU time without a title, then as long under each of two titles.
const PROGRAM: &str = r#"
sub work { my $end = (times)[0] + 1.5; my $x = 0; while ((times)[0] < $end) { $x += $_ for 1 .. 10000 } }
work();
$0 = "worker: import";
work();
$0 = "worker: export --password hunter2";
work();
"#;

fn flightline(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    let output = command.args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Samples by root frame.
fn by_first_frame(folder: &Path, options: &[&str]) -> HashMap<String, u64> {
    let output = flightline(folder, &[&["fold", "r.jfr"], options].concat());
    let mut sums = HashMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let first = stack.split(';').next().unwrap().to_owned();
        *sums.entry(first).or_default() += count.parse::<u64>().unwrap();
    }
    sums
}

#[test]
fn samples_have_their_process_title() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    flightline(folder, &["record", "-q", "-o", "r.jfr", "--", "perl", "-e", PROGRAM]);
    let sums = by_first_frame(folder, &["--process-title"]);
    assert_eq!(sums.len(), 3, "{sums:?}");
    let all: u64 = sums.values().sum();
    let untitled = sums.keys().find(|name| name.starts_with("perl (")).unwrap().as_str();
    // The recorder reads titles four times a second.
    for title in [untitled, "worker: import", "worker: export --password hunter2"] {
        let share = sums[title] as f64 / all as f64;
        assert!((0.2..0.47).contains(&share), "{title}: {share} of {sums:?}");
    }
    // The live view has the same titles.
    let file = std::fs::File::open(folder.join("r.jfr")).unwrap();
    let tail =
        Command::new(env!("CARGO_BIN_EXE_flightline")).args(["tail", "-", "--samples"]).stdin(file).output();
    let mut live = HashMap::new();
    for line in String::from_utf8(tail.unwrap().stdout).unwrap().lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        if object["kind"] == "cpu" {
            let name =
                object["processTitle"].as_str().or(object["thread"]["process"].as_str()).unwrap().to_owned();
            *live.entry(name).or_default() += 1;
        }
    }
    assert_eq!(live, sums);
    // Titles do not change the process.
    assert_eq!(by_first_frame(folder, &["--process"]), HashMap::from([(untitled.to_owned(), all)]));
    let below = by_first_frame(folder, &["--process", "--process-title", "-I", "^worker: import$"]);
    assert_eq!(below, HashMap::from([(untitled.to_owned(), sums["worker: import"])]));
    // A title may contain a secret.
    flightline(folder, &["scrub", "r.jfr", "--redact", "-o", "clean.jfr"]);
    std::fs::rename(folder.join("clean.jfr"), folder.join("r.jfr")).unwrap();
    let clean = by_first_frame(folder, &["--process-title"]);
    assert_eq!(clean["[redacted]"], sums["worker: export --password hunter2"]);
    assert_eq!(clean["worker: import"], sums["worker: import"]);
}

#[test]
fn redacted_arguments_have_no_titles() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    flightline(folder, &["record", "-q", "--redact-args", "-o", "r.jfr", "--", "perl", "-e", PROGRAM]);
    let sums = by_first_frame(folder, &["--process-title"]);
    assert!(sums.len() == 1 && sums.keys().all(|name| name.starts_with("perl (")), "{sums:?}");
    let bytes = std::fs::read(folder.join("r.jfr")).unwrap();
    // Perl also sets the thread's name, truncated to 15 bytes.
    assert!(!bytes.windows(7).any(|bytes| bytes == b"hunter2"));
}

#[test]
fn process_titles_need_sample_recording() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/jdk25.jfr");
    for (args, words) in [
        (&["offcpu", recording, "--process-title"][..], "--process-title does not apply to off-CPU time"),
        (&["fold", recording, "--process-title", "--span", "x"], "cannot be used with"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(words), "{args:?}: {stderr}");
    }
}
