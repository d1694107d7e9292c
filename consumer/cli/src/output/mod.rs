//! Output files. A recording is never overwritten without a request: `flightline record` renames an existing
//! one to `FILE.old`, commands that write recordings refuse an existing file unless --force is given, and all
//! other commands refuse to write over a recording. Text, flame graphs and exports can be made again and are
//! overwritten.

pub mod png;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::signals::Signals;
use crate::usage_error::bail_usage;

/// Returns true if `path` represents standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// # Errors
/// Returns an error if writing to `path` would overwrite an input.
pub fn refuse_input<'a>(path: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    // A path that cannot be resolved does not exist yet; writing to devices and pipes destroys nothing.
    let Ok(to) = path.canonicalize() else { return Ok(()) };
    let mut inputs = inputs.into_iter();
    if to.is_file() && inputs.any(|input| input.canonicalize().is_ok_and(|input| input == to)) {
        bail_usage!("{} is the input; give another output with -o", path.display());
    }
    Ok(())
}

/// # Errors
/// Returns an error if the file exists.
pub fn refuse_existing(path: &Path) -> Result<()> {
    if path.is_file() {
        bail!("{} exists; use --force to overwrite it, or give another name with -o", path.display());
    }
    Ok(())
}

/// Returns true if the file exists and begins as a JFR recording does.
pub fn is_recording(path: &Path) -> bool {
    // Opening a FIFO would wait for its writer.
    let mut magic = [0; 4];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"FLR\0"
}

/// # Errors
/// Returns an error if text or a flame graph would overwrite a recording.
pub fn refuse_recording(path: &Path) -> Result<()> {
    if is_recording(path) {
        bail!(
            "{} is a recording, and recordings are not overwritten; give another output with -o",
            path.display()
        );
    }
    Ok(())
}

/// # Errors
/// Returns an error if the extension of `path` is that of an image or document format that is not supported;
/// `known` lists the supported ones. Text may have any other name.
pub fn refuse_picture(path: &Path, known: &str) -> Result<()> {
    const PICTURES: [&str; 11] =
        ["pdf", "png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "ps", "eps"];
    let ending = path.extension().unwrap_or_default();
    if PICTURES.iter().any(|picture| ending.eq_ignore_ascii_case(picture)) {
        bail_usage!("{}: wrong extension; {known}", path.display());
    }
    Ok(())
}

/// Writes a finished document; refuses to write it to a terminal.
pub fn document(path: &Path, bytes: &[u8]) -> Result<()> {
    if is_stdout(path) && io::stdout().is_terminal() {
        bail_usage!("not writing an image to a terminal; give a file with -o, or redirect the output");
    }
    text(path, |out| out.write_all(bytes))
}

/// Runs `write` on a file or standard output. A file appears under its name when it is complete.
///
/// # Errors
/// Returns an error if `write` fails, the file cannot be written, or it is a recording.
pub fn text<E>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<()>
where
    anyhow::Error: From<E>,
{
    if !is_stdout(path) {
        refuse_recording(path)?;
        return whole(path, |out| Ok(write(out)?));
    }
    to_stdout(write)
}

/// The same for commands that run until a signal: the data up to then is complete, and the file appears under
/// its name.
#[cfg(feature = "export")]
pub fn until_signal(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    if is_stdout(path) {
        return to_stdout(write);
    }
    refuse_recording(path)?;
    replace(path, false, write)
}

fn to_stdout<E>(write: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<()>
where
    anyhow::Error: From<E>,
{
    let mut out = BufWriter::with_capacity(1 << 16, Named(io::stdout().lock()));
    write(&mut out)?;
    Ok(out.flush()?)
}

/// Standard output, with errors that name it. Errors returned by `write` may otherwise be mistaken for errors
/// of an input.
struct Named<W>(W);

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Runs `write` on a file that appears under its name, replacing an existing one, when it is complete: not if
/// there is an error or the program is ended before. Devices and pipes are written to directly.
pub fn whole<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    replace(path, true, write)
}

fn replace<T>(path: &Path, mortal: bool, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let cannot = || format!("cannot write {}", path.display());
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        let file = OpenOptions::new().write(true).open(path).with_context(cannot)?;
        return buffered(file, write, cannot);
    }
    // Follow symbolic links instead of replacing them.
    let to = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = to.file_name().with_context(cannot)?.to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = to.with_file_name(name);
    if mortal {
        watch()?;
    }
    let unfinished = Unfinished::new(&partial);
    let file = File::create_new(&partial).with_context(cannot)?;
    if let Some(before) = before {
        // Not every file system has permissions.
        let _ = file.set_permissions(before.permissions());
    }
    let done = buffered(file, write, cannot)?;
    fs::rename(&partial, &to).with_context(cannot)?;
    unfinished.finished();
    Ok(done)
}

