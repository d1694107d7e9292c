//! Signals that end a process, or could have: the thread that received it, its stack, and those of the other
//! threads.

use std::borrow::Cow;

use flightline_in_signal::payload::fatal;
use jfr_format::schema::{CAUGHT_SIGNAL, FATAL_SIGNAL, LAST_SAMPLE};

use super::{Event, EventSite};
use crate::recording::Recording;

/// Names of signals by number, which are the same on all supported architectures.
const NAMES: &[(u32, &str)] = &[
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (11, "SIGSEGV"),
    (31, "SIGSYS"),
];

/// Names of the codes that all signals have.
const CODES: &[(i32, &str)] = &[
    (0, "SI_USER"),
    (-1, "SI_QUEUE"),
    (-2, "SI_TIMER"),
    (-3, "SI_MESGQ"),
    (-4, "SI_ASYNCIO"),
    (-5, "SI_SIGIO"),
    (-6, "SI_TKILL"),
    (0x80, "SI_KERNEL"),
];

/// Names of a signal's own codes, from 1.
const OWN_CODES: &[(u32, &[&str])] = &[
    (
        4,
        &[
            "ILL_ILLOPC",
            "ILL_ILLOPN",
            "ILL_ILLADR",
            "ILL_ILLTRP",
            "ILL_PRVOPC",
            "ILL_PRVREG",
            "ILL_COPROC",
            "ILL_BADSTK",
        ],
    ),
    (5, &["TRAP_BRKPT", "TRAP_TRACE", "TRAP_BRANCH", "TRAP_HWBKPT", "TRAP_UNK", "TRAP_PERF"]),
    (7, &["BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR", "BUS_MCEERR_AR", "BUS_MCEERR_AO"]),
    (
        8,
        &[
            "FPE_INTDIV",
            "FPE_INTOVF",
            "FPE_FLTDIV",
            "FPE_FLTOVF",
            "FPE_FLTUND",
            "FPE_FLTRES",
            "FPE_FLTINV",
            "FPE_FLTSUB",
        ],
    ),
    (11, &["SEGV_MAPERR", "SEGV_ACCERR", "SEGV_BNDERR", "SEGV_PKUERR"]),
    (31, &["SYS_SECCOMP", "SYS_USER_DISPATCH"]),
];

fn name(signo: u32) -> Cow<'static, str> {
    match NAMES.iter().find(|(number, _)| *number == signo) {
        Some((_, name)) => Cow::Borrowed(name),
        None => Cow::Owned(format!("signal {signo}")),
    }
}

fn reason(signo: u32, code: i32) -> &'static str {
    if let Some((_, name)) = CODES.iter().find(|(number, _)| *number == code) {
        return name;
    }
    let own = OWN_CODES.iter().find(|(number, _)| *number == signo).map_or(&[][..], |(_, names)| names);
    let at = usize::try_from(code).ok().and_then(|code| code.checked_sub(1));
    at.and_then(|at| own.get(at)).copied().unwrap_or_default()
}

/// Writes the event.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let word = event.word(fatal::SIGNAL);
    let (signo, code) = (word as u32, (word >> 32) as i32);
    let (address, sender) = (event.word(fatal::ADDRESS) as i64, event.word(fatal::SENDER) as i64);
    let (name, reason) = (name(signo), reason(signo, code));
    let id = match event.head.index {
        fatal::FATAL => FATAL_SIGNAL,
        fatal::CAUGHT => CAUGHT_SIGNAL,
        fatal::LAST => LAST_SAMPLE,
        _ => return,
    };
    if id == FATAL_SIGNAL {
        recording.counters.add_fatal(format!("{name} in thread {}", place.tid));
    }
    let now = recording.ticks(place.time_ns);
    let bytes = name.len() + reason.len();
    recording.event_with_stack(id, place.thread, place.trace, bytes, |e, thread, stack| {
        e.ticks(now).key(thread).key(stack).string(&name);
        if id == LAST_SAMPLE {
            e.long(sender);
            return;
        }
        e.int(code).string(reason).long(address).long(sender);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_and_reason_names_match_manual() {
        assert_eq!(name(11), "SIGSEGV");
        assert_eq!(name(64), "signal 64");
        for (signo, code, text) in [
            (11, 1, "SEGV_MAPERR"),
            (11, 2, "SEGV_ACCERR"),
            (11, 0x80, "SI_KERNEL"),
            (8, 1, "FPE_INTDIV"),
            (4, 2, "ILL_ILLOPN"),
            (7, 2, "BUS_ADRERR"),
            (31, 1, "SYS_SECCOMP"),
            (6, -6, "SI_TKILL"),
            (6, 0, "SI_USER"),
            (6, 1, ""),
            (11, i32::MAX, ""),
            (11, i32::MIN, ""),
            (99, 1, ""),
        ] {
            assert_eq!(reason(signo, code), text, "{signo} {code}");
        }
    }
}
