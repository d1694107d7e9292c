//! The drain's work on its outputs: information events, flushes, retirement.

use super::Drain;
use crate::{
    error::Error,
    info_events,
    os::clock::monotonic_ns,
    output::sink::per_process,
    process::{Process, thread::ReportedThread},
    recording::{Recording, RecordingId, events},
};

/// How long a requested flush waits for symbols. The program waits for five seconds.
const FLUSH_NAMES_NS: u64 = 3_000_000_000;

/// A flush that a client requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushRequest {
    number: u64,
    since_ns: u64,
}

impl Drain {
    /// Returns the recording of a process. Opens it if it is new.
    pub(super) fn open_recording(&mut self, pid: u32) -> Result<RecordingId, Error> {
        let owner = self.outputs.owner(pid);
        self.outputs.open(owner, &self.session, &self.settings, &mut self.notices)
    }

    /// Writes the information events again if a new chunk must be complete in itself.
    pub(super) fn repeat_info_events(&mut self, id: RecordingId, now: u64) {
        if !self.outputs.begins_chunk(id) {
            return;
        }
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return };
        info_events::setting(recording, &self.settings, now);
        for process in self.processes.iter().filter(|p| p.state.recording == id) {
            info_events::process(recording, &process.file.info(), self.settings.processes.redact_args, now);
            info_events::labels(recording, process.file.pid, &process.labels, now);
        }
    }

    /// Returns true if a process may still write into an output.
    fn is_in_use(&mut self, id: RecordingId) -> bool {
        self.outside.uses(id) || self.processes.iter().any(|p| p.state.recording == id)
    }

    /// Retires outputs whose process is over, so that their number does not grow with the number of processes
    /// that ever ran.
    pub(super) fn retire(&mut self) {
        if !per_process(&self.outputs.target) {
            return;
        }
        for id in self.outputs.recordings.ids() {
            if self.is_in_use(id)
                || self.outputs.recordings.get(id).is_none_or(|recording| recording.waiting() > 0)
            {
                continue;
            }
            self.write_cost(id, monotonic_ns(), true);
            self.off_cpu_write_totals(id, monotonic_ns());
            self.record_exit_signal(id);
            let Some((owner, recording)) = self.outputs.retire(id) else { continue };
            self.dumps.ended(owner, recording);
            recording.retire();
            self.metrics.forget(id);
            self.report.add_recording(recording);
            self.off_cpu_forget_output(id);
        }
    }

    pub(super) fn note_failures(&mut self) {
        self.outputs.note_failures(&mut self.notices);
        // Without an output, there is no reason to sample.
        if self.outputs.all_failed() && !self.steering.stopped {
            self.stop_sampling();
        }
    }

    /// Notes a requested flush and the positions of the rings, up to which everything precedes the request.
    pub(super) fn note_flush(&mut self) {
        let number = self.session.flush_requested();
        if number == self.report.flushes_done || self.steering.flush.is_some() {
            return;
        }
        self.steering.flush = Some(FlushRequest { number, since_ns: monotonic_ns() });
        for process in self.processes.iter_mut() {
            process.state.ring.flush_to = process.file.head();
        }
    }

    /// Returns the number of the requested flush if it can be done now. Everything recorded before the
    /// request is written first, as long as the client has time: a thread may have been interrupted while it
    /// wrote a record, and samples wait for symbols. Requests made while it waits share the next flush.
    pub(super) fn may_flush(&mut self, now: u64) -> Option<u64> {
        let FlushRequest { number, since_ns } = self.steering.flush?;
        if !self.processes.iter().any(|p| p.unread() || p.state.waits_since(since_ns)) {
            return Some(number);
        }
        let overdue = now.saturating_sub(since_ns) >= FLUSH_NAMES_NS;
        if overdue {
            self.resolve_all(true);
        }
        overdue.then_some(number)
    }

    /// Writes the totals and everything that is queued.
    pub(super) fn flush(&mut self, id: RecordingId, now: u64) {
        // While a reader is too far behind, even totals are not written. They are cumulative, so waiting
        // loses nothing.
        if self.outputs.recordings.get(id).is_none_or(Recording::full) {
            return;
        }
        let before = self.write_processes(id, now);
        self.watch_write_totals(id, now);
        self.off_cpu_write_totals(id, now);
        self.write_cost(id, now, false);
        let recorded_here = |process: &&Process| process.state.recording == id;
        let watermarks = self.processes.iter().filter(recorded_here).map(|p| p.state.watermark());
        let watermark = watermarks.min().unwrap_or(now);
        let in_use = self.is_in_use(id);
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return };
        recording.watermark(watermark.min(now));
        recording.flush(now);
        // A chunk that begins after its process has ended would not say which process it is of.
        if in_use || !per_process(&self.outputs.target) {
            recording.rotate(now);
        }
        let refused = recording.will_retry();
        let written = self.processes.iter_mut().filter(|p| p.state.recording == id);
        for (process, (threads, events)) in written.zip(before) {
            if refused {
                let threads = process.state.threads.list.iter_mut().zip(threads);
                threads.for_each(|(thread, before)| thread.reported = before);
                process.state.engines.reported = events;
                process.save_reported(recording);
            } else {
                process.state.forget_complete(|thread| self.report.add_thread(thread));
            }
        }
    }

    /// Writes the totals of the processes of a recording. Returns the previous ones: if the output refuses
    /// the new ones, they are written when it accepts them again.
    fn write_processes(
        &mut self,
        id: RecordingId,
        now: u64,
    ) -> Vec<(Vec<ReportedThread>, events::ReportedTotals)> {
        let paused = self.paused();
        let mut before = Vec::new();
        for process in self.processes.iter_mut().filter(|p| p.state.recording == id) {
            let Some(recording) = self.outputs.recordings.get_mut(id) else { break };
            if !process.state.over {
                process.state.threads.read_slots(&process.file, self.period_ns);
                let rows = self.session.rows().words();
                if let Some((sampler, mut out)) = process.wall(recording, &mut self.symbols.images, rows, now)
                {
                    if !paused {
                        sampler.settle(&mut out);
                    }
                    sampler.finish(&mut out, false);
                }
            }
            self.outputs.write_libraries(id, &process.state.modules, &self.symbols.images, now);
            let threads = process.state.threads.list.iter().map(|t| t.reported.clone());
            before.push((threads.collect(), process.state.engines.reported));
            if let Some(recording) = self.outputs.recordings.get_mut(id) {
                info_events::threads(recording, process, now);
            }
        }
        before
    }
}
