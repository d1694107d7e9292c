//! Crash safety: the program, the recorder or both are killed at any instant, and no sample is lost or
//! recorded twice. The program itself counts `taken`.
//!
//! `CRASHES` is the number of kills of each kind; `.ci/long crashes` has thousands.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use flightline_in_signal::layout::{event_kind, loss};
use flightline_tests::allocations::Allocations;
use flightline_tests::crashes::{self, Found, Instant, Told, record, recover};
use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, children, collect, run, signal, spawn, status_kb, until, wait};
use flightline_tests::shared_memory::{ProcFile, processes, session_of};
use flightline_tests::skip;
use flightline_tests::stepping::Watch;
use flightline_tests::victim;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const THREADS: usize = 3;
/// More allocations than the program reaches.
const COUNT: u64 = 1 << 30;

fn deaths() -> u32 {
    std::env::var("CRASHES").ok().map_or(2, |n| n.parse().expect("CRASHES is a number"))
}

/// Instants spread by the golden ratio: pseudo-random, and the same in every run.
fn instant(i: u32, longest: Duration) -> Duration {
    longest.mul_f64((f64::from(i) * 0.618_033_988_749_895).fract())
}

struct Killed {
    folder: TempDir,
    output: PathBuf,
    session: PathBuf,
    told: Told,
    least: Instant,
    program: u32,
}

/// Starts the recorded program, and waits until every thread has begun.
struct Running {
    folder: TempDir,
    output: PathBuf,
    session: PathBuf,
    told: Told,
    drain: Child,
    program: u32,
}

#[track_caller]
fn begin(repository: bool, ring: &str) -> Running {
    let folder = TempDir::with_prefix("flightline-test-").unwrap();
    let told = Told::new(folder.path(), THREADS);
    let live = folder.path().join("live");
    std::fs::create_dir(&live).unwrap();
    let output = live.join(if repository { "repository" } else { "run.jfr" });
    let out = output.to_str().unwrap();
    // Short flushes and chunks: most deaths are near one.
    let options: &[&str] = match repository {
        true => &["--ring-size", ring, "--flush", "100ms", "--chunk-age", "1s", "--repository", out],
        false => &["--ring-size", ring, "--flush", "300ms", "-o", out],
    };
    let mut drain = spawn(&mut record(options, &told.program(COUNT)));
    collect(drain.stderr.take().unwrap());
    let name = victim::c("crashes", victim::OPTIMISED);
    let program = until(LIMIT, "the program starts", || {
        let is = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == name);
        children(drain.id()).into_iter().find(is)
    });
    until(LIMIT, "every thread allocates", || told.now().0.iter().all(|t| t.1 > 0).then_some(()));
    let session = session_of(drain.id()).expect("shared memory of a running recording");
    Running { folder, output, session, told, drain, program }
}

/// Kills the processes in `who` in turn, with a short time between.
#[track_caller]
fn kill(i: u32, repository: bool, who: &[(bool, i32)]) -> Killed {
    let Running { folder, output, session, told, mut drain, program } = begin(repository, "4M");
    std::thread::sleep(instant(i, Duration::from_millis(1500)));
    for (n, (the_drain, number)) in who.iter().enumerate() {
        if n > 0 {
            std::thread::sleep(instant(i * 7 + 3, Duration::from_millis(8)));
        }
        signal(if *the_drain { drain.id() } else { program }, *number);
    }
    wait(&mut drain, LIMIT, "the recorder, killed or after its program's death");
    let least = told.now();
    Killed { folder, output, session, told, least, program }
}

impl Killed {
    #[track_caller]
    fn check(&self, what: &str, recovered: &str) -> Found {
        let found = Found::read(&self.output, THREADS);
        let wrong = found.wrong(&self.least, &self.told.now());
        assert!(wrong.is_none(), "{what}: {}\n{:?}\n{recovered}", wrong.unwrap(), self.told.now());
        assert!(!self.session.exists(), "{what}: shared memory is left");
        found
    }
}

/// The recorder survives: its recording is complete.
fn program_dies(number: i32) {
    let _place = beside();
    for i in 1..=deaths() {
        let killed = kill(i, i % 2 == 0, &[(false, number)]);
        let found = killed.check(&format!("program, signal {number}, death {i}"), "");
        assert!(found.samples > 0);
    }
}

