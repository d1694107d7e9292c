//! OTLP's JSON: that of protobuf, but ids in hexadecimal digits and enumerations as numbers.
//!
//! The generated messages know how, but for profiles, whose 64-bit numbers and ids are put right here.

use serde_json::{Map, Value};

use super::{ProfilesData, TracesData};

/// Profiles as one JSON object.
///
/// # Errors
/// A number that JSON does not have; there is none in our messages.
pub fn profiles_json(data: &ProfilesData) -> serde_json::Result<Value> {
    serde_json::to_value(data).map(tidy)
}

/// Traces as one JSON object.
///
/// # Errors
/// As [`profiles_json`].
pub fn traces_json(data: &TracesData) -> serde_json::Result<Value> {
    serde_json::to_value(data).map(tidy)
}

/// Fields of 64 bits, which JSON has as text.
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
    // What is as it is by itself is left out, but for the values of attributes, which say by being there of what kind they are.
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
