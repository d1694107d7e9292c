//! Start times of spans. They are read far more often than recorded, because only spans with a sample are
//! recorded. So a start time is a reading of the processor's counter, converted to `CLOCK_MONOTONIC` by a
//! pair of both clocks that the thread read at most [`GOOD_NS`] before. Reading the counter takes longer than
//! all the rest of entering (18 ns on a virtual Xeon). So a thread that enters many spans in a row reads it
//! only for every [`BURST`]th.
//!
//! The error of a start time: less than 1 µs from the pair (10 µs while the kernel's clock is slewed at its
//! maximum rate). A burst is a sequence of more than [`BURST`] starts, each within [`BURST_NS`] of the next.
//! Later starts in it may be up to `BURST` × `BURST_NS` too early, and a whole tick of the kernel (1 to 10
//! ms) too early if the thread pauses in the middle of a burst.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};

/// Maximum age of a pair of both clocks.
const GOOD_NS: u64 = 10_000_000;
/// Duration over which the counter's rate is measured, at first and later.
const FIRST_NS: u64 = 10_000_000;
const AGAIN_NS: u64 = 1_000_000_000;
/// Maximum time between the readings of a pair.
const PAIR_NS: u64 = 500;
/// Number of starts that share one reading, if they follow each other within [`BURST_NS`].
const BURST: u32 = 8;
const BURST_NS: u64 = 400;

/// Whether the counter has a constant rate and the kernel uses it: 0 not checked, 1 no, 2 yes.
static STEADY: AtomicU32 = AtomicU32::new(0);
/// Nanoseconds per counter tick, times 2³²; 0: unknown.
static RATE: AtomicU64 = AtomicU64::new(0);
/// The pair at which the measurement of the rate began, written by the holder of `MEASURING`.
static FROM: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static MEASURING: AtomicBool = AtomicBool::new(false);

#[inline]
fn nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the local.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `CLOCK_MONOTONIC`.
#[inline(never)]
pub(crate) fn now_ns() -> u64 {
    nanos(libc::CLOCK_MONOTONIC)
}

