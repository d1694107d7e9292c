//! Signals that end a process: the last samples of all threads are recorded, and the program and its parent
//! see no difference.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::guest;
use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, run};
use flightline_tests::skip;
use flightline_tests::spans::{self, Span};
use flightline_tests::truth::Truth;
use flightline_tests::victim::{self, OPTIMISED};

const FATAL: &str = "flightline.FatalSignal";
const CAUGHT: &str = "flightline.CaughtSignal";
const LAST: &str = "flightline.LastSample";
const LOSS: &str = "flightline.EventLoss";
const SHORT: &str = "flightline.BelowThreshold";

/// The way to die, the signal, its reason, and the function at the top of the stack.
const WAYS: [(&str, i32, &str, &str, &str); 12] = [
    ("segv", 11, "SIGSEGV", "SEGV_MAPERR", "crash_here"),
    ("jump", 11, "SIGSEGV", "SEGV_MAPERR", ""),
    ("general", 11, "SIGSEGV", "SI_KERNEL", "crash_here"),
    ("bus", 7, "SIGBUS", "BUS_ADRERR", "crash_here"),
    ("ill", 4, "SIGILL", "ILL_ILLOPN", "crash_here"),
    ("fpe", 8, "SIGFPE", "FPE_INTDIV", "divide"),
    ("trap", 5, "SIGTRAP", "SI_KERNEL", "crash_here"),
    ("sys", 31, "SIGSYS", "SI_TKILL", ""),
    ("abort", 6, "SIGABRT", "SI_TKILL", ""),
    ("kill", 11, "SIGSEGV", "SI_USER", ""),
    ("queue", 8, "SIGFPE", "SI_QUEUE", ""),
    // Without an alternate stack the kernel cannot run a handler.
    ("overflow", 11, "SIGSEGV", "", ""),
];

fn record(engine: &str, args: &[&str]) -> Recorded {
    let program = victim::c("fatal", OPTIMISED);
    Record::new().engine(engine).option("--fatal-signals").option("on").run(program, args)
}

fn read(recorded: &Recorded) -> Vec<Span> {
    spans::read(&recorded.path, &[FATAL, CAUGHT, LAST, LOSS, SHORT])
}

fn of<'a>(spans: &'a [Span], event: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.event == event).collect()
}

/// Compilers move rarely executed code into a function of its own, `crash_here.cold`.
fn from(span: &Span, function: &str) -> bool {
    span.frames.iter().any(|frame| frame.method.starts_with(function))
}

/// Σ of a counting event for last samples.
fn counted(spans: &[Span], event: &str) -> i64 {
    of(spans, event).iter().filter(|s| s.field("event") == "signal").map(|s| s.number("count")).sum()
}

#[test]
fn fatal_signal_records_last_sample_per_thread() {
    let _place = beside();
    let (mut came, mut due) = (0, 0);
    for (how, signo, name, reason, leaf) in WAYS {
        let recorded = record("auto", &["die", how]).expect_code(128 + signo);
        let truth = recorded.truth();
        let spans = read(&recorded);
        let fatal = of(&spans, FATAL);
        if how == "overflow" {
            assert_eq!(spans.len(), 0, "{how}: {spans:?}");
            continue;
        }
        assert_eq!(fatal.len(), 1, "{how}: {spans:?}");
        let fatal = fatal[0];
        assert_eq!((fatal.field("signal"), fatal.field("reason")), (name, reason), "{how}");
        assert!(
            from(fatal, "crash_here") && fatal.has("main") && !fatal.truncated,
            "{how}: {:?}",
            fatal.frames
        );
        assert!(fatal.frames[0].method.starts_with(leaf), "{how}: {:?}", fatal.frames);
        assert_eq!(
            fatal.number("sender") != 0,
            ["SI_TKILL", "SI_USER", "SI_QUEUE"].contains(&reason),
            "{how}"
        );
        // All requested reports arrive or are counted as lost: on a busy machine one may be late.
        let last = of(&spans, LAST);
        due += 3;
        came += last.len();
        assert_eq!(last.len() as i64 + counted(&spans, LOSS), 3, "{how}: {spans:?}");
        for sample in last {
            assert_eq!((sample.field("signal"), sample.number("thread")), (name, fatal.tid as i64), "{how}");
            let (thread, function) =
                [("spinner", "spin_here"), ("sleeper", "sleep_here"), ("waiter", "wait_here")]
                    .into_iter()
                    .find(|(thread, _)| truth.counts[*thread] == sample.tid as i64)
                    .unwrap_or_else(|| panic!("{how}: {sample:?}"));
            assert!(sample.has(function), "{how}: {thread}: {:?}", sample.frames);
        }
    }
    assert!(2 * came > due, "{came} of {due}");
}

