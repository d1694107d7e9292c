//! A whole chunk at once, its samples by small numbers: for those who take in millions of them. What many samples share is looked up
//! once, when the chunk is over, and none is made by itself.
//!
//! Sound chunks of plain samples are read so; for all others [`Feed`](super::Feed) says what they are.

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
use super::plan::{
    COUNT, DETAIL, DURATION, Plan, SLOTS, STACK, START, STATE, SamplePlan, THREAD, VALUE, Wanted,
};
use crate::load::constants::RawFrame;
use crate::load::losses::LossPlan;
use crate::load::settings::Settings;
use crate::model::{Thread, Unit};
use crate::spans::SpanContext;

/// Bytes handed to the decoder at a time: what it gives back is used again, pages of larger ones are cleared anew each time.
const PIECE: usize = 64 << 10;
/// Bytes of a chunk: a sample takes five times as much here.
const LARGEST: usize = 64 << 20;
/// Samples of a chunk, and contexts that are told of them.
const MOST: usize = 6 << 20;
/// Stands for none.
pub const NONE: u32 = u32::MAX;

/// A sample. Numbers are places in the lists of [`Keyed`], or [`NONE`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// When, in ns since 1970.
    pub epoch_nanos: i64,
    /// How long it lasted, in ns, if its kind says so.
    pub duration_nanos: u64,
    /// How many samples it stands for.
    pub samples: u64,
    /// How much of its kind's unit it stands for; without meaning if that is [`Unit::Samples`].
    pub value: u64,
    /// Place in `kinds`.
    pub kind: u32,
    /// Place in `threads`.
    pub thread: u32,
    /// Place in `stacks`.
    pub stack: u32,
    /// Place in `states`.
    pub state: u32,
    /// Place in `variants`.
    pub variant: u32,
    /// Place in `classes`.
    pub class: u32,
    /// Place in `contexts`.
    pub context: u32,
}

/// What samples of a type have in common.
#[derive(Clone, Debug)]
pub struct KindOf {
    /// Event type.
    pub event: Arc<str>,
    /// What their values count.
    pub unit: Unit,
    /// Whether they say how long they lasted.
    pub lasts: bool,
    /// What one stands for, in ns, if its value does not say it and the recording does.
    pub period: Option<u64>,
}

/// A stack: where its frames are in `steps`, innermost first.
#[derive(Clone, Copy, Debug)]
pub struct StackOf {
    begin: usize,
    end: usize,
    /// The outermost frames are missing.
    pub truncated: bool,
}

/// The samples of a chunk. What its keys do not stand for is `None`.
#[derive(Debug, Default)]
pub struct Keyed {
    /// In the order of the chunk.
    pub rows: Vec<Row>,
    /// Event types.
    pub kinds: Vec<KindOf>,
    /// Threads.
    pub threads: Vec<Option<Arc<Thread>>>,
    /// Stacks.
    pub stacks: Vec<Option<StackOf>>,
    /// Frames, each once.
    pub frames: Vec<Frame>,
    /// Places in `frames`, stack after stack.
    steps: Vec<u32>,
    /// States of threads.
    pub states: Vec<Option<Arc<str>>>,
    /// Which of several things events of a type tell of.
    pub variants: Vec<Option<Arc<str>>>,
    /// Classes of the objects that were allocated, waited for or thrown, as in source (`byte[]`).
    pub classes: Vec<Option<Arc<str>>>,
    /// Spans that samples were taken in.
    pub contexts: Vec<Option<Arc<SpanContext>>>,
    /// What was lost.
    pub losses: Vec<Loss>,
}

/// Reads the chunks of one recorder, one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    wanted: Wanted,
    clock: Clock,
    /// What samples stood for in the chunk before, if it was of the same recorder.
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

    /// The places in `frames` of a stack's frames, innermost first.
    pub fn steps(&self, stack: &StackOf) -> &[u32] {
        self.steps.get(stack.begin..stack.end).unwrap_or_default()
    }
}

/// Keys by small numbers, in the order they come.
#[derive(Debug, Default)]
struct Keys {
    all: Vec<u64>,
    /// Of small keys, which most are: their numbers and one more; 0: not met.
    small: Vec<u32>,
    large: HashMap<u64, u32, KeyHash>,
}

/// Keys whose numbers are found by their place.
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

/// What is known of a chunk while it is read.
#[derive(Debug, Default)]
struct Taken {
    plans: HashMap<u64, (Role, u32), KeyHash>,
    keyed: Keyed,
    threads: Keys,
    stacks: Keys,
    states: Keys,
    variants: Keys,
    classes: Keys,
    contexts: Keys,
    /// Threads, ns since 1970 and contexts, as they were told.
    told: Vec<(u32, i64, u32)>,
    settings: Settings,
    /// Losses: type id, payload, offset.
    lost: Vec<(u64, Box<[u8]>, u64, LossPlan)>,
    /// Something is here that is not read so.
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
    /// One that reads samples of these types, by name or as `cpu`, `wall`, …; empty: all.
    pub fn new(samples: &[String]) -> Self {
        let wanted = Wanted { no_others: true, ..Wanted::from_names(samples) };
        Self { wanted, ..Self::default() }
    }

