//! The outputs of a recording, as the engines that record from outside see them.

use std::{sync::atomic::AtomicU64, time::Duration};

use crate::{
    error::Error,
    names::images::Images,
    os::process_info::ProcessInfo,
    process::thread::Thread,
    recording::{Recording, RecordingId, ThreadHandle},
};

/// A thread as another engine recorded it.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownThread {
    /// Its constant in the recording.
    pub thread: Option<ThreadHandle>,
    /// The thread group of its process in the recording.
    pub group: Option<u32>,
}

/// Gives an engine the outputs, the files with code and their unwind tables. Implemented by the drain.
pub trait Outputs {
    /// Returns the recording of process `pid` and its key. Opens it if it is new.
    ///
    /// # Errors
    /// The recording cannot be opened.
    fn recording_for(&mut self, pid: u32) -> Result<(RecordingId, &mut Recording), Error>;

    /// Returns a recording, the files of the session and their unwind tables. `None` if the recording is
    /// retired.
    fn parts(&mut self, id: RecordingId) -> Option<(&mut Recording, &mut Images, &[AtomicU64])>;

    /// Returns the files of the session.
    fn images(&mut self) -> &mut Images;

    /// Returns the files of the session and their unwind tables.
    fn files(&mut self) -> (&mut Images, &[AtomicU64]);

    /// Adds the files with code that the reader thread has read. Waits for them at most `wait`.
    fn load_images(&mut self, wait: Duration);

    /// Returns true if an engine that samples records a process.
    fn knows(&self, pid: u32) -> bool;

    /// Returns a thread of a recording as recorded by a sampling engine, and renames it to `name` unless that
    /// is empty.
    fn known_thread(&mut self, pid: u32, tid: u32, name: &str, id: RecordingId) -> KnownThread;

    /// Returns true if the recording is paused.
    fn is_paused(&self) -> bool;

    /// Describes a running process in a recording, if no other engine does.
    fn describe_running_process(&mut self, pid: u32, id: RecordingId);

    /// Describes a process in a recording.
    fn describe_process(&mut self, process: &ProcessInfo, id: RecordingId, now_ns: u64);

    /// Adds the events of a process that has ended, by kind: recorded, lost.
    fn report_kinds(&mut self, counts: &[(u64, u64)]);

    /// Adds a thread whose totals are final.
    fn report_thread(&mut self, thread: &Thread);
}
