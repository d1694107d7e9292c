//! `flightline collect`: a stream in a file and in a repository, as seen by readers while they grow.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use flightline_tests::canonical;
use flightline_tests::follower::Killed;
use flightline_tests::foreign::{self, Followed, Stream};
use flightline_tests::record::Record;
use flightline_tests::repository::chunks;
use flightline_tests::run::{beside, children, collect, run, signal, signal_group, spawn, until, wait};
use flightline_tests::stream::check_events;
use flightline_tests::truth::Truth;
use flightline_tests::victim::{self, flightline};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

fn mkfifo(path: &Path) {
    run(Command::new("mkfifo").arg(path), LIMIT).expect_success("mkfifo");
}

fn collector(input: impl AsRef<Path>, args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(flightline());
    command.arg("collect").arg(input.as_ref()).args(args).args(["--json", "--quiet"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a recording of a program that works until it is terminated, to a FIFO or a pipe.
fn recorder(output: &Path, folder: &Path) -> Child {
    let program = victim::c("ticking", victim::OPTIMISED);
    let mut command = Command::new(flightline());
    command.args(["record", "--rate", "1000", "-o"]).arg(output).arg("--").arg(program).arg("10000000");
    command.env("TRUTH_FILE", folder.join("truth.tsv"));
    spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()))
}

/// The program that a recorder records.
fn program_of(recorder: &Child) -> u32 {
    until(LIMIT, "the program", || {
        let is_it = |pid: &u32| {
            fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|exe| exe.to_string_lossy().contains("ticking"))
        };
        children(recorder.id()).into_iter().find(is_it)
    })
}

/// The samples of some files, in byte order; our reader must not warn.
#[track_caller]
fn samples<P: AsRef<Path>>(files: &[P]) -> Vec<String> {
    let mut lines = Vec::new();
    for file in files {
        let contents = canonical::of_file(file.as_ref()).unwrap();
        assert_eq!(contents.warnings, Vec::<String>::new(), "{:?}", file.as_ref());
        lines.extend(contents.samples);
    }
    lines.sort_unstable();
    lines
}

/// A consistent copy of a file that is being written: a reader may otherwise see parts of two headers.
fn at_one_moment(file: &Path) -> tempfile::NamedTempFile {
    let bytes = until(LIMIT, "two looks that are the same", || {
        let once = fs::read(file).ok()?;
        (fs::read(file).ok()? == once).then_some(once)
    });
    let copy = tempfile::Builder::new().suffix(".jfr").tempfile().unwrap();
    fs::write(copy.path(), bytes).unwrap();
    copy
}

fn samples_of(stream: &[u8]) -> Vec<String> {
    let mut lines = canonical::of_stream(stream).unwrap().samples;
    lines.sort_unstable();
    lines
}

/// All chunks of a repository.
fn all(root: &Path) -> Vec<PathBuf> {
    chunks(root).into_values().flatten().collect()
}

/// The exit code, the JSON report and standard error.
#[track_caller]
fn ended(mut child: Child) -> (i32, Value, String) {
    let out = collect(child.stdout.take().unwrap());
    let err = collect(child.stderr.take().unwrap());
    let status = wait(&mut child, LIMIT, "collect");
    let err = String::from_utf8_lossy(&err.join().unwrap()).into_owned();
    let out = out.join().unwrap();
    let json = serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {err}"));
    (status.code().unwrap_or(-1), json, err)
}

/// A stream of a real program with several chunks: its bytes.
fn a_stream() -> Vec<u8> {
    let program = victim::c("ticking", victim::OPTIMISED);
    let record = Record::new().output("-").option("--flush").option("100ms");
    let mut command = record.command(&program, &["3000"]);
    let done = run(&mut command, LIMIT);
    // The program's own.
    assert_eq!(done.code(), 23, "{}", done.stderr);
    done.stdout
}

