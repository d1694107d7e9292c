//! Runs tests in their own process, because other tests of the same program fork and leave free space in the
//! heap.

use std::process::Command;

/// Returns true in the process in which `test` of `module` (`module_path!()`) is alone. Elsewhere runs the test in such a process, where it must
/// pass, and returns false.
#[track_caller]
pub fn alone(module: &str, test: &str) -> bool {
    const ALONE: &str = "FLIGHTLINE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let (_crate, module) = module.split_once("::").unwrap();
    let test = &format!("{module}::{test}");
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // The filter could also match no test, which succeeds too.
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    false
}
