//! System calls by the instruction itself, without libc. So `errno` is never touched, and a handler cannot
//! enter a function of the program (an interposed `mmap`, say).
//!
//! Results follow the kernel: `-4095..0` is a negated errno.

/// Numbers of the system calls used here, from the kernel's tables.
#[cfg(target_arch = "x86_64")]
#[expect(missing_docs, reason = "the kernel's names")]
pub mod nr {
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const GETPID: usize = 39;
    pub const GETRUSAGE: usize = 98;
    pub const GETTID: usize = 186;
    pub const TIMER_CREATE: usize = 222;
    pub const TIMER_SETTIME: usize = 223;
    pub const TIMER_DELETE: usize = 226;
    pub const CLOCK_GETTIME: usize = 228;
    pub const PERF_EVENT_OPEN: usize = 298;
    pub const PROCESS_VM_READV: usize = 310;
}

/// Numbers of the system calls used here, from the kernel's tables.
#[cfg(target_arch = "aarch64")]
#[expect(missing_docs, reason = "the kernel's names")]
pub mod nr {
    pub const IOCTL: usize = 29;
    pub const CLOSE: usize = 57;
    pub const TIMER_CREATE: usize = 107;
    pub const TIMER_SETTIME: usize = 110;
    pub const TIMER_DELETE: usize = 111;
    pub const CLOCK_GETTIME: usize = 113;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const GETRUSAGE: usize = 165;
    pub const GETPID: usize = 172;
    pub const GETTID: usize = 178;
    pub const MUNMAP: usize = 215;
    pub const MMAP: usize = 222;
    pub const PERF_EVENT_OPEN: usize = 241;
    pub const PROCESS_VM_READV: usize = 270;
}

/// One system call with up to six arguments.
///
/// # Safety
/// The call must be sound with these arguments: every pointer valid for what the kernel does with it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn call(number: usize, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel preserves everything but rax, rcx and r11; the caller guarantees valid arguments.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// One system call with up to six arguments.
///
/// # Safety
/// The call must be sound with these arguments: every pointer valid for what the kernel does with it.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn call(number: usize, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel preserves everything but x0; the caller guarantees valid arguments.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number, inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    result
}

/// Converts a kernel result: `Err` carries the positive errno.
#[inline]
pub fn check(result: isize) -> Result<usize, i32> {
    if (-4095..0).contains(&result) { Err(result.wrapping_neg() as i32) } else { Ok(result as usize) }
}

/// Thread id of the caller.
#[inline]
pub fn gettid() -> u32 {
    // SAFETY: no pointers.
    (unsafe { call(nr::GETTID, [0; 6]) }) as u32
}

/// Process id of the caller.
#[inline]
pub fn getpid() -> u32 {
    // SAFETY: no pointers.
    (unsafe { call(nr::GETPID, [0; 6]) }) as u32
}

