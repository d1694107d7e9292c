//! Model → tree: which samples, by what measure, under what names.

mod folder;
mod functions;
mod trie;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use regex::Regex;

use crate::error::Error;
use crate::load::VARIED;
use crate::model::{
    ASLEEP, COVERED, CPU_TIME_SAMPLE, EXECUTION_SAMPLE as CPU, EventKind, FrameKind, Id, Model, SampleKey,
    Stack, Unit, Weight,
};
use crate::tree::Tree;
use folder::Folder;
pub(crate) use folder::class_label;
pub use folder::label;
pub(crate) use functions::{Function, Functions, functions};

/// What widths measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Number of samples.
    #[default]
    Samples,
    /// What samples stand for: time or bytes.
    Total,
}

/// How a model is folded.
#[derive(Clone, Debug, Default)]
pub struct FoldOptions {
    /// Names or aliases of event types; empty: the best there is, CPU samples first.
    pub events: Vec<String>,
    /// What widths measure.
    pub measure: Measure,
    /// First frame: the process.
    pub by_process: bool,
    /// First frame, or the one after the process: the thread.
    pub by_thread: bool,
    /// Put the library before the names of native functions.
    pub modules: bool,
    /// Put the source line behind the name.
    pub lines: bool,
    /// Functions of the same name in different libraries become different boxes.
    pub split_modules: bool,
    /// Keep virtual threads apart. Else they are one thread.
    pub each_virtual_thread: bool,
    /// End stacks in the class of the object that was allocated, waited for or thrown.
    pub classes: bool,
    /// Which samples.
    pub filter: Filter,
}

/// Which samples are taken.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Some frame must match each of these.
    pub include: Vec<Regex>,
    /// No frame may match any of these.
    pub exclude: Vec<Regex>,
    /// The thread's label (`[name tid=1]`) must match.
    pub thread: Option<Regex>,
    /// The process (`name (pid)`) must match.
    pub process: Option<Regex>,
    /// The thread state must match.
    pub state: Option<Regex>,
}

impl Filter {
    /// Whether the frames of a stack pass.
    pub fn frames<'a>(&self, frames: impl Iterator<Item = &'a str> + Clone) -> bool {
        let any = |regex: &Regex| frames.clone().any(|frame| regex.is_match(frame));
        self.include.iter().all(any) && !self.exclude.iter().any(any)
    }

    /// Whether what is told of no thread, or of a thread of this label and process, passes.
    pub(crate) fn is_of_thread(&self, label: &str, process: &str) -> bool {
        self.thread.as_ref().is_none_or(|regex| regex.is_match(label))
            && self.process.as_ref().is_none_or(|regex| regex.is_match(process))
    }

    /// Whether a state passes; none is empty.
    pub(crate) fn is_of_state(&self, state: &str) -> bool {
        self.state.as_ref().is_none_or(|regex| regex.is_match(state))
    }
}

/// Marks a stack that was not walked to its root.
pub const TRUNCATED: &str = "[truncated]";
/// Stands for the thread of an event that has none.
pub(crate) const NO_THREAD: &str = "[no thread]";
/// Stands for the process of a thread whose process is not told.
pub(crate) const UNKNOWN_PROCESS: &str = "[unknown process]";
/// Stands for the stack of an event that has none.
pub const NO_STACK: &str = "[no stack]";
/// Stands for the frames of a stack that there is no room for: only input made to do harm has that many.
pub const TOO_MANY_FRAMES: &str = "[too many frames]";

