//! Selects the thread of a program that receives a command.
//!
//! A queued signal ends some waits early. The handler restarts what the kernel can restart, but `poll`,
//! `select`, `nanosleep` and a few more return `EINTR` (signal(7)). The command therefore goes to the first
//! of these that is found within its time limit:
//!
//! * a thread that runs,
//! * a thread in a call that is restarted,
//! * a thread in a call that may return `EINTR` without any handler too (after SIGSTOP and SIGCONT), so that
//!   its program must expect it.
//!
//! Other threads are interrupted only on request.

use std::{
    fs,
    time::{Duration, Instant},
};

use flightline_in_signal::command::APPLY;
use flightline_in_signal::state::cookie::{Cookie, FROM_CONTROL};

/// How a thread would notice a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// Not at all: the thread runs.
    Running,
    /// Not at all: its call is restarted.
    Restarted,
    /// By `EINTR` from a call that may return it without handlers too.
    Expected,
    /// By an `EINTR` that it would not see otherwise.
    Unexpected,
}

/// A thread and what it does.
#[derive(Debug)]
struct Thread {
    tid: u32,
    notice: Notice,
    waits_in: String,
}

/// How long to wait for a thread of each kind before a less suitable one is used.
const PATIENCE: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];
/// Time between two commands to one process, because the answer to the first takes a moment.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];
/// Limit of threads examined in one pass.
const LOOKED_AT: usize = 4096;

/// Repeats a command to a process until the process has carried it out.
#[derive(Debug)]
pub(crate) struct Commander {
    pid: u32,
    command: u32,
    worst: Notice,
    since: Instant,
    /// When to examine the threads again.
    next: Instant,
    pause: Duration,
    /// The calls that the threads wait in, if none could receive the command.
    pub(crate) refused: Option<String>,
}

impl Commander {
    /// `worst` is the most noticeable effect that is acceptable.
    pub(crate) fn new(pid: u32, command: u32, worst: Notice) -> Commander {
        let now = Instant::now();
        Commander { pid, command, worst, since: now, next: now, pause: PAUSE[0], refused: None }
    }

    /// Returns a command for a program that is being recorded. Its threads must not notice it.
    pub(crate) fn to_apply(pid: u32) -> Commander {
        Commander::new(pid, APPLY, Notice::Restarted)
    }

    /// Sends the command again if it is due and a thread can receive it.
    pub(crate) fn urge(&mut self) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        let mut threads = threads(self.pid);
        // Examining thousands of threads takes a while. Spend at most a tenth of our time on it.
        self.next = now + (now.elapsed() * 10).clamp(Duration::from_millis(1), PAUSE[1]);
        threads.sort_by_key(|t| t.notice);
        let waited = self.since.elapsed();
        let fit = |t: &&Thread| t.notice <= self.worst && waited >= PATIENCE[t.notice as usize];
        match threads.iter().find(fit) {
            // Without a handler the signal would kill the process.
            Some(_) if !catches(self.pid) => self.refused = Some(String::new()),
            Some(thread) => {
                if queue(self.pid, thread.tid, self.command) {
                    self.next = Instant::now() + self.pause;
                    self.pause = (self.pause * 2).min(PAUSE[1]);
                    self.refused = None;
                }
            }
            None => {
                let mut waits: Vec<&str> = threads.iter().map(|t| t.waits_in.as_str()).collect();
                waits.sort_unstable();
                waits.dedup();
                self.refused = Some(waits.join(", "));
            }
        }
    }
}

/// Returns true if a process has a handler for the signal that carries commands.
pub(super) fn catches(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    caught >> (libc::SIGPROF - 1) & 1 == 1
}

fn threads(pid: u32) -> Vec<Thread> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let tids = tasks.flatten().filter_map(|t| t.file_name().to_str()?.parse::<u32>().ok());
    tids.take(LOOKED_AT).filter_map(|tid| look(pid, tid)).collect()
}

