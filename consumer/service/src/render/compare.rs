//! Compares two intervals, targets or versions: the page of `flightline diff`.

use std::collections::BTreeSet;
use std::io::Write;

use flightline_consumer::difference::{Difference, Scale};
use flightline_consumer::fold;
use flightline_consumer::picture;
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::difference::{self, DifferenceOptions};
use flightline_consumer::render::svg::SvgOptions;
use flightline_consumer::reshape::with_stable_names;
use flightline_consumer::tree::Tree;

use super::input::{Inputs, Range};
use super::{Error, Outcome, RenderOptions, Source, flame, off_cpu};

/// One side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Its recordings, treated as one.
    pub recordings: &'a [Source],
    /// Start, UTC ms.
    pub from_ms: Option<i64>,
    /// End (exclusive), UTC ms.
    pub to_ms: Option<i64>,
}

/// A side, read and folded.
struct Read {
    tree: Tree,
    per_sample: f64,
    /// Event types.
    events: BTreeSet<String>,
    outcome: Outcome,
}

fn read(side: &Side<'_>, wanted: &RenderOptions) -> Result<Read, Error> {
    let inputs = Inputs::new(side.recordings, wanted.most_bytes)?;
    let range = Range::new(side.from_ms, side.to_ms)?;
    if let Some(graph) = wanted.event.as_deref().and_then(off_cpu::graph) {
        let tree = off_cpu::read(&inputs, graph, range, wanted)?;
        let outcome = tree.outcome(graph);
        return Ok(Read { tree: tree.tree, per_sample: 1.0, events: BTreeSet::new(), outcome });
    }
    let drawn = flame::read(&inputs, range, wanted, false)?;
    let outcome = drawn.outcome();
    Ok(Read {
        per_sample: picture::per_sample(&drawn.loaded.model, &drawn.options, &drawn.tree),
        events: fold::events(&drawn.loaded.model, &drawn.options)?,
        tree: drawn.tree,
        outcome,
    })
}

/// Writes the page of a comparison; the first side is scaled to the total of the second. The times in
/// `wanted` are ignored, since each side has its own.
///
/// # Errors
/// See [`super::make`]. Also returns an error if the sides have different events.
pub fn compare(
    before: &Side<'_>,
    after: &Side<'_>,
    wanted: &RenderOptions,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let of = |side: &Side<'_>, which: &str| {
        read(side, wanted).map_err(|error| match error {
            Error::TooLarge(text) => Error::TooLarge(format!("{which}: {text}")),
            Error::Refused(text) => Error::Refused(format!("{which}: {text}")),
            Error::Read(text) => Error::Read(format!("{which}: {text}")),
            error => error,
        })
    };
    let (before, after) = (of(before, "Before")?, of(after, "After")?);
    // Names of groups cover the different types of recorders.
    if wanted.event.is_none() && before.events != after.events {
        let names =
            |events: &BTreeSet<String>| events.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(Error::Refused(format!(
            "The first profile has samples of {}, the second of {}; choose an event with `event`.",
            names(&before.events),
            names(&after.events)
        )));
    }
    if before.tree.unit != after.tree.unit {
        return Err(Error::Refused(format!(
            "The first profile is in {}, the second in {}; choose events that both have.",
            before.tree.unit, after.tree.unit
        )));
    }
    let trees = [before.tree, after.tree].map(with_stable_names);
    let mut difference = Difference::new(&trees[0], &trees[1], Scale::Normalized);
    difference.per_sample = [before.per_sample, after.per_sample];
    let picture =
        PictureOptions { title: wanted.title.clone(), subtitle: Some(difference.totals()), inverted: false };
    let svg = SvgOptions { picture, ..SvgOptions::default() };
    difference::page(&difference, &DifferenceOptions { svg, ..DifferenceOptions::default() }, out)?;
    let of_side = |which: &'static str| move |note: String| format!("{which}: {note}");
    let notes = before.outcome.notes.into_iter().map(of_side("Before"));
    Ok(Outcome {
        total: trees[1].total,
        unit: trees[1].unit.clone(),
        whole: before.outcome.whole && after.outcome.whole,
        notes: notes.chain(after.outcome.notes.into_iter().map(of_side("After"))).collect(),
    })
}
