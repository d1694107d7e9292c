//! Why a program cannot be run or recorded.

use std::{env, fmt, path::PathBuf};

use nix::unistd::geteuid;

/// Why a program cannot be run or recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file concerned.
    pub path: PathBuf,
    /// Why it is refused.
    pub reason: Reason,
}

/// See [`Refusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// No such file, or not on `PATH`.
    NotFound,
    /// A directory, or without execute permission.
    NotExecutable(&'static str),
    /// No dynamic loader that could preload anything.
    Static,
    /// Set-user-id, set-group-id or file capabilities: the loader ignores our object.
    ChangesUser(&'static str),
    /// Another architecture; its name.
    Foreign(String),
    /// Another C library than this build's; its loader.
    OtherLibc(String),
    /// Go: its runtime replaces all signal handlers by raw system calls.
    Go,
    /// Linked with a sanitizer's shared library, which must be loaded before all others.
    Sanitizer,
}

impl Reason {
    /// Returns true if the program can be recorded from outside, though not from inside.
    pub fn leaves_outside(&self) -> bool {
        match self {
            Reason::Static | Reason::OtherLibc(_) | Reason::Go | Reason::Sanitizer => true,
            // The kernel takes the events of an ordinary user away when the user changes.
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

    /// Exit status as shells have it.
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
                "{path}: is statically linked, so nothing can be preloaded into it; link it dynamically, or {perf}"
            ),
            Reason::ChangesUser(how) => {
                write!(f, "{path}: {how}, so its loader ignores us; record a copy without that, or {perf}")
            }
            Reason::Foreign(name) => write!(
                f,
                "{path}: is a program for {name}; this flightline records {} programs",
                env::consts::ARCH
            ),
            Reason::OtherLibc(loader) => write!(
                f,
                "{path}: uses another C library ({loader}); record it with a flightline built for that, or {perf}"
            ),
            Reason::Go => write!(
                f,
                "{path}: is a Go program, which allows no other profiler inside; use Go's runtime/pprof, or {perf}"
            ),
            Reason::Sanitizer => write!(
                f,
                "{path}: needs its sanitizer's library to be loaded first, so nothing can be preloaded into it; build it without the sanitizer, or {perf}"
            ),
        }
    }
}
