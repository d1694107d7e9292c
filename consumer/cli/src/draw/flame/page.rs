//! The page of a flame graph: the events that it offers and the times of their samples.

use anyhow::Result;
use flightline_consumer::fold::{self, Types};
use flightline_consumer::model::Model;
use flightline_consumer::picture::{self, Drawn, Offer};
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::html::{self, Event, Events};
use flightline_consumer::render::java::Java;
use flightline_consumer::render::times::{MOST, Moments, Times};
use flightline_consumer::tree::Tree;

use super::{FlameArgs, title};
use crate::diagnostics;
use crate::input::{
    profile::{self, For, Profile},
    timeline::{self, Durations},
};

/// The parts of a page.
#[derive(Default)]
pub(super) struct Page {
    events: Vec<Event>,
    /// The types that each event draws; `None` if the inputs are not recordings.
    types: Option<Vec<Types>>,
    java: Java,
}

impl Page {
    fn from_text(events: Vec<Event>) -> Self {
        Self { events, ..Self::default() }
    }

    fn from_recordings(drawn: Vec<Drawn>) -> Self {
        let (mut page, mut types) = (Self::default(), Vec::new());
        for Drawn { event, java, types: of } in drawn {
            page.events.push(event);
            page.java.add(java);
            types.push(of);
        }
        Self { types: Some(types), ..page }
    }
}

/// Selects the events of a page: the profile's, and without `-e` the others of the recordings.
pub(super) fn events(args: &FlameArgs, profile: Profile) -> Result<Page> {
    let select = &args.stacks.select;
    let other = profile.otherwise(select, For::Page)?;
    let Profile { tree, model, missing, .. } = profile;
    let measures: Vec<Tree> = [tree].into_iter().chain(other).collect();
    let Some(model) = model else {
        return Ok(Page::from_text(vec![Event {
            name: String::new(),
            subtitle: None,
            measures,
            latency: None,
        }]));
    };
    let options = profile::options(select, For::Page);
    // Spans and labels select samples of one event.
    let is_alone = !select.events.is_empty() || !select.spans.is_empty() || !select.labels.is_empty();
    let offer = if is_alone { Offer::default() } else { picture::offer(&model, &options)? };
    let left_out: Vec<String> = offer.left_out.iter().map(|(name, _)| name.clone()).collect();
    let others = if is_alone { picture::also_recorded(&model, &options) } else { left_out };
    let shown: Vec<&Tree> = measures.iter().collect();
    let subtitle = picture::headline(&model, &options, &shown, missing.as_ref(), None, &others);
    let name = fold::selected_names(&model, &options).join(", ");
    let types = fold::types(&model, &options)?;
    let java = picture::java(&model, &options, &profile::reshape(select, For::Page)?);
    let event = Event { name, subtitle: Some(subtitle), measures, latency: None };
    let mut drawn = vec![Drawn { event, java, types }];
    drawn.extend(more(args, &model, &offer, &others)?);
    if let Some((name, samples)) = offer.left_out.first() {
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        diagnostics::note(format_args!(
            "the page omits {}: it can have {} events, and {} samples in addition to those of the first \
             event. To draw {samples} samples of {name}, use -e {name}",
            names.join(", "),
            picture::MOST_EVENTS,
            picture::MOST_OTHER_SAMPLES,
        ));
    }
    Ok(Page::from_recordings(drawn))
}

/// Draws the offered events, whose samples may not have been loaded yet.
fn more(args: &FlameArgs, model: &Model, offer: &Offer, others: &[String]) -> Result<Vec<Drawn>> {
    if offer.names.is_empty() {
        return Ok(Vec::new());
    }
    let select = &args.stacks.select;
    let (options, reshape) = (profile::options(select, For::Page), profile::reshape(select, For::Page)?);
    let read = match model.passed_over.is_empty() {
        true => None,
        false => profile::read_more(&args.stacks.inputs, select, &offer.names)?,
    };
    let model = read.as_ref().unwrap_or(model);
    let names = offer.names.iter().flat_map(|name| picture::variants(model, name));
    Ok(names.filter_map(|name| picture::event(model, &options, &reshape, &name, others)).collect())
}

/// Selects the events of `--measure`; `trees` are by time or bytes.
pub(super) fn selected(args: &FlameArgs, trees: Vec<(String, Tree)>, model: Option<&Model>) -> Result<Page> {
    let Some(model) = model else {
        let event = |(name, tree): (String, Tree)| {
            let subtitle = Some(format!("{name}: {}", diagnostics::amount(tree.total, &tree.unit)));
            Event { name, subtitle, measures: vec![tree], latency: None }
        };
        return Ok(Page::from_text(trees.into_iter().map(event).collect()));
    };
    let select = &args.stacks.select;
    let (options, reshape) = (profile::options(select, For::Page), profile::reshape(select, For::Page)?);
    let drawn = trees.iter().filter_map(|(name, _)| picture::event(model, &options, &reshape, name, &[]));
    Ok(Page::from_recordings(drawn.collect()))
}

/// Writes the page.
pub(super) fn write(args: &FlameArgs, mut page: Page, out: &mut Vec<u8>) -> Result<()> {
    let mut moments = None;
    if let Some(types) = &page.types {
        let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
        let mut durations = Durations::new(inputs, select, types)?;
        if can_have_times(args, &page.events) {
            moments = timeline::moments(inputs, select, types, &mut durations)?;
        }
        let latencies = durations.finish(inputs, select, types)?;
        page.events.iter_mut().zip(latencies).for_each(|(event, latency)| event.latency = latency);
    }
    let events = Events::new(page.events, args.picture.java(page.java));
    let times = moments.and_then(|moments| times(args, &events, moments));
    let options = args.picture.common(PictureOptions { title: title(args), subtitle: None, inverted: false });
    Ok(html::write_events(&events, times.as_ref(), &options, out)?)
}

/// Returns true if the page can hold when the samples were taken.
fn can_have_times(args: &FlameArgs, events: &[Event]) -> bool {
    let all: Vec<Vec<&Tree>> = events.iter().map(|event| event.measures.iter().collect()).collect();
    if args.no_time || all.iter().flatten().all(|tree| tree.total == 0) {
        return false;
    }
    let samples = all.iter().filter_map(|trees| picture::samples(trees)).fold(0, u64::saturating_add);
    if samples > MOST {
        diagnostics::note(format_args!(
            "the page has no heat map and no chart: it can have timestamps of {MOST} samples, but the \
             input has {samples}; select a part with --from and --to"
        ));
        return false;
    }
    if args.stacks.select.min_width.is_some() {
        diagnostics::note("the page has no heat map and no chart because of --min-width");
        return false;
    }
    true
}

/// Assigns the samples to the boxes of the page.
fn times(args: &FlameArgs, events: &Events, moments: Moments) -> Option<Times> {
    let trees = events.trees();
    let trees: Vec<&[&Tree]> = trees.iter().map(Vec::as_slice).collect();
    let times = picture::times(moments, &trees, &profile::options(&args.stacks.select, For::Page));
    let untimed: Vec<&str> = (0..trees.len())
        .filter(|&at| !times.as_ref().is_some_and(|times| times.has(at)))
        .map(|at| events.name(at))
        .collect();
    if !untimed.is_empty() {
        diagnostics::note(format_args!(
            "the page has no heat map and no chart of {}: sample timestamps in this recording are missing or inconsistent",
            untimed.join(", ")
        ));
    }
    times
}
