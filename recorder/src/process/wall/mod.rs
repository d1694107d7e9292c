//! The wall clock: records the time of every thread of a process, running or waiting, without waking any.
//!
//! Running time is in the thread's own CPU samples. The recorder sees waits from its own process: the
//! scheduler statistics of a thread (`/proc/PID/task/TID/schedstat`) do not change while the thread does not
//! run. This proves a wait afterwards, without an examination at every interval. The place of a wait is read
//! once (`…/syscall`, then the stack). The recorder sends no signal: a sleeping thread would wake, and its
//! system calls would fail with `EINTR`. The CPU clock of the process shows whether any of its threads ran.
//!
//! `process/wall_sampler.rs` examines the threads of a preloaded process, `from_outside/attach/waits.rs`
//! those of a process recorded from outside.
//!
//! For each thread, Σ samples × interval = its lifetime, within one interval for each state. If a wait turns
//! out to have been time in the run queue, it is corrected.

pub(crate) mod off_cpu_slices;
mod poll_timer;
pub(crate) mod schedstat;
mod share;
pub(crate) mod thread_timeline;

pub use poll_timer::PollTimer;
pub use share::Share;
pub use thread_timeline::Wait;
