//! `flightline metadata`

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use flightline_consumer::metadata::{Declarations, Shown};
use flightline_consumer::print::{Categories, Patterns};
use flightline_consumer::warnings::Warnings;
use jfr_format::read::{Filter, Item};

use crate::diagnostics::{self, Progress, shown};
use crate::input::{self, event_filter::EventFilter, repository};
use crate::{Outcome, output};

pub const EXAMPLES: &str = "\
Examples:
  flightline metadata run.jfr | less
  flightline metadata run.jfr --event ThreadPark,'jdk.Thread*'
  flightline metadata run.jfr --categories 'GC,Java*' --details
  flightline metadata run.jfr --json | jq '.types[].name'

The text has the format of the JDK's `jfr metadata`. It contains all types, or the event types selected \
with --event and --categories. If chunks declare a type differently, the first declaration is shown.";

/// Arguments of `metadata`.
#[derive(Debug, Args)]
pub struct MetadataArgs {
    /// Recordings or repositories, merged; `-` is standard input
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    inputs: Vec<PathBuf>,
    /// Print JSON, with all details
    #[arg(long)]
    json: bool,
    /// Event types, by name with or without package; `*` matches any text, `?` one character
    #[arg(short, long = "event", visible_alias = "events", value_name = "NAME,…", value_delimiter = ',')]
    events: Vec<String>,
    /// Event types by category, with `*` and `?`; initials, such as JVM, match names of several words
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    categories: Vec<String>,
    /// Also print type ids, settings with their defaults, and which values are constants
    #[arg(long)]
    details: bool,
    /// Output file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

/// Lists the types recordings declare.
pub fn run(args: MetadataArgs) -> Result<Outcome> {
    output::refuse_input(&args.output, args.inputs.iter().map(PathBuf::as_path))?;
    let mut declarations = Declarations::default();
    let mut wanted = EventFilter::new(&args.events, &args.categories);
    let mut outcome = Outcome::Whole;
    for path in &repository::expand(&args.inputs, None)? {
        let mut input = match input::recording(path) {
            Err(_) if repository::rolled_away(path, &args.inputs) => continue,
            input => input?,
        };
        input.decoder().set_filter(|_| Filter::Skip);
        wanted.next_input();
        let progress = Progress::new(input.size());
        let mut warnings = Warnings::default();
        loop {
            progress.at(input.consumed());
            match input.next().with_context(|| shown(path))? {
                None => break,
                Some(Item::ChunkEnd(end)) => {
                    declarations.add(end.chunk);
                    wanted.see(end.chunk);
                }
                Some(Item::Warning(warning)) => warnings.push(warning),
                Some(_) => {}
            }
        }
        drop(progress);
        if diagnostics::warnings(path, &warnings) == Outcome::Partial {
            outcome = Outcome::Partial;
        }
    }
    let given = |names: &Vec<String>| (!names.is_empty()).then(|| names.clone());
    let which = Shown {
        events: given(&args.events).map(Patterns::new),
        categories: given(&args.categories).map(Categories::new),
        details: args.details,
    };
    output::text(&args.output, |out| {
        if args.json { declarations.write_json(&which, out) } else { declarations.write_text(&which, out) }
    })?;
    wanted.check(&diagnostics::all_shown(&args.inputs))?;
    Ok(outcome)
}
