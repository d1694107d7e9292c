//! Items of a recording → batches whose samples have their spans.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flightline_consumer::live::{Item, Kind, Sample, Stack};
use flightline_consumer::model::Thread;
use flightline_consumer::spans::{self, Joiner, Limits, Listener, SpanKey, Taken, Told};

use crate::batch::{Batch, Observed};
use crate::context::Span;
use crate::resource::Attributes;

/// How samples wait for their spans. Within a chunk records lie in any order, a stream tells how far it is complete.
const LIMITS: Limits = Limits { pending: 1 << 19, ..Limits::STREAM };

/// Takes the items of recordings, files or streams, and gives batches.
///
/// Samples wait until nothing older of their thread is to come, whatever the order, as
/// [`Joiner`] has it; those that still wait when a batch is taken are in one of the next.
#[derive(Debug)]
pub struct Collector {
    listener: Listener,
    joiner: Joiner<Observed>,
    batch: Batch,
    stacks: Stacks,
    /// Spans that went on when they were told last: in a repository at the end of each chunk.
    open: HashMap<SpanKey, (spans::Span, Option<Arc<Thread>>)>,
}

/// Stacks that came before. Each chunk has its own, of which most are like those of the one before it: samples that wait, and batches, hold
/// each of them once.
#[derive(Debug, Default)]
struct Stacks {
    known: HashSet<Arc<Stack>>,
    /// Frames of these.
    frames: usize,
    /// Those of the present chunk by address; they are kept, so that it stays theirs.
    met: HashMap<usize, (Arc<Stack>, Arc<Stack>)>,
}

/// Frames of stacks that are known again; then all are forgotten.
const MOST_FRAMES: usize = 1 << 20;

impl Stacks {
    /// The stack, or the one that is equal to it.
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
        // Within one endless chunk they may be looked up again and again.
        if self.met.len() > MOST_FRAMES / 16 {
            self.met.clear();
        }
        self.met.insert(address, (stack.clone(), known.clone()));
        known
    }
}

/// Spans that go on and are kept until they end; more are given as they are.
const MOST_OPEN: usize = 1 << 16;

impl Collector {
    /// An empty one. `given` are attributes of all resources, which count more than what recordings say.
    pub fn new(given: Attributes) -> Self {
        let (listener, joiner) = (Listener::new(), Joiner::new(LIMITS, None));
        Self { listener, joiner, batch: Batch::new(given), stacks: Stacks::default(), open: HashMap::new() }
    }

    /// Takes what is of use of an item.
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

    /// Samples whose spans are settled.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether nothing is settled.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// What became of samples and spans on their way to each other, since the beginning.
    pub fn counts(&self) -> spans::Counts {
        self.joiner.counts()
    }

    /// Gives what is settled, and begins a batch anew.
    pub fn cut(&mut self) -> Batch {
        let next = self.batch.next();
        std::mem::replace(&mut self.batch, next)
    }

    /// Gives all that is left: nothing follows.
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

    fn told(&mut self, told: Told) {
        let Self { joiner, batch, open, .. } = self;
        match told {
            Told::Context(thread, time, context) => {
                let number = joiner.number(&thread);
                joiner.context(number, time, context);
            }
            Told::Scope(thread, scope) => {
                let number = joiner.number(&thread);
                joiner.scope(number, scope);
            }
            Told::Span(thread, span) => {
                joiner.span(&span);
                if span.open && open.len() < MOST_OPEN {
                    open.insert(span.key, (span, thread));
                } else {
                    open.remove(&span.key);
                    batch.told(&span, thread.as_deref());
                }
            }
            Told::Interval(thread, span) => {
                let number = joiner.number(&thread);
                let span = joiner.interval(number, span);
                batch.told(&span, Some(&*thread));
            }
            Told::Endpoint(root, name) => batch.endpoint_of(root, name),
            Told::Watermark(time) => {
                joiner.watermark(time);
                self.advance();
            }
        }
    }

    fn sample(&mut self, sample: &Sample) {
        // Starts and ends of threads have no stack and stand for nothing.
        if sample.stack.is_none() && sample.kind == Kind::Other {
            return;
        }
        let stack = sample.stack.as_ref().map(|stack| self.stacks.known(stack));
        let taken = Taken::new(sample, Observed::new(sample, stack));
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

    /// Stacks and samples of a recording that comes so many times.
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
    fn stacks_of_all_chunks_are_held_once() {
        let (stacks, samples) = held(1);
        assert!(stacks > 5 && samples >= stacks, "{stacks} {samples}");
        assert_eq!(held(4), (stacks, 4 * samples));
    }

    #[test]
    fn a_span_that_was_told_while_it_went_on_is_given_once() {
        let span = |id: u64, end: i64, open: bool| {
            let key = SpanKey::of(id).unwrap();
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
            collector.told(Told::Span(None, told));
        }
        let given = |batch: &Batch| -> Vec<(u64, i64)> {
            batch.spans.iter().map(|span| (span.span_id, span.end)).collect()
        };
        assert_eq!(given(&collector.cut()), [(1, 30)]);
        assert_eq!(given(&collector.finish()), [(2, 40)]);
    }
}
