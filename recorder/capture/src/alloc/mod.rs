//! Samples allocations by bytes, and records the frees of sampled allocations.
//!
//! `preload` exports `malloc` and its relatives; each is a jump through its entry of [`SLOTS`]. While no
//! allocations are recorded, the entry leads straight to the allocator behind this object. With the engine
//! enabled, it leads to a function here that counts bytes down (`words`) and takes a sample when the count is
//! used up (`sampler`). Frees are checked only with the engine `live`; the addresses of sampled allocations
//! are in a `set`.
//!
//! **Nothing here allocates, locks or changes `errno`**, so it may be entered from anywhere: by the loader, before the
//! program's first instruction, between `fork` and `exec`, from a signal handler.
//!
//! The free of a sampled address is recorded before the allocator can return the same address again. An
//! allocation that is not sampled costs a subtraction from a thread-local word and a jump; a free that is not
//! sampled, one byte of a 16 KiB table.

mod hooks;
pub mod mapped;
#[cfg(target_arch = "x86_64")]
mod operators;
mod sampler;
mod set;
mod words;

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

use flightline_in_signal::layout::{alloc_flags, engines, event_kind};
use flightline_in_signal::os::clock;
use flightline_in_signal::publish::{self, Event, sync_event};
use flightline_in_signal::state;

use crate::session::Attached;
use crate::{os, sandbox, session};
use set::Set;

/// Number of interposed functions.
pub const FUNCTIONS: usize = 8;

/// Their names; indices are [`flightline_in_signal::layout::alloc_function`].
pub const NAMES: [&CStr; FUNCTIONS] =
    [c"malloc", c"free", c"calloc", c"realloc", c"posix_memalign", c"aligned_alloc", c"memalign", c"valloc"];

/// Jump targets of the exported functions; 0: the code for the function's own first call.
pub static SLOTS: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];

/// The functions of the allocator behind this object, set once by [`publish()`]. The slots lead there while
/// no allocations are recorded.
static REAL: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];

/// True while allocations are sampled. Otherwise frees may still be watched.
static SAMPLING: AtomicBool = AtomicBool::new(false);

/// Mean bytes between two samples.
static INTERVAL: AtomicU64 = AtomicU64::new(0);

/// Addresses whose frees are recorded; null: no frees are recorded.
static SET: AtomicPtr<Set> = AtomicPtr::new(core::ptr::null_mut());
/// The same memory, retained while frees are not recorded.
static SET_MEMORY: AtomicPtr<Set> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the functions of the allocator behind this object.
///
/// # Safety
/// `real[i]` does what the function [`NAMES`]`[i]` does, and has its type.
pub unsafe fn publish(real: &[usize; FUNCTIONS]) {
    for (to, from) in REAL.iter().zip(real) {
        to.store(*from, Relaxed);
    }
    set_slots(*real);
}

fn set_slots(targets: [usize; FUNCTIONS]) {
    for (slot, target) in SLOTS.iter().zip(targets) {
        slot.store(target, Release);
    }
}

/// Returns true if programs call the exported functions of this object. The linked library exports none.
pub fn available() -> bool {
    REAL[0].load(Relaxed) != 0
}

/// Enables or disables sampling according to the session page. Async-signal-safe.
///
/// Once enabled, the tracking of frees stays on for the whole session. Otherwise allocations sampled before a
/// pause or a change of engines would be reported as never freed.
pub fn apply(attached: &Attached) {
    let page = attached.session();
    if page.stop.load(Acquire) != 0 || !available() {
        return off();
    }
    let enabled = page.live.engines.load(Acquire);
    let sample = enabled & engines::ALLOC != 0 && page.live.paused.load(Acquire) == 0;
    if sample {
        INTERVAL.store(page.live.alloc_bytes.load(Relaxed), Relaxed);
    }
    SAMPLING.store(sample, Release);
    if sample && enabled & engines::LIVE != 0 {
        SET.store(set_memory(), Release);
    }
    let hooks = hooks::addresses(sample, watched().is_some());
    set_slots(core::array::from_fn(|i| if hooks[i] != 0 { hooks[i] } else { REAL[i].load(Relaxed) }));
}

/// Does the same at the start of a recording, when calls of the loader are allowed: an allocator's own
/// `operator new` is sampled too.
pub fn start(attached: &Attached) {
    apply(attached);
    if available() {
        mapped::learn_allocator();
    }
    #[cfg(target_arch = "x86_64")]
    if available() && attached.session().live.engines.load(Acquire) & engines::ALLOC != 0 {
        operators::watch();
    }
}

/// Disables sampling. Async-signal-safe.
pub fn off() {
    if available() {
        set_slots(REAL.each_ref().map(|f| f.load(Relaxed)));
        SAMPLING.store(false, Release);
        SET.store(core::ptr::null_mut(), Release);
        forget_addresses();
        mapped::forget();
    }
}

