//! Repositories read while they are written: by the JDK's event streams, and by ourselves.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use flightline_tests::canonical::{self, time_of};
use flightline_tests::follower::{Follower, Killed, Lines};
use flightline_tests::foreign::{self, Followed, Stream};
use flightline_tests::run::{beside, children, run, signal, spawn, until, wait};
use flightline_tests::victim::{self, flightline};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// More CPU time than a test needs: the program is ended after the check.
const LONG: &str = "10000000";

/// A program that is recorded to a repository until it is terminated.
struct Recorder {
    drain: Killed,
    told: Lines,
    pid: u32,
    root: PathBuf,
    /// The program's folder in it.
    folder: PathBuf,
}

impl Recorder {
    #[track_caller]
    fn start(work: &Path, chunk_age: &str, options: &[&str]) -> Recorder {
        let program = victim::c("ticking", victim::OPTIMISED);
        let root = work.join("repository");
        let mut command = Command::new(flightline());
        command
            .args(["record", "--rate", "1000", "--chunk-age", chunk_age, "--repository"])
            .arg(&root)
            .args(options);
        command.arg("--").arg(program).arg(LONG).env("TRUTH_FILE", work.join("truth.tsv"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut drain = spawn(&mut command);
        let told = Lines::of(drain.stderr.take().unwrap());
        let folder = until(LIMIT, "the first chunk", || {
            let folder = fs::read_dir(&root).ok()?.flatten().map(|e| e.path()).find(|p| p.is_dir())?;
            (!chunks(&folder).is_empty()).then_some(folder)
        });
        let pid = folder.file_name().unwrap().to_str().unwrap().rsplit('_').next().unwrap().parse().unwrap();
        assert!(children(drain.id()).contains(&pid), "the folder is the program's: {folder:?}");
        Recorder { drain: Killed(drain), told, pid, root, folder }
    }

    /// Ends the program and returns the recorder's messages.
    #[track_caller]
    fn end(mut self) -> String {
        signal(self.pid, libc::SIGTERM);
        wait(&mut self.drain.0, LIMIT, "the recorder after its program's end");
        self.told.all().join("\n")
    }
}

/// The chunks of a folder in order.
fn chunks(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut found: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "jfr")).collect();
    found.sort_by_key(|p| p.file_stem().map(ToOwned::to_owned));
    found
}

/// The samples of some chunks, in byte order.
fn samples(chunks: &[PathBuf]) -> Vec<String> {
    let mut lines = Vec::new();
    for chunk in chunks {
        let contents = canonical::of_file(chunk).unwrap();
        assert_eq!(contents.warnings, Vec::<String>::new(), "{chunk:?}");
        lines.extend(contents.samples);
    }
    lines.sort_unstable();
    lines
}

/// Event streams of both JDKs on a path.
fn streams(path: &Path, what: &str) -> Vec<Follower> {
    let follow = |jdk: &&str| {
        let child = foreign::follow(jdk, Followed::Repository(path), 2 * LIMIT);
        Follower::new(format!("{jdk} on {what}"), child)
    };
    ["jdk17", "jdk25"].iter().map(follow).collect()
}

/// Returns true if a line of a stream is an event after that moment.
fn after(line: &str, moment: i64) -> bool {
    line.split_once('\t').is_some_and(|(_, line)| time_of(line) > moment)
}

/// Start of a chunk as its header has it, ns since 1970.
fn start_of(chunk: &Path) -> i64 {
    let mut header = [0; 40];
    File::open(chunk).unwrap().read_exact(&mut header).unwrap();
    i64::from_be_bytes(header[32..].try_into().unwrap())
}

/// Panics unless the stream closed by itself; returns its samples in byte order.
#[track_caller]
fn closed(follower: Follower) -> Vec<String> {
    let who = follower.who.clone();
    let (_, lines, errors) = follower.end();
    let stream = Stream::parse(&lines.join("\n"));
    assert!(stream.closed, "{who}: {} events, not closed; {errors}", stream.events.len());
    assert_eq!(errors.lines().find(|l| l.contains("error")), None, "{who}");
    // The delays of events during the stream; events from before its start are older.
    let delays = stream.delays();
    eprintln!(
        "{who}: {} events, shortest delay {} ms, median {} ms",
        delays.len(),
        delays[0] / 1_000_000,
        delays[delays.len() / 2] / 1_000_000
    );
    stream.sorted()
}

