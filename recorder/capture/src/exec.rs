//! exec and spawn: no signal of ours may be pending when another image starts (it would die of it), and what cannot be
//! recorded is told to the drain, not to the program.

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use flightline_in_signal::clock;
use flightline_in_signal::layout::proc_state;

use crate::command::Quiet;
use crate::masks::{self, KernelSet};
use crate::session::{self, Attached};
use crate::target::{self, Target};
use crate::{os, signals, threads};

/// The process is about to become another program; dropped when that failed.
pub struct Leaving {
    mask: KernelSet,
    attached: Option<&'static Attached>,
    _quiet: Quiet,
}

/// Disarms the process (unless it is a `vfork` child, which owns nothing) and undresses its signals.
pub fn leave() -> Leaving {
    // A command now would arm the thread again.
    let quiet = Quiet::begin();
    let attached = session::current();
    if let Some(attached) = attached {
        attached.header().state.store(proc_state::EXECING, Release);
        threads::disarm_all(attached);
        note_clocks(attached);
    }
    let mask = signals::bare_for_exec();
    if attached.is_some() {
        signals::swallow_pending();
    }
    Leaving { mask, attached, _quiet: quiet }
}

/// Last readings of all ledgers: no handler will complete them.
fn note_clocks(attached: &Attached) {
    for slot in threads::live(attached) {
        slot.end_cpu_ns.store(clock::cpu_ns_of(slot.tid.load(Relaxed)), Relaxed);
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        signals::dress_again(self.mask);
        if let Some(attached) = self.attached {
            threads::arm_all(attached);
            attached.header().state.store(proc_state::LIVE, Release);
        }
    }
}

/// A spawn: the child takes over this thread's mask, so it must be the one the program believes in. Undone on drop.
pub struct Spawning(Option<KernelSet>);

/// Prepares the calling thread for a spawn.
pub fn spawning() -> Spawning {
    let hidden = masks::hidden();
    Spawning((hidden != 0).then(|| masks::kernel_mask(libc::SIG_BLOCK, Some(hidden))))
}

impl Drop for Spawning {
    fn drop(&mut self) {
        if let Some(mask) = self.0 {
            masks::kernel_mask(libc::SIG_SETMASK, Some(mask));
        }
    }
}

/// Looks at the program about to be started. `true` if it must not see our object in its environment.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn inspect(path: *const c_char, search: bool) -> bool {
    let Some(attached) = session::inherited().filter(|_| !path.is_null()) else { return false };
    // SAFETY: by the contract.
    let path = unsafe { CStr::from_ptr(path) };
    if !search {
        return judge(attached, path);
    }
    target::on_path(path, os::env(c"PATH")).cstr().is_ok_and(|file| judge(attached, file))
}

fn judge(attached: &Attached, file: &CStr) -> bool {
    let Target::Not { reason, strip } = target::look(file) else { return false };
    notice(attached, file.to_bytes(), reason);
    strip
}

/// Tells the drain what cannot be recorded. Atomic stores only: a `vfork` child may do it in its parent's memory.
pub fn notice(attached: &Attached, path: &[u8], reason: u32) {
    let header = attached.header();
    let [at, len, why] = &header.notice;
    if let Some(place) = attached.put_string(path) {
        at.store(place[0], Relaxed);
        len.store(place[1], Relaxed);
        why.store(reason, Relaxed);
        header.notice_seq.fetch_add(1, AcqRel);
    }
}
