//! Scopes without a recorder: they do nothing at all.

mod counting;

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use counting::asked;
use flightline_context::{Scope, Span, current, own_slot, scope};

/// A value that must not be formatted.
struct Untouched;

impl fmt::Display for Untouched {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("it is looked at");
    }
}

fn published() -> bool {
    // SAFETY: the calling thread's own variable.
    !unsafe { (*own_slot()).context.load(Relaxed) }.is_null()
}

/// KB of memory that is wiped on a fork, as threads with an activation map it.
fn mapped_wiped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut size, mut sum) = (0, 0);
    for line in maps.lines() {
        if let Some(kb) = line.strip_prefix("Size:") {
            size = kb.trim().trim_end_matches(" kB").parse().unwrap();
        } else if line.starts_with("VmFlags:") && line.contains(" wf") {
            sum += size;
        }
    }
    sum
}

#[test]
fn scopes_without_recorder_allocate_and_evaluate_nothing() {
    counting::check();
    // The recorder is searched for once.
    assert!(!Scope::new([("task", "t")]).is_on());
    let untouched = (0..10_000).map(|i| -> (&str, Untouched) { panic!("label {i} is made") });
    let count = asked(|| {
        let outer = scope(untouched);
        let inner = Scope::named("inner", [("a", Untouched)]);
        let inside = inner.enter();
        assert!(!published() && current().is_none());
        assert!(!outer.is_on() && inner.context().is_none());
        assert_eq!((outer.left_out(), inner.samples()), (0, 0));
        drop(inside);
        drop((inner, outer));
        for _ in 0..100_000 {
            drop(scope([("application", "a"), ("task", "t"), ("attempt", "0")]));
        }
    });
    assert_eq!(count, 0);
    assert_eq!(flightline_context::keys::all().count(), 0, "no key is known");
    // On a separate thread, because other threads already have such memory of the C library.
    let elsewhere = thread::spawn(|| {
        let before = mapped_wiped();
        let _task = scope([("task", "t")]);
        assert_eq!(mapped_wiped(), before, "no memory is mapped for threads or keys");
        // For comparison: a span is published with or without a recorder.
        let span = Span::root("published");
        let _inside = span.enter();
        assert!(published() && mapped_wiped() > before);
    });
    elsewhere.join().unwrap();
}
