//! Tests `Recorder::scope` in a program that records itself: disabled before the recording, enabled during
//! it, and without heap allocations while there is no recording.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flightline_recorder::{Recorder, Scope};

struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls go to the system's allocator; the additional counter is a word without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

fn asked(work: impl FnOnce()) -> u64 {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

fn busy(time: Duration) {
    let cpu = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    let start = cpu();
    while Duration::from(cpu() - start) < time {
        std::hint::black_box((0..10_000u64).fold(0, |sum: u64, i| std::hint::black_box(sum ^ i)));
    }
}

fn attempts(count: u32) {
    for number in 0..count {
        let attempt = Recorder::scope([("task", "t"), ("attempt", "a")]);
        let _step = Recorder::scope([("step", number)]);
        let _inside = attempt.enter();
    }
}

#[test]
fn scopes_are_active_only_while_recording() {
    assert_eq!(asked(|| drop(std::hint::black_box(Box::new(1)))), 1, "it counts");
    assert!(!Recorder::scope([("task", "early")]).is_on());
    assert_eq!(asked(|| attempts(1000)), 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.jfr");
    let recording = Recorder::builder().rate(1000.0).output(&path).in_process().start().unwrap();
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let _attempt = Recorder::scope([("task", "failing")]);
        busy(Duration::from_millis(100));
        std::panic::resume_unwind(Box::new("it fails"));
    }));
    assert!(failed.is_err());
    let attempt = Recorder::scope([("task", "shared")]);
    assert!(attempt.is_on());
    let shared: &Scope = &attempt;
    std::thread::scope(|threads| {
        threads.spawn(move || {
            // After the drain has found the thread. Entries before that are not counted, although its samples
            // have the labels.
            busy(Duration::from_millis(100));
            let _inside = shared.enter();
            busy(Duration::from_millis(200));
        });
    });
    assert!(attempt.samples() > 50, "{} samples by the other thread", attempt.samples());
    drop(attempt);
    busy(Duration::from_millis(50));
    drop(recording);
    assert_eq!(asked(|| attempts(1000)), 0);
    let late = Recorder::scope([("task", "late")]);
    busy(Duration::from_millis(50));
    assert_eq!((late.is_on(), late.samples()), (true, 0));
    drop(late);
    let bytes = fs::read(&path).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let of = ["early", "failing", "shared", "late"].map(|task| has(&format!(r#"{{"task":"{task}"}}"#)));
    assert_eq!(of, [false, true, true, false]);
}