fn output(args: &[&str], paths: &[&Path]) -> String {
    let done = run(Command::new(flightline()).args(args).args(paths).stdin(Stdio::null()), LIMIT);
    let done = done.expect_success(&format!("{args:?}"));
    assert_eq!(done.stderr, "", "{args:?}");
    done.stdout_text()
}

#[test]
fn both_jdks_and_tail_follow_repository_and_commands_agree() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(work.path(), "1s", &[]);
    let (root, folder) = (recorder.root.clone(), recorder.folder.clone());
    let mut followers = streams(&folder, "folder");
    followers.extend(streams(&root, "root"));
    let tail = Follower::tail(&[
        folder.to_str().unwrap(),
        "--from-start",
        "--ndjson",
        "--events",
        "ExecutionSample",
        "--stack-depth",
        "1",
    ]);
    // The stream shows the fourth chunk from here only if it follows the recording while the program runs.
    let seen = chunks(&folder).len();
    let chunk = until(LIMIT, "more chunks", || chunks(&folder).get(seen + 2).cloned());
    let start = until(LIMIT, "its header", || (chunk.metadata().ok()?.len() > 68).then(|| start_of(&chunk)));
    for follower in &followers {
        follower.until("an event of a later chunk", |line| after(line, start));
    }
    // During writing, readers silently read up to the length in the header.
    let summary: Value = serde_json::from_str(&output(&["summary", "--json"], &[&root])).unwrap();
    assert!(summary["chunks"].as_u64().unwrap() > 3, "{summary}");
    recorder.end();

    let all = chunks(&folder);
    let truth = samples(&all);
    assert!(all.len() > 3 && !truth.is_empty(), "{} chunks, {} samples", all.len(), truth.len());
    for follower in followers {
        let who = follower.who.clone();
        assert_eq!(closed(follower), truth, "{who}");
    }
    let (code, lines, errors) = tail.end();
    assert_eq!((code, lines.len(), errors.as_str()), (0, truth.len(), ""));

    // The same recording, in one file or in several.
    let joined = work.path().join("joined.jfr");
    run(Command::new(flightline()).arg("assemble").arg(&folder).arg("-o").arg(&joined), LIMIT)
        .expect_success("assemble");
    for args in [
        &["fold"][..],
        &["fold", "--last", "2s"],
        &["fold", "--from", "1", "--to", "2.5"],
        &["print", "--events", "ExecutionSample,SampleLoss"],
        &["print", "--ndjson", "--last", "1500ms"],
        &["view", "hot-methods"],
        &["view", "hot-methods", "--last", "2s"],
        &["metadata", "--json"],
    ] {
        let one = output(args, &[&joined]);
        for path in [&root, &folder] {
            assert_eq!(output(args, &[path]), one, "{args:?} of {path:?}");
        }
        assert!(one.len() > 20, "{args:?}: {one}");
    }
    let counts = |path: &Path| -> BTreeMap<String, Value> {
        let summary: Value = serde_json::from_str(&output(&["summary", "--json"], &[path])).unwrap();
        summary.as_object().unwrap().clone().into_iter().collect()
    };
    assert_eq!(counts(&root), counts(&joined));
    let last = run(Command::new(flightline()).args(["summary", "--json", "--last", "1s"]).arg(&root), LIMIT);
    let last: Value = serde_json::from_str(&last.stdout_text()).unwrap();
    assert!(last["chunks"].as_u64().unwrap() < all.len() as u64, "{last}");
    // Any finished chunk is a recording.
    for jdk in ["jdk17", "jdk25", "jmc"] {
        assert_eq!(foreign::lines(jdk, &all[1]).unwrap().len(), samples(&all[1..2]).len(), "{jdk}");
    }
}

