//! A process: its identity and the modes in which it can be recorded.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use flightline_recorder::control;
use flightline_recorder::{Error, engines, settings::labels};
use flightline_service::wire::{Capability, Hello, Labels, Mode};

/// A process.
#[derive(Debug)]
pub struct Process {
    /// PID.
    pub pid: u32,
    /// Program name.
    pub name: String,
    /// Start time in ticks since boot; identifies the process together with the PID.
    started: u64,
    labels: Labels,
    /// Labels from options.
    pub given: Vec<(String, String)>,
    /// Permits interrupting a wait of the program, so that it accepts a command.
    pub interrupt: bool,
    /// Children are separate targets, not part of this one.
    pub alone: bool,
}

/// Properties that may change during a process's lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Program name.
    name: String,
    /// True if it can be recorded from within.
    waits: bool,
}

impl Process {
    /// Looks up a process.
    ///
    /// # Errors
    /// Returns an error if there is no process with this PID.
    pub fn read(pid: u32, given: &[(String, String)], interrupt: bool, alone: bool) -> Result<Self, Error> {
        let none = || Error::Unavailable { name: "pid", problem: format!("process {pid} does not exist") };
        let started = started(pid).ok_or_else(none)?;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|_| none())?;
        let labels = labels::process_labels(pid, comm.trim_end(), given);
        let labels = labels.into_iter().filter(|(name, _)| name != "host").collect();
        Ok(Self {
            pid,
            name: comm.trim_end().to_owned(),
            started,
            labels,
            given: given.to_vec(),
            interrupt,
            alone,
        })
    }

    /// Returns true if the process still exists.
    pub fn is_there(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Waits at most `most` until it can be recorded from within or has ended.
    pub fn settle(&self, most: Duration) {
        let until = Instant::now() + most;
        while !self.waits() && self.is_there() && Instant::now() < until {
            sleep(Duration::from_millis(10));
        }
    }

    /// Waits at most `most` until it has this condition.
    pub fn wait_for(&self, most: Duration, condition: control::Condition) {
        let until = Instant::now() + most;
        while control::find(self.pid).is_ok_and(|found| found.condition != condition)
            && Instant::now() < until
        {
            sleep(Duration::from_millis(20));
        }
    }

    /// Returns the introduction for the service, with the modes available now.
    pub fn hello(&self) -> Hello {
        let (host, boot) = (read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id"));
        let name = self.condition().name;
        Hello {
            protocol: 1,
            key: format!("{host}/{boot}/{}/{}", self.pid, self.started),
            name: if name.is_empty() { self.name.clone() } else { name },
            host,
            pid: self.pid,
            start_time: self.start_ms(),
            labels: self.labels.clone(),
            modes: self.modes(),
        }
    }

    /// UTC ms.
    fn start_ms(&self) -> i64 {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let boot = stat
            .lines()
            .find_map(|line| line.strip_prefix("btime "))
            .and_then(|text| text.trim().parse().ok());
        let boot: i64 = boot.unwrap_or(0);
        // The kernel counts in hundredths of a second on all supported machines.
        boot.saturating_mul(1000).saturating_add(i64::try_from(self.started).unwrap_or(0).saturating_mul(10))
    }

    /// Returns true if it is prepared for recording from within.
    pub fn waits(&self) -> bool {
        self.within().is_ok()
    }

    /// Returns true if it is being recorded from within.
    pub fn is_recorded(&self) -> bool {
        let found = control::find(self.pid);
        found.is_ok_and(|found| matches!(found.condition, control::Condition::Recorded(_)))
    }

    /// Returns its current properties.
    pub fn condition(&self) -> Condition {
        Condition { name: read(&format!("/proc/{}/comm", self.pid)), waits: self.waits() }
    }

    /// Returns an error with the reason if it cannot be recorded from within.
    fn within(&self) -> Result<(), String> {
        let start = "start it with `flightline agent -- PROGRAM`";
        match control::find(self.pid).map_err(|error| error.to_string())?.condition {
            control::Condition::Waiting | control::Condition::Recorded(_) => Ok(()),
            control::Condition::Deaf => Err(format!("it does not accept commands; {start}")),
            control::Condition::NotLoaded => Err(format!("it was started without libflightline.so; {start}")),
        }
    }

    /// Returns why timers instead of perf events sample its CPU time, if they do.
    pub fn without_perf(&self) -> String {
        let status = read(&format!("/proc/{}/status", self.pid));
        let filter = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        if filter.is_some_and(|mode| mode.trim() != "0") {
            return "the program has a seccomp filter (as in containers), which could kill it for the attempt".into();
        }
        let level = read("/proc/sys/kernel/perf_event_paranoid");
        match level.parse::<i32>() {
            Ok(level) if level > 1 => format!(
                "kernel.perf_event_paranoid is {level}; set it to 1 or less, or give the program CAP_PERFMON"
            ),
            _ => "this kernel is older than 5.19 or refuses them".into(),
        }
    }

    /// Returns the available modes.
    fn modes(&self) -> Vec<Capability> {
        let within = self.within();
        let outside = outside().and_then(|()| self.is_ours());
        Mode::ALL
            .into_iter()
            .map(|mode| {
                let can = match mode {
                    Mode::OffCpu => outside.clone(),
                    Mode::Cpu => within.clone().or_else(|_| outside.clone()),
                    _ => within.clone(),
                };
                Capability { mode, available: can.is_ok(), reason: can.err().unwrap_or_default() }
            })
            .collect()
    }
}

impl Process {
    /// Checks the permission to inspect the process.
    fn is_ours(&self) -> Result<(), String> {
        control::find(self.pid).map(|_| ()).map_err(|error| error.to_string())
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Checks whether processes can be recorded from outside, possibly without kernel stacks.
pub fn outside() -> Result<(), String> {
    let engines = engines::list();
    let refused =
        |name: &str| engines.iter().find(|engine| engine.name == name).map(|engine| &engine.refused);
    match (refused("perf"), refused("perf-user")) {
        (Some(None), _) | (_, Some(None)) => Ok(()),
        (_, Some(Some(why))) => Err(why.clone()),
        _ => Err("perf events are not available here".into()),
    }
}

/// Reads field 22 of `/proc/PID/stat`. Fields are counted after the name, which may contain blanks and
/// parentheses.
pub fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    // A zombie counts as ended.
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_identity_is_stable_until_exit() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::read(child.id(), &[("zone".into(), "eu".into())], false, true).unwrap();
        assert!(process.is_there());
        let (one, two) = (process.hello(), process.hello());
        assert_eq!((one.key, one.start_time), (two.key, two.start_time));
        assert_eq!(one.labels["zone"], "eu");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let ago = i64::try_from(now.as_millis()).unwrap() - one.start_time;
        assert!((-2_000..60_000).contains(&ago), "began {ago} ms ago");
        let reason = |mode: Mode| one.modes.iter().find(|can| can.mode == mode).unwrap();
        assert!(!reason(Mode::Alloc).available && reason(Mode::Alloc).reason.contains("libflightline.so"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_there());
        assert!(Process::read(child.id(), &[], false, true).is_err());
    }
}
