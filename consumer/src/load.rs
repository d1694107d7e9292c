//! Loads a recording into a model.
//!
//! Events are first added up by the keys of their thread, stack and state. The keys are resolved once per
//! distinct combination, at the end of the chunk. For a page, the same pass also collects the times of
//! samples ([`Timeline`]).
//!
//! An unreadable event is a warning and does not end the reading.

mod bound;
mod model_keys;
mod program;
mod sums;
mod timeline;

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jfr_format::error::{Error, ErrorKind};
use jfr_format::event::EventRef;
use jfr_format::read::{
    Batch, Chunk, ChunkEnd, Class, Decoder, Delivery, Filter, Frame, Input, Item, Recording,
};

pub use crate::decode::is_sample;
use crate::decode::settings::Settings;
use crate::decode::{CALL, SETTING, StashedEvent, VARIED, losses};
use crate::model::{
    ASLEEP, COVERED, CPU_TIME_SAMPLE, EXECUTION_SAMPLE, EventKind, Id, Model, SampleKey, Unit, is_asleep,
};
use crate::warnings::Warnings;
use bound::{Bound, BoundSample};
use model_keys::ModelKeys;
use sums::Sums;
pub use timeline::{TimedSample, Timeline, Weights};

/// Selects the events to load.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Names of event types; if empty, all that have stack traces.
    pub events: Vec<String>,
    /// Store source lines, so that frames of one function at different lines are different frames.
    pub lines: bool,
    /// Store the file and address of native frames ([`crate::model::Frame::place`]), so that frames at
    /// different addresses are different frames.
    pub places: bool,
    /// Earliest event, in ns from the start of the recording.
    pub from_nanos: Option<i64>,
    /// Latest event, in ns from the start of the recording.
    pub to_nanos: Option<i64>,
}

/// A model, and warnings about data that could not be read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The model.
    pub model: Model,
    /// The warnings.
    pub warnings: Warnings,
}

/// Reads `input` to its end. Calls `progress` from time to time with the number of bytes processed.
///
/// # Errors
/// The source cannot be read, or is not a recording.
pub fn load<R: Read>(
    input: &mut Input<R>,
    options: &LoadOptions,
    mut progress: impl FnMut(u64),
) -> Result<Loaded, Error> {
    let mut loader = Loader::new(options.clone());
    loop {
        progress(input.consumed());
        match input.next()? {
            Some(item) => loader.take(item)?,
            None => return Ok(loader.finish()),
        }
    }
}

/// Reads a recording that is completely available, on up to `jobs` threads. The result does not depend on
/// their number. `progress` is called with the number of bytes processed by all threads.
///
/// # Errors
/// It is not a recording.
pub fn load_recording(
    recording: &Recording,
    options: &LoadOptions,
    jobs: usize,
    progress: impl Fn(u64) + Sync,
) -> Result<Loaded, Error> {
    let mut loader = Loader::new(options.clone());
    loader.take_recording(recording, jobs, progress)?;
    Ok(loader.finish())
}

/// Events of some types, for another consumer.
#[derive(Debug, Default)]
struct Stash {
    /// Selects the types.
    selects: Option<fn(&Class) -> bool>,
    events: Vec<StashedEvent>,
}

impl Stash {
    fn includes(&self, class: &Class) -> bool {
        self.selects.is_some_and(|selects| selects(class))
    }

    fn add(&mut self, frame: &Frame<'_>) {
        let Frame { type_id, offset, .. } = *frame;
        self.events.push(StashedEvent { type_id, payload: frame.payload.into(), offset });
    }
}

/// Samples of the types that a loader does not select, up to a limit for each type.
#[derive(Debug)]
struct Others {
    loader: Loader,
    /// Maximum number of samples of a type.
    most_each: usize,
}

/// Builds a model from the items of a decoder.
#[derive(Debug, Default)]
pub struct Loader {
    options: LoadOptions,
    /// Event types that are left out although `options` includes them.
    excluded: Vec<String>,
    loaded: Loaded,
    timeline: Option<Timeline>,
    others: Option<Box<Others>>,
    stash: Stash,
    /// Roles of event types in the current chunk, by type id.
    roles: Roles,
    keys: ModelKeys,
    sums: Sums,
    settings: Settings,
}

