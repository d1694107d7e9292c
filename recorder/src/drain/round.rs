//! One round of the drain, step by step.
//!
//! The order of the steps matters:
//!
//! 1. `note_flush`: a requested flush is noted before anything is read, so that it includes everything
//!    recorded before.
//! 2. `steer`: the schedule and the control socket. A pause or a change of engines applies to all later
//!    steps.
//! 3. `find_processes`, `hand_over`: new processes, before their rings are read; startup samples of a program
//!    that we started.
//! 4. `read_events`: the rings of the kernel and of the processes. Off-CPU time comes first, because reading
//!    the ring of a process that has ended removes it with its threads.
//! 5. `reach`: attaches to programs that a process announced in its file, to record them from outside.
//! 6. `resolve`: symbols that were loaded since the last round, for waiting samples and those just read.
//! 7. Less frequent work: the search for CPU time without samples, work done once a second, metrics.
//! 8. `write_recordings`: chunks, after everything that writes events.
//! 9. `dump_round`, `note_failures`: copies of recordings, and outputs that failed.

use std::time::Duration;

use flightline_in_signal::layout::proc_state;

use super::{Drain, finish_waits, pacing::PAUSE};
use crate::{
    os::clock::{monotonic_ns, thread_cpu_ns},
    recording::RecordingId,
};

impl Drain {
    /// Runs one round.
    pub fn round(&mut self) {
        // First, so that the flush below has a later time than the request.
        self.note_flush();
        let now = monotonic_ns();
        self.steer();
        self.find_processes(now);
        self.hand_over(now);
        self.read_events(now);
        for index in 0..self.processes.list.len() {
            self.note_at(index);
        }
        self.reach(now);
        self.resolve();
        if self.pacing.is_search_due(now) {
            self.search_blocked();
        }
        if self.pacing.is_second_over(now) {
            self.each_second();
        }
        if self.metrics.due(now) {
            let outside = self.outside.watch.as_ref().map_or_else(Vec::new, |watch| watch.processes());
            self.metrics.read(&mut self.processes.list, &outside, &mut self.outputs.recordings, now);
        }
        self.write_recordings(now);
        self.dump_round(now);
        self.note_failures();
    }

    /// Reads all rings, and adapts the pause to how full they were.
    fn read_events(&mut self, now: u64) {
        // First, because processes that have ended are removed with their threads below.
        let off_cpu = self.off_cpu_round(now);
        let fill = self.drain_all(now).max(self.watch_round(now)).max(off_cpu);
        self.costs.ring_peak = self.costs.ring_peak.max(fill);
        self.pacing.adapt(fill, self.longest_pause());
    }

    pub(super) fn drain_all(&mut self, now: u64) -> u32 {
        let mut fill = 0;
        let (images, stopped) = (&mut self.symbols.images, self.steering.stopped);
        for process in self.processes.live_mut() {
            let Some(recording) = self.outputs.recordings.get_mut(process.state.recording) else { continue };
            // Check whether the process lives before reading the ring, so that its last records are read. The
            // PID check can fail spuriously while a process exits or execs, so trust EXITED only if the PID
            // cannot be verified.
            let dead = !process.file.alive();
            let dead = dead || process.file.state() == proc_state::EXITED && !process.file.trusted_pid();
            // Before reading: modules loaded since the last round already have samples. After: addresses that
            // were unknown.
            process.refresh_modules(images, now);
            if let Some(notice) = process.take_notice() {
                recording.notice(&notice, now);
                self.notices.push(notice);
            }
            fill = fill.max(process.drain(recording, images, now, stopped));
            process.refresh_modules(images, now);
            if dead {
                process.close(recording, images, now, stopped);
                finish_waits(process, recording, images, &mut self.session, now);
            }
        }
        self.remove_settled(now);
        fill
    }

    /// Writes the samples whose symbols were loaded since the last round.
    fn resolve(&mut self) {
        let begun_ns = thread_cpu_ns();
        let loaded = self.symbols.images.take_loaded(self.session.rows(), Duration::ZERO);
        self.costs.loading_ns += thread_cpu_ns().saturating_sub(begun_ns);
        if loaded || self.processes.iter().any(|p| p.state.has_news()) {
            self.resolve_all(false);
        }
    }

    pub(super) fn resolve_all(&mut self, anyway: bool) {
        for process in self.processes.iter_mut().filter(|process| process.state.waiting() > 0) {
            let Some(recording) = self.outputs.recordings.get_mut(process.state.recording) else { continue };
            let begun_ns = thread_cpu_ns();
            process.resolve_pending(recording, &mut self.symbols.images, anyway);
            process.state.ring.reading_ns += thread_cpu_ns().saturating_sub(begun_ns);
        }
        self.watch_resolve(anyway);
        self.off_cpu_resolve(anyway);
    }

    /// Compares the CPU clocks of processes with what their samples account for.
    fn search_blocked(&mut self) {
        // Programs that join, and names of JIT-compiled code.
        self.off_cpu_resolve(false);
        let period = self.period_ns;
        for process in self.processes.live_mut() {
            process.state.threads.search_blocked(&process.file, period, false);
        }
    }

    fn each_second(&mut self) {
        self.note_rate();
        for process in self.processes.live_mut() {
            process.state.threads.look(&process.file);
            process.state.threads.search_blocked(&process.file, self.period_ns, true);
            self.report.engine(process.file.engine());
            if self.settings.alloc.live {
                let every_ns =
                    u64::try_from(self.settings.alloc.live_interval.as_nanos()).unwrap_or(u64::MAX);
                process.record_alive(every_ns, monotonic_ns());
            }
        }
        let now = monotonic_ns();
        self.report_direct_calls(now);
        self.watch_second(now);
        self.off_cpu_second();
        self.keep_budget(now);
        self.expose(false);
        self.dump_triggers(now);
        self.trim();
        self.count_processes(now);
        self.retire();
        self.outputs.tidy(now);
    }

    /// Writes what is due in all recordings, and answers a requested flush.
    fn write_recordings(&mut self, now: u64) {
        let flushed = self.may_flush(now);
        for id in self.outputs.recordings.ids() {
            self.write_recording(id, flushed.is_some(), now);
        }
        if let Some(number) = flushed {
            self.report.flushes_done = number;
            self.session.flush_done(number);
            self.steering.flush = None;
            // A client that requested one flush usually requests another soon; keep polling fast.
            self.pacing.pause = PAUSE[0];
        }
    }

    /// Writes what is due in a recording, or everything queued if a client requested a flush.
    fn write_recording(&mut self, id: RecordingId, flush_requested: bool, now: u64) {
        self.notices.extend(self.outputs.retry(id, now));
        self.repeat_info_events(id, now);
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return };
        if flush_requested {
            recording.write_sums(now);
            recording.mark_flush();
        }
        if flush_requested || recording.flush_due(now) {
            self.flush(id, now);
        }
        if let Some(recording) = self.outputs.recordings.get_mut(id) {
            recording.settle(now);
            recording.push();
        }
        // Immediately: the process may have ended by the next round.
        self.repeat_info_events(id, now);
    }
}
