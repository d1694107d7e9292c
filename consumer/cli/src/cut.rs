//! `flightline cut`

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use flightline_consumer::cut::{self, Labelled};
use jfr_format::edit;

use crate::edit::{beside, count, input, output};
use crate::range::RangeArgs;
use crate::{Outcome, talk};

pub const EXAMPLES: &str = "\
Examples:
  flightline cut run.jfr --from 10 --to 20 -o ten-seconds.jfr
  flightline cut run.jfr --last 30s                          the last 30 seconds, to run.cut.jfr
  flightline cut run.jfr --from 10:00 --to 10:05             clock times, in UTC
  flightline cut run.jfr --from 2026-11-20T21:44:00Z --to 2026-11-20T21:45:00Z --strict
  flightline cut job.jfr --label attempt=A7 -o a7.jfr        samples of one task attempt

The output contains every event that overlaps the range; the end is exclusive. It also contains events \
that describe the recording: the machine, the JVM, its flags and properties, settings, libraries and \
flightline.ClockAnchor. These come from the chunks in the range, or from the last earlier chunk that has \
them. --strict selects by time only. --label selects samples in spans with this label, the events \
recorded with these samples, and the spans themselves (Flightline recordings only); loss events of the \
whole recording are included.";

/// Arguments of `cut`.
#[derive(Debug, Args)]
pub struct CutArgs {
    /// A recording; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Keep only samples in spans with this label; repeatable, then all labels must match
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::select::label)]
    pub labels: Vec<(String, String)>,
    /// Output file; `-` is standard output [default: FILE with the ending `.cut.jfr`]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Overwrite the output if it exists
    #[arg(long)]
    pub force: bool,
    /// Print the report as JSON on standard output (on standard error if the recording goes there)
    #[arg(long)]
    pub json: bool,
    /// Also drop events that describe the recording, unless they lie in the range
    #[arg(long)]
    pub strict: bool,
}

/// Error message if the output fails.
pub const CANNOT: &str = "cannot write the recording";

/// Writes a part of a recording.
pub fn run(args: CutArgs) -> Result<Outcome> {
    if args.range.is_everything() && args.labels.is_empty() {
        bail!("give a range (--from, --to, --last) or --label");
    }
    let source = input(&args.input)?;
    let name = talk::shown(&args.input);
    let Some((start, end)) = edit::time_range(&source) else {
        bail!("{name} is not a JFR recording: no chunk header found");
    };
    // An event may end after the recording's end according to its headers.
    let (from, to) = args.range.moments(start, end);
    let (from, to) = (from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX));
    if from >= to {
        bail!("--from must be before --to");
    }
    let labelled = (!args.labels.is_empty()).then(|| Labelled::find(&source, &args.labels));
    let wanted: Vec<String> = args.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if labelled.as_ref().is_some_and(Labelled::is_full) {
        bail!("too many samples have the label {}; limit the range with --from and --to", wanted.join(" "));
    }
    if labelled.as_ref().is_some_and(Labelled::is_empty) {
        let key = args.labels.first().map_or("", |(key, _)| key);
        bail!(
            "{name} has no sample with the label {}; `flightline spans --by label={key}` lists its values",
            wanted.join(" ")
        );
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => beside(&args.input, "cut")?,
    };
    let report = output(&path, &[&args.input], args.force, |out| {
        let report =
            cut::labelled_part(&source, from, to, args.strict, labelled.as_ref(), out).context(CANNOT)?;
        if report.written == 0 {
            if report.unread > 0 && report.types.is_empty() {
                bail!(crate::edit::nothing_read(&args.input));
            }
            let seconds = end.saturating_sub(start) as f64 / 1e9;
            bail!("{name} has no events in that range; the recording is {seconds:.1} s long");
        }
        Ok(report)
    })?;
    let (all, dropped) = report.types.values().fold((0, 0), |(a, d), s| (a + s.all, d + s.dropped));
    if args.json {
        let mut json = crate::scrub::json(&report);
        json["fromNanos"] = from.max(start).into();
        json["toNanos"] = to.min(end).into();
        crate::edit::report(Some(&path), &json)?;
    } else {
        eprintln!(
            "wrote {}: {} of {} in {} of {}",
            talk::shown_output(&path),
            all - dropped,
            count(all, "event"),
            report.written,
            count(report.chunks, "chunk")
        );
        if report.context > 0 {
            eprintln!("  {} of earlier chunks describe the recording", count(report.context, "event"));
        }
    }
    Ok(crate::scrub::unread(&args.input, report.unread))
}
