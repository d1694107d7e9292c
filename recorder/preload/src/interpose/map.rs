//! Pages that the program maps and unmaps. The calls go to the C library. Before its functions are known, at
//! a time when a lookup could come back here, they go to the kernel.

use core::ffi::{c_int, c_void};

use flightline_capture::{alloc::mapped, os};

use crate::real::{KeepErrno, Next, fail, look_up};

look_up! {
    static MMAP: Next = Next::new(c"mmap");
    static MUNMAP: Next = Next::new(c"munmap");
    static MREMAP: Next = Next::new(c"mremap");
    static SBRK: Next = Next::new(c"sbrk");
    static BRK: Next = Next::new(c"brk");
}

const FAILED: usize = usize::MAX;

/// Returns the C library's function, if it is known.
fn known<F: Copy>(next: &Next) -> Option<F> {
    let address = next.known();
    // SAFETY: a function pointer is one word, and each caller names the type of the function with this name.
    (!address.is_null()).then(|| unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) })
}

/// # Safety
/// As the call itself.
unsafe fn kernel(number: libc::c_long, args: [usize; 6]) -> usize {
    // SAFETY: the caller guarantees the contract of the system call.
    unsafe { os::syscall(number, args) }.unwrap_or_else(|errno| {
        fail(errno);
        FAILED
    })
}

/// `NAME(…)` with the return address as an additional argument: by a jump, because a register is free for it.
macro_rules! with_caller {
    ($($(#[$doc:meta])* $name:ident => $inner:ident, $x86:literal, $arm:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $x86, ", qword ptr [rsp]"),
                "jmp {inner}",
                ".cfi_endproc",
                inner = sym $inner,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $arm, ", x30"),
                "b {inner}",
                ".cfi_endproc",
                inner = sym $inner,
            );
        }
    )*};
}

with_caller! {
    /// `mremap(2)`, which does not use the sixth register.
    mremap => mremap_from, "r9", "x5";
    /// `sbrk(2)`
    sbrk => sbrk_from, "rsi", "x1";
    /// `brk(2)`
    brk => brk_from, "rsi", "x1";
}

/// All six registers are used, so the return address goes onto the stack.
macro_rules! mmap {
    ($($name:ident)*) => {$(
        /// `mmap(2)`
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push qword ptr [rsp]",
                ".cfi_adjust_cfa_offset 8",
                "call {inner}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                inner = sym mmap_from,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                "mov x6, x30",
                "b {inner}",
                ".cfi_endproc",
                inner = sym mmap_from,
            );
        }
    )*};
}

// On 64-bit machines both are one function.
mmap! { mmap mmap64 }

unsafe extern "C" fn mmap_from(
    at: usize,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: usize,
    caller: usize,
) -> usize {
    type Mmap = unsafe extern "C" fn(usize, usize, c_int, c_int, c_int, usize) -> usize;
    let got = match known::<Mmap>(&MMAP) {
        // SAFETY: the program's own call, forwarded to the C library or the kernel.
        Some(real) => unsafe { real(at, bytes, protection, flags, fd, offset) },
        None => {
            let args = [at, bytes, protection as usize, flags as usize, fd as usize, offset];
            // SAFETY: the program's own call, forwarded to the C library or the kernel.
            unsafe { kernel(libc::SYS_mmap, args) }
        }
    };
    if got != FAILED && mapped::is_enabled() {
        let _errno = KeepErrno::new();
        mapped::mapped(got, bytes, protection, flags, caller);
    }
    got
}

/// `munmap(2)`. Recorded before the call, because the pages may belong to another thread afterwards.
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: usize, bytes: usize) -> c_int {
    if mapped::is_enabled() {
        let _errno = KeepErrno::new();
        mapped::unmapped(at, bytes);
    }
    match known::<unsafe extern "C" fn(usize, usize) -> c_int>(&MUNMAP) {
        // SAFETY: the program's own call, forwarded to the C library or the kernel.
        Some(real) => unsafe { real(at, bytes) },
        // SAFETY: the program's own call, forwarded to the C library or the kernel.
        None => unsafe { kernel(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]) as c_int },
    }
}

unsafe extern "C" fn mremap_from(
    old: usize,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    at: usize,
    caller: usize,
) -> usize {
    type Mremap = unsafe extern "C" fn(usize, usize, usize, c_int, usize) -> usize;
    let wanted = mapped::is_enabled();
    if wanted {
        let _errno = KeepErrno::new();
        mapped::moving(old, old_bytes, bytes, flags);
    }
    let got = match known::<Mremap>(&MREMAP) {
        // SAFETY: the program's own call, forwarded to the C library or the kernel.
        Some(real) => unsafe { real(old, old_bytes, bytes, flags, at) },
        // SAFETY: the program's own call, forwarded to the C library or the kernel.
        None => unsafe { kernel(libc::SYS_mremap, [old, old_bytes, bytes, flags as usize, at, 0]) },
    };
    if got != FAILED && wanted {
        let _errno = KeepErrno::new();
        mapped::moved(old, old_bytes, got, bytes, flags, caller);
    }
    got
}

unsafe extern "C" fn sbrk_from(change: isize, caller: usize) -> usize {
    SBRK.address();
    let Some(real) = known::<unsafe extern "C" fn(isize) -> usize>(&SBRK) else {
        fail(libc::ENOMEM);
        return FAILED;
    };
    // SAFETY: the program's own call, forwarded to the C library or the kernel.
    let before = unsafe { real(change) };
    if before != FAILED && change != 0 && mapped::is_enabled() {
        let _errno = KeepErrno::new();
        mapped::end_moved(before, before.wrapping_add_signed(change), true, caller);
    }
    before
}

unsafe extern "C" fn brk_from(to: usize, caller: usize) -> c_int {
    BRK.address();
    let Some(real) = known::<unsafe extern "C" fn(usize) -> c_int>(&BRK) else { return fail(libc::ENOMEM) };
    if !mapped::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library or the kernel.
        return unsafe { real(to) };
    }
    // SAFETY: the kernel refuses an end of 0 and returns the current one.
    let before = unsafe { os::syscall(libc::SYS_brk, [0; 6]) };
    // SAFETY: the program's own call, forwarded to the C library or the kernel.
    let r = unsafe { real(to) };
    if let (0, Ok(before)) = (r, before) {
        let _errno = KeepErrno::new();
        mapped::end_moved(before, to, false, caller);
    }
    r
}
