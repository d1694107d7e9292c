//! One at a time works on a store.

use anyhow::{Context, Result, bail};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use crate::place::Place;

/// The file that says so; no engine looks at it.
const NAME: &str = "_maintenance";
/// Whoever has held it for so long is not there any more, ms.
const STALE: i64 = 6 * 3_600_000;

/// The right to work on a store.
#[derive(Debug)]
pub struct Lock {
    place: Place,
    path: Path,
}

impl Lock {
    /// Takes it, at `now` in ms since 1970.
    ///
    /// # Errors
    /// Someone has it.
    pub async fn take(place: &Place, now: i64) -> Result<Self> {
        let path = place.root_file(NAME);
        let store = place.object_store();
        let text = format!("{now} process {}", std::process::id());
        for _ in 0..2 {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match store.put_opts(&path, text.clone().into_bytes().into(), options).await {
                Ok(_) => return Ok(Self { place: place.clone(), path }),
                Err(Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot write {path}")),
            }
            let held = store.get(&path).await.with_context(|| format!("cannot read {path}"))?.bytes().await?;
            let held = String::from_utf8_lossy(&held).into_owned();
            let since = held.split(' ').next().and_then(|since| since.parse::<i64>().ok());
            if since.is_some_and(|since| now.saturating_sub(since) < STALE) {
                bail!("{} is being worked on ({held}); if nobody does, remove {path}", place.shown());
            }
            place.remove(&path).await?;
        }
        bail!("{} is being worked on by another process", place.shown())
    }

    /// Gives it back.
    ///
    /// # Errors
    /// It cannot be removed.
    pub async fn release(self) -> Result<()> {
        self.place.remove(&self.path).await
    }
}
