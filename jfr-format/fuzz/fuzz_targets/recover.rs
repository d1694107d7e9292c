//! The files of a killed recorder: its page, a journal, a process file with slots, modules, names and a ring,
//! the map and its description, all made from the input, damaged or not. A recovery ends, the existing
//! contents of the recording are retained, and the added contents can be read.
#![no_main]
#![allow(unsafe_code)]

use std::fs;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flightline_in_signal::layout::{
    FixedSettings, Format, Identity, InitModule, MAGIC, PROC_SUFFIX, ProcHeader, ProcLayout, ProcParts,
    SESSION_BYTES, SESSION_FILE, SIZES, SessionPage, ThreadSlot,
};
use flightline_in_signal::ring::Ring;
use flightline_recorder::journal::{Journal, reported_counters};
use flightline_recorder::recover;
use jfr_format::read::{Decoder, Delivery, Item};
use libfuzzer_sys::fuzz_target;

/// A recording in its state when its recorder was killed.
const RECORDED: &[u8] = include_bytes!("../../../fixtures/cases/02_defs_after.jfr");
/// A process id that no process has.
const PID: u32 = (1 << 22) + 7;
const SLOTS: u32 = 4;
const RING_BYTES: u64 = 64 << 10;
const KEY: u64 = (PID as u64) << 32;
/// Number of samples with more than 10 s of CPU time: each becomes many events.
const HEAVY: usize = 4;

fuzz_target!(|input: &[u8]| {
    let mut from = From(input, HEAVY);
    let folder = folder();
    let session = folder.join("session");
    let _ = fs::remove_dir_all(&session);
    fs::create_dir_all(&session).expect("a folder in memory");
    let output = folder.join("recorded.jfr");
    fs::write(&output, RECORDED).expect("a file in memory");
    let mut page = page(&mut from);
    let damages = make(&session, &output, &mut from);
    if from.byte() == 0 {
        // 10 µs to 18 minutes: not damage, but any setting that can be requested.
        let period = 10_000u64 << (from.byte() % 24);
        put(&mut page, offset_of!(SessionPage, live.event_ns), period);
        put(&mut page, offset_of!(SessionPage, live.aggregate_ns), from.word());
    }
    fs::write(session.join(SESSION_FILE), page).expect("a file in memory");
    for (file, at, word) in damages {
        damage(&session, file, at, word);
    }
    let recovered = recover::recover(&session);
    let after = fs::read(&output).expect("it is never removed");
    let header = jfr_format::header::LEN;
    assert_eq!(after[header..RECORDED.len()], RECORDED[header..], "what was recorded has changed");
    if recovered.is_ok_and(|done| done.problems.is_empty()) {
        assert!(!session.exists());
        let mut decoder = Decoder::new(Delivery::Streaming);
        decoder.push(Bytes::from(after));
        decoder.close();
        while let Some(item) = decoder.next() {
            if let Item::Warning(warning) = item {
                panic!("{warning}");
            }
        }
    }
});

/// In memory; one directory for each process.
fn folder() -> PathBuf {
    PathBuf::from(format!("/dev/shm/recover-fuzz-{}", std::process::id()))
}

/// Takes numbers from the input, zeros at its end; with the number of heavy samples still allowed.
struct From<'a>(&'a [u8], usize);

impl From<'_> {
    fn bytes(&mut self, n: usize) -> &[u8] {
        let (now, later) = self.0.split_at(n.min(self.0.len()));
        self.0 = later;
        now
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Small numbers, present times, large numbers, or any number.
    fn word(&mut self) -> u64 {
        let kind = self.byte();
        match kind % 6 {
            0 => u64::from(kind / 6),
            1 => u64::from(self.byte()) << 20,
            2 => now_ns() - (u64::from(self.byte()) << 20),
            3 => self.address(),
            4 => [u64::MAX, 1 << 63, 1 << 32, u64::from(u32::MAX)][usize::from(kind / 6) % 4],
            _ => {
                let mut word = [0; 8];
                let bytes = self.bytes(8);
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(word)
            }
        }
    }

    /// An address in or near the mapped modules.
    fn address(&mut self) -> u64 {
        let byte = self.byte();
        // No address of a file with symbols: a separate thread reads these, and is delayed on a busy machine.
        let base = [0x40_0000, 0x7f00_0000_0000, 0x7f00_0010_0000, 0][usize::from(byte) % 4];
        base + (u64::from(byte) << 8)
    }

    /// Words of a record: time, thread and slot, weight, depth and flags, exact frames, and the following
    /// words.
    fn record(&mut self) -> (u8, Vec<AtomicU64>) {
        let kind = [2, 3, 3, self.byte()][usize::from(self.byte()) % 4];
        let mut words: Vec<u64> = (0..self.byte() % 40).map(|_| self.word()).collect();
        if let [time, thread, weight, flags, ..] = &mut words[..] {
            if self.byte() % 4 > 0 {
                *time = now_ns() - (*time & 0xfff_ffff);
                *thread = u64::from(PID) | (*thread % u64::from(SLOTS + 1)) << 32;
                *flags &= !0xffe0;
            }
            if *weight > 10_000_000_000 && kind != 3 {
                self.1 = self.1.saturating_sub(1);
                *weight = if self.1 == 0 { 10_000_000 } else { *weight };
            }
        }
        if let (3, Some(word)) = (kind, words.get_mut(5)) {
            // Kind, index, and the number of additional words.
            *word = *word % 16 | (*word >> 8) % 16 << 16 | (*word >> 16) % 20 << 32;
        }
        (kind, words.into_iter().map(AtomicU64::new).collect())
    }
}

