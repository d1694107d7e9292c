//! Wrong usage ends every command with status 2, and errors of inputs and of the system with status 1.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/jdk25.jfr");

/// Runs a command in `folder`. `REC` is a recording, `TXT` folded text. Returns the exit status and standard
/// error.
fn run(folder: &Path, line: &str) -> (Option<i32>, String) {
    let words = line.split_whitespace().map(|word| match word {
        "REC" => RECORDING,
        "TXT" => "stacks.folded",
        word => word,
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    let output = command.args(words).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn check(lines: &[&str], status: i32) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("stacks.folded"), "main;a 3\nmain;b 4\n").unwrap();
    fs::write(folder.path().join("empty.jfr"), "").unwrap();
    let wrong: Vec<String> = lines
        .iter()
        .map(|line| (line, run(folder.path(), line)))
        .filter(|(_, (code, text))| *code != Some(status) || text.is_empty() || text.contains("panicked"))
        .map(|(line, (code, text))| format!("flightline {line}: {code:?}\n{text}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wrong_usage_has_status_2() {
    check(
        &[
            // Outputs of `record` that are no recording, or cannot be drawn.
            "record -o x.svg -- true",
            "record -o x.html -- true",
            "record -o x.folded -- true",
            "record --flame x.txt -- true",
            "record -o - --flame x.svg -- true",
            "record -o run-%p.jfr --flame x.svg -- true",
            "record -o tcp:nohost -- true",
            "record -o fd:x -- true",
            "record -o unix: -- true",
            "record -e nosuch -- true",
            "record -e cpu@0 -- true",
            "record --rate 0 -- true",
            "record --threads ( -- true",
            "record -p 0",
            "record",
            "ctl stop",
            "ctl -p 0 stop",
            "dump -p 1",
            // Values and combinations of options of other commands.
            "flame REC -o x.txt",
            "flame REC -o x.html --flame-chart",
            "flame TXT -o x.svg --flame-chart",
            "flame REC --format svg --measure cpu,jdk.ThreadPark",
            "flame TXT --measure cpu,wall",
            "flame TXT --cpi -o x.svg",
            "flame REC -o x.svg --colors nosuch",
            "fold REC --from 20 --to 10",
            "fold TXT --from 1",
            "fold TXT --only-thread main",
            "fold TXT --threads",
            "fold REC --include (",
            "fold REC --min-width 3px",
            "fold",
            "convert REC -o x.unknown",
            "diff - -",
            "diff TXT",
            "diff REC REC --json -o - --format svg",
            "offcpu REC -e cpu",
            "wakeup REC --run-queue",
            "offcpu REC -o x.pdf",
            "print - --follow",
            "print REC REC --follow",
            "print REC --follow --last 3s",
            "print REC --json --csv",
            "view nosuch-view REC",
            "view hot-methods",
            "report REC --format html",
            "cut REC -o x.jfr",
            "cut REC --from 20 --to 10 -o x.jfr",
            "scrub REC x.jfr",
            "tail REC --flame",
            "tail",
            "collect REC -o x.jfr",
            "spans REC --json -o -",
            "spans REC -o x.pdf",
            "relay - -o - --json",
            "repair REC -o -x --nosuch",
            "nosuch",
        ],
        2,
    );
}

#[test]
fn unusable_inputs_have_status_1() {
    check(
        &[
            "record -p 999999",
            "record -p no-such-program",
            "ctl -p 999999 stop",
            "summary missing.jfr",
            "fold missing.jfr",
            "fold empty.jfr",
            "flame REC TXT -o x.svg",
            "fold REC -e nosuch",
            "print TXT",
            "annotate nosuch REC",
            "cut REC --from 90000 -o x.jfr",
            "spans TXT",
            "recover missing",
            "repair TXT",
            "tail missing.jfr",
        ],
        1,
    );
}
