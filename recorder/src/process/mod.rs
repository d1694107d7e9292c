//! A recorded process: its ring read, its stacks resolved, its threads' accounts kept.

mod book;
mod context;
pub(crate) mod direct_calls;
mod former_names;
pub(crate) mod ledger;
mod live_allocations;
mod open;
mod otel_process_context;
pub(crate) mod otel_thread_context;
mod parse;
pub(crate) mod pre_registration_samples;
mod proc_status;
mod program_counters;
mod resolve;
pub(crate) mod thread;
pub(crate) mod threads;
pub(crate) mod title;
pub(crate) mod wall;
mod wall_sampler;
mod wall_samples;

use std::sync::atomic::AtomicU64;

use flightline_in_signal::ring::Next;

pub(crate) use book::Book;
use book::What;

use crate::cost::{Delivery, ReportedCost, Sum};
use crate::os::clock::{process_cpu_ns, thread_cpu_ns};
use crate::shared_memory::journal::reported_counters::ReportedCounters;
use crate::{
    names::images::Images, recording::Recording, settings::labels::Label, shared_memory::proc_file::ProcFile,
};

/// Shortest and longest time between two readings of `/proc/<pid>/maps` asked for by unknown addresses, ns.
const MAPS_WAIT_NS: [u64; 2] = [20_000_000, 5_000_000_000];

/// Everything known of a recorded process.
pub struct Process {
    /// Its shared file.
    pub file: ProcFile,
    /// Its books.
    pub book: Book,
    /// Who looks at its threads, if wall-clock time is recorded.
    pub wall: Option<Box<wall_sampler::Sampler>>,
    /// What it belongs to.
    pub labels: Vec<Label>,
    /// What was told of its costs.
    cost: ReportedCost,
    /// What of the program's own counts was told.
    told: ReportedCounters,
}

impl Process {
    /// A process that just showed up; the recording began at `recording_ns`, monotonic.
    pub fn new(file: ProcFile, recording: usize, group: u32, period_ns: u64, recording_ns: u64) -> Process {
        let mut book = Book::new(recording, group, period_ns);
        book.threads.recording_ns = recording_ns;
        Process {
            file,
            book,
            wall: None,
            labels: Vec::new(),
            cost: ReportedCost::default(),
            told: ReportedCounters::default(),
        }
    }

    /// What it cost since the last call.
    pub fn take_cost(&mut self, delivery: &Delivery) -> Sum {
        let Process { file, book, cost, .. } = self;
        let (known_ns, lost_ns) = book.threads.clock_ns();
        let live = !book.over && file.trusted_pid();
        // Without samples of CPU time there are no accounts, and those that there are end with the last sample.
        let clock_ns = if live { process_cpu_ns(file.pid).unwrap_or(0) } else { 0 };
        let totals = (clock_ns.max(known_ns), lost_ns, book.records);
        cost.take(file.costs(), totals, book.reading_ns, delivery.ns(file.engine().0))
    }

    /// Begins to record wall-clock time too, or instead of CPU samples.
    pub fn watch(&mut self, period_ns: u64, cpu_too: bool) {
        self.wall = Some(Box::new(wall_sampler::Sampler::new(self.file.pid, period_ns)));
        self.book.wall_ns = Some(period_ns);
        self.book.cpu_samples = cpu_too;
    }

    /// Records wall-clock time no more.
    pub fn unwatch(&mut self) {
        self.wall = None;
        self.book.wall_ns = None;
        self.book.cpu_samples = true;
    }

