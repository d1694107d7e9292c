//! Maintenance of a store: compaction, aggregation of samples by time, and retention.
//!
//! ```text
//! sums: samples of chunks that are not aggregated yet ─► samples_minute, samples_hour, samples_day
//! compact: files of a folder ─► one file that lists the files it replaces; then removes these
//! retain: removes expired days of each table, and unreferenced stacks
//! ```
//! One process maintains a store at a time; writers and readers do not wait for it.
//!
//! If it is killed at any moment, no data is lost or counted twice.

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
use crate::query::files::{Read, read};
use crate::storage::{Listed, Storage};
pub use lock::Lock;

/// Options of the maintenance.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Tables of aggregated samples to produce.
    pub sums: Vec<Table>,
    /// Labels of the aggregated samples; `None` selects those with few values.
    pub labels: Option<Vec<String>>,
    /// Minimum number of files in a folder to compact.
    pub files: usize,
    /// Files younger than this are not touched.
    pub younger: Duration,
    /// Retention by table, from the end of the rows' day. Tables that are not listed are kept forever.
    pub keep: BTreeMap<Table, Duration>,
    /// Report only.
    pub dry_run: bool,
}

/// Result of the maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Aggregated rows written.
    pub summed: u64,
    /// Files that were merged.
    pub compacted: u64,
    /// Files that they were merged into.
    pub into: u64,
    /// Expired files that were removed.
    pub expired: u64,
    /// Size of the expired files in bytes.
    pub expired_bytes: u64,
    /// Folders that were skipped, and why.
    pub failed: Vec<String>,
    /// True if it was stopped before it was finished.
    pub stopped: bool,
    /// Additional messages.
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

/// Maintains a store.
#[derive(Debug)]
pub struct Maintainer {
    place: Storage,
    options: Options,
    /// ms since 1970.
    now: i64,
    /// Complete deliveries.
    complete: BTreeSet<Id>,
    lock: Option<Arc<Lock>>,
}

impl Maintainer {
    /// Creates a maintainer of the store at `place`. `now` is the current time in ms since 1970.
    pub fn new(place: Storage, options: Options, now: i64) -> Self {
        Self { place, options, now, complete: BTreeSet::new(), lock: None }
    }

    /// Aggregates, compacts and expires, folder by folder, until `stop` completes. A folder with errors is
    /// reported and skipped.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, or another process maintains it.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<Done> {
        let lock = match self.options.dry_run {
            true => None,
            false => Some(Arc::new(Lock::take(&self.place).await?)),
        };
        // Each step is atomic, so it is safe to stop here.
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
            if let Err(error) = knowing.maintain_folder(partition, folder, &mut done).await {
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

    async fn maintain_folder(
        &self,
        partition: &Partition,
        folder: &mut Folder,
        done: &mut Done,
    ) -> Result<()> {
        self.sum(partition, folder, done).await?;
        let raw_gone = self.retain(partition, folder, done).await?;
        if raw_gone && !self.options.dry_run {
            self.forget_stacks(partition, folder, done).await?;
        }
        self.compact(partition, folder, done).await
    }

    /// Reads the footers of a table's files.
    async fn read(&self, of: Table, files: Vec<Listed>) -> Result<Read> {
        read(&self.place, of, files, &self.complete).await
    }

    async fn still_mine(&self) -> Result<()> {
        match &self.lock {
            Some(lock) => lock.check().await,
            None => Ok(()),
        }
    }

    /// Writes a file if the lock is still held. Otherwise another process may have merged the same input.
    async fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        self.still_mine().await?;
        self.place.put(path, bytes).await
    }

    /// Returns true if a table's rows of a day have expired.
    fn is_too_old(&self, table: Table, partition: &Partition) -> bool {
        let Some(keep) = self.options.keep.get(&table) else { return false };
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        self.now.saturating_sub(partition.day.end() / 1000) > keep
    }

    /// Returns the aggregated tables to produce for a day, without those that would expire immediately.
    fn levels(&self, partition: &Partition) -> impl Iterator<Item = Table> {
        self.options.sums.iter().copied().filter(|&level| !self.is_too_old(level, partition))
    }

    /// Returns true if a file was written at least `age` ms ago.
    fn is_older(&self, file: &ObjectMeta, age: i64) -> bool {
        self.now.saturating_sub(file.last_modified.timestamp_millis()) >= age
    }
}
