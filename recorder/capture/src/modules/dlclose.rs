//! `dlclose`: code is unmapped while threads may walk it.
//!
//! Before the call, all modules that can be unloaded are marked dead: their memory is no longer read, and
//! their rows stay safe. After it, modules that are still loaded are marked alive again. `dlclose_seq` is odd
//! during the call, so the drain does not publish a table that it read half-way.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use flightline_in_signal::layout::{MODULE_TABLES, MODULES_PER_TABLE, ModuleEntry, module_flags};
use flightline_in_signal::state;

use crate::modules;
use crate::os::spin::Spin;
use crate::session::{self, Attached};

static LOCK: Spin = Spin::new();
/// Number of `dlclose` calls that run now, in all threads.
static DEPTH: AtomicUsize = AtomicUsize::new(0);

/// Runs the C library's `dlclose`.
///
/// # Safety
/// As the function itself.
pub unsafe fn dlclose(real: unsafe extern "C" fn(*mut c_void) -> c_int, handle: *mut c_void) -> c_int {
    let Some(attached) = session::current() else {
        // SAFETY: the caller guarantees the contract of `dlclose` for this handle.
        return unsafe { real(handle) };
    };
    // Samples that the drain has not symbolized yet may contain code of a module that is unloaded now.
    modules::append_new(attached);
    LOCK.with(|| {
        if DEPTH.fetch_add(1, Relaxed) == 0 {
            attached.header().dlclose_seq.fetch_add(1, Release);
        }
    });
    each_table(attached, |entry| set_dead(entry, true));
    state::forget_rules();
    // SAFETY: the caller guarantees the contract of `dlclose` for this handle.
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

/// Called in the child of a fork, where no other thread exists.
pub fn reset() {
    DEPTH.store(0, Relaxed);
}

/// Visits all modules that can be unloaded, in the active table and in the one that the drain may write next.
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

/// Marks entries whose module is still loaded as alive again.
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
