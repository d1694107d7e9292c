//! `flightline agent` with a stub of the service. The order of commands and the program's own CPU clock
//! determine the expected recordings.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use flightline_tests::agents::{
    LONG, MS, capability, gone, hello, hellos, lasted, only, phases, progress, recorded, without_perf,
};
use flightline_tests::controlled::{Controlled, LIMIT, program};
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, run, signal, spawn, until, wait};
use flightline_tests::stub_service::{Mood, Said, Stub};
use flightline_tests::{skip, victim};
use serde_json::{Value, json};

/// An agent that starts the program; its temporary files are in `folder`.
fn agent(stub: &Stub, folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(victim::flightline());
    command
        .args(["agent", "--join", &stub.url()])
        .args(options)
        .env("TMPDIR", folder)
        .arg("--")
        .arg(program());
    command
}

#[test]
fn run_stopped_early_contains_work_until_stop() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::start(Some("a token that is long enough"));
    let token = folder.path().join("token");
    fs::write(&token, "a token that is long enough\n").unwrap();
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let options = ["--token-file", token.to_str().unwrap(), "--label", "zone=eu-1,what=`;$(id)"];
    let mut victim = Controlled::start(&mut agent(&stub, &scratch, &options));
    let hello = hello(&stub);
    assert_eq!((&hello["pid"], &hello["protocol"]), (&json!(victim.pid), &json!(1)));
    assert!(hello["name"].as_str().unwrap().starts_with("controlled"), "{hello}");
    assert_eq!((&hello["labels"]["zone"], &hello["labels"]["what"]), (&json!("eu-1"), &json!("`;$(id)")));
    for mode in ["CPU", "WALL", "ALLOC", "LOCK", "ITIMER", "IO", "LIVE", "THROW"] {
        assert_eq!(capability(&hello, mode), (true, String::new()), "{mode}");
    }
    let words = fs::read_to_string(format!("/proc/{}/cmdline", victim.child.id())).unwrap();
    assert!(!words.contains("long enough"), "the token is on no command line: {words}");

    // A third of the program's work.
    victim.work("before", MS);
    stub.begin("first", "CPU", LONG, Some("1ms"));
    progress(&stub, "first", "started");
    victim.work("during", MS);
    stub.stop("first");
    let first = recorded(&stub, "first");
    victim.work("after", MS);
    only(&first.recording, "during");
    assert_eq!(first.ended, "");
    assert!(first.bytes.windows(4).any(|text| text == b"eu-1"), "its labels are in the recording");

    // Another mode, up to its own end.
    stub.begin("second", "WALL", 1, Some("10ms"));
    let second = lasted(&recorded(&stub, "second").bytes);
    assert!(second >= 1_000_000_000, "{second} ns");
    until(LIMIT, "temporary files to be removed", || {
        fs::read_dir(&scratch).unwrap().next().is_none().then_some(())
    });
    assert_eq!(victim.end(7), 0, "no wait of the program was interrupted");
    assert_eq!(gone(&stub), "it ended with exit status 7");
}

/// Like redis-server, nginx and PostgreSQL, it overwrites its original arguments.
#[test]
fn program_with_changed_title_still_accepts_commands() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut victim = Controlled::start(&mut agent(&stub, folder.path(), &[]));
    victim.tell("title");
    assert_eq!(victim.number("titled "), victim.pid);
    assert!(
        !fs::read(format!("/proc/{}/environ", victim.pid)).unwrap().windows(10).any(|w| w == b"FLIGHTLINE")
    );
    stub.begin("run", "WALL", LONG, Some("10ms"));
    progress(&stub, "run", "started");
    assert_eq!(victim.ask(&["status"])["state"], "recording");
    stub.stop("run");
    recorded(&stub, "run");
    assert_eq!(victim.ask(&["status"])["state"], "waiting");
    victim.end(0);
}

