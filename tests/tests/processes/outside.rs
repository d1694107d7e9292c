//! Programs that cannot be preloaded, and running programs: recorded from outside, compared with the same
//! ground truth.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flightline_tests::folded::{fold, sum_with};
use flightline_tests::record::Record;
use flightline_tests::recording::{Recording, Stack};
use flightline_tests::run::{self, beside, run, signal, spawn, turn, wait};
use flightline_tests::stolen::Stolen;
use flightline_tests::truth::Truth;
use flightline_tests::walls::{sum, wall_samples};
use flightline_tests::{shares, skip, victim};

const LIMIT: Duration = Duration::from_secs(90);

fn root() -> bool {
    // SAFETY: no memory effects.
    unsafe { libc::geteuid() == 0 }
}

/// Prints SKIPPED and returns true if recording from outside is not permitted.
fn not_here() -> bool {
    let allowed = skip::perf_allowed(false);
    if !allowed {
        skip::skip("perf_event_open is not allowed: recording from outside");
    }
    !allowed
}

/// Asserts that each thread's account agrees with its own clock. Events count the time on the processor,
/// including interrupts, which the thread's clock leaves out: the tolerance is 3 % and the rest on each
/// processor. Only events count the time that the hypervisor took from the processor.
fn check_accounts(truth: &Truth, recording: &Recording, stolen_ns: u64, period_ns: u64) {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let samples = recording.samples_by_tid();
    let last: HashMap<u64, _> = recording.ledger.iter().map(|l| (l.tid, *l)).collect();
    for thread in &truth.threads {
        let tolerance = thread.cpu_ns * 3 / 100 + 5_000_000;
        // A thread that only waited during the recording may have none.
        let Some(ledger) = last.get(&thread.tid) else {
            assert!(thread.cpu_ns <= tolerance, "no account of {} with {} ns", thread.name, thread.cpu_ns);
            continue;
        };
        let (least, most) = (thread.cpu_ns.saturating_sub(tolerance), thread.cpu_ns + tolerance + stolen_ns);
        assert!(
            (least..=most).contains(&ledger.cpu_ns),
            "{}: {ledger:?}, truly {}, {stolen_ns} stolen",
            thread.name,
            thread.cpu_ns
        );
        let rest = ledger.cpu_ns.saturating_sub(ledger.sampled_ns + ledger.lost_ns);
        assert!(rest <= cpus * period_ns, "{}: {rest} ns neither sampled nor lost: {ledger:?}", thread.name);
        let events = samples.get(&thread.tid).copied().unwrap_or(0) * period_ns;
        assert!(
            events.abs_diff(ledger.sampled_ns) <= period_ns * (cpus + 1),
            "{}: events represent {events} ns: {ledger:?}",
            thread.name
        );
    }
}

/// The tolerance for a share of `all_ns` because of stolen time.
fn points(stolen_ns: u64, all_ns: u64) -> f64 {
    100.0 * stolen_ns as f64 / all_ns as f64
}

/// Asserts each function's share, within `tolerance` percentage points and the stolen time.
#[track_caller]
fn compare(truth: &Truth, recording: &Recording, stolen_ns: u64, tolerance: f64) {
    let all_ns = truth.cpu_ns();
    let tolerance = tolerance + points(stolen_ns, all_ns);
    shares::compare(&truth.functions, all_ns, &shares::by_function(recording, true), tolerance);
}

/// The share of the samples with a visible stack (kernel stacks need rights) that satisfies a condition.
fn seen(recording: &Recording, condition: impl Fn(&Stack) -> bool) -> f64 {
    let hidden = |s: &Stack| s.frames.iter().any(|f| f.method.starts_with("[kernel"));
    let all = recording.share(|s| !hidden(s));
    100.0 * recording.share(|s| !hidden(s) && condition(s)) / all.max(0.001)
}

fn whole(recording: &Recording) -> f64 {
    seen(recording, |s| !s.truncated)
}

