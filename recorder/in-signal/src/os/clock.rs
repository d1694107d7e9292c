//! Clocks that a handler may read. The monotonic clock is read through the vDSO at an address found at start.
//! A call by libc's symbol could reach another preloaded library that replaced it.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::os::sys;

#[repr(C)]
#[derive(Default)]
struct TimeSpec {
    sec: i64,
    nsec: i64,
}

impl TimeSpec {
    #[inline]
    fn ns(&self) -> u64 {
        (self.sec as u64).wrapping_mul(1_000_000_000).wrapping_add(self.nsec as u64)
    }
}

type ClockGettime = unsafe extern "C" fn(i32, *mut TimeSpec) -> i32;

const CLOCK_MONOTONIC: i32 = 1;
const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
/// Clock of the CPU time of all threads of a process.
pub(crate) const PROCESS: i32 = 2;

static VDSO_CLOCK: AtomicUsize = AtomicUsize::new(0);

/// Sets the address of the vDSO's `clock_gettime` (see [`crate::os::vdso`]); 0 selects the system call.
///
/// # Safety
/// `address` is 0 or that function's, and the vDSO stays mapped.
pub unsafe fn set_vdso_clock(address: usize) {
    VDSO_CLOCK.store(address, Ordering::Relaxed);
}

#[inline]
fn by_syscall(clock: i32) -> u64 {
    let mut now = TimeSpec::default();
    let args = [clock as isize as usize, (&raw mut now) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one timespec to a local.
    unsafe { sys::call(sys::nr::CLOCK_GETTIME, args) };
    now.ns()
}

/// CLOCK_MONOTONIC, ns.
#[inline]
pub fn monotonic_ns() -> u64 {
    let address = VDSO_CLOCK.load(Ordering::Relaxed);
    if address == 0 {
        return by_syscall(CLOCK_MONOTONIC);
    }
    // SAFETY: `set_vdso_clock` requires 0, which was ruled out above, or the address of that function in a
    // vDSO that stays mapped.
    let function = unsafe { core::mem::transmute::<usize, ClockGettime>(address) };
    let mut now = TimeSpec::default();
    // SAFETY: the function has this signature (vDSO ABI) and writes one timespec to a local.
    let failed = unsafe { function(CLOCK_MONOTONIC, &raw mut now) };
    if failed == 0 { now.ns() } else { by_syscall(CLOCK_MONOTONIC) }
}

/// CPU time of the calling thread, ns.
#[inline]
pub fn thread_cpu_ns() -> u64 {
    by_syscall(CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of this process, ended ones too, ns.
#[inline]
pub fn process_cpu_ns() -> u64 {
    by_syscall(PROCESS)
}

/// Clock id of another thread's CPU time, as `clock_gettime` and `timer_create` take it.
#[inline]
pub fn thread_clock(tid: u32) -> i32 {
    const PER_THREAD: i32 = 4;
    const SCHED: i32 = 2;
    !(tid as i32) << 3 | PER_THREAD | SCHED
}

/// CPU time of thread `tid` of this process, ns; 0 if there is none.
#[inline]
pub fn cpu_ns_by_tid(tid: u32) -> u64 {
    by_syscall(thread_clock(tid))
}

/// Time-stamp counter, 0 where there is none to read cheaply.
#[inline]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction exists on every x86_64 and user mode may run it unless the program forbade it by prctl,
    // which only measuring sessions risk.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}
