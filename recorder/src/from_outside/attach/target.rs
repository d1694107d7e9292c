//! A process recorded from outside: its modules, its threads' totals, its stacks.

use std::{collections::HashMap, sync::atomic::AtomicU64};

use flightline_in_signal::layout::{event_kind, loss, walk_end};
use flightline_in_signal::unwind::interrupted::Regs;
use jfr_format::schema::{frame_type, thread_state};

use super::{
    waits::Waits,
    watched::{PerProcessor, Split, Watched, split},
};
use crate::perf_events::record::{Mapped, Sample};
use crate::remote_unwinder::stacks::{Copied, Stack, Stacks};
use crate::{
    info_events,
    names::images::{ImageId, Images, UNKNOWN},
    names::intern::{Frame, Origin, TraceIndex},
    names::modules::ModuleMap,
    os::clock::monotonic_ns,
    os::process_info::{ProcessInfo, id_inside, thread_name},
    process::thread::Thread,
    process::title::Titles,
    recording::events::{self, Engines, Event, Head},
    recording::{Recording, RecordingId},
    settings::ThreadSelection,
};

/// Limit of copied stacks of one process that wait for unwind tables, bytes.
const WAITING_BYTES: usize = 32 << 20;
/// Limit of samples of one process that wait for symbols.
const WAITING_SAMPLES: usize = 50_000;

/// The data that a sample waits for.
enum Wait {
    /// Unwind tables: registers and stack to walk.
    Rows { regs: Box<Regs>, stack: Box<[u8]>, kernel: Box<[u64]>, user: Box<[u64]> },
    /// Symbols of these addresses.
    Names(Stack),
}

struct Pending {
    tid: u32,
    constant: usize,
    time_ns: u64,
    sampled: Sampled,
    wait: Wait,
}

/// The events to write once a stack has its symbols.
#[derive(Clone, Copy)]
pub enum Sampled {
    /// CPU time.
    Cpu(CpuSamples),
    /// Another event, and its additional word.
    Event(Head, u64),
}

/// The events that a sample of CPU time becomes, by kind.
#[derive(Clone, Copy, Default)]
pub struct CpuSamples {
    /// `jdk.ExecutionSample`.
    cpu: u32,
    /// Wall-clock samples: the thread was running.
    ran: u32,
    /// Wall-clock samples: the thread was runnable before, but waited for a processor.
    queued: u32,
}

/// The kinds of samples that are recorded of a process.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// CPU time samples are written as events.
    pub cpu: bool,
    /// Interval of the wall clock, ns, if that is recorded.
    pub wall_ns: Option<u64>,
}

impl Kinds {
    /// Returns true if CPU time is sampled: as events, or as the running part of wall-clock time.
    pub fn samples_cpu_time(self) -> bool {
        self.cpu || self.wall_ns.is_some()
    }

    /// Returns the events that `events` periods of CPU time become.
    fn samples(self, thread: &mut Thread, events: u32, period_ns: u64) -> CpuSamples {
        let cpu_ns = u64::from(events).saturating_mul(period_ns);
        let wall = |wall_ns| thread.wall.running(thread.seed(), cpu_ns, wall_ns);
        let (ran, queued) = self.wall_ns.map_or((0, 0), wall);
        CpuSamples { cpu: if self.cpu { events } else { 0 }, ran, queued }
    }
}

/// The parts of the drain that a process needs to record a sample.
pub struct RecordingContext<'a> {
    /// Its output.
    pub recording: &'a mut Recording,
    /// Files.
    pub images: &'a mut Images,
    /// Unwind tables of all modules.
    pub rows: &'a [AtomicU64],
    /// Sampling period, ns.
    pub period_ns: u64,
    /// Limit of frames per stack.
    pub depth: usize,
    /// The selection of threads, if not all are recorded.
    pub threads: Option<&'a ThreadSelection>,
}

/// A process.
pub struct Target {
    /// Its PID, name and start.
    pub about: ProcessInfo,
    /// Its threads by id.
    pub threads: HashMap<u32, Watched>,
    /// Key of its recording.
    pub recording: RecordingId,
    /// No more records will come from it.
    pub over: bool,
    /// From this CLOCK_MONOTONIC time on, it records itself.
    pub records_itself_ns: Option<u64>,
    /// Records before this CLOCK_MONOTONIC time come from earlier events of the process.
    pub since_ns: u64,
    kinds: Kinds,
    waits: Option<Box<Waits>>,
    engines: Engines,
    stacks: Stacks,
    group: u32,
    titles: Titles,
    /// The names that it wrote last (perf map, jitdump) have been read.
    named: bool,
    pending: Vec<Pending>,
    waiting_bytes: usize,
}

