//! Reads inputs and builds trees of stacks.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use flightline_consumer::amount;
use flightline_consumer::convert::{self, Choice, Collecting, Counter, Roots, Text};
use flightline_consumer::difference::{Difference, Scale};
use flightline_consumer::fold::{self, Filter, FoldOptions, Measure};
use flightline_consumer::folded::{self, Folded};
use flightline_consumer::load::{LoadOptions, Loader};
use flightline_consumer::missing::{self, Missing};
use flightline_consumer::model::Model;
use flightline_consumer::picture::{self, PageLoader, PageTimes};
use flightline_consumer::render::svg::MinWidth;
use flightline_consumer::render::times::MOST;
use flightline_consumer::reshape::{Boxes, Names, Reshape};
use flightline_consumer::time_range::Bound;
use flightline_consumer::tree::Tree;
use flightline_consumer::unfreed::{self, Unfreed};
use flightline_consumer::warnings::Warnings;
use jfr_format::read::{Input, Recording};

use crate::input::{self, Pprof, ProfileSelection, Source};
use crate::range::{self, Times};
use crate::select::{Counters, GroupBy, NameStyle, SelectArgs};
use crate::talk::{self, Progress, shown};
use crate::{Outcome, items, labelled, repository};

/// A tree and its origin.
pub struct Profile {
    /// The stacks.
    pub tree: Tree,
    /// [`Outcome::Partial`] if a part of the inputs could not be read.
    pub outcome: Outcome,
    /// The recordings' model; `None` for folded text.
    pub model: Option<Model>,
    /// True if the tree measures time or bytes.
    pub is_total: bool,
    /// Loss that the recordings report for the selected events.
    pub missing: Option<Missing>,
    /// The first profile of differential text.
    pub before: Option<Tree>,
}

enum Opened {
    Whole(Recording),
    Stream(Box<Input<Box<dyn Read>>>),
}

/// Collects the times of samples for a page in the pass that reads the inputs.
pub struct PageReader<'a> {
    options: &'a FoldOptions,
    reshape: &'a Reshape,
    range: [i64; 2],
    /// `None` if the inputs have no times, or too many samples.
    pub times: Option<PageTimes<'a>>,
}

impl<'a> PageReader<'a> {
    /// Creates a reader for samples that `select` selects.
    pub fn new(
        inputs: &[PathBuf],
        select: &SelectArgs,
        options: &'a FoldOptions,
        reshape: &'a Reshape,
    ) -> Result<Self> {
        let range = &select.samples.range;
        // Without a range, the inputs need not be known.
        let range = match range.bounds().next() {
            Some(_) => range::nanos(&repository::expand(inputs, range.last)?, range)?,
            None => [i64::MIN, i64::MAX],
        };
        Ok(Self { options, reshape, range, times: None })
    }

    /// Loads the recordings. Returns `None` if they have more samples than a page can time.
    fn attempt(
        &mut self,
        recordings: &[(&PathBuf, Recording)],
        options: LoadOptions,
    ) -> Result<Option<Loaded>> {
        let origin = picture::beginning(recordings.iter().map(|(_, recording)| recording)).unwrap_or(0);
        let collecting = Collecting::new(self.options, self.reshape, self.range);
        let has_others = !options.events.is_empty() && self.options.events.is_empty();
        let Filter { include, exclude, thread, process, state } = &self.options.filter;
        let is_filtered = !include.is_empty()
            || !exclude.is_empty()
            || [thread, process, state].iter().any(|of| of.is_some());
        // Only selected samples count for the limit of the page.
        let most = if is_filtered { usize::MAX / 2 } else { MOST as usize };
        let mut loader = PageLoader::new(Loader::new(options), collecting, origin, most);
        if has_others {
            loader = loader.with_others(origin);
        }
        let mut warnings = Vec::new();
        for (path, recording) in recordings {
            let progress = Progress::new(Some(recording.size()));
            let is_complete = loader.take_recording(recording, |bytes| progress.at(bytes));
            if !is_complete.with_context(|| shown(path))? {
                return Ok(None);
            }
            warnings.push(((*path).clone(), loader.take_warnings()));
        }
        let (loaded, times) = loader.finish();
        self.times = times;
        Ok(Some(Loaded { model: loaded.model, warnings }))
    }
}

/// Reads the inputs and folds them.
pub fn read(inputs: &[PathBuf], args: &SelectArgs, what: For) -> Result<Profile> {
    read_with_times(inputs, args, what, None)
}

