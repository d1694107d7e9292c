//! Modules that are not in a table yet, right after a `dlopen`.
//!
//! glibc 2.35 and newer answer "which object covers this address, and where is its unwind information" by
//! `_dl_find_object`, documented as async-signal-safe and free of locks (manual, "Dynamic Linker
//! Introspection"). It is the only external function that a handler calls, through a pointer that the capture
//! crate found. Without it (musl, older glibc) such an address has no unwind information until the drain has
//! read the program's map.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::layout::ModuleEntry;

/// `struct dl_find_object` of x86_64 and aarch64 (`<dlfcn.h>`): neither has the optional members.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    start: usize,
    end: usize,
    link_map: *const c_void,
    eh_frame_hdr: usize,
    reserved: [u64; 7],
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> i32;

static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// Sets the address of `_dl_find_object`; 0 = this C library has none.
///
/// # Safety
/// `address` is 0 or that function's address.
pub unsafe fn set_find_object(address: usize) {
    FIND_OBJECT.store(address, Relaxed);
}

/// Returns the loaded object that covers `address`. The entry has no rows and never allows plain loads,
/// because the object may be closed at any time.
#[cold]
pub fn find_object(address: u64) -> Option<ModuleEntry> {
    let found = look_up(address)?;
    let (start, end) = (found.start as u64, found.end as u64);
    if found.eh_frame_hdr == 0 || address < start || address >= end {
        return None;
    }
    Some(ModuleEntry {
        start,
        end,
        bias: 0,
        eh_frame_hdr: found.eh_frame_hdr as u64,
        eh_readable_end: end,
        rows_off: 0,
        flags: 0,
        path_id: 0,
        eh_readable_start: start,
    })
}

/// Returns the loader's `struct link_map` of the object that covers `address`.
#[cold]
pub fn link_map(address: u64) -> Option<*const c_void> {
    look_up(address).map(|found| found.link_map).filter(|map| !map.is_null())
}

fn look_up(address: u64) -> Option<DlFindObject> {
    let function = FIND_OBJECT.load(Relaxed);
    if function == 0 {
        return None;
    }
    // SAFETY: `set_find_object` requires 0, which was ruled out above, or the address of that function.
    let find = unsafe { core::mem::transmute::<usize, FindObject>(function) };
    let mut found = DlFindObject {
        flags: 0,
        start: 0,
        end: 0,
        link_map: core::ptr::null(),
        eh_frame_hdr: 0,
        reserved: [0; 7],
    };
    // SAFETY: the function only looks the address up and fills the local; it is documented as
    // async-signal-safe.
    let failed = unsafe { find(address as *mut c_void, &raw mut found) } != 0;
    (!failed).then_some(found)
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    extern crate std;
    use super::*;

    unsafe extern "C" {
        fn _dl_find_object(address: *mut c_void, found: *mut DlFindObject) -> i32;
    }

    #[test]
    fn own_object_is_found_and_other_addresses_are_not() {
        let here = find_object as *const () as u64;
        assert!(find_object(here).is_none());
        // SAFETY: this is the address of the function itself.
        unsafe { set_find_object(_dl_find_object as *const () as usize) };
        let module = find_object(here).unwrap();
        assert!(module.start <= here && here < module.end);
        assert!(module.eh_frame_hdr > module.start && module.eh_frame_hdr < module.end);
        // SAFETY: the first byte of the program's own .eh_frame_hdr, its version.
        assert_eq!(unsafe { (module.eh_frame_hdr as *const u8).read() }, 1);
        let local = 0u64;
        assert!(find_object(&raw const local as u64).is_none());
        assert!(find_object(8).is_none());
    }
}
