//! Signals as file descriptors to wait for.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Blocked signals that can be read instead of ending the program.
pub struct Signals(SignalFd);

impl Signals {
    /// Catches SIGINT and SIGTERM, even if ignored, as shells do for background jobs, and SIGHUP unless
    /// ignored. Call this before other threads exist.
    pub fn from_user() -> Result<Self> {
        let hangup = (!is_ignored(Signal::SIGHUP)).then_some(Signal::SIGHUP);
        Self::catch([Signal::SIGINT, Signal::SIGTERM].into_iter().chain(hangup))
    }

    /// Catches the signals that would end the program. Call this before other threads exist.
    pub fn deadly() -> Result<Self> {
        let all = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
        Self::catch(all.into_iter().filter(|&signal| !is_ignored(signal)))
    }

    fn catch(signals: impl Iterator<Item = Signal>) -> Result<Self> {
        let mask: SigSet = signals.collect();
        let caught = mask
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK));
        caught.map(Self).context("cannot wait for signals")
    }

    /// Waits for a signal, for at most `time` if given, and returns its number.
    pub fn wait(&self, time: Option<Duration>) -> Option<i32> {
        self.next(time).map(|(signal, _)| signal)
    }

    /// The same, and whether a terminal sent it to the whole foreground process group.
    pub fn next(&self, time: Option<Duration>) -> Option<(i32, bool)> {
        /// Sent by the kernel.
        const SI_KERNEL: i32 = 0x80;
        let timeout =
            time.map_or(PollTimeout::NONE, |time| PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX));
        loop {
            match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) {
                Err(Errno::EINTR) => {}
                Ok(0) | Err(_) => return None,
                Ok(_) => {
                    let info = self.0.read_signal().ok()??;
                    return Some((info.ssi_signo as i32, info.ssi_code == SI_KERNEL));
                }
            }
        }
    }
}

impl AsFd for Signals {
    /// Readable when a signal is pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns true if the parent process set the signal to be ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal as i32 - 1) & 1 == 1
}
