//! Deaths at random instants: of the program, of the drain, of both.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{children, collect, signal, spawn, turn, until, wait};
use flightline_tests::shared_memory::{ProcFile, processes, session_of};
use flightline_tests::victim;

const LIMIT: Duration = Duration::from_secs(60);

/// Instants spread over the program's life by the golden ratio: as good as random, and the same in every run.
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

/// What `ticking` prints when nothing disturbs it.
fn ticks() -> String {
    (1..=10).map(|i| format!("tick {i}\n")).collect()
}

/// SIGKILL of the drain: the program runs to its end with the same output and status.
#[test]
fn the_program_does_not_notice_the_drains_death() {
    let _turn = turn();
    let program = victim::c("ticking", victim::OPTIMISED);
    let work = r#""$0" 300 > out.txt; echo $? > status.txt"#;
    for (i, instant) in instants(12, 400.0).enumerate() {
        // Half of the runs die with the signal that cannot be caught, half are stopped first: a full ring, then death.
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

/// SIGKILL of the program: what its handlers took is recorded, to the last sample of each thread.
#[test]
fn what_was_taken_survives_the_programs_death() {
    let _turn = turn();
    let program = victim::c("ticking", victim::OPTIMISED);
    for instant in instants(12, 500.0) {
        let record = Record::new().rate(5000);
        let mut drain =
            spawn(record.command(&program, &["100000"]).stdout(Stdio::null()).stderr(Stdio::piped()));
        let stderr = collect(drain.stderr.take().unwrap());
        let pid = program_of(drain.id(), "ticking");
        // An own view of the counters that the handlers write, kept beyond both processes' lives.
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
        // Each thread may have died between its count and its record; and events round each thread's time once.
        let recorded_ns = recording.samples.len() as u64 * 200_000;
        let slack = threads.len() as u64 * 2 * 200_000;
        eprintln!("killed after {instant:?}: {taken} samples taken, {} events", recording.samples.len());
        assert!(taken > 0 || instant < Duration::from_millis(60), "nothing was taken");
        assert!(
            recorded_ns + slack >= taken_ns && taken_ns + slack >= recorded_ns,
            "{taken_ns} ns were taken, {recorded_ns} ns are recorded\n{stderr}"
        );
    }
}

/// SIGKILL of both: the file is readable and at most about one flush interval is missing.
#[test]
fn the_file_survives_both_deaths() {
    let _turn = turn();
    let program = victim::c("ticking", victim::OPTIMISED);
    for instant in instants(4, 1500.0) {
        let record = Record::new().rate(1000);
        let mut drain =
            spawn(record.command(&program, &["100000"]).stdout(Stdio::null()).stderr(Stdio::null()));
        let pid = program_of(drain.id(), "ticking");
        std::thread::sleep(Duration::from_millis(2500) + instant);
        signal(drain.id(), libc::SIGKILL);
        signal(pid, libc::SIGKILL);
        wait(&mut drain, LIMIT, "the drain, killed");
        let recording = Recording::read(&record.path()).unwrap_or_else(|e| panic!("after {instant:?}: {e}"));
        let n = recording.samples.len();
        // Two threads share two processors at the least; one second may be missing, the first is for starting.
        let least = 200.max((instant.as_millis() as usize) / 4);
        assert!(n >= least, "{n} samples of {:?} survived", Duration::from_millis(2500) + instant);
    }
    leftovers_are_removed_by_the_next_recording();
}

/// Shared memory of killed drains does not pile up.
fn leftovers_are_removed_by_the_next_recording() {
    Record::new().run("/bin/true", &[]).expect_code(0);
    let dead: Vec<_> = std::fs::read_dir("/dev/shm")
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("flightline-"))
        .filter(|dir| {
            let page = std::fs::read(dir.join("session")).unwrap_or_default();
            let pid = page.get(24..28).map_or(0, |p| u32::from_le_bytes(p.try_into().unwrap()));
            !Path::new(&format!("/proc/{pid}")).exists()
        })
        .collect();
    assert!(dead.is_empty(), "left behind: {dead:?}");
}

/// SIGINT and SIGTERM to `flightline record` finish the recording; SIGINT comes from the terminal to both.
#[test]
fn interrupts_finish_the_recording() {
    let _turn = turn();
    let program = victim::c("ticking", victim::OPTIMISED);
    for (number, group) in [(libc::SIGINT, true), (libc::SIGTERM, false), (libc::SIGINT, false)] {
        let record = Record::new().rate(1000);
        let mut drain =
            spawn(record.command(&program, &["100000"]).stdout(Stdio::null()).stderr(Stdio::piped()));
        let stderr = collect(drain.stderr.take().unwrap());
        let pid = program_of(drain.id(), "ticking");
        std::thread::sleep(Duration::from_millis(700));
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
