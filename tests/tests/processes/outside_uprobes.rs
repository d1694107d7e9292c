//! Uprobes of programs that are not preloaded: the recorded calls, compared with the calls that the program
//! made.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::agents::without_call;
use flightline_tests::folded::{fold, sum_with};
use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{self, Finished, beside, run, spawn, wait};
use flightline_tests::truth::Truth;
use flightline_tests::{skip, spans, victim};

use super::outside::attached;

const LIMIT: Duration = Duration::from_secs(90);
/// Threads that `probed` starts and joins one after another.
const SHORT_THREADS: &str = "1000";

/// Prints why uprobes cannot be recorded here, and returns true.
fn not_here() -> bool {
    if skip::not_root("uprobes of a running process") {
        return true;
    }
    let missing = !Path::new("/sys/bus/event_source/devices/uprobe").exists();
    if missing {
        skip::skip("this kernel has no uprobes");
    }
    missing
}

/// Returns true if samples carry the event's count (Linux 6.12 and later).
fn samples_have_counts() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

/// Checks a recording of `event` against the program's own counts: each call is in a sample or reported as lost.
fn check(recording: &Path, event: &str, truth: &Truth) {
    assert_eq!(truth.counts["failed"], 0, "threads or processes could not be started under {event}");
    let calls = truth.counts["answer"] as u64;
    let lines = fold(recording, event, true);
    let seen: u64 = lines.iter().map(|(_, total)| total).sum();
    let losses = spans::read(recording, &["flightline.EventLoss"]);
    let lost: u64 = losses.iter().map(|loss| loss.number("value") as u64).sum();
    eprintln!("{event}: {seen} of {calls} calls in samples, {lost} lost");
    assert!(seen >= calls / 4, "{event}: only {seen} of {calls} calls are in samples");
    // A return probe samples the caller.
    let function = if event.starts_with("uretprobe") { "call" } else { "answer" };
    let named = sum_with(&lines, function);
    assert!(
        named >= seen - seen / 50,
        "{event}: only {named} of {seen} calls have {function} in their stack"
    );
    if samples_have_counts() {
        assert_eq!(seen + lost, calls, "{event}: calls in samples and lost calls");
    } else {
        skip::skip("the kernel is older than 6.12: exact counts of uprobes");
    }
}

/// Records `probed` with `event` from before its first call to its end.
fn record_running(program: &Path, folder: &Path, event: &str) -> (Finished, PathBuf, Truth) {
    let (path, truth) = (folder.join("run.jfr"), folder.join("truth.tsv"));
    let mut child = spawn(
        Command::new(program)
            .arg(SHORT_THREADS)
            .env("TRUTH_FILE", &truth)
            .stdin(Stdio::piped())
            .stdout(Stdio::null()),
    );
    let (pid, mut command) = (child.id().to_string(), Command::new(victim::flightline()));
    command.args(["record", "-e", event, "-p", &pid, "-o"]).arg(&path);
    let mut record = spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let stderr = run::collect(record.stderr.take().unwrap());
    attached(record.id());
    drop(child.stdin.take());
    assert!(wait(&mut child, LIMIT, "the program").success());
    let status = wait(&mut record, LIMIT, "flightline record");
    let stderr = String::from_utf8(stderr.join().unwrap()).unwrap();
    let finished = Finished { status, stdout: Vec::new(), stderr };
    (finished, path, Truth::read(&truth))
}

#[test]
fn running_program_calls_are_recorded_or_lost() {
    if not_here() {
        return;
    }
    let _place = beside();
    for flags in [victim::STATIC, victim::OPTIMISED] {
        let program = victim::c("probed", flags);
        for kind in ["uprobe", "uretprobe"] {
            let folder = tempfile::tempdir().unwrap();
            let event = format!("{kind}:{}:answer", program.display());
            let (finished, path, truth) = record_running(&program, folder.path(), &event);
            assert_eq!(finished.code(), 0, "{}", finished.stderr);
            check(&path, &event, &truth);
        }
    }
}

#[test]
fn static_program_calls_are_recorded_from_its_start() {
    if not_here() {
        return;
    }
    let _place = beside();
    let program = victim::c("probed", victim::STATIC);
    let event = format!("uprobe:{}:answer", program.display());
    let recorded = Record::new().option("-e").option(&event).run(&program, &[SHORT_THREADS]).expect_code(0);
    check(&recorded.path, &event, &recorded.truth());
}

