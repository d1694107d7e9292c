//! Event types that are not in the schema: both JDKs and JDK Mission Control read the values that were written.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::jfr_tool::JfrTool;
use flightline_tests::run::{beside, run};
use flightline_tests::{foreign, own_events, victim};
use serde_json::{Value as Json, json};

/// Returns the values of the events of a type, as `jfr print --json` prints them.
#[track_caller]
fn print(jfr: &mut JfrTool, ty: &str, file: &Path) -> Vec<Json> {
    let path = file.to_str().unwrap();
    let done = jfr.run(&["print", "--json", path]).expect_success("jfr print");
    let printed: Json = serde_json::from_slice(&done.stdout).unwrap();
    let events = printed["recording"]["events"].as_array().unwrap();
    assert!(events.iter().all(|event| event["type"] == ty), "no other events: {printed}");
    events.iter().map(|event| event["values"].clone()).collect()
}

/// The frames of a stack trace as `class.method:line`.
fn frames(stack_trace: &Json) -> Vec<String> {
    let frame = |frame: &Json| {
        let method = &frame["method"];
        let text = |value: &Json| value.as_str().unwrap().to_owned();
        format!("{}.{}:{}", text(&method["type"]["name"]), text(&method["name"]), frame["lineNumber"])
    };
    stack_trace["frames"].as_array().unwrap().iter().map(frame).collect()
}

/// Compares the fields of an event as a JDK prints them.
#[track_caller]
fn expect_json(event: &Json, expected: &Json, release: u32) {
    let (event, expected) = (event.as_object().unwrap(), expected.as_object().unwrap());
    for (name, value) in expected {
        assert_eq!(&event[name], value, "{name}, JDK {release}");
    }
    assert_eq!(event.len(), expected.len() + 2, "with a thread and a stack trace");
}

fn write_example(path: &Path) {
    let mut example = Command::new(victim::example("write_own_event"));
    example.arg(path).arg("20");
    run(&mut example, Duration::from_secs(60)).expect_success("write_own_event");
}

#[test]
fn jdks_read_every_field_kind() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.jfr");
    own_events::write_all_kinds(&file);
    for release in [17, 25] {
        let Some(home) = foreign::jdk(release) else { return };
        let mut jfr = JfrTool::start(&home);
        let events = print(&mut jfr, "com.example.AllKinds", &file);
        let [limits, zeros] = &events[..] else { panic!("{} events", events.len()) };
        // JDK 17 prints unsigned numbers with a sign.
        let unsigned = |unsigned: i64, signed: i64| if release == 17 { signed } else { unsigned };
        let expected = json!({
            "startTime": "2025-06-15T15:06:40.001Z", "duration": "PT1.5S", "flag": true,
            "i8": -128, "i16": -32768, "i32": i32::MIN, "i64": i64::MIN + 1,
            "u8": unsigned(200, -56), "u16": unsigned(60_000, -5536),
            "u32": unsigned(4_000_000_000, -294_967_296), "u64": 1_i64 << 62,
            "f32": 1.5, "f64": -2.25, "text": "größe ☃", "span": "PT1.000001S",
            "time": "1970-01-01T00:20:34.567Z", "size": 4096, "share": 0.25,
            "address": 0x7f12_3456_7000_i64, "pooled": "共有",
        });
        expect_json(limits, &expected, release);
        assert_eq!(limits["eventThread"]["osName"], "Fädchen");
        assert_eq!(limits["eventThread"]["osThreadId"], 4711);
        assert_eq!(limits["stackTrace"]["truncated"], true);
        assert_eq!(frames(&limits["stackTrace"]), ["lib.größe:70000", "vdso.[unknown]:0"]);
        let expected = json!({
            "startTime": "2025-06-15T15:06:42Z", "duration": "PT0S", "flag": false,
            "i8": 0, "i16": 0, "i32": 0, "i64": 0, "u8": 0, "u16": 0, "u32": 0, "u64": 0,
            "f32": 0.0, "f64": 0.0, "text": null, "span": "PT0S", "time": "1970-01-01T00:00Z",
            "size": 0, "share": 0.0, "address": 0, "pooled": "",
        });
        expect_json(zeros, &expected, release);
        assert_eq!((&zeros["eventThread"], &zeros["stackTrace"]), (&Json::Null, &Json::Null));

        let text = jfr.run(&["print", file.to_str().unwrap()]).expect_success("jfr print").stdout_text();
        // The units of the declaration.
        for line in ["duration = 1.50 s", "size = 4.0 kB", "share = 25.00%", "address = 0x7F1234567000"] {
            assert!(text.lines().any(|shown| shown.trim() == line), "{line}, JDK {release}: {text}");
        }
        let metadata = jfr.run(&["metadata", file.to_str().unwrap()]).expect_success("jfr metadata");
        let metadata = metadata.stdout_text();
        for line in ["@Name(\"com.example.AllKinds\")", "@Label(\"All Kinds\")", "@Label(\"Unsigned Long\")"]
        {
            assert!(metadata.contains(line), "{line}, JDK {release}: {metadata}");
        }
    }
}

