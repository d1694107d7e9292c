//! Output files and standard output.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Buffer size in bytes.
const BLOCK: usize = 1 << 16;

/// A file that appears under its name once it is complete, or standard output.
pub struct Output {
    out: BufWriter<Box<dyn Write>>,
    /// Its temporary and its final name.
    names: Option<(PathBuf, PathBuf)>,
    shown: String,
}

impl Output {
    /// Opens the output.
    pub fn begin(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let cannot = || format!("cannot write {shown}");
        if path.as_os_str() == "-" {
            let out: Box<dyn Write> = Box::new(io::stdout());
            let shown = "standard output".to_owned();
            return Ok(Self { out: BufWriter::with_capacity(BLOCK, out), names: None, shown });
        }
        // Write directly to devices and pipes.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            let out: Box<dyn Write> = Box::new(File::options().write(true).open(path).with_context(cannot)?);
            return Ok(Self { out: BufWriter::with_capacity(BLOCK, out), names: None, shown });
        }
        let to = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut name = to.file_name().with_context(cannot)?.to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = to.with_file_name(name);
        let out: Box<dyn Write> = Box::new(File::create_new(&partial).with_context(cannot)?);
        Ok(Self { out: BufWriter::with_capacity(BLOCK, out), names: Some((partial, to)), shown })
    }

    /// Completes the output.
    pub fn finish(mut self) -> Result<()> {
        let cannot = || format!("cannot write {}", self.shown);
        self.out.flush().with_context(cannot)?;
        if let Some((partial, to)) = &self.names {
            fs::rename(partial, to).with_context(cannot)?;
        }
        self.names = None;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((partial, _)) = &self.names {
            // Report the original error, not this one.
            let _ = fs::remove_file(partial);
        }
    }
}

/// Runs `write` on a file or standard output.
pub fn text(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = Output::begin(path)?;
    write(&mut out)?;
    out.finish()
}

/// Writes a finished document; refuses to write it to a terminal.
pub fn document(path: &Path, bytes: &[u8]) -> Result<()> {
    if path.as_os_str() == "-" && io::stdout().is_terminal() {
        bail!("not writing an image to a terminal; give a file with -o, or redirect the output");
    }
    text(path, |out| Ok(out.write_all(bytes)?))
}

/// Returns true if `error` is a broken pipe: the reader of the output has closed it.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = |cause: &(dyn std::error::Error + 'static)| {
        let of_consumer = match cause.downcast_ref::<flightline_consumer::Error>() {
            Some(flightline_consumer::Error::Write(error)) => Some(error.kind()),
            _ => None,
        };
        cause.downcast_ref::<io::Error>().map(io::Error::kind).or(of_consumer)
    };
    error.chain().filter_map(io).any(|kind| kind == io::ErrorKind::BrokenPipe)
}

/// Replaces control characters, since names come from other programs.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Prints a note on standard error.
pub fn note(text: impl std::fmt::Display) {
    eprintln!("flightline: {text}");
}
