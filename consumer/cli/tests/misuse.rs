//! Every command with outputs that cannot be written, readers that disconnect, and invalid names, times and
//! orders.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/jdk25.jfr");

/// Every command that reads a recording and writes to standard output.
const COMMANDS: &[&[&str]] = &[
    &["summary"],
    &["summary", "--json"],
    &["print"],
    &["print", "--json"],
    &["print", "--ndjson"],
    &["print", "--csv"],
    &["print", "--compact"],
    &["metadata"],
    &["metadata", "--json"],
    &["fold"],
    &["flame"],
    &["view", "hot-methods"],
    &["view", "--list"],
    &["repair", "-o", "-"],
    &["cut", "--from", "0.1", "-o", "-"],
    &["scrub", "--exclude-events", "ThreadPark", "-o", "-"],
    &["assemble", "-o", "-"],
];

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.args(args).stdin(Stdio::null());
    command
}

fn flightline(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

fn with_recording<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &[RECORDING]].concat()
}

fn check_full_disk(args: &[&str]) {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else {
        eprintln!("no /dev/full here");
        return;
    };
    let output = command(args).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
    // Notes may precede the error.
    let errors: Vec<&str> =
        stderr(&output).lines().filter(|line| !line.starts_with("flightline: ")).collect();
    assert!(errors.len() == 1 && errors[0].starts_with("error: cannot write"), "{args:?}: {errors:?}");
}

fn check_reader_gone(args: &[&str]) {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    assert!(!stderr(&output).contains("error") && !stderr(&output).contains("panic"), "{args:?}");
}

#[test]
fn full_disk_is_reported_in_one_line() {
    for args in COMMANDS {
        check_full_disk(&with_recording(args));
    }
    check_full_disk(&["completions", "zsh"]);
    check_full_disk(&["list"]);
}

#[test]
fn commands_exit_successfully_when_stdout_is_closed() {
    for args in COMMANDS {
        check_reader_gone(&with_recording(args));
    }
    check_reader_gone(&["completions", "zsh"]);
}

