//! Writes the page and the folded text of samples, as `flightline flame` and `flightline fold` do.

use std::io::Write;

use flightline_consumer::convert::Collecting;
use flightline_consumer::fold::{self, FoldOptions};
use flightline_consumer::folded as text;
use flightline_consumer::load::{LoadOptions, Loaded, Loader};
use flightline_consumer::missing::{self, Missing};
use flightline_consumer::picture::{self, PageLoader, PageTimes};
use flightline_consumer::render::times::MOST;
use flightline_consumer::render::{PictureOptions, html};
use flightline_consumer::reshape::Reshape;
use flightline_consumer::tree::Tree;
use jfr_format::read::Recording;

use super::input::{self, Inputs, Range};
use super::{Error, Outcome, Wanted};

/// Maximum number of samples with timestamps in a page; each takes 8 to 24 bytes in memory.
pub const TIMED: u64 = 2 << 20;

const UNTOLD: &str =
    "The page has no timeline: sample timestamps in this recording are missing or inconsistent.";

/// Folded stacks and the data they come from.
pub(super) struct Drawn {
    pub(super) loaded: Loaded,
    pub(super) options: FoldOptions,
    pub(super) tree: Tree,
    /// Loss that the recordings report.
    missing: Option<Missing>,
}

/// Reads samples and folds them.
pub(super) fn read(inputs: &Inputs<'_>, range: Range, wanted: &Wanted, page: bool) -> Result<Drawn, Error> {
    let options = wanted.fold_options(page);
    let recordings = inputs.recordings()?;
    let loaded = picture::load_first(
        load_options(range, &options),
        |loaded: &Loaded| &loaded.model,
        |options| load(&recordings, range, options),
    )?;
    fold_loaded(loaded, options)
}

fn load_options(range: Range, options: &FoldOptions) -> LoadOptions {
    LoadOptions {
        events: fold::loaded_names(&options.events),
        lines: false,
        places: false,
        from_nanos: range.from(),
        to_nanos: range.last(),
    }
}

fn loader(range: Range, options: LoadOptions) -> Loader {
    if range.is_all() { Loader::new(options) } else { Loader::since_epoch(options) }
}

fn load(recordings: &[Recording], range: Range, options: LoadOptions) -> Result<Loaded, Error> {
    let mut loader = loader(range, options);
    for recording in recordings {
        // Use one thread; the service has other work.
        loader.take_recording(recording, 1, |_| {})?;
    }
    Ok(loader.finish())
}

fn fold_loaded(loaded: Loaded, options: FoldOptions) -> Result<Drawn, Error> {
    let tree = fold::fold(&loaded.model, &options)?;
    if tree.total == 0 {
        return Err(flightline_consumer::Error::NoSamples.into());
    }
    let missing = missing::selected_losses(&loaded.model, &options);
    Ok(Drawn { loaded, options, tree, missing })
}

/// Reads samples for a page, with their times unless there are too many.
fn read_timed<'a>(
    inputs: &Inputs<'_>,
    range: Range,
    options: &'a FoldOptions,
    reshape: &'a Reshape,
) -> Result<(Drawn, Option<PageTimes<'a>>), Error> {
    let recordings = inputs.recordings()?;
    let origin = range.from().or_else(|| picture::beginning(recordings.iter())).unwrap_or(0);
    let mut times = None;
    let attempt = |load_options: LoadOptions| -> Result<Loaded, Error> {
        times = None;
        let collecting = Collecting::new(options, reshape, range.both());
        let loader = loader(range, load_options.clone());
        let mut loader = PageLoader::new(loader, collecting, origin, MOST as usize);
        for recording in &recordings {
            if !loader.take_recording(recording, |_| {})? {
                return load(&recordings, range, load_options);
            }
        }
        let (loaded, of_page) = loader.finish();
        times = of_page;
        Ok(loaded)
    };
    let load = load_options(range, options);
    let loaded = picture::load_first(load, |loaded: &Loaded| &loaded.model, attempt)?;
    Ok((fold_loaded(loaded, options.clone())?, times))
}

impl Drawn {
    pub(super) fn outcome(&self) -> Outcome {
        let warnings = &self.loaded.warnings;
        let mut outcome = Outcome {
            total: self.tree.total,
            unit: self.tree.unit.clone(),
            whole: !warnings.damage(),
            notes: Vec::new(),
        };
        if let Some(warning) = warnings.stored().first().filter(|_| warnings.damage()) {
            outcome.notes.push(input::left_out(warning));
        }
        outcome
    }
}

pub(super) fn folded(
    inputs: &Inputs<'_>,
    range: Range,
    wanted: &Wanted,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let drawn = read(inputs, range, wanted, false)?;
    text::write(&drawn.tree, out)?;
    Ok(drawn.outcome())
}

pub(super) fn page(
    inputs: &Inputs<'_>,
    range: Range,
    wanted: &Wanted,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let (options, reshape) = (wanted.fold_options(true), Reshape::default());
    let (drawn, timed) = read_timed(inputs, range, &options, &reshape)?;
    let Drawn { loaded, options, tree, missing } = &drawn;
    let mut outcome = drawn.outcome();
    let other = picture::otherwise(&loaded.model, options, &reshape, tree);
    let measures: Vec<&Tree> = [tree].into_iter().chain(&other).collect();
    let times = match picture::samples(&measures).filter(|&samples| samples > TIMED) {
        Some(samples) => {
            outcome.notes.push(format!(
                "The page has no timeline: it can show {TIMED} samples, but the interval has {samples}; choose a shorter interval."
            ));
            None
        }
        None => {
            let types = [fold::types(&loaded.model, options)?.into()];
            let moments = timed.map(|timed| timed.moments(&loaded.model, &types, options.measure));
            let times = moments.and_then(|moments| picture::times(moments, &[&measures], options));
            if times.is_none() {
                outcome.notes.push(UNTOLD.into());
            }
            times
        }
    };
    let interval = range.interval();
    let others = match interval {
        Some(_) => Vec::new(),
        None => picture::also_recorded(&loaded.model, options),
    };
    let subtitle = picture::headline(&loaded.model, options, &measures, missing.as_ref(), interval, &others);
    let common = PictureOptions { title: wanted.title.clone(), subtitle: Some(subtitle), inverted: false };
    let java = picture::java(&loaded.model, options, &reshape);
    html::write_measures(&measures, &java, times.as_ref(), &common, out)?;
    Ok(outcome)
}
