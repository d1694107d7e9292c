//! Times off CPU: the recording has each one that the kernel counted for the thread, with its duration, state
//! and waker.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::record::{Record, Recorded};
use flightline_tests::recording::Frame;
use flightline_tests::run::{beside, run, spawn, turn, until};
use flightline_tests::spans::{self, Span};
use flightline_tests::truth::Truth;
use flightline_tests::victim::{self, OPTIMISED, flightline};
use flightline_tests::{folded, skip, stolen::Stolen};

const OFF: &str = "flightline.OffCpu";
const OPEN: &str = "flightline.OpenOffCpu";
const LIMIT: Duration = Duration::from_secs(120);
const NOBODY: u32 = 65534;
const THREADS: [&str; 10] =
    ["sleeper", "waits", "wakes", "reads", "writes", "c1", "c2", "c3", "spin-a", "spin-b"];

fn not_here() -> bool {
    skip::not_root("scheduler events of the whole machine are for root")
}

fn runnable(span: &Span) -> bool {
    matches!(span.field("state"), "R" | "R+")
}

fn nanos(span: &Span) -> u64 {
    span.number("nanos") as u64
}

fn of<'a>(all: &'a [Span], thread: &str) -> Vec<&'a Span> {
    all.iter().filter(|span| span.thread == thread).collect()
}

/// Number by kind and length of each thread's times, as it and the kernel counted them. A switch belongs to neither side for up to
/// `switch_ns`.
#[track_caller]
fn compare(truth: &Truth, all: &[Span], switch_ns: u64, stolen_ns: u64) {
    for name in THREADS {
        let mut own = of(all, name);
        own.sort_by_key(|span| span.number("startTime"));
        let count = |what: &str| truth.counts[&format!("{name} {what}")];
        // At either end, between renaming and reading its counters, the thread may be preempted or wait for a
        // page.
        let voluntary = own.iter().filter(|span| !runnable(span)).count() as i64;
        let counted = count("voluntary");
        assert!(
            (counted..=counted + 2).contains(&voluntary),
            "{name}: waited {voluntary} times, not {counted}"
        );
        let involuntary = own.iter().filter(|span| runnable(span)).count() as i64;
        let counted = count("involuntary");
        assert!(
            (counted - 1..=counted + 2).contains(&involuntary),
            "{name}: preempted {involuntary} times, not {counted}"
        );
        // The extra intervals are at either end.
        let more = own.len().saturating_sub((count("voluntary") + count("involuntary")) as usize).min(4);
        let should = count("off") as u64;
        let tolerance = should / 500 + switch_ns * own.len() as u64 + stolen_ns;
        let between =
            |first: usize, last: usize| own[first..own.len() - last].iter().map(|span| nanos(span)).sum();
        let sums: Vec<u64> = (0..=more)
            .flat_map(|first| (0..=more - first).map(move |last| (first, last)))
            .map(|(a, b)| between(a, b))
            .collect();
        assert!(
            sums.iter().any(|is| is.abs_diff(should) <= tolerance),
            "{name}: {sums:?} ns off, truly {should}, in {} times",
            own.len()
        );
    }
}

fn has(frames: &[Frame], method: &str) -> bool {
    frames.iter().any(|frame| frame.method == method)
}

/// A frame of the program or the C library.
fn user(frame: &Frame) -> bool {
    frame.class == "off_cpu" || frame.class.starts_with("libc.so") || frame.class.starts_with("libflightline")
}

/// The kernel's part first, from the switch on, then the program's.
fn in_order(frames: &[Frame]) -> bool {
    let kernel = |frame: &Frame| frame.class == "kernel";
    let first = frames.first().is_some_and(|frame| kernel(frame) && frame.method == "__schedule");
    first && frames.iter().skip_while(|frame| !user(frame)).all(|frame| !kernel(frame))
}

