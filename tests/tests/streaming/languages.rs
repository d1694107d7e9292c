//! The example readers in other languages, on the stream of a real program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use flightline_tests::canonical;
use flightline_tests::record::Record;
use flightline_tests::run::{beside, collect, run, spawn, wait};
use flightline_tests::skip;
use flightline_tests::victim::{self, flightline};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../consumer/examples").join(path)
}

/// The stream of a real program, and its samples.
fn stream() -> (Vec<u8>, Vec<String>) {
    let program = victim::c("ticking", victim::OPTIMISED);
    let done = run(&mut Record::new().output("-").command(&program, &["1500"]), LIMIT);
    let contents = canonical::of_stream(&done.stdout[..]).unwrap();
    assert_eq!(contents.warnings, Vec::<String>::new());
    assert!(contents.samples.len() > 500, "{}", contents.samples.len());
    (done.stdout, contents.samples)
}

/// The output of a program that gets these bytes as input.
#[track_caller]
fn fed(command: &mut Command, bytes: &[u8]) -> String {
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (out, err) = (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = thread::spawn(move || drop(input.write_all(&bytes)));
    let status = wait(&mut child, LIMIT, &format!("{command:?}"));
    writer.join().unwrap();
    let err = String::from_utf8_lossy(&err.join().unwrap()).into_owned();
    assert!(status.success(), "{command:?}: {err}");
    String::from_utf8(out.join().unwrap()).unwrap()
}

#[track_caller]
fn tail(args: &[&str], bytes: &[u8]) -> String {
    fed(Command::new(flightline()).args(["tail", "-"]).args(args), bytes)
}

#[test]
fn tail_objects_and_python_example_match_stream() {
    let _place = beside();
    let (stream, samples) = stream();
    let text = tail(&["--samples"], &stream);
    let mut found = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let object: Value = serde_json::from_str(line).unwrap();
        if n == 0 {
            assert_eq!((object["type"].as_str(), object["schema"].as_u64()), (Some("head"), Some(1)));
        }
        if object["event"] == "jdk.ExecutionSample" && object["type"] == "sample" {
            assert_eq!(object["kind"], "cpu");
            assert!(object["monotonic"].as_i64() > Some(0), "{line}");
            assert!(object["weight"]["samples"].as_u64() == Some(1), "{line}");
            assert!(object["thread"]["process"].as_str().unwrap().starts_with("ticking"), "{line}");
            let frames = object["stack"]["frames"].as_array().unwrap();
            assert!(frames.iter().all(|frame| frame["type"].is_string() && frame["line"] != 0), "{line}");
            let names: Vec<&str> = frames.iter().map(|frame| frame["function"].as_str().unwrap()).collect();
            let (time, tid) = (object["time"].as_i64().unwrap(), object["thread"]["osTid"].as_i64().unwrap());
            found.push((time, tid, names.last().unwrap_or(&"").to_string()));
        }
    }
    // Times and threads are the same as for other readers.
    let mut truth: Vec<(i64, i64)> = samples
        .iter()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            (fields[0].parse().unwrap(), fields[2].parse().unwrap())
        })
        .collect();
    let mut seen: Vec<(i64, i64)> = found.iter().map(|sample| (sample.0, sample.1)).collect();
    truth.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, truth);

    if !skip::have_python() {
        return;
    }
    let python = fed(Command::new("python3").arg(example("python/follow.py")), text.as_bytes());
    let last = python.lines().last().unwrap();
    assert!(last.starts_with(&format!("{} samples", samples.len())), "{python}");
    let functions: Vec<&str> = python.lines().map(|line| line.rsplit('\t').next().unwrap()).collect();
    assert!(functions.iter().take(3).any(|name| *name == "worker" || *name == "main"), "{python}");
}

#[test]
fn go_example_reads_all_stream_samples() {
    let _place = beside();
    let found = Command::new("go").arg("version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        skip::skip("no Go here");
        return;
    }
    let (stream, samples) = stream();
    let built = victim::target_dir().join("follow-go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&built).arg(".").current_dir(example("go"));
    run(&mut build, LIMIT).expect_success("go build");
    let text = fed(&mut Command::new(built), &stream);
    assert!(text.lines().last().unwrap().starts_with(&format!("{} samples", samples.len())), "{text}");
    assert!(
        text.lines().take(3).any(|line| line.ends_with("\tworker") || line.ends_with("\tmain")),
        "{text}"
    );
}

#[test]
fn tail_tables_and_flame_graph_match_stream() {
    let _place = beside();
    let (stream, samples) = stream();
    let table: Value =
        serde_json::from_str(tail(&["--top", "--json"], &stream).lines().last().unwrap()).unwrap();
    let own: u64 = table["functions"].as_array().unwrap().iter().map(|f| f["self"].as_u64().unwrap()).sum();
    assert!(own > 0 && own <= table["total"].as_u64().unwrap(), "{table}");
    let threads = tail(&["--per-thread", "--json"], &stream);
    let threads: Value = serde_json::from_str(threads.lines().last().unwrap()).unwrap();
    assert_eq!(threads["total"].as_u64(), Some(samples.len() as u64), "{threads}");
    // The program has two functions that do the same.
    assert!(threads["threads"].as_array().unwrap().len() >= 2, "{threads}");
    let flame = tail(&["--flame=8"], &stream);
    let rows: Vec<&str> = flame.lines().filter(|line| line.contains('▌')).collect();
    assert!(rows.len() > 1 && rows.iter().all(|row| row.chars().count() <= 100), "{flame}");
    assert!(flame.contains("worker") && !flame.contains('\x1b'), "{flame}");
    let events = tail(&["--ndjson", "--events", "ExecutionSample"], &stream);
    assert_eq!(events.lines().count(), samples.len());
}
