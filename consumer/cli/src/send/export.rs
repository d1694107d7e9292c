//! `flightline export`: writes recordings and streams for other systems, to files or a collector.

mod following;
mod sending;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use flightline_consumer::live::{Choice, Feed, Item, Options};
use flightline_export::send::Target;
use flightline_export::{Attributes, Batch, Collector, Counts, Inferring, hdps, otlp, pprof};
use flightline_recorder::settings::units::{bytes, duration};
use prost::Message;
use regex::Regex;

use crate::args::{help, selection::SampleArgs, time_range, usage::usage, values};
use crate::diagnostics::{self, Progress, shown};
use crate::input::{self, repository, stream, unfinished};
use crate::{Outcome, output};

pub const EXAMPLES: &str = "\
Examples:
  flightline export run.jfr --format pprof -o run.pb.gz && go tool pprof -top run.pb.gz
  flightline export run.jfr --format otlp-json -o - | jq '.resourceProfiles[0].scopeProfiles[0].profiles[0].sampleType'
  flightline export run.jfr --send http://127.0.0.1:4318
  flightline record -o - -- ./server | flightline export - --send grpc://collector:4317 --attribute deployment.environment=test

  flightline export run.jfr --format hdps -o - | head -1 | jq .
  flightline export unix:/run/app.sock --send fluentd://127.0.0.1:24224 --tag profiles.app --attribute task_id=t7

OTLP profiles use the protocol v1development: a Collector needs --feature-gates=service.profilesSupport. \
Samples link to their spans. Losses are reported at the end. To select or transform stacks, use \
`flightline convert --format otlp` or `pprof`.

Exit status: 0 if everything was read and delivered; 1 for an error or incomplete data; 2 for wrong usage.";

/// Read size in bytes.
const READ: usize = 256 << 10;
/// Maximum bytes of one chunk to buffer.
const MOST_KEPT: u64 = 1 << 30;

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["output", "send"]))]
pub struct ExportArgs {
    /// Recordings or repositories; or a stream: `-`, a FIFO, fd:N, unix:PATH, tcp:HOST:PORT
    #[arg(required = true, value_name = "FILE|DIR|STREAM", value_hint = ValueHint::AnyPath)]
    inputs: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "otlp", conflicts_with = "send")]
    format: Format,
    /// Write to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Send profiles and traces to this OTLP receiver: http://HOST:4318, grpc://HOST:4317, with TLS https://
    /// and grpcs://; or rows as with --format hdps to Fluentd: fluentd://HOST:24224
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    send: Option<Target>,
    /// Event types: cpu, wall, alloc, live, lock, io, throw, trace, or the name of a type [default: all]
    #[arg(short, long = "event", alias = "events", value_name = "NAME", value_delimiter = ',')]
    events: Vec<String>,
    /// Traces: also infer spans from samples; spans of the program that would be their children are linked
    #[arg(long)]
    #[arg(help_heading = help::INFERRED)]
    inferred: bool,
    /// Minimum duration of an inferred span
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = duration, requires = "inferred")]
    #[arg(help_heading = help::INFERRED)]
    min_duration: Duration,
    /// Exclude these functions from inferred spans, as module or class.function; repeatable
    #[arg(long, value_name = "REGEX", requires = "inferred")]
    #[arg(help_heading = help::INFERRED)]
    not_inferred: Vec<Regex>,
    /// Selection of samples.
    #[command(flatten)]
    samples: SampleArgs,
    /// Resource attribute, such as service.name=shop; for rows a label. Repeatable
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = pair)]
    #[arg(help_heading = help::SENDING)]
    attributes: Vec<(String, String)>,
    /// Send this additional header, such as authorization='Bearer …'; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = pair, requires = "send")]
    #[arg(help_heading = help::SENDING)]
    headers: Vec<(String, String)>,
    /// With fluentd://: routing tag [default: flightline]
    #[arg(long, value_name = "TAG", requires = "send")]
    #[arg(help_heading = help::SENDING)]
    tag: Option<String>,
    /// With fluentd://: file with the shared key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "send")]
    #[arg(help_heading = help::SENDING)]
    shared_key_file: Option<PathBuf>,
    /// With https:// and grpcs://: trust the certificates in this file (PEM) [default: those of this machine]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "send")]
    #[arg(help_heading = help::SENDING)]
    ca_cert: Option<PathBuf>,
    /// With https://: do not verify the receiver's certificate; an attacker in between can read and answer
    #[arg(long, requires = "send", conflicts_with = "ca_cert")]
    #[arg(help_heading = help::SENDING)]
    insecure: bool,
    /// Streams: interval between messages
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::timeout)]
    #[arg(help_heading = help::STREAM)]
    every: Duration,
    /// Timeout of an attempt to send
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::timeout)]
    #[arg(help_heading = help::SENDING)]
    timeout: Duration,
    /// Give up a message that was not accepted for this time, which is also the maximum wait at the end
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = values::timeout)]
    #[arg(help_heading = help::SENDING)]
    patience: Duration,
    /// Maximum bytes that wait to be sent; for a stream, excess data is dropped and counted
    #[arg(long, value_name = "BYTES", default_value = "64m", value_parser = bytes)]
    #[arg(help_heading = help::SENDING)]
    queue_size: u64,
    /// Do not compress messages
    #[arg(long)]
    #[arg(help_heading = help::SENDING)]
    no_gzip: bool,
    /// The token for a recorder on TCP is in this file [default: FLIGHTLINE_TOKEN]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::STREAM)]
    token_file: Option<PathBuf>,
}

