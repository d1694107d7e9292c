//! Titles of processes. Servers overwrite their arguments to show the current work, such as
//! `postgres: bench [local] UPDATE` or `nginx: worker process`.
//!
//! The title is read from `/proc/PID/cmdline` when a sample is written, at most four times per second.
//! Samples refer to it through a second constant of their thread, whose group has the title as parent. The
//! thread's totals use the first constant, without the title.

use std::{fs::File, io::Read, path::PathBuf};

use crate::recording::Recording;

/// Shortest time between two readings of a process's title, ns.
const INTERVAL_NS: u64 = 250_000_000;
/// Limit of titles of a process that get a group in the output. Later titles get none.
const MOST: usize = 256;
/// Limit of a recorded title, bytes.
const MAX_BYTES: usize = 512;
/// Number of readings of a title that keeps changing.
const MOST_READINGS: usize = 4;
/// Limit of arguments that are read, bytes. A title is padded with NULs to the length of the original
/// arguments.
const READ_BYTES: u64 = 4 << 10;

/// The titles of a process.
#[derive(Default)]
pub struct Titles {
    /// The program's arguments at its start, if known, and its executable.
    arguments: Vec<String>,
    exe: PathBuf,
    /// Time of the next reading, CLOCK_MONOTONIC ns.
    due_ns: u64,
    /// Group of the current title.
    present: Option<u32>,
    groups: Vec<(String, u32)>,
}

impl Titles {
    /// Returns the titles of a program. `arguments` are those at its start, empty if unknown.
    pub fn new(arguments: Vec<String>, exe: PathBuf) -> Titles {
        Titles { arguments, exe, ..Titles::default() }
    }

    /// Returns true if the title may have changed since it was read.
    #[inline]
    pub fn is_due(&self, time_ns: u64) -> bool {
        time_ns >= self.due_ns
    }

    /// Reads the title of process `pid`; threads without a title are in `group`. A process that has ended
    /// (`None`) retains its last title.
    #[cold]
    pub fn read(&mut self, pid: Option<u32>, group: u32, recording: &mut Recording, now_ns: u64) {
        // A title often contains arguments of the program.
        if recording.redacts_arguments() {
            self.due_ns = u64::MAX;
            return;
        }
        self.due_ns = now_ns.saturating_add(INTERVAL_NS);
        // The process may have ended.
        let Some(bytes) = pid.and_then(|pid| read_steady(|| read_arguments(pid))) else { return };
        let Some(title) = title(&bytes, &self.arguments, &self.exe.to_string_lossy()) else {
            self.present = None;
            return;
        };
        let known = self.groups.iter().find(|(known, _)| *known == title).map(|(_, group)| *group);
        self.present = known.or_else(|| {
            let group = (self.groups.len() < MOST).then(|| recording.add_titled_group(group, &title))?;
            self.groups.push((title, group));
            Some(group)
        });
    }

    /// Returns the group of threads under the current title; `group` without one.
    #[inline]
    pub fn group(&self, group: u32) -> u32 {
        self.present.unwrap_or(group)
    }

    /// Ends the groups when the process is over.
    pub fn end(&self, recording: &mut Recording) {
        self.groups.iter().for_each(|(_, group)| recording.end_group(*group));
    }
}

/// Returns the current arguments of a process.
fn read_arguments(pid: u32) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/cmdline")).ok()?.take(READ_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads until two readings are equal, because the program may write its title during one. `None` if none are equal, or the title is empty.
fn read_steady(mut read: impl FnMut() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut last = read()?;
    for _ in 0..MOST_READINGS {
        let next = read()?;
        if next == last {
            return Some(next).filter(|bytes| !bytes.is_empty());
        }
        last = next;
    }
    None
}

/// Returns the title in the arguments of a process: a single text, followed only by NULs, that differs from
/// the initial arguments. If these are unknown, a title must contain a space or a colon, and must not be the
/// path of the program.
fn title(bytes: &[u8], arguments: &[String], exe: &str) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at(end);
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let is_start = arguments.first().is_some_and(|first| first == text);
    let is_path = text.rsplit('/').next() == exe.rsplit('/').next();
    if text.is_empty() || is_path || arguments.len() == 1 && is_start {
        return None;
    }
    let is_rewritten = !arguments.is_empty() && !is_start;
    if !is_rewritten && !text.contains([' ', ':']) {
        return None;
    }
    Some(text[..text.floor_char_boundary(MAX_BYTES)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewritten_arguments_become_title() {
        let of = |bytes: &str, arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
            title(bytes.as_bytes(), &arguments, "/usr/lib/postgresql/15/bin/postgres")
        };
        let update = Some("postgres: bench [local] UPDATE".to_owned());
        assert_eq!(of("postgres: bench [local] UPDATE\0\0\0\0", &["postgres", "-D", "data"]), update);
        // Attached to a running process.
        assert_eq!(of("postgres: bench [local] UPDATE\0\0\0\0", &[]), update);
        assert_eq!(of("postgres: bench [local] UPDATE", &[]), update);
        assert_eq!(of("postgres: bench [local] UPDATE   \0", &[]), update);
        // It ends with the name of a database, which is also the name of the program.
        let vacuum = "postgres: autovacuum worker postgres";
        assert_eq!(of(&format!("{vacuum}\0\0"), &["postgres", "-D", "data"]).as_deref(), Some(vacuum));
        // A forked worker starts with its parent's title.
        assert_eq!(
            of("nginx: worker process\0", &["nginx: master process"]).unwrap(),
            "nginx: worker process"
        );
        assert_eq!(of("worker\0\0", &["perl", "x.pl"]).unwrap(), "worker");
    }

    #[test]
    fn start_arguments_are_not_a_title() {
        let of = |bytes: &str, arguments: &[&str], exe: &str| {
            let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
            title(bytes.as_bytes(), &arguments, exe)
        };
        assert_eq!(of("psql\0-c\0select 1\0", &[], "/usr/bin/psql"), None);
        // A password that the program has overwritten.
        assert_eq!(of("mysql\0-pxxxxxx\0", &["mysql", "-psecret"], "/usr/bin/mysql"), None);
        assert_eq!(of("postgres\0", &[], "/usr/bin/postgres"), None);
        assert_eq!(of("sleep\0", &["sleep"], "/usr/bin/coreutils"), None);
        assert_eq!(of("/opt/My App/run\0", &[], "/opt/My App/run"), None);
        assert_eq!(of("\0\0", &["x"], "/x"), None);
        assert_eq!(of("", &[], ""), None);
    }

    #[test]
    fn titles_are_read_until_they_do_not_change() {
        let read = |texts: &[&str]| {
            let mut texts = texts.iter();
            read_steady(|| texts.next().map(|text| text.as_bytes().to_vec()))
        };
        assert_eq!(read(&["idle", "idle"]).unwrap(), b"idle");
        assert_eq!(read(&["idlERT", "INSERT", "INSERT"]).unwrap(), b"INSERT");
        assert_eq!(read(&["1", "2", "3", "4", "5", "6", "6"]), None);
        assert_eq!(read(&["idle"]), None);
        assert_eq!(read(&["", ""]), None);
    }

    #[test]
    fn long_titles_are_cut_between_characters() {
        let long = format!("x: {}", "é".repeat(1000));
        let cut = title(long.as_bytes(), &[], "").unwrap();
        assert!((MAX_BYTES - 1..=MAX_BYTES).contains(&cut.len()) && long.starts_with(&cut));
    }
}
