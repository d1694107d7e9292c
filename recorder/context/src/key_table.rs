//! The table of label keys: a record contains the index of a key, the process context contains the names.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};

/// Maximum number of keys: the index is a byte.
pub const KEYS_MAX: usize = 256;
/// Maximum length of a key, bytes.
pub const KEY_MAX: usize = 63;

#[derive(Clone, Copy)]
struct Name {
    len: u8,
    bytes: [u8; KEY_MAX],
}

struct Table {
    len: AtomicU32,
    adding: AtomicBool,
    names: UnsafeCell<[Name; KEYS_MAX]>,
}

// SAFETY: names below `len` never change; above it only the holder of `adding` writes.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    len: AtomicU32::new(0),
    adding: AtomicBool::new(false),
    names: UnsafeCell::new([Name { len: 0, bytes: [0; KEY_MAX] }; KEYS_MAX]),
};

/// A set of key indices.
#[derive(Clone, Copy, Default)]
pub(crate) struct Keys([u64; KEYS_MAX / 64]);

impl Keys {
    pub(crate) fn insert(&mut self, index: u8) {
        self.0[usize::from(index / 64)] |= 1 << (index % 64);
    }

    pub(crate) fn has(&self, index: u8) -> bool {
        self.0[usize::from(index / 64)] & 1 << (index % 64) != 0
    }
}

fn names(len: usize) -> &'static [Name] {
    // SAFETY: in bounds, and complete before `len` included it.
    unsafe { core::slice::from_raw_parts(TABLE.names.get().cast::<Name>(), len.min(KEYS_MAX)) }
}

/// The names in the table of this copy of the crate, by index.
pub fn all() -> impl DoubleEndedIterator<Item = &'static str> {
    let known = names(TABLE.len.load(Acquire) as usize);
    known.iter().map(|name| core::str::from_utf8(&name.bytes[..usize::from(name.len)]).unwrap_or(""))
}

fn find(key: &str) -> Option<u8> {
    let known = names(TABLE.len.load(Acquire) as usize);
    let is = |name: &Name| name.bytes.get(..usize::from(name.len)) == Some(key.as_bytes());
    known.iter().position(is).map(|index| index as u8)
}

/// Returns the index of a key, and whether the key was added by this call. Returns `None` if the table is
/// full, the key is empty or longer than [`KEY_MAX`].
pub(crate) fn add(key: &str) -> Option<(u8, bool)> {
    if let Some(known) = find(key) {
        return Some((known, false));
    }
    if key.is_empty() || key.len() > KEY_MAX {
        return None;
    }
    // Additions are rare and short; a caller that cannot add within this limit goes without the label.
    let mut tries = 0;
    while TABLE.adding.compare_exchange(false, true, Acquire, Relaxed).is_err() {
        tries += 1;
        if tries > 10_000 {
            return None;
        }
        // SAFETY: no pointers; yields the processor.
        unsafe { libc::sched_yield() };
    }
    let len = TABLE.len.load(Relaxed) as usize;
    let found = find(key).map(|known| (known, false)).or_else(|| {
        (len < KEYS_MAX).then(|| {
            let mut name = Name { len: key.len() as u8, bytes: [0; KEY_MAX] };
            name.bytes[..key.len()].copy_from_slice(key.as_bytes());
            // SAFETY: in bounds; this thread holds `adding`, and readers stop at `len`.
            unsafe { TABLE.names.get().cast::<Name>().add(len).write(name) };
            TABLE.len.store(len as u32 + 1, Release);
            (len as u8, true)
        })
    });
    TABLE.adding.store(false, Release);
    found
}

/// Ends an addition that another thread of the parent was making at the fork: the child does not have that thread.
pub(crate) fn in_child() {
    TABLE.adding.store(false, Relaxed);
}
