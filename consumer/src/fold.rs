//! Converts a model to a tree: selects the samples, their measure, and the names of frames.

mod events;
mod folder;
mod functions;
mod lines;
mod trie;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use regex::Regex;

use crate::error::Error;
use crate::model::{
    ASLEEP, COVERED, CPU_TIME_SAMPLE, EXECUTION_SAMPLE as CPU, EventKind, FrameKind, Id, Model, SampleKey,
    Stack, Unit, Weight,
};
use crate::tree::Tree;
use events::is_counted;
pub use events::{
    FIRST_LOADED, alias, else_loaded, event_names, loaded_names, offered, others, recorded_types,
};
pub(crate) use events::{PREFERRED, is_awake_only};
use events::{alias_groups, canonical, most, spellings};
use folder::Folder;
pub(crate) use folder::class_label;
pub use folder::label;
pub(crate) use functions::{Function, Functions, functions};
pub use lines::{Annotated, Annotation, Weights, annotate};

/// The quantity that the widths of boxes show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Number of samples.
    #[default]
    Samples,
    /// Weights of samples: time or bytes.
    Total,
}

/// Options for folding a model.
#[derive(Clone, Debug, Default)]
pub struct FoldOptions {
    /// Names or aliases of event types. If empty, the preferred events of the recording, CPU samples
    /// first.
    pub events: Vec<String>,
    /// The quantity that widths show.
    pub measure: Measure,
    /// Add the process as the first frame.
    pub by_process: bool,
    /// Add the process's title after the process; `name (pid)` for a process without a title.
    pub by_title: bool,
    /// Add the thread after the process and title.
    pub by_thread: bool,
    /// Prefix native functions with their library.
    pub modules: bool,
    /// Append the source line to the name.
    pub lines: bool,
    /// Show functions of the same name in different libraries as different boxes.
    pub split_modules: bool,
    /// Use one label for a native function, inlined or not.
    pub merge_inlined: bool,
    /// Show each virtual thread. Otherwise all virtual threads are shown as one thread.
    pub each_virtual_thread: bool,
    /// Append the class of the object that was allocated, waited for or thrown to the stack.
    pub classes: bool,
    /// Filter for samples.
    pub filter: Filter,
}

/// Conditions that a sample must meet.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Each of these must match some frame.
    pub include: Vec<Regex>,
    /// None of these may match any frame.
    pub exclude: Vec<Regex>,
    /// Must match the thread's label (`[name tid=1]`).
    pub thread: Option<Regex>,
    /// Must match the process (`name (pid)`).
    pub process: Option<Regex>,
    /// Must match the thread state.
    pub state: Option<Regex>,
}

impl Filter {
    /// Returns true if the frames of a stack pass.
    pub fn frames<'a>(&self, frames: impl Iterator<Item = &'a str> + Clone) -> bool {
        let any = |regex: &Regex| frames.clone().any(|frame| regex.is_match(frame));
        self.include.iter().all(any) && !self.exclude.iter().any(any)
    }

    /// Returns true if events of a thread with this label and process pass. Events without them use
    /// [`NO_THREAD`] and [`UNKNOWN_PROCESS`].
    pub(crate) fn matches_thread(&self, label: &str, process: &str) -> bool {
        self.thread.as_ref().is_none_or(|regex| regex.is_match(label))
            && self.process.as_ref().is_none_or(|regex| regex.is_match(process))
    }

    /// Returns true if a state passes; no state is an empty string.
    pub(crate) fn matches_state(&self, state: &str) -> bool {
        self.state.as_ref().is_none_or(|regex| regex.is_match(state))
    }
}

pub use crate::tree::TRUNCATED;
/// Label for the thread of an event that has none.
pub(crate) const NO_THREAD: &str = "[no thread]";
/// Label for the process of a thread whose process is not recorded.
pub(crate) const UNKNOWN_PROCESS: &str = "[unknown process]";
/// Label for the stack of an event that has none.
pub const NO_STACK: &str = "[no stack]";
/// Label for frames beyond the memory limit, which only hostile input reaches.
pub const TOO_MANY_FRAMES: &str = "[too many frames]";