/// Runs `flightline record` without tracefs and without the system call that mounts it.
fn record_without_tracefs(folder: &Path, options: &[&str]) -> (Finished, PathBuf) {
    let script = "umount -ql /sys/kernel/tracing /sys/kernel/debug; exec \"$@\"";
    let (path, mut command) = (folder.join("run.jfr"), Command::new("unshare"));
    command.args(["-m", "sh", "-c", script, "sh"]).arg(victim::flightline());
    command.args(["record", "-o"]).arg(&path).args(options).env("TRUTH_FILE", folder.join("truth.tsv"));
    without_call(&mut command, libc::SYS_fsopen);
    (run(&mut command, LIMIT), path)
}

#[test]
fn uprobe_refusal_names_tracefs() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let program = victim::c("probed", victim::STATIC);
    let event = format!("uprobe:{}:answer", program.display());
    let own = std::process::id().to_string();
    let (finished, _) =
        record_without_tracefs(folder.path(), &["-e", &event, "-p", &own, "--duration", "100ms"]);
    assert_ne!(finished.code(), 0, "{}", finished.stderr);
    assert!(
        finished.stderr.contains("/sys/kernel/tracing/uprobe_events; run as root"),
        "{}",
        finished.stderr
    );
}

/// A static child of a preloaded program, for which the uprobe is refused, keeps the samples of its CPU time.
#[test]
fn child_without_uprobes_retains_its_cpu_samples() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let spawner = victim::c("spawner", victim::OPTIMISED);
    let child = victim::c("known_answer", victim::STATIC);
    let event = format!("cpu@1ms,uprobe:{}:main", spawner.display());
    let [spawner, child] = [&spawner, &child].map(|path| path.to_str().unwrap());
    let (finished, path) = record_without_tracefs(folder.path(), &["-e", &event, "--", spawner, child, "1"]);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    let notice = "recorded without perf events";
    assert_eq!(finished.stderr.matches(notice).count(), 1, "{}", finished.stderr);
    let cpu_ns = Recording::read(&path).unwrap().samples.len() as u64 * 1_000_000;
    let clock_ns = Truth::read(&folder.path().join("truth.tsv")).cpu_ns();
    assert!(cpu_ns > clock_ns / 2, "{cpu_ns} ns of CPU time in samples, truly {clock_ns}");
}

/// Returns the kernel's list of uprobes. The mount of the tracing file system is private to the command that prints it.
fn definitions(folder: &Path) -> Option<String> {
    let script = "mount -t tracefs none \"$0\" && cat \"$0/uprobe_events\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(folder);
    let finished = run(&mut command, LIMIT);
    finished.status.success().then(|| finished.stdout_text())
}

#[test]
fn next_recorder_removes_uprobes_left_by_killed_recorder() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    if definitions(folder.path()).is_none() {
        return skip::skip("tracefs cannot be mounted: the kernel's list of uprobes");
    }
    let program = victim::c("probed", victim::STATIC);
    let event = format!("uprobe:{}:answer", program.display());
    let mut child = spawn(
        Command::new(&program).arg("10").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()),
    );
    let pid = child.id().to_string();
    let record = |duration: &str, name: &str| {
        let mut command = Command::new(victim::flightline());
        command.args(["record", "-e", &event, "-p", &pid, "--duration", duration, "-o"]);
        spawn(command.arg(folder.path().join(name)).stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let mut killed = record("60s", "killed.jfr");
    attached(killed.id());
    run::signal(killed.id(), libc::SIGKILL);
    killed.wait().unwrap();
    let left = format!("flightline/p{}_", killed.id());
    let list = definitions(folder.path()).unwrap();
    assert!(list.contains(&left), "the killed recorder left nothing to remove: {list:?}");
    let mut next = record("200ms", "next.jfr");
    assert!(wait(&mut next, LIMIT, "flightline record").success());
    let list = definitions(folder.path()).unwrap();
    let own = format!("flightline/p{}_", next.id());
    assert!(!list.contains(&left) && !list.contains(&own), "{list:?}");
    drop(child.stdin.take());
    assert!(wait(&mut child, LIMIT, "the program").success());
}