/// Asserts that no event was lost, except at the very end of threads, which virtual machines with silent idle
/// processors may not report.
#[track_caller]
fn no_losses(path: &Path) {
    let mut losses = spans::read(path, &["flightline.EventLoss"]);
    losses.retain(|loss| loss.field("event") != "off-cpu: end not seen" || loss.number("count") > 12);
    assert!(losses.is_empty(), "{losses:?}");
}

#[track_caller]
fn record(options: &[&str], rounds: &str) -> Recorded {
    let program = victim::c("off_cpu", OPTIMISED);
    let record = options.iter().fold(Record::new(), |record, option| record.option(*option));
    record.run(program, &[rounds]).expect_code(0)
}

#[test]
fn every_off_cpu_interval_has_duration_state_and_waker() {
    if not_here() {
        return;
    }
    let _place = beside();
    let recorded =
        record(&["--off-cpu", "--wakeups", "--off-cpu-ring", "16m", "--off-cpu-stack", "1k"], "40");
    let all = spans::read(&recorded.path, &[OFF]);
    no_losses(&recorded.path);
    compare(&recorded.truth(), &all, 40_000, recorded.stolen_ns);
    assert!(
        recorded.finished.stderr.contains(&format!("{} times off CPU", all.len())),
        "{}",
        recorded.finished.stderr
    );
    for span in &all {
        let (took, queued) = (nanos(span), span.number("runQueue") as u64);
        assert!(took.abs_diff(span.duration_ns) <= 2_000, "{span:?}");
        assert!(queued <= took, "{span:?}");
        assert!(in_order(&span.frames), "{span:?}");
        let kind = span.field("wakerKind");
        if runnable(span) {
            assert_eq!((queued, kind), (took, "none"), "{span:?}");
        }
        // In ticks of 1 µs, rounded.
        let (start, woken) = (span.number("startTime"), span.number("wakerTime"));
        let end = start + span.duration_ns as i64 / 1000;
        assert!((start..=end).contains(&woken), "{span:?}");
        if kind != "none" {
            assert!((end - woken).abs_diff(queued as i64 / 1000) <= 2, "{span:?}");
        }
        // The stack that an interrupt preempted is unrelated to the wake-up.
        let by_program = span.waker_frames.iter().any(user);
        assert!(kind != "interrupt" || !by_program && span.field("wakerThread").is_empty(), "{span:?}");
    }
    let pairs = [
        ("waits", "wait_for", "wakes", "hand_over"),
        ("reads", "take", "writes", "give"),
        ("c1", "wait_for", "c2", "hand_over"),
        ("c2", "wait_for", "c3", "hand_over"),
    ];
    for (thread, at, waker, by) in pairs {
        let waits: Vec<_> = of(&all, thread).into_iter().filter(|span| span.field("state") == "S").collect();
        assert!(!waits.is_empty(), "{thread}");
        for span in waits {
            assert!(has(&span.frames, at) && has(&span.frames, thread), "{span:?}");
            assert!(!span.truncated, "{span:?}");
            assert_eq!(span.field("wakerThread"), waker, "{span:?}");
            assert!(has(&span.waker_frames, by) && has(&span.waker_frames, waker), "{span:?}");
        }
    }
    let mut by_interrupt = 0;
    for thread in ["sleeper", "wakes", "writes", "c3"] {
        let slept: Vec<_> = of(&all, thread).into_iter().filter(|span| span.field("state") == "S").collect();
        assert!(slept.iter().all(|span| has(&span.frames, "rest")), "{thread}: {slept:?}");
        let kinds: Vec<_> = slept.iter().map(|span| span.field("wakerKind")).collect();
        // Some virtual machines do not report interrupts of an idle processor.
        assert!(kinds.iter().all(|kind| matches!(*kind, "interrupt" | "none")), "{thread}: {kinds:?}");
        by_interrupt += kinds.iter().filter(|kind| **kind == "interrupt").count();
    }
    assert!(by_interrupt > 0);
    // It sleeps until the process ends, and still its interval has an end.
    let last = of(&all, "last");
    assert!(last.iter().any(|span| has(&span.frames, "rest") && nanos(span) >= 90_000_000), "{last:?}");
    assert!(spans::read(&recorded.path, &[OPEN]).iter().all(|span| span.thread != "last"));
}

