//! One process recorded from outside: its modules, its threads' accounts, its stacks.

use std::{collections::HashMap, sync::atomic::AtomicU64};

use flightline_in_signal::{
    interrupted::Regs,
    layout::{event_kind, loss, walk_end},
};
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

/// Bytes of copied stacks of one process that may wait for unwind rows being read.
const WAITING_BYTES: usize = 32 << 20;
/// Samples of one process that may wait for symbols being read.
const WAITING_SAMPLES: usize = 50_000;

/// What a sample still waits for.
enum Wait {
    /// Unwind rows: registers and stack to walk.
    Rows { regs: Box<Regs>, stack: Box<[u8]>, kernel: Box<[u64]>, user: Box<[u64]> },
    /// Names of these addresses.
    Names(Stack),
}

struct Pending {
    tid: u32,
    constant: usize,
    time_ns: u64,
    sampled: Sampled,
    wait: Wait,
}

/// The events that are written when a stack has its names.
#[derive(Clone, Copy)]
pub enum Sampled {
    /// CPU time.
    Cpu(CpuSamples),
    /// Another event, and its extra word.
    Event(Head, u64),
}

/// The events that a sample of CPU time becomes, by kind.
#[derive(Clone, Copy, Default)]
pub struct CpuSamples {
    /// `jdk.ExecutionSample`.
    cpu: u32,
    /// The wall clock's: the thread ran.
    ran: u32,
    /// The wall clock's: before, the thread was ready without a processor.
    queued: u32,
}

/// The kinds of samples that are recorded of a process.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Samples of CPU time are events of their own.
    pub cpu: bool,
    /// Interval of the wall clock, ns, if that is recorded.
    pub wall_ns: Option<u64>,
}

impl Kinds {
    /// Returns true if CPU time is sampled: for itself, or as the running part of wall-clock time.
    pub fn samples_cpu_time(self) -> bool {
        self.cpu || self.wall_ns.is_some()
    }

    /// The events that `events` periods of CPU time become.
    fn samples(self, thread: &mut Thread, events: u32, period_ns: u64) -> CpuSamples {
        let cpu_ns = u64::from(events).saturating_mul(period_ns);
        let wall = |wall_ns| thread.wall.running(thread.seed(), cpu_ns, wall_ns);
        let (ran, queued) = self.wall_ns.map_or((0, 0), wall);
        CpuSamples { cpu: if self.cpu { events } else { 0 }, ran, queued }
    }
}

/// What a process needs of the drain to take a sample in.
pub struct RecordingContext<'a> {
    /// Its output.
    pub recording: &'a mut Recording,
    /// Files.
    pub images: &'a mut Images,
    /// Unwind rows of all modules.
    pub rows: &'a [AtomicU64],
    /// Sampling period, ns.
    pub period_ns: u64,
    /// Frames kept.
    pub depth: usize,
    /// Which threads are recorded, if not all.
    pub threads: Option<&'a ThreadSelection>,
}

/// A process.
pub struct Target {
    /// Who it is.
    pub about: ProcessInfo,
    /// Its threads by id.
    pub threads: HashMap<u32, Watched>,
    /// Index of its recording.
    pub recording: RecordingId,
    /// Nothing comes from it any more.
    pub over: bool,
    /// It records itself from this CLOCK_MONOTONIC time on.
    pub records_itself_ns: Option<u64>,
    /// Records of before this CLOCK_MONOTONIC time come from events that it had earlier.
    pub since_ns: u64,
    kinds: Kinds,
    waits: Option<Box<Waits>>,
    engines: Engines,
    stacks: Stacks,
    group: u32,
    titles: Titles,
    /// The names it wrote last are read.
    named: bool,
    pending: Vec<Pending>,
    waiting_bytes: usize,
}

