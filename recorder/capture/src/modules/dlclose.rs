//! `dlclose`: code is unmapped while threads may walk it.
//!
//! Before the call, all modules that can be unloaded are marked dead: their memory is no longer read, and
//! their rows stay safe. After it, modules that are still loaded are marked alive again. `dlclose_seq` is odd
//! during the call, so the drain does not publish a table that it read half-way.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flightline_in_signal::layout::{ModuleEntry, SharedCell, module_flags};
use flightline_in_signal::state;
use flightline_in_signal::unwind::modules::select;

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
            attached.header().modules.dlclose_seq.fetch_add(1, Release);
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
            attached.header().modules.dlclose_seq.fetch_add(1, Release);
        }
    });
    attached.header().modules.maps_dirty.store(1, Release);
    r
}

/// Called in the child of a fork, where no other thread exists.
pub fn reset() {
    DEPTH.store(0, Relaxed);
}

/// Visits all modules that can be unloaded, in the active table and in the one that the drain may write next.
fn each_table(attached: &Attached, visit: impl Fn(&SharedCell<ModuleEntry>)) {
    let generation = attached.header().modules.generation.load(Acquire);
    for generation in [generation, generation.wrapping_sub(1)] {
        let table = select(attached.state.tables, generation);
        let count = table.count.load(Acquire) as usize;
        table.entries.iter().take(count).for_each(&visit);
    }
}

fn set_dead(entry: &SharedCell<ModuleEntry>, dead: bool) {
    // The low half of this word contains the flags. The drain may rewrite the entry at the same time.
    let word = entry.word::<{ offset_of!(ModuleEntry, flags) }>();
    const DEAD: u64 = module_flags::DEAD as u64;
    if word.load(Relaxed) & u64::from(module_flags::PERMANENT) != 0 {
        return;
    }
    if dead {
        word.fetch_or(DEAD, Release);
    } else {
        word.fetch_and(!DEAD, Release);
    }
}

/// Marks entries whose module is still loaded as alive again.
fn revive(attached: &Attached) {
    modules::each_loaded(&mut |start, end| {
        each_table(attached, |entry| {
            let ModuleEntry { start: from, end: to, .. } = entry.load();
            if start <= from && to <= end {
                set_dead(entry, false);
            }
        });
    });
}
