//! [`Outputs`] of the drain, to which the engines that record from outside write.

use std::{io, path::Path, sync::atomic::AtomicU64, time::Duration};

use super::Drain;
use crate::{
    error::Error,
    from_outside::outputs::{KnownThread, Outputs},
    info_events,
    names::images::Images,
    os::clock::monotonic_ns,
    os::process_info::ProcessInfo,
    process::thread::Thread,
    recording::{Recording, RecordingId},
};

impl Outputs for Drain {
    fn recording_for(&mut self, pid: u32) -> Result<(RecordingId, &mut Recording), Error> {
        let id = self.open_recording(pid)?;
        let closed = || Error::io("open", Path::new("recording"), io::ErrorKind::NotFound.into());
        Ok((id, self.outputs.recordings.get_mut(id).ok_or_else(closed)?))
    }

    fn images(&mut self) -> &mut Images {
        &mut self.symbols.images
    }

    fn parts(&mut self, id: RecordingId) -> Option<(&mut Recording, &mut Images, &[AtomicU64])> {
        Some((self.outputs.recordings.get_mut(id)?, &mut self.symbols.images, self.session.rows().words()))
    }

    fn describe_process(&mut self, process: &ProcessInfo, id: RecordingId, now: u64) {
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return };
        info_events::process(recording, process, self.settings.processes.redact_args, now);
        let labels = crate::settings::labels::process_labels(
            process.pid,
            &process.file_name(),
            &self.settings.processes.labels,
        );
        info_events::labels(recording, process.pid, &labels, now);
        self.report.processes += 1;
    }

    fn report_kinds(&mut self, counts: &[(u64, u64)]) {
        for (sum, (count, lost)) in self.report.kinds.iter_mut().zip(counts) {
            sum.0 = sum.0.saturating_add(*count);
            sum.1 = sum.1.saturating_add(*lost);
        }
    }

    fn report_thread(&mut self, thread: &Thread) {
        self.report.add_thread(thread);
    }

    fn files(&mut self) -> (&mut Images, &[AtomicU64]) {
        (&mut self.symbols.images, self.session.rows().words())
    }

    fn load_images(&mut self, wait: Duration) {
        self.symbols.images.take_loaded(self.session.rows(), wait);
    }

    fn knows(&self, pid: u32) -> bool {
        self.records(pid) || self.outside.samples(pid)
    }

    fn known_thread(&mut self, pid: u32, tid: u32, name: &str, id: RecordingId) -> KnownThread {
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return KnownThread::default() };
        let mut of_pid = self.processes.iter_mut().filter(|p| p.file.pid == pid && p.state.recording == id);
        if let Some(process) = of_pid.next_back() {
            let group = process.state.group;
            let threads = &mut process.state.threads;
            let thread = threads.by_id(&process.file, tid, self.period_ns);
            let thread = thread.and_then(|at| threads.list.get_mut(at));
            let handle = thread.and_then(|thread| {
                thread.constant(&process.file, group, recording);
                if !name.is_empty() && thread.name() != name {
                    thread.rename(name.to_owned());
                    thread.constant(&process.file, group, recording);
                }
                thread.handle()
            });
            return KnownThread { thread: handle, group: Some(group) };
        }
        let known =
            self.outside.watch.as_mut().and_then(|watch| watch.known_thread(pid, tid, name, id, recording));
        known.unwrap_or_default()
    }

    fn describe_running_process(&mut self, pid: u32, id: RecordingId) {
        if let Some(about) = ProcessInfo::read(pid, monotonic_ns()) {
            self.describe_process(&about, id, monotonic_ns());
        }
    }

    fn is_paused(&self) -> bool {
        self.paused()
    }
}
