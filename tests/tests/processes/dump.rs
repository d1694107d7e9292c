//! Copies of running recordings, requested by the command, by a signal or by conditions. The order of
//! commands and counts determine their contents, not a clock.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flightline_tests::controlled::{Controlled, LIMIT, ctl, program};
use flightline_tests::recording::Recording;
use flightline_tests::run::{Finished, beside, collect, run, signal, spawn, until, wait};
use flightline_tests::{foreign, victim};
use serde_json::Value;
use tempfile::TempDir;

/// The CPU time of a phase of each of the program's three threads in ms.
const MS: u32 = 60;

/// The program's functions that burn CPU time.
const WORKS: [&str; 4] = ["before_work", "during_work", "resumed_work", "after_work"];

/// The program's functions that a recording has samples of.
#[track_caller]
fn seen(path: &Path) -> BTreeSet<String> {
    let recording = Recording::read(path).unwrap();
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    let frames = recording.samples.iter().flat_map(|s| &recording.stacks[s.stack].frames);
    frames.map(|f| f.method.clone()).filter(|m| WORKS.contains(&m.as_str())).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| format!("{name}_work")).collect()
}

/// A copy does not wait long for symbols that are being read, so the test waits for them before.
fn dump(args: &[&str], output: &Path) -> Finished {
    if let ["-p", pid, ..] = args {
        ctl(pid.parse().unwrap(), &["dump"]);
    }
    let mut command = Command::new(victim::flightline());
    run(command.args(["dump", "--json", "-o"]).arg(output).args(args), LIMIT)
}

/// Runs a dump that must succeed, and returns the report of its only copy.
#[track_caller]
fn dumped(args: &[&str], output: &Path) -> Value {
    let finished = dump(args, output).expect_success("flightline dump");
    let answer: Value = serde_json::from_slice(&finished.stdout).unwrap();
    assert_eq!(answer["dumps"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(answer["dumps"][0]["bytes"], fs::metadata(output).unwrap().len(), "{answer}");
    answer["dumps"][0].clone()
}

/// The program, recorded at 1 kHz with these options into a repository.
#[track_caller]
fn kept(folder: &Path, options: &[&str]) -> Controlled {
    let mut command = Command::new(victim::flightline());
    command.args(["record", "-F", "1000", "--flush", "100ms", "--repository"]).arg(folder).args(options);
    Controlled::start(command.arg("--").arg(program()))
}

fn recorder_of(victim: &Controlled) -> u32 {
    u32::try_from(victim.ask(&["status"])["pid"].as_u64().unwrap()).unwrap()
}

fn jfr_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut files: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "jfr")).collect();
    files.sort();
    files
}

/// Both JDKs read the file and see the samples that we see.
#[track_caller]
fn jdks_agree(path: &Path) {
    let own = Recording::read(path).unwrap().samples.len();
    if !foreign::ready() {
        return;
    }
    for jdk in ["jdk17", "jdk25"] {
        let lines = foreign::lines(jdk, path).unwrap_or_else(|e| panic!("{jdk} on {}: {e}", path.display()));
        assert_eq!(lines.len(), own, "{jdk}");
    }
}

