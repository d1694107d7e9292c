//! Inputs up to the tree.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use flightline_consumer::fold::{self, Filter, FoldOptions, Measure};
use flightline_consumer::folded;
use flightline_consumer::load::{LoadOptions, Loader};
use flightline_consumer::model::Model;
use flightline_consumer::time_range::Bound;
use flightline_consumer::tree::Tree;
use flightline_consumer::warnings::Warnings;
use jfr_format::read::{Input, Recording};

use crate::args::SelectArgs;
use crate::input::{self, Source};
use crate::range::{self, Times};
use crate::talk::{self, Progress, shown};
use crate::{Outcome, repository};

/// A tree and where it comes from.
pub struct Profile {
    /// The stacks.
    pub tree: Tree,
    /// Whether all of the inputs was read.
    pub outcome: Outcome,
    /// The recordings' model; `None` for folded text.
    pub model: Option<Model>,
}

enum Opened {
    Whole(Recording),
    Stream(Box<Input<Box<dyn Read>>>),
}

/// Reads the inputs and folds them.
pub fn read(inputs: &[PathBuf], args: &SelectArgs, split_modules: bool) -> Result<Profile> {
    let options = options(args, split_modules);
    if !args.spans.is_empty() || !args.labels.is_empty() {
        let (model, outcome) = crate::spans::read_model(inputs, args)?;
        return Ok(Profile { tree: fold::fold(&model, &options)?, outcome, model: Some(model) });
    }
    let paths = repository::expand(inputs, args.last)?;
    let mut recordings = Vec::new();
    let mut texts = Vec::new();
    for path in &paths {
        match input::whole(path) {
            Ok(Some(recording)) => {
                recordings.push((path, Opened::Whole(recording)));
                continue;
            }
            Ok(None) => {}
            Err(_) if repository::rolled_away(path, inputs) => continue,
            Err(error) => return Err(error),
        }
        match input::open(path)? {
            Source::Recording(input) => recordings.push((path, Opened::Stream(input))),
            Source::Text(text) => texts.push((path, text)),
        }
    }
    if let (Some((recording, _)), Some((text, _))) = (recordings.first(), texts.first()) {
        bail!("{} is a recording, {} is text: give one kind at a time", shown(recording), shown(text));
    }
    if !texts.is_empty() {
        let names: Vec<String> = texts.iter().map(|(path, _)| shown(path)).collect();
        let tree = fold_text(texts.into_iter().map(|(_, text)| text), &options.filter);
        let tree = tree.with_context(|| names.join(", "))?;
        return Ok(Profile { tree, outcome: Outcome::Whole, model: None });
    }
    let (model, outcome) = load(recordings, load_options(args, &paths)?, args.jobs)?;
    let tree = fold::fold(&model, &options)?;
    if args.total && tree.unit == "samples" {
        talk::warning("the recording does not say what a sample stands for; counting samples");
    }
    Ok(Profile { tree, outcome, model: Some(model) })
}

impl Profile {
    /// The same stacks by the other measure: by what samples stand for, or by their number. `None` if the recording does not
    /// say what they stand for, or says it in different units.
    pub fn otherwise(&self, args: &SelectArgs, split_modules: bool) -> Option<Tree> {
        let measure = if args.total { Measure::Samples } else { Measure::Total };
        let options = FoldOptions { measure, ..options(args, split_modules) };
        let tree = fold::fold(self.model.as_ref()?, &options).ok()?;
        (tree.unit != self.tree.unit && tree.total > 0).then_some(tree)
    }

    /// What a sample weighs on average; 1 if only samples are known.
    pub fn per_sample(&self, args: &SelectArgs) -> f64 {
        let counted = |model: &Model| {
            let options = FoldOptions { measure: Measure::Samples, ..options(args, false) };
            fold::fold(model, &options).ok().filter(|tree| tree.total > 0)
        };
        let samples = self.model.as_ref().filter(|_| args.total).and_then(counted);
        samples.map_or(1.0, |samples| self.tree.total as f64 / samples.total as f64)
    }
}

/// What was read and, by input, what could not be.
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

/// Reads recordings into one model. If no event is asked for and all can be read again, those that are taken first
/// are loaded first, and others only if there are none of them.
fn load(
    recordings: Vec<(&PathBuf, Opened)>,
    options: LoadOptions,
    jobs: Option<NonZeroUsize>,
) -> Result<(Model, Outcome)> {
    let whole = |(path, opened): &(_, _)| match opened {
        Opened::Whole(recording) => Some((*path, recording.clone())),
        Opened::Stream(_) => None,
    };
    let again: Option<Vec<(&PathBuf, Recording)>> = recordings.iter().map(whole).collect();
    let Some(again) = again.filter(|_| options.events.is_empty()) else {
        return attempt(recordings, options, jobs).map(Loaded::tell);
    };
    let first = fold::FIRST_LOADED.iter().map(|&name| name.to_owned()).collect();
    let loaded = attempt(recordings, LoadOptions { events: first, ..options.clone() }, jobs)?;
    let other = fold::else_loaded(&loaded.model.passed_over).map(str::to_owned);
    let Some(other) = other.filter(|_| loaded.model.samples.is_empty()) else {
        return Ok(loaded.tell());
    };
    // Counts are of the whole recording; which type has most in a range of time is seen only by loading all.
    let ranged = options.from_nanos.is_some() || options.to_nanos.is_some();
    let events = if ranged { Vec::new() } else { vec![other] };
    let again = again.into_iter().map(|(path, recording)| (path, Opened::Whole(recording))).collect();
    attempt(again, LoadOptions { events, ..options }, jobs).map(Loaded::tell)
}

fn fold_text(texts: impl Iterator<Item = Box<dyn BufRead>>, filter: &Filter) -> Result<Tree> {
    let mut whole: Box<dyn Read> = Box::new(std::io::empty());
    for text in texts {
        // A file may end without a newline; the next must not continue its last line.
        whole = Box::new(whole.chain(text).chain(Cursor::new(b"\n")));
    }
    let keep = |stack: &str| filter.frames(stack.split(';'));
    Ok(folded::read_chosen(BufReader::new(whole), keep)?)
}

/// How a model is folded.
pub fn options(args: &SelectArgs, split_modules: bool) -> FoldOptions {
    FoldOptions {
        events: args.events.clone(),
        measure: if args.total { Measure::Total } else { Measure::Samples },
        by_process: args.process,
        by_thread: args.threads,
        modules: args.modules,
        lines: args.lines,
        split_modules: split_modules && !args.modules,
        filter: Filter {
            include: args.include.clone(),
            exclude: args.exclude.clone(),
            thread: args.only_thread.clone(),
            process: args.only_process.clone(),
            state: args.state.clone(),
        },
    }
}

fn load_options(args: &SelectArgs, paths: &[PathBuf]) -> Result<LoadOptions> {
    let from = args.from.or(args.last);
    range::check(args.from, args.to)?;
    let looked_up = [from, args.to].iter().flatten().any(|bound| !matches!(bound, Bound::FromStart(_)));
    let times = if looked_up { Times::of(paths)? } else { None };
    let times = times.unwrap_or(Times { first: 0, start: 0, end: i64::MAX });
    let since_start = |bound: Bound| bound.at(times.first, times.end).saturating_sub(times.first);
    Ok(LoadOptions {
        events: fold::event_names(&args.events),
        lines: args.lines,
        from_nanos: from.map(since_start),
        to_nanos: args.to.map(since_start),
    })
}
