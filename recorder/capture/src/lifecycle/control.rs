//! Executes commands: joins a session, applies its page, leaves it. [`crate::signals::command`] receives them.
//!
//! The session to join is in the mailbox: a file named after the process, in a directory where every user may
//! create files. The file counts only if it belongs to this user or to root and no other user may write it.

use core::sync::atomic::Ordering::{Acquire, Release};

use flightline_in_signal::command::{APPLY, JOIN, LEAVE, MAILBOX_BYTES, MAILBOX_DIRS, MAILBOX_PREFIX};
use flightline_in_signal::layout::LISTENS;
use flightline_in_signal::os::sys;
use flightline_in_signal::state::cookie::SIGPROF;

use crate::context::{self, preemption};
use crate::lifecycle::join::{self, Modules};
use crate::os::{self, Text};
use crate::session::{self, Dir};
use crate::shadow::bit;
use crate::signals::{self, command};
use crate::{alloc, engines, threads};

/// Starts to execute commands. The handler of SIGPROF must be installed.
pub fn listen() {
    if signals::owned() & bit(SIGPROF) != 0 {
        command::listen(carry_out);
    }
}

extern "C" fn carry_out(command: usize) {
    match command as u32 {
        JOIN => join(),
        APPLY => apply(),
        LEAVE => leave(),
        _ => {}
    }
}

fn join() {
    leave();
    if session::current().is_some() {
        return;
    }
    let Some(dir) = read_mailbox() else { return };
    let Ok(dir) = dir.cstr() else { return };
    let Ok(attached) = join::attach(dir, &Modules::Drain) else { return };
    engines::choose(attached);
    engines::refuse_events(attached);
    signals::install(engines::signals(attached));
    signals::fatal::apply(attached);
    alloc::apply(attached);
    context::apply(attached);
    threads::register_all(attached);
    command::say_listens(attached);
}

fn apply() {
    let Some(attached) = session::current() else { return };
    let control = attached.session().live.control.load(Acquire);
    // The first perf event may have been added with this change.
    engines::refuse_events(attached);
    signals::install(engines::signals(attached));
    alloc::apply(attached);
    preemption::apply(attached);
    threads::apply_engines(attached);
    attached.header().controlled.store(control | LISTENS, Release);
}

/// Leaves a session that has ended: its page says so, or its directory is gone because the drain was killed.
fn leave() {
    if let Some(attached) = session::current()
        && (attached.session().stop.load(Acquire) != 0 || attached.directory_is_gone())
    {
        signals::fatal::uninstall();
        alloc::off();
        context::off();
        threads::disarm_all(attached);
        session::leave(attached);
    }
}

/// Returns the session directory of the first mailbox that can be trusted.
fn read_mailbox() -> Option<Dir> {
    for dir in MAILBOX_DIRS {
        let mut path = Text::<64>::new();
        path.put(dir.as_bytes()).put(b"/").put(MAILBOX_PREFIX.as_bytes()).number(sys::getpid().into());
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let Ok(fd) = path.cstr().and_then(|path| os::open(path, flags, 0)) else { continue };
        let Ok(st) = os::stat(&fd) else { continue };
        let owner = st.st_uid == os::euid() || st.st_uid == 0;
        if !owner || st.st_mode & libc::S_IFMT != libc::S_IFREG || st.st_mode & 0o022 != 0 {
            continue;
        }
        let mut text = [0u8; MAILBOX_BYTES];
        let len = os::read_full(&fd, &mut text);
        let mut found = Dir::new();
        found.put(text.get(..len).unwrap_or_default());
        return Some(found);
    }
    None
}
