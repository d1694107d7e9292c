//! The drain as a separate process, for programs that record themselves (the linked library, a bare preload),
//! and for running programs that receive the command to join.
//!
//! The program starts `flightline drain --ready-fd N --pid PID -o FILE`, reads one line from the descriptor
//! (the session directory, or `!` and a reason) and joins the session like any other program. The drain ends
//! when the program and its recorded children have ended, or when the program or a client of the socket
//! requests it.

use std::{
    fs::File,
    io::Write,
    os::fd::{AsFd, FromRawFd, RawFd},
    time::{Duration, Instant},
};

use crate::{
    Drain, Error, Report, Settings, Target,
    control::{self, Condition},
    os::{memory, sigbus},
    run::command::Signals,
    run::unjoined_children,
    shared_memory::proc_file,
};

/// How long a program may take to join after it received the session directory.
const JOIN_WAIT: Duration = Duration::from_secs(10);

/// A program to record.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its PID.
    pub pid: u32,
    /// It already runs and waits for the command to join.
    pub waiting: bool,
    /// A thread of it may see an `EINTR` that it would not see otherwise.
    pub interrupt: bool,
}

/// Records a program until it ends or the end is requested. Writes the session directory, or the reason for a
/// failure, to `ready_fd`. `say` receives messages for the user.
///
/// # Errors
/// The output or the session could not be created, or the program did not join.
pub fn serve(
    program: &Program,
    ready_fd: Option<RawFd>,
    settings: Settings,
    target: Target,
    say: &mut dyn FnMut(&str),
) -> Result<Report, Error> {
    // SAFETY: the program that started us passes the ownership of this descriptor to us.
    let mut ready = ready_fd.map(|fd| unsafe { File::from_raw_fd(fd) });
    sigbus::survive();
    memory::keep_little();
    let begun = Signals::catch(&settings.trigger_signals()).and_then(|signals| {
        Signals::let_through();
        let mut drain = Drain::start(settings, target)?;
        if program.waiting {
            have_join(program, &mut drain, &signals)?;
        }
        Ok((drain, signals))
    });
    let (mut drain, signals) = begun.inspect_err(|error| {
        if let Some(ready) = &mut ready {
            let _ = writeln!(ready, "!{error}");
        }
    })?;
    let sent = ready.as_mut().map_or(Ok(()), |ready| writeln!(ready, "{}", drain.session_dir().display()));
    drop(ready);
    if sent.is_ok() {
        follow(program.pid, &mut drain, &signals, say);
    }
    let report = drain.finish(&|| !signals.take().is_empty());
    report.notices.iter().for_each(|n| say(n));
    Ok(report)
}

/// Makes a waiting program join.
fn have_join(program: &Program, drain: &mut Drain, signals: &Signals) -> Result<(), Error> {
    let wrong = |problem: String| Error::Unavailable { name: "pid", problem };
    let found = control::find(program.pid)?;
    let name = format!("{} ({})", found.name, found.pid);
    match found.condition {
        Condition::Waiting => {}
        Condition::Recorded(_) => return Err(wrong(format!("{name} is already being recorded"))),
        Condition::Deaf => {
            return Err(wrong(format!("{name} does not accept commands; start it with FLIGHTLINE=dormant")));
        }
        Condition::NotLoaded => return Err(wrong(format!("{name} was started without libflightline.so"))),
    }
    let mut joining = control::join(program.pid, drain.session_dir(), program.interrupt)?;
    while drain.running() == 0 {
        joining.urge()?;
        drain.wait_at_most(Duration::from_millis(2), &[signals.reader()]);
        drain.round();
        if !signals.take().is_empty() {
            return Err(wrong("interrupted".into()));
        }
        if !std::path::Path::new(&format!("/proc/{}", program.pid)).exists() {
            return Err(wrong(format!("{name} has ended")));
        }
    }
    Ok(())
}

fn follow(pid: u32, drain: &mut Drain, signals: &Signals, say: &mut dyn FnMut(&str)) {
    let program = proc_file::pidfd(pid);
    let started = Instant::now();
    let mut left = Left::default();
    loop {
        let mut wake = vec![signals.reader()];
        wake.extend(program.iter().map(AsFd::as_fd).filter(|_| drain.running() == 0));
        drain.wait(&wake);
        drain.round();
        drain.take_notices().iter().for_each(|n| say(n));
        let signal_count = signals.take().into_iter().filter(|(signal, _)| !drain.signalled(*signal)).count();
        if drain.is_stop_requested() || signal_count > 0 {
            return;
        }
        if drain.running() > 0 {
            left.joined();
        }
        let gone = program.as_ref().is_none_or(|fd| proc_file::ended(fd.as_fd()));
        let late = !drain.ever_recorded() && started.elapsed() > JOIN_WAIT;
        if drain.running() == 0 && (gone || late) && !left.wait(drain) {
            return;
        }
    }
}

/// How long to wait for a child that has not joined after all others have ended.
const LEFT_WAIT: Duration = Duration::from_secs(2);

/// Decides whether to wait for children that have not joined yet, when no process is recorded any more.
#[derive(Default)]
pub(crate) struct Left {
    since: Option<Instant>,
}

impl Left {
    /// Returns true if such a child may still join. Called in each round without recorded processes.
    pub(crate) fn wait(&mut self, drain: &Drain) -> bool {
        // The time restarts after another process has joined and ended.
        let since = *self.since.get_or_insert_with(Instant::now);
        since.elapsed() < LEFT_WAIT && unjoined_children::any(drain.session_dir())
    }

    /// Notes that a process is recorded.
    pub(crate) fn joined(&mut self) {
        self.since = None;
    }
}
