//! Measures how much CPU time the kernel needs to interrupt a thread and to call a signal handler. A clock in
//! the handler cannot measure it, so this process interrupts a child of its own for a few milliseconds.

use std::{
    fs::File,
    io::Read,
    mem::{MaybeUninit, zeroed},
    os::fd::{AsRawFd, OwnedFd},
    ptr::null_mut,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use flightline_in_signal::layout::engine;

use crate::perf_events::attr::open_trap;

/// Used until the measurement is done: an event with its interrupt, and a signal alone, ns.
const TYPICAL_NS: [u64; 2] = [5_000, 1_500];
/// Upper limit of a plausible measurement, ns.
const LONGEST_NS: u64 = 1_000_000;

/// Costs of a signal by the way it is delivered.
#[derive(Clone, Debug)]
pub struct Delivery(Arc<[AtomicU64; 2]>);

impl Delivery {
    /// Starts the measurement in a thread. The values change when it is done.
    pub fn measure() -> Delivery {
        let known = Delivery(Arc::new(TYPICAL_NS.map(AtomicU64::new)));
        let into = known.clone();
        let measure = move || {
            hold_nothing();
            for (word, ns) in into.0.iter().zip(measure_in_child().unwrap_or_default()) {
                if ns > 0 {
                    word.store(ns.min(LONGEST_NS), Relaxed);
                }
            }
        };
        // Without the thread, the typical values remain.
        let _ = thread::Builder::new().name("fl-calibrate".into()).spawn(measure);
        known
    }

    /// Returns the kernel's CPU time for one signal of this engine, ns.
    pub fn ns(&self, engine: u32) -> u64 {
        let timer = matches!(engine, engine::TIMER | engine::ITIMER | engine::NONE);
        self.0[usize::from(timer)].load(Relaxed)
    }
}

/// PID of the measuring child while it runs, otherwise 0.
static MEASURING: AtomicU32 = AtomicU32::new(0);

/// Returns true if a process is the measuring child. It maps the same files as this process, including
/// recordings, but is not a recorded program.
pub fn is_measuring(pid: u32) -> bool {
    MEASURING.load(Relaxed) == pid
}

/// Measures in a child: with interrupt, and signal alone; 0 for a value that is not available.
fn measure_in_child() -> Option<[u64; 2]> {
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).ok()?;
    // SAFETY: a fork that bypasses the C library: the child only makes system calls and exits. Interposers of
    // `fork` do not run.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match pid {
        ..0 => None,
        0 => child(&writer),
        pid => {
            MEASURING.store(pid as u32, Relaxed);
            drop(writer);
            let mut words = [0; 16];
            let complete = File::from(reader).read_exact(&mut words);
            // SAFETY: waits for the child created above and stores nothing.
            unsafe { libc::waitpid(pid as libc::pid_t, null_mut(), 0) };
            MEASURING.store(0, Relaxed);
            complete.ok()?;
            let (first, second) = words.split_at(8);
            Some([first, second].map(|w| w.try_into().map_or(0, u64::from_ne_bytes)))
        }
    }
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Relaxed);
}

/// Gives this thread, and so its child, an empty table of descriptors. Otherwise the recorder's file locks
/// would live as long as the child, and a search for killed recorders would miss this one. Needs Linux 5.9;
/// before that the child closes them.
fn hold_nothing() {
    // SAFETY: this thread gets its own, empty table of descriptors; it uses only those that it opens later.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
}

/// Closes all descriptors but one in the child.
fn close_all_but(spared: u32) {
    let close = |first: u32, last: u32| {
        // SAFETY: the child's own table of descriptors; it uses none but `spared`.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
    };
    let below = spared.checked_sub(1).is_none_or(|last| close(0, last));
    if !(below && close(spared + 1, u32::MAX)) {
        // Before Linux 5.9.
        for fd in (0..1024).filter(|fd| *fd != spared as i32) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}

/// The body of the child: no allocation, no lock.
fn child(writer: &OwnedFd) -> ! {
    close_all_but(writer.as_raw_fd() as u32);
    // SAFETY: all-zero is a valid sigaction and a valid set; the handler only counts, and every other signal
    // is blocked.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGTRAP, &raw const action, null_mut());
        let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(blocked.as_mut_ptr());
        libc::sigdelset(blocked.as_mut_ptr(), libc::SIGTRAP);
        libc::sigprocmask(libc::SIG_SETMASK, blocked.as_ptr(), null_mut());
    }
    let results = [with_interrupt(), alone()];
    // SAFETY: writes 16 bytes of a local, then ends this process without running anything of the parent's.
    unsafe {
        libc::write(writer.as_raw_fd(), results.as_ptr().cast(), size_of_val(&results));
        libc::_exit(0)
    }
}

fn cpu_ns() -> u64 {
    crate::os::clock::thread_cpu_ns()
}

fn spin(rounds: u64) -> u64 {
    let begun = cpu_ns();
    let mut x = 1u64;
    for i in 0..rounds {
        x = std::hint::black_box(x.wrapping_mul(i | 1));
    }
    cpu_ns().saturating_sub(begun)
}

/// Measures the same work with and without events every 100 µs. Returns the smallest difference of a few
/// tries.
fn with_interrupt() -> u64 {
    const PERIOD_NS: u64 = 100_000;
    const WORK_NS: u64 = 1_500_000;
    const FEW: u64 = 10_000;
    // Interruptions only make a run longer, so the shortest is the most accurate.
    let shortest = (0..3).map(|_| spin(FEW)).min().unwrap_or(0).max(1);
    let rounds = (FEW * WORK_NS / shortest).clamp(FEW, 1 << 30);
    let one = || {
        let plain = spin(rounds);
        let before = SIGNALS.load(Relaxed);
        let event = open_trap(PERIOD_NS)?;
        let taxed = spin(rounds);
        drop(event);
        let signals = u64::from(SIGNALS.load(Relaxed).wrapping_sub(before));
        taxed.saturating_sub(plain).checked_div(signals).filter(|ns| *ns > 0)
    };
    [one(), one(), one()].into_iter().flatten().min().unwrap_or(0)
}

/// Measures a signal that the thread sends to itself.
fn alone() -> u64 {
    const TIMES: u64 = 200;
    let begun = cpu_ns();
    for _ in 0..TIMES {
        // SAFETY: sends this process a signal that it catches.
        unsafe { libc::syscall(libc::SYS_tkill, libc::syscall(libc::SYS_gettid), libc::SIGTRAP) };
    }
    cpu_ns().saturating_sub(begun) / TIMES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_thread_has_no_open_descriptors() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: queries the flags of a descriptor, open or not.
        let open = move || unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        let there = thread::spawn(move || {
            hold_nothing();
            open()
        });
        assert_eq!((there.join().unwrap(), open()), (false, true));
    }

    #[test]
    fn measured_signal_cost_is_plausible() {
        let [with, alone] = measure_in_child().unwrap();
        // From the fastest to the slowest plausible machine: 50 ns to a millisecond.
        assert!((50..LONGEST_NS).contains(&alone), "{alone} ns");
        assert!(with == 0 || (50..LONGEST_NS).contains(&with), "{with} ns");
    }
}
