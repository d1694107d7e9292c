//! Threads shorter than a period appear in proportion to their CPU time.

use flightline_tests::record::Record;
use flightline_tests::run::turn;
use flightline_tests::{skip, victim};

/// 500 threads of 6 ms at a period of 10 ms: each has one sample with probability 0.6.
fn in_proportion(engine: &str) {
    let turn = turn();
    let program = victim::c("short_threads", victim::OPTIMISED);
    let recorded = Record::new().rate(100).engine(engine).run(program, &["500", "6"]).expect_code(0);
    let _place = turn.measured();
    let (truth, recording) = (recorded.truth(), recorded.read());
    let main = truth.threads.iter().find(|t| t.name == "main").unwrap().tid;
    let brief: Vec<u64> = truth.threads.iter().filter(|t| t.name == "brief").map(|t| t.cpu_ns).collect();
    assert_eq!(brief.len(), 500);
    // Independent trials: the expected number and its spread follow from the true lengths. Five standard deviations are
    // exceeded by chance in one run of 1.7 million.
    let chance: Vec<f64> = brief.iter().map(|&ns| ns as f64 / 10e6).collect();
    let expected: f64 = chance.iter().sum();
    let sigma = chance.iter().map(|p| p.fract() * (1.0 - p.fract())).sum::<f64>().sqrt();
    let seen = recording.samples.iter().filter(|s| s.tid != main).count() as f64;
    // A timer fires at the kernel's next tick only; a thread that ended before it is in the account as a lost sample.
    let lost: u64 = recording.losses.iter().filter(|l| l.tid != main).map(|l| l.samples).sum();
    // The time that perf events count in addition, and timers do not (tests/src/stolen.rs).
    let besides = if engine == "timer" { 0.0 } else { recorded.stolen_ns as f64 / 10e6 };
    let told = format!(
        "{engine}: {seen} samples of short threads, {lost} lost, expected {expected:.0} ± {sigma:.1}, {besides:.0} of time that was stolen"
    );
    eprintln!("{told}");
    let more = seen + lost as f64 - expected;
    assert!((-5.0 * sigma..=5.0 * sigma + besides).contains(&more), "{told}\n{}", recorded.finished.stderr);
    if engine != "timer" {
        assert!(seen >= 0.85 * expected, "{told}");
    }
}

#[test]
fn perf_samples_short_threads_in_proportion() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: short threads by the perf engine");
    }
    // The engine that `auto` selects without kernel time is tested below.
    let engine = if skip::perf_allowed(true) { "perf" } else { "perf-user" };
    in_proportion(engine);
}

#[test]
fn timers_sample_short_threads_in_proportion() {
    in_proportion("timer");
}
