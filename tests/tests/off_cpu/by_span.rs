//! Threads' time by span: events from outside the program and spans from within it in one recording, compared
//! with a program that reads its clocks whenever a span changes.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{Finished, beside, run, turn};
use flightline_tests::span_truth::{BY, attributed, known};
use flightline_tests::spans::{self, Span};
use flightline_tests::victim::{flightline, program};
use flightline_tests::{folded, skip};

const OFF: &str = "flightline.OffCpu";
const GRAPHS: [&str; 5] = ["offcpu", "wakeup", "offwake", "chain", "threadtime"];
const NO_SPAN: &str = "[no span]";
const LIMIT: Duration = Duration::from_secs(120);

fn command(graph: &str, path: &Path, options: &[&str]) -> Finished {
    run(Command::new(flightline()).arg(graph).arg(path).args(options).stdin(Stdio::null()), LIMIT)
}

#[track_caller]
fn lines(graph: &str, path: &Path, options: &[&str]) -> Vec<folded::Line> {
    let options = [options, &["--ns"]].concat();
    folded::parse(&command(graph, path, &options).expect_success(graph).stdout_text())
}

fn sum(lines: &[folded::Line]) -> u64 {
    lines.iter().map(|(_, value)| value).sum()
}

/// Sums by the first frame, of lines with a frame that starts with the prefix.
fn by_root(lines: &[folded::Line], with: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (stack, value) in lines.iter().filter(|(stack, _)| stack.iter().any(|frame| frame.starts_with(with)))
    {
        *sums.entry(stack[0].clone()).or_default() += value;
    }
    sums
}

/// The name that `--by` has here for a grouping of `flightline spans`.
fn by_here(by: &str) -> &str {
    if by == "name" { "span" } else { by }
}

fn record() -> Option<Recorded> {
    // SAFETY: only a query.
    if unsafe { libc::geteuid() } != 0 {
        skip::other_user("scheduler events of the whole machine are for root");
        return None;
    }
    let options =
        ["--off-cpu", "--wakeups", "--off-cpu-ring", "16m", "--off-cpu-stack", "1k", "--ring-size", "16M"];
    let record = options.iter().fold(Record::new().rate(99), |record, option| record.option(*option));
    Some(record.run(env!("CARGO_BIN_EXE_span_load"), &["2"]).expect_code(0))
}

/// Asserts the sums that hold whatever the machine's load.
fn sums_hold(path: &Path) {
    for graph in GRAPHS {
        for measure in [&[][..], &["--count"]] {
            let all = sum(&lines(graph, path, measure));
            for by in BY {
                let by = lines(graph, path, &[measure, &["--by", by_here(by)]].concat());
                assert_eq!(sum(&by), all, "{graph} {measure:?} by {by:?}");
            }
        }
        // A filter keeps the stacks on the selected spans and on spans within them, and reports how much it
        // left out.
        let by_name = by_root(&lines(graph, path, &["--by", "span"]), "");
        let by_endpoint = by_root(&lines(graph, path, &["--by", "endpoint"]), "");
        // Some spans wait only for a processor.
        let of = |name: &str| by_name.get(name).copied().unwrap_or(0);
        let only = |options: &[&str]| sum(&lines(graph, path, options));
        assert_eq!(only(&["--span", "commit"]), of("commit"), "{graph}");
        assert_eq!(only(&["--span", "parse"]), of("parse") + of("index"), "{graph}");
        assert_eq!(only(&["--span", "batch"]), by_endpoint["batch"], "{graph}");
        let of_trace = by_root(&lines(graph, path, &["--by", "trace"]), "");
        let (trace, value) = of_trace.iter().find(|(name, _)| name.len() == 32).unwrap();
        assert_eq!(only(&["--trace", trace]), *value, "{graph}");
        let of_label = by_root(&lines(graph, path, &["--by", "label=tenant"]), "");
        assert_eq!(only(&["--label", "tenant=t1"]), of_label["t1"], "{graph}");
        let told = command(graph, path, &["--span", "commit"]).stderr;
        assert!(told.contains(" are drawn: ") && told.contains(" %"), "{told}");
        let told = command(graph, path, &["--by", "span"]).stderr;
        assert!(told.contains(" are in spans: "), "{told}");
    }
}

