//! The page of a flame graph: the events that it offers and the times of their samples.

use anyhow::Result;
use flightline_consumer::fold;
use flightline_consumer::model::Model;
use flightline_consumer::picture::{self, Drawn, DrawnTypes, Offer, PageTimes};
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::html::{self, Event, Events};
use flightline_consumer::render::java::Java;
use flightline_consumer::render::times::{MOST, Moments, Times};
use flightline_consumer::tree::Tree;

use super::title;
use crate::args::FlameArgs;
use crate::stacks::{self, For, Profile};
use crate::talk;
use crate::tracks;

/// The parts of a page.
#[derive(Default)]
pub(super) struct Page {
    events: Vec<Event>,
    /// The types that each event draws, and the recordings' model; `None` if the inputs are not recordings.
    drawn: Option<(Vec<DrawnTypes>, Model)>,
    java: Java,
}

impl Page {
    fn of_text(events: Vec<Event>) -> Self {
        Self { events, ..Self::default() }
    }

    fn of_recordings(drawn: Vec<Drawn>, model: Model) -> Self {
        let (mut page, mut types) = (Self::default(), Vec::new());
        for Drawn { event, java, types: of } in drawn {
            page.events.push(event);
            page.java.add(java);
            types.push(of);
        }
        Self { drawn: Some((types, model)), ..page }
    }
}

/// Selects the events of a page: the profile's, and without `-e` the others of the recordings.
pub(super) fn events(args: &FlameArgs, profile: Profile, times: Option<&PageTimes<'_>>) -> Result<Page> {
    let select = &args.stacks.select;
    let other = profile.otherwise(select, For::Page)?;
    let Profile { tree, model, missing, .. } = profile;
    let measures: Vec<Tree> = [tree].into_iter().chain(other).collect();
    let Some(model) = model else {
        return Ok(Page::of_text(vec![Event {
            name: String::new(),
            subtitle: None,
            measures,
            latency: None,
        }]));
    };
    let options = stacks::options(select, For::Page);
    // Spans and labels select samples of one event.
    let is_alone = !select.events.is_empty() || !select.spans.is_empty() || !select.labels.is_empty();
    let offer = if is_alone { Offer::default() } else { picture::offer(&model, &options)? };
    let left_out: Vec<String> = offer.left_out.iter().map(|(name, _)| name.clone()).collect();
    let others = if is_alone { picture::also_recorded(&model, &options) } else { left_out };
    let shown: Vec<&Tree> = measures.iter().collect();
    let subtitle = picture::headline(&model, &options, &shown, missing.as_ref(), None, &others);
    let name = fold::selected_names(&model, &options).join(", ");
    let types = fold::types(&model, &options)?.into();
    let java = picture::java(&model, &options, &stacks::reshape(select, For::Page)?);
    let event = Event { name, subtitle: Some(subtitle), measures, latency: None };
    let mut drawn = vec![Drawn { event, java, types }];
    drawn.extend(more(args, &model, &offer, &others, times)?);
    if let Some((name, samples)) = offer.left_out.first() {
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        talk::note(format_args!(
            "the page omits {}: it can have {} events, and {} samples in addition to those of the first \
             event. To draw {samples} samples of {name}, use -e {name}",
            names.join(", "),
            picture::MOST_EVENTS,
            picture::MOST_OTHER_SAMPLES,
        ));
    }
    Ok(Page::of_recordings(drawn, model))
}

/// Draws the offered events, whose samples may not have been loaded yet.
fn more(
    args: &FlameArgs,
    model: &Model,
    offer: &Offer,
    others: &[String],
    times: Option<&PageTimes<'_>>,
) -> Result<Vec<Drawn>> {
    if offer.names.is_empty() {
        return Ok(Vec::new());
    }
    let select = &args.stacks.select;
    let (options, reshape) = (stacks::options(select, For::Page), stacks::reshape(select, For::Page)?);
    let read = match times.is_some() || model.passed_over.is_empty() {
        true => None,
        false => stacks::read_more(&args.stacks.inputs, select, &offer.names)?,
    };
    let selected = read.as_ref().unwrap_or(model);
    let event = |name: &String| {
        let other = times.and_then(PageTimes::others).and_then(|model| {
            let drawn = picture::event(model, &options, &reshape, name, others)?;
            let types = DrawnTypes { is_other: true, ..drawn.types };
            Some(Drawn { types, ..drawn })
        });
        other.or_else(|| picture::event(selected, &options, &reshape, name, others))
    };
    let model = times.and_then(PageTimes::others).unwrap_or(selected);
    let names = offer.names.iter().flat_map(|name| picture::variants(model, name));
    Ok(names.filter_map(|name| event(&name)).collect())
}

/// Selects the events of `--measure`; `trees` are by time or bytes.
pub(super) fn selected(args: &FlameArgs, trees: Vec<(String, Tree)>, model: Option<Model>) -> Result<Page> {
    let Some(model) = model else {
        let event = |(name, tree): (String, Tree)| {
            let subtitle = Some(format!("{name}: {}", talk::amount(tree.total, &tree.unit)));
            Event { name, subtitle, measures: vec![tree], latency: None }
        };
        return Ok(Page::of_text(trees.into_iter().map(event).collect()));
    };
    let select = &args.stacks.select;
    let (options, reshape) = (stacks::options(select, For::Page), stacks::reshape(select, For::Page)?);
    let drawn = trees.iter().filter_map(|(name, _)| picture::event(&model, &options, &reshape, name, &[]));
    Ok(Page::of_recordings(drawn.collect(), model))
}

/// Writes the page.
pub(super) fn write(
    args: &FlameArgs,
    mut page: Page,
    times: Option<PageTimes<'_>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut moments = None;
    if let Some((drawn, model)) = &page.drawn {
        let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
        if let Some(times) = &times {
            let latencies = tracks::latencies(select, times, model, drawn);
            page.events.iter_mut().zip(latencies).for_each(|(event, latency)| event.latency = latency);
        }
        if can_have_times(args, &page.events) && tracks::is_timed(inputs, select, For::Page) {
            let measure = stacks::options(select, For::Page).measure;
            moments = times.map(|times| times.moments(model, drawn, measure));
        }
    }
    let events = Events::new(page.events, args.picture.java(page.java));
    let times = moments.and_then(|moments| placed(args, &events, moments));
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
        talk::note(format_args!(
            "the page has no heat map and no chart: it can have timestamps of {MOST} samples, but the \
             input has {samples}; select a part with --from and --to"
        ));
        return false;
    }
    if args.stacks.select.min_width.is_some() {
        talk::note("the page has no heat map and no chart because of --min-width");
        return false;
    }
    true
}

/// Assigns the samples to the boxes of the page.
fn placed(args: &FlameArgs, events: &Events, moments: Moments) -> Option<Times> {
    let trees = events.trees();
    let trees: Vec<&[&Tree]> = trees.iter().map(Vec::as_slice).collect();
    let times = picture::times(moments, &trees, &stacks::options(&args.stacks.select, For::Page));
    let untimed: Vec<&str> = (0..trees.len())
        .filter(|&at| !times.as_ref().is_some_and(|times| times.has(at)))
        .map(|at| events.name(at))
        .collect();
    if !untimed.is_empty() {
        talk::note(format_args!(
            "the page has no heat map and no chart of {}: sample timestamps in this recording are missing or inconsistent",
            untimed.join(", ")
        ));
    }
    times
}
