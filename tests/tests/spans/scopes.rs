//! Scopes: each sample of every engine has the labels of the task attempt in which it was taken, and no
//! others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_consumer::live::{Feed, Item, Options};
use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, run};
use flightline_tests::spans::{self, Span};
use flightline_tests::{skip, victim};
use serde_json::Value;

const CONTEXT: &str = "flightline.SampleContext";
const SAMPLES: [&str; 3] = ["jdk.ExecutionSample", "profiler.WallClockSample", "profiler.Malloc"];
const LIMIT: Duration = Duration::from_secs(60);
const NAMES: [&str; 4] = ["zero", "one", "two", "three"];

/// Labels by thread and time.
fn contexts(path: &Path) -> HashMap<(u64, i64), Value> {
    let labels = |context: &Span| match context.field("labels") {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap(),
    };
    let contexts = spans::read(path, &[CONTEXT]);
    contexts.into_iter().map(|c| ((c.tid, c.number("startTime")), labels(&c))).collect()
}

fn json(path: &Path, arguments: &[&str]) -> Value {
    let mut told = Command::new(victim::flightline());
    let told = run(told.args(arguments).arg(path), LIMIT).expect_success("flightline").stdout_text();
    serde_json::from_str(&told).unwrap()
}

/// Splits a function's name `in_task_2` into the place and the task.
fn place(name: &str) -> Option<(&str, usize)> {
    let (place, task) = name.strip_prefix("in_")?.rsplit_once('_')?;
    Some((place, task.parse().ok()?))
}

/// Asserts that a sample's labels match the function in its stack.
fn check(labels: &Value, place: &str, task: usize) {
    assert_eq!(labels["dag"], "dag_7", "{labels}");
    assert_eq!(labels["task"], format!("task_{task}"), "{labels}");
    assert_eq!(labels["only"], NAMES[task], "{labels}");
    assert_eq!(labels["step"].as_str(), (place == "step").then_some("sort"), "{labels}");
    assert_eq!(labels.as_object().unwrap().len(), if place == "step" { 5 } else { 4 }, "{labels}");
}

fn recorded(events: &str, rounds: &str) -> Recorded {
    let record = Record::new().option("-e").option(events);
    record.run(victim::program("scopes_victim"), &[rounds]).expect_code(0)
}

/// No tolerance at the edges: the functions are called within their scope, so every sample with one in its
/// stack must have the labels.
#[test]
fn parallel_attempt_labels_never_mix() {
    let _place = beside();
    let recorded = recorded("cpu@1ms,wall@2ms,alloc@4k", "12");
    let contexts = contexts(&recorded.path);
    let mut right: BTreeMap<String, u64> = BTreeMap::new();
    let mut attempts: BTreeMap<(usize, String), Vec<i64>> = BTreeMap::new();
    for sample in spans::read(&recorded.path, &SAMPLES) {
        let labels = contexts.get(&(sample.tid, sample.number("startTime")));
        let found = sample.frames.iter().find_map(|frame| place(&frame.method));
        let Some((place, task)) = found else {
            let of_task = labels.and_then(|labels| labels.get("task"));
            assert!(of_task.is_none() || !sample.has("in_no_task"), "{sample:?} {labels:?}");
            continue;
        };
        let labels = labels.unwrap_or_else(|| panic!("without labels: {sample:?}"));
        check(labels, place, task);
        *right.entry(format!("{place} {}", sample.event)).or_default() += 1;
        let number = labels["attempt"].as_str().unwrap().to_owned();
        attempts.entry((task, number)).or_default().push(sample.number("startTime"));
    }
    println!("{right:?}; samples of {} attempts", attempts.len());
    for place in ["task", "step"] {
        for event in SAMPLES {
            let seen = right.get(&format!("{place} {event}")).copied().unwrap_or(0);
            assert!(seen >= 20, "{seen} of {event} in {place}");
        }
    }
    assert_eq!(attempts.len(), 48, "{attempts:?}");

    // Each attempt is recorded once when it ends, with its labels, and all of its samples lie between its
    // begin and its end.
    let ended = spans::read(&recorded.path, &["flightline.Span"]);
    let mut told: BTreeMap<(usize, String), i64> = BTreeMap::new();
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for span in &ended {
        let labels: Value = serde_json::from_str(span.field("labels")).unwrap_or_default();
        let task = labels["only"].as_str().and_then(|only| NAMES.iter().position(|name| *name == only));
        match (span.field("name"), task, labels.get("step")) {
            ("scope", Some(task), None) => {
                check(&labels, "task", task);
                let number = labels["attempt"].as_str().unwrap().to_owned();
                assert!(
                    told.insert((task, number), span.number("samples")).is_none(),
                    "told twice: {labels}"
                );
            }
            (name, ..) => *others.entry(name).or_default() += 1,
        }
    }
    assert_eq!(told.keys().collect::<Vec<_>>(), attempts.keys().collect::<Vec<_>>());
    assert!(told.values().all(|samples| *samples > 0), "{told:?}");
    assert_eq!((others["job"], others["scope"]), (1, 49), "48 steps, and one of too many labels: {others:?}");

    // Readers of a live stream, and sums by label, give the same.
    let mut feed = Feed::new(Options::default());
    feed.push(&std::fs::read(&recorded.path).unwrap());
    feed.close();
    let mut cpu: BTreeMap<String, u64> = BTreeMap::new();
    while let Some(item) = feed.next() {
        let Item::Sample(sample) = item else { continue };
        let Some(context) = &sample.span else { continue };
        let frames = sample.stack.as_ref().map_or(&[][..], |stack| &stack.frames);
        let Some((_, task)) = frames.iter().find_map(|frame| place(&frame.function)) else { continue };
        assert_eq!(*context.labels["task"], format!("task_{task}"));
        *cpu.entry(context.labels["attempt"].to_string()).or_default() += 1;
    }
    assert_eq!(cpu.len(), 12, "{cpu:?}");
    let told = json(&recorded.path, &["spans", "--json", "--by", "label=task"]);
    // Losses on a busy machine are not recorded by label.
    let lost = told["counts"]["lost"].as_array().unwrap().iter();
    let lost: u64 = lost.filter_map(|lost| lost["cpuNanos"].as_u64()).sum();
    for task in 0..4 {
        let key = format!("task_{task}");
        let row = told["rows"].as_array().unwrap().iter().find(|row| row["key"] == key.as_str());
        // Twelve attempts of 3 + 3 + 2 + 1 + 1 ms, and the start and end of threads.
        let ns = row.and_then(|row| row["spent"]["cpuNanos"].as_u64()).unwrap_or(0);
        assert!(ns + lost >= 100_000_000 && ns < 240_000_000, "{key}: {ns} ns: {told}");
    }
}