/// The offsets of a stream's chunks.
fn starts(stream: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(header) = stream.get(at..at + 16) {
        assert_eq!(&header[..4], b"FLR\0");
        starts.push(at);
        at += u64::from_be_bytes(header[8..].try_into().unwrap()) as usize;
    }
    assert_eq!(at, stream.len());
    starts
}

fn feed(args: &[&str], folder: &Path, bytes: &[u8]) -> (i32, Value, String) {
    let mut child = spawn(collector("-", args, folder).stdin(Stdio::piped()));
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = thread::spawn(move || drop(input.write_all(&bytes)));
    let done = ended(child);
    writer.join().unwrap();
    done
}

/// A program recorded to a FIFO; file and repository at once; event streams of both JDKs see each sample while the chunk that
/// it is in still grows.
#[test]
fn both_jdks_follow_file_and_repository_written_at_once() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    let fifo = work.path().join("pipe");
    mkfifo(&fifo);
    let (file, root) = (work.path().join("run.jfr"), work.path().join("repository"));
    let collecting =
        Killed(spawn(&mut collector(&fifo, &["-o", "run.jfr", "--repository", "repository"], work.path())));
    let recorder = Killed(recorder(&fifo, work.path()));
    let pid = program_of(&recorder.0);
    let folder = until(LIMIT, "a chunk", || Some(all(&root).first()?.parent()?.to_owned()));
    let mut followers: Vec<(&str, Killed, _)> = ["jdk17", "jdk25"]
        .into_iter()
        .map(|jdk| {
            let mut child = foreign::follow(jdk, Followed::Repository(&folder), 2 * LIMIT);
            let out = child.stdout.take().unwrap();
            let lines = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
            let shared = lines.clone();
            let reader = thread::spawn(move || {
                let mut out = out;
                let mut buffer = [0; 4096];
                while let Ok(got @ 1..) = out.read(&mut buffer) {
                    shared.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..got]));
                }
            });
            (jdk, Killed(child), (lines, reader))
        })
        .collect();
    // In the middle of a chunk: it is still being written when both have more events of it.
    let growing = until(LIMIT, "a chunk that grows", || all(&root).last().cloned());
    for (jdk, _, (lines, _)) in &followers {
        until(LIMIT, &format!("{jdk} has events"), || {
            (lines.lock().unwrap().lines().count() > 500).then_some(())
        });
    }
    let mut header = [0; 68];
    File::open(&growing).unwrap().read_exact(&mut header).unwrap();
    eprintln!("first chunk: state {}", header[64]);
    // In the meantime the file is a valid recording, for the JDK's tool too, at any moment.
    let mut before = 0;
    for _ in 0..20 {
        let now = samples(&[at_one_moment(&file).path()]).len();
        assert!(now >= before, "{now} after {before}");
        before = now;
        thread::sleep(Duration::from_millis(60));
    }
    let copy = at_one_moment(&file);
    for jdk in ["jdk17", "jdk25"] {
        assert_eq!(foreign::lines(jdk, copy.path()).unwrap(), samples(&[copy.path()]), "{jdk}");
    }
    signal(pid, libc::SIGTERM);
    let (code, summary, errors) = ended_of(collecting);
    assert_eq!(code, 0, "{summary} {errors}");
    let truth = samples(&[&file]);
    assert!(truth.len() > 1000, "{}", truth.len());
    assert_eq!(samples(&all(&root)), truth);
    for (jdk, child, (lines, reader)) in &mut followers {
        wait(&mut child.0, LIMIT, jdk);
        let _ = reader;
        let text = until(LIMIT, "the last lines", || {
            let text = lines.lock().unwrap().clone();
            text.contains("\n# ").then_some(text)
        });
        let stream = Stream::parse(&text);
        assert!(stream.closed, "{jdk}");
        assert_eq!(stream.sorted(), truth, "{jdk}");
        let delays = stream.delays();
        eprintln!("{jdk}: {} events, median delay {} ms", delays.len(), delays[delays.len() / 2] / 1_000_000);
    }
    for reader in ["jdk17", "jdk25", "jmc", "go"] {
        assert_eq!(foreign::lines(reader, &file).unwrap().len(), truth.len(), "{reader}");
    }
    // Filler is not stored.
    let (bytes, written) = (summary["bytes"].as_u64().unwrap(), summary["bytesWritten"].as_u64().unwrap());
    assert!(written <= bytes && file.metadata().unwrap().len() == written, "{summary}");
    assert_eq!(summary["segments"]["wrong"], 0);
    assert!(summary["segments"]["verified"].as_u64().unwrap() > 2, "{summary}");
}