/// Like [`read`], for a page.
pub fn read_with_times(
    inputs: &[PathBuf],
    args: &SelectArgs,
    what: For,
    mut page: Option<&mut PageReader<'_>>,
) -> Result<Profile> {
    let (mut options, reshape) = (options(args, what), reshape(args, what)?);
    let roots = Roots { process: args.process, thread: args.threads };
    let choice = Choice { events: args.events.clone(), roots };
    let text = |text| Ok(convert::to_folded(text, &choice)?);
    let (model, outcome) = match open(inputs, args, text, Ok, page.as_deref_mut())? {
        Taken::Model(model, outcome) => match unfreed(inputs, args, &model)? {
            Some(model) => {
                // Unfreed memory is a sum over the recording.
                page.into_iter().for_each(|page| page.times = None);
                (model, outcome)
            }
            None => (*model, outcome),
        },
        Taken::Texts(texts) => {
            let names: Vec<String> = texts.iter().map(|(path, _)| shown(path)).collect();
            for (path, text) in &texts {
                refuse_for_folded_text(args, text).with_context(|| shown(path))?;
                text.notes.iter().for_each(|note| talk::note(format_args!("{}: {note}", shown(path))));
            }
            let folded = fold_text(texts.into_iter().map(|(_, text)| text), &options.filter);
            let Folded { tree, before, .. } = folded.with_context(|| names.join(", "))?;
            let (tree, before) = (reshape.tree(tree), before.map(|before| reshape.tree(before)));
            return Ok(Profile {
                tree,
                outcome: Outcome::Whole,
                model: None,
                is_total: false,
                missing: None,
                before,
            });
        }
    };
    if matches!(what, For::Page | For::Svg) && !args.total && !args.count {
        options.measure = fold::usual_measure(&model, &options)?;
    }
    let tree = reshape.tree(fold::fold(&model, &options)?);
    let missing = missing::selected_losses(&model, &options);
    if let Some(missing) = &missing {
        talk::note(missing);
    }
    // Exceptions have no duration, so counting them is expected.
    let thrown = |event: &String| fold::alias(event) == Some("exception");
    if args.total && tree.unit == "samples" && !fold::events(&model, &options)?.iter().all(thrown) {
        talk::warning("the recording does not contain the weight of samples; counting samples");
    }
    let is_total = options.measure == Measure::Total;
    Ok(Profile { tree, outcome, model: Some(model), is_total, missing, before: None })
}

/// Loads recordings into one model.
///
/// # Errors
/// Returns an error if an input cannot be read or is not a recording.
pub fn read_model(inputs: &[PathBuf], args: &SelectArgs) -> Result<(Model, Outcome)> {
    let not_text = || anyhow::anyhow!("not a JFR recording: text has no source lines");
    match open(inputs, args, |_| Err::<(), _>(not_text()), |_| Err(not_text()), None)? {
        Taken::Model(model, outcome) => Ok((*model, outcome)),
        Taken::Texts(_) => Err(not_text()),
    }
}

/// Returns unfreed native memory if live memory is selected but the recordings have no events for it.
fn unfreed(inputs: &[PathBuf], args: &SelectArgs, model: &Model) -> Result<Option<Model>> {
    let asked = matches!(&args.events[..], [one] if one == unfreed::LIVE);
    if !asked || !model.samples.is_empty() || !model.passed_over.contains_key(unfreed::MALLOC) {
        return Ok(None);
    }
    let range = range::nanos(&repository::expand(inputs, args.samples.range.last)?, &args.samples.range)?;
    let mut unfreed = Unfreed::new(range);
    items::each(inputs, args, &Unfreed::stream_options(), &[], |item, _| unfreed.take(item))?;
    let (model, lost) = unfreed.finish();
    if model.samples.is_empty() {
        bail!("all native memory that {} allocated was freed", talk::all_shown(inputs));
    }
    if lost > 0 {
        talk::warning(format_args!(
            "{lost} allocations that were not freed are omitted, because the limit was reached"
        ));
    }
    Ok(Some(model))
}

/// Result of opening inputs.
enum Taken<T> {
    /// Recordings, or selected spans of recordings.
    Model(Box<Model>, Outcome),
    /// Text, converted.
    Texts(Vec<(PathBuf, T)>),
}

