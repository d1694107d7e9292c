//! Reads each event of any bytes by all methods of access: iterating, visiting, typed views and looking up by
//! name agree.
#![no_main]

use std::borrow::Cow;

use bytes::Bytes;
use jfr_format::event::{EventRef, Reference, Value};
use jfr_format::ids::Ticks;
use jfr_format::jfr_view;
use jfr_format::read::{Decoder, Delivery, Item, Views};
use libfuzzer_sys::fuzz_target;

jfr_view! {
    struct Sample<'a>: "jdk.ExecutionSample" {
        start: Option<Ticks> = "startTime",
        state: Option<Cow<'a, str>> = "state",
        stack: Option<Reference<'a>> = "stackTrace",
        thread: Option<Reference<'a>> = "sampledThread",
    }
}

fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::new(Delivery::WholeChunks);
    decoder.push(Bytes::copy_from_slice(data));
    decoder.close();
    let mut views = Views::default();
    while let Some(item) = decoder.next() {
        let Item::Events(batch) = item else { continue };
        for event in batch.events() {
            agree(&event);
            if let Ok(Some(sample)) = views.read::<Sample>(&event) {
                let key = |name| match event.field(name) {
                    Ok(Some(Value::Reference(reference))) => Some(reference.key()),
                    _ => None,
                };
                if let Some(stack) = sample.stack {
                    assert_eq!(Some(stack.key()), key("stackTrace"));
                }
                if let Some(thread) = sample.thread {
                    assert_eq!(Some(thread.key()), key("sampledThread"));
                }
                let _ = (sample.start, sample.state);
            }
        }
    }
});

fn agree(event: &EventRef<'_>) {
    let mut visited = Vec::new();
    let outcome = event.fields().visit(|field| visited.push((field.name(), simple(&field.value()))));
    let mut iterated = Vec::new();
    let mut failed = None;
    for item in event.fields().iter() {
        match item {
            Ok((field, value)) => iterated.push((&*field.name, simple(&value))),
            Err(error) => failed = Some(error.to_string()),
        }
    }
    let outcome = outcome.err().map(|error| error.to_string());
    assert_eq!((visited, outcome), (iterated, failed), "{}", event.class().name);
}

/// The part of a value that can be compared without descending.
fn simple(value: &Value<'_>) -> String {
    match value {
        Value::Struct(fields) => fields.class().name.to_string(),
        Value::Array(list) => list.len().to_string(),
        Value::Reference(reference) => reference.key().to_string(),
        Value::Float(v) => v.to_bits().to_string(),
        Value::Double(v) => v.to_bits().to_string(),
        plain => format!("{plain:?}"),
    }
}
