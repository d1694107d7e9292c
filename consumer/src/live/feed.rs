//! Decodes bytes to items without doing I/O, and verifies segments.
//!
//! ```text
//!   push(bytes) ─┬─► Decoder ─► runs of events ─► plan of the type ─► held ─┬─ flightline.Segment: right ─► items
//!                └─► window: CRC-32 ───────────────────────────────────────►┴─ wrong ─► warning, loss; next chunk
//! ```
//! In chunks that declare `flightline.Segment` and have their size in the header from the start, as
//! streams of Flightline do, items are held until the checksum of their segment was verified.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use jfr_format::read::{Chunk, ChunkEnd, Decoder, Delivery, Frame, Item as Read, Run};

use super::cache::Cache;
use super::clock::Clock;
use super::item::{Item, Warning};
use super::plan::{ItemFilter, Plan, Plans};
use super::segments::Segments;
use super::{Options, Stats, events};
use crate::decode::settings::Settings;

/// Items decoded ahead; the rest stays encoded in the stream.
const AHEAD: usize = 256;
/// Events examined at a time to make these items.
const LOOKED_AT: usize = 4096;

/// Decodes a stream that arrives in pieces of any length.
///
/// ```no_run
/// use flightline_consumer::live::{Feed, Options};
///
/// # fn received() -> Option<&'static [u8]> { None }
/// let mut feed = Feed::new(Options::default());
/// while let Some(bytes) = received() {
///     feed.push(bytes);
///     while let Some(item) = feed.next() {
///         println!("{item:?}");
///     }
/// }
/// feed.close();
/// while let Some(item) = feed.next() {
///     println!("{item:?}");
/// }
/// ```
#[derive(Debug)]
pub struct Feed {
    decoder: Decoder,
    state: State,
    /// Bytes received.
    received: u64,
    memory: u64,
}

/// State that is independent of the decoder.
#[derive(Debug)]
pub(super) struct State {
    pub(super) wanted: ItemFilter,
    /// Offset in the stream at which the decoder started.
    pub(super) base: u64,
    runs: VecDeque<Run>,
    pub(super) segments: Segments,
    plans: Plans,
    pub(super) cache: Cache,
    pub(super) settings: Settings,
    /// Settings of the chunk before, if both chunks are of the same recorder.
    pub(super) settings_before: Settings,
    /// See [`Options::periods`].
    pub(super) periods: BTreeMap<Arc<str>, u64>,
    pub(super) clock: Clock,
    pub(super) stats: Stats,
    /// For samples that are requested only as duration events: the duration in ns below which only the
    /// time is read.
    pub(super) shortest: u64,
    /// Offset up to which events have been returned.
    passed: u64,
    /// Bytes of constants of the current chunk.
    constants: u64,
    chunks: u32,
}

impl Feed {
    /// Creates a decoder without input.
    pub fn new(options: Options) -> Self {
        let Options { samples, others, lasting, periods, memory } = options;
        let wanted = ItemFilter { no_others: !others, lasting, ..ItemFilter::from_names(&samples) };
        Self {
            decoder: Decoder::new(Delivery::Streaming),
            state: State::new(wanted, periods),
            received: 0,
            memory,
        }
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        self.state.segments.window.push(bytes);
        self.decoder.push(Bytes::copy_from_slice(bytes));
    }

    /// For samples that are requested only as duration events: omits the fields of those that lasted less
    /// than `nanos`. A caller that stores only the longest events does not need them.
    pub fn plain_below(&mut self, nanos: u64) {
        self.state.shortest = nanos;
    }

    /// Signals the end of the input.
    pub fn close(&mut self) {
        self.decoder.close();
    }

    /// Returns the next item; `None` if more input is needed or, after [`close`](Self::close), nothing is
    /// left.
    #[allow(clippy::should_implement_trait)] // `None` is not the end
    pub fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.state.segments.ready.pop_front() {
                self.state.stats.count(&item);
                return Some(item);
            }
            if let (Some(run), Some(chunk)) = (self.state.runs.pop_front(), self.decoder.chunk()) {
                self.state.run(run, chunk);
                continue;
            }
            let more = match self.decoder.next() {
                Some(item) => {
                    self.state.take(item);
                    true
                }
                None => false,
            };
            if !more {
                self.state.settled(self.decoder.consumed());
                if !self.too_large() {
                    return None;
                }
            }
        }
    }

    /// Returns the time in ns that a sample of this type represents, if the current chunk, or the one
    /// before it of the same recorder, has stated it. In a recording without segments, it may follow
    /// after the samples.
    pub fn period(&self, event: &str) -> Option<u64> {
        let State { settings, settings_before, .. } = &self.state;
        settings.period(event).or_else(|| settings_before.period(event))
    }

    /// Returns statistics of the input so far.
    pub fn stats(&self) -> Stats {
        let cache = &self.state.cache;
        Stats {
            bytes: self.received,
            unresolved: cache.unresolved,
            contexts_unused: self.state.segments.contexts.unused,
            stack_lookups: cache.stack_lookups,
            frame_lookups: cache.frame_lookups,
            ..self.state.stats
        }
    }

    /// If the current chunk exceeds the memory limit, skips to the next chunk and returns true.
    fn too_large(&mut self) -> bool {
        let behind = self.received.saturating_sub(self.state.passed);
        if behind <= self.memory && self.state.constants <= self.memory {
            return false;
        }
        let message = format!(
            "a chunk keeps more than {} bytes in memory before its events can be read: it is left out from byte {} on",
            self.memory, self.state.passed
        );
        self.decoder = Decoder::new(Delivery::Streaming);
        self.state.give_up(self.received, message);
        true
    }
}

