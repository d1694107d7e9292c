//! All engines in one process at the same time: each records the program's work, none disturbs another, and
//! other readers read everything.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_consumer::live::{Feed, Item, Options};
use flightline_tests::canonical;
use flightline_tests::jfr_tool::JfrTool;
use flightline_tests::print_agreement::compare;
use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, run};
use flightline_tests::{foreign, skip, victim};

const EVENTS: &str = "page-faults@64";

/// Returns true if kernel events can be recorded too.
fn perf() -> bool {
    let allowed = skip::perf_allowed(false);
    if !allowed {
        skip::skip("perf_event_open is not allowed: page faults next to all other engines");
    }
    allowed
}

fn record() -> Option<Recorded> {
    let program = victim::cpp("everything", &["-O1", "-pthread"])?;
    let mut record = Record::new().option("--all-events");
    if perf() {
        record = record.option("-e").option(EVENTS);
    }
    // Far more than a second's work, even on a busy machine.
    Some(record.limit(Duration::from_secs(120)).run(program, &[]).expect_code(0))
}

/// The folded stacks of one kind of event: function near the leaf → sum of the lines that contain it.
struct Folded(Vec<(String, u64)>);

impl Folded {
    fn of(path: &Path, event: &str, total: bool) -> Folded {
        let mut fold = Command::new(victim::flightline());
        fold.args(["fold", "-e", event]).args(total.then_some("--total")).arg(path);
        let done = run(&mut fold, Duration::from_secs(60));
        assert_eq!(done.status.code(), Some(0), "fold -e {event}: {}", done.stderr);
        let line = |line: &str| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            (stack.to_owned(), count.parse().unwrap())
        };
        Folded(String::from_utf8(done.stdout).unwrap().lines().map(line).collect())
    }

    /// Sum over the stacks with this function somewhere.
    fn through(&self, function: &str) -> u64 {
        let named = |stack: &str| stack.split(';').any(|f| f.split('(').next() == Some(function));
        self.0.iter().filter(|(stack, _)| named(stack)).map(|(_, n)| n).sum()
    }
}

#[track_caller]
fn between(what: &str, value: u64, low: u64, high: u64) {
    assert!((low..=high).contains(&value), "{what}: {value}, expected {low} to {high}");
}

#[test]
fn all_engines_at_once_record_expected_amounts() {
    let _place = beside();
    let Some(recorded) = record() else { return };
    let path = &recorded.path;
    let total = |event: &str, function: &str| Folded::of(path, event, true).through(function);
    let count = |event: &str, function: &str| Folded::of(path, event, false).through(function);
    const MS: u64 = 1_000_000;
    between("CPU time of burn", total("cpu", "burn"), 330 * MS, 470 * MS);
    // Every 4 KiB page of 32 MiB is touched once.
    if perf() {
        between("page faults", total("page-faults", "fault"), 8192 * 9 / 10, 8192 * 11 / 10);
    }
    // 60 MB in 20,000 pieces at one sample in 512 KiB: a standard deviation of 9 %, of which five are allowed.
    between("bytes of churn", total("alloc", "churn"), 33_000_000, 87_000_000);
    // 16 MB: 18 %.
    between("bytes of leak", total("live", "leak"), 4_000_000, 32_000_000);
    assert_eq!(total("live", "churn"), 0, "what was freed does not live");
    between("waits for the lock", count("lock", "wait_for_lock"), 3, 3);
    assert!(total("lock", "wait_for_lock") >= 3 * 20 * MS);
    between("slow reads", count("io", "slow_reads"), 4, 4);
    between("exceptions", count("throw", "throws"), 5, 5);
    // The idle thread's 700 ms, three times 30 ms with the lock held, four times 30 ms before a write. Between two looks of
    // a drain that gets no turn the short ones may pass unseen; the long one cannot but for its ends.
    let asleep = Folded::of(path, "wall", true).through("nap");
    between("time in nap", asleep, 600 * MS, 2000 * MS);
}

#[test]
fn jdk_reads_every_event_from_every_engine() {
    let _place = beside();
    let homes = [17, 25].map(foreign::jdk);
    let [Some(old), Some(new)] = homes else { return };
    let Some(recorded) = record() else { return };
    for home in [old, new] {
        let mut jfr = JfrTool::start(&home);
        let agreement = compare(victim::flightline(), &mut jfr, &recorded.path, &recorded.path, Some(2048));
        assert!(
            agreement.differences.is_empty() && agreement.jdk_failed.is_none() && agreement.events > 100,
            "{}: {agreement}",
            home.display()
        );
    }
}

/// The same through a pipe: all recorded events reach a reader of the stream, with type, stack and checksums.
#[test]
fn pipe_reader_receives_events_from_every_engine() {
    let _place = beside();
    let Some(program) = victim::cpp("everything", &["-O1", "-pthread"]) else { return };
    let record = Record::new().option("--all-events").option("--flush").option("100ms").output("-");
    let mut command = record.command(program, &[]);
    let done = run(command.stdout(Stdio::piped()), Duration::from_secs(120)).expect_success("everything");
    let mut feed = Feed::new(Options::default());
    let (mut samples, mut others, mut functions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for piece in done.stdout.chunks(1000).map(Some).chain([None]) {
        match piece {
            Some(piece) => feed.push(piece),
            None => feed.close(),
        }
        while let Some(item) = feed.next() {
            match item {
                Item::Sample(sample) => {
                    *samples.entry(sample.event.to_string()).or_insert(0) += 1;
                    for frame in sample.stack.iter().flat_map(|stack| stack.frames.iter()) {
                        let name = frame.function.split('(').next().unwrap_or_default().to_owned();
                        *functions.entry((sample.kind.name(), name)).or_insert(0) += 1;
                    }
                }
                Item::Other(event) => *others.entry(event.event.to_string()).or_insert(0) += 1,
                Item::Warning(warning) => panic!("{warning}"),
                _ => {}
            }
        }
    }
    let kinds = [
        ("cpu", "burn"),
        ("alloc", "churn"),
        ("live", "leak"),
        ("lock", "wait_for_lock"),
        ("io", "slow_reads"),
        ("exception", "throws"),
        ("wall", "nap"),
    ];
    for (kind, function) in kinds {
        assert!(
            functions.contains_key(&(kind, function.to_owned())),
            "{kind}: no {function} in {functions:?}"
        );
    }
    // As many of each type as any reader of the saved stream finds.
    let all = canonical::of_stream(&done.stdout[..]).unwrap();
    assert_eq!(all.warnings, Vec::<String>::new());
    for (event, count) in samples.iter().chain(&others) {
        assert_eq!(all.types.get(event), Some(count), "{event}");
    }
    let stats = feed.stats();
    assert_eq!((stats.segments_damaged, stats.segments_missing, stats.unresolved), (0, 0, 0), "{stats:?}");
    assert!(stats.segments > 3, "{stats:?}");
    // A connection that breaks at any point: the data up to then is valid, for events of every engine.
    let step = done.stdout.len() / 40 + 1;
    for cut in (step / 3..done.stdout.len()).step_by(step) {
        let start = &done.stdout[..cut];
        let mut feed = Feed::new(Options::default());
        feed.push(start);
        feed.close();
        while feed.next().is_some() {}
        let stats = feed.stats();
        let whole = flightline_tests::stream::check_start(start).segments.len();
        assert_eq!((stats.segments as usize, stats.unresolved), (whole, 0), "cut at {cut}: {stats:?}");
    }
}
