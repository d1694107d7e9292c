//! A thread's state: its levels, each of which holds what one activation needs. Levels are taken and given back by the thread itself,
//! outside signal handlers; handlers see nothing but the slot and the record it points at.
//!
//! Records neither begin at nor cross a page boundary. A reader can therefore read the 64 bytes before any
//! pointer that claims to be one of ours. The kernel clears blocks in forked children (`MADV_WIPEONFORK`),
//! also in children that the C library does not know.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, compiler_fence};

use crate::abi::{NAME_MAX, Slot};
use crate::clock::Clock;
use crate::ids::Random;
use crate::key_table::{self, Keys};
use crate::process;
use crate::record::OwnedRecord;
use crate::recorder::{ensure_published, recorder};
use crate::sys::{self, PAGE};
use crate::tls::{Local, local};

/// An activation, or room for one. The list of them goes from the bottom, which is none, over those that are active to spare ones.
#[repr(C, align(64))]
pub(crate) struct Level {
    pub(crate) below: *mut Level,
    pub(crate) above: *mut Level,
    /// The one of `held` that is in force.
    pub(crate) current: *mut OwnedRecord,
    /// What the slot held before.
    pub(crate) previous: *mut u8,
    /// The thread's count of samples, null if nothing is to be told at the end.
    pub(crate) samples: *const AtomicU32,
    /// The count at the beginning.
    pub(crate) samples_before: u32,
    /// Whether labels were set in it.
    pub(crate) relabelled: bool,
    /// Whether it is within a scope, so that `scope_keys` counts.
    pub(crate) in_scope: bool,
    /// The activation's number, 0 in spare ones and the bottom.
    pub(crate) seq: u64,
    /// What the activation's owner calls it ([`crate::context::Entering::owner`]).
    pub(crate) owner: u64,
    /// Labels are added to the one that is not in force.
    pub(crate) held: [OwnedRecord; 2],
    /// A name whose owner does not keep it ([`crate::begin`]).
    pub(crate) name: [u8; NAME_MAX + 1],
    /// Labels of these keys are those of a scope: what it encloses has them, of whatever trace.
    pub(crate) scope_keys: Keys,
}

/// A thread's state, at the beginning of its first block. All of it reads as zeros in a forked child.
#[repr(C)]
pub(crate) struct State {
    /// The innermost activation, or `bottom`; null: to be set up anew.
    pub(crate) top: *mut Level,
    pub(crate) slot: *const Slot,
    /// The next activation's number and record's version.
    pub(crate) next: u64,
    pub(crate) random: Random,
    pub(crate) clock: Clock,
    /// Levels there are.
    levels: u32,
    /// The newest block that was added.
    blocks: *mut Block,
    bottom: Bottom,
}

/// Levels behind the first block's.
#[repr(C)]
struct Block {
    next: *mut Block,
}

/// The list's end: the first members of a [`Level`].
#[repr(C, align(64))]
struct Bottom([u64; 8]);

const BLOCK: usize = 4 * PAGE;
const LEVELS_IN_PAGE: usize = 2;
const LEVELS_IN_BLOCK: u32 = (BLOCK / PAGE * LEVELS_IN_PAGE) as u32;
/// No level, so no record, straddles or begins a page: what lies before a record can be read where the record can.
const LEVELS_AT: usize = PAGE - LEVELS_IN_PAGE * size_of::<Level>();
/// Activations on one thread at a time; who enters more has lost some exits.
pub(crate) const LEVELS_MAX: u32 = 4096;

const _: () = {
    assert!(core::mem::offset_of!(Level, held) == size_of::<Bottom>());
    assert!(LEVELS_AT >= size_of::<State>() && LEVELS_AT.is_multiple_of(64));
};

/// Blocks of threads that ended, for those that begin.
static POOL: [AtomicPtr<u8>; 64] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 64];
static KEY: AtomicU64 = AtomicU64::new(NO_KEY);
const NO_KEY: u64 = u64::MAX;
/// Threads so far: the upper bits of activation numbers.
static THREADS: AtomicU64 = AtomicU64::new(0);
const SEQ_BITS: u32 = 44;

