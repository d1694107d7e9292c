//! Records running processes: those that wait for the recorder join it, all others are recorded from outside.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::{
    Drain, Error, Settings, Target,
    control::{self, Condition},
    os::{clock::thread_cpu_ns, memory, sigbus},
    run::command::{Ended, Signals, raise_file_limit},
};

/// The shortest time between two searches for further processes.
const LOOK: Duration = Duration::from_secs(1);
/// A search may use at most this fraction (1/100) of the time until the next one as CPU time. A machine may
/// have thousands of processes.
const LOOK_SHARE: u32 = 100;

/// Processes that can be recorded, and those that cannot.
#[derive(Default)]
struct Chosen {
    /// Processes that wait for a command to join.
    waiting: Vec<u32>,
    outside: Vec<u32>,
    /// The reasons why the others are not recorded.
    refused: Vec<Error>,
    /// Number of processes that ended before they were recorded.
    gone: usize,
}

impl Chosen {
    fn classify(pids: &[u32], settings: &Settings) -> Self {
        let mut chosen = Self::default();
        for &pid in pids {
            match control::find(pid) {
                Ok(found) => match found.condition {
                    Condition::Waiting if !settings.processes.outside => chosen.waiting.push(pid),
                    // Several recorders may record a process from outside.
                    Condition::Recorded(_) if !settings.processes.outside => {
                        chosen.refused.push(Error::Unavailable {
                            name: "pid",
                            problem: format!(
                                "{} ({pid}) is already being recorded; control that recording with `flightline ctl`",
                                found.name
                            ),
                        })
                    }
                    _ => chosen.outside.push(pid),
                },
                // Its files in /proc cannot be read. The attempt to record it returns the reason and the
                // remedy.
                Err(_) if is_alive(pid) => chosen.outside.push(pid),
                Err(error) => chosen.leave_out(pid, error),
            }
        }
        chosen
    }

    fn leave_out(&mut self, pid: u32, error: Error) {
        match is_alive(pid) {
            true => self.refused.push(error),
            false => self.gone += 1,
        }
    }

    /// Starts to record the processes. Returns those that have to join.
    fn begin(&mut self, drain: &mut Drain) -> Result<Vec<(u32, control::Joining)>, Error> {
        let mut joining = Vec::new();
        for pid in std::mem::take(&mut self.waiting) {
            match control::join(pid, drain.session_dir(), false) {
                Ok(join) => {
                    // Its off-CPU time is recorded from outside.
                    drain.off_cpu_attach(pid)?;
                    joining.push((pid, join));
                }
                Err(error) => self.leave_out(pid, error),
            }
        }
        for pid in std::mem::take(&mut self.outside) {
            let attached =
                if drain.settings().recordable_from_outside() { drain.attach(pid) } else { Ok(()) };
            match attached.and_then(|()| drain.off_cpu_attach(pid)) {
                Ok(()) => self.outside.push(pid),
                Err(error) => self.leave_out(pid, error),
            }
        }
        Ok(joining)
    }

    /// Takes the reason why no process can be recorded.
    fn reason(&mut self, pids: &[u32]) -> Error {
        match self.refused.is_empty() {
            true => Error::Unavailable {
                name: "pid",
                problem: match pids {
                    [pid] => format!("process {pid} does not exist"),
                    _ => format!("all {} processes ended before they were recorded", pids.len()),
                },
            },
            false => self.refused.swap_remove(0),
        }
    }

