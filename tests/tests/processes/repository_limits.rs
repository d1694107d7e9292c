//! The limits of a repository, and failing disks: the program is not affected, losses are counted, and
//! recording resumes.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use flightline_tests::controlled::{Controlled, LIMIT, program};
use flightline_tests::recording::Recording;
use flightline_tests::repository::{chunks, disk, read};
use flightline_tests::run::{beside, run, until, wait};
use flightline_tests::{skip, victim};

/// A recording into a repository, and its recorder's messages as they are printed.
struct Running {
    program: Controlled,
    said: Arc<Mutex<String>>,
}

impl Running {
    fn start(command: &mut Command) -> Running {
        let mut program = Controlled::start(command);
        let said = Arc::new(Mutex::new(String::new()));
        let mut stderr = program.child.stderr.take().unwrap();
        let to = said.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Running { program, said }
    }

    fn into(root: &Path, options: &[&str]) -> Running {
        Running::start(Command::new(victim::flightline()).args(words(root, "1000", options)))
    }

    fn said(&self, what: &str) -> usize {
        self.said.lock().unwrap().matches(what).count()
    }

    #[track_caller]
    fn until_said(&self, what: &str) {
        until(LIMIT, what, || (self.said(what) > 0).then_some(()));
    }

    #[track_caller]
    fn end(&mut self) {
        self.program.tell("end 7");
        assert_eq!(self.program.number("interrupted "), 0);
        let status = wait(&mut self.program.child, LIMIT, "the program's end");
        assert_eq!(status.code(), Some(7), "{}", self.said.lock().unwrap());
    }
}

fn words(root: &Path, rate: &str, options: &[&str]) -> Vec<String> {
    let mut words = vec!["record", "-F", rate, "--flush", "100ms", "--repository"];
    let (root, program) = (root.display().to_string(), program().display().to_string());
    words.push(&root);
    words.extend(options);
    words.extend(["--", &program]);
    words.into_iter().map(str::to_owned).collect()
}

fn samples_in(recording: &Recording, function: &str) -> usize {
    recording.samples.iter().filter(|s| recording.stacks[s.stack].has(function)).count()
}

/// Measures the disk usage until `over`; returns the maximum.
fn watch(root: &Path, size: u64, over: &AtomicBool) -> u64 {
    let mut most = 0;
    while !over.load(Relaxed) {
        let mut now = disk(root);
        if now > size {
            // Either one chunk was removed and another one grew between two readings, or the limit is
            // exceeded. While the lock is held, no recorder changes its files.
            let lock = fs::File::open(root.join(".lock")).unwrap();
            lock.lock().unwrap();
            now = disk(root);
            drop(lock);
            assert!(now <= size, "{now} bytes");
        }
        most = most.max(now);
        thread::sleep(Duration::from_millis(2));
    }
    most
}

/// Two recorders in one root, measured all the time from outside: together they never exceed the limit,
/// although they write more.
#[test]
fn repository_never_exceeds_size_limit() {
    const SIZE: u64 = 1 << 20;
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let options = ["--max-size", "1m", "--chunk-size", "64k"];
    let start =
        || Running::start(Command::new(victim::flightline()).args(words(folder.path(), "10000", &options)));
    let mut both = [start(), start()];
    let over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(folder.path(), SIZE, &over));
        let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
            until(LIMIT, "chunks of both are removed", || {
                thread::scope(|all| {
                    for one in &mut both {
                        all.spawn(|| one.program.work("during", 100));
                    }
                });
                seen.extend(chunks(folder.path()).into_values().flatten());
                let gone: Vec<String> =
                    seen.iter().filter(|p| !p.exists()).map(|p| p.display().to_string()).collect();
                let of = |pid: u32| gone.iter().any(|path| path.contains(&format!("_{pid}/")));
                both.iter().all(|one| of(one.program.pid)).then_some(())
            });
        }));
        over.store(true, Relaxed);
        let most = watching.join().unwrap();
        done.unwrap();
        most
    });
    assert!(most > SIZE / 2, "{most} bytes at most");
    both.iter_mut().for_each(Running::end);
    assert!(disk(folder.path()) <= SIZE);
    // The remaining files are complete.
    for (pid, files) in chunks(folder.path()) {
        assert!(samples_in(&read(&files), "during_work") > 0, "{pid}");
    }
    both.iter().for_each(|one| assert_eq!(one.said("recording pauses"), 0));
}

#[test]
fn chunks_beyond_age_limit_are_removed() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    // The age limit of readers that follow: longer than the requested age.
    let age = Duration::from_secs(10);
    let mut running = Running::into(folder.path(), &["--max-age", "2s", "--chunk-age", "1s"]);
    // (file, when it was written last)
    let mut seen: Vec<(PathBuf, SystemTime)> = Vec::new();
    until(LIMIT, "three chunks are removed", || {
        running.program.work("during", 20);
        for (file, last) in &mut seen {
            match fs::metadata(&*file).and_then(|m| m.modified()) {
                Ok(written) => *last = written,
                // No file is removed before its age is reached.
                Err(_) => assert!(last.elapsed().unwrap() >= age, "{file:?} {last:?}"),
            }
        }
        for file in chunks(folder.path()).into_values().flatten() {
            if let Ok(written) = fs::metadata(&file).and_then(|m| m.modified())
                && !seen.iter().any(|(known, _)| *known == file)
            {
                seen.push((file, written));
            }
        }
        (seen.iter().filter(|(file, _)| !file.exists()).count() >= 3).then_some(())
    });
    running.end();
    let left = chunks(folder.path()).remove(&running.program.pid).unwrap();
    assert!(samples_in(&read(&left), "during_work") > 0);
}

