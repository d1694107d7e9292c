//! Limits the drain's memory, which must not grow with the time that it runs.
//!
//! Constants and dictionaries are trimmed only between events (`recording/chunks.rs`): code that holds a key
//! of a trace may begin a chunk, but no trace is dropped while it is used. Numbers of threads, files and
//! traces are never reused, so a number that was dropped refers to nothing.

use std::collections::HashSet;

use super::Drain;
use crate::{names::images::ImageId, os::memory, recording::Recording};

impl Drain {
    /// Returns the number of remembered objects by kind. None of these grows with the time that the drain
    /// runs.
    pub fn remembered(&self) -> [(&'static str, usize); 14] {
        let mut address = [0; 3];
        for process in self.processes.iter() {
            let counts = process.state.counts();
            address.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let (mut names, mut threads) = ([0; 4], [0; 2]);
        for recording in self.outputs.recordings.open() {
            names.iter_mut().zip(recording.interner.counts()).for_each(|(sum, count)| *sum += count);
            threads.iter_mut().zip(recording.counts()).for_each(|(sum, count)| *sum += count);
        }
        let spans = self.outputs.recordings.open().map(Recording::span_constants).sum();
        let [files, lines] = self.symbols.images.counts();
        [
            ("stacks of addresses", address[0]),
            ("addresses", address[1]),
            ("accounts", address[2]),
            ("stacks", names[0]),
            ("frames", names[1]),
            ("methods", names[2]),
            ("classes", names[3]),
            ("threads", threads[0]),
            ("groups", threads[1]),
            ("spans", spans),
            ("files", files),
            ("lines", lines),
            ("mappings", self.outputs.library_count()),
            ("outputs", self.outputs.recordings.slot_count()),
        ]
    }

    /// Reports once that processes got no memory, and corrects the count of those that have memory.
    pub(super) fn count_processes(&mut self, now: u64) {
        self.processes.joined = self.session.count_processes(self.processes.joined);
        let refused = self.session.refused();
        if refused > 0 && self.report.refused == 0 {
            let notice = &self.session.no_room();
            self.notices.push(notice.clone());
            self.outputs.notice(notice, now);
        }
        self.report.refused = refused;
    }

    /// Drops what no process needs any more, and divides the memory limit among the processes.
    pub(super) fn trim(&mut self) {
        let running = self.processes.list.len();
        self.processes.iter_mut().for_each(|process| process.state.share(running));
        let modules = self.processes.iter().map(|p| (p.state.recording, &p.state.modules));
        self.outputs.forget_libraries(modules);
        if let Some(watch) = &mut self.outside.watch {
            watch.repeat_libraries();
            // Its first records are read long before the removal of a process that records itself.
            watch.forget_others(|pid| self.processes.iter().any(|process| process.file.pid == pid));
        }
        if self.symbols.images.take_read() {
            memory::give_back();
        }
        if self.symbols.images.many() {
            let mut needed: HashSet<ImageId> = self.processes.iter().flat_map(|p| p.state.images()).collect();
            needed.extend(self.outside.watch.iter().flat_map(|watch| watch.images()));
            needed.extend(self.outside.off_cpu.iter_mut().flat_map(|off_cpu| off_cpu.images()));
            self.symbols.images.keep(&needed, self.session.rows());
        }
    }
}
