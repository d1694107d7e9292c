//! Graphs of off-CPU time from the command line agree with the recording's events to the nanosecond, in bcc's
//! format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::recording::Frame;
use flightline_tests::run::{Finished, beside, run};
use flightline_tests::spans::{self, Span};
use flightline_tests::victim::{self, OPTIMISED, flightline};
use flightline_tests::{folded, skip};

const OFF: &str = "flightline.OffCpu";
const GRAPHS: [&str; 5] = ["offcpu", "wakeup", "offwake", "chain", "threadtime"];
const LIMIT: Duration = Duration::from_secs(120);

/// `tests/victims/off_cpu.c 12 10`, recorded by `flightline record --off-cpu --wakeups --off-cpu-stack 2k -F 499`.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/off-cpu/off_cpu.jfr")
}

fn command(graph: &str, path: &Path, options: &[&str]) -> Finished {
    run(Command::new(flightline()).arg(graph).arg(path).args(options).stdin(Stdio::null()), LIMIT)
}

/// Lines of a graph of the fixture.
#[track_caller]
fn lines(graph: &str, options: &[&str]) -> Vec<folded::Line> {
    lines_of(&fixture(), graph, options)
}

#[track_caller]
fn lines_of(path: &Path, graph: &str, options: &[&str]) -> Vec<folded::Line> {
    folded::parse(&command(graph, path, options).expect_success(graph).stdout_text())
}

fn sum(lines: &[folded::Line]) -> u64 {
    lines.iter().map(|(_, value)| value).sum()
}

/// Sums by the first frame.
fn by_root(lines: &[folded::Line]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    lines.iter().for_each(|(stack, value)| *sums.entry(stack[0].clone()).or_default() += value);
    sums
}

fn blocked(span: &Span) -> bool {
    !span.field("state").starts_with('R')
}

fn nanos(span: &Span) -> u64 {
    span.number("nanos") as u64
}

fn run_queue(span: &Span) -> u64 {
    span.number("runQueue") as u64
}

fn by_thread(all: &[Span], of: impl Fn(&Span) -> u64) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    all.iter().for_each(|span| *sums.entry(span.thread.clone()).or_default() += of(span));
    sums.retain(|_, value| *value > 0);
    sums
}

/// Asserts that the graphs agree with the events.
#[track_caller]
fn agree(path: &Path, all: &[Span]) {
    let ns = |graph: &str, options: &[&str]| lines_of(path, graph, &[options, &["--ns"]].concat());
    let of_blocked = |of: fn(&Span) -> u64| by_thread(all, |span| if blocked(span) { of(span) } else { 0 });
    let of_others = by_thread(all, |span| if blocked(span) { 0 } else { nanos(span) });
    let off = of_blocked(nanos);
    for (graph, state) in [("offcpu", "blocked"), ("offwake", "blocked"), ("chain", "blocked")] {
        assert_eq!(by_root(&ns(graph, &["--state", state])), off, "{graph}");
        assert_eq!(by_root(&ns(graph, &[])), off, "{graph}");
    }
    if !of_others.is_empty() {
        assert_eq!(by_root(&ns("offcpu", &["--state", "R"])), of_others);
    }
    assert_eq!(by_root(&ns("offcpu", &["--state", "all"])), by_thread(all, nanos));
    assert_eq!(by_root(&ns("offcpu", &["--state", "all", "--count"])), by_thread(all, |_| 1));
    // A sleep is the time before the wake-up, and then comes the wait for a processor.
    let wakeup = ns("wakeup", &[]);
    let mut by_sleeper = BTreeMap::new();
    for (stack, value) in &wakeup {
        *by_sleeper.entry(stack.last().unwrap().clone()).or_insert(0) += value;
    }
    by_sleeper.retain(|_, value| *value > 0);
    assert_eq!(by_sleeper, of_blocked(|span| nanos(span) - run_queue(span)));
    let queued = by_root(&ns("offcpu", &["--run-queue"]));
    assert_eq!(queued, by_thread(all, |span| if blocked(span) { run_queue(span) } else { nanos(span) }));
    let total: u64 = off.values().sum();
    let waited: u64 = of_blocked(run_queue).values().sum();
    assert_eq!(sum(&wakeup) + waited, total);
    // Its total, too, is the threads' time.
    let time = ns("threadtime", &["-X", r"^\[running\]$"]);
    assert_eq!(by_root(&time), by_thread(all, nanos));
}

#[test]
fn graphs_match_events() {
    let _place = beside();
    let all = spans::read(&fixture(), &[OFF]);
    assert!(all.len() > 100 && all.iter().any(|span| !blocked(span)), "{}", all.len());
    agree(&fixture(), &all);
}

fn names<'a>(frames: impl Iterator<Item = &'a Frame>) -> Vec<String> {
    frames.map(|frame| frame.method.clone()).collect()
}

