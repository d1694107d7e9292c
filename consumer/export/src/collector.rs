//! Items of a recording → batches whose samples have their spans.

use std::sync::Arc;

use flightline_consumer::live::{Item, Kind, Sample};
use flightline_consumer::spans::{self, Joiner, Limits, Listener, Taken, Told};

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
}

impl Collector {
    /// An empty one. `given` are attributes of all resources, which count more than what recordings say.
    pub fn new(given: Attributes) -> Self {
        Self { listener: Listener::new(), joiner: Joiner::new(LIMITS, None), batch: Batch::new(given) }
    }

    /// Takes what is of use of an item.
    pub fn take(&mut self, item: &Item) {
        if let Some(told) = self.listener.take(item) {
            self.told(told);
        }
        match item {
            Item::Sample(sample) => self.sample(sample),
            Item::Other(event) if *event.event == *"flightline.Label" => self.batch.resources.take(event),
            Item::ChunkStart(_) | Item::Segment(_) => self.advance(),
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
        let Self { joiner, batch, .. } = self;
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
        let Self { joiner, batch, .. } = self;
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
                batch.told(&span, thread.as_deref());
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
        let taken = Taken::new(sample, Observed::new(sample));
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
