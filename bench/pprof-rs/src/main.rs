//! `rust_fixed` under pprof-rs: PPROF_RATE samples per second, profile to PPROF_OUT, number of samples to PPROF_OUT.count.
//! Without PPROF_RATE it does not record.
use std::io::Write;

use pprof::protos::Message;

#[path = "../../../tests/victims/rust_fixed.rs"]
mod fixed;

fn main() {
    let Ok(rate) = std::env::var("PPROF_RATE") else { return fixed::main() };
    let rate = rate.parse().unwrap();
    let out = std::env::var("PPROF_OUT").unwrap();
    let guard = pprof::ProfilerGuardBuilder::default().frequency(rate).build().unwrap();
    fixed::main();
    let report = guard.report().build().unwrap();
    let samples: isize = report.data.values().sum();
    let mut bytes = Vec::new();
    report.pprof().unwrap().encode(&mut bytes).unwrap();
    std::fs::File::create(&out).unwrap().write_all(&bytes).unwrap();
    std::fs::write(format!("{out}.count"), samples.to_string()).unwrap();
}
