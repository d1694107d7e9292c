//! The word in the signals of the recorder: it names the sender of the signal, and the thread slot that it is for.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::{ThreadSlot, slot_state};
use crate::state::{ProcState, slots};

/// The sender of a signal, and its thread. It travels in `sig_data` of the event or `sigev_value` of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Source, one of the `FROM_` constants.
    pub source: u8,
    /// Low byte of the slot's generation.
    pub generation: u8,
    /// Index of the slot.
    pub slot: u32,
}

/// Sent by the perf event of CPU time.
pub const FROM_PERF: u8 = 1;
/// Sent by a thread's CPU timer, the only engine of that thread.
pub const FROM_TIMER: u8 = 2;
/// Sent by a thread's CPU timer that complements a perf event which counts user time only.
pub const FROM_TIMER_BESIDE: u8 = 3;
/// Queued by the recorder: a command to the process ([`crate::command`]).
pub const FROM_CONTROL: u8 = 5;
/// Sent by the timer of the whole process; the slot is that of the thread that armed it.
pub const FROM_PROCESS: u8 = 6;
/// Sent by the first of [`crate::layout::MAX_EVENTS`] other perf events; the numbers of the next events follow.
pub const FROM_EVENTS: u8 = 16;
/// Sent by the first of four breakpoints, on traced functions and on the return addresses of their calls; the others follow.
pub const FROM_TRACES: u8 = 32;

const COOKIE_MAGIC: u64 = 0x00f1_7e5c << 40;

impl Cookie {
    /// Packs it into one word.
    #[inline]
    pub fn pack(self) -> u64 {
        COOKIE_MAGIC
            | u64::from(self.source) << 32
            | u64::from(self.generation) << 24
            | u64::from(self.slot & 0xff_ffff)
    }

    /// Unpacks a word. `None` if it is not a cookie.
    #[inline]
    pub fn unpack(word: u64) -> Option<Cookie> {
        if word & !0xff_ffff_ffff != COOKIE_MAGIC {
            return None;
        }
        Some(Cookie {
            source: (word >> 32) as u8,
            generation: (word >> 24) as u8,
            slot: (word & 0xff_ffff) as u32,
        })
    }

    /// Returns the cookie of signals from `source` to the thread of `slot`.
    pub(crate) fn new(state: &ProcState, slot: &ThreadSlot, source: u8) -> Cookie {
        let generation = generation(state, slot.state.load(Relaxed));
        Cookie { source, generation, slot: slots::index(state, slot) }
    }
}

/// Returns the generation that cookies of a slot in this state have.
#[inline]
pub fn generation(state: &ProcState, word: u32) -> u8 {
    ((word / (slot_state::MASK + 1)) as u8).wrapping_add(state.salt)
}

/// `SIGTRAP`.
pub const SIGTRAP: i32 = 5;
/// `SIGPROF`.
pub const SIGPROF: i32 = 27;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_round_trip_and_foreign_values_are_rejected() {
        for source in [FROM_PERF, FROM_TIMER, FROM_TIMER_BESIDE, FROM_CONTROL, FROM_PROCESS] {
            let cookie = Cookie { source, generation: 0xab, slot: 0x12_3456 };
            assert_eq!(Cookie::unpack(cookie.pack()), Some(cookie));
        }
        for word in [0, 1, u64::MAX, 0x7fff_ffff_f000, COOKIE_MAGIC >> 1] {
            assert_eq!(Cookie::unpack(word), None);
        }
    }
}
