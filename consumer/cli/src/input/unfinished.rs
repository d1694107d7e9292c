//! Completes recordings of killed recorders before they are read.

use std::path::Path;

use flightline_recorder::recover::{self, Recovered};
use flightline_recorder::session;

use crate::diagnostics::{self, shown};

/// Recovers `path`, before it is read, if its recorder was killed.
pub fn before_reading(path: &Path) {
    for session in session::abandoned() {
        if !concerns(&session, path) {
            continue;
        }
        match recover::recover(&session) {
            Ok(done) => {
                done.problems.iter().for_each(diagnostics::warning);
                diagnostics::note(format!(
                    "{}: the recorder was killed: {}",
                    shown(path),
                    description(&done)
                ));
            }
            Err(error) => diagnostics::warning(&error),
        }
    }
}

/// Describes the recovered and the lost data.
pub fn description(done: &Recovered) -> String {
    let torn = match done.torn {
        0 => String::new(),
        n => format!("; {n} that were being written are lost"),
    };
    let lost = match done.lost {
        0 => String::new(),
        n => format!("; {n} that did not fit are reported as lost"),
    };
    format!("{} samples and events recovered from shared memory{torn}{lost}", done.records)
}

/// Returns true if a session wrote to `path` or below it.
pub fn concerns(session: &Path, path: &Path) -> bool {
    // A repository may not exist yet if the recorder was killed before it wrote anything.
    let Ok(path) = path.canonicalize().or_else(|_| std::path::absolute(path)) else { return false };
    session::outputs(session).iter().any(|output| {
        let output = output.canonicalize().unwrap_or_else(|_| output.clone());
        output.starts_with(&path)
    })
}
