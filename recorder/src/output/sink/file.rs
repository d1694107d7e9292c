//! A seekable file. The drain writes to it directly; writes go to the page cache.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use jfr_format::{
    ids::FileOffset,
    write::{FileOutput, Output},
};

/// A recording in a file.
pub struct FileSink {
    output: FileOutput,
    path: PathBuf,
}

impl FileSink {
    /// Appends to `file`.
    pub fn new(file: File, path: &Path) -> io::Result<FileSink> {
        Ok(FileSink { output: FileOutput::new(file)?, path: std::path::absolute(path)? })
    }

    /// Returns the length so far.
    pub fn end(&self) -> u64 {
        self.output.end().0
    }

    /// Returns the file, to synchronize it.
    pub fn file(&self) -> &File {
        self.output.file()
    }

    /// Returns its name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Output for FileSink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.append(bytes)
    }

    fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()> {
        self.output.patch(at, bytes)
    }
}
