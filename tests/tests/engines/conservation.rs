//! CPU time is conserved: for every thread, events × period + lost = its own CPU clock, within one period.
//!
//! The left side is computed twice: by our reader and, if there is a JDK, by its `jdk.jfr.consumer`, which is
//! independent of weights and of our code. The right side is each thread's own last clock reading. Weights
//! preserve the sum within one period (checked by the ledger events); rounding them to whole events and the
//! random part of a period before the first sample add up to half a period more.

use std::collections::HashMap;

use flightline_tests::record::{Record, Recorded};
use flightline_tests::recording::Recording;
use flightline_tests::run::turn;
use flightline_tests::{skip, victim};

/// The CPU time that a thread uses after its last clock reading: it writes its line and ends; the first
/// thread also runs the exit handlers.
fn afterwards_ns(name: &str) -> i64 {
    if name == "main" { 3_000_000 } else { 1_000_000 }
}

/// How long a thread may be delayed after its clock reading, for at most two threads of a run.
const HELD_UP_NS: i64 = 12_000_000;

/// Checks every thread of the truth against the recording.
fn check(recorded: &Recorded, recording: &Recording, period_ns: i64, reader: &str) {
    let (samples, lost) = (recording.samples_by_tid(), recording.lost_by_tid());
    // A thread id may be reused; the sums are per id, and each thread may be off by a period.
    let mut truth: HashMap<u64, (String, i64, i64)> = HashMap::new();
    for thread in recorded.truth().threads {
        let entry = truth.entry(thread.tid).or_insert((thread.name, 0, 0));
        entry.1 += thread.cpu_ns as i64;
        entry.2 += 1;
    }
    let mut wrong = String::new();
    let mut offs = Vec::new();
    let mut late = 0;
    let mut by_kind: HashMap<&str, (i64, i64, i64)> = HashMap::new();
    for (tid, (name, cpu, holders)) in &truth {
        let n = samples.get(tid).copied().unwrap_or(0) as i64;
        let seen = n * period_ns;
        let lost = lost.get(tid).copied().unwrap_or(0) as i64;
        let off = seen + lost - cpu;
        let kind = by_kind.entry(name).or_default();
        *kind = (kind.0 + cpu, kind.1 + seen, kind.2 + lost);
        let tolerance = period_ns * 3 / 2;
        offs.push(off / holders);
        // The host may delay a thread for milliseconds of its CPU clock at any point, also after its last
        // reading. A perf event counts the time that the host took, the thread's clock does not
        // (`stolen.rs`).
        let most = (tolerance + afterwards_ns(name)) * holders + recorded.stolen_ns as i64;
        let held_up = off > most && off < HELD_UP_NS;
        late += i32::from(held_up);
        if off < -tolerance * holders || off > most && !(held_up && late <= 2) {
            wrong += &format!(
                "{name} {tid}: clock {cpu} ns, {n} events × {period_ns} + lost {lost}: off by {off}\n"
            );
        }
    }
    for (name, (cpu, seen, lost)) in by_kind {
        eprintln!(
            "{reader:4} {name:8} clock {:9.3} ms  sampled {:9.3}  lost {:9.3}",
            ms(cpu),
            ms(seen),
            ms(lost)
        );
    }
    // The work after the last clock reading is short except for accidents, so the median shows no bias.
    offs.sort_unstable();
    let middle = offs[offs.len() / 2];
    assert!(
        (-period_ns..=period_ns + 150_000).contains(&middle),
        "by {reader}: the middle thread is off by {middle} ns"
    );
    assert!(wrong.is_empty(), "by {reader}, period {period_ns} ns:\n{wrong}\n{}", recorded.finished.stderr);
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// The recording's ledger is consistent, and agrees with the ground truth.
fn check_ledger(recorded: &Recorded, recording: &Recording, period_ns: i64) {
    let last: HashMap<u64, _> = recording.ledger.iter().map(|l| (l.tid, *l)).collect();
    for thread in recorded.truth().threads.iter().filter(|t| t.name != "brief") {
        let ledger = last.get(&thread.tid).unwrap_or_else(|| panic!("no ledger of {}", thread.name));
        let rest = ledger.cpu_ns as i64 - (ledger.sampled_ns + ledger.lost_ns) as i64;
        assert!((0..=period_ns).contains(&rest), "{}: {ledger:?}", thread.name);
        let off = ledger.cpu_ns as i64 - thread.cpu_ns as i64;
        assert!(
            (-period_ns..=afterwards_ns(&thread.name) + recorded.stolen_ns as i64).contains(&off),
            "{}: {ledger:?}, truly {}",
            thread.name,
            thread.cpu_ns
        );
        let lost = recording.lost_by_tid().get(&thread.tid).copied().unwrap_or(0);
        assert_eq!(lost, ledger.lost_ns, "{}: loss events and ledger disagree", thread.name);
    }
}

fn conserved(engine: &str, rate: u32) {
    let turn = turn();
    let program = victim::c("conservation", victim::OPTIMISED);
    let recorded = Record::new().rate(rate).engine(engine).run(program, &["500"]).expect_code(0);
    let _place = turn.measured();
    let recording = recorded.read();
    let period_ns = 1_000_000_000 / i64::from(rate);
    check(&recorded, &recording, period_ns, "ours");
    check_ledger(&recorded, &recording, period_ns);

    // The thread blocks every signal with raw system calls for half of its time. That half must be reported
    // as blocked, and not be attributed to the code where signals were unblocked. (For timers the kernel does
    // not report the reason of a delay.)
    if engine != "timer" {
        let blocker = recorded.truth().threads.iter().find(|t| t.name == "blocker").unwrap().clone();
        let losses: Vec<_> = recording.losses.iter().filter(|l| l.tid == blocker.tid).collect();
        let blocked: u64 = losses.iter().filter(|l| l.cause == "signal blocked").map(|l| l.cpu_ns).sum();
        let part = blocked as f64 / blocker.cpu_ns as f64;
        // Each window of 30 ms of 60 is reported together with the time since the previous sample, which is
        // at most a period.
        let most = 0.65f64.max(0.56 + period_ns as f64 / 60e6);
        assert!(
            (0.4..most).contains(&part),
            "{part:.2} of the blocker's time is recorded as blocked: {losses:?}"
        );
    }

    if let Some(foreign) = Recording::read_by_jdk(&recorded.path) {
        check(&recorded, &foreign, period_ns, "jdk");
        assert_eq!(foreign.samples.len(), recording.samples.len());
    }
}

macro_rules! conserved {
    ($($name:ident: $engine:literal, $rate:literal, $needs:expr;)*) => {$(
        #[test]
        fn $name() {
            if !$needs {
                return skip::skip(concat!("perf_event_open is not allowed: conservation by ", $engine));
            }
            conserved($engine, $rate);
        }
    )*};
}

conserved! {
    perf_99: "perf", 99, skip::perf_allowed(true);
    perf_1000: "perf", 1000, skip::perf_allowed(true);
    perf_10000: "perf", 10_000, skip::perf_allowed(true);
    perf_user_99: "perf-user", 99, skip::perf_allowed(false);
    perf_user_1000: "perf-user", 1000, skip::perf_allowed(false);
    perf_user_10000: "perf-user", 10_000, skip::perf_allowed(false);
    timer_99: "timer", 99, true;
    timer_1000: "timer", 1000, true;
    timer_10000: "timer", 10_000, true;
}

/// One timer for the whole process. Its samples represent the time of all threads, so only the sums are
/// right.
fn conserved_by_process(rate: u32) {
    let turn = turn();
    let program = victim::c("conservation", victim::OPTIMISED);
    let record = Record::new().option("-e").option(format!("itimer@{rate}hz"));
    let recorded = record.run(program, &["500"]).expect_code(0);
    let _place = turn.measured();
    let recording = recorded.read();
    let period_ns = 1_000_000_000 / i64::from(rate);
    let threads = recorded.truth().threads;
    let truth: i64 = threads.iter().map(|t| t.cpu_ns as i64).sum();
    let lost: i64 = recording.losses.iter().map(|l| l.cpu_ns as i64).sum();
    let mut last: HashMap<u64, i64> = HashMap::new();
    for ledger in &recording.ledger {
        last.insert(ledger.tid, ledger.sampled_ns as i64);
    }
    let sampled: i64 = last.values().sum();
    let events = recording.samples.len() as i64 * period_ns;
    eprintln!(
        "clocks {:.3} ms, sampled {:.3}, events {:.3}, lost {:.3}",
        ms(truth),
        ms(sampled),
        ms(events),
        ms(lost)
    );
    let why = &recorded.finished.stderr;
    // The work of threads outside of their clock readings, and up to a period before the first and after the
    // last sample.
    let slack = 2 * period_ns + HELD_UP_NS + threads.iter().map(|t| afterwards_ns(&t.name)).sum::<i64>();
    let off = sampled + lost - truth;
    assert!((-slack..=slack).contains(&off), "{sampled} sampled + {lost} lost of {truth} ns\n{why}");
    // Rounded to whole events thread by thread; a thread id may come again.
    let rounding = period_ns * threads.len() as i64;
    assert!((events - sampled).abs() <= rounding, "{events} ns of events for {sampled} ns of samples\n{why}");
    assert!(lost < truth / 20, "{lost} ns lost of {truth}\n{why}");
    if let Some(foreign) = Recording::read_by_jdk(&recorded.path) {
        assert_eq!(foreign.samples.len(), recording.samples.len());
    }
}

#[test]
fn itimer_at_99_hz_conserves_cpu_time() {
    conserved_by_process(99);
}

#[test]
fn itimer_at_1000_hz_conserves_cpu_time() {
    conserved_by_process(1000);
}

#[test]
fn itimer_at_10000_hz_conserves_cpu_time() {
    conserved_by_process(10_000);
}
