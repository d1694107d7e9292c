//! The open kernel events: tracepoints, their rings, and the filter of threads.

use std::{io::Error as IoError, os::fd::BorrowedFd};

use super::{
    Options,
    merge::RecordPosition,
    open::{self, Pass, Points, Source},
    refused, thread_polls,
    tracepoints::States,
};
use crate::settings;

/// The tracepoints and their rings.
pub(super) struct KernelEvents {
    /// `None` if the kernel denies access to tracepoints and only reports that threads are switched.
    pub(super) points: Option<Points>,
    /// The message about that.
    pub(super) lacks: Option<String>,
    pub(super) states: States,
    pub(super) sources: Vec<Source>,
    pub(super) pass: Option<Pass>,
    /// Samples of threads that are not recorded, since the last update of the filters.
    pub(super) strangers: u64,
    /// Reused memory for a round's list of records.
    pub(super) positions: Vec<RecordPosition>,
}

impl KernelEvents {
    /// Opens the rings.
    ///
    /// # Errors
    /// The reason why the selection cannot be recorded here.
    pub(super) fn open(selected: &settings::OffCpuSettings) -> Result<KernelEvents, String> {
        let found = Points::find(selected).and_then(|points| {
            let sources = open::sources(selected).map_err(|e| refused(&e))?;
            open::try_out(&points).map_err(|e| refused(&e))?;
            Ok((points, sources))
        });
        let (points, sources, lacks) = match found {
            Ok((points, sources)) => (Some(points), sources, None),
            Err(problem) if selected.calls.is_some() => {
                return Err(format!(
                    "{problem}; `-e io` records the calls of programs that flightline starts, without privileges"
                ));
            }
            Err(problem) if selected.all || selected.io() => return Err(problem),
            Err(problem) => (None, Vec::new(), Some(thread_polls::notice(&problem, selected))),
        };
        Ok(KernelEvents {
            states: points.as_ref().map_or_else(States::default, |points| points.switch.states.clone()),
            points,
            lacks,
            sources,
            pass: None,
            strangers: 0,
            positions: Vec::new(),
        })
    }

    /// Opens the switch events of a thread and of its children.
    pub(super) fn watch(&mut self, options: &Options, tid: u32, from_exec: bool) -> Result<(), IoError> {
        match self.points {
            _ if !options.selected.switches => Ok(()),
            Some(_) => open::switches(&mut self.sources, tid, options.follow, from_exec),
            None => open::switches_alone(&mut self.sources, tid, options.follow, from_exec),
        }
    }

    /// Opens the tracepoints on all processors, with a filter of threads.
    pub(super) fn trace(&mut self, selected: &settings::OffCpuSettings, pass: Pass) -> Result<(), String> {
        let Some(points) = &self.points else { return Ok(()) };
        open::trace(&mut self.sources, points, &pass, selected).map_err(|e| refused(&e))?;
        self.pass = Some(pass);
        Ok(())
    }

    /// Returns the descriptors that are readable when a ring fills up.
    pub(super) fn wake(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().map(|source| source.ring.event())
    }
}
