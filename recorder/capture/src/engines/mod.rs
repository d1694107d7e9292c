//! Chooses the engine with which this process samples its CPU time. The modules of this folder are the engines that
//! record calls: lock waits, slow I/O, exceptions, traced functions.

pub mod exceptions;
pub mod lock_waits;
pub mod slow_io;
pub mod traced_functions;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flightline_in_signal::engine;
use flightline_in_signal::layout::{engine as kind, session_flags};
use flightline_in_signal::state::cookie::{SIGPROF, SIGTRAP};

use crate::session::Attached;
use crate::shadow::{KernelSet, bit};
use crate::{os, sandbox};

/// Tests which engines the kernel allows, and writes the choice to the header.
pub fn choose(attached: &Attached) -> u32 {
    let (header, session) = (attached.header(), attached.session());
    let requested = attached.state.fixed.engine;
    let period = session.live.period_ns.load(Relaxed);
    let (engine, errno) = if requested == kind::AUTO && sandbox::filtered() {
        // A seccomp filter that was installed before the program may kill it for perf_event_open, instead of
        // refusing.
        (engine::probe(kind::TIMER, period, tick_hz()).0, libc::EPERM)
    } else if requested == kind::ITIMER && kernel_before(6, 4) {
        // The kernel would send the signal to the main thread and interrupt its waits, whichever thread runs.
        (kind::NONE, libc::ENOSYS)
    } else if kernel_before(5, 19) && !matches!(requested, kind::TIMER | kind::ITIMER) {
        // Before 5.19 a trap that is raised while SIGTRAP is blocked kills the program.
        (engine::probe(kind::TIMER, period, tick_hz()).0, libc::ENOSYS)
    } else {
        engine::probe(requested, period, tick_hz())
    };
    // An engine that was selected by name is not changed later.
    let either = requested == kind::AUTO && engine == kind::PERF;
    let timer_from_ns = if either { engine::timer_from_ns(tick_hz()) } else { 0 };
    attached.state.private.timer_from_ns.store(timer_from_ns, Relaxed);
    header.engine.errno.store(errno, Relaxed);
    header.engine.kind.store(engine, Release);
    engine
}

/// Marks in the header that this process is not sampled.
pub fn choose_none(attached: &Attached) {
    attached.header().engine.kind.store(kind::NONE, Release);
}

/// Gives a forked child its parent's engine without another test.
pub fn inherit(child: &Attached, parent: &Attached) {
    let (to, from) = (child.header(), parent.header());
    to.engine.errno.store(from.engine.errno.load(Relaxed), Relaxed);
    for (to, from) in to.engine.event_errno.iter().zip(&from.engine.event_errno) {
        to.store(from.load(Relaxed), Relaxed);
    }
    let timer_from_ns = parent.state.private.timer_from_ns.load(Relaxed);
    child.state.private.timer_from_ns.store(timer_from_ns, Relaxed);
    to.engine.kind.store(from.engine.kind.load(Acquire), Release);
}

/// Refuses the perf events other than CPU time where they would harm the program.
pub fn refuse_events(attached: &Attached) {
    let errno = if sandbox::filtered() {
        libc::EPERM
    } else if kernel_before(5, 19) {
        libc::ENOSYS
    } else {
        return;
    };
    for word in &attached.header().engine.event_errno {
        word.store(errno, Relaxed);
    }
}

/// Returns the signals that the engines of this process need. A thread that perf refuses falls back to a
/// timer, so perf needs both.
pub fn signals(attached: &Attached) -> KernelSet {
    let session = attached.session();
    // Do not check if recording is paused: the signals are needed when it resumes.
    let fatal = attached.state.fixed.flags & session_flags::FATAL_SIGNALS != 0;
    let beside =
        fatal || session.live.event_count.load(Acquire) != 0 || attached.state.fixed.trace_count != 0;
    let traps = if beside { bit(SIGTRAP) } else { 0 };
    traps | engine_signals(attached.header().engine.kind.load(Relaxed))
}

fn engine_signals(engine: u32) -> KernelSet {
    match engine {
        kind::PERF | kind::PERF_USER => bit(SIGTRAP) | bit(SIGPROF),
        kind::TIMER | kind::ITIMER => bit(SIGPROF),
        _ => 0,
    }
}

/// Returns the scheduler ticks per second: the resolution of the coarse clock is one tick.
fn tick_hz() -> u32 {
    let mut resolution = [0i64; 2];
    let args = [libc::CLOCK_MONOTONIC_COARSE as usize, resolution.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one timespec.
    let ok = unsafe { os::syscall(libc::SYS_clock_getres, args) }.is_ok();
    match (ok, resolution) {
        (true, [0, ns]) if ns > 0 => (1_000_000_000 / ns) as u32,
        _ => 100,
    }
}

fn kernel_before(major: u32, minor: u32) -> bool {
    let mut name = core::mem::MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: the kernel fills the structure.
    if unsafe { os::syscall(libc::SYS_uname, [name.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) }.is_err() {
        return true;
    }
    // SAFETY: zeroed is valid, and the call filled it.
    let name = unsafe { name.assume_init() };
    let mut numbers = [0u32; 2];
    let mut at = 0;
    for byte in name.release.iter().map(|c| *c as u8) {
        match (byte, numbers.get_mut(at)) {
            (b'0'..=b'9', Some(n)) => *n = n.saturating_mul(10).saturating_add(u32::from(byte - b'0')),
            (b'.', Some(_)) => at += 1,
            _ => break,
        }
    }
    (numbers[0], numbers[1]) < (major, minor)
}
