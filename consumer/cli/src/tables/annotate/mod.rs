//! `flightline annotate`: the source lines, and the instructions, of a function with their samples.

mod json;
mod machine;
mod source;
mod text;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use flightline_consumer::fold::{self, Annotated};
use flightline_recorder::{Declaration, Symbolizer};

use crate::args::{
    selection::{SampleArgs, SelectArgs},
    symbol_files::SymbolFileArgs,
};
use crate::diagnostics::{all_shown, plain};
use crate::input::profile::{self, For};
use crate::{Outcome, output};
use machine::Machine;
use source::Source;

pub const EXAMPLES: &str = "\
Examples:
  flightline annotate parse run.jfr
  flightline annotate 'libz.so.1`inflate' run.jfr                  a function of one library
  flightline annotate java.util.HashMap.get app.jfr --source-path src/main/java
  flightline annotate resize run.jfr -e alloc                      bytes allocated, by line
  flightline record --addresses -o run.jfr -- ./prog; flightline annotate parse run.jfr --asm

Percentages are shares of the function's total. A line's total counts each stack with the line once; its self value counts the stacks \
that end there. Source files are found at the paths in the debug information of the program or library, or below --source-path. Lines more than 3 away from a \
sampled line are omitted. --asm runs objdump, which is part of binutils.";

/// Functions that are annotated at once.
const MOST_FUNCTIONS: usize = 8;

