//! Runs commands with a time-out.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::private_shm;

/// The results of a finished command.
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

/// Starts a command in a process group of its own, with the signal dispositions of a terminal. Scripts start
/// background commands with some of them ignored.
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
    let child = command.process_group(0).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    GROUPS.with_borrow_mut(|groups| groups.push(child.id()));
    child
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

/// Polls until `ready` returns a value; after the limit the test fails with the message `what`.
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

/// The tests that run now, and those that wait.
struct Gate {
    beside: usize,
    waiting_beside: usize,
    alone: bool,
    waiting_alone: usize,
    /// The tests that wait to run alone run now, one after the other.
    batch: bool,
}

static GATE: Mutex<Gate> =
    Mutex::new(Gate { beside: 0, waiting_beside: 0, alone: false, waiting_alone: 0, batch: false });
static GATE_OPENED: Condvar = Condvar::new();

/// Locks the gate. A test that failed while it held the lock leaves a consistent state.
fn gate() -> MutexGuard<'static, Gate> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The process groups that this test has started.
    static GROUPS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// A test's permission to run, until it is dropped. If a test fails, the processes that it started are
/// killed, because they would disturb later tests.
#[must_use]
pub struct Turn {
    alone: bool,
    waited: Duration,
    since: Instant,
}

/// Appends how long a test waited and ran to the file named by `FLIGHTLINE_TEST_TIMES`, to find tests that are
/// worth shortening. The test's name is that of its thread.
fn log_time(turn: &Turn) {
    let Some(path) = std::env::var_os("FLIGHTLINE_TEST_TIMES") else { return };
    let kind = if turn.alone { "alone" } else { "beside" };
    let (waited, ran) = (turn.waited.as_secs_f64(), turn.since.elapsed().as_secs_f64());
    let line = format!("{kind}\t{waited:.2}\t{ran:.2}\t{}\n", thread::current().name().unwrap_or_default());
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.and_then(|mut file| file.write_all(line.as_bytes())).expect("FLIGHTLINE_TEST_TIMES is writable");
}

impl Turn {
    /// Ends the [`turn`] of a test that has finished its measurement, and waits until it may run at the same
    /// time as other tests ([`beside`]) to check the results.
    pub fn measured(self) -> Turn {
        drop(self);
        beside()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if thread::panicking() {
            GROUPS.with_borrow(|groups| groups.iter().for_each(|group| signal_group(*group, libc::SIGKILL)));
        } else {
            log_time(self);
        }
        let mut gate = gate();
        match self.alone {
            true => {
                gate.alone = false;
                gate.batch &= gate.waiting_alone > 0;
            }
            false => gate.beside -= 1,
        }
        GATE_OPENED.notify_all();
    }
}

/// The number of tests that must be waiting to run alone before the others have to wait. Each change from one
/// kind to the other leaves processors idle until the last test of the first kind has ended.
const BATCH: usize = 16;
/// Threads of the test executable: enough for a batch and for the tests that run at the same time.
pub const THREADS: usize = BATCH + 8;

/// Waits until no other test runs, and blocks other tests until the result is dropped.
///
/// For tests that measure shares of wall-clock time, latencies or memory of the machine.
pub fn turn() -> Turn {
    let start = Instant::now();
    let mut gate = gate();
    gate.waiting_alone += 1;
    gate.batch |= gate.waiting_alone >= BATCH;
    let closed = |gate: &mut Gate| gate.alone || gate.beside > 0 || (!gate.batch && gate.waiting_beside > 0);
    gate = GATE_OPENED.wait_while(gate, closed).unwrap_or_else(PoisonError::into_inner);
    gate.waiting_alone -= 1;
    gate.alone = true;
    drop(gate);
    let turn = Turn { alone: true, waited: start.elapsed(), since: Instant::now() };
    private_shm::remove_abandoned_sessions();
    turn
}

/// Waits for a free slot. There is one slot more than processors, because most tests wait most of the time,
/// and none while a test has its [`turn`]. With two more, tests that compare lengths of waits failed.
///
/// For tests whose results do not depend on scheduling. A thread must not call this twice.
pub fn beside() -> Turn {
    let most = thread::available_parallelism().map_or(1, NonZero::get) + 1;
    let closed = |gate: &mut Gate| gate.alone || gate.batch || gate.beside >= most;
    let start = Instant::now();
    let mut gate = gate();
    gate.waiting_beside += 1;
    let mut gate = GATE_OPENED.wait_while(gate, closed).unwrap_or_else(PoisonError::into_inner);
    gate.waiting_beside -= 1;
    gate.beside += 1;
    Turn { alone: false, waited: start.elapsed(), since: Instant::now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_measurement_lets_other_tests_run() {
        let turn = turn();
        let (send, runs) = std::sync::mpsc::channel();
        let other = thread::spawn(move || {
            let _place = beside();
            send.send(()).unwrap();
        });
        assert!(runs.recv_timeout(Duration::from_millis(100)).is_err(), "nothing runs during a turn");
        let _place = turn.measured();
        runs.recv_timeout(Duration::from_secs(60)).expect("the other test runs");
        other.join().unwrap();
    }
}
