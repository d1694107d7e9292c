//! Compares the fast paths of folding with the slow ones: stacks by plan with field by field, and equal
//! samples skipped by their bytes with one after the other.

use crate::dump;

use std::collections::HashMap;

use bytes::Bytes;
use dump::{fixtures, name};
use jfr_format::event::{StructRef, Value, constant};
use jfr_format::read::{Chunk, Decoder, Delivery, Filter, Item, StackFrame, StackReader};

/// Method, line and type of each frame, and whether the root is missing, or an error.
type Outcome = Result<Option<(Vec<StackFrame>, bool)>, ()>;

fn planned(reader: &StackReader, chunk: &Chunk, key: u64) -> Outcome {
    let mut frames = Vec::new();
    let truncated = reader.read(chunk, key, |frame| frames.push(frame)).map_err(drop)?;
    Ok(truncated.map(|truncated| (frames, truncated)))
}

fn field_by_field(chunk: &Chunk, key: u64) -> Outcome {
    let (class, _) = chunk.types.by_name("jdk.types.StackTrace").ok_or(())?;
    let Some(Value::Struct(trace)) = constant(chunk, class, key, 0).map_err(drop)? else { return Ok(None) };
    let (mut frames, mut truncated) = (Vec::new(), false);
    for field in trace.iter() {
        match field.map_err(drop)? {
            (field, Value::Boolean(set)) if &*field.name == "truncated" => truncated = set,
            (field, Value::Array(list)) if &*field.name == "frames" => {
                for element in list.iter() {
                    frames.push(frame(&element.map_err(drop)?.record().map_err(drop)?.ok_or(())?)?);
                }
            }
            _ => {}
        }
    }
    Ok(Some((frames, truncated)))
}

fn frame(of: &StructRef<'_>) -> Result<StackFrame, ()> {
    let mut frame = StackFrame { method: 0, line: 0, kind: None, bytecode_index: 0 };
    for field in of.iter() {
        match field.map_err(drop)? {
            (field, Value::Reference(key)) if &*field.name == "method" => frame.method = key.key(),
            (field, Value::Reference(key)) if &*field.name == "type" => frame.kind = Some(key.key()),
            (field, Value::Int(line)) if &*field.name == "lineNumber" => frame.line = line,
            (field, Value::Int(index)) if &*field.name == "bytecodeIndex" => frame.bytecode_index = index,
            _ => {}
        }
    }
    Ok(frame)
}

fn decoder(bytes: Bytes, delivery: Delivery) -> Decoder {
    let mut decoder = Decoder::new(delivery);
    decoder.push(bytes);
    decoder.close();
    decoder
}

/// Compares all stacks of a recording. Returns the number of their frames.
fn compare(bytes: Bytes, what: &str) -> usize {
    let mut decoder = decoder(bytes, Delivery::WholeChunks);
    let mut compared = 0;
    while let Some(item) = decoder.next() {
        let Item::ChunkEnd(end) = item else { continue };
        let (chunk, Some(reader)) = (end.chunk, StackReader::new(end.chunk)) else { continue };
        let Some((class, _)) = chunk.types.by_name("jdk.types.StackTrace") else { continue };
        for key in chunk.pools.keys(class).chain([0, u64::MAX]) {
            let read = planned(&reader, chunk, key);
            assert_eq!(read, field_by_field(chunk, key), "{what}: stack {key}");
            compared += read.ok().flatten().map_or(0, |(frames, _)| frames.len());
        }
    }
    compared
}

fn small_recordings() -> Vec<std::path::PathBuf> {
    let mut files = fixtures("cases");
    files.extend(fixtures("recordings").into_iter().filter(|p| p.metadata().unwrap().len() < 3_000_000));
    files
}

#[test]
fn planned_stack_decoding_matches_field_decoding() {
    let read = |path: &std::path::PathBuf| Bytes::from(std::fs::read(path).unwrap());
    let compared: usize = small_recordings().iter().map(|path| compare(read(path), &name(path))).sum();
    assert!(compared > 20_000, "{compared}");
}

#[test]
fn planned_stack_decoding_matches_field_decoding_on_damage() {
    for path in fixtures("cases") {
        let bytes = std::fs::read(&path).unwrap();
        let values = [0x80, 0xff, 0x00, 0x05, 0x02].iter().cycle();
        for (at, &with) in (68..bytes.len()).step_by(bytes.len() / 150 + 1).zip(values) {
            let mut damaged = bytes.clone();
            damaged[at] = with;
            compare(damaged.into(), &format!("{} with {with:#x} at {at}", name(&path)));
        }
    }
}

/// Type id and the bytes after the start time → number of events, read one by one or skipped if they are
/// equal.
fn counted(
    bytes: Bytes,
    delivery: Delivery,
    selected: bool,
    alike: bool,
) -> (HashMap<(u64, u64), usize>, usize) {
    let mut decoder = decoder(bytes, delivery);
    if selected {
        decoder.set_filter(|class| match class.field_index("stackTrace") {
            Some(_) => Filter::Constants,
            None => Filter::Skip,
        });
    }
    let (mut counts, mut passed) = (HashMap::new(), 0);
    while let Some(item) = decoder.next() {
        let Item::Events(batch) = item else { continue };
        let mut frames = batch.frames();
        while let Some(frame) = frames.next() {
            let bytes = frame.short_bytes_behind_start().map_or(0, std::num::NonZero::get);
            *counts.entry((frame.type_id, bytes)).or_default() += 1;
            if alike {
                frames.pass_alike(frame.type_id, |bytes| {
                    let known = counts.get_mut(&(frame.type_id, bytes.get()));
                    passed += usize::from(known.is_some());
                    known.map(|count| *count += 1).is_some()
                });
            }
        }
    }
    (counts, passed)
}

#[test]
fn events_skipped_in_bulk_match_individual_events() {
    let mut passed = 0;
    for path in small_recordings() {
        let bytes = Bytes::from(std::fs::read(&path).unwrap());
        for (delivery, selected) in
            [(Delivery::KeysOnly, true), (Delivery::KeysOnly, false), (Delivery::WholeChunks, true)]
        {
            let (one_by_one, _) = counted(bytes.clone(), delivery, selected, false);
            let (alike, skipped) = counted(bytes.clone(), delivery, selected, true);
            assert_eq!(alike, one_by_one, "{}", name(&path));
            passed += skipped;
        }
    }
    assert!(passed > 1_000, "{passed}");
}
