//! From recordings to the page of a flame graph: what the command and the profiling service have in common.

use crate::amount::amount;
use crate::convert::Track;
use crate::error::Error;
use crate::fold::{self, FoldOptions, Measure};
use crate::live;
use crate::load::LoadOptions;
use crate::missing::Missing;
use crate::model::{Model, Unit};
use crate::print::clock;
use crate::render::times::{By, Moments, Times};
use crate::reshape::Reshape;
use crate::tree::Tree;

/// Reads what is wanted of recordings that can be read again, by `attempt`. If no event is asked for, those that are taken first are loaded first,
/// and others only if there are none of them.
///
/// # Errors
/// Those of `attempt`.
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
    // Counts are of the whole recording; which type has most in a range of time is seen only by loading all.
    let ranged = options.from_nanos.is_some() || options.to_nanos.is_some();
    let events = if ranged { Vec::new() } else { vec![other] };
    attempt(LoadOptions { events, ..options })
}

/// The same stacks as `tree` by the other measure: by what samples stand for, or by their number. `None` if the recording does not say
/// what they stand for, or says it in different units.
pub fn otherwise(model: &Model, options: &FoldOptions, reshape: &Reshape, tree: &Tree) -> Option<Tree> {
    let measure = match options.measure {
        Measure::Total => Measure::Samples,
        Measure::Samples => Measure::Total,
    };
    let other = reshape.tree(fold::fold(model, &FoldOptions { measure, ..options.clone() }).ok()?);
    (other.unit != tree.unit && other.total > 0).then_some(other)
}

/// What a sample of `tree` weighs on average; 1 if it counts samples.
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

/// Samples that there are, if one of the measures tells.
pub fn samples(measures: &[&Tree]) -> Option<u64> {
    measures.iter().find(|tree| tree.unit == Unit::Samples.name()).map(|tree| tree.total)
}

/// The types of events that a page draws, and what it has to be told to know their times.
///
/// # Errors
/// As of [`fold::events`].
pub fn timed(model: &Model, options: &FoldOptions) -> Result<(Vec<String>, live::Options), Error> {
    let events: Vec<String> = fold::events(model, options)?.into_iter().collect();
    let wanted = live::Options {
        samples: events.clone(),
        others: false,
        lasting: true,
        periods: model.periods.clone(),
        ..Default::default()
    };
    Ok((events, wanted))
}

/// When samples were taken, if they are those of the measures, of which the first is as `options` say, the second the other one.
pub fn times(moments: Moments, measures: &[&Tree], options: &FoldOptions) -> Option<Times> {
    let by = [By::Weight, By::Otherwise];
    let measures: Vec<_> = measures.iter().copied().zip(by).collect();
    let frames = |track: &Track| {
        let process = match track.process_id {
            0 => track.process.clone(),
            id => format!("{} ({id})", track.process),
        };
        let frames = [options.by_process.then_some(process), options.by_thread.then(|| track.label.clone())];
        frames.into_iter().flatten().collect()
    };
    Times::new(moments, &measures, frames)
}

/// Describes a picture of recordings: the program if there is one only, the events and their total, the time range, the share that is
/// missing, and the other events. With an interval, in ns since 1970, it states the interval and not the other events.
pub fn headline(
    model: &Model,
    options: &FoldOptions,
    tree: &Tree,
    missing: Option<&Missing>,
    interval: Option<(i64, i64)>,
) -> String {
    let mut parts = Vec::new();
    // `name (pid)`: the JDK's groups of threads are no programs.
    let mut programs: Vec<&str> = model
        .threads
        .iter()
        .filter_map(|(_, thread)| thread.group.as_deref())
        .filter(|of| of.ends_with(')'))
        .collect();
    programs.sort_unstable();
    programs.dedup();
    if let [program] = programs[..] {
        parts.push(program.to_owned());
    }
    let drawn = fold::events(model, options).unwrap_or_default();
    let called = |event: &String| fold::alias_of(event).unwrap_or(event).to_owned();
    let mut names: Vec<String> =
        if options.events.is_empty() { drawn.iter().map(called).collect() } else { options.events.clone() };
    names.dedup();
    parts.push(format!("{}: {}", names.join(", "), amount(tree.total, &tree.unit)));
    if let Some((start, end)) = interval.or(model.range_nanos) {
        let length = end.saturating_sub(start);
        // Seconds are enough to find it.
        let mut range = clock::iso(start.saturating_sub(start.rem_euclid(1_000_000_000)));
        if let Some(length) = u64::try_from(length).ok().filter(|&length| length > 0) {
            range.push_str(&format!(", {}", amount(length, "ns")));
        }
        parts.push(range);
    }
    parts.extend(missing.and_then(Missing::share));
    let there = model.passed_over.iter().map(|(name, &events)| (name.clone(), events));
    let others = fold::offered(&there.filter(|(name, _)| !drawn.contains(name)).collect());
    // Types that have no short name are seldom looked for.
    let is_other = |name: &String| !names.contains(name) && !name.contains('.');
    let others: Vec<String> = others.into_iter().filter(is_other).collect();
    if !others.is_empty() && interval.is_none() {
        parts.push(format!("also recorded: {}", others.join(", ")));
    }
    parts.join(" · ")
}
