//! Reads spans from recordings and streams.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flightline_consumer::live::{self, Choice, Feed, Item};
use flightline_consumer::model::Model;
use flightline_consumer::spans::report::Filter;
use flightline_consumer::spans::{Inference, Limits, Options, SpanReport, Spans};
use flightline_recorder::stream::{Address, Token};

use super::SpansArgs;
use crate::items::{self, READ, Reader, Taker};
use crate::range;
use crate::select::{SampleArgs, SelectArgs};
use crate::signals::Signals;
use crate::stream::{self, Got, Stream};
use crate::talk::{self, shown};
use crate::{Outcome, input, repository};

/// Poll interval of a stream.
const TURN: Duration = Duration::from_millis(250);

/// Reads all inputs.
pub(super) fn read(args: &SpansArgs) -> Result<(SpanReport, Outcome)> {
    let inference = args
        .inferred
        .then(|| Inference { min_duration: i64::try_from(args.min_duration.as_nanos()).unwrap_or(i64::MAX) });
    let options = Options {
        inference,
        exclude: args.not_inferred.clone(),
        trace: args.pictured(),
        ..Options::default()
    };
    let token = Token::find(args.token_file.as_deref())?;
    of_inputs(&args.inputs, &args.select.samples, options, token.as_ref())
}

/// Loads the samples of selected spans as a model.
pub fn read_model(inputs: &[PathBuf], args: &SelectArgs) -> Result<(Model, Outcome)> {
    // Samples are selected when they are folded; only the time range applies to everything.
    let times = SampleArgs { range: args.samples.range, ..SampleArgs::default() };
    let (found, outcome) = of_inputs(inputs, &times, Options::default(), None)?;
    let filter = Filter { names: args.spans.clone(), labels: args.labels.clone(), trace: None };
    let model =
        found.profile.into_model(|profile, entry| entry.is_some_and(|entry| filter.passes(profile, entry)));
    Ok((model, outcome))
}

fn of_inputs(
    inputs: &[PathBuf],
    samples: &SampleArgs,
    mut options: Options,
    token: Option<&Token>,
) -> Result<(SpanReport, Outcome)> {
    let streams: Vec<Option<Address>> =
        inputs.iter().map(|path| stream::address(path)).collect::<Result<_>>()?;
    if let (1, Some(Some(address))) = (inputs.len(), streams.first()) {
        if !samples.range.is_everything() {
            bail!("--from, --to and --last need a file; {} is a stream", shown(&inputs[0]));
        }
        options.limits = Limits::STREAM;
        let chosen = Chosen::new(options, samples);
        return of_stream(&inputs[0], address, token, chosen);
    }
    if let Some((path, _)) = inputs.iter().zip(&streams).find(|(_, stream)| stream.is_some()) {
        bail!("{} is a stream; give it as the only input", shown(path));
    }
    let paths = repository::expand(inputs, samples.range.last)?;
    [options.from, options.to] = range::nanos(&paths, &samples.range)?;
    let mut chosen = Chosen::new(options, samples);
    let mut outcome = Outcome::Whole;
    for path in &paths {
        match items::of_file(path, &live::Options::default(), &mut chosen) {
            Ok(Outcome::Whole) => {}
            Ok(other) => outcome = other,
            Err(_) if repository::rolled_away(path, inputs) => {}
            Err(error) => return Err(error),
        }
    }
    let found = chosen.spans.finish().with_context(|| talk::all_shown(inputs))?;
    Ok((told(found), outcome))
}

/// Spans of the selected samples.
struct Chosen {
    spans: Spans,
    choice: Choice,
}

impl Chosen {
    fn new(options: Options, samples: &SampleArgs) -> Self {
        // The span reader applies the time range itself.
        let choice = Choice::new(samples.filter(), [i64::MIN, i64::MAX]);
        Self { spans: Spans::new(options), choice }
    }
}

impl Taker for Chosen {
    fn next_input(&mut self) {
        self.spans.next_input();
    }

    fn take(&mut self, item: &Item, feed: &Feed) {
        if let Item::ChunkStart(_) = item {
            self.spans.periods(|event| feed.period(event));
        }
        if self.choice.wants(item) {
            self.spans.take(item);
        }
    }

    fn caught_up(&mut self, feed: &Feed) {
        self.spans.periods(|event| feed.period(event));
    }
}

fn of_stream(
    path: &Path,
    address: &Address,
    token: Option<&Token>,
    mut chosen: Chosen,
) -> Result<(SpanReport, Outcome)> {
    let signals = Signals::of_user()?;
    let name = shown(path);
    let mut stream = Stream::open(address, token).with_context(|| format!("cannot open {name}"))?;
    let mut reader = Reader::new(path, live::Options::default());
    let mut buffer = vec![0; READ];
    let mut empty = true;
    loop {
        match stream.read(&mut buffer, Some(&signals), TURN).with_context(|| format!("cannot read {name}"))? {
            Got::Bytes(bytes) => {
                let piece = buffer.get(..bytes).unwrap_or_default();
                if std::mem::take(&mut empty) {
                    input::refuse_compressed(piece, path)?;
                }
                reader.push(piece, &mut chosen);
            }
            // The first writer of a FIFO may not have connected yet.
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
    reader.refuse_cut()?;
    let outcome = reader.close(&mut chosen);
    let found = chosen.spans.finish().with_context(|| name)?;
    Ok((told(found), outcome))
}

/// Reports omitted data.
fn told(found: SpanReport) -> SpanReport {
    let SpanReport { profile, counts, inferred_left_out, .. } = &found;
    let told = [
        (
            counts.unwaited,
            "records were assigned before all data for their time had been read, because too many were pending",
        ),
        (counts.late, "samples arrived late: they are counted, but are in no inferred span"),
        (counts.threads_dropped, "threads were dropped, because too many were active at the same time"),
        (counts.orphans, "samples are in no inferred span, because the recording has no activation for them"),
        (counts.nodes_dropped, "calls are in no inferred span, because a thread has too many"),
        (
            profile.spans_left_out,
            "spans or their samples were omitted from the table, because there are too many spans",
        ),
        (profile.stacks_left_out, "samples are in no flame graph, because there are too many stacks"),
        (*inferred_left_out, "inferred spans were omitted, because there are too many"),
    ];
    for (count, what) in told.into_iter().filter(|(count, _)| *count > 0) {
        talk::warning(format_args!("{count} {what}"));
    }
    for ((of, cause), (count, cpu_nanos)) in &found.lost {
        let time = *cpu_nanos as f64 / 1e9;
        let what = match &**of {
            "span" => "span ends were lost: these spans have no name and no duration".into(),
            "scope" => "span activations were lost: samples in them are in no inferred span".into(),
            "waited" => "recorded waits of threads were lost, and are in no span".into(),
            // Rounding errors at the start and end of a thread are not lost samples; the JSON contains them.
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