fn look(pid: u32, tid: u32) -> Option<Thread> {
    let dir = format!("/proc/{pid}/task/{tid}");
    let stat = fs::read_to_string(format!("{dir}/stat")).ok()?;
    // The name may contain any character, so fields are counted from its closing parenthesis. Field 3 is the
    // state, 32 the mask.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split(' ').collect();
    let blocked: u64 = fields.get(32 - 3)?.parse().ok()?;
    if blocked >> (libc::SIGPROF - 1) & 1 == 1 {
        return None;
    }
    let read = |name: &str| fs::read_to_string(format!("{dir}/{name}")).unwrap_or_default();
    let (notice, waits_in) = match *fields.first()? {
        "R" => (Notice::Running, String::new()),
        "S" | "D" => {
            let call = read("syscall");
            let words: Vec<&str> = call.split(' ').collect();
            match words.first().and_then(|n| n.parse().ok()) {
                // With a timeout it returns EINTR, which callers must expect: any futex wake-up may be
                // spurious.
                Some(libc::SYS_futex) if words.get(4).is_some_and(|limit| *limit != "0x0") => {
                    (Notice::Expected, "futex".to_owned())
                }
                Some(number) => (notice_for_call(number), format!("system call {number}")),
                None => {
                    let place = read("wchan");
                    (notice_for_function(&place), place)
                }
            }
        }
        // Stopped, traced or dead: the signal would stay pending.
        _ => return None,
    };
    Some(Thread { tid, notice, waits_in })
}

/// Returns how a thread that sleeps in a system call notices a signal.
fn notice_for_call(number: libc::c_long) -> Notice {
    const EXPECTED: [libc::c_long; 4] =
        [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_rt_sigtimedwait, libc::SYS_semtimedop];
    const UNEXPECTED: [libc::c_long; 10] = [
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_rt_sigsuspend,
        libc::SYS_io_getevents,
        libc::SYS_msgrcv,
        libc::SYS_msgsnd,
        libc::SYS_io_uring_enter,
        libc::SYS_connect,
    ];
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_epoll_wait => return Notice::Expected,
        libc::SYS_poll | libc::SYS_select | libc::SYS_pause => return Notice::Unexpected,
        _ => {}
    }
    match number {
        n if EXPECTED.contains(&n) => Notice::Expected,
        n if UNEXPECTED.contains(&n) => Notice::Unexpected,
        _ => Notice::Restarted,
    }
}

/// The same by the kernel function (wchan), for threads whose system call cannot be read.
fn notice_for_function(place: &str) -> Notice {
    const RESTARTED: [&str; 8] =
        ["futex", "pipe", "do_wait", "accept", "wait_woken", "sk_wait", "skb_wait", "unix_stream"];
    if RESTARTED.iter().any(|part| place.contains(part)) {
        Notice::Restarted
    } else if place.contains("ep_poll") || place.contains("epoll") {
        Notice::Expected
    } else {
        Notice::Unexpected
    }
}

/// Queues the command for one thread. Returns false if the kernel refuses.
fn queue(pid: u32, tid: u32, command: u32) -> bool {
    let cookie = Cookie { source: FROM_CONTROL, generation: 0, slot: command };
    let mut info = [0u64; 16];
    // Fields: si_signo, si_errno; si_code; si_pid, si_uid; si_value.
    info[0] = libc::SIGPROF as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[2] = u64::from(std::process::id()) | u64::from(nix::unistd::getuid().as_raw()) << 32;
    info[3] = cookie.pack();
    // SAFETY: the kernel reads one siginfo of 128 bytes.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGPROF, info.as_ptr()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_running_and_waiting_threads_are_classified() {
        let (to, from) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            let tid = nix::unistd::gettid();
            (tid, from.recv().is_err())
        });
        let pid = std::process::id();
        let deadline = Instant::now() + Duration::from_secs(10);
        // The calling thread runs. The thread that waits for a channel sleeps in a futex call, which is
        // restarted.
        loop {
            let threads = threads(pid);
            let running = threads.iter().any(|t| t.notice == Notice::Running);
            let waiting = threads.iter().any(|t| t.notice == Notice::Restarted);
            if running && waiting {
                break;
            }
            assert!(Instant::now() < deadline, "{threads:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(to);
        assert!(sleeper.join().unwrap().1);
    }

    #[test]
    fn system_calls_and_wait_functions_are_classified() {
        for (call, notice) in [
            (libc::SYS_read, Notice::Restarted),
            (libc::SYS_futex, Notice::Restarted),
            (libc::SYS_epoll_pwait, Notice::Expected),
            (libc::SYS_clock_nanosleep, Notice::Unexpected),
            (libc::SYS_ppoll, Notice::Unexpected),
        ] {
            assert_eq!(notice_for_call(call), notice, "{call}");
        }
        for (place, notice) in [
            ("futex_do_wait", Notice::Restarted),
            ("anon_pipe_read", Notice::Restarted),
            ("ep_poll", Notice::Expected),
            ("do_sys_poll", Notice::Unexpected),
            ("hrtimer_nanosleep", Notice::Unexpected),
            ("0", Notice::Unexpected),
        ] {
            assert_eq!(notice_for_function(place), notice, "{place}");
        }
    }
}
