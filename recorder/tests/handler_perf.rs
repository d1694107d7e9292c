//! Runs the handler on real signals of the perf engine: conservation of CPU time, random phase, no
//! descriptor, stop.
#![cfg(target_os = "linux")]

mod in_process;

use std::io::{Read, Write};
use std::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{engine, sample_flags, stage};
use flightline_in_signal::{engine as arming, thread};

const PERIOD: u64 = 1_000_000;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn perf_engine_conserves_cpu_time() {
    let (found, errno) = arming::probe(engine::AUTO, PERIOD, 250);
    let engine = match found {
        engine::PERF | engine::PERF_USER => found,
        _ => {
            eprintln!("perf_event_open is not allowed here (errno {errno}): nothing tested");
            return;
        }
    };
    let state = in_process::install(PERIOD, engine, 0, true);
    let before = descriptors();
    conservation(state);
    assert_eq!(descriptors(), before, "no descriptor stays open");
    short_threads(state);
    if engine == engine::PERF {
        std::thread::scope(|scope| scope.spawn(|| engine_by_waits(state)).join().unwrap());
    }
    stop(state);
}

fn conservation(state: &'static flightline_in_signal::state::ProcState) {
    let slot = in_process::register();
    arming::arm(slot).unwrap();
    in_process::burn(400_000_000);
    arming::disarm(slot);
    let samples = in_process::drain(state);
    let sum: u64 = samples.iter().map(|s| s.fixed.weight_ns).sum();
    let lost: u64 = slot.ledger.lost_ns.iter().map(|n| n.load(Relaxed)).sum();
    assert_eq!(sum, slot.ledger.sampled_ns.load(Relaxed));
    assert_eq!(
        slot.ledger.armed_cpu_ns.load(Relaxed) + sum + lost,
        slot.ledger.last_cpu_ns.load(Relaxed),
        "every ns is accounted for"
    );
    // The event's timer counts interrupts and stolen time that the CPU clock excludes: more samples with
    // smaller weights.
    assert!((300..=520).contains(&samples.len()), "{} samples", samples.len());
    let whole = samples.iter().filter(|s| s.fixed.flags & sample_flags::TRUNCATED == 0).count();
    assert_eq!(whole, samples.len(), "every walk reaches the root");
    assert!(samples[0].fixed.flags & sample_flags::FIRST != 0);
    assert!(samples[0].fixed.weight_ns <= PERIOD + 200_000, "first expiry within one period");
    assert!(samples.windows(2).all(|p| p[0].fixed.time_ns < p[1].fixed.time_ns));
}

/// 400 threads of 0.3 periods each: about 0.3 × 400 samples, because the first expiry is random.
fn short_threads(state: &'static flightline_in_signal::state::ProcState) {
    let mut cpu = 0;
    for _ in 0..400 {
        cpu += std::thread::spawn(|| {
            let slot = in_process::register();
            arming::arm(slot).unwrap();
            in_process::burn(PERIOD * 3 / 10);
            thread::end();
            slot.ledger.end_cpu_ns.load(Relaxed) - slot.ledger.armed_cpu_ns.load(Relaxed)
        })
        .join()
        .unwrap();
    }
    let samples = in_process::drain(state).len() as f64;
    let expected = cpu as f64 / PERIOD as f64;
    // Five standard deviations of a sum of independent draws, exceeded by chance in one run of 1.7 million.
    let slack = 5.0 * expected.sqrt();
    assert!((samples - expected).abs() < slack, "{samples} samples, {expected} expected");
    assert_eq!(state.header.counters.no_slot.load(Relaxed), 0);
}

/// A thread that often waits switches to a timer, and gets its event back when it only computes. At any time,
/// each ns of its CPU time is in exactly one sample.
fn engine_by_waits(state: &'static flightline_in_signal::state::ProcState) {
    in_process::drain(state);
    let (mut from_us, mut to_other) = std::io::pipe().unwrap();
    let (mut from_other, mut to_us) = std::io::pipe().unwrap();
    let other = std::thread::spawn(move || std::io::copy(&mut from_us, &mut to_us));
    let slot = in_process::register();
    let mut ping_pong_until = |done: &dyn Fn() -> bool| {
        (0..1_000_000).any(|_| {
            to_other.write_all(&[1]).unwrap();
            from_other.read_exact(&mut [0]).unwrap();
            done()
        })
    };
    let (samples, current_stage) = (|| slot.ledger.samples.load(Relaxed), || slot.engine.stage.load(Relaxed));
    let handles = || [&slot.engine.handle, &slot.engine.handle2].map(|handle| handle.load(Relaxed) != 0);
    arming::arm(slot).unwrap();
    assert!(ping_pong_until(&|| samples() >= 20));
    assert_eq!((current_stage(), handles()), (stage::PERF, [true, false]), "there is no choice yet");
    state.private.timer_from_ns.store(1, Relaxed);
    assert!(ping_pong_until(&|| current_stage() == stage::TIMER));
    assert_eq!(handles(), [false, true]);
    let before = samples();
    assert!(ping_pong_until(&|| samples() >= before + 10));
    assert_eq!((current_stage(), handles()), (stage::TIMER, [false, true]), "it stays");
    in_process::burn(2_000_000_000);
    assert_eq!((current_stage(), handles()), (stage::PERF, [true, false]), "half a second without waits");
    arming::disarm(slot);
    assert_eq!(handles(), [false, false]);
    state.private.timer_from_ns.store(0, Relaxed);
    drop(to_other);
    other.join().unwrap().unwrap();
    let taken = in_process::drain(state);
    let by_timer = taken.iter().filter(|s| s.fixed.flags & sample_flags::TIMER != 0).count();
    assert!(by_timer >= 10 && taken.len() >= by_timer + 20, "{by_timer} of {} by timer", taken.len());
    let sum: u64 = taken.iter().map(|s| s.fixed.weight_ns).sum();
    let lost: u64 = slot.ledger.lost_ns.iter().map(|n| n.load(Relaxed)).sum();
    let (armed, last) = (slot.ledger.armed_cpu_ns.load(Relaxed), slot.ledger.last_cpu_ns.load(Relaxed));
    assert_eq!(armed + sum + lost, last, "every ns is accounted for");
    thread::end();
}

fn stop(state: &'static flightline_in_signal::state::ProcState) {
    let slot = in_process::register();
    arming::arm(slot).unwrap();
    in_process::burn(5_000_000);
    in_process::drain(state);
    state.session.stop.store(1, Relaxed);
    in_process::burn(20_000_000);
    assert!(in_process::drain(state).is_empty(), "no sample after the stop");
    assert_eq!(slot.engine.stage.load(Relaxed), stage::IDLE);
    assert_eq!(slot.engine.handle.load(Relaxed), 0, "the event's page is unmapped");
}
