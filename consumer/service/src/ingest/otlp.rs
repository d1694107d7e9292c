//! Decodes OpenTelemetry profiles.

use std::collections::HashMap;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Profile, ProfilesData, ProfilesDictionary, ResourceProfiles,
};
use prost::Message;

use super::pprof::file_name;
use super::profile_builder::{DEEPEST, Frame, Measure, NameCache, ProfileBuilder, Sample};
use super::query::App;
use super::{Error, Limits, body, cut, jfr_writer, label};
use crate::wire::Labels;

/// Maximum number of resources in a request.
const MOST_RESOURCES: usize = 4096;

/// Decoded profiles of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The application: `service.name` or the program's name, and the other attributes.
    pub app: App,
    /// The recording.
    pub recording: Bytes,
    /// Number of profiles in it.
    pub profiles: usize,
}

/// Decodes the body of an `ExportProfilesServiceRequest` in protobuf, compressed or not. `now` (UTC ms) is
/// used for profiles without a time. Resources without samples are omitted.
///
/// # Errors
/// Returns an error if the body is too large or malformed.
pub fn otlp(body: Bytes, now: i64, limits: Limits) -> Result<Vec<Received>, Error> {
    if body.len() > limits.body {
        return Err(Error::too_large("The body", limits.body));
    }
    let bytes = body::unpacked(body, limits.message, "The request")?;
    // The request has the same fields as the file format.
    let data = ProfilesData::decode(bytes)
        .map_err(|error| Error::Bad(format!("The body is not an OTLP profiles request: {error}.")))?;
    let tables = data.dictionary.unwrap_or_default();
    if data.resource_profiles.len() > MOST_RESOURCES {
        return Err(Error::TooLarge(format!(
            "The request has more than {MOST_RESOURCES} resources; send it in parts."
        )));
    }
    let mut left = limits.text;
    let mut received = Vec::new();
    for resource in &data.resource_profiles {
        let one = read_resource(resource, &tables, now, Limits { recording: left, ..limits })?;
        left = left.saturating_sub(one.as_ref().map_or(0, |one| one.recording.len()));
        received.extend(one);
    }
    Ok(received)
}

fn read_resource(
    resource: &ResourceProfiles,
    tables: &ProfilesDictionary,
    now: i64,
    limits: Limits,
) -> Result<Option<Received>, Error> {
    let mut labels = Labels::new();
    for attribute in resource.resource.iter().flat_map(|resource| &resource.attributes) {
        if let Some((key, value)) = key_and_value(attribute, tables) {
            label(&mut labels, &key, &value);
        }
    }
    let name = labels.remove("service.name").filter(|name| !name.is_empty());
    let name = name.or_else(|| labels.get("process.executable.name").cloned());
    let app = App { name: name.unwrap_or_else(|| "unknown_service".into()), labels };
    let mut taking = ProfileReader {
        tables,
        builder: ProfileBuilder::new(limits.text),
        stacks: HashMap::new(),
        names: NameCache::default(),
        files: NameCache::default(),
        from: i64::MAX,
        until: 0,
        profiles: 0,
    };
    for profile in resource.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
        taking.take(profile)?;
    }
    // If the profile has no time, use those of its samples.
    let of_sample = taking.builder.samples.iter().filter_map(|sample| sample.time).max();
    let until = match of_sample {
        _ if taking.until > 0 => taking.until,
        Some(time) => time / 1_000_000,
        None => now,
    };
    let recording = jfr_writer::recording(&taking.builder, taking.from.min(until), until, limits)?;
    Ok(recording.map(|recording| Received { app, recording, profiles: taking.profiles }))
}

struct ProfileReader<'a> {
    tables: &'a ProfilesDictionary,
    builder: ProfileBuilder,
    stacks: HashMap<i32, u32>,
    names: NameCache,
    files: NameCache,
    /// UTC ms.
    from: i64,
    until: i64,
    profiles: usize,
}

