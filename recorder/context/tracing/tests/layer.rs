//! The contents of a thread's context while a program uses `tracing` and OpenTelemetry, without a recorder.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Task, Wake, Waker};
use std::thread;

use flightline_context::current;
use flightline_tracing::{layer, observe_opentelemetry};
use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Dispatch, Instrument, dispatcher, info_span};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;

fn span_id() -> u64 {
    current().map_or(0, |context| context.span_id)
}

#[test]
fn spans_may_nest_and_end_in_any_order() {
    dispatcher::with_default(&Dispatch::new(registry().with(layer())), || {
        let (outer, inner, other) = (info_span!("a"), info_span!("b"), info_span!(parent: None, "c"));
        let in_outer = outer.enter();
        let a = current().unwrap();
        assert_eq!((a.parent_span_id, a.local_root_span_id), (0, a.span_id));
        assert!(a.trace_id != [0; 16] && a.flags & 1 == 1);
        let child = info_span!("child");
        let in_child = child.enter();
        let b = current().unwrap();
        assert_eq!((b.trace_id, b.parent_span_id, b.local_root_span_id), (a.trace_id, a.span_id, a.span_id));
        drop(in_outer);
        assert_eq!(span_id(), b.span_id);
        // Siblings created before `a` was entered are roots.
        let in_inner = inner.enter();
        assert_ne!(current().unwrap().trace_id, a.trace_id);
        drop(in_inner);
        other.in_scope(|| assert_ne!(current().unwrap().trace_id, a.trace_id));
        drop(in_child);
        assert_eq!(current(), None);
        // Entered again within itself.
        let in_outer = outer.enter();
        outer.in_scope(|| assert_eq!(span_id(), a.span_id));
        assert_eq!(span_id(), a.span_id);
        drop(in_outer);
        assert_eq!(current(), None);
    });
}

struct Nobody;
impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// A task that is polled by hand, on any thread.
async fn steps(mut each: impl FnMut()) {
    for _ in 0..4 {
        each();
        let mut yielded = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut yielded, true) { ().into() } else { std::task::Poll::Pending }
        })
        .await;
    }
}

#[test]
fn task_span_is_active_where_polled() {
    let dispatch = Dispatch::new(registry().with(layer()));
    let ids = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut task = dispatcher::with_default(&dispatch, || {
        let seen = ids.clone();
        Box::pin(
            steps(move || seen.lock().unwrap().push((thread::current().id(), span_id())))
                .instrument(info_span!("task")),
        )
    });
    // Each poll on a separate thread, inside a span of that thread.
    loop {
        let dispatch = dispatch.clone();
        let (done, back) = thread::spawn(move || {
            let _default = dispatcher::set_default(&dispatch);
            let around = info_span!("around").entered();
            let before = span_id();
            let done = task.as_mut().poll(&mut Task::from_waker(&Waker::from(Arc::new(Nobody)))).is_ready();
            assert_eq!(span_id(), before);
            drop(around);
            assert_eq!(current(), None);
            (done, task)
        })
        .join()
        .unwrap();
        task = back;
        if done {
            break;
        }
    }
    let ids = ids.lock().unwrap();
    let threads: std::collections::HashSet<_> = ids.iter().map(|(thread, _)| thread).collect();
    assert_eq!((ids.len(), threads.len()), (4, 4));
    assert!(ids.iter().all(|(_, id)| *id != 0 && *id == ids[0].1), "{ids:?}");
}

#[test]
fn runtime_tasks_see_only_their_own_span() {
    let dispatch = Dispatch::new(registry().with(layer()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let tasks: Vec<_> = dispatcher::with_default(&dispatch, || {
        let task = |_| {
            let span = info_span!("task");
            let id = span.in_scope(span_id);
            let work = async move {
                for _ in 0..200 {
                    assert_eq!(span_id(), id);
                    let inner = async { span_id() }.instrument(info_span!("inner"));
                    let inner = pin!(inner).await;
                    assert!(inner != 0 && inner != id);
                    tokio::task::yield_now().await;
                }
            };
            use tracing::instrument::WithSubscriber;
            runtime.spawn(work.instrument(span).with_current_subscriber())
        };
        (0..16).map(task).collect()
    });
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
        // A worker has no activation between tasks.
        tokio::spawn(async { assert_eq!(current(), None) }).await.unwrap();
    });
}

fn otel_ids() -> (u64, [u8; 16]) {
    Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        (u64::from_be_bytes(ids.span_id().to_bytes()), ids.trace_id().to_bytes())
    })
}

#[test]
fn span_ids_match_opentelemetry_layer() {
    let provider = SdkTracerProvider::builder().build();
    let otel = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    dispatcher::with_default(
        &Dispatch::new(registry().with(otel).with(layer().with_opentelemetry())),
        || {
            let outer = info_span!("outer").entered();
            let a = current().unwrap();
            assert_eq!((a.span_id, a.trace_id), otel_ids());
            let inner = info_span!("inner").entered();
            let b = current().unwrap();
            assert_eq!((b.span_id, b.trace_id), otel_ids());
            assert_eq!((b.parent_span_id, b.local_root_span_id), (a.span_id, a.span_id));
            assert_ne!(a.span_id, b.span_id);
            drop(inner);
            assert_eq!(span_id(), a.span_id);
            drop(outer);
            assert_eq!(current(), None);
        },
    );
}

#[test]
fn opentelemetry_contexts_are_observed_without_tracing() {
    observe_opentelemetry();
    let provider = SdkTracerProvider::builder().build();
    let tracer = provider.tracer("test");
    let attach = |name: &'static str| Context::current_with_span(tracer.start(name)).attach();
    let outer = attach("outer");
    let a = span_id();
    assert_eq!(a, otel_ids().0);
    let inner = attach("inner");
    let innermost = attach("innermost");
    assert_eq!(span_id(), otel_ids().0);
    // Out of order.
    drop(inner);
    assert_eq!(span_id(), otel_ids().0);
    drop(innermost);
    assert_eq!((span_id(), otel_ids().0), (a, a));
    let none = Context::new().attach();
    assert_eq!(current(), None);
    drop(none);
    assert_eq!(span_id(), a);
    drop(outer);
    assert_eq!(current(), None);
}
