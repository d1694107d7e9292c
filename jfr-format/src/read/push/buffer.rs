//! The input bytes that the decoder holds.

use bytes::{Bytes, BytesMut};

#[derive(Debug)]
pub(super) enum Buffer {
    Whole(Bytes),
    Growing(BytesMut),
}

impl Buffer {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Growing(bytes) => bytes,
        }
    }

    pub(super) fn take(&mut self, len: usize) -> Bytes {
        match self {
            Self::Whole(bytes) => bytes.split_to(len),
            Self::Growing(bytes) => bytes.split_to(len).freeze(),
        }
    }

    pub(super) fn push(&mut self, more: Bytes) {
        match self {
            Self::Growing(bytes) => bytes.extend_from_slice(&more),
            Self::Whole(bytes) if bytes.is_empty() => *bytes = more,
            Self::Whole(bytes) => {
                let mut grown = BytesMut::with_capacity(bytes.len() + more.len());
                grown.extend_from_slice(bytes);
                grown.extend_from_slice(&more);
                *self = Self::Growing(grown);
            }
        }
    }
}

/// The part of the input that was pushed and not taken out yet.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) buffer: Buffer,
    /// Offset in the input of the buffer's first byte.
    pub(super) offset: u64,
    /// Bytes at the start of the buffer that are whole events; at most the buffer's length.
    pub(super) scanned: usize,
    /// No more input follows.
    pub(super) closed: bool,
}

impl Default for Window {
    fn default() -> Self {
        Self { buffer: Buffer::Whole(Bytes::new()), offset: 0, scanned: 0, closed: false }
    }
}

impl Window {
    /// Appends input, unless the window is closed.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if !self.closed && !bytes.is_empty() {
            self.buffer.push(bytes);
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// Offset in the input of the next event.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.offset + self.scanned as u64
    }

    /// Offset in the input of the buffer's end.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.offset + self.buffer.bytes().len() as u64
    }

    /// Takes the scanned events out.
    pub(super) fn take_scanned(&mut self) -> Bytes {
        let bytes = self.buffer.take(self.scanned);
        self.offset += self.scanned as u64;
        self.scanned = 0;
        bytes
    }

    /// Drops up to `len` bytes from the front; events scanned before are no longer counted as such.
    pub(super) fn discard(&mut self, len: usize) {
        let len = len.min(self.buffer.bytes().len());
        self.buffer.take(len);
        self.offset += len as u64;
        self.scanned = 0;
    }
}
