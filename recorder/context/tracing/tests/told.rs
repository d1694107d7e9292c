//! The reports to a recorder that counts samples when this test requests it.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;

use flightline_context::abi::{Abi, ScopeEnd, Slot, SpanEnd, Switches, VERSION, mode};
use flightline_context::set_recorder;
use flightline_context::{Span, enter_context, keys, label, own_slot};
use flightline_tracing::{FlightlineProcessor, layer, observe_opentelemetry};
use opentelemetry::trace::{TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Dispatch, dispatcher, info_span};
use tracing_subscriber::prelude::*;

static MODE: AtomicU32 = AtomicU32::new(mode::SAMPLED);

#[derive(Clone, Debug, Default)]
struct Told {
    name: String,
    labels: String,
    span: Option<SpanEnd>,
    scope: Option<ScopeEnd>,
}
// SAFETY: its pointers are not followed after the call.
unsafe impl Send for Told {}

thread_local! {
    /// One word for each thread, never freed.
    static SAMPLES: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
    static RECORDED: Cell<bool> = const { Cell::new(true) };
}
static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

unsafe extern "C" fn slot() -> *const Slot {
    own_slot()
}
unsafe extern "C" fn samples() -> *const AtomicU32 {
    if RECORDED.get() { SAMPLES.with(|word| &raw const **word) } else { std::ptr::null() }
}
fn text(at: *const u8, len: u32) -> String {
    // SAFETY: the ABI guarantees `len` bytes at `at` during the call; null was ruled out.
    let bytes = if at.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(at, len as usize) } };
    String::from_utf8(bytes.to_vec()).unwrap()
}
unsafe extern "C" fn span(end: *const SpanEnd) {
    // SAFETY: the struct is complete during the call.
    let end = unsafe { *end };
    assert!(end.size as usize == size_of::<SpanEnd>() && end.start_ns <= end.end_ns);
    let (name, labels) = (text(end.name, end.name_len), text(end.labels, end.labels_len));
    TOLD.lock().unwrap().push(Told { name, labels, span: Some(end), scope: None });
}
unsafe extern "C" fn scope(end: *const ScopeEnd) {
    // SAFETY: the struct is complete during the call.
    let end = unsafe { *end };
    assert!(end.size as usize == size_of::<ScopeEnd>() && end.start_ns <= end.end_ns);
    TOLD.lock().unwrap().push(Told { scope: Some(end), ..Told::default() });
}

static RECORDER: Abi = Abi {
    size: size_of::<Abi>() as u32,
    version: VERSION,
    slot,
    samples,
    mode: &raw const MODE,
    key: keys::own_key,
    key_name: keys::own_key_name,
    span,
    scope,
    switches: &raw const SWITCHES,
    switched,
};

static SWITCHES: Switches = Switches { mark: AtomicU64::new(0), word: AtomicUsize::new(0) };
unsafe extern "C" fn switched() {}

fn sampled() {
    SAMPLES.with(|word| word.fetch_add(1, Relaxed));
}

fn take_events() -> (Vec<ScopeEnd>, Vec<(String, String, SpanEnd)>) {
    let events = std::mem::take(&mut *TOLD.lock().unwrap());
    let scopes = events.iter().filter_map(|event| event.scope).collect();
    (scopes, events.into_iter().filter_map(|t| t.span.map(|span| (t.name, t.labels, span))).collect())
}

