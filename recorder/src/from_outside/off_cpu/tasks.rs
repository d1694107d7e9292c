//! The processes and threads of intervals: recorded ones and wakers.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    from_outside::outputs::KnownThread,
    os::process_info::{ProcessInfo, thread_name},
    recording::{Recording, RecordingId, ThreadHandle},
    remote_unwinder::stacks::Stacks,
};

/// Limit of remembered constants of one thread.
const MOST_NAMES: usize = 32;

/// A process.
#[derive(Default)]
pub struct Process {
    /// Its intervals are recorded.
    pub recorded: bool,
    /// Intervals that began before this CLOCK_MONOTONIC time are not recorded, because the process ran
    /// another program.
    pub since_ns: u64,
    /// Its modules and stacks.
    pub stacks: Stacks,
    /// Its mappings have been read.
    pub mapped: bool,
    /// It has ended.
    pub over: bool,
    /// Its recording, once it has intervals.
    pub output: Option<RecordingId>,
    /// We have described it in its recording.
    pub described: bool,
    /// Number of its known threads.
    threads: usize,
    called: Option<String>,
    /// Recording and its group there.
    groups: Vec<(RecordingId, u32)>,
}

/// A thread.
pub struct Task {
    /// Its process.
    pub pid: u32,
    /// Its current name.
    name: Arc<str>,
    /// Recording and its constant there, by name.
    handles: Vec<(RecordingId, Arc<str>, ThreadHandle)>,
    /// It has ended; its last interval may not be written yet.
    over: bool,
}

/// All processes and threads.
#[derive(Default)]
pub struct Tasks {
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Task>,
}