#[test]
fn static_program_is_recorded_with_correct_shares() {
    if not_here() {
        return;
    }
    let _place = beside();
    let program = victim::c("known_answer", victim::STATIC);
    let recorded = Record::new().rate(1000).run(program, &["1.5"]).expect_code(0);
    assert!(recorded.finished.stderr.contains("from outside"), "{}", recorded.finished.stderr);
    let (truth, recording) = (recorded.truth(), recorded.read());
    check_accounts(&truth, &recording, recorded.stolen_ns, 1_000_000);
    // 6,000 samples: chance alone moves a share of 30 % by 0.6 points (one sigma).
    compare(&truth, &recording, recorded.stolen_ns, 2.5);
    let through = seen(&recording, |s| s.has("worker") && !s.truncated);
    assert!(through >= 98.5, "only {through:.2} % lead from the leaf to worker() and the root");
    for name in ["known-0", "known-1", "known-2", "known-3"] {
        assert!(
            recording.names.values().any(|n| n == name),
            "no thread is called {name}: {:?}",
            recording.names
        );
    }
}

fn go_program(flags: &[&str]) {
    if not_here() {
        return;
    }
    let Some(program) = victim::go("outside", flags) else { return skip::skip("no Go here: a Go program") };
    let _place = beside();
    let recorded = Record::new().rate(1000).run(program, &["1.5"]).expect_code(0);
    let (truth, recording) = (recorded.truth(), recorded.read());
    check_accounts(&truth, &recording, recorded.stolen_ns, 1_000_000);
    // The shares of these two functions alone: on a busy machine the runtime's own threads, which are not in
    // the ground truth, take some points. With 2,900 samples, one sigma is 0.9 points.
    let (alpha, beta) = (truth.functions["main.goAlpha"], truth.functions["main.goBeta"]);
    let is = shares::by_function(&recording, true);
    let (a, b) =
        (is.get("main.goAlpha").copied().unwrap_or(0.0), is.get("main.goBeta").copied().unwrap_or(0.0));
    let (should, is) = (100.0 * alpha as f64 / (alpha + beta) as f64, 100.0 * a / (a + b));
    assert!(
        (is - should).abs() <= 3.5 + points(recorded.stolen_ns, alpha + beta),
        "goAlpha {is:.2} % of the two, truly {should:.2} %"
    );
    assert!(a + b >= 80.0, "only {:.2} % of samples in the two functions", a + b);
    let whole = |s: &Stack| s.has_in_order(&["main.spin", "main.descend", "main.worker"]) && !s.truncated;
    let through = 100.0 * recording.share(whole) / recording.share(|s| s.has("main.spin"));
    assert!(through >= 97.0, "only {through:.2} % lead from the leaf to the goroutine's root");
}

#[test]
fn go_program_with_debug_info_has_whole_stacks() {
    go_program(&[]);
}

/// Neither symbols nor unwind information: symbols from the runtime's own table, stacks by frame pointers.
#[test]
fn stripped_go_program_has_whole_stacks() {
    go_program(&["-ldflags=-s -w"]);
}

/// Stacks deeper than the kernel's copy continue by frame pointers, and so do those of code that the runtime
/// runs on a thread's own stack.
#[test]
fn go_stacks_deeper_than_copy_are_whole() {
    if not_here() {
        return;
    }
    let Some(program) = victim::go("deep_calls", &[]) else {
        return skip::skip("no Go here: deep goroutines");
    };
    let _place = beside();
    let recorded = Record::new().rate(499).run(program, &["1.5"]).expect_code(0);
    let recording = recorded.read();
    let inside = |s: &Stack| s.has("main.spin") || s.has("main.allocate");
    let deep = |s: &Stack| {
        let depth = s.frames.iter().filter(|f| f.method == "main.descend").count();
        s.has_in_order(&["main.descend", "main.worker"]) && depth == 100 && !s.truncated
    };
    let through = 100.0 * recording.share(|s| inside(s) && deep(s)) / recording.share(inside);
    let allocating = recording.share(|s| s.has("main.allocate"));
    let cut = flightline_tests::whole::cut(&recording, 5);
    assert!(through >= 98.0, "only {through:.2} % are whole, with all hundred calls\n{cut}");
    assert!(allocating >= 2.0, "only {allocating:.2} % of samples allocate\n{cut}");
}

