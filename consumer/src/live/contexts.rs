//! The span of a sample: samples and the contexts told of their threads and times, in whatever order they come.
//!
//! A recorder tells both in one flush: they are joined when its end has come, a segment's checksum or a watermark. What was
//! told stays for one flush more.

use std::collections::HashMap;
use std::sync::Arc;

use super::item::Item;
use crate::model::Thread;
use crate::spans::SpanContext;

/// Contexts of one flush; with more, those of the flush before are forgotten.
const MOST: usize = 1 << 16;

/// Ids of the thread, and ns since 1970: names of threads change.
type Moment = (i64, i64, i64);

#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// And whether a sample came for it.
    now: HashMap<Moment, (Arc<SpanContext>, bool)>,
    before: HashMap<Moment, (Arc<SpanContext>, bool)>,
    /// Those that no sample came for.
    pub(super) unused: u64,
}

impl Contexts {
    pub(super) fn put(&mut self, thread: &Thread, time: i64, context: Arc<SpanContext>) {
        if self.now.len() >= MOST {
            self.flushed();
        }
        self.now.insert(moment(thread, time), (context, false));
    }

    /// Gives a sample its span.
    pub(super) fn give(&mut self, item: &mut Item) {
        let Item::Sample(sample) = item else { return };
        let Some(thread) = &sample.thread else { return };
        if self.now.is_empty() && self.before.is_empty() {
            return;
        }
        let moment = moment(thread, sample.time.epoch_nanos);
        let told = self.now.get_mut(&moment).or_else(|| self.before.get_mut(&moment));
        let Some((context, used)) = told else { return };
        *used = true;
        // What stands in the sample itself counts more.
        if sample.span.is_none() {
            sample.span_id = Some(context.span.id()).filter(|&id| id != 0);
            sample.span = Some(context.clone());
        }
    }

    /// A flush is over.
    pub(super) fn flushed(&mut self) {
        let now = std::mem::take(&mut self.now);
        let gone = std::mem::replace(&mut self.before, now);
        self.unused += gone.values().filter(|(_, used)| !used).count() as u64;
    }

    /// What was told since the last flush is not what was written.
    pub(super) fn distrust(&mut self) {
        self.now.clear();
    }
}

fn moment(thread: &Thread, time: i64) -> Moment {
    (thread.os_id, thread.java_id, time)
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Sample, Time, Weight};
    use super::*;
    use crate::model::Unit;
    use crate::spans::{SpanKey, TraceId};

    fn thread(id: i64) -> Arc<Thread> {
        Arc::new(Thread { os_id: id, ..Thread::default() })
    }

    fn context(span: u64) -> Arc<SpanContext> {
        Arc::new(SpanContext {
            span: SpanKey::Id(span),
            local_root: SpanKey::Id(1),
            trace: TraceId(7),
            flags: 1,
            labels: Arc::default(),
        })
    }

    fn span_of(contexts: &mut Contexts, of: i64, time: i64) -> Option<u64> {
        let mut item = Item::Sample(Box::new(Sample {
            event: "jdk.ExecutionSample".into(),
            kind: Kind::Cpu,
            variant: None,
            time: Time { epoch_nanos: time, monotonic_nanos: None },
            duration_nanos: None,
            thread: Some(thread(of)),
            process_title: None,
            stack: None,
            state: None,
            weight: Weight { samples: 1, value: 1, unit: Unit::Samples },
            span_id: None,
            span: None,
            labels: None,
            fields: Box::default(),
            contextual: Arc::default(),
            offset: 0,
        }));
        contexts.give(&mut item);
        let Item::Sample(sample) = item else { unreachable!() };
        assert_eq!(sample.span_id, sample.span.as_ref().map(|context| context.span.id()));
        sample.span_id
    }

    #[test]
    fn contexts_are_of_their_thread_and_time_for_two_flushes_and_bounded() {
        let mut contexts = Contexts::default();
        contexts.put(&thread(1), 10, context(5));
        assert_eq!([span_of(&mut contexts, 1, 10), span_of(&mut contexts, 2, 10)], [Some(5), None]);
        assert_eq!(span_of(&mut contexts, 1, 11), None);
        contexts.put(&thread(2), 20, context(6));
        contexts.flushed();
        // A sample that comes a flush later, and a second one of the same moment.
        assert_eq!([span_of(&mut contexts, 2, 20), span_of(&mut contexts, 1, 10)], [Some(6), Some(5)]);
        contexts.flushed();
        assert_eq!((span_of(&mut contexts, 2, 20), contexts.unused), (None, 0));

        let many = 3 * MOST as i64;
        for time in 0..many {
            contexts.put(&thread(1), time, context(5));
        }
        assert!(contexts.now.len() + contexts.before.len() <= 2 * MOST);
        assert_eq!(span_of(&mut contexts, 1, many - 1), Some(5));
        contexts.put(&thread(9), 1, context(9));
        contexts.distrust();
        assert_eq!(span_of(&mut contexts, 9, 1), None);
        let kept = contexts.before.len() as u64;
        contexts.flushed();
        contexts.flushed();
        assert!(contexts.unused >= MOST as u64 && kept <= MOST as u64);
    }
}