fn now_ns() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    *START.get_or_init(|| {
        let uptime = fs::read_to_string("/proc/uptime").expect("/proc");
        let seconds: f64 = uptime.split(' ').next().and_then(|s| s.parse().ok()).expect("seconds");
        (seconds * 1e9) as u64
    })
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn page(from: &mut From<'_>) -> Vec<u8> {
    let mut page = vec![0; SESSION_BYTES];
    put(&mut page, offset_of!(SessionPage, format) + offset_of!(Format, magic), MAGIC);
    for (i, size) in SIZES.iter().enumerate() {
        let at = offset_of!(SessionPage, format) + offset_of!(Format, sizes) + 4 * i;
        page[at..at + 4].copy_from_slice(&size.to_le_bytes());
    }
    put(&mut page, offset_of!(SessionPage, live.period_ns), 10_000_000);
    put(&mut page, offset_of!(SessionPage, live.event_ns), 10_000_000);
    put(&mut page, offset_of!(SessionPage, fixed) + offset_of!(FixedSettings, start_mono_ns), now_ns());
    if from.byte() % 8 == 1 {
        put(&mut page, offset_of!(SessionPage, live.aggregate_ns), 1_000_000_000);
    }
    page
}

/// Creates the session's files in the same way as the drain and the program. Returns the damage to apply to
/// them.
fn make(session: &Path, output: &Path, from: &mut From<'_>) -> Vec<(u8, u64, u64)> {
    let mut header = [0; jfr_format::header::LEN];
    header.copy_from_slice(&RECORDED[..jfr_format::header::LEN]);
    let mut journal =
        Journal::create(session, 1, u32::from(from.byte() & 1) * PID, now_ns()).expect("a journal");
    journal.commit(output, 0, RECORDED.len() as u64, &header);
    let mut process = Process::new();
    let mut counters = reported_counters::ReportedCounters::default();
    let (mut place, mut damages, mut names) = (0, Vec::new(), 0);
    let named = |end: &str| session.join(format!("{PID}-0{end}"));
    while !from.0.is_empty() && damages.len() < 64 {
        match from.byte() % 12 {
            // Records that the drain had taken, queued or not; of this process or of one that does not exist.
            0..3 => {
                let (kind, words) = from.record();
                let key = if from.byte() % 8 == 0 { from.word() } else { KEY };
                let entry = journal.append(key, place, kind, &words);
                place += words.len() as u64 + 1;
                if let Some(entry) = entry.filter(|_| from.byte() % 2 == 0) {
                    journal.queued(entry);
                }
            }
            3 => journal.commit(output, 0, RECORDED.len() as u64, &header),
            4 => journal.give_up(),
            // Records that it had not taken, or that were being written.
            5..8 => {
                let (kind, words) = from.record();
                process.record(kind, &words, from.byte() % 16 > 0);
            }
            8 => process.slot(from),
            9 => process.module(from, &mut names),
            10 => {
                let batches = journal.batches();
                let counts = std::array::from_fn(|_| if from.0.is_empty() { 1 } else { from.word() });
                let whose = match from.byte() % 2 {
                    0 => reported_counters::CounterOwner::Process,
                    _ => reported_counters::CounterOwner::Thread(
                        u32::from(from.byte()),
                        u32::from(from.byte()) << 8,
                    ),
                };
                counters.keep(&named(".told"), batches, whose, &counts);
            }
            _ => damages.push((from.byte(), from.word(), from.word())),
        }
    }
    if from.byte() % 4 == 0 {
        let text = "400000-500000 r-xp 00000000 fe:00 77 /nowhere/program\n7f0000000000-7f0000100000 r-xp 00000000 00:00 0\n";
        fs::write(named(".maps"), text).expect("a file in memory");
    }
    fs::write(named(PROC_SUFFIX), process.bytes()).expect("a file in memory");
    damages
}

