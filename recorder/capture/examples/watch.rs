//! A drain that writes no recording: creates a session, runs a program with the preload object, and prints a
//! summary of the records in the rings. For tests of the program's side alone.
//!
//! `watch LIBFLIGHTLINE.SO RATE ENGINE PROGRAM [ARGUMENTS…]` where ENGINE is one of auto, perf, perf-user,
//! timer. Prints one line per process on stderr and exits with the program's status.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use flightline_in_signal::layout::*;
use flightline_in_signal::os::clock;
use flightline_in_signal::ring::{Next, Ring};

struct Process {
    parts: ProcParts<'static>,
    samples: u64,
    rooted: u64,
    weight: u64,
    rooted_weight: u64,
    deepest: usize,
    reasons: [u64; 8],
    max_weight: u64,
    corrupt: bool,
}

fn map(path: &Path, bytes: usize) -> *mut u8 {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("session file");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: a new shared mapping of a file that has these bytes.
    let at = unsafe {
        libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

impl Process {
    fn open(path: &Path) -> Process {
        let bytes = std::fs::metadata(path).expect("process file").len() as usize;
        let base = map(path, bytes);
        assert!(bytes >= size_of::<ProcHeader>());
        // SAFETY: a page-aligned mapping that is never removed and has a header, which consists of atomics.
        let Identity { thread_slots, ring_bytes, .. } =
            unsafe { &*base.cast::<ProcHeader>() }.identity.load();
        let layout = ProcLayout::new(thread_slots, ring_bytes);
        assert!(bytes as u64 >= layout.end, "sizes of the parts");
        Process {
            // SAFETY: the mapping is never removed, and all parts lie inside it.
            parts: unsafe { ProcParts::new(base, &layout) },
            samples: 0,
            rooted: 0,
            weight: 0,
            rooted_weight: 0,
            deepest: 0,
            reasons: [0; 8],
            max_weight: 0,
            corrupt: false,
        }
    }

    fn header(&self) -> &'static ProcHeader {
        self.parts.header
    }

    fn drain(&mut self) {
        let ring = Ring::new(&self.header().ring, self.parts.ring).expect("ring size");
        loop {
            match ring.next() {
                Next::Ready { payload, len, .. } => {
                    let word = |i: usize| payload.get(i).map_or(0, |w| w.load(Relaxed));
                    let (weight, packed) = (word(2), word(3));
                    let (depth, flags) = (packed as u16, (packed >> 16) as u16);
                    assert_eq!(payload.len(), 5 + usize::from(depth), "length of a sample");
                    self.samples += 1;
                    self.weight += weight;
                    self.max_weight = self.max_weight.max(weight);
                    self.deepest = self.deepest.max(usize::from(depth));
                    let reason = usize::from(flags >> sample_flags::REASON_SHIFT);
                    self.reasons[reason.min(7)] += 1;
                    if flags & sample_flags::TRUNCATED == 0 {
                        self.rooted += 1;
                        self.rooted_weight += weight;
                    }
                    ring.release(len);
                }
                Next::Corrupt => {
                    self.corrupt = true;
                    return;
                }
                _ => return,
            }
        }
    }

    fn report(&self) {
        let header = self.header();
        let identity = header.identity.load();
        let [at, len] = identity.exe.map(|word| word as usize);
        let exe: Vec<u8> =
            self.parts.strings.iter().skip(at).take(len).map(|byte| byte.load(Relaxed)).collect();
        let exe = String::from_utf8_lossy(&exe);
        let used = |s: &&ThreadSlot| s.state.load(Relaxed) & slot_state::MASK != slot_state::FREE;
        let mut lost = [0u64; loss::CAUSES];
        let (mut threads, mut cpu, mut sampled) = (0, 0, 0);
        for slot in self.parts.slots.iter().take_while(|s| s.state.load(Relaxed) != 0).filter(used) {
            threads += 1;
            let last = slot.ledger.last_cpu_ns.load(Relaxed);
            let end = slot.ledger.end_cpu_ns.load(Relaxed).max(last);
            cpu += end - slot.ledger.armed_cpu_ns.load(Relaxed);
            sampled += slot.ledger.sampled_ns.load(Relaxed);
            for (sum, ns) in lost.iter_mut().zip(&slot.ledger.lost_ns) {
                *sum += ns.load(Relaxed);
            }
        }
        let lost: Vec<_> = lost
            .iter()
            .zip(loss::NAMES)
            .filter(|(ns, _)| **ns > 0)
            .map(|(ns, n)| format!("{n} {ns}"))
            .collect();
        eprintln!(
            "watch: pid {} {exe} engine {} errno {} threads {threads} no_slot {} samples {} rooted {} deepest {} weight_ms {:.3} rooted_ms {:.3} slots_ms {:.3} cpu_ms {:.3} max_weight_ms {:.3} modules {} state {} unknown {} notices {} reason {} ends {:?} lost [{}]{}",
            identity.pid,
            header.engine.kind.load(Relaxed),
            header.engine.errno.load(Relaxed),
            header.counters.no_slot.load(Relaxed),
            self.samples,
            self.rooted,
            self.deepest,
            self.weight as f64 / 1e6,
            self.rooted_weight as f64 / 1e6,
            sampled as f64 / 1e6,
            cpu as f64 / 1e6,
            self.max_weight as f64 / 1e6,
            header.modules.init_modules.load(Relaxed),
            header.state.load(Relaxed),
            header.modules.unknown_pcs.load(Relaxed),
            header.notice.seq.load(Relaxed),
            header.notice.words[2].load(Relaxed),
            self.reasons,
            lost.join(", "),
            if self.corrupt { " CORRUPT" } else { "" },
        );
    }
}

fn make_session(rate: u64, engine: u32) -> PathBuf {
    let name = format!("flightline-watch-{}-{}", std::process::id(), clock::monotonic_ns());
    let dir = Path::new("/dev/shm").join(name);
    std::fs::DirBuilder::new().mode(0o700).create(&dir).expect("session directory");
    for (name, bytes) in [(SESSION_FILE, SESSION_BYTES as u64), (ROWS_FILE, 1 << 20)] {
        std::fs::File::create(dir.join(name)).and_then(|f| f.set_len(bytes)).expect("session file");
    }
    let page = map(&dir.join(SESSION_FILE), SESSION_BYTES).cast::<SessionPage>();
    // SAFETY: a page-aligned mapping that is long enough and never removed; the page consists of atomics.
    let page = unsafe { &*page };
    page.fixed.store(FixedSettings {
        ring_bytes: (rate * 2048).next_power_of_two().clamp(128 << 10, 4 << 20),
        rows_bytes: 1 << 20,
        start_mono_ns: clock::monotonic_ns(),
        seed: clock::monotonic_ns(),
        most_processes: u64::MAX,
        engine,
        max_depth: 1024,
        thread_slots: 1024,
        flags: session_flags::FOLLOW,
        trace_count: 0,
        pad: 0,
        traces: Default::default(),
    });
    page.live.period_ns.store(1_000_000_000 / rate, Relaxed);
    page.live.engines.store(flightline_in_signal::layout::engines::CPU, Relaxed);
    page.drain_pid.store(std::process::id(), Relaxed);
    page.format.store(Format { magic: MAGIC, sizes: SIZES });
    dir
}

fn main() {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [library, rate, engine, program, arguments @ ..] = args.as_slice() else {
        eprintln!("usage: watch LIBFLIGHTLINE.SO RATE ENGINE PROGRAM [ARGUMENTS…]");
        std::process::exit(2);
    };
    let engine = match engine.to_str() {
        Some("perf") => engine::PERF,
        Some("perf-user") => engine::PERF_USER,
        Some("timer") => engine::TIMER,
        _ => engine::AUTO,
    };
    let rate = rate.to_str().and_then(|r| r.parse().ok()).filter(|r| *r > 0).unwrap_or(99);
    let dir = make_session(rate, engine);
    let mut command = Command::new(program);
    command.args(arguments).env(SESSION_ENV, &dir).env("LD_PRELOAD", library);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("watch: {error}");
            std::process::exit(127);
        }
    };
    let mut processes: HashMap<PathBuf, Process> = HashMap::new();
    let mut status = None;
    loop {
        for entry in std::fs::read_dir(&dir).expect("session directory").flatten() {
            let path = entry.path();
            let complete = path.extension().is_some_and(|e| e == "proc");
            if complete && !processes.contains_key(&path) {
                let process = Process::open(&path);
                assert_eq!(process.header().magic.load(Acquire), MAGIC);
                processes.insert(path, process);
            }
        }
        for process in processes.values_mut() {
            process.drain();
        }
        if status.is_some() {
            break;
        }
        status = child.try_wait().expect("wait");
        if status.is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let mut all: Vec<_> = processes.into_values().collect();
    all.sort_by_key(|p| p.header().identity.load().start_mono_ns);
    let quiet = all.len() > 40;
    let total: u64 = all.iter().map(|p| p.samples).sum();
    for process in all.iter().filter(|p| !quiet || p.corrupt) {
        process.report();
    }
    eprintln!("watch: {} processes, {total} samples", all.len());
    let left = std::fs::read_dir(&dir)
        .map_or(0, |d| d.flatten().filter(|e| e.path().extension().is_some_and(|e| e == "tmp")).count());
    if left > 0 {
        eprintln!("watch: {left} unfinished process files");
    }
    let _ = std::fs::remove_dir_all(&dir);
    let status = status.expect("the program ended");
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
}
