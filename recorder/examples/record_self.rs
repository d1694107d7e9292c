//! A program that records itself: `cargo run --release -p flightline-recorder --example record_self -- OUT.jfr`.
//!
//! The recording is written by `flightline drain` in a process of its own if that is found (`FLIGHTLINE_BIN`, next to this
//! program, `PATH`), else by a thread of this one.

use std::{env, hint::black_box, thread};

// Inlined, or with a tail call, it would have no frame of its own without debug information.
#[inline(never)]
fn spell(limit: u64) -> u64 {
    black_box((0..limit).map(|n| black_box(n).to_string().bytes().map(u64::from).sum::<u64>()).sum())
}

fn main() {
    if let Err(error) = record() {
        eprintln!("record_self: {error}");
        std::process::exit(1);
    }
}

fn record() -> Result<(), flightline_recorder::Error> {
    let output = env::args().nth(1).unwrap_or_else(|| "flightline.jfr".into());
    let recording = flightline_recorder::Recorder::builder().rate(997.0).output(&output).start()?;
    let workers: Vec<_> = (0..2).map(|_| thread::spawn(|| spell(5_000_000))).collect();
    let mut sum = spell(5_000_000);
    for worker in workers {
        sum = sum.wrapping_add(worker.join().unwrap_or_default());
    }
    println!("{sum}");
    recording.stop()?;
    println!("written: {output}");
    Ok(())
}
