//! `flightline print`: formats, selection, files, signals, one-line errors.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value as Json;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name);
    path.to_str().unwrap().to_owned()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.arg("print").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn print(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = print(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{args:?}");
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the error message, which must be a single line.
fn error(args: &[&str]) -> String {
    error_with_status(args, 1)
}

/// Like [`error`], for wrong usage.
fn usage_error(args: &[&str]) -> String {
    error_with_status(args, 2)
}

fn error_with_status(args: &[&str], status: i32) -> String {
    let output = print(args);
    assert_eq!(output.status.code(), Some(status), "{args:?}");
    let told = text(&output.stderr);
    assert!(told.starts_with("error: ") && told.lines().count() == 1, "{args:?}: {told}");
    told
}

/// Number of events of a type in text output.
fn count(text: &str, event: &str) -> usize {
    let start = format!("{event} {{");
    text.lines().filter(|line| *line == start).count()
}

fn times(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("  startTime = ")).collect()
}

#[test]
fn every_format_prints_same_events() {
    let file = fixture("jdk25.jfr");
    let events = ["--events", "ThreadStart,jdk.GarbageCollection"];
    let all = |form: &str| printed(&[&[file.as_str(), form], &events[..]].concat());
    let shown = printed(&[&[file.as_str()], &events[..]].concat());
    let (threads, collections) = (count(&shown, "jdk.ThreadStart"), count(&shown, "jdk.GarbageCollection"));
    assert!(threads > 0 && collections > 0);
    let document: Json = serde_json::from_str(&all("--json")).unwrap();
    let list = document["recording"]["events"].as_array().unwrap();
    assert_eq!(list.len(), threads + collections);
    let lines = all("--ndjson");
    let lines: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), list.len());
    for (line, event) in lines.iter().zip(list) {
        assert_eq!(line["event"], event["type"]);
    }
    assert!(all("--compact").lines().all(|line| serde_json::from_str::<Json>(line).is_ok()));
}

