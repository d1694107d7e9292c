//! Classifies waits by their stacks.

use crate::model::{FrameKind, Model, Stack};

/// The activity of a thread in a part of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doing {
    /// Running: a CPU sample.
    Running,
    /// Runnable, waiting for a processor.
    Runnable,
    /// Blocked.
    Blocked(Kind),
}

/// The cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A lock, a condition variable, or another thread: futex(2), and the kernel's own locks.
    Lock,
    /// A disk or similar device, and other uninterruptible waits.
    Disk,
    /// A page fault.
    PageFault,
    /// A socket.
    Network,
    /// A pipe.
    Pipe,
    /// Events of several descriptors: poll, epoll, select, io_uring.
    Events,
    /// A timer.
    Sleep,
    /// A child process.
    Child,
    /// Anything else.
    Other,
}

/// The first of these functions, from the leaf, decides. Longer prefixes precede shorter ones of another
/// kind.
const KERNEL: &[(&str, Kind)] = &[
    ("futex_", Kind::Lock),
    ("__mutex_lock", Kind::Lock),
    ("rwsem_down", Kind::Lock),
    ("ep_poll", Kind::Events),
    ("do_epoll_wait", Kind::Events),
    ("do_poll", Kind::Events),
    ("do_sys_poll", Kind::Events),
    ("do_select", Kind::Events),
    ("io_cqring_wait", Kind::Events),
    ("read_events", Kind::Events),
    ("do_nanosleep", Kind::Sleep),
    ("hrtimer_nanosleep", Kind::Sleep),
    ("do_wait", Kind::Child),
    ("anon_pipe_", Kind::Pipe),
    ("pipe_", Kind::Pipe),
    ("exc_page_fault", Kind::PageFault),
    ("handle_mm_fault", Kind::PageFault),
    ("do_page_fault", Kind::PageFault),
    ("do_mem_abort", Kind::PageFault),
    ("io_schedule", Kind::Disk),
    ("folio_wait", Kind::Disk),
    ("wait_on_page", Kind::Disk),
    ("blk_", Kind::Disk),
    ("submit_bio_wait", Kind::Disk),
    ("jbd2_", Kind::Disk),
    ("ext4_sync", Kind::Disk),
    ("xfs_log_force", Kind::Disk),
    ("vfs_fsync", Kind::Disk),
    ("sk_wait_data", Kind::Network),
    ("sk_stream_wait", Kind::Network),
    ("__skb_wait", Kind::Network),
    ("inet_csk_accept", Kind::Network),
    ("unix_", Kind::Network),
    ("tcp_", Kind::Network),
    ("udp_", Kind::Network),
    ("sock_", Kind::Network),
];

/// For stacks without kernel frames: functions called by the program.
const PROGRAM: &[(&str, Kind)] = &[
    ("pthread_cond_", Kind::Lock),
    ("pthread_mutex_", Kind::Lock),
    ("pthread_rwlock_", Kind::Lock),
    ("pthread_join", Kind::Lock),
    ("sem_wait", Kind::Lock),
    ("futex", Kind::Lock),
    ("lll_lock_wait", Kind::Lock),
    ("epoll_", Kind::Events),
    ("poll", Kind::Events),
    ("ppoll", Kind::Events),
    ("select", Kind::Events),
    ("pselect", Kind::Events),
    ("nanosleep", Kind::Sleep),
    ("clock_nanosleep", Kind::Sleep),
    ("usleep", Kind::Sleep),
    ("sleep", Kind::Sleep),
    ("wait4", Kind::Child),
    ("waitpid", Kind::Child),
    ("waitid", Kind::Child),
    ("fsync", Kind::Disk),
    ("fdatasync", Kind::Disk),
    ("accept", Kind::Network),
    ("recv", Kind::Network),
    ("send", Kind::Network),
    ("connect", Kind::Network),
];

/// Functions of PostgreSQL that wait for a lock or condition by waiting for events.
const LOCKS: &[&str] = &["ProcSleep", "ConditionVariableSleep", "ConditionVariableTimedSleep"];

/// Frames to examine, from the leaf; the wait is near the leaf.
pub(super) const NEAR: usize = 16;

/// Returns true if a stack that ends in a call for events waits for a lock.
pub(super) fn is_lock(model: &Model, stack: &Stack) -> bool {
    let frames = stack.frames.iter().take(NEAR).map(|&frame| model.frames.get(frame));
    frames.filter(|frame| frame.kind != FrameKind::Kernel).any(|frame| LOCKS.contains(&&*frame.function))
}

/// Returns true if a stack that ends in a call for events sleeps for a given time: a function near the
/// call is named `sleep` or `…_sleep`, such as PostgreSQL's `pg_sleep`, `apr_sleep` and Python's
/// `time_sleep`, or is a library's `usleep`, `msleep` or similar. The timeout of the call itself is not
/// recorded, and event loops use timeouts too.
fn is_sleep(model: &Model, stack: &Stack) -> bool {
    let frames = stack.frames.iter().take(NEAR).map(|&frame| model.frames.get(frame));
    let mut names = frames.filter(|frame| frame.kind != FrameKind::Kernel).map(|frame| &*frame.function);
    names.any(|name| {
        // Removes parameters, version and path from the name.
        let name = name.split(['(', '@']).next().unwrap_or_default();
        let name = name.rsplit([':', '.', '/']).next().unwrap_or_default();
        let before = name.strip_suffix("sleep");
        before.is_some_and(|before| {
            before.ends_with('_') || ["", "u", "m", "n", "nano", "py"].contains(&before)
        })
    })
}

