//! `--sync`: writes flushed data to the disk, so that a power failure loses at most the data since the last
//! flush.
//!
//! A thread waits for the disk. The drain hands the file to the thread and continues. While the thread is
//! busy, the file is handed over again with the next flush, so no queue builds up behind a slow disk.

use std::{
    fs::File,
    io,
    sync::mpsc::{SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

/// Limit of queued files: of several processes, and the previous file when a new chunk starts.
const WAITING: usize = 64;

/// The thread that waits for the disk.
pub struct Syncer {
    files: Option<SyncSender<File>>,
    thread: Option<JoinHandle<u64>>,
}

impl Syncer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start() -> io::Result<Syncer> {
        Syncer::with(|file| file.sync_data())
    }

    fn with(sync: impl Fn(&File) -> io::Result<()> + Send + 'static) -> io::Result<Syncer> {
        let (files, receive) = sync_channel::<File>(WAITING);
        let thread = thread::Builder::new().name("flightline-sync".into()).spawn(move || {
            // A disk error is reported at the next write too.
            receive.iter().filter(|file| sync(file).is_ok()).count() as u64
        })?;
        Ok(Syncer { files: Some(files), thread: Some(thread) })
    }

    /// Requests that a file is synchronized; never blocks.
    pub fn sync(&self, file: &File) {
        if let (Some(files), Ok(file)) = (&self.files, file.try_clone()) {
            let _ = files.try_send(file);
        }
    }
}

impl Drop for Syncer {
    /// Waits for the remaining files.
    fn drop(&mut self) {
        self.files = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    };

    #[test]
    fn sync_does_not_wait_for_slow_disk() {
        let disk = Arc::new(Mutex::new(()));
        let written = Arc::new(AtomicU64::new(0));
        let (waits, count) = (disk.clone(), written.clone());
        let guard = disk.lock().unwrap();
        let syncer = Syncer::with(move |_| {
            drop(waits.lock());
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        let file = tempfile::tempfile().unwrap();
        // None of these calls would return while the disk is blocked, if they waited for it.
        (0..10 * WAITING).for_each(|_| syncer.sync(&file));
        assert_eq!(written.load(Ordering::Relaxed), 0);
        drop(guard);
        drop(syncer);
        let written = written.load(Ordering::Relaxed);
        assert!((WAITING as u64..=WAITING as u64 + 1).contains(&written), "{written}");
    }
}
