//! Text of other tools as input: `perf script`, folded and differential text.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

struct Inputs(TempDir);

impl Inputs {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

fn flightline(words: &[&str], file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.args(words).arg(file).args(more).stdin(Stdio::null()).output().unwrap()
}

/// Exit status, standard output on one line, standard error.
fn fold(file: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let done = flightline(&["fold"], file, more);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    (done.status.code(), text(&done.stdout).replace('\n', " | "), text(&done.stderr))
}

const TWO_EVENTS: &str = "\
prog 1/7 [000] 1.0: 1000 cycles:
\tffff1 a (/opt/my app/prog (deleted))

prog 1/7 [000] 1.1: 77 instructions:
\tffff1 b ([JIT app cache])

";

#[test]
fn perf_script_events_are_selected_by_name() {
    let inputs = Inputs::new();
    let file = inputs.file("two.txt", TWO_EVENTS);
    let (status, out, errors) = fold(&file, &[]);
    assert_eq!((status, out.as_str()), (Some(0), "prog;a 1000"));
    assert!(errors.contains("cycles (1)") && errors.contains("instructions (1)"), "{errors}");
    assert_eq!(fold(&file, &["-e", "instructions"]), (Some(0), "prog;b_[j] 77".into(), String::new()));
    assert_eq!(fold(&file, &["-t", "-e", "cycles"]).1, "[prog tid=7];a 1000");
    let (status, out, errors) = fold(&file, &["-e", "nonsense"]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(errors.contains("nonsense") && errors.contains("cycles, instructions"), "{errors}");
}

#[test]
fn foreign_folded_text_variants_are_read() {
    let inputs = Inputs::new();
    let folded = |content: &[u8]| fold(&inputs.file("x.folded", content), &[]);
    let utf16: Vec<u8> = "\u{feff}main;a 3\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (content, want) in [
        (&b"# austin: 3.6\nmain;a 3\n"[..], "main;a 3"),
        (b"\xef\xbb\xbfmain;a 3\nmain;b 2\n", "main;a 3 | main;b 2"),
        (&utf16, "main;a 3"),
        (b"main;a 0.3\nmain;b 0.4\n", "main;a 0.3 | main;b 0.4"),
    ] {
        assert_eq!(folded(content), (Some(0), want.into(), String::new()));
    }
    let (status, out, errors) = folded(b"main;a 3\nno stack\n");
    assert_eq!((status, out.as_str()), (Some(0), "main;a 3"));
    assert!(errors.starts_with("warning: ") && errors.contains("line 2"), "{errors}");
    let (status, out, errors) = folded(b"main;a 0\n");
    assert_eq!((status, out.as_str(), errors.is_empty()), (Some(0), "", false), "{errors}");
    for (option, name) in [("-t", "--threads"), ("--process", "--process"), ("-ecpu", "--event")] {
        let (status, _, errors) = fold(&inputs.file("x.folded", "main;a 3\n"), &[option]);
        assert!(status == Some(2) && errors.contains(name), "{option}: {errors}");
    }
}

#[test]
fn fractional_weights_have_scaled_unit_in_svg() {
    let inputs = Inputs::new();
    let file = inputs.file("x.folded", "main;a 0.3\nmain;b 0.45\n");
    let picture = inputs.0.path().join("x.svg");
    let done = flightline(&["flame"], &file, &["-o", picture.to_str().unwrap()]);
    assert!(done.status.success());
    let picture = std::fs::read_to_string(picture).unwrap();
    // inferno supports integers only.
    assert!(picture.contains("<title>a (30 samples/100, 40.00%)"), "{picture}");
}

#[test]
fn differential_folded_text_equals_two_file_diff() {
    let inputs = Inputs::new();
    let both = inputs.file("both.folded", "main;a 30 40\nmain;b 20 10\n");
    let (before, after) = (
        inputs.file("before.folded", "main;a 30\nmain;b 20\n"),
        inputs.file("after.folded", "main;a 40\nmain;b 10\n"),
    );
    let table = |done: Output| {
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // The first line contains the names.
        String::from_utf8(done.stdout).unwrap().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let want = table(flightline(&["diff"], &before, &[after.to_str().unwrap()]));
    assert_eq!(table(flightline(&["diff"], &both, &[])), want);
    let picture = |words: &[&str], file: &Path, more: &[&str]| {
        let path = inputs.0.path().join("x.svg");
        let done = flightline(words, file, &[more, &["--title", "x", "-o", path.to_str().unwrap()]].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read_to_string(path).unwrap()
    };
    let want = picture(&["diff"], &before, &[after.to_str().unwrap()]);
    assert_eq!(picture(&["diff"], &both, &[]), want);
    assert_eq!(picture(&["flame"], &both, &[]), want);
    let (_, out, errors) = fold(&both, &[]);
    assert_eq!(out, "main;a 40 | main;b 10");
    assert!(errors.starts_with("flightline: "), "{errors}");
    // `diff` reads the differential text that it writes, including fractions.
    let written = inputs.0.path().join("written.folded");
    assert!(
        flightline(&["diff"], &before, &[after.to_str().unwrap(), "-o", written.to_str().unwrap()])
            .status
            .success()
    );
    assert_eq!(table(flightline(&["diff"], &written, &[])), table(flightline(&["diff"], &both, &[])));
    let fractions = inputs.file("fractions.folded", "main;a 0.3 0.4\nmain;b 0.2 0.1\n");
    let done = flightline(&["diff"], &fractions, &["--no-normalize", "--format", "folded", "-o", "-"]);
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "main;a 0.3 0.4\nmain;b 0.2 0.1\n");
    for (words, more, status) in [(["diff"], vec![], 2), (["diff"], vec![both.to_str().unwrap()], 1)] {
        let done = flightline(&words, &before, &more);
        assert_eq!(done.status.code(), Some(status), "{more:?}");
    }
}

#[test]
fn perf_data_error_suggests_perf_script() {
    let inputs = Inputs::new();
    let (status, _, errors) = fold(&inputs.file("perf.data", b"PERFILE2\x68\0\0\0"), &[]);
    assert!(status == Some(1) && errors.contains("perf script") && errors.contains("perf.data"), "{errors}");
}