fn now() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// A single test, because there is one recorder in a process.
#[test]
fn only_sampled_spans_are_reported() {
    set_recorder(&RECORDER);
    let before = now();

    // A span without a sample is not reported.
    let outer = Span::root("outer");
    drop(outer.enter());
    assert!(take_events().0.is_empty());
    {
        let _outer = outer.enter();
        label("endpoint", "/\"pay\"").unwrap();
        let inner = Span::new("inner");
        {
            let _inner = inner.enter();
            sampled();
        }
        let (scopes, spans) = take_events();
        assert!(spans.is_empty());
        let [scope] = scopes[..] else { panic!("{scopes:?}") };
        assert_eq!(scope.samples, 1);
        assert_eq!(
            (scope.span_id, scope.previous_span_id),
            (inner.context().span_id, outer.context().span_id)
        );
        drop(inner);
        let (_, spans) = take_events();
        let [(name, labels, span)] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((&name[..], &labels[..]), ("inner", ""));
        assert_eq!(
            (span.parent_span_id, span.local_root_span_id),
            (outer.context().span_id, outer.context().span_id)
        );
        assert!(
            before <= span.start_ns && span.start_ns <= scope.start_ns && scope.end_ns <= span.end_ns,
            "{span:?} {scope:?}"
        );
        assert!(span.end_ns <= now());
    }
    assert_eq!(take_events().0.len(), 1);
    drop(outer);
    let (_, spans) = take_events();
    assert_eq!(
        (&spans[0].0[..], &spans[0].1[..], spans[0].2.samples),
        ("outer", r#"{"endpoint":"/\"pay\""}"#, 1)
    );

    // A thread that is not recorded reports nothing, and spans of other libraries only their activations.
    RECORDED.set(false);
    {
        let _inside = enter_context(Span::root("x").context());
        sampled();
    }
    RECORDED.set(true);
    {
        let _inside = enter_context(Span::root("x").context());
        sampled();
    }
    let (scopes, spans) = take_events();
    assert_eq!((scopes.len(), spans.len()), (1, 0));

    // Another writer's record may be freed when an activation above it ends, so it must not be read. SAFETY:
    // this thread's own slot.
    let slot = unsafe { &(*own_slot()).context };
    slot.store(std::ptr::without_provenance_mut(64), Relaxed);
    {
        let _inside = enter_context(Span::root("x").context());
        sampled();
    }
    slot.store(std::ptr::null_mut(), Relaxed);
    let (scopes, _) = take_events();
    assert_eq!((scopes.len(), scopes[0].previous_span_id), (1, 0));

    through_the_layer();
    through_opentelemetry();

    MODE.store(mode::ALL, Relaxed);
    drop(Span::root("all").enter());
    let (scopes, spans) = take_events();
    assert_eq!((scopes.len(), spans.len(), spans[0].2.samples), (1, 1, 0));
    MODE.store(mode::OFF, Relaxed);
    let span = Span::root("off");
    drop(span.enter());
    // No recording was active when the span began, so its start is unknown.
    MODE.store(mode::ALL, Relaxed);
    drop(span);
    let (scopes, spans) = take_events();
    assert_eq!((scopes.len(), spans.len()), (0, 0));
}

fn through_the_layer() {
    let layer = layer().with_labels(["tenant", "status", "size"]);
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    let span = dispatcher::with_default(&dispatch, || {
        info_span!("request", tenant = "a", size = 5, other = "x", status = tracing::field::Empty)
    });
    // On three threads, one sample each, with a field that is recorded later.
    for i in 0..3 {
        let span = span.clone();
        thread::spawn(move || {
            let _inside = span.enter();
            sampled();
            if i == 2 {
                span.record("status", tracing::field::display("done"));
                label("from", "within").unwrap();
            }
        })
        .join()
        .unwrap();
    }
    drop(span);
    let (scopes, spans) = take_events();
    assert_eq!(scopes.iter().map(|scope| scope.samples).collect::<Vec<_>>(), [1, 1, 1]);
    let [(name, labels, span)] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&name[..], span.samples, span.span_id), ("request", 3, scopes[0].span_id));
    assert_eq!(labels, r#"{"tenant":"a","size":"5","status":"done","from":"within"}"#);
    dispatcher::with_default(&dispatch, || {
        let unsampled = info_span!("request");
        drop(unsampled.enter());
        let renamed = info_span!("request", otel.name = "GET /");
        renamed.in_scope(sampled);
    });
    let (_, spans) = take_events();
    assert_eq!(spans.iter().map(|(name, ..)| &name[..]).collect::<Vec<_>>(), ["GET /"]);
    asked(&dispatch);
}

/// Spans of servers are named by the request, as OpenTelemetry names them.
fn asked(dispatch: &Dispatch) {
    use tracing::field::{Empty, display};
    dispatcher::with_default(dispatch, || {
        info_span!("http.request", http.method = %"GET", http.route = "/users/{id}").in_scope(sampled);
        info_span!("http.request", http.request.method = "POST").in_scope(sampled);
        info_span!("http.request", http.route = "/users", otel.name = "users").in_scope(sampled);
        let late = info_span!("http.request", http.request.method = "PUT", http.route = Empty);
        late.in_scope(sampled);
        late.record("http.route", display("/late"));
    });
    let (_, spans) = take_events();
    let names: Vec<_> = spans.iter().map(|(name, ..)| &name[..]).collect();
    assert_eq!(names, ["GET /users/{id}", "http.request", "users", "PUT /late"]);
}

/// Names and ends come from the SDK, whether a span is left before or after its end.
fn through_opentelemetry() {
    observe_opentelemetry();
    let processor = FlightlineProcessor::new().with_labels(["http.route"]);
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    let tracer = provider.tracer("test");
    let outer = Context::new().with_span(tracer.start("outer"));
    let inside = outer.clone().attach();
    let inner = Context::current_with_value(0).with_span(tracer.start("inner"));
    {
        let _inside = inner.clone().attach();
        sampled();
        inner.span().set_attribute(KeyValue::new("http.route", "/pay"));
        inner.span().set_attribute(KeyValue::new("other", "x"));
        inner.span().end();
    }
    {
        let idle = Context::current().with_span(tracer.start("idle"));
        let _inside = idle.attach();
    }
    drop(inside);
    outer.span().end();
    let (scopes, spans) = take_events();
    let found: Vec<_> = spans.iter().map(|(name, labels, s)| (&name[..], &labels[..], s.samples)).collect();
    assert_eq!(found, [("inner", r#"{"http.route":"/pay"}"#, 1), ("outer", "", 1)]);
    let [inner, outer] = [spans[0].2, spans[1].2];
    assert_eq!((inner.parent_span_id, inner.local_root_span_id), (outer.span_id, outer.span_id));
    assert_eq!((outer.parent_span_id, outer.local_root_span_id), (0, outer.span_id));
    assert_eq!(scopes.iter().map(|scope| scope.span_id).collect::<Vec<_>>(), [inner.span_id, outer.span_id]);
    assert!(outer.end_ns <= now());
}
