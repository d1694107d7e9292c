//! The API as programs use it, without a recorder: the contents of the thread's variable for a reader of OTEP
//! 4947.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use flightline_context::record::{Record, SIDE_CAR_BEFORE, SideCar, VALID, labels};
use flightline_context::{
    Entering, LabelError, Span, SpanContext, begin, current, end, enter, enter_context, exit, exit_owner,
    label, own_slot,
};

fn context(id: u64) -> SpanContext {
    SpanContext { trace_id: [9; 16], span_id: id, flags: 1, ..SpanContext::default() }
}

/// Returns the data that a reader sees: span id, and labels by index.
fn seen() -> Option<(u64, Vec<(u8, String)>)> {
    // SAFETY: this thread's variable is null or points to a record.
    let record = unsafe { (*own_slot()).context.load(Relaxed).cast::<Record>().as_ref() }?;
    assert_eq!(record.valid, VALID);
    let attrs = labels(&record.attrs[..record.attrs_size.into()]);
    let attrs = attrs.map(|(key, value)| (key, String::from_utf8(value.to_vec()).unwrap())).collect();
    Some((u64::from_be_bytes(record.span_id), attrs))
}

fn car() -> &'static SideCar {
    // SAFETY: this thread's variable points to a record of this crate, which has a side-car before it.
    unsafe { &*(*own_slot()).context.load(Relaxed).sub(SIDE_CAR_BEFORE).cast() }
}

/// Id of the record that the active one links to.
fn previous() -> u64 {
    // SAFETY: the previous record becomes active again after this one, so it is valid.
    let record = unsafe { car().previous.cast::<Record>().as_ref() };
    record.map_or(0, |record| u64::from_be_bytes(record.span_id))
}

#[test]
fn activations_may_nest_and_end_in_any_order() {
    assert_eq!(seen(), None);
    let mut tokens = Vec::new();
    for id in 1..=3 {
        tokens.push(enter(&Entering { context: &context(id), name: "", attrs: &[], owner: id }));
        assert_eq!((seen().unwrap().0, car().local_root_span_id, previous()), (id, 1, id - 1));
    }
    // The middle one first: this is not visible to a reader.
    assert!(exit(tokens[1]).is_some() && exit(tokens[1]).is_none());
    assert_eq!((seen().unwrap().0, previous()), (3, 1));
    assert!(exit_owner(3).is_some() && exit_owner(2).is_none());
    assert_eq!(seen().unwrap().0, 1);
    // A token of another thread is invalid here.
    let first = tokens[0];
    thread::spawn(move || assert!(exit(first).is_none())).join().unwrap();
    assert!(exit(first).is_some());
    assert_eq!((seen(), current()), (None, None));
}

#[test]
fn activation_depth_is_limited() {
    let enter = |id| enter(&Entering { context: &context(id), name: "", attrs: &[], owner: 0 });
    let mut tokens: Vec<u64> = (1..=5000).map(enter).collect();
    let deep = tokens.iter().take_while(|token| **token != 0).count();
    assert!((4000..5000).contains(&deep) && tokens[deep..].iter().all(|token| *token == 0));
    assert_eq!(seen().unwrap().0, deep as u64);
    // Every third, then the others from above: a reader always sees the innermost one that is left.
    tokens.truncate(deep);
    let mut left: Vec<usize> = (0..deep).filter(|i| i % 3 != 0).collect();
    (0..deep).step_by(3).for_each(|i| assert!(exit(tokens[i]).is_some()));
    while let Some(last) = left.pop() {
        assert_eq!(seen().unwrap().0, last as u64 + 1);
        assert!(exit(tokens[last]).is_some());
    }
    assert_eq!(seen(), None);
    assert_ne!(enter(1), 0);
}

