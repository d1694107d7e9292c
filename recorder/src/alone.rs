//! Tests that need a process of their own: others of the same program fork, and leave room in the heap.

use std::process::Command;

/// Whether this is the process in which `test`, by its whole name, is alone; elsewhere it is run there, and must pass.
#[track_caller]
pub fn alone(test: &str) -> bool {
    const ALONE: &str = "FLIGHTLINE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // None at all passes, too.
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    false
}
