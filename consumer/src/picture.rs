//! Makes the page of a flame graph from recordings. Shared by the command line and the profiling service.

mod loader;

pub use loader::{PageLoader, PageTimes, beginning};

use std::collections::{BTreeSet, HashMap};

use crate::amount::amount;
use crate::convert::Track;
use crate::decode::VARIED;
use crate::error::Error;
use crate::fold::{self, FoldOptions, Measure, Types};
use crate::load::LoadOptions;
use crate::missing::{self, Missing};
use crate::model::{ASLEEP, EXECUTION_SAMPLE, Jvm, Model, SampleKey, Unit};
use crate::print::clock;
use crate::render::html::Event;
use crate::render::java::{self, Java};
use crate::render::times::{Moments, Times};
use crate::reshape::{Boxes, Reshape};
use crate::tree::Tree;

/// Loads the selected events of recordings that can be read repeatedly, by `attempt`. If no event is
/// selected, the preferred events are loaded first, and others only if there are no preferred ones.
///
/// # Errors
/// The errors of `attempt`.
pub fn load_first<T, E>(
    options: LoadOptions,
    model: impl Fn(&T) -> &Model,
    mut attempt: impl FnMut(LoadOptions) -> Result<T, E>,
) -> Result<T, E> {
    if !options.events.is_empty() {
        return attempt(options);
    }
    let first = fold::FIRST_LOADED.iter().map(|&name| name.to_owned()).collect();
    let loaded = attempt(LoadOptions { events: first, ..options.clone() })?;
    let other = fold::else_loaded(&model(&loaded).passed_over).map(str::to_owned);
    let Some(other) = other.filter(|_| model(&loaded).samples.is_empty()) else { return Ok(loaded) };
    // Counts refer to the whole recording. Finding the most frequent type of a time range requires
    // loading all types.
    let ranged = options.from_nanos.is_some() || options.to_nanos.is_some();
    let events = if ranged { Vec::new() } else { vec![other] };
    attempt(LoadOptions { events, ..options })
}

/// Returns the stacks of `tree` by the other measure: by weight, or by number of samples. `None` if the
/// recording does not state the weights, or states them in different units.
pub fn otherwise(model: &Model, options: &FoldOptions, reshape: &Reshape, tree: &Tree) -> Option<Tree> {
    let measure = match options.measure {
        Measure::Total => Measure::Samples,
        Measure::Samples => Measure::Total,
    };
    let other = reshape.tree(fold::fold(model, &FoldOptions { measure, ..options.clone() }).ok()?);
    (other.unit != tree.unit && other.total > 0).then_some(other)
}

/// Returns the average weight of a sample in `tree`; 1 if it counts samples.
pub fn per_sample(model: &Model, options: &FoldOptions, tree: &Tree) -> f64 {
    if options.measure == Measure::Samples {
        return 1.0;
    }
    let counted = fold::fold(model, &FoldOptions { measure: Measure::Samples, ..options.clone() });
    counted
        .ok()
        .filter(|counted| counted.total > 0)
        .map_or(1.0, |counted| tree.total as f64 / counted.total as f64)
}

/// Returns the number of samples, if one of the measures counts them.
pub fn samples(measures: &[&Tree]) -> Option<u64> {
    measures.iter().find(|tree| tree.unit == Unit::Samples.name()).map(|tree| tree.total)
}

/// Maximum number of events that a page includes without a selection.
pub const MOST_EVENTS: usize = 12;
/// Maximum number of samples of all events on a page, without the event shown first.
pub const MOST_OTHER_SAMPLES: u64 = 1 << 20;

/// Events that a page can include besides the event shown first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Their names, as `-e` accepts them, most samples first.
    pub names: Vec<String>,
    /// Names and numbers of samples of events beyond [`MOST_EVENTS`] or [`MOST_OTHER_SAMPLES`].
    pub left_out: Vec<(String, u64)>,
}

