//! Compares the walker with framehop, frame by frame, on programs stopped at random instructions.
//!
//! Each stop is walked in three ways (interpreter, unwind tables, unwind tables with rule cache). The results
//! must agree with each other, and with framehop's if that reaches the root or fails later than we do.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use crate::oracle;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use flightline_in_signal::unwind::interrupted::Regs;
use oracle::{Process, Way};

/// A traced child, killed on drop. `pid` is its busiest thread.
struct Traced {
    pid: i32,
    child: std::process::Child,
}

/// Returns the thread that used most CPU time, once the program is at work. On a busy machine, that may take
/// long.
fn busiest(pid: u32) -> i32 {
    const AT_WORK_NS: u64 = 100_000_000;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let (used_ns, tid) = most_used(pid);
        if used_ns >= AT_WORK_NS || std::time::Instant::now() > deadline {
            return tid;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Returns the CPU time of the thread that used most, ns, and its TID.
fn most_used(pid: u32) -> (u64, i32) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("tasks of the program");
    let used = |tid: i32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
        stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    };
    let tids = tasks.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok());
    tids.map(|tid| (used(tid), tid)).max().expect("a thread")
}

impl Traced {
    fn start(mut command: Command) -> Traced {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start the program");
        let pid = busiest(child.id());
        // SAFETY: plain ptrace request on our own child.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
        assert_eq!(seized, 0, "ptrace: {}", std::io::Error::last_os_error());
        Traced { pid, child }
    }

    /// Waits for a stop. A thread that sleeps in a system call is interrupted.
    fn wait_stop(&self, request: libc::c_uint) -> bool {
        for round in 1..20_000 {
            let mut status = 0;
            // SAFETY: waits for our own child.
            let got = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL | libc::WNOHANG) };
            let signal = libc::WSTOPSIG(status);
            if got == self.pid && libc::WIFSTOPPED(status) && status >> 16 == 0 && signal != libc::SIGTRAP {
                // On its way to the program: delivered, and on to the next stop.
                // SAFETY: plain ptrace request.
                unsafe { libc::ptrace(request, self.pid, 0, signal) };
                continue;
            }
            if got != 0 {
                return got == self.pid && libc::WIFSTOPPED(status);
            }
            if round % 200 == 0 {
                // SAFETY: plain ptrace request.
                unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, self.pid, 0, 0) };
            }
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
        panic!("the program does not stop");
    }

    fn interrupt(&self) -> bool {
        // SAFETY: plain ptrace request.
        unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, self.pid, 0, 0) };
        self.wait_stop(libc::PTRACE_CONT)
    }

    fn step(&self) -> bool {
        // SAFETY: plain ptrace request.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) };
        self.wait_stop(libc::PTRACE_SINGLESTEP)
    }

    /// Lets the program run, and delivers its signals.
    fn run(&self, time: std::time::Duration) {
        let end = std::time::Instant::now() + time;
        // SAFETY: plain ptrace request.
        unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0, 0) };
        while std::time::Instant::now() < end {
            let mut status = 0;
            // SAFETY: waits for our own child.
            let got = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL | libc::WNOHANG) };
            if got == self.pid && libc::WIFSTOPPED(status) {
                // SAFETY: plain ptrace request.
                unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0, libc::WSTOPSIG(status)) };
            }
        }
    }

    fn regs(&self) -> Regs {
        // SAFETY: plain integers; the kernel fills them.
        let mut u: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: plain ptrace request that writes one `user_regs_struct`.
        unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &mut u) };
        let mut regs = Regs::unknown();
        let order = [
            u.rax, u.rdx, u.rcx, u.rbx, u.rsi, u.rdi, u.rbp, u.rsp, u.r8, u.r9, u.r10, u.r11, u.r12, u.r13,
            u.r14, u.r15, u.rip,
        ];
        for (number, value) in order.into_iter().enumerate() {
            regs.set(number, value);
        }
        regs.pc = u.rip;
        regs
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let mut status = 0;
        // SAFETY: waits for our own child's thread. The tracer must wait for it before the process can be
        // reaped.
        while unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } == self.pid
            && libc::WIFSTOPPED(status)
        {}
        let _ = self.child.wait();
    }
}

