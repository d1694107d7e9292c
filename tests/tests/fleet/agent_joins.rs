//! Programs that join a profiling service by their environment, by the machine's settings, and by the libraries.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use flightline_tests::agents::{LONG, MS, capability, gone, hello, hellos, only, progress, recorded};
use flightline_tests::controlled::{Controlled, LIMIT, program};
use flightline_tests::run::{beside, children, run, spawn, until, wait};
use flightline_tests::stub_service::Stub;
use flightline_tests::{machine, victim};
use serde_json::json;

/// The program, preloaded by hand.
fn preloaded(stub: &Stub, mut command: Command) -> Command {
    let library = victim::flightline().with_file_name("libflightline.so");
    command.env("LD_PRELOAD", library).env("FLIGHTLINE_BIN", victim::flightline());
    command.env("FLIGHTLINE_JOIN", stub.url());
    command
}

/// Agents of a process.
fn agents(pid: u32) -> Vec<u32> {
    let of = format!("\0--pid\0{pid}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let words = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pids.filter(|&pid| {
        let words = words(pid);
        words.ends_with(of.as_bytes()) && words.windows(7).any(|part| part == b"\0agent\0")
    })
    .collect()
}

#[test]
fn preloaded_program_joins_by_environment() {
    let _place = beside();
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), "a token that is long enough").unwrap();
    let stub = Stub::start(Some("a token that is long enough"));
    let mut command = preloaded(&stub, Command::new(program()));
    command.env("FLIGHTLINE_JOIN_TOKEN_FILE", token.path()).env("FLIGHTLINE_LABELS", "zone=eu-2");
    let mut victim = Controlled::start(&mut command);
    let hello = hello(&stub);
    assert_eq!((&hello["pid"], &hello["labels"]["zone"]), (&json!(victim.pid), &json!("eu-2")));
    assert!(capability(&hello, "ALLOC").0);
    let bare = Controlled::start(&mut Command::new(program()));
    let count = |dir: &str, pid: u32| fs::read_dir(format!("/proc/{pid}/{dir}")).unwrap().count();
    for what in ["fd", "task"] {
        assert_eq!(
            count(what, victim.pid),
            count(what, bare.pid),
            "{what}: the program contains nothing of Flightline"
        );
    }
    assert_eq!(children(victim.pid).len(), 0, "the agent is not a child of the program");
    bare.end(0);
    assert_eq!(agents(victim.pid).len(), 1);
    stub.begin("run", "CPU", LONG, Some("1ms"));
    progress(&stub, "run", "started");
    victim.work("during", MS);
    stub.stop("run");
    only(&recorded(&stub, "run").recording, "during");
    // Another program in the same process has the same agent.
    victim.tell("exec");
    assert_eq!(victim.number("ready "), victim.pid);
    stub.begin("after", "CPU", LONG, Some("1ms"));
    progress(&stub, "after", "started");
    victim.work("after", MS);
    stub.stop("after");
    only(&recorded(&stub, "after").recording, "after");
    assert_eq!(agents(victim.pid).len(), 1);
    assert!(hellos(&stub).iter().all(|again| again["key"] == hello["key"]));
    let pid = victim.pid;
    victim.end(3);
    assert_eq!(gone(&stub), "it has ended");
    until(LIMIT, "the agent's end", || agents(pid).is_empty().then_some(()));
}

/// Asserts that a program that has joined can be recorded, and that the recording contains only its present
/// work.
#[track_caller]
fn records(stub: &Stub, victim: &mut Controlled) {
    stub.begin("run", "CPU", LONG, Some("1ms"));
    progress(stub, "run", "started");
    victim.work("during", MS);
    stub.stop("run");
    only(&recorded(stub, "run").recording, "during");
}

#[test]
fn program_joins_by_c_api() {
    let _place = beside();
    let bin = victim::flightline();
    let folder = bin.parent().unwrap().display().to_string();
    let program = victim::compile(
        "gcc",
        "controlled.c",
        &["-O2", "-DJOIN"],
        &[&format!("-L{folder}"), "-lflightline", &format!("-Wl,-rpath,{folder}"), "-lpthread"],
    );
    let stub = Stub::default();
    let mut command = Command::new(program);
    command.arg(stub.url()).env("FLIGHTLINE_BIN", bin).env_remove("LD_LIBRARY_PATH");
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    for _ in 0..4 {
        output.read_line(&mut said).unwrap();
    }
    assert_eq!(said, "refused 1\njoined 0\nagain 1\nerrno 77\n");
    let mut victim = Controlled::of(child, output);
    let hello = hello(&stub);
    assert_eq!((&hello["pid"], &hello["labels"]["zone"]), (&json!(victim.pid), &json!("eu-3")));
    assert!(capability(&hello, "ALLOC").0);
    records(&stub, &mut victim);
    assert_eq!(children(victim.pid).len(), 0, "the agent is not a child of the program");
    victim.end(0);
    assert_eq!(gone(&stub), "it has ended");
}

