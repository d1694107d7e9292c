//! Whole messages, as users read them. Other tests check the exit status and the names in a message only.
//!
//! Review a changed message with `INSTA_UPDATE=always cargo test -p flightline --test all messages`, then
//! `git diff`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings");

/// Runs a command in a folder with two recordings and a folded text; returns the exit status and standard
/// error.
fn messages(line: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    for name in ["jdk25.jfr", "ap-java-cpu.jfr"] {
        fs::copy(Path::new(RECORDINGS).join(name), folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("stacks.folded"), "main;a 3\nmain;b 4\n").unwrap();
    fs::write(folder.path().join("notes.txt"), "These are notes.\n").unwrap();
    fs::write(folder.path().join("perf.data"), b"PERFILE2\x68\0\0\0").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.args(line.split_whitespace()).current_dir(folder.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let status = output.status.code().unwrap();
    format!("flightline {line}\nstatus {status}\n{}", String::from_utf8(output.stderr).unwrap())
}

macro_rules! snapshots {
    ($($name:ident: $line:literal,)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(stringify!($name), messages($line));
            }
        )*
    };
}

snapshots! {
    flame_graph_as_recording_name: "record -o x.svg -- true",
    input_that_is_no_recording: "print notes.txt",
    perf_data_file: "fold perf.data",
    unknown_event_with_suggestion: "print jdk25.jfr --events CPULod",
    event_that_was_not_recorded: "flame ap-java-cpu.jfr -e lock -o x.svg",
    option_that_needs_a_recording: "fold stacks.folded --only-thread main",
    different_events_in_a_comparison: "diff ap-java-cpu.jfr stacks.folded --total",
    unknown_function_with_similar_names: "annotate Work.fbi jdk25.jfr",
    output_that_is_the_input: "cut jdk25.jfr --from 0.1 -o jdk25.jfr --force",
    reversed_time_range: "fold jdk25.jfr --from 20 --to 10",
    recording_without_spans: "spans ap-java-cpu.jfr",
    unknown_command: "flam jdk25.jfr",
}
