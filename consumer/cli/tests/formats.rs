//! Small inputs in formats of other tools (`formats/README.md`), and the expected output of `fold`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::convert::{recording, stdout};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats");

/// File, options of `fold`, exit status, and a part of standard error. If that is empty, status 0 requires
/// that there is no message, and another status requires any message.
type Case = (&'static str, &'static [&'static str], i32, &'static str);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("perf-3-13-no-time.txt", &[], 0, ""),
    ("perf-4-1-vmlinux.txt", &[], 0, ""),
    ("perf-4-8-offsets.txt", &[], 0, ""),
    ("perf-4-13-two-events.txt", &[], 0, "cycles (2)"),
    ("perf-4-13-event-filter.txt", &["-e", "cycles"], 0, ""),
    ("perf-5-4-debug-vmlinux.txt", &[], 0, ""),
    ("perf-5-modules.txt", &[], 0, ""),
    ("perf-6-1-default.txt", &[], 0, ""),
    ("perf-6-1-no-callchain.txt", &[], 0, ""),
    ("perf-6-1-pid-tid-roots.txt", &["--process", "-t"], 0, ""),
    ("perf-6-1-misc.txt", &[], 0, ""),
    ("perf-6-1-nanoseconds.txt", &[], 0, ""),
    ("perf-6-1-time-of-day.txt", &[], 0, ""),
    ("perf-6-1-srcline.txt", &[], 0, ""),
    ("perf-6-1-insn.txt", &[], 0, ""),
    ("perf-6-1-comm-ip-sym.txt", &[], 0, ""),
    ("perf-6-1-ip-sym.txt", &[], 0, ""),
    ("perf-6-1-addresses.txt", &[], 0, ""),
    ("perf-6-1-no-event-no-callchain.txt", &[], 0, ""),
    ("perf-6-1-sched-switch.txt", &[], 0, ""),
    ("perf-6-1-syscalls.txt", &[], 0, "3 of 3 samples have no stack"),
    ("perf-6-1-page-faults-addr.txt", &[], 0, ""),
    ("perf-6-1-page-faults-no-callchain.txt", &[], 0, ""),
    ("perf-6-mem-no-callchain.txt", &[], 0, ""),
    ("perf-6-mem-callchain.txt", &[], 0, ""),
    ("perf-6-hybrid.txt", &["-e", "cycles"], 0, ""),
    ("perf-6-inlined.txt", &[], 0, ""),
    ("perf-6-unknown-symbols.txt", &[], 0, ""),
    ("perf-6-named-anonymous.txt", &[], 0, ""),
    ("perf-6-java.txt", &[], 0, ""),
    ("perf-6-java-jcmd.txt", &[], 0, ""),
    ("perf-6-node.txt", &[], 0, ""),
    ("perf-6-dotnet.txt", &[], 0, ""),
    ("perf-6-python.txt", &[], 0, ""),
    ("perf-5-jitdump.txt", &[], 0, ""),
    ("perf-6-cpp.txt", &[], 0, ""),
    ("perf-6-cpp-operators.txt", &[], 0, ""),
    ("perf-6-rust.txt", &[], 0, ""),
    ("perf-6-go.txt", &[], 0, ""),
    ("perf-6-commands.txt", &[], 0, ""),
    ("perf-6-guest.txt", &[], 0, ""),
    ("perf-6-broken-stacks.txt", &[], 0, "1 of 3 samples have no stack"),
    ("perf-6-brstack.txt", &[], 0, "2 of 2 samples have no stack"),
    ("perf-6-callchain-and-brstack.txt", &[], 0, ""),
    ("perf-6-side-band.txt", &[], 0, ""),
    ("perf-6-4-dsoff.txt", &[], 0, ""),
    ("simpleperf-report-sample.txt", &[], 0, ""),
    ("folded-bcc-profile.folded", &[], 0, ""),
    ("folded-bcc-offcputime.folded", &[], 0, ""),
    ("folded-bpftrace.folded", &[], 0, ""),
    ("folded-dtrace.folded", &[], 0, ""),
    ("folded-py-spy.folded", &[], 0, ""),
    ("folded-austin-wall.folded", &[], 0, ""),
    ("folded-austin-full.folded", &[], 1, "neither JFR nor folded text"),
    ("folded-austin-memory.folded", &[], 0, "skipped"),
    ("folded-rbspy.folded", &[], 0, ""),
    ("folded-async-profiler.collapsed", &[], 0, ""),
    ("folded-vtune.folded", &[], 0, ""),
    ("folded-speedscope-invalid-lines.folded", &[], 0, "skipped"),
    ("folded-crlf.folded", &[], 0, ""),
    ("folded-recursion.folded", &[], 0, ""),
    ("folded-spaces.folded", &[], 0, ""),
    ("folded-difffolded.folded", &[], 0, "only the second value is counted"),
    ("bpftrace-kstack.txt", &[], 0, ""),
    ("dtrace-stack.txt", &[], 0, ""),
    ("refused-stap.txt", &[], 1, ""),
    ("vtune-top-down.csv", &[], 0, ""),
    ("refused-visual-studio.csv", &[], 1, "neither JFR nor folded text"),
    ("refused-macos-sample.txt", &[], 1, ""),
    ("refused-ghc.prof", &[], 1, ""),
    ("refused-xctrace.xml", &[], 1, "neither JFR nor folded text"),
    ("refused-pprof-raw.txt", &[], 1, ""),
    ("refused-jstack.txt", &[], 1, ""),
    ("refused-gdb.txt", &[], 1, "neither JFR nor folded text"),
    ("refused-perf-report-folded.txt", &[], 1, "neither JFR nor folded text"),
    ("refused-heap-debug.txt", &[], 1, "neither JFR nor folded text"),
    ("refused-chrome-trace.json", &[], 1, "neither JFR nor folded text"),
    ("refused-v8.cpuprofile", &[], 1, "neither JFR nor folded text"),
    ("refused-firefox-profile.json", &[], 1, "neither JFR nor folded text"),
    ("refused-bcc-profile-stacks.txt", &[], 1, ""),
    ("speedscope-evented-none.json", &[], 0, ""),
    ("speedscope-sampled-seconds.json", &[], 0, ""),
    ("speedscope-two-profiles.json", &[], 0, ""),
    ("speedscope-nanoseconds.json", &[], 0, ""),
    ("speedscope-bytes.json", &[], 0, ""),
    ("speedscope-files-and-lines.json", &[], 0, ""),
    ("speedscope-recursion.json", &[], 0, ""),
    ("pprof-go-cpu.pb.gz", &[], 0, ""),
    ("pprof-go-cpu-unpacked.pb", &[], 0, ""),
    ("pprof-go-heap.pb.gz", &[], 0, ""),
    ("pprof-go-heap-unpacked.pb", &[], 0, ""),
    ("pprof-go-heap-event.pb.gz", &["-e", "alloc_space"], 0, ""),
    ("pprof-go-allocs.pb.gz", &[], 0, ""),
    ("pprof-rs.pb", &[], 0, ""),
    ("pprof-pyroscope-python.pb.gz", &[], 0, ""),
    ("pprof-node-wall.pb.gz", &[], 0, ""),
    ("pprof-inlined.pb.gz", &[], 0, ""),
    ("pprof-labels.pb.gz", &["--label", "task=import"], 0, ""),
    ("pprof-number-label.pb.gz", &["--label", "rows=100"], 0, ""),
    ("pprof-no-functions.pb.gz", &[], 0, ""),
    ("pprof-drop-frames.pb.gz", &[], 0, ""),
    ("pprof-comments.pb.gz", &[], 0, ""),
    ("pprof-no-samples.pb.gz", &[], 0, "no samples"),
    ("pprof-difference.pb.gz", &[], 0, "1 samples have a negative value"),
    ("refused-gperftools.prof", &[], 1, "neither JFR nor folded text"),
    ("otlp-samples.otlp", &[], 0, ""),
    ("otlp-two-types.otlp", &["-e", "cpu"], 0, ""),
];

