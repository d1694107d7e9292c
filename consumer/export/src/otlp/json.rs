//! JSON encoding of OTLP: that of protobuf, but with hexadecimal ids and numeric enumerations.
//!
//! The generated messages implement this except for profiles; this module corrects their 64-bit numbers
//! and ids.

use serde_json::{Map, Value};

use super::{ProfilesData, TracesData};

/// Encodes profiles as one JSON object.
///
/// # Errors
/// A number has no JSON form. Our messages have no such number.
pub fn profiles_json(data: &ProfilesData) -> serde_json::Result<Value> {
    serde_json::to_value(data).map(tidy)
}

/// Encodes traces as one JSON object.
///
/// # Errors
/// As for [`profiles_json`].
pub fn traces_json(data: &TracesData) -> serde_json::Result<Value> {
    serde_json::to_value(data).map(tidy)
}

/// 64-bit fields, which JSON represents as strings.
const LONG: &[&str] = &[
    "timeUnixNano",
    "durationNano",
    "period",
    "memoryStart",
    "memoryLimit",
    "fileOffset",
    "address",
    "line",
    "column",
    "startLine",
];

fn tidy(value: Value) -> Value {
    match value {
        Value::Array(list) => Value::Array(list.into_iter().map(tidy).collect()),
        Value::Object(fields) => Value::Object(fields.into_iter().filter_map(field).collect::<Map<_, _>>()),
        other => other,
    }
}

fn field((name, value): (String, Value)) -> Option<(String, Value)> {
    let value = match (&*name, value) {
        ("traceId" | "spanId", Value::Array(bytes)) => Value::String(hex(&bytes)),
        ("values", Value::Array(list)) if list.iter().all(Value::is_number) => {
            Value::Array(list.into_iter().map(long).collect())
        }
        (_, value @ Value::Number(_)) if LONG.contains(&&*name) => long(value),
        (_, value) => tidy(value),
    };
    // Omits fields with default values, but not attribute values: their presence states the value's type.
    let said = match &value {
        Value::Null => false,
        Value::String(text) => !(text.is_empty() || text == "0") || name.ends_with("Value"),
        Value::Number(number) => number.as_f64() != Some(0.0) || name.ends_with("Value"),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    said.then_some((name, value))
}

fn long(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        other => other,
    }
}

fn hex(bytes: &[Value]) -> String {
    bytes.iter().map(|byte| format!("{:02x}", byte.as_u64().unwrap_or(0) & 0xff)).collect()
}
