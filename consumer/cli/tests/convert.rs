//! `flightline convert`, profiles of other tools as input, and selection of samples.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) fn recording(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings");
    folder.join(name).to_str().unwrap().to_owned()
}

pub(crate) fn flightline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn stdout(args: &[&str]) -> String {
    let done = flightline(args);
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn total(folded: &str) -> u64 {
    folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn converted_profile_folds_to_same_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording("ap-java-multichunk.jfr");
    for total in [false, true] {
        let more: &[&str] = if total { &["--total"] } else { &[] };
        let of = |args: &[&str]| stdout(&[args, more].concat());
        let want = of(&["fold", &file]);
        for name in ["x.pb.gz", "x.otlp", "x.speedscope.json", "x.folded"] {
            let path = folder.path().join(name);
            let path = path.to_str().unwrap();
            of(&["convert", &file, "-o", path]);
            assert_eq!(stdout(&["fold", path]), want, "{name} {total}");
        }
        // pprof-rs and others write uncompressed profiles.
        let [packed, plain] = ["x.pb.gz", "x.pb"].map(|name| folder.path().join(name));
        let unpacked = Command::new("gzip").arg("-dc").arg(packed).output().unwrap();
        std::fs::write(&plain, unpacked.stdout).unwrap();
        assert_eq!(stdout(&["fold", plain.to_str().unwrap()]), want, "x.pb {total}");
    }
}

#[test]
fn opentelemetry_export_can_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording("ap-java-multichunk.jfr");
    let path = folder.path().join("exported.otlp");
    let path = path.to_str().unwrap();
    stdout(&["export", &file, "-o", path]);
    assert_eq!(
        total(&stdout(&["fold", path, "-e", "cpu"])),
        total(&stdout(&["fold", &file, "-e", "cpu", "--total"]))
    );
    let several = flightline(&["fold", path]);
    assert!(!several.status.success());
    let told = String::from_utf8_lossy(&several.stderr).into_owned();
    assert!(told.contains("-e") && told.contains("cpu") && told.contains("wall"), "{told}");
}

#[test]
fn multi_recording_page_does_not_depend_on_input_order() {
    let [a, b] = ["ap-native-cpu.jfr", "ap-native-lock.jfr"].map(recording);
    let drawn = |inputs: [&str; 2]| {
        stdout(&["flame", "--format", "html", "-o", "-", "--title", "both", inputs[0], inputs[1]])
    };
    let page = drawn([&a, &b]);
    assert!(page.contains("\"lanes\""), "the page has the times of samples");
    assert!(page == drawn([&b, &a]));
}

#[test]
fn conversion_preserves_threads_and_times() {
    let file = recording("ap-java-multichunk.jfr");
    let json = |args: &[&str]| -> Value {
        serde_json::from_str(&stdout(&[&["convert", &file, "--format"], args].concat())).unwrap()
    };
    let samples = total(&stdout(&["fold", &file]));
    let firefox = json(&["firefox"]);
    let threads = firefox["threads"].as_array().unwrap();
    let of = |thread: &Value| {
        thread["samples"]["weight"].as_array().unwrap().iter().map(|w| w.as_u64().unwrap()).sum()
    };
    let mut weights: Vec<u64> = threads.iter().map(of).collect();
    assert_eq!(weights.iter().sum::<u64>(), samples);
    assert!(weights.len() > 1);
    // The viewer shows the process's name for a main thread, but threads of a JVM have their own names.
    assert!(
        threads.iter().all(|thread| thread["isMainThread"] != true && thread["name"] != "main"),
        "{threads:?}"
    );
    let speedscope = json(&["speedscope"]);
    let profiles = speedscope["profiles"].as_array().unwrap();
    let mut ends: Vec<u64> = profiles.iter().map(|p| p["endValue"].as_u64().unwrap()).collect();
    weights.sort_unstable();
    ends.sort_unstable();
    assert_eq!(ends, weights, "the same threads, in the order of each tool");
    // Half of the time range contains the same samples in every format.
    let half = ["--from", "25%", "--to", "75%"];
    let folded = total(&stdout(&[&["fold", &file][..], &half].concat()));
    let some = json(&[&["speedscope"][..], &half].concat());
    let ends: u64 =
        some["profiles"].as_array().unwrap().iter().map(|p| p["endValue"].as_u64().unwrap()).sum();
    assert!(folded > 0 && folded < samples && ends == folded, "{folded} {ends} of {samples}");
    let chrome = json(&["chrome"]);
    let events = chrome["traceEvents"].as_array().unwrap();
    let boxes = events.iter().filter(|event| event["ph"] == "X");
    assert!(boxes.clone().count() > 0);
    assert!(
        boxes
            .clone()
            .all(|event| event["dur"].as_f64().unwrap() > 0.0 && event["ts"].as_f64().unwrap() >= 0.0)
    );
    // Stacks keep their depth, which exceeds the limit of this test's JSON parser.
    let d3 = stdout(&["convert", &file, "--format", "d3"]);
    assert!(d3.starts_with(&format!("{{\"name\":\"root\",\"value\":{samples},")), "{}", &d3[..80]);
}

