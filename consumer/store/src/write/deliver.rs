//! Chunks → files of the store, whole deliveries of them.

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
use crate::footer::{Id, Told};
use crate::layout::{Day, Partition, Table, check_service};
use crate::place::{Place, while_files_change};

/// Bytes handed to the reader at a time.
const PIECE: usize = 1 << 20;
/// Footers read at the same time.
const AT_ONCE: usize = 32;
/// Stacks that a writer remembers, and for how long: then it writes them again.
const MOST_STACKS: usize = 4 << 20;
const REMEMBERED: Duration = Duration::from_secs(3600);
/// What could not be read that is told of each recording; the rest is counted.
const MOST_WARNINGS: usize = 8;

/// How recordings are taken in.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose samples they are.
    pub service: String,
    /// Labels of all of them. A sample's own of the same name counts.
    pub labels: Vec<(String, String)>,
    /// Samples of these types only, by name or as `cpu`, `wall`, …; empty: all.
    pub events: Vec<String>,
    /// Whether source lines are kept.
    pub lines: bool,
    /// Whether chunks are taken that nobody has ended: what is added to them later would come as another chunk.
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

/// What came of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Chunks taken in.
    pub chunks: u64,
    /// Chunks that were there already.
    pub known: u64,
    /// Chunks left out, as whoever writes them has not ended them.
    pub unfinished: u64,
    /// Samples.
    pub rows: u64,
    /// Losses told in the recording.
    pub losses: u64,
    /// Files written, and their bytes.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// What could not be read: the first of them.
    pub warnings: Vec<String>,
    /// How many there were.
    pub warned: u64,
}

impl Added {
    /// Adds up.
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

/// Writes into a store. Several can at the same time, in one process or many.
#[derive(Debug)]
pub struct Writer {
    place: Place,
    pub(super) options: Options,
    pub(super) shared: Shared,
    /// Chunks that the store has, by day, as far as it was looked.
    known: Mutex<HashMap<Day, HashSet<Id>>>,
    /// Stacks that this writer has put into the store, and since when they are remembered.
    stacks: Mutex<(Instant, Stacks)>,
}

/// By day.
type Stacks = HashMap<Day, HashSet<i64, KeyHash>>;

impl Writer {
    /// A writer of one service's samples.
    ///
    /// # Errors
    /// The service's name is none.
    pub fn new(place: Place, options: Options) -> Result<Self> {
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

    /// Takes in a recording: chunks that the store has are passed over.
    ///
    /// # Errors
    /// It is no recording, its times are of many days, or the store cannot be read or written. What was written of it until then is of whole
    /// files; taking it in again completes it.
    pub async fn add(&self, recording: &[u8]) -> Result<Added> {
        let mut added = Added::default();
        let mut delivery: Vec<Chunk<'_>> = Vec::new();
        for chunk in chunks(recording)? {
            if !chunk.finished && !self.options.unfinished {
                added.unfinished += 1;
            } else if self.is_known(&chunk).await? {
                added.known += 1;
            } else {
                // Where it is looked for again depends on the day it was begun.
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

    /// The chunks of a day that the store has.
    async fn there(&self, day: Day) -> Result<HashSet<Id>> {
        use futures::{StreamExt, TryStreamExt};

        let partition = Partition { day, service: self.options.service.clone() };
        let files = self.place.list(Table::Samples, Some(&partition)).await?;
        let read =
            |file: crate::place::Listed| async move { anyhow::Ok(self.place.footer(&file.meta).await?.1) };
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

    /// Whether this writer has put a stack into a day.
    fn has(&self, day: Day, stack: i64) -> bool {
        let stacks = self.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        stacks.1.get(&day).is_some_and(|stacks| stacks.contains(&stack))
    }

    fn remember(&self, day: Day, fresh: Vec<i64>) {
        let mut stacks = self.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        // Days that are over may lose stacks to which nothing refers any more.
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
            // What samples stand for may have been told in the chunk before.
            let from = plain.saturating_sub(1);
            self.take_others(&chunks[from..], plain - from, &mut parts, added).await?;
        }
        parts.finish(added).await?;
        added.chunks += chunks.len() as u64;
        self.lock().entry(first.day).or_default().extend(ids);
        Ok(())
    }

    /// Takes in a chunk that was read at once.
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

    /// Takes in chunks item by item, the first `passed` of which only say what the others go on from.
    async fn take_others(
        &self,
        chunks: &[Chunk<'_>],
        passed: usize,
        parts: &mut Parts<'_>,
        added: &mut Added,
    ) -> Result<()> {
        let mut feed = Feed::new(self.feed_options());
        // Where each begins in what is fed.
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
            // What samples stand for may be told behind them.
            parts.rows.settle(|event| feed.period(event));
        }
        Ok(())
    }

    /// How streams and recordings are read for this.
    pub fn feed_options(&self) -> live::Options {
        live::Options { samples: self.options.events.clone(), others: false, ..live::Options::default() }
    }

    /// The same chunks taken in otherwise are other files.
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
    /// Where the file is that says that the delivery is whole.
    day: Day,
    parts: u32,
    /// That file, until all others are there.
    last: Option<(Path, Vec<u8>)>,
}

impl<'w> Parts<'w> {
    pub(super) fn new(writer: &'w Writer, day: Day, id: Id) -> Self {
        Self { writer, rows: Rows::default(), id, day, parts: 0, last: None }
    }

    /// Writes the rows there are.
    async fn put(&mut self, added: &mut Added) -> Result<()> {
        let mut rows = std::mem::take(&mut self.rows);
        let first = self.parts == 0;
        if rows.is_empty() && !first {
            return Ok(());
        }
        let (day, id) = (self.day, self.id);
        let told = |of: Day, rows: &Rows| {
            let told = Told {
                chunks: [(id, rows.chunks.clone())].into(),
                complete: if first && of == day { vec![id] } else { Vec::new() },
                labels: rows.labels.renamed(),
                ..Told::default()
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
        // What samples refer to comes before them.
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

    /// Writes what is left; then the delivery is there.
    pub(super) async fn finish(mut self, added: &mut Added) -> Result<()> {
        self.put(added).await?;
        let (path, bytes) = self.last.take().context("a delivery without its last file")?;
        self.writer.place.put(&path, bytes).await
    }
}
