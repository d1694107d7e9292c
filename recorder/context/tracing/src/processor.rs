//! Names and ends of spans from OpenTelemetry's SDK.

use std::time::{Duration, SystemTime};

use flightline_context::{Labels, SpanContext, beginning, current, samples_so_far, span_ended};
use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

use crate::otel;

/// Reports spans that ended and contain samples to the recorder, with their names. Add it to a tracer
/// provider, alongside the exporters, in programs that call [`crate::observe_opentelemetry`].
///
/// ```
/// # use opentelemetry_sdk::trace::SdkTracerProvider;
/// flightline_tracing::observe_opentelemetry();
/// let processor = flightline_tracing::FlightlineProcessor::new().with_labels(["http.route"]);
/// let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
/// ```
#[derive(Debug, Default)]
pub struct FlightlineProcessor {
    labels: Vec<&'static str>,
}

impl FlightlineProcessor {
    /// Creates a processor that reports no labels.
    pub fn new() -> FlightlineProcessor {
        otel::keep();
        FlightlineProcessor::default()
    }

    /// Sets the attributes that become labels of the reported spans. Samples do not have these labels.
    pub fn with_labels(mut self, attributes: impl IntoIterator<Item = &'static str>) -> Self {
        self.labels.extend(attributes);
        self
    }
}

impl SpanProcessor for FlightlineProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let now_ns = beginning();
        let ids = &span.span_context;
        let span_id = u64::from_be_bytes(ids.span_id().to_bytes());
        let known = otel::take(span_id);
        // The span may end before it is left, so its open activation counts too.
        let samples = known.map_or(0, |known| known.samples).saturating_add(samples_so_far(span_id));
        if now_ns == 0 {
            return;
        }
        let active = || current().filter(|current| current.span_id == span_id);
        let local_root_span_id = known.map(|known| known.local_root_span_id);
        let context = SpanContext {
            trace_id: ids.trace_id().to_bytes(),
            span_id,
            parent_span_id: u64::from_be_bytes(span.parent_span_id.to_bytes()),
            local_root_span_id: local_root_span_id
                .or_else(|| active().map(|current| current.local_root_span_id))
                .unwrap_or(0),
            flags: ids.trace_flags().to_u8(),
        };
        let mut labels = Labels::new();
        for attribute in span.attributes.iter().filter(|a| self.labels.contains(&a.key.as_str())) {
            // A label that does not fit is omitted.
            let _ = labels.set(attribute.key.as_str(), &attribute.value.as_str());
        }
        // The SDK uses another clock, which may have been set since.
        let ago = SystemTime::now().duration_since(span.start_time).unwrap_or_default();
        let start_ns = now_ns.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)).max(1);
        span_ended(&context, &span.name, start_ns, samples, labels.bytes());
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