/// Short names of event types: groups of types, of which the first that was recorded is taken. Both types of `cpu` measure
/// the same time. JDK 25 can record both; `jdk.CPUTimeSample` is the more exact one (JEP 509). `alloc` is of the JVM's heap where there
/// is one.
const ALIASES: &[(&str, &[&[&str]])] = &[
    ("cpu", &[&["jdk.CPUTimeSample"], &[CPU], &["datadog.ExecutionSample"]]),
    ("wall", &[&["profiler.WallClockSample"], &["datadog.MethodSample"]]),
    (
        "alloc",
        &[
            &[
                "jdk.ObjectAllocationSample",
                "jdk.ObjectAllocationInNewTLAB",
                "jdk.ObjectAllocationOutsideTLAB",
            ],
            &["profiler.Malloc"],
        ],
    ),
    ("live", &[&["profiler.LiveObject"], &["flightline.LiveAllocation"]]),
    // The native locks of a JVM have an alias of their own.
    ("lock", &[&["jdk.JavaMonitorEnter", "jdk.JavaMonitorWait", "jdk.ThreadPark"], &["profiler.NativeLock"]]),
    ("nativelock", &[&["profiler.NativeLock"]]),
    (
        "io",
        &[&[
            "jdk.FileRead",
            "jdk.FileWrite",
            "jdk.FileForce",
            "jdk.SocketRead",
            "jdk.SocketWrite",
            "flightline.SocketConnect",
            "flightline.SocketAccept",
        ]],
    ),
    ("block", &[&["flightline.BlockIo"]]),
    ("growth", &[&["flightline.MemoryGrowth"]]),
    ("nativemem", &[&["profiler.Malloc"]]),
    ("trace", &[&["jdk.MethodTrace", "flightline.FunctionCall"]]),
    ("exception", &[&["jdk.JavaExceptionThrow", "jdk.JavaErrorThrow", "flightline.Throw"]]),
    ("throw", &[&["jdk.JavaExceptionThrow", "jdk.JavaErrorThrow", "flightline.Throw"]]),
];

/// Taken when no event is asked for: the first that was recorded.
pub(crate) const PREFERRED: &[&str] =
    &["jdk.CPUTimeSample", CPU, "profiler.WallClockSample", "jdk.NativeMethodSample"];

/// What to load if no event is asked for, to begin with: all of them but the last are mostly alone in a recording.
pub const FIRST_LOADED: &[&str] = PREFERRED.split_at(3).0;

/// What to load if there is nothing of [`FIRST_LOADED`]: `events` are those of each type with stack traces.
pub fn else_loaded(events: &BTreeMap<String, u64>) -> Option<&str> {
    if let Some(name) = PREFERRED.iter().find(|&&name| events.contains_key(name)) {
        return Some(name);
    }
    most(events.iter().map(|(name, &count)| (name.as_str(), count)))
}

/// Types that are drawn only if `-e` selects them. Each thread has a `jdk.ThreadStart`, also in a recording without samples, and
/// `profiler.Free` has no stack.
const NEVER_FIRST: [&str; 2] = ["jdk.ThreadStart", "profiler.Free"];

/// The type with most events; of several, the first by name, whatever the order they came in.
fn most<'a>(types: impl Iterator<Item = (&'a str, u64)>) -> Option<&'a str> {
    let sampled = types.filter(|(name, _)| !NEVER_FIRST.contains(name));
    sampled.max_by_key(|&(name, count)| (count, Reverse(name))).map(|(name, _)| name)
}

/// Other words for aliases, as other tools and people use them.
const SYNONYMS: [(&str, &str); 10] = [
    ("allocation", "alloc"),
    ("allocations", "alloc"),
    ("ctimer", "cpu"),
    ("exceptions", "exception"),
    ("execution", "cpu"),
    ("itimer", "cpu"),
    ("locks", "lock"),
    ("memory", "alloc"),
    ("monitors", "lock"),
    ("wallclock", "wall"),
];

/// Returns the alias of a synonym, or the name itself.
fn canonical(name: &str) -> &str {
    SYNONYMS.iter().find(|(word, _)| *word == name).map_or(name, |(_, alias)| alias)
}