/// The name of the file with the expected text: `NAME.want` for `NAME.pb.gz`.
fn expected_file(file: &str) -> String {
    format!("{}.want", file.split('.').next().unwrap_or(file))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns the sorted lines that `fold` prints.
fn fold(file: &Path, options: &[&str]) -> Vec<String> {
    let text = stdout(&[&["fold", file.to_str().unwrap()], options].concat());
    sorted(&text).into_iter().map(str::to_owned).collect()
}

/// Round trip of each format that is both written and read.
#[test]
fn conversions_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let recordings = std::fs::read_dir(recording("")).unwrap().map(|entry| (entry.unwrap().path(), &[][..]));
    let is_read = |case: &&Case| case.2 == 0 && case.3 != "no samples";
    let inputs = CASES.iter().filter(is_read).map(|case| (Path::new(FOLDER).join(case.0), case.1));
    for (file, options) in
        inputs.chain(recordings.filter(|(path, _)| path.extension() == Some("jfr".as_ref())))
    {
        let want = fold(&file, options);
        // A recording without samples has nothing to convert.
        if want.is_empty() {
            continue;
        }
        for name in ["x.folded", "x.pb.gz", "x.speedscope.json", "x.otlp"] {
            let converted = folder.path().join(name);
            let paths = [&file, &converted].map(|path| path.to_str().unwrap());
            stdout(&[&["convert", paths[0], "-o", paths[1]], options].concat());
            assert_eq!(fold(&converted, &[]), want, "{file:?} as {name}");
        }
    }
}

/// Returns a report if the output differs from the expected one.
fn difference(&(file, options, status, message): &Case) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.arg("fold").arg(Path::new(FOLDER).join(file)).args(options).stdin(Stdio::null());
    let done = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let want = std::fs::read_to_string(Path::new(FOLDER).join(expected_file(file))).unwrap();
    let reported =
        if message.is_empty() { errors.is_empty() == (status == 0) } else { errors.contains(message) };
    let same = done.status.code() == Some(status) && sorted(&out) == sorted(&want) && reported;
    (!same).then(|| {
        let got = done.status;
        format!("{file} {options:?}: {got}, expected {status} {message:?}\n{out}{errors}expected:\n{want}")
    })
}

#[test]
fn inputs_fold_as_expected() {
    let differences: Vec<String> = CASES.iter().filter_map(difference).collect();
    let number = differences.len();
    assert!(number == 0, "{number} of {} inputs differ:\n\n{}", CASES.len(), differences.join("\n"));
}

#[test]
fn every_input_file_is_listed_in_case_table_and_readme() {
    let listed = CASES.iter().flat_map(|case| [case.0.to_owned(), expected_file(case.0)]);
    let others = ["README.md", "generate.py"].map(str::to_owned);
    let names: Vec<String> = listed.chain(others).collect();
    let want: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(want.len(), names.len(), "two inputs have one name");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let there: BTreeSet<String> = std::fs::read_dir(FOLDER).unwrap().map(name).collect();
    assert_eq!(there, want);
    let readme = std::fs::read_to_string(Path::new(FOLDER).join("README.md")).unwrap();
    let missing: Vec<_> = CASES.iter().filter(|case| !readme.contains(&format!("| {} |", case.0))).collect();
    assert!(missing.is_empty(), "not in README.md: {missing:?}");
}