#[test]
fn jmc_reads_every_field_kind() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.jfr");
    own_events::write_all_kinds(&file);
    let events = foreign::fields("com.example.AllKinds", &file);
    assert_eq!(events.len(), 2);
    // JMC swaps the signs of bytes.
    let expected = [
        ("startTime", "1750000000001000000 epochns", "1750000002000000000 epochns"),
        ("duration", "1500000000 ticks", "0 ticks"),
        ("eventThread", "Fädchen", "null"),
        ("stackTrace", "lib.größe:70000;vdso.[unknown]:0;", "null"),
        ("flag", "true", "false"),
        ("i8", "128", "0"),
        ("i16", "-32768", "0"),
        ("i32", "-2147483648", "0"),
        ("i64", "-9223372036854775807", "0"),
        ("u8", "-56", "0"),
        ("u16", "60000", "0"),
        ("u32", "4000000000", "0"),
        ("u64", "4611686018427387904", "0"),
        ("f32", "1.5", "0.0"),
        ("f64", "-2.25", "0.0"),
        ("text", "größe ☃", "null"),
        ("span", "1000001000 ns", "0 ns"),
        ("time", "1234567 epochms", "0 epochms"),
        ("size", "4096 B", "0 B"),
        ("share", "0.25", "0.0"),
        ("address", "139716164218880", "0"),
        ("pooled", "共有", ""),
    ];
    for (name, limits, zeros) in expected {
        assert_eq!((&*events[0][name], &*events[1][name]), (limits, zeros), "{name}");
    }
}

#[test]
fn jdks_and_jmc_read_another_producers_recording() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.jfr");
    write_example(&file);
    for release in [17, 25] {
        let Some(home) = foreign::jdk(release) else { return };
        let events = print(&mut JfrTool::start(&home), "com.example.Request", &file);
        assert_eq!(events.len(), 40, "JDK {release}");
        // The fifth request of the second chunk: its constants are those of that chunk.
        let expected = json!({
            "startTime": "2025-06-15T15:06:40.480Z", "duration": "PT0.001504S", "path": "/größe/☃",
            "user": "Zoë", "status": 200, "size": 4096, "hitRate": 0.25, "queued": "PT0.000004S",
            "received": "2025-06-15T15:06:40.004Z", "cached": true,
        });
        expect_json(&events[24], &expected, release);
        assert_eq!(events[24]["eventThread"]["osName"], "worker-0");
        let stack = ["server::http.render_page:42", "server::http.serve:7", "server.main:0"];
        assert_eq!(frames(&events[24]["stackTrace"]), stack, "JDK {release}");
        assert_eq!(events[3]["user"], Json::Null, "JDK {release}");
    }
    let events = foreign::fields("com.example.Request", &file);
    assert_eq!(events.len(), 40);
    let request = events.iter().find(|event| event["startTime"] == "1750000000480000000 epochns").unwrap();
    let stack = "server::http.render_page:42;server::http.serve:7;server.main:0;";
    for (name, value) in [
        ("duration", "1504000 ticks"),
        ("eventThread", "worker-0"),
        ("stackTrace", stack),
        ("path", "/größe/☃"),
        ("user", "Zoë"),
        ("status", "200"),
        ("size", "4096 B"),
        ("queued", "4000 ns"),
        ("received", "1750000000004 epochms"),
        ("cached", "true"),
    ] {
        assert_eq!(request[name], value, "{name}");
    }
}
