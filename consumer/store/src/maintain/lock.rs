//! One at a time works on a store.
//!
//! In a directory the kernel keeps the lock, and frees it when its process ends, however that was. In an object store it is an object
//! that its holder writes anew every minute; where nobody has done so for ten minutes, nobody does any more, and of those who find that
//! one takes over: each writes only on top of what it has read.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use tokio::task::JoinHandle;

use crate::place::Place;

/// The file that says so; no engine looks at it.
const NAME: &str = "_maintenance";
/// How often the holder says that it is there.
const EVERY: Duration = Duration::from_secs(60);
/// Whoever has not said so for so long is not there any more, ms.
const STALE: i64 = 600_000;

/// The right to work on a store.
#[derive(Debug)]
pub struct Lock(Held);

#[derive(Debug)]
enum Held {
    File(File),
    Object { place: Box<Place>, path: Path, gone: Arc<AtomicBool>, beat: JoinHandle<()> },
}

impl Lock {
    /// Takes it.
    ///
    /// # Errors
    /// Someone has it.
    pub async fn take(place: &Place) -> Result<Self> {
        match place.directory() {
            Some(directory) => in_directory(place, directory).map(Self),
            None => in_object_store(place, now()).await.map(Self),
        }
    }

    /// Checks that nobody has taken it over.
    ///
    /// # Errors
    /// Somebody has, as this process stood still for too long.
    pub fn check(&self) -> Result<()> {
        match &self.0 {
            Held::Object { gone, place, .. } if gone.load(Ordering::Relaxed) => {
                bail!("{}: another process has taken over, as this one stood still", place.shown())
            }
            Held::File(_) | Held::Object { .. } => Ok(()),
        }
    }

    /// Gives it back.
    ///
    /// # Errors
    /// It cannot be given back: it is free ten minutes later.
    pub async fn release(self) -> Result<()> {
        match self.0 {
            Held::File(file) => Ok(file.set_len(0)?),
            Held::Object { place, path, gone, beat } => {
                beat.abort();
                let _ = beat.await; // that it was aborted
                if gone.load(Ordering::Relaxed) { Ok(()) } else { place.remove(&path).await }
            }
        }
    }
}

fn in_directory(place: &Place, directory: &FilePath) -> Result<Held> {
    let path = directory.join(NAME);
    let cannot = || format!("cannot lock {}", path.display());
    // Not removed: who has opened it and who makes it anew would lock two files.
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).open(&path).with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut who = String::new();
            // Only for people.
            let _ = Read::by_ref(&mut file).take(200).read_to_string(&mut who);
            bail!("{} is being worked on{}{who}", place.shown(), if who.is_empty() { "" } else { " by " });
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    }
    file.set_len(0).and_then(|()| file.write_all(owner().as_bytes())).with_context(cannot)?;
    Ok(Held::File(file))
}

async fn in_object_store(place: &Place, now: i64) -> Result<Held> {
    let path = place.root_file(NAME);
    let mut mode = PutMode::Create;
    for _ in 0..2 {
        match put(place, &path, now, mode).await {
            Ok(version) => {
                let gone = Arc::new(AtomicBool::new(false));
                let beat = tokio::spawn(beat(place.clone(), path.clone(), version, gone.clone()));
                return Ok(Held::Object { place: Box::new(place.clone()), path, gone, beat });
            }
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(Error::NotImplemented { .. }) => {
                bail!("{} cannot say who works on it: it has no conditional writes", place.shown())
            }
            Err(error) => return Err(error).with_context(|| format!("cannot write {path}")),
        }
        let found = match place.object_store().get(&path).await {
            Ok(found) => found,
            // Given back at this moment.
            Err(Error::NotFound { .. }) => {
                mode = PutMode::Create;
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        };
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let held = String::from_utf8_lossy(&found.bytes().await?).into_owned();
        let last = held.split(' ').next().and_then(|last| last.parse::<i64>().ok());
        if last.is_some_and(|last| now.saturating_sub(last) < STALE) {
            bail!("{} is being worked on ({held}); if nobody does, wait ten minutes", place.shown());
        }
        mode = PutMode::Update(version);
    }
    bail!("{} is being worked on by another process", place.shown())
}

/// Says that the holder is there, until it cannot.
async fn beat(place: Place, path: Path, mut version: UpdateVersion, gone: Arc<AtomicBool>) {
    loop {
        tokio::time::sleep(EVERY).await;
        match put(&place, &path, now(), PutMode::Update(version.clone())).await {
            Ok(next) => version = next,
            Err(Error::Precondition { .. } | Error::NotFound { .. }) => {
                gone.store(true, Ordering::Relaxed);
                return;
            }
            // It may answer the next time; if not, someone else takes over, which the time after that tells.
            Err(_) => {}
        }
    }
}

async fn put(place: &Place, path: &Path, now: i64, mode: PutMode) -> object_store::Result<UpdateVersion> {
    let text = format!("{now} {}", owner());
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
    async fn a_directory_is_free_when_its_holder_is_not_there_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::open(folder.path().to_str().unwrap()).unwrap();
        let lock = Lock::take(&place).await.unwrap();
        lock.check().unwrap();
        let told = Lock::take(&place).await.unwrap_err().to_string();
        assert!(told.contains("is being worked on by process"), "{told}");
        // As when a process is killed: nobody gave it back.
        drop(lock);
        Lock::take(&place).await.unwrap().release().await.unwrap();
        Lock::take(&place).await.unwrap();
    }

    #[tokio::test]
    async fn of_those_who_find_an_object_stale_one_takes_over() {
        let place = Place::open("memory:///store").unwrap();
        let held = Lock(in_object_store(&place, now()).await.unwrap());
        let told = in_object_store(&place, now()).await.unwrap_err().to_string();
        assert!(told.contains("is being worked on (") && told.contains("ten minutes"), "{told}");
        let later = now() + STALE;
        let both = tokio::join!(in_object_store(&place, later), in_object_store(&place, later));
        let (one, two) = (both.0.is_ok(), both.1.is_ok());
        assert!(one != two, "{one} {two}");
        // The one that stood still notices when it says that it is there.
        let Held::Object { gone, path, .. } = &held.0 else { panic!("{held:?}") };
        let old = UpdateVersion { e_tag: Some("0".into()), version: None };
        let beat = put(&place, path, now(), PutMode::Update(old)).await.unwrap_err();
        assert!(matches!(beat, Error::Precondition { .. }), "{beat}");
        gone.store(true, Ordering::Relaxed);
        assert!(held.check().unwrap_err().to_string().contains("taken over"));
        held.release().await.unwrap();
        // It was not its own to remove.
        assert!(place.object_store().head(&place.root_file(NAME)).await.is_ok());
    }
}
