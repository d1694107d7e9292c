//! Kills between any two instructions that change persistent state. Recorder and program are stepped one
//! instruction at a time. After each change of shared memory or of the recording, a copy of both is recovered
//! as if both processes had been killed. The copy must have exactly the program's work so far.
//!
//! `CRASH_STEPS` is the number of rounds for each process, `CRASH_INSTRUCTIONS` their length; `.ci/long
//! crashes` has more, with flushes and chunks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use flightline_tests::crashes::{Found, Instant, Told, record, recover};
use flightline_tests::run::{beside, children, collect, signal, spawn, until, wait};
use flightline_tests::shared_memory::session_of;
use flightline_tests::stepping::{Copied, Watch, freeze, freeze_others};
use flightline_tests::victim;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const THREADS: usize = 2;
/// More allocations than the program reaches.
const COUNT: u64 = 1 << 30;
/// The instructions of one round, from the first change on.
const STEPS: u64 = 40_000;
/// In multiples of that: the instructions before the first change.
const LONGEST: u64 = 40;
/// The copies of one kind of change in one round: the first ones, and later ones at growing distances,
/// because a round of the drain has hundreds of the same kind.
const EACH: u64 = 6;
/// The queue of copies to recover, and its worker threads.
const WAITING: usize = 6;
const RECOVERERS: usize = 2;

