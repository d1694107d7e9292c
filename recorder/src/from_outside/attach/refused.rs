//! Explains why a process cannot be recorded from outside, and the remedy.

use std::{fs, io, os::unix::fs::MetadataExt};

use crate::error::Error;

/// Returns the error that there is no such process.
pub fn gone(pid: u32) -> Error {
    refusal(format!("process {pid} does not exist"))
}

fn refusal(problem: String) -> Error {
    Error::Unavailable { name: "pid", problem }
}

/// What is relevant about the process and this one.
#[derive(Debug)]
struct Facts {
    pid: u32,
    /// Owner of the process, if it is visible.
    owner: Option<u32>,
    /// The process denies access even to its owner (set-user-id, prctl).
    closed: bool,
    us: u32,
    /// `kernel.perf_event_paranoid`.
    paranoid: Option<i32>,
}

/// Explains why the kernel refused to open events of a process.
pub fn explain(pid: u32, error: &io::Error) -> Error {
    let owner = fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid());
    let real = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let real = real.lines().find_map(|l| l.strip_prefix("Uid:"));
    let real = real.and_then(|l| l.split_whitespace().next()?.parse::<u32>().ok());
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let facts = Facts {
        pid,
        owner: real.or(owner),
        // In /proc, a process that is not dumpable belongs to root.
        closed: real.is_some() && owner == Some(0) && real != Some(0),
        us: nix::unistd::geteuid().as_raw(),
        paranoid: paranoid.and_then(|t| t.trim().parse().ok()),
    };
    refusal(text(&facts, error))
}

fn text(facts: &Facts, error: &io::Error) -> String {
    let Facts { pid, us, .. } = *facts;
    let said = crate::error::plain(error);
    match error.raw_os_error() {
        Some(libc::ESRCH) => format!("process {pid} has ended"),
        Some(libc::EMFILE | libc::ENFILE) => format!(
            "process {pid} has too many threads: perf events need one descriptor per thread, CPU and \
             event; raise the limit (ulimit -n)"
        ),
        Some(libc::ENOSYS) => {
            "perf_event_open is not available: this kernel lacks it, or a seccomp filter (container) blocks it".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) if us != 0 => match (facts.owner, facts.paranoid) {
            (Some(owner), _) if owner != us => {
                format!(
                    "process {pid} belongs to user {owner}, but flightline runs as user {us}; run flightline as that user or as root"
                )
            }
            _ if facts.closed => format!(
                "process {pid} is not accessible to other processes of its user (set-user-id or prctl); run flightline as root"
            ),
            (_, Some(level @ 3..)) => format!(
                "{said}: kernel.perf_event_paranoid is {level}; set it to 2 (sysctl kernel.perf_event_paranoid=2), or \
                 run flightline as root"
            ),
            _ => format!(
                "{said}: the kernel does not permit perf events of process {pid}; in a container, allow \
                 perf_event_open (seccomp) or add CAP_PERFMON, or run flightline as root on the host"
            ),
        },
        Some(libc::EACCES | libc::EPERM) => format!(
            "{said}: the kernel does not permit perf events of process {pid}, even for root; in a \
             container, add CAP_PERFMON and CAP_SYS_PTRACE and allow perf_event_open (seccomp)"
        ),
        _ => format!("cannot record process {pid}: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_suggests_a_remedy() {
        let facts = |owner, us, closed, paranoid| Facts { pid: 7, owner, closed, us, paranoid };
        let table = [
            (libc::EACCES, facts(Some(0), 1000, false, Some(2)), "belongs to user 0"),
            (libc::EACCES, facts(Some(1000), 1000, true, Some(2)), "run flightline as root"),
            (libc::EACCES, facts(Some(1000), 1000, false, Some(4)), "perf_event_paranoid is 4"),
            (libc::EPERM, facts(Some(1000), 1000, false, Some(2)), "CAP_PERFMON"),
            (libc::EPERM, facts(Some(0), 0, false, Some(2)), "CAP_SYS_PTRACE"),
            (libc::EMFILE, facts(Some(0), 0, false, None), "ulimit -n"),
            (libc::ESRCH, facts(None, 0, false, None), "process 7 has ended"),
        ];
        for (errno, facts, expected) in table {
            let text = text(&facts, &io::Error::from_raw_os_error(errno));
            assert!(text.contains(expected), "{text:?} should say {expected:?}");
            assert!(!text.contains('\n'));
        }
    }
}
