//! Waits for locks: the recording has each wait that the program's own clock measured, with its duration,
//! owner and stack.

use std::collections::BTreeMap;
use std::path::Path;

use flightline_tests::record::{Record, Recorded};
use flightline_tests::recording::Recording;
use flightline_tests::run::beside;
use flightline_tests::spans::{self, Span};
use flightline_tests::truth::Truth;
use flightline_tests::victim::{self, FRAME_POINTERS, OPTIMISED};

const TYPES: [&str; 3] = ["jdk.JavaMonitorEnter", "jdk.JavaMonitorWait", "jdk.ThreadPark"];

fn waits(path: &Path) -> Vec<Span> {
    spans::read(path, &TYPES)
}

/// Compares the number and length of a function's waits. A recorded wait lies within the time that the
/// program measured around it. The program may be descheduled between its clock reading and ours, so lengths
/// may differ, but not all of them by much.
#[track_caller]
fn compare(truth: &Truth, spans: &[Span], name: &str, event: &str, class: &str) -> Vec<Span> {
    let own: Vec<Span> = spans.iter().filter(|s| s.has(name)).cloned().collect();
    // The threshold is 1 ms.
    let expected = truth.counts[&format!("{name} sure")]..=truth.counts[name];
    assert!(*expected.end() >= 12, "{name}: only {} waits", expected.end());
    assert!(expected.contains(&(own.len() as i64)), "{name}: {} waits, not {expected:?}", own.len());
    let (is, should) = (own.iter().map(|s| s.duration_ns).sum::<u64>(), truth.functions[name]);
    // Ticks of 1 µs, rounded at both ends.
    assert!(is <= should + 2_000 * own.len() as u64, "{name}: {is} ns recorded, {should} ns truly");
    assert!(is as f64 >= 0.85 * should as f64, "{name}: {is} ns recorded, {should} ns truly");
    for span in &own {
        let class_field = if event == "jdk.ThreadPark" { "parkedClass" } else { "monitorClass" };
        assert_eq!((span.event.as_str(), span.field(class_field)), (event, class), "{name}");
        assert!(!span.truncated && span.has("main"), "{name}: {:?}", span.frames);
        assert_eq!(span.frames[0].method, name, "{:?}", span.frames);
        assert_ne!(span.number("address"), 0, "{name}");
    }
    own
}

#[track_caller]
fn record(program: &Path, threshold: &str) -> Recorded {
    Record::new().option("-e").option(threshold).run(program, &[]).expect_code(0)
}

fn known_waits(flags: &[&str]) {
    let _place = beside();
    let program = victim::c("lock_waits", flags);
    let recorded = record(&program, "lock@1ms");
    let (truth, spans) = (recorded.truth(), waits(&recorded.path));
    let table = [
        ("mutex_wait", TYPES[0], "pthread_mutex_t", "holder"),
        ("timed_wait", TYPES[0], "pthread_mutex_t", "holder"),
        ("inherit_wait", TYPES[0], "pthread_mutex_t", "holder"),
        ("standard_wait", TYPES[0], "pthread_mutex_t", "holder"),
        ("read_wait", TYPES[0], "pthread_rwlock_t.read", "holder"),
        // Readers are not named by the lock.
        ("write_wait", TYPES[0], "pthread_rwlock_t.write", ""),
        ("semaphore_wait", TYPES[2], "sem_t", ""),
        ("futex_wait", TYPES[2], "futex", ""),
        ("condition_wait", TYPES[1], "pthread_cond_t", ""),
        ("condition_late", TYPES[1], "pthread_cond_t", ""),
        ("condition_clock_late", TYPES[1], "pthread_cond_t", ""),
        ("semaphore_late", TYPES[2], "sem_t", ""),
        ("futex_late", TYPES[2], "futex", ""),
    ];
    for (name, event, class, owner) in table {
        let own = compare(&truth, &spans, name, event, class);
        for span in own {
            assert_eq!(span.field("previousOwner"), owner, "{name}");
            if event == TYPES[1] {
                let late = name.ends_with("late");
                assert_eq!(span.field("timedOut"), late.to_string(), "{name}");
                // 4 ms after the program read the clock.
                assert_eq!(
                    (1..=4).contains(&span.number("timeout")),
                    late,
                    "{name}: {}",
                    span.number("timeout")
                );
            }
            if name == "timed_wait" || name == "mutex_wait" {
                assert_ne!(span.tid, 0);
            }
        }
    }
    // The JDK reads the same.
    if let Some(by_jdk) = Recording::read_by_jdk(&recorded.path) {
        for event in TYPES {
            let count = spans.iter().filter(|s| s.event == event).count() as u64;
            assert_eq!(by_jdk.events.get(event), Some(&count), "{event}");
        }
    }
    // The program itself checks free locks, and errors that a first attempt (trylock) must not hide; it would
    // have aborted.
    assert!(!spans.iter().any(|s| s.has("free_locks") && s.duration_ns < 1_000_000));
}

