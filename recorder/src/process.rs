//! A recorded process: its ring read, its stacks resolved, its threads' accounts kept.

use std::{collections::HashMap, sync::Arc};

use flightline_in_signal::{
    layout::{SampleRecord, loss, record, sample_flags},
    ring::Next,
};

use crate::{
    images::{ANONYMOUS, Images},
    intern::MethodIndex,
    modules::ModuleMap,
    proc_file::ProcFile,
    recording::Recording,
    sequences::Sequences,
    settings::PENDING_SAMPLES,
    threads::{ThreadIndex, Threads, WALK_ENDS},
};

/// Words of a sample before its addresses.
const FIXED: usize = size_of::<SampleRecord>() / 8;
/// Words of a remembered stack before its addresses: truncated or not, exact frames.
const STACK_HEAD: usize = 2;
/// Bytes of remembered raw stacks of one process before they are forgotten.
const STACK_BYTES: usize = 24 << 20;
/// Remembered addresses of one process before they are forgotten.
const MAX_FRAMES: usize = 1 << 20;
/// Shortest and longest time between two readings of `/proc/<pid>/maps` asked for by unknown addresses, ns.
const MAPS_WAIT_NS: [u64; 2] = [20_000_000, 5_000_000_000];

/// A sample whose stack waits for a module's symbols.
struct Pending {
    thread: ThreadIndex,
    stack: u32,
    time_ns: u64,
    events: u32,
}

/// Everything known of a recorded process.
pub struct Process {
    /// Its shared file.
    pub file: ProcFile,
    /// Its books.
    pub book: Book,
}

/// The drain's own memory of a process.
pub struct Book {
    /// What is mapped where.
    pub modules: ModuleMap,
    /// Its threads.
    pub threads: Threads,
    /// Index of its recording.
    pub recording: usize,
    /// Group of its threads in the recording.
    pub group: u32,
    stacks: Sequences<u64>,
    /// Trace index + 1 of each stack, 0 = not resolved yet.
    traces: Vec<u32>,
    frames: HashMap<u64, MethodIndex>,
    /// Versions for which `traces` and `frames` hold.
    versions: (u64, u32),
    pending: Vec<Pending>,
    words: Vec<u64>,
    sequence: Vec<u32>,
    /// The ring held something no producer writes: it is not read any more.
    pub damaged: bool,
    /// The process is gone.
    pub over: bool,
    /// Samples read.
    pub samples: u64,
    /// Samples whose stack did not reach its root.
    pub cut: u64,
    period_ns: u64,
    /// An address was in no known mapping.
    unknown: bool,
    unknown_seen: u64,
    maps_read_ns: u64,
    maps_wait_ns: u64,
    published: (u64, u64),
}

/// One sample as read from the ring; its addresses are in `Book::words`.
struct Sample {
    time_ns: u64,
    tid: u32,
    slot: u32,
    weight_ns: u64,
    reason: Option<u16>,
}

impl Process {
    /// A process that just showed up.
    pub fn new(file: ProcFile, recording: usize, group: u32, period_ns: u64) -> Process {
        let book = Book {
            modules: ModuleMap::default(),
            threads: Threads::default(),
            recording,
            group,
            stacks: Sequences::new(),
            traces: Vec::new(),
            frames: HashMap::new(),
            versions: (0, 0),
            pending: Vec::new(),
            words: Vec::new(),
            sequence: Vec::new(),
            damaged: false,
            over: false,
            samples: 0,
            cut: 0,
            period_ns,
            unknown: false,
            unknown_seen: 0,
            maps_read_ns: 0,
            maps_wait_ns: MAPS_WAIT_NS[0],
            published: (0, 0),
        };
        Process { file, book }
    }

    /// Reads the ring to its end, at most once around. Returns the share of it that was in use, in 1/256.
    pub fn drain(
        &mut self,
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
        stopped: bool,
    ) -> u32 {
        let Process { file, book } = self;
        book.threads.note_ended(file, book.period_ns);
        // Modules are logged before they are closed: samples of closed ones find their names.
        book.modules.read_log(file, images);
        book.check_versions(recording);
        let Some(ring) = file.ring() else { return 0 };
        let fill = (ring.used().saturating_mul(8 * 256) / file.ring_bytes().max(1)).min(256) as u32;
        // A producer that is faster than we are must not keep us here for ever: one ring full per round.
        let mut left = file.ring_bytes() / 8;
        while !book.damaged && left > 0 {
            match ring.next() {
                Next::Empty => break,
                Next::InFlight if !book.over => break,
                Next::InFlight => {
                    if !ring.skip_torn() {
                        break;
                    }
                }
                Next::Corrupt => book.damaged = true,
                Next::Ready { kind, payload, len } => {
                    let sample = (kind == record::SAMPLE).then(|| book.parse(payload)).flatten();
                    ring.release(len);
                    left = left.saturating_sub(len);
                    if let Some(sample) = sample {
                        book.take(file, &sample, recording, images, now_ns);
                    }
                }
            }
        }
        book.threads.settle_ended(file, file.tail(), book.period_ns, stopped);
        fill
    }

