//! Reads a whole chunk at once and represents its samples by small numbers, for callers that read
//! millions of them. Constants that samples share are resolved once, at the end of the chunk, and samples
//! are not allocated individually.
//!
//! This works for undamaged chunks of plain samples. For all others, use [`Feed`](super::Feed).
//!
//! For the same chunk, this module and `Feed` give the same samples.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use jfr_format::error::Error;
use jfr_format::pool::KeyHash;
use jfr_format::read::{
    Batch, Binding, Chunk, Class, Decoder, Delivery, Filter, Frame as Event, Item as Read,
};

use super::cache::Cache;
use super::clock::Clock;
use super::events::{lost, span_context};
use super::item::{Frame, Loss, Time};
use super::plan::{ItemFilter, Plan, SamplePlan};
use crate::decode::losses::LossPlan;
use crate::decode::resolver::RawFrame;
use crate::decode::schema::{Detail, values};
use crate::decode::settings::Settings;
use crate::model::{Thread, Unit};
use crate::spans::SpanContext;

/// Input buffer size. Small enough for malloc to recycle; larger buffers would be mapped and zeroed on
/// every read.
const PIECE: usize = 64 << 10;
/// Maximum size of a chunk in bytes; samples need five times as much memory here.
const LARGEST: usize = 64 << 20;
/// Maximum number of samples in a chunk, and of their contexts.
const MOST: usize = 6 << 20;
/// The index that means "none".
pub const NONE: u32 = u32::MAX;

/// A sample. Indexes refer to the lists of [`Keyed`], or are [`NONE`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Time in ns since 1970.
    pub epoch_nanos: i64,
    /// Duration in ns, if its kind has one.
    pub duration_nanos: u64,
    /// Number of samples that it represents.
    pub samples: u64,
    /// Value in the unit of its kind; undefined if that is [`Unit::Samples`].
    pub value: u64,
    /// Index in `kinds`.
    pub kind: u32,
    /// Index in `threads`.
    pub thread: u32,
    /// Index in `stacks`.
    pub stack: u32,
    /// Index in `states`.
    pub state: u32,
    /// Index in `variants`.
    pub variant: u32,
    /// Index in `classes`.
    pub class: u32,
    /// Index in `contexts`.
    pub context: u32,
}

/// Properties that samples of one type share.
#[derive(Clone, Debug)]
pub struct KindOf {
    /// Event type.
    pub event: Arc<str>,
    /// Unit of the values.
    pub unit: Unit,
    /// True if the events have a duration.
    pub lasts: bool,
    /// Time in ns that a sample represents, if the event has no value and the recording states the time.
    pub period: Option<u64>,
}

/// A stack: the range of its frames in `steps`, leaf first.
#[derive(Clone, Copy, Debug)]
pub struct StackOf {
    begin: usize,
    end: usize,
    /// The outermost frames are missing.
    pub truncated: bool,
}

/// The samples of a chunk. `None` in a list is a key without a constant.
#[derive(Debug, Default)]
pub struct Keyed {
    /// Samples in the order of the chunk.
    pub rows: Vec<Row>,
    /// Event types.
    pub kinds: Vec<KindOf>,
    /// Threads.
    pub threads: Vec<Option<Arc<Thread>>>,
    /// Stacks.
    pub stacks: Vec<Option<StackOf>>,
    /// Distinct frames.
    pub frames: Vec<Frame>,
    /// Indexes in `frames`, stack after stack.
    steps: Vec<u32>,
    /// States of threads.
    pub states: Vec<Option<Arc<str>>>,
    /// Variants of event types that have several.
    pub variants: Vec<Option<Arc<str>>>,
    /// Classes of the objects that were allocated, waited for or thrown, as in source (`byte[]`).
    pub classes: Vec<Option<Arc<str>>>,
    /// Active spans of samples.
    pub contexts: Vec<Option<Arc<SpanContext>>>,
    /// Losses that the chunk reports.
    pub losses: Vec<Loss>,
}

/// Reads consecutive chunks of one recorder.
#[derive(Debug, Default)]
pub struct Reader {
    wanted: ItemFilter,
    clock: Clock,
    /// Sampling periods of the chunk before, if it is of the same recorder.
    before: Vec<(Arc<str>, u64)>,
}

