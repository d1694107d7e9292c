//! The complete input, and the release of pages that have been processed.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::read::map::Mapped;

/// Bytes of a mapped file that stay in memory before the reading position: at least this much, at most twice
/// this much.
const STRIDE: usize = 4 << 20;

/// A recording to be edited: a mapped file, of which only the used pages stay in memory, or bytes in memory.
#[derive(Default)]
pub struct Source {
    bytes: Bytes,
    mapped: Option<Mapped>,
    progress: Option<Box<dyn Fn(u64)>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("len", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl<T: Into<Bytes>> From<T> for Source {
    fn from(bytes: T) -> Self {
        Self { bytes: bytes.into(), ..Self::default() }
    }
}

impl Source {
    /// Maps the regular file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Self> {
        Self::file(&File::open(path).map_err(|e| Error::io(e, 0))?)
    }

    /// Maps an open regular file.
    ///
    /// # Errors
    /// The file cannot be mapped.
    pub fn file(file: &File) -> Result<Self> {
        let mapped = Mapped::file(file).map_err(|e| Error::io(e, 0))?;
        Ok(Self { bytes: mapped.bytes(), mapped: Some(mapped), progress: None })
    }

    /// Returns the complete input.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Sets a function that is called at intervals with the number of processed bytes. A chunk counts half
    /// when it has been read and completely when it has been written.
    pub fn on_progress(&mut self, progress: impl Fn(u64) + 'static) {
        self.progress = Some(Box::new(progress));
    }

    pub(super) fn report_progress(&self, at: usize) {
        if let Some(progress) = &self.progress {
            progress(at as u64);
        }
    }

    /// Releases the pages of a range.
    pub(super) fn release(&self, range: Range<usize>) {
        if let Some(mapped) = &self.mapped {
            mapped.release(range.start as u64..range.end as u64);
        }
    }

    /// Releases pages while a reader moves forward from `from`.
    pub(super) fn behind(&self, from: usize) -> Behind<'_> {
        Behind { source: self, from }
    }

    /// Writes a range of the input.
    ///
    /// # Errors
    /// Those of `out`; also if the range does not lie in the input.
    pub fn copy(&self, range: Range<usize>, out: &mut dyn Write) -> io::Result<()> {
        let part = self.bytes.get(range.clone()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut behind = self.behind(range.start);
        let mut at = range.start;
        for piece in part.chunks(STRIDE / 4) {
            out.write_all(piece)?;
            at += piece.len();
            behind.at(at);
            self.report_progress(at);
        }
        self.release(range);
        Ok(())
    }
}

/// Releases the pages before a reader that moves forward.
pub(super) struct Behind<'a> {
    source: &'a Source,
    from: usize,
}

impl Behind<'_> {
    /// Sets the position of the reader. Returns true if pages were released.
    #[inline]
    pub(super) fn at(&mut self, at: usize) -> bool {
        let far = at.saturating_sub(self.from) >= 2 * STRIDE;
        if far {
            // Bytes that were just read may still be written.
            self.source.release(self.from..at - STRIDE);
            self.from = at - STRIDE;
        }
        far
    }
}
