//! `flightline scrub`

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use flightline_consumer::print::{Categories, Patterns, glob};
use flightline_consumer::redact;
use jfr_format::edit::{self, Decision, Filtered, Redaction, Scope};
use jfr_format::event::EventRef;
use jfr_format::read::{Class, Field};
use serde_json::json;

use crate::Outcome;
use crate::args::redact::{Fields, RedactArgs, names};
use crate::diagnostics::{self, count};
use crate::edit::{input, output};
use crate::input::event_filter::EventFilter;
use crate::usage_error::bail_usage;

pub const EXAMPLES: &str = "\
Examples:
  flightline scrub run.jfr small.jfr --exclude-events InitialEnvironmentVariable
  flightline scrub run.jfr gc.jfr --include-categories GC
  flightline scrub run.jfr --include-threads 'worker-*'            writes run-scrubbed.jfr
  flightline scrub run.jfr --include-events 'jdk.Socket*' --exclude-threads main
  flightline scrub run.jfr --redact                                replace passwords, tokens and other secrets
  flightline scrub run.jfr --redact=all                            replace all properties, variables and command lines
  flightline scrub run.jfr --redact-fields 'SocketRead.host,jdk.File*.path,java.lang.Thread.javaName' --mark -

A filter is a list of names, separated by commas; * and ? are wildcards. An event is retained if it \
passes every filter. Event names may omit the package. An event belongs to its category and all \
enclosing categories. The thread of an event is its eventThread, by Java name.

--redact replaces secrets in the values of system and security properties and environment variables, in command lines \
(JVMInformation, SystemProcess, ProcessStart), options of agents and string flags. A value is a secret if its name contains \
a word such as password, secret, token, credential or apiKey, if its last word is key, or if it looks like one: the password \
in a URL, private keys (PEM), JSON web tokens, HTTP authentication, keys of AWS, GitHub, GitLab, Google, Slack, Stripe. \
docs/guide/reference/redaction.md has the complete list. --redact=all replaces the whole text of these fields, including \
java.version. --redact-fields replaces any text. Names of properties are retained, and so is the same \
text in other fields. A field that refers to a constant pool becomes null.

Constants (stacks, names, threads, strings) that no remaining event needs are removed too, except with \
--keep-constants. Declared types, settings and the values of remaining events are retained: without \
--redact, jdk.JVMInformation contains the command line. Stacks contain names of classes and functions.";

/// Arguments of `scrub`.
#[derive(Debug, Args)]
pub struct ScrubArgs {
    /// A recording; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    /// Output file; `-` is standard output [default: FILE with the ending `-scrubbed.jfr`]
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::FilePath)]
    pub positional: Option<PathBuf>,
    /// Output file, as an option
    #[arg(short, long, value_name = "FILE", conflicts_with = "positional", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Selection of events.
    #[command(flatten)]
    pub filters: Filters,
    /// Options for redaction.
    #[command(flatten)]
    pub redact: RedactArgs,
    /// Keep constants that no remaining event needs
    #[arg(long, conflicts_with_all = ["redact", "redact_fields"])]
    pub keep_constants: bool,
    /// Print the report as JSON on standard output (on standard error if the recording goes there)
    #[arg(long)]
    pub json: bool,
    /// Overwrite the output if it exists
    #[arg(long)]
    pub force: bool,
}

/// The filters of `scrub`.
#[derive(Debug, Default, Args)]
pub struct Filters {
    /// Keep only these events; repeatable
    #[arg(long, value_name = "NAME,…")]
    pub include_events: Vec<String>,
    /// Drop these events; repeatable
    #[arg(long, value_name = "NAME,…")]
    pub exclude_events: Vec<String>,
    /// Keep only events of these categories; repeatable
    #[arg(long, value_name = "NAME,…")]
    pub include_categories: Vec<String>,
    /// Drop events of these categories; repeatable
    #[arg(long, value_name = "NAME,…")]
    pub exclude_categories: Vec<String>,
    /// Keep only events of these threads; repeatable
    #[arg(long, value_name = "NAME,…")]
    pub include_threads: Vec<String>,
    /// Drop events of these threads; repeatable
    #[arg(long, value_name = "NAME,…")]
    pub exclude_threads: Vec<String>,
}

impl Filters {
    fn is_empty(&self) -> bool {
        [&self.include_events, &self.exclude_events, &self.include_categories, &self.exclude_categories]
            .into_iter()
            .chain([&self.include_threads, &self.exclude_threads])
            .all(Vec::is_empty)
    }

    /// Returns the names of event types and categories.
    fn event_filter(&self) -> EventFilter {
        let all = |include: &[String], exclude: &[String]| {
            let lists = include.iter().chain(exclude);
            lists.flat_map(|list| names(list)).map(str::to_owned).collect::<Vec<_>>()
        };
        EventFilter::new(
            &all(&self.include_events, &self.exclude_events),
            &all(&self.include_categories, &self.exclude_categories),
        )
    }

