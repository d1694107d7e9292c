//! `flightline symbolize`

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use jfr_format::edit::{self, Named};
use serde_json::json;

use crate::Outcome;
use crate::args::symbol_files::SymbolFileArgs;
use crate::diagnostics::{count, shown};
use crate::edit::{input, nothing_read, output, output_next_to, report};

pub const EXAMPLES: &str = "\
Examples:
  flightline symbolize run.jfr                                     writes run.symbolized.jfr
  flightline symbolize run.jfr -o named.jfr --debug-dir ./debug    ./debug/.build-id/ab/cdef….debug
  flightline symbolize run.jfr -o named.jfr --file target/release/server

Frames without debug information are recorded as an address in a file, with the file's path and build \
id. This command searches for the files: the given files, the recorded paths if the build id matches, \
and debug files by build id (in DIR/.build-id, /usr/lib/debug/.build-id and the cache of debuginfod). It \
adds function names, source lines and inlined frames; everything else is unchanged. A recording can be \
symbolized on another machine, and more than once.";

/// Arguments of `symbolize`.
#[derive(Debug, Args)]
pub struct SymbolizeArgs {
    /// A recording; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    /// Output file; `-` is standard output [default: FILE with the ending `.symbolized.jfr`]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Files with debug information.
    #[command(flatten)]
    pub files: SymbolFileArgs,
    /// Print the report as JSON on standard output (on standard error if the recording goes there)
    #[arg(long)]
    pub json: bool,
    /// Overwrite the output if it exists
    #[arg(long)]
    pub force: bool,
}

/// Writes a recording with names and lines that were not available when it was recorded.
pub fn run(args: SymbolizeArgs) -> Result<Outcome> {
    let mut symbolizer = args.files.symbolizer()?;
    let source = input(&args.input)?;
    let path = args.output.clone().map_or_else(|| output_next_to(&args.input, "symbolized"), Ok)?;
    let done = output(&path, &[&args.input], args.force, |out| {
        let mut name = |place: edit::FrameLocation<'_>| {
            let frames = symbolizer.frames(place.path, place.build_id, place.address);
            frames.into_iter().map(|f| Named { name: f.name.to_string(), line: f.line }).collect()
        };
        let done = edit::symbolize(&source, &mut name, out)?;
        if done.chunks == 0 {
            bail!(nothing_read(&args.input));
        }
        Ok(done)
    })?;
    let missing = symbolizer.missing();
    if args.json {
        let files = missing.iter().map(|(path, id)| json!({ "path": path, "buildId": id }));
        let summary = json!({
            "chunks": done.chunks,
            "changedChunks": done.changed,
            "places": done.places,
            "named": done.named,
            "renamed": done.renamed,
            "withLines": done.lines,
            "withInlinedFunctions": done.inlined,
            "missingFiles": files.collect::<Vec<_>>(),
            "unreadBytes": done.unread,
        });
        report(Some(&path), &summary)?;
    } else {
        for (path, id) in &missing {
            let path = if path.is_empty() { "a file" } else { path };
            let id = if id.is_empty() { "none" } else { id };
            eprintln!("not found: {path}, build id {id}");
        }
        let places = count(done.places, "place");
        let chunks = count(done.changed, "chunk");
        eprintln!(
            "{}: {} of {places} without debug information resolved, in {chunks}: {} with a new function \
             name, {} with a source line, {} with inlined functions",
            shown(&path),
            done.named,
            done.renamed,
            done.lines,
            done.inlined
        );
    }
    Ok(if done.unread == 0 { Outcome::Whole } else { Outcome::Partial })
}
