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
        Item::Sample(sample) => Some(of_sample(sample, depth)),
        Item::Loss(loss) => Some(of_loss(loss)),
        Item::Warning(warning) => Some(of_warning(warning)),
        _ => None,
    }
}

/// The first line.
pub fn head() -> Json {
    json!({"type": "head", "schema": SCHEMA})
}

fn of_sample(sample: &Sample, depth: usize) -> Json {
    let mut object = timed("sample", &sample.time);
    let weight = &sample.weight;
    let more = json!({
        "event": *sample.event,
        "kind": sample.kind.name(),
        "variant": sample.variant.as_deref(),
        "durationNanos": sample.duration_nanos,
        "thread": sample.thread.as_deref().map(of_thread),
        "processTitle": sample.process_title.as_deref(),
        "state": sample.state.as_deref(),
        "weight": {"samples": weight.samples, "value": weight.value, "unit": weight.unit.name()},
        "span": sample.span_id,
        "spanContext": sample.span.as_deref().map(of_context),
        "labels": sample.labels.as_ref().map(of_value),
        "stack": sample.stack.as_deref().map(|stack| of_stack(stack, depth)),
        "fields": of_fields(&sample.fields),
    });
    add(&mut object, more);
    Json::Object(object)
}

/// Ids as OpenTelemetry writes them.
fn of_context(context: &SpanContext) -> Json {
    let id = |key: SpanKey| Some(format!("{key}")).filter(|_| key.id() != 0);
    json!({
        "traceId": context.trace.is_some().then(|| context.trace.to_string()),
        "spanId": id(context.span),
        "localRootSpanId": id(context.local_root),
        "flags": context.flags,
        "labels": context.labels.iter().map(|(name, value)| (name.to_string(), Json::from(&**value))).collect::<Map<_, _>>(),
    })
}

fn of_loss(loss: &Loss) -> Json {
    let mut object = timed("loss", &loss.time);
    let more = json!({
        "toldBy": *loss.told_by,
        "cause": *loss.cause,
        "event": loss.event_type.as_deref(),
        "thread": loss.thread.as_deref().map(of_thread),
        "events": loss.events,
        "bytes": loss.bytes,
        "cpuNanos": loss.cpu_nanos,
    });
    add(&mut object, more);
    Json::Object(object)
}

fn of_warning(warning: &Warning) -> Json {
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

fn of_thread(thread: &Thread) -> Json {
    json!({
        "name": thread.name(),
        "osTid": thread.os_id,
        "javaTid": (thread.java_id > 0).then_some(thread.java_id),
        "process": thread.group.as_deref(),
    })
}

fn of_stack(stack: &Stack, depth: usize) -> Json {
    let frames: Vec<Json> = stack.frames.iter().take(depth).map(of_frame).collect();
    json!({"truncated": stack.truncated || stack.frames.len() > depth, "frames": frames})
}

fn of_frame(frame: &Frame) -> Json {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "function": *frame.function,
        "class": text(&frame.class),
        "module": text(&frame.module),
        "line": (frame.line > 0).then_some(frame.line),
        "type": frame.kind.name(),
    })
}

fn of_fields(fields: &[(std::sync::Arc<str>, Value)]) -> Json {
    Json::Object(fields.iter().map(|(name, value)| (name.to_string(), of_value(value))).collect())
}

fn of_value(value: &Value) -> Json {
    match value {
        Value::Boolean(value) => (*value).into(),
        Value::Integer(value) => (*value).into(),
        Value::Real(value) => (*value).into(),
        Value::Text(text) => (**text).into(),
        Value::Thread(thread) => of_thread(thread),
        Value::Stack(stack) => of_stack(stack, usize::MAX),
        Value::List(list) => list.iter().map(of_value).collect(),
        Value::Struct(fields) => of_fields(fields),
        _ => Json::Null,
    }
}