/// Number of voluntary context switches of the calling thread.
#[inline]
pub fn voluntary_switches() -> u64 {
    const RUSAGE_THREAD: usize = 1;
    // Two times of two words each, then 14 counters.
    let mut usage = [0u64; 18];
    let args = [RUSAGE_THREAD, (&raw mut usage) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one rusage, which is as long as the local.
    unsafe { call(nr::GETRUSAGE, args) };
    let [.., voluntary, _involuntary] = usage;
    voluntary
}

/// Blocks every signal of the calling thread. Returns the previous mask.
#[inline]
pub fn block_signals() -> u64 {
    const SIG_SETMASK: usize = 2;
    let (all, mut old) = (!0u64, 0u64);
    let args = [SIG_SETMASK, (&raw const all) as usize, (&raw mut old) as usize, 8, 0, 0];
    // SAFETY: the kernel reads one local word and writes another.
    let done = check(unsafe { call(nr::RT_SIGPROCMASK, args) });
    if done.is_ok() { old } else { 0 }
}

/// Restores the mask that [`block_signals`] returned.
#[inline]
pub fn restore_signals(old: u64) {
    const SIG_SETMASK: usize = 2;
    let args = [SIG_SETMASK, (&raw const old) as usize, 0, 8, 0, 0];
    // SAFETY: the kernel reads one local word.
    unsafe { call(nr::RT_SIGPROCMASK, args) };
}

/// Closes a descriptor that this crate opened.
#[inline]
pub fn close(fd: i32) {
    // SAFETY: no pointers; this crate opened the descriptor.
    unsafe { call(nr::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Enables a perf event for one overflow, after which the kernel disables it.
#[inline]
pub fn enable_event_once(fd: i32) -> Result<(), i32> {
    const PERF_EVENT_IOC_REFRESH: usize = 0x2402;
    // SAFETY: no pointers; this crate opened the descriptor.
    check(unsafe { call(nr::IOCTL, [fd as usize, PERF_EVENT_IOC_REFRESH, 1, 0, 0, 0]) }).map(drop)
}

/// Maps the first `pages` pages of a perf event: its control page and its data.
#[inline]
pub fn map_event(fd: i32, pages: usize) -> Result<usize, i32> {
    const PROT_READ: usize = 1;
    const PROT_WRITE: usize = 2;
    const MAP_SHARED: usize = 1;
    // The kernel never overwrites unread records of a ring that its reader may write. A control page alone is
    // only mapped to keep the event alive.
    let protection = if pages > 1 { PROT_READ | PROT_WRITE } else { PROT_READ };
    let bytes = pages.wrapping_mul(page_bytes());
    // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
    check(unsafe { call(nr::MMAP, [0, bytes, protection, MAP_SHARED, fd as usize, 0]) })
}

/// Unmaps the pages of [`map_event`], which destroys the event.
///
/// # Safety
/// `address` came from [`map_event`] with as many pages and was not unmapped since.
#[inline]
pub unsafe fn unmap_event(address: usize, pages: usize) {
    // SAFETY: the caller guarantees that these pages came from `map_event` and are still mapped, so only they
    // are unmapped.
    unsafe { call(nr::MUNMAP, [address, pages.wrapping_mul(page_bytes()), 0, 0, 0, 0]) };
}

static PAGE_BYTES: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(4096);

/// Sets the page size (from the auxiliary vector), if it is not 4096.
pub fn set_page_bytes(bytes: usize) {
    PAGE_BYTES.store(bytes, core::sync::atomic::Ordering::Relaxed);
}

/// The page size.
#[inline]
pub fn page_bytes() -> usize {
    PAGE_BYTES.load(core::sync::atomic::Ordering::Relaxed)
}

#[repr(C)]
struct IoVec {
    base: usize,
    len: usize,
}

/// Copies memory of process `pid` that may be unmapped. Returns the number of bytes copied, 0 if none.
///
/// # Safety
/// `to` is valid for writes of `len` bytes.
#[inline]
pub unsafe fn read_process(pid: u32, from: u64, to: *mut u8, len: usize) -> usize {
    let local = IoVec { base: to as usize, len };
    let remote = IoVec { base: from as usize, len };
    let args = [pid as usize, (&raw const local) as usize, 1, (&raw const remote) as usize, 1, 0];
    // SAFETY: both vectors live across the call; the kernel writes at most `len` bytes to `to`, checks `from` itself.
    let got = unsafe { call(nr::PROCESS_VM_READV, args) };
    match check(got) {
        Ok(n) => n.min(len),
        // A system-call filter forbids it, or an emulator lacks it. SAFETY: the caller guarantees that `to`
        // is valid for writes of `len` bytes.
        Err(EPERM | ENOSYS) if pid == getpid() => unsafe { read_probed(from, to, len) },
        Err(_) => 0,
    }
}

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

/// Reads this process's own memory, within one page, after a system call that tests if it is readable:
/// rt_sigprocmask with an invalid operation, which copies the set before it checks the operation. Another
/// thread could unmap the page between the two, so only stacks in use and unwind information are read this
/// way.
///
/// # Safety
/// `to` is valid for writes of `len` bytes.
unsafe fn read_probed(from: u64, to: *mut u8, len: usize) -> usize {
    const EFAULT: i32 = 14;
    let last = from.saturating_add(len as u64).saturating_sub(8);
    // A null set would mean no set; no page is mapped below the first one.
    if from < 4096 || len < 8 || from & !4095 != last & !4095 {
        return 0;
    }
    let impossible = usize::MAX;
    // SAFETY: the kernel reads 8 bytes, checks their address itself, and changes nothing.
    let answer = unsafe { call(nr::RT_SIGPROCMASK, [impossible, from as usize, 0, 8, 0, 0]) };
    if check(answer).is_err_and(|errno| errno == EFAULT) {
        return 0;
    }
    for i in 0..len {
        // SAFETY: the system call above has shown that the page is readable; the caller guarantees that `to`
        // is writable.
        unsafe { to.add(i).write_volatile((from as *const u8).add(i).read_volatile()) };
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_memory_is_rejected_by_both_readers() {
        let good = [7u8; 64];
        let mut to = [0u8; 64];
        let at = good.as_ptr() as u64;
        for bad in [0, 8, 0x1000, u64::MAX - 7, u64::MAX - 63, 1 << 62] {
            // SAFETY: the target has 64 bytes.
            unsafe {
                assert_eq!(read_process(getpid(), bad, to.as_mut_ptr(), 64), 0, "{bad:#x}");
                assert_eq!(read_probed(bad, to.as_mut_ptr(), 64), 0, "{bad:#x}");
            }
        }
        // SAFETY: the target has 8 bytes and more.
        unsafe {
            assert_eq!(read_process(getpid(), at, to.as_mut_ptr(), 8), 8);
            assert_eq!(read_probed(at & !7, to.as_mut_ptr(), 8), 8);
        }
        assert_eq!(to[..1], [7]);
    }
}
