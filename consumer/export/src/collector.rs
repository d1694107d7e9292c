//! Collects the items of a recording into batches and assigns samples to their spans.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flightline_consumer::live::{Item, Kind, Sample, Stack};
use flightline_consumer::model::Thread;
use flightline_consumer::spans::{self, JoinedSample, Joiner, Limits, Listener, SpanKey, SpanRecord};

use crate::batch::{Batch, Observed};
use crate::context::Span;
use crate::resource::Attributes;

/// Limits for samples that wait for their spans. Records of a chunk are in no particular order; a stream
/// reports up to which time it is complete.
const LIMITS: Limits = Limits { pending: 1 << 19, ..Limits::STREAM };

/// Collects items of recordings, from files or streams, into batches.
///
/// Samples wait until no older record of their thread can follow, as in [`Joiner`]. Samples that still
/// wait when a batch is cut go into a later batch.
#[derive(Debug)]
pub struct Collector {
    listener: Listener,
    joiner: Joiner<Observed>,
    batch: Batch,
    stacks: Stacks,
    /// Unfinished spans, as last reported. A repository reports them at the end of each chunk.
    open: HashMap<SpanKey, (spans::Span, Option<Arc<Thread>>)>,
}

/// Stacks of earlier items. Each chunk has its own copies, most of them equal to those of the chunk
/// before, so waiting samples and batches share one copy of each.
#[derive(Debug, Default)]
struct Stacks {
    known: HashSet<Arc<Stack>>,
    /// Number of frames in `known`.
    frames: usize,
    /// Stacks of the current chunk by address. The stored references keep an address from being reused.
    met: HashMap<usize, (Arc<Stack>, Arc<Stack>)>,
}

/// Frames of cached stacks. When there are more, the cache is cleared.
const MOST_FRAMES: usize = 1 << 20;

impl Stacks {
    /// Returns the cached stack that equals this one, and adds it if there is none.
    fn known(&mut self, stack: &Arc<Stack>) -> Arc<Stack> {
        let address = Arc::as_ptr(stack).addr();
        if let Some((_, known)) = self.met.get(&address) {
            return known.clone();
        }
        let known = match self.known.get(stack) {
            Some(known) => known.clone(),
            None => {
                if self.frames > MOST_FRAMES {
                    *self = Self::default();
                }
                self.frames += stack.frames.len() + 1;
                self.known.insert(stack.clone());
                stack.clone()
            }
        };
        // A chunk can be endless; its stacks are then looked up again.
        if self.met.len() > MOST_FRAMES / 16 {
            self.met.clear();
        }
        self.met.insert(address, (stack.clone(), known.clone()));
        known
    }
}

/// Unfinished spans that are stored until they end. Beyond that, spans are exported unfinished.
const MOST_OPEN: usize = 1 << 16;

impl Collector {
    /// Creates an empty collector. The attributes `given` apply to all resources and override those of
    /// recordings.
    pub fn new(given: Attributes) -> Self {
        let (listener, joiner) = (Listener::new(), Joiner::new(LIMITS, None));
        Self { listener, joiner, batch: Batch::new(given), stacks: Stacks::default(), open: HashMap::new() }
    }

    /// Processes an item.
    pub fn take(&mut self, item: &Item) {
        if let Some(told) = self.listener.take(item) {
            self.told(told);
        }
        match item {
            Item::Sample(sample) => self.sample(sample),
            Item::ChunkStart(_) => {
                self.stacks.met.clear();
                self.advance();
            }
            Item::Other(event) if *event.event == *"flightline.Label" => self.batch.resources.take(event),
            Item::Segment(_) => self.advance(),
            _ => {}
        }
        if self.joiner.is_full() {
            self.advance();
        }
    }

    /// Adds a span to the traces.
    pub fn span(&mut self, span: Span) {
        self.batch.span(span);
    }

    /// Number of samples whose spans are settled.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Returns true if nothing is settled.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Returns how many samples and spans were joined so far, and how many were not.
    pub fn counts(&self) -> spans::Counts {
        self.joiner.counts()
    }

    /// Returns the settled samples and spans as a batch and begins the next one.
    pub fn cut(&mut self) -> Batch {
        let next = self.batch.next();
        std::mem::replace(&mut self.batch, next)
    }

