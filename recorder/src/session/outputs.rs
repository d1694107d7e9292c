//! The outputs of a session according to its journals and files, even after its drain was killed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use flightline_in_signal::layout::PROC_SUFFIX;

use super::{is_abandoned, is_named, repository_root};
use crate::{
    output::repository::OWNER_FILE,
    shared_memory::journal::{self, Left},
};

/// Returns sessions in `parent` whose drain is dead.
pub(super) fn abandoned_in(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let dirs = entries.flatten().map(|e| e.path()).filter(|dir| is_named(dir));
    dirs.filter(|dir| is_abandoned(dir)).collect()
}

/// Returns the outputs that a session writes to, according to its journals.
pub fn outputs(session: &Path) -> Vec<PathBuf> {
    let left = journals(session);
    let has_one = |pid: u32| left.iter().any(|left| left.pid == 0 || left.pid == pid);
    let pid_of = |path: &PathBuf| path.file_name()?.to_str()?.split('-').next()?.parse().ok();
    let unseen = files(session, PROC_SUFFIX).iter().filter_map(pid_of).any(|pid| !has_one(pid));
    let root = if unseen { repository_root(session) } else { None };
    left.into_iter().map(|left| left.commit.path).chain(root).collect()
}

/// Returns true if a session may contain records that its outputs do not have, including sessions with
/// damaged journals.
pub(crate) fn has_unwritten(session: &Path) -> bool {
    files(session, journal::SUFFIX).iter().any(|p| journal::read(p).is_err()) || !outputs(session).is_empty()
}

fn journals(session: &Path) -> Vec<Left> {
    files(session, journal::SUFFIX).iter().filter_map(|p| journal::read(p).ok().flatten()).collect()
}

/// Returns the output of a process, as far as it has been written: a file, or the process's folder in a
/// repository. If `pid` is the recorder, this is everything that the recorder writes to one repository.
/// `None` for a program without written data.
pub fn process_output(session: &Path, pid: u32) -> Option<PathBuf> {
    let found = journals(session);
    // If several have this PID, the last one is the one being written.
    let own = found.iter().rfind(|left| left.pid == pid).or_else(|| found.iter().find(|left| left.pid == 0));
    let folder_of = |path: &Path| path.parent().filter(|p| p.join(OWNER_FILE).exists()).map(Path::to_owned);
    if let Some(left) = own {
        return folder_of(&left.commit.path).or_else(|| Some(left.commit.path.clone()));
    }
    let path = if recorded(session, pid) { None } else { outputs(session).into_iter().next() }?;
    folder_of(&path).and_then(|folder| folder.parent().map(Path::to_owned)).or(Some(path))
}

/// Returns true if a process was recorded in a session.
pub fn recorded(session: &Path, pid: u32) -> bool {
    let own = |path: &PathBuf| {
        path.file_name()
            .and_then(|n| n.to_str()?.split_once('-'))
            .is_some_and(|(id, _)| id == pid.to_string())
    };
    files(session, PROC_SUFFIX).iter().any(own)
}

/// Returns the files of a session whose names end in `suffix`, in order.
pub(crate) fn files(session: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(session).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.to_str().is_some_and(|n| n.ends_with(suffix))).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::ROOT_FILE;

    /// The function once returned the recorder's output for such a program, so that `follow` waited after the
    /// program's end.
    #[test]
    fn program_without_records_has_no_output() {
        let work = tempfile::tempdir().unwrap();
        let (session, root) = (work.path().join("session"), work.path().join("root"));
        fs::create_dir(&session).unwrap();
        fs::write(session.join(ROOT_FILE), root.to_str().unwrap()).unwrap();
        fs::write(session.join(format!("4711-0{PROC_SUFFIX}")), "").unwrap();
        assert_eq!(process_output(&session, 4711), None);
        assert_eq!(process_output(&session, 4710), Some(root), "its recorder");
    }
}