/// The recorder is killed, alone or with the program, and the recording is recovered.
fn recorder_dies(name: &str, who: &[(bool, i32)]) {
    let _place = beside();
    let mut done = 0;
    for i in 1..=deaths() {
        let killed = kill(i, i % 2 == 0, who);
        let alive = Path::new(&format!("/proc/{}", killed.program)).exists();
        // A reader recovers as well as `recover` does; surviving processes may continue during that.
        let finished = recover(&killed.output);
        if alive {
            signal(killed.program, libc::SIGKILL);
        }
        let what = format!("{name}, death {i}");
        assert_eq!(finished.code(), 0, "{what}: {}", finished.stderr);
        killed.check(&what, &finished.stderr);
        done += killed.told.now().done();
        let again = recover(&killed.output);
        assert!(again.stdout.is_empty(), "{what}: recovered twice: {}", again.stdout_text());
        if i == 1
            && let Some(foreign) = Recording::read_by_jdk(&killed.output)
        {
            let ours = Found::read(&killed.output, THREADS);
            let of = |name: &str| foreign.events.get(name).copied().unwrap_or(0);
            assert!(of("profiler.Malloc") >= ours.marked.iter().map(Vec::len).sum::<usize>() as u64);
            assert_eq!(foreign.samples.len() as u64, ours.samples);
        }
        drop(killed.folder);
    }
    println!("{name}: {} deaths, {done} allocations, none lost and none twice", deaths());
}

#[test]
fn killed_program_loses_no_samples() {
    program_dies(libc::SIGKILL);
}

#[test]
fn crashed_program_loses_no_samples() {
    program_dies(libc::SIGSEGV);
    program_dies(libc::SIGABRT);
}

#[test]
fn killed_recorder_loses_no_samples() {
    recorder_dies("recorder", &[(true, libc::SIGKILL)]);
}

#[test]
fn killed_program_and_recorder_lose_no_samples() {
    recorder_dies("both, the recorder first", &[(true, libc::SIGKILL), (false, libc::SIGKILL)]);
    recorder_dies(
        "both, the program first",
        &[(false, libc::SIGSTOP), (true, libc::SIGKILL), (false, libc::SIGKILL)],
    );
}

/// The program counts allocations that do not fit into the ring, and all of these losses are reported: the
/// recorder reports those counted before a flush, and the recovery those counted after it or after the
/// recorder's death.
#[test]
fn ring_losses_before_and_after_kill_are_reported() {
    let _place = beside();
    for i in 1..=deaths() {
        let what = format!("losses, death {i}");
        let mut running = begin(i % 2 == 0, "64k");
        let files = processes(&running.session);
        let [file] = &files[..] else { panic!("{what}: {files:?}") };
        let memory = ProcFile::open(file).unwrap();
        let lose_some = || {
            let before = memory.events_lost(event_kind::ALLOC);
            until(LIMIT, "the ring is full", || {
                (memory.events_lost(event_kind::ALLOC) > before).then_some(())
            });
        };
        let drain = running.drain.id();
        for round in 0..2 {
            signal(drain, libc::SIGSTOP);
            lose_some();
            signal(drain, libc::SIGCONT);
            std::thread::sleep(instant(2 * i + round, Duration::from_millis(600)));
        }
        signal(drain, libc::SIGKILL);
        wait(&mut running.drain, LIMIT, "the recorder, killed");
        lose_some();
        signal(running.program, libc::SIGKILL);
        until(LIMIT, "all of the program is gone", || {
            let threads = std::fs::read_dir(format!("/proc/{}/task", running.program));
            let left = threads.map_or(0, |threads| threads.count());
            (left <= 1 && status_kb(running.program, "VmRSS").is_none()).then_some(())
        });
        let finished = recover(&running.output);
        assert_eq!(finished.code(), 0, "{what}: {}", finished.stderr);
        assert!(finished.stderr.contains("reported as lost"), "{what}: {}", finished.stderr);
        let (mut events, mut samples) = (0, 0);
        for file in crashes::files(&running.output) {
            let lost = Allocations::read(&file).lost.into_iter().filter(|(name, _)| name == "alloc");
            events += lost.map(|(_, count)| count as u64).sum::<u64>();
            let lost =
                Recording::read(&file).unwrap().losses.into_iter().filter(|loss| loss.cause == "ring full");
            samples += lost.map(|loss| loss.samples).sum::<u64>();
        }
        assert_eq!(events, memory.events_lost(event_kind::ALLOC), "{what}: events");
        let counted: u64 =
            memory.threads().iter().map(|thread| u64::from(thread.lost[loss::RING_FULL])).sum();
        assert_eq!(samples, counted, "{what}: samples");
        let found = Found::read(&running.output, THREADS);
        let all = events + found.marked.iter().map(|thread| thread.len() as u64).sum::<u64>();
        let now = running.told.now();
        let begun: u64 = now.0.iter().map(|thread| thread.0).sum();
        assert!((now.done()..=begun).contains(&all), "{what}: {all} recorded or lost of {now:?}");
    }
}

