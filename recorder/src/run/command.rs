//! Runs a program and records it, for `flightline record`.

use std::{
    env,
    ffi::OsString,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicI32, Ordering},
};

use flightline_in_signal::layout::SESSION_ENV;
use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction},
    },
    unistd::Pid,
};

pub use crate::run::running::record_running;
use crate::{
    Drain, Error, Report, Settings, Target,
    os::{memory, sigbus},
    program,
    run::helper::Left,
    run::{engines, unjoined_children},
    shared_memory::proc_file::pidfd,
};

/// A program to run and record.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Name or path.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The shared object to preload.
    pub preload: PathBuf,
    /// Redirects its standard output to our standard error, because ours contains the recording.
    pub stdout_to_stderr: bool,
    /// Records until all remaining descendants of the program have ended too.
    pub wait_for_children: bool,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the program as in shells: its exit code, or 128 + signal.
    pub code: u8,
    /// The totals of the recording.
    pub report: Report,
    /// No process was recorded: the program never joined, or the recording ended before it started.
    pub unseen: bool,
}

/// Runs and records a program. `say` receives messages for the user.
pub fn record(
    recorded: &Recorded,
    mut settings: Settings,
    target: Target,
    say: &mut dyn FnMut(&str),
) -> Result<Ended, Error> {
    let path = program::find(&recorded.program).map_err(Error::Program)?;
    if settings.samples_cpu_time() {
        engines::check(settings.cpu.engine, settings.cpu.period)?;
    }
    let outside = match program::check(&path) {
        Ok(()) => None,
        Err(refusal) if settings.recordable_from_outside() && refusal.reason.leaves_outside() => {
            Some(refusal)
        }
        Err(refusal) => return Err(Error::Program(refusal)),
    };
    let mut left_out = Vec::new();
    if let Some(refusal) = &outside {
        settings.check_outside(false, &mut |notice| left_out.push(notice.to_owned())).map_err(|error| {
            match error {
                Error::Setting { name, problem } => {
                    Error::Setting { name, problem: format!("{}; {problem}", refusal.describe()) }
                }
                other => other,
            }
        })?;
    }
    sigbus::survive();
    memory::keep_little();
    settings.processes.program = Some(path.clone());
    // Before the output is created, because a signal in between would truncate it.
    let signals = Signals::catch(&settings.trigger_signals())?;
    let mut drain = Drain::start(settings, target)?;
    if let Some(refusal) = &outside {
        if let Err(error) = drain.attach_child() {
            say(&error.to_string());
            return Err(Error::Program(refusal.clone()));
        }
        say(&format!("{}, so it is recorded from outside", refusal.describe()));
        left_out.iter().for_each(|notice| say(notice));
    }
    let refuses =
        |r: &program::Refusal| matches!(r.reason, program::Reason::OtherLibc(_) | program::Reason::Sanitizer);
    let preloads = !outside.as_ref().is_some_and(refuses);
    let startup = if outside.is_none() { drain.expect_program() } else { None };
    drain.off_cpu_child(outside.is_none())?;
    let mut child = spawn(recorded, &path, &drain, preloads)?;
    drain.off_cpu_started(child.id());
    drain.program_started(startup, child.id());
    raise_file_limit();
    if outside.is_some_and(|r| matches!(r.reason, program::Reason::ChangesUser(_)))
        && let Err(error) = drain.attach_again(child.id())
    {
        // The kernel removes the events of a program that changes its user.
        say(&format!("{error}; the program continues without being recorded"));
    }
    let outcome = supervise(&mut child, &mut drain, &signals, recorded.wait_for_children, say);
    // From now on, a signal shortens the wait for symbols and readers; if the program still runs, the signal
    // is for the program.
    let stopped = matches!(outcome, Outcome::Stopped);
    let report = drain.finish(&|| !stopped && !signals.take().is_empty());
    for notice in &report.notices {
        say(notice);
    }
    let outcome = match outcome {
        Outcome::Stopped => {
            say(&format!("recording stopped: {report}; the program continues"));
            outlive(&mut child, &signals)
        }
        other => other,
    };
    drop(signals);
    let code = match outcome {
        Outcome::Ended(status) => exit_code(status),
        Outcome::Interrupted(signal) => 128 + signal,
        Outcome::Stopped => 0,
    };
    // If a reader disconnects immediately, the recording ends before the program has joined.
    let unseen = report.processes == 0 && !stopped && report.output.failures.is_empty();
    Ok(Ended { code, unseen, report })
}