/// Selects the events that a page includes besides those of `options`. For types that were not loaded,
/// the numbers refer to the whole recording.
///
/// # Errors
/// As for [`fold::events`].
pub fn offer(model: &Model, options: &FoldOptions) -> Result<Offer, Error> {
    let drawn = fold::types(model, options)?;
    let mut others = fold::others(&fold::recorded(model), &fold::events(model, options)?);
    // The wall clock of async-profiler before version 4 has no type of its own.
    let asleep = model.kinds.iter().any(|(_, kind)| kind.variant.as_deref() == Some(ASLEEP));
    if asleep && !drawn.variants.contains(ASLEEP) && !others.iter().any(|(name, _)| name == "wall") {
        let is_sample = |key: &SampleKey| &*model.kinds.get(key.kind).name == EXECUTION_SAMPLE;
        let samples = model.samples.iter().filter(|(key, _)| is_sample(key));
        let samples = samples.fold(0, |sum: u64, (_, weight)| sum.saturating_add(weight.count));
        others.insert(0, ("wall".to_owned(), samples));
    }
    let (mut offer, mut left) = (Offer::default(), MOST_OTHER_SAMPLES);
    for (name, samples) in others {
        if samples <= left && offer.names.len() + 1 < MOST_EVENTS {
            left -= samples;
            offer.names.push(name);
        } else {
            offer.left_out.push((name, samples));
        }
    }
    Ok(offer)
}

/// The stacks of an event on a page.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The event.
    pub event: Event,
    /// Kinds and origins of its Java code.
    pub java: Java,
    /// The event types that it includes.
    pub types: DrawnTypes,
}

/// The event types that an event of a page includes.
#[derive(Clone, Debug, Default)]
pub struct DrawnTypes {
    /// The types.
    pub types: Types,
    /// True if their samples are in the model of the types that were not selected ([`PageTimes::others`]).
    pub is_other: bool,
}

impl From<Types> for DrawnTypes {
    fn from(types: Types) -> Self {
        Self { types, is_other: false }
    }
}

/// Returns kinds and origins of Java code for a flame graph. The application consists of the packages of
/// the main class, if one is recorded.
pub fn java(model: &Model, options: &FoldOptions, reshape: &Reshape) -> Java {
    let kinds = match reshape.boxes {
        Boxes::Functions => {
            fold::java_kinds(model, options, |text| reshape.names.apply(text)).unwrap_or_default()
        }
        Boxes::Modules | Boxes::Packages => HashMap::new(),
    };
    let mains: BTreeSet<String> = model.jvms.iter().filter_map(|jvm| main_package(&jvm.main)).collect();
    Java { kinds, application: mains.into_iter().collect() }
}

/// The first two parts of the package of a main class; `None` if it has no package, or is a JAR.
fn main_package(main: &str) -> Option<String> {
    let (package, class) = main.rsplit_once('.')?;
    let is_class = class.starts_with(char::is_uppercase);
    if is_class { java::prefix(package) } else { None }
}

/// Folds the event `name` for a page: first by the time or bytes of its samples, then by their number.
/// `others` are names of recorded events that are not on the page. Returns `None` if no samples of the
/// event are left.
pub fn event(
    model: &Model,
    options: &FoldOptions,
    reshape: &Reshape,
    name: &str,
    others: &[String],
) -> Option<Drawn> {
    let by = |measure| FoldOptions { events: vec![name.to_owned()], measure, ..options.clone() };
    // The types of an alias may have different units, which cannot be added.
    let (options, tree) = [by(Measure::Total), by(Measure::Samples)]
        .into_iter()
        .find_map(|options| fold::fold(model, &options).ok().map(|tree| (options, reshape.tree(tree))))?;
    if tree.total == 0 {
        return None;
    }
    let other = otherwise(model, &options, reshape, &tree);
    let types = fold::types(model, &options).ok()?;
    let measures: Vec<Tree> = [tree].into_iter().chain(other).collect();
    let missing = missing::selected_losses(model, &options);
    let shown: Vec<&Tree> = measures.iter().collect();
    let subtitle = headline(model, &options, &shown, missing.as_ref(), None, others);
    let java = java(model, &options, reshape);
    let event = Event { name: name.to_owned(), subtitle: Some(subtitle), measures, latency: None };
    Some(Drawn { event, java, types: types.into() })
}