/// The role of an event type for the loader.
#[derive(Debug, Default)]
enum Role {
    #[default]
    Unseen,
    Ignored,
    Setting,
    Loss,
    Program,
    Sample(Bound),
    /// Samples for the loader of other types.
    OtherSample,
    /// Events for the stash.
    Stashed,
    /// Both.
    StashedSample,
}

impl Role {
    /// Returns whether the events are for the loader of other types, and for the stash.
    fn uses(&self) -> (bool, bool) {
        (
            matches!(self, Self::OtherSample | Self::StashedSample),
            matches!(self, Self::Stashed | Self::StashedSample),
        )
    }
}

/// Type ids below this are looked up by index.
const DENSE_LIMIT: u64 = 1 << 14;

#[derive(Debug, Default)]
struct Roles {
    dense: Vec<Role>,
    sparse: HashMap<u64, Role>,
}

impl Roles {
    fn clear(&mut self) {
        self.dense.clear();
        self.sparse.clear();
    }

    /// Returns the sample types ordered by type id, so that the result is deterministic.
    fn samples(&self) -> impl Iterator<Item = &Bound> {
        let mut sparse: Vec<(&u64, &Role)> = self.sparse.iter().collect();
        sparse.sort_unstable_by_key(|&(id, _)| id);
        let sparse = sparse.into_iter().map(|(_, role)| role);
        self.dense.iter().chain(sparse).filter_map(|role| match role {
            Role::Sample(bound) => Some(bound),
            _ => None,
        })
    }

    #[inline]
    fn get(&mut self, type_id: u64) -> &mut Role {
        if type_id >= DENSE_LIMIT {
            return self.sparse.entry(type_id).or_default();
        }
        let at = type_id as usize;
        if at >= self.dense.len() {
            self.dense.resize_with(at + 1, Role::default);
        }
        &mut self.dense[at]
    }
}

impl LoadOptions {
    fn includes_type(&self, class: &Class) -> bool {
        let named = || self.events.is_empty() || self.events.iter().any(|name| *name == *class.name);
        is_sample(class) && named()
    }

    /// Returns the filter for [`Decoder::set_filter`].
    pub(crate) fn event_filter(&self) -> impl Fn(&Class) -> Filter + Send + use<> {
        let options = self.clone();
        move |class| match &*class.name {
            SETTING if class.fields.iter().any(|field| field.pooled) => Filter::Constants,
            SETTING => Filter::Plain,
            name if losses::knows(name) || program::knows(name) => Filter::Plain,
            _ if options.includes_type(class) => Filter::Constants,
            _ => Filter::Skip,
        }
    }

    fn is_ranged(&self) -> bool {
        self.from_nanos.is_some() || self.to_nanos.is_some()
    }

    /// Returns true if an event with this start lies within the requested time.
    fn includes_time(&self, model: &Model, chunk: &Chunk, start_ticks: i64) -> bool {
        let Some(origin) = model.start_nanos else { return true };
        let since = chunk.epoch_nanos(start_ticks).saturating_sub(origin);
        self.from_nanos.is_none_or(|from| since >= from) && self.to_nanos.is_none_or(|to| since <= to)
    }
}

impl Loader {
    /// Creates a loader with an empty model.
    pub fn new(options: LoadOptions) -> Self {
        let keys = ModelKeys::new(&options);
        Self { options, keys, ..Self::default() }
    }

    /// Like [`Self::new`], for `options` whose times count from 1970.
    pub fn since_epoch(options: LoadOptions) -> Self {
        let mut loader = Self::new(options);
        loader.loaded.model.start_nanos = Some(0);
        loader
    }

    /// Also collects the times of the samples. The timeline begins at `origin`, in ns since 1970, and has at
    /// most `most` samples.
    pub fn with_timeline(mut self, origin: i64, most: usize) -> Self {
        self.timeline = Some(Timeline::new(origin, most));
        self
    }

