//! The command on malformed recordings: little time, little memory, an error with its offset. A process of
//! its own with little memory, because the memory of a new process begins with that of its parent.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use flightline_tests::victim::flightline;

/// Seconds of CPU time after which the kernel ends the command.
const SECONDS: u64 = if cfg!(debug_assertions) { 20 } else { 2 };
/// The maximum of resident memory.
const MOST_KB: i64 = 256 << 10;
/// The limit of address space: an allocation of the size that a length field claims fails.
const MOST_SPACE: u64 = 1 << 30;

/// Writes the cases; returns each name, and whether it can be read without loss.
fn write_to(folder: &Path) -> Vec<(String, bool)> {
    let written = Command::new(flightline_tests::victim::program("malformed")).arg(folder).output().unwrap();
    assert!(written.status.success());
    let list = String::from_utf8(written.stdout).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        (cells[0].to_owned(), cells[3] == "whole")
    };
    list.lines().map(row).collect()
}

/// The exit code and resident memory of a command with tight limits.
fn bounded(arguments: &[&str], path: &Path) -> (std::process::Output, i64) {
    bounded_with(arguments, path, &[])
}

/// The same with standard input.
fn bounded_with(arguments: &[&str], path: &Path, input: &[u8]) -> (std::process::Output, i64) {
    let mut command = Command::new(flightline());
    command.args(arguments).arg(path).stdin(Stdio::piped());
    // SAFETY: setrlimit is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            for (what, most) in [(libc::RLIMIT_CPU, SECONDS), (libc::RLIMIT_AS, MOST_SPACE)] {
                let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
                if libc::setrlimit(what, &limit) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
    command.stdout(std::fs::File::create(&out).unwrap()).stderr(std::fs::File::create(&err).unwrap());
    #[allow(clippy::zombie_processes)] // waited for by wait4, which also tells its memory
    let mut child = command.spawn().unwrap();
    // It may stop before the end.
    drop(child.stdin.take().map(|mut pipe| pipe.write_all(input)));
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both pointers are to locals that live through the call; all zeros is a valid rusage.
    let (waited, usage) = unsafe {
        let waited = libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr());
        (waited, usage.assume_init())
    };
    assert_eq!(waited, child.id() as i32);
    let status = std::os::unix::process::ExitStatusExt::from_raw(status);
    let output = std::process::Output {
        status,
        stdout: std::fs::read(out).unwrap(),
        stderr: std::fs::read(err).unwrap(),
    };
    (output, usage.ru_maxrss)
}

#[test]
fn commands_read_malformed_files_in_bounded_time_and_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, whole) in write_to(folder.path()) {
        let path = folder.path().join(&name).with_extension("jfr");
        for arguments in [&["summary"][..], &["fold"], &["print", "--json"], &["print"], &["metadata"]] {
            let (output, kb) = bounded(arguments, &path);
            let err = String::from_utf8_lossy(&output.stderr);
            let what = format!("{} {}", arguments.join(" "), name);
            match output.status.code() {
                Some(0) if whole || arguments == ["metadata"] => {}
                Some(1) if err.contains(&name) => {}
                _ => wrong.push(format!("{what}: {}: {}", output.status, err.trim())),
            }
            if err.contains("panicked") {
                wrong.push(format!("{what}: {err}"));
            }
            if kb > MOST_KB {
                wrong.push(format!("{what}: {kb} kB resident"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Special files, and missing files.
#[test]
fn special_and_missing_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = bounded(&["summary"], folder.path());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains(&*folder.path().to_string_lossy()), "{err}");
    assert!(err.contains("contains no recordings"), "{err}");

    let (output, _) = bounded(&["summary"], &folder.path().join("none.jfr"));
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("none.jfr") && err.contains("No such file"), "{err}");
}

/// A pipe is read as a stream: events are handed out as soon as their constants are there.
#[test]
fn summary_reads_malformed_streams_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, whole) in write_to(folder.path()) {
        let bytes = std::fs::read(folder.path().join(&name).with_extension("jfr")).unwrap();
        let (output, kb) = bounded_with(&["summary"], Path::new("/dev/stdin"), &bytes);
        let err = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) if whole => {}
            Some(1) if err.contains("/dev/stdin") => {}
            _ => wrong.push(format!("{name}: {}: {}", output.status, err.trim())),
        }
        if err.contains("panicked") || kb > MOST_KB {
            wrong.push(format!("{name}: {kb} kB resident: {err}"));
        }
        if name == "event-size-0" && !err.contains("impossible event size") {
            wrong.push(format!("{name}: {err}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
