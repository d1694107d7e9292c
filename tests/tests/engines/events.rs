//! Perf events by name: the events per function in the recording, compared with the kernel's counts.

use flightline_tests::folded::{fold, sum_with};
use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::beside;
use flightline_tests::{skip, victim};

fn record(event: &str, rounds: &str) -> Recorded {
    let program = victim::c("counted", victim::OPTIMISED);
    Record::new().option("-e").option(event).run(program, &[rounds]).expect_code(0)
}

/// Each thread's estimate lacks less than a period at its end, and its first sample represents a period
/// although less time has passed: two periods for each of two threads. Faults inside a system call that did
/// not fit into the ring are reported with the next fault, wherever that is.
fn faults(period: u64) {
    let _place = beside();
    let recorded = record(&format!("page-faults@{period}"), "60");
    let truth = recorded.truth().counts;
    let lines = fold(&recorded.path, "page-faults", true);
    assert_eq!(truth["interrupted"], 0, "no system call of the program may be interrupted");
    let slack = |true_count: i64| 4 * period + true_count as u64 / 20;
    let touched = truth["touch"] as u64;
    let seen = sum_with(&lines, "touch");
    eprintln!(
        "period {period}: touch {seen} of {touched}, fill {} of {}",
        sum_with(&lines, "fill"),
        truth["fill"]
    );
    if skip::perf_allowed(true) {
        let filled = truth["fill"] as u64;
        let both = seen + sum_with(&lines, "fill");
        assert!(both.abs_diff(touched + filled) <= slack(truth["touch"] + truth["fill"]), "{both} faults");
        let read = lines.iter().filter(|(stack, _)| stack.iter().any(|f| f == "fill"));
        let in_kernel =
            read.clone().filter(|(stack, _)| stack.iter().skip_while(|f| *f != "fill").count() > 2);
        assert!(in_kernel.count() > 0, "faults in a system call lie in functions of the kernel: {lines:?}");
        if period >= 20 {
            assert!(
                seen.abs_diff(touched) <= slack(truth["touch"]),
                "{seen} faults in touch, truly {touched}"
            );
            let seen = sum_with(&lines, "fill");
            assert!(seen.abs_diff(filled) <= slack(truth["fill"]), "{seen} faults in fill, truly {filled}");
        }
    } else {
        assert!(seen.abs_diff(touched) <= slack(truth["touch"]), "{seen} faults in touch, truly {touched}");
    }
}

#[test]
fn page_faults_match_kernel_count_at_period_1() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: page faults");
    }
    faults(1);
}

#[test]
fn page_faults_match_kernel_count_at_period_23() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: page faults");
    }
    faults(23);
}

#[test]
fn context_switches_match_kernel_count() {
    if !skip::perf_allowed(true) {
        return skip::skip("kernel events are not allowed: context switches");
    }
    let _place = beside();
    let recorded = record("context-switches", "200");
    let truth = recorded.truth().counts;
    assert_eq!(truth["interrupted"], 0, "no system call of the program may be interrupted");
    let lines = fold(&recorded.path, "context-switches", true);
    let naps = truth["nap"] as u64;
    let seen = sum_with(&lines, "nap");
    // A sleep may also be preempted.
    assert!(
        (naps..=naps + naps / 4 + 8).contains(&seen),
        "{seen} switches in naps, truly {naps} of one's own will"
    );
    let asleep = lines.iter().any(|(stack, _)| stack.iter().any(|f| f.contains("nanosleep")));
    assert!(asleep, "{lines:?}");
}

/// More calls than signals can report: the period is widened during the run, and the counts stay right.
#[test]
fn malloc_uprobe_events_match_call_count() {
    let _place = beside();
    let program = victim::c("counted", victim::OPTIMISED);
    let recorded = Record::new().option("-e").option("uprobe:libc.so.6:malloc").run(program, &["100"]);
    let refused = [
        "needs CAP_PERFMON",
        "uprobes need",
        "does not support uprobes",
        "not found; give its path",
        "Invalid argument",
    ];
    if recorded.finished.code() != 0 && refused.iter().any(|why| recorded.finished.stderr.contains(why)) {
        return skip::skip(&format!("uprobes do not work here: {}", recorded.finished.stderr.trim()));
    }
    let recorded = recorded.expect_code(0);
    let calls = recorded.truth().counts["allocate"] as u64;
    let seen = sum_with(&fold(&recorded.path, "uprobe:libc.so.6:malloc", true), "allocate");
    assert!(seen.abs_diff(calls) <= calls / 20, "{seen} calls of malloc, truly {calls}");
    let samples = recorded.finished.stderr.clone();
    eprintln!("{seen} of {calls}: {samples}");
}

/// Two events and CPU time at once do not disturb each other. (The periods do not resonate with the 200
/// faults in a row.)
#[test]
fn perf_events_and_cpu_samples_do_not_affect_each_other() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: several events");
    }
    let _place = beside();
    let recorded = record("cpu@1ms,page-faults@23,minor-faults@47", "60");
    let truth = recorded.truth();
    let touched = truth.counts["touch"] as u64;
    for (event, period) in [("page-faults", 23), ("minor-faults", 47)] {
        let seen = sum_with(&fold(&recorded.path, event, true), "touch");
        assert!(seen.abs_diff(touched) <= 4 * period + touched / 20, "{event}: {seen}, truly {touched}");
    }
    let recording = recorded.read();
    let cpu = truth.threads.iter().filter(|t| t.name == "counter").map(|t| t.cpu_ns).sum::<u64>();
    let tids: Vec<u64> = truth.threads.iter().filter(|t| t.name == "counter").map(|t| t.tid).collect();
    let samples = recording.samples.iter().filter(|s| tids.contains(&s.tid)).count() as u64 * 1_000_000;
    let lost: u64 = recording.losses.iter().filter(|l| tids.contains(&l.tid)).map(|l| l.cpu_ns).sum();
    assert!(
        (samples + lost).abs_diff(cpu) <= 6_000_000 + cpu / 50,
        "{samples} + {lost} ns of CPU time, truly {cpu}"
    );
}

/// An event that this machine cannot count is reported in one line that says what to do.
#[test]
fn unsupported_events_are_reported_in_one_line() {
    let _place = beside();
    let program = victim::c("counted", victim::OPTIMISED);
    for (event, word) in [
        ("page-fault", "did you mean page-faults"),
        ("nosuch:tracepoint", "trac"),
        ("uprobe:libc.so.6:no_such_function", "no_such_function"),
        ("nosuchunit/x=1/", "event_source"),
        ("page-faults@0", "count"),
    ] {
        let recorded = Record::new().option("-e").option(event).run(&program, &["1"]);
        let stderr = &recorded.finished.stderr;
        assert_eq!(recorded.finished.code(), 2, "{event}: {stderr}");
        assert!(stderr.contains(word) && stderr.trim().lines().count() == 1, "{event}: {stderr}");
    }
}
