//! Finds children that have not joined yet when all other processes have ended: a daemon's first process
//! exits right after it has forked, and the second one may not have joined yet.
//!
//! The recorder waits for every process that still maps the session or was started to join it.

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use flightline_in_signal::layout::SESSION_ENV;

use crate::cost::is_measuring;

/// Returns true if a process of this user still maps the session (it forked and has not announced itself yet)
/// or was started to join it.
pub fn any(session: &Path) -> bool {
    let user = nix::unistd::geteuid().as_raw();
    let own = std::process::id();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let joining = format!("{SESSION_ENV}={}", session.display());
    pids.any(|pid| {
        let dir = format!("/proc/{pid}");
        pid != own
            && !is_measuring(pid)
            && fs::metadata(&dir).is_ok_and(|meta| meta.uid() == user)
            && (has(&format!("{dir}/maps"), b'\n', |line| ends_below(line, session))
                || has(&format!("{dir}/environ"), 0, |entry| entry == joining.as_bytes()))
    })
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
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    #[test]
    fn a_process_that_is_to_join_is_seen_until_it_ends() {
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
    fn the_child_that_measures_is_not_left_behind() {
        // Processes forked by other tests map the session, too, until they exec.
        if !alone(module_path!(), "the_child_that_measures_is_not_left_behind") {
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
