//! The drain's dealings with processes that are recorded from outside: see [`crate::attach`].

use std::{os::fd::BorrowedFd, sync::atomic::AtomicU64};

use super::Drain;
use crate::{
    attach::Watch,
    clock::monotonic_ns,
    error::Error,
    loss,
    names::images::Images,
    process::thread::Thread,
    recording::Recording,
    sink::per_process,
    tell::{self, About},
};

impl Drain {
    fn with_watch<R>(&mut self, act: impl FnOnce(&mut Watch, &mut Drain) -> R) -> Option<R> {
        let mut watch = self.watch.take()?;
        let result = act(&mut watch, self);
        self.watch = Some(watch);
        Some(result)
    }

    /// Begins to record a running process that was not preloaded.
    pub fn attach(&mut self, pid: u32) -> Result<(), Error> {
        let settings = &self.settings;
        self.watch.get_or_insert_with(|| Box::new(Watch::new(settings)));
        let attached = self.with_watch(|watch, drain| watch.attach(drain, pid, false, monotonic_ns()));
        self.note_engine();
        attached.unwrap_or(Ok(()))
    }

    /// Records a process from outside that belongs to the recording from its start: the kernel took its events away when it
    /// changed its user, or it was announced by one that started it. What it used before is lost.
    pub fn attach_again(&mut self, pid: u32) -> Result<(), Error> {
        let settings = &self.settings;
        self.watch.get_or_insert_with(|| Box::new(Watch::new(settings)));
        self.with_watch(|watch, drain| watch.attach(drain, pid, true, monotonic_ns())).unwrap_or(Ok(()))
    }

    /// Records the program that the calling thread starts next, and what that starts, from outside.
    pub fn attach_child(&mut self) -> Result<(), Error> {
        let settings = &self.settings;
        let attached = self.watch.get_or_insert_with(|| Box::new(Watch::new(settings))).attach_child();
        self.note_engine();
        attached
    }

    fn note_engine(&mut self) {
        if let Some(watch) = &self.watch {
            let code = if watch.sees_kernel() { loss::OUTSIDE } else { loss::OUTSIDE_USER };
            self.report.engine((code, 0));
        }
    }

    /// Descriptors that are readable when something recorded from outside wants to be read.
    pub(super) fn watch_wakes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watch.iter().flat_map(|w| w.wake())
    }

    /// Processes recorded from outside that still run.
    pub(super) fn watched(&self) -> usize {
        self.watch.as_ref().map_or(0, |w| w.running())
    }

    /// Returns true if CPU time or off-CPU time of a process is recorded from outside.
    pub fn watches(&self, pid: u32) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.samples(pid)) || self.records_off_cpu(pid)
    }

    pub(super) fn watch_round(&mut self, now: u64) -> u32 {
        let paused = self.paused();
        self.with_watch(|watch, drain| {
            watch.pause(paused);
            watch.round(drain, now)
        })
        .unwrap_or(0)
    }

    pub(super) fn watch_second(&mut self, now: u64) {
        self.with_watch(|watch, _| watch.look(now));
    }

    pub(super) fn watch_resolve(&mut self, anyway: bool) {
        self.with_watch(|watch, drain| watch.resolve(drain, anyway));
    }

    pub(super) fn watch_tell(&mut self, index: usize, now: u64) {
        let mut report = std::mem::take(&mut self.report);
        self.with_watch(|watch, drain| watch.tell(drain, index, &mut report, now));
        self.report = report;
    }

    pub(super) fn watch_waiting(&self) -> usize {
        self.watch.as_ref().map_or(0, |w| w.waiting())
    }

    pub(super) fn watch_close(&mut self, now: u64) {
        self.with_watch(|watch, drain| watch.close(drain, now));
    }

    pub(super) fn watch_finish(&mut self, now: u64) {
        self.with_watch(|watch, drain| watch.finish(drain, now));
    }

    /// A process that was recorded from outside begins to record itself.
    pub(super) fn watch_give_up(&mut self, pid: u32, from_ns: u64) {
        if let Some(watch) = &mut self.watch {
            watch.give_up(pid, from_ns);
        }
    }

    /// The output of process `pid`.
    pub(crate) fn recording_of(&mut self, pid: u32) -> Result<(usize, &mut Recording), Error> {
        let index = self.open_recording(if per_process(&self.target) { pid } else { 0 })?;
        Ok((index, &mut self.recordings[index].1))
    }

    /// The files of the session.
    pub(crate) fn images(&mut self) -> &mut Images {
        &mut self.images
    }

    /// The files of the session and their unwind rows.
    pub(crate) fn files(&mut self) -> (&mut Images, &[AtomicU64]) {
        (&mut self.images, self.session.rows().words())
    }

    /// An output, the files and their unwind rows.
    pub(crate) fn parts(&mut self, index: usize) -> (&mut Recording, &mut Images, &[AtomicU64]) {
        (&mut self.recordings[index].1, &mut self.images, self.session.rows().words())
    }

    /// A process showed up.
    pub(crate) fn tell_about(&mut self, about: &About, index: usize, now: u64) {
        let recording = &mut self.recordings[index].1;
        tell::process(recording, about, self.settings.redact_args, now);
        let labels = crate::labels::of_process(about.pid, &about.file_name(), &self.settings.labels);
        tell::labels(recording, about.pid, &labels, now);
        self.report.processes += 1;
    }

    /// Threads whose accounts are told to the end.
    pub(crate) fn report_threads<'a>(&mut self, threads: impl Iterator<Item = &'a Thread>) {
        threads.for_each(|thread| self.report.add_thread(thread));
    }
}
