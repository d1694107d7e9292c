//! A reader of the pipe that stops for 10 s at 10 kHz: the program must not feel it.
//!
//! No check depends on wall-clock speed. The program's own count of work per CPU second is compared between a
//! reader that reads and one that stops. Its system calls are listed, and memory and the conservation sum are
//! checked.

use std::collections::HashMap;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{collect, programs, run, signal, spawn, status_kb, turn, wait};
use flightline_tests::truth::Truth;
use flightline_tests::{skip, victim};

const LIMIT: Duration = Duration::from_secs(90);
const PERIOD_NS: i64 = 100_000;

/// A finished recording through a pipe, not parsed yet.
struct Piped {
    record: Record,
    /// The peak resident memory of the drain while the reader was stopped, second and last quarter, kB.
    drain_kb: (u64, u64),
    /// The same for the program.
    program_kb: (u64, u64),
    stderr: String,
}

struct Outcome {
    units: i64,
    recording: Recording,
    truth: Truth,
    stderr: String,
}

impl Outcome {
    fn read(record: &Record, stderr: String) -> Outcome {
        let truth = Truth::read(&record.truth_path());
        let recording = Recording::read(&record.path()).unwrap_or_else(|e| panic!("{e}\n{stderr}"));
        Outcome { units: truth.counts["units"], recording, truth, stderr }
    }
}