#[test]
fn timer_engine_records_last_samples_at_fatal_signal() {
    let _place = beside();
    for how in ["segv", "abort", "trap"] {
        let (_, signo, name, ..) = *WAYS.iter().find(|way| way.0 == how).unwrap();
        let recorded = record("timer", &["die", how]).expect_code(128 + signo);
        let spans = read(&recorded);
        let fatal = of(&spans, FATAL);
        assert_eq!((fatal.len(), fatal[0].field("signal")), (1, name));
        assert_eq!(of(&spans, LAST).len() as i64 + counted(&spans, LOSS), 3, "{how}");
    }
}

/// Asserts what a core file shows: the last delivery has the number, reason, address and registers of the
/// first.
#[test]
fn parent_observes_same_termination_with_recorder() {
    let _place = beside();
    for (how, signo, ..) in WAYS {
        let truth = record("auto", &["traced", how]).expect_code(0).truth();
        assert_eq!(truth.counts["status"], i64::from(signo), "{how}");
        for what in ["signal same", "pc same", "sp same", "rbx same"] {
            assert_eq!(truth.counts[what], 1, "{how}: {what}");
        }
        // Without space for a handler's frame, the kernel reports another code.
        if how != "overflow" {
            assert_eq!((truth.counts["code same"], truth.counts["address same"]), (1, 1), "{how}");
            assert_eq!(truth.counts["stops"], 2, "{how}: once to us, once for good");
        }
    }
}

/// The contents of a core file: the signal's siginfo (number, code, address), and the registers of the thread
/// that received it.
fn notes_of(core: &[u8]) -> Option<([i32; 2], u64, Vec<u64>)> {
    let word = |at: usize| Some(u64::from_le_bytes(core.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_le_bytes(core.get(at..at + 4)?.try_into().ok()?));
    let (table, count) = (word(32)? as usize, half(56)? & 0xffff);
    let segment = (0..count as usize).map(|n| table + 56 * n).find(|at| half(*at) == Some(4))?;
    let (mut at, end) = (word(segment + 8)? as usize, (word(segment + 8)? + word(segment + 32)?) as usize);
    let (mut info, mut registers) = (None, None);
    while at + 12 < end {
        let (name, len, kind) = (half(at)? as usize, half(at + 4)? as usize, half(at + 8)?);
        let data = at + 12 + name.next_multiple_of(4);
        match kind {
            // NT_PRSTATUS: 27 registers from offset 112; the first is of the thread that died.
            1 if registers.is_none() => {
                registers = Some((0..27).map_while(|n| word(data + 112 + 8 * n)).collect())
            }
            // NT_SIGINFO
            0x5349_4749 => info = Some(([half(data)? as i32, half(data + 8)? as i32], word(data + 16)?)),
            _ => {}
        }
        at = data + len.next_multiple_of(4);
    }
    let ((numbers, address), registers) = (info?, registers?);
    Some((numbers, address, registers))
}

/// The existence of a core file and its signal information do not change with a recorder.
#[test]
fn core_file_is_same_with_recorder() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let pattern = pattern.trim();
    if pattern.is_empty() || pattern.contains(['|', '/', '%']) {
        return skip::skip(&format!("core files go elsewhere here ({pattern:?}): they were not compared"));
    }
    let _place = beside();
    let program = victim::c("fatal", OPTIMISED);
    let folder = tempfile::tempdir().unwrap();
    let died = |how: &str, recorded: bool| {
        let kind = if recorded { "recorded" } else { "alone" };
        let place = folder.path().join(format!("{how}-{kind}"));
        std::fs::create_dir(&place).unwrap();
        let record = Record::new().option("--fatal-signals").option("on");
        let mut command = match recorded {
            true => record.command(&program, &["core", how]),
            false => Command::new(&program),
        };
        if !recorded {
            command.args(["core", how]);
        }
        command.current_dir(&place).env("TRUTH_FILE", place.join("truth.tsv"));
        run(&mut command, Duration::from_secs(120)).expect_success(how);
        let truth = Truth::read(&place.join("truth.tsv"));
        let named = format!("{pattern}.{}", truth.counts["child"]);
        let core = [pattern, &named].into_iter().find_map(|name| std::fs::read(place.join(name)).ok());
        (truth.counts["signal"], truth.counts["core"], core)
    };
    for (how, signo, ..) in WAYS {
        let (alone, with) = (died(how, false), died(how, true));
        assert_eq!((alone.0, alone.1), (i64::from(signo), i64::from(alone.2.is_some())), "{how}");
        assert_eq!((with.0, with.1), (alone.0, alone.1), "{how}: signal and core");
        let (Some(alone), Some(with)) = (alone.2, with.2) else {
            // A container's limit, a file system without space.
            skip::skip("no core file is written here: nothing to compare");
            return;
        };
        let [alone_says, with_says] =
            [&alone, &with].map(|core| notes_of(core).expect("notes of a core file"));
        assert_eq!(with_says.0[0], alone_says.0[0], "{how}: number");
        if how != "overflow" {
            assert_eq!(with_says.0[1], alone_says.0[1], "{how}: code");
        }
        if alone_says.0[1] > 0 && how != "bus" && how != "overflow" {
            // By position within the page, because programs are mapped at a different address each time.
            assert_eq!(with_says.1 & 0xfff, alone_says.1 & 0xfff, "{how}: address");
        }
        let pc = |says: &(_, u64, Vec<u64>)| says.2[16] & 0xfff;
        assert_eq!(pc(&with_says), pc(&alone_says), "{how}: program counter");
        let more = with.len().saturating_sub(alone.len());
        assert!(more < 16 << 20, "{how}: {more} bytes more in the core file");
    }
}