fn split(frames: &[Frame]) -> (&[Frame], &[Frame]) {
    frames.split_at(frames.iter().take_while(|frame| frame.class == "kernel").count())
}

/// `user root … leaf;-;kernel root … leaf`
fn upward(frames: &[Frame]) -> Vec<String> {
    let (kernel, user) = split(frames);
    let mut out = names(user.iter().rev());
    if !kernel.is_empty() && !user.is_empty() {
        out.push("-".into());
    }
    out.extend(names(kernel.iter().rev()));
    out
}

/// Lines in the format of bcc's tools, derived from the events by the description in its documents.
#[test]
fn folded_lines_have_bcc_format() {
    let _place = beside();
    let mut all = spans::read(&fixture(), &[OFF]);
    all.retain(blocked);
    // Stacks without a root begin with `[truncated]`.
    let cut = |line: &(Vec<String>, u64)| line.0.iter().any(|frame| frame == "[truncated]");
    // A thread without a name yet is drawn with its TID.
    all.retain(|span| !span.truncated && !span.field("wakerThread").is_empty());
    type Shape = fn(&Span) -> Vec<String>;
    type Weight = fn(&Span) -> u64;
    let shapes: [(&str, Shape, Weight); 3] = [
        ("offcpu", |span| [vec![span.thread.clone()], upward(&span.frames)].concat(), nanos),
        (
            "wakeup",
            |span| {
                let waker = vec![span.field("wakerThread").to_owned()];
                [waker, upward(&span.waker_frames), vec![span.thread.clone()]].concat()
            },
            |span| nanos(span) - run_queue(span),
        ),
        (
            "offwake",
            |span| {
                let mut waker = upward(&span.waker_frames);
                waker.reverse();
                let ends = vec![span.field("wakerThread").to_owned()];
                let sleeper = [vec![span.thread.clone()], upward(&span.frames)].concat();
                [sleeper, vec!["--".into()], waker, ends].concat()
            },
            nanos,
        ),
    ];
    for (graph, shape, value) in shapes {
        let mut expected = BTreeMap::new();
        all.iter().for_each(|span| *expected.entry(shape(span)).or_insert(0) += value(span));
        assert!(expected.len() >= 6, "{graph}: {expected:?}");
        let exact: BTreeMap<_, _> = lines(graph, &["-d", "--ns"]).into_iter().collect();
        let micros: BTreeMap<_, _> = lines(graph, &["-d"]).into_iter().filter(|line| !cut(line)).collect();
        for (stack, value) in expected {
            assert_eq!(exact.get(&stack), Some(&value), "{graph}: {}", stack.join(";"));
            assert_eq!(micros.get(&stack), Some(&((value + 500) / 1000)), "{graph}: {}", stack.join(";"));
        }
    }
}

/// Names of threads and `[irq]` along a chain, the sleeper first.
fn links(stack: &[String]) -> Vec<&str> {
    let parts = stack.split(|frame| frame == "--");
    parts.enumerate().map(|(at, part)| if at == 0 { &*part[0] } else { &**part.last().unwrap() }).collect()
}

/// The weight of c1 that a timer caused through c3 and c2, and the total of c1.
fn chain_of_c1(lines: &[folded::Line]) -> (u64, u64) {
    let of_c1: Vec<_> = lines.iter().filter(|(stack, _)| stack[0] == "c1").cloned().collect();
    let caused = of_c1.iter().filter(|(stack, _)| {
        let sleeping = stack.split(|frame| frame == "--").next().unwrap();
        let has = |name: &str| stack.iter().any(|frame| frame == name);
        links(stack) == ["c1", "c2", "c3", "[irq]"]
            && sleeping.iter().any(|frame| frame == "wait_for")
            && has("hand_over")
            && has("hrtimer_interrupt")
    });
    (caused.map(|(_, value)| value).sum(), sum(&of_c1))
}

#[test]
fn waker_chain_is_followed_to_timer() {
    let _place = beside();
    let chains = lines("chain", &["-d"]);
    let (caused, all) = chain_of_c1(&chains);
    assert!(caused * 2 > all, "{caused} of {all}");
    // The stack that an interrupt preempted is left out, however many threads it affected.
    let ends = |(stack, _): &folded::Line| stack.iter().position(|frame| frame == "[irq]");
    assert!(chains.iter().all(|line| ends(line).is_none_or(|at| at + 1 == line.0.len())));
    assert!((8..=40).contains(&chains.len()), "{} chains", chains.len());
    for depth in 1..=4 {
        let levels = lines("chain", &["--depth", &depth.to_string(), "--ns"]);
        let most = levels.iter().map(|(stack, _)| links(stack).len() - 1).max();
        assert_eq!(most, Some(depth.min(3)), "--depth {depth}");
        assert_eq!(sum(&levels), sum(&lines("offcpu", &["--ns"])));
    }
    let nearest = lines("chain", &["--depth", "1", "--ns"]);
    assert_eq!(nearest, lines("offwake", &["--ns"]));
}

