//! A thread sampled from outside and what its events counted; what `/proc` says of threads and processes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{process::thread::Thread, tell::About};

/// A thread and what its events counted.
pub struct Watched {
    /// Its account.
    pub thread: Thread,
    /// Last count of its event of each processor, ns.
    pub counts: Vec<u64>,
    /// CPU time it had used when its events were opened.
    pub base_ns: u64,
    /// What its events counted after its last samples; known when it has ended.
    pub tail_ns: u64,
    /// Its samples tell what was counted.
    pub samples_count: bool,
    /// CPU time in no sample when sampling was switched off.
    pub before_pause_ns: u64,
    /// Sampling stops: its CPU clock is no longer read.
    pub clock_is_final: bool,
    /// CLOCK_MONOTONIC ns of its end, once told.
    pub ended_ns: Option<u64>,
}

impl Watched {
    /// Nothing counted yet.
    pub fn new(thread: Thread, base_ns: u64) -> Watched {
        Watched {
            thread,
            counts: Vec::new(),
            base_ns,
            tail_ns: 0,
            samples_count: true,
            before_pause_ns: 0,
            clock_is_final: false,
            ended_ns: None,
        }
    }

    /// CPU time of its event of ring `ring` since the last call.
    pub fn counted(&mut self, ring: usize, count_ns: u64) -> u64 {
        if self.counts.len() <= ring {
            self.counts.resize(ring + 1, 0);
        }
        let last = &mut self.counts[ring];
        let new = count_ns.saturating_sub(*last);
        *last = count_ns.max(*last);
        new
    }

    /// What its events counted and no sample told. Where samples tell no counts, the end told of everything.
    pub fn rest_ns(&self) -> u64 {
        let ledger = &self.thread.ledger;
        let told = ledger.sampled_ns.saturating_add(ledger.lost_total_ns());
        if self.samples_count { self.tail_ns } else { self.tail_ns.saturating_sub(told) }
    }

    /// Reads its CPU clock, if it still has one.
    pub fn read_clock(&mut self, pid: u32) {
        if self.clock_is_final {
            return;
        }
        if let Some(ran) = cpu_ns(pid, self.thread.tid) {
            let since = ran.saturating_sub(self.base_ns);
            self.thread.ledger.cpu_ns = self.thread.ledger.cpu_ns.max(since);
        }
    }
}

/// CPU time of a thread, ns.
pub fn cpu_ns(pid: u32, tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// A thread's name.
pub fn name_of(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
}

/// How many samples a weight stands for beside the one at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Weight of the sample itself, ns.
    pub own_ns: u64,
    /// Samples, and their CPU time, that the full ring had no room for.
    pub lost: (u64, u64),
    /// CPU time in the kernel that the kernel does not let us see, ns.
    pub hidden_ns: u64,
}

/// Splits the CPU time counted since the last sample: a period each belongs to `missing` records that the ring had
/// no room for; without permission to see the kernel (`blind`), what then remains beyond a period was spent there.
pub fn split(counted_ns: u64, period_ns: u64, missing: u64, blind: bool) -> Split {
    let beyond = counted_ns.saturating_sub(period_ns);
    let periods = (beyond + period_ns / 2) / period_ns.max(1);
    let lost = periods.min(missing);
    let lost_ns = (lost * period_ns).min(beyond);
    let hidden = if blind { periods - lost } else { 0 };
    let hidden_ns = (hidden * period_ns).min(beyond - lost_ns);
    Split { own_ns: counted_ns - lost_ns - hidden_ns, lost: (lost, lost_ns), hidden_ns }
}

/// The id by which a process knows itself, if it lives in another pid namespace.
pub fn id_inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NStgid:"))?;
    ids.split_whitespace().nth(1)?;
    ids.split_whitespace().last()?.parse().ok()
}

/// What `/proc` says of a process; `None` if it is gone.
pub fn about(pid: u32, now_ns: u64) -> Option<About> {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    let arguments: Vec<String> = if bytes.is_empty() {
        name_of(pid, pid).into_iter().collect()
    } else {
        bytes.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
    };
    Some(About { pid, exe, arguments, start_mono_ns: started_ns(pid).unwrap_or(now_ns).min(now_ns) })
}

/// CLOCK_MONOTONIC ns of a process's start, which the kernel tells since boot.
fn started_ns(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks: u64 = text.get(text.rfind(')')? + 1..)?.split_whitespace().nth(19)?.parse().ok()?;
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten()?.max(1) as u64;
    let boot = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).ok()?;
    let boot_ns = boot.tv_sec() as u64 * 1_000_000_000 + boot.tv_nsec() as u64;
    let suspended = boot_ns.saturating_sub(crate::clock::monotonic_ns());
    Some((ticks * (1_000_000_000 / per_second)).saturating_sub(suspended))
}

/// A process of which only its first word is known.
pub fn about_name(pid: u32, name: &str, now_ns: u64) -> About {
    About {
        pid,
        exe: PathBuf::from(Path::new(name)),
        arguments: vec![name.to_owned()],
        start_mono_ns: now_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_split_without_losing_any() {
        const P: u64 = 10_000;
        for counted in [0, 1, P / 2, P, P + 1, 2 * P, 7 * P + 4_000, 7 * P + 6_000, 1000 * P] {
            for missing in [0, 1, 5, 10_000] {
                for blind in [false, true] {
                    let s = split(counted, P, missing, blind);
                    assert_eq!(s.own_ns + s.lost.1 + s.hidden_ns, counted, "{counted} {missing} {blind}");
                    assert!(s.lost.0 <= missing);
                    assert!(blind || s.hidden_ns == 0);
                }
            }
        }
        assert_eq!(split(7 * P, P, 2, false), Split { own_ns: 5 * P, lost: (2, 2 * P), hidden_ns: 0 });
        assert_eq!(split(7 * P, P, 2, true), Split { own_ns: P, lost: (2, 2 * P), hidden_ns: 4 * P });
        assert_eq!(split(P + P / 3, P, 9, true).own_ns, P + P / 3, "a late interrupt is no loss");
    }
}
