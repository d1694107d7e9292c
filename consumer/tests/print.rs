//! Compares every field of every event with `jfr print --json` of JDK 25, byte for byte, and the other
//! formats with the JSON.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flightline_consumer::print::{Categories, Format, Patterns, PrintOptions, Printer, Selection};
use flightline_consumer::warnings::Warnings;
use jfr_format::read::Input;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The JDK's `jfr` tool; `None` if not installed, which is an error in CI.
fn jfr() -> Option<PathBuf> {
    let find = ". tests/readers/env.sh; find_jdk 25";
    let found = Command::new("bash").args(["-c", find]).current_dir(root()).output().unwrap();
    if !found.status.success() {
        assert!(std::env::var_os("CI").is_none(), "no JDK 25, which CI must have");
        // Write to the descriptor directly, since the test runner captures print macros.
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            b"SKIPPED: no JDK 25 here to compare with (set JAVA25_HOME)\n",
        );
        return None;
    }
    Some(Path::new(String::from_utf8(found.stdout).unwrap().trim()).join("bin/jfr"))
}

fn recording(name: &str) -> Input {
    Input::open(&root().join("fixtures/recordings").join(name)).unwrap()
}

fn options(stack_depth: usize) -> PrintOptions {
    PrintOptions { stack_depth, ..PrintOptions::default() }
}

/// Prints an input; returns the output and the warnings.
fn printed(mut input: Input, format: Format, options: PrintOptions) -> (Vec<u8>, Warnings) {
    let mut out = Vec::new();
    let mut warnings = Warnings::default();
    let mut printer = Printer::new(format, options);
    printer.select(input.decoder());
    printer.begin(&mut out).unwrap();
    while let Some(item) = input.next().unwrap() {
        printer.item(item, &mut warnings, &mut out).unwrap();
    }
    printer.end(&mut out).unwrap();
    (out, warnings)
}

/// Prints an undamaged recording.
fn text(name: &str, format: Format, options: PrintOptions) -> String {
    let (out, warnings) = printed(recording(name), format, options);
    assert!(warnings.is_empty(), "{name}: {warnings:?}");
    String::from_utf8(out).unwrap()
}

