//! The drain as a process of its own for programs that record themselves: the linked library, a bare preload.
//!
//! The program starts `flightline drain --ready-fd N --pid PID -o FILE`, reads one line from the descriptor (the session
//! directory, or `!` and a reason) and joins the session like any other. The drain ends when the program and its
//! recorded children have ended, or when the program asks for it in the session page.

use std::{
    fs::File,
    io::Write,
    os::fd::{AsFd, FromRawFd, RawFd},
    time::{Duration, Instant},
};

use crate::{Drain, Error, Report, Settings, Target, command::Signals, proc_file, sigbus};

/// Time a program has to join after it was told the session.
const JOIN_WAIT: Duration = Duration::from_secs(10);

/// Serves process `pid` until it ends or asks for the end. `say` gets messages for the user.
pub fn serve(
    pid: u32,
    ready_fd: RawFd,
    settings: Settings,
    target: Target,
    say: &mut dyn FnMut(&str),
) -> Result<Report, Error> {
    // SAFETY: the program that started us passes this descriptor for us to own.
    let mut ready = unsafe { File::from_raw_fd(ready_fd) };
    sigbus::survive();
    let drain = Drain::start(settings, target);
    let mut drain = match drain {
        Ok(drain) => drain,
        Err(error) => {
            let _ = writeln!(ready, "!{error}");
            return Err(error);
        }
    };
    let signals = Signals::catch()?;
    let told = writeln!(ready, "{}", drain.session_dir().display());
    drop(ready);
    if told.is_ok() {
        follow(pid, &mut drain, &signals, say);
    }
    let report = drain.finish(&|| !signals.take().is_empty());
    report.notices.iter().for_each(|n| say(n));
    Ok(report)
}

fn follow(pid: u32, drain: &mut Drain, signals: &Signals, say: &mut dyn FnMut(&str)) {
    let program = proc_file::pidfd(pid);
    let started = Instant::now();
    loop {
        let mut wake = vec![signals.reader()];
        wake.extend(program.iter().map(AsFd::as_fd).filter(|_| drain.running() == 0));
        drain.wait(&wake);
        drain.round();
        drain.take_notices().iter().for_each(|n| say(n));
        if drain.stop_wanted() || !signals.take().is_empty() {
            return;
        }
        let gone = program.as_ref().is_none_or(|fd| proc_file::ended(fd.as_fd()));
        let late = !drain.ever_recorded() && started.elapsed() > JOIN_WAIT;
        if drain.running() == 0 && (gone || late) {
            return;
        }
    }
}
