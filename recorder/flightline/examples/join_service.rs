//! A program that a profiling service records on request:
//! `cargo run --release -p flightline-recording --example join_service -- http://127.0.0.1:7070`.
//!
//! It works until its standard input ends, with a new thread every tenth of a second.

use std::{
    env,
    hint::black_box,
    io::Read,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

#[inline(never)]
fn spell(until: Instant) -> u64 {
    let mut sum = 0_u64;
    while Instant::now() < until {
        sum +=
            (0..1_000_u64).map(|n| black_box(n).to_string().bytes().map(u64::from).sum::<u64>()).sum::<u64>();
    }
    sum
}

fn main() {
    let url = env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7070".into());
    if let Err(error) = flightline::Service::new(url).label("example", "join_service").join() {
        eprintln!("join_service: {error}");
        std::process::exit(1);
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let worker = thread::spawn(|| spell(Instant::now() + Duration::from_millis(100)));
                black_box(worker.join().unwrap_or_default());
            }
        });
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
}