#[test]
fn graph_options_select_expected_intervals() {
    let _place = beside();
    let all = spans::read(&fixture(), &[OFF]);
    let total =
        |chosen: &dyn Fn(&Span) -> bool| all.iter().filter(|span| chosen(span)).map(nanos).sum::<u64>();
    let ns = |options: &[&str]| lines("offcpu", &[options, &["--ns"]].concat());
    // States by letters, numbers and names.
    for (state, letters) in [
        ("S", "S"),
        ("1", "S"),
        ("R", "R"),
        ("0", "R"),
        ("S,R", "SR"),
        ("blocked", "SDTtXZPI"),
        ("all", "RSDTtXZPI"),
    ] {
        let of = |span: &Span| letters.contains(&span.field("state")[..1]);
        assert_eq!(sum(&ns(&["--state", state])), total(&of), "--state {state}");
    }
    let none = command("offcpu", &fixture(), &["--state", "t"]);
    assert!(none.code() == 1 && none.stderr.contains("--state"), "{}", none.stderr);
    let wrong = command("offcpu", &fixture(), &["--state", "Q"]);
    assert!(wrong.code() != 0 && wrong.stderr.contains("S,D"), "{}", wrong.stderr);
    // Limits are inclusive.
    let mut lengths: Vec<u64> = all.iter().filter(|span| blocked(span)).map(nanos).collect();
    lengths.sort_unstable();
    let (least, most) = (lengths[lengths.len() / 4], lengths[lengths.len() * 3 / 4]);
    let within = ns(&["-m", &format!("{least}ns"), "-M", &format!("{most}ns")]);
    assert_eq!(sum(&within), total(&|span| blocked(span) && (least..=most).contains(&nanos(span))));
    assert_eq!(ns(&["-m", "5000"]), ns(&["--min", "5ms"]));
    // Parts of stacks.
    let plain = lines("offcpu", &[]);
    let (user, kernel) = (lines("offcpu", &["-U"]), lines("offcpu", &["-K"]));
    let has =
        |lines: &[folded::Line], name: &str| lines.iter().any(|(stack, _)| stack.iter().any(|f| f == name));
    for (lines, program, system) in [(&plain, true, true), (&user, true, false), (&kernel, false, true)] {
        assert_eq!((has(lines, "wait_for"), has(lines, "futex_wait")), (program, system));
    }
    assert!(has(&lines("offcpu", &["-d"]), "-") && !has(&plain, "-"));
    // A sleeping thread waits only for time; a thread that waits for a futex or a pipe does not.
    let busy = command("offcpu", &fixture(), &["--hide-idle"]).expect_success("--hide-idle");
    assert!(busy.stderr.contains("of idle waits are omitted"), "{}", busy.stderr);
    let busy = folded::parse(&busy.stdout_text());
    assert!(!has(&busy, "rest") && has(&busy, "wait_for") && has(&plain, "rest"));
    // By count.
    assert_eq!(sum(&lines("offcpu", &["--count"])), all.iter().filter(|span| blocked(span)).count() as u64);
    // Threads, frames, times.
    assert_eq!(by_root(&ns(&["--only-thread", r"^\[c[12] "])).keys().collect::<Vec<_>>(), ["c1", "c2"]);
    assert_eq!(
        sum(&ns(&["-I", "hand_over|wait_for"])) + sum(&ns(&["-X", "hand_over|wait_for"])),
        sum(&ns(&[]))
    );
    assert!(ns(&["-I", "wait_for"]).iter().all(|(stack, _)| stack.iter().any(|f| f == "wait_for")));
    let (early, late) = (sum(&ns(&["--to", "0.2"])), sum(&ns(&["--from", "0.2"])));
    assert!(early > 0 && late > 0 && early + late == sum(&ns(&[])), "{early} {late}");
    assert!(lines("offcpu", &["-t"])[0].0[0].contains("tid"), "{:?}", lines("offcpu", &["-t"])[0]);
    // Both spinning threads took turns; each has its own name.
    assert_eq!(
        sum(&ns(&["--state", "R", "--only-thread", "spin"])),
        total(&|span| span.thread.starts_with("spin"))
    );
    assert_eq!(sum(&ns(&["--per-thread"])), sum(&ns(&[])) - shared(&all));
}

