//! Inputs sample by sample, as far as they have times.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, Result};
use flightline_consumer::convert::{Collecting, Tracks};
use flightline_consumer::fold;
use flightline_consumer::live::{self, Feed, Item};
use flightline_consumer::time_range::Bound;

use crate::args::SelectArgs;
use crate::range::{self, Times};
use crate::repository;
use crate::stacks::{self, For, Profile};
use crate::talk::{self, shown};

/// Bytes read at a time.
const READ: usize = 256 << 10;

/// Samples one by one where the inputs have times, else the stacks one after the other.
pub fn read(inputs: &[PathBuf], select: &SelectArgs, profile: &Profile, what: For) -> Result<Tracks> {
    let stream = |path: &PathBuf| path.as_os_str() == "-" || !path.exists();
    let Some(model) = profile.model.as_ref().filter(|_| !inputs.iter().any(stream)) else {
        return Ok(Tracks::of_tree(&profile.tree, &talk::all_shown(inputs)));
    };
    let thinned = select.min_width.is_some() && what == For::Tool;
    if !select.spans.is_empty() || !select.labels.is_empty() || thinned {
        talk::note(
            "with --span, --label and --min-width stacks have no times: they stand one after the other",
        );
        return Ok(Tracks::of_tree(&profile.tree, &talk::all_shown(inputs)));
    }
    let (options, reshape) = (stacks::options(select, what), stacks::reshape(select, what)?);
    let events: Vec<String> = fold::events(model, &options)?.into_iter().collect();
    let paths = repository::expand(inputs, select.last)?;
    let range = times(&paths, select.from.or(select.last), select.to)?;
    let mut collecting = Collecting::new(&options, &reshape, range);
    for path in &paths {
        let reading = || format!("cannot read {}", shown(path));
        let mut file = BufReader::with_capacity(READ, File::open(path).with_context(reading)?);
        let mut feed =
            Feed::new(live::Options { samples: events.clone(), others: false, ..Default::default() });
        let mut buffer = vec![0; READ];
        loop {
            let bytes = file.read(&mut buffer).with_context(reading)?;
            feed.push(buffer.get(..bytes).unwrap_or_default());
            if bytes == 0 {
                feed.close();
            }
            // What is damaged was told when the stacks were read.
            while let Some(item) = feed.next() {
                if let Item::Sample(sample) = item {
                    collecting.take(&sample);
                }
            }
            if bytes == 0 {
                break;
            }
        }
    }
    Ok(collecting.finish())
}

fn times(paths: &[PathBuf], from: Option<Bound>, to: Option<Bound>) -> Result<[i64; 2]> {
    range::check(from, to)?;
    if from.is_none() && to.is_none() {
        return Ok([i64::MIN, i64::MAX]);
    }
    let Some(times) = Times::of(paths)? else { return Ok([i64::MIN, i64::MAX]) };
    let at = |bound: Option<Bound>, or: i64| bound.map_or(or, |bound| bound.at(times.first, times.end));
    Ok([at(from, i64::MIN), at(to, i64::MAX)])
}
