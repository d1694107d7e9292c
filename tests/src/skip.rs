//! Tests that need something this machine lacks print SKIPPED. In CI that is a failure.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// Prints why a test cannot run here. Panics instead if `FLIGHTLINE_NO_SKIP` is set, as in CI.
///
/// # Panics
///
/// If skipping is forbidden.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("FLIGHTLINE_NO_SKIP").is_none(), "skipping is forbidden here: {reason}");
    aloud(&format!("*** SKIPPED: {reason} ***"));
}

/// Bypasses the test runner, which captures the output of passing tests.
fn aloud(line: &str) {
    let _ = writeln!(std::io::stderr(), "\n{line}\n");
}

/// Prints that a test needs a tool that no registry has. Not a failure in CI. Documents describe the result
/// of a manual test.
pub fn on_no_registry(reason: &str) {
    aloud(&format!("*** NOT SHOWN here: {reason} ***"));
}

/// Prints that a test needs another user. Not a failure in CI, where the user is root.
pub fn other_user(reason: &str) {
    aloud(&format!("*** NOT SHOWN as this user: {reason} ***"));
}

/// Prints that a test needs data from outside of this repository. Not a failure in CI, because CI cannot
/// install it.
pub fn not_given(reason: &str) {
    aloud(&format!("*** NOT COMPARED, not here: {reason} ***"));
}

/// Prints SKIPPED and returns true if the user is not root, which the test needs.
pub fn not_root(reason: &str) -> bool {
    // SAFETY: no memory effects.
    let root = unsafe { libc::geteuid() == 0 };
    if !root {
        other_user(reason);
    }
    !root
}

/// Returns true if a command exists on the search path.
pub fn have(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Returns true if a C++ compiler is installed, and prints SKIPPED if not. The README requires only a C
/// compiler.
#[track_caller]
pub fn have_cpp() -> bool {
    let here = have("g++");
    if !here {
        skip("g++ is not installed: programs in C++ were not tested");
    }
    here
}

/// Returns true if the system's Python is installed, and prints SKIPPED if not.
#[track_caller]
pub fn have_python() -> bool {
    let here = Path::new("/usr/bin/python3").exists();
    if !here {
        skip("/usr/bin/python3 is not installed: its programs were not tested");
    }
    here
}

/// Prints that a test needs a program that no registry has and that CI may therefore lack.
pub fn nowhere(reason: &str) {
    aloud(&format!("*** NOT TESTED, to be had nowhere from here: {reason} ***"));
}

/// Returns true if `java` and `javac` work here. The first call runs them, which takes a third of a second of
/// CPU time.
pub fn have_jdk() -> bool {
    static RUNS: LazyLock<bool> = LazyLock::new(|| {
        let runs = |tool: &str| Command::new(tool).arg("-version").output().is_ok_and(|o| o.status.success());
        runs("java") && runs("javac")
    });
    *RUNS
}

/// Returns true if the kernel lets this user open a cpu-clock event, with or without kernel time.
pub fn perf_allowed(with_kernel: bool) -> bool {
    // perf_event_attr of the first published size (64 bytes): type, size, config, then the flag bits at byte 40.
    let mut attr = [0u64; 8];
    attr[0] = 1 | (64 << 32); // PERF_TYPE_SOFTWARE; config 0 is PERF_COUNT_SW_CPU_CLOCK
    attr[5] = 1 | if with_kernel { 0 } else { 1 << 5 }; // disabled, exclude_kernel
    // SAFETY: `attr` is a valid perf_event_attr of the size it states and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, 8) };
    if fd < 0 {
        return false;
    }
    // SAFETY: the descriptor was just opened here and has no other owner.
    unsafe { libc::close(fd as i32) };
    true
}
