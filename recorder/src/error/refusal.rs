//! Reasons why a program cannot be run or recorded.

use std::{env, fmt, path::PathBuf};

use nix::unistd::geteuid;

/// A program that cannot be run or recorded, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file concerned.
    pub path: PathBuf,
    /// The reason.
    pub reason: Reason,
}

/// The reason of a [`Refusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// No such file, or not on `PATH`.
    NotFound,
    /// A directory, or without execute permission.
    NotExecutable(&'static str),
    /// A static program: it has no dynamic loader that could preload the recorder.
    Static,
    /// Set-user-id, set-group-id or file capabilities: the loader ignores the recorder.
    ChangesUser(&'static str),
    /// A program for this other architecture.
    Foreign(String),
    /// A program for another C library; the path of its loader.
    OtherLibc(String),
    /// A Go program: its runtime replaces all signal handlers by raw system calls.
    Go,
    /// Linked with a sanitizer's shared library, which must be loaded first.
    Sanitizer,
}

impl Reason {
    /// Returns true if the program can be recorded from outside, though not from inside.
    pub fn leaves_outside(&self) -> bool {
        match self {
            Reason::Static | Reason::OtherLibc(_) | Reason::Go | Reason::Sanitizer => true,
            // When the user changes, the kernel removes the events of an ordinary user.
            Reason::ChangesUser(_) => geteuid().is_root(),
            _ => false,
        }
    }
}

impl Refusal {
    /// Describes the reason without the remedy.
    pub fn describe(&self) -> String {
        let path = self.path.display();
        match &self.reason {
            Reason::Static => format!("{path}: is statically linked"),
            Reason::ChangesUser(how) => format!("{path}: {how}"),
            Reason::OtherLibc(loader) => format!("{path}: uses another C library ({loader})"),
            Reason::Go => format!("{path}: is a Go program"),
            Reason::Sanitizer => format!("{path}: needs its sanitizer's library to be loaded first"),
            _ => self.to_string(),
        }
    }

    /// Returns the exit status that a shell would use.
    pub fn exit_code(&self) -> u8 {
        if self.reason == Reason::NotFound { 127 } else { 126 }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let perf = "use `perf record --call-graph dwarf` instead";
        match &self.reason {
            Reason::NotFound => write!(f, "{path}: program not found"),
            Reason::NotExecutable(why) => write!(f, "{path}: cannot be executed: {why}"),
            Reason::Static => write!(
                f,
                "{path} is statically linked, so libflightline.so cannot be loaded into it; link it dynamically, or {perf}"
            ),
            Reason::ChangesUser(how) => {
                write!(
                    f,
                    "{path} {how}, so the loader ignores libflightline.so; record a copy without that, or {perf}"
                )
            }
            Reason::Foreign(name) => write!(
                f,
                "{path} is a program for {name}; this flightline records {} programs",
                env::consts::ARCH
            ),
            Reason::OtherLibc(loader) => write!(
                f,
                "{path} uses another C library ({loader}); record it with a flightline built for that library, or {perf}"
            ),
            Reason::Go => write!(
                f,
                "{path} is a Go program, which does not support preloaded profilers; use Go's runtime/pprof, or {perf}"
            ),
            Reason::Sanitizer => write!(
                f,
                "{path} must load its sanitizer's library first, so libflightline.so cannot be \
                 preloaded; build it without the sanitizer, or {perf}"
            ),
        }
    }
}
