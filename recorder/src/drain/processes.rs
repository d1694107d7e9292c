//! The life of recorded processes: found, described in their recording, removed when everything is written.

use super::{Drain, finish_waits};
use crate::info_events;
use crate::os::clock::monotonic_ns;
use crate::perf_events;
use crate::process::Process;
use crate::process::thread::Account;
use crate::process::title::Titles;
use crate::program;
use crate::settings::labels;
use crate::shared_memory::proc_file::ProcFile;

impl Drain {
    pub(super) fn find_processes(&mut self, now: u64) {
        for path in self.processes.discovery.find_new(self.session.dir(), self.steering.stopped) {
            match ProcFile::open(&path) {
                Ok(file) => self.add_process(file, now),
                Err(error) => self.notices.push(error.to_string()),
            }
        }
    }

    pub(super) fn add_process(&mut self, file: ProcFile, now: u64) {
        let id = match self.open_recording(file.pid) {
            Ok(id) => id,
            Err(error) => return self.notices.push(error.to_string()),
        };
        if file.trusted_pid() && program::runs_go(file.pid) {
            return self.go_joined(&file, id);
        }
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return };
        let about = file.info();
        let group = recording.add_group(format!("{} ({})", about.called(), file.pid));
        let mut process = Process::new(file, id, group, self.period_ns, self.session.begun_ns());
        process.state.titles = Titles::new(about.arguments.clone(), about.exe.clone());
        process.state.threads.selection = self.settings.processes.threads.clone();
        process.state.threads.cpu_off = !self.settings.samples_cpu_time();
        process.state.threads.sampled_every(self.in_force().period_ns());
        if let Some(wall_ns) = self.settings.wall_ns() {
            process.watch(wall_ns, self.settings.cpu.enabled);
        }
        process.state.runs = self.dumps_runs();
        let namespace = process.file.pid_namespace();
        process.state.threads.resume(self.end_image(process.file.pid, namespace, now));
        process.refresh_modules(&mut self.symbols.images, now);
        self.watch_give_up(process.file.pid, process.file.start_mono_ns());
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return };
        info_events::process(recording, &about, self.settings.processes.redact_args, now);
        process.labels =
            labels::process_labels(process.file.pid, &about.file_name(), &self.settings.processes.labels);
        info_events::labels(recording, process.file.pid, &process.labels, now);
        recording.relabel(&process.labels);
        if self.settings.alloc.interval_bytes.is_some()
            && let Some(notice) = self.symbols.allocators.notice(process.file.pid, &process.file.exe())
        {
            recording.notice(&notice, now);
            self.notices.push(notice);
        }
        self.report.processes += 1;
        self.report.engine(process.file.engine());
        self.processes.list.push(process);
    }

    /// Reports modules whose allocations cannot be recorded.
    pub(super) fn report_direct_calls(&mut self, now: u64) {
        if self.settings.alloc.interval_bytes.is_none() {
            return;
        }
        for process in self.processes.iter_mut().filter(|p| !p.state.over && p.file.trusted_pid()) {
            let (pid, state) = (process.file.pid, &mut process.state);
            for notice in state.direct_calls.look(pid, &state.modules, &self.symbols.images) {
                if let Some(recording) = self.outputs.recordings.get_mut(state.recording) {
                    recording.notice(&notice, now);
                }
                self.notices.push(notice);
            }
        }
    }

    /// Ends the old file of a PID after exec, which creates a new one. Returns the totals of the thread that
    /// continues in the new image. `namespace` is its PID namespace: in another one, the same PID is another
    /// process.
    pub(super) fn end_image(&mut self, pid: u32, namespace: u64, now: u64) -> Option<(u32, Box<Account>)> {
        let process = self.processes.iter_mut().rev().find(|p| {
            p.file.pid == pid && [0, p.file.pid_namespace()].contains(&namespace) && !p.state.over
        })?;
        let recording = self.outputs.recordings.get_mut(process.state.recording)?;
        process.close_image(recording, &mut self.symbols.images, now);
        finish_waits(process, recording, &mut self.symbols.images, &mut self.session, now);
        // Write the totals so far, because the new image continues from them.
        info_events::threads(recording, process, now);
        process.state.threads.take_account(pid)
    }

    pub(super) fn remove_settled(&mut self, now: u64) {
        let mut i = 0;
        while i < self.processes.list.len() {
            if !self.processes.list[i].settled() {
                i += 1;
                continue;
            }
            self.repeat_info_events(self.processes.list[i].state.recording, now);
            let mut process = self.processes.list.remove(i);
            let id = process.state.recording;
            self.outputs.write_libraries(id, &process.state.modules, &self.symbols.images, now);
            if let Some(recording) = self.outputs.recordings.get_mut(id) {
                info_events::threads(recording, &mut process, now);
            }
            self.costs.end(&mut process);
            self.note(&process);
            self.report.engine(process.file.engine());
            self.report.add(&process);
            if let Some(recording) = self.outputs.recordings.get_mut(id) {
                recording.end_group(process.state.group);
                process.state.titles.end(recording);
            }
            self.processes.exits.add(process.file.pid, process.file.info().called());
            process.file.remove();
            self.session.process_gone();
            self.processes.discovery.forget(&process.file.path);
        }
    }

    pub(super) fn note(&mut self, process: &Process) {
        if let Some((path, reason)) = self.outside.children.take_last(&process.file) {
            self.announced(path, reason, process.file.pid, process.state.recording);
        }
        let pid = process.file.pid;
        let events = self.session.events().iter().zip(process.file.event_errno());
        let traces = self.settings.calls.trace.iter().zip(process.file.trace_errno());
        let refused = events.map(|(event, errno)| (&event.name, errno, false));
        let refused = refused.chain(traces.map(|(trace, errno)| (&trace.function, errno, true)));
        for (name, errno, traced) in refused {
            if errno > 0 && self.notices.is_first_refusal(name, errno) {
                let message = match traced {
                    true => perf_events::untraced(name, pid, errno),
                    false => perf_events::refused(name, pid, errno),
                };
                if let Some(recording) = self.outputs.recordings.get_mut(process.state.recording) {
                    recording.notice(&message, monotonic_ns());
                }
                self.notices.push(message);
            }
        }
        if process.state.ring.damaged {
            let message = format!(
                "process {}: invalid data in its shared memory; its later samples are lost",
                process.file.pid
            );
            self.notices.push(message);
        }
    }
}
