//! `flightline flame`: several events of one recording at once.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

fn flightline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).output().unwrap()
}

/// Returns the total of `fold --total` for an event.
fn weight(recording: &str, event: &str) -> u64 {
    let done = flightline(&["fold", recording, "-e", event, "--total"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn measure_writes_one_page_or_one_svg_per_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = fixture("recordings/ap-java-multichunk.jfr");
    let names = ["cpu", "wall", "alloc"];
    for output in [path("x.html"), path("x.svg")] {
        let done = flightline(&["flame", &recording, "--measure", &names.join(","), "-o", &output]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let profile = profile(Path::new(&path("x.html")));
    let events: Vec<&str> =
        profile["events"].as_array().unwrap().iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(events, names);
    // Each event has the time or bytes of its samples first, then their count.
    let told: Vec<(&str, &str, u64)> = profile["measures"].as_array().unwrap().iter().map(measure).collect();
    assert_eq!(
        told.iter().map(|of| of.0).collect::<Vec<_>>(),
        ["time", "samples", "time", "samples", "bytes", "samples"]
    );
    let told: Vec<(&str, &str, u64)> =
        events.iter().zip(told.iter().step_by(2)).map(|(name, of)| (*name, of.1, of.2)).collect();
    // Each event has its own timestamps.
    let sets = profile["times"]["sets"].as_array().unwrap();
    assert!(sets.len() == 3 && sets.iter().all(serde_json::Value::is_object), "{sets:?}");
    let units = ["ns", "ns", "bytes"];
    for ((name, unit), told) in names.into_iter().zip(units).zip(told) {
        let want = weight(&recording, name);
        assert!(want > 0);
        assert_eq!(told, (name, unit, want));
        let svg = fs::read_to_string(path(&format!("x.{name}.svg"))).unwrap();
        // The title is rounded, the root frame exact.
        let exact = svg.replace(',', "");
        assert!(
            svg.contains(">Work (19099) · ")
                && svg.contains(&format!(" · {name}: "))
                && exact.contains(&format!("({want} {unit}")),
            "{name}"
        );
    }
    assert!(!Path::new(&path("x.svg")).exists());
}

fn profile(page: &Path) -> Value {
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("id=\"profile\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// Returns the page of a recording and the messages of the command.
fn page(recording: &str, more: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.html");
    let done = flightline(&[&["flame", recording, "-o", output.to_str().unwrap()], more].concat());
    let errors = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{errors}");
    (profile(&output), errors)
}

fn subtitles(profile: &Value) -> Vec<(String, String)> {
    let text = |of: &Value| of.as_str().unwrap().to_owned();
    let event = |of: &Value| (text(&of["name"]), text(&of["subtitle"]));
    profile["events"].as_array().unwrap().iter().map(event).collect()
}

#[test]
fn page_lists_the_recorded_events() {
    let (offered, errors) = page(&fixture("recordings/jdk25.jfr"), &[]);
    let events = subtitles(&offered);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    // The default event comes first, then those with the most samples.
    assert_eq!(names[..5], ["cpu", "throw", "alloc", "jdk.ExecutionSample", "fixture.Step"]);
    let about = "Work (18948) · OpenJDK 25.0.3+9-LTS · ";
    let range = " · 2026-11-20T23:30:39Z, 1.60 s";
    assert_eq!(events[0].1, format!("{about}cpu: 391 samples, 3.97 s{range} · 4.4 % lost"));
    assert_eq!(events[2].1, format!("{about}alloc: 9.3 GiB, 480 samples{range}"));
    assert!(errors.starts_with("flightline: 4.4 % lost") && errors.lines().count() == 1, "{errors}");
    // The time per sample is known, even if the recording states the period after the samples.
    assert_eq!(offered["times"]["sets"][3]["weights"], serde_json::json!([10_000_000, 1]));
    // -e and --title apply.
    let (one, _) = page(&fixture("recordings/jdk25.jfr"), &["-e", "alloc", "--subtitle", "mine"]);
    assert_eq!(subtitles(&one).len(), 1);
    assert_eq!(one["subtitle"], "mine");
    // A native program has no virtual machine.
    let (native, _) = page(&fixture("recordings/flightline.jfr"), &[]);
    let [(_, subtitle)] = &subtitles(&native)[..] else { panic!("one event") };
    assert!(subtitle.starts_with("burn (22396) · cpu: 95 samples, 190 ms · "), "{subtitle}");
}

/// Fill colour of a function's frame: red, green, blue.
fn fill(svg: &str, function: &str) -> [i32; 3] {
    let (_, rest) = svg.split_once(&format!("<title>{function} (")).unwrap();
    let (_, rest) = rest.split_once("fill=\"rgb(").unwrap();
    let parts: Vec<i32> =
        rest.split_once(')').unwrap().0.split(',').map(|part| part.parse().unwrap()).collect();
    [parts[0], parts[1], parts[2]]
}

#[test]
fn svg_has_colours_by_frame_type_and_by_application() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |more: &[&str]| {
        let output = folder.path().join("x.svg").to_str().unwrap().to_owned();
        let recording = fixture("recordings/jdk25.jfr");
        let done = flightline(&[&["flame", &recording, "-o", &output, "--width", "1200"], more].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        fs::read_to_string(output).unwrap()
    };
    let kinds = draw(&[]);
    let [interpreted, inlined, compiled] =
        ["Work.lambda$start$3", "Work.fib", "Work$$Lambda.0x0000000057040450.run"]
            .map(|name| fill(&kinds, name));
    assert!(interpreted.iter().all(|&part| part >= 160), "pale: {interpreted:?}");
    assert!(inlined[2] > inlined[0] + 60, "aqua: {inlined:?}");
    assert!(compiled[1] > compiled[2] + 60, "green: {compiled:?}");
    let is_orange = |[red, green, blue]: [i32; 3]| red > green + 40 && green > blue + 20;
    let origins = draw(&["--colors", "origin"]);
    assert!(is_orange(fill(&origins, "Work.fib")) && !is_orange(fill(&origins, "java.util.ArrayList.grow")));
    let chosen = draw(&["--colors", "origin", "--application", "java.util"]);
    assert!(is_orange(fill(&chosen, "java.util.ArrayList.grow")));
    assert!(!is_orange(fill(&chosen, "java.lang.Thread.run")));
    let refused = flightline(&["flame", "x.jfr", "--application", "a b"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--application"));
}

#[test]
fn events_beyond_page_limit_are_reported() {
    let (offered, errors) = page(&fixture("recordings/jdk21-zgc.jfr"), &[]);
    assert_eq!(subtitles(&offered).len(), 12);
    assert!(errors.contains("jdk.RetransformClasses") && errors.contains("12"), "{errors}");
}

#[test]
fn time_range_page_lists_its_events() {
    let recording = fixture("recordings/ap-java-multichunk.jfr");
    let range = ["--from", "1", "--to", "2"];
    let (offered, _) = page(&recording, &range);
    let names: Vec<String> = subtitles(&offered).into_iter().map(|(name, _)| name).collect();
    // The order is by samples in the range.
    assert_eq!(names, ["cpu", "alloc", "wall", "lock"]);
    for (event, name) in names.iter().enumerate() {
        let samples = offered["measures"]
            .as_array()
            .unwrap()
            .iter()
            .find(|of| of["event"] == event && of["name"] == "samples")
            .unwrap();
        let done = flightline(&[&["fold", &recording, "-e", name], &range[..]].concat());
        let text = String::from_utf8(done.stdout).unwrap();
        let sum: u64 =
            text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert!(sum > 0);
        assert_eq!(samples["total"], sum, "{name}");
    }
}

fn measure(of: &Value) -> (&str, &str, u64) {
    (of["name"].as_str().unwrap(), of["unit"].as_str().unwrap(), of["total"].as_u64().unwrap())
}

#[test]
fn missing_events_and_unsupported_formats_are_rejected() {
    let refused = |args: &[&str]| {
        let done = flightline(&[&["flame", "-o", "-"], args].concat());
        assert!(!done.status.success(), "{args:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let recording = fixture("recordings/ap-java-cpu.jfr");
    assert!(refused(&[&recording, "--measure", "cpu,page-faults"]).contains("page-faults"));
    assert!(refused(&[&fixture("perf/cpi.txt"), "--measure", "cycles,branches"]).contains("branches"));
    let two = [&fixture("perf/cpi.txt"), "--measure", "cycles,instructions", "--format", "svg"];
    assert!(refused(&two).contains("--measure"));
    assert!(refused(&[&recording, "--measure", "cpu", "-e", "wall"]).contains("--event"));
}