/// Loads recordings; passes text to `text` and pprof profiles to `pprof`.
fn open<T>(
    inputs: &[PathBuf],
    args: &SelectArgs,
    mut text: impl FnMut(Box<dyn BufRead>) -> Result<T>,
    mut pprof: impl FnMut(Text) -> Result<T>,
    page: Option<&mut PageReader<'_>>,
) -> Result<Taken<T>> {
    if !args.spans.is_empty() || !args.labels.is_empty() {
        let texts = labelled::read(inputs, args)?;
        if !texts.is_empty() {
            refuse_of_text(args)?;
            let of = |(path, text): (PathBuf, Text)| -> Result<_> {
                let text = pprof(text).with_context(|| shown(&path))?;
                Ok((path, text))
            };
            return Ok(Taken::Texts(texts.into_iter().map(of).collect::<Result<_>>()?));
        }
        let (model, outcome) = crate::spans::read_model(inputs, args)?;
        return Ok(Taken::Model(Box::new(model), outcome));
    }
    let paths = repository::expand(inputs, args.samples.range.last)?;
    let mut recordings = Vec::new();
    let mut texts = Vec::new();
    for path in &paths {
        let selection = ProfileSelection { types: &args.events, labels: &[] };
        let converted = match input::open(path, selection) {
            Ok(Source::Recording(recording)) => {
                recordings.push((path, Opened::Whole(recording)));
                continue;
            }
            Ok(Source::Stream(input)) => {
                recordings.push((path, Opened::Stream(input)));
                continue;
            }
            Ok(Source::Pprof(Pprof { text, .. }) | Source::Otlp(text)) => pprof(text),
            Ok(Source::Text(of)) => text(of),
            Err(_) if repository::rolled_away(path, inputs) => continue,
            Err(error) => return Err(error),
        };
        texts.push((path.clone(), converted.with_context(|| shown(path))?));
    }
    if let (Some((recording, _)), Some((text, _))) = (recordings.first(), texts.first()) {
        bail!("{} is a recording and {} is text; give inputs of one kind", shown(recording), shown(text));
    }
    if !texts.is_empty() {
        refuse_of_text(args)?;
        return Ok(Taken::Texts(texts));
    }
    let (model, outcome) = load(recordings, load_options(args, &paths)?, args.jobs, page)?;
    Ok(Taken::Model(Box::new(model), outcome))
}

/// Trees of several events.
pub struct Measures {
    /// By name of the event; by time or bytes if available, otherwise by count.
    pub trees: Vec<(String, Tree)>,
    /// [`Outcome::Partial`] if a part of the inputs could not be read.
    pub outcome: Outcome,
    /// The recordings' model; `None` for text.
    pub model: Option<Model>,
}

/// Reads a tree for each of several events.
pub fn measures(
    inputs: &[PathBuf],
    args: &SelectArgs,
    what: For,
    names: &[String],
    page: Option<&mut PageReader<'_>>,
) -> Result<Measures> {
    let all = SelectArgs { events: names.to_vec(), total: true, ..args.clone() };
    let reshape = reshape(args, what)?;
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let counters = |text| match convert::counters(text, &asked)? {
        Ok(counters) => Ok(counters),
        Err(_) => bail!("--measure needs recordings or output of `perf script`"),
    };
    let pprof = |_| bail!("--measure does not apply to pprof; use `flightline convert`");
    let opened = open(inputs, &all, counters, pprof, page)?;
    let (trees, outcome, model): (Result<Vec<Tree>>, _, _) = match opened {
        Taken::Model(model, outcome) => {
            let fold = |name: &String| {
                let options = FoldOptions { events: vec![name.clone()], ..options(&all, what) };
                Ok(fold::fold(&model, &options)?)
            };
            (names.iter().map(fold).collect(), outcome, Some(*model))
        }
        Taken::Texts(mut texts) if texts.len() == 1 => {
            let counters = texts.pop().map_or_else(Vec::new, |(_, counters)| counters);
            let fold = |Counter { text, .. }| {
                Ok(fold_text(std::iter::once(text), &options(args, what).filter)?.tree)
            };
            (counters.into_iter().map(fold).collect(), Outcome::Whole, None)
        }
        Taken::Texts(_) => bail!("--measure accepts the output of only one `perf script`"),
    };
    let trees = trees?.into_iter().map(|tree| reshape.tree(tree));
    Ok(Measures { trees: names.iter().cloned().zip(trees).collect(), outcome, model })
}

