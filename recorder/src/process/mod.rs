//! A recorded process: reads its ring, resolves its stacks, and accounts for its threads' CPU time.

mod context;
pub(crate) mod direct_calls;
mod former_names;
pub(crate) mod ledger;
mod live_allocations;
mod maps_reader;
mod open;
mod otel_process_context;
pub(crate) mod otel_thread_context;
mod parse;
pub(crate) mod pre_registration_samples;
mod proc_status;
mod process_activity;
mod process_state;
mod program_account;
mod program_counters;
mod resolve;
mod ring_statistics;
mod sample;
mod sampling_clocks;
mod stack_resolver;
pub(crate) mod thread;
mod thread_name;
pub(crate) mod threads;
pub(crate) mod title;
mod waiting_samples;
pub(crate) mod wall;
mod wall_sampler;
mod wall_samples;
mod watched_threads;

use std::sync::atomic::AtomicU64;

use flightline_in_signal::ring::Next;

use maps_reader::MapsReader;
use otel_thread_context::Writers;
use parse::Record;
use process_state::ProcessState;
use sample::SampleSink;

use crate::cost::{Delivery, ReportedCost, Sum};
use crate::os::clock::{process_cpu_ns, thread_cpu_ns};
use crate::shared_memory::journal::reported_counters::ReportedCounters;
use crate::{
    names::images::Images, recording::Recording, recording::RecordingId, settings::labels::Label,
    shared_memory::proc_file::ProcFile,
};

/// A recorded process.
pub struct Process {
    /// Its shared file.
    pub file: ProcFile,
    /// Its samples, stacks, threads and modules.
    pub state: ProcessState,
    /// The sampler of its threads, if wall-clock time is recorded.
    pub wall: Option<Box<wall_sampler::Sampler>>,
    /// Its labels, such as container and service.
    pub labels: Vec<Label>,
    /// The costs that have been reported.
    cost: ReportedCost,
    /// The program's own counters that have been reported.
    reported: ReportedCounters,
    /// The record that is being read from the ring.
    record: Record,
    maps: MapsReader,
    /// A message for the user about this process.
    notice: Option<String>,
    /// Other libraries that write contexts.
    writers: Writers,
    /// When its live allocations were last recorded, CLOCK_MONOTONIC ns; 0: not yet.
    live_recorded_ns: u64,
}

impl Process {
    /// Returns the state of a new process. The recording began at `recording_ns`, monotonic.
    pub fn new(
        file: ProcFile,
        recording: RecordingId,
        group: u32,
        period_ns: u64,
        recording_ns: u64,
    ) -> Process {
        let mut state = ProcessState::new(recording, group, period_ns);
        state.threads.recording_ns = recording_ns;
        Process {
            file,
            state,
            wall: None,
            labels: Vec::new(),
            cost: ReportedCost::default(),
            reported: ReportedCounters::default(),
            record: Record::default(),
            maps: MapsReader::default(),
            notice: None,
            writers: Writers::default(),
            live_recorded_ns: 0,
        }
    }

    /// Returns its cost since the last call.
    pub fn take_cost(&mut self, delivery: &Delivery) -> Sum {
        let Process { file, state, cost, .. } = self;
        let (known_ns, lost_ns) = state.threads.clock_ns();
        let live = !state.over && file.trusted_pid();
        // Without CPU samples, there is no accounting, and existing totals end with the last sample.
        let clock_ns = if live { process_cpu_ns(file.pid).unwrap_or(0) } else { 0 };
        let totals = (clock_ns.max(known_ns), lost_ns, state.ring.records);
        cost.take(file.costs(), totals, state.ring.reading_ns, delivery.ns(file.engine().0))
    }

    /// Starts to record wall-clock time, in addition to CPU samples or instead of them.
    pub fn watch(&mut self, period_ns: u64, cpu_too: bool) {
        self.wall = Some(Box::new(wall_sampler::Sampler::new(self.file.pid, period_ns)));
        self.state.sampling.start_wall(period_ns, cpu_too);
    }

    /// Stops recording wall-clock time.
    pub fn unwatch(&mut self) {
        self.wall = None;
        self.state.sampling.stop_wall();
    }