/// C code runs on another stack than the Go code that calls it, and the C code here has no frame pointers.
#[test]
fn c_code_stacks_include_go_callers() {
    if not_here() {
        return;
    }
    let Some(program) = victim::go("calls_c", &[]) else {
        return skip::skip("no Go here: callers of C code");
    };
    let _place = beside();
    let recording = Record::new().rate(999).run(program, &["1500"]).expect_code(0).read();
    let inside = |s: &Stack| s.has("burn");
    let whole = |s: &Stack, caller: &str| {
        s.has_in_order(&["burn", "runtime.asmcgocall.abi0", "runtime.cgocall", caller, "main.main"])
            && !s.truncated
    };
    let all = recording.share(inside);
    let [once, twice] =
        ["main.once", "main.twice"].map(|caller| 100.0 * recording.share(|s| whole(s, caller)) / all);
    let cut = flightline_tests::whole::cut(&recording, 5);
    assert!(once + twice >= 98.0, "only {:.2} % of the samples in C code are whole\n{cut}", once + twice);
    assert!((28.0..39.0).contains(&once), "{once:.2} % and {twice:.2} %, not a third and two thirds");
}

/// More calls than the kernel follows by frame pointers: the stack copy contains them, 48 KiB here.
#[test]
fn static_program_deep_stacks_are_whole() {
    if not_here() {
        return;
    }
    if !root() {
        return skip::skip("not root, so rings are small and copies short: deep stacks from outside");
    }
    let _place = beside();
    let program = victim::c("deep", victim::STATIC);
    let recorded = Record::new().rate(250).run(program, &["300", "1"]).expect_code(0);
    let recording = recorded.read();
    let calls = |s: &Stack| s.frames.iter().filter(|f| f.method == "level").count();
    let all = recording.share(|s| s.has("bottom"));
    let through = 100.0 * recording.share(|s| calls(s) == 299 && s.has("main") && !s.truncated) / all;
    let cut = flightline_tests::whole::cut(&recording, 5);
    assert!(through >= 98.5, "only {through:.2} % are whole, with all calls\n{cut}");
}

/// Starts a program that is not preloaded.
fn start(program: &Path, args: &[&str], folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).env("TRUTH_FILE", folder.join("truth.tsv"));
    spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

fn attach(pid: &str, folder: &Path, options: &[&str]) -> (run::Finished, PathBuf) {
    let path = folder.join("run.jfr");
    let mut command = Command::new(victim::flightline());
    command.args(["record", "-p", pid, "-o"]).arg(&path).args(options);
    (run(&mut command, LIMIT), path)
}

#[test]
fn running_program_is_recorded_until_exit() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    victim::flightline();
    let stolen = Stolen::from_now();
    let mut child = start(&victim::c("known_answer", victim::OPTIMISED), &["1.5"], folder.path());
    let pid = child.id();
    let (finished, path) = std::thread::scope(|s| {
        let waiting = s.spawn(|| wait(&mut child, LIMIT, "the program"));
        let attached = attach(&pid.to_string(), folder.path(), &["-F", "1000"]);
        assert!(waiting.join().unwrap().success());
        attached
    });
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    let recording = Recording::read(&path).unwrap();
    let truth = Truth::read(&folder.path().join("truth.tsv"));
    // The four workers interleave their functions, so a part of the run has the same shares as the whole.
    compare(&truth, &recording, stolen.ns(), 3.0);
    assert!(whole(&recording) >= 98.5, "{:.2} % whole", whole(&recording));
    let clock: u64 = truth.cpu_ns();
    let recorded = recording.samples.len() as u64 * 1_000_000;
    assert!(recorded > clock / 2 && recorded < clock + clock / 20 + stolen.ns(), "{recorded} ns of {clock}");
}

