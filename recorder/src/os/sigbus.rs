//! Handles SIGBUS for files that are truncated while they are mapped.
//!
//! A recorded program can truncate its shared file, and an update can truncate a library whose symbols are
//! being read. Access to a missing page raises SIGBUS. In our own processes, the handler maps a page of zeros
//! there and continues: the contents are lost, but every reader validates its input anyway. Never installed
//! in a recorded program.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::{
    errno::Errno,
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
};

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Installs the handler in this process.
pub fn survive() {
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    let action = SigAction::new(SigHandler::SigAction(on_sigbus), SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler makes only async-signal-safe calls.
    let _ = unsafe { sigaction(Signal::SIGBUS, &action) };
}

extern "C" fn on_sigbus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let errno = Errno::last_raw();
    // SAFETY: the kernel passes a valid siginfo with the address of the fault.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code != libc::BUS_ADRERR {
        // SAFETY: async-signal-safe; any other bus error is a defect that must not be hidden.
        unsafe { libc::abort() };
    }
    let page = address & !4095;
    // SAFETY: only a page whose file backing is gone is replaced (BUS_ADRERR); nothing else can be in it.
    let mapped = unsafe {
        libc::mmap(
            page as *mut libc::c_void,
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        // SAFETY: async-signal-safe.
        unsafe { libc::abort() };
    }
    Errno::set_raw(errno);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_mapped_file_reads_as_zeros() {
        survive();
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * 4096).unwrap();
        let map = memmap2::MmapRaw::map_raw(&file).unwrap();
        // SAFETY: inside the mapping.
        unsafe { map.as_mut_ptr().add(2 * 4096).write_volatile(7) };
        file.set_len(0).unwrap();
        // SAFETY: inside the mapping; the fault is survived.
        assert_eq!(unsafe { map.as_ptr().add(2 * 4096).read_volatile() }, 0);
        // SAFETY: as above.
        unsafe { map.as_mut_ptr().add(10).write_volatile(9) };
        // SAFETY: as above.
        assert_eq!(unsafe { map.as_ptr().add(10).read_volatile() }, 9);
    }
}