/// Reads more events of recordings that [`read`] has read. Returns `None` if an input cannot be read again.
pub fn read_more(inputs: &[PathBuf], args: &SelectArgs, names: &[String]) -> Result<Option<Model>> {
    let paths = repository::expand(inputs, args.samples.range.last)?;
    let mut recordings = Vec::new();
    for path in &paths {
        match input::whole(path) {
            Ok(Some(recording)) => recordings.push((path, Opened::Whole(recording))),
            Ok(None) => return Ok(None),
            Err(_) if repository::rolled_away(path, inputs) => {}
            Err(error) => return Err(error),
        }
    }
    let options = LoadOptions { events: fold::loaded_names(names), ..load_options(args, &paths)? };
    // Warnings were printed when the recordings were read first.
    Ok(Some(attempt(recordings, options, args.jobs)?.model))
}

/// Reads trees of two counters with the same nodes, normalised.
pub fn counters(inputs: &[PathBuf], args: &SelectArgs, of: &Counters) -> Result<(Difference, Outcome)> {
    let names = [of.over.as_str(), of.of.as_str()];
    let both = SelectArgs { events: names.map(str::to_owned).to_vec(), total: true, ..args.clone() };
    let reshape = reshape(args, For::Svg)?;
    let counters = |text| Ok(convert::counters(text, &names)?);
    let ([over, of], per_sample, outcome) = match open(inputs, &both, counters, |text| Ok(Err(text)), None)? {
        Taken::Model(model, outcome) => {
            let fold = |name: &str, measure| {
                let options =
                    FoldOptions { events: vec![name.to_owned()], measure, ..options(&both, For::Svg) };
                fold::fold(&model, &options)
            };
            let [over, of] = names.map(|name| fold(name, Measure::Total));
            let [over_samples, of_samples] = names.map(|name| fold(name, Measure::Samples));
            ([over?, of?], [over_samples?, of_samples?].map(|tree| Some(tree.total)), outcome)
        }
        Taken::Texts(texts) => {
            let ([over, of], samples) = of_texts(texts, names)?;
            let fold = |text| -> Result<Tree> {
                Ok(fold_text(std::iter::once(text), &options(args, For::Svg).filter)?.tree)
            };
            ([fold(over)?, fold(of)?], samples, Outcome::Whole)
        }
    };
    if of.total == 0 || over.total == 0 {
        return Err(flightline_consumer::Error::NoSamples.into());
    }
    let averages = [(&over, per_sample[0]), (&of, per_sample[1])]
        .map(|(tree, samples)| samples.map_or(1.0, |samples| tree.total as f64 / samples.max(1) as f64));
    let mut trees = [reshape.tree(over), reshape.tree(of)];
    trees.iter_mut().zip(names).for_each(|(tree, name)| name.clone_into(&mut tree.unit));
    let mut difference = Difference::new(&trees[0], &trees[1], Scale::Normalized);
    difference.before.unit.clone_from(&trees[0].unit);
    difference.per_sample = averages;
    Ok((difference, outcome))
}

/// Extracts both counters from one script or from two files; returns the number of samples of each if known.
fn of_texts(
    mut texts: Vec<(PathBuf, Result<Vec<Counter>, Text>)>,
    names: [&str; 2],
) -> Result<([Text; 2], [Option<u64>; 2])> {
    match (texts.pop(), texts.pop(), texts.pop()) {
        (Some((_, Ok(counters))), None, None) => {
            let mut counters = counters.into_iter();
            if let (Some(over), Some(of)) = (counters.next(), counters.next()) {
                return Ok(([over.text, of.text], [Some(over.samples), Some(of.samples)]));
            }
        }
        (Some((_, Err(over))), Some((_, Err(of))), None) => return Ok(([over, of], [None; 2])),
        _ => {}
    }
    bail!(
        "--cpi needs one recording or output of `perf script` with {} and {}, or two profiles: first {}, then {}",
        names[1],
        names[0],
        names[1],
        names[0]
    )
}

impl Profile {
    /// Returns the same stacks by the other measure, if available.
    pub fn otherwise(&self, args: &SelectArgs, what: For) -> Result<Option<Tree>> {
        let reshape = reshape(args, what)?;
        let other = |model| picture::otherwise(model, &options(args, what), &reshape, &self.tree);
        Ok(self.model.as_ref().and_then(other))
    }

    /// Returns the average weight of a sample; 1 if only counts are known.
    pub fn per_sample(&self, args: &SelectArgs) -> f64 {
        let weight = |model| picture::per_sample(model, &options(args, For::Text), &self.tree);
        self.model.as_ref().map_or(1.0, weight)
    }
}