    /// Returns everything that is left, at the end of the input.
    pub fn finish(&mut self) -> Batch {
        self.undoubted();
        let Self { joiner, batch, open, .. } = self;
        let mut open: Vec<_> = open.drain().map(|(_, told)| told).collect();
        open.sort_by_key(|(span, _)| (span.start, span.key));
        open.iter().for_each(|(span, thread)| batch.told(span, thread.as_deref()));
        joiner.finish(&mut |part| batch.observe(&part), &mut |_| {});
        self.cut()
    }

    fn advance(&mut self) {
        self.undoubted();
        let Self { joiner, batch, .. } = self;
        joiner.advance(&mut |part| batch.observe(&part), &mut |_| {});
    }

    fn undoubted(&mut self) {
        self.listener.undoubted().into_iter().for_each(|told| self.told(told));
    }

    fn told(&mut self, told: SpanRecord) {
        let Self { joiner, batch, open, .. } = self;
        match told {
            SpanRecord::Context(thread, time, context) => {
                let number = joiner.number(&thread);
                joiner.context(number, time, context);
            }
            SpanRecord::Scope(thread, scope) => {
                let number = joiner.number(&thread);
                joiner.scope(number, scope);
            }
            SpanRecord::Span(thread, span) => {
                joiner.span(&span);
                if span.open && open.len() < MOST_OPEN {
                    open.insert(span.key, (span, thread));
                } else {
                    open.remove(&span.key);
                    batch.told(&span, thread.as_deref());
                }
            }
            SpanRecord::Interval(thread, span) => {
                let number = joiner.number(&thread);
                let span = joiner.interval(number, span);
                batch.told(&span, Some(&*thread));
            }
            SpanRecord::Endpoint(root, name) => batch.endpoint_of(root, name),
            SpanRecord::Watermark(time) => {
                joiner.watermark(time);
                self.advance();
            }
        }
    }

    fn sample(&mut self, sample: &Sample) {
        // Starts and ends of threads have no stack and no weight.
        if sample.stack.is_none() && sample.kind == Kind::Other {
            return;
        }
        let stack = sample.stack.as_ref().map(|stack| self.stacks.known(stack));
        let taken = JoinedSample::new(sample, Observed::new(sample, stack));
        match &sample.thread {
            Some(thread) => {
                let number = self.joiner.number(thread);
                self.joiner.sample(number, taken);
            }
            None => {
                let context: Option<&Arc<_>> = taken.own.as_ref();
                let (weight, time, lasts) = (taken.weight, taken.time, taken.lasts);
                self.batch.observe(&spans::Attributed { sample: &taken, weight, context, time, lasts });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flightline_consumer::live::{Feed, Options};

    use super::*;

    /// Numbers of stacks and of samples in the collector after reading a recording `times` times.
    fn held(times: usize) -> (usize, usize) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/jdk17-multichunk.jfr");
        let bytes = std::fs::read(path).unwrap();
        let mut collector = Collector::new(Attributes::default());
        let mut feed = Feed::new(Options { samples: vec!["cpu".into()], ..Options::default() });
        for left in (0..times).rev() {
            feed.push(&bytes);
            if left == 0 {
                feed.close();
            }
            while let Some(item) = feed.next() {
                collector.take(&item);
            }
        }
        let batch = collector.finish();
        (batch.stacks.len(), batch.len())
    }

    #[test]
    fn identical_stacks_across_chunks_are_stored_once() {
        let (stacks, samples) = held(1);
        assert!(stacks > 5 && samples >= stacks, "{stacks} {samples}");
        assert_eq!(held(4), (stacks, 4 * samples));
    }

    #[test]
    fn span_reported_while_open_is_exported_once() {
        let span = |id: u64, end: i64, open: bool| {
            let key = SpanKey::from_id(id).unwrap();
            let (trace, labels) = (spans::TraceId(7), Default::default());
            let (parent, samples, name) = (None, None, "shop".into());
            let local_root = key;
            let (start, flags) = (5, 1);
            spans::Span { key, name, trace, parent, local_root, start, end, flags, labels, open, samples }
        };
        let mut collector = Collector::new(Attributes::default());
        for told in
            [span(1, 10, true), span(2, 10, true), span(1, 20, true), span(1, 30, false), span(2, 40, true)]
        {
            collector.told(SpanRecord::Span(None, told));
        }
        let given = |batch: &Batch| -> Vec<(u64, i64)> {
            batch.spans.iter().map(|span| (span.span_id, span.end)).collect()
        };
        assert_eq!(given(&collector.cut()), [(1, 30)]);
        assert_eq!(given(&collector.finish()), [(2, 40)]);
    }
}
