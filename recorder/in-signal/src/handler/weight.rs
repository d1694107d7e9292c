//! The weight of a sample: the CPU time of its thread since the previous sample.
//!
//! Reading the thread's CPU clock is a system call, a third of a handler's time. A perf event fires after a
//! period of CPU time, and a thread's CPU time never exceeds the elapsed time. If both are nearly equal, the
//! CPU clock is not read. The next sample that reads it corrects the error, so the sum always agrees with the
//! clock.

use core::sync::atomic::Ordering::Relaxed;

use crate::engine::process_timer;
use crate::layout::ThreadSlot;
use crate::os::clock;
use crate::state::ProcState;

/// One sample in this many reads the CPU clock in any case.
const ASK_EVERY: u64 = 16;

/// CPU time since the previous sample by the CPU clock. Changes no state.
#[inline]
pub fn unseen(slot: &ThreadSlot) -> u64 {
    clock::thread_cpu_ns().saturating_sub(slot.ledger.last_cpu_ns.load(Relaxed))
}

/// CPU time since the previous sample. `exact_period` is the period of an event that has just overflowed
/// regularly, 0 if the CPU clock must be read. Advances the slot's clocks.
#[inline]
pub fn since_last(slot: &ThreadSlot, now_ns: u64, exact_period: u64) -> u64 {
    let passed = now_ns.saturating_sub(slot.ledger.last_mono_ns.load(Relaxed));
    slot.ledger.last_mono_ns.store(now_ns, Relaxed);
    let last = slot.ledger.last_cpu_ns.load(Relaxed);
    let slack = exact_period / 16;
    let known = exact_period != 0
        && !slot.ledger.samples.load(Relaxed).is_multiple_of(ASK_EVERY)
        && passed <= exact_period.saturating_add(slack);
    if known {
        let weight = passed.min(exact_period);
        slot.ledger.last_cpu_ns.store(last.saturating_add(weight), Relaxed);
        return weight;
    }
    let cpu = clock::thread_cpu_ns();
    slot.ledger.last_cpu_ns.store(cpu.max(last), Relaxed);
    cpu.saturating_sub(last)
}

/// Returns the part of `weight`, the time since the previous sample, that had passed when the event
/// overflowed: whole periods. A signal that becomes due inside a system call is delivered at its end, and the
/// rest of the call's time belongs to the next sample. Otherwise long calls would get more weight than they
/// take.
#[inline]
pub fn until_due(slot: &ThreadSlot, weight: u64, period: u64) -> u64 {
    let after = weight.checked_rem(period).unwrap_or(0);
    // A smaller rest is the time that the signal took to get here, and the difference between the clocks.
    if weight < period || after <= period / 16 {
        return weight;
    }
    for clock in [&slot.ledger.last_cpu_ns, &slot.ledger.last_mono_ns] {
        clock.store(clock.load(Relaxed).saturating_sub(after), Relaxed);
    }
    weight - after
}

/// CPU time of the whole process since its previous sample. The slot's clock only records the CPU time of its
/// own thread.
#[inline]
pub fn process_cpu_ns(state: &ProcState, slot: &ThreadSlot) -> u64 {
    slot.ledger.last_cpu_ns.store(clock::thread_cpu_ns(), Relaxed);
    process_timer::since_last(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_after_the_event_belongs_to_the_next_sample() {
        // SAFETY: a ThreadSlot is atomics and padding, for which zeros are values.
        let slot: ThreadSlot = unsafe { core::mem::zeroed() };
        for (weight, due) in [(900, 900), (1000, 1000), (1050, 1050), (1700, 1000), (2300, 2000), (0, 0)] {
            slot.ledger.last_cpu_ns.store(10_000, Relaxed);
            slot.ledger.last_mono_ns.store(20_000, Relaxed);
            assert_eq!(until_due(&slot, weight, 1000), due);
            assert_eq!(10_000 - slot.ledger.last_cpu_ns.load(Relaxed), weight - due);
            assert_eq!(20_000 - slot.ledger.last_mono_ns.load(Relaxed), weight - due);
        }
        assert_eq!(until_due(&slot, 7, 0), 7);
    }
}
