//! Off-CPU time per span, recorded by the thread itself when it enters or leaves a span. The drain looks at a
//! waiting thread only at intervals, and does not see which span it continued with.
//!
//! A thread reads its clocks only if it was preempted since the last reading. It detects this by the rseq(2)
//! word that the C library registered for it. The word contains the address of a sequence without
//! instructions, and the kernel clears it when it switches threads or delivers a signal. Other users of
//! restartable sequences store their own address there, which this module treats as a possible preemption.
//! Overwriting it is harmless: only the kernel reads the address, and only while the thread is inside that
//! sequence.

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};

use flightline_context::abi::Switches;
use flightline_in_signal::context;
use flightline_in_signal::layout::{ThreadSlot, engines, event_kind, spans};
use flightline_in_signal::os::clock;
use flightline_in_signal::payload::waited;
use flightline_in_signal::publish::{Event, sync_event};
use flightline_in_signal::state::slots;

use crate::session::{self, Attached};

/// The words that programs read to detect a preemption.
pub static SWITCHES: Switches = Switches { mark: AtomicU64::new(0), word: AtomicUsize::new(0) };

/// `struct rseq_cs` without instructions, followed by the signature that the kernel requires before an abort
/// handler. This object is never unloaded, because threads keep the address.
#[repr(C, align(32))]
struct EmptyRseq([AtomicU64; 6]);
static EMPTY_RSEQ: EmptyRseq = EmptyRseq([const { AtomicU64::new(0) }; 6]);

/// `RSEQ_SIG` of the C library.
#[cfg(target_arch = "x86_64")]
const SIGNATURE: u64 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u64 = 0xd428_bc00;

/// Offset of `rseq_cs` in `struct rseq`.
const RSEQ_CS: usize = 8;

/// Intervals of at least a wall-clock interval divided by this are always recorded. Shorter ones are sampled,
/// so that the sum is right.
const PART: u64 = 16;
/// Minimum and maximum of that length, ns.
const GRAIN_NS: [u64; 2] = [20_000, 1_000_000];
static GRAIN: AtomicU64 = AtomicU64::new(0);

/// Distance from the thread pointer to the C library's `struct rseq`; `None` if the C library registers none,
/// or one of another kernel interface.
#[cfg(target_env = "gnu")]
fn rseq_at() -> Option<usize> {
    let find = |name: &core::ffi::CStr| {
        // SAFETY: the name is NUL-terminated. A failed lookup is cleared, so that the program's own `dlerror`
        // does not report it.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            if found.is_null() {
                libc::dlerror();
            }
            found
        }
    };
    let (offset, size) = (find(c"__rseq_offset"), find(c"__rseq_size"));
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: `ptrdiff_t` and `unsigned int` according to the C library's documentation; the size is 0 if the
    // kernel refused the registration.
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
    (size as usize >= RSEQ_CS + 8).then_some(offset as usize)
}

#[cfg(not(target_env = "gnu"))]
fn rseq_at() -> Option<usize> {
    None
}

/// Finds the rseq word. Called outside handlers, at the program's start.
pub fn look() {
    if let Some(rseq) = rseq_at() {
        let [version, start, length, abort, before, after] = &EMPTY_RSEQ.0;
        version.store(0, Relaxed);
        // A range of length 0 at an address without code.
        start.store(1, Relaxed);
        length.store(0, Relaxed);
        abort.store(core::ptr::from_ref(after) as u64, Relaxed);
        before.store(SIGNATURE << 32, Relaxed);
        SWITCHES.word.store(rseq.wrapping_add(RSEQ_CS), Relaxed);
    }
}

/// Makes threads record from now on, if the session enables waits and spans.
pub fn apply(attached: &Attached) {
    let session = attached.session();
    let enabled = session.live.engines.load(Relaxed) & engines::WALL != 0
        && session.live.spans.load(Relaxed) != spans::OFF
        && SWITCHES.word.load(Relaxed) != 0;
    GRAIN.store((session.live.wall_ns.load(Relaxed) / PART).clamp(GRAIN_NS[0], GRAIN_NS[1]), Relaxed);
    let mark = if enabled { core::ptr::from_ref(&EMPTY_RSEQ) as u64 } else { 0 };
    SWITCHES.mark.store(mark, Release);
}

/// Stops recording.
pub fn off() {
    SWITCHES.mark.store(0, Release);
}

/// Maximum number of repetitions if the thread is preempted while it records.
const AGAIN: u32 = 3;

/// Called by a thread that may have been preempted.
pub unsafe extern "C" fn switched() {
    let mark = SWITCHES.mark.load(Relaxed);
    let at = context::thread_pointer().wrapping_add(SWITCHES.word.load(Relaxed)) as *const AtomicU64;
    // SAFETY: the thread's own registered word, found by `look`. The thread executes this code, so it is
    // inside no restartable sequence.
    let word = unsafe { &*at };
    for _ in 0..AGAIN {
        // Before the clocks are read, so that the next call detects a preemption in between.
        word.store(mark, Relaxed);
        if session::current().is_none() {
            return;
        }
        let Some(slot) = slots::current() else { return };
        record_off_cpu(slot);
        if word.load(Relaxed) == mark {
            return;
        }
    }
}

/// Records the growth of the thread's off-CPU time.
fn record_off_cpu(slot: &ThreadSlot) {
    let off_ns = clock::monotonic_ns().saturating_sub(clock::thread_cpu_ns());
    let Some(waited_ns) = note(slot, off_ns) else { return };
    let grain = GRAIN.load(Relaxed);
    let value = if waited_ns >= grain {
        waited_ns
    } else if chance(off_ns, grain) < waited_ns {
        grain
    } else {
        return;
    };
    let mut extra = [0; waited::WORDS];
    extra[waited::OFF] = off_ns;
    extra[waited::WAITED] = waited_ns;
    // Events that find no room are counted by kind.
    let _ = sync_event::record(&Event { kind: event_kind::WAITED, index: 0, value, extra: &extra }, true);
}

/// Stores the thread's off-CPU time. Returns its growth.
fn note(slot: &ThreadSlot, off_ns: u64) -> Option<u64> {
    let last = slot.spans.off_ns.load(Relaxed);
    if last == 0 {
        slot.spans.first_off_ns.store(off_ns, Relaxed);
        slot.spans.off_ns.store(off_ns, Release);
        return None;
    }
    let grown = off_ns.checked_sub(last).filter(|grown| *grown > 0)?;
    slot.spans.off_ns.store(off_ns, Release);
    Some(grown)
}

/// Returns a random number in [0, `below`).
fn chance(seed: u64, below: u64) -> u64 {
    let x = (seed ^ clock::cycles().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((u128::from(x ^ (x >> 32)) * u128::from(below)) >> 64) as u64
}