#[test]
fn lock_waits_have_known_durations() {
    known_waits(OPTIMISED);
}

#[test]
fn lock_waits_have_known_durations_with_frame_pointers() {
    known_waits(FRAME_POINTERS);
}

/// Waits below the threshold are counted, so no loss is silent.
#[test]
fn waits_below_threshold_are_counted() {
    let _place = beside();
    let program = victim::c("lock_waits", OPTIMISED);
    let recorded = record(&program, "lock@100s");
    assert_eq!(waits(&recorded.path).len(), 0);
    let truth = recorded.truth();
    let short = spans::read(&recorded.path, &["flightline.BelowThreshold"]);
    let sum = |field: &str| short.iter().map(|s| s.number(field)).sum::<i64>();
    assert!(short.iter().all(|s| s.field("event") == "lock"));
    let sure = truth.counts.iter().filter(|(name, _)| name.ends_with(" sure")).map(|(_, n)| n);
    let (count, ns): (i64, u64) = (sure.sum(), truth.functions.values().sum());
    // Additional waits: for the end of a joined thread, and short conflicts of two threads at one lock.
    assert!((count..count + 100).contains(&sum("count")), "{} of {count}", sum("count"));
    assert!(sum("value") as f64 >= 0.85 * ns as f64, "{} of {ns} ns", sum("value"));
}

/// The same program without the engine: no lock events in the recording.
#[test]
fn lock_waits_are_not_recorded_by_default() {
    let _place = beside();
    let program = victim::c("lock_waits", OPTIMISED);
    let recorded = Record::new().run(program, &[]).expect_code(0);
    assert_eq!(spans::read(&recorded.path, &[&TYPES[..], &["flightline.BelowThreshold"]].concat()).len(), 0);
}

