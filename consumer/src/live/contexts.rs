//! Joins samples with the spans recorded for their threads and times, in any order.
//!
//! A recorder writes both in one flush. They are joined at its end: at a segment's checksum or a
//! watermark. Contexts are retained for one more flush.

use std::collections::HashMap;
use std::sync::Arc;

use super::item::Item;
use crate::model::Thread;
use crate::spans::SpanContext;

/// Contexts of one flush. If there are more, those of the flush before are discarded.
const MOST: usize = 1 << 16;

/// Ids of the thread, and ns since 1970. Thread names are not used because they change.
type Moment = (i64, i64, i64);

#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// The flag is true if a sample was found.
    now: HashMap<Moment, (Arc<SpanContext>, bool)>,
    before: HashMap<Moment, (Arc<SpanContext>, bool)>,
    /// Contexts for which no sample was found.
    pub(super) unused: u64,
}

impl Contexts {
    pub(super) fn put(&mut self, thread: &Thread, time: i64, context: Arc<SpanContext>) {
        if self.now.len() >= MOST {
            self.flushed();
        }
        self.now.insert(moment(thread, time), (context, false));
    }

    /// Sets the span of a sample.
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
        // The span in the sample itself takes precedence.
        if sample.span.is_none() {
            sample.span_id = Some(context.span.id()).filter(|&id| id != 0);
            sample.span = Some(context.clone());
        }
    }

    /// A flush has ended.
    pub(super) fn flushed(&mut self) {
        let now = std::mem::take(&mut self.now);
        let gone = std::mem::replace(&mut self.before, now);
        self.unused += gone.values().filter(|(_, used)| !used).count() as u64;
    }

    /// Discards the contexts since the last flush, because they may be damaged.
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

    fn joined_span(contexts: &mut Contexts, of: i64, time: i64) -> Option<u64> {
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
    fn contexts_match_thread_and_time_and_expire_after_two_flushes() {
        let mut contexts = Contexts::default();
        contexts.put(&thread(1), 10, context(5));
        assert_eq!([joined_span(&mut contexts, 1, 10), joined_span(&mut contexts, 2, 10)], [Some(5), None]);
        assert_eq!(joined_span(&mut contexts, 1, 11), None);
        contexts.put(&thread(2), 20, context(6));
        contexts.flushed();
        // A sample that arrives a flush later, and a second one of the same time.
        assert_eq!(
            [joined_span(&mut contexts, 2, 20), joined_span(&mut contexts, 1, 10)],
            [Some(6), Some(5)]
        );
        contexts.flushed();
        assert_eq!((joined_span(&mut contexts, 2, 20), contexts.unused), (None, 0));

        let many = 3 * MOST as i64;
        for time in 0..many {
            contexts.put(&thread(1), time, context(5));
        }
        assert!(contexts.now.len() + contexts.before.len() <= 2 * MOST);
        assert_eq!(joined_span(&mut contexts, 1, many - 1), Some(5));
        contexts.put(&thread(9), 1, context(9));
        contexts.distrust();
        assert_eq!(joined_span(&mut contexts, 9, 1), None);
        let kept = contexts.before.len() as u64;
        contexts.flushed();
        contexts.flushed();
        assert!(contexts.unused >= MOST as u64 && kept <= MOST as u64);
    }
}
