//! Where results go.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Whether `path` means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a finished document to a file or standard output; a terminal is not a place for pictures.
pub fn document(path: &Path, bytes: &[u8]) -> Result<()> {
    if !is_stdout(path) {
        return fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()));
    }
    if io::stdout().is_terminal() {
        bail!("will not write a picture to a terminal: name a file with -o, or redirect the output");
    }
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Lets `write` write to a file or standard output.
pub fn text<E>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<()>
where
    anyhow::Error: From<E>,
{
    if is_stdout(path) {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        write(&mut out)?;
        return out.flush().context("cannot write to standard output");
    }
    let cannot = || format!("cannot write {}", path.display());
    let mut out = BufWriter::with_capacity(1 << 16, fs::File::create(path).with_context(cannot)?);
    write(&mut out)?;
    out.flush().with_context(cannot)
}

/// Whether `error` says that nobody reads our output any more.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
