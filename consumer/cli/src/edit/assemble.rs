//! `flightline assemble`

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use flightline_recorder::repository;
use jfr_format::edit::{self, Conflicts, Part, Source};
use jfr_format::header::LEN;
use serde_json::json;

use crate::Outcome;
use crate::diagnostics::{self, count};
use crate::edit::{output, quiet_input};
use crate::output::is_stdout;

pub const EXAMPLES: &str = "\
Examples:
  flightline assemble /tmp/2026_11_21_10_00_00_4711 -o run.jfr     the chunks of a JDK repository
  flightline assemble /var/lib/fl -o all.jfr                       all processes of a repository
  flightline assemble run_*.jfr -o run.jfr                         the output of `disassemble`
  flightline assemble a.jfr b.jfr -o both.jfr --rebase             recordings of two programs
  flightline assemble a.jfr b.jfr -o both.jfr --keep-order

Files are sorted by start time. Their bytes are copied unchanged, with two exceptions: a metadata id \
that denotes different types in two files, and a start time that two chunks share, because JMC would \
treat the chunks as one.

The JDK's readers apply the clock of the first chunk to all chunks. They also show the constants of an \
earlier chunk if two chunks use the same key of a type id for different values. Such conflicts are \
reported, and the exit status is 1. --rebase prevents them: it gives each recording its own ids for \
metadata, types, stacks and methods, and converts times to the clock of the first recording, to the \
nanosecond (or to the ticks of the first clock, if these are longer).";

/// Arguments of `assemble`.
#[derive(Debug, Args)]
pub struct AssembleArgs {
    /// Recordings, a directory of *.jfr files, or a repository with all its chunks
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub inputs: Vec<PathBuf>,
    /// Output file; `-` is standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Overwrite the output if it exists
    #[arg(long)]
    pub force: bool,
    /// Keep the given order instead of sorting by time
    #[arg(long)]
    pub keep_order: bool,
    /// Give the types of each recording unique ids, so that all readers keep them apart
    #[arg(long)]
    pub rebase: bool,
    /// Print the report as JSON on standard output (on standard error if the recording goes there)
    #[arg(long)]
    pub json: bool,
}

/// Joins recordings.
pub fn run(args: AssembleArgs) -> Result<Outcome> {
    let mut paths = Vec::new();
    for path in &args.inputs {
        if path.is_dir() {
            crate::input::unfinished::before_reading(path);
            paths.extend(recordings_in(path)?);
        } else {
            paths.push(path.clone());
        }
    }
    if let Ok(to) = args.output.canonicalize() {
        let named = |path: &Path| path.canonicalize().is_ok_and(|path| path == to);
        // Skip a previous output among the parts.
        paths.retain(|path| !named(path) || args.inputs.iter().any(|given| given == path));
    }
    let mut parts = Vec::new();
    for path in &paths {
        // The JDK creates the next chunk's file while it is still empty.
        if paths.len() > 1 && path.metadata().is_ok_and(|m| m.is_file() && m.len() == 0) {
            diagnostics::warning(format_args!("{} is empty; skipped", path.display()));
            continue;
        }
        // Flightline's recorder begins a chunk with its header.
        let given = args.inputs.iter().any(|given| given == path);
        if !given && path.metadata().is_ok_and(|m| m.is_file() && m.len() <= LEN as u64) {
            diagnostics::warning(format_args!("{} has only a chunk header; skipped", path.display()));
            continue;
        }
        let source = source(path)?;
        let header = jfr_format::header::ChunkHeader::decode(source.bytes())
            .with_context(|| format!("{} is not a JFR recording", diagnostics::shown(path)))?;
        parts.push((header.start_nanos, Part { name: diagnostics::shown(path), source }));
    }
    if parts.is_empty() {
        bail!("nothing to join: the inputs have no chunks with events, except the output itself");
    }
    if !args.keep_order {
        parts.sort_by_key(|(start, _)| *start);
    }
    let mut parts: Vec<Part> = parts.into_iter().map(|(_, part)| part).collect();
    show_progress(&mut parts);
    let inputs: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let conflicts = output(&args.output, &inputs, args.force, |out| {
        edit::assemble(&parts, args.rebase, out).context("cannot write the recording")
    })?;
    if args.json {
        crate::edit::report(Some(&args.output), &json(&conflicts))?;
    } else {
        if let Some(file) = args.output.metadata().ok().filter(|m| m.is_file() && !is_stdout(&args.output)) {
            let from = count(parts.len() as u64, "recording");
            eprintln!(
                "wrote {}: {} of {from}",
                diagnostics::shown_output(&args.output),
                count(file.len(), "byte")
            );
        }
        report_conflicts(&conflicts);
    }
    Ok(if conflicts.none() { Outcome::Whole } else { Outcome::Partial })
}

