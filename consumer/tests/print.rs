//! Every field of every event as JSON against `jfr print --json` of the JDK 25, event for event.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use flightline_consumer::print::{Format, PrintOptions, Printer};
use flightline_consumer::warnings::Warnings;
use jfr_format::read::Input;
use serde_json::Value;

const DEPTH: usize = 64;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The JDK's tool; `None` where there is none, which CI does not allow.
fn jfr() -> Option<PathBuf> {
    let find = ". tests/readers/env.sh; find_jdk 25";
    let found = Command::new("bash").args(["-c", find]).current_dir(root()).output().unwrap();
    if !found.status.success() {
        assert!(std::env::var_os("CI").is_none(), "no JDK 25, which CI must have");
        eprintln!("SKIPPED: no JDK 25 here to compare with (set JAVA25_HOME)");
        return None;
    }
    Some(Path::new(String::from_utf8(found.stdout).unwrap().trim()).join("bin/jfr"))
}

fn events(json: &[u8]) -> Vec<Value> {
    let mut document: Value = serde_json::from_slice(json).unwrap();
    match document["recording"]["events"].take() {
        Value::Array(events) => events,
        other => panic!("no list of events: {other}"),
    }
}

/// What is printed of an input, and what is warned of.
fn printed(mut input: Input, format: Format) -> (Vec<u8>, Warnings) {
    let mut out = Vec::new();
    let mut warnings = Warnings::default();
    let options = PrintOptions { stack_depth: DEPTH, ..PrintOptions::default() };
    let mut printer = Printer::new(format, options);
    printer.begin(&mut out).unwrap();
    while let Some(item) = input.next().unwrap() {
        printer.item(item, &mut warnings, &mut out).unwrap();
    }
    printer.end(&mut out).unwrap();
    (out, warnings)
}

fn ours(path: &Path) -> Vec<Value> {
    let (out, warnings) = printed(Input::open(path).unwrap(), Format::Json);
    assert!(warnings.is_empty(), "{warnings:?}");
    events(&out)
}

/// Takes away what is the JDK's own way of saying the same.
fn normal(value: &mut Value) {
    match value {
        // "None" and "without end" in words that are no durations or dates; a character outside the basic plane
        // that HotSpot wrote as two surrogates.
        Value::String(text) => {
            let endless = ["PT-2562047788015215H", "PT2562047788015215H", "PT2562047788015H12M55.807S"];
            if endless.iter().any(|e| text.starts_with(e)) || text.contains("999999999-") {
                *value = Value::Null;
            } else {
                *text = text.replace('\u{1f980}', "\u{fffd}\u{fffd}");
            }
        }
        Value::Array(list) => list.iter_mut().for_each(normal),
        Value::Object(fields) => fields.values_mut().for_each(normal),
        _ => {}
    }
}

/// Events, with or without their points in time → how often. The JDK puts the events of later chunks on the first chunk's clock, some
/// hundred ns off.
fn counted(events: Vec<Value>, times: bool) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for mut event in events {
        normal(&mut event);
        if let (false, Some(fields)) = (times, event["values"].as_object_mut()) {
            fields.remove("startTime");
            fields.remove("allocationTime");
        }
        *counts.entry(event.to_string()).or_default() += 1;
    }
    counts
}

#[test]
fn json_is_that_of_the_jdk() {
    let Some(jfr) = jfr() else { return };
    let names = "jdk17 jdk25 jdk17-multichunk jdk25-multichunk ap-java-cpu ap-java-wall ap-native-cpu ap-native-ctimer \
                 ap-native-lock ap-native-mem ap-native-wall";
    for name in names.split_whitespace() {
        let path = root().join(format!("fixtures/recordings/{name}.jfr"));
        let printed = Command::new(&jfr)
            .args(["print", "--json", "--stack-depth", &DEPTH.to_string()])
            .arg(&path)
            .env("TZ", "UTC")
            .output()
            .unwrap();
        assert!(printed.status.success(), "{name}: {}", String::from_utf8_lossy(&printed.stderr));
        let times = !name.ends_with("multichunk");
        let want = counted(events(&printed.stdout), times);
        let got = counted(ours(&path), times);
        let lost: Vec<_> = want.iter().filter(|(event, n)| got.get(*event) != Some(n)).take(2).collect();
        let extra: Vec<_> = got.iter().filter(|(event, n)| want.get(*event) != Some(n)).take(2).collect();
        assert!(lost.is_empty() && extra.is_empty(), "{name}: the JDK has {lost:#?}, we have {extra:#?}");
        assert!(want.values().sum::<u64>() > 100, "{name}");
    }
}

/// Damage costs what is damaged; nothing panics, and JSON stays JSON.
#[test]
fn damaged_recordings_print() {
    for name in ["recordings/ap-native-ctimer.jfr", "cases/82_arrays.jfr", "cases/84_string_cp_field.jfr"] {
        let original = std::fs::read(root().join("fixtures").join(name)).unwrap();
        let mut bytes = original.clone();
        for at in (0..bytes.len()).step_by(if original.len() > 10_000 { 211 } else { 13 }) {
            bytes[at] ^= 0xff;
            let input = || Input::bytes(bytes::Bytes::copy_from_slice(&bytes));
            let json = printed(input(), Format::Json).0;
            printed(input(), Format::Text);
            serde_json::from_slice::<Value>(&json).unwrap_or_else(|e| panic!("{name}, byte {at}: {e}"));
            bytes[at] = original[at];
        }
    }
}
