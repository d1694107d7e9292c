//! Deaths at random instants: of the program, of the drain, of both.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use flightline_tests::cgroup::Group;
use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{Finished, beside, children, collect, run, signal, spawn, until, wait};
use flightline_tests::shared_memory::{ProcFile, processes, session_of};
use flightline_tests::skip;
use flightline_tests::victim;

const LIMIT: Duration = Duration::from_secs(60);

/// Instants spread over the program's life by the golden ratio: pseudo-random, and the same in every run.
fn instants(n: u32, longest_ms: f64) -> impl Iterator<Item = Duration> {
    (1..=n).map(move |i| {
        let part = (f64::from(i) * 0.618_033_988_749_895).fract();
        Duration::from_micros((1000.0 * (20.0 + part * longest_ms)) as u64)
    })
}

/// The recorded program of a running `flightline record`.
#[track_caller]
fn program_of(drain: u32, name: &str) -> u32 {
    until(LIMIT, "the program starts", || {
        children(drain).into_iter().find(|pid| {
            std::fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|exe| exe.to_string_lossy().contains(name))
        })
    })
}

/// The output of an undisturbed `ticking`.
fn ticks() -> String {
    (1..=10).map(|i| format!("tick {i}\n")).collect()
}

/// SIGKILL of the drain: the program runs to its end with the same output and status.
#[test]
fn killed_drain_does_not_affect_program() {
    let _place = beside();
    let program = victim::c("ticking", victim::OPTIMISED);
    let work = r#""$0" 300 > out.txt; echo $? > status.txt"#;
    for (i, instant) in instants(12, 400.0).enumerate() {
        // Half of the runs die by SIGKILL at once, half are stopped first, for a full ring.
        let record = Record::new().rate(10_000).engine(if i % 3 == 2 { "timer" } else { "auto" });
        let mut command = record.command("/bin/sh", &["-c", work, program.to_str().unwrap()]);
        let mut drain = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        program_of(drain.id(), "sh");
        std::thread::sleep(instant);
        if i % 2 == 1 {
            signal(drain.id(), libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(100));
        }
        signal(drain.id(), libc::SIGKILL);
        wait(&mut drain, LIMIT, "the drain, killed");
        let status = record.folder().join("status.txt");
        let code = until(LIMIT, "the program ends by itself after the drain's death", || {
            std::fs::read_to_string(&status).ok().filter(|s| s.ends_with('\n'))
        });
        let out = std::fs::read_to_string(record.folder().join("out.txt")).unwrap();
        assert_eq!((code.trim(), out), ("23", ticks()), "killed after {instant:?}");
    }
}

/// The CPU time of a program's start, which is sampled from outside before the library samples it.
const START_NS: u64 = 100_000_000;

/// SIGKILL of the program: all samples of its handlers are recorded, up to the last one of each thread.
#[test]
fn killed_program_samples_are_recorded() {
    let _place = beside();
    let program = victim::c("ticking", victim::OPTIMISED);
    for instant in instants(12, 500.0) {
        let record = Record::new().rate(5000);
        let mut drain =
            spawn(record.command(&program, &["100000"]).stdout(Stdio::null()).stderr(Stdio::piped()));
        let stderr = collect(drain.stderr.take().unwrap());
        let pid = program_of(drain.id(), "ticking");
        // A mapping of the handlers' counters that outlives both processes.
        let counters = until(LIMIT, "the program opens its shared file", || {
            let session = session_of(drain.id())?;
            let files = processes(&session);
            files.iter().filter_map(|f| ProcFile::open(f).ok()).find(|f| f.pid() == pid)
        });
        std::thread::sleep(instant);
        signal(pid, libc::SIGKILL);
        let status = wait(&mut drain, LIMIT, "flightline after its program's death");
        let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
        assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{stderr}");
        let threads = counters.threads();
        let taken_ns: u64 = threads.iter().map(|t| t.sampled_ns).sum();
        let taken: u64 = threads.iter().map(|t| t.samples).sum();
        let recording = Recording::read(&record.path()).unwrap_or_else(|e| panic!("after {instant:?}: {e}"));
        // Each thread may have died between its count and its record, and events round each thread's time
        // once.
        let recorded_ns = recording.samples.len() as u64 * 200_000;
        let slack = threads.len() as u64 * 2 * 200_000;
        eprintln!("killed after {instant:?}: {taken} samples taken, {} events", recording.samples.len());
        assert!(taken > 0 || instant < Duration::from_millis(60), "nothing was taken");
        assert!(
            recorded_ns + slack >= taken_ns && taken_ns + START_NS + slack >= recorded_ns,
            "{taken_ns} ns were taken, {recorded_ns} ns are recorded\n{stderr}"
        );
    }
}