#[test]
fn input_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let [input, link] = ["run.jfr", "link.jfr"].map(|name| folder.path().join(name));
    let before = fs::read(RECORDING).unwrap();
    fs::write(&input, &before).unwrap();
    std::os::unix::fs::symlink(&input, &link).unwrap();
    let commands: &[&[&str]] = &[
        &["fold"],
        &["flame"],
        &["print"],
        &["metadata"],
        &["repair", "--force"],
        &["cut", "--from", "0.1", "--force"],
        &["scrub", "--exclude-events", "ThreadPark", "--force"],
        &["assemble", "--force"],
    ];
    for args in commands {
        for output in [&input, &link] {
            let told =
                flightline(&[*args, &[input.to_str().unwrap(), "-o", output.to_str().unwrap()]].concat());
            assert_eq!(told.status.code(), Some(2), "{args:?}");
            assert!(stderr(&told).contains(output.to_str().unwrap()), "{args:?}: {}", stderr(&told));
            assert!(fs::read(&input).unwrap() == before, "{args:?}");
        }
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn text_and_flame_graphs_do_not_overwrite_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.jfr");
    let before = fs::read(RECORDING).unwrap();
    fs::write(&other, &before).unwrap();
    let commands: &[&[&str]] = &[
        &["fold"],
        &["flame", "--format", "svg"],
        &["print"],
        &["print", "--follow"],
        &["metadata"],
        &["convert", "--format", "speedscope"],
        &["export", "--format", "pprof"],
    ];
    for args in commands {
        let refused = flightline(&[*args, &[RECORDING, "-o", other.to_str().unwrap()]].concat());
        assert_eq!(refused.status.code(), Some(1), "{args:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("other.jfr"), "{args:?}: {}", stderr(&refused));
        assert!(fs::read(&other).unwrap() == before, "{args:?}");
    }
    // Text is overwritten.
    let text = folder.path().join("x.folded");
    fs::write(&text, "old").unwrap();
    let written = flightline(&["fold", RECORDING, "-o", text.to_str().unwrap()]);
    assert!(written.status.success(), "{}", stderr(&written));
    assert_ne!(fs::read_to_string(&text).unwrap(), "old");
}

#[test]
fn record_renames_an_existing_recording() {
    let folder = tempfile::tempdir().unwrap();
    let [output, old] = ["r.jfr", "r.jfr.old"].map(|name| folder.path().join(name));
    let record = |options: &[&str], program: &str| {
        let mut record = command(&[&["record", "-o", "r.jfr"], options, &["--", program]].concat());
        record.current_dir(folder.path()).output().unwrap()
    };
    let processes = |path: &Path| {
        let printed = flightline(&["print", "--events", "jdk.SystemProcess", path.to_str().unwrap()]);
        String::from_utf8(printed.stdout).unwrap()
    };
    fs::copy(RECORDING, &output).unwrap();
    // A program that cannot be run does not affect the output.
    assert_eq!(record(&[], "./no-such-program").status.code(), Some(127));
    assert!(fs::read(&output).unwrap() == fs::read(RECORDING).unwrap() && !old.exists());
    let first = record(&[], "true");
    assert!(first.status.success(), "{}", stderr(&first));
    let said = stderr(&first).lines().filter(|line| line.contains("r.jfr.old")).count();
    assert_eq!(said, 1, "{}", stderr(&first));
    assert!(fs::read(&old).unwrap() == fs::read(RECORDING).unwrap());
    assert!(processes(&output).contains("true"), "{}", processes(&output));
    // One generation is retained.
    let second = record(&[], "ls");
    assert!(second.status.success() && stderr(&second).contains("r.jfr.old"), "{}", stderr(&second));
    assert!(processes(&old).contains("true") && processes(&output).contains("\"ls\""));
    // With --force, nothing is renamed.
    let third = record(&["--force"], "true");
    assert!(third.status.success() && !stderr(&third).contains("r.jfr.old"), "{}", stderr(&third));
    assert!(processes(&old).contains("true") && processes(&output).contains("true"));
}

/// According to `jfr summary`, this recording starts at 23:30:39 UTC on 2026-11-20 and lasts less than 2 s.
#[test]
fn time_options_are_equivalent_across_commands() {
    let fold = |args: &[&str]| {
        let output = flightline(&[&["fold", RECORDING], args].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output.stdout
    };
    let all = fold(&[]);
    assert_eq!(fold(&["--from", "2026-11-20"]), all);
    assert_eq!(fold(&["--from", "-1h", "--to", "1h"]), all);
    assert!(fold(&["--to", "2026-11-20"]).is_empty());
    assert!(fold(&["--from", "1m"]).is_empty());
    let part = fold(&["--from", "700ms"]);
    assert!(!part.is_empty() && part != all);
    assert_eq!(fold(&["--from", "0.7s"]), part);
    for command in [&["fold"][..], &["flame"], &["print"], &["view", "hot-methods"]] {
        for range in [["5", "2"], ["-1", "-2"], ["2026-11-21", "2026-11-20T23:59:59Z"]] {
            let output = flightline(&[command, &[RECORDING, "--from", range[0], "--to", range[1]]].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?} {range:?}");
            assert!(stderr(&output).contains("--from"), "{}", stderr(&output));
        }
    }
}

#[test]
fn scrub_warns_about_filter_without_match() {
    let folder = tempfile::tempdir().unwrap();
    let check = |filter: &[&str], told: &[&str]| {
        let to = folder.path().join("out.jfr");
        let output = flightline(&[&["scrub", RECORDING, to.to_str().unwrap(), "--force"], filter].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        for told in told {
            assert!(stderr(&output).contains(told), "{filter:?}: {}", stderr(&output));
        }
        stderr(&output).contains("warning")
    };
    let nothing = "no event was removed";
    assert!(check(&["--exclude-events", "InitialSystemPropertie"], &["InitialSystemProperty?", nothing]));
    assert!(check(&["--exclude-categories", "Profilin,GC"], &["did you mean Profiling?"]));
    assert!(check(&["--exclude-threads", "mian"], &[nothing]));
    // As in `print` and the JDK's tool: the initials of a category of several words.
    assert!(!check(&["--exclude-categories", "JVM"], &["removed jdk."]));
}

#[test]
fn wrong_argument_order_and_unknown_names_are_rejected() {
    let check = |args: &[&str], status: i32, told: &str| {
        let output = flightline(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(told), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    };
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = text.to_str().unwrap();
    let swapped = format!("`flightline view hot-methods {RECORDING}`");
    check(&["view", RECORDING, "hot-methods"], 2, &swapped);
    check(&["view", ",", RECORDING], 2, "--list");
    check(&["view", "hot-methods"], 2, "Usage: flightline view");
    check(&["view", "hot-methods", RECORDING, "--limit", "0"], 2, "--limit");
    check(&["print", "--json", text], 1, "Cargo.toml");
    check(&["scrub", text, "-o", "-", "--redact"], 1, "Cargo.toml");
    check(&["summary", env!("CARGO_MANIFEST_DIR")], 1, env!("CARGO_MANIFEST_DIR"));
    check(&["print", RECORDING, "--events", ""], 1, "jdk25.jfr");
}
