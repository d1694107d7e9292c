//! Test suites of other projects, as the distribution packages them: the same result alone and recorded by
//! every engine at once.

use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::guest::everything;
use flightline_tests::run::{Finished, beside, run};
use flightline_tests::skip;

const PYTHON: &str = "/usr/bin/python3";
const LIMIT: Duration = Duration::from_secs(600);

/// The modules that use what a recorder affects: signals, processes, threads, locks, descriptors, sockets,
/// memory.
const MODULES: [&str; 11] = [
    "test_signal",
    "test_subprocess",
    "test_threading",
    "test_thread",
    "test_fork1",
    "test_posix",
    "test_select",
    "test_mmap",
    "test_faulthandler",
    "test_ctypes",
    "test_exceptions",
];

/// Modules that take a minute together.
const SLOW: [&str; 3] = ["test_subprocess", "test_ctypes", "test_select"];

/// Module → the results of its tests.
fn results(finished: &Finished) -> Vec<(String, String)> {
    let text = finished.stdout_text();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut kind = String::new();
    // "13 tests OK.", "1 test failed:", "1 test skipped:", each with the names indented below.
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [count, "test" | "tests", how, ..] = words.as_slice()
            && count.parse::<u32>().is_ok()
        {
            kind = how.trim_end_matches([':', '.']).to_owned();
        } else if line.starts_with("    ") && words.iter().all(|w| w.starts_with("test_")) {
            found.extend(words.iter().map(|w| ((*w).to_owned(), kind.clone())));
        } else if !line.trim().is_empty() {
            kind.clear();
        }
    }
    found.sort();
    found
}

#[test]
fn cpython_test_suite_has_same_results_with_recorder() {
    let _place = beside();
    let have =
        Command::new(PYTHON).args(["-c", "import test.test_dict"]).output().is_ok_and(|o| o.status.success());
    if !have {
        return skip::skip("CPython's test package is not installed");
    }
    let mut args = vec!["-m", "test", "-j", "4", "--timeout", "300"];
    args.extend(MODULES.iter().filter(|module| flightline_tests::long() || !SLOW.contains(module)));
    // Most of the time the tests themselves wait: one mode, the one with the most engines.
    let mode = &everything()[0];
    let recorded = mode.record().limit(LIMIT).run(PYTHON, &args);
    let found = results(&recorded.finished);
    assert!(recorded.finished.stdout_text().contains("test_signal"), "{}", recorded.finished.stdout_text());
    if recorded.finished.code() == 0 && found.iter().all(|(_, how)| how == "OK") {
        return;
    }
    // Tests that fail here may also fail alone.
    let folder = tempfile::tempdir().unwrap();
    let mut alone = Command::new(PYTHON);
    let alone = run(alone.args(&args).current_dir(folder.path()).stdin(Stdio::null()), LIMIT);
    let expected = results(&alone);
    eprintln!("alone: status {}, not OK: {expected:?}", alone.code());
    assert_eq!(
        (recorded.finished.code(), &found),
        (alone.code(), &expected),
        "{}\n{}\n{}",
        mode.name,
        recorded.finished.stdout_text(),
        recorded.finished.stderr
    );
}