/// SIGKILL of both: the file is readable and at most about one flush interval is missing.
#[test]
fn file_is_readable_after_program_and_drain_are_killed() {
    let _place = beside();
    let program = victim::c("ticking", victim::OPTIMISED);
    let mut left = Vec::new();
    for instant in instants(4, 1500.0) {
        let record = Record::new().rate(1000);
        let mut drain =
            spawn(record.command(&program, &["100000"]).stdout(Stdio::null()).stderr(Stdio::null()));
        let pid = program_of(drain.id(), "ticking");
        std::thread::sleep(Duration::from_millis(2500) + instant);
        left.push(session_of(drain.id()).expect("shared memory of a running recording"));
        signal(drain.id(), libc::SIGKILL);
        signal(pid, libc::SIGKILL);
        wait(&mut drain, LIMIT, "the drain, killed");
        let recording = Recording::read(&record.path()).unwrap_or_else(|e| panic!("after {instant:?}: {e}"));
        let n = recording.samples.len();
        // Two threads share at least two processors. One second may be missing; the first is for starting.
        let least = 200.max((instant.as_millis() as usize) / 4);
        assert!(n >= least, "{n} samples of {:?} survived", Duration::from_millis(2500) + instant);
    }
    // The shared memory of killed drains is kept for a recovery, but for at most a day.
    Record::new().run("/bin/true", &[]).expect_code(0);
    let (young, old) = left.split_at(2);
    assert!(left.iter().all(|session| session.exists()), "of {left:?} some could not be recovered any more");
    for session in old {
        let yesterday = SystemTime::now() - Duration::from_secs(25 * 3600);
        std::fs::File::open(session).unwrap().set_modified(yesterday).unwrap();
    }
    Record::new().run("/bin/true", &[]).expect_code(0);
    assert!(old.iter().all(|session| !session.exists()), "left behind: {old:?}");
    for session in young {
        assert!(session.exists(), "{} was removed on the first day", session.display());
        let _ = std::fs::remove_dir_all(session);
    }
}

/// SIGINT and SIGTERM to `flightline record` finish the recording; SIGINT comes from the terminal to both.
#[test]
fn interrupt_signals_finish_recording() {
    let _place = beside();
    let program = victim::c("ticking", victim::OPTIMISED);
    for (number, group) in [(libc::SIGINT, true), (libc::SIGTERM, false), (libc::SIGINT, false)] {
        let record = Record::new().rate(1000);
        let mut drain =
            spawn(record.command(&program, &["100000"]).stdout(Stdio::null()).stderr(Stdio::piped()));
        let stderr = collect(drain.stderr.take().unwrap());
        let pid = program_of(drain.id(), "ticking");
        // Measured by its own clock: a busy machine may give it only a part of 700 ms.
        until(LIMIT, "the program has worked for 300 ms", || {
            let account = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
            let ran_ns: u64 = account.split(' ').next().unwrap().parse().unwrap();
            (ran_ns > 300_000_000).then_some(())
        });
        if group {
            flightline_tests::run::signal_group(drain.id(), number);
        } else {
            signal(drain.id(), number);
        }
        let status = wait(&mut drain, LIMIT, "flightline after a signal");
        let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
        assert_eq!(status.code(), Some(128 + number), "{stderr}");
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the program is still there");
        let recording = Recording::read(&record.path()).unwrap_or_else(|e| panic!("{e}\n{stderr}"));
        assert!(recording.samples.len() > 100, "{} samples\n{stderr}", recording.samples.len());
        if let Some(foreign) = Recording::read_by_jdk(&record.path()) {
            assert_eq!(foreign.samples.len(), recording.samples.len());
        }
    }
}