    /// Reads the chunk that `bytes` are; `None` if it is damaged, large (64 MiB, 6 million samples), a stream's, or has samples that say more than a [`Row`] can.
    pub fn read(&mut self, bytes: &[u8]) -> Option<Keyed> {
        if bytes.len() > LARGEST {
            return None;
        }
        let mut decoder = Decoder::new(Delivery::KeysOnly);
        let wanted = self.wanted.clone();
        decoder.set_filter(move |class| event_filter(class, &wanted));
        let mut taken = Taken::default();
        // A sample takes some thirty bytes, with what is told beside.
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

fn event_filter(class: &Class, wanted: &Wanted) -> Filter {
    match &*class.name {
        crate::load::SETTING if class.fields.iter().all(|field| !field.pooled) => Filter::Plain,
        _ if Plan::is_none(class, wanted) => Filter::Skip,
        _ => Filter::Constants,
    }
}

impl Taken {
    fn events(&mut self, batch: &Batch<'_>, wanted: &Wanted) -> Result<(), Error> {
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
    fn role(&mut self, chunk: &Chunk, type_id: u64, wanted: &Wanted) -> (Role, u32) {
        let Some(class) = chunk.types.by_id(type_id) else { return (Role::Ignored, NONE) };
        match Plan::of(chunk, class, wanted) {
            Plan::Setting => (Role::Setting, NONE),
            Plan::Loss(plan) => (Role::Loss(plan), NONE),
            Plan::Context(binding) => {
                self.odd |= !(0..3).all(|slot| binding.is_bound(slot));
                (Role::Context(binding), NONE)
            }
            Plan::Sample(plan) => {
                // Its own span, or its state as text: in fields of its own.
                let own = |name| class.field_index(name).is_some();
                self.odd |= own("spanId") || own("state") && !plan.binding.is_bound(STATE) || plan.is_factor;
                // A selection by state needs the texts of states.
                self.odd |= plan.awake_only || plan.wall_only;
                let unit = if plan.binding.is_bound(VALUE) { plan.unit } else { Unit::Samples };
                let lasts = plan.duration.is_some();
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
        let values: [u64; SLOTS] = values(chunk, frame, &plan.binding)?;
        let has = |slot| plan.binding.is_bound(slot);
        // What was called belongs to the stack.
        self.odd |= plan.calls && values[DETAIL] != 0;
        let duration = if has(DURATION) { values[DURATION] } else { values[VALUE] };
        let number = |keys: &mut Keys, slot| if has(slot) { keys.number(values[slot]) } else { NONE };
        let epoch_nanos = chunk.epoch_nanos(values[START] as i64);
        let thread = number(&mut self.threads, THREAD);
        // Mostly told right before it.
        let told = self.told.last().filter(|told| (told.0, told.1) == (thread, epoch_nanos));
        let row = Row {
            epoch_nanos,
            duration_nanos: plan.duration.map_or(0, |scale| scale.of(chunk, duration as i64)),
            samples: if has(COUNT) { values[COUNT] } else { 1 },
            value: if has(VALUE) { plan.scale.of(chunk, values[VALUE] as i64) } else { 0 },
            kind,
            thread,
            stack: number(&mut self.stacks, STACK),
            state: number(&mut self.states, STATE),
            variant: if plan.varied { number(&mut self.variants, DETAIL) } else { NONE },
            class: match plan.classes && values[DETAIL] != 0 {
                true => self.classes.number(values[DETAIL]),
                false => NONE,
            },
            context: told.map_or(NONE, |told| told.2),
        };
        self.keyed.rows.push(row);
        Ok(())
    }

    /// The chunk is over: all keys are known.
    fn finish(mut self, chunk: &Chunk, before: &mut Vec<(Arc<str>, u64)>) -> Result<Keyed, Error> {
        let mut keyed = self.keyed;
        let periods = self.settings.finish(chunk);
        for kind in keyed.kinds.iter_mut().filter(|kind| kind.unit == Unit::Samples) {
            let of_kind = |periods: &[(Arc<str>, u64)]| {
                periods.iter().find(|(event, _)| *event == kind.event).map(|&(_, nanos)| nanos)
            };
            kind.period = of_kind(&periods).or_else(|| of_kind(before));
        }
        // A short chunk may have ended before it told any.
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

/// Gives samples the contexts that were not told right before them: those of their thread, whatever its name was, and time.
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

fn values<const N: usize>(chunk: &Chunk, frame: &Event<'_>, binding: &Binding) -> Result<[u64; N], Error> {
    binding
        .values_in(chunk, frame)
        .map_err(|fault| Error::from_fault(fault, frame.offset, chunk.index, "an event".to_owned()))
}