/// Arguments of `annotate`.
#[derive(Debug, Args)]
pub struct AnnotateArgs {
    /// A function as flame graphs show it, or its name without package, namespace and parameters;
    /// LIBRARY`FUNCTION selects one library
    #[arg(value_name = "FUNCTION")]
    pub function: String,
    /// Recordings or repositories; `-` is standard input
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub inputs: Vec<PathBuf>,
    /// Event type, as for `flightline flame`; repeatable [default: CPU samples, else wall-clock samples, else
    /// the most frequent]
    #[arg(short, long = "event", alias = "events", value_name = "NAME", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Weigh CPU samples by time instead of counting them. Other events are always weighed by their size or
    /// duration, if any
    #[arg(long)]
    pub total: bool,
    /// Show machine code with samples per instruction; requires a recording made with `--addresses`, unless
    /// the program has no debug information
    #[arg(long)]
    pub asm: bool,
    /// Search this directory for source files before the paths in the debug information; repeatable
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub source_path: Vec<PathBuf>,
    /// Files with debug information.
    #[command(flatten)]
    pub files: SymbolFileArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Selection of samples.
    #[command(flatten)]
    pub samples: SampleArgs,
    /// Number of threads for a recording of several chunks [default: one per 16 MB, at most 4 and at most the
    /// number of CPUs]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// A function with its samples, its source and its machine code.
struct View {
    function: Annotated,
    /// The definitions that the debug information has; more than one if the name is not unique in the file.
    declarations: Vec<Declaration>,
    /// The source file, if it is on this machine.
    source: Option<Source>,
    /// With --asm.
    machine: Option<Machine>,
}

/// All functions of a name.
struct Report {
    views: Vec<View>,
    /// Weight of all selected samples.
    total: u64,
    unit: &'static str,
    /// Names of the selected events.
    events: Vec<String>,
}

/// Prints the lines of a function with their samples.
pub fn run(args: &AnnotateArgs) -> Result<Outcome> {
    if let Some(dir) = args.source_path.iter().find(|dir| !dir.is_dir()) {
        bail!("--source-path {}: not a directory", dir.display());
    }
    let mut symbolizer = args.files.symbolizer()?;
    let select = SelectArgs {
        events: args.events.clone(),
        total: args.total,
        samples: args.samples.clone(),
        jobs: args.jobs,
        lines: true,
        places: true,
        ..SelectArgs::default()
    };
    let (model, outcome) = profile::read_model(&args.inputs, &select)?;
    let mut options = profile::options(&select, For::Text);
    if !args.total {
        options.measure = fold::usual_measure(&model, &options)?;
    }
    let mut line_of = |file: &flightline_consumer::model::CodeFile, address: u32| {
        let frames = symbolizer.frames(&file.path, &file.build_id, address.into());
        frames.last().map_or(0, |frame| frame.line)
    };
    let found = fold::annotate(&model, &options, &args.function, &mut line_of)?;
    let events: Vec<String> = fold::events(&model, &options)?.into_iter().collect();
    if found.functions.is_empty() {
        bail!(unknown(args, &found.similar, &events));
    }
    if found.functions.len() > MOST_FUNCTIONS {
        bail!(ambiguous(args, &found.functions));
    }
    let mut views = Vec::new();
    for function in found.functions {
        views.push(view(args, function, &mut symbolizer)?);
    }
    if views.iter().all(|view| view.function.lines.is_empty() && view.machine.is_none()) {
        bail!(no_lines(&views[0].function));
    }
    let report = Report { views, total: found.total, unit: found.unit, events };
    output::text(Path::new("-"), |out| {
        if args.json { json::write(&report, out) } else { text::write(&report, out) }
    })?;
    Ok(outcome)
}

fn view(args: &AnnotateArgs, function: Annotated, symbolizer: &mut Symbolizer) -> Result<View> {
    let declarations = match &function.file {
        Some(file) => symbolizer.declarations(&file.path, &file.build_id, &function.name),
        None => Vec::new(),
    };
    let source = match &declarations[..] {
        _ if function.lines.is_empty() => None,
        _ if function.is_java => Source::find_class(&function.class, &args.source_path),
        [one] => Source::find(&one.file, &args.source_path),
        // The lines belong to several files.
        _ => None,
    };
    let machine = if args.asm { Some(machine::read(&function, symbolizer)?) } else { None };
    Ok(View { function, declarations, source, machine })
}

fn unknown(args: &AnnotateArgs, similar: &[String], events: &[String]) -> String {
    let inputs = all_shown(&args.inputs);
    let name = plain(&args.function);
    let events = events.join(", ");
    match similar.is_empty() {
        true => format!(
            "{inputs}: no sample of {events} has a function named {name}; `flightline fold` lists all functions, `flightline \
             symbolize` adds inlined ones to a recording with addresses"
        ),
        false => {
            let similar: Vec<String> = similar.iter().map(|name| plain(name)).collect();
            format!(
                "{inputs}: no sample of {events} has a function named {name}; similar names: {}",
                similar.join(", ")
            )
        }
    }
}

fn ambiguous(args: &AnnotateArgs, functions: &[Annotated]) -> String {
    let mut text = format!(
        "{} functions are called {}; give the full name or LIBRARY`FUNCTION of one:",
        functions.len(),
        plain(&args.function)
    );
    for function in functions.iter().take(MOST_FUNCTIONS) {
        let library = if function.is_java { String::new() } else { format!("{}`", function.class) };
        text.push_str(&plain(&format!(" {library}{}", function.name)));
        text.push(',');
    }
    text.push_str(" …");
    text
}

/// Why a function has no lines, and the remedy.
fn no_lines(function: &Annotated) -> String {
    let name = plain(&function.name);
    let reason = match &function.file {
        _ if function.is_java => {
            "its class file has no line numbers, or it is a native method; compile with `javac -g:source,lines`".into()
        }
        Some(file) if !function.addresses.is_empty() => format!(
            "debug information not found for {} (build id {}); compile with -g, give the debug file with \
             --file or --debug-dir, or use --asm to show the machine code",
            plain(&file.path),
            if file.build_id.is_empty() { "none" } else { &file.build_id }
        ),
        Some(_) => {
            "the recording has neither lines nor addresses for the function; compile the program with \
             -g, and record with --aggregate-lines if you use --aggregate"
                .into()
        }
        None => "the recording does not contain its file".into(),
    };
    format!("no line numbers for {name}: {reason}")
}
