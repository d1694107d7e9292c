//! What a sample stands for: the CPU time of its thread since the sample before.
//!
//! Reading the thread's CPU clock is a system call, a third of a handler's time. A perf event fires after a period of CPU
//! time, and no thread uses more CPU time than time goes by: where both say nearly the same, the clock is not asked. What
//! such samples are wrong by is put right by the next that asks, so the sum stays what the clock says.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::ThreadSlot;
use crate::state::ProcState;
use crate::{clock, process_timer};

/// One sample in so many asks the clock anyway.
const ASK_EVERY: u64 = 16;

/// CPU time since the sample before, by the CPU clock; moves nothing.
#[inline]
pub fn unseen(slot: &ThreadSlot) -> u64 {
    clock::thread_cpu_ns().saturating_sub(slot.last_cpu_ns.load(Relaxed))
}

/// CPU time since the sample before, by the clocks; `exact_period` is the period of an event that has just run out
/// regularly, 0 if the CPU clock must be asked. Moves the slot's clocks on.
#[inline]
pub fn since_last(slot: &ThreadSlot, now_ns: u64, exact_period: u64) -> u64 {
    let passed = now_ns.saturating_sub(slot.last_mono_ns.load(Relaxed));
    slot.last_mono_ns.store(now_ns, Relaxed);
    let last = slot.last_cpu_ns.load(Relaxed);
    let slack = exact_period / 16;
    let known = exact_period != 0
        && !slot.samples.load(Relaxed).is_multiple_of(ASK_EVERY)
        && passed <= exact_period.saturating_add(slack);
    if known {
        let weight = passed.min(exact_period);
        slot.last_cpu_ns.store(last.saturating_add(weight), Relaxed);
        return weight;
    }
    let cpu = clock::thread_cpu_ns();
    slot.last_cpu_ns.store(cpu.max(last), Relaxed);
    cpu.saturating_sub(last)
}

/// Of the time `weight` since the sample before, what had gone by when the event ran out: whole periods. A signal that falls
/// due inside a system call comes at its end, and what the call took after that belongs to the next sample; else long calls
/// would count for more than they take.
#[inline]
pub fn until_due(slot: &ThreadSlot, weight: u64, period: u64) -> u64 {
    let after = weight.checked_rem(period).unwrap_or(0);
    // Less is what it takes to get here, and what the clocks differ by.
    if weight < period || after <= period / 16 {
        return weight;
    }
    for clock in [&slot.last_cpu_ns, &slot.last_mono_ns] {
        clock.store(clock.load(Relaxed).saturating_sub(after), Relaxed);
    }
    weight - after
}

/// CPU time of the whole process since its sample before. The slot's clock only says how much of all its thread used.
#[inline]
pub fn process_cpu_ns(state: &ProcState, slot: &ThreadSlot) -> u64 {
    slot.last_cpu_ns.store(clock::thread_cpu_ns(), Relaxed);
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
            slot.last_cpu_ns.store(10_000, Relaxed);
            slot.last_mono_ns.store(20_000, Relaxed);
            assert_eq!(until_due(&slot, weight, 1000), due);
            assert_eq!(10_000 - slot.last_cpu_ns.load(Relaxed), weight - due);
            assert_eq!(20_000 - slot.last_mono_ns.load(Relaxed), weight - due);
        }
        assert_eq!(until_due(&slot, 7, 0), 7);
    }
}
