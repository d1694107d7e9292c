//! Mapping a file. With `simd.rs` the only module with unsafe code.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use bytes::Bytes;
use memmap2::Mmap;

/// Maps a regular file read-only. An empty file gives no bytes.
///
/// The file must not be shortened meanwhile: reading a page that is no longer there ends the process with SIGBUS.
/// Writers of recordings only append and patch.
pub(super) fn map(file: &File) -> io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the mapping is private to us and read-only; bytes that another process changes meanwhile are only
    // ever read as u8, and every decision on them is made on a value already copied out.
    let map = unsafe { Mmap::map(file) }?;
    Ok(Bytes::from_owner(map))
}
