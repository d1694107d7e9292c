//! Drives the decoder over a mapped file, bytes or a stream.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;

use super::map::Mapped;
use super::push::{Decoder, Delivery, Item, Pages};
use crate::error::{Error, Result};

/// Number of bytes read from a stream at a time.
const READ_SIZE: usize = 64 * 1024;

/// Reads a recording from a file, from memory or from a stream.
#[derive(Debug)]
pub struct Input<R = io::Empty> {
    decoder: Decoder,
    source: Option<R>,
    buffer: Vec<u8>,
    read: u64,
    size: Option<u64>,
}

impl Input {
    /// Maps the regular file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_for(path, Delivery::WholeChunks)
    }

    /// Maps the regular file at `path`, with the given delivery of events. For a file of any size, only a few
    /// megabytes of it are in memory, and the pages of constants that are looked up.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open_for(path: &Path, delivery: Delivery) -> Result<Self> {
        Self::mapped(&File::open(path).map_err(|e| Error::io(e, 0))?, delivery)
    }

    /// Maps an open regular file.
    ///
    /// # Errors
    /// The file cannot be mapped.
    pub fn file(file: &File) -> Result<Self> {
        Self::mapped(file, Delivery::WholeChunks)
    }

    fn mapped(file: &File, delivery: Delivery) -> Result<Self> {
        let mapped = Mapped::file(file).map_err(|e| Error::io(e, 0))?;
        let mut input = Self::whole(mapped.bytes(), delivery);
        input.decoder.on_passed(Pages::new(mapped));
        Ok(input)
    }

    /// Reads a recording in memory.
    pub fn bytes(bytes: Bytes) -> Self {
        Self::whole(bytes, Delivery::WholeChunks)
    }

    fn whole(bytes: Bytes, delivery: Delivery) -> Self {
        let size = bytes.len() as u64;
        let mut decoder = Decoder::new(delivery);
        decoder.push(bytes);
        decoder.close();
        Self { decoder, source: None, buffer: Vec::new(), read: size, size: Some(size) }
    }

    /// Converts it to an input of the type of a stream, for programs that accept either.
    pub fn boxed(self) -> Input<Box<dyn Read>> {
        let Self { decoder, buffer, read, size, .. } = self;
        Input { decoder, source: None, buffer, read, size }
    }
}

impl<R: Read> Input<R> {
    /// Reads a stream to its end, returning events as soon as their constants are known.
    pub fn stream(source: R) -> Self {
        Self {
            decoder: Decoder::new(Delivery::Streaming),
            source: Some(source),
            buffer: vec![0; READ_SIZE],
            read: 0,
            size: None,
        }
    }

    /// Returns its decoder, to set a filter.
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// Returns the number of bytes processed so far.
    pub fn consumed(&self) -> u64 {
        self.decoder.consumed()
    }

    /// Returns the number of bytes of the input, if known.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Returns the next item; `None` at the end.
    ///
    /// # Errors
    /// The source cannot be read. Errors in the bytes are returned as [`Item::Warning`].
    #[allow(clippy::should_implement_trait)] // the items borrow from the input
    pub fn next(&mut self) -> Result<Option<Item<'_>>> {
        while !self.decoder.ready() {
            let Some(source) = &mut self.source else { return Ok(None) };
            match source.read(&mut self.buffer) {
                Ok(0) => {
                    self.decoder.close();
                    self.source = None;
                }
                Ok(n) => {
                    self.read += n as u64;
                    self.decoder.push(Bytes::copy_from_slice(self.buffer.get(..n).unwrap_or_default()));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io(e, self.read)),
            }
        }
        Ok(self.decoder.next())
    }
}
