//! Tests of errors that other recorders of native programs make. `docs/guest-tests.md` lists them; this
//! file has those that no other suite covers.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use flightline_tests::record::{Record, Recorded};
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, signal, spawn, until, wait};
use flightline_tests::victim::{self, OPTIMISED};

const RATE: u32 = 1000;

fn record(case: &str, record: Record) -> (Recorded, Recording) {
    let recorded = record.rate(RATE).run(victim::c("anchors", OPTIMISED), &[case]);
    let recording = recorded.read();
    (recorded, recording)
}

/// Samples of a thread, as CPU seconds.
fn seconds(recording: &Recording, tid: u64) -> f64 {
    recording.samples.iter().filter(|s| s.tid == tid).count() as f64 / f64::from(RATE)
}

/// CPU seconds of a thread that were counted as lost.
fn lost(recording: &Recording, tid: u64) -> f64 {
    recording.losses.iter().filter(|l| l.tid == tid).map(|l| l.cpu_ns as f64 / 1e9).sum()
}

/// A child that leaves by `exit` runs exit handlers inherited from its parent. They must not stop the
/// parent's sampling, nor write its events twice.
#[test]
fn child_exit_does_not_stop_parent_recording() {
    let _place = beside();
    for engine in ["auto", "timer"] {
        let (recorded, recording) = record("fork", Record::new().engine(engine));
        assert_eq!(recorded.finished.code(), 3, "{}", recorded.finished.stderr);
        let truth = recorded.truth();
        for name in ["parent", "child"] {
            let thread = truth.threads.iter().find(|t| t.name == name).unwrap();
            let used = thread.cpu_ns as f64 / 1e9;
            let (taken, lost) = (seconds(&recording, thread.tid), lost(&recording, thread.tid));
            let account =
                format!("{engine} {name}: {used:.3} s used, {taken:.3} s recorded, {lost:.3} s lost");
            eprintln!("{account}");
            // Half a period of rounding, and the thread's work after its last clock reading.
            assert!((taken + lost - used).abs() < 0.03, "{account}");
            // On a busy machine samples come late, and some of the time is counted as lost.
            assert!(taken > 0.4 * used, "{account}");
        }
        let parent = truth.threads.iter().find(|t| t.name == "parent").unwrap().tid;
        let mine = recording.samples.iter().filter(|s| s.tid == parent);
        let later =
            mine.filter(|s| recording.stacks[s.stack].frames.iter().any(|f| f.method == "after")).count();
        // The parent works for 600 ms after the fork. If the child stopped its sampling, there would be none.
        assert!(later > 200, "{engine}: {later} samples after the fork");
    }
}

/// A crash of the program is the same as without a recorder, and the samples up to then are recorded.
#[test]
fn samples_before_crash_are_recorded() {
    let _place = beside();
    let (recorded, recording) = record("crash", Record::new());
    assert_eq!(recorded.finished.code(), 128 + libc::SIGSEGV, "{}", recorded.finished.stderr);
    let truth = recorded.truth();
    let main = truth.threads.iter().find(|t| t.name == "main").unwrap();
    let (taken, used) = (seconds(&recording, main.tid), main.cpu_ns as f64 / 1e9);
    assert!(taken > used - lost(&recording, main.tid) - 0.03, "{taken} of {used} s");
}

/// Threads that ended long before the next flush are recorded with their own names.
#[test]
fn ended_threads_have_names() {
    let _place = beside();
    let (recorded, recording) = record("named", Record::new().option("--flush").option("5s"));
    let truth = recorded.truth();
    assert_eq!(truth.threads.len(), 20);
    for thread in &truth.threads {
        assert_eq!(recording.names.get(&thread.tid), Some(&thread.name));
    }
}

/// Frees of blocks that were not sampled are not written: a million pairs are a small file.
#[test]
fn only_sampled_blocks_are_written_when_freed() {
    let _place = beside();
    let record = Record::new().option("-e").option("alloc@512k,live");
    let recorded = record.run(victim::c("anchors", OPTIMISED), &["churn"]).expect_code(0);
    let recording = recorded.read();
    let count = |name: &str| recording.events.get(name).copied().unwrap_or(0);
    let (allocated, freed) = (count("profiler.Malloc"), count("profiler.Free"));
    eprintln!("{allocated} allocations and {freed} frees written");
    // 95 MB at one sample in 512 KiB.
    assert!((90..=300).contains(&allocated), "{allocated} of some 182 samples");
    assert!(freed <= allocated, "{freed} frees of {allocated} sampled blocks");
    assert!(recorded.path.metadata().unwrap().len() < 1 << 20);
}

/// A second recording into a file that is being written is refused, and the first one is not changed.
#[test]
fn second_recording_to_same_file_is_rejected() {
    let _place = beside();
    let program = victim::c("ticking", OPTIMISED);
    let first = Record::new().rate(RATE);
    let path = first.path();
    let limit = Duration::from_secs(60);
    let mut running = spawn(first.command(&program, &["100000"]).stdout(Stdio::null()).stderr(Stdio::null()));
    until(limit, "the first recording begins", || path.metadata().ok().filter(|m| m.len() > 0));
    let second = Record::new().rate(RATE).output(&path).run(&program, &["1"]);
    assert_eq!(second.finished.code(), 1, "{}", second.finished.stderr);
    assert!(second.finished.stderr.contains(path.to_str().unwrap()), "{}", second.finished.stderr);
    assert_eq!(second.finished.stdout_text(), "", "the program was started");
    std::thread::sleep(Duration::from_millis(1200));
    signal(running.id(), libc::SIGTERM);
    wait(&mut running, limit, "the first recording");
    let recording = Recording::read(&path).unwrap();
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    assert!(recording.samples.len() > 100, "{} samples", recording.samples.len());
    // Finished, so the name is free again.
    Record::new().rate(RATE).output(&path).run(&program, &["1"]).expect_code(23);
}

/// The list names tests that exist.
#[test]
fn guest_test_document_names_existing_tests() {
    let _place = beside();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = std::fs::read_to_string(root.join("docs/guest-tests.md")).unwrap();
    let mut named = 0;
    for test in list.split('`').filter(|word| word.contains("::") && !word.contains(' ')) {
        let (module, name) = test.rsplit_once("::").unwrap();
        let file = format!("tests/tests/{}.rs", module.replace("::", "/"));
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{test}: {e}"));
        assert!(source.contains(&format!("fn {name}(")), "there is no {test}");
        named += 1;
    }
    assert!(named >= 20, "{named} tests named");
}
