//! Off-CPU recording without tracepoints. The kernel reports to every user when their own threads are
//! switched out and in, but not where they are. So sleeping threads are examined from outside, as the wall
//! clock does. A stack counts only if the thread was off CPU before it was examined and came back later.

use std::{fs, time::Duration};

use super::OffCpu;
use crate::{
    from_outside::outputs::Outputs,
    os::clock::monotonic_ns,
    process::wall::schedstat::{Files, SyscallState},
    settings,
};

/// `prev_state` of a thread whose state is unknown.
pub const UNKNOWN: u64 = 1 << 63;
/// Longest pause between two rounds. Shorter sleeps mostly have no stack.
pub const PAUSE: Duration = Duration::from_millis(5);
/// A thread is not examined until it has been off CPU for this long, ns.
const SHORT_NS: u64 = 500_000;
/// Limit of threads examined in one round.
const MANY: usize = 64;

/// An examination of a thread while it slept.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// CLOCK_MONOTONIC ns at the end of the examination.
    pub at_ns: u64,
    /// Files are being read that may complete the stack.
    again: bool,
}

impl Looked {
    /// Returns an examination that ends now and is not repeated.
    pub fn now() -> Looked {
        Looked { at_ns: monotonic_ns(), again: false }
    }
}

/// Returns the message about the limits of this mode.
pub fn notice(problem: &str, wanted: &settings::OffCpuSettings) -> String {
    let wakeups = if wanted.wakeups { ", wake-ups are not recorded" } else { "" };
    format!(
        "off-CPU time without tracepoints ({problem}): only waits of several milliseconds have a stack \
         and a state, and stacks have no kernel frames{wakeups}"
    )
}

/// Converts the state letter of `/proc/<pid>/task/<tid>/stat` to `prev_state`. That of a thread that is awake
/// by now is unknown.
fn state(letter: u8) -> u64 {
    match letter {
        b'S' => 1,
        b'D' => 2,
        b'T' => 4,
        b't' => 8,
        b'I' => 0x80,
        _ => UNKNOWN,
    }
}

pub(super) fn read_state(pid: u32, tid: u32) -> u64 {
    let text = fs::read(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    // The name in parentheses may contain any character.
    let end = text.iter().rposition(|b| *b == b')');
    end.and_then(|end| text.get(end + 2)).map_or(UNKNOWN, |letter| state(*letter))
}

impl OffCpu {
    /// Examines sleeping threads that have no stack yet.
    pub(super) fn look(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        let OffCpu { intervals, tasks, options, .. } = self;
        let old = |since_ns: u64| now_ns.saturating_sub(since_ns) >= SHORT_NS;
        let asleep = intervals
            .all_out()
            .filter(|(_, out)| {
                !out.runnable && out.stack.looked.as_ref().is_none_or(|l| l.again) && old(out.since_ns)
            })
            .take(MANY);
        for (tid, out) in asleep {
            let pid = out.pid;
            let place = Files::open(pid, tid).and_then(|mut files| files.place());
            let Ok(SyscallState::Waiting { sp, pc, .. }) = place else { continue };
            let Ok((id, _)) = outputs.recording_for(pid) else { continue };
            let Some((_, images, rows)) = outputs.parts(id) else { continue };
            let process = tasks.process(pid);
            if !process.mapped {
                process.mapped = true;
                process.stacks.read_maps(pid, images);
            }
            let stack = process.stacks.walk_asleep(pid, (pc, sp), options.depth, images, rows);
            out.state = read_state(pid, tid);
            let again = stack.truncated.is_some() && images.outstanding() > 0;
            out.stack.stack = Some(stack);
            out.stack.looked = Some(Looked { at_ns: monotonic_ns(), again });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_states_are_read() {
        assert_eq!([b'S', b'D', b'R'].map(state), [1, 2, UNKNOWN]);
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            let _ = sender.send(nix::unistd::gettid().as_raw() as u32);
            let _ = ended.recv();
        });
        let tid = receiver.recv().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while read_state(std::process::id(), tid) != 1 {
            assert!(std::time::Instant::now() < until, "it never slept");
        }
        drop(end);
        sleeper.join().unwrap();
        assert_eq!(read_state(u32::MAX, 1), UNKNOWN);
    }
}
