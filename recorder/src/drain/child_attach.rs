//! Attaches to programs that a recorded process starts and that cannot be preloaded (static or setuid
//! programs, for example): records them from outside as soon as they are found.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use flightline_in_signal::layout::unrecorded as reason;

use super::Drain;
use crate::{loss, os::clock::monotonic_ns, recording::RecordingId, shared_memory::proc_file::ProcFile};

/// How long to wait for an announced program to appear, ns.
const WAIT_NS: u64 = 300_000_000;
/// The records of a program's start are read within this time. Only then is it known whether the program is
/// watched already, ns.
const SETTLE_NS: u64 = 10_000_000;
/// Limit of announced programs.
const MAX_ANNOUNCED: usize = 1000;

/// A program that a process is about to execute, or let a child execute.
pub(super) struct Announced {
    pid: u32,
    path: String,
    reason: u32,
    recording: RecordingId,
    from_ns: u64,
    until_ns: u64,
}

/// Programs that processes announced, and children that are recorded from outside.
#[derive(Default)]
pub(super) struct ChildAttach {
    /// Announced programs that have not appeared yet.
    announced: Vec<Announced>,
    /// Processes recorded from outside that may have children without events, and when to look for these, ns.
    parents: Vec<(u32, u64)>,
    /// Number of announcements read, by the process's file.
    notice_seq: HashMap<PathBuf, u32>,
}

impl ChildAttach {
    /// Returns true if a process announced a program since the last call.
    fn is_new(&mut self, file: &ProcFile) -> bool {
        let seq = file.notice_seq();
        if self.notice_seq.get(&file.path).copied().unwrap_or(0) == seq {
            return false;
        }
        self.notice_seq.insert(file.path.clone(), seq);
        true
    }

    /// Removes a process. Returns its last announcement (program and reason) if it was not read yet.
    pub(super) fn take_last(&mut self, file: &ProcFile) -> Option<(String, u32)> {
        let (seq, path, reason) = file.notice();
        let read = self.notice_seq.remove(&file.path).unwrap_or(0);
        (seq != read).then_some((path, reason))
    }

    /// Returns true if an announced program will be recorded into this recording.
    pub(super) fn uses(&self, id: RecordingId) -> bool {
        self.announced.iter().any(|program| program.recording == id)
    }
}

impl Drain {
    /// Reads whether a process announced a program that cannot be recorded from inside.
    pub(super) fn note_at(&mut self, index: usize) {
        let process = &self.processes.list[index];
        if self.outside.children.is_new(&process.file) {
            let (_, path, reason) = process.file.notice();
            self.announced(path, reason, process.file.pid, process.state.recording);
        }
    }

    pub(super) fn announced(&mut self, path: String, reason: u32, pid: u32, recording: RecordingId) {
        let now = monotonic_ns();
        let mut program = Announced { pid, path, reason, recording, from_ns: now, until_ns: now + WAIT_NS };
        if reason == reason::GO && self.outside.watch.is_some() {
            program.from_ns += SETTLE_NS;
        }
        let reachable = match reason {
            reason::STATIC
            | reason::GO
            | reason::OTHER_LIBC
            | reason::SANITIZER
            | reason::ENVIRONMENT
            | reason::OUT_OF_REACH
            | reason::TWO_IDS
            | reason::FILE_LIMIT => true,
            reason::SETUID => nix::unistd::geteuid().is_root(),
            _ => false,
        };
        let follow = self.settings.processes.follow || reason == reason::GO;
        if reachable
            && self.settings.recordable_from_outside()
            && follow
            && !self.steering.stopped
            && self.outside.children.announced.len() < MAX_ANNOUNCED
        {
            self.outside.children.announced.push(program);
        } else {
            self.report_unrecorded(&program);
        }
    }

    /// Handles a Go program that loaded the recorder. The Go runtime replaces all signal handlers, so the
    /// recorder does not work in it. Removes its file and records it from outside, so that its threads count
    /// only once.
    pub(super) fn go_joined(&mut self, file: &ProcFile, recording: RecordingId) {
        let _ = fs::remove_file(&file.path);
        self.processes.discovery.forget(&file.path);
        let path = file.exe().to_string_lossy().into_owned();
        self.announced(path, reason::GO, file.pid, recording);
    }