#[track_caller]
fn ended_of(mut killed: Killed) -> (i32, Value, String) {
    let out = collect(killed.0.stdout.take().unwrap());
    let err = collect(killed.0.stderr.take().unwrap());
    let status = wait(&mut killed.0, LIMIT, "collect");
    let err = String::from_utf8_lossy(&err.join().unwrap()).into_owned();
    let out = out.join().unwrap();
    let json = serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {err}"));
    (status.code().unwrap_or(-1), json, err)
}

/// The recorder is killed, and another one writes to the same FIFO: the first one's data is complete, and the
/// second one's follows.
#[test]
fn collector_continues_after_recorder_is_killed() {
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    let fifo = work.path().join("pipe");
    mkfifo(&fifo);
    let (file, root) = (work.path().join("run.jfr"), work.path().join("repository"));
    let args = ["-o", "run.jfr", "--repository", "repository", "--retry"];
    let collecting = Killed(spawn(&mut collector(&fifo, &args, work.path())));
    let mut seen = 0;
    for round in 0..3 {
        let mut recorder = Killed(recorder(&fifo, work.path()));
        let pid = program_of(&recorder.0);
        until(LIMIT, "more samples", || {
            file.metadata().ok().filter(|meta| meta.len() > 0)?;
            let now = samples(&[at_one_moment(&file).path()]).len();
            (now > seen + 300).then_some(())
        });
        if round < 2 {
            signal(recorder.0.id(), libc::SIGKILL);
            wait(&mut recorder.0, LIMIT, "the recorder, killed");
            signal(pid, libc::SIGKILL);
        } else {
            signal(pid, libc::SIGTERM);
            wait(&mut recorder.0, LIMIT, "the recorder");
        }
        seen = samples(&[at_one_moment(&file).path()]).len();
    }
    // The collector still reads the data in the FIFO before it ends.
    signal_group(collecting.0.id(), libc::SIGTERM);
    let (code, summary, errors) = ended_of(collecting);
    assert_eq!(summary["streams"], 3, "{summary}");
    // The exact number is random: a recorder may be killed inside a chunk, between two, or in the filler of
    // one.
    let cut = summary["cut"].as_u64().unwrap();
    assert!(cut <= 2 && code == i32::from(cut > 0), "{summary} {errors}");
    assert_eq!(errors.contains("ended in the middle of a chunk"), cut > 0, "{errors}");
    assert_eq!(summary["damaged"], 0, "{summary}");
    let truth = samples(&[&file]);
    assert!(truth.len() >= seen);
    assert_eq!(samples(&all(&root)), truth);
    assert_eq!(chunks(&root).len(), 1, "one folder for who follows");
    let repaired = run(Command::new(flightline()).args(["repair", "--dry-run", "--json"]).arg(&file), LIMIT);
    let repaired: Value = serde_json::from_slice(&repaired.expect_success("repair").stdout).unwrap();
    assert_eq!(repaired["unchanged"], true, "{repaired}");
}

