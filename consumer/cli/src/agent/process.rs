//! What a process is: who it is for as long as it lives, and what can be recorded of it.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use flightline_recorder::control;
use flightline_recorder::{Error, engines, labels};
use flightline_service::wire::{Capability, Hello, Labels, Mode};

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Of its program.
    pub name: String,
    /// Ticks between boot and its start: with the number, nobody else.
    started: u64,
    labels: Labels,
    /// Labels that were given with options.
    pub given: Vec<(String, String)>,
    /// A wait of it may be ended early, so that it takes a command.
    pub interrupt: bool,
    /// What it starts is recorded apart, not with it.
    pub alone: bool,
}

/// What may change while a process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Of its program.
    name: String,
    /// Whether it can be recorded from within.
    waits: bool,
}

impl Process {
    /// Looks at a process.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn of(pid: u32, given: &[(String, String)], interrupt: bool, alone: bool) -> Result<Self, Error> {
        let none = || Error::Unavailable { name: "pid", problem: format!("there is no process {pid}") };
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

    /// Whether it still is.
    pub fn is_there(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Waits until it can be recorded from within, or has ended, but not for longer than `most`.
    pub fn settle(&self, most: Duration) {
        let until = Instant::now() + most;
        while !self.waits() && self.is_there() && Instant::now() < until {
            sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it stands so to recorders, but not for longer than `most`.
    pub fn wait_for(&self, most: Duration, condition: control::Condition) {
        let until = Instant::now() + most;
        while control::find(self.pid).is_ok_and(|found| found.condition != condition)
            && Instant::now() < until
        {
            sleep(Duration::from_millis(20));
        }
    }

    /// How it is introduced, by what can be recorded of it now.
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
        // The kernel tells this in hundredths of a second on all machines of ours.
        boot.saturating_mul(1000).saturating_add(i64::try_from(self.started).unwrap_or(0).saturating_mul(10))
    }

    /// Whether it was started to be recorded from within.
    pub fn waits(&self) -> bool {
        self.within().is_ok()
    }

    /// Whether a recorder records it from within.
    pub fn is_recorded(&self) -> bool {
        let found = control::find(self.pid);
        found.is_ok_and(|found| matches!(found.condition, control::Condition::Recorded(_)))
    }

    /// What it is now.
    pub fn condition(&self) -> Condition {
        Condition { name: read(&format!("/proc/{}/comm", self.pid)), waits: self.waits() }
    }

    /// Whether it can be recorded from within, and why not.
    fn within(&self) -> Result<(), String> {
        let start = "start it by `flightline agent -- PROGRAM`";
        match control::find(self.pid).map_err(|error| error.to_string())?.condition {
            control::Condition::Waiting | control::Condition::Recorded(_) => Ok(()),
            control::Condition::Deaf => Err(format!("it takes no commands; {start}")),
            control::Condition::NotLoaded => Err(format!("it was started without libflightline.so; {start}")),
        }
    }

    /// Why timers sample its CPU time, if they do.
    pub fn without_perf(&self) -> String {
        let status = read(&format!("/proc/{}/status", self.pid));
        let filter = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        if filter.is_some_and(|mode| mode.trim() != "0") {
            return "as a seccomp filter is set up for the program, which may end it for asking (containers have one)".into();
        }
        let level = read("/proc/sys/kernel/perf_event_paranoid");
        match level.parse::<i32>() {
            Ok(level) if level > 1 => format!(
                "as kernel.perf_event_paranoid is {level}; 1 or less permits them, or CAP_PERFMON for the program"
            ),
            _ => "as this kernel is older than 5.19 or refuses them".into(),
        }
    }

    /// What can be recorded.
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
    /// Whether we may look at it at all.
    fn is_ours(&self) -> Result<(), String> {
        control::find(self.pid).map(|_| ()).map_err(|error| error.to_string())
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Whether processes can be recorded from outside here; without stacks of the kernel where those may not be seen.
pub fn outside() -> Result<(), String> {
    let engines = engines::list();
    let refused =
        |name: &str| engines.iter().find(|engine| engine.name == name).map(|engine| &engine.refused);
    match (refused("perf"), refused("perf-user")) {
        (Some(None), _) | (_, Some(None)) => Ok(()),
        (_, Some(Some(why))) => Err(why.clone()),
        _ => Err("perf events are not known here".into()),
    }
}

/// Field 22 of `/proc/PID/stat`, behind the name, which may have spaces and brackets.
pub fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    // A process that has ended and not been waited for is no more.
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_the_same_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id(), &[("zone".into(), "eu".into())], false, true).unwrap();
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
        assert!(Process::of(child.id(), &[], false, true).is_err());
    }
}
