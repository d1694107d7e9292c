//! How the program that we started ended, told in its recording: some signals leave it no last words.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use nix::sys::signal::Signal;

use super::{Drain, NO_PROCESS};
use crate::os::clock::monotonic_ns;

/// A program that a signal ended.
#[derive(Debug)]
pub(super) struct Killed {
    pid: u32,
    signal: i32,
}

impl Drain {
    /// The program that we started has ended.
    pub fn program_ended(&mut self, pid: u32, status: ExitStatus) {
        if let Some(signal) = status.signal() {
            self.killed = Some(Killed { pid, signal });
        }
        self.dump_at_end(pid, status);
    }

    /// A recording is about to be complete: tells what ended the program, unless that told so itself.
    pub(super) fn record_exit_signal(&mut self, index: usize) {
        let Some(of) = self.recordings.get(index).map(|(pid, _)| *pid) else { return };
        let is_its = |killed: &mut Killed| of != NO_PROCESS && [killed.pid, 0].contains(&of);
        let Some(Killed { pid, signal }) = self.killed.take_if(is_its) else { return };
        // It may have been found after its end only.
        let name = self.called(pid);
        let recording = &mut self.recordings[index].1;
        if recording.counters().fatal.0 > 0 {
            return;
        }
        let word =
            Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned());
        let silent = match signal {
            // The kernel has nowhere to call a handler.
            libc::SIGSEGV | libc::SIGBUS if self.settings.fatal_signals == Some(true) => {
                ", and it could not tell where: as after a stack overflow without an alternate stack"
            }
            _ => "",
        };
        recording.notice(&format!("{word} ended {name}{silent}"), monotonic_ns());
    }
}