#[derive(Default, Debug)]
struct Tally {
    stops: usize,
    agree: usize,
    framehop_short: usize,
    root: usize,
    frames: usize,
    differ: usize,
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Stops the program `stops` times and compares. `bursts` of single steps cover prologues and epilogues.
fn compare(name: &str, command: Command, stops: usize) -> Tally {
    let traced = Traced::start(command);
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut tally = Tally::default();
    let mut shown = 0;
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    assert!(traced.interrupt(), "{name}: ended before the first stop");
    let mut process = Process::new(traced.child.id());
    while tally.stops < stops {
        traced.run(std::time::Duration::from_micros(100 + random(&mut seed) % 1500));
        if !traced.interrupt() {
            break;
        }
        for _ in 0..4 {
            let regs = traced.regs();
            if process.maps.iter().all(|m| !(m.start <= regs.sp() && regs.sp() < m.end)) {
                process = Process::new(traced.child.id());
            }
            check(name, &mut process, &regs, &mut tally, &mut shown);
            *seen.entry(regs.pc).or_default() += 1;
            let steps = 1 + random(&mut seed) % 12;
            if tally.stops >= stops || !(0..steps).all(|_| traced.step()) {
                break;
            }
        }
    }
    eprintln!(
        "{name}: {} stops at {} addresses, {:.1} frames: {} agree with framehop, {} where framehop ends early, \
         {} differ; {} reach the root",
        tally.stops,
        seen.len(),
        tally.frames as f64 / tally.stops.max(1) as f64,
        tally.agree,
        tally.framehop_short,
        tally.differ,
        tally.root
    );
    tally
}

fn check(name: &str, process: &mut Process, regs: &Regs, tally: &mut Tally, shown: &mut usize) {
    let (ours, walked) = process.walk(regs, Way::Interpreter);
    let by_rows = process.walk(regs, Way::Rows);
    let by_memo = process.walk(regs, Way::RuleCache);
    let hex = |frames: &[u64]| frames.iter().map(|f| format!("{f:#x}")).collect::<Vec<_>>().join(" ");
    for (way, (frames, other)) in [("rows", &by_rows), ("memo", &by_memo)] {
        let same = *frames == ours && other.end == walked.end;
        assert!(same, "{name}: interpreter {} {walked:?}\n{way} {} {other:?}", hex(&ours), hex(frames));
    }
    let (theirs, their_root) = process.framehop(regs);
    let root = Process::reached_root(&walked);
    tally.stops += 1;
    tally.frames += ours.len();
    tally.root += usize::from(root);
    if ours == theirs && root == their_root {
        tally.agree += 1;
    } else if root
        && (!their_root && ours.starts_with(&theirs) || name == "signals" && leaves_out(&theirs, &ours))
    {
        tally.framehop_short += 1;
    } else {
        tally.differ += 1;
        if *shown < 5 {
            *shown += 1;
            eprintln!(
                "{name}: ours   {} root {root} {walked:?}\n      framehop {} root {their_root}",
                hex(&ours),
                hex(&theirs)
            );
        }
    }
}

/// Returns true if `theirs` is `ours` without some frames in the middle. framehop does not support signal
/// frames: if the interrupted code has frame pointers, it follows these, and misses the frames up to the next
/// one that it can unwind.
fn leaves_out(theirs: &[u64], ours: &[u64]) -> bool {
    let same = theirs.iter().zip(ours).take_while(|(a, b)| a == b).count();
    same > 0 && theirs.len() < ours.len() && theirs.get(same..).is_some_and(|rest| ours.ends_with(rest))
}

fn stops() -> usize {
    std::env::var("FLIGHTLINE_ORACLE_STOPS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

fn run(name: &str, program: &str, args: &[&str]) {
    if !std::path::Path::new(program).exists() {
        assert!(std::env::var_os("FLIGHTLINE_NO_SKIP").is_none(), "{name}: {program} is not installed here");
        // Directly to stderr, because the test runner captures printed output.
        let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: {name}: no {program} here ***\n");
        return;
    }
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    judge(name, command);
}

fn judge(name: &str, command: Command) {
    let tally = compare(name, command, stops());
    assert_eq!(tally.stops, stops(), "{name}: ended early");
    assert_eq!(tally.differ, 0, "{name}: {tally:?}");
    assert!(tally.root * 1000 >= tally.stops * 995, "{name}: {tally:?}");
}

#[test]
fn sqlite3_stacks_match_framehop() {
    let query = "with recursive c(x) as (select 1 union all select x+1 from c limit 100000000) \
                 select count(distinct x*7919%10007), group_concat(substr(hex(x),1,2)) from c";
    run("sqlite3", "/usr/bin/sqlite3", &[":memory:", query]);
}

#[test]
fn xz_stacks_match_framehop() {
    let big = std::env::temp_dir().join(format!("flightline-oracle-{}", std::process::id()));
    let mut seed = 7;
    let bytes: Vec<u8> = (0..32 << 20).map(|_| (random(&mut seed) % 23) as u8).collect();
    std::fs::write(&big, bytes).unwrap();
    run("xz", "/usr/bin/xz", &["-9", "-T1", "-k", "-c", big.to_str().unwrap()]);
    std::fs::remove_file(big).unwrap();
}

#[test]
fn python3_stacks_match_framehop() {
    let code = "import json,re\nd={str(i):[i]*5 for i in range(2000)}\n\
                f=lambda n: 1 if n<2 else f(n-1)+f(n-2)\n\
                while True: json.loads(json.dumps(d)); re.findall(r'(\\d+),',str(d)); f(15); sorted(d,key=lambda k:hash(k))";
    run("python3", "/usr/bin/python3", &["-c", code]);
}

/// Tests a server under load, over a socket of its own.
#[test]
fn redis_server_stacks_match_framehop() {
    let socket = std::env::temp_dir().join(format!("flightline-oracle-{}.sock", std::process::id()));
    let path = socket.to_str().unwrap().to_owned();
    let load = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let mut command = Command::new("/usr/bin/redis-benchmark");
        let args = ["-s", &path, "-l", "-q", "-t", "set,get,lpush,lrange,zadd,mset", "-c", "8"];
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    });
    let args = ["--port", "0", "--unixsocket", socket.to_str().unwrap(), "--save", ""];
    run("redis-server", "/usr/bin/redis-server", &args);
    if let Some(mut load) = load.join().unwrap() {
        load.kill().unwrap();
        load.wait().unwrap();
    }
}

const WORK: &str = "FLIGHTLINE_ORACLE_WORK";

/// Runs this test executable with an environment variable that makes it work instead of testing.
fn myself(test: &str, work: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            &format!("{}::{test}", module_path!().split_once("::").unwrap().1),
            "--test-threads",
            "1",
        ])
        .env(WORK, work)
        .stdin(Stdio::null());
    command
}