/// Prepares the child of a fork: a new random sequence, an empty address set, and no samples until the child
/// is recorded itself.
pub fn in_child() {
    words::set_random(0);
    words::set_left(0);
    off();
}

/// Memory for the set, mapped once.
fn set_memory() -> *mut Set {
    let known = SET_MEMORY.load(Acquire);
    if !known.is_null() {
        return known;
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let Ok(address) = os::map(None, size_of::<Set>(), prot, libc::MAP_PRIVATE | libc::MAP_NORESERVE) else {
        return core::ptr::null_mut();
    };
    os::advise(address, size_of::<Set>(), libc::MADV_WIPEONFORK);
    os::advise(address, size_of::<Set>(), libc::MADV_DONTDUMP);
    let new = address as *mut Set;
    match SET_MEMORY.compare_exchange(core::ptr::null_mut(), new, Release, Acquire) {
        Ok(_) => new,
        Err(known) => {
            // SAFETY: mapped above, and not shared with any other thread.
            unsafe { os::unmap(address, size_of::<Set>()) };
            known
        }
    }
}

/// Empties the set and releases its memory.
fn forget_addresses() {
    let set = SET_MEMORY.load(Acquire);
    if !set.is_null() {
        os::advise(set as usize, size_of::<Set>(), libc::MADV_DONTNEED);
    }
}

fn watched() -> Option<&'static Set> {
    // SAFETY: null or memory that is never unmapped; all zero is an empty set.
    unsafe { SET.load(Relaxed).as_ref() }
}

/// Handles an allocation of `size` bytes that used up the bytes to the next sample point. Returns the bytes
/// that the sample represents, or `None` if this was only the thread's first allocation.
fn due(size: usize) -> Option<u64> {
    let interval = INTERVAL.load(Relaxed);
    let mut random = words::random();
    let first = random == 0;
    if first {
        random = seed();
    }
    let mut gap = sampler::gap(interval, &mut random);
    // No gap was drawn before the thread's first allocation: test if it ends before the first sample point.
    let weight = match gap.checked_sub(size as u64).filter(|_| first) {
        Some(left) => {
            gap = left;
            None
        }
        None => {
            if first {
                gap = sampler::gap(interval, &mut random);
            }
            Some(sampler::weight(size, interval, &mut random))
        }
    };
    words::set_left(gap);
    words::set_random(random.max(1));
    weight
}

/// Returns a seed that differs between threads and processes. A restricted thread does not read the clock,
/// which is a system call on machines without a vDSO clock.
fn seed() -> u64 {
    let mut mixed = state::get().map_or(0, |state| state.fixed.seed) ^ words::here() as u64;
    sampler::next(&mut mixed);
    if !sandbox::applies() {
        mixed ^= clock::monotonic_ns();
    }
    sampler::next(&mut mixed).max(1)
}

/// Returns true if this process is recorded. Disables everything if the session has ended.
fn recording() -> bool {
    if sandbox::applies() {
        return false;
    }
    let Some(attached) = session::current() else { return false };
    if attached.session().stop.load(Relaxed) != 0 {
        off();
        return false;
    }
    true
}

/// Returns true if the session page enables allocations at this moment. The command that applies a change may
/// not have arrived yet.
fn is_enabled() -> bool {
    state::get().is_some_and(|state| {
        let page = state.session;
        page.live.paused.load(Relaxed) == 0 && page.live.engines.load(Relaxed) & engines::ALLOC != 0
    })
}

/// Records an allocation that was sampled.
#[inline(never)]
fn sampled(address: usize, size: usize, weight: u64, function: u16) {
    if address == 0 || !SAMPLING.load(Relaxed) || !is_enabled() {
        return;
    }
    let event = |index| Event { kind: event_kind::ALLOC, index, value: weight, extra: &[] };
    if !recording() {
        return count_unrecorded(&event(function));
    }
    if function & alloc_flags::MAPPED != 0 {
        return mapped::record(address, size, event(function));
    }
    let set = watched().filter(|set| set.insert(address));
    let index = if set.is_some() { function | alloc_flags::WATCHED } else { function };
    let recorded = sync_event::record(&Event { extra: &[address as u64, size as u64], ..event(index) }, true);
    if let Some(set) = set.filter(|_| recorded.is_err()) {
        set.remove(address);
    }
}

/// Records the free of an address if its allocation was sampled.
#[inline(never)]
fn freed(address: usize) {
    if !watched().is_some_and(|set| set.remove(address)) {
        return;
    }
    let event = Event { kind: event_kind::FREE, index: 0, value: 0, extra: &[address as u64] };
    if recording() {
        let _ = sync_event::record(&event, false);
    } else {
        count_unrecorded(&event);
    }
}

/// Counts an event of a thread that may make no system calls, and therefore records none.
fn count_unrecorded(event: &Event<'_>) {
    if let Some(state) = state::get().filter(|_| sandbox::applies()) {
        publish::lose(state, event);
    }
}