impl Kind {
    /// Classifies the wait of a thread in `state` at `stack`.
    pub(super) fn classify(model: &Model, stack: Option<&Stack>, state: &str) -> Self {
        match (Self::by_call(model, stack, state), stack) {
            (Self::Events, Some(stack)) if is_lock(model, stack) => Self::Lock,
            (Self::Events, Some(stack)) if is_sleep(model, stack) => Self::Sleep,
            (kind, _) => kind,
        }
    }

    fn by_call(model: &Model, stack: Option<&Stack>, state: &str) -> Self {
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let mut kernel = false;
        for &frame in frames {
            let frame = model.frames.get(frame);
            // Handles names such as `epoll_wait@@GLIBC_2.3.2` and `__poll`.
            let name = frame.function.split('@').next().unwrap_or_default();
            let table = match frame.kind {
                FrameKind::Kernel => KERNEL,
                _ if kernel => break,
                _ => PROGRAM,
            };
            kernel |= frame.kind == FrameKind::Kernel;
            let plain = if kernel { name } else { name.trim_start_matches("__GI_").trim_start_matches('_') };
            if let Some(&(_, kind)) = table.iter().find(|(begins, _)| plain.starts_with(begins)) {
                return kind;
            }
        }
        if state.starts_with('D') { Self::Disk } else { Self::Other }
    }
}

impl Doing {
    /// The label of its box.
    pub fn label(self) -> &'static str {
        match self {
            Self::Running => "[running]",
            Self::Runnable => "[runnable]",
            Self::Blocked(Kind::Lock) => "[blocked: lock]",
            Self::Blocked(Kind::Disk) => "[blocked: disk]",
            Self::Blocked(Kind::PageFault) => "[blocked: page fault]",
            Self::Blocked(Kind::Network) => "[blocked: network]",
            Self::Blocked(Kind::Pipe) => "[blocked: pipe]",
            Self::Blocked(Kind::Events) => "[blocked: events]",
            Self::Blocked(Kind::Sleep) => "[blocked: sleep]",
            Self::Blocked(Kind::Child) => "[blocked: child]",
            Self::Blocked(Kind::Other) => "[blocked: other]",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Frame;

    #[test]
    fn first_recognized_function_determines_wait_kind() {
        let kind = |functions: &[&str], state: &str| {
            let mut model = Model::default();
            let frames = functions.iter().map(|name| {
                let kind = FrameKind::Kernel;
                model.frames.intern(Frame {
                    function: (*name).into(),
                    class: "".into(),
                    kind,
                    line: 0,
                    place: None,
                })
            });
            let stack = Stack { frames: frames.collect(), truncated: false };
            Kind::classify(&model, Some(&stack), state)
        };
        // A wait for events with a time-out is a wait for events.
        let epoll = [
            "__schedule",
            "schedule",
            "schedule_hrtimeout_range_clock",
            "schedule_hrtimeout_range",
            "do_epoll_wait",
        ];
        assert_eq!(kind(&epoll, "S"), Kind::Events);
        let sleep = ["__schedule", "schedule", "do_nanosleep", "hrtimer_nanosleep", "common_nsleep"];
        assert_eq!(kind(&sleep, "S"), Kind::Sleep);
        assert_eq!(kind(&["schedule", "futex_do_wait"], "S"), Kind::Lock);
        assert_eq!(kind(&["schedule", "schedule_hrtimeout_range"], "S"), Kind::Other);
        assert_eq!(kind(&["schedule"], "D"), Kind::Disk);
    }

    #[test]
    fn locks_and_sleeps_within_event_waits_are_classified() {
        let kind = |program: &[&str]| {
            let mut model = Model::default();
            let mut frame = |name: &str, kind| {
                model.frames.intern(Frame {
                    function: name.into(),
                    class: "".into(),
                    kind,
                    line: 0,
                    place: None,
                })
            };
            let mut frames = vec![frame("do_epoll_wait", FrameKind::Kernel)];
            frames.extend(program.iter().map(|name| frame(name, FrameKind::Native)));
            let stack = Stack { frames: frames.into(), truncated: false };
            (Kind::classify(&model, Some(&stack), "S"), super::super::idle::is_stack(&model, &stack))
        };
        assert_eq!(kind(&["epoll_wait", "WaitLatch", "ProcSleep", "heap_update"]), (Kind::Lock, false));
        assert_eq!(kind(&["epoll_wait", "WaitLatch", "ConditionVariableSleep"]), (Kind::Lock, false));
        for sleep in
            ["pg_sleep", "apr_sleep", "std::thread::sleep(Duration)", "usleep@@GLIBC_2.2.5", "pysleep"]
        {
            assert_eq!(kind(&["epoll_wait", "WaitLatch", sleep]), (Kind::Sleep, true), "{sleep}");
        }
        for other in ["WaitLatch", "run_loop", "asleep", "sleep_queue", "oversleep"] {
            assert_eq!(kind(&["epoll_wait", other]), (Kind::Events, true), "{other}");
        }
    }
}
