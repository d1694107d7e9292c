//! Delivers chunks to the store. A delivery is a set of files that becomes visible atomically.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flightline_consumer::live::keyed::{self, Keyed};
use flightline_consumer::live::{self, Feed, Item};
use jfr_format::pool::KeyHash;
use object_store::path::Path;
use twox_hash::XxHash3_64;

use super::chunks::{Chunk, chunks};
use super::encode::{Encoded, encode};
use super::rows::{Rows, Shared};
use crate::footer::{Id, Provenance};
use crate::layout::{Day, Partition, Table, check_service};
use crate::storage::{Storage, while_files_change};

/// Input buffer size in bytes.
const PIECE: usize = 1 << 20;
/// Number of footers read concurrently.
const AT_ONCE: usize = 32;
/// Limits of the cache of stacks already written; after that they are written again.
const MOST_STACKS: usize = 4 << 20;
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Maximum number of warnings reported per recording; the rest is counted.
const MOST_WARNINGS: usize = 8;

/// Options for adding recordings.
#[derive(Clone, Debug)]
pub struct Options {
    /// Service that was recorded.
    pub service: String,
    /// Labels for all samples. A sample's own labels take precedence.
    pub labels: Vec<(String, String)>,
    /// Event types by name or as `cpu`, `wall`, …; empty selects all.
    pub events: Vec<String>,
    /// Keep source lines.
    pub lines: bool,
    /// Also add chunks that are not finished. If they grow later, they are added again as different chunks.
    pub unfinished: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            service: String::new(),
            labels: Vec::new(),
            events: Vec::new(),
            lines: true,
            unfinished: false,
        }
    }
}

/// Result of adding a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Chunks added.
    pub chunks: u64,
    /// Chunks that were already in the store.
    pub known: u64,
    /// Unfinished chunks that were skipped.
    pub unfinished: u64,
    /// Samples.
    pub rows: u64,
    /// Loss records in the recording.
    pub losses: u64,
    /// Number of files written.
    pub files: u64,
    /// Size of these files in bytes.
    pub bytes: u64,
    /// The first warnings about unreadable data.
    pub warnings: Vec<String>,
    /// Number of warnings.
    pub warned: u64,
}

impl Added {
    /// Adds the counters of `other`.
    pub fn add(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.known += other.known;
        self.unfinished += other.unfinished;
        self.rows += other.rows;
        self.losses += other.losses;
        self.files += other.files;
        self.bytes += other.bytes;
        self.warned += other.warned;
        self.warnings.extend(other.warnings);
    }

    fn warn(&mut self, text: String) {
        self.warned += 1;
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push(text);
        }
    }
}

/// Writes to a store. Several writers may work concurrently, in one process or in many.
#[derive(Debug)]
pub struct Writer {
    place: Storage,
    pub(super) options: Options,
    pub(super) shared: Shared,
    /// Chunks in the store by day, for the days that were looked up.
    known: Mutex<HashMap<Day, HashSet<Id>>>,
    /// Stacks that this writer has stored, and the age of this cache.
    stacks: Mutex<(Instant, Stacks)>,
}

/// By day.
type Stacks = HashMap<Day, HashSet<i64, KeyHash>>;