impl Keyed {
    fn resolve_stacks(&mut self, chunk: &Chunk, keys: &[u64], cache: &mut Cache) -> Result<(), Error> {
        let mut frames: HashMap<RawFrame, u32, KeyHash> = HashMap::default();
        let mut raw = Vec::new();
        for &key in keys {
            let begin = self.steps.len();
            let truncated = cache.constants.stack(chunk, key, &mut raw)?;
            for frame in &raw {
                let place = match frames.get(frame) {
                    Some(&known) => known,
                    None => {
                        let place = self.frames.len() as u32;
                        self.frames.push(cache.frame(chunk, frame)?);
                        frames.insert(*frame, place);
                        place
                    }
                };
                self.steps.push(place);
            }
            let end = self.steps.len();
            self.stacks.push(truncated.map(|truncated| StackOf { begin, end, truncated }));
        }
        Ok(())
    }

    /// Returns the indexes in `frames` of a stack's frames, leaf first.
    pub fn steps(&self, stack: &StackOf) -> &[u32] {
        self.steps.get(stack.begin..stack.end).unwrap_or_default()
    }
}

/// Assigns small numbers to keys, in order of appearance.
#[derive(Debug, Default)]
struct Keys {
    all: Vec<u64>,
    /// For small keys, which are the most frequent: the number plus 1; 0 if the key was not seen.
    small: Vec<u32>,
    large: HashMap<u64, u32, KeyHash>,
}

/// Keys below this are looked up by index.
const SMALL: u64 = 1 << 20;

impl Keys {
    #[inline]
    fn number(&mut self, key: u64) -> u32 {
        match self.small.get(key as usize) {
            Some(&number) if number > 0 => number - 1,
            _ => self.search(key),
        }
    }

    #[cold]
    fn search(&mut self, key: u64) -> u32 {
        let next = self.all.len() as u32;
        let number = if key < SMALL {
            let at = key as usize;
            if at >= self.small.len() {
                self.small.resize(at + 1, 0);
            }
            self.small[at] = next + 1;
            next
        } else {
            *self.large.entry(key).or_insert(next)
        };
        if number == next {
            self.all.push(key);
        }
        number
    }
}

/// State while a chunk is read.
#[derive(Debug, Default)]
struct ChunkSamples {
    plans: HashMap<u64, (Role, u32), KeyHash>,
    keyed: Keyed,
    threads: Keys,
    stacks: Keys,
    states: Keys,
    variants: Keys,
    classes: Keys,
    contexts: Keys,
    /// Recorded threads, times in ns since 1970, and contexts.
    told: Vec<(u32, i64, u32)>,
    settings: Settings,
    /// Losses: type id, payload, offset.
    lost: Vec<(u64, Box<[u8]>, u64, LossPlan)>,
    /// True if the chunk has something that this reader does not support.
    odd: bool,
}

#[derive(Debug)]
enum Role {
    Ignored,
    Setting,
    Sample(Box<SamplePlan>),
    Context(Binding),
    Loss(LossPlan),
}

impl Reader {
    /// Creates a reader for samples of these types, given by name or as `cpu`, `wall`, …; of all types if
    /// empty.
    pub fn new(samples: &[String]) -> Self {
        let wanted = ItemFilter { no_others: true, ..ItemFilter::from_names(samples) };
        Self { wanted, ..Self::default() }
    }

    /// Reads the chunk in `bytes`. Returns `None` if it is damaged, large (64 MiB, 6 million samples),
    /// part of a stream, or has samples with more properties than a [`Row`].
    pub fn read(&mut self, bytes: &[u8]) -> Option<Keyed> {
        if bytes.len() > LARGEST {
            return None;
        }
        let mut decoder = Decoder::new(Delivery::KeysOnly);
        let wanted = self.wanted.clone();
        decoder.set_filter(move |class| event_filter(class, &wanted));
        let mut taken = ChunkSamples::default();
        // A sample with its context takes some thirty bytes.
        taken.keyed.rows.reserve(bytes.len() / 32);
        let mut ended = None;
        for piece in bytes.chunks(PIECE).map(Some).chain([None]) {
            match piece {
                Some(piece) => decoder.push(Bytes::copy_from_slice(piece)),
                None => decoder.close(),
            }
            while let Some(item) = decoder.next() {
                match item {
                    Read::ChunkStart(chunk) => {
                        if !self.clock.begin(chunk) {
                            self.before.clear();
                        }
                    }
                    Read::Events(batch) => taken.events(&batch, &self.wanted).ok()?,
                    Read::ChunkEnd(end) if end.complete && ended.is_none() => {
                        ended = Some(std::mem::take(&mut taken).finish(end.chunk, &mut self.before).ok()?);
                    }
                    Read::ChunkEnd(_) | Read::Warning(_) => return None,
                }
                if taken.odd || taken.keyed.rows.len() > MOST || taken.told.len() > MOST {
                    return None;
                }
            }
        }
        ended
    }
}