#[test]
fn format_options_exclude_each_other() {
    let file = fixture("jdk17.jfr");
    for pair in [["--json", "--csv"], ["--ndjson", "--compact"], ["--exact", "--json"]] {
        let output = print(&[&[file.as_str()], &pair[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{pair:?}");
        assert!(pair.iter().all(|option| text(&output.stderr).contains(option)), "{pair:?}");
    }
}

#[test]
fn category_and_stack_depth_options_limit_output() {
    let file = fixture("jdk17.jfr");
    // Categories according to the metadata of JDK 17: ThreadStart belongs to Java Application, collections to
    // GC.
    let shown = printed(&[&file, "--categories", "Java Application", "--stack-depth", "2"]);
    assert!(count(&shown, "jdk.ThreadStart") > 0);
    assert_eq!(count(&shown, "jdk.GarbageCollection"), 0);
    let mut deepest = 0;
    for stack in shown.split("  stackTrace = [\n").skip(1) {
        let frames = stack.lines().take_while(|line| line.starts_with("    ")).filter(|l| *l != "    ...");
        deepest = deepest.max(frames.count());
    }
    assert_eq!(deepest, 2);
    let both = printed(&[&file, "--categories", "GC", "--events", "*Collection"]);
    assert!(count(&both, "jdk.GarbageCollection") > 0);
    assert_eq!(count(&both, "jdk.GCPhasePause"), 0);
}

#[test]
fn exact_option_prints_all_digits() {
    let file = fixture("jdk17.jfr");
    let rough = printed(&[&file, "--events", "GarbageCollection"]);
    let exact = printed(&[&file, "--events", "GarbageCollection", "--exact"]);
    for (rough, exact) in times(&rough).iter().zip(times(&exact)) {
        assert_eq!(rough[..12], exact[..12]);
        assert_eq!(exact[12..].find(' '), Some(6), "nine digits: {exact}");
    }
    assert!(rough.contains("sumOfPauses = ") && !rough.contains("sumOfPauses = 0.000000000 s"));
}

#[test]
fn from_and_to_select_time_range() {
    let file = fixture("jdk17.jfr");
    let all = printed(&[&file, "--events", "ThreadStart,ThreadEnd", "--exact"]);
    let moments = times(&all);
    let middle = moments[moments.len() / 2];
    // 23:30:36.123456789 (2026-11-20)
    let date = format!("{}T{}Z", &middle[20..30], &middle[..18]);
    let from = |bound: &str, value: &str| {
        printed(&[&file, "--events", "ThreadStart,ThreadEnd", "--exact", bound, value])
    };
    let (before, after) = (from("--to", &date), from("--from", &date));
    assert_eq!(times(&before).len() + times(&after).len(), moments.len());
    assert!(times(&before).iter().all(|time| *time < middle) && times(&after).iter().all(|t| *t >= middle));
    // All of it, counted from the end.
    assert_eq!(from("--from", "-1h"), all);
    assert_eq!(times(&from("--to", "-1h")).len(), 0);
    assert_eq!(from("--to", "1h"), all);
    let told = usage_error(&["-", "--from", "-5"]);
    assert!(told.contains("standard input"), "{told}");
}

#[test]
fn several_files_and_standard_input_are_read() {
    let (one, two) = (fixture("jdk17.jfr"), fixture("jdk25.jfr"));
    let both = printed(&[&one, &two, "--events", "CPULoad", "--json"]);
    let both: Json = serde_json::from_str(&both).unwrap();
    let each = [&one, &two].map(|file| {
        let document: Json =
            serde_json::from_str(&printed(&[file, "--events", "CPULoad", "--json"])).unwrap();
        document["recording"]["events"].as_array().unwrap().clone()
    });
    assert_eq!(both["recording"]["events"].as_array().unwrap(), &each.concat());
    let file = fs::File::open(&one).unwrap();
    let output = command(&["-", "--events", "CPULoad"]).stdin(file).output().unwrap();
    assert_eq!(text(&output.stdout), printed(&[&one, "--events", "CPULoad"]));
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn output_file_is_complete_or_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixture("jdk17.jfr");
    let out = folder.path().join("out.json");
    let to = out.to_str().unwrap();
    assert_eq!(printed(&[&file, "--json", "-o", to]), "");
    assert_eq!(fs::read_to_string(&out).unwrap(), printed(&[&file, "--json"]));
    fs::write(&out, "before").unwrap();
    let missing = folder.path().join("missing.jfr");
    assert!(error(&[&file, missing.to_str().unwrap(), "-o", to]).contains("missing.jfr"));
    assert_eq!(fs::read_to_string(&out).unwrap(), "before");
    assert_eq!(names_in(folder.path()), ["out.json"]);
    assert!(usage_error(&[to, &file, "-o", to]).contains("out.json"));
    // A symbolic link is followed, not replaced.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&out, &link).unwrap();
    printed(&[&file, "--events", "CPULoad", "-o", link.to_str().unwrap()]);
    assert!(link.is_symlink() && fs::read_to_string(&out).unwrap().starts_with("jdk.CPULoad {"));
    // A device is not replaced by a file.
    assert!(error(&[&file, "-o", "/dev/full"]).contains("No space left"));
    assert!(!Path::new("/dev/full").is_file());
}

#[test]
fn killed_writer_leaves_no_partial_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let child = command(&[pipe.to_str().unwrap(), "-o", out.to_str().unwrap()]).spawn().unwrap();
    // The child has read some data and waits for more.
    let mut writer = fs::File::options().write(true).open(&pipe).unwrap();
    let recording = fs::read(fixture("jdk17.jfr")).unwrap();
    writer.write_all(&recording[..recording.len() / 2]).unwrap();
    while names_in(folder.path()).len() < 2 {
        thread::yield_now();
    }
    signal(Signal::SIGTERM, &child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15));
    assert_eq!(names_in(folder.path()), ["pipe"]);
}

fn signal(which: Signal, child: &Child) {
    kill(Pid::from_raw(child.id().cast_signed()), which).unwrap();
}

#[test]
fn print_exits_successfully_when_stdout_is_closed() {
    let mut child = command(&[&fixture("jdk17.jfr")]).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn finished_recording_is_followed_to_its_end() {
    let file = fixture("jdk25-multichunk.jfr");
    let sorted = |args: &[&str]| {
        let mut lines: Vec<String> = printed(args).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let choice = ["--ndjson", "--events", "ThreadStart,GarbageCollection", "--every", "1", "--follow"];
    let followed = sorted(&[&[file.as_str()], &choice[..]].concat());
    assert!(!followed.is_empty());
    assert_eq!(followed, sorted(&[&[file.as_str()], &choice[..3]].concat()));
}

/// Follows a recording without an end until output appears, then sends SIGINT.
fn until_interrupted(what: &Path) -> String {
    let mut child =
        command(&[what.to_str().unwrap(), "--follow", "--json", "--every", "10"]).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut all = vec![0; 64 << 10];
    out.read_exact(&mut all).unwrap();
    let rest = thread::spawn(move || {
        let mut rest = Vec::new();
        out.read_to_end(&mut rest).map(|_| rest).unwrap()
    });
    signal(Signal::SIGINT, &child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    all.extend(rest.join().unwrap());
    text(&all)
}

#[test]
fn unfinished_recording_is_followed_until_ctrl_c() {
    let document: Json =
        serde_json::from_str(&until_interrupted(Path::new(&fixture("jdk17-killed.jfr")))).unwrap();
    assert!(document["recording"]["events"].as_array().unwrap().len() > 10);
}

#[test]
fn repository_is_followed_until_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let split = Command::new(env!("CARGO_BIN_EXE_flightline"))
        .args(["disassemble", &fixture("jdk17-multichunk.jfr"), "--max-chunks", "1", "-o"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(split.status.success(), "{}", text(&split.stderr));
    assert!(names_in(folder.path()).len() > 1);
    let document: Json = serde_json::from_str(&until_interrupted(folder.path())).unwrap();
    assert!(document["recording"]["events"].as_array().unwrap().len() > 10);
}

#[test]
fn unsupported_follow_combinations_are_rejected() {
    let file = fixture("jdk17.jfr");
    assert!(usage_error(&["-", "--follow"]).contains("--follow"));
    assert!(usage_error(&[&file, &file, "--follow"]).contains("--follow"));
    assert!(usage_error(&[&file, "--follow", "--from", "-5"]).contains("--follow"));
    assert_eq!(print(&[&file, "--every", "5"]).status.code(), Some(2));
}

#[test]
fn unknown_event_and_category_names_get_suggestions() {
    let file = fixture("jdk17.jfr");
    assert!(error(&[&file, "--events", "CPULod"]).contains("CPULoad?"));
    assert!(error(&[&file, "--events", "cpuload"]).contains("CPULoad, ThreadCPULoad?"));
    assert!(error(&[&file, "--events", "jdk.GarbageColection"]).contains("jdk.GarbageCollection"));
    assert!(error(&[&file, "--events", "ExecSample"]).contains("ExecutionSample"));
    let told = error(&[&file, "--categories", "Gc"]);
    assert!(told.contains("GC?"), "{told}");
    let told = error(&[&file, "--categories", "Nothing"]);
    assert!(told.contains("GC,") && told.contains("Java Application"), "{told}");
    assert!(!error(&[&file, "--events", "Nope"]).contains('?'));
    // Events of valid names are printed, and the invalid name is reported.
    let output = print(&[&file, "--events", "CPULoad,Nothing"]);
    assert!(text(&output.stdout).starts_with("jdk.CPULoad {") && output.status.code() == Some(1));
}

#[test]
fn files_that_are_not_recordings_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, bytes: &[u8]| {
        let path: PathBuf = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    assert!(error(&[&at("empty.jfr", b"")]).contains("empty.jfr"));
    assert!(error(&[&at("a.gz", b"\x1f\x8b\x08\0rest")]).contains("gunzip"));
    assert!(error(&[&at("a.zst", b"\x28\xb5\x2f\xfdrest")]).contains("zstd"));
    assert!(error(&[&at("a.txt", b"text")]).contains("a.txt"));
    assert!(error(&[folder.path().to_str().unwrap()]).contains("--follow"));
    assert!(error(&[&at("x", b"").replace('x', "y")]).contains("No such file"));
    for wrong in [["--from", "soon"], ["--jobs", "0"], ["--every", "0"], ["--stack-depth", "-1"]] {
        let output = print(&[&[fixture("jdk17.jfr").as_str(), "--follow"], &wrong[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn shell_completion_contains_print_options() {
    let script =
        Command::new(env!("CARGO_BIN_EXE_flightline")).args(["completions", "bash"]).output().unwrap();
    let script = text(&script.stdout);
    for option in
        ["--ndjson", "--compact", "--categories", "--stack-depth", "--from", "--follow", "--every", "--exact"]
    {
        assert!(script.contains(option), "{option}");
    }
}