    /// Also loads samples of the types that the options do not select, into a second model with its own
    /// timeline. A type with more than `most_each` samples is left out.
    pub fn with_others(mut self, origin: i64, most_each: usize) -> Self {
        let options = LoadOptions { events: Vec::new(), ..self.options.clone() };
        let mut loader = Self::new(options).with_timeline(origin, usize::MAX >> 1);
        loader.excluded.clone_from(&self.options.events);
        loader.loaded.model.start_nanos = self.loaded.model.start_nanos;
        self.others = Some(Box::new(Others { loader, most_each }));
        self
    }

    /// Also stores the events of types for which `selects` returns true, until the end of their chunk.
    pub(crate) fn with_stash(mut self, selects: fn(&Class) -> bool) -> Self {
        self.stash.selects = Some(selects);
        self
    }

    /// Returns the stored events of the chunk.
    pub(crate) fn take_stash(&mut self) -> Vec<StashedEvent> {
        std::mem::take(&mut self.stash.events)
    }

    /// Returns the filter for [`Decoder::set_filter`].
    pub(crate) fn event_filter(&self) -> impl Fn(&Class) -> Filter + Send + use<> {
        let options = LoadOptions {
            events: if self.others.is_some() { Vec::new() } else { self.options.events.clone() },
            ..LoadOptions::default()
        };
        let (filter, stashed) = (options.event_filter(), self.stash.selects);
        move |class| match filter(class) {
            Filter::Skip if stashed.is_some_and(|selects| selects(class)) => Filter::Constants,
            selected => selected,
        }
    }

    /// Returns true if the timeline has too many samples.
    pub(crate) fn has_full_timeline(&self) -> bool {
        self.timeline.as_ref().is_some_and(Timeline::is_full)
    }

    /// Processes an item.
    ///
    /// # Errors
    /// The input is not a recording.
    pub fn take(&mut self, item: Item<'_>) -> Result<(), Error> {
        match item {
            Item::ChunkStart(chunk) => self.chunk(chunk),
            Item::Events(batch) => self.batch(&batch),
            Item::ChunkEnd(end) => {
                self.resolve(end.chunk);
                self.passed_over(&end);
            }
            Item::Warning(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotJfr | ErrorKind::Empty | ErrorKind::HeaderCut { .. }
                ) =>
            {
                return Err(error);
            }
            Item::Warning(warning) => self.loaded.warnings.push(warning),
        }
        Ok(())
    }

    /// Processes a whole recording, like [`load_recording`].
    ///
    /// # Errors
    /// It is not a recording.
    pub fn take_recording(
        &mut self,
        recording: &Recording,
        jobs: usize,
        progress: impl Fn(u64) + Sync,
    ) -> Result<(), Error> {
        // Times count from the first chunk, which is unknown to a thread that starts in the middle.
        let jobs = if self.options.is_ranged() { 1 } else { jobs };
        let origin = self.loaded.model.start_nanos;
        let done = AtomicU64::new(0);
        let part = |decoder: &mut Decoder| {
            let mut loader = Self::new(self.options.clone());
            loader.loaded.model.start_nanos = origin;
            decoder.set_filter(self.options.event_filter());
            let mut at = decoder.consumed();
            while let Some(item) = decoder.next() {
                loader.take(item)?;
                let before = std::mem::replace(&mut at, decoder.consumed());
                let passed = at.saturating_sub(before);
                progress(done.fetch_add(passed, Ordering::Relaxed) + passed);
            }
            Ok(loader.finish())
        };
        let mut loaded = std::mem::take(&mut self.loaded);
        let outcome = recording.run_grouped(Delivery::KeysOnly, jobs, part, |part: Result<Loaded, Error>| {
            let part = part?;
            loaded.model.merge(part.model);
            loaded.warnings.merge(part.warnings);
            Ok(())
        });
        self.loaded = loaded;
        outcome
    }

    /// Merges the result of a later part of the recording.
    pub fn merge(&mut self, later: Loaded) {
        self.loaded.model.merge(later.model);
        self.loaded.warnings.merge(later.warnings);
    }

    /// Adds the events of an unfinished chunk to the model. Their constants must be known already, as
    /// with [`Delivery::Streaming`].
    pub fn settle(&mut self, chunk: &Chunk) {
        self.resolve(chunk);
        self.roles.clear();
    }

    /// Returns the model of the finished chunks.
    pub fn model(&self) -> &Model {
        &self.loaded.model
    }

