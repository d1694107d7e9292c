//! The end of a recording.

use std::time::Duration;

use super::{Drain, NO_PROCESS, READER_WAIT, SYMBOLS_WAIT, finish_waits};
use crate::loss::Report;
use crate::os::clock::monotonic_ns;

impl Drain {
    /// Ends everything: rings read for the last time, symbols waited for, chunks closed, directory removed.
    /// `hurry` is asked from time to time whether to go without the last symbols and slow readers.
    pub fn finish(mut self, hurry: &dyn Fn() -> bool) -> Report {
        self.stop_sampling();
        // Handlers that began before the stop are done in microseconds, or lose their sample.
        std::thread::sleep(Duration::from_millis(2));
        let now = monotonic_ns();
        self.find_processes(now);
        self.hand_over(now);
        self.off_cpu_close(now);
        let paused = self.paused();
        for process in self.processes.iter_mut().filter(|p| !p.book.over) {
            let recording = &mut self.recordings[process.book.recording].1;
            let alive = process.file.alive();
            process.drain(recording, &mut self.images, now, true);
            if alive {
                process.book.threads.search_blocked(&process.file, self.period_ns, true);
            }
            self.report.engine(process.file.engine());
            let rows = self.session.rows().words();
            if !paused && let Some((sampler, mut out)) = process.wall(recording, &mut self.images, rows, now)
            {
                sampler.settle(&mut out);
            }
            process.close(recording, &mut self.images, now, alive);
            finish_waits(process, recording, &mut self.images, &mut self.session, now);
        }
        self.watch_close(now);
        self.resolve_all(false);
        let deadline = std::time::Instant::now() + SYMBOLS_WAIT;
        let waiting = |d: &Drain| {
            d.watch_waiting() + d.off_cpu_waiting() > 0 || d.processes.iter().any(|p| p.book.waiting() > 0)
        };
        while self.images.outstanding() > 0 && waiting(&self) {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || hurry() {
                break;
            }
            self.images.take_loaded(self.session.rows(), left.min(Duration::from_millis(100)));
            self.resolve_all(false);
            self.push_all();
        }
        self.resolve_all(true);
        (0..self.recordings.len()).for_each(|index| self.repeat_info_events(index, now));
        self.remove_settled(now);
        self.watch_finish(now);
        self.off_cpu_finish(now);
        self.measure(now);
        for index in 0..self.recordings.len() {
            self.write_cost(index, now, true);
            self.record_exit_signal(index);
            let (_, recording) = &mut self.recordings[index];
            recording.finish();
            recording.close_file();
        }
        self.dump_last();
        let deadline = std::time::Instant::now() + READER_WAIT;
        while self.recordings.iter().any(|(_, r)| r.waiting() > 0) {
            if std::time::Instant::now() >= deadline || hurry() {
                break;
            }
            self.push_all();
            std::thread::sleep(Duration::from_millis(2));
        }
        self.note_failures();
        for (_, recording) in self.recordings.iter().filter(|(pid, _)| *pid != NO_PROCESS) {
            self.report.add_recording(recording);
        }
        self.report.cpu.off = !self.settings.samples_cpu_time();
        self.report.notices = std::mem::take(&mut self.notices);
        self.expose(true);
        self.report.own_cpu_ns = crate::os::clock::process_cpu_ns(std::process::id()).unwrap_or(0);
        self.say_goodbye();
        self.report
    }
}
