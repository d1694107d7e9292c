//! Programs that join a profiling service by their environment alone.

use std::fs;
use std::process::Command;

use flightline_tests::agents::{LONG, MS, capability, gone, hello, hellos, only, progress, recorded};
use flightline_tests::controlled::{Controlled, LIMIT, program};
use flightline_tests::run::{beside, children, run, until};
use flightline_tests::stub_service::Stub;
use flightline_tests::victim;
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
    let of = format!("agent\0--pid\0{pid}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let words = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pids.filter(|&pid| words(pid).ends_with(of.as_bytes())).collect()
}

#[test]
fn a_preloaded_program_joins_by_itself() {
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
            "{what}: nothing of ours is in the program"
        );
    }
    assert_eq!(children(victim.pid).len(), 0, "the agent is nobody's child");
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

#[test]
fn what_a_program_starts_joins_only_if_it_is_named() {
    let _place = beside();
    let script = format!("{}; true", program().display());
    let shell = || {
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    };
    let name = program().file_name().unwrap().to_str().unwrap().to_owned();
    // The shell is what joins, with all that it starts …
    let stub = Stub::default();
    let victim = Controlled::start(&mut preloaded(&stub, shell()));
    let first = hello(&stub);
    assert_eq!((&first["pid"], &first["name"]), (&json!(victim.child.id()), &json!("sh")));
    assert_eq!((agents(victim.child.id()).len(), agents(victim.pid).len()), (1, 0));
    victim.end(0);
    // … or only what is named.
    let stub = Stub::default();
    let victim = Controlled::start(preloaded(&stub, shell()).env("FLIGHTLINE_ALLOW", &name));
    assert_eq!(hello(&stub)["pid"], json!(victim.pid));
    assert_eq!((agents(victim.child.id()).len(), agents(victim.pid).len()), (0, 1));
    victim.end(0);
}

#[test]
fn without_an_agent_the_program_runs_on_and_it_is_told() {
    let stub = Stub::default();
    let mut command = preloaded(&stub, Command::new("true"));
    let ended = run(command.env("FLIGHTLINE_BIN", "/no/such/flightline"), LIMIT);
    assert_eq!(ended.code(), 0);
    assert!(ended.stderr.contains("cannot join the profiling service"), "{}", ended.stderr);
    let mut command = preloaded(&stub, Command::new("true"));
    let ended = run(command.env("FLIGHTLINE_BIN", "/etc/passwd"), LIMIT);
    assert!(ended.code() == 0 && ended.stderr.contains("set FLIGHTLINE_BIN"), "{}", ended.stderr);
}
