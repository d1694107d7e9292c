//! Resolves `-p`: PIDs, names or paths of programs, systemd units, container ids.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use flightline_recorder::Error;
use flightline_recorder::control::{Condition, Finder, TargetProcess};

use crate::discovery::processes;

fn refusal(problem: String) -> Error {
    Error::Unavailable { name: "pid", problem }
}

fn not_found(word: &str) -> Error {
    refusal(format!("process {word:?} not found; list processes with `ps -e`"))
}

/// Resolves PIDs and names to distinct PIDs.
pub fn pids(wanted: &[String]) -> Result<Vec<u32>, Error> {
    let mut pids = Vec::new();
    for word in wanted.iter().flat_map(|w| w.split(',')) {
        let found = match word.parse::<u32>() {
            Ok(0) | Err(_) if word.chars().all(|c| c.is_ascii_digit()) => {
                return Err(Error::Setting { name: "pid", problem: format!("{word:?} is not a process id") });
            }
            Ok(pid) => vec![pid],
            Err(_) => named(word),
        };
        if found.is_empty() {
            return Err(not_found(word));
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

/// Returns the process that a word selects for a command. If a name has several processes, prefers one that
/// is recorded, then the lowest PID, which is usually the oldest.
///
/// # Errors
/// Returns an error if there is no such process, or several recordings contain one.
pub fn recorded(wanted: &str) -> Result<TargetProcess, Error> {
    let finder = Finder::default();
    let (mut found, mut failed) = (Vec::new(), None);
    for pid in pids(&[wanted.to_owned()])? {
        match finder.find(pid) {
            Ok(process) => found.push(process),
            // The process may have ended in the meantime.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let mut recorded = found.iter().filter(|process| matches!(process.condition, Condition::Recorded(_)));
    if let Some(first) = recorded.next()
        && let Some(other) = recorded.find(|other| other.condition != first.condition)
    {
        return Err(refusal(format!(
            "processes named {wanted:?} belong to different recordings, such as {} and {}; give a process id",
            first.pid, other.pid
        )));
    }
    let best = found.into_iter().min_by_key(|process| order(&process.condition));
    best.ok_or_else(|| failed.unwrap_or_else(|| not_found(wanted)))
}

/// Processes that accept commands come first.
fn order(condition: &Condition) -> u8 {
    match condition {
        Condition::Recorded(_) => 0,
        Condition::Waiting => 1,
        Condition::Deaf => 2,
        Condition::NotLoaded => 3,
    }
}

/// Returns the PIDs from [`pids`] and those of all descendants.
pub fn with_descendants(wanted: &[String]) -> Result<Vec<u32>, Error> {
    let mut pids = pids(wanted)?;
    let own = HashSet::from([std::process::id()]);
    let found = processes::descendants(&processes::processes(), &pids, &own);
    pids.extend(found.into_iter().map(|(pid, _)| pid));
    Ok(pids)
}

/// Returns the processes that a word names: by the path of the executable, the name of the program or of its
/// first thread, otherwise by control group (a systemd unit such as `nginx.service`, or a container id).
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

/// Returns true if `/proc/PID/cgroup` contains a group with this name, or that of the container with this id;
/// twelve digits suffice.
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
    fn cgroup_matches_systemd_unit_or_container_id() {
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
    fn pids_and_names_are_resolved_or_rejected() {
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
