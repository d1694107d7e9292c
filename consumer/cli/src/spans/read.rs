//! Reading recordings and streams for what they tell of spans.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flightline_consumer::live::{self, Feed, Item};
use flightline_consumer::model::Model;
use flightline_consumer::spans::report::Filter;
use flightline_consumer::spans::{Found, Inference, Limits, Options, Spans};
use flightline_consumer::time_range::Bound;
use flightline_recorder::sink::stream::{Address, Token};
use jfr_format::constants::MAGIC;

use super::SpansArgs;
use crate::args::SelectArgs;
use crate::range::{self, Times};
use crate::signals::Signals;
use crate::stream::{self, Got, Stream};
use crate::talk::{self, Progress, shown};
use crate::{Outcome, input, repository};

/// Bytes read at a time.
const READ: usize = 256 << 10;
/// Time between two looks at a stream.
const TURN: Duration = Duration::from_millis(250);
/// Warnings told of an input.
const TOLD: u64 = 10;

/// Reads all inputs.
pub(super) fn read(args: &SpansArgs) -> Result<(Found, Outcome)> {
    let inference = args
        .inferred
        .then(|| Inference { min_duration: i64::try_from(args.min_duration.as_nanos()).unwrap_or(i64::MAX) });
    let options =
        Options { inference, exclude: args.exclude.clone(), trace: args.pictured(), ..Options::default() };
    let token = Token::find(args.token_file.as_deref())?;
    of_inputs(&args.inputs, [args.from, args.to], options, token.as_ref())
}

/// The samples of some spans, as a model of them alone.
pub fn read_model(inputs: &[PathBuf], args: &SelectArgs) -> Result<(Model, Outcome)> {
    let from = args.from.or(args.last);
    let (found, outcome) = of_inputs(inputs, [from, args.to], Options::default(), None)?;
    let filter = Filter { names: args.spans.clone(), labels: args.labels.clone(), trace: None };
    let model =
        found.profile.into_model(|profile, entry| entry.is_some_and(|entry| filter.passes(profile, entry)));
    Ok((model, outcome))
}

fn of_inputs(
    inputs: &[PathBuf],
    [from, to]: [Option<Bound>; 2],
    mut options: Options,
    token: Option<&Token>,
) -> Result<(Found, Outcome)> {
    range::check(from, to)?;
    let streams: Vec<Option<Address>> =
        inputs.iter().map(|path| stream::address(path)).collect::<Result<_>>()?;
    if let (1, Some(Some(address))) = (inputs.len(), streams.first()) {
        if from.is_some() || to.is_some() {
            bail!("--from and --to need a file to look times up in; {} is a stream", shown(&inputs[0]));
        }
        options.limits = Limits::STREAM;
        return of_stream(&inputs[0], address, token, Spans::new(options));
    }
    if let Some((path, _)) = inputs.iter().zip(&streams).find(|(_, stream)| stream.is_some()) {
        bail!("{} is a stream: give it alone", shown(path));
    }
    let paths = repository::expand(inputs, None)?;
    if (from.is_some() || to.is_some())
        && let Some(times) = Times::of(&paths)?
    {
        let at = |bound: Bound| bound.at(times.first, times.end);
        options.from = from.map_or(i64::MIN, at);
        options.to = to.map_or(i64::MAX, at);
    }
    let mut spans = Spans::new(options);
    let mut outcome = Outcome::Whole;
    for path in &paths {
        match of_file(path, &mut spans) {
            Ok(Outcome::Whole) => {}
            Ok(other) => outcome = other,
            Err(_) if repository::rolled_away(path, inputs) => {}
            Err(error) => return Err(error),
        }
    }
    let found = spans.finish().with_context(|| talk::all_shown(inputs))?;
    Ok((told(found), outcome))
}

/// Gives what a feed has to `spans`; tells its warnings.
struct Reader<'a> {
    path: &'a Path,
    feed: Feed,
    warnings: u64,
    outcome: Outcome,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, feed: Feed::new(live::Options::default()), warnings: 0, outcome: Outcome::Whole }
    }

    fn pass_on(&mut self, spans: &mut Spans) {
        while let Some(item) = self.feed.next() {
            if let Item::Warning(warning) = &item {
                if self.warnings < TOLD {
                    talk::warning(format_args!("{}: {warning}", shown(self.path)));
                }
                self.warnings += 1;
                if warning.damage {
                    self.outcome = Outcome::Partial;
                }
            }
            if let Item::ChunkStart(_) = &item {
                spans.periods(|event| self.feed.period(event));
            }
            spans.take(&item);
        }
        spans.periods(|event| self.feed.period(event));
    }

    fn close(mut self, spans: &mut Spans) -> Outcome {
        self.feed.close();
        self.pass_on(spans);
        if self.warnings > TOLD {
            talk::warning(format_args!("{}: and {} more", shown(self.path), self.warnings - TOLD));
        }
        self.outcome
    }
}