/// Labels that do not fit are reported to the program, and in the recording next to those that fit.
#[test]
fn labels_beyond_capacity_are_reported() {
    let _place = beside();
    let recorded = recorded("cpu@1ms", "1");
    let text = recorded.finished.stdout_text();
    assert!(text.contains("attempts 4\n"), "{text}");
    let left_out = text.lines().find_map(|line| line.strip_prefix("flightline.labels_left_out ")).unwrap();
    // 14 of 42 bytes are 588.
    assert_eq!(left_out, "9986");
    let contexts = contexts(&recorded.path);
    let full: Vec<&Value> = contexts.values().filter(|labels| labels.get("key_0").is_some()).collect();
    assert!(full.len() >= 5, "{} samples", full.len());
    for labels in full {
        assert_eq!(labels["flightline.labels_left_out"], "9986");
        assert_eq!(labels.as_object().unwrap().len(), 15, "{labels}");
    }
}

/// Without a recorder the program does the same.
#[test]
fn scopes_have_no_effect_without_recorder() {
    let _place = beside();
    let finished = run(Command::new(victim::program("scopes_victim")).arg("1"), LIMIT);
    assert_eq!(
        finished.expect_success("the victim").stdout_text(),
        "attempts 4\nflightline.labels_left_out 0\n"
    );
}

/// The same from C: two threads at their attempts, one with help from a third, and invalid labels.
#[test]
fn c_scopes_label_samples() {
    let _place = beside();
    let include = format!("-I{}", preload().join("include").display());
    let program = victim::c("scopes_c", &["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", &include]);
    run(Command::new(&program).args(["1", "without"]), LIMIT).expect_success("without the library");
    let record = Record::new().option("-e").option("cpu@1ms");
    let recorded = record.run(program, &["15", "with"]).expect_code(0);
    let contexts = contexts(&recorded.path);
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for sample in spans::read(&recorded.path, &SAMPLES[..1]) {
        let functions = ["in_first", "in_second", "in_odd", "in_none"];
        let Some(function) = functions.into_iter().find(|name| sample.has(name)) else { continue };
        let labels = contexts.get(&(sample.tid, sample.number("startTime"))).unwrap_or(&Value::Null);
        *seen.entry(function).or_default() += 1;
        match function {
            "in_none" => assert_eq!(*labels, Value::Null, "{sample:?}"),
            "in_odd" => assert_eq!(*labels, odd_labels()),
            _ => assert_eq!(*labels, serde_json::json!({ "task": &function[3..], "attempt": "0" })),
        }
    }
    println!("{seen:?}");
    assert!(seen["in_first"] > 80 && seen["in_second"] > 40 && seen["in_odd"] > 8, "{seen:?}");
}