/// The text of a summary.
fn summary(recorded: &Recorded) -> String {
    let mut command = Command::new(victim::flightline());
    let done = run(command.arg("summary").arg(&recorded.path), Duration::from_secs(60));
    done.expect_success("summary").stdout_text()
}

#[test]
fn summary_reports_fatal_signal() {
    let _place = beside();
    let recorded = record("auto", &["die", "segv"]).expect_code(139);
    let text = summary(&recorded);
    let line = text.lines().find(|l| l.starts_with("Ended: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("Ended: SIGSEGV (SEGV_MAPERR at 0x0) ended fatal"), "{line}");
    assert!(line.contains("in crash_here, called by") && line.contains("main"), "{line}");
    assert!(line.contains("of 3 other threads") || counted(&read(&recorded), LOSS) > 0, "{line}");
    // For programs that could not write their last words, the process that started them records the signal.
    let recorded = record("auto", &["die", "overflow"]).expect_code(139);
    let text = summary(&recorded);
    assert!(text.contains("Note: SIGSEGV ended fatal") && text.contains("stack overflow"), "{text}");
    let recorded = Record::new().run("/bin/sh", &["-c", "kill -KILL $$"]).expect_code(137);
    let text = summary(&recorded);
    assert!(text.contains("Note: SIGKILL ended sh (") && !text.contains("could not record where"), "{text}");
    let recorded = Record::new().run("/bin/sh", &["-c", "exit 3"]).expect_code(3);
    let text = summary(&recorded);
    assert!(!text.contains("Ended: ") && !text.contains("Note: "), "{text}");
}

#[test]
fn signals_caught_by_program_reach_its_handler() {
    let _place = beside();
    for (what, code, handled) in
        [("plain", 0, 3000), ("alternate", 0, 3000), ("overflow", 0, 20), ("mend", 0, 3000), ("signal", 0, 1)]
    {
        let recorded = record("auto", &["handle", what]).expect_code(code);
        assert_eq!(recorded.truth().counts["handled"], handled, "{what}");
        let spans = read(&recorded);
        let caught = of(&spans, CAUGHT);
        // The first signals are recorded; of a flood, the others are counted.
        assert_eq!(caught.len() as i64 + counted(&spans, SHORT) + counted(&spans, LOSS), handled, "{what}");
        assert!(caught.len() as i64 >= handled.min(16), "{what}: {}", caught.len());
        assert_eq!(of(&spans, FATAL).len(), 0, "{what}");
        let place = match what {
            "overflow" => "overflow_here",
            "signal" => "divide",
            _ => "fault_here",
        };
        for span in caught {
            assert!(span.frames[0].method.starts_with(place), "{what}: {:?}", span.frames);
        }
    }
}

#[test]
fn handler_that_reraises_leaves_fatal_sample() {
    let _place = beside();
    for what in ["again", "once"] {
        let recorded = record("auto", &["handle", what]).expect_code(128 + 11);
        let spans = read(&recorded);
        let (caught, fatal) = (of(&spans, CAUGHT), of(&spans, FATAL));
        assert_eq!(fatal.len(), 1, "{what}: {spans:?}");
        assert!(!caught.is_empty() && caught[0].field("reason").starts_with("SEGV_"), "{what}");
        // The stack continues through the frame of the handler to the cause.
        assert!(from(fatal[0], "crash_here"), "{what}: {:?}", fatal[0].frames);
        assert_eq!(fatal[0].has("again_handler"), what == "again", "{what}: {:?}", fatal[0].frames);
    }
}

#[test]
fn vfork_children_do_not_change_parent_signal_state() {
    let _place = beside();
    record("auto", &["handle", "spawn"]).expect_code(0);
}

#[test]
fn fatal_signals_are_not_recorded_by_default() {
    let _place = beside();
    let program = victim::c("fatal", OPTIMISED);
    let recorded = Record::new().run(&program, &["die", "segv"]).expect_code(139);
    assert_eq!(read(&recorded).len(), 0);
    let bad = run(
        Command::new(victim::flightline()).args(["record", "--fatal-signals", "yes", "--", "true"]),
        Duration::from_secs(20),
    );
    assert_eq!(bad.code(), 2);
}

/// The JDKs there are.
fn javas() -> Vec<PathBuf> {
    if !skip::have_jdk() {
        skip::skip("no JDK here: its handlers were not shared");
        return Vec::new();
    }
    let others = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|e| e.path());
    let other = |p: &PathBuf| p.to_string_lossy().contains("-25-") && p.join("bin/java").exists();
    let others = others.filter(other).map(|p| p.join("bin/java"));
    std::iter::once(PathBuf::from("java")).chain(others).collect()
}

#[test]
fn jvm_faults_become_java_exceptions() {
    let _place = beside();
    for java in javas() {
        let classes = victim::java_classes(Path::new("javac"), "Faults", &["--release", "17"]);
        let classes = classes.to_string_lossy();
        let recorded = Record::new()
            .rate(99)
            .option("--fatal-signals")
            .option("on")
            .run(&java, &["-Xcheck:jni", "-Xmx256m", "-cp", &classes, "Faults"])
            .expect_code(0);
        // Four threads, each with 2,000 null pointers and 10 stacks that overflow; no other signals are
        // reported.
        assert_eq!(recorded.finished.stdout_text(), "caught 8040\n", "{}", java.display());
        let spans = read(&recorded);
        assert_eq!(of(&spans, FATAL).len(), 0);
        assert!(!of(&spans, CAUGHT).is_empty(), "no fault came through us");
    }
}

#[test]
fn signal_programs_behave_as_without_recorder() {
    let _place = beside();
    let cases: [&[&str]; 14] = [
        &["handler-trap"],
        &["default-trap"],
        &["masks"],
        &["pending-trap"],
        &["longjmp"],
        &["flags-trap"],
        &["stack-own"],
        &["stack-alternate"],
        &["stack-tiny"],
        &["int3"],
        &["int3-handled"],
        &["int3-ignored"],
        &["int3-blocked"],
        &["inherit"],
    ];
    guest::same(&victim::c("guest_signals", OPTIMISED), &cases, &guest::fatal_modes()[..1]);
}

#[test]
fn restricted_programs_behave_as_without_recorder() {
    let _place = beside();
    let cases: [&[&str]; 7] = [
        &["all-exec"],
        &["vfork", "20"],
        &["spawn", "20"],
        &["seccomp"],
        &["filter"],
        &["filter-all"],
        &["raw-fork"],
    ];
    guest::same(&victim::c("guest_process", OPTIMISED), &cases, &guest::fatal_modes()[1..]);
}