/// What has to be there once in a process. `false`: the C library has no thread keys left, so nothing could be given back.
fn set_up_process() -> bool {
    if KEY.load(Acquire) != NO_KEY {
        return true;
    }
    crate::clock::start();
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: writes a key to where the first argument points.
    if unsafe { libc::pthread_key_create(&mut key, Some(at_thread_end)) } != 0 {
        return false;
    }
    if KEY.compare_exchange(NO_KEY, u64::from(key), Release, Acquire).is_ok() {
        // SAFETY: the handler touches the calling thread's words alone. No room for it: the child's memory is wiped all the same.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        stay_loaded();
    } else {
        // SAFETY: ours, and no thread has a value for it.
        unsafe { libc::pthread_key_delete(key) };
    }
    true
}

/// The C library calls `at_thread_end`: the object it lies in must not be unloaded. Fails for the program itself, which never is.
fn stay_loaded() {
    // SAFETY: plain numbers and pointers; zeros are some.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    let here = at_thread_end as *const core::ffi::c_void;
    // SAFETY: asks for the object of an address; its name is a C string that stays.
    unsafe {
        if libc::dladdr(here, &mut found) != 0 && !found.dli_fname.is_null() {
            libc::dlopen(found.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_NODELETE | libc::RTLD_LAZY);
        }
    }
}

/// Sets up the calling thread; null if there is no memory or no key.
#[cold]
#[inline(never)]
pub(crate) fn begin(local: &Local) -> *mut State {
    let null = core::ptr::null_mut();
    if !set_up_process() {
        return null;
    }
    ensure_published();
    // A forked child finds its thread's state wiped.
    let mut block = local.thread_state().cast::<u8>();
    if block.is_null() {
        let pooled = POOL.iter().find_map(|place| {
            let found =
                if place.load(Relaxed).is_null() { null } else { place.swap(null.cast(), Acquire).cast() };
            (!found.is_null()).then_some(found.cast::<u8>())
        });
        let Some(found) = pooled.or_else(|| sys::map_wiped_on_fork(BLOCK)) else { return null };
        block = found;
    } else {
        // What the parent's thread was at.
        clear(local);
    }
    let state = block.cast::<State>();
    let thread = THREADS.fetch_add(1, Relaxed) + 1;
    // SAFETY: the block is ours alone, big and aligned enough. The recorder's slot of this thread is valid until the thread's end.
    unsafe {
        state.write(State {
            top: null.cast(),
            slot: (recorder().slot)(),
            next: (thread << SEQ_BITS) + 1,
            random: Random::seeded(thread),
            clock: Clock::default(),
            levels: 0,
            blocks: null.cast(),
            bottom: Bottom([0; 8]),
        });
        let bottom = (&raw mut (*state).bottom).cast::<Level>();
        add_levels(state, bottom, block);
        // Without a value of its own the thread's end is not told, and its block is never given back.
        if libc::pthread_setspecific(KEY.load(Relaxed) as libc::pthread_key_t, block.cast()) != 0 {
            return null;
        }
        (*state).top = bottom;
    }
    local.state.store(state.cast(), Relaxed);
    state
}

/// Links the levels of a block above `last`.
///
/// # Safety
/// The block's levels are in nobody's use, `last` is the list's last one.
unsafe fn add_levels(state: *mut State, mut last: *mut Level, block: *mut u8) {
    for i in 0..LEVELS_IN_BLOCK as usize {
        let at = i / LEVELS_IN_PAGE * PAGE + LEVELS_AT + i % LEVELS_IN_PAGE * size_of::<Level>();
        // SAFETY: within the block; only the first words are touched, so that pages nobody needs stay untouched.
        unsafe {
            let level = block.add(at).cast::<Level>();
            (*level).below = last;
            (*level).above = core::ptr::null_mut();
            (*level).seq = 0;
            (*last).above = level;
            last = level;
        }
    }
    // SAFETY: the caller's state.
    unsafe { (*state).levels += LEVELS_IN_BLOCK };
}