#[test]
fn flame_chart_has_one_section_per_thread() {
    let file = recording("ap-java-multichunk.jfr");
    let svg = stdout(&[
        "flame",
        &file,
        "--format",
        "svg",
        "--flame-chart",
        "--only-thread",
        "cpu|crab|files|tid=19123",
    ]);
    let folded = stdout(&["fold", &file, "-t", "--only-thread", "cpu|crab|files|tid=19123"]);
    let samples = total(&folded);
    assert!(svg.contains(&format!("total_samples=\"{samples}\"")), "{samples}");
    let threads: BTreeMap<&str, u64> = folded.lines().fold(BTreeMap::new(), |mut sums, line| {
        let (thread, rest) = line.split_once(';').unwrap();
        *sums.entry(thread).or_default() += rest.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        sums
    });
    assert!(threads.len() > 1, "{folded}");
    for (thread, weight) in threads {
        assert!(svg.contains(&format!("<title>{thread} ({weight} samples")), "{thread} {weight}");
    }
    let refused = flightline(&["flame", &file, "--flame-chart", "-o", "x.html"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--flame-chart"));
}

/// Stacks and their weights.
fn stacks(folded: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for (stack, weight) in folded.lines().map(|line| line.rsplit_once(' ').unwrap()) {
        *stacks.entry(stack.to_owned()).or_default() += weight.parse::<u64>().unwrap();
    }
    stacks
}

#[test]
fn process_option_adds_process_as_root_frame() {
    let files = [recording("flightline.jfr"), recording("ap-native-cpu.jfr")];
    let fold = |more: &[&str]| stacks(&stdout(&[&["fold", &files[0], &files[1]], more].concat()));
    let (without, with) = (fold(&[]), fold(&["--process"]));
    let mut towers: BTreeMap<&str, u64> = BTreeMap::new();
    let mut bare: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, weight) in &with {
        let (process, rest) = stack.split_once(';').unwrap();
        *towers.entry(process).or_default() += weight;
        *bare.entry(rest.to_owned()).or_default() += weight;
    }
    assert_eq!(bare, without, "without their first frames they are the same stacks");
    let names: Vec<&str> = towers.keys().copied().collect();
    assert_eq!(names, ["[unknown process]", "burn (22396)"]);
    // Filtering by process leaves exactly its tower.
    let burn: u64 = fold(&["--process", "--only-process", "^burn "]).values().sum();
    assert_eq!(burn, towers["burn (22396)"]);
    assert!(burn > 0 && burn < without.values().sum());
    // The same for text with process frames.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.folded");
    std::fs::write(&path, "app-1;main;f 3\napp-2;main;f 4\n").unwrap();
    let text = |more: &[&str]| stdout(&[&["fold", path.to_str().unwrap()], more].concat());
    assert_eq!(text(&[]), "app-1;main;f 3\napp-2;main;f 4\n");
    assert_eq!(text(&["--focus", "^main$"]), "main;f 7\n");
}

#[test]
fn selection_options_agree_across_commands_and_inputs() {
    let file = recording("ap-java-cpu.jfr");
    let options = [
        "--focus",
        "Work",
        "--hide",
        "invoke",
        "--collapse-recursion",
        "--names",
        "simple",
        "--min-width",
        "2%",
    ];
    let folded = stdout(&[&["fold", &file][..], &options].concat());
    assert!(folded.lines().all(|line| line.starts_with("Work")), "{folded}");
    assert!(folded.contains("[thin]") && !folded.contains("Work.fib;Work.fib"), "{folded}");
    let converted = stdout(&[&["convert", &file, "--format", "folded"][..], &options].concat());
    assert_eq!(converted, folded);
    // The same for folded text, except for frame types, which no option here uses.
    let all = stdout(&["fold", &file]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_flightline"))
        .args(["fold", "-"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(all.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(), folded);
    let reversed = stdout(&["fold", &file, "--reverse", "-t"]);
    assert!(reversed.lines().all(|line| line.starts_with('[')), "threads stay below: {reversed}");
    assert_eq!(total(&reversed), total(&all));
    let modules = stdout(&["fold", &recording("ap-native-cpu.jfr"), "--group-by", "module"]);
    assert!(modules.lines().count() < 10 && modules.contains("libc.so.6"), "{modules}");
    for (option, value) in [("--from", "1"), ("--only-thread", "x"), ("--only-state", "x")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.folded");
        std::fs::write(&path, "a 1\n").unwrap();
        let refused = flightline(&["fold", path.to_str().unwrap(), option, value]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains(option));
    }
    assert!(
        String::from_utf8_lossy(&flightline(&["fold", &file, "--min-width", "3px"]).stderr)
            .contains("--min-width")
    );
    assert!(
        String::from_utf8_lossy(&flightline(&["convert", &file, "-o", "x.json"]).stderr).contains("--format")
    );
}
