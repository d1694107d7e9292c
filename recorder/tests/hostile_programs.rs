//! A program may write anything to its shared file at any time: the drain loses that program's samples and
//! nothing else.

use crate::fake_program;

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::Ordering,
        mpsc::{self, Sender},
    },
};

use flightline_in_signal::layout::{ProcHeader, ProcLayout, ThreadSlot, loss, record, sample_flags};
use flightline_recorder::{Drain, Report, Settings, Target};

use fake_program::{Fake, RING, SLOTS};

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.cpu.period = std::time::Duration::from_millis(1);
    settings
}

fn drain(dir: &Path) -> Drain {
    Drain::start(settings(), Target::Path(dir.join("x.jfr"))).unwrap()
}

fn end(drain: Drain) -> Report {
    drain.finish(&|| false)
}

/// Threads of this process that sleep until dropped.
struct Parked {
    tids: Vec<u32>,
    _until_dropped: Sender<()>,
}

impl Parked {
    fn new(count: usize) -> Parked {
        let (sender, tids) = mpsc::channel();
        let (until_dropped, dropped) = mpsc::channel::<()>();
        let dropped = Arc::new(Mutex::new(dropped));
        for _ in 0..count {
            let (sender, dropped) = (sender.clone(), Arc::clone(&dropped));
            std::thread::spawn(move || {
                sender.send(nix::unistd::gettid().as_raw() as u32).unwrap();
                let _ = dropped.lock().unwrap().recv();
            });
        }
        Parked { tids: tids.iter().take(count).collect(), _until_dropped: until_dropped }
    }
}

/// Returns the PID of a process that has ended, whose files are closed immediately.
fn dead_pid() -> u32 {
    let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    pid
}

#[test]
fn valid_program_ledger_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut drain = drain(dir.path());
    let fake = Fake::new(drain.session_dir(), std::process::id(), 1);
    let mut taken = 0;
    // Existing threads: the drain looks for its threads every second, and would end the accounting of missing
    // ones.
    let parked = Parked::new(4);
    for (slot, tid) in (0..).zip(&parked.tids) {
        fake.start_thread(slot, *tid, 1_000_000);
    }
    for i in 0..20_000u64 {
        let frames: Vec<u64> = (0..20 + i % 30).map(|f| 0x1000 + f * 8).collect();
        taken += u64::from(fake.sample((i % 4) as u32, 50_000, &frames, 0));
        if i % 200 == 0 {
            drain.round();
        }
    }
    (0..4).for_each(|t| fake.end_thread(t, 700));
    drain.round();
    let report = end(drain);
    assert!(taken > 15_000, "{taken}");
    assert_eq!(report.cpu.samples, taken);
    assert_eq!(report.cpu.sampled_ns, taken * 50_000);
    assert_eq!(report.cpu.lost[loss::RING_FULL], (20_000 - taken, (20_000 - taken) * 50_000));
    // armed_cpu_ns of 1 and tails of 700 ns each.
    assert_eq!(report.cpu.cpu_ns, 20_000 * 50_000 + 4 * 701);
    let expected = report.cpu.sampled_ns / 1_000_000;
    assert!(
        report.output.events.abs_diff(expected) <= 4,
        "{} events, {expected} expected",
        report.output.events
    );
    assert_eq!((report.threads, report.stacks.cut), (4, 0));
}

