//! What is in a recording: chunks, time, events by type, where samples were lost, what ran most.

mod ledger;
mod report;

use std::collections::BTreeMap;

use jfr_format::error::Error as ReadError;
use jfr_format::read::{Batch, ChunkEnd, Item, TypeCount};

use crate::error::Error;
use crate::fold::{self, FoldOptions};
use crate::load::{LoadOptions, Loader};
use crate::warnings::Warnings;

pub use ledger::{Cause, Ledger, ThreadTime};
pub use report::Report;

/// Builds a [`Report`] out of the items of a decoder.
#[derive(Debug, Default)]
pub struct Summary {
    loader: Loader,
    ledger: Ledger,
    events: BTreeMap<String, TypeCount>,
    chunks: Vec<ChunkFacts>,
    /// Whether events of a class of the current chunk are looked into, by `ClassIndex`.
    told: Vec<Option<bool>>,
    first_nanos: Option<i64>,
    last_nanos: Option<i64>,
    facts: BTreeMap<&'static str, String>,
}

/// What the header of a chunk says, and whether it was whole.
#[derive(Clone, Copy, Debug)]
struct ChunkFacts {
    version: (u16, u16),
    start_nanos: i64,
    duration_nanos: i64,
    size: u64,
    complete: bool,
}

impl Summary {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self { loader: Loader::new(LoadOptions::default()), ..Self::default() }
    }

    /// Takes one item in.
    ///
    /// # Errors
    /// The input turns out to be no recording at all.
    pub fn take(&mut self, item: Item<'_>) -> Result<(), ReadError> {
        match &item {
            Item::ChunkStart(_) => self.told.clear(),
            Item::Events(batch) => self.batch(batch),
            Item::ChunkEnd(end) => self.chunk_end(end),
            Item::Warning(_) => {}
        }
        self.loader.take(item)
    }

    /// What could not be read since the last call.
    pub fn take_warnings(&mut self) -> Warnings {
        self.loader.take_warnings()
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        for event in batch.events() {
            if let Some(nanos) = event.start_nanos() {
                self.first_nanos = Some(self.first_nanos.map_or(nanos, |first| first.min(nanos)));
                self.last_nanos = Some(self.last_nanos.map_or(nanos, |last| last.max(nanos)));
            }
            let index = event.class_index().index();
            if index >= self.told.len() {
                self.told.resize(index + 1, None);
            }
            let name = &event.class().name;
            let told = *self.told[index].get_or_insert_with(|| Ledger::knows(name) || report::is_fact(name));
            if told {
                self.ledger.take(&event);
                report::take_facts(&event, &mut self.facts);
            }
        }
    }

    fn chunk_end(&mut self, end: &ChunkEnd<'_>) {
        let header = &end.chunk.header;
        self.chunks.push(ChunkFacts {
            version: (header.major, header.minor),
            start_nanos: header.start_nanos,
            duration_nanos: header.duration_nanos,
            size: end.size,
            complete: end.complete,
        });
        for (type_id, count) in end.counts.iter() {
            let name = match type_id {
                0 => "jdk.Metadata".to_owned(),
                1 => "jdk.CheckPoint".to_owned(),
                id => end.chunk.types.by_id(id).map_or_else(|| format!("type {id}"), |c| c.name.to_string()),
            };
            let sum = self.events.entry(name).or_default();
            sum.events += count.events;
            sum.bytes += count.bytes;
        }
        for class in end.chunk.types.classes().iter().filter(|class| class.is_event()) {
            self.events.entry(class.name.to_string()).or_default();
        }
    }

    /// Adds everything up; `top` functions at most.
    ///
    /// # Errors
    /// None today; folding the samples may get some.
    pub fn finish(self, top: usize) -> Result<Report, Error> {
        let model = self.loader.finish().model;
        let options = FoldOptions { split_modules: true, ..FoldOptions::default() };
        let tree = fold::fold(&model, &options)?;
        Ok(Report::new(&model, &tree, self.ledger, self.events, &self.chunks, top)
            .with_times(self.first_nanos, self.last_nanos)
            .with_facts(self.facts))
    }
}
