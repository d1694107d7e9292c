//! One recording of redis-server, read live by several readers at once: our Rust consumer, the Java reader
//! and event streams on JDK 17 and 25, `collect`. All see the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flightline_consumer::live::{self, Item, Options, Sample};
use flightline_tests::canonical::{self, time_of};
use flightline_tests::follower::{Follower, Killed};
use flightline_tests::foreign::{self, Followed, Stream};
use flightline_tests::java_reader::{JavaReader, Lines};
use flightline_tests::repository::chunks;
use flightline_tests::run::{beside, collect, run, signal, spawn, until, wait};
use flightline_tests::skip;
use flightline_tests::victim::flightline;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

fn benchmark(socket: &Path, requests: &str) {
    let mut command = Command::new("redis-benchmark");
    command.arg("-s").arg(socket).args(["-q", "-n", requests, "-t", "set,get,lrange_100", "-P", "4"]);
    run(&mut command, LIMIT).expect_success("redis-benchmark");
}

/// As the programs of `tests/readers` print it.
fn line(sample: &Sample) -> String {
    let thread = sample.thread.as_ref().expect("a thread");
    let stack = sample.stack.as_ref().expect("a stack");
    let frames = stack.frames.iter().map(|frame| {
        let class = if frame.class.is_empty() { &frame.module } else { &frame.class };
        if class.is_empty() { frame.function.to_string() } else { format!("{class}.{}", frame.function) }
    });
    let frames: Vec<String> = frames.collect();
    let state = sample.state.as_deref().unwrap_or("?");
    format!("{}\t{}\t{}\t{state}\t{}", sample.time.epoch_nanos, thread.name(), thread.os_id, frames.join(";"))
}

/// The events that our consumer reads up to the end, and its statistics of segments.
fn rust_consumer(socket: &str) -> (Vec<String>, live::Stats) {
    let mut stream =
        live::open(socket, Options { samples: vec!["cpu".into()], ..Options::default() }).unwrap();
    let mut lines = Vec::new();
    for item in stream.by_ref() {
        match item.unwrap() {
            Item::Sample(sample) => lines.push(line(&sample)),
            Item::Warning(warning) => panic!("{warning}"),
            Item::Loss(loss) => assert_ne!(&*loss.cause, "reader behind"),
            _ => {}
        }
    }
    lines.sort_unstable();
    (lines, stream.stats())
}

/// Asserts that a late reader has no event that the first reader lacks, and every event since it connected.
#[track_caller]
fn agree(who: &str, lines: &[String], truth: &[String], from: i64) {
    let (has, all): (BTreeSet<_>, BTreeSet<_>) = (lines.iter().collect(), truth.iter().collect());
    let more: Vec<_> = has.difference(&all).take(3).collect();
    assert!(more.is_empty(), "only {who} has: {more:#?}");
    let missing: Vec<_> = all.difference(&has).filter(|line| time_of(line) >= from).take(3).collect();
    assert!(missing.is_empty(), "{who} lacks what others have: {missing:#?}");
    // Equal lines occur equally often.
    let late = |lines: &[String]| lines.iter().filter(|line| time_of(line) >= from).count();
    assert_eq!(late(lines), late(truth), "{who}");
    eprintln!("{who}: {} samples, {} of them while all were there", lines.len(), late(lines));
}

