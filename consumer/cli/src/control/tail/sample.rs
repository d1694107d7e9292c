//! Formats the items of a stream as JSON lines. The schema is in docs/guide/tasks/follow-recordings.md, "NDJSON".

use flightline_consumer::live::{Frame, Item, Kind, Loss, Sample, Stack, Time, Value, Warning};
use flightline_consumer::model::Thread;
use flightline_consumer::spans::{SpanContext, SpanKey};
use serde_json::{Map, Value as Json, json};

/// Version of the schema; adding fields does not change it.
pub const SCHEMA: u32 = 1;

/// Returns the JSON object of an item; `None` for items that are not printed.
pub fn object(item: &Item, depth: usize) -> Option<Json> {
    match item {
        // The start of a thread is not a sample, although the event may have a stack.
        Item::Sample(sample) if sample.stack.is_none() && sample.kind == Kind::Other => None,
        Item::Sample(sample) => Some(sample_json(sample, depth)),
        Item::Loss(loss) => Some(loss_json(loss)),
        Item::Warning(warning) => Some(warning_json(warning)),
        _ => None,
    }
}

/// The first line.
pub fn head() -> Json {
    json!({"type": "head", "schema": SCHEMA})
}

fn sample_json(sample: &Sample, depth: usize) -> Json {
    let mut object = timed("sample", &sample.time);
    let weight = &sample.weight;
    let more = json!({
        "event": *sample.event,
        "kind": sample.kind.name(),
        "variant": sample.variant.as_deref(),
        "durationNanos": sample.duration_nanos,
        "thread": sample.thread.as_deref().map(thread_json),
        "processTitle": sample.process_title.as_deref(),
        "state": sample.state.as_deref(),
        "weight": {"samples": weight.samples, "value": weight.value, "unit": weight.unit.name()},
        "span": sample.span_id,
        "spanContext": sample.span.as_deref().map(context_json),
        "labels": sample.labels.as_ref().map(value_json),
        "stack": sample.stack.as_deref().map(|stack| stack_json(stack, depth)),
        "fields": fields_json(&sample.fields),
    });
    add(&mut object, more);
    Json::Object(object)
}

/// Ids as OpenTelemetry writes them.
fn context_json(context: &SpanContext) -> Json {
    let id = |key: SpanKey| Some(format!("{key}")).filter(|_| key.id() != 0);
    json!({
        "traceId": context.trace.is_some().then(|| context.trace.to_string()),
        "spanId": id(context.span),
        "localRootSpanId": id(context.local_root),
        "flags": context.flags,
        "labels": context.labels.iter().map(|(name, value)| (name.to_string(), Json::from(&**value))).collect::<Map<_, _>>(),
    })
}

fn loss_json(loss: &Loss) -> Json {
    let mut object = timed("loss", &loss.time);
    let more = json!({
        "toldBy": *loss.told_by,
        "cause": *loss.cause,
        "event": loss.event_type.as_deref(),
        "thread": loss.thread.as_deref().map(thread_json),
        "events": loss.events,
        "bytes": loss.bytes,
        "cpuNanos": loss.cpu_nanos,
    });
    add(&mut object, more);
    Json::Object(object)
}

fn warning_json(warning: &Warning) -> Json {
    json!({"type": "warning", "offset": warning.offset, "message": warning.message, "damage": warning.damage})
}

fn timed(kind: &str, time: &Time) -> Map<String, Json> {
    let mut object = Map::new();
    object.insert("type".into(), kind.into());
    object.insert("time".into(), time.epoch_nanos.into());
    object.insert("monotonic".into(), time.monotonic_nanos.into());
    object
}

fn add(object: &mut Map<String, Json>, more: Json) {
    if let Json::Object(more) = more {
        object.extend(more);
    }
}

fn thread_json(thread: &Thread) -> Json {
    json!({
        "name": thread.name(),
        "osTid": thread.os_id,
        "javaTid": (thread.java_id > 0).then_some(thread.java_id),
        "process": thread.group.as_deref(),
    })
}

fn stack_json(stack: &Stack, depth: usize) -> Json {
    let frames: Vec<Json> = stack.frames.iter().take(depth).map(frame_json).collect();
    json!({"truncated": stack.truncated || stack.frames.len() > depth, "frames": frames})
}

fn frame_json(frame: &Frame) -> Json {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "function": *frame.function,
        "class": text(&frame.class),
        "module": text(&frame.module),
        "line": (frame.line > 0).then_some(frame.line),
        "type": frame.kind.name(),
    })
}

fn fields_json(fields: &[(std::sync::Arc<str>, Value)]) -> Json {
    Json::Object(fields.iter().map(|(name, value)| (name.to_string(), value_json(value))).collect())
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Boolean(value) => (*value).into(),
        Value::Integer(value) => (*value).into(),
        Value::Real(value) => (*value).into(),
        Value::Text(text) => (**text).into(),
        Value::Thread(thread) => thread_json(thread),
        Value::Stack(stack) => stack_json(stack, usize::MAX),
        Value::List(list) => list.iter().map(value_json).collect(),
        Value::Struct(fields) => fields_json(fields),
        _ => Json::Null,
    }
}