fn event_filter(class: &Class, wanted: &ItemFilter) -> Filter {
    match &*class.name {
        crate::decode::SETTING if class.fields.iter().all(|field| !field.pooled) => Filter::Plain,
        _ if Plan::is_none(class, wanted) => Filter::Skip,
        _ => Filter::Constants,
    }
}

impl ChunkSamples {
    fn events(&mut self, batch: &Batch<'_>, wanted: &ItemFilter) -> Result<(), Error> {
        let chunk = batch.chunk();
        let mut plans = std::mem::take(&mut self.plans);
        for frame in batch.frames() {
            let (role, kind) =
                plans.entry(frame.type_id).or_insert_with(|| self.role(chunk, frame.type_id, wanted));
            match role {
                Role::Ignored => {}
                Role::Sample(plan) => self.sample(chunk, &frame, plan, *kind)?,
                Role::Context(binding) => {
                    let [ticks, thread, context] = values(chunk, &frame, binding)?;
                    let time = chunk.epoch_nanos(ticks as i64);
                    self.told.push((self.threads.number(thread), time, self.contexts.number(context)));
                }
                Role::Setting => {
                    if let Some(event) = batch.event(&frame) {
                        self.settings.take(&event, frame.type_id);
                    }
                }
                Role::Loss(plan) => {
                    self.lost.push((frame.type_id, frame.payload.into(), frame.offset, *plan));
                }
            }
        }
        self.plans = plans;
        Ok(())
    }

    #[cold]
    fn role(&mut self, chunk: &Chunk, type_id: u64, wanted: &ItemFilter) -> (Role, u32) {
        let Some(class) = chunk.types.by_id(type_id) else { return (Role::Ignored, NONE) };
        match Plan::new(chunk, class, wanted) {
            Plan::Setting => (Role::Setting, NONE),
            Plan::Loss(plan) => (Role::Loss(plan), NONE),
            Plan::Context(binding) => {
                self.odd |= !(0..3).all(|slot| binding.is_bound(slot));
                (Role::Context(binding), NONE)
            }
            Plan::Sample(plan) => {
                // The sample has its own span, or its state as text, in fields of its own.
                let own = |name| class.field_index(name).is_some();
                let schema = &plan.schema;
                self.odd |= own("spanId") || own("state") && !schema.has_state() || schema.is_factor;
                // Selecting by state requires the names of states.
                self.odd |= plan.awake_only || plan.wall_only;
                let unit = if schema.has_value() { schema.unit } else { Unit::Samples };
                let lasts = schema.has_duration();
                self.keyed.kinds.push(KindOf { event: plan.event.clone(), unit, lasts, period: None });
                (Role::Sample(plan), self.keyed.kinds.len() as u32 - 1)
            }
            Plan::Segment(_) => {
                self.odd = true;
                (Role::Ignored, NONE)
            }
            Plan::Ignored | Plan::Anchor(_) | Plan::Watermark | Plan::Other(_) => (Role::Ignored, NONE),
        }
    }

