//! Opens inputs and detects their format by the first bytes: recordings or text, files or streams.

pub mod event_filter;
pub mod event_reader;
pub mod pprof_labels;
pub mod profile;
pub mod repository;
pub mod spans;
pub mod stream;
pub mod timeline;
pub mod unfinished;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flightline_consumer::convert::Text;
use jfr_format::constants::MAGIC;
use jfr_format::header::LEN;
use jfr_format::read::{Input, Recording};

use crate::diagnostics::shown;

/// Maximum size of a profile in bytes.
#[cfg(feature = "export")]
const MOST: u64 = 512 << 20;

/// An opened input.
pub enum Source {
    /// A JFR recording.
    Recording(Box<Input<Box<dyn Read>>>),
    /// Text, probably folded stacks.
    Text(Box<dyn BufRead>),
}

/// Opens `path`; `-` is standard input.
pub fn open(path: &Path) -> Result<Source> {
    if path.as_os_str() == "-" {
        return stream(Box::new(io::stdin()), path);
    }
    let cannot = || format!("cannot open {}", shown(path));
    let mut file = File::open(path).with_context(cannot)?;
    let metadata = file.metadata().with_context(cannot)?;
    if metadata.is_dir() {
        bail!(
            "{} is a directory, not a recording; join its recordings with `flightline assemble`, or \
             follow a repository with `flightline tail`",
            shown(path)
        );
    }
    if !metadata.is_file() {
        return stream(Box::new(file), path);
    }
    crate::input::unfinished::before_reading(path);
    if let Some(bytes) = crate::input::repository::live(&file) {
        return Ok(Source::Recording(Box::new(Input::bytes(bytes.into()).boxed())));
    }
    let mut magic = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic).with_context(cannot)?;
    if magic.is_empty() {
        bail!("{} is empty", shown(path));
    }
    refuse_compressed(&magic, path)?;
    if is_recording(&magic) {
        refuse_cut(path, &magic, metadata.len())?;
        return Ok(Source::Recording(Box::new(Input::open(path).with_context(cannot)?.boxed())));
    }
    Ok(Source::Text(Box::new(BufReader::new(Cursor::new(magic).chain(file)))))
}

/// Opens `path`, which must be a recording.
pub fn recording(path: &Path) -> Result<Input<Box<dyn Read>>> {
    match open(path)? {
        Source::Recording(input) => Ok(*input),
        Source::Text(_) => bail!("{} is not a JFR recording: it does not start with \"FLR\\0\"", shown(path)),
    }
}

/// Maps `path` if it is a regular file that begins like a recording; leaves other inputs to [`open`].
pub fn whole(path: &Path) -> Result<Option<Recording>> {
    if path.as_os_str() == "-" || !path.is_file() {
        return Ok(None);
    }
    crate::input::unfinished::before_reading(path);
    let cannot = || format!("cannot open {}", shown(path));
    let mut magic = Vec::new();
    let file = File::open(path).with_context(cannot)?;
    if let Some(bytes) = crate::input::repository::live(&file) {
        return Ok(Some(Recording::bytes(bytes.into())));
    }
    let len = file.metadata().with_context(cannot)?.len();
    file.take(MAGIC.len() as u64).read_to_end(&mut magic).with_context(cannot)?;
    if !is_recording(&magic) {
        return Ok(None);
    }
    refuse_cut(path, &magic, len)?;
    Recording::open(path).map(Some).with_context(cannot)
}

/// A pprof profile, possibly filtered by labels.
// Never constructed without the feature `export`.
#[cfg_attr(not(feature = "export"), allow(dead_code))]
pub struct Pprof {
    /// Folded text.
    pub text: Text,
    /// Number of samples with all labels.
    pub samples: u64,
    /// Some of the existing labels.
    pub there: Vec<String>,
}