#[test]
fn killed_program_records_are_read_and_torn_one_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut drain = drain(dir.path());
    let fake = Fake::new(drain.session_dir(), dead_pid(), 1);
    fake.start_thread(0, 77, 1_000_000);
    fake.sample(0, 1_000_000, &[1, 2, 3], sample_flags::TRUNCATED);
    // Claimed and counted but never published: the program was killed between these steps.
    let torn = fake.ring().claim(record::SAMPLE, 10).unwrap();
    fake.slot(0).ledger.samples.fetch_add(1, Ordering::Relaxed);
    fake.slot(0).ledger.sampled_ns.fetch_add(1_000_000, Ordering::Relaxed);
    let _ = torn;
    fake.sample(0, 1_000_000, &[1, 2, 3], 0);
    for _ in 0..3 {
        drain.round();
    }
    assert!(!fake.path.exists(), "its memory is given back");
    let report = end(drain);
    assert_eq!((report.cpu.samples, report.output.events, report.stacks.cut), (2, 2, 1));
    assert_eq!(report.cpu.lost[loss::TORN], (1, 1_000_000));
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 ^ self.0 >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Overwrites random positions of the file with random or malicious words while sampling continues.
#[test]
fn overwritten_shared_memory_affects_only_its_own_program() {
    for seed in 1..=30u64 {
        let dir = tempfile::tempdir().unwrap();
        let mut drain = drain(dir.path());
        let bad = Fake::new(drain.session_dir(), std::process::id(), 1);
        let good = Fake::new(drain.session_dir(), living_pid(), 2);
        bad.start_thread(0, 5, 1_000_000);
        good.start_thread(0, 6, 1_000_000);
        let mut random = Random(seed);
        let mut taken = 0;
        let file = OpenOptions::new().write(true).open(&bad.path).unwrap();
        drain.round();
        for _ in 0..300 {
            bad.sample(0, 1_000_000, &[9; 40], 0);
            taken += u64::from(good.sample(0, 1_000_000, &[9; 40], 0));
            for _ in 0..random.below(8) {
                scribble(&file, &bad.layout, &mut random);
            }
            drain.round();
        }
        let report = end(drain);
        assert!(
            report.cpu.samples >= taken && taken == 300,
            "seed {seed}: {} of {taken}",
            report.cpu.samples
        );
        // Malicious weights do not flood the output: the CPU time does not exceed the elapsed time.
        assert!(report.output.events < 20_000, "seed {seed}: {} events", report.output.events);
        let written = fs::read(dir.path().join("x.jfr")).unwrap();
        // Records of disabled engines start a chunk that declares them: at most one for each kind of engine.
        let chunks = chunks(&written);
        assert!((1..=12).contains(&chunks), "seed {seed}: {chunks} chunks");
    }
}

/// Returns the number of chunks, which must fill the file to its last byte.
fn chunks(file: &[u8]) -> usize {
    let (mut at, mut found) = (0, 0);
    while at < file.len() {
        assert_eq!(&file[at..at + 4], b"FLR\0", "chunk {found}");
        at += u64::from_be_bytes(file[at + 8..at + 16].try_into().unwrap()) as usize;
        found += 1;
    }
    assert_eq!(at, file.len());
    found
}

/// Returns the PID of this process's parent, which lives as long as the test, and differs from ours.
fn living_pid() -> u32 {
    std::os::unix::process::parent_id()
}

fn scribble(file: &File, layout: &ProcLayout, random: &mut Random) {
    let part = match random.below(6) {
        0 => 0..size_of::<ProcHeader>() as u64,
        1 => layout.threads..layout.threads + 4 * size_of::<ThreadSlot>() as u64,
        2 => layout.modules..layout.modules + 4096,
        3 => layout.init_modules..layout.init_modules + 4096,
        4 => layout.strings..layout.strings + 4096,
        _ => layout.ring..layout.end,
    };
    let at = part.start + random.below((part.end - part.start) / 8) * 8;
    let word = match random.below(6) {
        0 => u64::MAX,
        1 => 0,
        2 => 1 << 63,
        3 => random.below(1 << 16),
        4 => random.next() & 0xffff_02ff,
        _ => random.next(),
    };
    file.write_all_at(&word.to_le_bytes(), at).unwrap();
}

#[test]
fn invalid_process_files_are_reported_and_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let mut drain = drain(dir.path());
    let session = drain.session_dir().to_owned();
    let pid = std::process::id();
    fs::write(session.join(format!("{pid}-1.proc")), b"").unwrap();
    fs::write(session.join(format!("{pid}-2.proc")), vec![0u8; 1 << 20]).unwrap();
    fs::write(session.join(format!("{pid}-3.proc")), vec![0xff; 1 << 20]).unwrap();
    fs::write(session.join("name.proc"), b"x").unwrap();
    fs::create_dir(session.join(format!("{pid}-4.proc"))).unwrap();
    // A header that declares more than the file contains.
    let layout = ProcLayout::new(SLOTS, RING);
    let fake = Fake::new(&session, pid, 5);
    OpenOptions::new().write(true).open(&fake.path).unwrap().set_len(layout.ring).unwrap();
    drain.round();
    let notices = drain.take_notices();
    assert_eq!(notices.len(), 6, "{notices:#?}");
    let report = end(drain);
    assert_eq!((report.cpu.samples, report.processes), (0, 0));
}

#[test]
fn process_file_truncated_while_read_is_tolerated() {
    let dir = tempfile::tempdir().unwrap();
    flightline_recorder::survive_shrinking_files();
    let mut drain = drain(dir.path());
    let fake = Fake::new(drain.session_dir(), std::process::id(), 1);
    fake.start_thread(0, 5, 1_000_000);
    fake.sample(0, 1_000_000, &[1], 0);
    drain.round();
    OpenOptions::new().write(true).open(&fake.path).unwrap().set_len(0).unwrap();
    for _ in 0..5 {
        drain.round();
    }
    let report = end(drain);
    assert_eq!(report.cpu.samples, 1);
}