/// The examples, whose task has a helper on another thread.
#[test]
fn cpp_and_python_scopes_label_samples() {
    if !(skip::have_cpp() && skip::have_python()) {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("spans");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compiler.arg(format!("-I{}", preload().join("include").display())).arg("-o").arg(&program);
    compiler.arg(preload().join("examples/spans.cpp")).args(["-lpthread", "-ldl"]);
    run(&mut compiler, LIMIT).expect_success("g++");
    let python = preload().join("examples/spans.py");
    let python = python.to_str().unwrap();
    for (program, arguments) in
        [(program.as_path(), &["30000000"][..]), (Path::new("python3"), &[python, "300000"])]
    {
        let recorded = Record::new().option("-e").option("cpu@1ms").run(program, arguments).expect_code(0);
        let contexts = contexts(&recorded.path);
        let (mut by_thread, mut without) = (BTreeMap::new(), 0);
        for ((tid, _), labels) in &contexts {
            if labels["task"] != "charge" {
                without += 1;
                continue;
            }
            // On the thread that started it, in a span with a label of its own.
            let inherited = serde_json::json!({ "tenant": "acme", "task": "charge", "attempt": "0" });
            assert_eq!(*labels, inherited);
            *by_thread.entry(tid).or_insert(0) += 1;
        }
        println!("{by_thread:?}, {without} without");
        assert!(by_thread.len() == 2 && by_thread.values().all(|seen| *seen >= 5), "{by_thread:?}");
        assert!(without >= 5, "{without}");
    }
}

/// The labels that remain.
fn odd_labels() -> Value {
    let long = format!("{}…", "v".repeat(252));
    serde_json::json!({
        "none": "", "empty": "", "half": "a\u{fffd}", "control": "\u{1}\"\\\n", "long": long,
        "flightline.labels_left_out": "4"
    })
}

fn preload() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../recorder/preload")
}

/// A job as in Hive on Tez, recorded by itself and from outside. The slow attempt stands out, its stacks show
/// the reason, and the samples agree with every figure in the table of attempts.
#[test]
fn task_attempt_samples_match_job_table() {
    let _place = beside();
    let job = victim::example("task_attempts");
    let folder = tempfile::tempdir().unwrap();
    let (own, table) = (folder.path().join("own.jfr"), folder.path().join("tasks.csv"));
    let arguments = ["--size", "20000", "--events", "cpu@1ms"];
    let mut alone = Command::new(&job);
    alone.env("FLIGHTLINE_BIN", victim::flightline()).args(arguments).arg(&own).arg(&table);
    run(&mut alone, LIMIT).expect_success("the job");
    // A program that records itself finds threads within 10 ms of their start, which is most of a helper's
    // life.
    of_job(&own, &table, 1);
    a_recording_for_each(&own, &table);
    let table_name = table.to_str().unwrap();
    let outside =
        Record::new().option("-e").option("cpu@1ms").run(job, &["--size", "20000", "-", table_name]);
    of_job(&outside.expect_code(0).path, &table, 10);
}

/// The samples and spans of a recording by attempt; those without one are left out.
fn by_attempt(recording: &Path) -> BTreeMap<String, [usize; 2]> {
    let mut found: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let contexts = contexts(recording);
    for sample in spans::read(recording, &SAMPLES[..1]) {
        let labels = contexts.get(&(sample.tid, sample.number("startTime")));
        if let Some(attempt) = labels.and_then(|labels| labels["attempt"].as_str()) {
            found.entry(attempt.to_owned()).or_default()[0] += 1;
        }
    }
    for span in spans::read(recording, &["flightline.Span"]) {
        let labels: Value = serde_json::from_str(span.field("labels")).unwrap_or_default();
        if let Some(attempt) = labels["attempt"].as_str() {
            found.entry(attempt.to_owned()).or_default()[1] += 1;
        }
    }
    found
}

/// `cut --label` makes a recording for each attempt: together they have all of the samples, each exactly
/// once.
fn a_recording_for_each(recording: &Path, table: &Path) {
    let all = by_attempt(recording);
    let table = std::fs::read_to_string(table).unwrap();
    let part = recording.with_file_name("part.jfr");
    let cut = |label: &str| {
        let mut cut = Command::new(victim::flightline());
        cut.args(["cut", "--force", "--label", label, "-o"]).arg(&part).arg(recording);
        run(&mut cut, LIMIT)
    };
    let mut attempts = 0;
    for attempt in table.lines().skip(1).filter_map(|line| line.split(',').nth(3)) {
        cut(&format!("attempt={attempt}")).expect_success("cut");
        let (has, whole) = (by_attempt(&part), all[attempt]);
        assert_eq!(has, BTreeMap::from([(attempt.to_owned(), whole)]));
        // No sample without a context of its own. A sample that represents several periods is as many events
        // with one context.
        let samples = spans::read(&part, &SAMPLES[..1]);
        let moments: HashSet<_> = samples.iter().map(|s| (s.tid, s.number("startTime"))).collect();
        let told: HashSet<_> = contexts(&part).into_keys().collect();
        assert_eq!((samples.len(), moments), (whole[0], told));
        assert_eq!(
            spans::read(&part, &["flightline.SampleLoss"]).is_empty(),
            spans::read(recording, &["flightline.SampleLoss"]).is_empty()
        );
        attempts += 1;
    }
    assert_eq!((attempts, all.len()), (25, 25));
    let none = cut("attempt=none");
    assert_eq!(none.code(), 1);
    assert!(none.stderr.contains("`flightline spans --by label=attempt`"), "{}", none.stderr);
}

