//! A program that reads its own recording receives its own samples as soon as it polls.

use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{beside, run};
use flightline_tests::victim;

const THREADS: u64 = 8;
/// Each iteration works for eight periods and waits for the recorder twice. OWN_SAMPLES sets the number per
/// thread, OWN_SAMPLES_RATE the rate.
const ITERATIONS: u64 = 150;
const RATE: u64 = 2_000;

/// After each flush, all CPU time that a thread has used before is in its samples or reported as lost, and
/// the times of the new samples lie between its last two readings of `CLOCK_MONOTONIC`.
#[test]
fn samples_before_poll_are_delivered_by_poll() {
    let _place = beside();
    let asked = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let iterations = asked("OWN_SAMPLES").unwrap_or(ITERATIONS);
    let rate = asked("OWN_SAMPLES_RATE").unwrap_or(RATE);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("own.sock");
    let mut command = Command::new(victim::flightline());
    command
        // The recorder flushes only on request.
        .args(["record", "--flush", "10m", "--rate", &rate.to_string(), "-o"])
        .arg(format!("unix:{}", socket.display()))
        .arg("--");
    command.arg(victim::program("own_samples")).arg(&socket);
    command.args([THREADS, iterations, 1_000_000_000 / rate].map(|number| number.to_string()));
    let finished =
        run(&mut command, Duration::from_secs(900 + iterations / 10)).expect_success("own_samples");
    let told = finished.stdout_text();
    let number = |before: &str| -> u64 {
        let end = told.find(before).unwrap_or_else(|| panic!("{told}"));
        let digits = told[..end].trim_end().rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    };
    assert_eq!(number(" iterations"), THREADS * iterations, "{told}");
    // Eight periods of work each; the other samples may have been lost and reported.
    assert!(number(" samples") >= THREADS * iterations, "{told}");
    // Polls before a due interrupt was delivered.
    assert!(number(" late") <= THREADS * iterations / 20, "{told}");
    eprintln!("{told}");
    assert!(told.contains("segments_damaged: 0") && told.contains("unresolved: 0"), "{told}");
}