#[test]
fn all_live_stream_readers_agree() {
    if !skip::have("redis-server") || !skip::have("redis-benchmark") {
        return skip::skip("redis is not installed");
    }
    if !foreign::ready() {
        return;
    }
    let Some(java) = JavaReader::ready() else { return };
    let _place = beside();
    let work = tempfile::tempdir().unwrap();
    let (socket, redis) = (work.path().join("stream.sock"), work.path().join("redis.sock"));
    let address = format!("unix:{}", socket.display());
    let mut command = Command::new(flightline());
    command.args([
        "record",
        "--rate",
        "1000",
        "--flush",
        "100ms",
        "--output",
        &address,
        "--",
        "redis-server",
    ]);
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&redis);
    command.current_dir(work.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut recorder = Killed(spawn(&mut command));
    let told = collect(recorder.0.stderr.take().unwrap());
    until(LIMIT, "redis answers", || (socket.exists() && redis.exists()).then_some(()));

    let mut command = Command::new(flightline());
    command.args(["collect", &address, "-o", "run.jfr", "--repository", "repository", "--json", "--quiet"]);
    command.current_dir(work.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let collecting = Follower::new("collect".into(), spawn(&mut command));
    benchmark(&redis, "20000");
    let root = work.path().join("repository");
    let first = || chunks(&root).into_values().flatten().next();
    let folder = until(LIMIT, "a chunk", || Some(first()?.parent()?.to_owned()));

    let mut followers: Vec<Follower> = Vec::new();
    for jdk in ["jdk17", "jdk25"] {
        let child = foreign::follow(jdk, Followed::Repository(&folder), 2 * LIMIT);
        followers.push(Follower::new(format!("EventStream of {jdk}"), child));
    }
    for release in java.releases() {
        let mut command = java.test(release, "Lines");
        command.args(["next", &address]).stdout(Stdio::piped()).stderr(Stdio::piped());
        followers.push(Follower::new(format!("Java reader on {release}"), spawn(&mut command)));
    }
    let name = address.clone();
    let rust = thread::spawn(move || rust_consumer(&name));
    // All are connected when each has an event; later events must be the same for all.
    let loading = thread::spawn({
        let redis = redis.clone();
        move || (0..4).for_each(|_| benchmark(&redis, "60000"))
    });
    for follower in &followers {
        follower.until("a sample", |line| line.contains("redis-server"));
    }
    loading.join().unwrap();
    // A reader starts with the next chunk: all have started one now.
    thread::sleep(Duration::from_secs(2));
    let from = now();
    benchmark(&redis, "150000");
    signal(recorder.0.id(), libc::SIGTERM);
    let status = wait(&mut recorder.0, LIMIT, "redis after SIGTERM");
    let told = String::from_utf8_lossy(&told.join().unwrap()).into_owned();
    assert!(matches!(status.code(), Some(0 | 143)), "{status}: {told}");

    let (code, lines, errors) = collecting.end();
    assert_eq!((code, errors.as_str()), (0, ""));
    let collected: Value = serde_json::from_str(&lines.join("\n")).unwrap();
    assert_eq!(collected["segments"]["wrong"], 0, "{collected}");
    let file = canonical::of_file(&work.path().join("run.jfr")).unwrap();
    assert_eq!(file.warnings, Vec::<String>::new());
    let truth = file.sorted();
    let repository: Vec<PathBuf> = chunks(&root).into_values().flatten().collect();
    let mut of_chunks: Vec<String> =
        repository.iter().flat_map(|chunk| canonical::of_file(chunk).unwrap().samples).collect();
    of_chunks.sort_unstable();
    assert_eq!(of_chunks, truth, "file and repository");
    let late = truth.iter().filter(|line| time_of(line) >= from).count();
    assert!(late > 200, "{late} samples of {} while all read", truth.len());

    let (lines, stats) = rust.join().unwrap();
    assert!(stats.segments > 10 && stats.segments_damaged == 0 && stats.unresolved == 0, "{stats:?}");
    agree("Rust consumer", &lines, &truth, from);
    for follower in followers {
        let who = follower.who.clone();
        let (code, lines, errors) = follower.end();
        let text = lines.join("\n");
        let lines = match who.starts_with("Java") {
            true => {
                let lines = Lines::parse(&text);
                assert_eq!((code, lines.ended, lines.damage.as_str()), (0, true, ""), "{who}: {errors}");
                lines.samples
            }
            false => {
                let stream = Stream::parse(&text);
                assert!(stream.closed, "{who}: {errors}");
                stream.sorted()
            }
        };
        agree(&who, &lines, &truth, from);
    }
}
