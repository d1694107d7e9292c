//! The recorder is a good guest: programs that use its signals themselves, fork, execute, restrict and cancel print the
//! same and end the same with a recorder at 10 kHz as without one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::guest;
use flightline_tests::record::Record;
use flightline_tests::run::{beside, run};
use flightline_tests::victim::{self, OPTIMISED};

const LIMIT: Duration = Duration::from_secs(120);
/// Runs `program args` alone and under every engine of CPU time.
#[track_caller]
fn same(program: &Path, cases: &[&[&str]]) {
    guest::same(program, cases, &guest::cpu_modes());
}

#[test]
fn programs_using_same_signals_behave_as_without_recorder() {
    let _place = beside();
    let program = victim::c("guest_signals", OPTIMISED);
    same(&program, guest::SIGNALS);
}

#[test]
fn forking_and_restricted_programs_behave_as_without_recorder() {
    let _place = beside();
    let program = victim::c("guest_process", OPTIMISED);
    same(
        &program,
        &[
            &["storm", "150"],
            &["threads-fork"],
            &["failed-exec"],
            &["all-exec"],
            &["vfork", "60"],
            &["vfork-signals", "20"],
            &["spawn", "40"],
            &["drop-rights"],
            &["chroot"],
            &["close-all"],
            &["few-descriptors"],
            &["seccomp"],
            &["filter"],
            &["filter-all"],
            &["raw-fork"],
            &["memory"],
        ],
    );
    // Children of `vfork` share the recorder's tables of signals even while nothing is recorded.
    guest::same(
        &program,
        &[&["vfork", "60"], &["vfork-signals", "20"], &["raw-fork"]],
        &[guest::dormant_mode()],
    );
}

/// After a seccomp request that the kernel refuses, the timer of the process may be restarted only if it is
/// used for CPU time.
#[test]
fn no_engine_starts_another_engines_timer() {
    let _place = beside();
    let program = victim::c("guest_process", OPTIMISED);
    let alone = run(Command::new(&program).arg("refused"), LIMIT).expect_success("refused").stdout_text();
    assert_eq!(alone, "timers 0\nrefused -1\nerrno 14\ntimers 0\nsurvived 1\n");
    let timer = alone.replace("timers 0", "timers 1");
    for (engine, said) in [("perf", &alone), ("timer", &timer), ("itimer", &timer)] {
        let recorded = Record::new().rate(10_000).engine(engine).limit(LIMIT).run(&program, &["refused"]);
        assert_eq!((recorded.finished.code(), &recorded.finished.stdout_text()), (0, said), "{engine}");
    }
}

/// A trap that is pending during exec would kill the new image.
#[test]
fn execs_at_10_khz_leave_no_pending_signal() {
    let _place = beside();
    let program = victim::c("guest_process", OPTIMISED);
    // The engine whose traps can kill at full length; the others shorter.
    let rounds = if flightline_tests::long() { "1000" } else { "300" };
    let recorded =
        Record::new().rate(10_000).engine("perf").limit(2 * LIMIT).run(&program, &["chain", rounds]);
    assert_eq!((recorded.finished.code(), recorded.finished.stdout_text().as_str()), (0, "end 0\n"));
    same(&program, &[&["chain", "100"], &["chain-threads", "60"]]);
}

#[test]
fn programs_with_threads_and_modules_behave_as_without_recorder() {
    let _place = beside();
    let program = victim::c("guest_threads", &["-O2", "-fomit-frame-pointer", "-Wl,--no-as-needed", "-lm"]);
    let modules: Vec<String> = victim::modules(2).iter().map(|m| m.to_string_lossy().into_owned()).collect();
    let (first, second) = (modules[0].as_str(), modules[1].as_str());
    let cases = guest::threads(first, second);
    same(&program, &cases.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

/// The object's exports are those in `exports.txt`.
#[test]
fn library_exports_match_exports_txt() {
    let _place = beside();
    let library = victim::flightline().with_file_name("libflightline.so");
    let listed = include_str!("../../../recorder/preload/exports.txt");
    let output =
        run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library), LIMIT).expect_success("nm");
    let text = output.stdout_text();
    let mut exported: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    assert_eq!(exported, listed.lines().collect::<Vec<_>>());
    let needed = run(Command::new("readelf").arg("-dW").arg(&library), LIMIT).expect_success("readelf");
    let needed = needed.stdout_text();
    let needed: Vec<&str> = needed.lines().filter(|line| line.contains("(NEEDED)")).collect();
    let allowed = ["libc.so.6", "ld-linux"];
    assert!(needed.iter().all(|line| allowed.iter().any(|name| line.contains(name))), "{needed:?}");
}

