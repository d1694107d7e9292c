//! Opens inputs, files or streams. [`input_format`] detects their format by the first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flightline_consumer::convert::Text;
use flightline_consumer::input_format::{self, FIRST_BYTES, Format, FormatRow};
use jfr_format::constants::MAGIC;
use jfr_format::header::LEN;
use jfr_format::read::{Input, Recording};

use crate::talk::shown;

/// Maximum size of a profile in bytes.
#[cfg(feature = "export")]
const MOST: u64 = 512 << 20;

/// An opened input.
pub enum Source {
    /// A recording in a regular file.
    Recording(Recording),
    /// A recording in a stream.
    Stream(Box<Input<Box<dyn Read>>>),
    /// A pprof profile.
    Pprof(Pprof),
    /// OTLP profiles, as folded text.
    Otlp(Text),
    /// Text, probably folded stacks.
    Text(Box<dyn BufRead>),
}

/// Selects samples of a pprof or OTLP profile.
#[derive(Clone, Copy, Default)]
pub struct ProfileSelection<'a> {
    /// Types of values; any if empty.
    pub types: &'a [String],
    /// All of these labels; for pprof only.
    pub labels: &'a [(String, String)],
}

/// A regular file, opened once.
struct Opened<'p> {
    path: &'p Path,
    file: File,
    /// Its first bytes.
    head: Vec<u8>,
    /// `None` for text.
    format: Option<&'static FormatRow>,
}

/// Opens `path`, `-` is standard input, and detects its format.
///
/// # Errors
/// Returns an error if the input cannot be opened, is empty, or has a format that must be converted first.
pub fn open(path: &Path, selection: ProfileSelection<'_>) -> Result<Source> {
    match Opened::new(path)? {
        Some(opened) => opened.source(selection),
        None => stream(path),
    }
}

/// Opens `path`, which must be a recording.
pub fn recording(path: &Path) -> Result<Input<Box<dyn Read>>> {
    let source = match Opened::new(path)? {
        Some(opened) if opened.is(Format::Jfr) => return Ok(opened.input()?.boxed()),
        Some(opened) => {
            refuse_compressed(&opened.head, path)?;
            None
        }
        None => Some(stream(path)?),
    };
    match source {
        Some(Source::Stream(input)) => Ok(*input),
        _ => bail!("{} is not a JFR recording: it does not start with \"FLR\\0\"", shown(path)),
    }
}

/// Maps `path` if it is a regular file that begins like a recording; leaves other inputs to [`open`].
pub fn whole(path: &Path) -> Result<Option<Recording>> {
    if path.as_os_str() == "-" || !path.is_file() {
        return Ok(None);
    }
    match Opened::begin(path)? {
        Some(opened) if opened.is(Format::Jfr) => opened.recording().map(Some),
        _ => Ok(None),
    }
}

impl<'p> Opened<'p> {
    /// Opens a regular file; returns `None` for streams.
    fn new(path: &'p Path) -> Result<Option<Self>> {
        if path.as_os_str() == "-" {
            return Ok(None);
        }
        let opened = Self::begin(path)?;
        if opened.as_ref().is_some_and(|opened| opened.head.is_empty()) {
            bail!("{} is empty", shown(path));
        }
        Ok(opened)
    }

    fn begin(path: &'p Path) -> Result<Option<Self>> {
        let cannot = || format!("cannot open {}", shown(path));
        let metadata = path.metadata().with_context(cannot)?;
        if metadata.is_dir() {
            bail!(
                "{} is a directory, not a recording; join its recordings with `flightline assemble`, or \
                 follow a repository with `flightline tail`",
                shown(path)
            );
        }
        if !metadata.is_file() {
            return Ok(None);
        }
        crate::recover::before_reading(path);
        let file = File::open(path).with_context(cannot)?;
        let mut head = Vec::new();
        (&file).take(FIRST_BYTES as u64).read_to_end(&mut head).with_context(cannot)?;
        let format = input_format::detect_bytes(&head);
        Ok(Some(Self { path, file, head, format }))
    }

    fn is(&self, format: Format) -> bool {
        self.format.is_some_and(|row| row.format == format)
    }

    fn cannot(&self) -> String {
        format!("cannot open {}", shown(self.path))
    }

    /// Maps the recording.
    fn recording(&self) -> Result<Recording> {
        if let Some(bytes) = crate::repository::live(&self.file) {
            return Ok(Recording::bytes(bytes.into()));
        }
        self.refuse_cut()?;
        Recording::file(&self.file).with_context(|| self.cannot())
    }

    /// Reads the recording with one decoder.
    fn input(&self) -> Result<Input> {
        if let Some(bytes) = crate::repository::live(&self.file) {
            return Ok(Input::bytes(bytes.into()));
        }
        self.refuse_cut()?;
        Input::file(&self.file).with_context(|| self.cannot())
    }

    fn refuse_cut(&self) -> Result<()> {
        let len = self.file.metadata().with_context(|| self.cannot())?.len();
        refuse_cut(self.path, &self.head, len)
    }