impl Target {
    /// Returns a process that was found or has just started.
    pub fn new(
        about: ProcessInfo,
        kinds: Kinds,
        recording_id: RecordingId,
        recording: &mut Recording,
    ) -> Target {
        let inside = id_inside(about.pid).map_or_else(String::new, |id| format!(", {id} in its namespace"));
        let group = recording.add_group(format!("{} ({}{inside})", about.called(), about.pid));
        // The arguments at its start are not known.
        let titles = Titles::new(Vec::new(), about.exe.clone());
        Target {
            about,
            threads: HashMap::new(),
            recording: recording_id,
            over: false,
            records_itself_ns: None,
            since_ns: 0,
            kinds,
            waits: kinds.wall_ns.map(|period_ns| Box::new(Waits::new(period_ns))),
            engines: Engines::default(),
            stacks: Stacks::default(),
            group,
            titles,
            named: false,
            pending: Vec::new(),
            waiting_bytes: 0,
        }
    }

    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.about.pid
    }

    /// Copies the state that a forked child inherits from its parent.
    pub fn inherit(&mut self, parent: &Target) {
        self.stacks.inherit(&parent.stacks);
    }

    /// Reads the current mappings.
    pub fn read_maps(&mut self, images: &mut Images) {
        self.stacks.read_maps(self.about.pid, images);
    }

    /// Adds a mapping.
    pub fn mapped(&mut self, mapped: &Mapped<'_>, images: &mut Images) {
        self.stacks.mapped(mapped, images);
    }

    /// Returns a thread, and adds it if it is new.
    pub fn thread(&mut self, tid: u32, time_ns: u64, period_ns: u64) -> &mut Watched {
        let pid = self.about.pid;
        self.threads.entry(tid).or_insert_with(|| {
            let name = thread_name(pid, tid).unwrap_or_default();
            Watched::new(Thread::outside(tid, name, period_ns, time_ns), 0)
        })
    }

    /// Returns the name of its first thread, which new threads inherit.
    pub fn first_thread_name(&self) -> String {
        self.threads.get(&self.about.pid).map(|w| w.thread.name().to_owned()).unwrap_or_default()
    }

    /// After exec: moves the totals of the continuing thread to the new image.
    pub fn hand_over(&mut self, to: &mut Target, name: &str, time_ns: u64) {
        let pid = self.about.pid;
        for watched in self.threads.values_mut().filter(|w| w.thread.tid != pid) {
            watched.ended_ns.get_or_insert(time_ns);
        }
        if let Some(mut watched) = self.threads.remove(&pid) {
            // Another program is another group in the output, even with the same name.
            watched.thread.leave_group();
            watched.thread.rename(name.to_owned());
            if let (Some(before), Some(after)) = (&mut self.waits, &mut to.waits) {
                after.take_over(pid, before);
            }
            to.threads.insert(pid, watched);
        }
    }

    /// Starts the totals of a thread whose events are being opened.
    pub fn begin(&mut self, tid: u32, name: String, base_ns: u64, time_ns: u64, period_ns: u64) {
        let thread = Thread::outside(tid, name, period_ns, time_ns);
        self.threads.insert(tid, Watched::new(thread, base_ns));
    }

    /// Handles a CPU time sample of ring `ring`; `missing` counts the records lost before it.
    pub fn take(
        &mut self,
        sample: &Sample<'_>,
        ring: usize,
        missing: &mut u64,
        blind: bool,
        context: &mut RecordingContext<'_>,
    ) {
        let period_ns = context.period_ns;
        let watched = self.thread(sample.tid, sample.time_ns, period_ns);
        let counted = sample.count.map(|count| watched.counted(ring, count));
        if self.records_itself_ns.is_some_and(|from| sample.time_ns >= from) {
            return;
        }
        let Some(watched) = self.threads.get_mut(&sample.tid) else { return };
        let split = match counted {
            Some(counted) => split(counted, period_ns, *missing, blind),
            // Old kernels report no counts; attribute the lost records to the thread that comes next.
            None => {
                watched.samples_count = false;
                let lost = (*missing, missing.saturating_mul(period_ns));
                Split { own_ns: period_ns, lost, hidden_ns: 0 }
            }
        };
        *missing -= split.lost.0;
        let thread = &mut watched.thread;
        if !thread.selected_outside(context.threads) {
            return;
        }
        thread.ledger.lose(loss::RING_FULL, split.lost.0, split.lost.1);
        thread.ledger.arrived += 1;
        thread.ledger.arrived_ns += split.own_ns + split.hidden_ns;
        if context.recording.full() {
            context.recording.refuse(split.own_ns + split.hidden_ns);
            return thread.ledger.lose(context.recording.full_cause(), 1, split.own_ns + split.hidden_ns);
        }
        let kinds = self.kinds;
        let hidden = (split.hidden_ns > 0).then(|| {
            let events = thread.ledger.sample(split.hidden_ns);
            kinds.samples(thread, events, period_ns)
        });
        let events = thread.ledger.sample(split.own_ns);
        let events = kinds.samples(thread, events, period_ns);
        let Some(constant) = self.thread_constant_at(sample.tid, sample.time_ns, context) else { return };
        let (tid, time_ns) = (sample.tid, sample.time_ns);
        if let Some(hidden) = hidden {
            let trace = hidden_trace(context.recording);
            self.write(tid, constant, trace, time_ns, Sampled::Cpu(hidden), context);
        }
        self.take_stack(sample, constant, Sampled::Cpu(events), context);
    }

    /// Handles a sample of perf event `index` in ring `ring`, which occurs every `period` events; `missing`
    /// counts the records lost before it. Returns the events since the thread's last sample; `None` if the
    /// kernel does not report them.
    pub fn take_event(
        &mut self,
        sample: &Sample<'_>,
        (index, period): (u16, u64),
        ring: usize,
        missing: &mut u64,
        context: &mut RecordingContext<'_>,
    ) -> Option<u64> {
        let watched = self.thread(sample.tid, sample.time_ns, context.period_ns);
        let counted = sample.count.map(|count| watched.counted_event(index, ring, count));
        if self.records_itself_ns.is_some_and(|from| sample.time_ns >= from) {
            return counted;
        }
        let Some(watched) = self.threads.get_mut(&sample.tid) else { return counted };
        let thread = &mut watched.thread;
        if !thread.selected_outside(context.threads) {
            return counted;
        }
        // Old kernels report no counts: the sample represents one period, and the lost records may belong to
        // any event.
        let split = split(counted.unwrap_or(period), period, *missing, false);
        *missing -= split.lost.0;
        self.engines.lose_many(event_kind::PERF, split.lost.0, split.lost.1);
        let head = Head { kind: event_kind::PERF, index, value: split.own_ns };
        if context.recording.full() {
            self.engines.lose(head.kind, head.value);
            return counted;
        }
        thread.count_other_stack();
        if let Some(constant) = self.thread_constant_at(sample.tid, sample.time_ns, context) {
            self.take_stack(sample, constant, Sampled::Event(head, 0), context);
        }
        counted
    }

    /// Returns the constant of thread `tid` under the title that its process has at `time_ns`. `None` if the
    /// thread is unknown.
    fn thread_constant_at(
        &mut self,
        tid: u32,
        time_ns: u64,
        context: &mut RecordingContext<'_>,
    ) -> Option<usize> {
        let thread = &mut self.threads.get_mut(&tid)?.thread;
        let constant = thread.named_constant(self.group, context.recording);
        if self.titles.is_due(time_ns) {
            self.titles.read(Some(self.about.pid), self.group, context.recording, monotonic_ns());
        }
        match self.titles.group(self.group) {
            group if group == self.group => Some(constant),
            titled => Some(thread.titled_constant(titled, context.recording)),
        }
    }

    /// Walks the stack of a sample. Writes the sample, or stores it until unwind tables and symbols have been
    /// read.
    fn take_stack(
        &mut self,
        sample: &Sample<'_>,
        constant: usize,
        sampled: Sampled,
        context: &mut RecordingContext<'_>,
    ) {
        let (tid, time_ns) = (sample.tid, sample.time_ns);
        let pending = |wait| Pending { tid, constant, time_ns, sampled, wait };
        let Some(regs) = &sample.regs else {
            // In the kernel after the program's memory was released, or a 32-bit program.
            let truncated = sample.kernel.is_empty().then_some(walk_end::NO_INFO);
            let exact = 1;
            let stack = Stack { truncated, exact, frames: sample.kernel.clone() };
            return self.finish(pending(Wait::Names(stack)), false, context);
        };
        match self.walk(regs, sample.stack, &sample.kernel, &sample.user, false, context) {
            Some(stack) => self.finish(pending(Wait::Names(stack)), false, context),
            None => {
                self.waiting_bytes += sample.stack.len();
                let wait = Wait::Rows {
                    regs: Box::new(*regs),
                    stack: sample.stack.into(),
                    kernel: sample.kernel.as_slice().into(),
                    user: sample.user.as_slice().into(),
                };
                self.pending.push(pending(wait));
            }
        }
    }

    /// Writes an event of thread `tid` with a walked stack, or without a stack if that is unknown.
    pub fn record(
        &mut self,
        tid: u32,
        time_ns: u64,
        stack: Option<Stack>,
        sampled: Sampled,
        context: &mut RecordingContext<'_>,
    ) {
        if let (Sampled::Event(head, _), true) = (sampled, context.recording.full()) {
            return self.engines.lose(head.kind, head.value);
        }
        let Some(constant) = self.thread_constant_at(tid, time_ns, context) else { return };
        match stack {
            Some(stack) => {
                if let Some(watched) = self.threads.get_mut(&tid) {
                    watched.thread.count_other_stack();
                }
                self.finish(
                    Pending { tid, constant, time_ns, sampled, wait: Wait::Names(stack) },
                    false,
                    context,
                );
            }
            None => self.write(tid, constant, None, time_ns, sampled, context),
        }
    }

    /// Walks the stack of a sleeping thread, from its program counter and stack pointer.
    pub fn walk_asleep(
        &mut self,
        registers: (u64, u64),
        depth: usize,
        context: &mut RecordingContext<'_>,
    ) -> Stack {
        self.stacks.walk_asleep(self.about.pid, registers, depth, context.images, context.rows)
    }

    /// Samples the wall clock of the threads. Returns true if the process ran since the last call.
    pub fn look_at_waits(&mut self, context: &mut RecordingContext<'_>, now_ns: u64) -> bool {
        let Some(mut waits) = self.waits.take() else { return false };
        let ran = self.records_itself_ns.is_none() && waits.tick(self, context, now_ns);
        self.waits = Some(waits);
        ran
    }

    /// Writes the remaining waits of threads whose accounts are closed.
    pub fn finish_waits(&mut self, context: &mut RecordingContext<'_>) {
        if let Some(mut waits) = self.waits.take() {
            if self.records_itself_ns.is_none() {
                waits.finish(self, context);
            }
            self.waits = Some(waits);
        }
    }

    /// Returns a message for the user, if there is a new one.
    pub fn notice(&mut self) -> Option<String> {
        let pid = self.about.pid;
        self.waits.as_mut()?.notice(pid)
    }

    /// Writes the events that a sample becomes.
    fn write(
        &mut self,
        tid: u32,
        constant: usize,
        trace: impl Into<Option<TraceIndex>>,
        time_ns: u64,
        sampled: Sampled,
        context: &mut RecordingContext<'_>,
    ) {
        let trace = trace.into();
        let at = events::EventSite { thread: constant, tid, trace, time_ns };
        let samples = match sampled {
            Sampled::Event(head, extra) => {
                return self.engines.write(context.recording, &at, &Event { head, extra: &[extra] });
            }
            Sampled::Cpu(samples) => samples,
        };
        if let Some(trace) = trace.filter(|_| samples.cpu > 0) {
            context.recording.sample(constant, trace, time_ns, samples.cpu);
        }
        let wall_ns = self.kinds.wall_ns.unwrap_or(0);
        for (state, count) in
            [(thread_state::RUNNABLE, samples.ran), (thread_state::WAITING_FOR_CPU, samples.queued)]
        {
            if count > 0 {
                let head = Head { kind: event_kind::WALL, index: state as u16, value: u64::from(count) };
                let extra = [u64::from(count).saturating_mul(wall_ns)];
                self.engines.write(context.recording, &at, &Event { head, extra: &extra });
            }
        }
    }

    fn walk(
        &mut self,
        regs: &Regs,
        copy: &[u8],
        kernel: &[u64],
        user: &[u64],
        anyway: bool,
        context: &mut RecordingContext<'_>,
    ) -> Option<Stack> {
        let copied = Copied { regs: Some(regs), copy, kernel, user };
        let wait = !anyway && self.waiting_bytes < WAITING_BYTES;
        self.stacks.walk(self.about.pid, &copied, wait, context.depth, context.images, context.rows)
    }

    /// Writes a sample whose stack is walked, or stores it until its symbols have been read.
    fn finish(&mut self, pending: Pending, anyway: bool, context: &mut RecordingContext<'_>) {
        let Wait::Names(stack) = &pending.wait else { return self.pending.push(pending) };
        let anyway = anyway || self.pending.len() >= WAITING_SAMPLES;
        let trace =
            self.stacks.trace(stack, anyway, self.recording, &mut context.recording.interner, context.images);
        let Some(trace) = trace else { return self.pending.push(pending) };
        if let (Some(reason), Some(watched)) = (stack.truncated, self.threads.get_mut(&pending.tid)) {
            watched.thread.stacks.add_truncated(reason);
        }
        self.write(pending.tid, pending.constant, trace, pending.time_ns, pending.sampled, context);
    }

    /// Retries samples that wait for files. `anyway`: writes them with the symbols available.
    pub fn resolve(&mut self, anyway: bool, context: &mut RecordingContext<'_>) {
        let pending = std::mem::take(&mut self.pending);
        self.waiting_bytes = 0;
        for mut one in pending {
            if let Wait::Rows { regs, stack, kernel, user } = &one.wait {
                match self.walk(regs, stack, kernel, user, anyway, context) {
                    Some(walked) => one.wait = Wait::Names(walked),
                    None => {
                        self.waiting_bytes += stack.len();
                        self.pending.push(one);
                        continue;
                    }
                }
            }
            self.finish(one, anyway, context);
        }
    }

    /// Checks whether it has written names of JIT-compiled code; for the last time when it is over.
    pub fn read_names(&mut self, images: &Images, now_ns: u64) -> bool {
        let pid = self.about.pid;
        if !self.over {
            return self.stacks.frames.jit.look(pid, &self.stacks.modules, images, now_ns);
        }
        if std::mem::replace(&mut self.named, true) {
            return false;
        }
        self.stacks.frames.jit.finish(pid, &self.stacks.modules, images);
        self.stacks.frames.jit.give_up();
        true
    }

    /// Returns the number of samples that wait for files.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Notes the end of a thread. Its last counts follow.
    pub fn ended(&mut self, tid: u32, time_ns: u64) {
        let pid = self.about.pid;
        if let Some(watched) = self.threads.get_mut(&tid) {
            watched.read_clock(pid);
            watched.ended_ns = Some(time_ns);
        }
    }

    /// Adds the final count of an event of a thread that ended.
    pub fn counted(&mut self, tid: u32, ring: usize, count_ns: u64) {
        if let Some(watched) = self.threads.get_mut(&tid) {
            watched.tail_ns += watched.counted(ring, count_ns);
        }
    }

    /// Closes the accounts of threads that ended before `before_ns`, and the process when it has no others.
    /// `cause`: the cause of loss for the CPU time after their last sample.
    pub fn settle(&mut self, before_ns: u64, sampling: PerProcessor, cause: usize) {
        if let Some(from_ns) = self.records_itself_ns.filter(|from| *from < before_ns) {
            self.leave(from_ns);
        }
        for watched in self.threads.values_mut() {
            if let Some(end_ns) = watched.ended_ns.filter(|end| *end < before_ns)
                && watched.thread.end_ns.is_none()
            {
                let periods = (sampling.period_ns, watched.due_ns(sampling));
                match self.kinds.samples_cpu_time() {
                    true => watched.thread.close_outside(watched.rest_ns(), end_ns, periods, cause),
                    false => watched.thread.end_ns = Some(end_ns.max(watched.thread.start_ns)),
                }
            }
        }
        if !self.threads.is_empty() && self.threads.values().all(|w| w.thread.end_ns.is_some()) {
            self.over = true;
        }
    }

    /// Notes that sampling was paused or resumed, so that the CPU time of the pause is lost with the right
    /// cause.
    pub fn paused(&mut self, paused: bool, period_ns: u64) {
        if let Some(waits) = &mut self.waits {
            waits.restart();
        }
        if !self.kinds.samples_cpu_time() {
            return;
        }
        let pid = self.about.pid;
        for watched in self.threads.values_mut().filter(|w| w.ended_ns.is_none()) {
            watched.read_clock(pid);
            let ledger = &mut watched.thread.ledger;
            let tail = ledger.tail_ns();
            if paused {
                watched.before_pause_ns = tail;
            } else {
                let lost = tail.saturating_sub(watched.before_pause_ns);
                ledger.lose(loss::STOPPED, lost / period_ns.max(1), lost);
            }
        }
    }

    /// Completes a process that now records itself: keeps the samples so far, and writes no ends or totals,
    /// which the process writes itself.
    fn leave(&mut self, from_ns: u64) {
        for watched in self.threads.values_mut() {
            let thread = &mut watched.thread;
            thread.end_ns.get_or_insert(from_ns);
            thread.reported.start = true;
            thread.reported.end = true;
            thread.ledger.cpu_ns = thread.ledger.sampled_ns.saturating_add(thread.ledger.lost_total_ns());
        }
        self.over = true;
    }

    /// Once a second: reads clocks and names, and finds threads whose end was not reported.
    pub fn look(&mut self, now_ns: u64, sampling: PerProcessor) {
        let pid = self.about.pid;
        for watched in self.threads.values_mut().filter(|w| w.ended_ns.is_none()) {
            match thread_name(pid, watched.thread.tid) {
                Some(name) => {
                    watched.thread.rename(name);
                    watched.read_clock_while_sampled(pid, watched.due_ns(sampling));
                }
                None => watched.ended_ns = Some(now_ns),
            }
        }
    }

    /// Reads the CPU clocks of its threads for the last time, because sampling stops.
    pub fn read_last_clocks(&mut self) {
        let pid = self.about.pid;
        for watched in self.threads.values_mut().filter(|w| w.ended_ns.is_none()) {
            watched.read_clock(pid);
            watched.clock_is_final = true;
        }
    }

    /// Closes all accounts at the end of the recording.
    pub fn close(&mut self, now_ns: u64, sampling: PerProcessor, cause: usize) {
        let pid = self.about.pid;
        for watched in self.threads.values_mut().filter(|w| w.ended_ns.is_none()) {
            watched.read_clock(pid);
            watched.ended_ns = Some(now_ns);
        }
        self.settle(u64::MAX, sampling, cause);
        self.over = true;
    }

    /// Writes starts, ends and changed totals of its threads.
    pub fn write_accounts(
        &mut self,
        recording: &mut Recording,
        threads: Option<&ThreadSelection>,
        now_ns: u64,
    ) {
        let complete = self.pending.is_empty();
        for watched in self.threads.values_mut() {
            watched.thread.selected_outside(threads);
            let constant = watched.thread.named_constant(self.group, recording);
            let accounts = self.kinds.samples_cpu_time();
            info_events::thread(recording, &mut watched.thread, constant, accounts, complete, now_ns);
        }
        self.engines.write_losses(recording, &[(0, 0); event_kind::KINDS], now_ns);
    }

    /// Returns the number of events other than CPU time, by kind: recorded, lost.
    pub fn counts(&self) -> [(u64, u64); event_kind::KINDS] {
        self.engines.counts()
    }

    /// Removes and returns the threads that have been written completely.
    pub fn take_complete_threads(&mut self) -> Vec<Thread> {
        let ended: Vec<u32> =
            self.threads.iter().filter(|(_, w)| w.thread.reported.end).map(|(tid, _)| *tid).collect();
        ended.iter().filter_map(|tid| self.threads.remove(tid)).map(|w| w.thread).collect()
    }

    /// Ends its groups, which get no more threads.
    pub fn end_groups(&self, recording: &mut Recording) {
        recording.end_group(self.group);
        self.titles.end(recording);
    }

    /// Returns the group of its threads.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Returns the images that its samples may reference.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.stacks.modules.images()
    }

    /// Returns its mappings.
    pub fn modules(&self) -> &ModuleMap {
        &self.stacks.modules
    }
}

/// Returns the stack for CPU time in the kernel that we may not see.
fn hidden_trace(recording: &mut Recording) -> TraceIndex {
    const HIDDEN: u64 = u64::MAX;
    let interner = &mut recording.interner;
    let origin = || Origin { class: "kernel".into(), ..Origin::default() };
    let method =
        interner.method(UNKNOWN, HIDDEN, || (origin(), "[kernel, not permitted to look]".to_owned()));
    let frame = interner.frame(Frame { method, line: 0, address: 0, kind: frame_type::KERNEL });
    interner.trace(&[1, frame])
}