    fn class(&self, class: &Class) -> bool {
        let all = |filter: &String| names(filter).map(str::to_owned).collect();
        let named = |filter: &String| Patterns::new(all(filter)).choose(&class.name);
        let categorised = |filter: &String| Categories::new(all(filter)).choose(class);
        self.include_events.iter().all(named)
            && !self.exclude_events.iter().any(named)
            && self.include_categories.iter().all(categorised)
            && !self.exclude_categories.iter().any(categorised)
    }

    fn thread(&self, event: &EventRef<'_>) -> bool {
        if self.include_threads.is_empty() && self.exclude_threads.is_empty() {
            return true;
        }
        let name = thread_name(event);
        let named =
            |filter: &String| name.as_deref().is_some_and(|n| names(filter).any(|name| glob(name, n)));
        self.include_threads.iter().all(named) && !self.exclude_threads.iter().any(named)
    }
}

fn thread_name(event: &EventRef<'_>) -> Option<String> {
    let thread = event.field("eventThread").ok()??.record().ok()??;
    let name = thread.field("javaName").ok()??.text().ok()??;
    Some(name.into_owned())
}

/// Writes a recording without some of its events.
pub fn run(args: ScrubArgs) -> Result<Outcome> {
    if args.filters.is_empty() && !args.redact.any() {
        bail_usage!(
            "nothing to remove: give a filter such as --exclude-events InitialEnvironmentVariable, or --redact"
        );
    }
    let mut wanted = args.filters.event_filter();
    let source = input(&args.input)?;
    let path = match args.positional.as_ref().or(args.output.as_ref()) {
        Some(path) => path.clone(),
        None => {
            let Some(stem) = args.input.file_stem().filter(|_| !crate::output::is_stdout(&args.input)) else {
                bail_usage!("give the output file; standard input has no name to derive it from");
            };
            args.input.with_file_name(format!("{}-scrubbed.jfr", stem.to_string_lossy()))
        }
    };
    let mut known: HashMap<String, bool> = HashMap::new();
    let mut decide = |event: &EventRef<'_>| {
        let class = event.class();
        wanted.see(event.chunk());
        let stays = match known.get(&*class.name) {
            Some(&stays) => stays,
            None => *known.entry(class.name.to_string()).or_insert_with(|| args.filters.class(class)),
        };
        if stays && args.filters.thread(event) { Decision::Keep } else { Decision::Drop }
    };
    let fields = Fields::new(&args.redact);
    let redact = |class: &Class, field: &Field| fields.redact(class, field);
    let redaction = Redaction { mark: &args.redact.mark, fields: &redact, secrets: redact::secrets };
    let redaction = args.redact.any().then_some(redaction);
    let scope = Scope { all_constants: args.keep_constants, range: None, redaction };
    let report = output(&path, &[&args.input], args.force, |out| {
        let report = edit::filter(&source, scope, &mut decide, out).context("cannot write the recording")?;
        if report.written == 0 {
            bail!(crate::edit::nothing_read(&args.input));
        }
        Ok(report)
    })?;
    if args.json {
        crate::edit::report(Some(&path), &json(&report))?;
    } else {
        report_removed(&report, &path);
    }
    let met = fields.warn_unmet();
    // A misspelled name must not pass for a clean recording.
    let name = diagnostics::shown(&args.input);
    wanted.unmet(&name).iter().for_each(diagnostics::warning);
    if report.redacted == 0 && report.types.values().all(|share| share.dropped == 0) {
        diagnostics::warning(format_args!("{name}: no event was removed or redacted"));
    }
    let outcome = unread(&args.input, report.unread);
    Ok(if met { outcome } else { Outcome::Partial })
}

fn report_removed(report: &Filtered, path: &Path) {
    eprintln!("wrote {}: {}", diagnostics::shown_output(path), count(report.output, "byte"));
    if report.redacted > 0 {
        eprintln!("  redacted {} of events", count(report.redacted, "text"));
    }
    let width = report.types.keys().map(String::len).max().unwrap_or(0);
    for (name, share) in report.types.iter().filter(|(_, share)| share.dropped > 0) {
        eprintln!("  removed {name:width$} {:>9}/{}", share.dropped, share.all);
    }
}

/// The report of `scrub` and `cut`.
pub fn json(report: &Filtered) -> serde_json::Value {
    let types = report.types.iter();
    let types =
        types.map(|(name, share)| (name.clone(), json!({"events": share.all, "dropped": share.dropped})));
    json!({
        "outputBytes": report.output,
        "chunks": report.chunks,
        "chunksWritten": report.written,
        "contextEvents": report.context,
        "redactedTexts": report.redacted,
        "unreadBytes": report.unread,
        "types": types.collect::<serde_json::Map<_, _>>(),
    })
}

/// Warns about bytes that could not be read.
pub fn unread(input: &Path, bytes: u64) -> Outcome {
    if bytes == 0 {
        return Outcome::Whole;
    }
    diagnostics::warning(format_args!(
        "{}: {} could not be read and are omitted",
        diagnostics::shown(input),
        count(bytes, "byte")
    ));
    Outcome::Partial
}
