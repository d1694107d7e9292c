//! Native memory that was allocated and not freed, as a model. async-profiler (`nativemem`) records each sampled `malloc` with its stack
//! and each `free`; the difference is what a leak looks like. Its converter calls this `--leak`.
//!
//! Memory: of the events at most [`MOST`] are held until they are put in order of time, of the allocations those that are not freed, up
//! to the bound of the view `native-leaks`.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use crate::live::{self, Fields, Item, Value};
use crate::model::{EventKind, Frame, Id, Model, SampleKey, Stack, Unit, Weight};
use crate::view::Unfreed as Held;

/// The type of allocations.
pub const MALLOC: &str = "profiler.Malloc";
const FREE: &str = "profiler.Free";
/// The variant of [`MALLOC`] that was not freed.
pub const LIVE: &str = "live";

/// Events that are held until they are put in order of time: threads write on their own, so a free may come before its allocation.
const MOST: usize = 1 << 20;
/// Stacks of the stream that are remembered.
const MOST_STACKS: usize = 1 << 16;

/// Takes the items of a recording with native allocations, in the order of the file.
#[derive(Debug)]
pub struct Unfreed {
    /// ns since 1970, both ends included.
    range: [i64; 2],
    model: Model,
    held: Held,
    /// Distinct keys; allocations have their positions.
    keys: Vec<SampleKey>,
    positions: HashMap<SampleKey, usize, KeyHash>,
    /// By address; the stacks are kept, so that it stays theirs.
    stacks: HashMap<usize, (Arc<live::Stack>, Id<Stack>), KeyHash>,
}

impl Unfreed {
    /// Takes allocations and frees from the first to the second moment, in ns since 1970.
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

    /// What the reader of a recording has to hand out.
    pub fn wanted() -> live::Options {
        let samples = [MALLOC, FREE].map(str::to_owned).to_vec();
        live::Options { samples, ..live::Options::default() }
    }

    /// Takes an item.
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
            // Without a field for a stack it is no sample.
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

    /// The allocations that are left, and how many there was no room for.
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

    /// The position of the key of an allocation.
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
            stack.frames.iter().map(|frame| self.model.frames.intern(frame.of_model())).collect();
        let id = self.model.stacks.intern(Stack { frames: frames.into(), truncated: stack.truncated });
        self.stacks.insert(address, (stack.clone(), id));
        id
    }
}

fn address(fields: &Fields) -> Option<i64> {
    live::field(fields, "address").and_then(Value::integer)
}
