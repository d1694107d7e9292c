//! Tests which engines work on this machine.

use std::time::Duration;

use flightline_in_signal::{engine::probe, layout::engine};
use nix::errno::Errno;

pub use crate::perf_events::{list as list_perf_events, trace_refused};
use crate::{
    error::Error,
    from_outside::off_cpu,
    settings::{Engine, OffCpuSettings},
};

/// An engine, and whether it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// Name as on the command line.
    pub name: &'static str,
    /// A description.
    pub about: &'static str,
    /// The reason why it does not work, if so.
    pub refused: Option<String>,
    /// The part that is missing, if it works in part.
    pub limited: Option<String>,
}

/// Tries every engine briefly in the calling thread.
pub fn list() -> Vec<Availability> {
    let engines = [
        (engine::PERF, "perf", "perf_event_open with sigtrap; user and kernel time, up to 10000 Hz"),
        (
            engine::PERF_USER,
            "perf-user",
            "perf_event_open with sigtrap; user time up to 10000 Hz, kernel time by a timer at the kernel's tick",
        ),
        (
            engine::TIMER,
            "timer",
            "a CPU-time timer per thread; user and kernel time, up to the kernel's tick",
        ),
        (
            engine::ITIMER,
            "itimer",
            "one CPU-time timer per process, whose signal goes to a running thread; accurate for the \
             process, not for each thread",
        ),
    ];
    engines
        .into_iter()
        .map(|(code, name, about)| {
            if code == engine::ITIMER && kernel_before(6, 4) {
                let refused =
                    "needs Linux 6.4; before, the signal goes to the main thread and interrupts its waits";
                return Availability { name, about, refused: Some(refused.into()), limited: None };
            }
            let refused = match probe(code, 10_000_000, 100) {
                (found, _) if found == code => None,
                (_, errno) => Some(explain(code, errno)),
            };
            Availability { name, about, refused, limited: None }
        })
        .collect()
}

/// Briefly tries the options of `record` that use the kernel's tracepoints: `--off-cpu` and its related
/// options.
pub fn tracepoint_options() -> Vec<Availability> {
    let none = OffCpuSettings { switches: false, ..OffCpuSettings::default() };
    let options = [
        (
            "--off-cpu",
            "off-CPU intervals of threads: stack, state and duration; =MIN sets the minimum",
            OffCpuSettings::default(),
        ),
        (
            "--wakeups",
            "with --off-cpu: the waker, and how long the woken thread waits for a CPU",
            OffCpuSettings { wakeups: true, ..OffCpuSettings::default() },
        ),
        (
            "--syscall-io",
            "system calls that read, write, sync, connect or accept, of any process; =MIN sets the minimum",
            OffCpuSettings { calls: Some(Duration::ZERO), ..none.clone() },
        ),
        (
            "--block-io",
            "requests to block devices; =MIN sets the minimum",
            OffCpuSettings { block: Some(Duration::ZERO), ..none.clone() },
        ),
        (
            "--growth",
            "calls of brk, mmap and mremap that add address space",
            OffCpuSettings { growth: true, ..none },
        ),
    ];
    let try_out = |(name, about, settings): (_, _, OffCpuSettings)| {
        let (refused, limited) = match off_cpu::try_out(&settings) {
            Ok(limited) => (None, limited),
            Err(refused) => (Some(refused), None),
        };
        Availability { name, about, refused, limited }
    };
    options.into_iter().map(try_out).collect()
}

/// Checks that a requested engine works in the calling thread.
///
/// # Errors
/// The engine does not work; the error has the reason and the remedy.
pub fn check(engine: Engine, period: Duration) -> Result<(), Error> {
    let code = engine.code();
    let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    if engine == Engine::Auto {
        return Ok(());
    }
    match probe(code, nanos, 100) {
        (found, _) if found == code => Ok(()),
        (_, errno) => Err(Error::Unavailable {
            name: "engine",
            problem: format!("{}; use --engine auto to select one that works", explain(code, errno)),
        }),
    }
}

fn kernel_before(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (major, minor)
}

fn explain(code: u32, errno: i32) -> String {
    let reason = Errno::from_raw(errno);
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let paranoid = paranoid.trim();
    match reason {
        Errno::EACCES | Errno::EPERM if code == engine::PERF => format!(
            "{}: kernel.perf_event_paranoid is {paranoid}; needs 1 or less or CAP_PERFMON, and no seccomp filter (containers)",
            reason.desc()
        ),
        Errno::EACCES | Errno::EPERM if code == engine::PERF_USER => format!(
            "{}: kernel.perf_event_paranoid is {paranoid}; needs 2 or less, and no seccomp filter (containers)",
            reason.desc()
        ),
        Errno::EINVAL => {
            format!("{}: the kernel is older than 5.13 or has no software events", reason.desc())
        }
        Errno::ENOSYS => {
            format!("{}: this kernel lacks it, or a seccomp filter (container) blocks it", reason.desc())
        }
        _ => reason.desc().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_engine_is_available_everywhere() {
        let list = list();
        assert_eq!(list.iter().map(|a| a.name).collect::<Vec<_>>(), ["perf", "perf-user", "timer", "itimer"]);
        assert_eq!(list[2].refused, None);
        assert_eq!(list[3].refused.is_none(), !kernel_before(6, 4), "{:?}", list[3]);
        assert!(explain(engine::PERF, libc::EACCES).contains("perf_event_paranoid"));
    }
}