/// Counts the events with stack traces in a recording by type, or by variant if a type has variants.
/// Types that were not loaded are included.
pub fn recorded(model: &Model) -> BTreeMap<String, u64> {
    let mut events = model.passed_over.clone();
    for ((_, kind), seen) in model.kinds.iter().zip(seen(model)) {
        if seen > 0 {
            let events = events.entry(event_label(kind).to_owned()).or_default();
            *events = events.saturating_add(seen);
        }
    }
    events
}

/// Folds the selected samples.
///
/// # Errors
/// A selected event is not in the recording, or weights were requested for types with different units.
pub fn fold(model: &Model, options: &FoldOptions) -> Result<Tree, Error> {
    let kinds = choose(model, options)?;
    let options = &FoldOptions { measure: measure(model, options, &kinds), ..options.clone() };
    let unit = unit(model, options, &kinds)?;
    let mut chosen = vec![false; model.kinds.len()];
    kinds.iter().for_each(|kind| chosen[kind.index()] = true);
    let samples = model.samples.iter().filter(|(key, _)| chosen[key.kind.index()]);
    let weighed = samples.map(|(key, weight)| (key, scaled(model, options, key, *weight)));
    Ok(Folder::new(model, options).fold(weighed).finish(unit))
}

/// Returns the names of the selected events for the command line: those in `options`, else the short
/// names of the types that [`fold`] selects.
pub fn selected_names(model: &Model, options: &FoldOptions) -> Vec<String> {
    if !options.events.is_empty() {
        return options.events.clone();
    }
    let drawn = events(model, options).unwrap_or_default();
    let mut names: Vec<String> = drawn.iter().map(|event| alias(event).unwrap_or(event).to_owned()).collect();
    names.dedup();
    names
}

/// Returns the measure that flame graphs of the selected events use: time or bytes for allocations,
/// waits, reads and writes, else the number of samples.
///
/// # Errors
/// A selected event is not in the recording.
pub fn usual_measure(model: &Model, options: &FoldOptions) -> Result<Measure, Error> {
    let kinds = choose(model, options)?;
    let total = FoldOptions { measure: Measure::Total, ..options.clone() };
    let is_counted = kinds.iter().any(|kind| is_counted(&model.kinds.get(*kind).name));
    let has_one_unit = unit(model, &total, &kinds).is_ok();
    Ok(if is_counted || !has_one_unit { Measure::Samples } else { measure(model, &total, &kinds) })
}

/// Returns the names of the event types that [`fold`] selects.
///
/// # Errors
/// A selected event is not in the recording.
pub fn events(model: &Model, options: &FoldOptions) -> Result<BTreeSet<String>, Error> {
    let kinds = choose(model, options)?;
    Ok(kinds.into_iter().map(|kind| event_label(model.kinds.get(kind)).to_owned()).collect())
}

/// Returns how the JVM ran the Java functions of the selected events, by the name that `name` makes of
/// each label. It is the kind that most samples have; of several, the first in the order compiled,
/// inlined, interpreted, native method.
///
/// # Errors
/// A selected event is not in the recording.
pub fn java_kinds(
    model: &Model,
    options: &FoldOptions,
    name: impl Fn(&Arc<str>) -> Arc<str>,
) -> Result<HashMap<Arc<str>, FrameKind>, Error> {
    const KINDS: [FrameKind; 4] =
        [FrameKind::Compiled, FrameKind::Inlined, FrameKind::Interpreted, FrameKind::NativeMethod];
    let mut chosen = vec![false; model.kinds.len()];
    choose(model, options)?.iter().for_each(|kind| chosen[kind.index()] = true);
    let mut of_stacks = vec![0u64; model.stacks.len()];
    for (key, weight) in model.samples.iter().filter(|(key, _)| chosen[key.kind.index()]) {
        if let Some(stack) = key.stack {
            let sum = &mut of_stacks[stack.index()];
            *sum = sum.saturating_add(weight.count);
        }
    }
    let mut of_frames = vec![0u64; model.frames.len()];
    for ((_, stack), samples) in model.stacks.iter().zip(of_stacks).filter(|(_, samples)| *samples > 0) {
        for frame in &stack.frames {
            let sum = &mut of_frames[frame.index()];
            *sum = sum.saturating_add(samples);
        }
    }
    let mut of_names: HashMap<Arc<str>, [u64; 4]> = HashMap::new();
    for ((_, frame), samples) in model.frames.iter().zip(of_frames).filter(|(_, samples)| *samples > 0) {
        if let Some(at) = KINDS.iter().position(|kind| *kind == frame.kind) {
            let sum = &mut of_names.entry(name(&label(frame, options).text)).or_default()[at];
            *sum = sum.saturating_add(samples);
        }
    }
    let most = |sums: [u64; 4]| {
        let (_, kind) = sums.into_iter().zip(KINDS).rev().max_by_key(|&(sum, _)| sum)?;
        Some(kind)
    };
    Ok(of_names.into_iter().filter_map(|(name, sums)| Some((name, most(sums)?))).collect())
}