    /// Returns the warnings since the last call.
    pub fn take_warnings(&mut self) -> Warnings {
        std::mem::take(&mut self.loaded.warnings)
    }

    /// Returns the result.
    pub fn finish(self) -> Loaded {
        self.loaded
    }

    /// Returns the result with the timeline, and the samples of other types.
    pub(crate) fn finish_timed(self) -> (Loaded, Option<Timeline>, Option<(Model, Timeline)>) {
        let Self { loaded, timeline, others, .. } = self;
        let others = others.and_then(|others| {
            let Loader { loaded: Loaded { model: other, .. }, timeline, .. } = others.loader;
            let model = Model {
                periods: loaded.model.periods.clone(),
                losses: loaded.model.losses.clone(),
                jvms: loaded.model.jvms.clone(),
                hosts: loaded.model.hosts.clone(),
                ..other
            };
            Some((model, timeline?))
        });
        (loaded, timeline, others)
    }

    fn chunk(&mut self, chunk: &Chunk) {
        self.loaded.model.chunks += 1;
        let header = &chunk.header;
        let end = header.start_nanos.saturating_add(header.duration_nanos.max(0));
        let origin = *self.loaded.model.start_nanos.get_or_insert(header.start_nanos);
        let [from, to] =
            [self.options.from_nanos, self.options.to_nanos].map(|at| at.map(|at| origin.saturating_add(at)));
        let range = (
            from.map_or(header.start_nanos, |from| header.start_nanos.max(from)),
            to.map_or(end, |to| end.min(to)),
        );
        if range.0 <= range.1 {
            self.loaded.model.widen(range);
        }
        self.roles.clear();
        if let Some(others) = &mut self.others {
            others.loader.chunk(chunk);
        }
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        let mut frames = batch.frames();
        while let Some(frame) = frames.next() {
            match self.roles.get(frame.type_id) {
                Role::Ignored => {}
                Role::Sample(bound) => {
                    let bytes = bound.likeness(&frame);
                    if !bytes.is_some_and(|bytes| bound.repeats.count(bytes)) {
                        match bound.read(&self.options, &self.loaded.model, batch, &frame) {
                            Ok(Some(sample)) => match bytes {
                                Some(bytes) => bound.repeats.insert(bytes, sample.key),
                                None => {
                                    let timeline = self.timeline.as_mut().zip(bound.timeline);
                                    add(&mut self.sums, timeline, batch.chunk(), &sample);
                                }
                            },
                            Ok(None) => {}
                            Err(error) => self.loaded.warnings.push(error),
                        }
                        if bound.is_stashed {
                            self.stash.add(&frame);
                        }
                    }
                    if bound.is_plain() {
                        // Consecutive events often have the same type.
                        frames.pass_alike(frame.type_id, |bytes| bound.repeats.count(bytes));
                    }
                }
                role @ (Role::OtherSample | Role::Stashed | Role::StashedSample) => {
                    let (is_sample, is_stashed) = role.uses();
                    self.other(batch, &frame, is_sample, is_stashed);
                }
                Role::Setting | Role::Loss | Role::Program | Role::Unseen => self.uncommon(batch, &frame),
            }
        }
    }

    /// Handles the first event of a type, settings, losses and programs.
    #[cold]
    fn uncommon(&mut self, batch: &Batch<'_>, frame: &Frame<'_>) {
        if let Role::Unseen = self.roles.get(frame.type_id) {
            let class = batch.event(frame).map(|event| event.class());
            *self.roles.get(frame.type_id) =
                class.map_or(Role::Ignored, |class| self.role(batch.chunk(), class));
        }
        match self.roles.get(frame.type_id) {
            Role::Setting => {
                if let Some(event) = batch.event(frame) {
                    self.settings.take(&event, frame.type_id);
                }
            }
            Role::Loss => {
                if let Some(event) = batch.event(frame) {
                    self.loss(batch.chunk(), &event);
                }
            }
            Role::Program => {
                if let Some(event) = batch.event(frame) {
                    program::take(&mut self.loaded.model, &event);
                }
            }
            Role::Sample(_) => self.sample(batch, frame),
            role @ (Role::OtherSample | Role::Stashed | Role::StashedSample) => {
                let (is_sample, is_stashed) = role.uses();
                self.other(batch, frame, is_sample, is_stashed);
            }
            Role::Ignored | Role::Unseen => {}
        }
    }