    /// Returns the wall clock's sampler and the destination of its samples; `None` if there is no sampler.
    pub fn wall<'a>(
        &'a mut self,
        recording: &'a mut Recording,
        images: &'a mut Images,
        rows: &'a [AtomicU64],
        now_ns: u64,
    ) -> Option<(&'a mut wall_sampler::Sampler, wall_sampler::Output<'a>)> {
        let Process { file, state, wall, .. } = self;
        let sampler = wall.as_deref_mut()?;
        state.check_versions(recording);
        let sink = SampleSink { file, recording, images };
        Some((sampler, wall_sampler::Output { state, sink, rows, now_ns }))
    }

    /// Reads the ring to its end, at most one ring full. Returns the share of it that was in use, in 1/256.
    pub fn drain(
        &mut self,
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
        stopped: bool,
    ) -> u32 {
        let Process { file, state, record, .. } = self;
        state.threads.note_ended(file, state.sampling.period_ns);
        // The program logs modules before it closes them, so samples in closed modules find their symbols.
        state.modules.read_log(file, images);
        state.check_versions(recording);
        let Some(ring) = file.ring() else { return 0 };
        let fill = (ring.used().saturating_mul(8 * 256) / file.ring_bytes().max(1)).min(256) as u32;
        let begun_ns = (ring.used() > 0).then(thread_cpu_ns);
        // Read at most one ring full per round: a producer may be faster than the drain.
        let (begin, most) = (ring.position(), file.ring_bytes() / 8);
        while !state.ring.damaged && ring.position().wrapping_sub(begin) < most {
            match ring.next() {
                Next::Empty => {
                    state.ring.drained_ns = now_ns;
                    break;
                }
                Next::InFlight if !state.over => break,
                Next::InFlight => {
                    if !ring.skip_torn() {
                        break;
                    }
                    state.ring.torn += 1;
                }
                Next::Corrupt => state.ring.damaged = true,
                Next::Ready { kind, payload, len } => {
                    let parsed = record.parse(kind, payload);
                    if parsed.is_some() {
                        recording.begin_record();
                        record.entry = recording.keep(file.key(), file.tail(), kind, payload);
                    }
                    ring.release(len);
                    if let Some(parsed) = parsed {
                        if parsed.is_fatal_signal() {
                            state.modules.read_last(file, images);
                            state.check_versions(recording);
                        }
                        let sink = &mut SampleSink { file, recording, images };
                        state.take_parsed(parsed, record, sink, now_ns);
                    }
                    recording.queued(record.entry.take());
                }
            }
        }
        if let Some(begun_ns) = begun_ns {
            state.ring.reading_ns += thread_cpu_ns().saturating_sub(begun_ns);
        }
        state.threads.settle_ended(file, file.tail(), state.sampling.period_ns, stopped);
        if !state.over && state.open.is_due(now_ns) {
            state.look_for_open(file, now_ns, false);
            state.update_open_spans(file, recording);
        }
        fill
    }

    /// Handles a record from a journal, which was read from the ring earlier.
    pub fn take_record(
        &mut self,
        kind: u8,
        payload: &[AtomicU64],
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
    ) {
        let Process { file, state, record, .. } = self;
        state.check_versions(recording);
        if let Some(parsed) = record.parse(kind, payload) {
            state.take_parsed(parsed, record, &mut SampleSink { file, recording, images }, now_ns);
        }
    }

    /// Returns true if records from before a flush was requested are still in the ring.
    pub fn unread(&self) -> bool {
        !self.state.over && !self.state.ring.damaged && self.file.tail() < self.state.ring.flush_to
    }

    /// Returns true if a process has ended and all its samples are written.
    pub fn settled(&self) -> bool {
        self.state.over && self.state.waiting() == 0
    }

    /// Updates the map of modules, and publishes it for the program's handlers.
    pub fn refresh_modules(&mut self, images: &mut Images, now_ns: u64) {
        let Process { file, state, maps, writers, notice, .. } = self;
        state.modules.read_log(file, images);
        if state.over {
            return;
        }
        if file.trusted_pid() {
            let unknown_pcs = file.unknown_pcs();
            let writers_due = writers.is_due(file, now_ns);
            if maps.is_due(state.stacks.has_unknown_address(), unknown_pcs, now_ns)
                || file.take_maps_dirty()
                || writers_due
            {
                state.stacks.mappings_read();
                maps.read(file, unknown_pcs, &mut state.modules, images, now_ns);
            }
        }
        // A reading of the mappings can reveal that the PID belongs to another process.
        if file.trusted_pid() && state.stacks.frames.jit.look(file.pid, &state.modules, images, now_ns) {
            state.waiting.names_came();
        }
        maps.publish(file, &state.modules, images);
        if file.trusted_pid() {
            writers.look(file, &state.modules, images, now_ns);
            let java = &mut state.stacks.frames.java;
            if let Some(message) = java.find_jvm(file.pid, file.jvm(), &state.modules, images, now_ns) {
                *notice = Some(message);
            }
            java.describe_all_code(file.pid);
        }
    }

    /// Returns a message for the user, once.
    pub fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    /// Reads the rest of the ring after the program has stopped writing. Reading two rings full is always
    /// enough.
    fn drain_rest(&mut self, recording: &mut Recording, images: &mut Images, now_ns: u64, stopped: bool) {
        for _ in 0..2 {
            self.drain(recording, images, now_ns, stopped);
        }
    }

    /// Reads everything for the last time, after the process has ended.
    pub fn close(&mut self, recording: &mut Recording, images: &mut Images, now_ns: u64, stopped: bool) {
        self.state.over = true;
        self.refresh_modules(images, now_ns);
        self.drain_rest(recording, images, now_ns, stopped);
        self.last_names(images);
        self.state.look_for_open(&self.file, now_ns, true);
        self.state.record_open_spans(&self.file, recording);
        self.state.threads.close(&self.file, now_ns, self.state.sampling.period_ns, stopped);
        self.state.record_live(recording, now_ns);
        self.resolve_pending(recording, images, false);
        if let Some(notice) = self.state.stacks.frames.java.unresolved() {
            recording.notice(&notice, now_ns);
        }
        self.state.stacks.frames.java.end();
    }

    /// Reads everything for the last time, after an exec.
    pub fn close_image(&mut self, recording: &mut Recording, images: &mut Images, now_ns: u64) {
        self.state.over = true;
        self.state.modules.read_log(&self.file, images);
        self.drain_rest(recording, images, now_ns, true);
        self.last_names(images);
        self.state.record_open_spans(&self.file, recording);
        let first = self.file.pid;
        self.state.threads.close_others(&self.file, first, now_ns, self.state.sampling.period_ns);
        self.state.record_live(recording, now_ns);
        self.resolve_pending(recording, images, false);
        self.state.stacks.frames.java.end();
    }

    /// Reads the last names of JIT-compiled code.
    fn last_names(&mut self, images: &Images) {
        let Process { file, state, .. } = self;
        if file.trusted_pid() {
            state.stacks.frames.jit.finish(file.pid, &state.modules, images);
        } else {
            state.stacks.frames.jit.give_up();
        }
        state.waiting.names_came();
    }

    /// Retries the samples that wait for symbols. `anyway`: writes them, with offsets instead of missing
    /// symbols.
    pub fn resolve_pending(&mut self, recording: &mut Recording, images: &mut Images, anyway: bool) {
        let Process { file, state, .. } = self;
        state.resolve_waiting(&mut SampleSink { file, recording, images }, anyway);
    }

    /// Records the live allocations if they were last recorded `every_ns` ago. The first interval starts with
    /// the process.
    pub fn record_alive(&mut self, every_ns: u64, now_ns: u64) {
        if self.live_recorded_ns == 0 {
            self.live_recorded_ns = self.file.start_mono_ns();
        }
        let since_ns = now_ns - self.live_recorded_ns.min(now_ns);
        if since_ns >= every_ns && !self.state.waiting.are_too_many() {
            self.live_recorded_ns = now_ns;
            self.state.record_alive(now_ns);
        }
    }
}