/// The ns that `--per-thread` loses by rounding: threads of one name are rounded separately.
fn shared(all: &[Span]) -> u64 {
    let mut sums: BTreeMap<(&str, Vec<String>), BTreeMap<u64, u64>> = BTreeMap::new();
    let mut threads: BTreeMap<&str, std::collections::BTreeSet<u64>> = BTreeMap::new();
    for span in all.iter().filter(|span| blocked(span)) {
        let stack = names(span.frames.iter());
        *sums.entry((&span.thread, stack)).or_default().entry(span.tid).or_default() += nanos(span);
        threads.entry(&span.thread).or_default().insert(span.tid);
    }
    let part = |name: &str, value: u64| {
        let count = threads[name].len() as u64;
        (value + count / 2) / count
    };
    sums.iter().flat_map(|((name, _), of)| of.values().map(|&value| value - part(name, value))).sum()
}

/// Damage is reported in words by every command.
#[test]
fn damaged_recordings_are_reported_without_panic() {
    let _place = beside();
    let whole = std::fs::read(fixture()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.jfr");
    let mut at = 0x9e37_79b9_u64;
    for round in 0..25 {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let position = (at >> 33) as usize % whole.len();
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes.truncate(position),
            1 => bytes[position] ^= 1 << (round % 8),
            _ => bytes[position..].iter_mut().take(40).for_each(|byte| *byte = 0xff),
        }
        std::fs::write(&path, &bytes).unwrap();
        let finished = command(GRAPHS[round % GRAPHS.len()], &path, &[]);
        assert!((0..=2).contains(&finished.code()), "{round}, {position}: {}", finished.stderr);
        assert!(!finished.stderr.contains("panicked"), "{round}, {position}: {}", finished.stderr);
        assert!(finished.code() == 0 || !finished.stderr.is_empty(), "{round}, {position}");
    }
    // A recording without such events.
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/flightline.jfr");
    for graph in GRAPHS {
        let finished = command(graph, &other, &[]);
        assert!(finished.code() == 1 && finished.stderr.contains("--off-cpu"), "{}", finished.stderr);
    }
}

#[test]
fn all_graphs_are_drawn_as_svg_html_and_png() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    for graph in GRAPHS {
        let svg = folder.path().join("graph.svg");
        command(graph, &fixture(), &["-d", "-o", svg.to_str().unwrap()]).expect_success(graph);
        let text = std::fs::read_to_string(&svg).unwrap();
        assert!(text.starts_with("<?xml") && text.trim_end().ends_with("</svg>"), "{graph}");
        // Also between the frames of the waker, if there is one.
        let delimiters = text.matches("<title>-- (").count();
        assert_eq!(delimiters > 0, matches!(graph, "offwake" | "chain"), "{graph}: {delimiters}");
        assert!(text.contains("<title>- ("), "{graph}");
        let html = folder.path().join("graph.html");
        command(graph, &fixture(), &["-o", html.to_str().unwrap()]).expect_success(graph);
        let text = std::fs::read_to_string(&html).unwrap();
        assert!(text.starts_with("<!DOCTYPE html>") && text.contains("\"unit\":\"ns\""), "{graph}");
    }
    if skip::have("chromium") {
        let png = folder.path().join("graph.png");
        command("chain", &fixture(), &["-o", png.to_str().unwrap()]).expect_success("chain");
        assert_eq!(std::fs::read(&png).unwrap()[..4], *b"\x89PNG");
    } else {
        skip::skip("no chromium here: a PNG");
    }
}

/// A fresh recording, on the present kernel.
#[test]
fn graphs_match_fresh_recording_events() {
    // SAFETY: no memory effects.
    if unsafe { libc::geteuid() } != 0 {
        return skip::other_user("wakers are for root");
    }
    let _place = beside();
    let program = victim::c("off_cpu", OPTIMISED);
    let options = ["--off-cpu", "--wakeups", "--off-cpu-ring", "16m", "--off-cpu-stack", "1k"];
    let record = options.iter().fold(Record::new(), |record, option| record.option(*option));
    let recorded = record.run(program, &["15", "10"]).expect_code(0);
    let all = spans::read(&recorded.path, &[OFF]);
    agree(&recorded.path, &all);
    let chains = lines_of(&recorded.path, "chain", &["-d", "--ns"]);
    // It may wait for a page or a lock of the kernel, too.
    let waits = |stack: &[String]| {
        stack[0] == "c1"
            && stack.split(|frame| frame == "--").next().unwrap().iter().any(|frame| frame == "wait_for")
    };
    let c1: Vec<_> = chains.iter().filter(|(stack, _)| waits(stack)).collect();
    // The number of timer wake-ups depends on the machine; c3 and c2 are there each time.
    let through = |(stack, _): &&&folded::Line| links(stack).starts_with(&["c1", "c2", "c3"]);
    assert!(c1.iter().any(|line| through(&line)), "{c1:?}");
    assert!(c1.iter().all(|(stack, _)| links(stack)[1] == "c2"), "{c1:?}");
}