enum Outcome {
    Ended(ExitStatus),
    Interrupted(u8),
    /// The recording was ended from outside or by its schedule. The program continues.
    Stopped,
}

/// Waits for a program that is no longer recorded, and passes signals on to it.
fn outlive(child: &mut Child, signals: &Signals) -> Outcome {
    let pidfd = pidfd(child.id());
    loop {
        let mut fds: Vec<PollFd<'_>> =
            pidfd.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
        fds.push(PollFd::new(signals.reader(), PollFlags::POLLIN));
        let _ = poll(&mut fds, PollTimeout::from(1000u16));
        if let Ok(Some(status)) = child.try_wait() {
            return Outcome::Ended(status);
        }
        for (signal, from_terminal) in signals.take() {
            if !from_terminal {
                pass_on(child, signal);
            }
        }
    }
}

fn pass_on(child: &Child, signal: u8) {
    let pid = Pid::from_raw(child.id() as i32);
    let _ = kill(pid, Signal::try_from(i32::from(signal)).unwrap_or(Signal::SIGTERM));
}

fn supervise(
    child: &mut Child,
    drain: &mut Drain,
    signals: &Signals,
    wait_for_children: bool,
    say: &mut dyn FnMut(&str),
) -> Outcome {
    let pidfd = pidfd(child.id());
    let mut ended = None;
    let mut signal_count = 0;
    let mut left = Left::default();
    loop {
        let mut wake = vec![signals.reader()];
        wake.extend(pidfd.iter().filter(|_| ended.is_none()).map(AsFd::as_fd));
        drain.wait(&wake);
        // Before the round that retires its recording.
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
        {
            ended = Some(status);
            drain.program_ended(child.id(), status);
        }
        drain.round();
        for notice in drain.take_notices() {
            say(&notice);
        }
        for (signal, from_terminal) in signals.take() {
            if drain.signalled(signal) {
                continue;
            }
            signal_count += 1;
            // The terminal has sent it to the program already. A second signal ends the recording.
            if ended.is_none() && !from_terminal {
                pass_on(child, signal);
            }
            if signal_count > 1 || ended.is_some() {
                return ended.map_or(Outcome::Interrupted(signal), Outcome::Ended);
            }
        }
        if ended.is_none() && drain.is_stop_requested() {
            return Outcome::Stopped;
        }
        if drain.running() > 0 {
            left.joined();
        }
        if let Some(status) = ended
            && (!wait_for_children || drain.running() == 0 && !left.wait(drain))
        {
            if !wait_for_children && (drain.any_alive() || unjoined_children::any(drain.session_dir())) {
                say(
                    "child processes of the program are still running and are no longer recorded; use --wait to record until they end",
                );
            }
            return Outcome::Ended(status);
        }
    }
}