    /// Prints the reasons why processes are not recorded.
    fn say_refused(&self, say: &mut dyn FnMut(&str)) {
        if let Some(first) = self.refused.first() {
            say(&format!("{} not recorded: {first}", processes(self.refused.len())));
        }
    }
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

/// Returns true if a process runs. One that has ended stays in `/proc` until its parent waits for it.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Records running processes until they end, the recording is over, or a signal arrives. Processes that wait
/// for the recorder join; all others are recorded from outside.
///
/// `find` returns the PIDs. It is called again every second or less often, and processes that it returns
/// twice in a row are recorded from then on. `say` receives the number of processes that ended before they
/// were recorded, and the reason why others are not recorded.
///
/// # Errors
/// None of the processes can be recorded, or the output cannot be written.
pub fn record_running(
    find: &mut dyn FnMut() -> Result<Vec<u32>, Error>,
    settings: Settings,
    target: Target,
    say: &mut dyn FnMut(&str),
) -> Result<Ended, Error> {
    let all = settings.off_cpu.as_ref().is_some_and(|o| o.all);
    let first = if all { Vec::new() } else { find()? };
    let mut chosen = Chosen::classify(&first, &settings);
    if !all && chosen.waiting.is_empty() && chosen.outside.is_empty() {
        return Err(chosen.reason(&first));
    }
    if !chosen.outside.is_empty() {
        settings.check_outside(!chosen.waiting.is_empty(), say)?;
    }
    sigbus::survive();
    memory::keep_little();
    raise_file_limit();
    let signals = Signals::catch(&settings.trigger_signals())?;
    Signals::let_through();
    let mut drain = Drain::start(settings, target)?;
    let mut code = 0;
    let mut begun = false;
    let mut joining = Vec::new();
    let mut next_look = Instant::now() + LOOK;
    let mut later = Later { known: first.iter().copied().collect(), seen: HashSet::new() };
    while !drain.is_stop_requested() {
        // Recording from outside cannot pause, so a delay postpones the start.
        if !begun && !drain.paused() {
            begun = true;
            if all {
                drain.off_cpu_all()?;
            }
            joining = chosen.begin(&mut drain)?;
            let recorded = joining.len() + chosen.outside.len();
            if !all && recorded == 0 {
                return Err(chosen.reason(&first));
            }
            if first.len() > 1 {
                say(&format!("{} recorded", processes(recorded)));
            }
            if chosen.gone > 0 {
                say(&format!("{} had already ended", processes(chosen.gone)));
            }
            chosen.say_refused(say);
        }
        joining.retain(|(pid, _)| !drain.records(*pid));
        for (_, joining) in &mut joining {
            joining.urge()?;
        }
        if begun && joining.is_empty() && drain.running() == 0 {
            break;
        }
        let mut received = signals.take();
        received.retain(|(signal, _)| !drain.signalled(*signal));
        if let Some((signal, _)) = received.first() {
            // Control-C is the usual way to end such a recording.
            code = if i32::from(*signal) == Signal::SIGINT as i32 { 0 } else { 128 + signal };
            break;
        }
        let pause = if joining.is_empty() { LOOK } else { Duration::from_millis(2) };
        drain.wait_at_most(pause, &[signals.reader()]);
        drain.round();
        for notice in drain.take_notices() {
            say(&notice);
        }
        let now = Instant::now();
        if begun && !all && now >= next_look {
            // Not the elapsed time: on a busy machine most of it is spent waiting for a processor.
            let before_ns = thread_cpu_ns();
            joining.extend(later.begin(find, &mut drain, say)?);
            let search = Duration::from_nanos(thread_cpu_ns().saturating_sub(before_ns));
            next_look = now + LOOK.max(search * LOOK_SHARE);
        }
    }
    let report = drain.finish(&|| !signals.take().is_empty());
    drop(signals);
    for notice in &report.notices {
        say(notice);
    }
    // A recording of all processes may be empty.
    Ok(Ended { code, unseen: report.processes == 0 && !all, report })
}

/// Finds processes to record after the start.
struct Later {
    /// Processes that are recorded or refused.
    known: HashSet<u32>,
    /// Processes that the last search found for the first time.
    seen: HashSet<u32>,
}

impl Later {
    /// Starts to record processes found by both this search and the last one. Returns those that have to
    /// join. The kernel records children of recorded processes from their start; the drain knows them once it
    /// has read the records of their start.
    fn begin(
        &mut self,
        find: &mut dyn FnMut() -> Result<Vec<u32>, Error>,
        drain: &mut Drain,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<(u32, control::Joining)>, Error> {
        // All processes with the name may have ended.
        let mut new = find().unwrap_or_default();
        new.retain(|pid| !self.known.contains(pid) && !drain.records(*pid) && !drain.watches(*pid));
        let twice: Vec<u32> = new.iter().copied().filter(|pid| self.seen.contains(pid)).collect();
        self.seen = new.into_iter().collect();
        // The kernel reuses the PIDs of ended processes.
        self.known.retain(|pid| is_alive(*pid));
        self.known.extend(&twice);
        let mut chosen = Chosen::classify(&twice, drain.settings());
        let joining = chosen.begin(drain)?;
        chosen.say_refused(say);
        Ok(joining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use nix::unistd::Pid;

    #[test]
    fn ended_process_is_not_alive_although_its_parent_has_not_waited() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        assert!(is_alive(pid));
        drop(child.stdin.take());
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(Pid::from_raw(pid as i32)), ended).unwrap();
        assert!(!is_alive(pid) && std::path::Path::new(&format!("/proc/{pid}")).exists());
        child.wait().unwrap();
        assert!(!is_alive(pid));
    }
}
