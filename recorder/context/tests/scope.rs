//! Scopes with a recorder in the process: the contents of a thread's variable, and the reports to the
//! recorder.

mod counting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::{fmt, thread};

use counting::asked;
use flightline_context::abi::{Abi, ScopeEnd, Slot, SpanEnd, Switches, VERSION, mode};
use flightline_context::record::{Record, VALID, labels};
use flightline_context::set_recorder;
use flightline_context::{
    ActiveScope, LEFT_OUT, SCOPE_LABELS_MAX, Scope, Span, SpanContext, VALUE_MAX, enter_context, keys, label,
    own_slot, scope,
};

static MODE: AtomicU32 = AtomicU32::new(mode::SAMPLED);
/// Names, labels and numbers of samples of spans that ended.
static TOLD: Mutex<Vec<(String, String, u32)>> = Mutex::new(Vec::new());
static SWITCHES: Switches = Switches { mark: AtomicU64::new(0), word: AtomicUsize::new(0) };

thread_local! {
    static SAMPLES: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
}

unsafe extern "C" fn slot() -> *const Slot {
    own_slot()
}
unsafe extern "C" fn samples() -> *const AtomicU32 {
    SAMPLES.with(|word| &raw const **word)
}
unsafe extern "C" fn on_span(end: *const SpanEnd) {
    // SAFETY: the struct is complete during the call, with texts of the given lengths.
    let record = unsafe {
        let text = |at: *const u8, len: u32| {
            let bytes = if at.is_null() { &[] } else { std::slice::from_raw_parts(at, len as usize) };
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        let end = &*end;
        (text(end.name, end.name_len), text(end.labels, end.labels_len), end.samples)
    };
    // Outside of the counted work.
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).push(record);
}
unsafe extern "C" fn on_scope(_: *const ScopeEnd) {}
unsafe extern "C" fn switched() {}

static RECORDER: Abi = Abi {
    size: size_of::<Abi>() as u32,
    version: VERSION,
    slot,
    samples,
    mode: &raw const MODE,
    key: keys::own_key,
    key_name: keys::own_key_name,
    span: on_span,
    scope: on_scope,
    switches: &raw const SWITCHES,
    switched,
};

/// Tests take turns: there is one recorder, and one table of keys.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_recorder(&RECORDER);
    MODE.store(mode::SAMPLED, Relaxed);
    // One test fills the table of keys, which the whole process shares.
    for key in ["application", "attempt", "vertex", "rows", "part", "dag", "task", "only", "step"] {
        assert!(keys::index(key).is_some());
    }
    take_records();
    turn
}