#[test]
fn stop_ends_only_named_run() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut victim = Controlled::start(&mut agent(&stub, folder.path(), &[]));
    hello(&stub);
    stub.begin("one", "CPU", LONG, Some("1ms"));
    progress(&stub, "one", "started");
    // All at almost the same time; the stop of the first comes twice, the second time during the second run.
    let two = json!({"command": "start", "run": "two", "mode": "CPU", "duration": LONG, "interval": "1ms"});
    let stop = json!({"command": "stop", "run": "one"});
    stub.commands(vec![stop.clone(), two.clone(), stop.clone()]);
    recorded(&stub, "one");
    progress(&stub, "two", "started");
    // The same command again, as from a service that lost count.
    stub.commands(vec![stop, two]);
    victim.work("during", MS);
    assert_eq!(victim.ask(&["status"])["state"], "recording");
    stub.stop("two");
    only(&recorded(&stub, "two").recording, "during");
    victim.work("after", MS);
    assert_eq!(victim.ask(&["status"])["state"], "waiting", "a run is done once");
    // During one run there is no other.
    stub.begin("three", "CPU", LONG, None);
    progress(&stub, "three", "started");
    stub.begin("four", "CPU", LONG, None);
    let refused = progress(&stub, "four", "failed");
    assert_eq!(refused["message"], "The agent is still recording run three.");
    stub.stop("three");
    recorded(&stub, "three");
    victim.end(0);
}

#[test]
fn killed_program_is_reported_and_its_recording_uploaded() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut victim = Controlled::start(&mut agent(&stub, folder.path(), &[]));
    stub.begin("run", "CPU", LONG, Some("1ms"));
    progress(&stub, "run", "started");
    victim.work("during", MS);
    signal(victim.pid, libc::SIGKILL);
    let last = recorded(&stub, "run");
    only(&last.recording, "during");
    assert_eq!(
        (last.ended.as_str(), gone(&stub).as_str()),
        ("it was killed by SIGKILL", "it was killed by SIGKILL")
    );
    assert_eq!(wait(&mut victim.child, LIMIT, "the agent's end").code(), Some(128 + libc::SIGKILL));
}

#[test]
fn agent_forwards_signals_to_program() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut victim = Controlled::start(&mut agent(&stub, folder.path(), &[]));
    hello(&stub);
    signal(victim.child.id(), libc::SIGTERM);
    assert_eq!(gone(&stub), "it was killed by SIGTERM");
    assert_eq!(wait(&mut victim.child, LIMIT, "the agent's end").code(), Some(128 + libc::SIGTERM));
}

/// The program ends before the answer to its registration is there: the service knows it, and learns of its end.
#[test]
fn program_exit_during_registration_is_reported() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    stub.mood(Mood::Slow);
    let mut victim = Controlled::start(&mut agent(&stub, folder.path(), &[]));
    hello(&stub);
    signal(victim.child.id(), libc::SIGTERM);
    assert_eq!(gone(&stub), "it was killed by SIGTERM");
    assert_eq!(wait(&mut victim.child, LIMIT, "the agent's end").code(), Some(128 + libc::SIGTERM));
}

#[test]
fn run_and_recording_are_delivered_after_service_outage() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut victim = Controlled::start(&mut agent(&stub, folder.path(), &[]));
    let first = hello(&stub);
    stub.begin("run", "CPU", LONG, Some("1ms"));
    progress(&stub, "run", "started");
    stub.mood(Mood::Away);
    victim.work("during", MS);
    // The recording ends without the service, and its upload fails.
    victim.ask(&["stop"]);
    let refused = stub.refused();
    until(LIMIT, "other attempts", || (stub.refused() >= refused + 2).then_some(()));
    assert!(!stub.said().iter().any(|said| matches!(said, Said::Recording(..))));
    // The service is available again and has forgotten all agents.
    stub.forget();
    stub.mood(Mood::Well);
    only(&recorded(&stub, "run").recording, "during");
    let hellos = hellos(&stub);
    assert!(hellos.len() >= 2 && hellos.iter().all(|hello| hello["key"] == first["key"]), "{hellos:?}");
    stub.begin("next", "CPU", LONG, None);
    progress(&stub, "next", "started");
    stub.stop("next");
    recorded(&stub, "next");
    victim.end(0);
}

