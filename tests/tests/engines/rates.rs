//! The share of the requested samples that each engine takes. CPU seconds are right at any rate, and kernel
//! time is on kernel frames where that is permitted.

use flightline_tests::record::Record;
use flightline_tests::run::{beside, turn};
use flightline_tests::{shares, skip, spans, victim};

/// The number of samples in the closing line and in the recording, and the number taken: `1234 samples, …`,
/// or `1234 samples (123 stacks sampled), …` if samples are repeated by weight.
fn closing_line_counts(stderr: &str) -> (usize, f64) {
    let line = stderr.lines().rev().find(|l| l.contains(" samples")).unwrap_or_else(|| panic!("{stderr}"));
    let (before, after) = line.split_once(" samples").unwrap();
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok());
    let written: usize = number(before.split_whitespace().next_back()).unwrap_or_else(|| panic!("{line}"));
    let taken = number(after.strip_prefix(" (").and_then(|after| after.split_whitespace().next()));
    (written, taken.unwrap_or(written) as f64)
}

/// `least`: the required share of the requested samples. A coarse timer is limited by the kernel's tick.
fn rate(engine: &str, hz: u32, least: f64) {
    let turn = turn();
    let program = victim::c("known_answer", victim::OPTIMISED);
    let recorded = Record::new().rate(hz).engine(engine).run(program, &["0.5"]).expect_code(0);
    let _place = turn.measured();
    let (truth, recording) = (recorded.truth(), recorded.read());
    let cpu = truth.cpu_ns() as f64;
    let (written, taken) = closing_line_counts(&recorded.finished.stderr);
    assert_eq!(written, recording.samples.len(), "{}", recorded.finished.stderr);
    let taken = taken / (cpu / 1e9 * f64::from(hz));
    let lost: u64 = recording.losses.iter().map(|l| l.cpu_ns).sum();
    let recorded_ns = recording.samples.len() as f64 * 1e9 / f64::from(hz) + lost as f64;
    eprintln!(
        "{engine:9} {hz:5} Hz: taken/expected {taken:.3}, CPU time recorded/used {:.4}",
        recorded_ns / cpu
    );
    // Threads end within a period of their last sample, and start before the first.
    let slack = 0.01 + 5.0 * 1e9 / f64::from(hz) / cpu + 20e6 / cpu;
    assert!(
        (recorded_ns / cpu - 1.0).abs() <= slack,
        "CPU time is off by {:.4} (allowed {slack:.4})",
        recorded_ns / cpu - 1.0
    );
    // There can be more than requested: the event's clock includes time that the host takes.
    assert!(taken >= least, "{taken:.3} of the requested samples\n{}", recorded.finished.stderr);
}

#[test]
fn perf_delivers_requested_sample_share() {
    if !skip::perf_allowed(true) {
        return skip::skip("kernel events are not allowed: rates of the perf engine");
    }
    for hz in [99, 1000, 10_000] {
        rate("perf", hz, 0.75);
    }
}

/// A recording has the selected events and period: 100 ms, as in always-on profilers, and no CPU samples if
/// only the wall clock was selected. Ten seconds of CPU time in four threads, each of which is off by a
/// period at most.
#[test]
fn recording_has_selected_events_and_period() {
    let _place = beside();
    let program = victim::c("known_answer", victim::OPTIMISED);
    let recorded = Record::new().option("-e").option("cpu@100ms").run(&program, &["2.5"]).expect_code(0);
    let (cpu, recording) = (recorded.truth().cpu_ns() as f64, recorded.read());
    let lost: u64 = recording.losses.iter().map(|l| l.cpu_ns).sum();
    let recorded_ns = recording.samples.len() as f64 * 100e6 + lost as f64;
    eprintln!(
        "cpu@100ms: {} samples, CPU time recorded/used {:.4}",
        recording.samples.len(),
        recorded_ns / cpu
    );
    assert!((recorded_ns / cpu - 1.0).abs() <= 0.05, "{recorded_ns} of {cpu} ns");
    let settings = spans::read(&recorded.path, &["jdk.ActiveSetting"]);
    let interval = settings.iter().find(|setting| setting.field("name") == "interval");
    assert_eq!(interval.map(|setting| setting.field("value")), Some("100000000"));

    let wall = Record::new().option("-e").option("wall@100ms").run(&program, &["0.5"]).expect_code(0);
    let events = wall.read().events;
    assert!(!events.contains_key("jdk.ExecutionSample") && events.contains_key("profiler.WallClockSample"));
}

#[test]
fn perf_user_delivers_requested_sample_share() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: rates of the perf-user engine");
    }
    for hz in [99, 1000, 10_000] {
        rate("perf-user", hz, 0.75);
    }
}