fn spawn(recorded: &Recorded, path: &Path, drain: &Drain, preloads: bool) -> Result<Child, Error> {
    use std::os::unix::process::CommandExt;
    let mut preload = recorded.preload.clone().into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|o| !o.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(path);
    command.arg0(&recorded.program).args(&recorded.arguments);
    // A program with the preloaded recorder records itself, even if a static program started it.
    if preloads {
        command.env("LD_PRELOAD", preload).env(SESSION_ENV, drain.session_dir());
    }
    if recorded.stdout_to_stderr {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned();
        let stderr = stderr.map_err(|e| Error::Io { doing: "use standard error".into(), source: e })?;
        command.stdout(Stdio::from(stderr));
    }
    command.spawn().map_err(|e| {
        let reason = match e.raw_os_error() {
            Some(libc::ENOEXEC) => program::Reason::NotExecutable("exec format error"),
            Some(libc::EACCES) => program::Reason::NotExecutable("permission denied"),
            Some(libc::ENOENT) => program::Reason::NotExecutable("its interpreter was not found"),
            _ => return Error::io("run", path, e),
        };
        Error::Program(program::Refusal { path: path.to_owned(), reason })
    })
}

/// Returns the exit status as in shells.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Raises the limit of open files, because many processes and modules need many. The program keeps its own
/// limit.
pub(crate) fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(1 << 16).max(soft), hard);
    }
}

/// The descriptor to which the handler writes.
static WRITER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let errno = Errno::last_raw();
    // SAFETY: the kernel passes a valid siginfo (SA_SIGINFO).
    let from_kernel = !info.is_null() && unsafe { (*info).si_code } == libc::SI_KERNEL;
    let bytes = [signal as u8, u8::from(from_kernel)];
    // SAFETY: write is async-signal-safe; two bytes of a local; the pipe does not block.
    unsafe { libc::write(WRITER.load(Ordering::Relaxed), bytes.as_ptr().cast(), 2) };
    Errno::set_raw(errno);
}

/// Signals SIGINT, SIGTERM, SIGHUP and SIGQUIT as bytes of a pipe, unless they were ignored. Restored on
/// drop.
pub(crate) struct Signals {
    reader: OwnedFd,
    /// Kept open for the handler.
    _writer: OwnedFd,
    old: Vec<(Signal, SigAction)>,
}

impl Signals {
    /// Catches the signals. `more`: signals of the schedule, caught even if they were ignored.
    pub(crate) fn catch(more: &[Signal]) -> Result<Signals, Error> {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .map_err(|e| Error::Io { doing: "make a pipe".into(), source: e.into() })?;
        WRITER.store(writer.as_raw_fd(), Ordering::Relaxed);
        let action = SigAction::new(
            SigHandler::SigAction(on_signal),
            SaFlags::SA_SIGINFO | SaFlags::SA_RESTART,
            SigSet::empty(),
        );
        let mut old = Vec::new();
        let usual = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        let more = more.iter().filter(|signal| !usual.contains(signal));
        for &signal in usual.iter().chain(more) {
            // SAFETY: the handler only calls write and preserves errno.
            let Ok(before) = (unsafe { sigaction(signal, &action) }) else { continue };
            if matches!(before.handler(), SigHandler::SigIgn) && usual.contains(&signal) {
                // SAFETY: restores the previous action.
                let _ = unsafe { sigaction(signal, &before) };
            } else {
                old.push((signal, before));
            }
        }
        Ok(Signals { reader, _writer: writer, old })
    }

    /// Unblocks these signals, because our parent may have blocked them for itself, and children inherit
    /// that. Not used when we run a program, which must get the same mask as without us.
    pub(crate) fn let_through() {
        let usual = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        // It cannot fail with a valid set.
        let _ = usual.into_iter().collect::<SigSet>().thread_unblock();
    }

    /// Returns the descriptor to wait for.
    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Returns the received signals, and whether the kernel (a terminal) sent them.
    pub(crate) fn take(&self) -> Vec<(u8, bool)> {
        let mut bytes = [0u8; 64];
        let n = nix::unistd::read(&self.reader, &mut bytes).unwrap_or(0);
        bytes[..n].chunks_exact(2).map(|b| (b[0], b[1] != 0)).collect()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, before) in &self.old {
            // SAFETY: restores the previous action.
            let _ = unsafe { sigaction(*signal, before) };
        }
        WRITER.store(-1, Ordering::Relaxed);
    }
}
