//! OpenTelemetry's contexts.

use std::sync::Arc;

use flightline_context::{Entering, SpanContext, current, enter, exit_owner};
use opentelemetry::Context;
use opentelemetry::context::{ContextObserver, GlobalContextObserver};
use opentelemetry::trace::TraceContextExt;

/// Ids of a context's span, if it has one.
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

/// The current context's ids for a span that has just been entered; parent and local root are those of its parent in `tracing`.
pub(crate) fn adopt(own: &SpanContext, parent: impl FnOnce() -> Option<SpanContext>) -> Option<SpanContext> {
    let ids = Context::map_current(ids)?;
    let parent = parent().filter(|parent| parent.trace_id == ids.trace_id && parent.span_id != own.span_id);
    Some(SpanContext {
        parent_span_id: parent.map_or(0, |parent| parent.span_id),
        local_root_span_id: parent.map_or(ids.span_id, |parent| parent.local_root_span_id),
        ..ids
    })
}

/// Says whose activations these are.
const OWNER: u64 = u64::MAX;

struct Observer;

impl Observer {
    fn enter(to: &Context) {
        // Without a span: nothing is to be seen, whatever was entered around it.
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

    fn on_context_exit(&self, _: &Context, to: &Context) {
        // Guards that were dropped out of order have been left without a word: until what is current is what it should be.
        let wanted = ids(to).map(|ids| (ids.trace_id, ids.span_id));
        while exit_owner(OWNER).is_some() {
            if current().map(|ids| (ids.trace_id, ids.span_id)) == wanted {
                return;
            }
        }
        if wanted.is_some() {
            Observer::enter(to);
        }
    }
}

/// Enters on each thread the span of OpenTelemetry's current context, however it becomes current: `attach`, `with_context` of futures,
/// or a `tracing_opentelemetry` layer; instead of [`crate::FlightlineLayer`], not besides it. A recorder tells of such spans in which
/// samples were taken and when they were active; names and ends are those of whoever receives OpenTelemetry's own data.
///
/// OpenTelemetry has one observer in a process, the first that is set.
pub fn observe_opentelemetry() {
    GlobalContextObserver::set(Arc::new(Observer));
}
