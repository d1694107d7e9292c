//! Programs that the recorder has harmed in the past, or did not record without reporting it. Each must print the same output and end
//! with the same status with and without the recorder, unless the test states another expectation.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flightline_tests::guest::{self, Mode};
use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, collect, programs, run, spawn, until, wait};
use flightline_tests::victim::{self, OPTIMISED};
use flightline_tests::{folded, shared_memory, skip};

const LIMIT: Duration = Duration::from_secs(120);

fn program() -> PathBuf {
    victim::c("guest_safety", OPTIMISED)
}

fn library() -> PathBuf {
    let flags = ["-O1", "-shared", "-fPIC"];
    victim::compile("gcc", "safety_library.c", &flags, &["-lpthread", "-ldl"])
}

/// A program that is linked with [`library`].
fn linked() -> PathBuf {
    let library = library().to_string_lossy().into_owned();
    victim::compile("gcc", "safety_linked.c", &["-O1"], &[&library])
}

#[track_caller]
fn same(cases: &[&[&str]], modes: &[Mode]) {
    guest::same(&program(), cases, modes);
}

#[test]
fn interposed_functions_do_not_wait_for_loader() {
    let _place = beside();
    let library = library().to_string_lossy().into_owned();
    let calls = ["mutex", "semaphore", "mask", "puts", "fwrite", "name"];
    let cases = calls.map(|function| ["constructor-waits", &library, function]);
    same(&cases.each_ref().map(<[&str; 3]>::as_slice), &[guest::default_mode(), guest::dormant_mode()]);
}

#[test]
fn alternate_stacks_are_not_overrun() {
    let _place = beside();
    let sizes = ["2048", "3072", "4096", "8192", "12000"];
    let plain = sizes.map(|bytes| ["small-stack", bytes]);
    // The kernel's signal frame alone does not fit on the two smallest.
    let nested = ["4096", "8192", "12000"].map(|bytes| ["small-stack-nested", bytes]);
    let others: [&[&str]; 4] =
        [&["own-stack"], &["autodisarm", "4096"], &["autodisarm", "12000"], &["many-stacks"]];
    let cases: Vec<&[&str]> = plain.iter().chain(&nested).map(<[&str; 2]>::as_slice).chain(others).collect();
    same(&cases, &guest::cpu_modes());
    same(&cases, &[guest::dormant_mode()]);
}

#[test]
fn foreign_threads_and_stacks_are_walked_safely() {
    let _place = beside();
    // At 10 kHz a walk that takes longer than the period leaves the program no time: it does not end within
    // the limit.
    let cases: [&[&str]; 5] = [
        &["foreign-thread-pointer"],
        &["coroutine", "2000", "200000000"],
        &["generated", "1000", "500", "200000000"],
        &["overflow"],
        &["raw-children", "2000"],
    ];
    same(&cases, &guest::cpu_modes());
    same(&cases, &[guest::default_mode()]);
}

/// Commands reach the threads as signals. They must not end system calls of a program with a handler without
/// `SA_RESTART`.
#[test]
fn commands_do_not_interrupt_system_calls() {
    let _place = beside();
    let program = victim::c("guest_signals", OPTIMISED);
    let record = Record::new().rate(10_000);
    let mut recorder =
        spawn(record.command(program, &["unused-handlers"]).stdout(Stdio::piped()).stderr(Stdio::null()));
    let out = collect(recorder.stdout.take().unwrap());
    let pid = until(LIMIT, "the program", || programs(recorder.id()).first().copied()).to_string();
    let mut commands = 0;
    while recorder.try_wait().unwrap().is_none() {
        for words in [&["pause"][..], &["resume"], &["engines", "cpu,alloc"], &["engines", "cpu"]] {
            // The last commands find no process.
            let mut command = Command::new(victim::flightline());
            commands += i32::from(run(command.args(["ctl", "-p", &pid]).args(words), LIMIT).code() == 0);
        }
    }
    let out = String::from_utf8(out.join().unwrap()).unwrap();
    assert_eq!(out, "interrupted 0\nhits 0\n");
    assert!(commands > 4, "{commands} commands");
}

/// Constructors of linked libraries run before the recorder's and may start threads.
#[test]
fn constructor_threads_are_sampled() {
    let _place = beside();
    let linked = linked().to_string_lossy().into_owned();
    let recorded = Record::new().limit(LIMIT).run("env", &["SAFETY_THREAD=1", &linked]).expect_code(0);
    let stacks = folded::read(&recorded.path);
    let of = |name: &str| folded::sum_with(&stacks, name);
    let (thread, main) = (of("spins_in_library_thread"), of("main"));
    assert!(thread * 5 > main && main > 0, "{thread} samples of the thread, {main} of main");
}

/// A module that a constructor opened may be closed while a stack passes through it.
#[test]
fn constructor_modules_can_be_unloaded() {
    let _place = beside();
    let module = victim::modules(1).remove(0);
    let (opens, linked) = (format!("SAFETY_OPENS={}", module.display()), linked());
    let args = [opens.as_str(), linked.to_str().unwrap()];
    let recorded = Record::new().rate(10_000).limit(LIMIT).run("env", &args).expect_code(0);
    assert_eq!(recorded.finished.stdout_text(), "done\n");
}

