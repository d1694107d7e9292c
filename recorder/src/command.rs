//! Runs a program and records it: what `flightline record` does.

use std::{
    env,
    ffi::OsString,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicI32, Ordering},
};

use flightline_in_signal::layout::SESSION_ENV;
use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction},
    },
    unistd::Pid,
};

use crate::{Drain, Error, Report, Settings, Target, proc_file::pidfd, program, sigbus};

/// A program to be run and recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Name or path.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The shared object it shall load.
    pub preload: PathBuf,
    /// Its standard output goes to our standard error, as ours carries the recording.
    pub stdout_to_stderr: bool,
    /// Record until all processes that the program left behind have ended too.
    pub wait_for_children: bool,
}

/// How it went.
#[derive(Debug)]
pub struct Ended {
    /// Status of the program as shells have it: its exit code, or 128 + signal.
    pub code: u8,
    /// What was recorded.
    pub report: Report,
    /// The program never joined the recording.
    pub unseen: bool,
}

/// Runs and records. `say` gets messages for the user as they come up.
pub fn record(
    recorded: &Recorded,
    settings: Settings,
    target: Target,
    say: &mut dyn FnMut(&str),
) -> Result<Ended, Error> {
    let path = program::find(&recorded.program).map_err(Error::Program)?;
    program::check(&path).map_err(Error::Program)?;
    sigbus::survive();
    let mut drain = Drain::start(settings, target)?;
    let signals = Signals::catch()?;
    let mut child = spawn(recorded, &path, &drain)?;
    raise_file_limit();
    let outcome = supervise(&mut child, &mut drain, &signals, recorded.wait_for_children, say);
    // A signal from now on cuts the waiting for symbols and readers short.
    let report = drain.finish(&|| !signals.take().is_empty());
    drop(signals);
    for notice in &report.notices {
        say(notice);
    }
    let code = match outcome {
        Outcome::Ended(status) => code_of(status),
        Outcome::Interrupted(signal) => 128 + signal,
    };
    Ok(Ended { code, unseen: report.processes == 0, report })
}

enum Outcome {
    Ended(ExitStatus),
    Interrupted(u8),
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
    let mut asked = 0;
    loop {
        let mut wake = vec![signals.reader()];
        wake.extend(pidfd.iter().filter(|_| ended.is_none()).map(AsFd::as_fd));
        drain.wait(&wake);
        drain.round();
        for notice in drain.take_notices() {
            say(&notice);
        }
        for (signal, from_terminal) in signals.take() {
            asked += 1;
            // The terminal has told the program already. Later ones mean: enough.
            if ended.is_none() && !from_terminal {
                let pid = Pid::from_raw(child.id() as i32);
                let _ = kill(pid, Signal::try_from(i32::from(signal)).unwrap_or(Signal::SIGTERM));
            }
            if asked > 1 || ended.is_some() {
                return ended.map_or(Outcome::Interrupted(signal), Outcome::Ended);
            }
        }
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
        {
            ended = Some(status);
        }
        if let Some(status) = ended
            && (!wait_for_children || drain.running() == 0)
        {
            return Outcome::Ended(status);
        }
    }
}

fn spawn(recorded: &Recorded, path: &std::path::Path, drain: &Drain) -> Result<Child, Error> {
    use std::os::unix::process::CommandExt;
    let mut preload = recorded.preload.clone().into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|o| !o.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(path);
    command.arg0(&recorded.program).args(&recorded.arguments);
    command.env("LD_PRELOAD", preload).env(SESSION_ENV, drain.session_dir());
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

/// Exit status as shells have it.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Many processes and their modules mean many open files; the program keeps the limit it had.
fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(1 << 16).max(soft), hard);
    }
}

/// Where the handler writes.
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

/// SIGINT, SIGTERM, SIGHUP and SIGQUIT as bytes of a pipe, unless they were ignored; undone on drop.
pub(crate) struct Signals {
    reader: OwnedFd,
    /// Kept open for the handler.
    _writer: OwnedFd,
    old: Vec<(Signal, SigAction)>,
}

impl Signals {
    pub(crate) fn catch() -> Result<Signals, Error> {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .map_err(|e| Error::Io { doing: "make a pipe".into(), source: e.into() })?;
        WRITER.store(writer.as_raw_fd(), Ordering::Relaxed);
        let action = SigAction::new(
            SigHandler::SigAction(on_signal),
            SaFlags::SA_SIGINFO | SaFlags::SA_RESTART,
            SigSet::empty(),
        );
        let mut old = Vec::new();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
            // SAFETY: the handler only calls write and keeps errno.
            let Ok(before) = (unsafe { sigaction(signal, &action) }) else { continue };
            if matches!(before.handler(), SigHandler::SigIgn) {
                // SAFETY: puts back what was there.
                let _ = unsafe { sigaction(signal, &before) };
            } else {
                old.push((signal, before));
            }
        }
        Ok(Signals { reader, _writer: writer, old })
    }

    /// For waiting.
    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Signals that came, and whether the kernel (a terminal) sent them.
    pub(crate) fn take(&self) -> Vec<(u8, bool)> {
        let mut bytes = [0u8; 64];
        let n = nix::unistd::read(&self.reader, &mut bytes).unwrap_or(0);
        bytes[..n].chunks_exact(2).map(|b| (b[0], b[1] != 0)).collect()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, before) in &self.old {
            // SAFETY: puts back what was there.
            let _ = unsafe { sigaction(*signal, before) };
        }
        WRITER.store(-1, Ordering::Relaxed);
    }
}
