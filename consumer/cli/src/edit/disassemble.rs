//! `flightline disassemble`

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use jfr_format::edit;
use serde_json::json;

use crate::args::values;
use crate::edit::{input, output};
use crate::{Outcome, diagnostics};

pub const EXAMPLES: &str = "\
Examples:
  flightline disassemble run.jfr --max-chunks 1       one file per chunk: run_0.jfr, run_1.jfr, …
  flightline disassemble run.jfr -o parts --max-size 50M

The parts contain the bytes of the input: `cat` of the parts in order restores it.";

/// Arguments of `disassemble`.
#[derive(Debug, Args)]
pub struct DisassembleArgs {
    /// A recording
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    /// Output directory
    #[arg(short, long, default_value = ".", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
    /// Maximum number of chunks per file [default: 5, if there is no --max-size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_chunks: Option<u64>,
    /// Maximum bytes per file; accepts K, M and G
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub max_size: Option<u64>,
    /// Overwrite files that exist
    #[arg(long)]
    pub force: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Splits a recording between its chunks.
pub fn run(args: DisassembleArgs) -> Result<Outcome> {
    let source = input(&args.input)?;
    let bytes = source.bytes();
    let chunks: Vec<Range<usize>> = edit::chunks(&source).into_iter().map(|(range, _)| range).collect();
    let end = chunks.last().map_or(0, |last| last.end);
    if !bytes.starts_with(&jfr_format::constants::MAGIC) {
        bail!(
            "{} is not a JFR recording: it does not start with \"FLR\\0\"",
            diagnostics::shown(&args.input)
        );
    }
    if end < bytes.len() {
        bail!(
            "{}: no complete chunk at offset {end}; run `flightline repair` first",
            diagnostics::shown(&args.input)
        );
    }
    let most = args.max_chunks.unwrap_or(if args.max_size.is_some() { u64::MAX } else { 5 });
    let parts = group(&chunks, most, args.max_size)?;
    std::fs::create_dir_all(&args.output)
        .with_context(|| format!("cannot create {}", args.output.display()))?;
    let digits = parts.len().saturating_sub(1).to_string().len();
    let stem = args.input.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let path: PathBuf = args.output.join(format!("{stem}_{i:0digits$}.jfr"));
        output(&path, &[Path::new(&args.input)], args.force, |out| {
            source.copy(part.clone(), out).with_context(|| format!("cannot write {}", path.display()))
        })?;
        if !args.json {
            eprintln!("wrote {}: {} bytes", path.display(), part.len());
        }
        files.push(json!({"file": path.display().to_string(), "offset": part.start, "bytes": part.len()}));
    }
    if args.json {
        crate::edit::report(None, &json!({"chunks": chunks.len(), "files": files}))?;
    }
    Ok(Outcome::Whole)
}

fn group(chunks: &[Range<usize>], most: u64, size: Option<u64>) -> Result<Vec<Range<usize>>> {
    let mut parts: Vec<(u64, Range<usize>)> = Vec::new();
    for chunk in chunks {
        let len = chunk.len() as u64;
        if size.is_some_and(|size| len > size) {
            bail!(
                "the chunk at offset {} has {len} bytes, which exceeds --max-size; chunks are not split",
                chunk.start
            );
        }
        match parts.last_mut() {
            Some((n, part)) if *n < most && size.is_none_or(|size| part.len() as u64 + len <= size) => {
                *n += 1;
                part.end = chunk.end;
            }
            _ => parts.push((1, chunk.clone())),
        }
    }
    Ok(parts.into_iter().map(|(_, part)| part).collect())
}
