//! Reads a thread's state from the kernel without waking it: its scheduler statistics, and where it waits.

use std::{
    fs::File,
    io::{ErrorKind, Result},
    os::unix::fs::FileExt,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use nix::sys::resource::{Resource, getrlimit};

/// `/proc/PID/task/TID/schedstat`. If two readings are equal, the thread did not run in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a processor, ns, at the last tick or switch.
    pub ran_ns: u64,
    /// Time in the run queue, ns; grows when a wait ends.
    pub queued_ns: u64,
    /// Number of times that the thread was put on a processor.
    pub slices: u64,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallState {
    /// It is on a processor, or about to be.
    Running,
    /// It waits in the kernel.
    Waiting {
        /// The system call; `None` for a page fault and the like.
        call: Option<i64>,
        /// User stack pointer.
        sp: u64,
        /// User program counter.
        pc: u64,
    },
    /// Access is denied.
    Denied,
}

/// A thread's files, which stay open as far as the limit of descriptors permits.
pub struct Files {
    pid: u32,
    tid: u32,
    schedstat: Option<File>,
    syscall: Option<File>,
}

/// Number of descriptors held by all [`Files`].
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Number of descriptors left for other uses.
const SPARE: u64 = 256;

fn may_hold() -> bool {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    (HELD.load(Relaxed) as u64) < limit.saturating_sub(SPARE)
}

fn hold(file: File) -> Option<File> {
    may_hold().then(|| {
        HELD.fetch_add(1, Relaxed);
        file
    })
}

impl Drop for Files {
    fn drop(&mut self) {
        let open = usize::from(self.schedstat.is_some()) + usize::from(self.syscall.is_some());
        HELD.fetch_sub(open, Relaxed);
    }
}

/// Longest line of these files.
const LINE: usize = 256;

impl Files {
    /// Opens the files that are read at every examination.
    pub fn open(pid: u32, tid: u32) -> Result<Files> {
        let mut files = Files { pid, tid, schedstat: None, syscall: None };
        files.schedstat = hold(files.file("schedstat")?);
        Ok(files)
    }

    fn file(&self, name: &str) -> Result<File> {
        File::open(format!("/proc/{}/task/{}/{name}", self.pid, self.tid))
    }

    /// Reads the statistics. An error means that the thread is gone.
    pub fn schedstat(&self) -> Result<SchedStat> {
        let mut line = [0; LINE];
        let len = match &self.schedstat {
            Some(file) => file.read_at(&mut line, 0)?,
            None => self.file("schedstat")?.read_at(&mut line, 0)?,
        };
        parse_schedstat(&line[..len]).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Reads where the thread waits.
    pub fn place(&mut self) -> Result<SyscallState> {
        let mut line = [0; LINE];
        let read = match &self.syscall {
            Some(file) => file.read_at(&mut line, 0),
            None => match self.file("syscall") {
                Ok(file) => {
                    let read = file.read_at(&mut line, 0);
                    self.syscall = hold(file);
                    read
                }
                Err(error) => Err(error),
            },
        };
        match read {
            Ok(len) => parse_syscall(&line[..len]).ok_or_else(|| ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(SyscallState::Denied),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the thread is in an uninterruptible wait, usually for a disk.
    pub fn uninterruptible(&self) -> bool {
        let mut line = [0; 1024];
        let read = self.file("stat").and_then(|f| f.read_at(&mut line, 0));
        let line = read.ok().and_then(|len| line.get(..len)).unwrap_or_default();
        // The name in parentheses may contain any character.
        let end = line.iter().rposition(|b| *b == b')').unwrap_or(line.len());
        line.get(end..).and_then(|rest| rest.get(2)) == Some(&b'D')
    }
}

fn parse_schedstat(line: &[u8]) -> Option<SchedStat> {
    let mut numbers = line.split(|b| *b == b' ' || *b == b'\n').map(decimal);
    Some(SchedStat { ran_ns: numbers.next()??, queued_ns: numbers.next()??, slices: numbers.next()?? })
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses `running`, `-1 SP PC`, or `NR ARG0 … ARG5 SP PC`.
fn parse_syscall(line: &[u8]) -> Option<SyscallState> {
    let text = std::str::from_utf8(line).ok()?.trim();
    if text == "running" {
        return Some(SyscallState::Running);
    }
    let mut words = text.split(' ');
    let call: i64 = words.next()?.parse().ok()?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let pc = hex(words.next_back()?)?;
    let sp = hex(words.next_back()?)?;
    Some(SyscallState::Waiting { call: (call >= 0).then_some(call), sp, pc })
}

/// Returns true if waits in this system call are always interruptible, so that the state need not be read.
pub fn surely_interruptible(call: Option<i64>) -> bool {
    const CALLS: &[i64] = &[
        libc::SYS_futex,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_pwait,
        libc::SYS_rt_sigsuspend,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_pause,
    ];
    call.is_some_and(|call| CALLS.contains(&call))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_and_syscall_lines_are_parsed() {
        let stat = SchedStat { ran_ns: 123, queued_ns: 45, slices: 6 };
        assert_eq!(parse_schedstat(b"123 45 6\n"), Some(stat));
        for bad in [&b""[..], b"1 2", b"1 2 x", b"-1 2 3", b"99999999999999999999 1 1"] {
            assert_eq!(parse_schedstat(bad), None, "{bad:?}");
        }
        assert_eq!(parse_syscall(b"running\n"), Some(SyscallState::Running));
        let waits = SyscallState::Waiting { call: Some(202), sp: 0x7f00, pc: 0x55 };
        assert_eq!(parse_syscall(b"202 0x1 0x2 0x3 0x4 0x5 0x6 0x7f00 0x55\n"), Some(waits));
        assert_eq!(
            parse_syscall(b"-1 0x7f00 0x55"),
            Some(SyscallState::Waiting { call: None, sp: 0x7f00, pc: 0x55 })
        );
        for bad in [&b""[..], b"202", b"x 0x1 0x2", b"3 1 2", b"\xff"] {
            assert_eq!(parse_syscall(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn sleeping_thread_is_seen_in_its_system_call() {
        let (send, receive) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: no arguments, no memory.
            let _ = send.send(unsafe { libc::syscall(libc::SYS_gettid) } as u32);
            let _ = stopped.recv();
        });
        let mut files = Files::open(std::process::id(), receive.recv().unwrap()).unwrap();
        let waiting = (0..2000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            match files.place().unwrap() {
                SyscallState::Waiting { call, sp, pc } => Some((call, sp, pc)),
                SyscallState::Running => None,
                SyscallState::Denied => panic!("our own thread"),
            }
        });
        let (call, sp, pc) = waiting.expect("it waits for the channel");
        assert_eq!(call, Some(libc::SYS_futex));
        assert!(sp > 0x1000 && pc > 0x1000 && surely_interruptible(call) && !files.uninterruptible());
        let before = files.schedstat().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(
            files.schedstat().unwrap(),
            before,
            "a thread that waits has an account that stands still"
        );
        drop(stop);
        thread.join().unwrap();
        let gone = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            files.schedstat().is_err()
        });
        assert!(gone, "what is joined has ended, or is about to");
    }
}