/// Changes a word of one of the files, or its length.
fn damage(session: &Path, file: u8, at: u64, word: u64) {
    let mut files: Vec<PathBuf> =
        fs::read_dir(session).expect("it is there").flatten().map(|e| e.path()).collect();
    files.sort();
    let path = &files[usize::from(file / 2) % files.len()];
    let file_bytes = fs::metadata(path).expect("it is there").len();
    let used = if at % 3 == 0 { file_bytes } else { file_bytes.min(8192) };
    let at = at % used.max(1);
    let options = fs::OpenOptions::new().write(true).open(path).expect("it is there");
    if file % 16 == 1 {
        options.set_len(at).expect("a file in memory");
    } else {
        use std::os::unix::fs::FileExt;
        options.write_all_at(&word.to_le_bytes(), at & !7).expect("a file in memory");
    }
}

/// A page, aligned as if mapped.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// A process file.
struct Process {
    pages: Vec<Page>,
    layout: ProcLayout,
}

impl Process {
    fn new() -> Process {
        let layout = ProcLayout::new(SLOTS, RING_BYTES);
        let mut process = Process { pages: vec![Page([0; 4096]); layout.end as usize / 4096], layout };
        let header = process.parts().header;
        header.identity.store(Identity {
            pid: PID,
            start_mono_ns: now_ns(),
            thread_slots: SLOTS,
            ring_bytes: RING_BYTES,
            ..Identity::default()
        });
        header.magic.store(MAGIC, Ordering::Release);
        process
    }

    fn parts(&mut self) -> ProcParts<'_> {
        // SAFETY: the pages are as long as the layout, and borrowed exclusively for as long as the parts live.
        unsafe { ProcParts::new(self.bytes().as_mut_ptr(), &self.layout) }
    }

    fn record(&mut self, kind: u8, words: &[AtomicU64], whole: bool) {
        let parts = self.parts();
        let ring = Ring::new(&parts.header.ring, parts.ring).expect("a power of two");
        if let Ok(claim) = ring.claim(kind, words.len()) {
            claim
                .words
                .iter()
                .zip(words)
                .for_each(|(to, word)| to.store(word.load(Ordering::Relaxed), Ordering::Relaxed));
            if whole {
                claim.publish();
            }
        }
    }

    fn slot(&mut self, from: &mut From<'_>) {
        let number = u32::from(from.byte()) % SLOTS;
        let at = self.layout.threads as usize + number as usize * size_of::<ThreadSlot>();
        let state = u64::from(from.byte() % 5) | u64::from(from.byte() % 3) << 8;
        put(self.bytes(), at, state | u64::from(PID + number) << 32);
        for _ in 0..from.byte() % 8 {
            let word = 1 + usize::from(from.byte()) % (size_of::<ThreadSlot>() / 8 - 1);
            put(self.bytes(), at + 8 * word, from.word());
        }
    }

    fn module(&mut self, from: &mut From<'_>, names: &mut u64) {
        let count_at = offset_of!(ProcHeader, modules.init_modules);
        let layout = self.layout;
        let bytes = self.bytes();
        let number = usize::from(bytes[count_at]);
        let (at, strings) =
            (layout.init_modules as usize + number * size_of::<InitModule>(), layout.strings as usize);
        let start = from.address() & !0xfff;
        let name: &[u8] = [&b"/nowhere/library.so"[..], b"/nowhere/program", b"relative", b""]
            [usize::from(from.byte()) % 4];
        let fields = [
            start,
            start + (u64::from(from.byte()) << 12),
            start,
            from.address(),
            from.address(),
            from.address(),
        ];
        for (i, field) in fields.into_iter().enumerate() {
            put(bytes, at + 8 * i, field);
        }
        let place = *names as usize % 4096;
        put(bytes, at + 48, place as u64 | (name.len() as u64) << 32);
        put(bytes, at + 56, from.word());
        bytes[strings + place..strings + place + name.len()].copy_from_slice(name);
        *names += 32;
        bytes[count_at] = (number as u8).saturating_add(1);
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the pages are consecutive bytes.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.pages.as_mut_ptr().cast(),
                self.pages.len() * size_of::<Page>(),
            )
        }
    }
}