/// A collector, and recorders that start and end under load. Each chunk has all constants of its events, and
/// all samples arrive or are reported as lost. Every other recorder is terminated early and writes to a
/// collector of its own. RESTARTS sets the number of restarts.
#[test]
fn restarts_under_load_deliver_or_report_all_samples() {
    const PERIOD_NS: u64 = 500_000;
    let _place = beside();
    let restarts: u64 =
        std::env::var("RESTARTS").map_or(8, |text| text.parse().expect("RESTARTS is a number"));
    let work = tempfile::tempdir().unwrap();
    let collectors = ["whole", "terminated"].map(|name| {
        mkfifo(&work.path().join(name));
        let file = format!("{name}.jfr");
        let collecting = collector(work.path().join(name), &["-o", &file, "--retry"], work.path()).spawn();
        (name, file, Killed(collecting.unwrap()))
    });
    let program = victim::c("ticking", victim::OPTIMISED);
    let mut own = Truth::default();
    for round in 0..restarts {
        let (is_terminated, truth) = (round % 2 == 1, work.path().join("truth.tsv"));
        let _ = fs::remove_file(&truth);
        let mut command = Command::new(flightline());
        command.args(["record", "--quiet", "--rate", "2000", "--flush", "10ms", "-o"]);
        command.arg(work.path().join(collectors[usize::from(is_terminated)].0));
        command.arg("--").arg(&program).arg("60").env("TRUTH_FILE", &truth);
        let mut recorder = Killed(spawn(command.stdin(Stdio::null()).stdout(Stdio::null())));
        if is_terminated {
            // Terminated while it starts, while it samples or while it ends; the signal goes to the program
            // as well.
            thread::sleep(Duration::from_millis(round * 7 % 190));
            signal(recorder.0.id(), libc::SIGINT);
        }
        let status = wait(&mut recorder.0, LIMIT, "the recorder");
        if !is_terminated {
            assert_eq!(status.code(), Some(23));
            own.threads.extend(Truth::read(&truth).threads);
        }
    }
    for (name, file, collecting) in collectors {
        signal(collecting.0.id(), libc::SIGTERM);
        let (code, summary, errors) = ended_of(collecting);
        // An early signal, before the handler is installed, kills the recorder. A signal while it ends makes
        // it end at once. Each may truncate a chunk.
        let cut = summary["cut"].as_u64().unwrap();
        assert!(
            code == i32::from(cut > 0) && (cut == 0 || name == "terminated"),
            "{name}: {summary} {errors}"
        );
        assert_eq!(
            (&summary["damaged"], &summary["segments"]["wrong"]),
            (&0.into(), &0.into()),
            "{name}: {summary}"
        );
        if name == "terminated" {
            // A recorder that is terminated before it has started writes nothing.
            if summary["chunks"] != 0 {
                check_events(fs::read(work.path().join(file)).unwrap());
            }
            continue;
        }
        assert_eq!(summary["streams"].as_u64(), Some(restarts.div_ceil(2)), "{summary}");
        let stream = check_events(fs::read(work.path().join(file)).unwrap());
        let lost: u64 = stream.sample_loss.values().map(|(_, ns)| ns).sum();
        let seen = stream.count("jdk.ExecutionSample") * PERIOD_NS + lost;
        let off = seen as i64 - own.cpu_ns() as i64;
        eprintln!("{restarts} restarts: {seen} ns of {} came: {summary}", own.cpu_ns());
        // For each thread: rounding, and its work after its last clock reading and, as in the loader, before
        // main.
        let most = own.threads.len() as i64 * (PERIOD_NS as i64 * 2 + 12_000_000);
        assert!(off.abs() <= most, "off by {off} ns of {}: {stream:?}", own.cpu_ns());
    }
}