/// The time of the kernel's last tick. Reading it takes a third of the time of the counter.
#[inline]
fn tick() -> u64 {
    nanos(libc::CLOCK_MONOTONIC_COARSE)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every processor of this architecture has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns true if the counter has a constant rate in all power states of the processor (CPUID: invariant
/// TSC), and the kernel has not found a difference between processors.
#[cfg(target_arch = "x86_64")]
fn is_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007
        && __cpuid(0x8000_0007).edx & 1 << 8 != 0
        && [&b"tsc"[..], b"kvm-clock"].iter().any(|name| {
            crate::sys::file_holds(c"/sys/devices/system/clocksource/clocksource0/current_clocksource", name)
        })
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

/// Called once in a process.
pub(crate) fn start() {
    if STEADY.load(Relaxed) == 0 {
        STEADY.store(1 + u32::from(is_steady()), Relaxed);
    }
}

/// Called in a forked child: a thread that does not exist here may have been measuring at the fork.
pub(crate) fn in_child() {
    MEASURING.store(false, Relaxed);
}

/// Reads both clocks at the same time. Returns `None` if the thread was interrupted in between.
fn pair() -> Option<[u64; 2]> {
    (0..3).find_map(|_| {
        let (before, ticks, after) = (now_ns(), counter(), now_ns());
        (after - before <= PAIR_NS).then_some([ticks, before + (after - before) / 2])
    })
}

/// Returns the counter's rate, measured by threads that have just read a pair. The counter's frequency never
/// changes, but the kernel's clock is disciplined, and does not advance while the computer sleeps.
fn measured([ticks, ns]: [u64; 2]) -> u64 {
    let known = RATE.load(Relaxed);
    if MEASURING.swap(true, Acquire) {
        return known;
    }
    let [from_ticks, from_ns] = [FROM[0].load(Relaxed), FROM[1].load(Relaxed)];
    let rate = next_rate(known, ticks.wrapping_sub(from_ticks), ns.saturating_sub(from_ns), from_ns == 0);
    if let Some(rate) = rate {
        RATE.store(rate, Relaxed);
        FROM[0].store(ticks, Relaxed);
        FROM[1].store(ns, Relaxed);
    }
    MEASURING.store(false, Release);
    rate.unwrap_or(known)
}

/// Returns the new rate after a measurement of this many ticks and nanoseconds. `None`: the old rate remains,
/// and the measurement continues.
fn next_rate(known: u64, ticks: u64, ns: u64, first: bool) -> Option<u64> {
    if first {
        return Some(0);
    }
    if ns < if known == 0 { FIRST_NS } else { AGAIN_NS } {
        return None;
    }
    let found = (ns as f64 / ticks as f64 * 4_294_967_296.0) as u64;
    // Clock discipline changes the rate by at most 500 in a million. A larger change means that the computer
    // slept, or that the machine was migrated.
    let other = known != 0 && found.abs_diff(known) > known >> 10;
    // A counter with ticks longer than 100 ns is useless.
    Some(if other || found > 100 << 32 { 0 } else { found })
}

/// A thread's copy of the clock data; all zeros: none yet.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Clock {
    /// A pair, the number of ticks for which it is valid, and the rate.
    ticks: u64,
    ns: u64,
    good: u64,
    rate: u64,
    /// The last start time that was read.
    last: u64,
    /// The kernel's last tick at that time.
    tick: u64,
    /// Number of further starts that use this reading.
    left: u32,
    /// Number of consecutive starts that each came soon after the one before, [`BURST`] at most.
    streak: u32,
}

impl Clock {
    /// Returns a start time, `CLOCK_MONOTONIC`, not 0. Call [`start`] first.
    #[inline]
    pub(crate) fn beginning(&mut self) -> u64 {
        if self.left != 0 && tick() == self.tick {
            self.left -= 1;
            return self.last;
        }
        let ticks = counter().wrapping_sub(self.ticks);
        let now = if ticks < self.good { self.ns + ((ticks * self.rate) >> 32) } else { self.other() };
        self.was_read(now, tick)
    }

    /// Stores a start time that was read from a clock.
    #[inline]
    fn was_read(&mut self, now: u64, tick: impl Fn() -> u64) -> u64 {
        // Never earlier than a previous start time.
        let now = now.max(self.last);
        let since = now - self.last;
        self.last = now;
        let before = if self.streak == BURST { BURST - self.left } else { 1 };
        self.streak = if since <= u64::from(before) * BURST_NS { (self.streak + 1).min(BURST) } else { 0 };
        self.left = 0;
        if self.streak == BURST {
            self.left = BURST - 1;
            self.tick = tick();
        }
        now
    }

    /// Returns the time when the pair is no longer valid.
    #[cold]
    fn other(&mut self) -> u64 {
        self.good = 0;
        if STEADY.load(Relaxed) != 2 {
            return now_ns();
        }
        let Some(pair) = pair() else { return now_ns() };
        [self.ticks, self.ns] = pair;
        self.rate = measured(pair);
        self.good = (GOOD_NS << 32).checked_div(self.rate).unwrap_or(0);
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns starts at `times` (true times) with their reported times; the kernel's tick is 1 ms.
    fn reported_starts(clock: &mut Clock, times: impl IntoIterator<Item = u64>) -> std::vec::Vec<(u64, u64)> {
        let mut all = std::vec::Vec::new();
        for now in times {
            let tick = now / 1_000_000;
            let reported = if clock.left != 0 && tick == clock.tick {
                clock.left -= 1;
                clock.last
            } else {
                clock.was_read(now, || tick)
            };
            all.push((now, reported));
        }
        all
    }

    #[test]
    fn clock_reads_are_skipped_only_within_bursts() {
        let slow = reported_starts(&mut Clock::default(), (1..1000).map(|i| i * (BURST_NS + 1)));
        assert!(slow.iter().all(|(now, reported)| now == reported));
        let mut clock = Clock::default();
        let burst = reported_starts(&mut clock, (0..1000).map(|i| 7_000_000 + i * 30));
        let read = burst.iter().filter(|(now, reported)| now == reported).count();
        assert!((1000 / BURST as usize..150).contains(&read), "{read}");
        assert!(burst.iter().all(|(now, reported)| now - reported <= u64::from(BURST) * BURST_NS));
        // A pause in the middle of a burst: at most one tick too early, then the burst is over.
        let paused = reported_starts(&mut clock, (0..20).map(|i| 7_700_000 + i * 50_000));
        assert!(paused.iter().all(|(now, reported)| now >= reported && now - reported < 1_000_000));
        let after = reported_starts(&mut clock, (0..20).map(|i| 9_000_000 + i * 50_000));
        assert!(after.iter().all(|(now, reported)| now == reported), "{after:?}");
    }

    #[test]
    fn tick_rate_is_remeasured_and_dropped_on_jumps() {
        const GHZ2: u64 = 1 << 31;
        assert_eq!(next_rate(0, 0, 5, true), Some(0));
        assert_eq!(next_rate(0, 10, FIRST_NS - 1, false), None);
        assert_eq!(next_rate(0, 2 * FIRST_NS, FIRST_NS, false), Some(GHZ2));
        assert_eq!(next_rate(GHZ2, 3 * FIRST_NS, FIRST_NS, false), None);
        let near = next_rate(GHZ2, 2 * AGAIN_NS + 100_000, AGAIN_NS, false).unwrap();
        assert!(near < GHZ2 && near > GHZ2 - (GHZ2 >> 10));
        assert_eq!(next_rate(GHZ2, 3 * AGAIN_NS, AGAIN_NS, false), Some(0));
        assert_eq!(next_rate(0, 0, FIRST_NS, false), Some(0), "a counter that stands still");
    }

    /// Start times by the counter agree with the clock for more than a second. Each lies between two readings
    /// of the clock, whatever interrupts the thread.
    #[test]
    fn start_times_match_the_clock() {
        start();
        let mut clock = Clock::default();
        let begin = now_ns();
        let (mut early, mut late, mut counted) = (0, 0, 0);
        while now_ns() - begin < 300_000_000 {
            let before = now_ns();
            let at = clock.beginning();
            let after = now_ns();
            counted += u32::from(clock.good != 0);
            early = early.max(before.saturating_sub(at));
            late = late.max(at.saturating_sub(after));
            // Further apart than in a burst.
            while now_ns() - after < 2 * BURST_NS {}
        }
        std::println!("at most {early} ns too early, {late} ns too late; {counted} by the counter");
        assert!(early < 10_000 && late < 10_000, "{early} {late}");
    }
}