/// `ctl status` counts the CPU samples of a process recorded from outside, and their rate.
#[test]
fn status_reports_outside_sample_rate() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(&victim::c("known_answer", victim::OPTIMISED), &["60"], folder.path());
    let pid = child.id().to_string();
    let status = std::thread::scope(|s| {
        let recorder = s.spawn(|| attach(&pid, folder.path(), &["-F", "200", "--duration", "8s"]));
        let rate = || {
            let mut ctl = Command::new(victim::flightline());
            let answer = run(ctl.args(["ctl", "-p", &pid, "status", "--json"]), LIMIT);
            let status: serde_json::Value = serde_json::from_str(&answer.stdout_text()).ok()?;
            (status["samplesPerSecond"].as_u64()? > 0).then_some(status)
        };
        let status = run::until(LIMIT, "a rate of samples", rate);
        assert_eq!(recorder.join().unwrap().0.code(), 0);
        status
    });
    signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    let (rate, samples) = (status["samplesPerSecond"].as_u64().unwrap(), status["samples"].as_u64().unwrap());
    assert!(rate <= samples, "{status}");
    assert_eq!(status["processes"][0]["samples"].as_u64(), Some(samples), "{status}");
}

#[test]
fn several_processes_are_recorded_by_name_for_duration() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let name = format!("fl-out-{}", std::process::id());
    let program = folder.path().join(&name);
    fs::copy(victim::c("known_answer", victim::STATIC), &program).unwrap();
    victim::flightline();
    let mut children = [start(&program, &["60"], folder.path()), start(&program, &["60"], folder.path())];
    let page = folder.path().join("page.html");
    let options = ["-F", "200", "--duration", "700ms", "--flame", page.to_str().unwrap()];
    let (finished, path) = attach(&name, folder.path(), &options);
    let alive = children.iter_mut().all(|c| c.try_wait().unwrap().is_none());
    for child in &mut children {
        signal(child.id(), libc::SIGKILL);
        child.wait().unwrap();
    }
    assert!(alive, "a recorded program did not go on");
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    let recording = Recording::read(&path).unwrap();
    assert_eq!(recording.events["jdk.JVMInformation"], 2, "{:?}", recording.events);
    assert!(recording.samples.len() > 20, "{}", recording.samples.len());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(&format!("\"title\":\"{name}\"")), "the page has the name of the processes");
}

/// The children that a process already has are recorded; a process that has ended is counted.
#[test]
fn running_children_are_recorded() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let burns = victim::c("known_answer", victim::STATIC);
    let script = format!("{0} 60 & {0} 60 & wait", burns.display());
    let mut ended = start(Path::new("/bin/true"), &[], folder.path());
    ended.wait().unwrap();
    let mut shell = start(Path::new("/bin/sh"), &["-c", &script], folder.path());
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", shell.id());
        let children = fs::read_to_string(path).unwrap_or_default();
        let children: Vec<u32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let is_running = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == burns);
        (children.len() == 2 && children.iter().all(is_running)).then_some(children)
    };
    let children = run::until(LIMIT, "the children of the shell", children);
    let list = format!("{},{}", shell.id(), ended.id());
    let (with, path) = attach(&list, folder.path(), &["-F", "200", "--duration", "700ms"]);
    let recording = Recording::read(&path);
    let (alone, _) = attach(&shell.id().to_string(), folder.path(), &["--no-follow", "--duration", "300ms"]);
    for pid in children {
        signal(pid, libc::SIGKILL);
    }
    shell.wait().unwrap();
    assert_eq!(with.code(), 0, "{}", with.stderr);
    assert!(with.stderr.contains("3 processes"), "{}", with.stderr);
    assert!(with.stderr.contains("1 process "), "{}", with.stderr);
    let recording = recording.unwrap();
    assert_eq!(recording.events["jdk.JVMInformation"], 3, "{:?}", recording.events);
    assert!(recording.samples.len() > 20, "{}", recording.samples.len());
    // The processes continue after the recording; this is not a loss. The host of a virtual machine may delay
    // the last sample of a thread.
    let stopped = recording.losses.iter().filter(|loss| loss.cause == "stopped").map(|loss| loss.cpu_ns);
    assert!(stopped.sum::<u64>() < 40_000_000, "{:?}", recording.losses);
    assert!(alone.stderr.contains(" 0 samples"), "{}", alone.stderr);
}

