//! Reads inputs sample by sample if they have timestamps.

use std::path::{Path, PathBuf};

use anyhow::Result;
use flightline_consumer::convert::{Collecting, Tracks};
use flightline_consumer::fold;
use flightline_consumer::latency::Summary;
use flightline_consumer::live::{self, Item};
use flightline_consumer::model::Model;
use flightline_consumer::picture::{DrawnTypes, PageTimes};
use flightline_consumer::unfreed;

use crate::items;
use crate::range;
use crate::repository;
use crate::select::SelectArgs;
use crate::stacks::{self, For, Profile};
use crate::talk;

/// Returns individual samples if the inputs have timestamps, otherwise the stacks one after the other.
pub fn read(inputs: &[PathBuf], select: &SelectArgs, profile: &Profile, what: For) -> Result<Tracks> {
    let of_samples =
        |model: &&Model| !model.kinds.iter().any(|(_, kind)| kind.variant.as_deref() == Some(unfreed::LIVE));
    let model = profile.model.as_ref().filter(|_| is_timed(inputs, select, what)).filter(of_samples);
    let Some(model) = model else {
        return Ok(Tracks::from_tree(&profile.tree, &talk::all_shown(inputs)));
    };
    let (options, reshape) = (stacks::options(select, what), stacks::reshape(select, what)?);
    let mut collecting = Collecting::new(&options, &reshape, range(inputs, select)?);
    let types = fold::types(model, &options)?;
    let samples = types.names.iter().cloned().collect();
    let periods = model.periods.clone();
    let wanted = live::Options { samples, others: false, periods, ..Default::default() };
    items::each(inputs, select, &wanted, std::slice::from_ref(&types), |item, _| {
        if let Item::Sample(sample) = item
            && sample.matches(&types)
        {
            collecting.take(sample);
        }
    })?;
    Ok(collecting.finish())
}

/// Returns how long the samples of each event of a page lasted; `None` for events without durations, and for
/// filters other than by thread, state, time and frame.
pub fn latencies(
    select: &SelectArgs,
    times: &PageTimes<'_>,
    model: &Model,
    drawn: &[DrawnTypes],
) -> Vec<Option<Summary>> {
    match select.focus {
        Some(_) => vec![None; drawn.len()],
        None => times.latencies(model, drawn, &select.samples.filter()),
    }
}

/// Returns true if an input can be read only once.
fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-" || !path.exists()
}

/// Returns true if each sample of recordings can be read with its time.
pub fn is_timed(inputs: &[PathBuf], select: &SelectArgs, what: For) -> bool {
    if inputs.iter().any(|path| is_stream(path)) {
        return false;
    }
    let thinned = select.min_width.is_some() && what == For::Tool;
    if !select.spans.is_empty() || !select.labels.is_empty() || thinned {
        talk::note(
            "with --span, --label and --min-width, stacks have no times and are written one after the other",
        );
        return false;
    }
    if select.process_title {
        talk::note("with --process-title, stacks have no times and are written one after the other");
        return false;
    }
    true
}

/// Returns the selected time range in ns since 1970, both ends inclusive.
pub fn range(inputs: &[PathBuf], select: &SelectArgs) -> Result<[i64; 2]> {
    range::nanos(&repository::expand(inputs, select.samples.range.last)?, &select.samples.range)
}
