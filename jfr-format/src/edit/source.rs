//! Input as a whole, and letting go of what has been dealt with.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::read::map::Mapped;

/// Bytes of a mapped file that stay in memory behind the place being read: this much to twice this much.
const STRIDE: usize = 4 << 20;

/// A recording to be edited: a mapped file, of whose pages only those in use are kept in memory, or bytes at hand.
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

    /// The whole input.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Calls `progress` now and then with how many bytes have been dealt with. A chunk counts half when it has been read
    /// and whole when it has been written.
    pub fn on_progress(&mut self, progress: impl Fn(u64) + 'static) {
        self.progress = Some(Box::new(progress));
    }

    pub(super) fn report_progress(&self, at: usize) {
        if let Some(progress) = &self.progress {
            progress(at as u64);
        }
    }

    /// Lets the pages of a range go.
    pub(super) fn release(&self, range: Range<usize>) {
        if let Some(mapped) = &self.mapped {
            mapped.release(range.start as u64..range.end as u64);
        }
    }

    /// Letting pages go while reading onwards from `from`.
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

/// Lets go of the pages behind a reader that goes onwards.
pub(super) struct Behind<'a> {
    source: &'a Source,
    from: usize,
}

impl Behind<'_> {
    /// The reader is at `at` now; gives whether pages were let go.
    #[inline]
    pub(super) fn at(&mut self, at: usize) -> bool {
        let far = at.saturating_sub(self.from) >= 2 * STRIDE;
        if far {
            // What was just read may be written still.
            self.source.release(self.from..at - STRIDE);
            self.from = at - STRIDE;
        }
        far
    }
}