#[test]
fn repository_is_dumped_while_it_is_written() {
    let _place = beside();
    let folder = TempDir::new().unwrap();
    let (repository, out) = (folder.path().join("repo"), folder.path().join("out.jfr"));
    let mut victim = kept(&repository, &["--chunk-age", "1s"]);
    let pid = victim.pid.to_string();
    victim.work("before", MS);
    victim.work("during", MS);
    // Chunks rotate once a second of wall-clock time. The test needs several chunks, but no exact number.
    let chunks = until(LIMIT, "three chunks", || {
        let of = fs::read_dir(&repository).unwrap().flatten().map(|e| jfr_files(&e.path()).len()).max();
        of.filter(|n| *n >= 3)
    });
    victim.work("resumed", MS);
    let said = dumped(&["-p", &pid], &out);
    assert!(said["chunks"].as_u64().unwrap() as usize >= chunks - 1, "{said}, {chunks} chunks");
    assert_eq!(said["pid"], victim.pid);
    // All work before the command is in the copy, including that in the unfinished chunk.
    assert_eq!(seen(&out), set(&["before", "during", "resumed"]));
    jdks_agree(&out);
    let again = dump(&["-p", &pid], &out);
    assert!(again.code() == 1 && again.stderr.contains("--force"), "{}", again.stderr);
    // The same by the folder's name, replacing the old copy.
    victim.work("after", MS);
    victim.ask(&["dump"]);
    let by_path = dumped(&[repository.to_str().unwrap(), "--force"], &out);
    assert_eq!(by_path["pid"], victim.pid);
    assert_eq!(seen(&out), set(&["before", "during", "resumed", "after"]));
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    // By the recorder's own id.
    let recorder = recorder_of(&victim).to_string();
    dumped(&["-p", &recorder, "--force"], &out);
    assert_eq!(victim.end(0), 0);
    // The program has ended: its folder still is a recording, but there is no process.
    let gone = dump(&["-p", &pid, "--force"], &out);
    assert!(gone.code() == 1 && gone.stderr.lines().count() == 1, "{}", gone.stderr);
    dumped(&[repository.to_str().unwrap(), "--force"], &out);
    assert_eq!(seen(&out), set(&["before", "during", "resumed", "after"]));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 2, "nothing half is left: {left:?}");
}

#[test]
fn file_recording_is_dumped_to_file_and_pipe() {
    let _place = beside();
    let folder = TempDir::new().unwrap();
    let (path, out) = (folder.path().join("run.jfr"), folder.path().join("out.jfr"));
    // The flush interval is too long to matter, so the copy's data was written because of the request.
    let mut victim = Controlled::recorded(&path, &["-F", "1000", "--flush", "600s"]);
    let pid = victim.pid.to_string();
    victim.work("before", MS);
    dumped(&["-p", &pid], &out);
    assert_eq!(seen(&out), set(&["before"]));
    jdks_agree(&out);
    victim.work("during", MS);
    victim.ask(&["dump"]);
    let mut piped = Command::new(victim::flightline());
    let piped = run(piped.args(["dump", "-p", &pid, "-o", "-"]), LIMIT).expect_success("dump to a pipe");
    fs::write(&out, piped.stdout).unwrap();
    assert_eq!(seen(&out), set(&["before", "during"]));
    victim.work("after", MS);
    let onto_itself = dump(&["-p", &pid, "--force"], &path);
    assert!(
        onto_itself.code() == 2 && onto_itself.stderr.contains(path.to_str().unwrap()),
        "{}",
        onto_itself.stderr
    );
    victim.end(0);
    assert_eq!(seen(&path), set(&["before", "during", "after"]));
}

/// Data before the window is left out: whole chunks, or exactly all earlier events.
#[test]
fn last_option_dumps_only_time_window() {
    let _place = beside();
    let folder = TempDir::new().unwrap();
    let (repository, out) = (folder.path().join("repo"), folder.path().join("out.jfr"));
    let mut victim = kept(&repository, &["--chunk-age", "1s"]);
    let pid = victim.pid.to_string();
    victim.work("before", MS);
    let after_first = Instant::now();
    until(LIMIT, "several chunks more", || {
        let folders = fs::read_dir(&repository).unwrap().flatten();
        (folders.flat_map(|e| jfr_files(&e.path())).count() >= 5).then_some(())
    });
    let gap = after_first.elapsed();
    victim.work("during", MS);
    // A window that begins after the first phase, and before the second one if the command is fast enough.
    let window = |options: &[&str]| {
        let last = after_first.elapsed();
        let last_ms = format!("{}ms", last.as_millis());
        let words = [&["-p", &pid, "--force", "--last", &last_ms], options].concat();
        let said = dumped(&words, &out);
        (after_first.elapsed() - last < gap).then_some(said)
    };
    let whole = until(LIMIT, "a command in time", || window(&["--whole-chunks"]));
    assert!(seen(&out).contains("during_work"), "{whole}");
    let cut = until(LIMIT, "a command in time", || window(&[]));
    assert_eq!(seen(&out), set(&["during"]), "{cut}");
    jdks_agree(&out);
    let all = dumped(&["-p", &pid, "--last", "1h", "--force"], &out);
    assert_eq!(seen(&out), set(&["before", "during"]), "{all}");
    assert!(all["chunks"].as_u64() >= whole["chunks"].as_u64(), "{all} {whole}");
    victim.end(0);
    std::thread::sleep(Duration::from_secs(2));
    let old = dump(&[repository.to_str().unwrap(), "--last", "1ms", "--force"], &out);
    assert!(old.code() == 1 && old.stderr.lines().count() == 1, "{}", old.stderr);
}

