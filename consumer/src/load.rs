//! Recording → model. The only file that knows both.
//!
//! Events are added up by the keys of their thread, stack and state first; what the keys stand for is looked up once
//! per distinct combination.

mod resolve;
mod settings;

use std::collections::HashMap;
use std::io::Read;

use jfr_format::error::{Error, ErrorKind};
use jfr_format::event::EventRef;
use jfr_format::pool::KeyHash;
use jfr_format::read::{Batch, Binding, Chunk, Class, Input, Item};

use crate::model::{EventKind, Id, Model, SampleKey, Unit, Weight};
use crate::warnings::Warnings;
use resolve::Resolver;

/// Which events to take in.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Names of event types; empty: all that have stack traces.
    pub events: Vec<String>,
    /// Keep source lines, so that frames of one function at different lines stay apart.
    pub lines: bool,
    /// Earliest event, in ns from the start of the recording.
    pub from_nanos: Option<i64>,
    /// Latest event, in ns from the start of the recording.
    pub to_nanos: Option<i64>,
}

/// A model and what could not be read on the way to it.
#[derive(Debug, Default)]
pub struct Loaded {
    /// What was read.
    pub model: Model,
    /// What was not.
    pub warnings: Warnings,
}

/// Reads `input` to its end. `progress` is told the bytes dealt with so far, every now and then.
///
/// # Errors
/// The source cannot be read, or it is no recording at all.
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

/// Takes the items of a decoder one by one.
#[derive(Debug, Default)]
pub struct Loader {
    options: LoadOptions,
    loaded: Loaded,
    /// By `ClassIndex` of the current chunk.
    classes: Vec<Role>,
    resolver: Resolver,
    sums: HashMap<RawKey, Weight, KeyHash>,
}

/// What events of a class are to the loader.
#[derive(Debug, Default)]
enum Role {
    #[default]
    Unseen,
    Ignored,
    Setting,
    Sample(Bound),
}

/// A sample event type of the current chunk.
#[derive(Debug)]
struct Bound {
    kind: Id<EventKind>,
    binding: Binding,
    value_is_ticks: bool,
    has_value: bool,
}

/// A sample's references as they stand in the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RawKey {
    class: u32,
    thread: u64,
    stack: u64,
    state: u64,
}

impl Loader {
    /// An empty model.
    pub fn new(options: LoadOptions) -> Self {
        let resolver = Resolver::new(options.lines);
        Self { options, resolver, ..Self::default() }
    }

    /// Takes one item in.
    ///
    /// # Errors
    /// The input turns out to be no recording at all.
    pub fn take(&mut self, item: Item<'_>) -> Result<(), Error> {
        match item {
            Item::ChunkStart(chunk) => self.chunk(chunk),
            Item::Events(batch) => self.batch(&batch),
            Item::ChunkEnd(_) => {}
            Item::Warning(error) if matches!(error.kind(), ErrorKind::NotJfr | ErrorKind::Empty) => {
                return Err(error);
            }
            Item::Warning(warning) => self.loaded.warnings.push(warning),
        }
        Ok(())
    }

    /// What has been read so far.
    pub fn model(&self) -> &Model {
        &self.loaded.model
    }

    /// What could not be read since the last call.
    pub fn take_warnings(&mut self) -> Warnings {
        std::mem::take(&mut self.loaded.warnings)
    }

    /// The model.
    pub fn finish(self) -> Loaded {
        self.loaded
    }

    fn chunk(&mut self, chunk: &Chunk) {
        self.loaded.model.chunks += 1;
        self.loaded.model.start_nanos.get_or_insert(chunk.header.start_nanos);
        self.classes.clear();
        self.resolver.next_chunk();
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        for event in batch.events() {
            let index = event.class_index().index();
            if index >= self.classes.len() {
                self.classes.resize_with(index + 1, Role::default);
            }
            if let Role::Unseen = self.classes[index] {
                self.classes[index] = self.role(event.chunk(), event.class());
            }
            let bound = match &self.classes[index] {
                Role::Sample(bound) => bound,
                Role::Setting => {
                    let known = &mut self.loaded.model.period_nanos;
                    *known = known.or_else(|| settings::period_nanos(&event));
                    continue;
                }
                Role::Unseen | Role::Ignored => continue,
            };
            match bound.binding.read::<6>(event.chunk(), event.payload()) {
                Ok(fields) => self.add(&event, fields),
                Err(fault) => {
                    let what = format!("an event {}", event.class().name);
                    let error = Error::from_fault(fault, event.offset(), event.chunk().index, what);
                    self.loaded.warnings.push(error);
                }
            }
        }
        self.resolve(batch.chunk());
    }

