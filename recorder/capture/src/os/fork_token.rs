//! A number that distinguishes a forked child from its parent.
//!
//! Children of `_Fork` and raw `clone` copy the memory but run no fork handler. The pid is not enough to recognise them, because two
//! processes of different pid namespaces may have the same one. The kernel clears a page with `MADV_WIPEONFORK` (Linux 4.14) in every
//! such child; the page holds a number that no ancestor has had.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use flightline_in_signal::os::sys;

use crate::os;

static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Number of tokens of this process and its ancestors so far; a child continues its parent's count.
static LAST: AtomicU32 = AtomicU32::new(0);

/// [`this_process`] of the process that the tables of signals and masks in this memory belong to. 0: not claimed yet.
static OWNER: AtomicU64 = AtomicU64::new(0);

const PAGE_BYTES: usize = 4096;

/// Records that the tables in this memory belong to this process: called at the start, and in the fork
/// handler of each child.
pub fn claim() {
    OWNER.store(this_process(), Release);
}

/// Returns true in a child that shares its parent's memory (`vfork`) or copied it without a fork handler. Such a child has signal
/// dispositions of its own in the kernel, and must not change its parent's tables. Async-signal-safe.
pub fn is_borrowed() -> bool {
    let owner = OWNER.load(Acquire);
    owner != 0 && owner != this_process()
}

/// Token (upper half) and pid of this process. A `vfork` child has its parent's token and a pid of its own. Async-signal-safe.
pub fn this_process() -> u64 {
    u64::from(own()) << 32 | u64::from(sys::getpid())
}

/// The token of this process, never 0. A `vfork` child shares its parent's. Async-signal-safe.
///
/// On a kernel without `MADV_WIPEONFORK` it is the pid.
pub fn own() -> u32 {
    let mut page = PAGE.load(Acquire);
    if page.is_null() {
        let Some(new) = map() else { return sys::getpid() };
        page = new;
    }
    // SAFETY: mapped for as long as the process lives.
    let word = unsafe { &*page };
    match word.load(Relaxed) {
        0 => {
            let new = LAST.fetch_add(1, Relaxed).wrapping_add(1).max(1);
            word.compare_exchange(0, new, AcqRel, Acquire).err().unwrap_or(new)
        }
        token => token,
    }
}

#[cold]
fn map() -> Option<*mut AtomicU32> {
    let at = os::map(None, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE).ok()?;
    let page = at as *mut AtomicU32;
    let known = if os::advise(at, PAGE_BYTES, libc::MADV_WIPEONFORK) {
        match PAGE.compare_exchange(core::ptr::null_mut(), page, AcqRel, Acquire) {
            Ok(_) => return Some(page),
            // Another thread published its page first.
            Err(known) => Some(known),
        }
    } else {
        None
    };
    // SAFETY: mapped above, and not shared with any other thread.
    unsafe { os::unmap(at, PAGE_BYTES) };
    known
}
