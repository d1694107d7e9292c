//! The walker against framehop, frame for frame, on programs stopped at random instructions.
//!
//! Each stop is walked three ways (interpreter, rows, rows with memo): they must agree with each other, and with
//! framehop wherever that reaches the root or fails later than we do.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod oracle;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use flightline_in_signal::interrupted::Regs;
use oracle::{Process, Way};

/// A traced child, killed on drop.
struct Traced {
    pid: i32,
    child: std::process::Child,
}

impl Traced {
    fn start(mut command: Command) -> Traced {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start the program");
        let pid = child.id() as i32;
        std::thread::sleep(std::time::Duration::from_millis(300));
        // SAFETY: plain ptrace request on our own child.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
        assert_eq!(seized, 0, "ptrace: {}", std::io::Error::last_os_error());
        Traced { pid, child }
    }

    fn wait_stop(&self) -> bool {
        let mut status = 0;
        // SAFETY: waits for our own child.
        let got = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) };
        got == self.pid && libc::WIFSTOPPED(status)
    }

    fn interrupt(&self) -> bool {
        // SAFETY: plain ptrace request.
        unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, self.pid, 0, 0) };
        self.wait_stop()
    }

    fn step(&self) -> bool {
        // SAFETY: plain ptrace request.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) };
        self.wait_stop()
    }

    fn resume(&self) {
        // SAFETY: plain ptrace request.
        unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0, 0) };
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

/// Stops the program `stops` times and compares. `bursts` of single steps walk through prologues and epilogues.
fn compare(name: &str, command: Command, stops: usize) -> Tally {
    let traced = Traced::start(command);
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut tally = Tally::default();
    let mut shown = 0;
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    assert!(traced.interrupt(), "{name}: ended before the first stop");
    let mut process = Process::new(traced.pid as u32);
    while tally.stops < stops {
        traced.resume();
        std::thread::sleep(std::time::Duration::from_micros(100 + random(&mut seed) % 1500));
        if !traced.interrupt() {
            break;
        }
        for _ in 0..4 {
            let regs = traced.regs();
            if process.maps.iter().all(|m| !(m.start <= regs.sp() && regs.sp() < m.end)) {
                process = Process::new(traced.pid as u32);
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
    let by_memo = process.walk(regs, Way::Memo);
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
    } else if root && !their_root && ours.starts_with(&theirs) {
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

fn stops() -> usize {
    std::env::var("FLIGHTLINE_ORACLE_STOPS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

fn run(name: &str, program: &str, args: &[&str]) {
    if !std::path::Path::new(program).exists() {
        eprintln!("{name}: {program} is not installed here, nothing compared");
        return;
    }
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    let tally = compare(name, command, stops());
    assert_eq!(tally.stops, stops(), "{name}: ended early");
    assert_eq!(tally.differ, 0, "{name}: {tally:?}");
    assert!(tally.root * 1000 >= tally.stops * 995, "{name}: {tally:?}");
}

#[test]
fn sqlite3() {
    let query = "with recursive c(x) as (select 1 union all select x+1 from c limit 100000000) \
                 select count(distinct x*7919%10007), group_concat(substr(hex(x),1,2)) from c";
    run("sqlite3", "/usr/bin/sqlite3", &[":memory:", query]);
}

#[test]
fn xz() {
    let big = std::env::temp_dir().join(format!("flightline-oracle-{}", std::process::id()));
    let mut seed = 7;
    let bytes: Vec<u8> = (0..32 << 20).map(|_| (random(&mut seed) % 23) as u8).collect();
    std::fs::write(&big, bytes).unwrap();
    run("xz", "/usr/bin/xz", &["-9", "-T1", "-k", "-c", big.to_str().unwrap()]);
    std::fs::remove_file(big).unwrap();
}

#[test]
fn python3() {
    let code = "import json,re\nd={str(i):[i]*5 for i in range(2000)}\n\
                f=lambda n: 1 if n<2 else f(n-1)+f(n-2)\n\
                while True: json.loads(json.dumps(d)); re.findall(r'(\\d+),',str(d)); f(15); sorted(d,key=lambda k:hash(k))";
    run("python3", "/usr/bin/python3", &["-c", code]);
}

#[test]
fn redis_server() {
    run(
        "redis-server",
        "/usr/bin/redis-server",
        &["--port", "0", "--unixsocket", "/tmp/flightline-oracle.sock", "--hz", "500", "--save", ""],
    );
}