/// Expands `name` to the names of events: to the variants if it is the type whose events have variants.
pub fn variants(model: &Model, name: &str) -> Vec<String> {
    if name != VARIED {
        return vec![name.to_owned()];
    }
    let kinds = model.kinds.iter().filter(|(_, kind)| &*kind.name == VARIED);
    let mut names: Vec<String> =
        kinds.filter_map(|(_, kind)| Some(kind.variant.as_ref()?.to_string())).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST_EVENTS);
    names
}

/// Returns the times of samples, if the samples add up to the trees. `events` has the trees of each event
/// of the page.
pub fn times(moments: Moments, events: &[&[&Tree]], options: &FoldOptions) -> Option<Times> {
    let frames = |track: &Track| {
        let process = match track.process_id {
            0 => track.process.clone(),
            id => format!("{} ({id})", track.process),
        };
        let frames = [options.by_process.then_some(process), options.by_thread.then(|| track.label.clone())];
        frames.into_iter().flatten().collect()
    };
    Times::new(moments, events, frames)
}

/// Describes a flame graph, so that a screenshot of it is self-explanatory. The parts are:
///
/// * the program with its process id, the virtual machine and the host, each if there is only one
/// * the events and their totals by each measure
/// * the time between two samples, if the recording states it
/// * the date and the duration
/// * the share that was lost, from 1 %
/// * `others`: events that were recorded but are not shown
///
/// `interval`, in ns since 1970, replaces the time range of the model.
pub fn headline(
    model: &Model,
    options: &FoldOptions,
    measures: &[&Tree],
    missing: Option<&Missing>,
    interval: Option<(i64, i64)>,
    others: &[String],
) -> String {
    let mut parts = about(model);
    let names = fold::selected_names(model, options);
    let totals: Vec<String> = measures.iter().map(|tree| amount(tree.total, &tree.unit)).collect();
    parts.push(format!("{}: {}", names.join(", "), totals.join(", ")));
    parts.extend(
        fold::sampling_period(model, options).map(|period| format!("every {}", amount(period, "ns"))),
    );
    if let Some((start, end)) = interval.or(model.range_nanos) {
        let length = end.saturating_sub(start);
        // Seconds are precise enough.
        let mut range = clock::iso(start.saturating_sub(start.rem_euclid(1_000_000_000)));
        if let Some(length) = u64::try_from(length).ok().filter(|&length| length > 0) {
            range.push_str(&format!(", {}", amount(length, "ns")));
        }
        parts.push(range);
    }
    parts.extend(missing.and_then(Missing::share));
    // Types without a short name are rarely of interest.
    let others: Vec<&str> = others.iter().map(String::as_str).filter(|name| !name.contains('.')).collect();
    if !others.is_empty() {
        parts.push(format!("also recorded: {}", others.join(", ")));
    }
    parts.join(" · ")
}

/// The events of a recording that `options` do not select.
pub fn also_recorded(model: &Model, options: &FoldOptions) -> Vec<String> {
    let drawn = fold::events(model, options).unwrap_or_default();
    let names = fold::selected_names(model, options);
    let there = model.passed_over.iter().map(|(name, &events)| (name.clone(), events));
    let others = fold::offered(&there.filter(|(name, _)| !drawn.contains(name)).collect());
    others.into_iter().filter(|name| !names.contains(name)).collect()
}

/// Returns the program, the virtual machine and the host, each if there is only one.
fn about(model: &Model) -> Vec<String> {
    // `name (pid)`; the JDK's thread groups are not programs.
    let mut programs: Vec<&str> = model
        .threads
        .iter()
        .filter_map(|(_, thread)| thread.group.as_deref())
        .filter(|of| of.ends_with(')'))
        .collect();
    programs.sort_unstable();
    programs.dedup();
    let only = |of: &mut dyn Iterator<Item = String>| {
        let all: BTreeSet<String> = of.filter(|text| !text.is_empty()).collect();
        if all.len() == 1 { all.into_iter().next() } else { None }
    };
    let mut parts = Vec::new();
    match programs[..] {
        [program] => parts.push(program.to_owned()),
        [] => parts.extend(only(&mut model.jvms.iter().map(Jvm::program))),
        _ => {}
    }
    parts.extend(only(&mut model.jvms.iter().map(|jvm| jvm.version.clone())));
    parts.extend(only(&mut model.hosts.iter().map(|host| format!("host {host}"))));
    parts
}