/// Processes of a name that start later are recorded too.
#[test]
fn new_processes_with_a_recorded_name_are_recorded() {
    if not_here() {
        return;
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let name = format!("fl-late-{}", std::process::id());
    let program = folder.path().join(&name);
    fs::copy(victim::c("known_answer", victim::STATIC), &program).unwrap();
    victim::flightline();
    let mut first = start(&program, &["60"], folder.path());
    let ((finished, path), mut second) = std::thread::scope(|s| {
        let attached = s.spawn(|| attach(&name, folder.path(), &["-F", "200", "--duration", "6s"]));
        std::thread::sleep(std::time::Duration::from_secs(1));
        let second = start(&program, &["60"], folder.path());
        (attached.join().unwrap(), second)
    });
    for child in [&mut first, &mut second] {
        signal(child.id(), libc::SIGKILL);
        child.wait().unwrap();
    }
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    let recording = Recording::read(&path).unwrap();
    assert_eq!(recording.events["jdk.JVMInformation"], 2, "{:?}", recording.events);
}

/// The kernel's part of the stack where it is permitted. Otherwise its CPU time is still reported.
#[test]
fn kernel_time_is_recorded_with_or_without_kernel_frames() {
    if not_here() {
        return;
    }
    let _place = beside();
    let recorded =
        Record::new().rate(1000).run(victim::c("kernel_work", victim::STATIC), &["2"]).expect_code(0);
    let (truth, recording) = (recorded.truth(), recorded.read());
    check_accounts(&truth, &recording, recorded.stolen_ns, 1_000_000);
    if skip::perf_allowed(true) {
        compare(&truth, &recording, recorded.stolen_ns, 4.0);
        let deep = recording.share(|s| s.has("in_kernel") && s.frames.iter().any(|f| f.class == "kernel"));
        assert!(deep > 40.0, "only {deep:.1} % of samples show the kernel's part");
    } else {
        let hidden = recording.share(|s| s.frames.iter().any(|f| f.method.starts_with("[kernel")));
        let program = recording.share(|s| s.has("in_program"));
        assert!((40.0..60.0).contains(&hidden) && (40.0..60.0).contains(&program), "{hidden} {program}");
    }
}

/// Children of a static program: a static one is recorded from outside, a dynamic one from inside, neither
/// twice.
#[test]
fn static_program_children_are_recorded_once() {
    if not_here() {
        return;
    }
    let _place = beside();
    let spawner = victim::c("spawner", victim::STATIC);
    for flags in [victim::STATIC, victim::OPTIMISED] {
        let child = victim::c("known_answer", flags);
        let recorded =
            Record::new().rate(500).run(&spawner, &[child.to_str().unwrap(), "0.8"]).expect_code(0);
        let (truth, recording) = (recorded.truth(), recorded.read());
        let events = recording.samples.len() as u64 * 2_000_000;
        let lost: u64 = recording.losses.iter().map(|l| l.cpu_ns).sum();
        let clock = truth.cpu_ns();
        assert!(
            (events + lost).abs_diff(clock) <= clock / 20 + recorded.stolen_ns,
            "{events} ns in events, {lost} lost, truly {clock}\n{}",
            recorded.finished.stderr
        );
        compare(&truth, &recording, recorded.stolen_ns, 4.0);
    }
}

/// A static child of a program that records itself is found and recorded. Its CPU time before that is
/// reported as lost.
#[test]
fn preloaded_program_static_child_is_recorded() {
    if not_here() {
        return;
    }
    let _place = beside();
    let spawner = victim::c("spawner", victim::OPTIMISED);
    let child = victim::c("known_answer", victim::STATIC);
    let recorded = Record::new().rate(500).run(&spawner, &[child.to_str().unwrap(), "1"]).expect_code(0);
    let (truth, recording) = (recorded.truth(), recorded.read());
    let events = recording.samples.len() as u64 * 2_000_000;
    let lost: u64 = recording.losses.iter().map(|l| l.cpu_ns).sum();
    let clock = truth.cpu_ns();
    let off = (events + lost).abs_diff(clock);
    let stderr = &recorded.finished.stderr;
    assert!(
        off <= clock / 20 + recorded.stolen_ns,
        "{events} ns in events, {lost} lost, truly {clock}\n{stderr}"
    );
    // The delay until it is found depends on the machine; most of a second must be recorded.
    assert!(events > clock / 2, "{events} ns in events of {clock}\n{stderr}");
    compare(&truth, &recording, recorded.stolen_ns, 4.0);
}

/// A set-user-id program, which root may record.
#[test]
fn setuid_program_is_recorded_by_root() {
    if not_here() {
        return;
    }
    if !root() {
        return skip::skip("not root: a set-user-id program recorded from outside");
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("set-user-id");
    fs::copy(victim::c("known_answer", victim::OPTIMISED), &program).unwrap();
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    // Its events are reopened in the middle of its start, at a different moment each time.
    for _ in 0..3 {
        let recorded = Record::new().rate(1000);
        fs::set_permissions(recorded.folder(), fs::Permissions::from_mode(0o777)).unwrap();
        let recorded = recorded.run(&program, &["0.4"]).expect_code(0);
        let (truth, recording) = (recorded.truth(), recorded.read());
        check_accounts(&truth, &recording, recorded.stolen_ns, 1_000_000);
        // 1,600 samples: chance alone moves a share of 30 % by 1.1 points (one sigma).
        compare(&truth, &recording, recorded.stolen_ns, 6.0);
    }
}

/// A container: pid and mount namespaces of its own, files without a path here.
#[test]
fn program_in_container_is_recorded() {
    if not_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = format!("fl-inside-{}", std::process::id());
    let program = victim::c("known_answer", victim::STATIC);
    let script = format!(
        "mount -t tmpfs none /mnt && cp {} /mnt/{name} && mkdir /mnt/tmp && exec chroot /mnt /{name} 60",
        program.display()
    );
    let contain = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-mpf", "--kill-child", "--mount-proc", "sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    if !contain("mount -t tmpfs none /mnt").status().is_ok_and(|s| s.success()) {
        return skip::skip("namespaces may not be made here: a program in a container");
    }
    let _place = beside();
    victim::flightline();
    let mut outer = spawn(&mut contain(&script));
    run::until(LIMIT, "the program in its container", || {
        let grandchild = run::children(outer.id()).into_iter().next()?;
        let comm = fs::read_to_string(format!("/proc/{grandchild}/comm")).ok()?;
        (comm.trim() == &name[..name.len().min(15)] && run::status_kb(grandchild, "Threads")? == 5)
            .then_some(())
    });
    let (finished, path) = attach(&name, folder.path(), &["-F", "500", "--duration", "1s"]);
    let went_on = outer.try_wait().unwrap().is_none();
    signal(outer.id(), libc::SIGKILL);
    outer.wait().unwrap();
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert!(went_on, "the program did not go on");
    let recording = Recording::read(&path).unwrap();
    let through = seen(&recording, |s| s.has("worker") && !s.truncated);
    assert!(through >= 98.0, "{through:.2} % of {} whole and named", recording.samples.len());
}

#[test]
fn attach_errors_name_process_or_engine() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let (finished, _) = attach("4194303", folder.path(), &[]);
    assert_eq!(finished.code(), 1);
    assert!(finished.stderr.contains("4194303"), "{}", finished.stderr);
    let (finished, _) = attach("no such program", folder.path(), &[]);
    assert_eq!(finished.code(), 1);
    assert!(finished.stderr.contains("no such program"), "{}", finished.stderr);
    let own = std::process::id().to_string();
    // An engine that cannot record the process is an error, alone or with others; `--all-events` leaves it out.
    for engines in ["alloc", "cpu,lock", "cpu,throw"] {
        let (finished, path) = attach(&own, folder.path(), &["-e", engines, "--duration", "100ms"]);
        assert_eq!(finished.code(), 2, "{}", finished.stderr);
        let name = engines.trim_start_matches("cpu,");
        assert!(finished.stderr.contains(&format!("-e {name}")), "{}", finished.stderr);
        assert!(!path.exists(), "nothing was recorded");
    }
    let traced = ["--trace", "libc.so.6:malloc:10ms", "--duration", "100ms"];
    let (finished, path) = attach(&own, folder.path(), &traced);
    assert_eq!(finished.code(), 2, "{}", finished.stderr);
    for part in ["--trace", "-e uprobe:FILE:FUNCTION"] {
        assert!(finished.stderr.contains(part), "{part}: {}", finished.stderr);
    }
    assert!(!path.exists(), "nothing was recorded");
    if root() {
        return skip::other_user("refusal of another user's process");
    }
    let (finished, _) = attach("1", folder.path(), &["--duration", "100ms"]);
    assert_eq!(finished.code(), 1);
    assert!(finished.stderr.contains("root"), "{}", finished.stderr);
    assert_eq!(finished.stderr.trim().lines().count(), 1, "{}", finished.stderr);
}

#[test]
fn all_option_skips_engines_unsupported_for_running_process() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let own = std::process::id().to_string();
    let (finished, path) = attach(&own, folder.path(), &["--all-events", "--duration", "1s"]);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert!(finished.stderr.contains("-e alloc, -e lock, -e io, -e throw"), "{}", finished.stderr);
    let recording = Recording::read(&path).unwrap();
    assert!(
        recording.events.get("profiler.WallClockSample").is_some_and(|n| *n > 0),
        "{:?}",
        recording.events
    );
}