#[test]
fn program_joins_by_rust_library() {
    let _place = beside();
    let stub = Stub::default();
    let mut command = Command::new(victim::example("join_service"));
    command.arg(stub.url()).env("FLIGHTLINE_BIN", victim::flightline()).stdin(Stdio::piped());
    let mut child = spawn(&mut command);
    let hello = hello(&stub);
    assert_eq!((&hello["pid"], &hello["labels"]["example"]), (&json!(child.id()), &json!("join_service")));
    for _ in 0..2 {
        // Threads that were running before, and those that start during the run.
        let run = format!("run{}", stub.said().len());
        stub.begin(&run, "CPU", 1, Some("1ms"));
        let recording = recorded(&stub, &run).recording;
        let in_spell = recording
            .samples
            .iter()
            .filter(|s| recording.stacks[s.stack].frames.iter().any(|f| f.method.contains("spell")))
            .count();
        assert!(in_spell > 10, "{in_spell} of {} samples", recording.samples.len());
        let threads: HashSet<_> = recording.samples.iter().map(|sample| sample.tid).collect();
        assert!(threads.len() > 1, "{threads:?}");
    }
    let pid = child.id();
    drop(child.stdin.take());
    assert!(wait(&mut child, LIMIT, "the program's end").success());
    assert_eq!(gone(&stub), "it has ended");
    until(LIMIT, "the agent's end", || agents(pid).is_empty().then_some(()));
}

#[test]
fn machine_settings_join_only_listed_programs() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let victim = program().display().to_string();
    let stub = Stub::default();
    let settings = format!("join = {}\nlabels = zone=eu-4\nallow = {victim}", stub.url());
    let Some(mut command) =
        machine::shell(folder.path(), &settings, &format!("ls > listing && {victim}; true"))
    else {
        return;
    };
    let mut victim = Controlled::start(&mut command);
    let hello = hello(&stub);
    assert_eq!((&hello["pid"], &hello["labels"]["zone"]), (&json!(victim.pid), &json!("eu-4")));
    records(&stub, &mut victim);
    // An executed program keeps the process.
    victim.tell("exec");
    assert_eq!(victim.number("ready "), victim.pid);
    let pid = victim.pid;
    victim.end(0);
    assert_eq!(gone(&stub), "it has ended");
    assert!(hellos(&stub).iter().all(|again| again["key"] == hello["key"]), "nothing else joins");
    until(LIMIT, "the agent's end", || agents(pid).is_empty().then_some(()));
}

#[test]
fn child_program_joins_only_if_allow_list_names_it() {
    let _place = beside();
    let script = format!("{}; true", program().display());
    let shell = || {
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    };
    let name = program().file_name().unwrap().to_str().unwrap().to_owned();
    // The shell joins, with all programs that it starts …
    let stub = Stub::default();
    let victim = Controlled::start(&mut preloaded(&stub, shell()));
    let first = hello(&stub);
    assert_eq!((&first["pid"], &first["name"]), (&json!(victim.child.id()), &json!("sh")));
    assert_eq!((agents(victim.child.id()).len(), agents(victim.pid).len()), (1, 0));
    victim.end(0);
    // … or only programs with the given name.
    let stub = Stub::default();
    let victim = Controlled::start(preloaded(&stub, shell()).env("FLIGHTLINE_ALLOW", &name));
    assert_eq!(hello(&stub)["pid"], json!(victim.pid));
    assert_eq!((agents(victim.child.id()).len(), agents(victim.pid).len()), (0, 1));
    victim.end(0);
}

#[test]
fn missing_agent_is_reported_and_program_runs() {
    let _place = beside();
    let stub = Stub::default();
    let mut command = preloaded(&stub, Command::new("true"));
    let ended = run(command.env("FLIGHTLINE_BIN", "/no/such/flightline"), LIMIT);
    assert_eq!(ended.code(), 0);
    assert!(ended.stderr.contains("FLIGHTLINE_BIN"), "{}", ended.stderr);
    let mut command = preloaded(&stub, Command::new("true"));
    let ended = run(command.env("FLIGHTLINE_BIN", "/etc/passwd"), LIMIT);
    assert!(ended.code() == 0 && ended.stderr.contains("FLIGHTLINE_BIN"), "{}", ended.stderr);
}
