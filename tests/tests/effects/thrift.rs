//! Samples summed up before they are written, and metrics about the recorder.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, programs, run, signal, spawn, until};
use flightline_tests::{victim, walls};
use serde_json::Value;

const EVENT_NS: u64 = 1_000_000;

#[test]
fn aggregated_samples_preserve_total_weight() {
    let _place = beside();
    let record = Record::new().option("--aggregate").option("1s");
    let metrics = record.folder().join("own.prom");
    let program = victim::c("known_answer", victim::OPTIMISED);
    let recorded =
        record.option("--metrics-file").option(metrics.as_os_str()).run(program, &["0.5"]).expect_code(0);
    let recording = recorded.read();
    assert!(recording.samples.is_empty(), "{:?}", recording.events);
    let sums = walls::wall_samples(&recorded.path);
    let mut by_tid: HashMap<u64, u64> = HashMap::new();
    for sum in &sums {
        assert_eq!(sum.state, "DEFAULT", "CPU time has this state in other readers");
        *by_tid.entry(sum.tid).or_default() += sum.samples * EVENT_NS;
    }
    let accounts: HashMap<u64, u64> = recording.ledger.iter().map(|l| (l.tid, l.sampled_ns)).collect();
    assert!(accounts.len() >= 5, "{accounts:?}");
    for (tid, sampled) in &accounts {
        let seen = by_tid.get(tid).copied().unwrap_or(0);
        // The random first part of a period, and rounding. The first thread has another account for the time
        // before it samples itself, with up to an event of its own.
        assert!(
            seen.abs_diff(*sampled) <= EVENT_NS * 5 / 2 + 1,
            "{tid}: {seen} ns in sums, {sampled} sampled"
        );
    }
    let all: u64 = sums.iter().map(|s| s.samples).sum();
    assert!(all >= 1000 && sums.len() as u64 * 3 < all, "{} sums of {all} samples", sums.len());
    // Time and weight are in the file twice: as the number of samples and as CPU time.
    let spans = walls::events(&recorded.path, "profiler.WallClockSample");
    assert!(spans.iter().all(|(_, values)| values["timeSpan"].is_string()), "{:?}", spans.first());
    // The program has debug information: lines would distinguish stacks of the same functions.
    let frames = spans.iter().flat_map(|(_, values)| values["stackTrace"]["frames"].as_array().unwrap());
    // For frames without a name only the offset is known.
    let nameless =
        |f: &&serde_json::Value| f["method"]["name"].as_str().is_some_and(|name| name.contains("+0x"));
    let lines: Vec<_> =
        frames.filter(|f| !nameless(f) && (f["lineNumber"] != 0 || f["bytecodeIndex"] != 0)).collect();
    assert!(lines.is_empty(), "{:?}", lines.first());
    // The functions' shares, compared with the ground truth: within five points for so few samples.
    let truth = recorded.truth();
    for name in ["alpha", "beta", "gamma_"] {
        let with: u64 = walls::sum(&sums, |s| s.stack.iter().any(|f| f == name));
        let (is, should) =
            (100.0 * with as f64 / all as f64, 100.0 * truth.functions[name] as f64 / truth.cpu_ns() as f64);
        assert!((is - should).abs() <= 5.0, "{name}: {is:.2} %, truly {should:.2} %");
    }

    let text = fs::read_to_string(&metrics).unwrap();
    let value = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(value("flightline_up{"), 0.0, "the last text says that it is over");
    let said = recorded.finished.stderr.split(" samples").next().and_then(|t| t.rsplit(' ').next()).unwrap();
    // The closing line counts events, as readers do. A sample may represent two: rounding causes that at most
    // twice per thread, a late timer more often. If the difference exceeds a fiftieth, the line has both
    // numbers.
    let (taken, events) = (value("flightline_samples_total{"), said.parse::<f64>().unwrap());
    let both = recorded.finished.stderr.contains(&format!("({taken} stacks sampled)"));
    let allowed = (2.0 * accounts.len() as f64).max(taken / 50.0);
    assert!(both || (events - taken).abs() <= allowed, "{taken} taken, {events} events");
    assert_eq!(value("flightline_written_bytes_total{"), fs::metadata(&recorded.path).unwrap().len() as f64);
    let sampled: u64 = accounts.values().sum();
    assert!((value("flightline_sampled_cpu_seconds_total{") - sampled as f64 / 1e9).abs() < 1e-6, "{text}");
    assert!(value("flightline_cost_cpu_seconds_total{") > 0.0 && value("flightline_signals_total{") > 0.0);
    let well_formed = |line: &str| line.starts_with("# ") || line.starts_with("flightline_");
    assert!(text.lines().all(well_formed) && text.ends_with('\n'), "{text}");
}

/// Inlined functions would make most stacks of a program different, so sums have them only on request.
#[test]
fn aggregated_samples_have_inlined_frames_only_on_request() {
    let _place = beside();
    let program = victim::c("inlined", victim::OPTIMISED);
    let frames = |options: &[&str]| -> Vec<(String, String, i64)> {
        let record =
            options.iter().fold(Record::new().option("--aggregate").option("1s"), |r, o| r.option(o));
        let recorded = record.run(program.clone(), &["0.5"]).expect_code(0);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let sums = walls::events(&recorded.path, "profiler.WallClockSample");
        let frames = sums.iter().flat_map(|(_, sum)| sum["stackTrace"]["frames"].as_array().unwrap());
        frames
            .map(|f| (text(&f["method"]["name"]), text(&f["type"]), f["lineNumber"].as_i64().unwrap()))
            .collect()
    };
    let plain = frames(&[]);
    assert!(plain.iter().any(|(name, ..)| name == "outer"), "{plain:?}");
    let told: Vec<_> = plain.iter().filter(|(_, kind, line)| kind == "Inlined" || *line != 0).collect();
    assert!(told.is_empty(), "{told:?}");
    let asked = frames(&["--aggregate-lines"]);
    for name in ["innermost", "middle"] {
        let told = |(is, kind, line): &(String, String, i64)| is == name && kind == "Inlined" && *line > 0;
        assert!(asked.iter().any(told), "{name}: {asked:?}");
    }
}

/// The unwritten sums of a killed recorder are recovered as sums, like all earlier ones.
#[test]
fn killed_recorder_aggregated_samples_are_recovered() {
    let _place = beside();
    let record = Record::new().option("--aggregate").option("1s").option("--flush").option("100ms");
    let program = victim::c("known_answer", victim::OPTIMISED);
    let mut recorder = spawn(&mut record.command(program, &["30"]));
    let limit = Duration::from_secs(60);
    let victim = until(limit, "the program", || programs(recorder.id()).first().copied());
    until(limit, "some sums", || fs::metadata(record.path()).ok().filter(|m| m.len() > 20_000).map(drop));
    signal(recorder.id(), libc::SIGKILL);
    signal(victim, libc::SIGKILL);
    recorder.wait().unwrap();
    let path = record.path();
    run(Command::new(victim::flightline()).arg("summary").arg(&path), limit).expect_success("summary");
    let recording = Recording::read(&path).unwrap();
    assert!(recording.samples.is_empty(), "{:?}", recording.events);
    assert!(recording.chunks >= 2, "the recovered one is a chunk of its own");
    assert!(!walls::wall_samples(&path).is_empty());
}
