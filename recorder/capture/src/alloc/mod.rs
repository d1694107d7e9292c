//! Allocations sampled by bytes, and the frees of what was sampled.
//!
//! `preload` exports `malloc` and its relatives; each is a jump through its entry of [`SLOTS`]. While nothing is
//! recorded that leads straight to the allocator behind ours. With the engine on it leads to a function here that
//! counts bytes down (`words`), and once in a while takes a sample (`chance`). Frees are looked at only if what is
//! never freed is wanted; the addresses that matter are in a `set`.
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

use flightline_in_signal::layout::{SessionPage, alloc_flags, engines, event_kind};
use flightline_in_signal::publish::{self, Event};
use flightline_in_signal::{clock, state, sync_event};

use crate::session::Attached;
use crate::{os, sandbox, session};
use set::Set;

/// Functions that are interposed.
pub const FUNCTIONS: usize = 8;

/// Their names; indices are [`flightline_in_signal::layout::alloc_function`].
pub const NAMES: [&CStr; FUNCTIONS] =
    [c"malloc", c"free", c"calloc", c"realloc", c"posix_memalign", c"aligned_alloc", c"memalign", c"valloc"];

/// Where each exported function jumps to; 0: to its own first call.
pub static SLOTS: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];

/// The functions of the allocator behind ours, set once by [`publish()`]: where slots lead while nothing is recorded.
static REAL: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];

/// Whether allocations are sampled; if not, frees may still be watched.
static SAMPLING: AtomicBool = AtomicBool::new(false);

/// Mean bytes from one sample to the next.
static INTERVAL: AtomicU64 = AtomicU64::new(0);

/// Addresses to watch for; null: frees are not recorded.
static SET: AtomicPtr<Set> = AtomicPtr::new(core::ptr::null_mut());
/// The same, kept while frees are not recorded.
static SET_MEMORY: AtomicPtr<Set> = AtomicPtr::new(core::ptr::null_mut());

/// Tells the allocator behind ours.
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

/// Whether this object's functions are the ones that programs call. Not so in the linked library, which exports none.
pub fn available() -> bool {
    REAL[0].load(Relaxed) != 0
}

/// Switches sampling as the session wants it now. Async-signal-safe.
///
/// While the session lasts, frees stay watched once they are: also of what was sampled before a pause or before other
/// engines were chosen, which would look never freed else.
pub fn apply(attached: &Attached) {
    let page = attached.session();
    if page.stop.load(Acquire) != 0 || !available() {
        return off();
    }
    let wanted = page.engines.load(Acquire);
    let sample = wanted & engines::ALLOC != 0 && page.paused.load(Acquire) == 0;
    if sample {
        INTERVAL.store(page.alloc_bytes.load(Relaxed), Relaxed);
    }
    SAMPLING.store(sample, Release);
    if sample && wanted & engines::LIVE != 0 {
        SET.store(set_memory(), Release);
    }
    let hooks = hooks::addresses(sample, watched().is_some());
    set_slots(core::array::from_fn(|i| if hooks[i] != 0 { hooks[i] } else { REAL[i].load(Relaxed) }));
}

/// The same at the start of a recording, when the loader may be asked: an allocator's own `operator new` is sampled too.
pub fn start(attached: &Attached) {
    apply(attached);
    if available() {
        mapped::learn_allocator();
    }
    #[cfg(target_arch = "x86_64")]
    if available() && attached.session().engines.load(Acquire) & engines::ALLOC != 0 {
        operators::watch();
    }
}

/// Switches sampling off. Async-signal-safe.
pub fn off() {
    if available() {
        set_slots(REAL.each_ref().map(|f| f.load(Relaxed)));
        SAMPLING.store(false, Release);
        SET.store(core::ptr::null_mut(), Release);
        forget_addresses();
        mapped::forget();
    }
}

/// The child of a fork: other random numbers than its parent's, no addresses of its parent's, nothing sampled until it
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
            // SAFETY: mapped above, unknown to anybody.
            unsafe { os::unmap(address, size_of::<Set>()) };
            known
        }
    }
}

/// Empties the set, giving its memory back.
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

/// An allocation of `size` bytes made a sample due: what it stands for, or nothing if this was only the thread's first.
fn due(size: usize) -> Option<u64> {
    let interval = INTERVAL.load(Relaxed);
    let mut random = words::random();
    let first = random == 0;
    if first {
        random = seed();
    }
    let mut gap = sampler::gap(interval, &mut random);
    // Nothing was drawn yet for the thread's first allocation: is it before its first sample point?
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

/// Different in every thread and process. A restricted thread makes no system call here: where the clock has no vDSO it
/// is one.
fn seed() -> u64 {
    let page: Option<&SessionPage> = state::get().map(|state| state.session);
    let mut mixed = page.map_or(0, |page| page.seed) ^ words::here() as u64;
    sampler::next(&mut mixed);
    if !sandbox::applies() {
        mixed ^= clock::monotonic_ns();
    }
    sampler::next(&mut mixed).max(1)
}

/// Whether this process is recorded; a session that is over switches everything off.
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

/// Whether allocations are wanted at this moment: the command that says so may still be on its way.
fn is_enabled() -> bool {
    state::get().is_some_and(|state| {
        let page = state.session;
        page.paused.load(Relaxed) == 0 && page.engines.load(Relaxed) & engines::ALLOC != 0
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

/// Records the free of an address if its allocation was.
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

/// A thread that may make no system calls records nothing; that is counted.
fn count_unrecorded(event: &Event<'_>) {
    if let Some(state) = state::get().filter(|_| sandbox::applies()) {
        publish::lose(state, event);
    }
}
