//! The offline commands: output, exit status, one-line errors.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn flightline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn piped(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flightline"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The child may end before it has read all input.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn path(name: &str) -> String {
    fixture(name).to_str().unwrap().to_owned()
}

#[test]
fn fold_output_is_equal_for_file_pipe_and_folded_input() {
    let file = path("recordings/ap-java-cpu.jfr");
    let of_file = flightline(&["fold", &file]);
    assert!(of_file.status.success(), "{}", text(&of_file.stderr));
    let of_pipe = piped(&["fold", "-"], &std::fs::read(&file).unwrap());
    assert_eq!(of_file.stdout, of_pipe.stdout);
    let of_text = piped(&["fold", "-"], &of_file.stdout);
    assert_eq!(text(&of_file.stdout), text(&of_text.stdout));
}

#[test]
fn include_and_exclude_filter_stacks_like_grep() {
    let file = path("recordings/ap-java-cpu.jfr");
    let all = text(&flightline(&["fold", &file]).stdout);
    let with = text(&flightline(&["fold", &file, "-I", "Work\\.fib"]).stdout);
    let without = text(&flightline(&["fold", &file, "-X", "Work\\.fib"]).stdout);
    let (want, rest): (Vec<&str>, Vec<&str>) = all.lines().partition(|line| line.contains("Work.fib"));
    assert!(!want.is_empty() && !rest.is_empty());
    assert_eq!(with.lines().collect::<Vec<_>>(), want);
    assert_eq!(without.lines().collect::<Vec<_>>(), rest);
}

