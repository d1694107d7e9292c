//! Reads every value of an event, within a budget: references can be circular and multiply.

#![allow(dead_code)] // each target takes what it needs

use bytes::Bytes;
use jfr_format::event::{EventRef, StructRef, Value};
use jfr_format::read::{Decoder, Delivery, Item};

/// Events, values, warnings and chunks of some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Looked {
    pub events: usize,
    pub values: usize,
    pub warnings: usize,
    pub chunks: usize,
}

impl Looked {
    pub fn at(bytes: &[u8], delivery: Delivery) -> Self {
        let mut decoder = Decoder::new(delivery);
        decoder.push(Bytes::copy_from_slice(bytes));
        decoder.close();
        let mut looked = Self::default();
        let mut budget = 100_000;
        while let Some(item) = decoder.next() {
            match item {
                Item::Events(batch) => batch.events().for_each(|event| {
                    looked.events += 1;
                    look(&event, &mut budget);
                }),
                Item::Warning(warning) => {
                    assert!(warning.at() <= bytes.len() as u64, "{warning}");
                    assert!(!warning.to_string().is_empty());
                    looked.warnings += 1;
                }
                Item::ChunkEnd(_) => looked.chunks += 1,
                Item::ChunkStart(_) => {}
            }
        }
        looked.values = 100_000 - budget;
        looked
    }
}

pub fn look(event: &EventRef<'_>, budget: &mut usize) {
    let _ = event.start_nanos();
    fields(&event.fields(), 0, budget);
}

fn fields(of: &StructRef<'_>, depth: usize, budget: &mut usize) {
    for (_, field) in of.iter().filter_map(Result::ok) {
        value(field, depth, budget);
    }
}

fn value(value_: Value<'_>, depth: usize, budget: &mut usize) {
    if depth > 8 || *budget == 0 {
        return;
    }
    *budget -= 1;
    match value_.resolved() {
        Ok(Value::Struct(of)) => fields(&of, depth + 1, budget),
        Ok(Value::Array(array)) => {
            for element in array.iter().filter_map(Result::ok) {
                value(element, depth + 1, budget);
            }
        }
        Ok(_) | Err(_) => {}
    }
}
