//! Recordings of real programs: the file and the bytes of the pipe have the same events for every reader, for
//! ours and for `flightline fold`; also during the recording, and after the recorder was killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::foreign::{Followed, Stream};
use flightline_tests::record::Record;
use flightline_tests::run::{beside, collect, run, spawn, until, wait};
use flightline_tests::{canonical, foreign, skip, victim};

const LIMIT: Duration = Duration::from_secs(120);

/// Input for a few seconds of work of xz.
fn input(folder: &Path, megabytes: usize) -> PathBuf {
    let path = folder.join("input.bin");
    let mut state = 1u64;
    let bytes: Vec<u8> = (0..megabytes << 20)
        .map(|i| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(i as u64 | 1);
            // Six random bits: compressible, but not quickly.
            (state >> 58) as u8
        })
        .collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Checks a finished recording with every reader; returns the number of samples.
#[track_caller]
fn every_reader_agrees(path: &Path) -> usize {
    println!("{}", foreign::agree(&[path]));
    let reference = foreign::lines("jdk25", path).unwrap();
    let unresolved: Vec<&String> = reference.iter().filter(|line| line.contains('?')).collect();
    assert!(unresolved.is_empty(), "unresolved references: {unresolved:?}");
    assert!(reference.iter().all(|line| line.split('\t').nth(3) == Some("STATE_DEFAULT")));

    let ours = canonical::of_file(path).unwrap();
    assert_eq!(ours.warnings, Vec::<String>::new());
    assert_eq!(ours.sorted(), reference, "our reader");
    assert_eq!(ours.types, foreign::types(path), "events per type");
    let streamed = canonical::of_stream(File::open(path).unwrap()).unwrap();
    assert_eq!(streamed.sorted(), reference, "our reader on a stream");
    assert_eq!(fold_of(path), folded(&foreign::lines("jdk25-fold", path).unwrap()), "flightline fold");
    reference.len()
}

/// `flightline fold --threads`, without the truncation mark, which no other reader prints.
fn fold_of(path: &Path) -> BTreeMap<String, u64> {
    let mut fold = Command::new(victim::flightline());
    fold.args(["fold", "--threads", "-e", "jdk.ExecutionSample"]).arg(path);
    let done = run(&mut fold, LIMIT).expect_success("flightline fold");
    let mut stacks = BTreeMap::new();
    for line in done.stdout_text().lines() {
        let (stack, count) = line.rsplit_once(' ').expect("stack and count");
        *stacks.entry(stack.replacen(";[truncated]", "", 1)).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

/// Canonical lines with bare method names, folded the same way.
fn folded(lines: &[String]) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.split('\t').collect();
        let mut path = vec![format!("[{} tid={}]", cells[1], cells[2])];
        path.extend(cells[4].split(';').rev().map(str::to_owned));
        *stacks.entry(path.join(";")).or_default() += 1;
    }
    stacks
}

#[test]
fn readers_agree_on_xz_file_and_pipe() {
    if !foreign::ready() || !skip_unless_xz() {
        return;
    }
    let _place = beside();
    let record = Record::new();
    let input = input(record.folder(), 3);
    let args = ["-9", "-k", "-f", "-T2", input.to_str().unwrap()];

    let pipe = record.folder().join("pipe.jfr");
    let piped = Record::new().output("-");
    let mut command = piped.command("xz", &args);
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let err = collect(child.stderr.take().unwrap());
    let bytes = collect(child.stdout.take().unwrap()).join().unwrap();
    let status = wait(&mut child, LIMIT, "flightline record -o -");
    let told = String::from_utf8_lossy(&err.join().unwrap()).into_owned();
    assert!(status.success(), "{told}");
    std::fs::write(&pipe, bytes).unwrap();
    let of_pipe = every_reader_agrees(&pipe);

    let recorded = record.run("xz", &args).expect_code(0);
    let of_file = every_reader_agrees(&recorded.path);

    // About a second of work at 1 kHz, less on a fast machine: the results of two runs differ that much.
    assert!(of_file > 300 && of_pipe > 300, "{of_file} and {of_pipe} samples");
}

fn skip_unless_xz() -> bool {
    let there = skip::have("xz");
    if !there {
        skip::skip("no xz here");
    }
    there
}

#[test]
fn readers_agree_on_several_processes_and_threads() {
    if !foreign::ready() || !skip_unless_xz() {
        return;
    }
    let _place = beside();
    let record = Record::new();
    let input = input(record.folder(), 1);
    let script = format!(
        "for i in 1 2 3; do xz -9 -k -c -T2 {0} >/dev/null & done; wait; gzip -9 -c {0} >/dev/null; exec xz -9 -k -c {0} >/dev/null",
        input.display()
    );
    let recorded = record.run("sh", &["-c", &script]).expect_code(0);
    every_reader_agrees(&recorded.path);
    let names = canonical::of_file(&recorded.path).unwrap();
    let names: Vec<&str> = names.samples.iter().filter_map(|l| l.split('\t').nth(1)).collect();
    assert!(names.contains(&"xz") && names.contains(&"gzip"), "{names:?}");
}

#[test]
fn readers_agree_on_rust_and_thread_names() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let program = victim::rust("rust_program", &["-C", "opt-level=2", "-C", "debuginfo=1", "--edition=2024"]);
    let recorded = Record::new().run(program, &[]);
    assert_eq!(recorded.finished.code(), 0, "{}", recorded.finished.stderr);
    every_reader_agrees(&recorded.path);
}

