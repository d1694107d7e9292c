//! The view that a program or a reader has of a session.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flightline_in_signal::layout::{SESSION_FILE, SessionPage};
use memmap2::MmapRaw;

use crate::{
    error::Error,
    settings::{CpuSettings, Settings},
};

/// A program's or reader's view of a session.
pub struct SessionClient {
    page: MmapRaw,
}

impl SessionClient {
    /// Maps the page of the session in `dir`.
    pub fn open(dir: &Path) -> Result<SessionClient, Error> {
        let path = dir.join(SESSION_FILE);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|e| Error::io("open", &path, e))?;
        if file.metadata().is_ok_and(|m| m.len() < size_of::<SessionPage>() as u64) {
            return Err(Error::shared(&path, "is too short"));
        }
        Ok(SessionClient { page: MmapRaw::map_raw(&file).map_err(|e| Error::io("map", &path, e))? })
    }

    fn word<T>(&self, field: fn(*const SessionPage) -> *const T) -> &T {
        // SAFETY: the mapping holds a SessionPage for as long as self lives; only used with atomic fields.
        unsafe { &*field(self.page.as_ptr().cast()) }
    }

    /// Requests the end of the recording.
    pub fn ask_stop(&self) {
        // SAFETY: projection to an atomic inside the mapped page; likewise below.
        self.word(|p| unsafe { &raw const (*p).stop }).store(1, Ordering::Release);
    }

    /// Requests a flush; returns its number.
    pub fn ask_flush(&self) -> u64 {
        // SAFETY: as in `ask_stop`.
        self.word(|p| unsafe { &raw const (*p).flush_wanted }).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns true if sampling is over.
    pub fn stopped(&self) -> bool {
        // SAFETY: as in `ask_stop`.
        self.word(|p| unsafe { &raw const (*p).stop }).load(Ordering::Acquire) != 0
    }

    /// Returns when the session started, monotonic ns.
    pub fn begun_ns(&self) -> u64 {
        super::begun_ns(&self.page)
    }

    /// Returns the CPU time that an event represents, never 0, and the sampling interval, ns.
    pub fn periods_ns(&self) -> (u64, u64) {
        // SAFETY: as in `ask_stop`.
        let event = self.word(|p| unsafe { &raw const (*p).event_ns }).load(Ordering::Relaxed).max(1);
        // SAFETY: as in `ask_stop`.
        let period = self.word(|p| unsafe { &raw const (*p).period_ns }).load(Ordering::Relaxed);
        (event, period.max(event))
    }

    /// Returns the settings that a recovery needs.
    pub fn settings(&self) -> Settings {
        // SAFETY: as in `ask_stop`.
        let aggregate = self.word(|p| unsafe { &raw const (*p).aggregate_ns }).load(Ordering::Relaxed);
        let cpu = CpuSettings {
            period: Duration::from_nanos(self.periods_ns().0),
            aggregate: (aggregate != 0).then(|| Duration::from_nanos(aggregate)),
            ..CpuSettings::default()
        };
        Settings { cpu, ..Settings::default() }
    }

    /// Returns the number of the last flush done.
    pub fn flushed(&self) -> u64 {
        // SAFETY: as in `ask_stop`.
        self.word(|p| unsafe { &raw const (*p).flush_done }).load(Ordering::Acquire)
    }

    /// Returns the PID of the drain, 0 if it has ended regularly.
    pub fn drain_pid(&self) -> u32 {
        // SAFETY: as in `ask_stop`.
        self.word(|p| unsafe { &raw const (*p).drain_pid }).load(Ordering::Acquire)
    }

    /// Returns true if the drain has completed the output.
    pub fn drain_ended(&self) -> bool {
        let pid = self.drain_pid();
        pid == 0 || !Path::new(&format!("/proc/{pid}")).exists()
    }
}
