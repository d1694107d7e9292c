//! The outputs: opened with their first process, flushed, let go after the last.

use std::time::Duration;

use super::{Drain, NO_PROCESS};
use crate::error::Error;
use crate::info_events;
use crate::os::clock::monotonic_ns;
use crate::output::repository::Owner;
use crate::output::sink::{Target, per_process, retain_previous};
use crate::process::Process;
use crate::process::thread::Told;
use crate::recording::Recording;
use crate::recording::events;
use crate::settings::labels;

/// Time a flush that a program asked for waits for symbols, of the five seconds that the program waits.
const FLUSH_NAMES_NS: u64 = 3_000_000_000;

impl Drain {
    pub(super) fn open_recording(&mut self, pid: u32) -> Result<usize, Error> {
        if let Some(index) = self.recordings.iter().position(|(p, _)| *p == pid) {
            return Ok(index);
        }
        let owner = Owner {
            pid,
            recorder: std::process::id(),
            session: self.session.dir().to_owned(),
            start_epoch_ns: crate::os::clock::realtime_ns(),
            labels: match &self.target {
                Target::Repository(_) => labels::program_labels(pid, &self.settings.labels),
                _ => Vec::new(),
            },
        };
        if !self.settings.overwrite
            && let Some([path, old]) = retain_previous(&self.target, pid)?
        {
            self.notices.push(format!("{} existed and was renamed to {}", path.display(), old.display()));
        }
        // Whether the output can be written is seen with the first process, before it runs.
        let mut recording = match (&self.target, self.journals) {
            (Target::Repository(repository), 1..) => Recording::later(repository, &owner, &self.settings)?,
            _ => Recording::open(&self.target, &owner, &self.settings)?,
        };
        recording.name_events(self.session.events());
        info_events::setting(&mut recording, &self.settings, monotonic_ns());
        recording.begin_info_events(true);
        self.journals += 1;
        recording.set_syncer(self.syncer.as_ref());
        recording.keep_journal(self.session.dir(), self.journals, pid);
        if let Some(free) = self.recordings.iter().position(|(p, _)| *p == NO_PROCESS) {
            self.recordings[free] = (pid, recording);
            return Ok(free);
        }
        self.recordings.push((pid, recording));
        Ok(self.recordings.len() - 1)
    }

    /// In a repository every chunk stands for itself, and readers of a stream come late: what was said at the beginning is said
    /// again.
    pub(super) fn repeat_info_events(&mut self, index: usize, now: u64) {
        let recording = &mut self.recordings[index].1;
        if !recording.begin_info_events(matches!(self.target, Target::Repository(_))) {
            return;
        }
        info_events::setting(recording, &self.settings, now);
        self.told_libraries.retain(|(told, ..)| *told != index);
        for process in self.processes.iter().filter(|p| p.book.recording == index) {
            info_events::process(recording, &process.file.info(), self.settings.redact_args, now);
            info_events::labels(recording, process.file.pid, &process.labels, now);
        }
    }

    /// Lets go of outputs whose process is over: there must not be more of them the more processes ever ran.
    pub(super) fn retire(&mut self) {
        if !per_process(&self.target) {
            return;
        }
        for index in 0..self.recordings.len() {
            let used = self.off_cpu_uses(index)
                || self.processes.iter().any(|p| p.book.recording == index)
                || self.watch.as_ref().is_some_and(|watch| watch.uses(index))
                || self.wanted.iter().any(|wanted| wanted.recording == index);
            let (pid, recording) = &mut self.recordings[index];
            if used || *pid == NO_PROCESS || recording.waiting() > 0 {
                continue;
            }
            self.write_cost(index, monotonic_ns(), true);
            self.off_cpu_write_totals(index, monotonic_ns());
            self.record_exit_signal(index);
            let (pid, recording) = &mut self.recordings[index];
            self.dumps.ended(*pid, recording);
            *pid = NO_PROCESS;
            recording.retire();
            self.metrics.forget(index);
            self.report.add_recording(recording);
            self.off_cpu_forget_output(index);
            self.told_libraries.retain(|(told, ..)| *told != index);
            self.seen_failures.remove(&index);
        }
    }