#[test]
fn truncated_stacks_are_marked() {
    let file = path("recordings/jdk17.jfr");
    let stacks = text(&flightline(&["fold", &file, "-e", "JavaExceptionThrow"]).stdout);
    let printed = text(&flightline(&["print", &file, "--events", "JavaExceptionThrow", "--json"]).stdout);
    let marked: u64 = stacks
        .lines()
        .filter(|line| line.starts_with("[truncated];"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(marked, printed.matches("\"truncated\": true").count() as u64);
}

#[test]
fn flame_format_follows_output_extension() {
    let folder = tempfile::tempdir().unwrap();
    let file = path("recordings/ap-java-cpu.jfr");
    for (name, start) in [("x.svg", "<?xml"), ("x.html", "<!DOCTYPE html>"), ("x", "<!DOCTYPE html>")] {
        let out = folder.path().join(name);
        let output = flightline(&["flame", &file, "-o", out.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(std::fs::read_to_string(&out).unwrap().starts_with(start), "{name}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
    let svg = flightline(&["flame", &file, "--format", "svg"]);
    assert_eq!(
        svg.stdout,
        std::fs::read(folder.path().join("x.svg")).unwrap(),
        "the same to standard output"
    );
}

#[test]
fn flame_graphs_load_no_network_resources() {
    for format in ["html", "svg"] {
        let file = path("recordings/ap-java-cpu.jfr");
        let picture = text(&flightline(&["flame", &file, "--format", format]).stdout);
        // XML namespaces, document types and comments contain URLs; these constructs would fetch one. The
        // browser tests check that nothing is fetched.
        for way in [
            "src=\"",
            "href=\"http",
            "url(http",
            "@import",
            "fetch(",
            "XMLHttpRequest",
            "WebSocket",
            "sendBeacon",
        ] {
            assert!(!picture.contains(way), "{format}: {way}");
        }
    }
}

#[test]
fn errors_are_one_line_with_file_name_and_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.jfr");
    std::fs::write(&empty, b"").unwrap();
    let other = folder.path().join("other.jfr");
    std::fs::write(&other, b"FLX\x03\x04 something else\n").unwrap();
    let recording = path("recordings/ap-java-cpu.jfr");
    let [empty, other, folder] = [&empty, &other, folder.path()].map(|p| p.to_str().unwrap());
    let check = |args: &[&str], words: &[&str]| {
        let output = flightline(args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{args:?}: {told}");
        for word in words {
            assert!(told.contains(word), "{args:?}: no {word:?} in {told}");
        }
        assert!(output.stdout.is_empty());
    };
    check(&["fold", "/no/such.jfr"], &["error:", "/no/such.jfr", "No such file"]);
    check(&["summary", empty], &[empty, "empty"]);
    check(&["summary", folder], &[folder, "contains no recordings"]);
    check(&["summary", other], &[other, "not a JFR recording"]);
    check(&["flame", other], &[other, "line 1"]);
    check(&["fold", &recording, "-e", "alloc"], &["no event alloc", "jdk.ExecutionSample"]);
    check(&["flame", &recording, "-I", "no such function"], &["nothing is left to draw"]);
    check(&["flame", &recording, "-o", "/no/such/x.html"], &["cannot write /no/such/x.html"]);
}

#[test]
fn usage_errors_exit_with_status_2() {
    for args in [&["nonsense"][..], &["fold"], &["fold", "x", "-I", "("], &["flame", "x", "--from", "soon"]] {
        assert_eq!(flightline(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn truncated_recording_is_folded_with_status_1() {
    let bytes = std::fs::read(fixture("cases/88_anchor.jfr")).unwrap();
    let whole = piped(&["fold", "-"], &bytes);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let torn = piped(&["fold", "-"], &bytes[..bytes.len() - 3000]);
    assert_eq!(torn.status.code(), Some(1));
    assert!(!torn.stdout.is_empty());
    let told = text(&torn.stderr);
    assert!(told.contains("standard input") && told.contains("offset") && told.contains("chunk 1"), "{told}");
}

#[test]
fn print_exits_successfully_when_stdout_is_closed() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flightline"))
        .args(["print", &path("recordings/jdk17-multichunk.jfr")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn completions_contain_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&flightline(&["completions", shell]).stdout);
        assert!(script.contains("summary") && script.contains("stack-depth"), "{shell}");
    }
}

#[test]
fn help_has_examples() {
    let help = text(&flightline(&["--help"]).stdout);
    assert!(help.contains("First steps:") && help.contains("Exit status"), "{help}");
}

#[test]
fn multi_recording_dump_has_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["flightline.jfr", "ap-native-cpu.jfr"];
    let mut events = 0;
    for (index, name) in names.iter().enumerate() {
        let process = folder.path().join(format!("2026_11_21_15_07_41_471{index}"));
        std::fs::create_dir(&process).unwrap();
        std::fs::copy(fixture("recordings").join(name), process.join("2026_11_21_15_07_41.jfr")).unwrap();
        events += samples(&fixture("recordings").join(name));
    }
    let out = folder.path().join("out.jfr");
    let dump = flightline(&["dump", folder.path().to_str().unwrap(), "-o", out.to_str().unwrap()]);
    let said = text(&dump.stderr);
    assert!(dump.status.success() && !said.contains("clock"), "{said}");
    let source = jfr_format::edit::Source::open(&out).unwrap();
    let chunks = jfr_format::edit::chunks(&source);
    assert!(chunks.len() >= names.len(), "{}", chunks.len());
    // Wall-clock time of tick 0, which the JDK takes from the first chunk for all chunks.
    let origins: Vec<i128> = chunks
        .iter()
        .map(|(_, header)| {
            let ticks = i128::from(header.start_ticks.0) * 1_000_000_000 / i128::from(header.frequency());
            i128::from(header.start_nanos) - ticks
        })
        .collect();
    assert!(origins.iter().all(|origin| (origin - origins[0]).abs() < 1_000), "{origins:?}");
    assert_eq!(samples(&out), events);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), names.len() + 1, "{left:?}");
}

/// The number of CPU samples in a recording.
fn samples(path: &Path) -> u64 {
    let printed = flightline(&["print", path.to_str().unwrap(), "--events", "jdk.ExecutionSample", "--json"]);
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    printed["recording"]["events"].as_array().unwrap().len() as u64
}
