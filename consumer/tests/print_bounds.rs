//! Constants that make a small recording expand without limit: output is bounded and well-formed, the loss is
//! reported, and a small stack suffices.

use std::thread;

use flightline_consumer::print::{Format, PrintOptions, Printer};
use flightline_consumer::warnings::Warnings;
use jfr_format::read::Input;

fn varint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn event(type_id: usize, body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    varint(type_id, &mut content);
    content.extend_from_slice(body);
    let size = content.len() + 4;
    let digit = |at: usize| (size >> (7 * at)) as u8;
    let mut out = vec![digit(0) | 0x80, digit(1) | 0x80, digit(2) | 0x80, digit(3) & 0x7f];
    out.append(&mut content);
    out
}

/// A metadata element: name, attributes, children.
struct Element(&'static str, Vec<(&'static str, String)>, Vec<Element>);

impl Element {
    fn encode(&self, strings: &mut Vec<String>, out: &mut Vec<u8>) {
        let mut text = |text: &str, out: &mut Vec<u8>| {
            let at = strings.iter().position(|other| other == text).unwrap_or(strings.len());
            if at == strings.len() {
                strings.push(text.to_owned());
            }
            varint(at, out);
        };
        text(self.0, out);
        varint(self.1.len(), out);
        for (key, value) in &self.1 {
            text(key, out);
            text(value, out);
        }
        varint(self.2.len(), out);
        for child in &self.2 {
            child.encode(strings, out);
        }
    }
}

fn class(name: &str, id: usize, fields: Vec<Element>) -> Element {
    let mut attributes = vec![("name", name.to_owned()), ("id", id.to_string())];
    if name.ends_with("Bomb") {
        attributes.push(("superType", "jdk.jfr.Event".to_owned()));
    }
    Element("class", attributes, fields)
}

fn field(name: &str, of: usize, pooled: bool) -> Element {
    let mut attributes = vec![("name", name.to_owned()), ("class", of.to_string())];
    if pooled {
        attributes.push(("constantPool", "true".to_owned()));
    }
    Element("field", attributes, Vec::new())
}

const NODE: usize = 300;
const BOMB: usize = 301;
const EVENTS: usize = 3;

/// `constants` nodes, each with `width` fields that refer to the previous node, and events that refer to the
/// last.
fn recording(constants: usize, width: usize) -> Vec<u8> {
    let fields = (0..width).map(|at| field(&format!("f{at}"), NODE, true)).collect();
    let bomb = vec![field("startTime", 11, false), field("node", NODE, true)];
    let classes = vec![class("long", 11, vec![]), class("t.Node", NODE, fields), class("t.Bomb", BOMB, bomb)];
    let root = Element(
        "root",
        vec![],
        vec![
            Element("metadata", vec![], classes),
            Element("region", vec![("gmtOffset", "0".to_owned())], vec![]),
        ],
    );
    let (mut strings, mut tree) = (Vec::new(), Vec::new());
    root.encode(&mut strings, &mut tree);
    let mut body = vec![1, 0, 1];
    varint(strings.len(), &mut body);
    for text in &strings {
        body.push(3);
        varint(text.len(), &mut body);
        body.extend_from_slice(text.as_bytes());
    }
    body.append(&mut tree);
    let metadata = event(0, &body);

    let mut body = vec![1, 0, 0, 1, 1];
    varint(NODE, &mut body);
    varint(constants, &mut body);
    for key in 1..=constants {
        varint(key, &mut body);
        (0..width).for_each(|_| varint(key - 1, &mut body));
    }
    let checkpoint = event(1, &body);

    let mut events = Vec::new();
    for at in 0..EVENTS {
        let mut body = vec![at as u8];
        varint(constants, &mut body);
        events.append(&mut event(BOMB, &body));
    }
    let size = 68 + checkpoint.len() + events.len() + metadata.len();
    let mut out = b"FLR\0\0\x02\0\x01".to_vec();
    for long in [size, 68, size - metadata.len(), 1_000_000_000, 1_000_000_000, 0, 1_000_000_000] {
        out.extend_from_slice(&(long as u64).to_be_bytes());
    }
    out.extend_from_slice(&[0, 0, 0, 1]);
    for part in [checkpoint, events, metadata] {
        out.extend_from_slice(&part);
    }
    out
}

fn printed(recording: &[u8], format: Format) -> (Vec<u8>, Warnings) {
    let mut input = Input::bytes(bytes::Bytes::copy_from_slice(recording));
    let (mut out, mut warnings) = (Vec::new(), Warnings::default());
    let mut printer = Printer::new(format, PrintOptions::default());
    printer.begin(&mut out).unwrap();
    while let Some(item) = input.next().unwrap() {
        printer.item(item, &mut warnings, &mut out).unwrap();
    }
    printer.end(&mut out).unwrap();
    (out, warnings)
}

/// Prints in a format and checks the warnings.
fn check(recording: &[u8], format: Format, lost: usize) -> Vec<u8> {
    let (out, warnings) = printed(recording, format);
    assert_eq!(warnings.len() as usize, lost, "{format:?}: {:?}", warnings.stored());
    for warning in warnings.stored() {
        let text = warning.to_string();
        assert!(text.contains("t.Bomb") && text.contains("offset"), "{text}");
    }
    assert!(out.len() <= EVENTS * (33 << 20), "{format:?}: {} bytes", out.len());
    out
}

/// Checks that brackets match, since parsers do not support such depth; no string contains brackets.
fn document(recording: &[u8], lost: usize) {
    let out = String::from_utf8(check(recording, Format::Json, lost)).unwrap();
    let mut open = Vec::new();
    for char in out.chars() {
        match char {
            '{' | '[' => open.push(char),
            '}' => assert_eq!(open.pop(), Some('{')),
            ']' => assert_eq!(open.pop(), Some('[')),
            _ => {}
        }
    }
    assert!(open.is_empty());
    assert_eq!(out.matches("\"type\": \"t.Bomb\"").count(), EVENTS);
}

#[test]
fn exponentially_expanding_constants_have_bounded_output() {
    let recording = recording(40, 2);
    assert!(recording.len() < 1 << 10);
    for format in [Format::Text, Format::Ndjson] {
        check(&recording, format, EVENTS);
    }
    document(&recording, EVENTS);
    // Each constant is written once.
    let lines = String::from_utf8(check(&recording, Format::Compact, 0)).unwrap();
    assert_eq!(lines.lines().count(), 1 + 40 + EVENTS);
}

#[test]
fn deeply_nested_constants_have_bounded_output() {
    const DEPTH: usize = 2000;
    let deep = recording(DEPTH, 1);
    let little = thread::Builder::new().stack_size(if cfg!(debug_assertions) { 8 << 20 } else { 2 << 20 });
    let run = move || {
        document(&deep, EVENTS);
        for format in [Format::Text, Format::Ndjson, Format::Csv] {
            check(&deep, format, EVENTS);
        }
        let lines = String::from_utf8(check(&deep, Format::Compact, 0)).unwrap();
        assert_eq!(lines.lines().count(), 1 + DEPTH + EVENTS);
    };
    little.spawn(run).unwrap().join().unwrap();
}

#[test]
fn nested_jdk_values_are_printed_completely() {
    let recording = recording(400, 1);
    let run = move || {
        document(&recording, 0);
        for format in [Format::Text, Format::Ndjson, Format::Csv, Format::Compact] {
            check(&recording, format, 0);
        }
    };
    thread::Builder::new().stack_size(8 << 20).spawn(run).unwrap().join().unwrap();
}