/// Two processes with pid 1, one of which has a copy of the other's memory.
#[test]
fn nested_pid_namespace_has_its_own_cpu_time() {
    if skip::not_root("a pid namespace is made by root") {
        return;
    }
    let _place = beside();
    same(&[&["nested"]], &guest::cpu_modes());
    let recorded = Record::new().rate(1000).limit(LIMIT).run(program(), &["nested"]).expect_code(0);
    let stacks = folded::read(&recorded.path);
    // The outer process reports its own CPU time; the inner one has a tenth of it.
    let used =
        recorded.finished.stderr.lines().find_map(|line| line.strip_prefix("nested: ")?.strip_suffix(" ms"));
    let used: u64 = used.and_then(|text| text.parse().ok()).expect("the program reports its CPU time");
    let nested = folded::sum_with(&stacks, "nested");
    assert!(nested > used * 3 / 4, "{nested} samples in {used} ms at 1 kHz");
}

/// A sanitizer's shared library must be loaded first. Such a program is recorded from outside, also as a child of another program.
#[test]
fn sanitized_programs_start() {
    let _place = beside();
    for sanitizer in ["address", "thread", "undefined", "leak"] {
        let flag = format!("-fsanitize={sanitizer}");
        let program = victim::c("sanitized", &["-O1", &flag]);
        let path = program.to_string_lossy().into_owned();
        guest::same(&program, &[&[]], &[guest::default_mode()]);
        for args in [&[path.as_str()][..], &["sh", "-c", "\"$0\"; exit $?", &path]] {
            let recorded = Record::new().limit(LIMIT).run(args[0], &args[1..]).expect_code(0);
            assert!(recorded.finished.stdout_text().starts_with("sum "), "{sanitizer}");
            assert!(
                !recorded.finished.stderr.contains("does not come first"),
                "{}",
                recorded.finished.stderr
            );
        }
    }
}

/// Programs executed with their own environment, user or limits are recorded from outside, and their loader prints no error. Containers'
/// entry points, `su` and `cron` start programs like this.
#[test]
fn programs_that_cannot_join_are_recorded_from_outside() {
    if skip::not_root("other users and roots are for root") || !skip::perf_allowed(false) {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("burns");
    std::fs::copy(victim::c("burns", OPTIMISED), &program).unwrap();
    let burns = program.to_str().unwrap();
    let exec_burns = format!("exec {burns}");
    let setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"];
    let cases: [&[&str]; 8] = [
        &["env", "-i", burns],
        &["sh", "-c", "env -u LD_PRELOAD \"$0\"; exit $?", burns],
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", burns],
        &["setpriv", "--ruid=65534", burns],
        // The shell is gone, or has a child, before the recorder finds it.
        &[&setpriv[..], &[&exec_burns]].concat(),
        &[&setpriv[..], &[burns]].concat(),
        &["su", "nobody", "-s", "/bin/sh", "-c", burns],
        &["prlimit", "--fsize=1000", burns],
    ];
    for args in cases {
        let recorded = Record::new().rate(1000).limit(LIMIT).run(args[0], &args[1..]).expect_code(0);
        let stderr = &recorded.finished.stderr;
        assert_eq!(recorded.finished.stdout_text(), "burned\n", "{args:?}: {stderr}");
        assert!(!stderr.contains("ERROR: ld.so"), "{args:?}: {stderr}");
        let stacks = folded::read(&recorded.path);
        let samples = folded::sum_with(&stacks, "burn");
        // A busy recorder finds the program late; this time is counted as lost.
        let losses = Recording::read(&recorded.path).unwrap().losses;
        let lost_ms = losses.iter().map(|loss| loss.cpu_ns / 1_000_000).sum::<u64>();
        let is_right = samples > 100 && samples + lost_ms > 300;
        assert!(is_right, "{args:?}: {samples} samples of half a second, {lost_ms} ms lost\n{stderr}");
    }
}

/// A program can write anything into its own ring. The recorder writes no more samples than the process can
/// have taken.
#[test]
fn impossible_samples_are_not_recorded() {
    let _place = beside();
    let program = victim::c("ticking", OPTIMISED);
    // First, each sample names another thread. Then each sample adds more CPU time to one thread than has
    // passed.
    let weights: [fn(u64) -> (u32, u64); 2] = [|n| (1_000_000 + n as u32, 10_000_000), |_| (1, u64::MAX / 4)];
    for of in weights {
        let recording = Record::new().rate(100).engine("timer");
        let mut command = recording.command(&program, &["4000"]);
        command.stderr(Stdio::piped());
        let mut child = spawn(&mut command);
        let said = collect(child.stderr.take().unwrap());
        let session = until(LIMIT, "the session", || shared_memory::session_of(child.id()));
        let file = until(LIMIT, "the process", || shared_memory::processes(&session).into_iter().next());
        let begin = Instant::now();
        let written = shared_memory::write_samples(&file, begin + Duration::from_secs(2), of);
        let status = wait(&mut child, LIMIT, "the recorder");
        let said = String::from_utf8_lossy(&said.join().unwrap()).into_owned();
        assert_eq!(status.code(), Some(23), "the status of the program: {said}");
        // Twice the CPU time of all processors for as long as it ran, in samples of 10 ms.
        let processors = std::thread::available_parallelism().unwrap().get() as u64;
        let most = 2 * processors * 100 * (begin.elapsed().as_secs() + 2);
        let recorded = Recording::read(&recording.path()).unwrap().samples.len() as u64;
        assert!(recorded <= most, "{recorded} samples of {written} written, {most} are possible\n{said}");
        assert!(said.contains("invalid data"), "{written} written, {recorded} recorded: {said}");
    }
}
