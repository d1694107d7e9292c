//! Makes one of each kind of recording that we write, of a small program that works on command.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flightline_tests::canonical;
use flightline_tests::controlled::{Controlled, LIMIT, ctl, program};
use flightline_tests::follower::Killed;
use flightline_tests::http::send;
use flightline_tests::repository::chunks;
use flightline_tests::run::{Finished, collect, run, signal, spawn, until, wait};
use flightline_tests::served::Served;
use flightline_tests::victim::{flightline, target_dir};

/// CPU time of a phase of each of the program's three threads, ms.
const MS: u32 = 80;
/// Frequent samples, and frequent flushes.
const OPTIONS: [&str; 4] = ["-F", "1000", "--flush", "100ms"];

/// Files by the name of their kind.
pub struct Made {
    pub files: BTreeMap<&'static str, Vec<PathBuf>>,
}

/// Makes all of them, in a folder that the next run clears.
pub fn all() -> Made {
    let folder = target_dir().join("matrix");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name);
    let mut files: BTreeMap<&'static str, Vec<PathBuf>> = BTreeMap::new();
    thread::scope(|scope| {
        let making = [
            scope.spawn(|| file_and_dump(&at("run.jfr"), &at("dump.jfr"))),
            scope.spawn(|| aggregated(&at("aggregated.jfr"))),
            scope.spawn(|| repository(&at("repository"))),
            scope.spawn(|| streams(&folder)),
            scope.spawn(|| pipe(&at("pipe.jfr"))),
            scope.spawn(|| killed(&folder)),
            scope.spawn(|| pushed(&at("pushed.jfr"))),
        ];
        for made in making {
            files.extend(made.join().unwrap());
        }
    });
    files.extend(edited(&folder, &files));
    Made { files }
}

type Kinds = Vec<(&'static str, Vec<PathBuf>)>;

fn command(args: &[&str]) -> Finished {
    run(Command::new(flightline()).args(args), LIMIT).expect_success(args[0])
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn recorded(options: &[&str], output: [&str; 2]) -> Controlled {
    let mut record = Command::new(flightline());
    record.arg("record").args(OPTIONS).args(options).args(output).arg("--").arg(program());
    Controlled::start(&mut record)
}

fn file_and_dump(file: &Path, dump: &Path) -> Kinds {
    let mut victim = recorded(&[], ["-o", text(file)]);
    victim.work("before", MS);
    // A copy does not wait long for names that are being read.
    ctl(victim.pid, &["dump"]);
    command(&["dump", "-p", &victim.pid.to_string(), "-o", text(dump)]);
    victim.work("after", MS);
    victim.end(0);
    vec![("file", vec![file.to_owned()]), ("dump", vec![dump.to_owned()])]
}

fn aggregated(file: &Path) -> Kinds {
    let mut record = Command::new(flightline());
    record.args(["record", "-F", "1000", "--aggregate", "1s", "-o"]).arg(file).arg("--").arg(program());
    let mut victim = Controlled::start(&mut record);
    victim.work("before", MS);
    victim.work("after", MS);
    victim.end(0);
    vec![("aggregated file", vec![file.to_owned()])]
}

/// The chunks of a process that have samples.
pub fn with_samples(root: &Path, pid: u32) -> Vec<PathBuf> {
    let mut files = chunks(root).remove(&pid).unwrap_or_default();
    files.retain(|file| canonical::of_file(file).is_ok_and(|contents| !contents.samples.is_empty()));
    files
}

/// Starts to record into a repository, with chunks of a second.
pub fn in_repository(root: &Path) -> Controlled {
    recorded(&["--chunk-age", "1s"], ["--repository", text(root)])
}

/// Works in several chunks of its repository: the next phase starts when the previous one is written and
/// another chunk has begun.
pub fn phases(victim: &mut Controlled, root: &Path) {
    let pid = victim.pid;
    for (number, phase) in ["before", "during", "after"].into_iter().enumerate() {
        victim.work(phase, MS);
        let last = until(LIMIT, "samples in another chunk", || with_samples(root, pid).get(number).cloned());
        until(LIMIT, "another chunk", || (chunks(root).remove(&pid)?.last() != Some(&last)).then_some(()));
    }
}

fn repository(root: &Path) -> Kinds {
    let mut victim = in_repository(root);
    phases(&mut victim, root);
    let pid = victim.pid;
    victim.end(0);
    let files = with_samples(root, pid);
    assert!(files.len() > 2, "{files:?}");
    vec![("chunk of a repository", files)]
}

/// Copies all bytes of a socket to the file; complete when the thread has ended.
fn bytes_of(socket: &Path, file: PathBuf) -> JoinHandle<PathBuf> {
    let mut stream = until(LIMIT, "a socket", || UnixStream::connect(socket).ok());
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        fs::write(&file, bytes).unwrap();
        file
    })
}