/// File formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// OpenTelemetry profiles: a ProfilesData in protobuf
    Otlp,
    /// The same as JSON
    OtlpJson,
    /// OpenTelemetry traces: a TracesData in protobuf
    OtlpTraces,
    /// The same as JSON
    OtlpTracesJson,
    /// gzip-compressed profile.proto
    Pprof,
    /// One JSON line per sample, with the complete stack, as in Treasure Data's HDPS
    Hdps,
}

/// Parses `NAME=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    if name.trim().is_empty() {
        return Err(format!("{text:?} has no name"));
    }
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// Exports.
pub fn run(args: &ExportArgs) -> Result<Outcome> {
    if let Some(why) = args.in_vain() {
        usage::<ExportArgs>("export", ErrorKind::ArgumentConflict, why);
    }
    let mut collector = Collector::new(args.attributes.iter().cloned().collect::<Attributes>());
    if let Some(target) = &args.send {
        return sending::run(args, target, collector);
    }
    let path = args.output.as_deref().unwrap_or(Path::new("-"));
    output::refuse_input(path, args.inputs.iter().map(PathBuf::as_path))?;
    if args.format == Format::Hdps {
        return rows(args, path);
    }
    let traces = matches!(args.format, Format::OtlpTraces | Format::OtlpTracesJson);
    let mut inferring = args.inferring(false).filter(|_| traces);
    let outcome = read(args, |item, _| {
        collector.take(item);
        if let Some(inferring) = &mut inferring {
            inferring.take(item);
        }
        Ok(())
    })?;
    if let Some(mut inferring) = inferring {
        inferring.give(&mut collector, true);
    }
    let batch = collector.finish();
    write(args.format, &batch, path)?;
    let counts = batch.counts();
    match traces {
        true if counts.spans == 0 => diagnostics::warning("the input has no spans"),
        false if counts.samples == 0 => diagnostics::warning("the input has no samples"),
        _ => {}
    }
    report_left_out(&counts, &collector);
    Ok(outcome)
}

/// Writes a line per sample as it arrives.
fn rows(args: &ExportArgs, path: &Path) -> Result<Outcome> {
    let (mut shape, mut count) = (hdps::Shape::new(args.attributes.clone()), 0u64);
    let mut each = |item: &Item, out: &mut dyn Write| -> Result<()> {
        if let Some(row) = shape.row(item) {
            serde_json::to_writer(&mut *out, &row)?;
            out.write_all(b"\n")?;
            count += 1;
        }
        Ok(())
    };
    let mut outcome = Outcome::Whole;
    match following::followed(args)? {
        None => output::text(path, |out| -> Result<()> {
            outcome = read(args, |item, _| each(item, out))?;
            Ok(())
        })?,
        Some((address, signals)) => output::until_signal(path, |out| {
            let often = Duration::from_secs(1);
            outcome = following::follow(args, &address, &signals, often, |item| match item {
                Some(item) => each(item, out),
                // Flush, so that a reader that follows sees all data.
                None => Ok(out.flush()?),
            })?;
            Ok(())
        })?,
    }
    if count == 0 {
        diagnostics::warning("the input has no samples");
    }
    Ok(outcome)
}

/// Reports spans that could not be used.
fn report_left_out(counts: &Counts, collector: &Collector) {
    let spans = collector.counts();
    if spans.contexts_unused > 0 {
        diagnostics::note(format_args!("{} span references have no sample", spans.contexts_unused));
    }
    if spans.unwaited > 0 {
        diagnostics::warning(format_args!(
            "{} samples and spans could not be matched, because too many were pending; some samples may lack their span",
            spans.unwaited
        ));
    }
    if counts.spans_without_trace > 0 {
        diagnostics::note(format_args!(
            "{} spans have no trace id and are not exported",
            counts.spans_without_trace
        ));
    }
}

