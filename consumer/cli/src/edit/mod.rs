//! Shared code of commands that write recordings: mapped input, and output that appears when complete.

pub mod assemble;
pub mod cut;
pub mod disassemble;
pub mod repair;
pub mod scrub;

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use jfr_format::edit::Source;

use crate::diagnostics::{Progress, shown};
use crate::input::{refuse_compressed, refuse_cut};
use crate::output::{is_stdout, refuse_existing, refuse_input, whole};
use crate::usage_error::bail_usage;

/// Maps a file; reads standard input and pipes to their end. Shows a progress bar on a terminal.
pub fn input(path: &Path) -> Result<Source> {
    let mut source = quiet_input(path)?;
    let progress = Progress::new(Some(source.bytes().len() as u64));
    source.on_progress(move |bytes| progress.at(bytes));
    Ok(source)
}

/// The same without a progress bar.
pub fn quiet_input(path: &Path) -> Result<Source> {
    let cannot = || format!("cannot read {}", shown(path));
    let mut all = Vec::new();
    if is_stdout(path) {
        io::stdin().read_to_end(&mut all).with_context(cannot)?;
    } else {
        let metadata = fs::metadata(path).with_context(cannot)?;
        if metadata.is_dir() {
            bail!(
                "{} is a directory, not a recording; to join the recordings in it, use `flightline assemble`",
                shown(path)
            );
        }
        if metadata.is_file() {
            let source = Source::open(path).with_context(cannot)?;
            if source.bytes().is_empty() {
                bail!("{} is empty", shown(path));
            }
            refuse_compressed(source.bytes(), path)?;
            refuse_cut(path, source.bytes(), source.bytes().len() as u64)?;
            return Ok(source);
        }
        File::open(path).and_then(|mut file| file.read_to_end(&mut all)).with_context(cannot)?;
    }
    if all.is_empty() {
        bail!("{} is empty", shown(path));
    }
    refuse_compressed(&all, path)?;
    refuse_cut(path, &all, all.len() as u64)?;
    Ok(all.into())
}

/// `run.jfr` → `run.WORD.jfr`, next to the input.
pub fn output_next_to(input: &Path, word: &str) -> Result<PathBuf> {
    let Some(stem) = input.file_stem().filter(|_| !is_stdout(input)) else {
        bail_usage!("give the output with -o; standard input has no name to derive it from");
    };
    let mut name = stem.to_owned();
    name.push(".");
    name.push(word);
    name.push(".jfr");
    Ok(input.with_file_name(name))
}

/// Runs `write` on `path` or standard output. A file appears under its name when it is complete.
pub fn output<T>(
    path: &Path,
    inputs: &[&Path],
    force: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    if is_stdout(path) {
        if io::IsTerminal::is_terminal(&io::stdout()) {
            bail_usage!("not writing a recording to a terminal; give a file with -o, or redirect the output");
        }
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let done = write(&mut out)?;
        out.flush().context("cannot write to standard output")?;
        return Ok(done);
    }
    refuse_input(path, inputs.iter().copied())?;
    if !force {
        refuse_existing(path)?;
    }
    whole(path, write)
}

/// Prints a report as JSON: on standard output, or on standard error if the recording goes there.
pub fn report(path: Option<&Path>, report: &serde_json::Value) -> Result<()> {
    if path.is_some_and(is_stdout) {
        eprintln!("{report}");
        return Ok(());
    }
    crate::output::text(Path::new("-"), |out| writeln!(out, "{report}"))
}

/// Error message if no event could be read.
pub fn nothing_read(input: &Path) -> String {
    let name = shown(input);
    format!("{name}: no event can be read; `flightline repair --dry-run {name}` reports the damage")
}