/// One recorder with three readers, one of which is a relay with a reader of its own.
fn streams(folder: &Path) -> Kinds {
    let at = |name: &str| folder.join(name);
    let (socket, other) = (at("stream.sock"), at("relay.sock"));
    let [from, to] = [&socket, &other].map(|socket| format!("unix:{}", socket.display()));
    let mut victim = recorded(&[], ["-o", &from]);
    until(LIMIT, "the stream's socket", || socket.exists().then_some(()));
    // The losses without a reader are reported to the first one, in a chunk before all others.
    victim.work("paused", MS);
    thread::sleep(Duration::from_millis(300));
    let begin = |args: &[&str]| {
        let mut command = Command::new(flightline());
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Killed(spawn(&mut command))
    };
    let (file, root) = (at("collected.jfr"), at("collected"));
    let mut beside = [
        begin(&["collect", &from, "-o", text(&file), "--repository", text(&root)]),
        begin(&["relay", &from, "-o", &to]),
    ];
    let (direct, relayed) = (bytes_of(&socket, at("socket.jfr")), bytes_of(&other, at("relay.jfr")));
    until(LIMIT, "collect has begun", || file.exists().then_some(()));
    for phase in ["before", "during", "after"] {
        victim.work(phase, MS);
        // Longer than a second, after which late readers get a chunk of their own.
        thread::sleep(Duration::from_millis(600));
    }
    victim.end(0);
    let kinds = vec![
        ("bytes of a socket", vec![direct.join().unwrap()]),
        ("bytes of a relay", vec![relayed.join().unwrap()]),
    ];
    for child in &mut beside {
        wait(&mut child.0, LIMIT, "collect and relay");
    }
    let mut collected: Vec<PathBuf> = chunks(&root).into_values().flatten().collect();
    collected.retain(|file| !canonical::of_file(file).unwrap().samples.is_empty());
    [kinds, vec![("collected file", vec![file]), ("collected chunk", collected)]].concat()
}

fn pipe(file: &Path) -> Kinds {
    let mut record = Command::new(flightline());
    record.arg("record").args(OPTIONS).args(["-o", "-", "--"]).arg(program());
    let mut child = spawn(record.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()));
    let bytes = collect(child.stdout.take().unwrap());
    let told = format!("work before {MS}\nwork during {MS}\nwork after {MS}\nend 0\n");
    child.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
    wait(&mut child, LIMIT, "record -o -");
    fs::write(file, bytes.join().unwrap()).unwrap();
    vec![("bytes of a pipe", vec![file.to_owned()])]
}

/// Records until something is written, and kills the recorder.
fn cut_off(output: [&str; 2], written: impl Fn() -> Option<PathBuf>) -> PathBuf {
    let mut victim = recorded(&[], output);
    victim.work("before", MS);
    let file = until(LIMIT, "samples that are written", || {
        written().filter(|file| canonical::of_file(file).is_ok_and(|c| c.samples.len() > 100))
    });
    signal(victim.child.id(), libc::SIGKILL);
    victim.child.wait().unwrap();
    file
}

fn killed(folder: &Path) -> Kinds {
    let (file, root) = (folder.join("killed.jfr"), folder.join("killed"));
    cut_off(["-o", text(&file)], || Some(file.clone()));
    let chunk = cut_off(["--repository", text(&root)], || chunks(&root).into_values().flatten().next());
    command(&["recover", text(&root)]);
    // The data in memory becomes a chunk of its own.
    let mut recovered = jfr_files(chunk.parent().unwrap());
    recovered.retain(|file| !canonical::of_file(file).unwrap().samples.is_empty());
    vec![("file of a killed recorder", vec![file]), ("recovered chunk", recovered)]
}

/// The service's recording of two text profiles of the same time that were pushed to it.
fn pushed(file: &Path) -> Kinds {
    let service = Served::start(&["--profiling"]);
    let query = "/ingest?name=pushed&format=folded&sampleRate=100&from=1700000000&until=1700000010";
    for text in [&b"main;a 3\nmain;b 4\n"[..], b"main;c 5\n"] {
        assert_eq!(send(service.port, "POST", query, &[], text).status, 200);
    }
    let target = service.target(|target| target["name"] == "pushed");
    let window = format!("/v1/targets/{}/window", target["id"].as_str().unwrap());
    let bounds = service.get(&window).json();
    let (from, to) = (bounds["from"].as_i64().unwrap(), bounds["to"].as_i64().unwrap() + 1);
    let answer = service.get(&format!("{window}/files/jfr?from={from}&to={to}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    fs::write(file, &answer.body).unwrap();
    vec![("pushed profiles, as a recording", vec![file.to_owned()])]
}

fn jfr_files(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = all.filter(|file| file.extension().is_some_and(|e| e == "jfr")).collect();
    files.sort();
    files
}

/// The output of our commands on the other recordings.
fn edited(folder: &Path, files: &BTreeMap<&'static str, Vec<PathBuf>>) -> Kinds {
    let at = |name: &str| folder.join(name);
    let one = |kind: &str| text(&files[kind][0]);
    let (run, stream) = (one("file"), one("bytes of a socket"));
    let [cut, scrubbed, both, torn, repaired, symbolized] =
        ["cut.jfr", "scrubbed.jfr", "both.jfr", "torn.jfr", "repaired.jfr", "symbolized.jfr"].map(at);
    command(&["cut", run, "--from", "0.05", "--to", "-0.02", "-o", text(&cut)]);
    command(&["scrub", run, text(&scrubbed), "--redact"]);
    command(&["assemble", run, stream, "-o", text(&both), "--rebase"]);
    let parts = at("parts");
    command(&["disassemble", stream, "-o", text(&parts), "--max-chunks", "1"]);
    let bytes = fs::read(run).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 8 * 7]).unwrap();
    // Exit status 1: not all data could be recovered.
    let mut repair = Command::new(flightline());
    flightline_tests::run::run(repair.args(["repair", text(&torn), "-o", text(&repaired)]), LIMIT);
    command(&["symbolize", run, "-o", text(&symbolized)]);
    let mut parts = jfr_files(&parts);
    parts.retain(|file| !canonical::of_file(file).unwrap().samples.is_empty());
    let made = [("cut", cut), ("scrubbed", scrubbed), ("assembled", both), ("repaired", repaired)];
    let made = made.into_iter().chain([("symbolized", symbolized)]).map(|(kind, file)| (kind, vec![file]));
    made.chain([("disassembled", parts)]).collect()
}
