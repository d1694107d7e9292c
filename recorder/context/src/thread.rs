//! A thread's state: its levels, each with the data of one activation. The thread itself takes and releases
//! levels, outside signal handlers. Handlers only see the slot and its record.
//!
//! Records neither begin at nor cross a page boundary. A reader can therefore read the 64 bytes before any
//! pointer that claims to point to a record of this project. The kernel clears blocks in forked children
//! (`MADV_WIPEONFORK`), also in children that the C library does not know.

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

/// An activation, or room for one. The list of levels starts with the bottom, which is no activation,
/// continues with the active ones and ends with unused ones.
#[repr(C, align(64))]
pub(crate) struct Level {
    pub(crate) below: *mut Level,
    pub(crate) above: *mut Level,
    /// The active one of `held`.
    pub(crate) current: *mut OwnedRecord,
    /// The slot's previous value.
    pub(crate) previous: *mut u8,
    /// The thread's sample counter, null if the end is not reported.
    pub(crate) samples: *const AtomicU32,
    /// The counter at the start.
    pub(crate) samples_before: u32,
    /// True if labels were set in it.
    pub(crate) relabelled: bool,
    /// True if it is within a scope, so that `scope_keys` is used.
    pub(crate) in_scope: bool,
    /// The activation's sequence number, 0 in unused levels and the bottom.
    pub(crate) seq: u64,
    /// The owner's number ([`crate::context::Entering::owner`]).
    pub(crate) owner: u64,
    /// Two records: labels are added to the one that is not active.
    pub(crate) records: [OwnedRecord; 2],
    /// A copy of a name that does not outlive the call ([`crate::begin`]).
    pub(crate) name: [u8; NAME_MAX + 1],
    /// Keys of a scope's labels. Inner activations inherit these labels in any trace.
    pub(crate) scope_keys: Keys,
}

/// A thread's state, at the start of its first block. All of it reads as zeros in a forked child.
#[repr(C)]
pub(crate) struct State {
    /// The innermost activation, or `bottom`; null: the state must be initialised again.
    pub(crate) top: *mut Level,
    pub(crate) slot: *const Slot,
    /// The next activation's sequence number and record's version.
    pub(crate) next: u64,
    pub(crate) random: Random,
    pub(crate) clock: Clock,
    /// Number of levels.
    levels: u32,
    /// The newest block that was added.
    blocks: *mut Block,
    bottom: Bottom,
}

/// Additional levels, after those of the first block.
#[repr(C)]
struct Block {
    next: *mut Block,
}

/// The bottom of the list: the first members of a [`Level`].
#[repr(C, align(64))]
struct Bottom([u64; 8]);

const BLOCK: usize = 4 * PAGE;
const LEVELS_IN_PAGE: usize = 2;
const LEVELS_IN_BLOCK: u32 = (BLOCK / PAGE * LEVELS_IN_PAGE) as u32;
/// No level, so no record, straddles or starts a page: the memory before a record is readable if the record
/// is.
const LEVELS_AT: usize = PAGE - LEVELS_IN_PAGE * size_of::<Level>();
/// Maximum number of activations on one thread. A thread that exceeds it has lost some exits.
pub(crate) const LEVELS_MAX: u32 = 4096;

const _: () = {
    assert!(core::mem::offset_of!(Level, records) == size_of::<Bottom>());
    assert!(LEVELS_AT >= size_of::<State>() && LEVELS_AT.is_multiple_of(64));
};

/// Blocks of threads that ended, for reuse by new threads.
static POOL: [AtomicPtr<u8>; 64] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 64];
static KEY: AtomicU64 = AtomicU64::new(NO_KEY);
const NO_KEY: u64 = u64::MAX;
/// Number of threads so far: the upper bits of activation numbers.
static THREADS: AtomicU64 = AtomicU64::new(0);
const SEQ_BITS: u32 = 44;

/// Initialises the process's state once. Returns false if the C library has no thread keys left, so that
/// memory could not be released.
fn set_up_process() -> bool {
    if KEY.load(Acquire) != NO_KEY {
        return true;
    }
    crate::clock::start();
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: writes a key to the local.
    if unsafe { libc::pthread_key_create(&mut key, Some(at_thread_end)) } != 0 {
        return false;
    }
    if KEY.compare_exchange(NO_KEY, u64::from(key), Release, Acquire).is_ok() {
        // SAFETY: the handler only changes the calling thread's words. If there is no room for it, the
        // child's memory is wiped nevertheless.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        stay_loaded();
    } else {
        // SAFETY: created above, and no thread has a value for it.
        unsafe { libc::pthread_key_delete(key) };
    }
    true
}