    fn report_unrecorded(&mut self, program: &Announced) {
        let message = loss::unrecorded(&program.path, program.reason, program.pid);
        if let Some(recording) = self.outputs.recordings.get_mut(program.recording) {
            recording.notice(&message, monotonic_ns());
        }
        self.notices.push(message);
    }

    /// Attaches to the announced programs that have appeared.
    pub(super) fn reach(&mut self, now: u64) {
        for program in std::mem::take(&mut self.outside.children.announced) {
            if program.reason == reason::GO && self.outside.samples(program.pid) {
                continue;
            }
            if now < program.from_ns {
                self.outside.children.announced.push(program);
                continue;
            }
            match self.find(&program, now) {
                Some(pid) if self.reach_one(pid) => {
                    self.outside.children.parents.push((pid, now + SETTLE_NS))
                }
                // The kernel does not permit it.
                Some(_) => self.report_unrecorded(&program),
                None if now < program.until_ns && !self.steering.stopped => {
                    self.outside.children.announced.push(program)
                }
                None => self.report_unrecorded(&program),
            }
        }
        self.reach_children(now);
    }

    /// Attaches to children that were started before the events of their parent were opened, and so did not
    /// inherit them.
    fn reach_children(&mut self, now: u64) {
        for (parent, from_ns) in std::mem::take(&mut self.outside.children.parents) {
            if now < from_ns {
                self.outside.children.parents.push((parent, from_ns));
                continue;
            }
            for pid in children(parent) {
                let is_sampled = self.outside.samples(pid);
                if !is_sampled && !self.has_joined(pid) && self.reach_one(pid) {
                    self.outside.children.parents.push((pid, now + SETTLE_NS));
                }
            }
        }
    }

    fn reach_one(&mut self, pid: u32) -> bool {
        self.outside.watch.as_mut().is_some_and(|watch| watch.take_back(pid))
            || self.attach_again(pid).is_ok()
    }

    /// Returns the process that executes the announced program: the process that announced it, or a child. A
    /// shell may have executed the next program by now.
    fn find(&self, program: &Announced, now: u64) -> Option<u32> {
        let path = Path::new(&program.path);
        let base = if path.is_absolute() { "root" } else { "cwd" };
        let inside = path.strip_prefix("/").unwrap_or(path);
        let file = fs::metadata(PathBuf::from(format!("/proc/{}/{base}", program.pid)).join(inside));
        let file = file.or_else(|_| fs::metadata(path)).ok()?;
        let is_announced = |pid: &u32| {
            let exe = fs::metadata(format!("/proc/{pid}/exe"));
            exe.is_ok_and(|exe| (exe.dev(), exe.ino()) == (file.dev(), file.ino()))
        };
        let is_new = |pid: &u32| !self.outside.samples(*pid);
        let candidates: Vec<u32> =
            std::iter::once(program.pid).chain(children(program.pid)).filter(is_new).collect();
        let announced = candidates.iter().find(|pid| is_announced(pid));
        // A program that joins needs some time to do so.
        let settled = now >= program.until_ns - WAIT_NS + SETTLE_NS;
        let next = || candidates.iter().find(|&&pid| self.has_executed(pid, program.pid));
        announced.or_else(|| next().filter(|_| settled && successors_cannot_join(program.reason))).copied()
    }

    /// Returns true if a process runs a program that has not joined and is not the program of `announcer`.
    /// Children run the announcer's program until they exec.
    fn has_executed(&self, pid: u32, announcer: u32) -> bool {
        let Ok(exe) = fs::read_link(format!("/proc/{pid}/exe")) else { return false };
        let records = |pid: u32| {
            self.processes.iter().any(|process| process.file.pid == pid && process.file.exe() == exe)
        };
        !records(pid) && !records(announcer)
    }

    /// Returns true if the program that a process runs records itself.
    fn has_joined(&self, pid: u32) -> bool {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).ok();
        self.processes.iter().any(|process| process.file.pid == pid && Some(process.file.exe()) == exe)
    }
}

/// Returns true if programs that such a program executes cannot join either.
fn successors_cannot_join(reason: u32) -> bool {
    matches!(reason, reason::ENVIRONMENT | reason::OUT_OF_REACH | reason::TWO_IDS | reason::FILE_LIMIT)
}

/// Returns the children of a process.
fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>())
        .collect()
}
