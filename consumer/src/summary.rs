//! Summary of a recording: chunks, time, events by type, lost samples, hottest functions.

mod ends;
mod facts;
mod ledger;
mod report;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use jfr_format::error::Error as ReadError;
use jfr_format::read::{
    Batch, ChunkEnd, Class, Decoder, Delivery, Filter, Input, Item, Recording, TypeCount,
};

use crate::error::Error;
use crate::fold::{self, FoldOptions};
use crate::load::{LoadOptions, Loader, is_sample};
use crate::warnings::Warnings;
use ends::Ends;
use facts::Facts;

pub use ledger::{Cause, Ledger, ThreadTime};
pub use report::{Overview, Report};

/// Maximum size of stored events with facts per chunk, in bytes; those of a JVM take less than 100 KB.
const MOST_FACTS: usize = 1 << 20;

/// Builds a [`Report`] from the items of a decoder.
#[derive(Debug, Default)]
pub struct Summary {
    loader: Loader,
    ledger: Ledger,
    ends: Ends,
    events: BTreeMap<String, TypeCount>,
    /// Numbers of events by sample type.
    with_stack: BTreeMap<String, u64>,
    chunks: Vec<ChunkFacts>,
    last_nanos: Option<i64>,
    /// Events to process once the chunk's constants are known.
    kept: Vec<StoredEvents>,
    /// Size of the stored events of the chunk, in bytes.
    fact_bytes: usize,
    facts: Facts,
    /// True if the start of every event is read.
    all: bool,
}

#[derive(Debug)]
struct StoredEvents {
    type_id: u64,
    payload: Vec<u8>,
    offset: u64,
}

/// Selects the data of a summary besides counts.
#[derive(Clone, Debug, Default)]
struct Scope {
    /// Full names of the types whose samples are added up; `None`: all types with stack traces.
    samples: Option<Vec<String>>,
    /// Read the start of every event, because no header has the duration of the recording.
    all: bool,
}

/// The content of a chunk's header, and whether the chunk is complete.
#[derive(Clone, Copy, Debug)]
struct ChunkFacts {
    version: (u16, u16),
    start_nanos: i64,
    duration_nanos: i64,
    size: u64,
    complete: bool,
}

/// Reads a recording that is completely available, on up to `jobs` threads. The report does not depend on
/// their number. It has at most `top` functions; 0 skips samples. `progress` is called with the number of
/// bytes processed by all threads.
///
/// # Errors
/// It is not a recording.
pub fn read_recording(
    recording: &Recording,
    top: usize,
    jobs: usize,
    progress: impl Fn(u64) + Sync,
) -> Result<(Report, Warnings), Error> {
    read_recordings(std::slice::from_ref(recording), top, jobs, progress)
}

/// Like [`read_recording`], for several recordings that are consecutive parts of one: the chunks of a
/// repository.
///
/// # Errors
/// One of them is not a recording.
pub fn read_recordings(
    recordings: &[Recording],
    top: usize,
    jobs: usize,
    progress: impl Fn(u64) + Sync,
) -> Result<(Report, Warnings), Error> {
    let first = if top > 0 { fold::FIRST_LOADED } else { &[] };
    let mut scope = Scope { samples: Some(first.iter().map(|&n| n.to_owned()).collect()), all: false };
    let mut summary = read(recordings, &scope, jobs, &progress)?;
    let without_time = !summary.chunks.is_empty() && summary.chunks.iter().all(|c| c.duration_nanos <= 0);
    let other = summary.other_samples().filter(|_| top > 0);
    if without_time || other.is_some() {
        // Reading rare recordings twice is better than reading all recordings more slowly.
        scope.all = without_time;
        scope.samples = other.map(|name| vec![name]).or(scope.samples);
        summary = read(recordings, &scope, jobs, &progress)?;
    }
    summary.finish(top)
}

fn read(
    recordings: &[Recording],
    scope: &Scope,
    jobs: usize,
    progress: &(impl Fn(u64) + Sync),
) -> Result<Summary, Error> {
    let done = AtomicU64::new(0);
    let part = |decoder: &mut Decoder| {
        if !scope.all {
            let scope = scope.clone();
            decoder.set_filter(move |class| scope.event_filter(class));
        }
        let mut summary = Summary::new(scope);
        let mut at = decoder.consumed();
        while let Some(item) = decoder.next() {
            let ends = matches!(item, Item::ChunkEnd(_));
            summary.take(item)?;
            if ends {
                let passed = decoder.consumed() - std::mem::replace(&mut at, decoder.consumed());
                progress(done.fetch_add(passed, Ordering::Relaxed) + passed);
            }
        }
        Ok(summary)
    };
    let mut sum: Option<Summary> = None;
    for recording in recordings {
        recording.run_grouped(Delivery::KeysOnly, jobs, part, |part: Result<Summary, ReadError>| {
            match &mut sum {
                Some(sum) => sum.merge(part?),
                None => sum = Some(part?),
            }
            Ok::<(), Error>(())
        })?;
    }
    Ok(sum.unwrap_or_else(|| Summary::new(scope)))
}