/// Reads a number from the environment.
fn set(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Returns true if the `n`th change of a kind is checked.
fn wanted(n: u64, each: u64) -> bool {
    n <= each || n.is_power_of_two() || n.is_multiple_of(97)
}

struct Job {
    copied: Copied,
    /// All threads are stopped: no tolerance.
    at: Instant,
    what: String,
}

/// Recovers copies; returns their number and the errors.
fn recoverer(jobs: &Mutex<Receiver<Job>>) -> (u64, Vec<String>) {
    let (mut done, mut wrong) = (0, Vec::new());
    loop {
        let Ok(job) = jobs.lock().unwrap().recv() else { return (done, wrong) };
        done += 1;
        let finished = recover(&job.copied.output);
        if finished.code() != 0 {
            wrong.push(format!("{}: status {}: {}", job.what, finished.code(), finished.stderr));
            continue;
        }
        let found = std::panic::catch_unwind(|| Found::read(&job.copied.output, THREADS));
        match found {
            Ok(found) => {
                if let Some(problem) = found.wrong(&job.at, &job.at) {
                    wrong.push(format!("{}: {problem}; {:?}; {}", job.what, job.at, finished.stderr.trim()));
                }
            }
            Err(_) => wrong.push(format!("{}: the recording cannot be read", job.what)),
        }
        if job.copied.session.exists() {
            wrong.push(format!("{}: shared memory is left", job.what));
        }
    }
}

/// Steps through a recording; `the_drain`, or the program's threads in turns.
#[track_caller]
fn step_through(name: &str, repository: bool, the_drain: bool) {
    let _place = beside();
    let folder = TempDir::with_prefix("flightline-test-").unwrap();
    let told = Told::new(folder.path(), THREADS);
    let live = folder.path().join("live");
    std::fs::create_dir(&live).unwrap();
    let output = live.join(if repository { "repository" } else { "run.jfr" });
    let out = output.to_str().unwrap();
    let mut options = vec!["--ring-size", "4M", "--flush", "100ms"];
    match repository {
        true => options.extend(["--chunk-age", "1s", "--repository", out]),
        false => options.extend(["-o", out]),
    }
    if !the_drain {
        // Stepping while SIGTRAP is blocked resets its handler (`force_sig`), so signals with another number
        // are used.
        options.extend(["--engine", "timer"]);
    }
    let mut drain = spawn(&mut record(&options, &told.program(COUNT)));
    let stderr = collect(drain.stderr.take().unwrap());
    let program_file = victim::c("crashes", victim::OPTIMISED);
    let program = until(LIMIT, "the program starts", || {
        let is =
            |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program_file);
        children(drain.id()).into_iter().find(is)
    });
    until(LIMIT, "every thread allocates", || told.now().0.iter().all(|t| t.1 > 100).then_some(()));
    let session = session_of(drain.id()).expect("shared memory of a running recording");
    let mut watch = Watch::new(&session, &output);
    let (send, receive) = sync_channel::<Job>(WAITING);
    let receive = Arc::new(Mutex::new(receive));
    let workers: Vec<_> = (0..RECOVERERS)
        .map(|_| {
            let jobs = receive.clone();
            std::thread::spawn(move || recoverer(&jobs))
        })
        .collect();
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut steps, mut number, began) = (0u64, 0u32, Clock::now());
    let each = set("CRASH_EACH", EACH);
    let (times, most) = (set("CRASH_STEPS", 1), set("CRASH_INSTRUCTIONS", STEPS));
    for time in 0..times {
        // The drain empties the ring, then gets a little data: the next steps are a short round and a flush.
        drop((freeze(program), std::thread::sleep(Duration::from_millis(220 + time * 37 % 110))));
        std::thread::sleep(Duration::from_millis(1));
        let mut of_program = freeze(program);
        let mut of_drain = freeze(drain.id());
        let (of_stepped, pid) =
            if the_drain { (&mut of_drain, drain.id()) } else { (&mut of_program, program) };
        let which = if the_drain { 0 } else { time as usize % of_stepped.len() };
        let mut stepped = of_stepped.remove(which);
        let mut here: BTreeMap<&str, u64> = BTreeMap::new();
        let mut before = watch.look(!the_drain);
        let steps_now = if the_drain { most } else { most / 4 };
        // The number of steps before a round's first change depends on the build and on the machine's load.
        let (mut step, mut last) = (0, LONGEST * steps_now);
        while step < last {
            step += 1;
            assert!(stepped.step(), "{name}: the thread is gone at step {step}");
            steps += 1;
            if stepped.waits() {
                // The other threads may hold the lock that it waits for.
                of_stepped.clear();
                std::thread::sleep(Duration::from_millis(1));
                *of_stepped = freeze_others(pid);
            }
            let now = watch.look(!the_drain);
            let Some(kind) = now.since(&before) else { continue };
            before = now;
            last = if here.is_empty() { step + steps_now } else { last };
            let seen = here.entry(kind).or_default();
            *seen += 1;
            if !wanted(*seen, each) {
                continue;
            }
            *kinds.entry(kind).or_default() += 1;
            number += 1;
            let copied = watch.copy(&live, &format!("{number:04x}"));
            let what = format!("{name}, time {time}, step {step}, {kind}");
            send.send(Job { copied, at: told.now(), what }).unwrap();
        }
    }
    drop(send);
    let results: Vec<_> = workers.into_iter().map(|w| w.join().unwrap()).collect();
    let done: u64 = results.iter().map(|r| r.0).sum();
    let wrong: Vec<String> = results.into_iter().flat_map(|r| r.1).collect();
    println!(
        "{name}: {steps} instructions, {done} deaths, {:.0} s: {kinds:?}",
        began.elapsed().as_secs_f64()
    );
    signal(program, libc::SIGKILL);
    wait(&mut drain, LIMIT, "the recorder after its program's death");
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    assert!(wrong.is_empty(), "{} of {done}:\n{}\n{stderr}", wrong.len(), wrong.join("\n"));
    assert!(done > 0 && !kinds.is_empty(), "{name}: nothing changed in {steps} instructions");
    // The recording of the stepped process is complete at the end.
    let found = Found::read(&output, THREADS);
    let now = told.now();
    assert_eq!(found.wrong(&now, &now), None);
    assert!(!Path::new(&session).exists());
}

#[test]
fn file_recording_survives_kill_at_each_recorder_step() {
    step_through("recorder, file", false, true);
}

#[test]
fn repository_survives_kill_at_each_recorder_step() {
    step_through("recorder, repository", true, true);
}

#[test]
fn recording_survives_kill_at_each_program_step() {
    step_through("program", false, false);
}
