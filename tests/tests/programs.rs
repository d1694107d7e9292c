//! Programs nobody here wrote, as the distribution ships them (stripped, without frame pointers): at least 99.5 % of
//! all their CPU time must be on stacks that the walk followed to the root.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{collect, run, signal, spawn, turn, until, wait};
use flightline_tests::{skip, victim};

const LIMIT: Duration = Duration::from_secs(180);
const RATE: u32 = 2000;
const PERIOD_NS: f64 = 1e9 / RATE as f64;

/// Share of the CPU time of all threads, losses included, whose stack the walk followed to its root.
fn to_the_root(recording: &Recording) -> (f64, f64) {
    let clock: std::collections::HashMap<u64, u64> =
        recording.ledger.iter().map(|l| (l.tid, l.cpu_ns)).collect();
    let all: f64 = clock.values().map(|&ns| ns as f64).sum();
    let whole =
        recording.samples.iter().filter(|s| !recording.stacks[s.stack].truncated).count() as f64 * PERIOD_NS;
    (100.0 * whole / all, all / 1e9)
}

#[track_caller]
fn check(recording: &Recording, name: &str, least_seconds: f64) {
    let (share, seconds) = to_the_root(recording);
    eprintln!(
        "{name}: {share:.3} % of {seconds:.2} s CPU time to the root, {} samples",
        recording.samples.len()
    );
    assert!(seconds >= least_seconds, "{name}: only {seconds:.2} s of CPU time in the ledgers");
    // A whole stack ends in code that has no caller; the same few functions for every thread of a process.
    let mut roots: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    for sample in &recording.samples {
        let stack = &recording.stacks[sample.stack];
        if let (false, Some(last)) = (stack.truncated, stack.frames.last()) {
            *roots.entry(format!("{} {}", last.class, last.method)).or_default() += 1;
        }
    }
    eprintln!("{name}: roots {roots:?}");
    assert!((1..=8).contains(&roots.len()), "{name}: stacks end in too many places to be roots: {roots:?}");
    assert!(
        share >= 99.5,
        "{name}: {share:.3} % of the CPU time reaches the root, the goal is 99.5 %\n{}",
        cut(recording)
    );
    assert!(share <= 101.0, "{name}: {share:.3} %: more was sampled than the threads used");
}

/// Where the walk ended too early, most frequent first.
fn cut(recording: &Recording) -> String {
    let mut at: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    for sample in &recording.samples {
        let stack = &recording.stacks[sample.stack];
        if stack.truncated {
            let last = stack.frames.last().map_or(String::new(), |f| format!("{} {}", f.class, f.method));
            *at.entry(format!("{} frames, last {last}", stack.frames.len())).or_default() += 1;
        }
    }
    let mut at: Vec<_> = at.into_iter().collect();
    at.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let mut lost: std::collections::HashMap<&str, u64> = std::collections::HashMap::new();
    for loss in &recording.losses {
        *lost.entry(&loss.cause).or_default() += loss.cpu_ns;
    }
    let lines: Vec<String> = at.into_iter().take(12).map(|(place, n)| format!("{n:6} × {place}")).collect();
    format!("cut short:\n{}\nlost {lost:?}", lines.join("\n"))
}

fn record(program: &str, args: &[&str], least_seconds: f64) {
    let _turn = turn();
    if !skip::have(program) {
        return skip::skip(&format!("{program} is not installed"));
    }
    let recorded = Record::new().rate(RATE).limit(LIMIT).run(program, args).expect_code(0);
    check(&recorded.read(), program, least_seconds);
}

#[test]
fn sqlite3() {
    let query = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 4800000) \
                 select count(*), sum(length(s)) from (select i % 977 as k, printf('%08d-%s', i * 7919 % 1000003, \
                 hex(i)) as s from n order by s) group by k order by 2 desc limit 3;";
    record("sqlite3", &[":memory:", query], 3.0);
}

#[test]
fn xz() {
    let input = victim::target_dir().join("victims/xz-input");
    if !input.exists() {
        // Text-like, compressible, the same on every machine.
        let mut x = 88172645463325252u64;
        let words: Vec<String> = (0..4000).map(|i| format!("word{}", i * 7919 % 65537)).collect();
        let mut text = String::new();
        while text.len() < 12 << 20 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            text.push_str(&words[(x % 4000) as usize]);
            text.push(if x.is_multiple_of(11) { '\n' } else { ' ' });
        }
        std::fs::write(&input, text).unwrap();
    }
    record("xz", &["-6", "-T2", "--block-size=2MiB", "-k", "-c", input.to_str().unwrap()], 1.0);
}

#[test]
fn python3() {
    // By the clock of its CPU time: what the start costs is the same share of the run on every machine.
    let script = "
import json, re, threading, time
def work():
    words = {}
    i = 0
    while time.process_time() < 5:
        i += 1
        s = json.dumps({'i': i, 'list': list(range(i % 17)), 'text': 'x' * (i % 31)})
        for m in re.finditer(r'[0-9]+', s):
            words[m.group()] = words.get(m.group(), 0) + 1
    return sorted(words, key=words.get)
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
work()
[t.join() for t in threads]
";
    record("/usr/bin/python3", &["-c", script], 5.0);
}

#[test]
fn a_rust_program() {
    let program = victim::rust("rust_program", &["-O", "-Cstrip=symbols", "-Cforce-frame-pointers=no"]);
    record(program.to_str().unwrap(), &["2.5"], 5.0);
}

#[test]
fn redis_under_its_benchmark() {
    let _turn = turn();
    if !skip::have("redis-server") || !skip::have("redis-benchmark") {
        return skip::skip("redis is not installed");
    }
    let record = Record::new().rate(RATE);
    let socket = record.folder().join("redis.sock");
    let socket_name = socket.to_str().unwrap();
    let args = ["--port", "0", "--unixsocket", socket_name, "--save", "", "--appendonly", "no"];
    let mut drain = spawn(record.command("redis-server", &args).stdout(Stdio::null()).stderr(Stdio::piped()));
    let stderr = collect(drain.stderr.take().unwrap());
    until(LIMIT, "redis answers", || {
        assert!(drain.try_wait().unwrap().is_none(), "flightline ended before redis answered");
        socket.exists().then_some(())
    });
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args([
        "-s",
        socket_name,
        "-q",
        "-n",
        "600000",
        "-t",
        "set,get,lpush,lrange_100,zadd",
        "-P",
        "4",
    ]);
    run(&mut benchmark, LIMIT).expect_success("redis-benchmark");
    signal(drain.id(), libc::SIGTERM);
    let status = wait(&mut drain, LIMIT, "redis after SIGTERM");
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    // Redis catches SIGTERM and leaves by exit(0); that is its own status.
    assert!(matches!(status.code(), Some(0 | 143)), "{status}: {stderr}");
    check(&Recording::read(Path::new(&record.path())).unwrap(), "redis-server", 1.0);
}