/// Killed at any moment, the collector leaves a valid recording. Started again, it appends to it.
#[test]
fn killed_collector_leaves_valid_file_and_can_append_to_it() {
    let _place = beside();
    let stream = a_stream();
    let starts = starts(&stream);
    let work = tempfile::tempdir().unwrap();
    let (file, root) = (work.path().join("run.jfr"), work.path().join("repository"));
    let (mut least, mut wrong_headers) = (0, 0);
    for round in 0..12 {
        let args = ["-o", "run.jfr", "--append", "--repository", "repository"];
        let before = file.metadata().map_or(0, |meta| meta.len());
        let mut child = Killed(spawn(collector("-", &args, work.path()).stdin(Stdio::piped())));
        let mut input = child.0.stdin.take().unwrap();
        // Piece by piece, so that it is killed at a different offset each time.
        let most = stream.len() * (round + 1) / 13;
        for piece in stream[..most].chunks(1500) {
            input.write_all(piece).unwrap();
        }
        if round % 3 == 0 {
            until(LIMIT, "something is written", || {
                file.metadata().is_ok_and(|meta| meta.len() != before || most < 40_000).then_some(())
            });
        }
        signal(child.0.id(), libc::SIGKILL);
        wait(&mut child.0, LIMIT, "collect, killed");
        // From its first byte on it is a recording.
        let bytes = fs::read(&file).unwrap_or_default();
        if bytes.iter().any(|&byte| byte != 0) {
            // The header may already name the checkpoint of a segment that is not there yet.
            let contents = canonical::of_file(&file).unwrap();
            let is_early = |warning: &String| warning.starts_with("no checkpoint at byte");
            assert!(contents.warnings.iter().all(is_early), "round {round}: {:?}", contents.warnings);
            let now = contents.samples.len();
            assert!(now >= least, "round {round}: {now} after {least}");
            least = now;
            let mut repair = Command::new(flightline());
            repair.args(["repair", "--force", "--json", "-o", "repaired.jfr"]).arg(&file);
            let report = run(repair.current_dir(work.path()), LIMIT).expect_success("repair").stdout;
            let report: Value = serde_json::from_slice(&report).unwrap();
            assert_eq!(samples(&[&work.path().join("repaired.jfr")]).len(), now, "round {round}: {report}");
            wrong_headers += usize::from(report["unchanged"] != true);
        }
    }
    assert!(least > 0);
    // A segment and the header that accounts for it are two writes. Measured on a busy machine, one kill of 80 comes between them; that
    // five of 12 do has a probability of less than 1e-6.
    assert!(wrong_headers < 5, "{wrong_headers} of 12 headers do not describe their chunk");
    let (code, summary, errors) =
        feed(&["-o", "run.jfr", "--append", "--repository", "repository"], work.path(), &stream);
    assert_eq!((code, summary["chunks"].as_u64()), (0, Some(starts.len() as u64)), "{summary} {errors}");
    let now = samples(&[&file]);
    let once = samples_of(&stream);
    assert_eq!(now.len(), least + once.len());
    assert!(once.iter().all(|line| now.binary_search(line).is_ok()));
    // The unfinished last chunks of killed recorders are complete now.
    for chunk in all(&root) {
        let mut header = [0; 68];
        File::open(&chunk).unwrap().read_exact(&mut header).unwrap();
        assert_eq!(header[64], 0, "{chunk:?}");
        assert_eq!(u64::from_be_bytes(header[8..16].try_into().unwrap()), chunk.metadata().unwrap().len());
        samples(&[&chunk]);
    }
    if foreign::ready() {
        for jdk in ["jdk17", "jdk25"] {
            assert_eq!(foreign::lines(jdk, &file).unwrap(), now, "{jdk}");
        }
    }
}

