//! Recordings by older versions of async-profiler and by agents based on it. The numbers are from the JDK's
//! `jfr print`.

use crate::convert::{flightline, recording, stdout};

/// Sum of the weights of folded stacks.
fn folded(args: &[&str]) -> u64 {
    let folded = stdout(&[&["fold"], args].concat());
    folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Before version 4, async-profiler wrote wall-clock samples of running and of sleeping threads as one type.
#[test]
fn sleeping_threads_are_not_counted_as_cpu_time() {
    let file = recording("ap3-java-wall.jfr");
    let (awake, all) = (177, 177 + 364);
    assert_eq!(folded(&[&file]), awake);
    assert_eq!(folded(&["-e", "cpu", &file]), awake);
    assert_eq!(folded(&["-e", "wall", &file]), all);
    assert!(stdout(&["summary", &file]).contains("\n364 more samples of threads that slept"));
    // A sample represents 20 ms.
    assert_eq!(folded(&["-e", "wall", "--total", &file]), all * 20_000_000);
    for (event, samples) in [("cpu", awake), ("wall", all)] {
        let speedscope = stdout(&["convert", "-e", event, "--format", "speedscope", "-o", "-", &file]);
        let speedscope: serde_json::Value = serde_json::from_str(&speedscope).unwrap();
        let profiles = speedscope["profiles"].as_array().unwrap();
        let converted: usize = profiles.iter().map(|of| of["samples"].as_array().unwrap().len()).sum();
        assert_eq!(converted as u64, samples, "{event}");
        let rows = stdout(&["export", "-e", event, "--format", "hdps", "-o", "-", &file]);
        assert_eq!(rows.lines().count() as u64, samples, "{event}");
    }
}

#[test]
fn datadog_samples_are_selected_by_standard_aliases() {
    let file = recording("ddprof.jfr");
    assert_eq!(folded(&[&file]), 45);
    for (event, samples) in [("cpu", 45), ("wall", 253), ("alloc", 79), ("live", 11), ("ObjectSample", 79)] {
        assert_eq!(folded(&["-e", event, &file]), samples, "{event}");
    }
    // Each sample of an allocation represents size × weight bytes.
    let bytes = folded(&["-e", "alloc", "--total", &file]);
    assert!(bytes.abs_diff(166_202_811) < 79, "{bytes}");
    assert!(stdout(&["fold", "-e", "alloc", &file]).lines().any(|line| line.contains(";byte[] ")));
    let spans = stdout(&["spans", "--by", "endpoint", &file]);
    assert!(spans.contains("GET /work") && !spans.contains("[no endpoint]"), "{spans}");
}

#[test]
fn pyroscope_samples_have_spans() {
    let file = recording("pyroscope.jfr");
    assert_eq!(folded(&[&file]), 74);
    assert_eq!(folded(&["-e", "alloc", &file]), 296);
    assert_eq!(folded(&["-e", "lock", &file]), 5);
    assert!(stdout(&["spans", "--by", "name", &file]).contains("[name 1]"));
}

/// A recording in which no event of an area was enabled says nothing about that area.
#[test]
fn reports_state_which_events_were_not_recorded() {
    for (name, area, expected) in [
        ("ap3-java-wall.jfr", "Locks: ", "has no events"),
        ("ap3-java-wall.jfr", "Input and output: ", "has no events"),
        ("pyroscope.jfr", "Locks: ", "Threads waited for locks"),
        ("pyroscope.jfr", "Input and output: ", "has no events"),
        ("jdk17.jfr", "Input and output: ", "took"),
    ] {
        let report = flightline(&["report", &recording(name)]);
        let report = String::from_utf8(report.stdout).unwrap();
        let line = report.lines().find(|line| line.contains(area)).unwrap();
        assert!(line.contains(expected), "{name}: {line}");
    }
}
