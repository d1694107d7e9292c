//! Recognizes idle threads, which wait for work rather than for something that they need to continue.

use super::kind::{NEAR, is_lock};
use crate::model::{FrameKind, Model, Stack};

/// Kernel functions in which a thread waits for events, connections, children, signals or a timer.
const KERNEL: &[&str] = &[
    "ep_poll",
    "do_epoll_wait",
    "do_poll",
    "do_sys_poll",
    "do_select",
    "core_sys_select",
    "inet_csk_accept",
    "unix_accept",
    "unix_wait_for_peer",
    "io_cqring_wait",
    "read_events",
    "do_sigtimedwait",
    "sigsuspend",
    "do_wait",
    "hrtimer_nanosleep",
    "do_nanosleep",
    "smpboot_thread_fn",
    "worker_thread",
    "rcu_gp_fqs_loop",
    "kthreadd",
];

/// Functions of programs in which threads of a pool wait for work.
const PROGRAM: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "accept",
    "accept4",
    "sigwaitinfo",
    "sigtimedwait",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "io_getevents",
    "ngx_process_events_and_timers",
    "aeApiPoll",
    "sun.nio.ch.EPoll.wait",
];

/// Returns true for the state of idle kernel threads.
pub(super) fn is_state(name: &str) -> bool {
    name.starts_with('I')
}

/// Returns true if a stack is that of an idle thread.
pub(super) fn is_stack(model: &Model, stack: &Stack) -> bool {
    let idle = stack.frames.iter().take(NEAR).any(|&frame| {
        let frame = model.frames.get(frame);
        // Handles names such as `epoll_wait@@GLIBC_2.3.2` and `__poll`.
        let name = frame.function.split('@').next().unwrap_or_default();
        match frame.kind {
            FrameKind::Kernel => KERNEL.contains(&name),
            _ => PROGRAM.contains(&name.trim_start_matches('_')),
        }
    });
    idle && !is_lock(model, stack)
}