/// Damage in the middle: intact events are kept, the rest is reported, and the exit code is 1.
#[test]
fn damage_is_reported_and_intact_events_are_written() {
    let _place = beside();
    let stream = a_stream();
    let starts = starts(&stream);
    let truth = samples_of(&stream);
    assert!(truth.len() > 1000 && !starts.is_empty(), "{}", truth.len());
    // In the middle of the first chunk's events, not in its filler.
    let size = starts.get(1).copied().unwrap_or(stream.len());
    let middle = stream[..size - 64].iter().rposition(|&byte| byte != 0).unwrap() / 2;
    for (what, damaged) in [
        ("other bytes", {
            let mut bytes = stream.clone();
            bytes[middle..middle + 40].fill(0xa5);
            bytes
        }),
        ("bytes are missing", [&stream[..middle], &stream[middle + 100..]].concat()),
        ("more bytes", [&stream[..middle], &[7; 100][..], &stream[middle..]].concat()),
    ] {
        let work = tempfile::tempdir().unwrap();
        let (file, root) = (work.path().join("run.jfr"), work.path().join("repository"));
        let (code, summary, errors) =
            feed(&["-o", "run.jfr", "--repository", "repository"], work.path(), &damaged);
        assert_eq!(code, 1, "{what}: {summary}");
        assert!(summary["damaged"].as_u64() > Some(0), "{what}: {summary}");
        assert!(errors.contains("offset"), "{what}: {errors}");
        let kept = samples(&[&file]);
        assert_eq!(samples(&all(&root)), kept, "{what}");
        // All events before the damage and in the other chunks are intact. After the damage, some events can
        // be recovered.
        for sound in [&stream[..middle], &stream[size..]] {
            let sound = if sound.is_empty() { Vec::new() } else { samples_of(sound) };
            let lost = sound.iter().filter(|line| kept.binary_search(line).is_err()).count();
            assert_eq!(lost, 0, "{what}: of {}: {summary}", sound.len());
        }
        // Some of the 40 changed bytes may look like events. The number of lost events has no bound: a
        // damaged constant affects all events that refer to it.
        let new = kept.iter().filter(|line| truth.binary_search(line).is_err()).count();
        assert!(!kept.is_empty() && new <= 40 / 5, "{what}: {new} new of {}, {summary}", kept.len());
        assert!(summary["eventsSalvaged"].as_u64() > Some(0), "{what}: {summary}");
        if foreign::ready() {
            assert_eq!(foreign::lines("jdk25", &file).unwrap().len(), kept.len(), "{what}");
        }
    }
}

#[test]
fn output_files_are_rotated_and_old_ones_removed() {
    let _place = beside();
    let stream = a_stream();
    let work = tempfile::tempdir().unwrap();
    let streams: Vec<u8> = (0..6).flat_map(|_| stream.iter().copied()).collect();
    let (code, summary, errors) = feed(&["-o", "run.jfr", "--rotate", "64k"], work.path(), &streams);
    // The streams follow each other in one file: their segments count from 0 again.
    assert_eq!(summary["damaged"], 0, "{summary} {errors}");
    assert_eq!(code, 0, "{summary} {errors}");
    let files: Vec<PathBuf> = fs::read_dir(work.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(files.len() > 2, "{files:?}");
    assert_eq!(samples(&files).len(), 6 * samples_of(&stream).len());
    let before: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    let args = ["-o", "run.jfr", "--append", "--rotate", "64k", "--max-size", "200k"];
    let (code, _, errors) = feed(&args, work.path(), &streams);
    assert_eq!(code, 0, "{errors}");
    let files: Vec<PathBuf> = fs::read_dir(work.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let aside: u64 =
        files.iter().filter(|f| !f.ends_with("run.jfr")).map(|file| file.metadata().unwrap().len()).sum();
    assert!(aside <= 200 << 10 && aside < before, "{aside} of {before}: {files:?}");
    samples(&files);
}

#[test]
fn invalid_inputs_and_outputs_are_rejected() {
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    let refused = |input: &str, args: &[&str], why: &str| {
        let done = run(&mut collector(input, args, work.path()), LIMIT);
        assert!(done.code() > 0 && done.stderr.contains(why), "{input} {args:?}: {}", done.stderr);
    };
    refused("/etc/passwd", &["-o", "x.jfr"], "not a stream");
    refused("unix:/no/such.sock", &["-o", "x.jfr"], "cannot open");
    refused("tcp:127.0.0.1:1", &["-o", "x.jfr"], "token");
    refused("-", &["-o", "x.jfr"], "no data received");
    refused("-", &[], "--output");
    File::create(work.path().join("there.jfr")).unwrap().write_all(b"x").unwrap();
    refused("-", &["-o", "there.jfr"], "--append");
    refused("-", &["-o", "there.jfr", "--append"], "flightline repair");
    let (code, summary, errors) =
        feed(&["-o", "y.jfr"], work.path(), b"no recording at all, and longer than a header is, of 68 bytes");
    assert_eq!((code, summary["chunks"].as_u64()), (1, Some(0)), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(!work.path().join("y.jfr").exists(), "nothing is left behind");
}