impl Target {
    /// A process that was found or has just begun.
    pub fn new(
        about: ProcessInfo,
        kinds: Kinds,
        recording_id: RecordingId,
        recording: &mut Recording,
    ) -> Target {
        let inside = id_inside(about.pid).map_or_else(String::new, |id| format!(", {id} in its namespace"));
        let group = recording.add_group(format!("{} ({}{inside})", about.called(), about.pid));
        // Its arguments at its start are not known.
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

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.about.pid
    }

    /// Takes over what a forked child has of its parent.
    pub fn inherit(&mut self, parent: &Target) {
        self.stacks.inherit(&parent.stacks);
    }

    /// Looks at what is mapped now.
    pub fn read_maps(&mut self, images: &mut Images) {
        self.stacks.read_maps(self.about.pid, images);
    }

    /// A mapping appeared.
    pub fn mapped(&mut self, mapped: &Mapped<'_>, images: &mut Images) {
        self.stacks.mapped(mapped, images);
    }

    /// The thread, known from now on if it was not.
    pub fn thread(&mut self, tid: u32, time_ns: u64, period_ns: u64) -> &mut Watched {
        let pid = self.about.pid;
        self.threads.entry(tid).or_insert_with(|| {
            let name = thread_name(pid, tid).unwrap_or_default();
            Watched::new(Thread::outside(tid, name, period_ns, time_ns), 0)
        })
    }

    /// Name of its first thread, which others are born with.
    pub fn first_thread_name(&self) -> String {
        self.threads.get(&self.about.pid).map(|w| w.thread.name().to_owned()).unwrap_or_default()
    }

    /// After exec: the account of the thread that goes on moves to the process's new image.
    pub fn hand_over(&mut self, to: &mut Target, name: &str, time_ns: u64) {
        let pid = self.about.pid;
        for watched in self.threads.values_mut().filter(|w| w.thread.tid != pid) {
            watched.ended_ns.get_or_insert(time_ns);
        }
        if let Some(mut watched) = self.threads.remove(&pid) {
            // Another program is another group in the output, even under the same name.
            watched.thread.leave_group();
            watched.thread.rename(name.to_owned());
            if let (Some(before), Some(after)) = (&mut self.waits, &mut to.waits) {
                after.take_over(pid, before);
            }
            to.threads.insert(pid, watched);
        }
    }

    /// A thread whose events are being opened: its account begins now.
    pub fn begin(&mut self, tid: u32, name: String, base_ns: u64, time_ns: u64, period_ns: u64) {
        let thread = Thread::outside(tid, name, period_ns, time_ns);
        self.threads.insert(tid, Watched::new(thread, base_ns));
    }

    /// A sample of ring `ring`; `missing` counts records that had no room before it.
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
            // An old kernel tells no counts: what is missing is put down to the thread that comes next.
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

    /// A sample of perf event `index` in ring `ring`, which comes every `period` events; `missing` counts records that had no room before
    /// it. Returns the events since the thread's last sample; `None` if the kernel does not report them.
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
        // An old kernel reports no counts: the sample represents a period, and records without room may be of anything.
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

    /// The constant of thread `tid` under the title that its process has at `time_ns`. `None` if the thread is unknown.
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

    /// Walks the stack of a sample, and writes the sample or puts it aside until rows and names are read.
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
            // In the kernel with the program's memory given up, or a program of 32 bits.
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

    /// Writes an event of thread `tid` whose stack is walked; without a stack if it is unknown.
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

    /// Walks the stack of a thread that sleeps, by its program counter and stack pointer.
    pub fn walk_asleep(
        &mut self,
        registers: (u64, u64),
        depth: usize,
        context: &mut RecordingContext<'_>,
    ) -> Stack {
        self.stacks.walk_asleep(self.about.pid, registers, depth, context.images, context.rows)
    }

    /// Lets the wall clock look at the threads. Returns true if the process ran since the last look.
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

    /// Writes a sample whose stack is walked, or keeps it until its names are read.
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

