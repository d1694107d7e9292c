//! The maintenance lock: one process maintains a store at a time.
//!
//! In a directory the kernel holds the lock and releases it when the process ends, for whatever reason. In an
//! object store the lock is an object that its holder rewrites every minute, and before it writes each file.
//! If the object is ten minutes old by the store's clock, the holder is gone and one of the waiting processes
//! takes over: conditional writes succeed only on the version that the process has read.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::storage::Storage;

/// Name of the lock file; engines ignore the prefix.
const NAME: &str = "_maintenance";
/// Interval at which the holder renews the lock.
const EVERY: Duration = Duration::from_secs(60);
/// Age at which a lock counts as stale, ms.
const STALE: i64 = 600_000;
/// Content of a released lock.
const FREE: &str = "free";

/// The right to maintain a store.
#[derive(Debug)]
pub struct Lock(LockState);

#[derive(Debug)]
enum LockState {
    File(File),
    Object { object: Arc<Object>, beat: JoinHandle<()> },
}

/// The lock object in an object store.
#[derive(Debug)]
struct Object {
    place: Storage,
    path: Path,
    /// Version last written by this process; `None` if another one took over.
    version: Mutex<Option<UpdateVersion>>,
}

impl Lock {
    /// Acquires the lock.
    ///
    /// # Errors
    /// Returns an error if another process holds it.
    pub async fn take(place: &Storage) -> Result<Self> {
        match place.directory() {
            Some(directory) => in_directory(place, directory).map(Self),
            None => in_object_store(place, now()).await.map(Self),
        }
    }

    /// Checks that no other process took over the lock.
    ///
    /// # Errors
    /// Returns an error if another process took it over, because this one was suspended for too long, or if
    /// the store does not answer.
    pub async fn check(&self) -> Result<()> {
        match &self.0 {
            LockState::File(_) => Ok(()),
            LockState::Object { object, .. } => object.write(owner()).await,
        }
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// Returns an error if it cannot be released; it becomes stale after ten minutes.
    pub async fn release(&self) -> Result<()> {
        match &self.0 {
            LockState::File(file) => Ok(file.set_len(0).and_then(|()| file.unlock())?),
            LockState::Object { object, beat } => {
                beat.abort();
                object.write(FREE.to_owned()).await
            }
        }
    }
}

impl Drop for LockState {
    fn drop(&mut self) {
        if let Self::Object { beat, .. } = self {
            beat.abort();
        }
    }
}

impl Object {
    /// Overwrites only the version that this process wrote last.
    async fn write(&self, text: String) -> Result<()> {
        let mut version = self.version.lock().await;
        let Some(last) = version.take() else { return Err(self.lost_error()) };
        match put(&self.place, &self.path, text, PutMode::Update(last.clone())).await {
            Ok(next) => *version = Some(next),
            Err(Error::Precondition { .. } | Error::NotFound { .. }) => return Err(self.lost_error()),
            Err(error) => {
                *version = Some(last);
                return Err(error).with_context(|| format!("cannot write {}", self.path));
            }
        }
        Ok(())
    }

    fn lost_error(&self) -> anyhow::Error {
        anyhow::anyhow!("{}: another process has taken over, as this one stood still", self.place.shown())
    }

    async fn is_mine(&self) -> bool {
        self.version.lock().await.is_some()
    }
}

fn in_directory(place: &Storage, directory: &FilePath) -> Result<LockState> {
    let path = directory.join(NAME);
    let cannot = || format!("cannot lock {}", path.display());
    // Do not delete the file: two processes, one with the old file open and one that creates a new file,
    // would both hold the lock.
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).open(&path).with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut who = String::new();
            // Informational only.
            let _ = Read::by_ref(&mut file).take(200).read_to_string(&mut who);
            bail!("{} is locked{}{who}", place.shown(), if who.is_empty() { "" } else { " by " });
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    }
    file.set_len(0).and_then(|()| file.write_all(owner().as_bytes())).with_context(cannot)?;
    Ok(LockState::File(file))
}

