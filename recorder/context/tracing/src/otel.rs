//! Follows OpenTelemetry's contexts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flightline_context::{Entering, SpanContext, current, enter, exit_owner, innermost_owner};
use opentelemetry::Context;
use opentelemetry::context::{ContextObserver, GlobalContextObserver};
use opentelemetry::trace::TraceContextExt;

/// Returns the ids of a context's span, if it has one.
fn ids(context: &Context) -> Option<SpanContext> {
    if !context.has_active_span() {
        return None;
    }
    let span = context.span();
    let ids = span.span_context();
    ids.is_valid().then(|| SpanContext {
        trace_id: ids.trace_id().to_bytes(),
        span_id: u64::from_be_bytes(ids.span_id().to_bytes()),
        parent_span_id: 0,
        local_root_span_id: 0,
        flags: ids.trace_flags().to_u8(),
    })
}

/// Returns the current context's ids for a span that has just been entered. Parent and local root are those
/// of its parent in `tracing`.
pub(crate) fn adopt(own: &SpanContext, parent: impl FnOnce() -> Option<SpanContext>) -> Option<SpanContext> {
    let ids = Context::map_current(ids)?;
    let parent = parent().filter(|parent| parent.trace_id == ids.trace_id && parent.span_id != own.span_id);
    Some(SpanContext {
        parent_span_id: parent.map_or(0, |parent| parent.span_id),
        local_root_span_id: parent.map_or(ids.span_id, |parent| parent.local_root_span_id),
        ..ids
    })
}

/// The owner of the activations of this module.
const OWNER: u64 = u64::MAX;

/// The data of a sampled span that has not ended.
#[derive(Clone, Copy)]
pub(crate) struct Sampled {
    pub(crate) samples: u32,
    pub(crate) local_root_span_id: u64,
}

/// Sampled spans that have not ended, by their ids. Used only with a `FlightlineProcessor`, which removes
/// them at their end.
static SAMPLED: Mutex<Option<HashMap<u64, Sampled>>> = Mutex::new(None);

/// Maximum number of stored spans; a program that exceeds it has lost the ends of that many.
const MOST: usize = 1 << 16;

fn sampled() -> MutexGuard<'static, Option<HashMap<u64, Sampled>>> {
    SAMPLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores the samples of spans from now on, until [`take`] removes them.
#[cfg(feature = "opentelemetry-sdk")]
pub(crate) fn keep() {
    sampled().get_or_insert_default();
}

/// Removes the stored data of a span, if it was sampled.
#[cfg(feature = "opentelemetry-sdk")]
pub(crate) fn take(span_id: u64) -> Option<Sampled> {
    sampled().as_mut()?.remove(&span_id)
}

/// Leaves the innermost activation; `recording`: its span has not ended.
fn leave(recording: bool) -> bool {
    let inside = current();
    let ours = innermost_owner() == Some(OWNER);
    let Some(ended) = exit_owner(OWNER) else { return false };
    if ended.samples != 0
        && recording
        && ours
        && let Some(inside) = inside
        && let Some(all) = sampled().as_mut()
        && (all.len() < MOST || all.contains_key(&inside.span_id))
    {
        let local_root_span_id = inside.local_root_span_id;
        let of = all.entry(inside.span_id).or_insert(Sampled { samples: 0, local_root_span_id });
        of.samples = of.samples.saturating_add(ended.samples);
    }
    true
}

struct Observer;

impl Observer {
    fn enter(to: &Context) {
        // A context without a span hides every activation around it.
        let none = SpanContext::default();
        let context = ids(to).or_else(|| current().map(|_| none));
        if let Some(context) = &context {
            enter(&Entering { context, name: "", attrs: &[], owner: OWNER });
        }
    }
}

impl ContextObserver for Observer {
    fn on_context_enter(&self, _: &Context, to: &Context) {
        Observer::enter(to);
    }

    fn on_context_exit(&self, from: &Context, to: &Context) {
        // Guards that were dropped out of order have caused no call. So leave activations until the current
        // one is the expected one.
        let wanted = ids(to).map(|ids| (ids.trace_id, ids.span_id));
        let mut recording = from.span().is_recording();
        while leave(recording) {
            recording = true;
            if current().map(|ids| (ids.trace_id, ids.span_id)) == wanted {
                return;
            }
        }
        if wanted.is_some() {
            Observer::enter(to);
        }
    }
}

/// Enters the span of OpenTelemetry's current context on each thread, however it becomes current: by
/// `attach`, by `with_context` of futures, or by a `tracing_opentelemetry` layer. Use it instead of
/// [`crate::FlightlineLayer`], not together with it. A recorder records the activations of spans that contain
/// samples. It knows the names and ends of the spans only if the tracer provider has a `FlightlineProcessor`
/// (feature `opentelemetry-sdk`).
///
/// OpenTelemetry has one observer per process, the first one that is set.
pub fn observe_opentelemetry() {
    GlobalContextObserver::set(Arc::new(Observer));
}
