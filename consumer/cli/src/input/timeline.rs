//! Reads inputs sample by sample if they have timestamps.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flightline_consumer::convert::{Collecting, Tracks};
use flightline_consumer::fold::{self, Types};
use flightline_consumer::latency::{self, Histogram, Summary};
use flightline_consumer::live::{self, Choice, Item};
use flightline_consumer::model::Model;
use flightline_consumer::picture;
use flightline_consumer::render::times::{Gathering, Moments};
use flightline_consumer::unfreed;
use jfr_format::header::{ChunkHeader, LEN};

use crate::args::{selection::SelectArgs, time_range};
use crate::diagnostics::{self, shown};
use crate::input::{
    event_reader,
    profile::{self, For, Profile},
    repository,
};

/// Returns individual samples if the inputs have timestamps, otherwise the stacks one after the other.
pub fn read(inputs: &[PathBuf], select: &SelectArgs, profile: &Profile, what: For) -> Result<Tracks> {
    let of_samples =
        |model: &&Model| !model.kinds.iter().any(|(_, kind)| kind.variant.as_deref() == Some(unfreed::LIVE));
    let model = profile.model.as_ref().filter(|_| is_timed(inputs, select, what)).filter(of_samples);
    let Some(model) = model else {
        return Ok(Tracks::of_tree(&profile.tree, &diagnostics::all_shown(inputs)));
    };
    let (options, reshape) = (profile::options(select, what), profile::reshape(select, what)?);
    let mut collecting = Collecting::new(&options, &reshape, range(inputs, select)?);
    let types = fold::types(model, &options)?;
    let samples = types.names.iter().cloned().collect();
    let periods = model.periods.clone();
    let wanted = live::Options { samples, others: false, periods, ..Default::default() };
    event_reader::each(inputs, select, &wanted, std::slice::from_ref(&types), |item, _| {
        if let Item::Sample(sample) = item
            && sample.matches(&types)
        {
            collecting.take(sample);
        }
    })?;
    Ok(collecting.finish())
}

/// Returns the timestamps of samples of events that draw these types, counted from the start of the earliest
/// input; `None` if the inputs have no timestamps. Collects durations in the same pass.
pub fn moments(
    inputs: &[PathBuf],
    select: &SelectArgs,
    drawn: &[Types],
    durations: &mut Durations,
) -> Result<Option<Moments>> {
    // Unfreed memory is a sum over the recording.
    let is_sum = drawn.iter().any(|types| types.variants.contains(unfreed::LIVE));
    if is_sum || !is_timed(inputs, select, For::Page) {
        return Ok(None);
    }
    let (options, reshape) = (profile::options(select, For::Page), profile::reshape(select, For::Page)?);
    let Some(origin) = beginning(&repository::expand(inputs, select.samples.range.last)?)? else {
        return Ok(None);
    };
    let collecting = Collecting::new(&options, &reshape, range(inputs, select)?);
    let mut gathering = Gathering::new(collecting, origin, drawn);
    event_reader::each(inputs, select, &picture::timed(drawn), drawn, |item, feed| {
        durations.add(item, drawn);
        gathering.take(item);
        feed.plain_below(gathering.shortest());
    })?;
    durations.complete = true;
    Ok(Some(gathering.finish()))
}

/// Collects the durations of the samples of each event of a page.
#[derive(Default)]
pub struct Durations {
    /// The event types that have durations. Empty if the events have none, if an input can be read only once, or
    /// for filters other than by thread, state, time and frame.
    types: Vec<String>,
    choice: Option<Choice>,
    histograms: Vec<Histogram>,
    /// All inputs have been read.
    complete: bool,
}

impl Durations {
    /// Creates a collector for the events that draw these types.
    pub fn new(inputs: &[PathBuf], select: &SelectArgs, drawn: &[Types]) -> Result<Self> {
        let histograms = vec![Histogram::default(); drawn.len()];
        let names = drawn.iter().flat_map(|types| &types.names);
        let types: Vec<String> = names.filter(|name| latency::has_durations(name)).cloned().collect();
        let by_spans = !select.spans.is_empty() || !select.labels.is_empty();
        let is_once = || inputs.iter().any(|path| is_stream(path));
        if types.is_empty() || by_spans || select.focus.is_some() || is_once() {
            return Ok(Self { histograms, ..Self::default() });
        }
        let choice = Some(Choice::new(select.samples.filter(), range(inputs, select)?));
        Ok(Self { types, choice, histograms, complete: false })
    }

    fn add(&mut self, item: &Item, drawn: &[Types]) {
        let (Some(choice), Item::Sample(sample)) = (&mut self.choice, item) else { return };
        if !self.types.iter().any(|name| **name == *sample.event) {
            return;
        }
        let Some(nanos) = latency::nanos(sample).filter(|_| choice.wants(item)) else { return };
        for (histogram, types) in self.histograms.iter_mut().zip(drawn) {
            if sample.matches(types) {
                histogram.add(nanos);
            }
        }
    }

    /// Returns the durations by event; `None` for events without durations. Reads the inputs if [`moments`] did not.
    pub fn finish(
        mut self,
        inputs: &[PathBuf],
        select: &SelectArgs,
        drawn: &[Types],
    ) -> Result<Vec<Option<Summary>>> {
        if self.choice.is_none() {
            return Ok(vec![None; drawn.len()]);
        }
        if !self.complete {
            let wanted =
                live::Options { samples: self.types.clone(), others: false, ..live::Options::default() };
            event_reader::each(inputs, select, &wanted, drawn, |item, _| self.add(item, drawn))?;
        }
        Ok(self.histograms.into_iter().map(Histogram::summary).collect())
    }
}

/// Returns true if an input can be read only once.
fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-" || !path.exists()
}

/// Returns true if each sample of recordings can be read with its time.
fn is_timed(inputs: &[PathBuf], select: &SelectArgs, what: For) -> bool {
    if inputs.iter().any(|path| is_stream(path)) {
        return false;
    }
    let thinned = select.min_width.is_some() && what == For::Tool;
    if !select.spans.is_empty() || !select.labels.is_empty() || thinned {
        diagnostics::note(
            "with --span, --label and --min-width, stacks have no times and are written one after the other",
        );
        return false;
    }
    if select.process_title {
        diagnostics::note("with --process-title, stacks have no times and are written one after the other");
        return false;
    }
    true
}

/// Returns the selected time range in ns since 1970, both ends inclusive.
pub fn range(inputs: &[PathBuf], select: &SelectArgs) -> Result<[i64; 2]> {
    time_range::nanos(&repository::expand(inputs, select.samples.range.last)?, &select.samples.range)
}

/// Returns the earliest start in ns since 1970, in whatever order the inputs are given. Invalid inputs were
/// reported when they were read.
fn beginning(paths: &[PathBuf]) -> Result<Option<i64>> {
    let mut earliest: Option<i64> = None;
    for path in paths {
        let reading = || format!("cannot read {}", shown(path));
        let mut header = Vec::with_capacity(LEN);
        File::open(path)
            .with_context(reading)?
            .take(LEN as u64)
            .read_to_end(&mut header)
            .with_context(reading)?;
        let Ok(header) = ChunkHeader::decode(&header) else { continue };
        earliest = Some(earliest.map_or(header.start_nanos, |before| before.min(header.start_nanos)));
    }
    Ok(earliest)
}
