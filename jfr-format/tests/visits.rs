//! Visiting the fields of an event and iterating over them, which decode independently, return the same
//! values.

use crate::dump;

use bytes::Bytes;
use dump::{fixtures, name};
use jfr_format::error::Error;
use jfr_format::event::{EventRef, FieldRef, StructRef, Value, Visitor};
use jfr_format::read::{Decoder, Delivery, Field, Item};

/// Formats a value; for a struct its position.
fn words(value: &Value<'_>) -> String {
    match value {
        Value::Struct(fields) => format!("{} {:?}", fields.class().name, first(fields)),
        Value::Array(list) => format!("{} elements", list.len()),
        Value::Reference(key) => format!("{:?} {}", key.class().map(|class| &class.name), key.key()),
        Value::Float(v) => format!("{:x}", v.to_bits()),
        Value::Double(v) => format!("{:x}", v.to_bits()),
        plain => format!("{plain:?}"),
    }
}

fn first(fields: &StructRef<'_>) -> Option<String> {
    let (_, value) = fields.iter().next()?.ok()?;
    Some(if matches!(value, Value::Struct(_)) { "a struct".to_owned() } else { words(&value) })
}

/// Returns each field with its value, its resolved value and the length of its text; then the error, if one
/// ends the iteration.
fn iterated(fields: &StructRef<'_>) -> Vec<String> {
    let one = |item: Result<(&Field, Value<'_>), Error>| match item {
        Ok((field, value)) => {
            let resolved = value.resolved().unwrap_or(Value::Null);
            let units = match &resolved {
                Value::Text(text) => text.to_str().encode_utf16().count(),
                _ => 0,
            };
            format!("{} {} {} {units}", field.name, words(&value), words(&resolved))
        }
        Err(error) => error.to_string(),
    };
    fields.iter().map(one).collect()
}

fn visited(visit: impl FnOnce(&mut dyn FnMut(FieldRef<'_>)) -> Result<(), Error>) -> Vec<String> {
    let mut seen = Vec::new();
    let outcome = visit(&mut |field| {
        let (value, resolved) = (field.value(), field.resolved());
        let units = match resolved {
            Value::Text(text) => text.utf16_len(),
            _ => 0,
        };
        seen.push(format!("{} {} {} {units}", field.name(), words(&value), words(&resolved)));
    });
    seen.extend(outcome.err().map(|error| error.to_string()));
    seen
}

/// The values that were passed to the visitor, resolved and formatted.
#[derive(Default)]
struct Handed(Vec<String>);

impl<'a> Visitor<'a> for Handed {
    fn other(&mut self, field: &'a Field, value: Value<'a>) {
        self.0.push(format!("{} {}", field.name, words(&value)));
    }

    fn integer(&mut self, field: &'a Field, value: i64) {
        self.0.push(format!("{} {value}", field.name));
    }
}

/// Formats the resolved values of the iteration in the same way.
fn resolved(fields: &StructRef<'_>) -> Vec<String> {
    let one = |item: Result<(&Field, Value<'_>), Error>| match item {
        Ok((field, value)) => {
            let value = value.resolved().unwrap_or(Value::Null);
            match (&value, value.as_i64()) {
                (Value::Boolean(_), _) | (_, None) => format!("{} {}", field.name, words(&value)),
                (_, Some(number)) => format!("{} {number}", field.name),
            }
        }
        Err(error) => error.to_string(),
    };
    fields.iter().map(one).collect()
}

fn handed(accept: impl FnOnce(&mut Handed) -> Result<(), Error>) -> Vec<String> {
    let mut handed = Handed::default();
    let outcome = accept(&mut handed);
    handed.0.extend(outcome.err().map(|error| error.to_string()));
    handed.0
}

/// Returns the number of compared fields and constants.
fn compare(event: &EventRef<'_>, what: &str) -> usize {
    let seen = visited(|see| event.visit(see));
    assert_eq!(seen, iterated(&event.fields()), "{what}: {} at {}", event.class().name, event.offset());
    let seen = handed(|visitor| event.accept(visitor));
    assert_eq!(seen, resolved(&event.fields()), "{what}: {} at {}", event.class().name, event.offset());
    let mut compared = seen.len();
    for (_, value) in event.fields().iter().flatten() {
        if let Ok(Some(record)) = value.record() {
            let seen = visited(|see| record.visit(see));
            assert_eq!(seen, iterated(&record), "{what}: {}", record.class().name);
            assert_eq!(handed(|visitor| record.accept(visitor)), resolved(&record), "{what}");
            compared += seen.len();
        }
    }
    compared
}

fn all(bytes: Bytes, delivery: Delivery, what: &str) -> usize {
    let mut decoder = Decoder::new(delivery);
    decoder.push(bytes);
    decoder.close();
    let mut compared = 0;
    while let Some(item) = decoder.next() {
        if let Item::Events(batch) = item {
            compared += batch.events().map(|event| compare(&event, what)).sum::<usize>();
        }
    }
    compared
}

#[test]
fn visiting_agrees_with_iterating() {
    let mut files = fixtures("cases");
    files.extend(fixtures("recordings").into_iter().filter(|p| p.metadata().unwrap().len() < 3_000_000));
    let compared: usize = files
        .iter()
        .map(|path| all(Bytes::from(std::fs::read(path).unwrap()), Delivery::WholeChunks, &name(path)))
        .sum();
    assert!(compared > 100_000, "{compared}");
}

#[test]
fn visiting_agrees_with_iterating_on_damage() {
    for path in fixtures("cases") {
        let bytes = std::fs::read(&path).unwrap();
        // Values that change their length shift all fields after them; values that are cut off end the event.
        for (at, with) in
            (68..bytes.len()).step_by(bytes.len() / 60 + 1).zip([0x80, 0xff, 0x00, 0x05, 0x02].iter().cycle())
        {
            let mut damaged = bytes.clone();
            damaged[at] = *with;
            let what = format!("{} with {with:#x} at {at}", name(&path));
            all(damaged.into(), Delivery::Streaming, &what);
        }
    }
}