/// The disk is full: chunks end early, old ones are removed, recording continues later, and streams continue
/// with it.
#[test]
fn streams_continue_after_pause_and_removed_chunks() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    // The JDK ends a stream if a listed chunk is gone before it is opened; it has ten seconds for each.
    let recorder = Recorder::start(work.path(), "10s", &["--max-size", "1M"]);
    let folder = recorder.folder.clone();
    let followers = streams(&folder, "folder");
    let tail = Follower::tail(&[
        folder.to_str().unwrap(),
        "--from-start",
        "--ndjson",
        "--events",
        "ExecutionSample",
    ]);
    let before = until(LIMIT, "a second chunk", || {
        let now = chunks(&folder);
        (now.len() > 1 && now.last()?.metadata().ok()?.len() > 68).then_some(now)
    });
    let start = start_of(before.last().unwrap());
    for follower in &followers {
        follower.until("an event of the second chunk", |line| after(line, start));
    }
    tail.until("the first event", |line| line.contains("ExecutionSample"));
    // A chunk of another recording uses up the permitted space while it is being written.
    let other = recorder.root.join("2020_01_01_00_00_00_1");
    fs::create_dir(&other).unwrap();
    let blocker = File::create(other.join("2020_01_01_00_00_00.jfr")).unwrap();
    blocker.lock().unwrap();
    std::io::copy(&mut std::io::repeat(1).take(1 << 20), &mut &blocker).unwrap();
    recorder.told.until("the pause", |line| line.contains("pauses"));
    // The pause lasts as long as the other chunk is locked. Status queries report it as soon as the recorder
    // answers.
    until(LIMIT, "it is listed as paused", || {
        let list: Value = serde_json::from_str(&output(&["repositories", "--json"], &[])).unwrap();
        let paused =
            |row: &Value| row["state"] == "paused" && row["path"].as_str().map(Path::new) == Some(&folder);
        list["recordings"].as_array().unwrap().iter().any(paused).then_some(())
    });
    // Finished chunks were removed to make space before the recording paused.
    let kept = chunks(&folder);
    assert!(before.iter().rev().skip(1).all(|old| !kept.contains(old)), "{before:?} {kept:?}");
    drop(blocker);
    fs::remove_dir_all(&other).unwrap();
    let known = chunks(&folder);
    let chunk = until(LIMIT, "a chunk after the pause", || {
        chunks(&folder)
            .into_iter()
            .find(|chunk| !known.contains(chunk) && chunk.metadata().is_ok_and(|m| m.len() > 68))
    });
    let start = start_of(&chunk);
    for follower in &followers {
        follower.until("an event from after the pause", |line| after(line, start));
    }
    let told = recorder.end();
    assert!(told.contains("recording again after"), "{told}");
    let truth = samples(&chunks(&folder));
    assert!(!truth.is_empty());
    for follower in followers {
        let who = follower.who.clone();
        let seen = closed(follower);
        let missed = truth.iter().filter(|line| seen.binary_search(line).is_err()).count();
        assert_eq!(missed, 0, "{who} of {}", truth.len());
    }
    let (code, lines, errors) = tail.end();
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(lines.len() >= truth.len(), "{} of {}", lines.len(), truth.len());
}