#[test]
fn hostile_command_values_are_never_executed() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut victim = Controlled::start(&mut agent(&stub, folder.path(), &[]));
    hello(&stub);
    let mark = folder.path().join("mark");
    let long = "9".repeat(1 << 20);
    let hostile = [
        format!("1ms;touch {}", mark.display()),
        format!("$(touch {})", mark.display()),
        format!("`touch {}`", mark.display()),
        format!("1ms --output={}", mark.display()),
        format!("--output={}", mark.display()),
        "--help".to_owned(),
        "1ms\n".to_owned(),
        long,
    ];
    let mut runs = Vec::new();
    for (number, word) in hostile.iter().enumerate() {
        for (name, interval, engines) in [("i", json!(word), json!([])), ("e", Value::Null, json!([word]))] {
            let run = format!("{name}{number}");
            stub.command(json!({"command": "start", "run": run, "mode": "CPU", "duration": 1,
                "interval": interval, "engines": engines}));
            runs.push(run);
        }
    }
    stub.command(json!({"command": "start", "run": "later", "mode": "HEAP", "duration": 1}));
    stub.command(json!({"command": "fly", "run": "never"}));
    for run in runs.iter().map(String::as_str).chain(["later", "never"]) {
        let failed = progress(&stub, run, "failed");
        assert!(failed["message"].as_str().unwrap().len() < 300, "{run}: {failed}");
    }
    stub.begin("good", "CPU", LONG, Some("1ms"));
    progress(&stub, "good", "started");
    victim.work("during", MS);
    stub.stop("good");
    only(&recorded(&stub, "good").recording, "during");
    assert!(!mark.exists());
    victim.end(0);
}

#[test]
fn refused_perf_events_fall_back_to_timers_and_are_reported() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut command = agent(&stub, folder.path(), &[]);
    without_perf(&mut command);
    let mut victim = Controlled::start(&mut command);
    let hello = hello(&stub);
    let (off_cpu, why) = capability(&hello, "OFF_CPU");
    assert!(!off_cpu && !why.is_empty(), "{why}");
    assert!(capability(&hello, "CPU").0);
    stub.begin("run", "CPU", LONG, Some("10ms"));
    let started = progress(&stub, "run", "started");
    assert_eq!(started["effectiveMode"], "CPU (timer)");
    assert!(started["message"].as_str().unwrap().contains("seccomp"), "{started}");
    victim.work("during", MS);
    stub.stop("run");
    let seen = phases(&recorded(&stub, "run").recording);
    assert!(seen.len() == 1 && seen["during"] >= 40, "{seen:?}");
    // A process that was not preloaded cannot be recorded; the agent reports the reason.
    let bare = Controlled::start(&mut Command::new(program()));
    let other = Stub::default();
    let mut command = Command::new(victim::flightline());
    command.args(["agent", "--join", &other.url(), "-p", &bare.pid.to_string()]);
    without_perf(&mut command);
    let mut beside_it = spawn(command.stderr(Stdio::null()));
    let (cpu, why) = capability(&flightline_tests::agents::hello(&other), "CPU");
    assert!(!cpu && why.contains("perf_event_paranoid"), "{why}");
    bare.end(0);
    assert_eq!(gone(&other), "it has ended");
    assert_eq!(wait(&mut beside_it, LIMIT, "the agent's end").code(), Some(0));
    victim.end(0);
}

/// An agent for a running process.
#[track_caller]
fn agent_of(stub: &Stub, pid: u32, folder: &Path) -> Child {
    let mut command = Command::new(victim::flightline());
    command.args(["agent", "--join", &stub.url(), "-p", &pid.to_string()]).env("TMPDIR", folder);
    spawn(command.stderr(Stdio::null()))
}

#[test]
fn running_program_is_recorded_from_outside() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: an agent that records from outside");
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut victim = Controlled::start(&mut Command::new(program()));
    let mut agent = agent_of(&stub, victim.pid, folder.path());
    let hello = hello(&stub);
    assert!(capability(&hello, "CPU").0 && capability(&hello, "OFF_CPU").0, "{hello}");
    let (alloc, why) = capability(&hello, "ALLOC");
    assert!(!alloc && why.contains("libflightline.so"), "{why}");
    victim.work("before", MS);
    stub.begin("run", "CPU", LONG, Some("1ms"));
    progress(&stub, "run", "started");
    victim.work("during", MS);
    stub.stop("run");
    let recording = recorded(&stub, "run").recording;
    victim.work("after", MS);
    only(&recording, "during");
    // The recorder itself reports engines that it cannot record.
    stub.begin("alloc", "ALLOC", LONG, None);
    let failed = progress(&stub, "alloc", "failed");
    assert!(failed["message"].as_str().unwrap().contains("-e alloc"), "{failed}");
    // The agent ends without ending the program; its run is finished.
    stub.begin("last", "CPU", LONG, Some("1ms"));
    progress(&stub, "last", "started");
    victim.work("during", MS);
    signal(agent.id(), libc::SIGTERM);
    let last = recorded(&stub, "last");
    only(&last.recording, "during");
    assert_eq!(
        (last.ended.as_str(), gone(&stub).as_str()),
        ("its agent was stopped", "its agent was stopped")
    );
    assert_eq!(wait(&mut agent, LIMIT, "the agent's end").code(), Some(0));
    victim.end(0);
    until(LIMIT, "temporary files to be removed", || {
        fs::read_dir(folder.path()).unwrap().next().is_none().then_some(())
    });
}

