//! Samples have the name that their thread had at that time.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::run::{beside, run};
use flightline_tests::{folded, skip, victim};

/// Three phases of equal CPU time, 0.3 s each, each under its own name: reading names once a second would
/// miss some.
fn phases(engine: &str, how: &str) {
    let program = victim::c("renamed", victim::OPTIMISED);
    let recorded = Record::new().rate(1000).engine(engine).run(program, &["300", how]).expect_code(0);
    let mut fold = Command::new(victim::flightline());
    let folded =
        run(fold.args(["fold", "-t"]).arg(&recorded.path), Duration::from_secs(60)).expect_success("fold");
    let mut samples: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, count) in folded::parse(&folded.stdout_text()) {
        // `[NAME tid=N]`
        let name = stack[0].trim_start_matches('[').split(' ').next().unwrap_or_default();
        *samples.entry(name.to_owned()).or_default() += count;
    }
    let phase = |name: &str| samples.get(name).copied().unwrap_or(0) as f64;
    let counts = ["phase-one", "phase-two", "phase-three"].map(phase);
    let all: f64 = counts.iter().sum();
    let others = samples.values().sum::<u64>() as f64 - all;
    // The phases have equal CPU time; samples that a busy machine loses are counted elsewhere. Under a name that is looked up later, a phase has
    // no samples and another has twice as many.
    assert!(all > 100.0 && others <= 0.01 * all + 3.0, "{engine}, {how}: {samples:?}");
    assert!(counts.iter().all(|count| (0.2..0.45).contains(&(count / all))), "{engine}, {how}: {samples:?}");
}

#[test]
fn timer_samples_have_thread_name_at_sample_time() {
    let _place = beside();
    ["self", "prctl", "by-another"].into_iter().for_each(|how| phases("timer", how));
}

#[test]
fn perf_samples_have_thread_name_at_sample_time() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: renamed threads by the perf engine");
    }
    let _place = beside();
    ["self", "prctl", "by-another"].into_iter().for_each(|how| phases("perf", how));
}