/// A function in a stack (`_wait` or `_late` of the program), the event, the field with the class, and the
/// class.
type Expected<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Compares waits by the function that made them: event, class and duration.
#[track_caller]
fn compare_classes(recorded: &Recorded, table: &[Expected<'_>]) {
    let (truth, spans) = (recorded.truth(), waits(&recorded.path));
    for &(name, event, field, class) in table {
        // `module::name` or `name()`.
        let is_it = |method: &str| method.trim_end_matches("()").rsplit("::").next() == Some(name);
        let own: Vec<&Span> = spans.iter().filter(|s| s.frames.iter().any(|f| is_it(&f.method))).collect();
        let kinds: BTreeMap<(&str, &str), usize> = own.iter().fold(BTreeMap::new(), |mut all, s| {
            *all.entry((s.event.as_str(), s.field(field))).or_default() += 1;
            all
        });
        assert_eq!(kinds.keys().collect::<Vec<_>>(), [&(event, class)], "{name}: {own:?}");
        let (is, should) = (own.iter().map(|s| s.duration_ns).sum::<u64>(), truth.functions[name]);
        assert!(is <= should + 2_000 * own.len() as u64, "{name}: {is} ns recorded, {should} ns truly");
        // The library spins before it waits, longer if other threads want the processor. But the other thread
        // sleeps 4 ms, 12 times, after it has seen this one wait, and a time-out runs from before the
        // spinning.
        let least = if name.ends_with("_late") { 0 } else { 12 * 3_900_000 };
        assert!(is >= least, "{name}: {is} ns recorded, at least {least} ns were waited");
        assert!(own.iter().all(|s| !s.truncated), "{name}: {own:?}");
    }
}

/// Rust's own locks wait by the system call: the caller determines the kind of lock.
#[test]
fn rust_std_waits_name_lock_type() {
    let _place = beside();
    let program = victim::rust("rust_locks", &["-O", "-g"]);
    let recorded = record(&program, "lock@1ms");
    let table = [
        ("mutex_wait", TYPES[0], "monitorClass", "std::sync::Mutex"),
        ("read_wait", TYPES[0], "monitorClass", "std::sync::RwLock"),
        ("write_wait", TYPES[0], "monitorClass", "std::sync::RwLock"),
        ("condvar_wait", TYPES[1], "monitorClass", "std::sync::Condvar"),
        ("park_wait", TYPES[2], "parkedClass", "std::thread"),
    ];
    compare_classes(&recorded, &table);
}

#[test]
fn parking_lot_waits_name_lock_type() {
    let _place = beside();
    let program = victim::example("parking_lot_waits");
    let recorded = record(&program, "lock@1ms");
    let table = [
        ("mutex_wait", TYPES[0], "monitorClass", "parking_lot::Mutex"),
        ("read_wait", TYPES[0], "monitorClass", "parking_lot::RwLock"),
        ("write_wait", TYPES[0], "monitorClass", "parking_lot::RwLock"),
        ("condvar_wait", TYPES[1], "monitorClass", "parking_lot::Condvar"),
        ("condvar_late", TYPES[1], "monitorClass", "parking_lot::Condvar"),
        ("once_wait", TYPES[0], "monitorClass", "parking_lot::Once"),
    ];
    compare_classes(&recorded, &table);
}

/// C++20 waits by the system call, mostly in inlined functions.
#[test]
fn cpp_library_waits_name_synchronization_type() {
    let _place = beside();
    let Some(program) = victim::cpp("cpp_waits", &["-std=c++20", "-O2", "-fomit-frame-pointer"]) else {
        return;
    };
    let recorded = record(&program, "lock@1ms");
    let park = |name, class| (name, TYPES[2], "parkedClass", class);
    let enter = |name, class| (name, TYPES[0], "monitorClass", class);
    let table = [
        park("atomic_wait", "std::atomic"),
        park("proxy_wait", "std::atomic"),
        park("counting_wait", "std::counting_semaphore"),
        park("binary_wait", "std::counting_semaphore"),
        park("binary_late", "std::counting_semaphore"),
        park("latch_wait", "std::latch"),
        park("barrier_wait", "std::barrier"),
        park("future_wait", "std::future"),
        enter("mutex_wait", "pthread_mutex_t"),
        enter("shared_wait", "pthread_rwlock_t.read"),
        ("condition_wait", TYPES[1], "monitorClass", "pthread_cond_t"),
        enter("guard_wait", "static initialisation"),
    ];
    compare_classes(&recorded, &table);
}

/// Callers that are bound to the older of two versions of a function get that version, recorded or not.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn older_symbol_version_callers_get_that_version() {
    let _place = beside();
    let program = victim::c("old_versions", OPTIMISED);
    Record::new().run(&program, &[]).expect_code(0);
    let recorded = record(&program, "lock@1ms");
    let (truth, spans) = (recorded.truth(), waits(&recorded.path));
    for name in ["old_wait", "old_late"] {
        let own = compare(&truth, &spans, name, TYPES[1], "pthread_cond_t");
        assert!(own.iter().all(|s| s.field("timedOut") == (name == "old_late").to_string()), "{own:?}");
    }
}

/// A forked child, whose parent has other threads in waits, records its own waits and not theirs.
#[test]
fn forked_children_record_only_their_own_waits() {
    let _place = beside();
    let program = victim::c("forked_waits", OPTIMISED);
    let recorded = record(&program, "lock@1ms,io@1ms");
    let truth = recorded.truth();
    let spans = spans::read(&recorded.path, &[TYPES[0], "jdk.FileRead"]);
    for (name, event) in [("child_lock", TYPES[0]), ("child_read", "jdk.FileRead")] {
        let own: Vec<&Span> = spans.iter().filter(|s| s.has(name)).collect();
        assert_eq!(own.len() as i64, truth.counts["waits"], "{name}: {own:?}");
        assert!(
            own.iter().all(|s| s.event == event && !s.truncated && s.frames[0].method == name),
            "{own:?}"
        );
        let (is, should) = (own.iter().map(|s| s.duration_ns).sum::<u64>(), truth.functions[name]);
        assert!(is <= should + 2_000 * own.len() as u64, "{name}: {is} ns recorded, {should} ns truly");
        // The event that ends the wait comes 6 ms after the wait was seen.
        assert!(is >= 5_900_000 * own.len() as u64, "{name}: {is} ns recorded, {should} ns truly");
        let mut threads: Vec<u64> = own.iter().map(|s| s.tid).collect();
        threads.sort_unstable();
        threads.dedup();
        assert_eq!(threads.len() as i64, truth.counts["children"], "{name}: each child has a thread");
    }
    let parents = spans.iter().filter(|s| s.has("locks_for_ever") || s.has("reads_for_ever"));
    assert_eq!(parents.count(), 0, "waits that never ended");
}
