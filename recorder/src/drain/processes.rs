//! Recorded processes: found, told, and removed when all of them is written.

use std::fs;
use std::path::PathBuf;

use flightline_in_signal::layout::PROC_SUFFIX;
use nix::sys::inotify::AddWatchFlags;

use super::{Drain, GONE, finish_waits};
use crate::info_events;
use crate::os::clock::monotonic_ns;
use crate::output::sink::per_process;
use crate::perf_events;
use crate::process::Process;
use crate::process::thread::Account;
use crate::process::title::Titles;
use crate::program;
use crate::session::process_file_number;
use crate::settings::labels;
use crate::shared_memory::proc_file::ProcFile;

impl Drain {
    pub(super) fn find_processes(&mut self, now: u64) {
        if let Some(inotify) = &self.inotify {
            match inotify.read_events() {
                // A change of the folder's time asks for a flush.
                Ok(events) if events.iter().any(|e| !e.mask.contains(AddWatchFlags::IN_ATTRIB)) => {}
                _ if !self.seen.is_empty() && !self.stopped => return,
                _ => {}
            }
        }
        let Ok(entries) = fs::read_dir(self.session.dir()) else { return };
        let mut paths: Vec<PathBuf> = entries
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.to_str().is_some_and(|n| n.ends_with(PROC_SUFFIX)) && !self.seen.contains(p))
            .collect();
        paths.sort_by_key(|p| process_file_number(p));
        for path in paths {
            self.seen.insert(path.clone());
            match ProcFile::open(&path) {
                Ok(file) => self.add_process(file, now),
                Err(error) => self.notices.push(error.to_string()),
            }
        }
    }

    pub(super) fn add_process(&mut self, file: ProcFile, now: u64) {
        let pid = if per_process(&self.target) { file.pid } else { 0 };
        let id = match self.open_recording(pid) {
            Ok(id) => id,
            Err(error) => return self.notices.push(error.to_string()),
        };
        if file.trusted_pid() && program::runs_go(file.pid) {
            return self.go_joined(&file, id);
        }
        let Some(recording) = self.recordings.get_mut(id) else { return };
        let about = file.info();
        let group = recording.add_group(format!("{} ({})", about.called(), file.pid));
        let mut process = Process::new(file, id, group, self.period_ns, self.session.begun_ns());
        process.book.titles = Titles::new(about.arguments.clone(), about.exe.clone());
        process.book.threads.selection = self.settings.threads.clone();
        process.book.threads.cpu_off = !self.settings.samples_cpu_time();
        process.book.threads.sampled_every(self.in_force().period_ns());
        if let Some(wall_ns) = self.settings.wall_ns() {
            process.watch(wall_ns, self.settings.cpu);
        }
        process.book.runs = self.dumps_runs();
        let namespace = process.file.pid_namespace;
        process.book.threads.resume(self.end_image(process.file.pid, namespace, now));
        process.refresh_modules(&mut self.images, now);
        self.watch_give_up(process.file.pid, process.file.start_mono_ns);
        let Some(recording) = self.recordings.get_mut(id) else { return };
        info_events::process(recording, &about, self.settings.redact_args, now);
        process.labels = labels::process_labels(process.file.pid, &about.file_name(), &self.settings.labels);
        info_events::labels(recording, process.file.pid, &process.labels, now);
        recording.relabel(&process.labels);
        if self.settings.alloc.is_some()
            && let Some(notice) = self.allocators.notice(process.file.pid, &process.file.exe())
        {
            recording.notice(&notice, now);
            self.notices.push(notice);
        }
        self.report.processes += 1;
        self.report.engine(process.file.engine());
        self.processes.push(process);
    }

    /// Reports modules whose allocations cannot be recorded.
    pub(super) fn report_direct_calls(&mut self, now: u64) {
        if self.settings.alloc.is_none() {
            return;
        }
        for process in self.processes.iter_mut().filter(|p| !p.book.over && p.file.trusted_pid()) {
            let (pid, book) = (process.file.pid, &mut process.book);
            for notice in book.direct_calls.look(pid, &book.modules, &self.images) {
                if let Some(recording) = self.recordings.get_mut(book.recording) {
                    recording.notice(&notice, now);
                }
                self.notices.push(notice);
            }
        }
    }

    /// After exec the same pid writes a new file: the old one gets nothing any more. Returns the account of the
    /// thread that goes on in the new image. `namespace` is its pid namespace: in another
    /// one the same pid is another process.
    pub(super) fn end_image(&mut self, pid: u32, namespace: u64, now: u64) -> Option<(u32, Box<Account>)> {
        let process =
            self.processes.iter_mut().rev().find(|p| {
                p.file.pid == pid && [0, p.file.pid_namespace].contains(&namespace) && !p.book.over
            })?;
        let recording = self.recordings.get_mut(process.book.recording)?;
        process.close_image(recording, &mut self.images, now);
        finish_waits(process, recording, &mut self.images, &mut self.session, now);
        // Tell what is known by now: the account goes on from there.
        info_events::threads(recording, process, now);
        process.book.threads.take_account(pid)
    }

    pub(super) fn remove_settled(&mut self, now: u64) {
        let mut i = 0;
        while i < self.processes.len() {
            if !self.processes[i].settled() {
                i += 1;
                continue;
            }
            self.repeat_info_events(self.processes[i].book.recording, now);
            let mut process = self.processes.remove(i);
            let id = process.book.recording;
            if let Some(recording) = self.recordings.get_mut(id) {
                let modules = &process.book.modules;
                info_events::libraries(modules, id, recording, &self.images, &mut self.told_libraries, now);
                info_events::threads(recording, &mut process, now);
            }
            self.costs.end(&mut process);
            self.note(&process);
            self.report.engine(process.file.engine());
            self.report.add(&process);
            if let Some(recording) = self.recordings.get_mut(id) {
                recording.end_group(process.book.group);
                process.book.titles.end(recording);
            }
            self.gone.truncate(GONE - 1);
            self.gone.push_front((process.file.pid, process.file.info().called()));
            process.file.remove();
            self.session.process_gone();
            self.seen.remove(&process.file.path);
        }
    }

    pub(super) fn note(&mut self, process: &Process) {
        let (seq, path, reason) = process.file.notice();
        let old = self.notice_seq.remove(&process.file.path).unwrap_or(0);
        if seq != old {
            self.announced(path, reason, process.file.pid, process.book.recording);
        }
        let pid = process.file.pid;
        let events = self.session.events().iter().zip(process.file.event_errno());
        let traces = self.settings.trace.iter().zip(process.file.trace_errno());
        let refused = events.map(|(event, errno)| (&event.name, errno, false));
        let refused = refused.chain(traces.map(|(trace, errno)| (&trace.function, errno, true)));
        for (name, errno, traced) in refused {
            if errno > 0 && self.told_refusals.insert((name.clone(), errno)) {
                let message = match traced {
                    true => perf_events::untraced(name, pid, errno),
                    false => perf_events::refused(name, pid, errno),
                };
                if let Some(recording) = self.recordings.get_mut(process.book.recording) {
                    recording.notice(&message, monotonic_ns());
                }
                self.notices.push(message);
            }
        }
        if process.book.damaged {
            let message = format!(
                "process {} wrote impossible data into its shared memory; its later samples are lost",
                process.file.pid
            );
            self.notices.push(message);
        }
    }
}