    /// Handles a sample without comparing its bytes.
    fn sample(&mut self, batch: &Batch<'_>, frame: &Frame<'_>) {
        let Role::Sample(bound) = self.roles.get(frame.type_id) else { return };
        match bound.read(&self.options, &self.loaded.model, batch, frame) {
            Ok(Some(sample)) => {
                let timeline = self.timeline.as_mut().zip(bound.timeline);
                add(&mut self.sums, timeline, batch.chunk(), &sample);
            }
            Ok(None) => {}
            Err(error) => self.loaded.warnings.push(error),
        }
        if bound.is_stashed {
            self.stash.add(frame);
        }
    }

    /// Handles an event of a type that the stash or the loader of other types selects.
    fn other(&mut self, batch: &Batch<'_>, frame: &Frame<'_>, is_sample: bool, is_stashed: bool) {
        if is_stashed {
            self.stash.add(frame);
        }
        if let Some(others) = self.others.as_mut().filter(|_| is_sample) {
            others.event(batch, frame);
        }
    }

    fn loss(&mut self, chunk: &Chunk, event: &EventRef<'_>) {
        let start = event.field("startTime").ok().flatten().and_then(|time| time.as_i64());
        if start.is_none_or(|start| self.options.includes_time(&self.loaded.model, chunk, start)) {
            losses::take(&mut self.loaded.model.losses, event);
        }
    }

    fn includes_type(&self, class: &Class) -> bool {
        self.options.includes_type(class) && !self.excluded.iter().any(|name| **name == *class.name)
    }

    fn role(&mut self, chunk: &Chunk, class: &Class) -> Role {
        if &*class.name == SETTING {
            return Role::Setting;
        }
        if losses::knows(&class.name) {
            return Role::Loss;
        }
        if program::knows(&class.name) {
            return Role::Program;
        }
        if !self.includes_type(class) {
            let is_sample = self.others.as_ref().is_some_and(|others| others.loader.includes_type(class));
            let is_stashed = self.stash.includes(class);
            return match (is_sample, is_stashed) {
                (true, true) => Role::StashedSample,
                (true, false) => Role::OtherSample,
                (false, true) => Role::Stashed,
                (false, false) => Role::Ignored,
            };
        }
        let timeline = self.timeline.as_mut().map(|timeline| timeline.event_type(&class.name));
        let is_stashed = self.stash.includes(class);
        let kinds = &mut self.loaded.model.kinds;
        Role::Sample(Bound::new(chunk, class, &self.options, (timeline, is_stashed), kinds))
    }

    /// Counts samples of types that were not requested.
    fn passed_over(&mut self, end: &ChunkEnd<'_>) {
        if self.options.events.is_empty() {
            return;
        }
        for (type_id, count) in end.counts.iter() {
            let class = end.chunk.types.by_id(type_id).filter(|class| is_sample(class));
            if let Some(class) = class.filter(|class| !self.options.includes_type(class)) {
                let passed_over = &mut self.loaded.model.passed_over;
                *passed_over.entry(class.name.to_string()).or_default() += count.events;
            }
        }
    }

    fn resolve(&mut self, chunk: &Chunk) {
        let periods = self.settings.finish(chunk);
        self.resolve_samples(chunk, &periods);
        if let Some(others) = &mut self.others {
            others.loader.resolve_samples(chunk, &periods);
        }
        self.stash.events.clear();
    }

