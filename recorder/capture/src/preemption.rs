//! How long a thread was off its processor while it worked for one span, told by the thread itself when it enters or leaves one. The
//! drain sees a waiting thread only now and then, and not what it went on with.
//!
//! A thread reads its clocks only if it was put aside since it did so last. It knows by the word of rseq(2) that the C library registered
//! for it: there lies the address of a sequence that no instruction is in, and the kernel takes it away when it switches threads or
//! sends a signal. Whatever else uses restartable sequences puts its own address there, which says "perhaps" to us and nothing to it:
//! an address is only ever looked at by the kernel, and only while the thread is inside that sequence.

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};

use flightline_context::abi::Switches;
use flightline_in_signal::layout::{ThreadSlot, engines, event_kind, spans};
use flightline_in_signal::payload::waited;
use flightline_in_signal::publish::Event;
use flightline_in_signal::{clock, context, slots, sync_event};

use crate::session::{self, Attached};

/// What programs look at.
pub static SWITCHES: Switches = Switches { mark: AtomicU64::new(0), word: AtomicUsize::new(0) };

/// `struct rseq_cs` of no instruction, and behind it the signature that the kernel wants to find before an abort handler. This object is
/// never unloaded: threads that are not asked again keep the address.
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

/// Time that is always told has the length of an interval of the wall clock divided by this; of shorter ones so many that the sum is right.
const PART: u64 = 16;
/// The shortest and the longest of these, ns.
const GRAIN_NS: [u64; 2] = [20_000, 1_000_000];
static GRAIN: AtomicU64 = AtomicU64::new(0);

/// Distance from the thread pointer to the C library's `struct rseq`; `None` if it registers none, or of another kernel interface.
#[cfg(target_env = "gnu")]
fn rseq_at() -> Option<usize> {
    let find = |name: &core::ffi::CStr| {
        // SAFETY: the name is NUL-terminated; what was not found must not be what the program's own `dlerror` tells.
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
    // SAFETY: `ptrdiff_t` and `unsigned int` by the C library's description; the size is 0 if the kernel took no registration.
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
    (size as usize >= RSEQ_CS + 8).then_some(offset as usize)
}

#[cfg(not(target_env = "gnu"))]
fn rseq_at() -> Option<usize> {
    None
}

/// Looks for the word. Outside handlers, at the program's start.
pub fn look() {
    if let Some(rseq) = rseq_at() {
        let [version, start, length, abort, before, after] = &EMPTY_RSEQ.0;
        version.store(0, Relaxed);
        // Where nothing is, of no length.
        start.store(1, Relaxed);
        length.store(0, Relaxed);
        abort.store(core::ptr::from_ref(after) as u64, Relaxed);
        before.store(SIGNATURE << 32, Relaxed);
        SWITCHES.word.store(rseq.wrapping_add(RSEQ_CS), Relaxed);
    }
}

/// Threads tell from now on, if the session wants waits and spans.
pub fn apply(attached: &Attached) {
    let session = attached.session();
    let wanted = session.engines.load(Relaxed) & engines::WALL != 0
        && session.spans.load(Relaxed) != spans::OFF
        && SWITCHES.word.load(Relaxed) != 0;
    GRAIN.store((session.wall_ns.load(Relaxed) / PART).clamp(GRAIN_NS[0], GRAIN_NS[1]), Relaxed);
    let mark = if wanted { core::ptr::from_ref(&EMPTY_RSEQ) as u64 } else { 0 };
    SWITCHES.mark.store(mark, Release);
}

/// Nothing is told any more.
pub fn off() {
    SWITCHES.mark.store(0, Release);
}

/// How often a thread that is put aside while it tells of that tells once more.
const AGAIN: u32 = 3;

/// The calling thread may have been put aside.
pub unsafe extern "C" fn switched() {
    let mark = SWITCHES.mark.load(Relaxed);
    let at = context::thread_pointer().wrapping_add(SWITCHES.word.load(Relaxed)) as *const AtomicU64;
    // SAFETY: the thread's own registered word, by `look`. The thread is in no sequence of anybody's: it is here.
    let word = unsafe { &*at };
    for _ in 0..AGAIN {
        // Before the clocks are read: what comes between is found next time.
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

/// Tells what is new of the thread's time without a processor.
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
    // What finds no room is counted by kind.
    let _ = sync_event::record(&Event { kind: event_kind::WAITED, index: 0, value, extra: &extra }, true);
}

/// Takes down the thread's time without a processor; returns by how much it grew.
fn note(slot: &ThreadSlot, off_ns: u64) -> Option<u64> {
    let last = slot.off_ns.load(Relaxed);
    if last == 0 {
        slot.first_off_ns.store(off_ns, Relaxed);
        slot.off_ns.store(off_ns, Release);
        return None;
    }
    let grown = off_ns.checked_sub(last).filter(|grown| *grown > 0)?;
    slot.off_ns.store(off_ns, Release);
    Some(grown)
}

/// A number in [0, `below`), different for every reading.
fn chance(seed: u64, below: u64) -> u64 {
    let x = (seed ^ clock::cycles().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((u128::from(x ^ (x >> 32)) * u128::from(below)) >> 64) as u64
}
