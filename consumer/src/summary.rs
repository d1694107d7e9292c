//! What is in a recording: chunks, time, events by type, where samples were lost, what ran most.

mod ledger;
mod report;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use jfr_format::error::Error as ReadError;
use jfr_format::read::{Batch, ChunkEnd, Class, Delivery, Input, Interest, Item, TypeCount};

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
    /// How many of the events have a stack trace, by type.
    with_stack: BTreeMap<String, u64>,
    chunks: Vec<ChunkFacts>,
    last_nanos: Option<i64>,
    /// Events to be looked into once the chunk's constants are known.
    kept: Vec<Kept>,
    facts: BTreeMap<&'static str, String>,
    /// Whether the start of every event is looked at.
    all: bool,
}

#[derive(Debug)]
struct Kept {
    type_id: u64,
    payload: Vec<u8>,
    offset: u64,
}

/// What a summary is to tell beside counts.
#[derive(Clone, Debug, Default)]
struct Scope {
    /// Full names of the types whose samples are added up; `None`: all that have stack traces.
    samples: Option<Vec<String>>,
    /// Look at every event's start, because no header tells how long the recording is.
    all: bool,
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

/// Reads the recording at `path`; `top` functions at most are told, with 0 no sample is looked at. `progress` is told
/// the bytes dealt with so far.
///
/// # Errors
/// The file cannot be read or is no recording.
pub fn of_file(path: &Path, top: usize, mut progress: impl FnMut(u64)) -> Result<(Report, Warnings), Error> {
    let preferred = if top > 0 { fold::PREFERRED } else { &[] };
    let mut scope = Scope { samples: Some(preferred.iter().map(|&n| n.to_owned()).collect()), all: false };
    let mut summary = read_file(path, &scope, &mut progress)?;
    let without_time = !summary.chunks.is_empty() && summary.chunks.iter().all(|c| c.duration_nanos <= 0);
    let other = summary.other_samples().filter(|_| top > 0);
    if without_time || other.is_some() {
        // What is rare is read again rather than all that is common more slowly.
        scope.all = without_time;
        scope.samples = other.map(|name| vec![name]).or(scope.samples);
        summary = read_file(path, &scope, &mut progress)?;
    }
    summary.finish(top)
}

fn read_file(path: &Path, scope: &Scope, progress: &mut impl FnMut(u64)) -> Result<Summary, Error> {
    let mut input = Input::open_for(path, Delivery::Unresolved)?;
    if !scope.all {
        let scope = scope.clone();
        input.decoder().select(move |class| scope.interest(class));
    }
    let mut summary = Summary::new(scope);
    while let Some(item) = input.next()? {
        if let Item::ChunkEnd(end) = &item {
            progress(end.chunk.offset.0.saturating_add(end.size));
        }
        summary.take(item)?;
    }
    Ok(summary)
}

/// Reads a stream to its end, see [`of_file`].
///
/// # Errors
/// The source cannot be read or is no recording.
pub fn of_stream<R: Read>(
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
    fn interest(&self, class: &Class) -> Interest {
        let name = &*class.name;
        let sample = self.samples.as_ref().is_none_or(|samples| samples.iter().any(|sample| sample == name));
        if Ledger::knows(name) || (sample && class.field_index("stackTrace").is_some()) {
            Interest::Constants
        } else if report::is_fact(name) || name == "jdk.ActiveSetting" {
            Interest::Plain
        } else {
            Interest::None
        }
    }
}

impl Summary {
    fn new(scope: &Scope) -> Self {
        let loader = match &scope.samples {
            // No type is called that.
            Some(none) if none.is_empty() => {
                LoadOptions { events: vec![String::new()], ..LoadOptions::default() }
            }
            Some(names) => LoadOptions { events: names.clone(), ..LoadOptions::default() },
            None => LoadOptions::default(),
        };
        Self { loader: Loader::new(loader), all: scope.all, ..Self::default() }
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
        let told = |class: &Class| Ledger::knows(&class.name) || report::is_fact(&class.name);
        let told: Vec<u64> =
            types.classes().iter().filter(|class| told(class)).map(|class| class.id).collect();
        for frame in batch.frames() {
            if self.all
                && let Some(nanos) = batch.event(&frame).and_then(|event| event.start_nanos())
            {
                self.last_nanos = Some(self.last_nanos.map_or(nanos, |last| last.max(nanos)));
            }
            if told.contains(&frame.type_id) {
                let payload = frame.payload.to_vec();
                self.kept.push(Kept { type_id: frame.type_id, payload, offset: frame.offset });
            }
        }
    }

    fn chunk_end(&mut self, end: &ChunkEnd<'_>) {
        for Kept { type_id, payload, offset } in self.kept.drain(..) {
            if let Some(event) = end.chunk.event(type_id, &payload, offset) {
                self.ledger.take(&event);
                report::take_facts(&event, &mut self.facts);
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
            if let Some(class) = class.filter(|class| class.field_index("stackTrace").is_some()) {
                *self.with_stack.entry(class.name.to_string()).or_default() += count.events;
            }
        }
        for class in end.chunk.types.classes().iter().filter(|class| class.is_event()) {
            self.events.entry(class.name.to_string()).or_default();
        }
    }

    /// The most frequent type with stack traces, if there are events of such but none of CPU or wall-clock samples.
    fn other_samples(&self) -> Option<String> {
        if fold::PREFERRED.iter().any(|&name| self.with_stack.contains_key(name)) {
            return None;
        }
        let most = self.with_stack.iter().max_by_key(|&(_, &count)| count)?;
        Some(most.0.clone())
    }

    fn finish(self, top: usize) -> Result<(Report, Warnings), Error> {
        let loaded = self.loader.finish();
        let options = FoldOptions { split_modules: true, ..FoldOptions::default() };
        let tree = fold::fold(&loaded.model, &options)?;
        let report = Report::new(&loaded.model, &tree, self.ledger, self.events, &self.chunks, top)
            .with_end(self.last_nanos)
            .with_facts(self.facts);
        Ok((report, loaded.warnings))
    }
}