    fn source(self, selection: ProfileSelection<'_>) -> Result<Source> {
        let path = self.path;
        match self.format.map(|row| row.format) {
            Some(Format::Jfr) => return self.recording().map(Source::Recording),
            Some(Format::Gzip) => {
                if let Some(profile) = self.pprof(selection)? {
                    return Ok(Source::Pprof(profile));
                }
            }
            Some(Format::Pprof | Format::Otlp) => {
                if let Some(profile) = self.pprof(selection)? {
                    return Ok(Source::Pprof(profile));
                }
                if let Some(profile) = self.otlp(selection.types)? {
                    return Ok(Source::Otlp(profile));
                }
            }
            _ => {}
        }
        refuse_compressed(&self.head, path)?;
        let mut file = self.file;
        file.rewind().with_context(|| format!("cannot open {}", shown(path)))?;
        Ok(Source::Text(Box::new(BufReader::new(file))))
    }
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

#[cfg(feature = "export")]
impl Opened<'_> {
    /// Reads the samples of a pprof profile, compressed or not; `None` if the file is something else.
    fn pprof(&self, ProfileSelection { types, labels }: ProfileSelection<'_>) -> Result<Option<Pprof>> {
        use flightline_export::pprof::{Selection, selected, unpacked};
        let bytes = match self.is(Format::Gzip) {
            true => {
                self.rewind()?;
                unpacked(BufReader::new(&self.file))
            }
            false if self.is(Format::Pprof) => Ok(self.bytes()?),
            false => return Ok(None),
        };
        let mut text = Vec::new();
        match bytes.and_then(|bytes| selected(&bytes, &Selection { types, labels }, &mut text)) {
            Ok(of) => {
                let mut text = Text::from_folded(text, Some(of.unit));
                if of.negative > 0 {
                    text.notes.push(format!(
                        "{} samples have a negative value and are omitted: the profile is a difference. To \
                         compare two profiles, use `flightline diff`",
                        of.negative
                    ));
                }
                Ok(Some(Pprof { text, samples: of.samples, there: of.there }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(error).with_context(|| shown(self.path))
            }
            // Compressed data of another format, for which a later step reports how to decompress it, or a
            // similar beginning.
            Err(_) => Ok(None),
        }
    }

    /// Converts OTLP profiles of `types` (empty: all) to folded text; `None` if the file is something else.
    fn otlp(&self, types: &[String]) -> Result<Option<Text>> {
        if !flightline_export::otlp::tree::is(&self.head) {
            return Ok(None);
        }
        let mut text = Vec::new();
        let unit = flightline_export::otlp::tree::folded(&self.bytes()?, types, &mut text)
            .with_context(|| shown(self.path))?;
        Ok(unit.map(|unit| Text::from_folded(text, Some(unit))))
    }

    fn rewind(&self) -> Result<()> {
        (&self.file).rewind().with_context(|| self.cannot())
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        self.rewind()?;
        let mut bytes = Vec::new();
        (&self.file).take(MOST).read_to_end(&mut bytes).with_context(|| self.cannot())?;
        Ok(bytes)
    }
}

/// Without the feature `export`, pprof and OTLP are not supported.
#[cfg(not(feature = "export"))]
impl Opened<'_> {
    fn pprof(&self, _: ProfileSelection<'_>) -> Result<Option<Pprof>> {
        Ok(None)
    }

    fn otlp(&self, _: &[String]) -> Result<Option<Text>> {
        Ok(None)
    }
}

/// Opens a stream: standard input, or a FIFO or device.
fn stream(path: &Path) -> Result<Source> {
    let mut source: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).with_context(|| format!("cannot open {}", shown(path)))?),
    };
    let mut head = Vec::new();
    let reading = || format!("cannot read {}", shown(path));
    source.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head).with_context(reading)?;
    if head.is_empty() {
        bail!("{} is empty", shown(path));
    }
    refuse_compressed(&head, path)?;
    let is_recording = head == MAGIC;
    if is_recording {
        let rest = (LEN - MAGIC.len()) as u64;
        source.by_ref().take(rest).read_to_end(&mut head).with_context(reading)?;
        refuse_cut(path, &head, head.len() as u64)?;
    }
    let whole = Cursor::new(head).chain(source);
    Ok(if is_recording {
        Source::Stream(Box::new(Input::stream(Box::new(whole))))
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
    let Some(row) = input_format::detect_bytes(magic).filter(|row| !row.tool.is_empty()) else {
        return Ok(());
    };
    let FormatRow { format, name: what, tool, .. } = *row;
    if format == Format::PerfData {
        let name = if path.as_os_str() == "-" { "-".into() } else { path.display().to_string() };
        bail!("{} is a perf.data file; convert it with `{tool} {name} | flightline … -`", shown(path));
    }
    if format == Format::Gzip && is_pprof(path) {
        bail!(
            "{} is a pprof profile, not a JFR recording; `flightline fold`, `flame`, `diff` and \
             `convert` can read it, and --label KEY=VALUE selects samples",
            shown(path)
        );
    }
    let name = if path.as_os_str() == "-" { "FILE".into() } else { path.display().to_string() };
    bail!("{} is compressed with {what}; decompress it with `{tool} {name} | flightline … -`", shown(path))
}

/// Returns true for a file with a pprof profile.
fn is_pprof(path: &Path) -> bool {
    let opened = if path.as_os_str() == "-" { Ok(None) } else { Opened::begin(path) };
    opened.is_ok_and(|opened| {
        opened.is_some_and(|opened| matches!(opened.pprof(ProfileSelection::default()), Ok(Some(_))))
    })
}
