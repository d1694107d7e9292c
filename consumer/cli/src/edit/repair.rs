//! `flightline repair`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use jfr_format::edit::{self, Options, Repaired};
use serde_json::json;

use crate::Outcome;
use crate::diagnostics::{self, count, shown};
use crate::edit::{input, output, output_next_to, quiet_input};

pub const EXAMPLES: &str = "\
Examples:
  flightline repair torn.jfr                        writes torn.repaired.jfr
  flightline repair torn.jfr -o whole.jfr --force
  flightline repair torn.jfr --dry-run --json       only reports what would be retained and lost
  flightline repair 2026_11_21.jfr -o run.jfr --metadata-from earlier.jfr

Valid chunks are copied byte for byte. Unfinished, truncated and damaged chunks keep every complete \
event and constant; their header, sizes and chain of checkpoints are rewritten. A valid file is copied \
unchanged.

An event is damaged if its type is not declared or if its fields do not end at its size. The search for the next valid \
events takes at most 32 steps per byte of the input. The report lists the bytes that were dropped and the \
constants (stacks, threads, names) that events refer to and that the file lacks. async-profiler writes the constants at the \
end of a chunk: a truncated chunk has none.

Exit status: 1 if the file cannot be repaired, or if all constants of a type are missing that at least \
10 % of the events refer to; else 0.";

/// Arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// A recording that other tools cannot read; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    /// Output file; `-` is standard output [default: FILE with the ending `.repaired.jfr`]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Overwrite the output if it exists
    #[arg(long)]
    pub force: bool,
    /// Another recording of the same program, for its metadata if the input has none
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub metadata_from: Option<PathBuf>,
    /// Omit events that refer to constants (stacks, threads, …) that the file lacks
    #[arg(long)]
    pub drop_unresolved: bool,
    /// Only report what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Print the report as JSON on standard output (on standard error if the recording goes there)
    #[arg(long)]
    pub json: bool,
}

/// Writes the readable part of a recording as a standard file.
pub fn run(args: RepairArgs) -> Result<Outcome> {
    let source = input(&args.input)?;
    let metadata_from = args.metadata_from.as_deref().map(quiet_input).transpose()?;
    let options = Options { metadata_from, drop_unresolved: args.drop_unresolved };
    let repair = |out: &mut dyn Write| -> Result<Repaired> {
        let report = edit::repair(&source, &options, out).context("cannot write the recording")?;
        if report.output == 0 {
            bail!(
                "{}: cannot be repaired: {}",
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
            None => output_next_to(&args.input, "repaired")?,
        };
        (output(&path, &[&args.input], args.force, repair)?, Some(path))
    };
    if args.json {
        crate::edit::report(path.as_deref(), &json(&report))?;
    } else {
        print_report(&report, path.as_deref());
    }
    if report.gave_up {
        diagnostics::warning(format_args!(
            "{}: the search for events after damaged data ended after {} steps per byte; the sizes of \
             the remaining events were not checked",
            shown(&args.input),
            edit::STEPS_PER_BYTE
        ));
    }
    Ok(warn_missing(&report, &args.input))
}

/// Warn about missing constants if at least one in this many events refers to them.
const WORTH_A_WARNING: u64 = 10;

/// Warns about constant types that are missing completely although many events refer to them.
fn warn_missing(report: &Repaired, input: &Path) -> Outcome {
    let many = |events: u64| events.saturating_mul(WORTH_A_WARNING) >= report.events;
    let missing = report.missing.iter().filter(|(_, m)| m.events == m.of && many(m.events));
    let names: Vec<&str> = missing.map(|(name, _)| purpose(name)).collect();
    if names.is_empty() {
        return Outcome::Whole;
    }
    diagnostics::warning(format_args!(
        "{}: the {} of all events are missing, because these constants are not in the file. Types, times \
         and other values of the events are complete",
        shown(input),
        names.join(", ")
    ));
    Outcome::Partial
}

/// Returns a word for the constants of a type.
fn purpose(type_name: &str) -> &str {
    match type_name {
        "jdk.types.StackTrace" => "stack",
        "java.lang.Thread" => "thread",
        "java.lang.Class" => "class",
        "jdk.types.Method" => "method",
        "java.lang.String" => "text",
        "jdk.types.Symbol" => "symbol",
        name => name.rsplit('.').next().unwrap_or(name),
    }
}

fn nothing(report: &Repaired, metadata_from: Option<&Path>) -> String {
    match metadata_from {
        _ if !report.lost.contains_key(&edit::Cause::NoMetadata) => "no JFR chunk header found".into(),
        Some(path) => format!("no metadata found, and none in {}", shown(path)),
        None => "no metadata found; give a recording of the same program with --metadata-from".into(),
    }
}

fn print_report(report: &Repaired, path: Option<&Path>) {
    if let Some(path) = path {
        eprintln!("wrote {}: {}", diagnostics::shown_output(path), count(report.output, "byte"));
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
        eprintln!(
            "  {} without metadata, decoded with the metadata of another chunk",
            count(report.borrowed, "chunk")
        );
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
            "  dropped {}{events}: {} (at offset {}{more})",
            count(lost.bytes, "byte"),
            cause.text(),
            ranges.join(", ")
        );
    }
    for (name, missing) in report.missing.iter().filter(|(_, missing)| missing.events > 0) {
        eprintln!(
            "  missing constants of {name}: {} of {} that refer to one",
            missing.events,
            count(missing.of, "event")
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
        "missingConstants": report.missing.iter().filter(|(_, missing)| missing.events > 0).map(|(name, missing)| json!({
            "type": name,
            "events": missing.events,
            "eventsWithReference": missing.of,
        })).collect::<Vec<_>>(),
        "searchLimitReached": report.gave_up,
        "lost": report.lost.iter().map(|(cause, lost)| json!({
            "why": cause.text(),
            "bytes": lost.bytes,
            "events": lost.events,
            "ranges": lost.ranges.iter().map(|r| [r.start, r.end]).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}
