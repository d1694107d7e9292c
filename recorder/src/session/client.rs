//! The view that a program or a reader has of a session.

use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flightline_in_signal::layout::{SESSION_FILE, SessionPage};
use memmap2::MmapRaw;

use crate::{
    error::Error,
    settings::{CpuSettings, Settings},
};

/// The mapping of a session's page.
pub(super) struct MappedPage(MmapRaw);

impl MappedPage {
    /// Maps a file of at least the size of a page.
    pub(super) fn map(file: &File, path: &Path) -> Result<MappedPage, Error> {
        let bytes = file.metadata().map_err(|e| Error::io("stat", path, e))?.len();
        if bytes < size_of::<SessionPage>() as u64 {
            return Err(Error::shared(path, "is too short"));
        }
        Ok(MappedPage(MmapRaw::map_raw(file).map_err(|e| Error::io("map", path, e))?))
    }
}

impl Deref for MappedPage {
    type Target = SessionPage;

    fn deref(&self) -> &SessionPage {
        // SAFETY: the mapping holds a SessionPage for as long as self lives (checked in `map`), and starts at a
        // page. A SessionPage consists of atomics, which other processes may write.
        unsafe { &*self.0.as_ptr().cast() }
    }
}

/// A program's or reader's view of a session.
pub struct SessionClient {
    page: MappedPage,
}

impl SessionClient {
    /// Maps the page of the session in `dir`.
    ///
    /// # Errors
    /// There is no session, or its drain has not written its page yet.
    pub fn open(dir: &Path) -> Result<SessionClient, Error> {
        let path = dir.join(SESSION_FILE);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|e| Error::io("open", &path, e))?;
        let page = MappedPage::map(&file, &path)?;
        // The drain writes the format last. Before that, a PID of 0 does not mean that the drain has ended.
        if page.format.load().magic == 0 {
            return Err(Error::shared(&path, "is still being created"));
        }
        Ok(SessionClient { page })
    }

    /// Requests the end of the recording.
    pub fn ask_stop(&self) {
        self.page.stop.store(1, Ordering::Release);
    }

    /// Requests a flush; returns its number.
    pub fn ask_flush(&self) -> u64 {
        self.page.flush.requested.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns true if sampling is over.
    pub fn stopped(&self) -> bool {
        self.page.stop.load(Ordering::Acquire) != 0
    }

    /// Returns when the session started, monotonic ns.
    pub fn begun_ns(&self) -> u64 {
        self.page.fixed.load().start_mono_ns
    }

    /// Returns the CPU time that an event represents, never 0, and the sampling interval, ns.
    pub fn periods_ns(&self) -> (u64, u64) {
        let event = self.page.live.event_ns.load(Ordering::Relaxed).max(1);
        let period = self.page.live.period_ns.load(Ordering::Relaxed);
        (event, period.max(event))
    }

    /// Returns the settings that a recovery needs.
    pub fn settings(&self) -> Settings {
        let aggregate = self.page.live.aggregate_ns.load(Ordering::Relaxed);
        let cpu = CpuSettings {
            period: Duration::from_nanos(self.periods_ns().0),
            aggregate: (aggregate != 0).then(|| Duration::from_nanos(aggregate)),
            ..CpuSettings::default()
        };
        Settings { cpu, ..Settings::default() }
    }

    /// Returns the number of the last flush done.
    pub fn flushed(&self) -> u64 {
        self.page.flush.done.load(Ordering::Acquire)
    }

    /// Returns the PID of the drain, 0 if it has ended regularly.
    pub fn drain_pid(&self) -> u32 {
        self.page.drain_pid.load(Ordering::Acquire)
    }

    /// Returns true if the drain has completed the output.
    pub fn drain_ended(&self) -> bool {
        let pid = self.drain_pid();
        pid == 0 || !Path::new(&format!("/proc/{pid}")).exists()
    }
}
