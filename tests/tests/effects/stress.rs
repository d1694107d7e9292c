//! Every engine at once and at high rates, in programs that stress the recorder: their output and exit status
//! are the same as alone.

use std::path::Path;

use flightline_tests::guest::{self, everything, same};
use flightline_tests::run::beside;
use flightline_tests::victim::{self, OPTIMISED};

#[track_caller]
fn check(program: &Path, cases: &[&[&str]]) {
    // The compared output does not depend on scheduling.
    let _place = beside();
    same(program, cases, &everything());
}

#[test]
fn forks_and_execs_behave_as_without_recorder() {
    let program = victim::c("stress_process", OPTIMISED);
    check(&program, &[&["storm"], &["forks"], &["vforks"], &["spawns"]]);
}

#[test]
fn signals_and_small_stacks_behave_as_without_recorder() {
    let program = victim::c("stress_process", OPTIMISED);
    check(&program, &[&["signals"], &["signals-restart"], &["jumps"], &["tiny-stack"]]);
}

#[test]
fn resource_limits_behave_as_without_recorder() {
    let program = victim::c("stress_process", OPTIMISED);
    let limits = ["nofile", "sigpending", "memlock", "stack", "fsize", "msgqueue", "core", "data"];
    let cases: Vec<[&str; 2]> = limits.iter().map(|limit| ["limit", *limit]).collect();
    let cases: Vec<&[&str]> = cases.iter().map(|case| case.as_slice()).collect();
    check(&program, &cases);
}

#[test]
fn memory_exhaustion_behaves_as_without_recorder() {
    check(&victim::c("stress_process", OPTIMISED), &[&["no-memory"]]);
}

#[test]
fn rights_and_descriptors_behave_as_without_recorder() {
    let program = victim::c("stress_process", OPTIMISED);
    check(&program, &[&["rights"], &["dumpable"], &["descriptors"]]);
}

#[test]
fn failing_calls_behave_as_without_recorder() {
    let program = victim::c("stress_calls", OPTIMISED);
    check(&program, &[&["mutexes"], &["waits"], &["io"], &["heap"]]);
}

#[test]
fn thread_cancellation_behaves_as_without_recorder() {
    let program = victim::c("stress_calls", OPTIMISED);
    check(&program, &[&["cancels"], &["cancels-more"], &["destructors"]]);
}

#[test]
fn fork_while_threads_wait_behaves_as_without_recorder() {
    check(&victim::c("stress_calls", OPTIMISED), &[&["forks-waiting"]]);
}

#[test]
fn cpp_exceptions_behave_as_without_recorder() {
    let Some(program) = victim::cpp("stress_throw", OPTIMISED) else { return };
    let Some(module) = victim::cpp("throw_module", &["-O2", "-shared", "-fPIC"]) else { return };
    let missing = "/nowhere/module.so";
    let module = module.to_str().unwrap();
    check(
        &program,
        &[
            &["storm"],
            &["kinds"],
            &["cancelled"],
            &["callbacks"],
            &["modules", module],
            &["modules", missing],
            &["uncaught"],
            &["noexcept"],
        ],
    );
}

#[test]
fn guest_process_cases_behave_as_without_recorder() {
    let process = victim::c("guest_process", OPTIMISED);
    let cases: Vec<&[&str]> = vec![
        &["storm", "100"],
        &["threads-fork"],
        &["chain", "60"],
        &["chain-threads", "30"],
        &["failed-exec"],
        &["all-exec"],
        &["vfork", "40"],
        &["spawn", "20"],
        &["drop-rights"],
        &["chroot"],
        &["close-all"],
        &["few-descriptors"],
        &["seccomp"],
        &["filter"],
        &["filter-all"],
        &["raw-fork"],
        &["memory"],
    ];
    check(&process, &cases);
}

#[test]
fn guest_signal_cases_behave_as_without_recorder() {
    let signals = victim::c("guest_signals", OPTIMISED);
    check(&signals, guest::SIGNALS);
}

#[test]
fn guest_thread_cases_behave_as_without_recorder() {
    let threads = victim::c("guest_threads", &["-O2", "-fomit-frame-pointer", "-Wl,--no-as-needed", "-lm"]);
    let modules: Vec<String> = victim::modules(2).iter().map(|m| m.to_string_lossy().into_owned()).collect();
    let (first, second) = (modules[0].as_str(), modules[1].as_str());
    let cases = guest::threads(first, second);
    check(&threads, &cases.iter().map(Vec::as_slice).collect::<Vec<_>>());
}
