//! Any bytes printed in every format: the JSON can be parsed and has as many events as the recording, each
//! line of JSON lines is valid, and the text is UTF-8.
#![no_main]

use bytes::Bytes;
use flightline_consumer::print::{Format, Order, PrintOptions, Printer};
use flightline_consumer::warnings::Warnings;
use jfr_format::read::{Input, Item};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let order = if choice & 0x80 == 0 { Order::EndTime } else { Order::AsFound };
    let print = |format| printed(data, format, order);
    match choice % 4 {
        0 => {
            let (out, events) = print(Format::Json);
            let document: Value = serde_json::from_slice(&out).expect("JSON");
            let found = document["recording"]["events"].as_array().expect("a list of events");
            assert_eq!(found.len(), events);
        }
        1 => {
            let (out, events) = print(Format::Ndjson);
            assert_eq!(lines(&out), events);
        }
        2 => {
            let (out, events) = print(Format::Compact);
            assert!(lines(&out) >= events);
        }
        _ => drop(String::from_utf8(print(Format::Text).0).expect("UTF-8")),
    }
});

fn lines(out: &[u8]) -> usize {
    let text = std::str::from_utf8(out).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line)).count()
}

fn printed(data: &[u8], format: Format, order: Order) -> (Vec<u8>, usize) {
    let mut printer =
        Printer::new(format, PrintOptions { order, stack_depth: 64, ..PrintOptions::default() });
    let (mut out, mut warnings, mut events) = (Vec::new(), Warnings::default(), 0);
    let mut input = Input::bytes(Bytes::copy_from_slice(data));
    printer.begin(&mut out).expect("memory does not fail");
    while let Some(item) = input.next().expect("memory does not fail") {
        if let Item::Events(batch) = &item {
            events += batch.events().count();
        }
        printer.item(item, &mut warnings, &mut out).expect("memory does not fail");
    }
    printer.end(&mut out).expect("memory does not fail");
    (out, events)
}