/// The C API: a running program with threads records itself, twice.
#[test]
fn program_records_itself_by_c_api() {
    let _place = beside();
    let bin = victim::flightline();
    let folder = bin.parent().unwrap().to_string_lossy().into_owned();
    let path = format!("-L{folder}");
    let run_path = format!("-Wl,-rpath,{folder}");
    let program =
        victim::compile("gcc", "guest_api.c", &["-O2"], &[&path, "-lflightline", &run_path, "-lpthread"]);
    let out = tempfile::tempdir().unwrap();
    let files = [out.path().join("first.jfr"), out.path().join("second.jfr")];
    let mut command = Command::new(program);
    // Cargo's LD_LIBRARY_PATH puts its debug build before the linked library, however old that build is.
    command.args(&files).env("FLIGHTLINE_BIN", bin).env_remove("LD_LIBRARY_PATH");
    let finished = run(&mut command, LIMIT).expect_success("guest_api");
    let round = "start 0\nactive 1\nagain -114\ndump 0\nwritten 1\nstop 0\nactive 0\ncomplete 1\n";
    let expected = format!(
        "stop before -3\ndump before -3\nbad size -22\nbad rate -22\nnull -22\n{round}{round}errno 77\nchildren 1\ntrap default 1\n"
    );
    let text = finished.stdout_text();
    let text: String =
        text.lines().filter(|l| !l.starts_with("descriptor")).map(|l| format!("{l}\n")).collect();
    assert_eq!(text, expected);
    for file in &files {
        let folded = run(Command::new(bin).arg("fold").arg(file), LIMIT).expect_success("fold");
        let folded = folded.stdout_text();
        let count = |name: &str| -> u64 {
            let lines = folded.lines().filter(|line| line.contains(name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        // 1 kHz: the later thread burns 0.3 s, main 0.2 s, the existing one as long as both take, and a dump, which waits for
        // symbols up to 3 s.
        for (name, least, most) in
            [("later_thread_work", 250, 350), ("existing_thread_work", 150, 4000), ("unrecorded_work", 0, 0)]
        {
            let n = count(name);
            assert!((least..=most).contains(&n), "{name}: {n} samples\n{folded}");
        }
    }
}

/// Preloaded by hand, without `flightline record`.
#[test]
fn bare_preload_starts_its_own_recorder() {
    let _place = beside();
    let bin = victim::flightline();
    let library = bin.with_file_name("libflightline.so");
    let program = victim::c("guest_process", OPTIMISED);
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("run.jfr");
    let mut command = Command::new(&program);
    command.args(["storm", "50"]).env("LD_PRELOAD", &library).env("FLIGHTLINE_RATE", "1000");
    let finished = run(command.env("FLIGHTLINE_OUTPUT", &file).env("FLIGHTLINE_BIN", bin), LIMIT);
    let text = finished.stdout_text();
    assert!(text.ends_with("no child left 1\n"), "{text}{}", finished.stderr);
    assert_eq!(finished.code(), 0);
    // The recorder has no parent: it ends by itself, a moment after the program.
    let samples = flightline_tests::run::until(Duration::from_secs(10), "a complete recording", || {
        let folded = run(Command::new(bin).arg("fold").arg(&file), LIMIT);
        let text = folded.stdout_text();
        let n: u64 = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
        (folded.status.success() && n > 10).then_some(n)
    });
    assert!(samples >= 30, "{samples} samples of 50 children that burn 1 ms each");
    let mut command = Command::new(&program);
    command.arg("five").env("LD_PRELOAD", &library).env("FLIGHTLINE_OUTPUT", &file);
    let finished = run(command.env("FLIGHTLINE_BIN", "/nonexistent/flightline"), LIMIT);
    assert_eq!(finished.code(), 5);
    assert!(
        finished.stderr.starts_with("flightline: ") && finished.stderr.contains(file.to_str().unwrap()),
        "{}",
        finished.stderr
    );
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
}