impl Tasks {
    /// Returns a process, and adds it if it is new.
    pub fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.entry(pid).or_default()
    }

    /// Returns a process, if it is known.
    pub fn known(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// Returns true if the intervals of a process that began at `since_ns` are recorded.
    pub fn records(&self, pid: u32, since_ns: u64) -> bool {
        self.processes.get(&pid).is_some_and(|p| p.recorded && !p.over && since_ns >= p.since_ns)
    }

    /// Returns true if a process is recorded.
    pub fn recorded(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|p| p.recorded && !p.over)
    }

    /// Returns the number of recorded processes that run.
    pub fn running(&self) -> usize {
        self.processes.values().filter(|p| p.recorded && !p.over).count()
    }

    /// Returns the threads of recorded processes.
    pub fn recorded_threads(&self) -> impl Iterator<Item = u32> {
        self.threads.iter().filter(|(_, task)| !task.over && self.recorded(task.pid)).map(|(tid, _)| *tid)
    }

    /// Returns pairs of PID and TID of these threads.
    pub fn recorded_pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.recorded_threads().filter_map(|tid| Some((self.process_id(tid)?, tid)))
    }

    /// Returns the PID of a thread, if it is known.
    pub fn process_id(&self, tid: u32) -> Option<u32> {
        self.threads.get(&tid).map(|task| task.pid)
    }

    /// Notes that a thread exists, with its `name` if that is known. Returns its name.
    pub fn seen(&mut self, pid: u32, tid: u32, name: Option<&[u8]>) -> Arc<str> {
        // The kernel reuses TIDs.
        if self.threads.get(&tid).is_some_and(|task| task.over || task.pid != pid) {
            self.ended(tid);
            self.threads.remove(&tid);
        }
        let new = !self.threads.contains_key(&tid);
        let task = self.threads.entry(tid).or_insert_with(|| {
            let name = if name.is_some() { None } else { thread_name(pid, tid) };
            Task { pid, name: name.unwrap_or_default().into(), handles: Vec::new(), over: false }
        });
        if let Some(name) = name
            && task.name.as_bytes() != name
        {
            task.name = String::from_utf8_lossy(name).into();
        }
        let name = task.name.clone();
        if new {
            let process = self.process(pid);
            process.threads += 1;
            process.over = false;
        }
        name
    }

    /// Adds a new thread, which inherits the name of the thread that created it.
    pub fn began(&mut self, pid: u32, tid: u32, by: u32) {
        let name = self.threads.get(&by).map(|task| task.name.clone());
        self.seen(pid, tid, name.filter(|name| !name.is_empty()).as_ref().map(|name| name.as_bytes()));
    }

    /// Notes that a thread has ended.
    pub fn ended(&mut self, tid: u32) {
        let Some(task) = self.threads.get_mut(&tid).filter(|task| !task.over) else { return };
        task.over = true;
        if let Some(process) = self.processes.get_mut(&task.pid) {
            process.threads = process.threads.saturating_sub(1);
            process.over = process.threads == 0;
        }
    }

    /// Adds a process that was forked.
    pub fn forked(&mut self, parent: u32, pid: u32, time_ns: u64) {
        let Some(from) = self.processes.remove(&parent) else { return };
        let mut child =
            Process { recorded: from.recorded, since_ns: time_ns, mapped: from.mapped, ..Process::default() };
        child.stacks.inherit(&from.stacks);
        self.processes.insert(parent, from);
        self.processes.insert(pid, child);
    }

    /// Notes an exec: its code and its name are new.
    pub fn executed(&mut self, pid: u32, time_ns: u64) {
        let process = self.process(pid);
        let recorded = process.recorded;
        let threads = process.threads;
        *process = Process { recorded, since_ns: time_ns, threads, ..Process::default() };
        self.threads.values_mut().filter(|task| task.pid == pid).for_each(|task| task.handles.clear());
    }

    /// Forgets threads and processes that have ended, except those that are `needed`. Returns the removed
    /// processes.
    pub fn forget(&mut self, needed: &HashSet<u32>) -> Vec<(u32, Process)> {
        self.threads.retain(|tid, task| !task.over || needed.contains(tid));
        let gone = |pid: &u32, process: &Process| process.over && !needed.contains(pid);
        self.processes.extract_if(|pid, process| gone(pid, process)).collect()
    }

    /// Returns true if any thread or process has ended.
    pub fn any_over(&self) -> bool {
        self.threads.values().any(|task| task.over)
    }

    /// Forgets a recording that is retired.
    pub fn forget_output(&mut self, id: RecordingId) {
        self.threads.values_mut().for_each(|task| task.handles.retain(|(of, ..)| *of != id));
        for process in self.processes.values_mut() {
            process.groups.retain(|(of, _)| *of != id);
            process.output = process.output.filter(|of| *of != id);
        }
    }

    /// Returns all processes.
    pub fn all(&mut self) -> impl Iterator<Item = (u32, &mut Process)> {
        self.processes.iter_mut().map(|(pid, process)| (*pid, process))
    }

    /// Returns true if a thread has this name, but no constant with this name in a recording yet.
    pub fn wants_constant(&self, tid: u32, name: &str, id: RecordingId) -> bool {
        self.threads.get(&tid).is_some_and(|task| *task.name == *name && task.handle(name, id).is_none())
    }

    /// Adopts a thread and its process as another engine recorded them.
    pub fn adopt(&mut self, pid: u32, tid: u32, id: RecordingId, known: KnownThread) {
        if let Some(group) = known.group {
            let groups = &mut self.process(pid).groups;
            groups.retain(|(of, _)| *of != id);
            groups.push((id, group));
        }
        if let (Some(handle), Some(task)) = (known.thread, self.threads.get_mut(&tid)) {
            task.put(task.name.clone(), id, handle);
        }
    }

    /// Returns the constant of a thread with this name in a recording.
    pub fn constant(
        &mut self,
        (pid, tid): (u32, u32),
        name: &Arc<str>,
        id: RecordingId,
        recording: &mut Recording,
    ) -> usize {
        let group = self.process(pid).group(pid, id, recording);
        let Some(task) = self.threads.get_mut(&tid) else {
            return recording.add_thread(tid, name, group).index;
        };
        if task.handle(name, id).is_none() {
            task.put(name.clone(), id, recording.add_thread(tid, name, group));
        }
        let Some(mut handle) = task.handle(name, id) else { return 0 };
        let before = handle;
        let constant = recording.thread_index(&mut handle, tid, name, group);
        if handle != before {
            task.put(name.clone(), id, handle);
        }
        constant
    }
}

impl Task {
    fn handle(&self, name: &str, id: RecordingId) -> Option<ThreadHandle> {
        let mut fitting = self.handles.iter().filter(|(of, called, _)| *of == id && **called == *name);
        fitting.next().map(|(.., handle)| *handle)
    }

    /// Remembers a constant. A thread that keeps changing its name retains only the latest ones.
    fn put(&mut self, name: Arc<str>, id: RecordingId, handle: ThreadHandle) {
        self.handles.retain(|(of, called, _)| *of != id || *called != name);
        if self.handles.len() >= MOST_NAMES {
            self.handles.remove(0);
        }
        self.handles.push((id, name, handle));
    }
}

impl Process {
    /// Returns the name of a process.
    pub fn called(&mut self, pid: u32) -> &str {
        self.called.get_or_insert_with(|| match pid {
            0 => "idle".to_owned(),
            _ => ProcessInfo::read(pid, 0).map(|about| about.called()).unwrap_or_default(),
        })
    }

    fn group(&mut self, pid: u32, id: RecordingId, recording: &mut Recording) -> u32 {
        if let Some((_, group)) = self.groups.iter().find(|(of, _)| *of == id) {
            return *group;
        }
        let group = recording.add_group(format!("{} ({pid})", self.called(pid)));
        self.groups.push((id, group));
        group
    }

    /// Returns its groups, by recording. They get no more threads.
    pub fn groups(&self) -> &[(RecordingId, u32)] {
        &self.groups
    }
}