/// A model, and the warnings by input.
struct Loaded {
    model: Model,
    warnings: Vec<(PathBuf, Warnings)>,
}

impl Loaded {
    fn tell(self) -> (Model, Outcome) {
        let outcomes = self.warnings.iter().map(|(path, warnings)| talk::warnings(path, warnings));
        let partial = outcomes.fold(false, |partial, outcome| partial | (outcome == Outcome::Partial));
        (self.model, if partial { Outcome::Partial } else { Outcome::Whole })
    }
}

fn attempt(
    recordings: Vec<(&PathBuf, Opened)>,
    options: LoadOptions,
    jobs: Option<NonZeroUsize>,
) -> Result<Loaded> {
    let mut loader = Loader::new(options);
    let mut warnings = Vec::new();
    for (path, recording) in recordings {
        match recording {
            Opened::Whole(recording) => {
                let progress = Progress::new(Some(recording.size()));
                let jobs = jobs.map_or_else(|| recording.jobs(), NonZeroUsize::get);
                let read = loader.take_recording(&recording, jobs, |bytes| progress.at(bytes));
                read.with_context(|| shown(path))?;
            }
            Opened::Stream(mut input) => {
                let progress = Progress::new(input.size());
                loop {
                    progress.at(input.consumed());
                    let Some(item) = input.next().with_context(|| shown(path))? else { break };
                    loader.take(item).with_context(|| shown(path))?;
                }
            }
        }
        warnings.push((path.clone(), loader.take_warnings()));
    }
    Ok(Loaded { model: loader.finish().model, warnings })
}

/// Loads recordings into one model. Without selected events, if all inputs can be read again, loads the
/// preferred events first and others only if there are none.
fn load(
    recordings: Vec<(&PathBuf, Opened)>,
    options: LoadOptions,
    jobs: Option<NonZeroUsize>,
    page: Option<&mut PageReader<'_>>,
) -> Result<(Model, Outcome)> {
    let whole = |(path, opened): &(_, _)| match opened {
        Opened::Whole(recording) => Some((*path, recording.clone())),
        Opened::Stream(_) => None,
    };
    let again: Option<Vec<(&PathBuf, Recording)>> = recordings.iter().map(whole).collect();
    let Some(again) = again.filter(|_| options.events.is_empty() || page.is_some()) else {
        return attempt(recordings, options, jobs).map(Loaded::tell);
    };
    let mut page = page;
    let attempt = |options: LoadOptions| {
        if let Some(reader) = &mut page {
            reader.times = None;
            if let Some(loaded) = reader.attempt(&again, options.clone())? {
                return Ok(loaded);
            }
        }
        let again = again.iter().map(|(path, recording)| (*path, Opened::Whole(recording.clone())));
        attempt(again.collect(), options, jobs)
    };
    picture::load_first(options, |loaded: &Loaded| &loaded.model, attempt).map(Loaded::tell)
}