/// Reads a file; for a chunk that is being written, its current contents.
fn source(path: &Path) -> Result<Source> {
    let live = std::fs::File::open(path).ok().filter(|_| path.is_file());
    match live.and_then(|file| crate::input::repository::live(&file)) {
        Some(bytes) => Ok(bytes.into()),
        None => quiet_input(path),
    }
}

/// One bar for all parts.
fn show_progress(parts: &mut [Part]) {
    let all: usize = parts.iter().map(|part| part.source.bytes().len()).sum();
    let progress = std::rc::Rc::new(diagnostics::Progress::new(Some(all as u64)));
    let mut before = 0;
    for part in parts {
        let progress = progress.clone();
        let from = before;
        before += part.source.bytes().len() as u64;
        part.source.on_progress(move |bytes| progress.at(from + bytes));
    }
}

fn json(conflicts: &Conflicts) -> serde_json::Value {
    json!({
        "sound": conflicts.none(),
        "clocks": conflicts.clocks.iter().map(|(part, off)| json!({
            "part": part,
            "offNanos": (*off != i64::MAX).then_some(off),
        })).collect::<Vec<_>>(),
        "clashes": conflicts.clashes,
        "examples": conflicts.examples.iter().map(|clash| json!({
            "type": clash.type_name,
            "key": clash.key,
            "part": clash.part,
        })).collect::<Vec<_>>(),
        "metadataIdsChanged": conflicts.metadata_ids,
        "chunksRebased": conflicts.rebased,
        "unsound": conflicts.unsound.iter().map(|(part, why)| json!({"part": part, "why": why})).collect::<Vec<_>>(),
    })
}

/// Returns the *.jfr files in a directory; if there are none, those in its process folders, as in a
/// repository.
fn recordings_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in repository::folders(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        // A file that disappears in the meantime is empty.
        found.extend(
            repository::chunks(&folder).unwrap_or_default().into_iter().filter(|path| path.is_file()),
        );
    }
    if found.is_empty() {
        bail!("{} contains no *.jfr files and no process folders with *.jfr files", dir.display());
    }
    Ok(found)
}

fn report_conflicts(conflicts: &Conflicts) {
    for (name, why) in &conflicts.unsound {
        diagnostics::warning(format_args!("{name}: {why}; run `flightline repair {name}` first"));
    }
    for (name, off) in &conflicts.clocks {
        if *off == i64::MAX {
            diagnostics::warning(format_args!(
                "{name}: different clock frequency; the JDK will show wrong times without --rebase"
            ));
        } else {
            let ms = *off as f64 / 1e6;
            diagnostics::warning(format_args!(
                "{name}: different clock; the JDK will show times that are {ms:.1} ms off without --rebase"
            ));
        }
    }
    if conflicts.clashes > 0 {
        let examples: Vec<String> = conflicts
            .examples
            .iter()
            .take(3)
            .map(|clash| format!("{} {} in {}", clash.type_name, clash.key, clash.part))
            .collect();
        diagnostics::warning(format_args!(
            "{} with different values for the same keys ({}, …); without --rebase the JDK will show the earlier values",
            count(conflicts.clashes, "constant"),
            examples.join(", ")
        ));
    }
    if conflicts.metadata_ids > 0 {
        eprintln!(
            "changed the metadata id of {}: an earlier chunk uses it for other types",
            count(conflicts.metadata_ids, "chunk")
        );
    }
    if conflicts.rebased > 0 {
        eprintln!("gave {} new ids and converted their times", count(conflicts.rebased, "chunk"));
    }
}
