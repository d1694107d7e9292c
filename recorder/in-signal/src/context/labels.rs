//! Labels that a thread has published without a span: the label set of the library custom-labels (its ABI,
//! version 1).
//!
//! ```text
//! custom_labels_current_set ─▶ storage, count, … ; storage ─▶ count × { key: length, bytes; value: length, bytes }
//! ```
//! The thread maintains the set so that it is valid at any instruction. This module reads it by system calls
//! that check the address.

use crate::context;
use crate::layout::{HEAD_WORDS, MAX_CONTEXT, RECORD_BYTES, RECORD_HEAD, TEXT_LABELS};
use crate::os::sys;

/// Maximum number of labels read from a set; each costs two system calls.
const MOST: usize = 10;
const ENTRY_WORDS: usize = 4;
/// Maximum bytes of a key or value: its length is stored in one byte.
const MOST_BYTES: u64 = 255;

/// Writes the labels of the set at `at` in the place of a record's attributes, as length, key, length, value.
/// Returns the number of words of the context; 0 if there is none.
#[inline(never)]
pub fn copy(pid: u32, at: u64, to: &mut [u64; MAX_CONTEXT]) -> usize {
    let (mut set, mut entries) = ([0u64; 2], [0u64; MOST * ENTRY_WORDS]);
    if read(pid, at, &mut set) != size_of_val(&set) {
        return 0;
    }
    let [storage, count] = set;
    let words = (count.min(MOST as u64) as usize).wrapping_mul(ENTRY_WORDS);
    let Some(entries) = entries.get_mut(..words) else { return 0 };
    if entries.is_empty() || read(pid, storage, entries) != size_of_val(entries) {
        return 0;
    }
    let Some(record) = to.get_mut(HEAD_WORDS..) else { return 0 };
    // SAFETY: the bytes of the words of `record`, which is borrowed exclusively.
    let bytes = unsafe { core::slice::from_raw_parts_mut(record.as_mut_ptr().cast::<u8>(), RECORD_BYTES) };
    let Some((head, room)) = bytes.split_at_mut_checked(RECORD_HEAD) else { return 0 };
    head.fill(0);
    let mut used = 0usize;
    for entry in entries.chunks_exact(ENTRY_WORDS) {
        let &[key_bytes, key, value_bytes, value] = entry else { break };
        if key == 0 || key_bytes > MOST_BYTES {
            continue;
        }
        let Some(rest) = room.get_mut(used..) else { break };
        let Some(after_key) = text(pid, key, key_bytes, rest) else { continue };
        let Some(rest) = rest.get_mut(after_key..) else { continue };
        let Some(after_value) = text(pid, value, value_bytes.min(MOST_BYTES), rest) else { continue };
        used = used.wrapping_add(after_key).wrapping_add(after_value);
    }
    if used == 0 {
        return 0;
    }
    const VALID: u8 = 1;
    let [low, high] = (used as u16).to_le_bytes();
    for (to, value) in head.iter_mut().skip(RECORD_HEAD.wrapping_sub(4)).zip([VALID, 0, low, high]) {
        *to = value;
    }
    let words = context::finish(to, None);
    if let (true, Some(first)) = (words != 0, to.first_mut()) {
        *first |= TEXT_LABELS;
    }
    words
}

/// Writes a text with its length in one byte. Returns the number of bytes used; `None` if there is no room or
/// it cannot be read.
fn text(pid: u32, at: u64, len: u64, to: &mut [u8]) -> Option<usize> {
    let (first, rest) = to.split_first_mut()?;
    let rest = rest.get_mut(..len as usize)?;
    // SAFETY: the buffer is as long as the slice.
    if !rest.is_empty() && unsafe { sys::read_process(pid, at, rest.as_mut_ptr(), rest.len()) } != rest.len()
    {
        return None;
    }
    *first = len as u8;
    Some(rest.len().wrapping_add(1))
}

fn read(pid: u32, at: u64, to: &mut [u64]) -> usize {
    // SAFETY: the buffer is as long as the slice.
    unsafe { sys::read_process(pid, at, to.as_mut_ptr().cast(), size_of_val(to)) }
}