/// Returns the groups of types of an alias or a synonym.
fn alias_groups(name: &str) -> Option<&'static [&'static [&'static str]]> {
    let name = canonical(name);
    ALIASES.iter().find(|(alias, _)| *alias == name).map(|&(_, groups)| groups)
}

/// Full names of the event types that `names` and aliases stand for.
pub fn event_names(names: &[String]) -> Vec<String> {
    let mut full = Vec::new();
    for name in names {
        match alias_groups(name) {
            Some(groups) => full.extend(groups.iter().flat_map(|g| g.iter()).map(|&e| e.to_owned())),
            None => {
                full.extend(spellings(name));
                // It may be one of the things that events of this type tell of.
                full.push(VARIED.to_owned());
            }
        }
    }
    full
}

/// Full names of the event types to load before [`fold`] selects events by `names`. `wall` includes the type that async-profiler used
/// for its wall clock before version 4.
pub fn loaded_names(names: &[String]) -> Vec<String> {
    let of_wall = names.iter().any(|name| canonical(name) == "wall").then(|| CPU.to_owned());
    event_names(names).into_iter().chain(of_wall).collect()
}

/// The full names of the types that `name` stands for where these were recorded: of an alias the first group of which there is one.
pub fn taken(name: &str, events: &BTreeMap<String, u64>) -> Vec<String> {
    let there = |event: &&str| events.get(*event).is_some_and(|&count| count > 0);
    match alias_groups(name) {
        Some(groups) => {
            let found = groups.iter().map(|group| group.iter().copied().filter(|event| there(event)));
            let found = found.map(|group| group.map(str::to_owned).collect::<Vec<_>>());
            found.into_iter().find(|group| !group.is_empty()).unwrap_or_default()
        }
        None => spellings(name).into_iter().filter(|event| there(&event.as_str())).collect(),
    }
}

/// The short name of the group that an event type is in, if it is in one.
pub fn alias_of(event: &str) -> Option<&'static str> {
    let among = |groups: &[&[&str]]| groups.iter().any(|group| group.contains(&event));
    ALIASES.iter().find(|(_, groups)| among(groups)).map(|&(alias, _)| alias)
}

/// What can be asked for where these types of events with stack traces are: first short names of groups, then the names of types that are in no
/// group.
pub fn offered(types: &BTreeMap<String, u64>) -> Vec<String> {
    let there = |name: &str| types.get(name).is_some_and(|&events| events > 0);
    let met = |groups: &&'static [&'static [&'static str]]| {
        groups.iter().find(|names| names.iter().any(|name| there(name))).copied()
    };
    let mut groups: Vec<(&str, &[&str])> = Vec::new();
    // Two words for one thing; `flightline record -e` has the other.
    for (alias, of) in ALIASES.iter().filter(|(alias, _)| *alias != "exception") {
        // Another word for a group that is there already says nothing new.
        if let Some(names) = met(of).filter(|names| !groups.iter().any(|(_, known)| known == names)) {
            groups.push((alias, names));
        }
    }
    let alone = types.keys().filter(|name| there(name) && alias_of(name).is_none());
    groups.iter().map(|(alias, _)| (*alias).to_owned()).chain(alone.cloned()).collect()
}

/// Counts the events with stack traces of a recording: by type, or by variant where events of a type are of several things. Types that were
/// passed over count as well.
pub fn recorded(model: &Model) -> BTreeMap<String, u64> {
    let mut seen = vec![0u64; model.kinds.len()];
    for (key, weight) in &model.samples {
        let seen = &mut seen[key.kind.index()];
        *seen = seen.saturating_add(weight.count.max(u64::from(weight.value > 0)));
    }
    let mut events = model.passed_over.clone();
    for ((_, kind), seen) in model.kinds.iter().zip(seen) {
        if seen > 0 {
            let events = events.entry(event_label(kind).to_owned()).or_default();
            *events = events.saturating_add(seen);
        }
    }
    events
}

