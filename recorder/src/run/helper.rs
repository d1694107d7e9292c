//! The drain as a process of its own for programs that record themselves (the linked library, a bare preload), and for
//! programs that already run and are told to join.
//!
//! The program starts `flightline drain --ready-fd N --pid PID -o FILE`, reads one line from the descriptor (the session
//! directory, or `!` and a reason) and joins the session like any other. The drain ends when the program and its
//! recorded children have ended, or when the program or somebody at the socket asks for it.

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

/// Time a program has to join after it was told the session.
const JOIN_WAIT: Duration = Duration::from_secs(10);

/// A program to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its id.
    pub pid: u32,
    /// It runs already and waits for the command to join.
    pub waiting: bool,
    /// A thread of it may see an `EINTR` that it would not see otherwise.
    pub interrupt: bool,
}

/// Serves a program until it ends or the end is asked for. Who waits at `ready_fd` is told the session, or why there is
/// none. `say` gets messages for the user.
///
/// # Errors
/// The output or the session could not be made, or the program did not join.
pub fn serve(
    program: &Program,
    ready_fd: Option<RawFd>,
    settings: Settings,
    target: Target,
    say: &mut dyn FnMut(&str),
) -> Result<Report, Error> {
    // SAFETY: the program that started us passes this descriptor for us to own.
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
    let told = ready.as_mut().map_or(Ok(()), |ready| writeln!(ready, "{}", drain.session_dir().display()));
    drop(ready);
    if told.is_ok() {
        follow(program.pid, &mut drain, &signals, say);
    }
    let report = drain.finish(&|| !signals.take().is_empty());
    report.notices.iter().for_each(|n| say(n));
    Ok(report)
}

/// Has a waiting program join.
fn have_join(program: &Program, drain: &mut Drain, signals: &Signals) -> Result<(), Error> {
    let wrong = |problem: String| Error::Unavailable { name: "pid", problem };
    let found = control::find(program.pid)?;
    let name = format!("{} ({})", found.name, found.pid);
    match found.condition {
        Condition::Waiting => {}
        Condition::Recorded(_) => return Err(wrong(format!("{name} is being recorded already"))),
        Condition::Deaf => {
            return Err(wrong(format!("{name} takes no commands; start it with FLIGHTLINE=dormant")));
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
        let asked = signals.take().into_iter().filter(|(signal, _)| !drain.signalled(*signal)).count();
        if drain.is_stop_requested() || asked > 0 {
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

/// Time for a child that has not joined when all others have ended.
const LEFT_WAIT: Duration = Duration::from_secs(2);

/// Whether to wait for children that are still to join, when nobody is recorded any more.
#[derive(Default)]
pub(crate) struct Left {
    since: Option<Instant>,
}

impl Left {
    /// Asked in each round in which nobody is recorded.
    pub(crate) fn wait(&mut self, drain: &Drain) -> bool {
        // After somebody else has joined and ended, the time begins anew.
        let since = *self.since.get_or_insert_with(Instant::now);
        since.elapsed() < LEFT_WAIT && unjoined_children::any(drain.session_dir())
    }

    /// Somebody is recorded.
    pub(crate) fn joined(&mut self) {
        self.since = None;
    }
}
