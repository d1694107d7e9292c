//! `dlclose`: code goes away under the walker's feet.
//!
//! Entries of modules that may be unloaded are marked dead before (their memory is not touched any more, their rows
//! stay safe); those still loaded afterwards come back to life. `dlclose_seq` is odd meanwhile, so the drain does not
//! publish a table it read half-way.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use flightline_in_signal::layout::{MODULE_TABLES, MODULES_PER_TABLE, ModuleEntry, module_flags};
use flightline_in_signal::state;

use crate::modules;
use crate::session::{self, Attached};
use crate::spin::Spin;

static LOCK: Spin = Spin::new();
/// Calls of `dlclose` running, in all threads.
static DEPTH: AtomicUsize = AtomicUsize::new(0);

/// Runs the C library's `dlclose`.
///
/// # Safety
/// As the function itself.
pub unsafe fn dlclose(real: unsafe extern "C" fn(*mut c_void) -> c_int, handle: *mut c_void) -> c_int {
    let Some(attached) = session::current() else {
        // SAFETY: passed on.
        return unsafe { real(handle) };
    };
    // What goes away now may be in samples that the drain has not named yet.
    modules::append_new(attached);
    LOCK.with(|| {
        if DEPTH.fetch_add(1, Relaxed) == 0 {
            attached.header().dlclose_seq.fetch_add(1, Release);
        }
    });
    each_table(attached, |entry| set_dead(entry, true));
    state::forget_rules();
    // SAFETY: passed on.
    let r = unsafe { real(handle) };
    revive(attached);
    state::forget_rules();
    LOCK.with(|| {
        if DEPTH.fetch_sub(1, Relaxed) == 1 {
            attached.header().dlclose_seq.fetch_add(1, Release);
        }
    });
    attached.header().maps_dirty.store(1, Release);
    r
}

/// In the child of a fork, whose other threads do not exist.
pub fn reset() {
    DEPTH.store(0, Relaxed);
}

/// All modules that can be unloaded, in the active table and the one the drain may be writing next.
fn each_table(attached: &Attached, visit: impl Fn(&Entry)) {
    let generation = attached.header().modules_gen.load(Acquire) as usize;
    for table in [generation % MODULE_TABLES, generation.wrapping_sub(1) % MODULE_TABLES] {
        // SAFETY: one of the MODULE_TABLES tables of the mapping.
        let table = unsafe { attached.tables().add(table) };
        // SAFETY: the count is an atomic in shared memory.
        let count = unsafe { (*table).count.load(Acquire) } as usize;
        for i in 0..count.min(MODULES_PER_TABLE) {
            // SAFETY: `i` is inside the table.
            let entry = unsafe { (&raw mut (*table).entries).cast::<ModuleEntry>().add(i) };
            visit(&Entry(entry));
        }
    }
}

/// An entry in shared memory, which the drain may change too.
struct Entry(*mut ModuleEntry);

impl Entry {
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, only touched by atomics on this side.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.0).flags) }
    }
}

fn set_dead(entry: &Entry, dead: bool) {
    let flags = entry.flags();
    if flags.load(Relaxed) & module_flags::PERMANENT != 0 {
        return;
    }
    if dead {
        flags.fetch_or(module_flags::DEAD, Release);
    } else {
        flags.fetch_and(!module_flags::DEAD, Release);
    }
}

/// Entries whose module is still loaded are alive again.
fn revive(attached: &Attached) {
    modules::each_loaded(&mut |start, end| {
        each_table(attached, |entry| {
            // SAFETY: plain words of the mapping, read whole.
            let (from, to) = unsafe {
                ((&raw const (*entry.0).start).read_volatile(), (&raw const (*entry.0).end).read_volatile())
            };
            if start <= from && to <= end {
                set_dead(entry, false);
            }
        });
    });
}
