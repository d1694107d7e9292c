//! Any bytes as a recording at hand: every event and every value is looked at. Nothing may panic, hang or take memory
//! out of proportion.

#![no_main]

use bytes::Bytes;
use jfr_format::event::{EventRef, StructRef, Value};
use jfr_format::read::{Input, Item};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input::bytes(Bytes::copy_from_slice(data));
    let mut budget = 100_000;
    while let Some(item) = input.next().expect("memory does not fail") {
        match item {
            Item::Events(batch) => batch.events().for_each(|event| look(&event, &mut budget)),
            Item::Warning(warning) => drop(warning.to_string()),
            Item::ChunkStart(_) | Item::ChunkEnd(_) => {}
        }
    }
});

fn look(event: &EventRef<'_>, budget: &mut usize) {
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
