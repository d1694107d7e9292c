//! Rolling repositories with real processes: by option, by environment and by machine-wide settings;
//! children, daemons, exec; labels.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flightline_tests::controlled::LIMIT;
use flightline_tests::recording::Recording;
use flightline_tests::repository::{chunks, read, summary};
use flightline_tests::run::{Finished, beside, run, signal, until};
use flightline_tests::{machine, skip, victim};

fn program() -> PathBuf {
    victim::c("daemon", victim::OPTIMISED)
}

fn record(root: &Path, options: &[&str], words: &[&str]) -> Finished {
    let mut command = Command::new(victim::flightline());
    command.args(["record", "-F", "1000", "--repository"]).arg(root).args(options).arg("--");
    run(command.arg(program()).args(words).stdin(Stdio::null()), LIMIT)
}

/// The program started directly, with our library in its environment.
fn preloaded(root: &Path) -> Command {
    let mut command = Command::new(program());
    command.env("LD_PRELOAD", victim::flightline().with_file_name("libflightline.so"));
    command.env("FLIGHTLINE_REPOSITORY", root).env("FLIGHTLINE_RATE", "1000");
    command.stdin(Stdio::null());
    command
}

fn number(finished: &Finished, start: &str) -> u32 {
    let text = finished.stdout_text();
    let line = text.lines().find_map(|line| line.strip_prefix(start));
    line.unwrap_or_else(|| panic!("no {start:?} in {text:?}\n{}", finished.stderr)).trim().parse().unwrap()
}

fn samples_in(recording: &Recording, function: &str) -> usize {
    recording.samples.iter().filter(|s| recording.stacks[s.stack].has(function)).count()
}

/// Waits for the recorder of a preloaded program, which is not a child of this process. It has ended when it
/// has described its folder and no process holds the lock of the folder. The lock is looked up instead of
/// taken, because a recorder fails when it cannot take it.
fn finished(root: &Path, pid: u32) -> Vec<PathBuf> {
    until(LIMIT, "the recorder's end", || {
        let files = chunks(root).remove(&pid)?;
        let folder = files.first()?.parent()?.to_owned();
        let is_described = folder.join("flightline.json").exists();
        let held = std::fs::metadata(folder.join(".held")).ok()?;
        let inode = format!(":{} ", held.ino());
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        (is_described && !locks.lines().any(|lock| lock.contains(&inode))).then_some(files)
    })
}

/// The CPU samples at 1 kHz of this many ms of work, except for the start and the first period.
#[track_caller]
fn most_of(samples: usize, ms: usize) {
    assert!(samples >= ms / 2 && samples <= ms * 3 / 2, "{samples} samples of {ms} ms at 1 kHz");
}

#[test]
fn record_with_wait_records_daemon_until_exit() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let done = record(folder.path(), &["--wait"], &["daemon", "400"]).expect_success("record --wait");
    let pid = number(&done, "daemon ");
    let all = chunks(folder.path());
    most_of(samples_in(&read(&all[&pid]), "daemon_work"), 400);
}

#[test]
fn record_without_wait_reports_that_daemon_continues() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let done = record(folder.path(), &[], &["daemon", "60000"]).expect_success("record");
    signal(number(&done, "daemon "), libc::SIGKILL);
    assert!(done.stderr.contains("--wait"), "{}", done.stderr);
}

#[test]
fn preloaded_daemon_is_recorded_until_exit() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let started = run(preloaded(folder.path()).args(["daemon", "400"]), LIMIT).expect_success("daemon");
    assert_eq!(started.stderr, "");
    let pid = number(&started, "daemon ");
    let files = finished(folder.path(), pid);
    most_of(samples_in(&read(&files), "daemon_work"), 400);
}

#[test]
fn workers_have_separate_directories() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let done = record(folder.path(), &[], &["prefork", "3", "150"]).expect_success("record");
    let workers: Vec<u32> =
        done.stdout_text().lines().filter_map(|line| line.strip_prefix("worker ")?.parse().ok()).collect();
    assert_eq!(workers.len(), 4);
    let all = chunks(folder.path());
    for pid in workers {
        most_of(samples_in(&read(&all[&pid]), "worker_work"), 150);
    }
}

#[test]
fn exec_continues_in_same_directory() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let done = record(folder.path(), &[], &["again", "200"]).expect_success("record");
    let pid = number(&done, "image ");
    let all = chunks(folder.path());
    let folders: std::collections::BTreeSet<_> = all[&pid].iter().map(|p| p.parent()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    let recording = read(&all[&pid]);
    most_of(samples_in(&recording, "first_image"), 200);
    most_of(samples_in(&recording, "second_image"), 200);
}

#[test]
fn repository_chunks_contain_labels() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(victim::flightline());
    command.args([
        "record",
        "-F",
        "1000",
        "--chunk-age",
        "1s",
        "--label",
        "zone=eu-1,tier=web",
        "--repository",
    ]);
    command.arg(folder.path()).arg("--").arg(program()).args(["prefork", "1", "1500"]);
    command.env("FLIGHTLINE_LABELS", "version=1.2,zone=elsewhere").env("OTEL_SERVICE_NAME", "shop");
    run(&mut command, LIMIT).expect_success("record");
    let all: Vec<PathBuf> = chunks(folder.path()).into_values().flatten().collect();
    assert!(all.len() > 2, "{all:?}");
    for chunk in all {
        let summary = summary(&chunk);
        let labels = &summary["labels"];
        let expected = [("service", "shop"), ("version", "1.2"), ("zone", "eu-1"), ("tier", "web")];
        for (name, value) in expected {
            assert_eq!(labels[name], serde_json::json!([value]), "{}: {labels}", chunk.display());
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(labels["host"], serde_json::json!([host.trim()]));
    }
}

