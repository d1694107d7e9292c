//! `flightline record -p`: which running processes are meant.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use clap::Args;
use flightline_recorder::Error;
use flightline_recorder::control::{self, Condition, Found};

use crate::processes;

/// Running processes to record.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Record running processes from outside, in any language, with their children (repeat for several): a process id; the name or
    /// path of a program, a systemd unit (nginx.service) or the id of a container, also for processes that start later
    #[arg(short, long, value_name = "PID|NAME")]
    pub pid: Vec<String>,
    /// Also what waits to be recorded (`record --dormant`): it takes no command then, which it cannot where all its threads sleep
    #[arg(long, requires = "pid")]
    pub outside: bool,
    /// The agent that this recorder works for: it ends with it, however that ends
    #[arg(long, hide = true, requires = "pid", value_name = "PID")]
    pub agent: Option<i32>,
}

impl AttachArgs {
    /// Has this process end properly when its agent ends.
    pub fn end_with_agent(&self) {
        let Some(agent) = self.agent else { return };
        let told = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
        if told.is_ok() && nix::unistd::getppid().as_raw() != agent {
            // It ended before.
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM);
        }
    }
}

fn refusal(problem: String) -> Error {
    Error::Setting { name: "pid", problem }
}

/// Process ids from ids and names, each once.
pub fn pids(wanted: &[String]) -> Result<Vec<u32>, Error> {
    let mut pids = Vec::new();
    for word in wanted.iter().flat_map(|w| w.split(',')) {
        let found = match word.parse::<u32>() {
            Ok(0) | Err(_) if word.chars().all(|c| c.is_ascii_digit()) => {
                return Err(refusal(format!("{word:?} is no process id")));
            }
            Ok(pid) => vec![pid],
            Err(_) => named(word),
        };
        if found.is_empty() {
            return Err(refusal(format!("no process has the name {word:?}; see `ps -e`")));
        }
        pids.extend(found.into_iter().filter(|pid| *pid != std::process::id()));
    }
    let mut seen = HashSet::new();
    pids.retain(|pid| seen.insert(*pid));
    match pids.is_empty() {
        true => Err(refusal("flightline cannot record itself".into())),
        false => Ok(pids),
    }
}

/// The process of an id or a name that is recorded; of several of one recording the one with the lowest id, which is the oldest in most cases.
///
/// # Errors
/// There is none, or several recordings have processes of this name.
pub fn recorded(wanted: &str) -> Result<Found, Error> {
    let mut chosen: Option<Found> = None;
    let mut failed = None;
    for pid in pids(&[wanted.to_owned()])? {
        let found = match control::find_recorded(pid) {
            Ok(found) => found,
            // It may have ended since.
            Err(error) => {
                failed = failed.or(Some(error));
                continue;
            }
        };
        match &chosen {
            Some(first) if matches!(first.condition, Condition::Recorded(_)) => {
                if matches!(found.condition, Condition::Recorded(_)) && found.condition != first.condition {
                    let problem = format!(
                        "several recordings have processes with the name {wanted:?}, such as {} and {}: give a process id",
                        first.pid, found.pid
                    );
                    return Err(refusal(problem));
                }
            }
            Some(first) if rank(&found.condition) <= rank(&first.condition) => {}
            _ => chosen = Some(found),
        }
    }
    chosen.ok_or_else(|| {
        failed.unwrap_or_else(|| refusal(format!("no process has the name {wanted:?}; see `ps -e`")))
    })
}

/// What a command is meant for comes first.
fn rank(condition: &Condition) -> u8 {
    match condition {
        Condition::Recorded(_) => 3,
        Condition::Waiting => 2,
        Condition::Deaf => 1,
        Condition::NotLoaded => 0,
    }
}

/// Process ids as [`pids`] returns them, and those of all descendants of these processes.
pub fn with_descendants(wanted: &[String]) -> Result<Vec<u32>, Error> {
    let mut pids = pids(wanted)?;
    let own = HashSet::from([std::process::id()]);
    let found = processes::descendants(&processes::processes(), &pids, &own);
    pids.extend(found.into_iter().map(|(pid, _)| pid));
    Ok(pids)
}

/// The processes of a word: the path of their program, its name or that of their first thread, else their control group (a systemd unit such as
/// `nginx.service`, or the id of a container).
fn named(word: &str) -> Vec<u32> {
    let found = matching(|pid| match word.contains('/') {
        true => fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == Path::new(word)),
        false => is_called(pid, word),
    });
    match found.is_empty() {
        true => matching(|pid| {
            fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|groups| is_in_group(&groups, word))
        }),
        false => found,
    }
}

fn matching(is_wanted: impl Fn(u32) -> bool) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = pids.filter(|pid| is_wanted(*pid)).collect();
    pids.sort_unstable();
    pids
}

fn is_called(pid: u32, name: &str) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    comm.trim_end_matches('\n') == name || exe.file_name().is_some_and(|file| file == name)
}

/// Returns true if `/proc/PID/cgroup` has a group with this name, or one of the container with this id, of which twelve digits are enough.
fn is_in_group(groups: &str, word: &str) -> bool {
    let is_id = word.len() >= 12 && word.chars().all(|c| c.is_ascii_hexdigit());
    let names = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).flat_map(|path| path.split('/'));
    let of_container = |name: &str| {
        // docker-ID.scope, cri-containerd-ID.scope, or the id alone.
        let id = name.trim_end_matches(".scope").rsplit('-').next().unwrap_or(name);
        id.len() == 64 && id.starts_with(word)
    };
    names.into_iter().any(|name| !name.is_empty() && (name == word || is_id && of_container(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_containers() {
        let id = "4f5c".repeat(16);
        let unit = "0::/system.slice/nginx.service\n";
        let docker = format!("0::/system.slice/docker-{id}.scope\n");
        let old = format!("12:memory:/docker/{id}\n11:cpu,cpuacct:/docker/{id}\n");
        assert!(is_in_group(unit, "nginx.service") && !is_in_group(unit, "nginx") && !is_in_group(unit, ""));
        for groups in [&docker, &old] {
            assert!(is_in_group(groups, &id) && is_in_group(groups, &id[..12]), "{groups}");
            assert!(!is_in_group(groups, &id[..11]) && !is_in_group(groups, "0123456789ab"), "{groups}");
        }
    }

    #[test]
    fn ids_and_names() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(pids(&words(&["1,1", "1"])).unwrap(), [1]);
        for bad in ["0", "99999999999", "", "no such program at all"] {
            assert!(pids(&words(&[bad])).is_err(), "{bad:?}");
        }
        let own = std::process::id().to_string();
        assert!(with_descendants(&words(&["1"])).unwrap().starts_with(&[1]));
        assert!(pids(&words(&[&own])).unwrap_err().to_string().contains("itself"));
    }
}