/// The event types that [`fold`] selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Types {
    /// Full names of the types.
    pub names: BTreeSet<String>,
    /// Types of samples, or their variants if a type has variants; see also [`ASLEEP`].
    pub variants: BTreeSet<String>,
    /// True if samples of [`COVERED`] are selected.
    pub covered: bool,
    /// Time that a sample of a type represents, in ns, where the recording states it.
    pub periods: BTreeMap<Arc<str>, u64>,
}

impl Types {
    /// Returns true if all selected samples represent CPU time, not waiting threads or sleeping threads
    /// of a wall clock.
    pub fn is_cpu(&self) -> bool {
        let is_cpu = |name: &String| [CPU, CPU_TIME_SAMPLE].contains(&name.as_str());
        !self.names.is_empty() && self.names.iter().all(is_cpu) && !self.variants.contains(ASLEEP)
    }

    /// Returns true if samples of this type and variant are selected.
    pub fn includes(&self, event: &str, variant: Option<&str>) -> bool {
        match variant {
            Some(COVERED) => self.covered && self.names.contains(event),
            variant => self.variants.contains(variant.unwrap_or(event)),
        }
    }

    /// Returns true if samples of [`COVERED`] must be excluded although others of the same type are
    /// selected.
    pub fn exclude_covered(&self) -> bool {
        !self.covered && self.names.contains(CPU)
    }
}

/// Returns the types of events that [`fold`] selects.
///
/// # Errors
/// A selected event is not in the recording.
pub fn types(model: &Model, options: &FoldOptions) -> Result<Types, Error> {
    let mut types = Types::default();
    for kind in choose(model, options)? {
        let kind = model.kinds.get(kind);
        types.names.insert(kind.name.to_string());
        types.covered |= kind.variant.as_deref() == Some(COVERED);
        let variant = kind.variant.as_ref().filter(|variant| ***variant != *COVERED);
        types.variants.insert(variant.unwrap_or(&kind.name).to_string());
        if let Some(&period) = model.periods.get(&kind.name) {
            types.periods.insert(kind.name.clone(), period);
        }
    }
    // Without the more exact samples, no sample is covered.
    types.covered |= !types.names.contains(CPU_TIME_SAMPLE);
    Ok(types)
}

/// Returns the time in ns between two samples of the selected events; `None` if the recording does not state it, or it differs.
pub fn sampling_period(model: &Model, options: &FoldOptions) -> Option<u64> {
    let kinds = choose(model, options).ok()?;
    let mut periods = kinds.iter().map(|&kind| period(model, model.kinds.get(kind)));
    let first = periods.next()??;
    periods.all(|other| other == Some(first)).then_some(first)
}

/// Returns the calls of some stacks as a tree without weights, and for each stack the position of its
/// last box.
pub(crate) fn calls(model: &Model, stacks: impl Iterator<Item = Option<Id<Stack>>>) -> (Tree, Vec<u32>) {
    let options = FoldOptions { split_modules: true, ..FoldOptions::default() };
    Folder::new(model, &options).calls(stacks)
}

/// Returns the types of the selected events, their total weight, and the unit of their values if it is
/// the same for all.
pub(crate) fn selected_totals(
    model: &Model,
    options: &FoldOptions,
) -> Option<(BTreeSet<Arc<str>>, Weight, Unit)> {
    let kinds = choose(model, options).ok()?;
    let mut all = Weight::default();
    let by_value = FoldOptions { measure: Measure::Total, ..options.clone() };
    for (key, weight) in model.samples.iter().filter(|(key, _)| kinds.contains(&key.kind)) {
        all.add(Weight { count: weight.count, value: scaled(model, &by_value, key, *weight) });
    }
    let unit = unit(model, &by_value, &kinds).unwrap_or_default();
    let unit = if unit == Unit::Nanoseconds.name() { Unit::Nanoseconds } else { Unit::Samples };
    Some((kinds.iter().map(|kind| model.kinds.get(*kind).name.clone()).collect(), all, unit))
}

