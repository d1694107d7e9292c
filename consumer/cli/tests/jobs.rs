//! The result does not depend on the number of threads or on the kind of input: several threads read a file
//! and only the selected samples; one thread reads a pipe completely.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Exit status, output and messages, without the input's name.
fn told(args: &[&str], path: &Path, piped: bool) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.args(args).stdin(Stdio::null());
    if piped {
        command.arg("-").stdin(File::open(path).unwrap());
    } else {
        command.arg(path);
    }
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let name = if piped { "standard input".to_owned() } else { path.display().to_string() };
    (output.status.code(), text(output.stdout), text(output.stderr).replace(&name, "FILE"))
}

/// Commands that cover all ways to read a recording.
const ALL: [&[&str]; 5] = [
    &["summary", "--json"],
    &["summary"],
    &["fold", "-t", "--process"],
    &["view", "all-views", "--json"],
    &["view", "all-events", "--csv"],
];

/// One recording of all kinds of chunks and every damaged file, with all commands; the intact files, whose
/// chunks are in the former, with fewer.
fn inputs(folder: &Path) -> Vec<(PathBuf, &'static [&'static [&'static str]])> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let listed = |name: &str| {
        let entries = fs::read_dir(fixtures.join(name)).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|e| e == "jfr")).collect();
        paths.sort();
        paths
    };
    let recordings = listed("recordings");
    let all: Vec<u8> = recordings.iter().flat_map(|path| fs::read(path).unwrap()).collect();
    let joined = folder.join("joined.jfr");
    fs::write(&joined, all).unwrap();
    let with = |paths: Vec<PathBuf>, asked: &'static [_]| paths.into_iter().map(move |path| (path, asked));
    with(vec![joined], &ALL).chain(with(listed("cases"), &ALL)).chain(with(recordings, &ALL[..1])).collect()
}

#[test]
fn output_does_not_depend_on_jobs_or_input_kind() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = inputs(folder.path());
    let next = AtomicUsize::new(0);
    let compare = || {
        while let Some((path, all)) = inputs.get(next.fetch_add(1, Ordering::Relaxed)) {
            for args in *all {
                let expected = told(&[*args, &["--jobs", "1"]].concat(), path, false);
                for jobs in ["2", "5"] {
                    let found = told(&[*args, &["--jobs", jobs]].concat(), path, false);
                    assert_eq!(found, expected, "{args:?} of {} with {jobs} threads", path.display());
                }
                let (status, output, _) = told(args, path, true);
                assert_eq!(
                    (status, &output),
                    (expected.0, &expected.1),
                    "{args:?} of {}, piped",
                    path.display()
                );
            }
        }
    };
    // Run in parallel; debug builds take minutes for all of it.
    let processors = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| (0..processors).for_each(|_| drop(scope.spawn(compare))));
}
