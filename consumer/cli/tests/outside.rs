//! `record -p`: running programs.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::annotate;
use crate::convert::{flightline, stdout};

/// Computes below 128 KiB of stack frames, without frame pointers.
const DEEP: &str = r"
static volatile unsigned long sum;
static int deep(int n) {
    volatile char frame[2048];
    frame[0] = n;
    if (n == 0) for (unsigned long i = 0; i < 3000000; i++) sum += i;
    else deep(n - 1);
    return frame[0];
}
int main() { for (;;) deep(64); }
";

#[test]
fn stacks_longer_than_copy_report_cause_and_advice() {
    let compiled = annotate::compile("deep.c", DEEP, &["cc", "-O0", "-fomit-frame-pointer"]);
    let file = compiled.folder.path().join("run.jfr").to_str().unwrap().to_owned();
    let mut running = Command::new(&compiled.program).stdout(Stdio::null()).spawn().unwrap();
    let pid = running.id().to_string();
    let done = flightline(&["record", "-p", &pid, "--duration", "1s", "-o", &file]);
    running.kill().unwrap();
    running.wait().unwrap();
    let closing = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{closing}");
    let advice =
        closing.lines().find(|line| line.contains("copied part")).unwrap_or_else(|| panic!("{closing}"));
    assert!(
        advice.contains("% of stacks are cut") && advice.contains("`flightline record -- PROGRAM`"),
        "{advice}"
    );
    let summary: Value = serde_json::from_str(&stdout(&["summary", "--json", &file])).unwrap();
    let cut = summary["stacksCut"].to_string();
    assert!(cut.contains("copied part of the stack too short") && !cut.contains("unreadable"), "{summary}");
}

/// Stacks that fit into the copy are complete and cause no advice.
#[test]
fn short_stacks_print_no_advice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jfr").to_str().unwrap().to_owned();
    let mut running = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let done = flightline(&["record", "-p", &running.id().to_string(), "--duration", "1s", "-o", &file]);
    running.kill().unwrap();
    running.wait().unwrap();
    let closing = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && closing.contains("engine perf from outside"), "{closing}");
    assert!(!closing.contains("copied part"), "{closing}");
}
