//! One thread-local word, accessed by two instructions in the initial-exec model: never through
//! `__tls_get_addr`, which may call `malloc` on a thread's first access. It works in an executable (the
//! linker relaxes the access) and in a preloaded object. The word is zero in a new thread.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .tbss.flightline_slot,\"awT\",@nobits",
    ".p2align 3",
    ".hidden flightline_slot",
    ".globl flightline_slot",
    ".type flightline_slot, @object",
    ".size flightline_slot, 8",
    "flightline_slot: .zero 8",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .tbss.flightline_slot,\"awT\",%nobits",
    ".p2align 3",
    ".hidden flightline_slot",
    ".globl flightline_slot",
    ".type flightline_slot, %object",
    ".size flightline_slot, 8",
    "flightline_slot: .zero 8",
    ".popsection",
);

/// The calling thread's word.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn get() -> usize {
    let value: usize;
    // SAFETY: reads this thread's own word; the offset comes from the GOT entry the linker made for it.
    unsafe {
        core::arch::asm!(
            "mov {v}, qword ptr [rip + flightline_slot@GOTTPOFF]",
            "mov {v}, qword ptr fs:[{v}]",
            v = out(reg) value, options(nostack, readonly, preserves_flags));
    }
    value
}

/// Sets the calling thread's word.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn set(value: usize) {
    // SAFETY: writes this thread's own word.
    unsafe {
        core::arch::asm!(
            "mov {o}, qword ptr [rip + flightline_slot@GOTTPOFF]",
            "mov qword ptr fs:[{o}], {v}",
            o = out(reg) _, v = in(reg) value, options(nostack, preserves_flags));
    }
}

/// The calling thread's word.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn get() -> usize {
    let value: usize;
    // SAFETY: reads this thread's own word; the offset comes from the GOT entry that the linker made for it.
    unsafe {
        core::arch::asm!(
            "adrp {v}, :gottprel:flightline_slot",
            "ldr {v}, [{v}, #:gottprel_lo12:flightline_slot]",
            "mrs {t}, tpidr_el0",
            "ldr {v}, [{t}, {v}]",
            v = out(reg) value, t = out(reg) _, options(nostack, readonly, preserves_flags));
    }
    value
}

/// Sets the calling thread's word.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn set(value: usize) {
    // SAFETY: writes this thread's own word.
    unsafe {
        core::arch::asm!(
            "adrp {o}, :gottprel:flightline_slot",
            "ldr {o}, [{o}, #:gottprel_lo12:flightline_slot]",
            "mrs {t}, tpidr_el0",
            "str {v}, [{t}, {o}]",
            o = out(reg) _, t = out(reg) _, v = in(reg) value, options(nostack, preserves_flags));
    }
}

/// A cache of thread pointers that are the C library's, indexed by hash.
static KNOWN: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];

#[inline]
fn place(pointer: usize) -> Option<&'static AtomicUsize> {
    KNOWN.get(pointer.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56)
}

/// Adds the thread pointer of a thread of the C library to the cache.
pub fn know(pointer: usize) {
    if let Some(place) = place(pointer) {
        place.store(pointer, Relaxed);
    }
}

/// Removes a thread pointer from the cache when its thread ends: a thread of another kind may reuse the memory.
pub fn forget(pointer: usize) {
    if let Some(place) = place(pointer) {
        let _ = place.compare_exchange(pointer, 0, Relaxed, Relaxed);
    }
}

/// Returns true if the calling thread's thread pointer leads to thread-local memory of the C library, so that this module's words may be
/// accessed. A thread made by a raw `clone` with `CLONE_SETTLS` has no such memory, nor has a thread whose runtime moves the pointer
/// for a while. Handlers check this before they do anything else.
///
/// Always true if the pointer cannot be read without accessing that memory: on processors or kernels (before 5.9) without
/// `rdfsbase`, and on aarch64.
#[inline]
pub fn is_here() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let Some(pointer) = x86_64::pointer() else { return true };
        place(pointer).is_some_and(|known| known.load(Relaxed) == pointer) || x86_64::look(pointer)
    }
    // On aarch64 the first word of the block is not the pointer itself.
    #[cfg(not(target_arch = "x86_64"))]
    true
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use crate::os::sys;

    /// True if the kernel allows `rdfsbase`.
    static READS_FS: AtomicBool = AtomicBool::new(false);

    /// Sets whether the kernel allows `rdfsbase` (`AT_HWCAP2`, bit 1).
    pub fn set_reads_fs(can: bool) {
        READS_FS.store(can, Relaxed);
    }

    /// The thread pointer, without touching the memory that it points to.
    #[inline]
    pub fn pointer() -> Option<usize> {
        if !READS_FS.load(Relaxed) {
            return None;
        }
        let pointer: usize;
        // SAFETY: the kernel allows the instruction; it reads a register.
        unsafe {
            core::arch::asm!("rdfsbase {}", out(reg) pointer, options(nostack, nomem, preserves_flags))
        };
        Some(pointer)
    }

    /// Checks with system calls that the first word is the pointer itself and that this module's word is readable.
    #[cold]
    #[inline(never)]
    pub fn look(pointer: usize) -> bool {
        let offset: usize;
        // SAFETY: reads the GOT entry that the linker made for the word.
        unsafe {
            core::arch::asm!(
                "mov {o}, qword ptr [rip + flightline_slot@GOTTPOFF]",
                o = out(reg) offset, options(nostack, readonly, preserves_flags));
        }
        let mut word = [0u64; 2];
        let [first, own] = &mut word;
        let pid = sys::getpid();
        // SAFETY: the local words are 8 bytes long each.
        let read = |at: usize, to: &mut u64| unsafe {
            sys::read_process(pid, at as u64, core::ptr::from_mut(to).cast(), 8) == 8
        };
        let here =
            read(pointer, first) && *first == pointer as u64 && read(pointer.wrapping_add(offset), own);
        if here {
            super::know(pointer);
        }
        here
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86_64::set_reads_fs;

#[cfg(test)]
mod tests {
    extern crate std;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn only_thread_pointers_with_tls_are_accepted() {
        assert!(super::is_here());
        const HWCAP2: u64 = 26;
        let vector = std::fs::read("/proc/self/auxv").unwrap();
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let entry = vector.chunks_exact(16).find(|entry| word(&entry[..8]) == HWCAP2);
        super::set_reads_fs(entry.is_some_and(|entry| word(&entry[8..]) & 2 != 0));
        let pointer = crate::context::thread_pointer();
        assert!([None, Some(pointer)].contains(&super::x86_64::pointer()));
        super::forget(pointer);
        assert!(super::is_here() && super::is_here());
        assert!(super::x86_64::look(pointer));
        // Zeroed memory and unmapped addresses.
        let zero = [0usize; 512];
        assert!(!super::x86_64::look(zero.as_ptr() as usize));
        assert!(!super::x86_64::look(0) && !super::x86_64::look(usize::MAX - 7));
    }

    #[test]
    fn each_thread_has_its_own_word() {
        assert_eq!(super::get(), 0);
        super::set(7);
        std::thread::spawn(|| {
            assert_eq!(super::get(), 0);
            super::set(9);
            assert_eq!(super::get(), 9);
        })
        .join()
        .unwrap();
        assert_eq!(super::get(), 7);
        super::set(0);
    }
}
