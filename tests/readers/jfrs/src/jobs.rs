//! Events by type, samples by thread and stack, every field.

use crate::{UNRESOLVED, frames, string};
use jfrs::reader::JfrReader;
use jfrs::reader::event::Accessor;
use jfrs::reader::value_descriptor::{Primitive, ValueDescriptor};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs::File;

pub fn run(job: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let mut types: HashMap<String, u64> = HashMap::new();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let (mut events, mut fields, mut chars) = (0u64, 0u64, 0u64);
    let mut reader = JfrReader::new(File::open(path)?);
    for chunk in reader.chunks() {
        let (mut reader, chunk) = chunk?;
        // Samples are counted by the pool keys, which saves resolving each.
        let mut counts: HashMap<(i64, i64), u64> = HashMap::new();
        let mut values: HashMap<(i64, i64), String> = HashMap::new();
        for event in reader.events(&chunk) {
            let event = event?;
            match job {
                "types" => match types.get_mut(event.class.name()) {
                    Some(n) => *n += 1,
                    None => {
                        types.insert(event.class.name().to_owned(), 1);
                    }
                },
                "fields" => {
                    events += 1;
                    if let ValueDescriptor::Object(object) = event.value().value {
                        fields += object.fields.len() as u64;
                        for field in &object.fields {
                            let mut value = Accessor::new(&chunk, field).resolve().map(|v| v.value);
                            // Types declared simple are replaced by their one field; thread states are one of
                            // them.
                            if let Some(ValueDescriptor::Object(o)) = value
                                && chunk.metadata.type_pool.get(o.class_id).is_some_and(|t| t.simple_type)
                            {
                                value = o.fields.first();
                            }
                            if let Some(ValueDescriptor::Primitive(Primitive::String(s))) = value {
                                chars += s.encode_utf16().count() as u64;
                            }
                        }
                    }
                }
                _ if event.class.name() == "jdk.ExecutionSample" => {
                    let value = event.value();
                    let key = (key(value.get_field_raw("sampledThread")), key(value.get_field_raw("stackTrace")));
                    *counts.entry(key).or_default() += 1;
                    values.entry(key).or_insert_with(|| stack(&value));
                }
                _ => {}
            }
        }
        for (key, n) in counts {
            *lines.entry(values.remove(&key).unwrap_or_default()).or_default() += n;
        }
    }
    match job {
        "types" => types.iter().for_each(|(name, n)| println!("{name}\t{n}")),
        "fields" => println!("{events} {fields} {chars}"),
        _ => lines.iter().for_each(|(line, n)| println!("{line} {n}")),
    }
    Ok(())
}

fn key(v: Option<Accessor<'_>>) -> i64 {
    match v.map(|v| v.value) {
        Some(ValueDescriptor::ConstantPool { constant_index, .. }) => *constant_index,
        _ => 0,
    }
}

fn stack(event: &Accessor<'_>) -> String {
    let name = event.get_field("sampledThread").map(|t| {
        string(t.get_field("javaName")).or_else(|| string(t.get_field("osName"))).unwrap_or_default()
    });
    let mut line = vec![name.unwrap_or_else(|| UNRESOLVED.into())];
    let frames = frames(event.get_field("stackTrace")).unwrap_or_else(|| UNRESOLVED.into());
    line.extend(frames.split(';').rev().map(str::to_owned));
    line.join(";")
}
