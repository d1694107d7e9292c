//! Measures the cost of entering and leaving a span: one thread, CPU time, best of many rounds (other load only ever adds). It measures
//! three cases: without a recorder; with a recorder but no sample during the span, the case of nearly all spans in a recorded program;
//! and with every span recorded.
//!
//! `cargo bench -p flightline-tracing --bench spans`. To measure with the real recorder, run the program under
//! `flightline record -F 99 --`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use flightline_context::abi::{Abi, ScopeEnd, Slot, SpanEnd, Switches, VERSION, mode};
use flightline_context::set_recorder;
use flightline_context::{Span, SpanContext, enter_context, keys, label, own_slot};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Dispatch, dispatcher, info_span};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;

use best::best;

#[path = "best.rs"]
mod best;

// Rounds are short and many, so that in one of them the sibling hardware thread of the core is idle.
const ROUNDS: usize = 3000;
const EACH: u32 = 1_000;

static SAMPLES: AtomicU32 = AtomicU32::new(0);
static MODE: AtomicU32 = AtomicU32::new(mode::SAMPLED);
static TOLD: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn slot() -> *const Slot {
    own_slot()
}
unsafe extern "C" fn samples() -> *const AtomicU32 {
    &raw const SAMPLES
}
unsafe extern "C" fn span(_: *const SpanEnd) {
    TOLD.fetch_add(1, Relaxed);
}
unsafe extern "C" fn scope(_: *const ScopeEnd) {
    TOLD.fetch_add(1, Relaxed);
}

static SWITCHES: Switches = Switches { mark: AtomicU64::new(0), word: AtomicUsize::new(0) };
unsafe extern "C" fn switched() {}

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

fn nanos(mut once: impl FnMut()) -> f64 {
    let mut round = || (0..EACH).for_each(|_| once());
    round();
    let (time, ()): (Duration, ()) = best(ROUNDS, round);
    time.as_secs_f64() * 1e9 / f64::from(EACH)
}

fn bare() {
    let context = SpanContext { trace_id: [7; 16], span_id: 3, flags: 1, ..SpanContext::default() };
    row("enter + exit", nanos(|| drop(enter_context(black_box(&context)))));
    let outer = enter_context(&context);
    row("enter + exit, nested", nanos(|| drop(enter_context(black_box(&context)))));
    row("label", nanos(|| label("tenant", "acme").expect("room")));
    row(
        "enter + exit, nested, with the label of the outer",
        nanos(|| drop(enter_context(black_box(&context)))),
    );
    drop(outer);
    let span = Span::root("span");
    row("enter + exit of a Span", nanos(|| drop(span.enter())));
    row("Span: new, enter, exit, drop", nanos(|| drop(Span::root("span").enter())));
}

fn row(what: &str, nanos: f64) {
    println!("  {what:60} {nanos:8.1} ns");
}

/// Measures enter + exit of one span under each subscriber, in alternating rounds.
fn layers() {
    let bare = Dispatch::new(registry());
    let ours = Dispatch::new(registry().with(flightline_tracing::layer()));
    let labelled = Dispatch::new(registry().with(flightline_tracing::layer().with_labels(["tenant"])));
    let provider = SdkTracerProvider::builder().build();
    let otel = || tracing_opentelemetry::layer().with_tracer(provider.tracer("bench"));
    let otel_alone = Dispatch::new(registry().with(otel()));
    let on_otel =
        Dispatch::new(registry().with(otel()).with(flightline_tracing::layer().with_opentelemetry()));
    let mut costs = [0.0; 5];
    for (dispatch, cost) in [bare, ours, labelled, otel_alone, on_otel].iter().zip(&mut costs) {
        dispatcher::with_default(dispatch, || {
            let span = info_span!("request", tenant = "acme");
            *cost = nanos(|| drop(span.enter()));
        });
    }
    row("tracing, bare registry: enter + exit", costs[0]);
    row("  with our layer, above the bare registry", costs[1] - costs[0]);
    row("  with our layer and a label, above the bare registry", costs[2] - costs[0]);
    row("tracing-opentelemetry: enter + exit", costs[3]);
    row("  with our layer, above tracing-opentelemetry", costs[4] - costs[3]);
}

fn main() {
    println!("{}", if std::env::var_os("LD_PRELOAD").is_some() { "preloaded:" } else { "no recorder:" });
    bare();
    layers();
    if std::env::var_os("LD_PRELOAD").is_some() {
        return;
    }
    set_recorder(&RECORDER);
    println!("a recorder, no sample:");
    bare();
    layers();
    assert_eq!(TOLD.load(Relaxed), 0, "nothing is recorded without a sample");
    println!("a recorder that wants all:");
    MODE.store(mode::ALL, Relaxed);
    bare();
    layers();
    assert!(TOLD.load(Relaxed) > EACH, "all is told");
}