/// Two processes with a recording each: one file for each, or only the selected one.
#[test]
fn several_processes_are_dumped_together_or_separately() {
    let _place = beside();
    let folder = TempDir::new().unwrap();
    let repository = folder.path().join("repo");
    let mut victim = kept(&repository, &[]);
    victim.work("before", MS);
    let parent = victim.pid;
    victim.tell("fork");
    let child = victim.number("child ");
    victim.work("during", MS);
    let recorder = recorder_of(&victim).to_string();
    // All in one file: by the recorder, by the parent, and by the repository.
    let one = folder.path().join("one.jfr");
    let parent_id = parent.to_string();
    for target in [&["-p", &recorder][..], &["-p", &parent_id], &[repository.to_str().unwrap()]] {
        let said = dumped(&[target, &["--force", "--last", "1h"]].concat(), &one);
        assert_eq!(seen(&one), set(&["before", "during"]), "{target:?}: {said}");
    }
    jdks_agree(&one);
    dumped(&["-p", &parent_id, "--no-follow", "--force"], &one);
    assert_eq!(seen(&one), set(&["before"]));
    dump(&["-p", &recorder], &folder.path().join("out-%p.jfr")).expect_success("a file for each");
    let of = |pid: u32| seen(&folder.path().join(format!("out-{pid}.jfr")));
    assert_eq!(of(parent), set(&["before"]));
    assert_eq!(of(child), set(&["during"]));
    let out = folder.path().join("child.jfr");
    dumped(&["-p", &child.to_string()], &out);
    assert_eq!(seen(&out), of(child));
    // `tail` follows the children too.
    let followed = folder.path().join("followed");
    let mut tail = Command::new(victim::flightline());
    tail.args(["tail", "-p", &parent_id, "--from-start", "--ndjson", "--events", "ExecutionSample"]);
    let mut tail = spawn(tail.stdout(fs::File::create(&followed).unwrap()));
    until(LIMIT, "samples of both processes", || {
        let text = fs::read_to_string(&followed).unwrap();
        ["before_work", "during_work"].iter().all(|function| text.contains(function)).then_some(())
    });
    tail.kill().unwrap();
    tail.wait().unwrap();
    let mut list = Command::new(victim::flightline());
    let list = run(list.args(["repositories", "--json"]), LIMIT).expect_success("flightline repositories");
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let here = list["recordings"].as_array().unwrap().iter();
    let ours: Vec<&Value> = here.filter(|r| r["recorder"] == recorder_of(&victim)).collect();
    assert_eq!(ours.len(), 2, "{list}");
    for (row, pid) in ours.iter().zip([parent, child]) {
        assert_eq!((&row["pid"], &row["state"]), (&pid.into(), &"recording".into()), "{row}");
        assert!(Path::new(row["path"].as_str().unwrap()).starts_with(&repository), "{row}");
        assert!(row["bytes"].as_u64() > Some(0) && !row["name"].as_str().unwrap().is_empty(), "{row}");
    }
    victim.end(0);
}

/// The recording of a killed recorder is completed, then copied.
#[test]
fn killed_recorder_data_is_recovered_before_dump() {
    let _place = beside();
    let folder = TempDir::new().unwrap();
    let (repository, out) = (folder.path().join("repo"), folder.path().join("out.jfr"));
    let mut command = Command::new(victim::flightline());
    command.args(["record", "-F", "1000", "--flush", "600s", "--repository"]).arg(&repository);
    let mut victim = Controlled::start(command.arg("--").arg(program()));
    victim.work("before", MS);
    let recorder = recorder_of(&victim);
    signal(recorder, libc::SIGKILL);
    wait(&mut victim.child, LIMIT, "the killed recorder");
    let mut list = Command::new(victim::flightline());
    let list = run(list.arg("repositories"), LIMIT).expect_success("flightline repositories").stdout_text();
    let folder_of = fs::read_dir(&repository).unwrap().flatten().next().unwrap().path();
    let row = list.lines().find(|line| line.ends_with(folder_of.to_str().unwrap()));
    assert!(row.is_some_and(|row| row.contains(" killed ")), "{list}");
    let said = dumped(&["-p", &victim.pid.to_string()], &out);
    assert_eq!(seen(&out), set(&["before"]), "{said}");
    jdks_agree(&out);
}

