//! Tells a copy of this process's memory from the original.
//!
//! Not every child that copies the memory runs the C library's fork handlers: `_Fork` and a raw `clone` do not. Its process id
//! does not tell it either, as it may be the same number in another pid namespace. So there is a page that the kernel empties in
//! every such child (`MADV_WIPEONFORK`, Linux 4.14), with a number in it that no ancestor has had.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use flightline_in_signal::sys;

use crate::os;

static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Numbers given to this process and its ancestors: a child goes on with its parent's.
static GIVEN: AtomicU32 = AtomicU32::new(0);

const PAGE_BYTES: usize = 4096;

/// The number of this copy of the memory, never 0. A `vfork` child has its parent's. Async-signal-safe.
///
/// On a kernel that cannot empty the page it is the process id.
pub fn own() -> u32 {
    let page = match PAGE.load(Acquire) {
        known if !known.is_null() => known,
        _ => match map() {
            Some(page) => page,
            None => return sys::getpid(),
        },
    };
    // SAFETY: mapped for as long as the process lives.
    let word = unsafe { &*page };
    match word.load(Relaxed) {
        0 => {
            let new = GIVEN.fetch_add(1, Relaxed).wrapping_add(1).max(1);
            word.compare_exchange(0, new, AcqRel, Acquire).err().unwrap_or(new)
        }
        number => number,
    }
}

#[cold]
fn map() -> Option<*mut AtomicU32> {
    const WIPE_ON_FORK: i32 = 18;
    let at = os::map(None, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE).ok()?;
    let page = at as *mut AtomicU32;
    let first = os::advise(at, PAGE_BYTES, WIPE_ON_FORK)
        .then(|| PAGE.compare_exchange(core::ptr::null_mut(), page, AcqRel, Acquire));
    match first {
        Some(Ok(_)) => return Some(page),
        // Another thread was faster.
        Some(Err(known)) => {
            // SAFETY: mapped above, unknown to anybody.
            unsafe { os::unmap(at, PAGE_BYTES) };
            return Some(known);
        }
        None => {}
    }
    // SAFETY: as above.
    unsafe { os::unmap(at, PAGE_BYTES) };
    None
}