/// Returns when the recorder has opened and enabled its events: it has events, their number has stopped growing, and all of its threads
/// wait. A recorder that a busy machine keeps from enabling them is runnable.
pub fn attached(recorder: u32) {
    let events = || {
        let links = fs::read_dir(format!("/proc/{recorder}/fd")).into_iter().flatten().flatten();
        links
            .filter(|l| fs::read_link(l.path()).is_ok_and(|to| to.to_string_lossy().contains("perf_event")))
            .count()
    };
    let all_wait = || {
        let threads = fs::read_dir(format!("/proc/{recorder}/task")).into_iter().flatten().flatten();
        let stats: Vec<String> =
            threads.map(|t| fs::read_to_string(t.path().join("stat")).unwrap_or_default()).collect();
        let waits = |stat: &String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
        !stats.is_empty() && stats.iter().all(waits)
    };
    let (mut last, mut equal) = (0, 0);
    while equal < 5 {
        std::thread::sleep(Duration::from_millis(50));
        let now = events();
        equal = if now > 0 && now == last && all_wait() { equal + 1 } else { 0 };
        last = now;
    }
}

/// A process that runs already: its page faults, counted by the kernel for both of us.
#[test]
fn running_program_perf_events_match_kernel_count() {
    if not_here() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let program = victim::c("counted", victim::STATIC);
    let path = folder.path().join("run.jfr");
    let truth = folder.path().join("truth.tsv");
    // The shell waits for a line, and then becomes the program.
    let mut child = spawn(
        Command::new("sh")
            .args(["-c", "read line; exec \"$0\" 60"])
            .arg(&program)
            .env("TRUTH_FILE", &truth)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null()),
    );
    let mut record = spawn(
        Command::new(victim::flightline())
            .args(["record", "-e", "cpu@1ms,wall@10ms,page-faults@23", "-p", &child.id().to_string(), "-o"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped()),
    );
    let messages = run::collect(record.stderr.take().unwrap());
    let begun = Instant::now();
    attached(record.id());
    let watched = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    drop(child.stdin.take());
    assert!(wait(&mut child, LIMIT, "the program").success());
    let (least, most) = (watched.elapsed(), begun.elapsed());
    let status = wait(&mut record, LIMIT, "flightline record");
    let output = String::from_utf8(messages.join().unwrap()).unwrap();
    assert!(status.success(), "{output}");
    let truth = Truth::read(&truth);
    let touched = truth.counts["touch"] as u64;
    let seen = sum_with(&fold(&path, "page-faults", true), "touch");
    assert!(seen.abs_diff(touched) <= 4 * 23 + touched / 20, "{seen} faults in touch, truly {touched}");
    let recording = Recording::read(&path).unwrap();
    let cpu = recording.samples.len() as u64 * 1_000_000;
    // Its first thread waited as the shell and as the program. Each state is rounded separately.
    let first = sum(&wall_samples(&path), |s| s.tid == u64::from(child.id())) as f64 / 100.0;
    let (least, most) = (least.as_secs_f64() - 0.05, most.as_secs_f64() + 0.05);
    assert!((least..=most).contains(&first), "{first} s of wall-clock time, truly {least:.2} to {most:.2} s");
    let clock = truth.cpu_ns();
    assert!(cpu.abs_diff(clock) <= clock / 4 + 20_000_000, "{cpu} ns of CPU time in samples, truly {clock}");
}
