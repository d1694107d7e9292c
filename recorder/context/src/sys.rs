//! System calls without the C library, because `libflightline.so` interposes some of its functions, and
//! `errno` belongs to the program.

#[cfg(target_arch = "x86_64")]
mod number {
    pub const READ: usize = 0;
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const MADVISE: usize = 28;
    pub const FTRUNCATE: usize = 77;
    pub const PRCTL: usize = 157;
    pub const OPENAT: usize = 257;
    pub const GETRANDOM: usize = 318;
    pub const MEMFD_CREATE: usize = 319;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const READ: usize = 63;
    pub const CLOSE: usize = 57;
    pub const MMAP: usize = 222;
    pub const MUNMAP: usize = 215;
    pub const MADVISE: usize = 233;
    pub const FTRUNCATE: usize = 46;
    pub const PRCTL: usize = 167;
    pub const OPENAT: usize = 56;
    pub const GETRANDOM: usize = 278;
    pub const MEMFD_CREATE: usize = 279;
}

/// Minimum page size of the supported systems: data that must not straddle a page does not straddle one of
/// these.
pub(crate) const PAGE: usize = 4096;

/// # Safety
/// As the system call.
unsafe fn call(number: usize, a: [usize; 6]) -> isize {
    let answer: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => answer, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], out("rcx") _, out("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number, inlateout("x0") a[0] as isize => answer, in("x1") a[1], in("x2") a[2],
            in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    answer
}

fn map(len: usize, flags: i32, fd: i32) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a new mapping, which replaces no other one.
    let at = unsafe { call(number::MMAP, [0, len, protection, flags as usize, fd as usize, 0]) };
    (at > 0).then_some(at as *mut u8)
}

/// New zeroed memory that a forked child finds zeroed again.
pub(crate) fn map_wiped_on_fork(len: usize) -> Option<*mut u8> {
    let at = map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // Before Linux 4.14 only the fork handler clears the memory. SAFETY: the mapping was made above.
    unsafe { call(number::MADVISE, [at as usize, len, libc::MADV_WIPEONFORK as usize, 0, 0, 0]) };
    Some(at)
}

/// New zeroed memory.
pub(crate) fn map_anonymous(len: usize) -> Option<*mut u8> {
    map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// # Safety
/// Nothing uses the memory any more.
pub(crate) unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller guarantees that nothing uses the memory any more.
    unsafe { call(number::MUNMAP, [at as usize, len, 0, 0, 0, 0]) };
}

/// Maps memory with a name that readers find in `/proc/<pid>/maps`, and that a forked child does not have.
pub(crate) fn map_named(len: usize, name: &core::ffi::CStr) -> Option<*mut u8> {
    // SAFETY: a C string.
    let fd = unsafe {
        call(number::MEMFD_CREATE, [name.as_ptr() as usize, libc::MFD_CLOEXEC as usize, 0, 0, 0, 0])
    };
    let at = if fd >= 0 {
        // SAFETY: the descriptor was opened above.
        let sized = unsafe { call(number::FTRUNCATE, [fd as usize, len, 0, 0, 0, 0]) } == 0;
        let at = if sized { map(len, libc::MAP_SHARED, fd as i32) } else { None };
        // SAFETY: the descriptor was opened above; the mapping stays without it.
        unsafe { call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
        at?
    } else {
        map_anonymous(len)?
    };
    // SAFETY: the mapping was made above.
    if unsafe { call(number::MADVISE, [at as usize, len, libc::MADV_DONTFORK as usize, 0, 0, 0]) } != 0 {
        // SAFETY: no other thread knows the mapping yet.
        unsafe { unmap(at, len) };
        return None;
    }
    Some(at)
}

/// Names a mapping for `/proc/<pid>/maps`, if the kernel supports it.
pub(crate) fn name_mapping(at: *mut u8, len: usize, name: &core::ffi::CStr) {
    const PR_SET_VMA: usize = 0x5356_4d41;
    const PR_SET_VMA_ANON_NAME: usize = 0;
    // SAFETY: the caller's mapping and a C string.
    unsafe {
        call(number::PRCTL, [PR_SET_VMA, PR_SET_VMA_ANON_NAME, at as usize, len, name.as_ptr() as usize, 0])
    };
}

/// Fills `bytes` with random bytes. Returns false if the kernel has none yet, or a filter forbids the call.
pub(crate) fn random(bytes: &mut [u8]) -> bool {
    const GRND_NONBLOCK: usize = 1;
    // SAFETY: the kernel writes at most the requested bytes.
    let got = unsafe {
        call(number::GETRANDOM, [bytes.as_mut_ptr() as usize, bytes.len(), GRND_NONBLOCK, 0, 0, 0])
    };
    got == bytes.len() as isize
}

/// Returns true if a line of a file contains `wanted`. The file is read in pieces.
pub(crate) fn file_holds(path: &core::ffi::CStr, wanted: &[u8]) -> bool {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: a C string.
    let fd =
        unsafe { call(number::OPENAT, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0]) };
    if fd < 0 {
        return false;
    }
    let mut bytes = [0u8; 2048];
    let (mut overlap, mut found) = (0, false);
    loop {
        let room = &mut bytes[overlap..];
        // SAFETY: the kernel writes at most the requested bytes.
        let got =
            unsafe { call(number::READ, [fd as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0]) };
        if got <= 0 {
            break;
        }
        let len = overlap + got as usize;
        found = bytes[..len].windows(wanted.len()).any(|window| window == wanted);
        if found {
            break;
        }
        // The text may straddle two pieces.
        overlap = len.min(wanted.len() - 1);
        bytes.copy_within(len - overlap..len, 0);
    }
    // SAFETY: the descriptor was opened above.
    unsafe { call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
    found
}