async fn in_object_store(place: &Storage, now: i64) -> Result<LockState> {
    let path = place.root_file(NAME);
    let mut mode = PutMode::Create;
    for _ in 0..2 {
        match put(place, &path, owner(), mode).await {
            Ok(version) => {
                let version = Mutex::new(Some(version));
                let object = Arc::new(Object { place: place.clone(), path, version });
                let beat = tokio::spawn(beat(object.clone(), EVERY));
                return Ok(LockState::Object { object, beat });
            }
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(Error::NotImplemented { .. }) => {
                bail!("{} cannot be locked: its storage has no conditional writes", place.shown())
            }
            Err(error) => return Err(error).with_context(|| format!("cannot write {path}")),
        }
        let cannot = || format!("cannot read {path}");
        let found = place.object_store().get(&path).await.with_context(cannot)?;
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let written = found.meta.last_modified.timestamp_millis();
        let held = String::from_utf8_lossy(&found.bytes().await.with_context(cannot)?).into_owned();
        if held != FREE && now.saturating_sub(written) < STALE {
            bail!("{} is locked by {held}; if that process no longer runs, wait ten minutes", place.shown());
        }
        mode = PutMode::Update(version);
    }
    bail!("{} is locked by another process", place.shown())
}

/// Renews the lock periodically.
async fn beat(object: Arc<Object>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        // If the store does not answer, retry at the next renewal. If another process has taken over by then,
        // that renewal fails.
        if object.write(owner()).await.is_err() && !object.is_mine().await {
            return;
        }
    }
}

async fn put(
    place: &Storage,
    path: &Path,
    text: String,
    mode: PutMode,
) -> object_store::Result<UpdateVersion> {
    let options = PutOptions { mode, ..PutOptions::default() };
    let put = place.object_store().put_opts(path, text.into_bytes().into(), options).await?;
    Ok(UpdateVersion { e_tag: put.e_tag, version: put.version })
}

fn owner() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} of {}", std::process::id(), host.trim())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn directory_is_unlocked_if_holder_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let place = Storage::open(folder.path().to_str().unwrap()).unwrap();
        let lock = Lock::take(&place).await.unwrap();
        lock.check().await.unwrap();
        let told = Lock::take(&place).await.unwrap_err().to_string();
        assert!(told.contains("is locked by process"), "{told}");
        // Simulates a killed process: the lock was not released.
        drop(lock);
        Lock::take(&place).await.unwrap().release().await.unwrap();
        Lock::take(&place).await.unwrap();
    }

    fn object(held: &LockState) -> &Arc<Object> {
        match held {
            LockState::Object { object, .. } => object,
            LockState::File(_) => panic!("{held:?}"),
        }
    }

    #[tokio::test]
    async fn only_one_process_takes_over_stale_object() {
        let place = Storage::open("memory:///store").unwrap();
        let held = Lock(in_object_store(&place, now()).await.unwrap());
        held.check().await.unwrap();
        let told = in_object_store(&place, now()).await.unwrap_err().to_string();
        assert!(told.contains("is locked by process") && told.contains("ten minutes"), "{told}");
        // Two processes found the lock stale; only one of the conditional writes may succeed.
        let read = object(&held.0).version.lock().await.clone().unwrap();
        let path = place.root_file(NAME);
        let second = |who: &str| put(&place, &path, who.to_owned(), PutMode::Update(read.clone()));
        let both = tokio::join!(second("one"), second("two"));
        assert!(both.0.is_ok() != both.1.is_ok(), "{both:?}");
        // The lock is stale only after the full interval since the last write.
        let taken = Lock(in_object_store(&place, now() + STALE).await.unwrap());
        // The suspended process notices the loss before it writes a file, and does not release a lock that it
        // no longer holds.
        beat(object(&held.0).clone(), Duration::ZERO).await;
        assert!(held.check().await.unwrap_err().to_string().contains("taken over"));
        assert!(held.release().await.is_err());
        taken.check().await.unwrap();
        assert!(in_object_store(&place, now()).await.is_err());
        taken.release().await.unwrap();
        in_object_store(&place, now()).await.unwrap();
    }

    #[tokio::test]
    async fn object_stays_locked_while_holder_renews_it() {
        let place = Storage::open("memory:///store").unwrap();
        let held = in_object_store(&place, now()).await.unwrap();
        let version = object(&held).version.lock().await.clone();
        let beating = tokio::spawn(beat(object(&held).clone(), Duration::ZERO));
        while object(&held).version.lock().await.as_ref().map(|v| &v.e_tag)
            == version.as_ref().map(|v| &v.e_tag)
        {
            tokio::task::yield_now().await;
        }
        assert!(!beating.is_finished());
        beating.abort();
    }
}