#[test]
fn tail_finds_program_and_prints_events_and_tables() {
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(work.path(), "1s", &[]);
    let pid = recorder.pid.to_string();
    let events = Follower::tail(&["-p", &pid, "--events", "ExecutionSample"]);
    let tables = Follower::tail(&[
        recorder.root.to_str().unwrap(),
        "--top=5",
        "--json",
        "--every",
        "300",
        "--window",
        "3s",
    ]);
    events.until("an event", |line| line.starts_with("jdk.ExecutionSample {"));
    tables.until("a table", |line| {
        let table: Value = serde_json::from_str(line).unwrap();
        let functions = table["functions"].as_array().unwrap();
        let sums = functions.iter().map(|f| f["self"].as_u64().unwrap()).sum::<u64>();
        assert!(functions.len() <= 5 && sums <= table["total"].as_u64().unwrap(), "{table}");
        functions.iter().any(|f| f["function"] == "worker" && f["self"].as_u64() > Some(0))
    });
    // A reader of a repository waits for more until it is interrupted.
    tables.interrupt();
    let (code, lines, errors) = tables.end();
    assert_eq!((code, errors.as_str()), (0, ""), "{lines:?}");
    recorder.end();
    let (code, _, errors) = events.end();
    assert_eq!((code, errors.as_str()), (0, ""));
    let gone = run(Command::new(flightline()).args(["tail", "-p", &pid]), LIMIT);
    assert_eq!(gone.code(), 1);
    assert_eq!(gone.stderr.lines().count(), 1, "{}", gone.stderr);
}

/// Recorder and program are killed: the data left in shared memory is printed too, and then the stream ends.
#[test]
fn tail_prints_recovered_data_from_killed_recorder() {
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::start(work.path(), "1s", &[]);
    let folder = recorder.folder.clone();
    let tail = Follower::tail(&[
        folder.to_str().unwrap(),
        "--from-start",
        "--ndjson",
        "--events",
        "ExecutionSample",
    ]);
    tail.until("an event", |line| line.contains("ExecutionSample"));
    signal(recorder.drain.0.id(), libc::SIGKILL);
    signal(recorder.pid, libc::SIGKILL);
    wait(&mut recorder.drain.0, LIMIT, "the recorder, killed");
    let (code, lines, errors) = tail.end();
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("recovered from shared memory"), "{errors}");
    assert_eq!(lines.len(), samples(&chunks(&folder)).len());
}

/// Two programs at once: events are printed in the order of time, not program by program.
#[test]
fn tail_merges_processes_in_time_order() {
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    let (program, root) = (victim::c("ticking", victim::OPTIMISED), work.path().join("repository"));
    let mut command = Command::new(flightline());
    command.args(["record", "--rate", "1000", "--chunk-age", "1s", "--repository"]).arg(&root);
    let script = format!("'{0}' 2500 & '{0}' 2500; wait", program.display());
    command.args(["--", "sh", "-c", &script]).env("TRUTH_FILE", work.path().join("truth.tsv"));
    run(command.stdin(Stdio::null()), LIMIT).expect_success("two programs");
    let folders: Vec<PathBuf> = fs::read_dir(&root).unwrap().flatten().map(|e| e.path()).collect();
    // The shell only waits.
    let busy = folders.iter().map(|folder| chunks(folder)).filter(|all| samples(all).len() > 500);
    let spans: Vec<(i64, i64, usize)> = busy
        .filter_map(|all| Some((start_of(all.first()?), start_of(all.last()?), all.len())))
        .filter(|span| span.2 > 2)
        .collect();
    assert_eq!(spans.len(), 2, "{folders:?}");
    let together = spans[0].1.min(spans[1].1) > spans[0].0.max(spans[1].0);
    assert!(together, "they ran at the same time: {spans:?}");
    let truth: usize = folders.iter().map(|folder| samples(&chunks(folder)).len()).sum();
    let tail = Follower::tail(&[
        root.to_str().unwrap(),
        "--from-start",
        "--events",
        "ExecutionSample",
        "--stack-depth",
        "1",
    ]);
    let events = |lines: &[String]| lines.iter().filter(|l| l.starts_with("jdk.ExecutionSample {")).count();
    until(LIMIT, "all events", || {
        thread::sleep(Duration::from_millis(50));
        (events(&tail.so_far()) == truth).then_some(())
    });
    tail.interrupt();
    let (code, lines, errors) = tail.end();
    assert_eq!((code, errors.as_str(), events(&lines)), (0, "", truth));
    // Printed program by program, the header would change only once.
    let changes = lines.iter().filter(|line| line.starts_with("==> ")).count();
    assert!(changes >= spans[0].2.min(spans[1].2), "{changes} of {spans:?}");
}