/// The CPU time in the last line of `eats`, without the time for touching new pages, in ns.
#[track_caller]
fn told_ns(finished: &Finished) -> u64 {
    let text = finished.stdout_text();
    let mut last = text.lines().last().unwrap_or("").split(' ').skip(1).map_while(|n| n.parse::<u64>().ok());
    let (Some(all), Some(touched)) = (last.next(), last.next()) else {
        panic!("the program said nothing: {text:?}\n{}", finished.stderr)
    };
    all - touched
}

/// Killed by the OOM killer: its work up to then is recorded.
#[track_caller]
fn check_eaten(finished: &Finished, path: &Path) {
    assert_eq!(finished.code(), 128 + libc::SIGKILL, "{}", finished.stderr);
    let recording = Recording::read(path).unwrap_or_else(|e| panic!("{e}\n{}", finished.stderr));
    assert!(recording.warnings.is_empty(), "{:?}\n{}", recording.warnings, finished.stderr);
    let in_chew = |stack: usize| recording.stacks[stack].frames.iter().any(|f| f.method == "chew");
    let chewing = recording.samples.iter().filter(|s| in_chew(s.stack)).count();
    // At 1 kHz. Some time before the first sample and after the last one is missing, and the loader runs
    // before the library.
    let (is, should) = (chewing as u64 * 1_000_000, told_ns(finished));
    assert!(
        is as f64 >= 0.9 * should as f64 - 30e6,
        "{is} ns in chew, the program reported {should} ns\n{}",
        finished.stderr
    );
}

const MEMORY: u64 = 192 << 20;

/// The kernel kills the program because of its control group's memory limit. The recorder is in another
/// group, or in the same one; or the recorder is killed first, and the program after it. The recording is
/// recovered each time.
#[test]
fn recording_is_recovered_after_oom_kill() {
    let _place = beside();
    let program = victim::c("eats", victim::OPTIMISED);
    let Some(group) = Group::new(MEMORY) else {
        skip::other_user(
            "no control groups with a memory limit: the program kills itself instead of the kernel",
        );
        let recorded = Record::new().run(&program, &["128"]);
        return check_eaten(&recorded.finished, &recorded.path);
    };
    let enter = r#"echo $$ > "$0" && exec "$@""#;
    let members = group.members();
    let members = members.to_str().unwrap();
    let recorded = Record::new().run("/bin/sh", &["-c", enter, members, program.to_str().unwrap()]);
    assert_eq!(group.killed(), 1, "{}", recorded.finished.stderr);
    check_eaten(&recorded.finished, &recorded.path);
    drop(group);

    let group = Group::new(MEMORY).expect("there was one a moment ago");
    let record = Record::new();
    let plain = record.command(&program, &[]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", enter]).arg(group.members()).arg(plain.get_program()).args(plain.get_args());
    command.current_dir(record.folder()).stdin(Stdio::null());
    let finished = run(&mut command, LIMIT);
    assert_eq!(group.killed(), 1, "{}", finished.stderr);
    check_eaten(&finished, &record.path());
    drop(group);

    let group = Group::new(MEMORY).expect("there was one a moment ago");
    let record = Record::new();
    // The kernel kills the process with the higher score first.
    let first = r#"echo $$ > "$0" && echo 1000 > /proc/self/oom_score_adj && exec "$@""#;
    let second = r#"echo 0 > /proc/self/oom_score_adj && exec "$0""#;
    let plain = record.command("/bin/sh", &["-c", second, program.to_str().unwrap()]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", first]).arg(group.members()).arg(plain.get_program()).args(plain.get_args());
    command.current_dir(record.folder()).stdin(Stdio::null());
    // Its end shows as the end of its standard output, which the program holds open.
    let finished = run(&mut command, LIMIT);
    assert_eq!(group.killed(), 2, "{}", finished.stderr);
    let recovered = run(Command::new(victim::flightline()).arg("recover").arg(record.path()), LIMIT);
    assert_eq!(recovered.code(), 0, "{}", recovered.stderr);
    assert!(!recovered.stdout.is_empty(), "there was nothing to recover: {}", recovered.stderr);
    check_eaten(&finished, &record.path());
}
