//! Mapping a file: beside `simd.rs` the only module with unsafe code.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, UncheckedAdvice};

/// A mapped file.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    map: Option<Arc<Mmap>>,
}

struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Mapped {
    /// Maps a regular file read-only.
    ///
    /// The file must not be shortened meanwhile: reading a page that is no longer there ends the process with SIGBUS.
    /// Writers of recordings only append and patch.
    pub(crate) fn file(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self { map: None });
        }
        // SAFETY: the mapping is private to us and read-only; bytes that another process changes meanwhile are only
        // ever read as u8, and every decision on them is made on a value already copied out.
        let map = unsafe { Mmap::map(file) }?;
        Ok(Self { map: Some(Arc::new(map)) })
    }

    /// The whole file; empty if the file is.
    pub(crate) fn bytes(&self) -> Bytes {
        self.map.as_ref().map_or_else(Bytes::new, |map| Bytes::from_owner(Owner(map.clone())))
    }

    /// Lets the pages of `range` go. They come back from the file when they are read again, so this is about memory
    /// only; a refusal costs nothing but memory and is ignored.
    pub(crate) fn release(&self, range: Range<u64>) {
        let Some(map) = &self.map else { return };
        let len = map.len();
        let start = usize::try_from(range.start).map_or(len, |start| start.min(len));
        let end = usize::try_from(range.end).map_or(len, |end| end.min(len));
        if start < end {
            // SAFETY: the mapping is of a file and read-only: dropping its pages cannot change what is read there.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
}
