//! The destination of the bytes.

use crate::ids::FileOffset;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// A destination for the bytes of a recording.
pub trait Output {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// On error, an output that can still be used has removed the part that it had written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Appends `len` zeros: the filler of a fixed-size chunk, which can be stored as a length.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn fill(&mut self, len: usize) -> io::Result<()> {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        let mut left = len;
        while left > 0 {
            let piece = left.min(ZEROS.len());
            self.append(&ZEROS[..piece])?;
            left -= piece;
        }
        Ok(())
    }

    /// Replaces bytes that were appended before. Only called for [`Geometry::Patched`](super::Geometry::Patched).
    ///
    /// # Errors
    /// If the output is not seekable, and errors of the device.
    fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()>;
}

/// A seekable file to which only this writer appends.
#[derive(Debug)]
pub struct FileOutput {
    file: File,
    end: u64,
}

impl FileOutput {
    /// Appends at the present end of `file`.
    ///
    /// # Errors
    /// If the length of the file cannot be read.
    pub fn new(file: File) -> io::Result<FileOutput> {
        let end = file.metadata()?.len();
        Ok(FileOutput { file, end })
    }

    /// Returns the offset of the next chunk.
    pub fn end(&self) -> FileOffset {
        FileOffset(self.end)
    }

    /// Returns the file, to query or synchronize it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the file.
    pub fn into_inner(self) -> File {
        self.file
    }
}

impl Output for FileOutput {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(bytes, self.end) {
            // Readers only use bytes within the size in the header, so a tail that stays does no harm.
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at.0)
    }
}

/// A recording in memory.
impl Output for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(at.0).unwrap_or(usize::MAX);
        let place = at.checked_add(bytes.len()).and_then(|end| self.get_mut(at..end));
        place.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// Any writer that takes bytes in order; for [`Geometry::Fixed`](super::Geometry::Fixed) only.
#[derive(Debug)]
pub struct StreamOutput<W> {
    to: W,
}

impl<W: Write> StreamOutput<W> {
    /// Writes to `to` and flushes it after each append.
    pub fn new(to: W) -> StreamOutput<W> {
        StreamOutput { to }
    }

    /// Returns the writer passed to [`StreamOutput::new`].
    pub fn into_inner(self) -> W {
        self.to
    }
}

impl<W: Write> Output for StreamOutput<W> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.to.flush()
    }

    fn patch(&mut self, _: FileOffset, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a stream cannot be patched: use chunks of fixed size",
        ))
    }
}
