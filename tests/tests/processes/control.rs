//! Recording that is started, stopped and changed from outside, while the test controls the program's work.
//! The order of commands alone determines the expected contents, not a clock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flightline_tests::controlled::{Controlled, LIMIT, ctl, program};
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, run, signal, status_kb, until, wait};
use flightline_tests::stolen::Stolen;
use flightline_tests::{skip, victim};

/// The CPU time of a phase of each of the program's three threads in ms, which is also its number of samples
/// at 1 kHz.
const MS: u32 = 200;

/// The program's functions that burn CPU time.
const WORKS: [&str; 5] = ["before_work", "during_work", "paused_work", "resumed_work", "after_work"];

/// The samples by function of the program, and the warnings of our reader.
#[track_caller]
fn samples(path: &Path) -> BTreeMap<String, u64> {
    let recording = Recording::read(path).unwrap();
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    let mut counts = BTreeMap::new();
    for sample in &recording.samples {
        let frames = &recording.stacks[sample.stack].frames;
        if let Some(frame) = frames.iter().find(|f| WORKS.contains(&f.method.as_str())) {
            *counts.entry(frame.method.clone()).or_default() += 1;
        }
    }
    counts
}

/// Asserts that exactly these functions were sampled, each with the samples of `phases` phases. A phase's
/// first sample comes after a random part of a period. If recording starts or stops within a thread's period,
/// up to two are missing.
#[track_caller]
fn expect(path: &Path, phases: &[(&str, u32)]) {
    let seen = samples(path);
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    let mut expected: Vec<String> = phases.iter().map(|(name, _)| format!("{name}_work")).collect();
    expected.sort();
    assert_eq!(names, expected, "{seen:?}");
    for (name, times) in phases {
        let right = f64::from(3 * MS * times);
        let n = seen[&format!("{name}_work")] as f64;
        // The threads' own clock bounds the phase to 20,000 rounds of its loop; the tick of the timer engine costs more.
        assert!((n - right).abs() <= 0.08 * right + 12.0, "{name}: {n} samples, expected {right}: {seen:?}");
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jfr");
    (folder, path)
}

fn count(dir: &str, pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/{dir}")).unwrap().count()
}

#[test]
fn only_work_between_start_and_stop_is_recorded() {
    let _place = beside();
    let (_folder, path) = folder();
    let mut victim = Controlled::dormant();
    let mut bare = Controlled::start(&mut Command::new(program()));
    assert_eq!(
        count("fd", victim.pid),
        count("fd", bare.pid),
        "a waiting program holds no descriptor of Flightline"
    );
    assert_eq!(count("task", victim.pid), count("task", bare.pid), "nor a thread");
    bare.tell("end 0");
    assert_eq!(victim.ask(&["status"])["state"], "waiting");
    victim.work("before", MS);
    assert_eq!(victim.begin(&path)["state"], "recording");
    victim.work("during", MS);
    assert_eq!(victim.ask(&["pause"])["state"], "paused");
    victim.work("paused", MS);
    let resumed = victim.ask(&["resume"]);
    assert_eq!((&resumed["state"], &resumed["sleeping"]), (&"recording".into(), &serde_json::json!([])));
    victim.work("resumed", MS);
    let status = victim.ask(&["status"]);
    let stopped = victim.ask(&["stop"]);
    assert_eq!(stopped["state"], "stopped");
    victim.work("after", MS);
    assert_eq!(victim.ask(&["status"])["state"], "waiting");
    assert_eq!(victim.end(7), 0, "no wait of the program was interrupted");
    expect(&path, &[("during", 1), ("resumed", 1)]);
    // The pause leaves no gap in the accounts: the CPU time of all phases after the start is sampled or
    // reported as stopped.
    let recording = Recording::read(&path).unwrap();
    let lost: u64 = recording.losses.iter().filter(|l| l.cause == "stopped").map(|l| l.cpu_ns).sum();
    let right = u64::from(3 * MS) * 1_000_000;
    assert!(
        (right * 9 / 10..right * 3 / 2).contains(&lost),
        "{lost} ns recorded as stopped instead of {right}"
    );
    let process = &status["processes"][0];
    assert_eq!((status["state"].as_str(), process["threads"].as_u64()), (Some("recording"), Some(3)));
    assert!(status["samples"].as_u64().unwrap() >= u64::from(3 * MS), "{status}");
    assert!(status["recorder"]["residentBytes"].as_u64().unwrap() > 1 << 20, "{status}");
}

#[test]
fn dump_is_readable_while_recording_continues() {
    let _place = beside();
    let (folder, path) = folder();
    let mut victim = Controlled::recorded(&path, &["-F", "1000", "--flush", "600s"]);
    victim.work("during", MS);
    victim.ask(&["dump"]);
    let copy = folder.path().join("copy.jfr");
    fs::copy(&path, &copy).unwrap();
    expect(&copy, &[("during", 1)]);
    victim.work("resumed", MS);
    victim.end(0);
    expect(&path, &[("during", 1), ("resumed", 1)]);
}

#[test]
fn engines_change_while_recording() {
    let _place = beside();
    let (_folder, path) = folder();
    let mut victim = Controlled::recorded(&path, &["-e", "cpu@1ms"]);
    victim.work("during", MS);
    let other = victim.ask(&["engines", "lock@10ms"]);
    assert!(other["engines"].as_str().unwrap().starts_with("lock@"), "{other}");
    victim.work("paused", MS);
    victim.ask(&["engines", "cpu@1ms", "io"]);
    victim.work("resumed", MS);
    for bad in ["ctimer@1ms", "no such,,engine", "wall@x", "cpu@1us"] {
        let refused = victim.ctl(&["engines", bad]);
        assert_eq!(refused.code(), 1, "{bad}: {}", refused.stdout_text());
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    victim.end(0);
    expect(&path, &[("during", 1), ("resumed", 1)]);
}

#[test]
fn interval_and_perf_events_change_while_recording() {
    let _place = beside();
    let stolen = Stolen::from_now();
    let (_folder, path) = folder();
    let mut victim = Controlled::recorded(&path, &["-e", "cpu@10ms"]);
    victim.work("during", MS);
    victim.ask(&["engines", "cpu@1ms"]);
    victim.work("resumed", MS);
    let works = skip::perf_allowed(false);
    if works {
        victim.ask(&["engines", "cpu@1ms,task-clock@1000000"]);
        victim.work("after", MS);
        victim.ask(&["engines", "cpu@1ms"]);
        victim.work("paused", MS);
    } else {
        skip::skip("perf_event_open is not allowed: a perf event that is added to a recording");
    }
    victim.end(0);
    let seen = samples(&path);
    let part = |name: &str| seen.get(name).copied().unwrap_or(0) as f64;
    let right = f64::from(3 * MS);
    // Ten times rarer. The tolerance covers rounding and the random phase of three threads. The rest of a
    // thread's old interval is reported in units of the new one.
    let during = part("during_work") - right / 10.0;
    let slack = 0.1 * right / 10.0 + 6.0;
    // Events count the time that the host took, the threads' clocks do not.
    let stolen = stolen.ns() as f64 / 1e6;
    assert!((-slack..=slack + 3.0 * 10.0 + stolen / 10.0).contains(&during), "{seen:?}");
    for name in ["resumed_work", "after_work", "paused_work"].into_iter().take(if works { 3 } else { 1 }) {
        assert!((part(name) - right).abs() <= 0.08 * right + 12.0 + stolen, "{name} at 1 ms: {seen:?}");
    }
    let recording = Recording::read(&path).unwrap();
    assert!(recording.chunks >= 2, "each chunk has the weight of a sample");
    if works {
        let events = recording.events.get("flightline.EventSample").copied().unwrap_or(0) as f64;
        // Only the requested phase.
        assert!(
            (events - right).abs() <= 0.15 * right + 12.0 + stolen,
            "{events} samples of task-clock, {right} ms"
        );
    }
}

#[test]
fn repeated_start_and_stop_leak_no_resources() {
    let _place = beside();
    let (_folder, path) = folder();
    let mut victim = Controlled::dormant();
    let look = |pid| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines().count();
        (maps, count("fd", pid), count("task", pid), status_kb(pid, "VmSize").unwrap())
    };
    let mut first = None;
    let rounds = if flightline_tests::long() { 100 } else { 25 };
    for round in 0..rounds {
        victim.begin(&path);
        victim.work("during", 10);
        victim.ask(&["stop"]);
        // The first rounds touch memory for the first time.
        if round == 4 {
            first = Some((look(victim.pid), status_kb(victim.pid, "VmRSS").unwrap()));
        }
    }
    let (before, before_kb) = first.unwrap();
    // The stack of a thread that was stopped in a handler, for example, may add a mapping, but not one per
    // round.
    let after = look(victim.pid);
    assert!(after.0 <= before.0 + 2, "mappings {before:?} → {after:?}");
    assert_eq!((after.1, after.2), (before.1, before.2));
    assert!(after.3 <= before.3 + 1024, "address space {before:?} → {after:?}");
    let after_kb = status_kb(victim.pid, "VmRSS").unwrap();
    assert!(
        after_kb <= before_kb + 512,
        "{before_kb} KiB resident after 5 rounds, {after_kb} after {rounds}"
    );
    let own = format!("/{}-", victim.pid);
    let left = run(
        Command::new("sh").args(["-c", "ls -d /dev/shm/flightline-* /dev/shm/flightline-*/*.proc"]),
        LIMIT,
    );
    assert!(!left.stdout_text().contains(&own), "{}", left.stdout_text());
    assert!(!Path::new(&format!("/dev/shm/flightline-join-{}", victim.pid)).exists());
    let seen = samples(&path);
    assert!(seen["during_work"] >= 15, "the last recording is as good as the first: {seen:?}");
    assert_eq!(victim.end(0), 0, "no wait of the program was interrupted");
}

#[test]
fn waiting_program_children_wait_too() {
    let _place = beside();
    let (folder, path) = folder();
    let mut parent = Controlled::dormant();
    parent.tell("fork");
    let child = parent.number("child ");
    let original = std::mem::replace(&mut parent.pid, child);
    parent.begin(&path);
    parent.work("during", MS);
    parent.ask(&["stop"]);
    assert_eq!(ctl(original, &["status"]).stdout_text(), ctl(original, &["status"]).stdout_text());
    assert!(ctl(original, &["status"]).stdout_text().contains("waiting"), "the parent was not concerned");
    expect(&path, &[("during", 1)]);
    // A new image waits as well.
    parent.tell("exec");
    assert_eq!(parent.number("ready "), child);
    let second = folder.path().join("second.jfr");
    parent.begin(&second);
    parent.work("resumed", MS);
    parent.ask(&["stop"]);
    expect(&second, &[("resumed", 1)]);
    assert_eq!(parent.end(3), 0);
}

#[test]
fn program_started_by_record_can_be_recorded_again() {
    let _place = beside();
    let (folder, path) = folder();
    let mut victim = Controlled::recorded(&path, &["-F", "1000"]);
    victim.work("during", MS);
    victim.ask(&["stop"]);
    victim.work("paused", MS);
    let second = folder.path().join("second.jfr");
    victim.begin(&second);
    victim.work("resumed", MS);
    // The program ends while it is recorded. The recorder, which has no parent, completes the file by itself.
    assert_eq!(victim.end(5), 0);
    expect(&path, &[("during", 1)]);
    until(LIMIT, "a complete second recording", || (samples_if_complete(&second)?.len() == 1).then_some(()));
    expect(&second, &[("resumed", 1)]);
}

/// Counts the samples of a recording whose last chunk is closed.
fn samples_if_complete(path: &Path) -> Option<BTreeMap<String, u64>> {
    let bytes = fs::read(path).ok()?;
    let mut at = 0;
    while at < bytes.len() {
        let header = bytes.get(at..at + 68)?;
        if header[64] != 0 {
            return None;
        }
        at += u64::from_be_bytes(header[8..16].try_into().unwrap()) as usize;
    }
    Some(samples(path))
}

#[test]
fn killed_recorder_does_not_affect_program() {
    let _place = beside();
    let (folder, path) = folder();
    let mut victim = Controlled::dormant();
    for round in 0..3 {
        let begun = victim.begin(&path);
        victim.work("during", 50);
        signal(begun["recorder"].as_u64().unwrap() as u32, libc::SIGKILL);
        // The recorder's death is detected at once, although its zombie may remain.
        until(LIMIT, "the end of the recorder", || {
            let answer = victim.ctl(&["status"]).stdout_text();
            answer.contains("waiting").then_some(())
        });
        victim.work("paused", 50 + round);
    }
    let second = folder.path().join("second.jfr");
    victim.begin(&second);
    victim.work("resumed", MS);
    victim.ask(&["stop"]);
    expect(&second, &[("resumed", 1)]);
    assert_eq!(victim.end(0), 0);
}

#[test]
fn killed_program_leaves_complete_recording() {
    let _place = beside();
    let (_folder, path) = folder();
    let mut victim = Controlled::dormant();
    let begun = victim.begin(&path);
    victim.work("during", MS);
    signal(victim.pid, libc::SIGKILL);
    wait(&mut victim.child, LIMIT, "the victim's end");
    let recorder = begun["recorder"].as_u64().unwrap() as u32;
    until(LIMIT, "a complete recording", || samples_if_complete(&path));
    expect(&path, &[("during", 1)]);
    assert_eq!(ctl(victim.pid, &["status"]).code(), 1);
    until(LIMIT, "the recorder's end", || (!running(recorder)).then_some(()));
}

fn running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

#[test]
fn start_on_and_stop_on_files_control_recording() {
    let _place = beside();
    let (folder, path) = folder();
    let [go, halt] = ["go", "halt"].map(|name| folder.path().join(name));
    let options = ["-F", "1000", "--start-on", go.to_str().unwrap(), "--stop-on", halt.to_str().unwrap()];
    let mut victim = Controlled::recorded(&path, &options);
    victim.work("before", MS);
    victim.until_state("paused");
    fs::write(&go, "").unwrap();
    victim.until_state("recording");
    // Sleeping threads apply the change the next time the recorder checks them.
    until(LIMIT, "applied", || {
        victim.ask(&["resume"])["sleeping"].as_array().unwrap().is_empty().then_some(())
    });
    victim.work("during", MS);
    fs::write(&halt, "").unwrap();
    victim.until_state("waiting");
    victim.work("after", MS);
    assert_eq!(victim.end(6), 0);
    expect(&path, &[("during", 1)]);
}

#[test]
fn start_on_and_stop_on_signals_control_recording() {
    let _place = beside();
    let (_folder, path) = folder();
    let mut victim =
        Controlled::recorded(&path, &["-F", "1000", "--start-on", "USR1", "--stop-on", "SIGUSR2"]);
    victim.work("before", MS);
    let recorder = victim.child.id();
    for name in ["during", "resumed"] {
        signal(recorder, libc::SIGUSR1);
        victim.until_state("recording");
        until(LIMIT, "applied", || {
            victim.ask(&["resume"])["sleeping"].as_array().unwrap().is_empty().then_some(())
        });
        victim.work(name, MS);
        signal(recorder, libc::SIGUSR2);
        victim.until_state("paused");
        victim.work("paused", MS);
    }
    assert_eq!(victim.end(0), 0);
    expect(&path, &[("during", 1), ("resumed", 1)]);
}

#[test]
fn start_ends_delay_early_and_duration_ends_recording() {
    let _place = beside();
    let (folder, path) = folder();
    let mut victim = Controlled::recorded(&path, &["-F", "1000", "--delay", "10h"]);
    victim.work("before", MS);
    let resumed = victim.ask(&["start"]);
    assert_eq!(resumed["state"], "recording", "{resumed}");
    victim.work("during", MS);
    assert_eq!(victim.end(0), 0);
    expect(&path, &[("during", 1)]);
    let short = folder.path().join("short.jfr");
    let mut victim = Controlled::recorded(&short, &["-F", "1000", "--duration", "300ms"]);
    victim.until_state("waiting");
    victim.work("after", MS);
    assert_eq!(victim.end(4), 0, "its status is the program's");
    assert_eq!(samples(&short).get("after_work"), None);
    let never = folder.path().join("never.jfr");
    let mut victim = Controlled::recorded(&never, &["-F", "1000", "--delay", "10h"]);
    victim.work("before", MS);
    assert_eq!(victim.end(0), 0);
    assert!(samples(&never).is_empty());
}

/// All threads are in `poll` without a limit, which a signal ends early: the command sends no signal unless
/// that is accepted.
#[test]
fn system_call_is_interrupted_only_on_request() {
    let _place = beside();
    let (_folder, path) = folder();
    let library = victim::flightline().with_file_name("libflightline.so");
    let waiting = victim::c("polling", victim::OPTIMISED);
    let mut command = Command::new(waiting);
    let mut victim = Controlled::start(command.env("LD_PRELOAD", library).env("FLIGHTLINE", "dormant"));
    let refused = victim.ctl(&["start", "-o", path.to_str().unwrap()]);
    assert_eq!(refused.code(), 1);
    assert!(
        refused.stderr.contains("--interrupt") && refused.stderr.lines().count() == 1,
        "{}",
        refused.stderr
    );
    victim.ask(&["start", "--interrupt", "-o", path.to_str().unwrap()]);
    victim.ask(&["stop"]);
    victim.tell("end");
    assert!(victim.number("interrupted ") >= 1, "the refused start interrupted nothing, the other one did");
}

#[test]
fn start_fails_without_harm_in_seccomp_restricted_program() {
    let _place = beside();
    let (_folder, path) = folder();
    let mut victim = Controlled::dormant();
    victim.tell("restrict");
    assert_eq!(victim.number("restricted "), 0);
    let refused = victim.ctl(&["start", "-o", path.to_str().unwrap()]);
    assert_eq!(refused.code(), 1, "{}", refused.stdout_text());
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    victim.work("after", 10);
    assert_eq!(victim.end(0), 0);
}

#[test]
fn invalid_ctl_requests_are_reported_in_one_line() {
    let _place = beside();
    let own = std::process::id();
    let table: [(u32, &[&str], i32, &str); 6] = [
        (own, &["status"], 1, "libflightline.so"),
        (own, &["start"], 1, "libflightline.so"),
        (u32::MAX >> 1, &["status"], 1, "2147483647"),
        (own, &["sing"], 2, ""),
        (own, &["start", "-F", "0"], 2, ""),
        (own, &["engines"], 2, ""),
    ];
    for (pid, words, code, message) in table {
        let finished = ctl(pid, words);
        assert_eq!(finished.code(), code, "{words:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(message), "{}", finished.stderr);
        assert!(code == 2 || finished.stderr.lines().count() == 1, "{}", finished.stderr);
    }
    let mut victim = Controlled::dormant();
    for words in [&["stop"][..], &["pause"], &["resume"], &["dump"], &["engines", "cpu"]] {
        let finished = victim.ctl(words);
        assert_eq!(finished.code(), 1);
        assert!(finished.stderr.contains(&victim.pid.to_string()), "{}", finished.stderr);
    }
    let nowhere = victim.ctl(&["start", "-o", "/no/such/folder/x.jfr"]);
    assert_eq!((nowhere.code(), nowhere.stderr.lines().count()), (1, 1), "{}", nowhere.stderr);
    assert!(nowhere.stderr.contains("/no/such/folder/x.jfr"), "{}", nowhere.stderr);
    victim.work("after", 10);
    assert_eq!(victim.end(0), 0);
}

/// A session belongs to the user who records. Other users are refused by the directory and by the socket
/// itself.
#[test]
fn requests_from_other_users_are_rejected() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        return skip::skip("not root: cannot run as another user");
    }
    let _place = beside();
    let (_folder, path) = folder();
    let mut victim = Controlled::recorded(&path, &["-F", "1000"]);
    let bin = victim::flightline();
    let copy = tempfile::Builder::new().prefix("flightline-nobody-").tempdir().unwrap();
    fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let command = copy.path().join("flightline");
    fs::copy(bin, &command).unwrap();
    for action in ["status", "stop", "pause", "start"] {
        let mut asked = Command::new(&command);
        asked.args(["ctl", "-p", &victim.pid.to_string(), action]).uid(NOBODY).gid(NOBODY);
        let refused = run(asked.current_dir("/"), LIMIT);
        assert_eq!(refused.code(), 1, "{action}");
        assert!(refused.stderr.contains("user 0"), "{action}: {}", refused.stderr);
    }
    let maps = fs::read_to_string(format!("/proc/{}/maps", victim.pid)).unwrap();
    let page = maps.lines().find(|l| l.ends_with("/session")).unwrap();
    let dir = PathBuf::from(&page[page.find('/').unwrap()..]).parent().unwrap().to_owned();
    let socket = dir.join("control");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    // The socket refuses other users even if the permissions allow access.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let answer = std::thread::spawn(move || {
        // SAFETY: the raw call changes the user of this thread only.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(changed, 0);
        let mut stream = UnixStream::connect(socket).unwrap();
        let _ = stream.write_all(b"stop\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    });
    let answer = answer.join().unwrap();
    assert!(answer.contains("belongs to user 0") && answer.contains("\"ok\":false"), "{answer:?}");
    victim.work("during", MS);
    assert_eq!(victim.end(0), 0);
    expect(&path, &[("during", 1)]);
}

/// Clients that send nothing or nonsense, or do not read, do not block others.
#[test]
fn misbehaving_clients_do_not_block_others() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let _place = beside();
    let (_folder, path) = folder();
    let mut victim = Controlled::recorded(&path, &["-F", "1000"]);
    let maps = fs::read_to_string(format!("/proc/{}/maps", victim.pid)).unwrap();
    let page = maps.lines().find(|l| l.ends_with("/session")).unwrap();
    let socket = Path::new(&page[page.find('/').unwrap()..]).with_file_name("control");
    let mut clients = Vec::new();
    for i in 0..12 {
        let mut client = UnixStream::connect(&socket).unwrap();
        let text: &[u8] = [b"".as_slice(), b"stat", b"\xff\xfe\n", b"engines \n"][i % 4];
        client.write_all(text).unwrap();
        clients.push(client);
    }
    assert_eq!(victim.ask(&["status"])["state"], "recording");
    victim.work("during", MS);
    drop(clients);
    assert_eq!(victim.ask(&["status"])["state"], "recording");
    assert_eq!(victim.end(0), 0);
    expect(&path, &[("during", 1)]);
}