#[test]
fn readers_agree_on_unusual_module_and_function_names() {
    if !foreign::ready() {
        return;
    }
    if !skip::have_python() {
        return;
    }
    let _place = beside();
    let Some(module) = victim::cpp("odd_names", &["-O1", "-shared", "-fPIC"]) else { return };
    // A leading bracket is an array type to JMC; ';' separates frames in folded stacks.
    for name in ["[bracket] we;ird ü.so", ".a.b.c"] {
        let record = Record::new();
        let copy = record.folder().join(name);
        std::fs::copy(&module, &copy).unwrap();
        let script = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).busy(3000)";
        let recorded = record.run("/usr/bin/python3", &["-c", script, copy.to_str().unwrap()]).expect_code(0);
        every_reader_agrees(&recorded.path);
        let samples = canonical::of_file(&recorded.path).unwrap().samples;
        let class = name.trim_start_matches('[');
        let weird = format!(
            "{class}.Weird<long>::operator()(long) const;{class}.Weird<long>::operator[](long) const"
        );
        let share = samples.iter().filter(|line| line.contains(&weird)).count() * 100 / samples.len();
        assert!(share >= 50, "{name}: {share} % in Weird::operator(); {:?}", samples.last());
    }
}

#[test]
fn jdk_streams_receive_samples_within_seconds() {
    if !foreign::ready() || !skip_unless_xz() {
        return;
    }
    let _place = beside();
    let record = Record::new().rate(200);
    let input = input(record.folder(), 8);
    let path = record.path();
    let mut command = record.command("xz", &["-9", "-k", "-f", input.to_str().unwrap()]);
    let mut child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    until(Duration::from_secs(20), "a first flush", || {
        path.metadata().ok().filter(|m| m.len() > 68).map(|_| ())
    });
    let mut followers: Vec<_> = ["jdk17", "jdk25"]
        .iter()
        .map(|jdk| {
            let mut child = foreign::follow(jdk, Followed::File(&path), LIMIT);
            let out = collect(child.stdout.take().unwrap());
            (*jdk, child, out)
        })
        .collect();
    assert!(wait(&mut child, LIMIT, "flightline record").success());
    let reference = foreign::lines("jdk25", &path).unwrap();
    for (jdk, child, out) in &mut followers {
        wait(child, LIMIT, jdk);
        let out = std::mem::replace(out, std::thread::spawn(Vec::new)).join().unwrap();
        let stream = Stream::parse(&String::from_utf8(out).unwrap());
        assert!(stream.closed, "{jdk} did not see the end");
        assert_eq!(stream.sorted(), reference, "{jdk}");
        // Flushed and polled each second; events from before the start of the stream are older.
        let delays = stream.delays();
        let median = delays[delays.len() / 2];
        println!("{jdk}: median delay {} ms", median / 1_000_000);
        assert!(median < 3_000_000_000, "{jdk}: median delay {} ms", median / 1_000_000);
    }
}

#[test]
fn pipe_reader_receives_samples_within_about_one_second() {
    if !skip_unless_xz() {
        return;
    }
    let _place = beside();
    for rate in [99, 5000] {
        let record = Record::new().rate(rate).output("-");
        let input = input(record.folder(), 4);
        let mut command = record.command("xz", &["-9", "-k", "-f", input.to_str().unwrap()]);
        let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let contents = canonical::of_stream(child.stdout.take().unwrap()).unwrap();
        assert!(wait(&mut child, LIMIT, "flightline record").success());
        assert_eq!(contents.warnings, Vec::<String>::new());
        let delays = contents.delays();
        assert!(delays.len() > 100, "{} samples", delays.len());
        let (median, late) = (delays[delays.len() / 2], delays[delays.len() * 95 / 100]);
        println!("{rate} Hz: median {} ms, 95 % {} ms", median / 1_000_000, late / 1_000_000);
        assert!(median < 1_000_000_000, "{rate} Hz: median {} ms", median / 1_000_000);
        assert!(late < 2_500_000_000, "{rate} Hz: 95 % within {} ms", late / 1_000_000);
    }
}

#[test]
fn killed_recorder_leaves_a_readable_file() {
    if !foreign::ready() || !skip_unless_xz() {
        return;
    }
    let _place = beside();
    let record = Record::new();
    let input = input(record.folder(), 4);
    let path = record.path();
    let mut command = record.command("xz", &["-9", "-k", "-f", input.to_str().unwrap()]);
    let mut child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    until(Duration::from_secs(30), "two flushes", || {
        canonical::of_file(&path).ok().filter(|c| c.samples.len() > 500).map(|_| ())
    });
    flightline_tests::run::signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();

    let ours = canonical::of_file(&path).unwrap();
    assert!(ours.samples.len() > 500);
    for reader in ["jdk17", "jmc", "converter", "go", "jfrs"] {
        let lines = foreign::lines(reader, &path).unwrap_or_else(|e| panic!("{reader}: {e}"));
        assert_eq!(lines.len(), ours.samples.len(), "{reader}");
    }
    // JDK 25 reads every event, but misses the state byte of a finished file.
    let error = foreign::lines("jdk25", &path).unwrap_err();
    assert!(error.contains("stuck in locked stream state"), "{error}");
    assert_eq!(foreign::lines("jdk17", &path).unwrap(), ours.sorted());
}