#[test]
fn rust_program_stacks_match_framehop() {
    if std::env::var_os(WORK).is_some() {
        work(false);
    }
    judge("rust program", myself("rust_program_stacks_match_framehop", "plain"));
}

/// Tests a program that spends half of its time in a signal handler: framehop ends at the signal frame, gdb
/// does not.
#[test]
fn stacks_with_signal_handlers_match_framehop_and_gdb() {
    if std::env::var_os(WORK).is_some() {
        work(true);
    }
    judge("signals", myself("stacks_with_signal_handlers_match_framehop_and_gdb", "signals"));
    against_gdb("signals", myself("stacks_with_signal_handlers_match_framehop_and_gdb", "signals"), 20);
}

#[test]
fn python3_stacks_match_gdb() {
    let mut command = Command::new("/usr/bin/python3");
    command.args([
        "-c",
        "import json\nwhile True: sorted(json.loads(json.dumps({str(i):i for i in range(99)})))",
    ]);
    against_gdb("python3", command, 20);
}

/// Compares with gdb's frames (without inlined frames and tail calls, which are no physical frames) while the
/// program is stopped by a signal.
fn against_gdb(name: &str, mut command: Command, stops: usize) {
    if Command::new("gdb").arg("--version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("FLIGHTLINE_NO_SKIP").is_none(), "gdb is not installed here");
        let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: {name}: no gdb here ***\n");
        return;
    }
    let script = "python\nf = gdb.newest_frame()\n\
        print('R', *[int(f.read_register(r)) & (1<<64)-1 for r in 'rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip'.split()])\n\
        while f:\n  if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME): print('F', f.pc())\n  f = f.older()\nend\n";
    let file = std::env::temp_dir().join(format!("flightline-oracle-{}-{name}.gdb", std::process::id()));
    std::fs::write(&file, script).unwrap();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start the program");
    let tid = busiest(child.id());
    // SAFETY: signals to our own child.
    let signal = |signal| unsafe { libc::kill(child.id() as i32, signal) };
    let (mut agree, mut frames_seen) = (0, 0);
    for stop in 0..stops {
        std::thread::sleep(std::time::Duration::from_micros(1000 + stop as u64 * 377));
        signal(libc::SIGSTOP);
        std::thread::sleep(std::time::Duration::from_millis(10));
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", &tid.to_string(), "-x"])
            .arg(&file);
        let output = gdb.stderr(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers = |tag: &str| -> Vec<u64> {
            let lines = text.lines().filter_map(|l| l.strip_prefix(tag)?.strip_prefix(' '));
            lines.flat_map(str::split_whitespace).filter_map(|n| n.parse().ok()).collect()
        };
        let mut regs = Regs::unknown();
        for (number, value) in numbers("R").into_iter().enumerate() {
            regs.set(number, value);
        }
        regs.pc = regs.get(16).unwrap_or_else(|| panic!("{name}: gdb said {text}"));
        let theirs = numbers("F");
        let (ours, walked) = Process::new(child.id()).walk(&regs, Way::Rows);
        assert!(Process::reached_root(&walked), "{name}: {walked:?} {ours:x?}\ngdb {theirs:x?}");
        assert_eq!(ours, theirs, "{name}");
        agree += 1;
        frames_seen += ours.len();
        signal(libc::SIGCONT);
    }
    eprintln!("{name}: {agree} of {stops} stops, {frames_seen} frames agree with gdb");
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_file(file).unwrap();
}

/// Sorts, hashes, formats, recurses and, if requested, handles signals, in an endless loop.
fn work(signals: bool) -> ! {
    extern "C" fn caught(_: i32) {
        std::hint::black_box(format!("{:?}", (0..50).map(|i| i * 7 % 13).collect::<Set>()));
    }
    type Set = std::collections::BTreeSet<i32>;
    // SAFETY: the handler only allocates, and the signal is raised where that is sound.
    unsafe { libc::signal(libc::SIGUSR1, caught as *const () as usize) };
    let mut seed = 5;
    loop {
        let mut words: Vec<String> = (0..300).map(|_| format!("{:x}", random(&mut seed))).collect();
        words.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| b.cmp(a)));
        let map: std::collections::HashMap<_, _> = words.iter().zip(0..).collect();
        std::hint::black_box(ackermann(2, map.len() as u64 % 40));
        if signals {
            // SAFETY: caught above.
            unsafe { libc::raise(libc::SIGUSR1) };
        }
    }
}

#[inline(never)]
fn ackermann(m: u64, n: u64) -> u64 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}