    pub(super) fn note_failures(&mut self) {
        for (_, recording) in &mut self.recordings {
            let told = recording.stream_mut().map(|stream| stream.take_notices());
            self.notices.extend(told.unwrap_or_default());
        }
        let live = |(pid, _): &&(u32, Recording)| *pid != NO_PROCESS;
        for (index, (_, recording)) in self.recordings.iter().enumerate().filter(|(_, r)| live(r)) {
            // A root that refuses does so to all processes: it is said once.
            let others = recording.will_retry() && !self.seen_failures.is_empty();
            if let Some(reason) = recording.failure()
                && self.seen_failures.insert(index)
                && !others
            {
                let how = match recording.will_retry() {
                    true => "recording pauses until it can be written again",
                    false => "recording stopped, the program runs on",
                };
                self.notices.push(format!("{reason}; {how}"));
            }
        }
        // With no output left there is nothing to sample for.
        let over = |(_, r): &(u32, Recording)| r.failure().is_some() && !r.will_retry();
        let mut outputs = self.recordings.iter().filter(live).peekable();
        if outputs.peek().is_some() && outputs.all(over) && !self.stopped {
            self.stop_sampling();
        }
    }

    /// Notes a flush that is asked for, and where the rings were: what was recorded before the asking is read up to there.
    pub(super) fn note_flush(&mut self) {
        let wanted = self.session.flush_requested();
        if wanted == self.report.flushes_done || self.flush_asked.is_some() {
            return;
        }
        self.flush_asked = Some((wanted, monotonic_ns()));
        for process in &mut self.processes {
            process.book.flush_to = process.file.head();
        }
    }

    /// The number of the flush asked for if it can be done now. What was recorded before the asking comes first, as long as the asker
    /// has time: a thread may have been interrupted in the midst of a record, and samples wait for symbols. Those who ask
    /// meanwhile are served by the next flush, all together.
    pub(super) fn may_flush(&mut self, now: u64) -> Option<u64> {
        let (number, since) = self.flush_asked?;
        if !self.processes.iter().any(|p| p.unread() || p.book.waits_since(since)) {
            return Some(number);
        }
        let overdue = now.saturating_sub(since) >= FLUSH_NAMES_NS;
        if overdue {
            self.resolve_all(true);
        }
        overdue.then_some(number)
    }

    /// Time until readers of a stream get their next flush.
    pub(super) fn next_flush(&self) -> Duration {
        let now = monotonic_ns();
        let written = |r: &Recording| !r.full() && r.failure().is_none();
        let follows = |r: &Recording| r.stream().is_some_and(|stream| !stream.has_no_reader());
        let read = self.recordings.iter().filter(|(_, r)| written(r) && follows(r));
        let due = read.map(|(_, recording)| Duration::from_nanos(recording.flush_in(now)));
        due.min().unwrap_or(Duration::MAX).max(Duration::from_millis(1))
    }

    /// Writes the accounts and whatever is queued.
    pub(super) fn flush(&mut self, index: usize, now: u64) {
        // While a reader is too far behind not even accounts are written: they carry totals, nothing is lost by waiting.
        if self.recordings[index].1.full() {
            return;
        }
        let paused = self.paused();
        let mut before: Vec<(Vec<Told>, events::ReportedTotals)> = Vec::new();
        for process in self.processes.iter_mut().filter(|p| p.book.recording == index) {
            let recording = &mut self.recordings[index].1;
            if !process.book.over {
                process.book.threads.read_slots(&process.file, self.period_ns);
                let rows = self.session.rows().words();
                if let Some((sampler, mut out)) = process.wall(recording, &mut self.images, rows, now) {
                    if !paused {
                        sampler.settle(&mut out);
                    }
                    sampler.finish(&mut out, false);
                }
            }
            info_events::libraries(
                &process.book.modules,
                index,
                recording,
                &self.images,
                &mut self.told_libraries,
                now,
            );
            // What a repository refuses is told when it takes it again.
            let threads = process.book.threads.list.iter().map(|t| t.told.clone());
            before.push((threads.collect(), process.book.engines.told));
            info_events::threads(recording, process, now);
        }
        self.watch_write_totals(index, now);
        self.off_cpu_write_totals(index, now);
        self.write_cost(index, now, false);
        let of = |process: &&Process| process.book.recording == index;
        let watermark = self.processes.iter().filter(of).map(|p| p.book.watermark()).min().unwrap_or(now);
        self.recordings[index].1.watermark(watermark.min(now));
        self.recordings[index].1.flush(now);
        let refused = self.recordings[index].1.will_retry();
        let told = self.processes.iter_mut().filter(|p| p.book.recording == index);
        for (process, (threads, events)) in told.zip(before) {
            if refused {
                let threads = process.book.threads.list.iter_mut().zip(threads);
                threads.for_each(|(thread, before)| thread.told = before);
                process.book.engines.told = events;
                process.save_reported(&self.recordings[index].1);
            } else {
                process.book.forget_complete(|thread| self.report.add_thread(thread));
            }
        }
    }

    pub(super) fn push_all(&mut self) {
        for (_, recording) in &mut self.recordings {
            recording.push();
        }
    }
}