/// # Errors
/// Returns an error if an option requires a recording.
fn refuse_of_text(args: &SelectArgs) -> Result<()> {
    let asked = [
        ("--only-thread", args.samples.only_thread.is_some()),
        ("--only-process", args.samples.only_process.is_some()),
        ("--process-title", args.process_title),
        ("--state", args.samples.state.is_some()),
        ("--from", args.samples.range.from.is_some()),
        ("--to", args.samples.range.to.is_some()),
        ("--last", args.samples.range.last.is_some()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((option, _)) => {
            bail!("{option} needs a recording: text has no times and threads; -I and -X select by frames")
        }
        None => Ok(()),
    }
}

/// # Errors
/// Returns an error if an option requires data that folded text lacks.
fn refuse_for_folded_text(args: &SelectArgs, text: &Text) -> Result<()> {
    let asked =
        [("--event", !args.events.is_empty()), ("--threads", args.threads), ("--process", args.process)];
    match asked.iter().find(|(_, asked)| *asked && text.is_folded) {
        Some((option, _)) => {
            bail!("{option} needs a recording or output of `perf script`; folded text has only stacks")
        }
        None => Ok(()),
    }
}

fn fold_text(texts: impl Iterator<Item = Text>, filter: &Filter) -> Result<Folded> {
    let mut whole: Box<dyn Read> = Box::new(std::io::empty());
    let mut units: Vec<Option<String>> = Vec::new();
    let mut differential: Vec<bool> = Vec::new();
    for Text { text, unit, is_differential, .. } in texts {
        units.push(unit);
        differential.push(is_differential);
        // A file may end without a newline; the next must not continue its last line.
        whole = Box::new(whole.chain(text).chain(Cursor::new(b"\n")));
    }
    differential.dedup();
    let &[differential] = &differential[..] else {
        bail!("some inputs are folded text and others differential text; give inputs of one kind");
    };
    let keep = |stack: &str| filter.frames(stack.split(';'));
    let mut folded = folded::read_chosen(BufReader::new(whole), differential, keep)?;
    if let Some(note) = folded.skipped.note("lines are not folded text (\"frame;frame value\")") {
        talk::warning(note);
    }
    units.dedup();
    let [unit] = &mut units[..] else {
        let unit = |unit: &Option<String>| unit.clone().unwrap_or_else(|| "samples".into());
        let units: Vec<String> = units.iter().map(unit).collect();
        bail!("the inputs have different units, which cannot be added: {}", units.join(", "));
    };
    if let Some(unit) = unit.take() {
        let (_, decimals) = amount::decimals(&folded.tree.unit);
        let unit = amount::with_decimals(&unit, decimals);
        [Some(&mut folded.tree), folded.before.as_mut()]
            .into_iter()
            .flatten()
            .for_each(|tree| tree.unit.clone_from(&unit));
    }
    Ok(folded)
}

/// Purpose for which stacks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A page, which hides narrow frames itself and distinguishes functions of the same name in different
    /// libraries.
    Page,
    /// An image, which omits narrow frames and reports how many.
    Svg,
    /// A table or flame graph that compares two recordings, usually of two runs.
    Comparison,
    /// Other tools that support libraries.
    Tool,
    /// Folded text.
    Text,
}

/// Returns how to reshape stacks before they are shown.
pub fn reshape(args: &SelectArgs, what: For) -> Result<Reshape> {
    let least = match args.min_width.filter(|_| !matches!(what, For::Svg | For::Comparison)) {
        None => 0.0,
        Some(MinWidth::Percent(percent)) => percent / 100.0,
        Some(MinWidth::Pixels(_)) => {
            bail!("--min-width in pixels applies only to SVG; give a percentage, such as 0.1%")
        }
    };
    Ok(Reshape {
        focus: args.focus.clone(),
        hide: args.hide.clone(),
        boxes: match args.group_by {
            GroupBy::Function => Boxes::Functions,
            GroupBy::Module => Boxes::Modules,
            GroupBy::Package => Boxes::Packages,
        },
        names: match args.names.unwrap_or(if what == For::Comparison {
            NameStyle::Stable
        } else {
            NameStyle::Full
        }) {
            NameStyle::Full => Names::Full,
            NameStyle::Stable => Names::Stable,
            NameStyle::Simple => Names::Simple,
            NameStyle::Dotted => Names::Dotted,
        },
        collapse_recursion: args.collapse_recursion,
        reverse: args.reverse,
        least_part: least,
    })
}

/// Returns the options for folding a model.
pub fn options(args: &SelectArgs, what: For) -> FoldOptions {
    let split_modules = matches!(what, For::Page | For::Tool) || args.group_by != GroupBy::Function;
    FoldOptions {
        events: args.events.clone(),
        measure: if args.total { Measure::Total } else { Measure::Samples },
        by_process: args.process,
        by_title: args.process_title,
        by_thread: args.threads,
        modules: args.modules,
        lines: args.lines,
        split_modules: split_modules && !args.modules,
        merge_inlined: false,
        classes: !args.no_class,
        each_virtual_thread: args.virtual_threads,
        filter: args.samples.filter(),
    }
}

/// Returns the options for loading; times count from the start of the first recording.
pub fn load_options(args: &SelectArgs, paths: &[PathBuf]) -> Result<LoadOptions> {
    let range = &args.samples.range;
    range::check(range)?;
    let looked_up = range.bounds().any(|bound| !matches!(bound, Bound::FromStart(_)));
    let times = if looked_up { Times::of(paths)? } else { None };
    let times = times.unwrap_or(Times { first: 0, start: 0, end: i64::MAX });
    let (from, to) = range.moments(times.first, times.end);
    let since_start = |moment: i64| moment.saturating_sub(times.first);
    Ok(LoadOptions {
        events: fold::loaded_names(&args.events),
        lines: args.lines,
        places: args.places,
        from_nanos: from.map(since_start),
        to_nanos: to.map(since_start),
    })
}
