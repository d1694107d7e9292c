//! Limits the memory of all processes of a session together. Each process has a limit, but processes may
//! start and end faster than the drain removes their memory.
//!
//! A process that joins counts itself. One that exceeds the limit is refused and reported, so the limit holds
//! however fast processes start and however slow the drain is.

use std::{fs, io, path::Path, sync::atomic::Ordering, time::Duration};

use flightline_in_signal::layout::PROC_SUFFIX;
use nix::sys::statvfs::statvfs;

use super::Session;
use crate::error::Error;

/// At least this number of processes is recorded, wherever a session can be created at all.
const FEWEST: u64 = 8;
/// How long an incomplete process file is retained, whose process may have been killed while it created the
/// file.
const UNFINISHED: Duration = Duration::from_secs(60);

/// Memory of a process with a few threads, without its ring: thread slots, module names and module tables.
/// More pages are allocated on demand.
const WITHOUT_RING: u64 = 256 << 10;

/// Returns how many processes may have memory in `dir` at the same time: an eighth of the machine's memory,
/// at most three quarters of the file system.
pub(super) fn most_processes(dir: &Path, ring_bytes: u64) -> u64 {
    let system = nix::sys::sysinfo::sysinfo().map_or(1 << 30, |info| info.ram_total());
    let room = statvfs(dir).map_or(u64::MAX, |fs| fs.blocks().saturating_mul(fs.fragment_size()));
    ((system / 8).min(room / 4 * 3) / (ring_bytes + WITHOUT_RING)).max(FEWEST)
}

/// Returns an error if `dir` has no room for a process, so that the session is created elsewhere.
///
/// # Errors
/// The file system has less than [`WITHOUT_RING`] free bytes.
pub(super) fn check(dir: &Path) -> Result<(), Error> {
    let Ok(fs) = statvfs(dir) else { return Ok(()) };
    let free = fs.blocks_available().saturating_mul(fs.fragment_size());
    // Some file systems do not report their size.
    if fs.blocks() == 0 || free >= WITHOUT_RING {
        return Ok(());
    }
    let full = io::Error::new(io::ErrorKind::StorageFull, format!("{} KB are free", free >> 10));
    Err(Error::io("allocate memory for the recorded programs in", dir.parent().unwrap_or(dir), full))
}

impl Session {
    /// Returns the message for processes that got no memory in the session directory: the reason and the
    /// remedy.
    pub(crate) fn no_room(&self) -> String {
        let dir = self.dir.parent().unwrap_or(&self.dir).display();
        let mega = |blocks: u64, size: u64| blocks.saturating_mul(size) >> 20;
        let full = match statvfs(&self.dir) {
            Ok(fs) if fs.blocks_available() < fs.blocks() / 4 => {
                let (all, left) =
                    (mega(fs.blocks(), fs.fragment_size()), mega(fs.blocks_available(), fs.fragment_size()));
                format!("{dir} has {left} of {all} MB left; in a container, increase it with --shm-size")
            }
            _ => "processes start and exit faster than the recorder frees their memory".to_owned(),
        };
        format!("some programs are not recorded (the last line has their number): {full}")
    }

    /// Notes that the drain has removed the memory of a process.
    pub(crate) fn process_gone(&self) {
        self.page.processes.gone.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of processes that were not recorded because of the limit, as counted by themselves.
    pub(crate) fn refused(&self) -> u64 {
        self.page.processes.refused.load(Ordering::Relaxed)
    }

    /// Recounts the processes with memory here, to correct for processes that were killed while they joined.
    /// Call this now and then with the previous result.
    pub(crate) fn count_processes(&self, before: u64) -> u64 {
        let begun = self.page.processes.joined.load(Ordering::Relaxed);
        // While processes join, it is unknown which of them will have a file.
        if begun == before
            && let Some(files) = self.process_files()
        {
            self.page.processes.gone.store(begun.saturating_sub(files), Ordering::Relaxed);
        }
        begun
    }

    fn process_files(&self) -> Option<u64> {
        let mut files = 0;
        for entry in fs::read_dir(&self.dir).ok()?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let unfinished = name.ends_with(".tmp");
            let old = || {
                entry
                    .metadata()
                    .and_then(|m| m.modified())
                    .is_ok_and(|at| at.elapsed().is_ok_and(|t| t > UNFINISHED))
            };
            if unfinished && old() {
                let _ = fs::remove_file(entry.path());
            } else if unfinished || name.ends_with(PROC_SUFFIX) {
                files += 1;
            }
        }
        Some(files)
    }
}
