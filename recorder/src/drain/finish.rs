//! The end of a recording.

use std::time::Duration;

use super::{Drain, READER_WAIT, SYMBOLS_WAIT, finish_waits};
use crate::loss::Report;
use crate::os::clock::monotonic_ns;

impl Drain {
    /// Ends the recording: reads the rings for the last time, waits for symbols, closes chunks, removes the
    /// directory. `hurry` is called from time to time; if it returns true, the last symbols and slow readers
    /// are not waited for.
    pub fn finish(mut self, hurry: &dyn Fn() -> bool) -> Report {
        self.stop_sampling();
        // Handlers that began before the stop finish within microseconds, or lose their sample.
        std::thread::sleep(Duration::from_millis(2));
        let now = monotonic_ns();
        self.find_processes(now);
        self.hand_over(now);
        self.off_cpu_close(now);
        let paused = self.paused();
        for process in self.processes.live_mut() {
            let Some(recording) = self.outputs.recordings.get_mut(process.state.recording) else { continue };
            let alive = process.file.alive();
            process.drain(recording, &mut self.symbols.images, now, true);
            if alive {
                process.state.threads.search_blocked(&process.file, self.period_ns, true);
            }
            self.report.engine(process.file.engine());
            let rows = self.session.rows().words();
            if !paused
                && let Some((sampler, mut out)) = process.wall(recording, &mut self.symbols.images, rows, now)
            {
                sampler.settle(&mut out);
            }
            process.close(recording, &mut self.symbols.images, now, alive);
            finish_waits(process, recording, &mut self.symbols.images, &mut self.session, now);
        }
        self.watch_close(now);
        self.resolve_all(false);
        let deadline = std::time::Instant::now() + SYMBOLS_WAIT;
        let waiting = |d: &Drain| d.outside.any_waiting() || d.processes.any_waiting();
        while self.symbols.images.outstanding() > 0 && waiting(&self) {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || hurry() {
                break;
            }
            self.symbols.images.take_loaded(self.session.rows(), left.min(Duration::from_millis(100)));
            self.resolve_all(false);
            self.outputs.push();
        }
        self.resolve_all(true);
        self.outputs.recordings.ids().into_iter().for_each(|id| self.repeat_info_events(id, now));
        self.remove_settled(now);
        self.watch_finish(now);
        self.off_cpu_finish(now);
        self.measure(now);
        for id in self.outputs.recordings.ids() {
            self.write_cost(id, now, true);
            self.record_exit_signal(id);
            if let Some(recording) = self.outputs.recordings.get_mut(id) {
                recording.finish();
                recording.close_file();
            }
        }
        self.dump_last();
        let deadline = std::time::Instant::now() + READER_WAIT;
        while self.outputs.any_unread() {
            if std::time::Instant::now() >= deadline || hurry() {
                break;
            }
            self.outputs.push();
            std::thread::sleep(Duration::from_millis(2));
        }
        self.note_failures();
        for recording in self.outputs.recordings.open() {
            self.report.add_recording(recording);
        }
        self.report.cpu.off = !self.settings.samples_cpu_time();
        self.report.notices = self.notices.take();
        self.expose(true);
        self.report.own_cpu_ns = crate::os::clock::process_cpu_ns(std::process::id()).unwrap_or(0);
        self.say_goodbye();
        self.report
    }
}