    fn resolve_samples(&mut self, chunk: &Chunk, periods: &[(Arc<str>, u64)]) {
        let Loaded { model, warnings } = &mut self.loaded;
        self.keys.begin(chunk);
        for (name, period) in periods {
            model.periods.entry(name.clone()).or_insert(*period);
        }
        let mut kinds: HashMap<(Id<EventKind>, u64), Id<EventKind>> = HashMap::new();
        let is_exact = |kind: Id<EventKind>| &*model.kinds.get(kind).name == CPU_TIME_SAMPLE;
        let has_exact = self.sums.kinds().any(is_exact);
        let repeats = self.roles.samples().flat_map(|bound| bound.repeats.sums());
        let mut keys = Vec::new();
        for (raw, weight) in self.sums.drain().chain(repeats) {
            let (variant, called, class) = match &*model.kinds.get(raw.kind).name {
                CALL => (u64::MAX, raw.detail, 0),
                VARIED => (raw.detail, 0, 0),
                _ if raw.detail == u64::MAX => (u64::MAX, 0, 0),
                _ => (u64::MAX, 0, raw.detail),
            };
            let kind = match kinds.get(&(raw.kind, variant)) {
                Some(&kind) => kind,
                None => {
                    let kind = timed(model, raw.kind, periods);
                    let kind = match self.keys.variant(chunk, variant, warnings) {
                        Some(variant) => {
                            let of = model.kinds.get(kind).clone();
                            model.kinds.intern(EventKind { variant: Some(variant), ..of })
                        }
                        None => kind,
                    };
                    kinds.insert((raw.kind, variant), kind);
                    kind
                }
            };
            let state = self.keys.state(chunk, model, raw.state);
            let (thread, title) = self.keys.thread(chunk, model, raw.thread, warnings);
            let key = SampleKey {
                kind: in_state(model, kind, state, has_exact),
                thread,
                title,
                stack: self.keys.stack(chunk, model, (raw.stack, called), warnings),
                state,
                class: self.keys.class(chunk, model, class, warnings),
            };
            model.samples.entry(key).or_default().add(weight);
            if self.timeline.is_some() {
                keys.push(key);
            }
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.resolve(&keys);
        }
    }
}

/// Adds a sample to the sums, and to the timeline if there is one and the type has times.
#[inline(always)]
fn add(sums: &mut Sums, timeline: Option<(&mut Timeline, usize)>, chunk: &Chunk, sample: &BoundSample) {
    let position = sums.add(sample.key, sample.weight);
    if let Some((timeline, number)) = timeline {
        timeline.add(number, chunk.epoch_nanos(sample.start), position, sample.weight, sample.duration);
    }
}

impl Others {
    fn event(&mut self, batch: &Batch<'_>, frame: &Frame<'_>) {
        let loader = &mut self.loader;
        match loader.roles.get(frame.type_id) {
            Role::Unseen => loader.uncommon(batch, frame),
            Role::Sample(bound) => {
                let number = bound.timeline;
                loader.sample(batch, frame);
                let is_above = loader
                    .timeline
                    .as_mut()
                    .zip(number)
                    .is_some_and(|(timeline, number)| timeline.drop_above(number, self.most_each));
                if is_above {
                    let class = batch.chunk().types.by_id(frame.type_id);
                    loader.excluded.extend(class.map(|class| class.name.to_string()));
                    *loader.roles.get(frame.type_id) = Role::Ignored;
                }
            }
            _ => {}
        }
    }
}

/// Returns the kind of a sample by its state: [`ASLEEP`], or [`COVERED`] in a chunk with more exact CPU
/// samples.
fn in_state(
    model: &mut Model,
    kind: Id<EventKind>,
    state: Option<Id<Arc<str>>>,
    has_exact: bool,
) -> Id<EventKind> {
    let of = model.kinds.get(kind);
    if has_exact && &*of.name == EXECUTION_SAMPLE {
        let covered = EventKind { variant: Some(COVERED.into()), ..of.clone() };
        return model.kinds.intern(covered);
    }
    if !is_asleep(&of.name, state.map(|state| &**model.states.get(state))) {
        return kind;
    }
    let asleep = EventKind { variant: Some(ASLEEP.into()), ..of.clone() };
    model.kinds.intern(asleep)
}

/// Returns the kind with the sampling period of this chunk.
fn timed(model: &mut Model, kind: Id<EventKind>, periods: &[(Arc<str>, u64)]) -> Id<EventKind> {
    let of = model.kinds.get(kind);
    let period = periods.iter().find(|(name, _)| *name == of.name).map(|(_, period)| *period);
    if of.unit != Unit::Samples || period.is_none() {
        return kind;
    }
    let with_period = EventKind { period_nanos: period, ..of.clone() };
    model.kinds.intern(with_period)
}
