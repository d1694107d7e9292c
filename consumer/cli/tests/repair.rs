//! Reports and exit status of `repair`.

use std::path::PathBuf;

use serde_json::Value;

use crate::convert::{flightline, recording, stdout};

/// Repairs `bytes`; returns exit status, report and result.
fn repaired(folder: &tempfile::TempDir, bytes: &[u8]) -> (i32, String, PathBuf) {
    let (file, result) = (folder.path().join("broken.jfr"), folder.path().join("whole.jfr"));
    std::fs::write(&file, bytes).unwrap();
    let output = flightline(&["repair", file.to_str().unwrap(), "-o", result.to_str().unwrap(), "--force"]);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap(), result)
}

fn report(folder: &tempfile::TempDir) -> Value {
    let file = folder.path().join("broken.jfr");
    let output = flightline(&["repair", file.to_str().unwrap(), "--dry-run", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn events(file: &str) -> u64 {
    let summary: Value = serde_json::from_str(&stdout(&["summary", "--json", "--top", "0", file])).unwrap();
    let events = summary["events"].as_array().unwrap().iter();
    let program =
        events.filter(|e| !["jdk.Metadata", "jdk.CheckPoint"].contains(&e["type"].as_str().unwrap()));
    program.map(|event| event["count"].as_u64().unwrap()).sum()
}

/// 200 damaged bytes cost only the events that contain them. The report states the position and size.
#[test]
fn only_damaged_events_are_lost_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let sound = recording("jdk17.jfr");
    let mut bytes = std::fs::read(&sound).unwrap();
    let at = bytes.len() / 3;
    for (n, byte) in bytes[at..at + 200].iter_mut().enumerate() {
        *byte = 0x81 ^ (n * 37) as u8;
    }
    let (status, words, result) = repaired(&folder, &bytes);
    let (before, after) = (events(&sound), events(result.to_str().unwrap()));
    assert_eq!(status, 0, "{words}");
    assert!(after < before && before - after < 60, "{after} of {before} events: {words}");
    assert!(words.contains("damaged or torn, number of events unknown (at offset "), "{words}");
    let report = report(&folder);
    let lost = report["lost"].as_array().unwrap().iter();
    let lost: u64 = lost.map(|lost| lost["bytes"].as_u64().unwrap()).sum();
    assert!((200..3000).contains(&lost), "{report}");
    assert_eq!(report["searchLimitReached"], false);
}

/// A truncated recording of async-profiler has no constants, which is not a success.
#[test]
fn missing_constants_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(recording("ap-java-cpu.jfr")).unwrap();
    let (status, words, result) = repaired(&folder, &bytes[..30_000]);
    assert_eq!(status, 1, "{words}");
    assert!(words.contains("warning: "), "{words}");
    assert!(words.contains("thread") && words.contains("stack"), "{words}");
    assert!(words.contains("missing constants of jdk.types.StackTrace: "), "{words}");
    assert!(events(result.to_str().unwrap()) > 500, "the events are there nevertheless");
    let report = report(&folder);
    let missing = report["missingConstants"].as_array().unwrap();
    let stacks = missing.iter().find(|m| m["type"] == "jdk.types.StackTrace").unwrap();
    assert_eq!(stacks["events"], stacks["eventsWithReference"], "{report}");
    assert!(stacks["events"].as_u64().unwrap() > 500, "{report}");
    // A recording of a killed JDK lacks the class loaders of a few events; their number is reported.
    let killed = std::fs::read(recording("jdk17-killed.jfr")).unwrap();
    let (status, words, _) = repaired(&folder, &killed);
    assert!(
        status == 0 && words.contains("missing constants of jdk.types.ClassLoader: 20 of 20 events"),
        "{words}"
    );
    // An intact recording lacks nothing.
    let (status, words, _) = repaired(&folder, &bytes);
    assert!(status == 0 && !words.contains("missing"), "{words}");
}
