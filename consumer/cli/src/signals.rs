//! Ctrl-C and the like as something to wait for.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that end a program do not end this one any more; they can be asked for.
pub struct Signals(SignalFd);

impl Signals {
    /// SIGINT and SIGTERM, also where they were ignored, as shells do for what runs in the background; SIGHUP if it was
    /// not. To be called before there are other threads.
    pub fn of_user() -> Result<Self> {
        let hangup = (!is_ignored(Signal::SIGHUP)).then_some(Signal::SIGHUP);
        Self::catch([Signal::SIGINT, Signal::SIGTERM].into_iter().chain(hangup))
    }

    /// Those that would end the program. To be called before there are other threads.
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

    /// The number of a signal that came, or comes within `time`; without it, however late.
    pub fn wait(&self, time: Option<Duration>) -> Option<i32> {
        self.next(time).map(|(signal, _)| signal)
    }

    /// The same, and whether a terminal sent it, which tells all that runs in the foreground.
    pub fn next(&self, time: Option<Duration>) -> Option<(i32, bool)> {
        /// Of the kernel itself.
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
    /// Readable when one came.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether whoever started this program wants the signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal as i32 - 1) & 1 == 1
}