#[test]
fn invalid_labels_are_rejected() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let wrong = record(folder.path(), &["--label", "zone"], &["again", "1"]);
    assert_eq!(wrong.code(), 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("--label <NAME=VALUE>"), "{}", wrong.stderr);
    let mut command = Command::new(victim::flightline());
    command.args(["record", "--repository"]).arg(folder.path()).arg("--").arg(program());
    let wrong = run(command.env("FLIGHTLINE_LABELS", "a b=1"), LIMIT);
    assert_eq!(wrong.code(), 2, "{}", wrong.stderr);
}

/// Only listed programs are recorded; there is no message about the others.
#[test]
fn allow_list_selects_recorded_programs() {
    let _place = beside();
    let name = program().file_name().unwrap().to_string_lossy().into_owned();
    let path = program().display().to_string();
    let cases = [
        (name.clone(), true),
        (format!("nginx, {path}"), true),
        (format!("{}*", &name[..4]), true),
        (format!("nginx,/usr{path}"), false),
        ("daemo".to_owned(), false),
    ];
    for (list, wanted) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut command = preloaded(folder.path());
        command.env("FLIGHTLINE_ALLOW", &list).args(["again", "100"]);
        let done = run(&mut command, LIMIT).expect_success("preloaded");
        assert_eq!(done.stderr, "", "{list}");
        let pid = number(&done, "image ");
        if wanted {
            assert!(samples_in(&read(&finished(folder.path(), pid)), "first_image") > 0, "{list}");
        } else {
            assert!(chunks(folder.path()).is_empty(), "{list}");
        }
    }
}

#[test]
fn program_records_to_repository_by_c_api() {
    let _place = beside();
    let bin = victim::flightline();
    let folder = bin.parent().unwrap().to_string_lossy().into_owned();
    let (path, run_path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let tail = [&*path, "-lflightline", &run_path];
    let program = victim::compile("gcc", "repository_api.c", &["-O2"], &tail);
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    // As in `guests.rs`: the library that was linked, not one that Cargo has built before.
    command.arg(root.path()).env("FLIGHTLINE_BIN", bin).env_remove("LD_LIBRARY_PATH");
    let done = run(&mut command, LIMIT);
    let done = done.expect_success("repository_api");
    assert!(done.stdout_text().starts_with("nowhere 1\nstart 0\nstop 0\n"), "{}", done.stdout_text());
    let files = finished(root.path(), number(&done, "image "));
    most_of(samples_in(&read(&files), "api_work"), 300);
    assert_eq!(summary(&files[0])["labels"]["tier"], serde_json::json!(["web"]));
}

#[test]
fn environment_setting_off_disables_recording() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let mut command = preloaded(folder.path());
    run(command.env("FLIGHTLINE", "off").args(["again", "20"]), LIMIT).expect_success("preloaded");
    assert!(chunks(folder.path()).is_empty());
}

/// A shell on a machine that records the programs in `allow` to a repository.
fn on_a_machine(folder: &Path, allow: &str, script: &str) -> Option<Finished> {
    let root = folder.join("root");
    let settings = format!("repository = {}\nrate=1000 \nallow = nginx\n{allow}", root.display());
    let mut command = machine::shell(folder, &settings, script)?;
    Some(run(command.stdin(Stdio::null()), LIMIT).expect_success(&format!("{command:?}")))
}

#[test]
fn machine_settings_record_only_listed_programs() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let victim = program().display().to_string();
    let script = format!("{victim} again 100 && ls > listing && sh -c '{victim} again 100; true'");
    let Some(done) = on_a_machine(folder.path(), &format!("allow = x, {victim} "), &script) else { return };
    assert_eq!(done.stderr, "");
    let text = done.stdout_text();
    let pids: Vec<u32> = text.lines().filter_map(|line| line.strip_prefix("image ")?.parse().ok()).collect();
    assert_eq!(pids.len(), 2, "{text}");
    let root = folder.path().join("root");
    for pid in &pids {
        let recording = read(&finished(&root, *pid));
        most_of(samples_in(&recording, "first_image"), 100);
        most_of(samples_in(&recording, "second_image"), 100);
    }
    let recorded: Vec<u32> = chunks(&root).into_keys().collect();
    assert_eq!(recorded.len(), 2, "{recorded:?} beside {pids:?}");
}

#[test]
fn machine_settings_exclude_system_and_privileged_programs() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let victim = program().display().to_string();
    // Root is a system user: a pattern does not include its programs.
    let Some(done) = on_a_machine(folder.path(), "allow = *", &format!("{victim} again 50")) else { return };
    assert_eq!(done.stderr, "");
    assert!(!folder.path().join("root").exists());
    // SAFETY: no memory is touched.
    if unsafe { libc::geteuid() } != 0 {
        return skip::other_user("programs with more rights than their caller are made by root");
    }
    let script = format!("cp {victim} other && chgrp 1 other && chmod 2755 other && ./other again 50");
    let folder = tempfile::tempdir().unwrap();
    let done = on_a_machine(folder.path(), "allow = other", &script).unwrap();
    assert_eq!(done.stderr, "");
    assert!(!folder.path().join("root").exists());
    // Without the additional rights the program is recorded.
    let script = format!("cp {victim} other && ./other again 50");
    let folder = tempfile::tempdir().unwrap();
    let done = on_a_machine(folder.path(), "allow = other", &script).unwrap();
    assert!(!finished(&folder.path().join("root"), number(&done, "image ")).is_empty());
}
