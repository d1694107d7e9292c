//! Finds the recording of a running program and of its children.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use flightline_recorder::control::Condition;
use flightline_recorder::repository::Owner;
use flightline_recorder::session;

use crate::discovery::{processes, targets};

/// How long to wait for a recorded program's first data.
const FIRST_WRITTEN: Duration = Duration::from_secs(5);
/// Maximum length of a parent chain, since the process list may change while it is read.
const MOST_ANCESTORS: usize = 1000;

/// A program in a repository and its children.
pub(super) struct Family {
    pid: u32,
    /// The recorder of all of them.
    recorder: u32,
}

impl Family {
    /// Returns true if a folder belongs to the program or a running descendant. All processes of a recorder
    /// descend from the one it started.
    pub(super) fn has(&self, folder: &Path) -> bool {
        let Some(owner) = Owner::read(folder).filter(|owner| owner.recorder == self.recorder) else {
            return false;
        };
        let processes = processes::processes();
        let parent = |pid: &u32| processes.get(pid).map(|entry| entry.parent);
        let mut ancestors = std::iter::successors(Some(owner.pid), parent).take(MOST_ANCESTORS);
        ancestors.any(|pid| pid == self.pid) || parent(&self.pid) == Some(self.recorder)
    }
}

/// Returns where the recording of a program and its children is written, or everything that a recorder
/// writes.
pub(super) fn output(wanted: &str) -> Result<(PathBuf, Option<Family>)> {
    let found = targets::recorded(wanted)?;
    let (pid, name) = (found.pid, &found.name);
    let Condition::Recorded(session) = &found.condition else {
        bail!(
            "{name} ({pid}) is not being recorded; use `flightline record -p {pid}`, or, if it is in \
             standby, `flightline ctl -p {pid} start`"
        );
    };
    let since = Instant::now();
    loop {
        if let Some(path) = session::process_output(session, pid) {
            return Ok(match (Owner::read(&path), path.parent()) {
                (Some(owner), Some(root)) if path.is_dir() => {
                    (root.to_owned(), Some(Family { pid, recorder: owner.recorder }))
                }
                _ => (path, None),
            });
        }
        if since.elapsed() > FIRST_WRITTEN {
            bail!("{name} ({pid}) has no recording file yet; a recording to a pipe cannot be followed");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