fn take_records() -> Vec<(String, String, u32)> {
    std::mem::take(&mut *TOLD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The labels that a sample of this thread would have, `None` if the thread has no activation.
fn seen() -> Option<Vec<(String, String)>> {
    // SAFETY: this thread's variable is null or points to a record.
    let record = unsafe { (*own_slot()).context.load(Relaxed).cast::<Record>().as_ref() }?;
    assert_eq!(record.valid, VALID);
    let names: Vec<&str> = keys::all().collect();
    let attrs = labels(&record.attrs[..record.attrs_size.into()]);
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    Some(attrs.map(|(key, value)| (names[usize::from(key)].to_owned(), text(value))).collect())
}

/// The same labels as `key=value`, in order.
fn line() -> String {
    let labels = seen().unwrap_or_default();
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

fn foreign(trace: u8) -> SpanContext {
    SpanContext { trace_id: [trace; 16], span_id: u64::from(trace), flags: 1, ..SpanContext::default() }
}

#[test]
fn nested_scopes_merge_labels_and_inner_values_win() {
    let _turn = turn();
    {
        let _application = scope([("application", "app_1"), ("attempt", "none")]);
        assert_eq!(line(), "application=app_1 attempt=none");
        {
            let _attempt = scope([("vertex", "Map 1"), ("attempt", "0")]);
            assert_eq!(line(), "application=app_1 vertex=Map 1 attempt=0");
            // A span within the scope has the labels, in the same trace or in another tracer's.
            let span = Span::new("inner");
            let inside = span.enter();
            label("rows", "7").unwrap();
            assert_eq!(line(), "application=app_1 vertex=Map 1 attempt=0 rows=7");
            let other = enter_context(&foreign(9));
            assert_eq!(line(), "application=app_1 vertex=Map 1 attempt=0");
            let third = enter_context(&foreign(8));
            assert_eq!(line(), "application=app_1 vertex=Map 1 attempt=0");
            drop((third, other));
            drop(inside);
            // A number as the value.
            let _part = scope([("part", 12)]);
            assert_eq!(line(), "application=app_1 vertex=Map 1 attempt=0 part=12");
        }
        assert_eq!(line(), "application=app_1 attempt=none");
    }
    assert_eq!(seen(), None);
    let names: Vec<String> =
        take_records().into_iter().map(|(name, labels, _)| format!("{name} {labels}")).collect();
    assert_eq!(
        names,
        [
            r#"scope {"application":"app_1","vertex":"Map 1","attempt":"0","part":"12"}"#,
            r#"scope {"application":"app_1","vertex":"Map 1","attempt":"0"}"#,
            r#"scope {"application":"app_1","attempt":"none"}"#,
        ]
    );
}

/// Two attempts in one process, each on two threads of a pool that alternate between them.
#[test]
fn parallel_attempts_have_separate_labels() {
    let _turn = turn();
    let _job = scope([("dag", "d")]);
    let attempts = ["a", "b"].map(|name| Scope::named("task attempt", [("task", name), ("only", name)]));
    let together = Barrier::new(4);
    thread::scope(|threads| {
        for first in 0..4 {
            let (attempts, together) = (&attempts, &together);
            threads.spawn(move || {
                assert_eq!(seen(), None, "a thread begins with nothing");
                for round in 0..2000 {
                    let (of, name) = [(&attempts[0], "a"), (&attempts[1], "b")][(first + round) % 2];
                    let inside = of.enter();
                    if round % 50 == 0 {
                        together.wait();
                    }
                    assert_eq!(line(), format!("dag=d task={name} only={name}"));
                    {
                        // A step into the other attempt: exactly its labels, then this one's again.
                        let (other, theirs) = [(&attempts[1], "b"), (&attempts[0], "a")][(first + round) % 2];
                        let _there = other.enter();
                        assert_eq!(line(), format!("dag=d task={theirs} only={theirs}"));
                    }
                    SAMPLES.with(|word| word.fetch_add(1, Relaxed));
                    assert_eq!(line(), format!("dag=d task={name} only={name}"));
                    drop(inside);
                    assert_eq!(seen(), None);
                }
            });
        }
    });
    assert_eq!([attempts[0].samples(), attempts[1].samples()], [4000, 4000]);
    drop(attempts);
    let ends = take_records();
    assert_eq!(
        ends.iter().map(|(name, _, samples)| (&**name, *samples)).collect::<Vec<_>>(),
        [("task attempt", 4000), ("task attempt", 4000)]
    );
}

#[test]
fn scope_can_be_shared_and_ended_on_another_thread() {
    let _turn = turn();
    let shared = Arc::new(Scope::new([("task", "t")]));
    let theirs = shared.clone();
    let here = shared.enter();
    thread::spawn(move || {
        let inside = theirs.enter();
        assert_eq!(line(), "task=t");
        drop(inside);
        assert_eq!(seen(), None);
        drop(theirs);
    })
    .join()
    .unwrap();
    assert_eq!(line(), "task=t", "what another thread let go of is still ours");
    assert!(take_records().is_empty());
    drop(here);
    // The last owner ends the scope, on any thread, and even without a sample.
    thread::spawn(move || drop(shared)).join().unwrap();
    assert_eq!(take_records(), [("scope".to_owned(), r#"{"task":"t"}"#.to_owned(), 0)]);
    assert_eq!(seen(), None);
    // A scope that was created on another thread, and a thread that ends in it: the next thread begins
    // without labels.
    let made = thread::spawn(|| Scope::new([("task", "u")])).join().unwrap();
    thread::scope(|threads| threads.spawn(|| std::mem::forget(made.enter())).join().unwrap());
    thread::spawn(|| assert_eq!(seen(), None)).join().unwrap();
    let _here = ActiveScope::new(made);
    assert_eq!(line(), "task=u");
}

#[test]
fn panic_ends_scopes() {
    let _turn = turn();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _attempt = scope([("attempt", "0")]);
        let _inner = scope([("step", "sort")]);
        assert_eq!(line(), "attempt=0 step=sort");
        std::panic::resume_unwind(Box::new("the task fails"));
    }));
    assert!(panicked.is_err());
    assert_eq!((seen(), take_records().len()), (None, 2));
    let _next = scope([("attempt", "1")]);
    assert_eq!(line(), "attempt=1");
}

/// Left out of order, as by guards that are stored: the next attempt inherits nothing.
#[test]
fn scopes_may_end_in_any_order() {
    let _turn = turn();
    let first = scope([("task", "1")]);
    let second = scope([("step", "2")]);
    drop(first);
    assert_eq!(line(), "task=1 step=2", "it was begun within the first");
    drop(second);
    assert_eq!(seen(), None);
    let _third = scope([("task", "3")]);
    assert_eq!(line(), "task=3");
}

#[test]
fn inactive_scopes_allocate_nothing_and_label_later_recordings() {
    let _turn = turn();
    counting::check();
    MODE.store(mode::OFF, Relaxed);
    let id = 7_u64;
    // The first activation of a thread maps memory, and this recorder's word is on the heap.
    SAMPLES.with(|word| assert_eq!(word.load(Relaxed), 0));
    drop(scope([("task", "warm")]));
    let off = asked(|| {
        for _ in 0..1000 {
            let attempt = scope([("task", &id as &dyn fmt::Display), ("vertex", &"Map 1")]);
            let _inside = attempt.enter();
            let _inner = scope([("part", id)]);
        }
    });
    assert_eq!((off, take_records().len()), (0, 0));
    let attempt = scope([("task", id)]);
    MODE.store(mode::SAMPLED, Relaxed);
    assert_eq!(line(), "task=7");
    // No recording was active when it began, so its start is unknown and it is not reported.
    drop(attempt);
    assert_eq!(take_records(), []);
    TOLD.lock().unwrap().reserve(2000);
    let on = asked(|| (0..1000).for_each(|_| drop(scope([("task", id)]))));
    // The test itself stores two texts for each.
    assert_eq!((on, take_records().len()), (2000, 1000));
}

#[test]
fn labels_beyond_limits_are_truncated_or_counted() {
    let _turn = turn();
    // Long values are cut between characters, and end in `…`.
    let long = "ä".repeat(4000);
    let cut = scope([("k", &long)]);
    let value = seen().unwrap()[0].1.clone();
    assert!(value.ends_with("ä…") && value.len() <= VALUE_MAX && value.len() > VALUE_MAX - 4, "{value}");
    assert_eq!(cut.left_out(), 0);
    drop(cut);
    // A value in pieces that end anywhere.
    struct Pieces;
    impl fmt::Display for Pieces {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&"x".repeat(254))?;
            f.write_str("ä")?;
            f.write_str("never")
        }
    }
    let _pieces = scope([("k", Pieces)]);
    assert_eq!(seen().unwrap()[0].1, format!("{}…", "x".repeat(252)));
    drop(_pieces);
    // A value whose formatting fails, and invalid keys; empty values are values.
    struct Fails;
    impl fmt::Display for Fails {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }
    let bad = scope([("k", &Fails as &dyn fmt::Display), ("", &1), (LEFT_OUT, &1), ("empty", &"")]);
    assert_eq!((bad.left_out(), line()), (3, format!("empty= {LEFT_OUT}=3")));
    drop(bad);
    let key = "k".repeat(64);
    let bad = scope([(key.as_str(), 1), (&key[1..], 2)]);
    assert_eq!((bad.left_out(), seen().unwrap().len()), (1, 2));
    drop(bad);
    take_records();

    // Ten thousand labels: the first ones up to the limit are set, and the process's table of keys has room
    // for others afterwards.
    let known = keys::all().count();
    let many = scope((0..10_000).map(|i| (format!("key_{i}"), i)));
    assert_eq!(many.left_out() as usize, 10_000 - SCOPE_LABELS_MAX);
    assert_eq!(keys::all().count(), known + SCOPE_LABELS_MAX);
    let labels = seen().unwrap();
    assert_eq!(labels[63], ("key_63".to_owned(), "63".to_owned()));
    assert_eq!(labels[64], (LEFT_OUT.to_owned(), "9936".to_owned()));
    {
        // An inner scope adds up the labels that both had no place for; existing labels can be set again.
        let within = scope((0..100).map(|i| (format!("key_{}", 2 * i), "again")));
        assert_eq!(within.left_out(), 9936 + 100 - SCOPE_LABELS_MAX as u32);
        let labels = seen().unwrap();
        assert_eq!(labels.iter().filter(|(_, value)| value == "again").count(), SCOPE_LABELS_MAX);
        assert_eq!(labels.last().unwrap().1, within.left_out().to_string());
    }
    drop(many);
    // 600 bytes: two values of 255, the third does not fit, a short one does. A full scope accepts a shorter
    // value for one of its own keys.
    let full =
        scope([("a", "x".repeat(255)), ("b", "x".repeat(255)), ("c", "x".repeat(255)), ("d", "y".into())]);
    assert_eq!((full.left_out(), seen().unwrap().len()), (1, 4));
    let within = scope([("e", "x".repeat(100)), ("a", "x".repeat(254)), ("b", "short".into())]);
    let labels = seen().unwrap();
    let of = |key: &str| labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.len());
    assert_eq!((within.left_out(), of("a"), of("b"), of("e")), (2, Some(254), Some(5), None));
    drop((within, full));
    // Unlimited different keys, as from a program that puts values into keys: 256 and no more.
    for i in 0..300 {
        drop(scope([(format!("wrong_{i}"), i)]));
    }
    assert_eq!(keys::all().count(), 256);
    let late = scope([("task", "t"), ("never seen", "v")]);
    assert_eq!((late.left_out(), seen().unwrap().last().unwrap().1.as_str()), (1, "1"));
    assert!(format!("{:?}", *late).contains(r#""task": "t""#));
}