impl State {
    pub(super) fn new(wanted: ItemFilter, periods: BTreeMap<Arc<str>, u64>) -> Self {
        Self {
            wanted,
            base: 0,
            runs: VecDeque::new(),
            segments: Segments::default(),
            plans: Plans::default(),
            cache: Cache::default(),
            settings: Settings::default(),
            settings_before: Settings::default(),
            periods,
            clock: Clock::default(),
            stats: Stats::default(),
            shortest: 0,
            passed: 0,
            constants: 0,
            chunks: 0,
        }
    }

    /// Processes an item of the decoder.
    fn take(&mut self, item: Read<'_>) {
        match item {
            Read::ChunkStart(chunk) => self.begin(chunk),
            Read::Events(batch) => {
                self.cache.more();
                self.settings.more(batch.chunk());
                self.segments.declared(batch.chunk(), self.base);
                self.runs.extend(batch.into_runs());
            }
            Read::ChunkEnd(end) => self.end(&end),
            Read::Warning(error) => {
                let damage = crate::warnings::is_damage(&error);
                self.warn(self.base + error.at(), error.to_string(), damage);
            }
        }
    }

    fn begin(&mut self, chunk: &Chunk) {
        let start = self.base + chunk.offset.0;
        self.passed = start;
        self.constants = 0;
        self.plans.clear();
        self.cache.begin(chunk);
        let goes_on = self.clock.begin(chunk);
        let before = std::mem::take(&mut self.settings);
        // A short chunk may have ended before its settings were written.
        if !goes_on || !before.is_empty() {
            self.settings_before = if goes_on { before } else { Settings::default() };
        }
        self.segments.begin(start, chunk, goes_on);
        let item = events::chunk_start(self, chunk, self.chunks);
        self.chunks = self.chunks.saturating_add(1);
        self.segments.ready.push_back(item);
    }

    /// Converts the next events of a run to items.
    fn run(&mut self, mut run: Run, chunk: &Chunk) {
        // The types may have been declared after the chunk's first events.
        let mut plans = std::mem::take(&mut self.plans);
        let mut looked_at = 0;
        let done = loop {
            if self.segments.ready.len() >= AHEAD || looked_at >= LOOKED_AT {
                break false;
            }
            looked_at += 1;
            let Some(frame) = run.next() else { break true };
            self.frame(&mut plans, &frame, chunk);
        };
        self.plans = plans;
        if done {
            self.passed = self.base + run.end();
            self.segments.passed(self.passed);
        } else {
            self.runs.push_front(run);
        }
    }

    fn frame(&mut self, plans: &mut Plans, frame: &Frame<'_>, chunk: &Chunk) {
        if frame.type_id <= u64::from(jfr_format::constants::CHECKPOINT_EVENT.0) {
            self.constants += u64::from(frame.size);
            return;
        }
        self.stats.events += 1;
        self.segments.count();
        let item = match plans.get(chunk, frame.type_id, &self.wanted) {
            Plan::Ignored => Ok(None),
            Plan::Setting => {
                events::setting(self, chunk, frame);
                Ok(None)
            }
            Plan::Anchor(binding) => events::anchor(self, chunk, frame, binding),
            Plan::Segment(binding) => events::segment(self, chunk, frame, binding),
            Plan::Loss(plan) => events::loss(self, chunk, frame, plan),
            Plan::Watermark => {
                self.segments.watermark();
                events::unless_unwanted(self, chunk, frame)
            }
            Plan::Sample(_) | Plan::Context(_) | Plan::Other(_) if self.segments.distrusted() => Ok(None),
            Plan::Context(binding) => events::context(self, chunk, frame, binding),
            Plan::Sample(plan) => events::sample(self, chunk, frame, plan),
            Plan::Other(contextual) => events::other(self, chunk, frame, contextual.clone()),
        };
        match item {
            Ok(Some(item)) => self.segments.put(item),
            Ok(None) => {}
            Err(error) => self.warn(self.base + error.at(), error.to_string(), true),
        }
    }

    fn end(&mut self, end: &ChunkEnd<'_>) {
        let at = self.base + end.chunk.offset.0 + end.size;
        self.segments.end(end.complete, at, self.clock.now());
        self.passed = at;
    }

    /// The decoder has processed the input up to `consumed` and needs more.
    fn settled(&mut self, consumed: u64) {
        self.segments.settled(self.base + consumed);
        if self.segments.between_chunks() {
            self.passed = self.passed.max(self.base + consumed);
        }
    }

    pub(super) fn warn(&mut self, offset: u64, message: String, damage: bool) {
        self.segments.ready.push_back(Item::Warning(Warning { offset, message, damage }));
    }

    fn give_up(&mut self, at: u64, message: String) {
        self.warn(self.passed, message, true);
        self.segments.end(false, at, self.clock.now());
        self.segments.settled(at);
        self.runs.clear();
        (self.base, self.passed, self.constants) = (at, at, 0);
    }
}
