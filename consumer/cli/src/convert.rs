//! `flightline convert`

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use flightline_consumer::convert::{Collecting, Tracks, chrome, d3, firefox, speedscope};
use flightline_consumer::live::{self, Feed, Item};
use flightline_consumer::time_range::Bound;
use flightline_consumer::{fold, folded};

use crate::args::StackArgs;
use crate::range::{self, Times};
use crate::stacks::{self, For, Profile};
use crate::talk::{self, shown};
use crate::{Outcome, output, repository};

pub const EXAMPLES: &str = "\
Examples:
  flightline convert run.jfr -o run.pb.gz && go tool pprof -top run.pb.gz
  flightline convert run.jfr --format speedscope -o run.json                 speedscope.app shows it; a profile for each thread
  flightline convert run.jfr --format firefox -e wall -o run.json            profiler.firefox.com
  flightline convert run.jfr --format chrome --from 10 --to 12 -o run.json   ui.perfetto.dev, chrome://tracing
  flightline convert run.jfr --format d3 -I handle_request -o run.json
  perf script | flightline convert - -o perf.pb.gz
  flightline convert cpu.pb.gz --format folded

Inputs of all commands that draw or fold: recordings, folded text, perf script, pprof, speedscope. OpenTelemetry, and pprof with \
threads, spans and labels: flightline export.";

/// Bytes read at a time.
const READ: usize = 256 << 10;

/// Arguments of `convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    stacks: StackArgs,
    /// Where to; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// What to make of it [default: by the name of the output: .folded, .pb.gz, .speedscope.json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
}

/// Formats of other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Folded stacks: FlameGraph, inferno, and many more
    Folded,
    /// gzipped profile.proto
    #[cfg(feature = "export")]
    Pprof,
    /// speedscope's own file: threads, in order of time
    Speedscope,
    /// The Firefox Profiler's processed format: threads and times
    Firefox,
    /// Chrome's trace events, which Perfetto shows too: threads and times
    Chrome,
    /// The hierarchy that d3-flame-graph draws
    D3,
}

/// Converts.
pub fn run(args: &ConvertArgs) -> Result<Outcome> {
    let inputs = &args.stacks.inputs;
    output::refuse_input(&args.output, inputs.iter().map(PathBuf::as_path))?;
    let format = args.format()?;
    let what = if format == Format::Folded { For::Text } else { For::Tool };
    let profile = stacks::read(inputs, &args.stacks.select, what)?;
    if profile.tree.nodes.is_empty() {
        return Err(flightline_consumer::Error::NoSamples.into());
    }
    let title = talk::all_shown(inputs);
    output::text(&args.output, |mut out| -> Result<()> {
        match format {
            Format::Folded => folded::write(&profile.tree, &mut out)?,
            #[cfg(feature = "export")]
            Format::Pprof => {
                flightline_export::pprof::write(&flightline_export::pprof::of_tree(&profile.tree), out)?;
            }
            Format::D3 => d3::write(&profile.tree, &mut out)?,
            Format::Speedscope => speedscope::write(&tracks(args, &profile)?, &title, &mut out)?,
            Format::Firefox => firefox::write(&tracks(args, &profile)?, &title, &mut out)?,
            Format::Chrome => chrome::write(&tracks(args, &profile)?, &mut out)?,
        }
        Ok(())
    })?;
    Ok(profile.outcome)
}

impl ConvertArgs {
    fn format(&self) -> Result<Format> {
        let name = self.output.to_string_lossy().to_lowercase();
        let by_name = || {
            let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
            match () {
                () if ends(&[".folded", ".collapsed"]) => Some(Format::Folded),
                #[cfg(feature = "export")]
                () if ends(&[".pb.gz", ".pprof"]) => Some(Format::Pprof),
                () if ends(&[".speedscope.json", ".speedscope"]) => Some(Format::Speedscope),
                () => None,
            }
        };
        match self.format.or_else(by_name) {
            Some(format) => Ok(format),
            None => bail!("the name of the output does not say what to make of it: give --format"),
        }
    }
}

/// Samples one by one where the inputs have times, else the stacks one after the other.
fn tracks(args: &ConvertArgs, profile: &Profile) -> Result<Tracks> {
    let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
    let stream = |path: &PathBuf| path.as_os_str() == "-" || !path.exists();
    let Some(model) = profile.model.as_ref().filter(|_| !inputs.iter().any(stream)) else {
        return Ok(Tracks::of_tree(&profile.tree, &talk::all_shown(inputs)));
    };
    if !select.spans.is_empty() || !select.labels.is_empty() || select.min_width.is_some() {
        talk::note(
            "with --span, --label and --min-width stacks have no times: they stand one after the other",
        );
        return Ok(Tracks::of_tree(&profile.tree, &talk::all_shown(inputs)));
    }
    let (options, reshape) = (stacks::options(select, For::Tool), stacks::reshape(select, For::Tool)?);
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
