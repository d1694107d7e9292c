//! Writes the page and the folded text of samples, as `flightline flame` and `flightline fold` do.

use std::io::Write;

use flightline_consumer::convert::Collecting;
use flightline_consumer::fold::{self, FoldOptions};
use flightline_consumer::folded as text;
use flightline_consumer::load::{LoadOptions, Loaded, Loader};
use flightline_consumer::missing::{self, Missing};
use flightline_consumer::picture;
use flightline_consumer::render::times::{Gathering, Times};
use flightline_consumer::render::{PictureOptions, html};
use flightline_consumer::reshape::Reshape;
use flightline_consumer::tree::Tree;

use super::input::{self, Inputs, Range};
use super::{Error, Outcome, RenderOptions};

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
pub(super) fn read(
    inputs: &Inputs<'_>,
    range: Range,
    wanted: &RenderOptions,
    page: bool,
) -> Result<Drawn, Error> {
    let options = wanted.fold_options(page);
    let load = LoadOptions {
        events: fold::loaded_names(&options.events),
        lines: false,
        places: false,
        from_nanos: range.from(),
        to_nanos: range.last(),
    };
    let recordings = inputs.recordings()?;
    let attempt = |options| -> Result<Loaded, Error> {
        let mut loader = if range.is_all() { Loader::new(options) } else { Loader::since_epoch(options) };
        for recording in &recordings {
            // Use one thread; the service has other work.
            loader.take_recording(recording, 1, |_| {})?;
        }
        Ok(loader.finish())
    };
    let loaded = picture::load_first(load, |loaded: &Loaded| &loaded.model, attempt)?;
    let tree = fold::fold(&loaded.model, &options)?;
    if tree.total == 0 {
        return Err(flightline_consumer::Error::NoSamples.into());
    }
    let missing = missing::of(&loaded.model, &options);
    Ok(Drawn { loaded, options, tree, missing })
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
        if let Some(warning) = warnings.kept().first().filter(|_| warnings.damage()) {
            outcome.notes.push(input::left_out(warning));
        }
        outcome
    }
}

pub(super) fn folded(
    inputs: &Inputs<'_>,
    range: Range,
    wanted: &RenderOptions,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let drawn = read(inputs, range, wanted, false)?;
    text::write(&drawn.tree, out)?;
    Ok(drawn.outcome())
}

pub(super) fn page(
    inputs: &Inputs<'_>,
    range: Range,
    wanted: &RenderOptions,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let drawn = read(inputs, range, wanted, true)?;
    let Drawn { loaded, options, tree, missing } = &drawn;
    let mut outcome = drawn.outcome();
    let reshape = Reshape::default();
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
            let times = times(inputs, range, &drawn, &reshape, &measures)?;
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

/// Reads the samples' timestamps.
fn times(
    inputs: &Inputs<'_>,
    range: Range,
    drawn: &Drawn,
    reshape: &Reshape,
    measures: &[&Tree],
) -> Result<Option<Times>, Error> {
    let Some(origin) = range.from().map_or_else(|| inputs.beginning(), |from| Ok(Some(from)))? else {
        return Ok(None);
    };
    let types = [fold::types(&drawn.loaded.model, &drawn.options)?];
    let collecting = Collecting::new(&drawn.options, reshape, range.both());
    let mut gathering = Gathering::new(collecting, origin, &types);
    // Damage was reported when the stacks were read.
    inputs.each(&picture::timed(&types), |item| {
        gathering.take(item);
        Ok(())
    })?;
    Ok(picture::times(gathering.finish(), &[measures], &drawn.options))
}