/// Returns the events of a recording that can be drawn besides `drawn`, as `-e` accepts them, with their numbers of samples: those with most
/// samples first. `events` are those of each type, see [`recorded`].
pub fn others(events: &BTreeMap<String, u64>, drawn: &BTreeSet<String>) -> Vec<(String, u64)> {
    let mut covered = drawn.clone();
    let mut others: Vec<(String, u64)> = Vec::new();
    // A type that only the second group of an alias has is offered by its own name.
    for name in offered(events).into_iter().chain(events.keys().cloned()) {
        let types = taken(&name, events);
        let types = if types.is_empty() { vec![name.clone()] } else { types };
        if NEVER_FIRST.contains(&&*name) || types.iter().all(|of| covered.contains(of)) {
            continue;
        }
        let samples =
            types.iter().filter_map(|of| events.get(of)).fold(0, |sum: u64, n| sum.saturating_add(*n));
        covered.extend(types);
        others.push((name, samples));
    }
    others.retain(|&(_, samples)| samples > 0);
    others.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    others
}

fn spellings(name: &str) -> Vec<String> {
    match name.contains('.') {
        true => vec![name.to_owned()],
        false => ["jdk.", "profiler.", "flightline."].map(|prefix| format!("{prefix}{name}")).to_vec(),
    }
}

/// Folds the chosen samples.
///
/// # Errors
/// An event that was asked for is not in the recording; what samples stand for is wanted of types that cannot be added.
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

/// Names of the event types that [`fold`] takes.
///
/// # Errors
/// An event that was asked for is not in the recording.
pub fn events(model: &Model, options: &FoldOptions) -> Result<BTreeSet<String>, Error> {
    let kinds = choose(model, options)?;
    Ok(kinds.into_iter().map(|kind| event_label(model.kinds.get(kind)).to_owned()).collect())
}

/// Returns how the virtual machine ran the Java functions of the selected events, by the names that `name` makes of their labels: in each case
/// the kind that most samples have; of several, the first in the order compiled, inlined, interpreted, native method.
///
/// # Errors
/// The recording has no event that was selected.
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

/// Types of events that [`fold`] selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Types {
    /// Full names of the types.
    pub names: BTreeSet<String>,
    /// What samples are of: the type, or the variant, where events of a type are of several things, or [`ASLEEP`].
    pub variants: BTreeSet<String>,
    /// Time that a sample of a type represents, in ns, where the recording states it.
    pub periods: BTreeMap<Arc<str>, u64>,
}

/// Returns the types of events that [`fold`] selects.
///
/// # Errors
/// The recording has no event that was selected.
pub fn types(model: &Model, options: &FoldOptions) -> Result<Types, Error> {
    let mut types = Types::default();
    for kind in choose(model, options)? {
        let kind = model.kinds.get(kind);
        types.names.insert(kind.name.to_string());
        let variant = kind.variant.as_ref().filter(|variant| ***variant != *COVERED);
        types.variants.insert(variant.unwrap_or(&kind.name).to_string());
        if let Some(&period) = model.periods.get(&kind.name) {
            types.periods.insert(kind.name.clone(), period);
        }
    }
    Ok(types)
}

/// The calls of some stacks as a tree without weights, and by stack the position of the box that it ends at.
pub(crate) fn calls(model: &Model, stacks: impl Iterator<Item = Option<Id<Stack>>>) -> (Tree, Vec<u32>) {
    let options = FoldOptions { split_modules: true, ..FoldOptions::default() };
    Folder::new(model, &options).calls(stacks)
}