/// Reads a stream to its end; see [`read_recording`].
///
/// # Errors
/// The source cannot be read, or is not a recording.
pub fn read_stream<R: Read>(
    input: &mut Input<R>,
    top: usize,
    mut progress: impl FnMut(u64),
) -> Result<(Report, Warnings), Error> {
    let mut summary = Summary::new(&Scope { samples: (top == 0).then(Vec::new), all: true });
    loop {
        progress(input.consumed());
        let Some(item) = input.next()? else { return summary.finish(top) };
        summary.take(item)?;
    }
}

impl Scope {
    fn event_filter(&self, class: &Class) -> Filter {
        let name = &*class.name;
        let sample = self.samples.as_ref().is_none_or(|samples| samples.iter().any(|sample| sample == name));
        if Ledger::knows(name)
            || Ends::knows(name)
            || Facts::needs_constants(name)
            || (sample && is_sample(class))
        {
            Filter::Constants
        } else if Facts::knows(name) || name == "jdk.ActiveSetting" {
            Filter::Plain
        } else {
            Filter::Skip
        }
    }
}

impl Summary {
    fn new(scope: &Scope) -> Self {
        let loader = match &scope.samples {
            // A name that no type has.
            Some(none) if none.is_empty() => {
                LoadOptions { events: vec![String::new()], ..LoadOptions::default() }
            }
            Some(names) => LoadOptions { events: names.clone(), ..LoadOptions::default() },
            None => LoadOptions::default(),
        };
        Self { loader: Loader::new(loader), all: scope.all, ..Self::default() }
    }

    /// Merges a later part of the recording.
    fn merge(&mut self, later: Self) {
        self.loader.merge(later.loader.finish());
        self.ledger.merge(later.ledger);
        self.ends.merge(later.ends);
        for (name, count) in later.events {
            let sum = self.events.entry(name).or_default();
            sum.events += count.events;
            sum.bytes += count.bytes;
        }
        for (name, count) in later.with_stack {
            *self.with_stack.entry(name).or_default() += count;
        }
        self.chunks.extend(later.chunks);
        self.last_nanos = self.last_nanos.max(later.last_nanos);
        self.facts.merge(later.facts);
    }

    fn take(&mut self, item: Item<'_>) -> Result<(), ReadError> {
        match &item {
            Item::Events(batch) => self.batch(batch),
            Item::ChunkEnd(end) => self.chunk_end(end),
            Item::ChunkStart(_) | Item::Warning(_) => {}
        }
        self.loader.take(item)
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        let types = &batch.chunk().types;
        let told = |class: &Class| {
            Ledger::knows(&class.name) || Ends::knows(&class.name) || Facts::knows(&class.name)
        };
        let told: Vec<u64> =
            types.classes().iter().filter(|class| told(class)).map(|class| class.id).collect();
        let is_fact = |class: &Class| Facts::knows(&class.name);
        let facts: Vec<u64> =
            types.classes().iter().filter(|class| is_fact(class)).map(|class| class.id).collect();
        for frame in batch.frames() {
            if self.all
                && let Some(nanos) = batch.event(&frame).and_then(|event| event.start_nanos())
            {
                self.last_nanos = Some(self.last_nanos.map_or(nanos, |last| last.max(nanos)));
            }
            if told.contains(&frame.type_id) {
                if facts.contains(&frame.type_id) {
                    self.fact_bytes = self.fact_bytes.saturating_add(frame.payload.len());
                    if self.fact_bytes > MOST_FACTS {
                        continue;
                    }
                }
                let payload = frame.payload.to_vec();
                self.kept.push(StoredEvents { type_id: frame.type_id, payload, offset: frame.offset });
            }
        }
    }

    fn chunk_end(&mut self, end: &ChunkEnd<'_>) {
        // Streams return events once their constants are known, which would change the first fact.
        self.kept.sort_by_key(|event| event.offset);
        self.fact_bytes = 0;
        for StoredEvents { type_id, payload, offset } in self.kept.drain(..) {
            if let Some(event) = end.chunk.event(type_id, &payload, offset) {
                self.ledger.take(&event);
                self.ends.take(&event);
                self.facts.take(&event);
            }
        }
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
            let class = end.chunk.types.by_id(type_id);
            if let Some(class) = class.filter(|class| is_sample(class)) {
                *self.with_stack.entry(class.name.to_string()).or_default() += count.events;
            }
        }
        for class in end.chunk.types.classes().iter().filter(|class| class.is_event()) {
            self.events.entry(class.name.to_string()).or_default();
        }
    }

    /// Returns the type with stack traces to load if the recording has none of the types that were loaded
    /// first.
    fn other_samples(&self) -> Option<String> {
        if fold::FIRST_LOADED.iter().any(|&name| self.with_stack.contains_key(name)) {
            return None;
        }
        fold::else_loaded(&self.with_stack).map(str::to_owned)
    }

    fn finish(self, top: usize) -> Result<(Report, Warnings), Error> {
        let loaded = self.loader.finish();
        let mut options = FoldOptions { split_modules: true, ..FoldOptions::default() };
        options.measure = fold::usual_measure(&loaded.model, &options)?;
        let functions = fold::functions(&loaded.model, &options)?;
        let event = fold::selected_names(&loaded.model, &options).join(", ");
        let report = Report::new(functions, event, self.ledger, self.events, &self.chunks, top)
            .with_ends(self.ends)
            .with_end(self.last_nanos)
            .with_facts(self.facts)
            .with_samples(self.with_stack);
        Ok((report, loaded.warnings))
    }
}
