//! The list of slow calls agrees with the events and is sorted by time.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const EVENTS: &str = "jdk.FileRead,jdk.FileWrite,jdk.FileForce,jdk.SocketRead,jdk.SocketWrite";

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name);
    path.to_str().unwrap().to_owned()
}

fn flightline(args: &[&str], input: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.args(args).stdin(input).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = flightline(args, Stdio::null());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(value: &Value, key: &str) -> i64 {
    value[key].as_i64().unwrap_or_else(|| panic!("{key} in {value}"))
}

/// File or peer and number of bytes for each event in `print`.
fn printed(file: &str) -> Vec<(String, i64)> {
    let mut all: Vec<(String, i64)> = objects(&text(&["print", file, "--events", EVENTS, "--ndjson"]))
        .iter()
        .map(|values| {
            let bytes = ["bytesRead", "bytesWritten"].iter().find_map(|key| values[*key].as_i64());
            let name = values["path"].as_str().or(values["host"].as_str());
            (name.unwrap_or_default().to_owned(), bytes.unwrap_or(-1))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn slow_calls_match_jdk_events() {
    for name in ["jdk17-jcmd.jfr", "jdk25-methods.jfr", "jdk25-multichunk.jfr"] {
        let file = fixture(name);
        let listed = objects(&text(&["slower", &file, "--min", "0", "--json"]));
        let should = printed(&file);
        assert!(!should.is_empty() && listed.len() == should.len(), "{name}: {}", listed.len());
        let mut is: Vec<(String, i64)> = listed
            .iter()
            .map(|call| {
                let name = call["name"].as_str().unwrap();
                let socket = call["what"] == "socket";
                let name = if socket { name.rsplit_once(':').map_or(name, |(host, _)| host) } else { name };
                (name.to_owned(), call["bytes"].as_i64().unwrap_or(-1))
            })
            .collect();
        is.sort();
        assert_eq!(is, should, "{name}");
        let starts: Vec<i64> = listed.iter().map(|call| number(call, "startEpochNanos")).collect();
        assert!(starts.is_sorted(), "{name}");

        let took: Vec<i64> = listed.iter().map(|call| number(call, "nanos")).collect();
        let mut longest = took.clone();
        longest.sort_unstable_by(|a, b| b.cmp(a));
        longest.truncate(3);
        let top = objects(&text(&["slower", &file, "-m", "0", "--top", "3", "--json"]));
        assert_eq!(top.iter().map(|call| number(call, "nanos")).collect::<Vec<_>>(), longest, "{name}");

        // With the shortest of them as the threshold, as text with fileslower's columns.
        let least = format!("{}ns", longest.last().unwrap());
        let lines = text(&["slower", &file, "--min", &least]);
        let mut lines = lines.lines();
        assert_eq!(lines.next(), Some("TIME(s)  COMM           PID    D BYTES   LAT(ms) FILENAME"));
        let above = took.iter().filter(|nanos| *nanos >= longest.last().unwrap()).count();
        assert_eq!(lines.count(), above, "{name}");
    }
}

#[test]
fn file_and_socket_calls_add_up_to_all_calls() {
    let file = fixture("jdk25.jfr");
    let count =
        |more: &[&str]| text(&[&["slower", &file, "--min", "0", "--json"], more].concat()).lines().count();
    let (all, files, sockets) = (count(&[]), count(&["--files"]), count(&["--sockets"]));
    assert_eq!((files + sockets, count(&["--files", "--sockets"])), (all, all));
    assert!(files > 0);
    let (with, without) = (count(&["-I", "read"]), count(&["-X", "read"]));
    assert_eq!(with + without, all, "by stacks");
    let of_pipe =
        flightline(&["slower", "-", "--min", "0", "--json"], std::fs::File::open(&file).unwrap().into());
    assert_eq!(String::from_utf8_lossy(&of_pipe.stdout).lines().count(), all);
}

#[test]
fn empty_list_reports_reason() {
    let none = flightline(&["slower", &fixture("ap-java-cpu.jfr")], Stdio::null());
    assert!(!none.status.success() && none.stdout.is_empty());
    assert!(String::from_utf8_lossy(&none.stderr).contains("-e io"), "{none:?}");
    let short = flightline(&["slower", &fixture("jdk25.jfr"), "--min", "1h"], Stdio::null());
    assert!(short.status.success() && short.stdout.is_empty());
    assert!(String::from_utf8_lossy(&short.stderr).contains("--min"), "{short:?}");
}
