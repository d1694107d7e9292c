//! The recorded processes: how their files are found, those that run, and how others ended.

use std::{
    collections::HashSet,
    fs,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use flightline_in_signal::layout::PROC_SUFFIX;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::exit_status::Exits;
use crate::{process::Process, session::process_file_number};

/// Files of processes in the session directory.
pub(super) struct Discovery {
    /// `None` if the kernel refuses; the directory is then read each time.
    inotify: Option<Inotify>,
    /// Files found, until their process is removed.
    files: HashSet<PathBuf>,
}

impl Discovery {
    fn new(session_dir: &Path) -> Discovery {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let inotify = inotify.filter(|i| {
            let calls = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ATTRIB;
            i.add_watch(session_dir, calls).is_ok()
        });
        Discovery { inotify, files: HashSet::new() }
    }

    /// Returns the files that appeared since the last call, in the order of their numbers. `always`: reads
    /// the directory even if inotify reports no change.
    pub(super) fn find_new(&mut self, session_dir: &Path, always: bool) -> Vec<PathBuf> {
        if let Some(inotify) = &self.inotify {
            match inotify.read_events() {
                // A program requests a flush by changing the directory's time, which adds no file.
                Ok(events) if events.iter().any(|e| !e.mask.contains(AddWatchFlags::IN_ATTRIB)) => {}
                _ if !self.files.is_empty() && !always => return Vec::new(),
                _ => {}
            }
        }
        let Ok(entries) = fs::read_dir(session_dir) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.to_str().is_some_and(|n| n.ends_with(PROC_SUFFIX)) && !self.files.contains(p))
            .collect();
        paths.sort_by_key(|p| process_file_number(p));
        self.files.extend(paths.iter().cloned());
        paths
    }

    /// Forgets the file of a process that is removed.
    pub(super) fn forget(&mut self, path: &Path) {
        self.files.remove(path);
    }
}

/// The recorded processes.
pub(super) struct ProcessTable {
    /// In the order in which they were found. A process that ended remains until all its data is written.
    pub(super) list: Vec<Process>,
    pub(super) discovery: Discovery,
    pub(super) exits: Exits,
    /// Number of processes that had joined a second ago.
    pub(super) joined: u64,
}

impl ProcessTable {
    pub(super) fn new(session_dir: &Path) -> ProcessTable {
        let discovery = Discovery::new(session_dir);
        ProcessTable { list: Vec::new(), discovery, exits: Exits::default(), joined: 0 }
    }

    /// Returns all processes.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Process> {
        self.list.iter()
    }

    /// Returns all processes.
    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Process> {
        self.list.iter_mut()
    }

    /// Returns the processes that have not ended, as far as is known.
    pub(super) fn live(&self) -> impl Iterator<Item = &Process> {
        self.list.iter().filter(|process| !process.state.over)
    }

    /// Returns the processes that have not ended, as far as is known.
    pub(super) fn live_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.list.iter_mut().filter(|process| !process.state.over)
    }

    /// Returns true if samples or events wait for symbols.
    pub(super) fn any_waiting(&self) -> bool {
        self.list.iter().any(|process| process.state.waiting() > 0)
    }

    /// Returns the descriptors that are readable when a process appears or ends.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let directory = self.discovery.inotify.iter().map(AsFd::as_fd);
        directory.chain(self.live().filter_map(|process| process.file.pidfd()))
    }

    /// Returns a process's name with its PID, for messages.
    pub(super) fn called(&self, pid: u32) -> String {
        let process = self.list.iter().find(|process| process.file.pid == pid);
        let live = process.map(|process| process.file.info().called());
        match live.or_else(|| self.exits.name(pid).map(str::to_owned)) {
            Some(name) => format!("{name} ({pid})"),
            None if pid == 0 => "a process".to_owned(),
            None => format!("process {pid}"),
        }
    }
}