/// The values of a JSON document's events, with the type's name added to the fields.
fn events(document: &str) -> Vec<Value> {
    let mut document: Value = serde_json::from_str(document).unwrap();
    let Value::Array(events) = document["recording"]["events"].take() else { panic!("no list of events") };
    let flat = |mut event: Value| {
        let mut values = event["values"].take();
        values["event"] = event["type"].take();
        values
    };
    events.into_iter().map(flat).collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns true if Python is installed. Otherwise prints SKIPPED directly to the descriptor, since the test
/// runner captures print macros; CI fails.
fn python_is_here() -> bool {
    let here = Command::new("python3").arg("--version").output().is_ok();
    if !here {
        assert!(std::env::var_os("FLIGHTLINE_NO_SKIP").is_none(), "no python3");
        let _ = std::io::stderr()
            .write_all(b"\n*** SKIPPED: no python3 here: another reader of what is printed ***\n\n");
    }
    here
}

/// Runs a program with `input` and returns its output.
fn python(program: &str, input: String) -> String {
    let mut child = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feed = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Removes timestamps from a document.
fn timeless(document: &str) -> String {
    let time = |line: &&str| line.contains("\"startTime\": ") || line.contains("\"allocationTime\": ");
    document.lines().filter(|line| !time(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn json_matches_the_jdk() {
    let Some(jfr) = jfr() else { return };
    let names = "jdk11 jdk17 jdk21-zgc jdk25 jdk25-methods jdk17-multichunk jdk25-multichunk ap-java-cpu ap-java-wall \
                 ap-jfrsync ap-native-cpu ap-native-lock ap-native-mem";
    for (at, name) in names.split_whitespace().enumerate() {
        let depth = if at % 2 == 0 { 5 } else { 64 };
        let path = root().join(format!("fixtures/recordings/{name}.jfr"));
        let printed = Command::new(&jfr)
            .args(["print", "--json", "--stack-depth", &depth.to_string()])
            .arg(&path)
            .output()
            .unwrap();
        assert!(printed.status.success(), "{name}: {}", String::from_utf8_lossy(&printed.stderr));
        let mut want = String::from_utf8(printed.stdout).unwrap();
        // HotSpot wrote an emoji as two surrogates, which the JDK reads as two invalid characters.
        let mut got = text(&format!("{name}.jfr"), Format::Json, options(depth))
            .replace("\\ud83e\\udd80", "\\ufffd\\ufffd");
        want = want.replace("\\ud83e\\udd80", "\\ufffd\\ufffd");
        if ["jdk17-multichunk", "jdk25-multichunk", "ap-jfrsync"].contains(&name) {
            // The JDK applies the first chunk's clock to all chunks.
            (want, got) = (timeless(&want), timeless(&got));
        }
        let differ = want.lines().zip(got.lines()).enumerate().find(|(_, (want, got))| want != got);
        assert!(want == got, "{name}: line, JDK, ours: {differ:?}");
        assert!(want.len() > 100_000, "{name}");
    }
}

#[test]
fn filters_match_the_jdk() {
    let Some(jfr) = jfr() else { return };
    let list =
        |text: &str| -> Vec<String> { text.split(',').filter(|t| !t.is_empty()).map(Into::into).collect() };
    for (names, categories, some) in [
        ("CPULoad,jdk.GC*", "", true),
        ("", "JVM", true),
        ("", "Java Application", true),
        ("*Thread*", "Java*", true),
        ("jdk.?CPhasePause", "GC", true),
        ("CPULoad", "GC", false),
    ] {
        let mut command = Command::new(&jfr);
        command.args(["print", "--json"]);
        for (option, value) in [("--events", names), ("--categories", categories)] {
            if !value.is_empty() {
                command.args([option, value]);
            }
        }
        let want = command.arg(root().join("fixtures/recordings/jdk25.jfr")).output().unwrap().stdout;
        let want = String::from_utf8(want).unwrap().replace("\\ufffd\\ufffd", "\\ud83e\\udd80");
        let selection = Selection {
            events: Patterns::new(list(names)),
            categories: Categories::new(list(categories)),
            ..Selection::default()
        };
        let got = text("jdk25.jfr", Format::Json, PrintOptions { selection, ..options(5) });
        assert!(got == want, "--events {names} --categories {categories}");
        assert_eq!(!events(&got).is_empty(), some, "--events {names} --categories {categories}");
    }
}

#[test]
fn ndjson_values_match_json_document() {
    for name in ["jdk25.jfr", "jdk17-multichunk.jfr", "ap-native-mem.jfr"] {
        let want = events(&text(name, Format::Json, options(7)));
        assert!(lines(&text(name, Format::Ndjson, options(7))) == want, "{name}");
    }
}

/// Runs the program shown in the documentation.
#[test]
fn compact_format_values_match_json_document() {
    if !python_is_here() {
        return;
    }
    let documentation =
        std::fs::read_to_string(root().join("docs/guide/reference/print-formats.md")).unwrap();
    let program = documentation.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    for name in ["jdk25.jfr", "jdk17-multichunk.jfr", "ap-java-cpu.jfr"] {
        let want = events(&text(name, Format::Json, options(64)));
        let compact = text(name, Format::Compact, options(64));
        let size = compact.len();
        assert!(lines(&python(program, compact)) == want, "{name}");
        assert!(size < want.iter().map(|event| event.to_string().len()).sum::<usize>(), "{name}");
    }
}

/// Python's CSV reader finds the same values as in the JSON.
#[test]
fn csv_values_match_json_document() {
    if !python_is_here() {
        return;
    }
    const READ: &str = "import csv, json, sys\nfor row in csv.DictReader(sys.stdin): print(json.dumps(row))";
    let names = |events: &[&str]| PrintOptions {
        selection: Selection {
            events: Patterns::new(events.iter().map(|name| (*name).to_owned()).collect()),
            ..Selection::default()
        },
        ..options(3)
    };
    let of = |options: PrintOptions| {
        let rows = lines(&python(READ, text("jdk25.jfr", Format::Csv, options.clone())));
        let events = events(&text("jdk25.jfr", Format::Json, options));
        assert_eq!(rows.len(), events.len());
        assert!(!rows.is_empty());
        rows.into_iter().zip(events)
    };
    for (row, event) in of(names(&["jdk.ActiveSetting"])) {
        assert_eq!((&row["name"], &row["value"]), (&event["name"], &event["value"]));
    }
    for (row, event) in of(names(&["jdk.ThreadPark"])) {
        assert_eq!(row["startTime"], event["startTime"]);
        let seconds =
            event["duration"].as_str().unwrap().strip_prefix("PT").unwrap().strip_suffix('S').unwrap();
        assert_eq!(row["duration"], seconds);
        assert_eq!(row["eventThread"], event["eventThread"]["javaName"]);
        let frames = event["stackTrace"]["frames"].as_array().unwrap();
        let frame = |of: &Value| {
            let method = &of["method"];
            let class = method["type"]["name"].as_str().unwrap().replace('/', ".");
            let line = of["lineNumber"].as_i64().filter(|&line| line > 0);
            let line = line.map_or(String::new(), |line| format!(":{line}"));
            format!("{class}.{}{line}", method["name"].as_str().unwrap())
        };
        assert_eq!(row["stackTrace"], frames.iter().map(frame).collect::<Vec<_>>().join(";"));
        assert_eq!(row["address"], event["address"].to_string());
    }
    for (row, event) in of(names(&["jdk.ThreadCPULoad", "jdk.ThreadPark"])) {
        let fields: Value = serde_json::from_str(row["fields"].as_str().unwrap()).unwrap();
        assert_eq!((&row["event"], &row["startTime"]), (&event["event"], &event["startTime"]));
        assert_eq!(
            (&fields["machineTotal"], &fields["timeout"]),
            (&event["machineTotal"], &event["timeout"])
        );
    }
}

#[test]
fn time_range_selects_overlapping_events() {
    let all = lines(&text("jdk25.jfr", Format::Ndjson, options(1)));
    let at = |event: &Value| event["startTime"].as_str().unwrap().to_owned();
    let middle = at(&all[all.len() / 2]);
    let printed = |from: Option<&str>, to: Option<&str>| {
        let bound = |text: &str| text.parse().unwrap();
        let selection = Selection { from: from.map(bound), to: to.map(bound), ..Selection::default() };
        lines(&text("jdk25.jfr", Format::Ndjson, PrintOptions { selection, ..options(1) }))
    };
    let before = printed(None, Some(&middle));
    let after = printed(Some(&middle), None);
    assert!(before.iter().all(|event| at(event) < middle) && before.len() > 100);
    assert_eq!(before.len(), all.iter().filter(|event| at(event) < middle).count());
    // An event that spans the boundary belongs to both.
    let both = before.iter().filter(|event| after.contains(event)).count();
    assert_eq!(before.len() + after.len() - both, all.len());
    assert!(after.iter().filter(|event| at(event) < middle).all(|event| event["duration"] != "PT0S"));
    assert!(printed(Some(&middle), Some(&middle)).iter().all(|event| at(event) < middle));
}

#[test]
fn thread_count_does_not_change_output() {
    for format in [Format::Text, Format::Json, Format::Ndjson, Format::Csv, Format::Compact] {
        for name in ["ap-native-lock.jfr", "jdk11.jfr"] {
            let want = text(name, format, options(5));
            for jobs in [2, 5] {
                let got = text(name, format, PrintOptions { jobs, ..options(5) });
                assert!(got == want, "{name} as {format:?} by {jobs} threads");
            }
        }
    }
}

/// Only damaged data is lost; nothing panics, and the output remains valid JSON.
#[test]
fn damaged_recordings_print_without_panic() {
    for name in ["recordings/ap-native-ctimer.jfr", "cases/82_arrays.jfr", "cases/84_string_cp_field.jfr"] {
        let original = std::fs::read(root().join("fixtures").join(name)).unwrap();
        let mut bytes = original.clone();
        for at in (0..bytes.len()).step_by(if original.len() > 10_000 { 211 } else { 13 }) {
            bytes[at] ^= 0xff;
            let input = || Input::bytes(bytes::Bytes::copy_from_slice(&bytes));
            let json = printed(input(), Format::Json, options(64)).0;
            for format in [Format::Text, Format::Csv] {
                printed(input(), format, options(64));
            }
            for format in [Format::Ndjson, Format::Compact] {
                lines(&String::from_utf8(printed(input(), format, options(64)).0).unwrap());
            }
            serde_json::from_slice::<Value>(&json).unwrap_or_else(|e| panic!("{name}, byte {at}: {e}"));
            bytes[at] = original[at];
        }
    }
}
