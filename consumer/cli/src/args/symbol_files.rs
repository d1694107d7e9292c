//! `--debug-dir` and `--file`: additional places to look up function names and lines.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use flightline_recorder::Symbolizer;

/// Locations of programs, libraries and debug files.
#[derive(Clone, Debug, Args)]
pub struct SymbolFileArgs {
    /// A directory with the layout of /usr/lib/debug; repeatable
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub debug_dir: Vec<PathBuf>,
    /// A program, library or debug file to use if its build id was recorded; repeatable
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Vec<PathBuf>,
}

impl SymbolFileArgs {
    /// Creates a symbolizer that uses these files.
    ///
    /// # Errors
    /// Returns an error if a directory or file does not exist.
    pub fn symbolizer(&self) -> Result<Symbolizer> {
        if let Some(dir) = self.debug_dir.iter().find(|dir| !dir.is_dir()) {
            bail!(
                "--debug-dir: {} is not a directory; give a directory with the layout of /usr/lib/debug",
                dir.display()
            );
        }
        if let Some(file) = self.file.iter().find(|file| !file.is_file()) {
            bail!("--file: {} is not a file; give a program, library or debug file", file.display());
        }
        Ok(Symbolizer::new(&self.debug_dir, &self.file))
    }
}