#[test]
fn thread_time_is_attributed_to_correct_span() {
    let turn = turn();
    let Some(recorded) = record() else { return };
    let _place = turn.measured();
    print!("{}", recorded.finished.stderr);
    let (path, truth) = (&recorded.path, recorded.truth());
    // Spans without a sample are recorded too, by default.
    let mut counts: HashMap<String, u64> = HashMap::new();
    for span in spans::read(path, &["flightline.Span"]) {
        *counts.entry(span.field("name").to_owned()).or_default() += 1;
    }
    let lost: Vec<Span> = spans::read(path, &["flightline.EventLoss"]);
    let of_spans = |loss: &&Span| ["span", "scope"].contains(&loss.field("event"));
    assert!(!lost.iter().any(|loss| of_spans(&loss)), "{lost:?}");
    sums_hold(path);
    let stolen = recorded.stolen_ns as f64;
    let slices = spans::read(path, &[OFF]);
    let slices: Vec<f64> =
        slices.iter().map(|span| span.number("runQueue") as f64).filter(|queued| *queued > 0.0).collect();
    let slice = slices.iter().sum::<f64>() / slices.len().max(1) as f64;
    println!("{:.1} ms stolen, {:.2} ms preempted at a time", stolen / 1e6, slice / 1e6);
    let mut wrong = Vec::new();
    for by in BY {
        let time = lines("threadtime", path, &["--by", by_here(by)]);
        let [ran, queued, blocked] =
            ["[running]", "[runnable]", "[blocked: "].map(|what| by_root(&time, what));
        let of = |sums: &BTreeMap<String, u64>, key: &str| sums.get(key).copied().unwrap_or(0);
        let mut sums = [0.0; 2];
        println!("== by {by}");
        for (key, [count, cpu, _, off, waited, ..]) in known(&truth, by) {
            if by == "name" {
                assert_eq!(counts.get(&key).copied(), Some(count), "{key}");
            }
            let is = (of(&blocked, &key) + of(&queued, &key)) as f64;
            let (off, waited) = (off as f64, waited as f64);
            // A part of the runnable time lies between a change of spans and the program's own record of it.
            let aside = 0.05 * waited + 4.5 * (0.05 * waited * slice).sqrt();
            let blocked_for = (of(&blocked, &key) as f64, off - waited);
            // Time that interrupts and the hypervisor take from a running thread is in no account of
            // switches.
            let taken = 0.01 * cpu as f64 + stolen;
            // The scheduler's own account of waiting begins when a thread is enqueued, which may be after the
            // wake-up.
            let tolerance = [0.005 * off + aside + taken, 0.01 * blocked_for.1 + 3e6 + taken];
            let ms = |ns: f64| ns / 1e6;
            println!(
                "{key:32} off {:.1} (truly {:.1}), blocked {:.1} ({:.1})",
                ms(is),
                ms(off),
                ms(blocked_for.0),
                ms(blocked_for.1)
            );
            if (is - off).abs() > tolerance[0] || (blocked_for.0 - blocked_for.1).abs() > tolerance[1] {
                wrong.push(format!(
                    "{by} {key}: off {is}, not {off}; blocked {blocked_for:?} ± {tolerance:?}"
                ));
            }
            sums = [sums[0] + is, sums[1] + off];
        }
        // Time between two spans is in one of them.
        if (sums[0] - sums[1]).abs() > 0.005 * sums[1] + 4.0 * slice + stolen {
            wrong.push(format!("{by}: {sums:?} of all"));
        }
        // CPU time agrees with `flightline spans`, to the sample.
        let (rows, told) = attributed(path, by);
        for (key, row) in &rows {
            assert_eq!(of(&ran, key), row[1], "{by} {key}: {told}");
        }
        assert_eq!(of(&ran, NO_SPAN), told["outside"]["cpuNanos"].as_u64().unwrap(), "{told}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The contents of this recording are generated, so no privilege is needed.
#[test]
fn known_trace_is_split_exactly_by_span() {
    let _place = beside();
    const TRACE: &str = "00000000000000000000000000004bf9";
    const HARM: &str = "</script><img src=x onerror=\"document.title='harmed'\">{{script}}";
    const NAMELESS: &str = "[span without a name]";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.jfr");
    let mut write = Command::new(program("trace_recording"));
    run(write.arg(&path).args(["4", "off-cpu"]), LIMIT).expect_success("trace_recording");
    let ms = |sums: &[(&str, u64)]| -> BTreeMap<String, u64> {
        sums.iter().map(|(name, ms)| ((*name).to_owned(), ms * 1_000_000)).collect()
    };
    let sums = |graph: &str, options: &[&str], with: &str| by_root(&lines(graph, &path, options), with);
    let by_span = |with| sums("threadtime", &["--by", "span"], with);
    assert_eq!(by_span("[running]"), ms(&[("GET /cart", 30), ("hop", 40), (NAMELESS, 10)]));
    assert_eq!(by_span("[runnable]"), ms(&[(NO_SPAN, 20 + 20), (NAMELESS, 50)]));
    assert_eq!(by_span("[blocked: "), ms(&[("hop", 10), ("GET /cart", 20), (NO_SPAN, 10), (HARM, 90)]));
    let off = ms(&[("hop", 10), ("GET /cart", 20), (NO_SPAN, 30), (HARM, 90)]);
    for graph in ["offcpu", "offwake", "chain"] {
        assert_eq!(sums(graph, &["--by", "name"], ""), off, "{graph}");
    }
    let before = ms(&[("hop", 10), ("GET /cart", 20), (NO_SPAN, 10), (HARM, 90)]);
    assert_eq!(sums("wakeup", &["--by", "span"], ""), before);
    assert_eq!(sums("offcpu", &["--by", "span", "--run-queue"], ""), ms(&[(NO_SPAN, 40), (NAMELESS, 50)]));
    assert_eq!(sums("threadtime", &["--by", "endpoint"], ""), ms(&[(NO_SPAN, 50), ("GET /cart", 250)]));
    assert_eq!(sums("threadtime", &["--by", "trace"], ""), ms(&[(NO_SPAN, 50), (TRACE, 250)]));
    let by_label = ms(&[(NO_SPAN, 50), ("[none]", 160), (HARM, 90)]);
    assert_eq!(sums("threadtime", &["--by", "label=tenant"], ""), by_label);
    // Enclosed spans belong to the selected span.
    for (options, kept) in [
        (&["--span", "hop"][..], 10 + 40 + 90),
        (&["--span", "GET /cart"], 190),
        (&["--span", "hop", "--span", NAMELESS], 140 + 60),
        (&["--trace", TRACE], 250),
        (&["--trace", TRACE, "--span", "hop", "--state", "R,D", "-X", "running"], 90),
    ] {
        assert_eq!(sum(&lines("threadtime", &path, options)), kept * 1_000_000, "{options:?}");
    }
    let told = command("threadtime", &path, &["--span", "hop"]).stderr;
    assert!(told.contains("0.140 s of 0.300 s") && told.contains("46.7 %"), "{told}");
    // Both begin there.
    assert_eq!(sum(&lines("offcpu", &path, &["--span", "hop", "--count"])), 2);
    assert_eq!(sum(&lines("offcpu", &path, &["--by", "span", "--count", "--state", "all"])), 3);
    // The span is below the thread; with -t the thread is the root.
    let in_cart = |option: &str, at: usize| {
        let all = lines("offcpu", &path, &["--by", "span", option]);
        all.into_iter().find(|(stack, _)| stack[at] == "GET /cart").unwrap().0
    };
    let stack = in_cart("-U", 0);
    assert!(stack[1].starts_with("worker-7") && stack[2..] == ["main", "serve", "wait_for_it"], "{stack:?}");
    let stack = in_cart("-t", 1);
    assert!(stack[0].contains("tid") && stack[2..] == ["main", "serve", "wait_for_it"], "{stack:?}");
    let none = command("offcpu", &path, &["--span", "checkout"]);
    assert!(none.code() == 1 && none.stderr.contains("--span"), "{}", none.stderr);
    let page = folder.path().join("page.html");
    let drawn = command("threadtime", &path, &["--span", "hop", "-o", page.to_str().unwrap()]);
    drawn.expect_success("a page");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("46.7 % of all: 0.140 s of 0.300 s"), "the subtitle");
}

#[test]
fn missing_spans_are_reported() {
    let _place = beside();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let off_cpu: PathBuf = fixtures.join("off-cpu/off_cpu.jfr");
    for options in [&["--by", "span"][..], &["--span", "checkout"], &["--label", "a=b"]] {
        for graph in GRAPHS {
            let finished = command(graph, &off_cpu, options);
            assert!(finished.code() == 1 && finished.stderr.contains("off_cpu.jfr"), "{}", finished.stderr);
        }
    }
    let other = fixtures.join("recordings/flightline.jfr");
    let finished = command("threadtime", &other, &["--by", "span"]);
    assert!(finished.code() == 1 && finished.stderr.contains("--off-cpu"), "{}", finished.stderr);
    let wrong = command("threadtime", &off_cpu, &["--by", "tenant"]);
    assert!(wrong.code() == 2 && wrong.stderr.contains("label=KEY"), "{}", wrong.stderr);
    for graph in GRAPHS {
        let help = run(Command::new(flightline()).args([graph, "--help"]), LIMIT).expect_success(graph);
        let missing = ["--by <", "--span <", "--label <", "--trace <"];
        let missing: Vec<_> =
            missing.iter().filter(|option| !help.stdout_text().contains(**option)).collect();
        assert!(missing.is_empty(), "{graph}: {missing:?}");
    }
    // The share that a filter leaves is also reported for filters of frames.
    let part = command("offcpu", &off_cpu, &["-I", "wait_for"]).expect_success("-I");
    assert!(part.stderr.contains(" are drawn: "), "{}", part.stderr);
    let all = command("offcpu", &off_cpu, &[]).expect_success("all");
    assert!(!all.stderr.contains(" are drawn: "), "{}", all.stderr);
}