#[test]
fn dumps_are_written_on_signal_and_at_exit() {
    let _place = beside();
    let folder = TempDir::new().unwrap();
    let (repository, dumps) = (folder.path().join("repo"), folder.path().join("dumps"));
    let options = ["--dump-signal", "USR1", "--dump-on", "exit!=0,signal", "--dump-keep", "2", "--dump-dir"];
    let mut victim = kept(&repository, &[&options[..], &[dumps.to_str().unwrap()]].concat());
    victim.work("before", MS);
    let recorder = recorder_of(&victim);
    victim.ask(&["dump"]);
    signal(recorder, libc::SIGUSR1);
    let first = until(LIMIT, "the first copy", || jfr_files(&dumps).into_iter().next());
    assert_eq!(seen(&first), set(&["before"]));
    let name = first.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.ends_with(&format!("_{}_asked.jfr", victim.pid)), "{name}");
    victim.work("during", MS);
    signal(recorder, libc::SIGUSR1);
    until(LIMIT, "the second copy", || (jfr_files(&dumps).len() == 2).then_some(()));
    victim.work("after", MS);
    let pid = victim.pid;
    victim.end(3);
    let files = jfr_files(&dumps);
    assert!(!first.exists() && files.len() == 2, "two are kept, the newest: {files:?}");
    let last = files.iter().find(|p| p.to_str().unwrap().ends_with(&format!("_{pid}_exit.jfr"))).unwrap();
    assert_eq!(seen(last), set(&["before", "during", "after"]));
    let mut print = Command::new(victim::flightline());
    let print = run(print.args(["print", "--events", "flightline.Notice"]).arg(&files[0]), LIMIT);
    assert!(print.stdout_text().contains("SIGUSR1"), "{}", print.stdout_text());
    jdks_agree(last);
}

/// Runs `program` recorded with a condition until a copy is there, or until it ends.
struct Conditioned {
    dumps: PathBuf,
    stderr: String,
    code: i32,
    _folder: TempDir,
}

#[track_caller]
fn conditioned(condition: &str, program: &Path, args: &[&str], until_copied: bool) -> Conditioned {
    let folder = TempDir::new().unwrap();
    let dumps = folder.path().join("dumps");
    let mut command = Command::new(victim::flightline());
    command.args(["record", "-F", "1000", "--dump-on", condition, "--dump-dir"]).arg(&dumps);
    command.arg("-o").arg(folder.path().join("run.jfr")).arg("--").arg(program).args(args);
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()));
    let stderr = collect(child.stderr.take().unwrap());
    if until_copied {
        until(LIMIT, condition, || jfr_files(&dumps).first().map(|_| ()));
        drop(child.stdin.take());
    }
    let code = wait(&mut child, LIMIT, condition);
    use std::os::unix::process::ExitStatusExt;
    let code = code.code().unwrap_or_else(|| 128 + code.signal().unwrap_or(0));
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    Conditioned { dumps, stderr, code, _folder: folder }
}

impl Conditioned {
    /// The only copy; its name ends in `_WORD.jfr`, and it has samples of `function`, if given.
    #[track_caller]
    fn copied(&self, word: &str, function: Option<&str>) {
        let files = jfr_files(&self.dumps);
        assert_eq!(files.len(), 1, "{files:?}\n{}", self.stderr);
        assert!(files[0].to_str().unwrap().ends_with(&format!("_{word}.jfr")), "{files:?}");
        let recording = Recording::read(&files[0]).unwrap();
        assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
        let mut frames = recording.stacks.iter().flat_map(|s| &s.frames);
        assert!(function.is_none_or(|f| frames.any(|frame| frame.method == f)), "no {function:?}");
        assert!(self.stderr.contains(files[0].file_name().unwrap().to_str().unwrap()), "{}", self.stderr);
    }
}

