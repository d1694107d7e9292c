//! Messages of the commands that draw off-CPU time.

use std::path::Path;
use std::process::Command;

/// The messages of a command about a recording with known threads.
fn messages(args: &[&str]) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/off-cpu/off_cpu.jfr");
    let output = Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).arg(file).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn preempted_time_is_noted_once() {
    let preempted = "of preemption are not drawn";
    assert_eq!(messages(&["offcpu"]).matches(preempted).count(), 1);
    assert_eq!(messages(&["offcpu", "--state", "R"]), "");
    for graph in ["wakeup", "offwake", "chain", "threadtime"] {
        assert_eq!(messages(&[graph]), "", "{graph}");
    }
}
