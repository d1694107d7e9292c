//! Temporary directories for recordings. An agent that is killed leaves one behind, which the next agent
//! removes.

use std::fs;
use std::io::Result;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;
use tempfile::TempDir;

use super::process::started;

/// Followed by the PID namespace, and the agent's PID and start time.
const PREFIX: &str = "flightline-agent-";

/// Creates a directory that only this user can enter and that is removed with the value.
pub fn folder() -> Result<TempDir> {
    let pid = std::process::id();
    let prefix = format!("{PREFIX}{}-{pid}-{}-", namespace(), started(pid).unwrap_or(0));
    tempfile::Builder::new().prefix(&prefix).permissions(private()).tempdir()
}

/// Containers may share a directory, and each has its own PIDs.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

fn private() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o700)
}

/// Removes directories of agents that have ended.
pub fn sweep() {
    sweep_in(&std::env::temp_dir());
}

fn sweep_in(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(agent) = name.to_str().and_then(agent) else { continue };
        // Only directories of this user, no links. Agents of root give theirs to the programs' users.
        let ours = fs::symlink_metadata(entry.path())
            .is_ok_and(|is| is.is_dir() && (is.uid() == geteuid().as_raw() || geteuid().is_root()));
        if ours && started(agent.0) != Some(agent.1) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Parses the agent's PID and start time from a directory name.
fn agent(name: &str) -> Option<(u32, u64)> {
    let mut words = name.strip_prefix(PREFIX)?.split('-');
    if words.next()?.parse() != Ok(namespace()) {
        return None;
    }
    let agent = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_some().then_some(agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dead_agents_directories_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let own = started(pid).unwrap();
        let make = |name: &str| {
            fs::create_dir(place.path().join(name)).unwrap();
            fs::write(place.path().join(name).join("run.jfr"), "x").unwrap();
        };
        let here = format!("{PREFIX}{}", namespace());
        let (alive, before) = (format!("{here}-{pid}-{own}-a1"), format!("{here}-{pid}-{}-a2", own - 1));
        let elsewhere = format!("{PREFIX}{}-4294967295-7-a4", namespace() + 1);
        let link = format!("{here}-4294967295-7-link");
        let notes = format!("{here}-1-x-y");
        let kept = [&alive, &elsewhere, &notes, "flightline-agent-notes", "other-1-2-3"];
        kept.iter().for_each(|name| make(name));
        make(&before);
        make(&format!("{here}-4294967295-7-a3"));
        std::os::unix::fs::symlink(place.path().join("other-1-2-3"), place.path().join(&link)).unwrap();
        sweep_in(place.path());
        let mut left: Vec<String> = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected: Vec<&str> = kept.to_vec();
        expected.push(&link);
        expected.sort_unstable();
        assert_eq!(left, expected);
        assert!(place.path().join("other-1-2-3/run.jfr").exists());
    }

    #[test]
    fn directory_is_private_and_its_name_identifies_agent() {
        let folder = folder().unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(agent(name), Some((std::process::id(), started(std::process::id()).unwrap())));
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o777, 0o700);
    }
}