    #[inline]
    fn sample(
        &mut self,
        chunk: &Chunk,
        frame: &Event<'_>,
        plan: &SamplePlan,
        kind: u32,
    ) -> Result<(), Error> {
        let schema = &plan.schema;
        let raw = schema.decode(chunk, frame)?;
        // The called method belongs to the stack.
        self.odd |= schema.detail == Detail::CalledMethod && raw.detail != 0;
        let number = |keys: &mut Keys, has: bool, key| if has { keys.number(key) } else { NONE };
        let epoch_nanos = chunk.epoch_nanos(raw.start);
        let thread = number(&mut self.threads, schema.has_thread(), raw.thread);
        // The context is usually written just before the sample.
        let told = self.told.last().filter(|told| (told.0, told.1) == (thread, epoch_nanos));
        let (has_variant, has_class) =
            (schema.detail == Detail::Variant, schema.detail == Detail::Class && raw.detail != 0);
        let row = Row {
            epoch_nanos,
            duration_nanos: raw.duration.unwrap_or(0),
            samples: raw.samples,
            value: raw.value,
            kind,
            thread,
            stack: number(&mut self.stacks, schema.has_stack(), raw.stack),
            state: number(&mut self.states, schema.has_state(), raw.state),
            variant: number(&mut self.variants, has_variant, raw.detail),
            class: number(&mut self.classes, has_class, raw.detail),
            context: told.map_or(NONE, |told| told.2),
        };
        self.keyed.rows.push(row);
        Ok(())
    }

    /// Resolves all keys at the end of the chunk.
    fn finish(mut self, chunk: &Chunk, before: &mut Vec<(Arc<str>, u64)>) -> Result<Keyed, Error> {
        let mut keyed = self.keyed;
        let periods = self.settings.finish(chunk);
        for kind in keyed.kinds.iter_mut().filter(|kind| kind.unit == Unit::Samples) {
            let of_kind = |periods: &[(Arc<str>, u64)]| {
                periods.iter().find(|(event, _)| *event == kind.event).map(|&(_, nanos)| nanos)
            };
            kind.period = of_kind(&periods).or_else(|| of_kind(before));
        }
        // A short chunk may have ended before its settings were written.
        if !periods.is_empty() {
            *before = periods;
        }
        let mut cache = Cache::default();
        cache.begin(chunk);
        let of = |keys: &Keys| keys.all.clone();
        keyed.threads = all(of(&self.threads), |key| cache.thread(chunk, key))?;
        keyed.resolve_stacks(chunk, &self.stacks.all, &mut cache)?;
        keyed.states = all(of(&self.states), |key| Ok(cache.state(chunk, key)))?;
        keyed.variants = all(of(&self.variants), |key| cache.variant(chunk, key))?;
        keyed.classes = all(of(&self.classes), |key| cache.constants.class(chunk, key))?;
        keyed.contexts = all(of(&self.contexts), |key| span_context(&mut cache, chunk, key))?;
        join(&mut keyed, &self.told);
        for (type_id, payload, offset, plan) in &self.lost {
            let Some(event) = chunk.event(*type_id, payload, *offset) else { continue };
            let ticks = event.start_ticks().unwrap_or(chunk.header.start_ticks.0);
            let time = Time { epoch_nanos: chunk.epoch_nanos(ticks), monotonic_nanos: None };
            keyed.losses.push(lost(&mut cache, &event, time, plan, true)?);
        }
        Ok(keyed)
    }
}

/// Sets the contexts that were not written just before their samples, by time and thread. The thread's
/// name may have changed.
fn join(keyed: &mut Keyed, told: &[(u32, i64, u32)]) {
    if keyed.threads.iter().any(Option::is_none) {
        for row in &mut keyed.rows {
            if keyed.threads.get(row.thread as usize).is_none_or(Option::is_none) {
                row.context = NONE;
            }
        }
    }
    if told.is_empty() || keyed.rows.iter().all(|row| row.context != NONE) {
        return;
    }
    let ids: Vec<Option<(i64, i64)>> = keyed
        .threads
        .iter()
        .map(|thread| thread.as_ref().map(|thread| (thread.os_id, thread.java_id)))
        .collect();
    let id = |thread: u32| ids.get(thread as usize).copied().flatten();
    let of_moment = told.iter().filter_map(|&(thread, time, context)| Some(((id(thread)?, time), context)));
    let of_moment: HashMap<_, u32, KeyHash> = of_moment.collect();
    for row in keyed.rows.iter_mut().filter(|row| row.context == NONE) {
        if let Some(id) = id(row.thread)
            && let Some(&context) = of_moment.get(&(id, row.epoch_nanos))
        {
            row.context = context;
        }
    }
}

fn all<T>(keys: Vec<u64>, mut of: impl FnMut(u64) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    keys.into_iter().map(&mut of).collect()
}
