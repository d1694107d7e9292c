//! Records how the program that we started ended. After some signals, the program cannot record it itself.

use std::{collections::VecDeque, os::unix::process::ExitStatusExt, process::ExitStatus};

use nix::sys::signal::Signal;

use super::Drain;
use crate::{os::clock::monotonic_ns, recording::RecordingId};

/// Limit of ended processes whose names are remembered.
const MAX_NAMES: usize = 64;

/// A program that a signal ended.
#[derive(Debug)]
struct Killed {
    pid: u32,
    signal: i32,
}

/// Processes that ended recently.
#[derive(Debug, Default)]
pub(super) struct Exits {
    /// The program that we started, until its recording reports the signal.
    killed: Option<Killed>,
    /// Names by id, the latest first.
    names: VecDeque<(u32, String)>,
}

impl Exits {
    /// Remembers the name of a process that ended.
    pub(super) fn add(&mut self, pid: u32, name: String) {
        self.names.truncate(MAX_NAMES - 1);
        self.names.push_front((pid, name));
    }

    /// Returns the name of a process that ended recently.
    pub(super) fn name(&self, pid: u32) -> Option<&str> {
        self.names.iter().find(|(ended, _)| *ended == pid).map(|(_, name)| name.as_str())
    }
}

impl Drain {
    /// Notes that the program that we started has ended.
    pub fn program_ended(&mut self, pid: u32, status: ExitStatus) {
        if let Some(signal) = status.signal() {
            self.processes.exits.killed = Some(Killed { pid, signal });
        }
        self.dump_at_end(pid, status);
    }

    /// Writes the signal that ended the program before its recording is complete, unless the program reported
    /// it itself.
    pub(super) fn record_exit_signal(&mut self, id: RecordingId) {
        let Some(owner) = self.outputs.recordings.pid(id) else { return };
        let is_its = |killed: &mut Killed| [killed.pid, 0].contains(&owner);
        let Some(Killed { pid, signal }) = self.processes.exits.killed.take_if(is_its) else { return };
        // The drain may have found it only after its end.
        let name = self.processes.called(pid);
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return };
        if recording.counters().fatal.0 > 0 {
            return;
        }
        let word =
            Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned());
        let silent = match signal {
            // The kernel has no stack to call a handler on.
            libc::SIGSEGV | libc::SIGBUS if self.settings.processes.fatal_signals == Some(true) => {
                ", and could not record where, as after a stack overflow without an alternate signal stack"
            }
            _ => "",
        };
        recording.notice(&format!("{word} ended {name}{silent}"), monotonic_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_names_are_remembered() {
        let mut exits = Exits::default();
        let last = MAX_NAMES as u32 + 10;
        (0..=last).for_each(|pid| exits.add(pid, format!("program {pid}")));
        exits.add(last, "successor".to_owned());
        assert_eq!((exits.name(last), exits.name(0)), (Some("successor"), None));
        assert_eq!(exits.names.len(), MAX_NAMES);
    }
}