impl Writer {
    /// Creates a writer for one service.
    ///
    /// # Errors
    /// Returns an error if the service name is invalid.
    pub fn new(place: Storage, options: Options) -> Result<Self> {
        check_service(&options.service)?;
        let labels = options.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into()));
        let shared = Shared { labels: labels.collect(), lines: options.lines };
        Ok(Self {
            place,
            options,
            shared,
            known: Mutex::default(),
            stacks: Mutex::new((Instant::now(), Stacks::default())),
        })
    }

    /// Adds a recording; skips chunks that are already in the store.
    ///
    /// # Errors
    /// Returns an error if it is not a recording, its timestamps span too many days, or the store cannot be
    /// read or written. Files written until then are complete; adding the recording again completes it.
    pub async fn add(&self, recording: &[u8]) -> Result<Added> {
        let mut added = Added::default();
        let mut delivery: Vec<Chunk<'_>> = Vec::new();
        for chunk in chunks(recording)? {
            if !chunk.finished && !self.options.unfinished {
                added.unfinished += 1;
            } else if self.is_known(&chunk).await? {
                added.known += 1;
            } else {
                // A delivery covers one start day, which determines where it is looked up.
                if delivery.last().is_some_and(|last| last.day != chunk.day) {
                    self.deliver(&std::mem::take(&mut delivery), &mut added).await?;
                }
                delivery.push(chunk);
            }
        }
        self.deliver(&delivery, &mut added).await?;
        Ok(added)
    }

    async fn is_known(&self, chunk: &Chunk<'_>) -> Result<bool> {
        let known =
            |known: &HashMap<Day, HashSet<Id>>| known.get(&chunk.day).map(|ids| ids.contains(&chunk.id));
        if let Some(known) = known(&self.lock()) {
            return Ok(known);
        }
        let there = while_files_change(|| self.there(chunk.day)).await?;
        let mut all = self.lock();
        all.entry(chunk.day).or_default().extend(there);
        Ok(known(&all).unwrap_or(false))
    }

    /// Returns the chunks of a day that are in the store.
    async fn there(&self, day: Day) -> Result<HashSet<Id>> {
        use futures::{StreamExt, TryStreamExt};

        let partition = Partition { day, service: self.options.service.clone() };
        let files = self.place.list(Table::Samples, Some(&partition)).await?;
        let read =
            |file: crate::storage::Listed| async move { anyhow::Ok(self.place.footer(&file.meta).await?.1) };
        let mut told = futures::stream::iter(files).map(read).buffer_unordered(AT_ONCE);
        let mut there = HashSet::new();
        while let Some(told) = told.try_next().await? {
            there.extend(told.chunks_complete());
        }
        Ok(there)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Day, HashSet<Id>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if this writer has stored a stack for a day.
    fn has(&self, day: Day, stack: i64) -> bool {
        let stacks = self.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        stacks.1.get(&day).is_some_and(|stacks| stacks.contains(&stack))
    }

    fn remember(&self, day: Day, fresh: Vec<i64>) {
        let mut stacks = self.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        // Retention may remove unreferenced stacks of past days, so the cache expires.
        if stacks.0.elapsed() > REMEMBERED || stacks.1.values().map(HashSet::len).sum::<usize>() > MOST_STACKS
        {
            *stacks = (Instant::now(), Stacks::default());
        }
        stacks.1.entry(day).or_default().extend(fresh);
    }

    async fn deliver(&self, chunks: &[Chunk<'_>], added: &mut Added) -> Result<()> {
        let Some(first) = chunks.first() else { return Ok(()) };
        let ids: Vec<Id> = chunks.iter().map(|chunk| chunk.id).collect();
        let mut parts = Parts::new(self, first.day, self.delivery_id(&ids));
        let mut reader = keyed::Reader::new(&self.options.events);
        let mut plain = 0;
        for (chunk, &id) in chunks.iter().zip(&ids) {
            let Some(keyed) = reader.read(chunk.bytes) else { break };
            self.take_keyed(&keyed, id, &mut parts, added).await?;
            plain += 1;
        }
        if plain < chunks.len() {
            // The previous chunk may define the sampling period.
            let from = plain.saturating_sub(1);
            self.take_others(&chunks[from..], plain - from, &mut parts, added).await?;
        }
        parts.finish(added).await?;
        added.chunks += chunks.len() as u64;
        self.lock().entry(first.day).or_default().extend(ids);
        Ok(())
    }

    /// Adds a chunk that was read at once.
    async fn take_keyed(
        &self,
        keyed: &Keyed,
        id: Id,
        parts: &mut Parts<'_>,
        added: &mut Added,
    ) -> Result<()> {
        parts.rows.chunk(id);
        for loss in &keyed.losses {
            parts.rows.loss(loss);
        }
        let mut at = 0;
        while at < keyed.rows.len() {
            at = parts.rows.keyed(keyed, at, &self.shared);
            if parts.rows.full() {
                parts.put(added).await?;
                parts.rows.chunk(id);
            }
        }
        Ok(())
    }

    /// Adds chunks item by item. The first `passed` chunks only provide state for the others.
    async fn take_others(
        &self,
        chunks: &[Chunk<'_>],
        passed: usize,
        parts: &mut Parts<'_>,
        added: &mut Added,
    ) -> Result<()> {
        let mut feed = Feed::new(self.feed_options());
        // Start of each chunk in the input.
        let mut begins: Vec<u64> = Vec::with_capacity(chunks.len());
        let mut fed = 0;
        for chunk in chunks {
            begins.push(fed);
            fed += chunk.bytes.len() as u64;
        }
        let at = |offset: u64| begins.partition_point(|&begin| begin <= offset).saturating_sub(1);
        let mut now = 0;
        if passed == 0 {
            parts.rows.chunk(chunks[now].id);
        }
        for (number, chunk) in chunks.iter().enumerate() {
            let end = if number + 1 == chunks.len() { Some(None) } else { None };
            for piece in chunk.bytes.chunks(PIECE).map(Some).chain(end) {
                match piece {
                    Some(piece) => feed.push(piece),
                    None => feed.close(),
                }
                while let Some(item) = feed.next() {
                    match item {
                        Item::ChunkStart(start) if at(start.offset) != now => {
                            now = at(start.offset);
                            parts.rows.chunk(chunks[now].id);
                        }
                        Item::Warning(warning) => {
                            let of = at(warning.offset);
                            let byte = chunks[of].offset + warning.offset.saturating_sub(begins[of]);
                            added.warn(format!("byte {byte}: {}", warning.message));
                        }
                        _ if now < passed => {}
                        Item::Sample(sample) => parts.rows.sample(&sample, &self.shared),
                        Item::Loss(loss) => parts.rows.loss(&loss),
                        _ => {}
                    }
                    if parts.rows.full() {
                        parts.rows.settle(|event| feed.period(event));
                        parts.put(added).await?;
                        parts.rows.chunk(chunks[now].id);
                    }
                }
            }
            // The sampling period may be recorded after the samples.
            parts.rows.settle(|event| feed.period(event));
        }
        Ok(())
    }

    /// Options for reading streams and recordings.
    pub fn feed_options(&self) -> live::Options {
        live::Options { samples: self.options.events.clone(), others: false, ..live::Options::default() }
    }

    /// The id includes the options: the same chunks with other options are other files.
    fn delivery_id(&self, chunks: &[Id]) -> Id {
        let Options { service, labels, events, lines, .. } = &self.options;
        let text = format!("{service:?} {labels:?} {events:?} {lines} {chunks:?}");
        Id(XxHash3_64::oneshot(text.as_bytes()))
    }
}

/// The files of a delivery.
pub(super) struct Parts<'w> {
    writer: &'w Writer,
    pub(super) rows: Rows,
    id: Id,
    /// Day of the file that marks the delivery as complete.
    day: Day,
    parts: u32,
    /// That file, written after all others.
    last: Option<(Path, Vec<u8>)>,
}

impl<'w> Parts<'w> {
    pub(super) fn new(writer: &'w Writer, day: Day, id: Id) -> Self {
        Self { writer, rows: Rows::default(), id, day, parts: 0, last: None }
    }

    /// Writes the collected rows.
    async fn put(&mut self, added: &mut Added) -> Result<()> {
        let mut rows = std::mem::take(&mut self.rows);
        let first = self.parts == 0;
        if rows.is_empty() && !first {
            return Ok(());
        }
        let (day, id) = (self.day, self.id);
        let told = |of: Day, rows: &Rows| {
            let told = Provenance {
                chunks: [(id, rows.chunks.clone())].into(),
                complete: if first && of == day { vec![id] } else { Vec::new() },
                labels: rows.labels.renamed(),
                ..Provenance::default()
            };
            told.text()
        };
        let known = |day: Day, stack: i64| self.writer.has(day, stack);
        let encoded = encode(&mut rows, first.then_some(day), known, told)?;
        for of_day in encoded {
            self.put_day(of_day, added).await?;
        }
        self.parts += 1;
        Ok(())
    }

    async fn put_day(&mut self, of_day: Encoded, added: &mut Added) -> Result<()> {
        let place = &self.writer.place;
        let name = format!("{}-{:04}.parquet", self.id, self.parts);
        let partition = Partition { day: of_day.day, service: self.writer.options.service.clone() };
        added.rows += of_day.rows;
        added.losses += of_day.lost;
        // Write stacks before the samples that refer to them.
        let dictionary =
            of_day.dictionary.into_iter().flat_map(|files| Table::DICTIONARY.into_iter().zip(files));
        for (table, bytes) in dictionary.chain(of_day.losses.map(|bytes| (Table::Losses, bytes))) {
            added.files += 1;
            added.bytes += bytes.len() as u64;
            place.put(&place.path(table, &partition, &name), bytes).await?;
        }
        self.writer.remember(of_day.day, of_day.fresh);
        added.files += 1;
        added.bytes += of_day.samples.len() as u64;
        let path = place.path(Table::Samples, &partition, &name);
        if self.parts == 0 && of_day.day == self.day {
            self.last = Some((path, of_day.samples));
            return Ok(());
        }
        place.put(&path, of_day.samples).await
    }

    /// Writes the rest, which makes the delivery visible.
    pub(super) async fn finish(mut self, added: &mut Added) -> Result<()> {
        self.put(added).await?;
        let (path, bytes) = self.last.take().context("a delivery without its last file")?;
        self.writer.place.put(&path, bytes).await
    }
}
