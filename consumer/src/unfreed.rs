//! Builds a model of native memory that was allocated and not freed. async-profiler (`nativemem`) records
//! each sampled `malloc` with its stack and each `free`; the difference shows leaks. Its converter calls
//! this `--leak`.
//!
//! Memory is bounded: at most [`MOST`] events are held until they are sorted by time, and live
//! allocations are limited as in the view `native-leaks`.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use crate::live::{self, Fields, Item, Value};
use crate::model::{EventKind, Frame, Id, Model, SampleKey, Stack, Unit, Weight};
use crate::view::Unfreed as Held;

/// The type of allocation events.
pub const MALLOC: &str = "profiler.Malloc";
const FREE: &str = "profiler.Free";
/// The variant of [`MALLOC`] for memory that was not freed.
pub const LIVE: &str = "live";

/// Events held until they are sorted by time. Each thread writes its own events, so a free may precede
/// its allocation.
const MOST: usize = 1 << 20;
/// Maximum number of cached stacks of the stream.
const MOST_STACKS: usize = 1 << 16;

/// Processes the items of a recording with native allocations, in file order.
#[derive(Debug)]
pub struct Unfreed {
    /// Time range in ns since 1970, inclusive.
    range: [i64; 2],
    model: Model,
    held: Held,
    /// Distinct keys; allocations refer to them by index.
    keys: Vec<SampleKey>,
    positions: HashMap<SampleKey, usize, KeyHash>,
    /// By address. The stored references keep an address from being reused.
    stacks: HashMap<usize, (Arc<live::Stack>, Id<Stack>), KeyHash>,
}

impl Unfreed {
    /// Creates a collector for allocations and frees in `range` (inclusive, in ns since 1970).
    pub fn new(range: [i64; 2]) -> Self {
        Self {
            range,
            model: Model::default(),
            held: Held::default(),
            keys: Vec::new(),
            positions: HashMap::default(),
            stacks: HashMap::default(),
        }
    }

    /// Returns the options for the reader of the items.
    pub fn stream_options() -> live::Options {
        let samples = [MALLOC, FREE].map(str::to_owned).to_vec();
        live::Options { samples, ..live::Options::default() }
    }

    /// Processes an item.
    pub fn take(&mut self, item: &Item) {
        let time = match item {
            Item::Sample(sample) => sample.time.epoch_nanos,
            Item::Other(event) => event.time.epoch_nanos,
            _ => return,
        };
        if !(self.range[0]..=self.range[1]).contains(&time) {
            return;
        }
        self.model.widen((time, time));
        match item {
            Item::Sample(sample) if *sample.event == *MALLOC => {
                let Some(address) = address(&sample.fields) else { return };
                let position = self.position(sample);
                let size = i64::try_from(sample.weight.value).unwrap_or(i64::MAX);
                self.held.allocated(address, time, position, size);
            }
            Item::Sample(sample) if *sample.event == *FREE => self.freed(&sample.fields, time),
            // Without a field for a stack, the event is not a sample.
            Item::Other(event) if *event.event == *FREE => self.freed(&event.fields, time),
            _ => {}
        }
        if self.held.waiting() >= MOST {
            self.held.settle();
        }
    }

    fn freed(&mut self, fields: &Fields, time: i64) {
        if let Some(address) = address(fields) {
            self.held.freed(address, time);
        }
    }

    /// Returns the live allocations, and the number of those beyond the memory limit.
    pub fn finish(mut self) -> (Model, u64) {
        self.held.settle();
        let Self { mut model, held, keys, .. } = self;
        for (position, size) in held.left() {
            let Some(&key) = keys.get(position) else { continue };
            let weight = Weight { count: 1, value: u64::try_from(size).unwrap_or(0) };
            model.samples.entry(key).or_default().add(weight);
        }
        (model, held.lost())
    }

    /// Returns the index of an allocation's key.
    fn position(&mut self, sample: &live::Sample) -> usize {
        let stack = sample.stack.as_ref().map(|stack| self.stack(stack));
        let Self { model, keys, positions, .. } = self;
        let kind = EventKind {
            name: MALLOC.into(),
            variant: Some(LIVE.into()),
            unit: Unit::Bytes,
            period_nanos: None,
        };
        let key = SampleKey {
            kind: model.kinds.intern(kind),
            thread: sample.thread.as_ref().map(|thread| model.threads.intern((**thread).clone())),
            stack,
            state: None,
            class: None,
            title: None,
        };
        *positions.entry(key).or_insert_with(|| {
            keys.push(key);
            keys.len() - 1
        })
    }

    fn stack(&mut self, stack: &Arc<live::Stack>) -> Id<Stack> {
        let address = Arc::as_ptr(stack).addr();
        if let Some(&(_, id)) = self.stacks.get(&address) {
            return id;
        }
        if self.stacks.len() >= MOST_STACKS {
            self.stacks.clear();
        }
        let frames: Vec<Id<Frame>> =
            stack.frames.iter().map(|frame| self.model.frames.intern(frame.to_model())).collect();
        let id = self.model.stacks.intern(Stack { frames: frames.into(), truncated: stack.truncated });
        self.stacks.insert(address, (stack.clone(), id));
        id
    }
}

fn address(fields: &Fields) -> Option<i64> {
    live::field(fields, "address").and_then(Value::integer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{Event, Kind, Sample, Time, Weight as Stands};

    fn time(epoch_nanos: i64) -> Time {
        Time { epoch_nanos, monotonic_nanos: None }
    }

    fn address(address: i64) -> Fields {
        [("address".into(), Value::Integer(address))].into()
    }

    fn malloc(at: i64, of: i64, bytes: u64) -> Item {
        Item::Sample(Box::new(Sample {
            event: MALLOC.into(),
            kind: Kind::Allocation,
            variant: None,
            time: time(at),
            duration_nanos: None,
            thread: None,
            process_title: None,
            stack: None,
            state: None,
            weight: Stands { samples: 1, value: bytes, unit: Unit::Bytes },
            span_id: None,
            span: None,
            labels: None,
            fields: address(of),
            contextual: [].into(),
            offset: 0,
        }))
    }

    fn free(at: i64, of: i64) -> Item {
        let event = Event {
            event: FREE.into(),
            time: time(at),
            fields: address(of),
            contextual: [].into(),
            offset: 0,
        };
        Item::Other(event)
    }

    fn left(range: [i64; 2], items: &[Item]) -> (u64, u64) {
        let mut unfreed = Unfreed::new(range);
        items.iter().for_each(|item| unfreed.take(item));
        let (model, lost) = unfreed.finish();
        assert_eq!(lost, 0);
        let sums =
            model.samples.values().fold((0, 0), |sum, weight| (sum.0 + weight.count, sum.1 + weight.value));
        assert!(model.kinds.iter().all(|(_, kind)| kind.variant.as_deref() == Some(LIVE)));
        sums
    }

    #[test]
    fn unfreed_allocations_are_found_in_any_event_order() {
        let all = [i64::MIN, i64::MAX];
        // The thread that frees 1 wrote before the thread that allocated it. 2 is allocated again, 3 is
        // never freed.
        let items = [
            free(20, 1),
            malloc(10, 1, 100),
            malloc(30, 2, 50),
            free(40, 2),
            malloc(50, 2, 7),
            malloc(5, 3, 1_000),
            free(60, 9),
        ];
        assert_eq!(left(all, &items), (2, 1_007));
        // Up to a given time.
        assert_eq!(left([i64::MIN, 15], &items), (2, 1_100));
        assert_eq!(left([100, 200], &items), (0, 0));
    }
}