/// A tick is 1 to 10 ms. At 99 Hz every sample is taken; at rates above the tick, one for each tick.
#[test]
fn timer_delivers_requested_sample_share() {
    for (hz, least) in [(99, 0.6), (1000, 0.07), (10_000, 0.007)] {
        rate("timer", hz, least);
    }
}

#[test]
fn kernel_time_is_on_kernel_frames() {
    if !skip::perf_allowed(true) {
        return skip::skip("kernel events are not allowed: kernel frames");
    }
    let _place = beside();
    let program = victim::c("in_kernel", victim::OPTIMISED);
    let recorded = Record::new().rate(1000).engine("perf").run(program, &["3"]).expect_code(0);
    let (truth, recording) = (recorded.truth(), recorded.read());
    let inclusive = shares::by_function(&recording, true);
    // A sample that is due inside a system call is taken at its end and represents the time until it was due.
    // Calls that are about as long as the period, as here, do not count for more time than they take.
    shares::compare(&truth.functions, truth.cpu_ns(), &inclusive, 4.0);
    let by_kernel = |stack: &flightline_tests::recording::Stack| {
        stack
            .frames
            .first()
            .is_some_and(|f| f.class == "kernel" || !f.class.contains('.') && f.class != "vdso")
            && stack.frames.first().is_some_and(|f| !f.class.starts_with("in_kernel"))
    };
    let of = |name: &str| {
        let all = recording.share(|s| s.has(name));
        100.0 * recording.share(|s| s.has(name) && by_kernel(s)) / all
    };
    let (reading, spinning) = (of("reading"), of("spinning"));
    eprintln!("kernel frames on {reading:.1} % of reading, {spinning:.1} % of spinning");
    assert!(reading >= 90.0, "{reading:.1} % of the time in read(2) has kernel frames");
    assert!(spinning <= 15.0, "{spinning:.1} % of the time in the program has kernel frames");
    // Distinguishes overflows inside one system call: a read of 4 MiB lasts longer than a period.
    let hidden = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict").is_ok_and(|t| t.trim() == "2");
    let named = recording.share(|s| s.has("reading") && s.frames.iter().any(|f| f.method == "vfs_read"));
    assert!(hidden || named >= 0.8 * recording.share(|s| s.has("reading")), "{named:.1} % in vfs_read");
    let whole = recording.share(|s| !s.truncated && s.has("main"));
    assert!(whole >= 99.0, "{whole:.2} % of stacks are whole");
}

/// Threads that often wait are sampled by timers, others by events, and the shares are those of the program.
/// A selected engine is not changed.
#[test]
fn frequently_waiting_threads_are_sampled_by_timers() {
    if !skip::perf_allowed(true) {
        return skip::skip("kernel events are not allowed: the engine of threads that often wait");
    }
    let _turn = turn();
    let program = victim::c("waits_often", victim::OPTIMISED);
    let asked = Record::new().rate(99).engine("perf").run(&program, &["0.5"]).expect_code(0);
    assert!(asked.finished.stderr.contains("engine perf, ") && by_timer(&asked.finished.stderr).is_none());
    let recorded = Record::new().rate(99).run(&program, &["4"]).expect_code(0);
    let (truth, recording) = (recorded.truth(), recorded.read());
    let stderr = &recorded.finished.stderr;
    let (taken, by_timer) =
        (closing_line_counts(stderr).1, by_timer(stderr).unwrap_or_else(|| panic!("{stderr}")));
    let computing = recording.share(|s| s.has("computing")) / 100.0;
    eprintln!("{by_timer} of {taken} samples by timer, {computing:.2} of the time without waits");
    // The first sample of a thread comes before the choice.
    assert!(by_timer >= 50.0, "{stderr}");
    assert!(taken - by_timer >= 0.5 * 4.0 * 99.0, "the thread that computes keeps its event: {stderr}");
    // Some 500 samples, at ticks of 1 to 10 ms: five standard deviations of a share.
    shares::compare(&truth.functions, truth.cpu_ns(), &shares::by_function(&recording, true), 11.5);
    let lost: u64 = recording.losses.iter().map(|l| l.cpu_ns).sum();
    let recorded_ns = recording.samples.len() as f64 / 99.0 * 1e9 + lost as f64;
    let off = recorded_ns / truth.cpu_ns() as f64 - 1.0;
    assert!(off.abs() <= 0.03, "CPU time is off by {off:.4}");
}

/// `engine perf, timer for 12 samples of …`
fn by_timer(stderr: &str) -> Option<f64> {
    let (_, after) = stderr.split_once(", timer for ")?;
    after.split(' ').next()?.parse().ok()
}