#[test]
fn removed_root_directory_is_recreated() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let mut running = Running::into(&root, &[]);
    running.program.work("before", 50);
    until(LIMIT, "a chunk", || chunks(&root).remove(&running.program.pid));
    fs::remove_dir_all(&root).unwrap();
    until(LIMIT, "it is noticed", || {
        running.program.work("paused", 20);
        (running.said("recording pauses until the output can be written again") > 0).then_some(())
    });
    running.until_said("recording again after");
    running.program.work("after", 200);
    running.end();
    let files = chunks(&root).remove(&running.program.pid).unwrap();
    let recording = read(&files);
    assert!(samples_in(&recording, "after_work") > 100, "{}", samples_in(&recording, "after_work"));
    assert_eq!(running.said("recording pauses"), 1);
}

/// The present chunks of a process. If the one being written is read incompletely, it is left out.
fn copies(root: &Path, pid: u32) -> Vec<Recording> {
    let copy = tempfile::NamedTempFile::new().unwrap();
    let files = chunks(root).remove(&pid).unwrap_or_default();
    let copied = files.iter().filter(|file| fs::copy(file, copy.path()).is_ok());
    copied.filter_map(|_| Recording::read(copy.path()).ok()).collect()
}

/// Samples of a function that are on the disk.
fn on_disk(root: &Path, pid: u32, function: &str) -> usize {
    copies(root, pid).iter().map(|recording| samples_in(recording, function)).sum()
}

/// Starts the recorder in a mount namespace of its own; `None` if that is not permitted.
fn with_small_disk(folder: &Path, mount: &str) -> Option<Running> {
    let allowed = run(Command::new("unshare").args(["--map-root-user", "--mount", "true"]), LIMIT);
    if !allowed.status.success() {
        skip::skip("no mount namespaces here: disks that refuse were not tried");
        return None;
    }
    let script = format!("{mount} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"]).arg(victim::flightline());
    Some(Running::start(command.args(words(&folder.join("disk/root"), "1000", &[])).current_dir(folder)))
}

/// The disk as the recorder sees it.
fn seen_by(running: &Running, folder: &Path) -> PathBuf {
    let recorder = running.program.child.id();
    PathBuf::from(format!("/proc/{recorder}/root{}", folder.join("disk").display()))
}

#[test]
fn full_disk_pauses_recording() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("disk")).unwrap();
    let Some(mut running) = with_small_disk(folder.path(), "mount -t tmpfs -o size=1m none disk") else {
        return;
    };
    let disk = seen_by(&running, folder.path());
    running.program.work("before", 200);
    let pid = running.program.pid;
    let root = disk.join("root");
    until(LIMIT, "samples on the disk", || (on_disk(&root, pid, "before_work") > 100).then_some(()));
    let filler = disk.join("filler");
    // Fills the disk, and again when the recorder has freed some space.
    let fill = || {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
    };
    until(LIMIT, "it is noticed", || {
        fill();
        running.program.work("paused", 50);
        (running.said("No space left on device; recording pauses until the output can be written again") > 0)
            .then_some(())
    });
    running.program.work("paused", 300);
    fs::remove_file(&filler).unwrap();
    running.until_said("recording again after");
    running.program.work("after", 300);
    // The mount ends with the last process in its namespace, so it is checked before.
    until(LIMIT, "what was recorded after it", || (on_disk(&root, pid, "after_work") > 150).then_some(()));
    assert!(on_disk(&root, pid, "before_work") > 100);
    let losses = copies(&root, pid).into_iter().flat_map(|r| r.losses);
    let lost: u64 = losses.filter(|l| l.cause == "output full").map(|l| l.samples).sum();
    // Three threads of 300 ms each while nothing could be written.
    assert!(lost > 300, "{lost} samples lost");
    let pauses =
        copies(&root, pid).iter().filter_map(|r| r.events.get("flightline.Outage").copied()).sum::<u64>();
    assert_eq!(pauses, 1);
    let mut summary = Command::new(victim::flightline());
    let text = run(summary.arg("summary").arg(&root), LIMIT).expect_success("summary").stdout_text();
    let line = text.lines().find(|line| line.starts_with("Paused: for ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("No space left on device") && !line.contains(" 0 samples"), "{line}");
    assert_eq!((running.said("recording pauses"), running.said("recording again")), (1, 1));
    running.end();
}

#[test]
fn recording_starts_when_read_only_disk_becomes_writable() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("disk")).unwrap();
    let mount = "mount -t tmpfs -o size=4m,ro none disk";
    let Some(mut running) = with_small_disk(folder.path(), mount) else { return };
    running.until_said("Read-only file system; recording pauses until the output can be written again");
    running.program.work("paused", 50);
    let recorder = running.program.child.id().to_string();
    let mut again = Command::new("nsenter");
    again.args(["--user", "--preserve-credentials", "--mount", "--target", &recorder]);
    again.args(["mount", "-o", "remount,rw"]).arg(folder.path().join("disk"));
    run(&mut again, LIMIT).expect_success("remount");
    running.until_said("recording again after");
    running.program.work("after", 200);
    let root = seen_by(&running, folder.path()).join("root");
    let pid = running.program.pid;
    until(LIMIT, "samples of after", || (on_disk(&root, pid, "after_work") > 100).then_some(()));
    running.end();
}
