//! What a store needs now and then: few files instead of many, sums of samples by time, and an end to what is old.
//!
//! ```text
//! sums: samples of chunks that no sum has ─► samples_minute, samples_hour, samples_day
//! compact: files of a folder ─► one that says which it replaces; then these go
//! retain: days that are too old, of each table by itself; stacks that nothing refers to
//! ```
//! One at a time works on a store; writers and readers do not wait for it.

mod compact;
mod fold;
mod lock;
mod retain;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::footer::Id;
use crate::layout::{Partition, Table};
use crate::place::{Listed, Place};
use crate::query::files::{Read, read};
pub use lock::Lock;

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Sums are made by these times.
    pub sums: Vec<Table>,
    /// Labels that sums have; none: those of few values.
    pub labels: Option<Vec<String>>,
    /// Files of a folder from which on they become one.
    pub files: usize,
    /// Files younger than this are left as they are.
    pub younger: Duration,
    /// How long rows of a table are kept, from the end of their day on; of those that are not named for good.
    pub keep: BTreeMap<Table, Duration>,
    /// Only tell.
    pub dry_run: bool,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows of sums made.
    pub summed: u64,
    /// Files that became fewer.
    pub compacted: u64,
    /// Files that they became.
    pub into: u64,
    /// Files removed as they were too old.
    pub expired: u64,
    /// Their bytes.
    pub expired_bytes: u64,
    /// Folders that are left as they were, and why.
    pub failed: Vec<String>,
    /// It was told to stop before it was through.
    pub stopped: bool,
    /// What else there is to say.
    pub notes: Vec<String>,
}

impl Done {
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// The files of a folder by table.
pub(crate) type Folder = BTreeMap<Table, Vec<Listed>>;

/// Works on a store.
#[derive(Debug)]
pub struct Maintainer {
    place: Place,
    options: Options,
    /// ms since 1970.
    now: i64,
    /// Deliveries that are in the store as a whole.
    complete: BTreeSet<Id>,
    lock: Option<Arc<Lock>>,
}

impl Maintainer {
    /// Of the store at `place`, as if it were `now`, in ms since 1970.
    pub fn new(place: Place, options: Options, now: i64) -> Self {
        Self { place, options, now, complete: BTreeSet::new(), lock: None }
    }

    /// Makes sums, compacts, and removes what is too old, folder by folder, until `stop` says so. A folder in which something is wrong is told,
    /// and left as it is.
    ///
    /// # Errors
    /// The store cannot be listed, or someone else works on it.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<Done> {
        let lock = match self.options.dry_run {
            true => None,
            false => Some(Arc::new(Lock::take(&self.place).await?)),
        };
        // Whatever it is at, is whole or not there.
        let outcome = tokio::select! {
            outcome = self.all(lock.clone()) => outcome,
            () = stop => Ok(Done { stopped: true, ..Done::default() }),
        };
        if let Some(lock) = lock {
            lock.release().await?;
        }
        outcome
    }

    async fn all(&self, lock: Option<Arc<Lock>>) -> Result<Done> {
        let mut folders = self.folders().await?;
        let mut done = Done::default();
        let complete = sums::complete(&self.place, &folders).await;
        let knowing =
            Self { place: self.place.clone(), options: self.options.clone(), now: self.now, complete, lock };
        for (partition, folder) in &mut folders {
            knowing.still_mine().await?;
            if let Err(error) = knowing.of_folder(partition, folder, &mut done).await {
                done.failed.push(format!("{}: {error:#}", partition.folder()));
            }
        }
        Ok(done)
    }

    async fn folders(&self) -> Result<BTreeMap<Partition, Folder>> {
        let mut folders: BTreeMap<Partition, Folder> = BTreeMap::new();
        for table in Table::ALL {
            for file in self.place.list(table, None).await? {
                folders.entry(file.partition.clone()).or_default().entry(table).or_default().push(file);
            }
        }
        Ok(folders)
    }

    async fn of_folder(&self, partition: &Partition, folder: &mut Folder, done: &mut Done) -> Result<()> {
        self.sum(partition, folder, done).await?;
        let raw_gone = self.retain(partition, folder, done).await?;
        if raw_gone && !self.options.dry_run {
            self.forget_stacks(partition, folder, done).await?;
        }
        self.compact(partition, folder, done).await
    }

    /// What files of a table say of themselves.
    async fn read(&self, of: Table, files: Vec<Listed>) -> Result<Read> {
        read(&self.place, of, files, &self.complete).await
    }

    async fn still_mine(&self) -> Result<()> {
        match &self.lock {
            Some(lock) => lock.check().await,
            None => Ok(()),
        }
    }

    /// Writes a file, if nobody else has taken over meanwhile: what it is made of may be in another by then.
    async fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        self.still_mine().await?;
        self.place.put(path, bytes).await
    }

    /// Whether a table's rows of a day have been kept for long enough.
    fn is_too_old(&self, table: Table, partition: &Partition) -> bool {
        let Some(keep) = self.options.keep.get(&table) else { return false };
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        self.now.saturating_sub(partition.day.end() / 1000) > keep
    }

    /// The sums that are made of a day: not those that would go at once.
    fn levels(&self, partition: &Partition) -> impl Iterator<Item = Table> {
        self.options.sums.iter().copied().filter(|&level| !self.is_too_old(level, partition))
    }

    /// Whether a file was last written so many ms ago, or earlier.
    fn is_older(&self, file: &ObjectMeta, age: i64) -> bool {
        self.now.saturating_sub(file.last_modified.timestamp_millis()) >= age
    }
}