/// Records `throughput` at 10 kHz through a pipe whose reader stops for `stop` after the first second.
fn through_a_pipe(args: &[&str], stop: Duration) -> Piped {
    let program = victim::c("throughput", victim::OPTIMISED);
    let record = Record::new().rate(10_000).output("-");
    let mut command = record.command(program, args);
    let mut drain = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let stderr = collect(drain.stderr.take().unwrap());
    let mut pipe = drain.stdout.take().unwrap();
    let (copy, truth) = (record.path(), record.truth_path());
    let (stop_now, stopped) = std::sync::mpsc::channel::<Duration>();
    let reader = std::thread::spawn(move || {
        let mut file = std::fs::File::create(copy).unwrap();
        let mut buffer = vec![0u8; 1 << 16];
        loop {
            if let Ok(pause) = stopped.try_recv() {
                std::thread::sleep(pause);
                // A busy machine needs longer for the program's work, and all of it must run while the reader
                // is stopped.
                let ended = || std::fs::read_to_string(&truth).is_ok_and(|t| t.contains("main"));
                while !pause.is_zero() && !ended() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            match pipe.read(&mut buffer).unwrap() {
                0 => return,
                n => std::io::Write::write_all(&mut file, &buffer[..n]).unwrap(),
            }
        }
    });
    std::thread::sleep(Duration::from_secs(1));
    stop_now.send(stop).unwrap();
    let pid = drain.id();
    let mut drain_kb = Vec::new();
    let mut program_kb = Vec::new();
    for _ in 0..(stop.as_millis() / 100).saturating_sub(5) {
        std::thread::sleep(Duration::from_millis(100));
        drain_kb.extend(status_kb(pid, "VmRSS"));
        program_kb.extend(programs(pid).first().and_then(|p| status_kb(*p, "VmRSS")));
    }
    let status = wait(&mut drain, LIMIT, "recording through a pipe");
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    reader.join().unwrap();
    assert_eq!(status.code(), Some(7), "{stderr}");
    let quarters = |kb: &[u64]| {
        let quarter = kb.len().div_ceil(4);
        let most = |part: Option<&[u64]>| part.and_then(|p| p.iter().copied().max()).unwrap_or(0);
        (most(kb.get(quarter..2 * quarter)), most(kb.get(kb.len().saturating_sub(quarter)..)))
    };
    Piped { record, drain_kb: quarters(&drain_kb), program_kb: quarters(&program_kb), stderr }
}

fn conserved(outcome: &Outcome, what: &str) {
    let (samples, lost) = (outcome.recording.samples_by_tid(), outcome.recording.lost_by_tid());
    for thread in &outcome.truth.threads {
        let seen = samples.get(&thread.tid).copied().unwrap_or(0) as i64 * PERIOD_NS;
        let lost = lost.get(&thread.tid).copied().unwrap_or(0) as i64;
        let off = seen + lost - thread.cpu_ns as i64;
        // After its clock reading a thread still ends, the first one through the exit handlers. (The host may
        // delay it by milliseconds.)
        let afterwards = if thread.name == "main" { 12_000_000 } else { 3_000_000 };
        assert!(
            (-PERIOD_NS * 3 / 2..=PERIOD_NS * 3 / 2 + afterwards).contains(&off),
            "{what}, {}: clock {} ns, sampled {seen}, lost {lost}: off by {off}\n{}",
            thread.name,
            thread.cpu_ns,
            outcome.stderr
        );
    }
}

fn causes(recording: &Recording) -> HashMap<&str, u64> {
    let mut lost: HashMap<&str, u64> = HashMap::new();
    for loss in &recording.losses {
        *lost.entry(&loss.cause).or_default() += loss.cpu_ns;
    }
    lost
}

/// The checks for runs with and without losses.
fn not_felt(args: &[&str]) -> Outcome {
    if !skip::perf_allowed(false) {
        skip::skip("perf_event_open is not allowed: the stall test runs at the timers' rate");
    }
    let turn = turn();
    let reading = through_a_pipe(args, Duration::ZERO);
    let piped = through_a_pipe(args, Duration::from_secs(10));
    let _place = turn.measured();
    let reading = Outcome::read(&reading.record, reading.stderr);
    let stopped = Outcome::read(&piped.record, piped.stderr);
    conserved(&reading, "reading");
    conserved(&stopped, "stopped");
    eprintln!(
        "{args:?} units: reading {}, stopped {}; events: reading {}, stopped {}; lost {:?}, {:?}; drain kB {:?}, program kB {:?}",
        reading.units,
        stopped.units,
        reading.recording.samples.len(),
        stopped.recording.samples.len(),
        causes(&reading.recording),
        causes(&stopped.recording),
        piped.drain_kb,
        piped.program_kb
    );
    // The work per CPU second is equal except for the machine's noise. The system calls below show that the
    // program does not wait.
    let ratio = stopped.units as f64 / reading.units as f64;
    assert!((0.7..1.5).contains(&ratio), "work per CPU second changed by {ratio:.2} with a stopped reader");
    // Memory stays bounded in both processes while the reader is stopped: the queue is 8 MiB, and the
    // program's memory is fixed. The dictionary of stacks (48 MiB at most) may still fill in that time.
    let grown = |(first, last): (u64, u64)| last.saturating_sub(first);
    assert!(grown(piped.drain_kb) < 32 << 10, "the drain grew: {:?} kB", piped.drain_kb);
    assert!(grown(piped.program_kb) < 1 << 10, "the program grew: {:?} kB", piped.program_kb);
    stopped
}

/// Few stacks: ten seconds at 10 kHz fit into the drain's queue, so there are no losses.
#[test]
fn stopped_reader_does_not_slow_program_or_lose_samples() {
    let stopped = not_felt(&["4"]);
    let lost = causes(&stopped.recording);
    assert!(!lost.contains_key("ring full"), "{lost:?}");
}

/// A new stack with nearly every sample: the queue fills, and samples are dropped and counted.
#[test]
fn samples_dropped_for_stopped_reader_are_counted() {
    let stopped = not_felt(&["5", "unique"]);
    let lost = causes(&stopped.recording);
    let full = lost.get("output full").copied().unwrap_or(0) + lost.get("ring full").copied().unwrap_or(0);
    assert!(
        full > 500_000_000,
        "ten seconds of new stacks at 10 kHz cannot have fitted into the queue: {lost:?}"
    );
    assert!(
        stopped.stderr.contains("output full") || stopped.stderr.contains("ring full"),
        "{}",
        stopped.stderr
    );
    let told: u64 = stopped.recording.losses.iter().map(|l| l.samples).sum();
    assert!(told > 0, "losses without a number of samples: {:?}", stopped.recording.losses);
}

/// The drain is stopped: the program ends as usual, and the rest is counted.
#[test]
fn stopped_drain_does_not_block_program() {
    let _turn = turn();
    let program = victim::c("throughput", victim::OPTIMISED);
    let record = Record::new().rate(10_000);
    let mut drain = spawn(record.command(program, &["2"]).stdout(Stdio::null()).stderr(Stdio::piped()));
    let stderr = collect(drain.stderr.take().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    signal(drain.id(), libc::SIGSTOP);
    // The program writes its ground truth as its last act, while the drain is stopped.
    let truth = flightline_tests::run::until(LIMIT, "the program ends although the drain is stopped", || {
        std::fs::read_to_string(record.truth_path()).ok().filter(|t| t.contains("main"))
    });
    assert!(truth.contains("units"));
    signal(drain.id(), libc::SIGCONT);
    let status = wait(&mut drain, LIMIT, "the drain, continued");
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    assert_eq!(status.code(), Some(7), "{stderr}");
    conserved(&Outcome::read(&record, stderr), "drain stopped");
}

/// The recorded program's own system calls between its first and last line of work: none that could wait.
#[test]
fn recorded_program_makes_no_blocking_system_calls() {
    let _turn = turn();
    if !skip::have("strace") {
        return skip::skip("no strace here: the system calls of a recorded program were not listed");
    }
    let program = victim::c("throughput", victim::OPTIMISED);
    let record = Record::new().rate(1000);
    let log = record.folder().join("calls.txt");
    let args = ["-f", "-qq", "-o", log.to_str().unwrap(), program.to_str().unwrap(), "0.7"];
    let finished = run(&mut record.command("strace", &args), LIMIT);
    assert_eq!(finished.code(), 7, "{}", finished.stderr);
    let calls = std::fs::read_to_string(&log).unwrap();
    let worker_calls: Vec<&str> = {
        // Threads other than the first one of the log: the workers.
        let first = calls.split_whitespace().next().unwrap().to_owned();
        calls.lines().filter(|l| !l.starts_with(&first)).collect()
    };
    assert!(worker_calls.iter().any(|l| l.contains("rt_sigreturn")), "no handler ran:\n{calls:.2000}");
    let mut unknown = Vec::new();
    for line in &worker_calls {
        let call = line.split_whitespace().nth(1).unwrap_or("");
        let name = call.split('(').next().unwrap_or("");
        // The usual calls of a thread (start, its own clock, its line of ground truth, its end), the
        // handler's return, the clock reads, and the perf event's own set-up in the thread's first signal.
        let harmless = [
            "clock_gettime",
            "rt_sigreturn",
            "rt_sigprocmask",
            "rseq",
            "set_robust_list",
            "madvise",
            "exit",
            "munmap",
            "mmap",
            "mprotect",
            "gettid",
            "getpid",
            "perf_event_open",
            "close",
            "timer_create",
            "timer_settime",
            "timer_delete",
            "prctl",
            "getcpu",
            "sched_getaffinity",
            "process_vm_readv",
            "tgkill",
            "ioctl",
        ];
        let marker = name.starts_with("---")
            || name.starts_with("+++")
            || name.starts_with("<...")
            || name == "openat" && line.contains("truth.tsv")
            || name == "write" && line.contains("\"thread\\tworker")
            || line.contains("\"thread\\t");
        if !marker && !harmless.contains(&name) {
            unknown.push(*line);
        }
    }
    assert!(
        unknown.is_empty(),
        "calls that a recorded thread would not make by itself:\n{}",
        unknown.join("\n")
    );
}
