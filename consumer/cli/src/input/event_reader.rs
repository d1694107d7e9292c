//! Reads recordings item by item and reports unreadable data.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flightline_consumer::fold::Types;
use flightline_consumer::live::{self, Covering, Feed, Item};
use jfr_format::constants::MAGIC;

use crate::Outcome;
use crate::args::selection::SelectArgs;
use crate::diagnostics::{self, Progress, shown};
use crate::input::{self, repository};

/// Read size in bytes.
pub const READ: usize = 256 << 10;
/// Maximum number of warnings printed per input.
const TOLD: u64 = 10;

/// A consumer of items.
pub trait Taker {
    /// Another recording begins.
    fn next_input(&mut self) {}

    /// Processes an item from `feed`.
    fn take(&mut self, item: &Item, feed: &Feed);

    /// Called when all available items have been processed.
    fn caught_up(&mut self, _feed: &Feed) {}
}

/// Passes items from a decoder to a consumer and prints warnings.
pub struct Reader<'a> {
    path: &'a Path,
    feed: Feed,
    /// The first bytes, and the number of bytes read.
    start: Vec<u8>,
    bytes: u64,
    warnings: u64,
    outcome: Outcome,
}

impl<'a> Reader<'a> {
    /// Creates a reader for an input.
    pub fn new(path: &'a Path, wanted: live::Options) -> Self {
        let feed = Feed::new(wanted);
        Self { path, feed, start: Vec::new(), bytes: 0, warnings: 0, outcome: Outcome::Whole }
    }

    /// Processes more bytes.
    pub fn push(&mut self, bytes: &[u8], taker: &mut impl Taker) {
        self.start.extend(bytes.iter().take(MAGIC.len() - self.start.len()));
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        self.feed.push(bytes);
        self.pass_on(taker);
    }

    /// # Errors
    /// Returns an error if the data ends within the first header.
    pub fn refuse_cut(&self) -> Result<()> {
        input::refuse_cut(self.path, &self.start, self.bytes)
    }

    fn pass_on(&mut self, taker: &mut impl Taker) {
        while let Some(item) = self.feed.next() {
            if let Item::Warning(warning) = &item {
                if self.warnings < TOLD {
                    diagnostics::warning(format_args!("{}: {warning}", shown(self.path)));
                }
                self.warnings += 1;
                if warning.damage {
                    self.outcome = Outcome::Partial;
                }
            }
            taker.take(&item, &self.feed);
        }
        taker.caught_up(&self.feed);
    }

    /// Finishes the input.
    pub fn close(mut self, taker: &mut impl Taker) -> Outcome {
        self.feed.close();
        self.pass_on(taker);
        if self.warnings > TOLD {
            diagnostics::warning(format_args!("{}: and {} more", shown(self.path), self.warnings - TOLD));
        }
        self.outcome
    }
}

/// Reads the files of `inputs`. Chunks of a repository that were removed since they were listed are skipped.
pub fn read_files(
    files: &[PathBuf],
    inputs: &[PathBuf],
    wanted: &live::Options,
    taker: &mut impl Taker,
) -> Result<Outcome> {
    let mut outcome = Outcome::Whole;
    for file in files {
        match read_file(file, wanted, taker) {
            Ok(Outcome::Whole) => {}
            Ok(other) => outcome = other,
            Err(_) if repository::rolled_away(file, inputs) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// Reads a file; `-` is standard input.
pub fn read_file(path: &Path, wanted: &live::Options, taker: &mut impl Taker) -> Result<Outcome> {
    let cannot = || format!("cannot open {}", shown(path));
    let mut reader = Reader::new(path, wanted.clone());
    taker.next_input();
    if path.as_os_str() == "-" {
        return read_bytes(std::io::stdin().lock(), None, reader, taker);
    }
    crate::input::unfinished::before_reading(path);
    let file = File::open(path).with_context(cannot)?;
    if let Some(bytes) = repository::live(&file) {
        for piece in bytes.chunks(READ) {
            reader.push(piece, taker);
        }
        return Ok(reader.close(taker));
    }
    let size = file.metadata().ok().map(|meta| meta.len());
    read_bytes(file, size, reader, taker)
}

fn read_bytes(
    mut file: impl Read,
    size: Option<u64>,
    mut reader: Reader<'_>,
    taker: &mut impl Taker,
) -> Result<Outcome> {
    let (path, progress) = (reader.path, Progress::new(size));
    let mut buffer = vec![0; READ];
    let mut read = 0u64;
    loop {
        let bytes = match file.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            bytes => bytes.with_context(|| format!("cannot read {}", shown(path)))?,
        };
        let piece = buffer.get(..bytes).unwrap_or_default();
        if read == 0 {
            check(piece, path)?;
        }
        if piece.is_empty() {
            reader.refuse_cut()?;
            return Ok(reader.close(taker));
        }
        read += bytes as u64;
        reader.push(piece, taker);
        progress.at(read);
    }
}

/// Calls `take` for the selected items of recordings that were read before; damage has been reported then.
/// `drawn` lists the event types of each flame graph.
pub fn each(
    inputs: &[PathBuf],
    select: &SelectArgs,
    wanted: &live::Options,
    drawn: &[Types],
    mut take: impl FnMut(&Item, &mut Feed),
) -> Result<()> {
    for path in &repository::expand(inputs, select.samples.range.last)? {
        let reading = || format!("cannot read {}", shown(path));
        let mut covering = match drawn.iter().any(Types::exclude_covered) {
            true => Covering::scan(File::open(path).with_context(reading)?).with_context(reading)?,
            false => Covering::default(),
        };
        let mut file = BufReader::with_capacity(READ, File::open(path).with_context(reading)?);
        let mut feed = Feed::new(wanted.clone());
        let mut buffer = vec![0; READ];
        loop {
            let bytes = file.read(&mut buffer).with_context(reading)?;
            feed.push(buffer.get(..bytes).unwrap_or_default());
            if bytes == 0 {
                feed.close();
            }
            // The first reading has reported damage.
            while let Some(mut item) = feed.next() {
                covering.mark(&mut item);
                take(&item, &mut feed);
            }
            if bytes == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// # Errors
/// Returns an error if the data is not a recording.
pub fn check(start: &[u8], path: &Path) -> Result<()> {
    if start.is_empty() {
        bail!("{} is empty", shown(path));
    }
    input::refuse_compressed(start, path)?;
    if !start.starts_with(&MAGIC) {
        bail!("{} is not a JFR recording: it does not start with \"FLR\\0\"", shown(path));
    }
    Ok(())
}