/// The number of events of each kind.
fn seen(model: &Model) -> Vec<u64> {
    let mut seen = vec![0u64; model.kinds.len()];
    for (key, weight) in &model.samples {
        let seen = &mut seen[key.kind.index()];
        // An event that was split has a value in each part but a count in one of them only.
        *seen = seen.saturating_add(weight.count.max(u64::from(weight.value > 0)));
    }
    seen
}

fn choose(model: &Model, options: &FoldOptions) -> Result<Vec<Id<EventKind>>, Error> {
    let seen = seen(model);
    let present = |name: &str| -> Vec<Id<EventKind>> {
        let kinds = model.kinds.iter().filter(|(id, kind)| *kind.name == *name && seen[id.index()] > 0);
        kinds.map(|(id, _)| id).collect()
    };
    let varied = |name: &str| -> Vec<Id<EventKind>> {
        let is = |(id, kind): &(Id<EventKind>, &EventKind)| {
            kind.variant.as_deref() == Some(name) && seen[id.index()] > 0
        };
        model.kinds.iter().filter(is).map(|(id, _)| id).collect()
    };
    let is_asleep = |id: &Id<EventKind>| model.kinds.get(*id).variant.as_deref() == Some(ASLEEP);
    let awake =
        |kinds: Vec<Id<EventKind>>| -> Vec<_> { kinds.into_iter().filter(|id| !is_asleep(id)).collect() };
    // Selects the most exact type of each chunk, because recordings that were joined may differ.
    let of_cpu = || {
        let is_covered = |id: &Id<EventKind>| model.kinds.get(*id).variant.as_deref() == Some(COVERED);
        let less_exact = awake(present(CPU)).into_iter().filter(|id| !is_covered(id));
        let kinds: Vec<_> = present(CPU_TIME_SAMPLE).into_iter().chain(less_exact).collect();
        Some(kinds).filter(|kinds| !kinds.is_empty())
    };
    if options.events.is_empty() {
        let preferred = || PREFERRED.iter().map(|name| awake(present(name))).find(|kinds| !kinds.is_empty());
        let preferred = of_cpu().or_else(preferred);
        // All threads may have slept all the time.
        let preferred = preferred.or_else(|| Some(present(CPU)).filter(|kinds| !kinds.is_empty()));
        let other = || {
            let mut events: BTreeMap<&str, u64> = BTreeMap::new();
            for (id, kind) in model.kinds.iter() {
                let events = events.entry(event_label(kind)).or_default();
                *events = events.saturating_add(seen[id.index()]);
            }
            let most = most(events.into_iter());
            let kinds = model
                .kinds
                .iter()
                .filter(|(id, kind)| Some(event_label(kind)) == most && seen[id.index()] > 0);
            kinds.map(|(id, _)| id).collect()
        };
        return Ok(preferred.unwrap_or_else(other));
    }
    let mut kinds: Vec<Id<EventKind>> = Vec::new();
    for asked in options.events.iter().map(|asked| canonical(asked)) {
        let named = |names: &[&str]| -> Vec<_> { names.iter().flat_map(|name| present(name)).collect() };
        if let Some(groups) = alias_groups(asked) {
            let met = if asked == "cpu" { of_cpu() } else { None };
            let met = met.or_else(|| groups.iter().map(|names| named(names)).find(|kinds| !kinds.is_empty()));
            // If some samples are of sleeping threads, all are of a wall clock, and those of awake
            // threads used CPU time.
            let of_wall =
                || (asked == "wall").then(|| present(CPU)).filter(|kinds| kinds.iter().any(is_asleep));
            let of_variant = || Some(varied(asked)).filter(|kinds| !kinds.is_empty());
            let met = met.or_else(of_wall).or_else(of_variant).into_iter().flatten().collect();
            kinds.extend(if asked == "cpu" { awake(met) } else { met });
            continue;
        }
        kinds.extend(spellings(asked).iter().flat_map(|name| present(name)));
        kinds.extend(varied(asked));
    }
    if kinds.is_empty() {
        let recorded = model.kinds.iter().filter(|(id, _)| seen[id.index()] > 0);
        let mut recorded: Vec<String> = recorded.map(|(_, kind)| event_label(kind).to_owned()).collect();
        recorded.dedup();
        return Err(Error::NoSuchEvent {
            asked: options.events.join(", "),
            present: recorded.into_iter().chain(model.passed_over.keys().cloned()).collect(),
        });
    }
    Ok(kinds)
}