    /// The wall clock's sampler and where its samples go to; `None` if there is none.
    pub fn wall<'a>(
        &'a mut self,
        recording: &'a mut Recording,
        images: &'a mut Images,
        rows: &'a [AtomicU64],
        now_ns: u64,
    ) -> Option<(&'a mut wall_sampler::Sampler, wall_sampler::Output<'a>)> {
        let Process { file, book, wall, .. } = self;
        let sampler = wall.as_deref_mut()?;
        book.check_versions(recording);
        Some((sampler, wall_sampler::Output { file, book, recording, images, rows, now_ns }))
    }

    /// Reads the ring to its end, at most once around. Returns the share of it that was in use, in 1/256.
    pub fn drain(
        &mut self,
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
        stopped: bool,
    ) -> u32 {
        let Process { file, book, .. } = self;
        book.threads.note_ended(file, book.period_ns);
        // Modules are logged before they are closed: samples of closed ones find their names.
        book.modules.read_log(file, images);
        book.check_versions(recording);
        let Some(ring) = file.ring() else { return 0 };
        let fill = (ring.used().saturating_mul(8 * 256) / file.ring_bytes().max(1)).min(256) as u32;
        let begun_ns = (ring.used() > 0).then(thread_cpu_ns);
        // A producer that is faster than we are must not keep us here for ever: one ring full per round.
        let (begin, most) = (ring.position(), file.ring_bytes() / 8);
        while !book.damaged && ring.position().wrapping_sub(begin) < most {
            match ring.next() {
                Next::Empty => {
                    book.drained_ns = now_ns;
                    break;
                }
                Next::InFlight if !book.over => break,
                Next::InFlight => {
                    if !ring.skip_torn() {
                        break;
                    }
                    book.torn += 1;
                }
                Next::Corrupt => book.damaged = true,
                Next::Ready { kind, payload, len } => {
                    let found = book.parse_record(kind, payload);
                    if found.is_some() {
                        recording.begin_record();
                        book.entry = recording.keep(file.key(), file.tail(), kind, payload);
                    }
                    ring.release(len);
                    if let Some(found) = found {
                        if Book::is_last_word(&found) {
                            book.modules.read_last(file, images);
                            book.check_versions(recording);
                        }
                        book.take_parsed(file, found, recording, images, now_ns);
                    }
                    recording.queued(book.entry.take());
                }
            }
        }
        if let Some(begun_ns) = begun_ns {
            book.reading_ns += thread_cpu_ns().saturating_sub(begun_ns);
        }
        book.threads.settle_ended(file, file.tail(), book.period_ns, stopped);
        if !book.over && book.open.is_due(now_ns) {
            book.look_for_open(file, now_ns, false);
            book.keep_open(file, recording);
        }
        fill
    }

    /// Takes a record that somebody else read from the ring.
    pub fn take_record(
        &mut self,
        kind: u8,
        payload: &[AtomicU64],
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
    ) {
        let Process { file, book, .. } = self;
        book.check_versions(recording);
        if let Some(found) = book.parse_record(kind, payload) {
            book.take_parsed(file, found, recording, images, now_ns);
        }
    }

    /// Whether records from before a flush was asked for are still in the ring.
    pub fn unread(&self) -> bool {
        !self.book.over && !self.book.damaged && self.file.tail() < self.book.flush_to
    }

    /// Whether an ended process has told everything.
    pub fn settled(&self) -> bool {
        self.book.over && self.book.waiting() == 0
    }

    /// Keeps the map of modules up to date, and the program's handlers informed.
    pub fn refresh_modules(&mut self, images: &mut Images, now_ns: u64) {
        let Process { file, book, .. } = self;
        book.modules.read_log(file, images);
        if !book.over && file.trusted_pid() {
            let unknown = file.unknown_pcs();
            let asked = book.unknown || unknown != book.unknown_seen;
            let due = now_ns.saturating_sub(book.maps_read_ns) >= book.maps_wait_ns;
            let first = book.maps_read_ns == 0;
            let writers_due = book.writers.is_due(file, now_ns);
            if first || (asked && due) || file.take_maps_dirty() || writers_due {
                book.maps_read_ns = now_ns.max(1);
                book.unknown_seen = unknown;
                book.unknown = false;
                match book.modules.read_maps(file, images) {
                    Ok(Some(true)) => book.maps_wait_ns = MAPS_WAIT_NS[0],
                    // Addresses of code that stays unknown must not make us read the map for ever.
                    Ok(Some(false)) => book.maps_wait_ns = (book.maps_wait_ns * 2).min(MAPS_WAIT_NS[1]),
                    // A process that has just ended has no map either.
                    Ok(None) if file.alive() => file.distrust_pid(),
                    Ok(None) => {}
                    Err(_) => {}
                }
            }
        }
        if !book.over {
            if file.trusted_pid() && book.frames.jit.look(file.pid, &book.modules, images, now_ns) {
                book.names_came();
            }
            book.publish(file, images);
            if file.trusted_pid() {
                book.writers.look(file, &book.modules, images, now_ns);
            }
        }
    }

    /// Reads what is left when nobody writes any more. A ring holds no more than itself: twice around is enough.
    fn drain_rest(&mut self, recording: &mut Recording, images: &mut Images, now_ns: u64, stopped: bool) {
        for _ in 0..2 {
            self.drain(recording, images, now_ns, stopped);
        }
    }

    /// Last reading of everything, after the process is gone.
    pub fn close(&mut self, recording: &mut Recording, images: &mut Images, now_ns: u64, stopped: bool) {
        self.book.over = true;
        self.refresh_modules(images, now_ns);
        self.drain_rest(recording, images, now_ns, stopped);
        self.last_names(images);
        self.book.look_for_open(&self.file, now_ns, true);
        self.book.record_open_spans(&self.file, recording);
        self.book.threads.close(&self.file, now_ns, self.book.period_ns, stopped);
        self.book.record_live(recording, now_ns);
        self.resolve_pending(recording, images, false);
    }

    /// Last reading of everything, when another image has taken the process over.
    pub fn close_image(&mut self, recording: &mut Recording, images: &mut Images, now_ns: u64) {
        self.book.over = true;
        self.book.modules.read_log(&self.file, images);
        self.drain_rest(recording, images, now_ns, true);
        self.last_names(images);
        self.book.record_open_spans(&self.file, recording);
        let first = self.file.pid;
        self.book.threads.close_others(&self.file, first, now_ns, self.book.period_ns);
        self.book.record_live(recording, now_ns);
        self.resolve_pending(recording, images, false);
    }

    /// No more names of run-time code will come.
    fn last_names(&mut self, images: &Images) {
        let Process { file, book, .. } = self;
        if file.trusted_pid() {
            book.frames.jit.finish(file.pid, &book.modules, images);
        } else {
            book.frames.jit.give_up();
        }
        book.names_came();
    }

    /// Tries again to resolve what waits for symbols; `anyway`: takes offsets where names are still missing.
    pub fn resolve_pending(&mut self, recording: &mut Recording, images: &mut Images, anyway: bool) {
        let Process { file, book, .. } = self;
        book.check_versions(recording);
        book.news = false;
        let anyway = anyway || book.overdue();
        if anyway {
            book.names_came();
            book.news = false;
        }
        let pending = std::mem::take(&mut book.pending);
        book.count_allocations();
        let mut live = None;
        for sample in pending {
            recording.begin_record();
            if book.modules.version != sample.map.version {
                book.show(&sample.map, &mut live);
                book.check_versions(recording);
            }
            let Some(stack) = sample.stack else {
                match &sample.what {
                    What::Event(event) if anyway || !book.must_follow(event.borrowed().head.kind) => {
                        let event = event.borrowed();
                        book.write_event(file, sample.thread, None, sample.time_ns, &event, None, recording);
                        recording.queued(sample.entry);
                    }
                    _ => book.wait(sample),
                }
                continue;
            };
            let kind = if let What::Event(event) = &sample.what { event.borrowed().head.kind } else { 0 };
            if !anyway && book.must_follow(kind) {
                book.wait(sample);
                continue;
            }
            match book.trace(stack, recording, images, anyway) {
                Some(trace) => {
                    match &sample.what {
                        What::Cpu(events) => {
                            book.worked = sample.worked;
                            book.write(file, sample.thread, trace, sample.time_ns, *events, recording)
                        }
                        What::Event(event) => {
                            let event = event.borrowed();
                            book.write_event(
                                file,
                                sample.thread,
                                Some(trace),
                                sample.time_ns,
                                &event,
                                sample.worked.as_ref(),
                                recording,
                            );
                        }
                    }
                    recording.queued(sample.entry);
                }
                None => book.put_aside(sample),
            }
        }
        if let Some(live) = live {
            book.modules = live;
            book.check_versions(recording);
        }
    }
}
