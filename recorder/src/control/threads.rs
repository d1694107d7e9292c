//! Which thread of a program a command goes to.
//!
//! A queued signal ends some waits early: the handler restarts what the kernel can restart, but `poll`, `select`,
//! `nanosleep` and a few more return `EINTR` (signal(7)). So a command goes to a thread that runs; if none does for a
//! while, to one in a call that is restarted; then to one in a call that may return `EINTR` without any handler too
//! (after SIGSTOP and SIGCONT), which its program must therefore expect. Others are only interrupted if asked for.

use std::{
    fs,
    time::{Duration, Instant},
};

use flightline_in_signal::{
    command::APPLY,
    cookie::{Cookie, FROM_CONTROL},
};

/// What a thread would see of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// It runs: nothing.
    Running,
    /// Its call is restarted: nothing.
    Restarted,
    /// `EINTR` from a call that may return it without handlers too.
    Expected,
    /// `EINTR` that it would not see otherwise.
    Unexpected,
}

/// A thread and what it does.
#[derive(Debug)]
struct Thread {
    tid: u32,
    notice: Notice,
    waits_in: String,
}

/// How long a thread of each kind is waited for before a worse one is taken.
const PATIENCE: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];
/// Time between two commands to one process: the answer to the first takes a moment.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];
/// Threads looked at in one go.
const LOOKED_AT: usize = 4096;

/// Sends one command to one process until it was carried out.
#[derive(Debug)]
pub(crate) struct Commander {
    pid: u32,
    command: u32,
    worst: Notice,
    since: Instant,
    /// When to look at the threads again.
    next: Instant,
    pause: Duration,
    /// What the threads wait in, if none could be sent to.
    pub(crate) refused: Option<String>,
}

impl Commander {
    /// `worst`: what threads may see of it at worst.
    pub(crate) fn new(pid: u32, command: u32, worst: Notice) -> Commander {
        let now = Instant::now();
        Commander { pid, command, worst, since: now, next: now, pause: PAUSE[0], refused: None }
    }

    /// A command to a program that is being recorded: its threads must not notice.
    pub(crate) fn to_apply(pid: u32) -> Commander {
        Commander::new(pid, APPLY, Notice::Restarted)
    }

    /// Sends the command again if it is time and a thread can take it.
    pub(crate) fn urge(&mut self) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        let mut threads = threads(self.pid);
        // A look at thousands of threads takes a while: at most a tenth of our time goes into it.
        self.next = now + (now.elapsed() * 10).clamp(Duration::from_millis(1), PAUSE[1]);
        threads.sort_by_key(|t| t.notice);
        let waited = self.since.elapsed();
        let fit = |t: &&Thread| t.notice <= self.worst && waited >= PATIENCE[t.notice as usize];
        match threads.iter().find(fit) {
            // Without a handler the signal would be deadly.
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

/// Whether a process has a handler for the signal of commands.
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
    // The name may hold anything: fields are counted from its closing parenthesis. Field 3 is the state, 32 the mask.
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
                // With a time limit it returns EINTR, which waiters must expect: any wake-up may be for nothing.
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
        // Stopped, traced, dead: the signal would wait.
        _ => return None,
    };
    Some(Thread { tid, notice, waits_in })
}

/// By the system call that a thread sleeps in.
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

/// By the kernel function that a thread sleeps in, where its system call may not be read.
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

/// Queues the command for one thread; `false` if the kernel refuses.
fn queue(pid: u32, tid: u32, command: u32) -> bool {
    let cookie = Cookie { source: FROM_CONTROL, generation: 0, slot: command };
    let mut info = [0u64; 16];
    // si_signo, si_errno; si_code; si_pid, si_uid; si_value.
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
    fn own_threads_are_seen_as_they_are() {
        let (to, from) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            let tid = nix::unistd::gettid();
            (tid, from.recv().is_err())
        });
        let pid = std::process::id();
        let deadline = Instant::now() + Duration::from_secs(10);
        // The thread that asks runs; one that waits for a channel sleeps in a futex, which is restarted.
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
    fn calls_and_places() {
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
