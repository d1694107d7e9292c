//! Finds children that have not joined yet when all other processes have ended: a daemon's first process
//! exits right after it has forked, and the second one may not have joined yet.
//!
//! The recorder waits for every process that still maps the session or was started to join it.

use std::{
    collections::HashSet,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use flightline_in_signal::layout::SESSION_ENV;

use crate::cost::is_measuring;

/// Limit of listings of `/proc` in one search.
const MAX_LISTINGS: usize = 100;

/// Returns true if a process of this user still maps the session (it forked and has not announced itself yet)
/// or was started to join it. Also returns true if new processes appear in [`MAX_LISTINGS`] listings.
pub fn any(session: &Path) -> bool {
    let user = nix::unistd::geteuid().as_raw();
    let own = std::process::id();
    let joining = format!("{SESSION_ENV}={}", session.display());
    let belongs = |pid: u32| {
        let dir = format!("/proc/{pid}");
        pid != own
            && !is_measuring(pid)
            && fs::metadata(&dir).is_ok_and(|meta| meta.uid() == user)
            && (has(&format!("{dir}/maps"), b'\n', |line| ends_below(line, session))
                || has(&format!("{dir}/environ"), 0, |entry| entry == joining.as_bytes()))
    };
    is_found(processes, belongs)
}

/// Returns true if a process `belongs`. A process inherits this from its parent.
///
/// A listed process can fork and end before it is examined, and its child is not in that listing. So the
/// search lists the processes again until a listing has no new process: each process of that listing was
/// examined, and so was the parent of each process that starts later.
fn is_found(list: impl Fn() -> Vec<u32>, belongs: impl Fn(u32) -> bool) -> bool {
    let mut examined = HashSet::new();
    for _ in 0..MAX_LISTINGS {
        let new: Vec<u32> = list().into_iter().filter(|pid| examined.insert(*pid)).collect();
        if new.is_empty() {
            return false;
        }
        if new.into_iter().any(&belongs) {
            return true;
        }
    }
    true
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn has(path: &str, separator: u8, wanted: impl Fn(&[u8]) -> bool) -> bool {
    fs::read(path).is_ok_and(|text| text.split(|b| *b == separator).any(wanted))
}

/// Returns true if a line of `maps` contains a file of the session.
fn ends_below(line: &[u8], session: &Path) -> bool {
    let session = session.as_os_str().as_bytes();
    line.windows(session.len() + 1).any(|part| part.starts_with(session) && part.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::test_isolation::alone;
    use std::{
        cell::Cell,
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    #[test]
    fn unjoined_process_is_found_until_it_ends() {
        let session = tempfile::tempdir().unwrap();
        assert!(!any(session.path()));
        let mut child = Command::new("cat");
        let mut child = child
            .env(SESSION_ENV, session.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Once it answers, it has executed its program.
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        std::io::Write::write_all(&mut to, b"x").unwrap();
        std::io::Read::read_exact(&mut from, &mut [0]).unwrap();
        assert!(any(session.path()));
        drop(to);
        child.wait().unwrap();
        assert!(!any(session.path()));
        let maps = b"7f0-7f1 rw-s 0 00:1a 7 /dev/shm/flightline-1-2/7-1.proc";
        assert!(ends_below(maps, Path::new("/dev/shm/flightline-1-2")));
        assert!(!ends_below(maps, Path::new("/dev/shm/flightline-1-")));
    }

    #[test]
    fn child_is_found_although_listed_parent_has_ended() {
        // Each process of the chain forks the next one and ends when it has been listed.
        let chain = |length: u32| {
            let newest = Cell::new(1);
            let list = || {
                let listed = newest.get();
                newest.set((listed + 1).min(length));
                vec![7, 9, listed + 10]
            };
            is_found(list, |pid| pid == newest.get() + 10)
        };
        assert!(chain(2));
        assert!(chain(30));
        assert!(!is_found(|| vec![7, 9], |_| false));
    }

    #[test]
    fn search_ends_when_processes_start_all_the_time() {
        let last = Cell::new(0);
        let list = || {
            last.set(last.get() + 1);
            vec![last.get()]
        };
        assert!(is_found(list, |_| false));
        assert_eq!(last.get() as usize, MAX_LISTINGS);
    }

    #[test]
    fn measuring_child_is_not_counted_as_unjoined() {
        // Processes forked by other tests map the session, too, until they exec.
        if !alone(module_path!(), "measuring_child_is_not_counted_as_unjoined") {
            return;
        }
        let session = tempfile::tempdir().unwrap();
        let path = session.path().join("1-1.proc");
        fs::write(&path, [0; 64]).unwrap();
        // SAFETY: no other process changes the file.
        let _mapped = unsafe { memmap2::Mmap::map(&fs::File::open(&path).unwrap()).unwrap() };
        let _delivery = crate::cost::Delivery::measure();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(60) {
            assert!(!any(session.path()));
        }
    }
}
