//! `flightline repair`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use jfr_format::edit::{self, Options, Repaired};
use serde_json::json;

use crate::Outcome;
use crate::edit::{beside, count, input, output, quiet_input};
use crate::talk::{self, shown};

pub const EXAMPLES: &str = "\
Examples:
  flightline repair torn.jfr                        writes torn.repaired.jfr
  flightline repair torn.jfr -o whole.jfr --force
  flightline repair torn.jfr --dry-run --json       only says what would be kept and lost
  flightline repair 2026_11_21.jfr -o run.jfr --metadata-from earlier.jfr

Sound chunks are copied byte for byte. Of others (unfinished, unpatched, torn, damaged) every whole event and constant is \
kept, and header, sizes and the chain of checkpoints are written anew. A sound file comes out as it is.";

/// Arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// A recording that others cannot read; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    /// Where to; `-` is standard output [default: FILE with `.repaired.jfr` for its ending]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Overwrite the output if it exists
    #[arg(long)]
    pub force: bool,
    /// Another recording of the same program, for its metadata if the input has none
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub metadata_from: Option<PathBuf>,
    /// Leave out events that refer to constants (stacks, threads, …) which were never written
    #[arg(long)]
    pub drop_unresolved: bool,
    /// Only tell what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// The report as JSON on standard output (on standard error if the recording goes there)
    #[arg(long)]
    pub json: bool,
}

/// Writes what is left of a recording as a standard file.
pub fn run(args: RepairArgs) -> Result<Outcome> {
    let source = input(&args.input)?;
    let metadata_from = args.metadata_from.as_deref().map(quiet_input).transpose()?;
    let options = Options { metadata_from, drop_unresolved: args.drop_unresolved };
    let repair = |out: &mut dyn Write| -> Result<Repaired> {
        let report = edit::repair(&source, &options, out).context("cannot write the recording")?;
        if report.output == 0 {
            bail!(
                "{}: nothing can be saved: {}",
                shown(&args.input),
                nothing(&report, args.metadata_from.as_deref())
            );
        }
        Ok(report)
    };
    let (report, path) = if args.dry_run {
        (repair(&mut std::io::sink())?, None)
    } else {
        let path = match &args.output {
            Some(path) => path.clone(),
            None => beside(&args.input, "repaired")?,
        };
        (output(&path, &[&args.input], args.force, repair)?, Some(path))
    };
    if args.json {
        crate::edit::report(path.as_deref(), &json(&report))?;
    } else {
        tell(&report, path.as_deref());
    }
    Ok(Outcome::Whole)
}

fn nothing(report: &Repaired, metadata_from: Option<&std::path::Path>) -> String {
    match metadata_from {
        _ if !report.lost.contains_key(&edit::Cause::NoMetadata) => "no JFR chunk header in it".into(),
        Some(path) => format!("no metadata in it, nor in {}", shown(path)),
        None => "no metadata in it; give a recording of the same program with --metadata-from".into(),
    }
}

fn tell(report: &Repaired, path: Option<&std::path::Path>) {
    if let Some(path) = path {
        eprintln!("wrote {}: {}", talk::shown_output(path), count(report.output, "byte"));
    }
    eprintln!(
        "{} copied, {} rebuilt with {}",
        count(report.copied, "chunk"),
        report.rebuilt.len(),
        count(report.events, "event")
    );
    for (at, why) in report.rebuilt.iter().take(10) {
        eprintln!("  chunk at offset {at}: {why}");
    }
    if report.borrowed > 0 {
        eprintln!("  {} had no metadata and got that of another", count(report.borrowed, "chunk"));
    }
    if report.constants > 0 {
        eprintln!("  dropped {}: defined already, or incomplete", count(report.constants, "constant"));
    }
    for (cause, lost) in &report.lost {
        let ranges: Vec<String> =
            lost.ranges.iter().take(5).map(|r| format!("{}..{}", r.start, r.end)).collect();
        let more = if lost.ranges.len() > 5 { ", …" } else { "" };
        let events =
            if lost.events > 0 { format!(", {}", count(lost.events, "event")) } else { String::new() };
        eprintln!(
            "  dropped {}{events}: {} (at {}{more})",
            count(lost.bytes, "byte"),
            cause.text(),
            ranges.join(", ")
        );
    }
}

fn json(report: &Repaired) -> serde_json::Value {
    json!({
        "inputBytes": report.input,
        "outputBytes": report.output,
        "unchanged": report.unchanged(),
        "chunksCopied": report.copied,
        "chunksRebuilt": report.rebuilt.iter().map(|(at, why)| json!({"offset": at, "why": why})).collect::<Vec<_>>(),
        "metadataBorrowed": report.borrowed,
        "eventsInRebuilt": report.events,
        "constantsDropped": report.constants,
        "lost": report.lost.iter().map(|(cause, lost)| json!({
            "why": cause.text(),
            "bytes": lost.bytes,
            "events": lost.events,
            "ranges": lost.ranges.iter().map(|r| [r.start, r.end]).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}