fn of_job(recording: &Path, table: &Path, least_helped: u64) {
    let table = std::fs::read_to_string(table).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let head = lines.next().unwrap();
    assert_eq!(
        head.join(" "),
        "application vertex task attempt host start_ms end_ms seconds state input_records"
    );
    let rows: HashMap<String, Vec<String>> = lines.map(|line| (line[3].clone(), line)).collect();
    assert_eq!(rows.len(), 25);
    let failed: Vec<&String> = rows.values().filter(|row| row[8] == "FAILED").map(|row| &row[3]).collect();
    assert_eq!(failed, ["attempt_1763856000000_0042_1_01_000005_0"]);
    let (contexts, mut samples) = (contexts(recording), HashMap::<String, [u64; 2]>::new());
    let mut helped = 0;
    for sample in spans::read(recording, &SAMPLES[..1]) {
        let labels = contexts.get(&(sample.tid, sample.number("startTime"))).unwrap_or(&Value::Null);
        // Rust's names are whole paths.
        let has = |name: &str| sample.has(&format!("task_attempts::{name}"));
        let vertex = match ["parse_pages", "sort_and_spill", "merge_partition"].map(has) {
            [true, ..] | [_, true, _] => "Map 1",
            [.., true] => "Reducer 2",
            _ => continue,
        };
        let row = &rows[labels["attempt"].as_str().unwrap_or_else(|| panic!("{labels}: {sample:?}"))];
        assert_eq!(labels["vertex"], vertex);
        for (at, key) in ["application", "vertex", "task", "attempt", "host"].iter().enumerate() {
            assert_eq!(labels[key], row[at]);
        }
        assert_eq!(labels["dag"], "dag_1763856000000_0042_1");
        assert_eq!(labels["session"], "session_1763856000000");
        assert_eq!(labels["step"].as_str(), has("fetch").then_some("fetch"));
        helped += u64::from(labels["step"] == "fetch");
        let of = samples.entry(row[3].clone()).or_default();
        of[usize::from(has("fits"))] += 1;
    }
    let [elsewhere, fitting] = samples["attempt_1763856000000_0042_1_00_000007_0"];
    println!(
        "{} attempts, {helped} samples by helpers; the slow one: {fitting} in fits, {elsewhere} elsewhere",
        samples.len()
    );
    assert!(fitting > 50 && fitting > 9 * elsewhere && helped >= least_helped, "{samples:?} {helped}");
    let told = json(recording, &["spans", "--json", "--by", "label=attempt"]);
    let mut spent: Vec<(u64, &str)> = told["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["key"].as_str().is_some_and(|key| key.starts_with("attempt_")))
        .map(|row| (row["spent"]["cpuNanos"].as_u64().unwrap(), row["key"].as_str().unwrap()))
        .collect();
    spent.sort();
    let [.., second, first] = spent[..] else { panic!("{told}") };
    assert_eq!(first.1, "attempt_1763856000000_0042_1_00_000007_0");
    assert!(first.0 > 3 * second.0, "{first:?} {second:?}");
    // Each attempt is recorded when it ends, with or without samples.
    let ended = spans::read(recording, &["flightline.Span"]);
    let slow = ended.iter().find(|span| span.field("labels").contains("1_00_000007_0"));
    let counted = slow.map_or(0, |span| span.number("samples"));
    assert!(counted >= (fitting / 2) as i64, "{counted} samples counted, {fitting} in one function");
    let mut attempts: Vec<String> = ended
        .iter()
        .filter_map(|span| serde_json::from_str::<Value>(span.field("labels")).ok())
        .filter(|labels| labels.get("step").is_none())
        .filter_map(|labels| labels["attempt"].as_str().map(str::to_owned))
        .collect();
    attempts.sort();
    let mut all: Vec<&String> = rows.keys().collect();
    all.sort();
    assert_eq!(attempts.iter().collect::<Vec<_>>(), all);
}
