//! A program that records itself:
//! `cargo run --release -p flightline-recording --example record_self -- OUT.jfr`.
//!
//! `flightline drain` writes the recording in a separate process if it is found (`FLIGHTLINE_BIN`, next to
//! this program, `PATH`), otherwise a thread of this process does.

use std::{env, hint::black_box, path::Path, thread};

use flightline::{Builder, Error, Span, label};

// If it were inlined or tail called, it would have no frame of its own without debug information.
#[inline(never)]
fn spell(limit: u64) -> u64 {
    black_box((0..limit).map(|n| black_box(n).to_string().bytes().map(u64::from).sum::<u64>()).sum())
}

fn main() {
    let output = env::args().nth(1).unwrap_or_else(|| "flightline.jfr".into());
    if let Err(error) = record(Builder::new(), Path::new(&output), 5_000_000) {
        eprintln!("record_self: {error}");
        std::process::exit(1);
    }
    println!("written: {output}");
}

/// Records three threads that work, one of them in a span with a label.
pub fn record(builder: Builder, output: &Path, limit: u64) -> Result<(), Error> {
    let recording = builder.rate(997.0).output(output).start()?;
    let workers: Vec<_> = (0..2).map(|_| thread::spawn(move || spell(limit))).collect();
    let span = Span::new("checkout");
    let inside = span.enter();
    // The program works without this label.
    let _ = label("tenant", "acme");
    let mut sum = spell(limit);
    drop(inside);
    drop(span);
    for worker in workers {
        sum = sum.wrapping_add(worker.join().unwrap_or_default());
    }
    println!("{sum}");
    recording.stop()
}