impl ExportArgs {
    /// Returns a message if an option has no effect on the selected output.
    fn in_vain(&self) -> Option<&'static str> {
        let fluentd = self.send.as_ref().is_some_and(Target::is_fluentd);
        let rows = fluentd || self.send.is_none() && self.format == Format::Hdps;
        let what = [
            (self.inferred && rows, "--inferred applies to traces, not to rows; use --format otlp-traces"),
            (
                fluentd && !self.headers.is_empty(),
                "--header applies to HTTP and gRPC; for Fluentd, use --shared-key-file",
            ),
            (!fluentd && self.tag.is_some(), "--tag needs --send fluentd://HOST"),
            (!fluentd && self.shared_key_file.is_some(), "--shared-key-file needs --send fluentd://HOST"),
        ];
        what.iter().find(|(given, _)| *given).map(|(_, why)| *why)
    }

    /// Returns the span inference, if requested.
    fn inferring(&self, stream: bool) -> Option<Inferring> {
        let shortest = i64::try_from(self.min_duration.as_nanos()).unwrap_or(i64::MAX);
        self.inferred.then(|| Inferring::new(shortest, self.not_inferred.clone(), stream))
    }
}

fn write(format: Format, batch: &Batch, path: &Path) -> Result<()> {
    output::text(path, |out| -> Result<()> {
        match format {
            Format::Otlp => out.write_all(&otlp::profiles(batch).encode_to_vec())?,
            Format::OtlpTraces => out.write_all(&otlp::traces(batch).encode_to_vec())?,
            Format::OtlpJson => serde_json::to_writer(out, &otlp::profiles_json(&otlp::profiles(batch))?)?,
            Format::OtlpTracesJson => serde_json::to_writer(out, &otlp::traces_json(&otlp::traces(batch))?)?,
            Format::Pprof => pprof::write(&pprof::profile(batch), out)?,
            Format::Hdps => bail!("rows are written immediately"),
        }
        Ok(())
    })
}

/// Creates a decoder for the selected events.
fn feed(args: &ExportArgs) -> Feed {
    Feed::new(Options { samples: args.events.clone(), memory: MOST_KEPT, ..Options::default() })
}

/// Passes the items of all inputs, with their decoder, to `each`.
fn read(args: &ExportArgs, mut each: impl FnMut(&Item, &Feed) -> Result<()>) -> Result<Outcome> {
    let mut outcome = Outcome::Whole;
    let paths = repository::expand(&args.inputs, args.samples.range.last)?;
    let mut choice = Choice::new(args.samples.filter(), time_range::nanos(&paths, &args.samples.range)?);
    for path in paths {
        let from: Result<Box<dyn Read>> = if path.as_os_str() == "-" {
            Ok(Box::new(std::io::stdin()))
        } else if stream::address(&path)?.is_some() {
            bail!(
                "{} is a stream without an end; give it as the only input, with --send or --format hdps, or give a recording",
                shown(&path)
            );
        } else {
            // Reports inputs that are not recordings.
            input::recording(&path).and_then(|_| {
                unfinished::before_reading(&path);
                let file = File::open(&path).with_context(|| format!("cannot open {}", shown(&path)))?;
                Ok(Box::new(file) as Box<dyn Read>)
            })
        };
        let mut from = match from {
            Err(_) if repository::rolled_away(&path, &args.inputs) => continue,
            from => from?,
        };
        let size = path.metadata().ok().filter(|meta| meta.is_file()).map(|meta| meta.len());
        let progress = Progress::new(size);
        let (mut feed, mut buffer, mut done) = (feed(args), vec![0; READ], 0);
        loop {
            let bytes = from.read(&mut buffer).with_context(|| format!("cannot read {}", shown(&path)))?;
            feed.push(buffer.get(..bytes).unwrap_or_default());
            if bytes == 0 {
                feed.close();
            }
            take(&mut feed, &path, &mut outcome, &mut choice, &mut each)?;
            done += bytes as u64;
            progress.at(done);
            if bytes == 0 {
                break;
            }
        }
    }
    Ok(outcome)
}

/// Passes available items to `each`.
fn take(
    feed: &mut Feed,
    path: &Path,
    outcome: &mut Outcome,
    choice: &mut Choice,
    each: &mut impl FnMut(&Item, &Feed) -> Result<()>,
) -> Result<()> {
    while let Some(item) = feed.next() {
        if let Item::Warning(warning) = &item {
            diagnostics::warning(format_args!("{}: offset {}: {warning}", shown(path), warning.offset));
            if warning.damage {
                *outcome = Outcome::Partial;
            }
        }
        if choice.wants(&item) {
            each(&item, feed)?;
        }
    }
    Ok(())
}