/// No other process would end the recorder.
#[test]
fn recorder_exits_when_its_agent_is_killed() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: an agent that records from outside");
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let victim = Controlled::start(&mut Command::new(program()));
    let mut command = Command::new(victim::flightline());
    command.args(["agent", "--join", &stub.url(), "--continuous", "-p", &victim.pid.to_string()]);
    let mut agent = spawn(command.env("TMPDIR", folder.path()).stderr(Stdio::null()));
    let recorders = |agent: u32| -> Vec<u32> {
        let of = format!("\0--agent\0{agent}\0");
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let words = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pids.filter(|&pid| words(pid).windows(of.len()).any(|part| part == of.as_bytes())).collect()
    };
    until(LIMIT, "the recorder", || recorders(agent.id()).first().copied());
    signal(agent.id(), libc::SIGKILL);
    wait(&mut agent, LIMIT, "the agent's end");
    until(LIMIT, "the recorder's end", || recorders(agent.id()).is_empty().then_some(()));
    victim.end(0);
}

#[test]
fn sleeping_program_is_recorded_from_outside_or_interrupted_if_allowed() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: an agent of a program that sleeps");
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let sleeper = victim::c("polling", victim::OPTIMISED);
    let start = |stub: &Stub, options: &[&str]| {
        let mut command = Command::new(victim::flightline());
        command.args(["agent", "--join", &stub.url()]).args(options).env("TMPDIR", folder.path());
        Controlled::start(command.arg("--").arg(&sleeper))
    };
    let stub = Stub::default();
    let mut victim = start(&stub, &[]);
    stub.begin("cpu", "CPU", LONG, None);
    let started = progress(&stub, "cpu", "started");
    assert!(started["effectiveMode"].as_str().unwrap().starts_with("CPU (from outside"), "{started}");
    assert!(started["message"].as_str().unwrap().contains("all wait in"), "{started}");
    stub.stop("cpu");
    recorded(&stub, "cpu");
    stub.begin("alloc", "ALLOC", LONG, None);
    let failed = progress(&stub, "alloc", "failed");
    assert!(failed["message"].as_str().unwrap().contains("--interrupt"), "{failed}");
    victim.tell("end");
    assert_eq!(victim.number("interrupted "), 0);
    let stub = Stub::default();
    let mut victim = start(&stub, &["--interrupt"]);
    stub.begin("alloc", "ALLOC", LONG, None);
    progress(&stub, "alloc", "started");
    stub.stop("alloc");
    recorded(&stub, "alloc");
    victim.tell("end");
    assert!(victim.number("interrupted ") >= 1);
}

#[test]
fn existing_recording_is_not_changed_by_agent() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    let mut victim = Controlled::start(&mut agent(&stub, folder.path(), &[]));
    hello(&stub);
    let path = folder.path().join("mine.jfr");
    victim.begin(&path);
    victim.ask(&["pause"]);
    stub.begin("run", "CPU", LONG, None);
    let failed = progress(&stub, "run", "failed");
    assert!(failed["message"].as_str().unwrap().contains("flightline ctl -p"), "{failed}");
    assert_eq!(victim.ask(&["status"])["state"], "paused", "nor does it go on");
    victim.ask(&["resume"]);
    victim.work("during", MS);
    victim.ask(&["stop"]);
    only(&Recording::read(&path).unwrap(), "during");
    victim.end(0);
}

#[test]
fn missing_program_and_invalid_url_are_reported() {
    let _place = beside();
    let stub = Stub::default();
    let mut command = Command::new(victim::flightline());
    let ended = run(command.args(["agent", "--join", &stub.url(), "--", "/no/such/program"]), LIMIT);
    assert_eq!(ended.code(), 127, "{}", ended.stderr);
    let mut command = Command::new(victim::flightline());
    let ended = run(command.args(["agent", "--join", "localhost:1", "--", "true"]), LIMIT);
    assert!(ended.code() == 2 && ended.stderr.contains("localhost:1"), "{}", ended.stderr);
}