#[test]
fn off_cpu_intervals_below_threshold_are_counted() {
    if not_here() {
        return;
    }
    let _place = beside();
    let recorded = record(&["--off-cpu=3ms", "--off-cpu-ring", "16m", "--off-cpu-stack", "1k"], "20");
    let all = spans::read(&recorded.path, &[OFF]);
    assert!(all.iter().all(|span| nanos(span) >= 3_000_000 && span.field("wakerKind") == "none"));
    let slept = of(&all, "sleeper").iter().filter(|span| !runnable(span)).count() as i64;
    assert_eq!(slept, recorded.truth().counts["sleeper voluntary"]);
    let short = spans::read(&recorded.path, &["flightline.BelowThreshold"]);
    assert!(short.iter().all(|span| span.field("event") == "off-cpu"), "{short:?}");
    let sum = |field: &str| short.iter().map(|span| span.number(field)).sum::<i64>();
    // Threads start and end.
    assert!(sum("count") >= 1 && sum("value") < sum("count") * 3_000_000, "{short:?}");
}

/// The counts of a recording of a program that runs all the time.
#[derive(Debug)]
struct Seen {
    /// The number for each thread.
    of: Vec<(&'static str, usize)>,
    by_c3: usize,
    open: usize,
    others: bool,
    lost: Vec<Span>,
    said: String,
}

impl Seen {
    fn record(options: &[&str], duration: &str) -> Seen {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jfr");
        let mut command = Command::new(flightline());
        command.args([
            "record",
            "--off-cpu",
            "--wakeups",
            "--off-cpu-ring",
            "16m",
            "--off-cpu-stack",
            "0",
            "-o",
        ]);
        command.arg(&path).args(["--duration", duration]).args(options);
        let finished = run(command.stdin(Stdio::null()), LIMIT);
        assert_eq!(finished.code(), 0, "{}", finished.stderr);
        let (all, open) = (spans::read(&path, &[OFF]), spans::read(&path, &[OPEN]));
        // Each is off CPU once at most.
        let tids: BTreeSet<u64> = open.iter().map(|span| span.tid).collect();
        assert_eq!(tids.len(), open.len(), "{options:?}: {open:?}");
        let own = |name: &str| THREADS.contains(&name) || matches!(name, "done" | "last" | "off_cpu");
        let seen = Seen {
            of: ["sleeper", "waits", "c1"].iter().map(|name| (*name, of(&all, name).len())).collect(),
            by_c3: of(&all, "c2").iter().filter(|span| span.field("wakerThread") == "c3").count(),
            open: open.iter().filter(|span| own(&span.thread)).count(),
            others: all.iter().any(|span| !own(&span.thread)),
            lost: spans::read(&path, &["flightline.EventLoss"]),
            said: finished.stderr,
        };
        assert!(options[0] == "-a" || !seen.others, "{options:?}: threads of other processes");
        seen
    }