#[test]
fn labels_are_inherited_within_a_trace() {
    assert_eq!(label("k", "v"), Err(LabelError::NoSpan));
    let outer = Span::root("outer");
    let inside = outer.enter();
    label("endpoint", "/pay").unwrap();
    label("tenant", "a").unwrap();
    label("endpoint", "/buy").unwrap();
    let (_, attrs) = seen().unwrap();
    assert_eq!(attrs.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["a", "/buy"]);
    {
        let mut inner = Span::new("inner");
        inner.label("tenant", "b").unwrap();
        assert_eq!(inner.context().trace_id, outer.context().trace_id);
        let _inside = inner.enter();
        let (_, attrs) = seen().unwrap();
        assert_eq!(attrs.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["/buy", "b"]);
        let other = enter_context(&context(5));
        assert_eq!(seen(), Some((5, vec![])));
        drop(other);
    }
    assert_eq!(seen().unwrap().1.len(), 2);
    // Full: the labels are unchanged.
    let long = "x".repeat(255);
    assert_eq!(label("c", &long), Ok(()));
    assert_eq!(label("d", &long), Ok(()));
    assert_eq!(label("e", &long), Err(LabelError::Full));
    assert_eq!(seen().unwrap().1.len(), 4);
    drop(inside);
    // The span stored them for its next activation.
    let again = outer.enter();
    assert_eq!(seen().unwrap().1.len(), 4);
    drop(again);
    assert_eq!(label("", "v"), Err(LabelError::NoSpan));
}

#[test]
fn new_thread_has_no_active_span() {
    let span = Span::root("s");
    let _inside = span.enter();
    for _ in 0..200 {
        thread::spawn(|| {
            assert_eq!(seen(), None);
            let _guard = enter_context(&context(8));
            assert_eq!((seen(), car().local_root_span_id), (Some((8, vec![])), 8));
        })
        .join()
        .unwrap();
    }
    assert_eq!(seen().unwrap().0, span.context().span_id);
}

#[test]
fn activation_names_are_copied_and_truncated() {
    assert!(!end(1));
    let mut tokens = Vec::new();
    for i in 0..20 {
        let name = format!("{i}{}", "ä".repeat(200));
        tokens.push(begin(&name));
    }
    for (i, token) in tokens.into_iter().enumerate().rev() {
        let car = car();
        // SAFETY: valid while the record is active.
        let name = unsafe { std::slice::from_raw_parts(car.name, car.name_len as usize) };
        let name = std::str::from_utf8(name).unwrap();
        assert!(name.starts_with(&format!("{i}ää")) && (254..=255).contains(&name.len()), "{name}");
        assert!(end(token) && !end(token));
    }
    assert_eq!(seen(), None);
}

/// The block of a thread that ended is reused by another thread, or unmapped: memory does not grow with the
/// number of past threads.
#[test]
fn ended_threads_blocks_are_reused_or_unmapped() {
    // Memory that is wiped on a fork belongs to this crate.
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut size, mut sum) = (0, 0u64);
        for line in maps.lines() {
            if let Some(kb) = line.strip_prefix("Size:") {
                size = kb.trim().trim_end_matches(" kB").parse().unwrap();
            } else if line.starts_with("VmFlags:") && line.contains(" wf") {
                sum += size;
            }
        }
        sum
    };
    let round = || {
        let work = || {
            let tokens: Vec<u64> =
                (1..100).map(|id| enter_context(&context(id))).map(std::mem::forget).map(|()| 1).collect();
            assert!(seen().is_some() && tokens.len() == 99);
        };
        let threads: Vec<_> =
            (0..100).map(|_| thread::Builder::new().stack_size(64 << 10).spawn(work).unwrap()).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    };
    round();
    let before = mapped();
    (0..20).for_each(|_| round());
    // In KB. Each of these threads has 13 blocks of 16 KB, and 2000 of them 416 MB; 64 blocks are retained,
    // and other tests have threads too.
    let after = mapped();
    assert!(before > 0 && after < before + 50_000, "{before} {after}");
}