fn buffered<T>(
    file: File,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
    cannot: impl Fn() -> String,
) -> Result<T> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    let done = write(&mut out)?;
    out.flush().with_context(cannot)?;
    Ok(done)
}

/// Files to remove if a signal ends the program.
fn partials() -> &'static Mutex<Vec<PathBuf>> {
    static PARTIALS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    &PARTIALS
}

fn forget(path: &Path) {
    partials().lock().unwrap_or_else(|e| e.into_inner()).retain(|other| other != path);
}

/// A file that is removed when dropped.
struct Unfinished<'a>(&'a Path);

/// Starts a thread that removes unfinished files when a signal ends the program.
fn watch() -> Result<()> {
    static WATCHED: OnceLock<()> = OnceLock::new();
    if WATCHED.set(()).is_ok() {
        let signals = Signals::deadly()?;
        thread::spawn(move || {
            let Some(signal) = signals.wait(None) else { return };
            let all = partials().lock().unwrap_or_else(|e| e.into_inner());
            for path in all.iter() {
                let _ = fs::remove_file(path);
            }
            std::process::exit(128 + signal);
        });
    }
    Ok(())
}

impl<'a> Unfinished<'a> {
    fn new(path: &'a Path) -> Self {
        partials().lock().unwrap_or_else(|e| e.into_inner()).push(path.to_owned());
        Self(path)
    }

    fn finished(self) {
        forget(self.0);
        std::mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // Report the original error, not this one.
        let _ = fs::remove_file(self.0);
        forget(self.0);
    }
}

/// Returns true if `error` is a broken pipe: the reader of the output has closed it.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Replaces control characters in text for a terminal, since names in a recording are untrusted.
pub struct Tame<W> {
    to: W,
    /// The last byte was the first of a two-byte sequence that may encode a control character.
    lead: bool,
}

impl<W: Write> Tame<W> {
    pub fn new(to: W) -> Self {
        Self { to, lead: false }
    }
}

impl<W: Write> Write for Tame<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut lead = self.lead;
        let tamed = text.iter().map(|&byte| {
            let second = std::mem::replace(&mut lead, byte == 0xc2);
            match byte {
                b'\n' | b'\t' => byte,
                ..0x20 | 0x7f => b'?',
                // U+0080 to U+009F become no-break spaces.
                0x80..0xa0 if second => 0xa0,
                _ => byte,
            }
        });
        let tamed: Vec<u8> = tamed.collect();
        self.to.write_all(&tamed)?;
        self.lead = lead;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced_on_terminal() {
        let text = "a\tb\n\x1b[31mé\u{80}\u{9b}2J\x7f€";
        for split in 0..=text.len() {
            let mut tame = Tame::new(Vec::new());
            tame.write_all(&text.as_bytes()[..split]).unwrap();
            tame.write_all(&text.as_bytes()[split..]).unwrap();
            assert_eq!(String::from_utf8(tame.to).unwrap(), "a\tb\n?[31mé\u{a0}\u{a0}2J?€");
        }
    }
}