    fn is_enough(&self, all: bool) -> bool {
        self.of.iter().all(|(_, count)| *count >= 3)
            && self.by_c3 >= 3
            && self.open >= 1
            && (self.others || !all)
    }
}

#[test]
fn running_process_and_unfinished_waits_are_recorded() {
    if not_here() {
        return;
    }
    let _place = beside();
    // It does not run during the build.
    flightline();
    let program = victim::c("off_cpu", OPTIMISED);
    let mut process = spawn(Command::new(program).arg("20000").stdin(Stdio::null()));
    let pid = process.id().to_string();
    let tasks = format!("/proc/{pid}/task");
    until(LIMIT, "its threads", || (std::fs::read_dir(&tasks).ok()?.count() >= 11).then_some(()));
    for (options, all) in [(&["-p", &pid][..], false), (&["-a"], true)] {
        // On a busy machine little of a recording's time may remain.
        let enough = ["500ms", "2s", "8s", "32s"].iter().any(|duration| {
            let seen = Seen::record(options, duration);
            seen.is_enough(all)
                || *duration == "32s" && panic!("{options:?}: {seen:?}; lost: {:?}; {}", seen.lost, seen.said)
        });
        assert!(enough);
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// The threads of a hung program do not switch. Their waits began before the recording and do not end. They
/// are drawn from the beginning of the recording to its end, even if the recording ends before the program is
/// scanned or before its files are read.
#[test]
fn hung_program_waits_cover_whole_recording() {
    let _place = beside();
    let program = victim::c("hangs", OPTIMISED);
    let mut process = spawn(Command::new(program).stdin(Stdio::null()).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let folder = tempfile::TempDir::with_prefix("flightline-test-").unwrap();
    // The waits count from the attach, which takes a part of the duration. On a busy machine, a recording is
    // longer than its duration.
    for (duration, least_us, most_us) in [("1ms", 1_000, 30_000_000), ("1500ms", 100_000, 30_000_000)] {
        let path = folder.path().join(format!("hang-{duration}.jfr"));
        let mut record = Command::new(flightline());
        let pid = process.id().to_string();
        record.args(["record", "--off-cpu", "-p", &pid, "--duration", duration, "-o"]).arg(&path);
        let recorded = run(record.stdin(Stdio::null()), LIMIT).expect_success("record");
        for graph in ["offcpu", "threadtime"] {
            let mut draw = Command::new(flightline());
            let drawn = run(draw.args([graph, "--format", "folded"]).arg(&path), LIMIT).expect_success(graph);
            assert!(drawn.stderr.contains("3 of these waits are drawn"), "{}", drawn.stderr);
            let lines = folded::parse(&drawn.stdout_text());
            for waits in [["takes_a_then_b", "lock"], ["takes_b_then_a", "lock"], ["main", "join"]] {
                let found = lines.iter().filter(|(stack, _)| {
                    waits.iter().all(|function| stack.iter().any(|frame| frame.contains(function)))
                });
                let micros: u64 = found.map(|(_, micros)| micros).sum();
                assert!((least_us..most_us).contains(&micros), "{waits:?} in {lines:?}\n{}", recorded.stderr);
            }
            assert_eq!(lines.len(), 3, "{lines:?}");
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// The kernel reports switches of a user's own threads to that user. Counts and lengths are the same; stacks
/// exist for sleeping threads.
#[test]
fn unprivileged_user_gets_exact_counts_and_durations() {
    let _place = beside();
    let program = victim::c("off_cpu", OPTIMISED);
    let record = Record::new().option("--off-cpu").option("--wakeups");
    std::fs::set_permissions(record.folder(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let stolen = Stolen::from_now();
    let mut command = record.command(program, &["40", "1000"]);
    if !not_here() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let finished = run(&mut command, LIMIT);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert!(finished.stderr.contains("tracepoints"), "{}", finished.stderr);
    let path = record.path();
    let all = spans::read(&path, &[OFF]);
    no_losses(&path);
    // The records are written before and after all the kernel's work for a switch.
    compare(&Truth::read(&record.truth_path()), &all, 150_000, stolen.ns());
    let notices = spans::read(&path, &["flightline.Notice"]);
    assert!(notices.iter().any(|n| n.field("message").contains("tracepoints")), "{notices:?}");
    assert!(all.iter().all(|span| span.field("wakerKind") == "none"));
    assert!(all.iter().all(|span| matches!(span.field("state"), "R" | "S" | "D" | "?")));
    let slept: Vec<_> = of(&all, "sleeper").into_iter().filter(|span| !runnable(span)).collect();
    assert!(slept.iter().all(|span| span.frames.is_empty() || has(&span.frames, "rest")), "{slept:?}");
    // Long enough to be sampled.
    let last: Vec<_> = of(&all, "last").into_iter().filter(|span| nanos(span) >= 900_000_000).collect();
    assert!(!last.is_empty(), "{:?}", of(&all, "last"));
    assert!(last.iter().all(|span| has(&span.frames, "rest") && span.field("state") == "S"), "{last:?}");
}

/// Root without the right to mount, and no mounted tracing file system: the numbers of tracepoints are
/// unknown.
#[test]
fn off_cpu_is_recorded_without_tracefs() {
    if not_here() {
        return;
    }
    if !skip::have("setpriv") {
        return skip::skip("no setpriv here: root without CAP_SYS_ADMIN");
    }
    let _place = beside();
    let mounted = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];
    let mounted = mounted.iter().any(|path| Path::new(path).exists());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jfr");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]).arg(flightline());
    command.args(["record", "--off-cpu", "-o"]).arg(&path).args(["--", "sleep", "0.05"]);
    let finished = run(command.stdin(Stdio::null()), LIMIT);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    let alone =
        finished.stderr.contains("off-CPU time without tracepoints (the tracing file system is not mounted");
    assert_eq!(alone, !mounted, "{}", finished.stderr);
    let all = spans::read(&path, &[OFF]);
    assert!(all.iter().any(|span| span.thread == "sleep" && nanos(span) >= 49_000_000), "{all:?}");
}

/// More switches than the rate permits: each is recorded or counted, and most are counted. The program makes
/// some 5,000 switches a second even if other work leaves it little processor time; the limit is a tenth of
/// that. A recorder that is scheduled late records more than the limit before it throttles, and throttles
/// longer afterwards.
#[test]
fn rate_limit_counts_omitted_switches() {
    if not_here() {
        return;
    }
    // Events that occur while the recorder disables or enables them, some ten times a second, are both
    // recorded and counted. If another test uses the recorder's processor at that time, many events are
    // counted twice.
    let _turn = turn();
    let record = ["--off-cpu", "--off-cpu-rate", "500", "--off-cpu-stack", "0", "--off-cpu-ring", "16m"]
        .iter()
        .fold(Record::new(), |record, option| record.option(*option));
    let recorded = record.run(victim::c("hands_over", OPTIMISED), &["100000"]).expect_code(0);
    let switches = recorded.truth().counts["switches"];
    let all = spans::read(&recorded.path, &[OFF]);
    let losses = spans::read(&recorded.path, &["flightline.EventLoss"]);
    let lost = |event: &str| -> i64 {
        losses.iter().filter(|loss| loss.field("event") == event).map(|loss| loss.number("count")).sum()
    };
    let (held, broken) = (lost("off-cpu: switches held back"), lost("off-cpu: held back"));
    assert!(held > switches / 4, "{held} of {switches} held back: {losses:?}");
    let total = all.len() as i64 + held + broken + lost("off-cpu: end not seen");
    assert!(
        (switches - switches / 50..=switches + switches / 10).contains(&total),
        "{total} of {switches}: {} recorded, {losses:?}",
        all.len()
    );
    assert!(all.len() < switches as usize / 2, "{} of {switches} recorded", all.len());
    // The graphs report it.
    let lost: i64 = losses.iter().map(|loss| loss.number("count")).sum();
    let mut draw = Command::new(flightline());
    draw.args(["offcpu", "--state", "all"]).arg(&recorded.path);
    let drawn = run(draw.stdin(Stdio::null()), LIMIT);
    let total = format!("{lost} scheduler records and intervals were lost");
    assert!(drawn.code() == 0 && drawn.stderr.contains(&total), "{losses:?}: {}", drawn.stderr);
}