impl ProfileReader<'_> {
    fn take(&mut self, profile: &Profile) -> Result<(), Error> {
        self.profiles += 1;
        let tables = self.tables;
        let text = |index: i32| at(&tables.string_table, index).map_or("", String::as_str);
        let of = profile.sample_type.unwrap_or_default();
        let (mut measure, mut factor) = Measure::parse(text(of.type_strindex), text(of.unit_strindex));
        let period =
            profile.period_type.map(|of| Measure::parse(text(of.type_strindex), text(of.unit_strindex)));
        if let (Measure::Samples, Some((Measure::Cpu, unit)), Ok(period @ 1..)) =
            (&measure, period, u64::try_from(profile.period))
        {
            (measure, factor) = (Measure::Cpu, unit.saturating_mul(period));
        }
        let kind = self.builder.kind(measure)?;
        let millis = |nanos: u64| i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX);
        if profile.time_unix_nano > 0 {
            self.from = self.from.min(millis(profile.time_unix_nano));
            let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
            self.until = self.until.max(millis(end));
        }
        for sample in &profile.samples {
            let stack = self.stack(sample.stack_index)?;
            let thread = self.thread(&sample.attribute_indices)?;
            let times = &sample.timestamps_unix_nano;
            let mut put = |time: Option<&u64>, value: i64| {
                let time = time.and_then(|&time| i64::try_from(time).ok());
                let value = u64::try_from(value).unwrap_or(0).saturating_mul(factor);
                self.builder.sample(Sample { kind, stack, thread, time, value })
            };
            match (sample.values.len(), times.len()) {
                // Timestamps without values: each is one sample.
                (0, _) => times.iter().try_for_each(|time| put(Some(time), 1))?,
                (values, timed) if values == timed => {
                    sample.values.iter().zip(times).try_for_each(|(&value, time)| put(Some(time), value))?;
                }
                // Aggregated, or inconsistent: count the values at the first timestamp.
                _ => sample.values.iter().try_for_each(|&value| put(times.first(), value))?,
            }
        }
        Ok(())
    }

    fn stack(&mut self, index: i32) -> Result<u32, Error> {
        if let Some(&known) = self.stacks.get(&index) {
            return Ok(known);
        }
        let tables = self.tables;
        let mut frames = Vec::new();
        // Index 0 means none.
        let stack = at(&tables.stack_table, index).filter(|_| index != 0);
        for &location in stack.iter().flat_map(|stack| &stack.location_indices) {
            // Deeper frames are dropped anyway.
            if frames.len() > DEEPEST {
                break;
            }
            let location = at(&tables.location_table, location).filter(|_| location != 0);
            let Some(location) = location else {
                let name = self.builder.name("?")?;
                frames.push(Frame { name, ..Frame::default() });
                continue;
            };
            let text = |index: i32| at(&tables.string_table, index).map_or("", String::as_str);
            let mapping = at(&tables.mapping_table, location.mapping_index);
            let file = mapping.map_or(0, |mapping| mapping.filename_strindex);
            let module = self.files.name(file.into(), file_name(text(file)), &mut self.builder)?;
            let kernel = self.is_kernel(&location.attribute_indices);
            let before = frames.len();
            for line in location.lines.iter().take(DEEPEST + 1) {
                let function = at(&tables.function_table, line.function_index);
                let index = function.map_or(0, |function| function.name_strindex);
                let name = self.names.name(index.into(), text(index), &mut self.builder)?;
                if name != 0 {
                    let line = i32::try_from(line.line).unwrap_or(0);
                    frames.push(Frame { name, module, line, kernel });
                }
            }
            if frames.len() == before {
                let name = self.builder.name(&format!("0x{:x}", location.address))?;
                frames.push(Frame { name, module, line: 0, kernel });
            }
        }
        let number = self.builder.stack(frames)?;
        self.stacks.insert(index, number);
        Ok(number)
    }

    /// Returns the attribute with this name.
    fn attribute(&self, indices: &[i32], name: &str) -> Option<&Value> {
        let table = &self.tables.attribute_table;
        let named = |index: &i32| {
            let attribute = at(table, *index).filter(|_| *index != 0)?;
            let key = at(&self.tables.string_table, attribute.key_strindex)?;
            if key == name { attribute.value.as_ref()?.value.as_ref() } else { None }
        };
        indices.iter().take(64).find_map(named)
    }

    fn is_kernel(&self, indices: &[i32]) -> bool {
        matches!(self.attribute(indices, "profile.frame.type"), Some(Value::StringValue(kind)) if kind == "kernel")
    }

    fn thread(&mut self, indices: &[i32]) -> Result<u32, Error> {
        let name = match self.attribute(indices, "thread.name") {
            Some(Value::StringValue(name)) => cut(name, 256),
            _ => String::new(),
        };
        let id = match self.attribute(indices, "thread.id") {
            Some(Value::IntValue(id)) => *id,
            _ => 0,
        };
        self.builder.thread(&name, id)
    }
}

fn at<T>(table: &[T], index: i32) -> Option<&T> {
    usize::try_from(index).ok().and_then(|index| table.get(index))
}

/// Returns key and value of an attribute that is a plain value.
fn key_and_value(attribute: &KeyValue, tables: &ProfilesDictionary) -> Option<(String, String)> {
    let text = |index: i32| at(&tables.string_table, index);
    let key = match attribute.key.is_empty() {
        true => text(attribute.key_strindex)?,
        false => &attribute.key,
    };
    let AnyValue { value: Some(value) } = attribute.value.as_ref()? else { return None };
    let value = match value {
        Value::StringValue(value) => cut(value, 256),
        Value::StringValueStrindex(index) => cut(text(*index)?, 256),
        Value::IntValue(value) => value.to_string(),
        Value::BoolValue(value) => value.to_string(),
        Value::DoubleValue(value) => value.to_string(),
        _ => return None,
    };
    Some((cut(key, 256), value))
}
