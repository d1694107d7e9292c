//! When a span begins is asked for far more often than told: only spans with a sample are. So a beginning is the processor's own
//! counter, and becomes nanoseconds of `CLOCK_MONOTONIC` when it is told.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A pair of both clocks from before the first [`ticks`].
static FIRST_TICKS: AtomicU64 = AtomicU64::new(0);
static FIRST_NS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds of a tick, as bits; taken once over [`SETTLED_NS`] at least.
static RATE: AtomicU64 = AtomicU64::new(0);
/// Whether the counter goes on steadily: 0 not asked, 1 no, 2 yes.
static STEADY: AtomicU64 = AtomicU64::new(0);
const SETTLED_NS: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC`.
#[inline(never)]
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to where the last argument points.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every processor of this architecture has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether the counter goes on at one rate in all states of the processor (CPUID: invariant TSC).
#[cfg(target_arch = "x86_64")]
fn is_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn counter() -> u64 {
    let value: u64;
    // SAFETY: reads the virtual counter, which Linux lets programs read.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack, preserves_flags))
    };
    value
}

#[cfg(target_arch = "aarch64")]
fn is_steady() -> bool {
    true
}

/// The clock of beginnings, not 0. Call [`start`] before.
#[inline]
pub(crate) fn ticks() -> u64 {
    // A counter that stood at 0 would have to have been reset this moment.
    if STEADY.load(Relaxed) == 2 { counter() } else { now_ns() }
}

/// Both clocks at one time, as nearly as three tries give it.
fn both() -> (u64, u64) {
    let once = || {
        let (before, ns, after) = (ticks(), now_ns(), ticks());
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), ns)
    };
    let (_, ticks, ns) = [once(), once(), once()].into_iter().min_by_key(|pair| pair.0).unwrap_or_else(once);
    (ticks, ns)
}

/// Takes the first pair, once in a process.
pub(crate) fn start() {
    if FIRST_NS.load(Acquire) == 0 {
        STEADY.store(1 + u64::from(is_steady()), Relaxed);
        let (ticks, ns) = both();
        if FIRST_TICKS.compare_exchange(0, ticks, Release, Relaxed).is_ok() {
            FIRST_NS.store(ns, Release);
        }
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC` at `then`, and now.
pub(crate) fn told(then: u64) -> (u64, u64) {
    if STEADY.load(Relaxed) != 2 {
        return (then, now_ns());
    }
    let (ticks, ns) = both();
    let mut rate = f64::from_bits(RATE.load(Relaxed));
    if rate == 0.0 {
        let (first_ticks, first_ns) = (FIRST_TICKS.load(Acquire), FIRST_NS.load(Acquire));
        let (ticks, nanos) = (ticks.saturating_sub(first_ticks), ns.saturating_sub(first_ns));
        if first_ns == 0 || ticks == 0 {
            return (ns, ns);
        }
        rate = nanos as f64 / ticks as f64;
        if nanos >= SETTLED_NS {
            RATE.store(rate.to_bits(), Relaxed);
        }
    }
    let ago = ticks.saturating_sub(then) as f64 * rate;
    (ns.saturating_sub(ago as u64), ns)
}
