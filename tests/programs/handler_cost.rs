//! Measures the handler's cost in a real program: cycles per sample, by the handlers' own counters in shared
//! memory.
//!
//! usage: handler_cost RATE PROGRAM ARGS…      prints ns per sample for each recorded process, and its mean depth

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::spawn;
use flightline_tests::shared_memory::{ProcFile, processes, session_of};

/// Runs the program.
pub fn main() {
    let mut args = crate::arguments().skip(1);
    let (Some(rate), Some(program)) = (args.next(), args.next()) else {
        eprintln!("usage: handler_cost RATE PROGRAM ARGS…");
        std::process::exit(2);
    };
    let rate: u32 = rate.to_string_lossy().parse().expect("RATE is a number");
    let rest: Vec<OsString> = args.collect();
    let record = Record::new().rate(rate).option("--measure");
    let mut command = record.command(&program, &[]);
    command.args(rest).stdout(Stdio::null());
    let mut drain = spawn(&mut command);
    // Slots of ended threads are reused: the largest count of each slot and thread is stored.
    let mut seen: HashMap<PathBuf, ProcFile> = HashMap::new();
    let mut best: HashMap<(u32, u32), (u64, u64)> = HashMap::new();
    let look = |seen: &HashMap<PathBuf, ProcFile>, best: &mut HashMap<(u32, u32), (u64, u64)>| {
        for file in seen.values() {
            for thread in file.threads() {
                let entry = best.entry((file.pid(), thread.tid)).or_default();
                *entry = (*entry).max((thread.samples, thread.handler_cycles));
            }
        }
    };
    while drain.try_wait().expect("wait").is_none() {
        if let Some(session) = session_of(drain.id()) {
            for path in processes(&session) {
                if let Ok(file) = ProcFile::open(&path) {
                    seen.entry(path).or_insert(file);
                }
            }
        }
        look(&seen, &mut best);
        std::thread::sleep(Duration::from_millis(20));
    }
    look(&seen, &mut best);
    let recording = Recording::read(&record.path()).expect("recording");
    let frames: usize = recording.samples.iter().map(|s| recording.stacks[s.stack].frames.len()).sum();
    let per_ns = cycles_per_ns();
    let mut by_process: HashMap<u32, (u64, u64)> = HashMap::new();
    for ((pid, _), (samples, cycles)) in best {
        let sum = by_process.entry(pid).or_default();
        *sum = (sum.0 + samples, sum.1 + cycles);
    }
    for (pid, (samples, cycles)) in by_process {
        let ns = cycles as f64 / per_ns / samples.max(1) as f64;
        println!("process {pid}: {samples} samples, {ns:.0} ns each in the handler");
    }
    println!("mean depth {:.1} frames", frames as f64 / recording.samples.len().max(1) as f64);
}

/// Frequency of the time-stamp counter, measured against the clock.
#[cfg(target_arch = "x86_64")]
fn cycles_per_ns() -> f64 {
    // SAFETY: rdtsc has no preconditions on x86_64.
    let read = || unsafe { core::arch::x86_64::_rdtsc() };
    let (clock, cycles) = (Instant::now(), read());
    std::thread::sleep(Duration::from_millis(200));
    read().wrapping_sub(cycles) as f64 / clock.elapsed().as_nanos() as f64
}

/// The handler counts cycles on x86_64 only.
#[cfg(not(target_arch = "x86_64"))]
fn cycles_per_ns() -> f64 {
    let _ = Instant::now();
    1.0
}