/// The types of the chosen events, all that was read of them, and in which unit its value is, if in one.
pub(crate) fn all_of(model: &Model, options: &FoldOptions) -> Option<(BTreeSet<Arc<str>>, Weight, Unit)> {
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

fn choose(model: &Model, options: &FoldOptions) -> Result<Vec<Id<EventKind>>, Error> {
    let mut seen = vec![0u64; model.kinds.len()];
    for (key, weight) in &model.samples {
        let seen = &mut seen[key.kind.index()];
        // A part of something counts with another part of it.
        *seen = seen.saturating_add(weight.count.max(u64::from(weight.value > 0)));
    }
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
    // Of each chunk the most exact type: several recordings may have different ones.
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
            // Where some were asleep, all are of a wall clock, and those awake used CPU time.
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

/// What users call a kind of events.
fn event_label(kind: &EventKind) -> &str {
    kind.variant.as_deref().filter(|variant| ![ASLEEP, COVERED].contains(variant)).unwrap_or(&kind.name)
}

/// Counts where nothing of what was chosen has a value, as exceptions, which last no time.
fn measure(model: &Model, options: &FoldOptions, kinds: &[Id<EventKind>]) -> Measure {
    let chosen = |key: &SampleKey| kinds.contains(&key.kind);
    let mut samples = model.samples.iter().filter(|(key, _)| chosen(key)).peekable();
    let counted = samples.peek().is_some()
        && samples.all(|(key, weight)| model.kinds.get(key.kind).unit != Unit::Samples && weight.value == 0);
    if counted { Measure::Samples } else { options.measure }
}

/// Samples that carry no value stand for the period of their chunk, or else of the first chunk that tells one.
fn period(model: &Model, kind: &EventKind) -> Option<u64> {
    kind.period_nanos.or_else(|| model.periods.get(&kind.name).copied())
}

fn scaled(model: &Model, options: &FoldOptions, key: &SampleKey, weight: Weight) -> u64 {
    let kind = model.kinds.get(key.kind);
    match (options.measure, kind.unit) {
        (Measure::Samples, _) => weight.count,
        (Measure::Total, Unit::Samples) => weight.count.saturating_mul(period(model, kind).unwrap_or(1)),
        (Measure::Total, _) => weight.value,
    }
}

/// What the widths are in: one unit for all.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginnings_of_threads_are_no_samples() {
        let of = |events: &[(&str, u64)]| {
            let events: BTreeMap<String, u64> =
                events.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            else_loaded(&events).map(str::to_owned)
        };
        assert_eq!(of(&[("jdk.ThreadStart", 9)]), None);
        assert_eq!(of(&[("jdk.ThreadStart", 9), ("my.Event", 2)]).as_deref(), Some("my.Event"));
        assert_eq!(
            of(&[("jdk.ThreadStart", 9), ("jdk.NativeMethodSample", 1), ("my.Event", 2)]).as_deref(),
            Some("jdk.NativeMethodSample")
        );
    }

    #[test]
    fn other_events_are_offered_by_number_of_samples() {
        let others = |events: &[(&str, u64)], drawn: &[&str]| {
            let events = events.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            others(&events, &drawn.iter().map(|&name| name.to_owned()).collect())
        };
        let events = [
            ("jdk.ExecutionSample", 9),
            // The first group of `cpu`.
            ("jdk.CPUTimeSample", 3),
            ("jdk.ThreadPark", 2),
            ("jdk.JavaMonitorEnter", 2),
            ("profiler.Malloc", 5),
            ("profiler.Free", 5),
            ("jdk.ThreadStart", 8),
            ("my.Event", 4),
            ("my.Empty", 0),
        ];
        let owned = |offered: [(&str, u64); 4]| offered.map(|(name, count)| (name.to_owned(), count));
        let offered = owned([("alloc", 5), ("lock", 4), ("my.Event", 4), ("cpu", 3)]);
        assert_eq!(others(&events, &["jdk.ExecutionSample"]), offered);
        let offered = owned([("jdk.ExecutionSample", 9), ("alloc", 5), ("lock", 4), ("my.Event", 4)]);
        assert_eq!(others(&events, &["jdk.CPUTimeSample"]), offered);
        assert_eq!(others(&events[..1], &["jdk.ExecutionSample"]), []);
    }
}