/// The name that users know for a kind of event.
fn event_label(kind: &EventKind) -> &str {
    kind.variant.as_deref().filter(|variant| ![ASLEEP, COVERED].contains(variant)).unwrap_or(&kind.name)
}

/// Falls back to counting samples if none of the selected events has a value; exceptions, for example,
/// have no duration.
fn measure(model: &Model, options: &FoldOptions, kinds: &[Id<EventKind>]) -> Measure {
    let chosen = |key: &SampleKey| kinds.contains(&key.kind);
    let mut samples = model.samples.iter().filter(|(key, _)| chosen(key)).peekable();
    let counted = samples.peek().is_some()
        && samples.all(|(key, weight)| model.kinds.get(key.kind).unit != Unit::Samples && weight.value == 0);
    if counted { Measure::Samples } else { options.measure }
}

/// Samples without a value represent the period of their chunk, or else of the first chunk that states
/// one.
fn period(model: &Model, kind: &EventKind) -> Option<u64> {
    kind.period_nanos.or_else(|| model.periods.get(&kind.name).copied())
}

fn scaled(model: &Model, options: &FoldOptions, key: &SampleKey, weight: Weight) -> u64 {
    match options.measure {
        Measure::Samples => weight.count,
        Measure::Total => value(model, key, weight),
    }
}

/// Returns true if samples with this key pass a filter, which is applied to the names used in folded text.
pub(crate) fn passes(model: &Model, key: &SampleKey, filter: &Filter) -> bool {
    let thread = key.thread.map(|thread| model.threads.get(thread));
    let process = thread.and_then(|thread| thread.group.as_deref()).unwrap_or(UNKNOWN_PROCESS);
    let name = thread.map_or_else(|| NO_THREAD.to_owned(), |thread| thread.label());
    if !filter.matches_state(key.state.map_or("", |state| model.states.get(state)))
        || !filter.matches_thread(&name, process)
    {
        return false;
    }
    if filter.include.is_empty() && filter.exclude.is_empty() {
        return true;
    }
    let stack = key.stack.map(|stack| model.stacks.get(stack)).filter(|stack| !stack.frames.is_empty());
    let Some(stack) = stack else { return filter.frames([NO_STACK].into_iter()) };
    let options = FoldOptions::default();
    let labels = stack.frames.iter().map(|&frame| label(model.frames.get(frame), &options).text);
    let labels: Vec<Arc<str>> = labels.collect();
    let cut = stack.truncated.then_some(TRUNCATED);
    filter.frames(cut.into_iter().chain(labels.iter().map(|label| &**label)))
}

/// Returns the value of samples: what they state, or the time that they represent.
pub(crate) fn value(model: &Model, key: &SampleKey, weight: Weight) -> u64 {
    let kind = model.kinds.get(key.kind);
    match kind.unit {
        Unit::Samples => weight.count.saturating_mul(period(model, kind).unwrap_or(1)),
        _ => weight.value,
    }
}

/// Returns the common unit of the weights.
fn unit(model: &Model, options: &FoldOptions, kinds: &[Id<EventKind>]) -> Result<&'static str, Error> {
    if options.measure == Measure::Samples {
        return Ok(Unit::Samples.name());
    }
    let measured = |&kind: &Id<EventKind>| {
        let kind = model.kinds.get(kind);
        match kind.unit {
            Unit::Samples if period(model, kind).is_some() => (kind, Unit::Nanoseconds.name()),
            unit => (kind, unit.name()),
        }
    };
    let mut all = kinds.iter().map(measured);
    let Some((first, unit)) = all.next() else { return Ok(Unit::Samples.name()) };
    match all.find(|&(_, other)| other != unit) {
        Some((kind, other)) => Err(Error::MixedUnits {
            event: first.name.to_string(),
            unit,
            other_event: kind.name.to_string(),
            other_unit: other,
        }),
        None => Ok(unit),
    }
}