    fn add(&mut self, event: &EventRef<'_>, fields: [Option<u64>; 6]) {
        let [start, thread, stack, state, samples, value] = fields;
        let Some(Role::Sample(bound)) = self.classes.get(event.class_index().index()) else { return };
        if let (Some(origin), Some(start)) = (self.loaded.model.start_nanos, start) {
            let since = event.chunk().epoch_nanos(start as i64).saturating_sub(origin);
            let before = self.options.from_nanos.is_some_and(|from| since < from);
            if before || self.options.to_nanos.is_some_and(|to| since > to) {
                return;
            }
        }
        let value = value.unwrap_or(0);
        let value = match (bound.value_is_ticks, bound.has_value) {
            (_, false) => 0,
            (true, true) => u64::try_from(event.chunk().span_nanos(value as i64)).unwrap_or(0),
            (false, true) => u64::try_from(value as i64).unwrap_or(0),
        };
        let key = RawKey {
            class: bound.kind.index() as u32,
            thread: thread.unwrap_or(0),
            stack: stack.unwrap_or(0),
            state: state.map_or(u64::MAX, |s| s),
        };
        self.sums.entry(key).or_default().add(Weight { count: samples.unwrap_or(1), value });
    }

    fn role(&mut self, chunk: &Chunk, class: &Class) -> Role {
        if &*class.name == "jdk.ActiveSetting" {
            return Role::Setting;
        }
        self.bind(chunk, class).map_or(Role::Ignored, Role::Sample)
    }

    fn bind(&mut self, chunk: &Chunk, class: &Class) -> Option<Bound> {
        class.field_index("stackTrace")?;
        let wanted = &self.options.events;
        if !wanted.is_empty() && !wanted.iter().any(|name| *name == *class.name) {
            self.loaded.model.passed_over.insert(class.name.to_string());
            return None;
        }
        let thread = ["sampledThread", "eventThread"].into_iter().find(|n| class.field_index(n).is_some());
        let value = VALUES.iter().find(|(name, _)| class.field_index(name).is_some());
        let (value_name, unit) = value.copied().unwrap_or(("", Unit::Samples));
        let names = ["startTime", thread.unwrap_or(""), "stackTrace", "state", "samples", value_name];
        let kind = self.loaded.model.kinds.intern(EventKind { name: class.name.clone(), unit });
        let ticks = class.field_index(value_name).and_then(|i| class.fields.get(i)).is_some_and(|f| {
            f.annotation("jdk.jfr.Timespan").and_then(|a| a.value()).is_none_or(|unit| unit == "TICKS")
        });
        Some(Bound {
            kind,
            binding: Binding::new(chunk, class, &names),
            value_is_ticks: ticks && unit == Unit::Nanoseconds,
            has_value: value.is_some(),
        })
    }

    fn resolve(&mut self, chunk: &Chunk) {
        let Loaded { model, warnings } = &mut self.loaded;
        let kinds: Vec<Id<EventKind>> = model.kinds.iter().map(|(id, _)| id).collect();
        for (raw, weight) in self.sums.drain() {
            let Some(&kind) = kinds.get(raw.class as usize) else { continue };
            let key = SampleKey {
                kind,
                thread: self.resolver.thread(chunk, model, raw.thread, warnings),
                stack: self.resolver.stack(chunk, model, raw.stack, warnings),
                state: self.resolver.state(chunk, model, raw.state),
            };
            model.samples.entry(key).or_default().add(weight);
        }
    }
}

/// Fields that say how much an event stands for; the first that a type has is taken.
const VALUES: &[(&str, Unit)] = &[
    ("timeSpan", Unit::Nanoseconds),
    ("samplingPeriod", Unit::Nanoseconds),
    ("weight", Unit::Bytes),
    ("allocationSize", Unit::Bytes),
    ("size", Unit::Bytes),
    ("duration", Unit::Nanoseconds),
];