    /// Whether an ended process has told everything.
    pub fn settled(&self) -> bool {
        self.book.over && self.book.pending.is_empty()
    }

    /// Keeps the map of modules up to date, and the program's handlers informed.
    pub fn refresh_modules(&mut self, images: &mut Images, now_ns: u64) {
        let Process { file, book } = self;
        book.modules.read_log(file, images);
        if !book.over && file.trusted_pid() {
            let unknown = file.unknown_pcs();
            let asked = book.unknown || unknown != book.unknown_seen;
            let due = now_ns.saturating_sub(book.maps_read_ns) >= book.maps_wait_ns;
            let first = book.maps_read_ns == 0;
            if first || (asked && due) || file.take_maps_dirty() {
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
            book.publish(file, images);
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
        self.book.threads.close(&self.file, now_ns, self.book.period_ns, stopped);
    }

    /// Last reading of everything, when another image has taken the process over.
    pub fn close_image(&mut self, recording: &mut Recording, images: &mut Images, now_ns: u64) {
        self.book.over = true;
        self.book.modules.read_log(&self.file, images);
        self.drain_rest(recording, images, now_ns, true);
        let first = self.file.pid;
        self.book.threads.close_others(&self.file, first, now_ns, self.book.period_ns);
    }

    /// Tries again to resolve what waits for symbols; `anyway`: takes offsets where names are still missing.
    pub fn resolve_pending(&mut self, recording: &mut Recording, images: &mut Images, anyway: bool) {
        let Process { file, book } = self;
        book.check_versions(recording);
        let pending = std::mem::take(&mut book.pending);
        for sample in pending {
            match book.trace(sample.stack, recording, images, anyway) {
                Some(trace) => {
                    book.write(file, sample.thread, trace, sample.time_ns, sample.events, recording)
                }
                None => book.pending.push(sample),
            }
        }
    }
}

impl Book {
    /// Forgets resolved stacks if addresses or trace indices mean something else now.
    fn check_versions(&mut self, recording: &Recording) {
        let versions = (self.modules.version, recording.interner.generation);
        if versions != self.versions || self.frames.len() > MAX_FRAMES {
            self.versions = versions;
            self.frames.clear();
            self.traces.iter_mut().for_each(|t| *t = 0);
        }
        if self.stacks.bytes() > STACK_BYTES && self.pending.is_empty() {
            self.stacks.clear();
            self.traces.clear();
        }
    }

    /// Reads a sample record; its stack goes to `self.words`.
    #[inline]
    fn parse(&mut self, payload: &[std::sync::atomic::AtomicU64]) -> Option<Sample> {
        use std::sync::atomic::Ordering::Relaxed;
        let word = |i: usize| payload.get(i).map(|w| w.load(Relaxed));
        let (tid_slot, depth_flags) = (word(1)?, word(3)?);
        let addresses = payload.get(FIXED..)?;
        let depth = (depth_flags & 0xffff) as usize;
        let addresses = addresses.get(..depth)?;
        let flags = (depth_flags >> 16) as u16;
        let truncated = flags & sample_flags::TRUNCATED != 0;
        self.words.clear();
        self.words.push(u64::from(truncated));
        self.words.push(word(4)?);
        self.words.extend(addresses.iter().map(|a| a.load(Relaxed)));
        Some(Sample {
            time_ns: word(0)?,
            tid: tid_slot as u32,
            slot: (tid_slot >> 32) as u32,
            weight_ns: word(2)?,
            reason: truncated.then_some((flags >> sample_flags::REASON_SHIFT) & sample_flags::REASON_MASK),
        })
    }

    /// Books a sample and passes it on.
    fn take(
        &mut self,
        file: &ProcFile,
        sample: &Sample,
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
    ) {
        let index = self.threads.of_sample(file, sample.slot, sample.tid, sample.time_ns, self.period_ns);
        let Some(thread) = self.threads.list.get_mut(index) else { return };
        self.samples += 1;
        // No thread uses more CPU time than time goes by: damaged weights must not flood the output.
        let life = now_ns.saturating_sub(file.start_mono_ns).saturating_add(1_000_000_000);
        let weight = sample.weight_ns.min(life.saturating_sub(thread.ledger.arrived_ns));
        thread.ledger.arrived += 1;
        thread.ledger.arrived_ns += weight;
        let weight = thread.own_weight(weight, self.period_ns);
        if recording.full() {
            thread.ledger.lose(loss::OUTPUT_FULL, 1, weight);
            return;
        }
        let events = thread.ledger.sample(weight);
        if let Some(reason) = sample.reason {
            thread.cut[usize::from(reason).min(WALK_ENDS - 1)] += 1;
            self.cut += 1;
        }
        if events == 0 {
            return;
        }
        let (stack, new) = self.stacks.intern(&self.words);
        if new {
            self.traces.push(0);
        }
        let time_ns = sample.time_ns.min(now_ns);
        let anyway = self.pending.len() >= PENDING_SAMPLES;
        match self.trace(stack, recording, images, anyway) {
            Some(trace) => self.write(file, index, trace, time_ns, events, recording),
            None => self.pending.push(Pending { thread: index, stack, time_ns, events }),
        }
    }

    #[inline]
    fn write(
        &mut self,
        file: &ProcFile,
        thread: ThreadIndex,
        trace: u32,
        time_ns: u64,
        events: u32,
        recording: &mut Recording,
    ) {
        let Some(thread) = self.threads.list.get_mut(thread) else { return };
        let constant = thread.constant(file, self.group, recording);
        recording.sample(constant, trace, time_ns, events);
    }

    /// The trace of a raw stack; `None` while symbols are being read.
    #[inline]
    fn trace(
        &mut self,
        stack: u32,
        recording: &mut Recording,
        images: &mut Images,
        anyway: bool,
    ) -> Option<u32> {
        match self.traces.get(stack as usize) {
            Some(&known) if known != 0 => Some(known - 1),
            _ => self.resolve(stack, recording, images, anyway),
        }
    }

    #[cold]
    fn resolve(
        &mut self,
        stack: u32,
        recording: &mut Recording,
        images: &mut Images,
        anyway: bool,
    ) -> Option<u32> {
        let mut sequence = std::mem::take(&mut self.sequence);
        sequence.clear();
        let raw = self.stacks.get(stack);
        let (&truncated, &exact) = (raw.first()?, raw.get(1)?);
        sequence.push(u32::from(truncated != 0));
        let (mut complete, mut lasting) = (true, true);
        for (i, &address) in raw.get(STACK_HEAD..).unwrap_or(&[]).iter().enumerate() {
            let is_exact = i == 0 || (i < 64 && exact >> i & 1 == 1);
            // A return address may already belong to the next function.
            let address = if is_exact { address } else { address.wrapping_sub(1) };
            if let Some(&method) = self.frames.get(&address) {
                sequence.push(method);
                continue;
            }
            let (method, remember) = method_of(address, &self.modules, recording, images, anyway);
            complete &= method.is_some();
            self.unknown |= !self.modules.holds(address);
            lasting &= remember;
            if let Some(method) = method {
                if remember {
                    self.frames.insert(address, method);
                }
                sequence.push(method);
            }
        }
        let trace = complete.then(|| recording.interner.trace(&sequence));
        self.sequence = sequence;
        if let (Some(trace), Some(known), true) = (trace, self.traces.get_mut(stack as usize), lasting) {
            *known = trace + 1;
        }
        trace
    }

    /// Gives the program's handlers a new table if there is something new to say.
    fn publish(&mut self, file: &ProcFile, images: &Images) {
        let rows: u64 =
            self.modules.current().iter().filter(|m| images.get(m.image).rows_off != 0).count() as u64;
        let state = (self.modules.version, rows);
        if state == self.published || self.modules.current().is_empty() {
            return;
        }
        let seq = file.dlclose_seq();
        if file.publish(&self.modules.table(images), seq) {
            self.published = state;
        } else {
            // A dlclose was running: what we know is out of date.
            self.maps_read_ns = 0;
        }
    }

    /// Samples waiting for symbols.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }
}

/// The method of a code address, and whether that answer may be remembered.
fn method_of(
    address: u64,
    modules: &ModuleMap,
    recording: &mut Recording,
    images: &mut Images,
    anyway: bool,
) -> (Option<MethodIndex>, bool) {
    let Some(mapping) = modules.find(address) else {
        let unknown = || (Arc::from("unknown"), "[unknown]".to_owned());
        return (Some(recording.interner.method(u32::MAX, 0, unknown)), false);
    };
    let id = mapping.image;
    if id == ANONYMOUS {
        // Code made at run time has neither names nor lasting addresses.
        let method = recording.interner.method(id, 0, || (images.get(id).class.clone(), "[anon]".to_owned()));
        return (Some(method), true);
    }
    let known = images.want(id);
    if !known && !anyway {
        return (None, false);
    }
    let file_address = address.wrapping_sub(mapping.bias);
    let image = images.get(id);
    let function = image.symbols.find(file_address);
    let describe = || {
        let name = image.symbols.name(function).map(|n| n.text);
        (image.class.clone(), name.unwrap_or_else(|| format!("{}+0x{:x}", image.class, function.start)))
    };
    (Some(recording.interner.method(id, function.start, describe)), known)
}
