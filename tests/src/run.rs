//! Runs a command to its end, but never for ever.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

/// What a finished command left behind.
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything it wrote to standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to standard error, as text.
    pub stderr: String,
}

impl Finished {
    /// Exit code, or 128 + signal.
    pub fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Panics with all output unless the command succeeded.
    #[track_caller]
    pub fn expect_success(self, what: &str) -> Finished {
        assert!(
            self.status.success(),
            "{what}: {}\n{}\n{}",
            self.status,
            self.stderr,
            String::from_utf8_lossy(&self.stdout)
        );
        self
    }
}

/// Starts a command in a process group of its own, with both outputs piped and read.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let out = collect(child.stdout.take().unwrap());
    let err = collect(child.stderr.take().unwrap());
    let status = wait(&mut child, limit, &format!("{command:?}"));
    let stderr = String::from_utf8_lossy(&err.join().unwrap()).into_owned();
    Finished { status, stdout: out.join().unwrap(), stderr }
}

/// Starts a command in a process group of its own, with the signals of a terminal as they are from a terminal: what
/// runs in the background of a script has them ignored.
#[track_caller]
pub fn spawn(command: &mut Command) -> Child {
    let defaults = || {
        for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: async-signal-safe, and no handler is involved.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(defaults) };
    command.process_group(0).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Waits for a child; past the limit its whole process group is killed and the test fails.
#[track_caller]
pub fn wait(child: &mut Child, limit: Duration, what: &str) -> ExitStatus {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            let state = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            signal_group(child.id(), libc::SIGKILL);
            panic!("still running after {limit:?}: {what}\n{state}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to one process.
pub fn signal(pid: u32, number: i32) {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid as i32, number) };
}

/// Sends a signal to a process group made by [`spawn`].
pub fn signal_group(pid: u32, number: i32) {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(-(pid as i32), number) };
}

/// Reads a stream to its end on a thread of its own.
pub fn collect(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        all
    })
}

/// Polls until `ready` gives something; past the limit the test fails with `what`.
#[track_caller]
pub fn until<T>(limit: Duration, what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Children of a process, by `/proc`.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Children of a process that run another program than it does.
pub fn programs(pid: u32) -> Vec<u32> {
    let image = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = image(pid);
    children(pid)
        .into_iter()
        .filter(|child| image(*child).is_some_and(|i| Some(&i) != own.as_ref()))
        .collect()
}

/// A value in kB from `/proc/PID/status`, such as `VmRSS`; `None` when the process is gone.
pub fn status_kb(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Which tests run now: any number that called [`beside`], or one that called [`turn`].
static TURN: RwLock<()> = RwLock::new(());

/// Waits until no other test that called this or [`beside`] runs, and keeps them waiting until the guard is dropped.
///
/// For tests that measure shares of wall-clock time, latencies or memory of the machine.
pub fn turn() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no test that called [`turn`] runs, and keeps such tests waiting until the guard is dropped.
///
/// For tests whose results do not depend on when they get a processor. A thread must not call this twice.
pub fn beside() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}
