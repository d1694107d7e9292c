//! Spans as OTLP traces: recorded spans, and spans inferred from samples.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{self as proto, ResourceSpans, ScopeSpans, TracesData};

use super::profiles::{divided, nanos};
use crate::batch::Batch;
use crate::context::Span;
use crate::resource::{Group, attribute, group, scope, text_attribute};

/// Converts the spans of the batch.
pub fn traces(batch: &Batch) -> TracesData {
    traces_data(batch, &batch.spans)
}

/// Passes the spans to `each` as encoded messages of at most `most` bytes, with the number of spans in
/// each.
///
/// # Errors
/// The error that `each` returns.
pub fn trace_parts<E>(
    batch: &Batch,
    most: usize,
    mut each: impl FnMut(Vec<u8>, u64) -> Result<(), E>,
) -> Result<(), E> {
    divided(&batch.spans, most, |part| traces_data(batch, part), &mut each)
}

fn traces_data(batch: &Batch, spans: &[Span]) -> TracesData {
    let mut groups: BTreeMap<Group, Vec<proto::Span>> = BTreeMap::new();
    for span in spans {
        groups.entry(group(span.process.as_ref())).or_default().push(message(span));
    }
    let resource_spans = groups
        .into_iter()
        .map(|(group, spans)| ResourceSpans {
            resource: Some(batch.resources.get(group.as_deref())),
            scope_spans: vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        })
        .collect();
    TracesData { resource_spans }
}

fn message(span: &Span) -> proto::Span {
    let mut attributes: Vec<_> =
        span.labels.iter().map(|(name, value)| text_attribute(name, value.to_string())).collect();
    if span.inferred {
        attributes.push(attribute("is_inferred", Value::BoolValue(true)));
    }
    if !span.stack.is_empty() {
        attributes.push(text_attribute("code.stacktrace", span.stack.join("\n")));
    }
    if let Some(samples) = span.samples {
        let samples = i64::try_from(samples).unwrap_or(i64::MAX);
        attributes.push(attribute("sample_count", Value::IntValue(samples)));
    }
    // An invalid link makes a receiver reject the whole message.
    let links = span.links.iter().filter(|link| link.trace_id != 0 && link.span_id != 0).map(|link| Link {
        trace_id: link.trace_id.to_be_bytes().into(),
        span_id: link.span_id.to_be_bytes().into(),
        attributes: match link.is_child {
            true => vec![attribute("is_child", Value::BoolValue(true))],
            false => Vec::new(),
        },
        ..Link::default()
    });
    let parent = Some(span.parent_span_id).filter(|&id| id != 0);
    proto::Span {
        trace_id: span.trace_id.to_be_bytes().into(),
        span_id: span.span_id.to_be_bytes().into(),
        parent_span_id: parent.map_or_else(Vec::new, |id| id.to_be_bytes().into()),
        flags: span.flags,
        name: span.name.to_string(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end.max(span.start)),
        attributes,
        links: links.collect(),
        ..proto::Span::default()
    }
}
