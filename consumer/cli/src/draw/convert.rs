//! `flightline convert`

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use flightline_consumer::convert::{chrome, d3, firefox, speedscope};
use flightline_consumer::folded;

use crate::args::selection::StackArgs;
use crate::input::{
    profile::{self, For},
    timeline,
};
use crate::{Outcome, diagnostics, output};

pub const EXAMPLES: &str = "\
Examples:
  flightline convert run.jfr -o run.pb.gz && go tool pprof -top run.pb.gz
  flightline convert run.jfr --format speedscope -o run.json                 for speedscope.app; one profile per thread
  flightline convert run.jfr --format firefox -e wall -o run.json            profiler.firefox.com
  flightline convert run.jfr --format chrome --from 10 --to 12 -o run.json   ui.perfetto.dev, chrome://tracing
  flightline convert run.jfr --format d3 -I handle_request -o run.json
  perf script | flightline convert - -o perf.pb.gz
  flightline convert cpu.pb.gz --format folded

Inputs can be recordings, folded text, perf script, pprof, OTLP profiles (protobuf) and speedscope \
files. To write OpenTelemetry or pprof with threads, times, spans and labels, use `flightline export`.";

/// Arguments of `convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    stacks: StackArgs,
    /// Output file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath, display_order = 1)]
    output: PathBuf,
    /// Output format [default: by the output's extension: .folded, .pb.gz, .otlp, .speedscope.json]
    #[arg(long, value_enum, value_name = "FORMAT", display_order = 2)]
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
    /// OpenTelemetry profiles as protobuf, aggregated; `flightline export` writes times, threads and spans,
    /// and JSON
    #[cfg(feature = "export")]
    Otlp,
    /// speedscope's own format: threads, in order of time
    Speedscope,
    /// The Firefox Profiler's processed format: threads and times
    Firefox,
    /// Chrome trace events, also for Perfetto: threads and times
    Chrome,
    /// Hierarchical JSON for d3-flame-graph
    D3,
}

/// Converts profiles to other tools' formats.
pub fn run(args: &ConvertArgs) -> Result<Outcome> {
    let inputs = &args.stacks.inputs;
    output::refuse_input(&args.output, inputs.iter().map(PathBuf::as_path))?;
    let format = args.format()?;
    let what = if format == Format::Folded { For::Text } else { For::Tool };
    let profile = profile::read(inputs, &args.stacks.select, what)?;
    if profile.tree.nodes.is_empty() {
        return Err(flightline_consumer::Error::NoSamples.into());
    }
    let title = diagnostics::all_shown(inputs);
    output::text(&args.output, |mut out| -> Result<()> {
        match format {
            Format::Folded => folded::write(&profile.tree, &mut out)?,
            #[cfg(feature = "export")]
            Format::Pprof => {
                flightline_export::pprof::write(&flightline_export::pprof::from_tree(&profile.tree), out)?;
            }
            #[cfg(feature = "export")]
            Format::Otlp => {
                let data = flightline_export::otlp::tree::from_tree(&profile.tree);
                out.write_all(&prost::Message::encode_to_vec(&data))?;
            }
            Format::D3 => d3::write(&profile.tree, &mut out)?,
            Format::Speedscope => speedscope::write(
                &timeline::read(inputs, &args.stacks.select, &profile, For::Tool)?,
                &title,
                &mut out,
            )?,
            Format::Firefox => firefox::write(
                &timeline::read(inputs, &args.stacks.select, &profile, For::Tool)?,
                &title,
                &mut out,
            )?,
            Format::Chrome => {
                chrome::write(&timeline::read(inputs, &args.stacks.select, &profile, For::Tool)?, &mut out)?
            }
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
                #[cfg(feature = "export")]
                () if ends(&[".otlp"]) => Some(Format::Otlp),
                () if ends(&[".speedscope.json", ".speedscope"]) => Some(Format::Speedscope),
                () => None,
            }
        };
        match self.format.or_else(by_name) {
            Some(format) => Ok(format),
            None => bail!("cannot determine the format from the name of the output; give --format"),
        }
    }
}