/// Reads the samples of a pprof profile, compressed or not, with one of `types` and all of `labels`; `None`
/// if `path` is something else.
#[cfg(feature = "export")]
pub fn pprof(path: &Path, types: &[String], labels: &[(String, String)]) -> Result<Option<Pprof>> {
    use flightline_export::pprof::{Selection, selected, unpacked};
    if path.as_os_str() == "-" || !path.is_file() {
        return Ok(None);
    }
    let cannot = || format!("cannot open {}", shown(path));
    let mut magic = Vec::new();
    File::open(path).with_context(cannot)?.take(12).read_to_end(&mut magic).with_context(cannot)?;
    let mut file = File::open(path).with_context(cannot)?;
    let bytes = match magic[..] {
        [0x1f, 0x8b, ..] => unpacked(BufReader::new(file)),
        _ if begins_as_pprof(&magic) => {
            let mut bytes = Vec::new();
            file.by_ref().take(MOST).read_to_end(&mut bytes).with_context(cannot)?;
            Ok(bytes)
        }
        _ => return Ok(None),
    };
    let mut text = Vec::new();
    match bytes.and_then(|bytes| selected(&bytes, &Selection { types, labels }, &mut text)) {
        Ok(of) => {
            let mut text = Text::of(text, Some(of.unit));
            if of.negative > 0 {
                text.notes.push(format!(
                    "{} samples have a negative value and are omitted: the profile is a difference. To \
                     compare two profiles, use `flightline diff`",
                    of.negative
                ));
            }
            Ok(Some(Pprof { text, samples: of.samples, there: of.there }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error).with_context(|| shown(path)),
        // Compressed data of another format, for which a later step reports how to decompress it, or a
        // similar beginning.
        Err(_) => Ok(None),
    }
}

/// Returns true if bytes begin with field 1 of a profile, the types of its values. Go writes the type of the
/// period (field 11) or the time (field 9) before it.
#[cfg(feature = "export")]
fn begins_as_pprof(bytes: &[u8]) -> bool {
    const FIRST: u8 = 0x0a;
    const TIME: u8 = 9 << 3;
    const PERIOD_TYPE: u8 = 11 << 3 | 2;
    match bytes {
        [FIRST, _, ..] => true,
        // A message of two numbers, the first with the tag 8.
        [PERIOD_TYPE, _, 8, ..] => true,
        [TIME, time @ ..] => {
            let behind = time.iter().position(|byte| byte & 0x80 == 0).and_then(|last| time.get(last + 1));
            behind == Some(&FIRST)
        }
        _ => false,
    }
}

/// Converts OTLP profiles of `types` (empty: all) to folded text; `None` if `path` is something else.
#[cfg(feature = "export")]
fn otlp(path: &Path, types: &[String]) -> Result<Option<Text>> {
    if path.as_os_str() == "-" || !path.is_file() {
        return Ok(None);
    }
    let cannot = || format!("cannot open {}", shown(path));
    let mut file = File::open(path).with_context(cannot)?;
    let mut bytes = Vec::new();
    file.by_ref().take(1).read_to_end(&mut bytes).with_context(cannot)?;
    if !flightline_export::otlp::tree::is(&bytes) {
        return Ok(None);
    }
    file.take(MOST).read_to_end(&mut bytes).with_context(cannot)?;
    let mut text = Vec::new();
    let unit =
        flightline_export::otlp::tree::folded(&bytes, types, &mut text).with_context(|| shown(path))?;
    Ok(unit.map(|unit| Text::of(text, Some(unit))))
}

/// Converts a pprof or OTLP profile of one of `types` (empty: any) to folded text; `None` if `path` is
/// something else.
pub fn packed(path: &Path, types: &[String]) -> Result<Option<Text>> {
    match pprof(path, types, &[])? {
        Some(profile) => Ok(Some(profile.text)),
        None => otlp(path, types),
    }
}

/// Without the feature `export`, pprof is not supported.
#[cfg(not(feature = "export"))]
pub fn pprof(_: &Path, _: &[String], _: &[(String, String)]) -> Result<Option<Pprof>> {
    Ok(None)
}

/// Without the feature `export`, OTLP is not supported.
#[cfg(not(feature = "export"))]
fn otlp(_: &Path, _: &[String]) -> Result<Option<Text>> {
    Ok(None)
}

fn stream(mut source: Box<dyn Read>, path: &Path) -> Result<Source> {
    let mut magic = Vec::new();
    let reading = || format!("cannot read {}", shown(path));
    source.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic).with_context(reading)?;
    if magic.is_empty() {
        bail!("{} is empty", shown(path));
    }
    refuse_compressed(&magic, path)?;
    let recording = is_recording(&magic);
    if recording {
        let rest = (LEN - MAGIC.len()) as u64;
        source.by_ref().take(rest).read_to_end(&mut magic).with_context(reading)?;
        refuse_cut(path, &magic, magic.len() as u64)?;
    }
    let whole = Cursor::new(magic).chain(source);
    Ok(if recording {
        Source::Recording(Box::new(Input::stream(Box::new(whole))))
    } else {
        Source::Text(Box::new(BufReader::new(whole)))
    })
}

/// # Errors
/// Returns an error if an input of `len` bytes that begins with `start` is a recording truncated within its
/// first header.
pub fn refuse_cut(path: &Path, start: &[u8], len: u64) -> Result<()> {
    if start.starts_with(&MAGIC) && len < LEN as u64 {
        bail!("{}: the chunk header at offset 0 is truncated: {len} of {LEN} bytes", shown(path));
    }
    Ok(())
}

/// # Errors
/// Returns an error with a remedy if the first bytes indicate compression or a perf.data file.
pub fn refuse_compressed(magic: &[u8], path: &Path) -> Result<()> {
    let (what, tool) = match magic {
        [0x1f, 0x8b, ..] => ("gzip", "gunzip -c"),
        [0xfd, b'7', b'z', b'X', ..] => ("xz", "xz -dc"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", "zstd -dc"),
        [b'B', b'Z', b'h', ..] => ("bzip2", "bzip2 -dc"),
        [0x04, 0x22, 0x4d, 0x18, ..] => ("lz4", "lz4 -dc"),
        [b'P', b'K', 3, 4, ..] => ("zip", "unzip -p"),
        // `PERFILE2` in either byte order.
        b"PERF" | b"2ELI" => {
            let name = if path.as_os_str() == "-" { "-".into() } else { path.display().to_string() };
            bail!(
                "{} is a perf.data file; convert it with `perf script -i {name} | flightline … -`",
                shown(path)
            )
        }
        _ => return Ok(()),
    };
    if what == "gzip" && matches!(pprof(path, &[], &[]), Ok(Some(_))) {
        bail!(
            "{} is a pprof profile, not a JFR recording; `flightline fold`, `flame`, `diff` and \
             `convert` can read it, and --label KEY=VALUE selects samples",
            shown(path)
        );
    }
    let name = if path.as_os_str() == "-" { "FILE".into() } else { path.display().to_string() };
    bail!("{} is compressed with {what}; decompress it with `{tool} {name} | flightline … -`", shown(path))
}

fn is_recording(magic: &[u8]) -> bool {
    magic == MAGIC
}