    /// Tries again what waits for files being read; `anyway`: with what is known.
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

    /// Looks whether it has written down names of code made at run time; for the last time when it is over.
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

    /// Samples that wait for files being read.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// A thread ended. Its last counts come after this.
    pub fn ended(&mut self, tid: u32, time_ns: u64) {
        let pid = self.about.pid;
        if let Some(watched) = self.threads.get_mut(&tid) {
            watched.read_clock(pid);
            watched.ended_ns = Some(time_ns);
        }
    }

    /// What an event of a thread that ended had counted.
    pub fn counted(&mut self, tid: u32, ring: usize, count_ns: u64) {
        if let Some(watched) = self.threads.get_mut(&tid) {
            watched.tail_ns += watched.counted(ring, count_ns);
        }
    }

    /// Closes the accounts of threads that ended before `before_ns`, and the process when it has no others. `cause`: why what
    /// they used last is in no sample.
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

    /// Sampling was switched off or on again: what threads used meanwhile has a cause.
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

    /// It records itself: what was sampled of it stays, everything else is told by itself.
    fn leave(&mut self, from_ns: u64) {
        for watched in self.threads.values_mut() {
            let thread = &mut watched.thread;
            thread.end_ns.get_or_insert(from_ns);
            thread.told.start = true;
            thread.told.end = true;
            thread.ledger.cpu_ns = thread.ledger.sampled_ns.saturating_add(thread.ledger.lost_total_ns());
        }
        self.over = true;
    }

    /// Once a second: clocks and names; threads of which no end was told.
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

    /// Reads the CPU clocks of its threads for the last time: sampling stops.
    pub fn read_last_clocks(&mut self) {
        let pid = self.about.pid;
        for watched in self.threads.values_mut().filter(|w| w.ended_ns.is_none()) {
            watched.read_clock(pid);
            watched.clock_is_final = true;
        }
    }

    /// The recording ends here for it.
    pub fn close(&mut self, now_ns: u64, sampling: PerProcessor, cause: usize) {
        let pid = self.about.pid;
        for watched in self.threads.values_mut().filter(|w| w.ended_ns.is_none()) {
            watched.read_clock(pid);
            watched.ended_ns = Some(now_ns);
        }
        self.settle(u64::MAX, sampling, cause);
        self.over = true;
    }

    /// Tells the news of its threads.
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

    /// Events other than CPU time so far, by kind: recorded, lost.
    pub fn counts(&self) -> [(u64, u64); event_kind::KINDS] {
        self.engines.counts()
    }

    /// Takes out the threads that are told to the end.
    pub fn take_complete_threads(&mut self) -> Vec<Thread> {
        let told: Vec<u32> =
            self.threads.iter().filter(|(_, w)| w.thread.told.end).map(|(tid, _)| *tid).collect();
        told.iter().filter_map(|tid| self.threads.remove(tid)).map(|w| w.thread).collect()
    }

    /// Ends its groups: no thread of it will be added.
    pub fn end_groups(&self, recording: &mut Recording) {
        recording.end_group(self.group);
        self.titles.end(recording);
    }

    /// The group of its threads.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// The images that its samples may name.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.stacks.modules.images()
    }

    /// What is mapped.
    pub fn modules(&self) -> &ModuleMap {
        &self.stacks.modules
    }
}

/// The stack of CPU time in the kernel that we may not look at.
fn hidden_trace(recording: &mut Recording) -> TraceIndex {
    const HIDDEN: u64 = u64::MAX;
    let interner = &mut recording.interner;
    let origin = || Origin { class: "kernel".into(), ..Origin::default() };
    let method =
        interner.method(UNKNOWN, HIDDEN, || (origin(), "[kernel, not permitted to look]".to_owned()));
    let frame = interner.frame(Frame { method, line: 0, address: 0, kind: frame_type::KERNEL });
    interner.trace(&[1, frame])
}
