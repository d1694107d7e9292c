//! Profiles of OpenTelemetry, as somebody sends them.

use std::collections::BTreeMap;

use bytes::Bytes;
use flightline_export::otlp::tree;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::profiles::v1development::{
    ProfilesData, ProfilesDictionary, ResourceProfiles,
};
use prost::Message;

use super::{Error, Limited, Limits, body, label};
use crate::wire::Labels;

/// Resources of a request.
const MOST_RESOURCES: usize = 4096;
/// Kinds of samples of a resource.
const MOST_TYPES: usize = 64;

/// Stacks of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks {
    /// What was sampled, as its sender calls it.
    pub name: String,
    /// `frame;frame weight`, line by line.
    pub text: Vec<u8>,
    /// What weights count: samples, ns, bytes.
    pub unit: String,
}

/// What came of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its attributes; `service.name` says what it is.
    pub labels: Labels,
    /// When the earliest of its profiles begins, UTC ms; 0 if none says that.
    pub from: i64,
    /// When the latest ends, UTC ms.
    pub until: i64,
    /// By kind of samples.
    pub stacks: Vec<Stacks>,
}

/// Takes the body of an `ExportProfilesServiceRequest` in protobuf, packed or not.
///
/// # Errors
/// It is too large, or no such message.
pub fn otlp(body: Bytes, limits: Limits) -> Result<Vec<Received>, Error> {
    if body.len() > limits.body {
        return Err(Error::too_large("The body", limits.body));
    }
    let bytes = body::unpacked(body, limits.message, "The request")?;
    // The request has the fields of what is written to files.
    let data = ProfilesData::decode(bytes)
        .map_err(|error| Error::Bad(format!("The body is no request of OTLP profiles: {error}.")))?;
    let tables = data.dictionary.unwrap_or_default();
    if data.resource_profiles.len() > MOST_RESOURCES {
        return Err(Error::TooLarge(format!(
            "The request has more than {MOST_RESOURCES} resources: send it in parts."
        )));
    }
    let mut left = limits.text;
    data.resource_profiles.iter().map(|resource| of_resource(resource, &tables, limits, &mut left)).collect()
}

fn of_resource(
    resource: &ResourceProfiles,
    tables: &ProfilesDictionary,
    limits: Limits,
    left: &mut usize,
) -> Result<Received, Error> {
    let mut received = Received { labels: Labels::new(), from: i64::MAX, until: 0, stacks: Vec::new() };
    for attribute in resource.resource.iter().flat_map(|resource| &resource.attributes) {
        if let Some((key, value)) = told(attribute, tables) {
            label(&mut received.labels, &key, &value);
        }
    }
    let one = std::slice::from_ref(resource);
    let mut types: BTreeMap<&str, ()> = BTreeMap::new();
    for ((name, _), profile) in tree::types(one, tables) {
        types.insert(name, ());
        let millis = |nanos: u64| i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX);
        if profile.time_unix_nano > 0 {
            received.from = received.from.min(millis(profile.time_unix_nano));
            let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
            received.until = received.until.max(millis(end));
        }
    }
    received.from = received.from.min(received.until);
    if types.len() > MOST_TYPES {
        return Err(Error::TooLarge(format!(
            "A resource has more than {MOST_TYPES} kinds of samples: send it in parts."
        )));
    }
    for name in types.into_keys() {
        let mut out = Limited { text: Vec::new(), most: *left };
        match tree::folded_of(one, tables, &[name.to_owned()], left.saturating_add(1), &mut out) {
            Ok(unit) => {
                *left = left.saturating_sub(out.text.len());
                received.stacks.push(Stacks { name: super::cut(name, 256), text: out.text, unit });
            }
            Err(error) if super::is_too_large(&error) => {
                return Err(Error::too_large("The request as text", limits.text));
            }
            Err(error) => return Err(Error::Bad(format!("The profiles cannot be read: {error}."))),
        }
    }
    Ok(received)
}

/// Key and value of an attribute, if they are plain.
fn told(attribute: &KeyValue, tables: &ProfilesDictionary) -> Option<(String, String)> {
    let text = |index: i32| usize::try_from(index).ok().and_then(|index| tables.string_table.get(index));
    let key = match attribute.key.is_empty() {
        true => text(attribute.key_strindex)?,
        false => &attribute.key,
    };
    let AnyValue { value: Some(value) } = attribute.value.as_ref()? else { return None };
    let value = match value {
        Value::StringValue(value) => super::cut(value, 256),
        Value::StringValueStrindex(index) => super::cut(text(*index)?, 256),
        Value::IntValue(value) => value.to_string(),
        Value::BoolValue(value) => value.to_string(),
        Value::DoubleValue(value) => value.to_string(),
        _ => return None,
    };
    Some((super::cut(key, 256), value))
}
