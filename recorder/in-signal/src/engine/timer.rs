//! CPU timers of threads and of the process (timer_create(2)), by system calls.

use crate::os::{clock, sys};
use crate::state::cookie::SIGPROF;

/// `sigevent` of timer_create(2), 64 bytes.
#[repr(C)]
struct SigEvent {
    value: u64,
    signo: i32,
    notify: i32,
    tid: u32,
    pad: [u32; 11],
}

const _: () = assert!(size_of::<SigEvent>() == 64);

/// Starts a timer on the CPU clock of a thread, which receives the signal, or of the process (`None`).
/// Returns the timer's id + 1.
///
/// # Errors
/// The errno of the refusal.
pub(crate) fn open(tid: Option<u32>, first_ns: u64, period_ns: u64, value: u64) -> Result<u64, i32> {
    const SIGEV_SIGNAL: i32 = 0;
    const SIGEV_THREAD_ID: i32 = 4;
    let (notify, clock) = match tid {
        Some(tid) => (SIGEV_THREAD_ID, clock::thread_clock(tid)),
        None => (SIGEV_SIGNAL, clock::PROCESS),
    };
    let event = SigEvent { value, signo: SIGPROF, notify, tid: tid.unwrap_or(0), pad: [0; 11] };
    let mut id: i32 = 0;
    let clock = clock as isize as usize;
    let args = [clock, (&raw const event) as usize, (&raw mut id) as usize, 0, 0, 0];
    // SAFETY: the kernel reads one sigevent and writes one int, both locals.
    sys::check(unsafe { sys::call(sys::nr::TIMER_CREATE, args) })?;
    let second = 1_000_000_000;
    let spec = [period_ns / second, period_ns % second, first_ns / second, first_ns % second];
    let args = [id as usize, 0, (&raw const spec) as usize, 0, 0, 0];
    // SAFETY: the kernel reads one itimerspec, a local.
    sys::check(unsafe { sys::call(sys::nr::TIMER_SETTIME, args) }).inspect_err(|_| delete(id))?;
    Ok((id as u64).wrapping_add(1))
}

/// Deletes a timer that [`open`] created.
pub(crate) fn delete(id: i32) {
    // SAFETY: no pointers; this crate created the timer.
    unsafe { sys::call(sys::nr::TIMER_DELETE, [id as usize, 0, 0, 0, 0, 0]) };
}