/// Earlier and later recordings stay intact.
#[test]
fn reader_recovers_killed_recorder_recording() {
    let _place = beside();
    let killed = kill(5, false, &[(true, libc::SIGKILL), (false, libc::SIGKILL)]);
    Record::new().run("/bin/true", &[]).expect_code(0);
    let mut summary = Command::new(victim::flightline());
    let finished = run(summary.arg("summary").arg(&killed.output), LIMIT);
    let finished = finished.expect_success("summary of a recording whose recorder was killed");
    assert!(finished.stderr.contains("the recorder was killed"), "{}", finished.stderr);
    killed.check("by a reader", &finished.stderr);
}

/// The shared memory of a killed recorder may be damaged, by its program or otherwise. Every reader ends with
/// a status, and the recording stays readable.
#[test]
fn damaged_shared_memory_leaves_recording_readable() {
    let _place = beside();
    let killed = kill(3, false, &[(true, libc::SIGKILL), (false, libc::SIGKILL)]);
    let live = killed.output.parent().unwrap();
    let mut watch = Watch::new(&killed.session, &killed.output);
    let aside = watch.put_aside();
    // The events that the recorder had written itself.
    let before = Found::read(&killed.output, THREADS).exact;
    // xorshift: the same damage in every run.
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below.max(1) as u64) as usize
    };
    let mut recovered = 0;
    for i in 0..6 * deaths() {
        let copied = watch.copy(live, &format!("{i:04x}"));
        let files: Vec<PathBuf> =
            std::fs::read_dir(&copied.session).unwrap().flatten().map(|e| e.path()).collect();
        let file = &files[i as usize % files.len()];
        let mut bytes = std::fs::read(file).unwrap();
        for _ in 0..1 << next(8) {
            // Most words are unused zeros, so damage is placed where data is, and in the first page.
            let at = match next(3) {
                0 => next(8192) & !7,
                _ => (0..64)
                    .map(|_| next(bytes.len()) & !7)
                    .find(|at| bytes[*at..].iter().take(8).any(|b| *b != 0))
                    .unwrap_or(64),
            };
            let value = [0, u64::MAX, 1 << next(64), next(1 << 20) as u64, 1 << 63][next(5)];
            if let Some(word) = bytes.get_mut(at..at + 8) {
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        if next(10) == 0 {
            bytes.truncate(next(20_000));
        }
        std::fs::write(file, bytes).unwrap();
        let finished = recover(&copied.output);
        let what = format!("damage {i} to {}", file.display());
        assert!((0..=2).contains(&finished.code()), "{what}: {}\n{}", finished.code(), finished.stderr);
        recovered += u32::from(finished.code() == 0 && !finished.stdout.is_empty());
        let found = Found::read(&copied.output, THREADS);
        assert!(found.exact >= before, "{what}: of {before} in the recording {} are left", found.exact);
    }
    assert!(recovered > 0, "nothing could be recovered at all");
    aside.back();
    let finished = recover(&killed.output);
    killed.check("after its copies were damaged", &finished.stderr);
}

/// `--sync`: another thread than the one that empties the rings writes each flush to the disk.
#[test]
fn sync_writes_flushes_to_disk_on_separate_thread() {
    if !skip::have("strace") {
        return skip::skip("strace is not installed: writes to the disk were not checked");
    }
    let _place = beside();
    for repository in [false, true] {
        let folder = TempDir::with_prefix("flightline-test-").unwrap();
        let (trace, output) = (folder.path().join("trace"), folder.path().join("out"));
        let program = victim::c("ticking", victim::OPTIMISED);
        let mut command = Command::new("strace");
        command
            .args(["-f", "-e", "trace=execve,fdatasync,fsync", "-o"])
            .arg(&trace)
            .arg(victim::flightline());
        command.args(["record", "--engine", "timer", "--sync", "--flush", "50ms"]);
        command
            .arg(if repository { "--repository" } else { "-o" })
            .arg(&output)
            .arg("--")
            .arg(program)
            .arg("300");
        let finished = run(&mut command, LIMIT);
        assert_eq!(finished.code(), 23, "{}", finished.stderr);
        let text = std::fs::read_to_string(&trace).unwrap();
        let drain = text.split_whitespace().next().unwrap();
        let of = |line: &&str| {
            line.contains("sync") && !line.contains("execve") && line.trim_end().ends_with("= 0")
        };
        let done: Vec<&str> = text.lines().filter(of).collect();
        // The program works for at least 300 ms, and a disk may need time for each.
        assert!(done.len() >= 2, "{text}");
        let by_drain = done.iter().filter(|line| line.split_whitespace().next() == Some(drain)).count();
        assert_eq!(by_drain, 0, "the drain waits for the disk itself\n{text}");
    }
}
