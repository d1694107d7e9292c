//! A thread's context as others read it: at each instruction of entering, labelling and leaving, from a
//! handler at 10 kHz, in thousands of threads, and through C++ and Python.
//!
//! `CONTEXT_ROUNDS` is the number of rounds of three spans under the timer; `.ci/long contexts` has more.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_context::record::{self, OwnedRecord, SIDE_CAR_BEFORE};
use flightline_tests::contexts::{NOTHING, ROUND, State, state};
use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, run, spawn};
use flightline_tests::spans::{self, Span};
use flightline_tests::stepping::freeze;
use flightline_tests::{skip, victim};

fn target_program() -> PathBuf {
    victim::program("context_victim")
}
const LIMIT: Duration = Duration::from_secs(120);

fn numbers(arguments: &[&str]) -> Vec<u64> {
    let finished = run(Command::new(target_program()).args(arguments), LIMIT).expect_success("the victim");
    finished.stdout_text().split_whitespace().map(|n| n.parse().unwrap()).collect()
}

#[test]
fn context_is_old_or_new_at_each_instruction() {
    let _place = beside();
    let mut child = spawn(Command::new(target_program()).arg("step").stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let slot = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap();
    let memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
    let look = |step: usize| -> State {
        let mut pointer = [0; 8];
        memory.read_exact_at(&mut pointer, slot).unwrap();
        let record = u64::from_ne_bytes(pointer);
        let mut held = [0; size_of::<OwnedRecord>()];
        let found = (record != 0).then(|| {
            memory.read_exact_at(&mut held, record - SIDE_CAR_BEFORE as u64).unwrap();
            &held
        });
        let span_at = |at: u64| {
            let mut id = [0; 8];
            memory.read_exact_at(&mut id, at + offset_of!(record::Record, span_id) as u64).unwrap();
            id
        };
        state(found, span_at).unwrap_or_else(|| panic!("torn at step {step}: {:x?}", &held[..100]))
    };
    let mut threads = freeze(child.id());
    let thread = &mut threads[0];
    let (mut now, mut changes, mut step) = (look(0), Vec::new(), 0);
    // From the begin of a complete round to the end of the third one after it.
    while changes.iter().filter(|state| **state == NOTHING).count() < 4 {
        assert!(thread.step(), "the victim is gone");
        step += 1;
        assert!(step < 1_000_000, "{changes:?}");
        let next = look(step);
        if next != now {
            changes.push(next);
            now = next;
        }
    }
    drop(threads);
    child.kill().unwrap();
    child.wait().unwrap();
    let first = changes.iter().position(|state| *state == NOTHING).unwrap();
    for round in changes[first + 1..].split_inclusive(|state| *state == NOTHING) {
        assert_eq!((&round[..7], round[7]), (&ROUND[..], NOTHING));
    }
    println!("{step} instructions, {} changes", changes.len());
}

#[test]
fn context_is_consistent_in_signal_handler() {
    let _place = beside();
    let rounds = std::env::var("CONTEXT_ROUNDS").unwrap_or_else(|_| "300000".into());
    let [done, looks, met, wrong, us] = numbers(&["signals", &rounds])[..] else { panic!() };
    let rate = looks * 1_000_000 / us.max(1);
    println!(
        "{} entered and left in {} ms, {looks} looks ({rate} a second), {met} met one, {wrong} wrong",
        3 * done,
        us / 1000
    );
    assert_eq!((done.to_string(), wrong), (rounds, 0));
    assert!(met > 0 && met <= looks);
}

/// Samples a program that enters and leaves `2 * rounds` spans, at 10 kHz; returns the number of samples in
/// functions of a trace, and of others. Each sample in a function of a trace must be in that trace.
fn traces_of_functions(recorded: &Recorded) -> (usize, usize) {
    const CONTEXT: &str = "flightline.SampleContext";
    let contexts = spans::read(&recorded.path, &[CONTEXT]);
    let contexts: HashMap<(u64, i64), Span> =
        contexts.into_iter().map(|c| ((c.tid, c.number("startTime")), c)).collect();
    let trace_of = |context: &Span| -> u8 {
        let [high, low] = ["traceIdHi", "traceIdLo"].map(|half| context.number(half).to_be_bytes());
        assert_eq!((high, low), ([high[0]; 8], [high[0]; 8]), "torn: {context:?}");
        high[0] - 1
    };
    let (mut inside, mut elsewhere) = (0, 0);
    for sample in spans::read(&recorded.path, &["jdk.ExecutionSample"]) {
        let context = contexts.get(&(sample.tid, sample.number("startTime")));
        let trace = context.map(trace_of);
        let function = sample.frames.iter().find_map(|frame| frame.method.strip_prefix("in_span_"));
        match function.map(|number| number.parse::<u8>().unwrap()) {
            Some(number) => {
                assert_eq!(trace, Some(number), "{sample:?} {context:?}");
                inside += 1;
            }
            None => elsewhere += 1,
        }
    }
    (inside, elsewhere)
}

/// `CONTEXT_SPANS` spans; `.ci/long contexts` has more.
#[test]
fn no_sample_is_attributed_to_another_trace() {
    let _place = beside();
    let spans: u64 = std::env::var("CONTEXT_SPANS").map_or(1_000_000, |n| n.parse().unwrap());
    let rounds = (spans / 2).to_string();
    let recorded = Record::new().rate(10_000).run(target_program(), &["functions", &rounds]).expect_code(0);
    let (inside, elsewhere) = traces_of_functions(&recorded);
    let cpu_ms = recorded.read().samples.len() / 10;
    println!(
        "{spans} spans in {cpu_ms} ms: {inside} samples in functions of traces, {elsewhere} elsewhere, none wrong"
    );
    print!("{}", recorded.finished.stderr);
    assert!(inside > 500, "{inside} {elsewhere}");
}

/// T18 of the scenarios: more ends of spans than the recorder can process.
#[test]
fn spans_beyond_ring_capacity_are_counted_as_lost() {
    let _place = beside();
    let record = Record::new().rate(10_000).option("--spans").option("all");
    let recorded = record
        .option("--ring-size")
        .option("64K")
        .run(target_program(), &["functions", "400000"])
        .expect_code(0);
    let (inside, _) = traces_of_functions(&recorded);
    assert!(inside > 20, "{inside} samples are left");
    let mut lost: HashMap<String, i64> = HashMap::new();
    for loss in spans::read(&recorded.path, &["flightline.EventLoss"]) {
        *lost.entry(loss.field("event").to_owned()).or_default() += loss.number("count");
    }
    let events = recorded.read().events;
    // Each end is recorded or counted as lost.
    for (of, event) in [("span", "flightline.Span"), ("scope", "flightline.SpanScope")] {
        let told = events.get(event).copied().unwrap_or(0) as i64;
        assert!(lost[of] > 0, "{lost:?}");
        assert_eq!(told + lost[of], 800_000, "{of}: {lost:?}");
    }
    let mut command = Command::new(victim::flightline());
    command.args(["spans", "--json", "--inferred", "--by", "trace"]).arg(&recorded.path);
    let told = run(&mut command, LIMIT).expect_success("spans");
    for what in ["span ends were lost", "span activations were lost"] {
        assert!(told.stderr.contains(what), "{}", told.stderr);
    }
    let told: serde_json::Value = serde_json::from_str(&told.stdout_text()).unwrap();
    for loss in told["counts"]["lost"].as_array().unwrap() {
        let of = loss["of"].as_str().unwrap();
        if let Some(lost) = lost.get(of) {
            assert_eq!(loss["count"].as_i64(), Some(*lost), "{of}");
        }
    }
    // Samples are still in their traces.
    let rows = told["rows"].as_array().unwrap();
    let traces = rows.iter().filter(|row| row["key"].as_str().is_some_and(|key| key.len() == 32)).count();
    assert_eq!(traces, 16, "{rows:?}");
    println!("{lost:?}; {} inferred, {}", told["inferred"].as_array().unwrap().len(), told["counts"]);
}

#[test]
fn contexts_are_correct_in_many_threads() {
    let _place = beside();
    let [entered, wrong] = numbers(&["threads", "4096", "20"])[..] else { panic!() };
    assert_eq!((entered, wrong), (4096 * 21, 0));
}

/// The same program with and without a library in the process.
#[test]
fn cpp_and_python_contexts_work_with_and_without_recorder() {
    let _place = beside();
    if !(skip::have_cpp() && skip::have_python()) {
        return;
    }
    let preload = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recorder/preload");
    let examples = preload.join("examples");
    let include = format!("-I{}", preload.join("include").display());
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("spans");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", &include, "-o"]);
    compiler.arg(&program).arg(examples.join("spans.cpp")).args(["-lpthread", "-ldl"]);
    run(&mut compiler, LIMIT).expect_success("g++");
    let mut python = Command::new("python3");
    python.arg(examples.join("spans.py"));
    let library = victim::flightline().with_file_name("libflightline.so");
    for command in [&mut Command::new(program), &mut python] {
        let ids = |command: &mut Command| -> Vec<(String, String)> {
            let finished = run(command.arg("10"), LIMIT).expect_success("the example");
            let text = finished.stdout_text();
            let words = |line: &str| {
                let (where_, rest) = line.split_once(' ').unwrap();
                (where_.to_owned(), rest.rsplit(' ').next().unwrap().to_owned())
            };
            text.lines().map(words).collect()
        };
        let none = "0".repeat(16);
        let without = ids(command);
        assert_eq!(without.iter().filter(|(_, id)| *id == none).count(), without.len(), "{without:?}");
        let with = ids(command.env("LD_PRELOAD", &library));
        let places: Vec<&str> = with.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["before", "checkout", "charge", "checkout", "thread", "after"]);
        let id = |i: usize| with[i].1.as_str();
        assert_eq!([id(0), id(5)], [none.as_str(); 2]);
        assert!(id(1) != none && id(2) != none && id(1) != id(2), "{with:?}");
        assert_eq!([id(3), id(4)], [id(1); 2], "the outer one again, and on another thread");
    }
}