#[test]
fn stuck_thread_triggers_dump() {
    let _place = beside();
    let program = victim::c("stuck", victim::OPTIMISED);
    let stuck = conditioned("stuck>2s", &program, &["run"], true);
    stuck.copied("stuck", Some("spin_for_ever"));
    assert!(stuck.stderr.contains("has run with the same callers"), "{}", stuck.stderr);
    // Only threads that wait for a lock that is never released, not threads that wait for work.
    let stuck = conditioned("stuck>2s", &program, &["lock"], true);
    stuck.copied("stuck", None);
    assert!(stuck.stderr.contains("has waited for a lock"), "{}", stuck.stderr);
}

#[test]
fn rss_and_cpu_conditions_trigger_dump() {
    let _place = beside();
    let spins = victim::c("stuck", victim::OPTIMISED);
    let resident = conditioned("rss>64k", &spins, &["idle"], true);
    resident.copied("rss", None);
    // Even on a busy machine the thread gets more than this share of a second.
    let cpu = conditioned("cpu>0.1%/1s", &spins, &["run"], true);
    cpu.copied("cpu", Some("spin_for_ever"));
}

#[test]
fn failed_program_triggers_dump() {
    let _place = beside();
    let shell = Path::new("/bin/sh");
    let ended = conditioned("exit=3", shell, &["-c", "exit 3"], false);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    ended.copied("exit", None);
    let killed = conditioned("signal,exit!=0", shell, &["-c", "kill -TERM $$"], false);
    assert_eq!(killed.code, 128 + libc::SIGTERM, "{}", killed.stderr);
    killed.copied("signal", None);
    let well =
        conditioned("signal,exit!=0,rss>999g,cpu>100000%/1s,stuck>600s", shell, &["-c", "exit 0"], false);
    assert!(well.code == 0 && !well.dumps.exists(), "{}", well.stderr);
    // A child's death, reported by its own last words; the program itself ends normally.
    let fatal = victim::c("fatal", victim::OPTIMISED);
    let script = format!("'{}' die segv; exit 0", fatal.display());
    let child = conditioned("signal,exit!=0", shell, &["-c", &script], false);
    assert_eq!(child.code, 0, "{}", child.stderr);
    child.copied("signal", None);
    assert!(child.stderr.contains("SIGSEGV"), "{}", child.stderr);
    let panics = victim::rust("rust_panics", &["-O", "-g"]);
    let panicked = conditioned("panic", &panics, &["3"], false);
    assert_eq!(panicked.code, 0, "{}", panicked.stderr);
    panicked.copied("panic", None);
    let copy = Recording::read(&jfr_files(&panicked.dumps)[0]).unwrap();
    assert!(copy.events.get("jdk.JavaErrorThrow").is_some_and(|n| *n > 0), "{:?}", copy.events);
}

#[test]
fn invalid_dump_requests_are_reported_in_one_line() {
    let _place = beside();
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.jfr");
    let table: [(&[&str], i32, &str); 5] = [
        (&["-p", "999999999"], 1, "process 999999999 does not exist"),
        (&["-p", &std::process::id().to_string()], 1, "is not being recorded"),
        (&["/nonexistent"], 1, "/nonexistent does not exist"),
        (&[folder.path().to_str().unwrap()], 1, "cannot find a chunk in"),
        (&["/dev/null"], 1, "no data has been recorded yet"),
    ];
    for (args, code, why) in table {
        let finished = dump(args, &out);
        assert_eq!(finished.code(), code, "{args:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(why), "{args:?}: {}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{args:?}: {}", finished.stderr);
    }
    let usage: [&[&str]; 5] = [
        &["dump", "-p", "1"],
        &["dump", "-o", "x"],
        &["dump", "-p", "1", "--exact", "-o", "x"],
        &["record", "--dump-on", "panic", "--", "true"],
        &["record", "--dump-dir", "/nonexistent", "--dump-on", "cpu>lots", "--", "true"],
    ];
    for args in usage {
        let finished = run(Command::new(victim::flightline()).args(args), LIMIT);
        assert_eq!(finished.code(), 2, "{args:?}: {}", finished.stderr);
    }
    assert!(!out.exists());
}