/// Prevents that the object with `at_thread_end`, which the C library calls, is unloaded. Fails for the
/// program itself, which is never unloaded.
fn stay_loaded() {
    // SAFETY: plain numbers and pointers, for which zeros are valid.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    let here = at_thread_end as *const core::ffi::c_void;
    // SAFETY: looks up the object of an address; its name is a C string that stays valid.
    unsafe {
        if libc::dladdr(here, &mut found) != 0 && !found.dli_fname.is_null() {
            libc::dlopen(found.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_NODELETE | libc::RTLD_LAZY);
        }
    }
}

/// Initialises the calling thread's state. Returns null if there is no memory or no key.
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
        // The slot still points to the activation of the parent's thread.
        clear(local);
    }
    let state = block.cast::<State>();
    let thread = THREADS.fetch_add(1, Relaxed) + 1;
    // SAFETY: this thread is the block's only user, and the block is large and aligned enough. The recorder's
    // slot of this thread is valid until the thread's end.
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
        // Without a value for the key, the destructor does not run, and the block is never released.
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
/// No activation uses the block's levels, and `last` is the list's last one.
unsafe fn add_levels(state: *mut State, mut last: *mut Level, block: *mut u8) {
    for i in 0..LEVELS_IN_BLOCK as usize {
        let at = i / LEVELS_IN_PAGE * PAGE + LEVELS_AT + i % LEVELS_IN_PAGE * size_of::<Level>();
        // SAFETY: within the block. Only the first words are written, so that unused pages stay untouched.
        unsafe {
            let level = block.add(at).cast::<Level>();
            (*level).below = last;
            (*level).above = core::ptr::null_mut();
            (*level).seq = 0;
            (*last).above = level;
            last = level;
        }
    }
    // SAFETY: the caller passes the thread's own state.
    unsafe { (*state).levels += LEVELS_IN_BLOCK };
}

/// Adds a level above the top. Returns null if there are too many, or no memory.
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
    /// This copy's state of the thread; null before the first use and after the thread's end.
    #[inline(always)]
    pub(crate) fn thread_state(&self) -> *mut State {
        self.state.load(Relaxed).cast()
    }
}

impl State {
    /// Returns a number that was not used before.
    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next = number + 1;
        number
    }

    /// The recorder's slot of this thread.
    #[inline]
    pub(crate) fn slot(&self) -> &AtomicPtr<u8> {
        // SAFETY: the slot is valid until the thread's end.
        unsafe { &(*self.slot).context }
    }

    /// Points the thread's slots to a record, or to none. A handler sees the previous record or this one.
    #[inline]
    pub(crate) fn publish(&self, local: &Local, record: *mut u8) {
        // The record is complete before it is visible.
        compiler_fence(Release);
        self.slot().store(record, Relaxed);
        // Other tools may find the program's own variable before the recorder's.
        local.slot.context.store(record, Relaxed);
        // The previous record is not changed until it is no longer visible.
        compiler_fence(Release);
    }
}

extern "C" fn at_thread_end(block: *mut core::ffi::c_void) {
    let state = block.cast::<State>();
    let local = local();
    local.state.store(core::ptr::null_mut(), Relaxed);
    // SAFETY: the thread's own state, which is not used from here on: a later activation of this thread
    // creates a new one.
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

/// Clears the thread's slots.
fn clear(local: &Local) {
    local.slot.context.store(core::ptr::null_mut(), Relaxed);
    // SAFETY: the recorder's slot of this thread.
    unsafe { (*(recorder().slot)()).context.store(core::ptr::null_mut(), Relaxed) };
}

/// Called in the child of a fork, whose single thread does not continue its parent's activations.
extern "C" fn in_child() {
    let local = local();
    clear(local);
    // If the kernel cannot wipe the state, it is reset here, so that the child exits none of its parent's
    // activations.
    let state = local.thread_state();
    if !state.is_null() {
        // SAFETY: the thread's own state.
        unsafe { (*state).top = core::ptr::null_mut() };
    }
    crate::clock::in_child();
    key_table::in_child();
    process::in_child();
}

/// Returns the level for the next activation; null if there is none.
///
/// # Safety
/// The calling thread's own state, with a top.
#[inline]
pub(crate) unsafe fn next_level(state: *mut State) -> *mut Level {
    // SAFETY: the caller guarantees the calling thread's own state, with a top.
    unsafe {
        let level = (*(*state).top).above;
        if level.is_null() { grow(state) } else { level }
    }
}

/// Returns the calling thread's state with a top, initialised if necessary; `None` if that is not possible.
#[inline]
pub(crate) fn state(local: &Local) -> Option<*mut State> {
    let mut state = local.thread_state();
    // SAFETY: a pointer that is not null is the thread's own state.
    if state.is_null() || unsafe { (*state).top.is_null() } {
        state = begin(local);
    }
    (!state.is_null()).then_some(state)
}