/// One more level above the top; null if there are too many, or no memory.
#[cold]
#[inline(never)]
unsafe fn grow(state: *mut State) -> *mut Level {
    // SAFETY: the calling thread's own state, whose top is the last level.
    unsafe {
        if (*state).levels >= LEVELS_MAX {
            return core::ptr::null_mut();
        }
        let Some(block) = sys::map_wiped_on_fork(BLOCK) else { return core::ptr::null_mut() };
        let head = block.cast::<Block>();
        head.write(Block { next: (*state).blocks });
        (*state).blocks = head;
        add_levels(state, (*state).top, block);
        (*(*state).top).above
    }
}

impl Local {
    /// This copy's state of the thread; null before the first use and after the end.
    #[inline(always)]
    pub(crate) fn thread_state(&self) -> *mut State {
        self.state.load(Relaxed).cast()
    }
}

impl State {
    /// A number that was not given before.
    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next = number + 1;
        number
    }

    /// The recorder's slot of this thread.
    #[inline]
    pub(crate) fn slot(&self) -> &AtomicPtr<u8> {
        // SAFETY: valid until the thread's end.
        unsafe { &(*self.slot).context }
    }

    /// Points the thread's slots at a record, or at none. A handler sees the one before or this one.
    #[inline]
    pub(crate) fn publish(&self, local: &Local, record: *mut u8) {
        // The record is complete before it is seen.
        compiler_fence(Release);
        self.slot().store(record, Relaxed);
        // Other tools may find the program's own variable before the recorder's.
        local.slot.context.store(record, Relaxed);
        // Nothing of the record before is changed until it is no longer seen.
        compiler_fence(Release);
    }
}

extern "C" fn at_thread_end(block: *mut core::ffi::c_void) {
    let state = block.cast::<State>();
    let local = local();
    local.state.store(core::ptr::null_mut(), Relaxed);
    // SAFETY: the thread's own state, which nobody uses from here on: what enters something later sets up another one.
    unsafe {
        if (*state).top.is_null() {
            local.slot.context.store(core::ptr::null_mut(), Relaxed);
        } else {
            (*state).publish(local, core::ptr::null_mut());
        }
        let mut next = (*state).blocks;
        while !next.is_null() {
            let block = next;
            next = (*block).next;
            sys::unmap(block.cast(), BLOCK);
        }
        let place = POOL.iter().find(|place| {
            place.compare_exchange(core::ptr::null_mut(), block.cast(), Release, Relaxed).is_ok()
        });
        if place.is_none() {
            sys::unmap(block.cast(), BLOCK);
        }
    }
}

/// Points the thread's slots at nothing.
fn clear(local: &Local) {
    local.slot.context.store(core::ptr::null_mut(), Relaxed);
    // SAFETY: the recorder's slot of this thread.
    unsafe { (*(recorder().slot)()).context.store(core::ptr::null_mut(), Relaxed) };
}

/// The child of a fork has one thread, and what its parent's was doing is not the child's.
extern "C" fn in_child() {
    let local = local();
    clear(local);
    // The state is wiped, where the kernel can; else here, so that what is active now is exited by nobody.
    let state = local.thread_state();
    if !state.is_null() {
        // SAFETY: the thread's own.
        unsafe { (*state).top = core::ptr::null_mut() };
    }
    crate::clock::in_child();
    key_table::in_child();
    process::in_child();
}

/// The level that the next activation takes; null if there is none.
///
/// # Safety
/// The calling thread's own state, with a top.
#[inline]
pub(crate) unsafe fn next_level(state: *mut State) -> *mut Level {
    // SAFETY: by the caller.
    unsafe {
        let level = (*(*state).top).above;
        if level.is_null() { grow(state) } else { level }
    }
}

/// The calling thread's state with a top, set up if need be; `None` if that is not possible.
#[inline]
pub(crate) fn state(local: &Local) -> Option<*mut State> {
    let mut state = local.thread_state();
    // SAFETY: not null means the thread's own.
    if state.is_null() || unsafe { (*state).top.is_null() } {
        state = begin(local);
    }
    (!state.is_null()).then_some(state)
}