fn of_file(path: &Path, spans: &mut Spans) -> Result<Outcome> {
    let cannot = || format!("cannot open {}", shown(path));
    crate::recover::before_reading(path);
    let mut file = File::open(path).with_context(cannot)?;
    let mut reader = Reader::new(path);
    spans.next_input();
    if let Some(bytes) = repository::live(&file) {
        for piece in bytes.chunks(READ) {
            reader.feed.push(piece);
            reader.pass_on(spans);
        }
        return Ok(reader.close(spans));
    }
    let progress = Progress::new(file.metadata().ok().map(|meta| meta.len()));
    let mut buffer = vec![0; READ];
    let mut read = 0u64;
    loop {
        let bytes = match file.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            bytes => bytes.with_context(|| format!("cannot read {}", shown(path)))?,
        };
        let piece = buffer.get(..bytes).unwrap_or_default();
        if read == 0 {
            check(piece, path)?;
        }
        if piece.is_empty() {
            return Ok(reader.close(spans));
        }
        read += bytes as u64;
        reader.feed.push(piece);
        reader.pass_on(spans);
        progress.at(read);
    }
}

/// # Errors
/// It is no recording.
fn check(start: &[u8], path: &Path) -> Result<()> {
    if start.is_empty() {
        bail!("{} is empty", shown(path));
    }
    input::refuse_compressed(start, path)?;
    if !start.starts_with(&MAGIC) {
        bail!("{} is not a JFR recording: it does not start with \"FLR\\0\"", shown(path));
    }
    Ok(())
}

fn of_stream(
    path: &Path,
    address: &Address,
    token: Option<&Token>,
    mut spans: Spans,
) -> Result<(Found, Outcome)> {
    let signals = Signals::of_user()?;
    let name = shown(path);
    let mut stream = Stream::open(address, token).with_context(|| format!("cannot open {name}"))?;
    let mut reader = Reader::new(path);
    let mut buffer = vec![0; READ];
    let mut empty = true;
    loop {
        match stream.read(&mut buffer, Some(&signals), TURN).with_context(|| format!("cannot read {name}"))? {
            Got::Bytes(bytes) => {
                let piece = buffer.get(..bytes).unwrap_or_default();
                if std::mem::take(&mut empty) {
                    input::refuse_compressed(piece, path)?;
                }
                reader.feed.push(piece);
                reader.pass_on(&mut spans);
            }
            // Of a FIFO, the first writer may be still to come.
            Got::End if empty && stream::comes_back(address) => {
                if signals.wait(Some(TURN)).is_some() {
                    break;
                }
                continue;
            }
            Got::End => break,
            Got::Nothing => {}
        }
        if signals.wait(Some(Duration::ZERO)).is_some() {
            break;
        }
    }
    if empty {
        bail!("{name} is empty");
    }
    let outcome = reader.close(&mut spans);
    let found = spans.finish().with_context(|| name)?;
    Ok((told(found), outcome))
}

/// Tells what was left out.
fn told(found: Found) -> Found {
    let Found { profile, counts, inferred_left_out, .. } = &found;
    let told = [
        (
            counts.unwaited,
            "records were put down before all of their time had been read, as too many were waiting",
        ),
        (counts.late, "samples came late: they count, but are in no inferred span"),
        (counts.threads_dropped, "threads were forgotten, as there are too many at a time"),
        (counts.orphans, "samples are in no inferred span, as no activation was told for them"),
        (counts.nodes_dropped, "calls are in no inferred span, as a thread has too many"),
        (
            profile.spans_left_out,
            "spans or samples of them were left out of the table, as there are too many spans",
        ),
        (profile.stacks_left_out, "samples are in no flame graph, as there are too many stacks"),
        (*inferred_left_out, "inferred spans were left out, as there are too many"),
    ];
    for (count, what) in told.into_iter().filter(|(count, _)| *count > 0) {
        talk::warning(format_args!("{count} {what}"));
    }
    for ((of, cause), (count, cpu_nanos)) in &found.lost {
        let time = *cpu_nanos as f64 / 1e9;
        let what = match &**of {
            "span" => "ends of spans were lost: these spans have no name and no duration".into(),
            "scope" => "activations of spans were lost: samples in them are in no inferred span".into(),
            "waited" => "times that threads told of having waited were lost, and are in no span".into(),
            // What rounding leaves of a thread's beginning and end is no sample; the JSON has it.
            "flightline.SampleLoss" if *count == 0 => continue,
            "flightline.SampleLoss" => {
                format!("samples, {time:.3} s of CPU time, were lost, and are in no span")
            }
            of => format!("of {of} were lost, and are in no span"),
        };
        talk::warning(format_args!("{count} {what} ({cause})"));
    }
    found
}
