//! Mapping a file: beside `simd.rs` the only module with unsafe code.
//!
//! Pages behind the reader are released in units of 2 MiB: a kernel that caches a file in large units maps a
//! whole unit again with the next byte that is read of it.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, UncheckedAdvice};

use super::push::Paged;

/// A kernel that keeps a file in larger units than pages maps all of such a unit as soon as any byte of it is read, so
/// that what had been let go comes back with what is read next. None is larger than this.
const UNIT: usize = 2 << 20;

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
    /// only; a refusal costs nothing but memory and is ignored. What is just in front of them goes as well.
    pub(crate) fn release(&self, range: Range<u64>) {
        let Some(map) = &self.map else { return };
        let len = map.len();
        let start = usize::try_from(range.start).map_or(len, |start| start.min(len));
        let start = start - start % UNIT;
        let end = usize::try_from(range.end).map_or(len, |end| end.min(len));
        if start < end {
            // SAFETY: the mapping is of a file and read-only: dropping its pages cannot change what is read there.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }

    /// Maps the pages of `range` at once, which is cheaper than a fault for every few of them. A kernel that cannot do
    /// that leaves it to the faults.
    pub(crate) fn prepare(&self, range: Range<u64>) {
        #[cfg(target_os = "linux")]
        if let Some(map) = &self.map {
            let len = map.len();
            let start = usize::try_from(range.start).map_or(len, |start| start.min(len));
            let end = usize::try_from(range.end).map_or(len, |end| end.min(len));
            if start < end {
                let _ = map.advise_range(memmap2::Advice::PopulateRead, start, end - start);
            }
        }
    }
}

impl Paged for Mapped {
    fn release(&self, range: Range<u64>) {
        Self::release(self, range);
    }

    fn prepare(&self, range: Range<u64>) {
        Self::prepare(self, range);
    }
}
