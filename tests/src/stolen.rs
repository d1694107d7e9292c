//! Measures the time that the hypervisor took from this machine's processors. Perf events count it, but a
//! thread's own clock does not (CONFIG_PARAVIRT_TIME_ACCOUNTING), so the two differ by up to this much.

use std::fs;

/// The start of a measurement of stolen time.
#[derive(Clone, Copy, Debug)]
pub struct Stolen(u64);

impl Stolen {
    /// Starts now.
    pub fn from_now() -> Stolen {
        Stolen(total_ns())
    }

    /// The ns stolen from all processors together since the start, rounded up: the kernel counts in hundredths of a second.
    pub fn ns(&self) -> u64 {
        match total_ns() - self.0 {
            0 => 0,
            ns => ns + TICK_NS,
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
