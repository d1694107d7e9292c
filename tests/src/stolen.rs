//! Time that the machine under this one took from its processors. What a perf event counts includes it, a thread's own
//! clock does not (CONFIG_PARAVIRT_TIME_ACCOUNTING), so the two differ by up to this much.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// The moment from which on it is counted.
#[derive(Clone, Copy, Debug)]
pub struct Stolen(u64);

impl Stolen {
    /// From now on.
    pub fn from_now() -> Stolen {
        Stolen(total_ns())
    }

    /// ns that were stolen of all processors together since then, rounded up: the kernel tells hundredths of a second.
    pub fn ns(&self) -> u64 {
        match total_ns() - self.0 {
            0 => 0,
            ns => ns + TICK_NS,
        }
    }
}

/// How often a test is asked while the machine is taken away from it.
const TRIES: u32 = 3;
/// Of a try's time; what tests of shares and clocks allow for besides is of this size.
const TAKEN_AWAY: f64 = 0.01;

/// Runs a test of shares or clocks, once more if it fails while much of the machine's time was stolen: what it asks is true of a
/// program that runs when it may. A failure on a machine of our own, or the third one, stands.
pub fn asked_again(test: impl Fn()) {
    for once in 1..=TRIES {
        let (stolen, start) = (Stolen::from_now(), Instant::now());
        let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else { return };
        let part = stolen.ns() as f64 / start.elapsed().as_nanos() as f64;
        eprintln!("try {once} failed while {:.1} % of a processor were stolen", 100.0 * part);
        if once == TRIES || part < TAKEN_AWAY {
            resume_unwind(failure);
        }
    }
}

/// USER_HZ is 100 on every Linux that we run on (proc_stat(5)).
const TICK_NS: u64 = 10_000_000;

fn total_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let all = stat.lines().next().unwrap();
    // cpu user nice system idle iowait irq softirq steal …
    all.split_whitespace()
        .nth(8)
        .and_then(|ticks| ticks.parse::<u64>().ok())
        .map_or(0, |ticks| ticks * TICK_NS)
}
