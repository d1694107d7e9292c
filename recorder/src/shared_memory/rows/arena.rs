//! The arena of unwind tables, shared by all programs of a session.

use memmap2::MmapRaw;
use std::collections::BTreeMap;
use std::fs;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

use crate::error::Error;
use flightline_in_signal::layout::RowsHeader;

/// First offset that can contain a table: offset 0 means "not ready".
const ROWS_START: u64 = 64;
/// Offset of the image's key in the table of a module.
const IMAGE_AT: usize = std::mem::offset_of!(RowsHeader, image);

/// The file of unwind tables: written by the drain, mapped read-only by every program. Used pages are never
/// freed: a program's load from a hole would allocate memory of the tmpfs, and raise SIGBUS if there is none.
pub struct RowsArena {
    file: File,
    /// Mapped when the drain first looks up a table.
    map: Option<MmapRaw>,
    used: u64,
    size: u64,
    /// Size of each table, by offset.
    allocated: BTreeMap<u64, u64>,
    /// Size of each free area, by offset.
    free: BTreeMap<u64, u64>,
}

/// Creates a file in a session's directory that only this user can open.
pub(crate) fn new_file(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| Error::io("create", path, e))
}

impl RowsArena {
    /// Returns an arena that stores no tables, for sessions in which no handler needs any.
    pub fn none(session: &Path) -> Result<RowsArena, Error> {
        let path = session.join("no-rows");
        let _ = fs::remove_file(&path);
        RowsArena::create(&path, 0)
    }

    /// Creates the file at `path`, of `size` bytes.
    pub(crate) fn create(path: &Path, size: u64) -> Result<RowsArena, Error> {
        let file = new_file(path)?;
        file.set_len(size).map_err(|e| Error::io("size", path, e))?;
        Ok(RowsArena {
            file,
            map: None,
            used: ROWS_START,
            size,
            allocated: BTreeMap::new(),
            free: BTreeMap::new(),
        })
    }

    /// Returns the whole arena, for walks by the drain; empty if it cannot be mapped.
    pub fn words(&mut self) -> &[AtomicU64] {
        if self.map.is_none() {
            self.map = memmap2::MmapOptions::new().map_raw_read_only(&self.file).ok();
        }
        let Some(map) = &self.map else { return &[] };
        // SAFETY: mapped as long as self lives, page aligned, whole words; other processes may write it, so
        // atomics.
        unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / 8) }
    }

    /// Returns true if the arena stores tables.
    pub fn takes(&self) -> bool {
        self.size > 0
    }

    /// Stores an image's table and returns its offset; `None` if the arena or the tmpfs is full (handlers
    /// then continue to read `.eh_frame`).
    pub fn store(&mut self, rows: &[u8], image: u32) -> Option<u64> {
        let bytes = (rows.len() as u64).checked_next_multiple_of(64)?.max(64);
        let (at, again) = match self.free.iter().find(|&(_, &room)| room >= bytes) {
            Some((&at, _)) => (at, true),
            None if self.used.checked_add(bytes)? <= self.size => (self.used, false),
            None => return None,
        };
        let mut rows = rows.to_vec();
        if let Some(place) = rows.get_mut(IMAGE_AT..IMAGE_AT + 4) {
            place.copy_from_slice(&image.to_le_bytes());
        }
        // With pwrite and not through a mapping, so that a full tmpfs is an error and not a SIGBUS. The magic
        // number is written last.
        let (magic, rest) = rows.split_at(rows.len().min(8));
        self.file.write_all_at(rest, at + 8).ok()?;
        fence(Ordering::Release);
        self.file.write_all_at(magic, at).ok()?;
        if !again {
            self.used = at + bytes;
        } else if let Some(left) = self.free.remove(&at).map(|room| room - bytes).filter(|left| *left > 0) {
            self.free.insert(at + bytes, left);
        }
        self.allocated.insert(at, bytes);
        Some(at)
    }

    /// Frees the table at `at`, whose module is no longer mapped by any program.
    pub fn remove(&mut self, at: u64) {
        let Some(mut bytes) = self.allocated.remove(&at) else { return };
        // Late readers see that the table belongs to no image. If that cannot be written, the area is not
        // reused.
        if self.file.write_all_at(&[0; 8], at).is_err() {
            return;
        }
        fence(Ordering::Release);
        let mut from = at;
        if let Some(next) = self.free.remove(&(at + bytes)) {
            bytes += next;
        }
        if let Some((&before, &room)) = self.free.range(..at).next_back()
            && before + room == at
        {
            (from, bytes) = (before, bytes + room);
        }
        self.free.insert(from, bytes);
        if from + bytes == self.used {
            self.free.remove(&from);
            self.used = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{session::Session, settings::Settings};

    #[test]
    fn row_slots_are_reused_with_a_new_owner() {
        use flightline_in_signal::layout::MAGIC;
        use flightline_in_signal::unwind::unwind_table::UnwindTable;
        // No buckets, so any address is in a gap.
        let rows = |bytes: usize| {
            let mut rows = vec![0; bytes];
            rows[..8].copy_from_slice(&MAGIC.to_le_bytes());
            rows
        };
        let mut session = Session::create(&Settings::default()).unwrap();
        let arena = session.rows();
        let [a, b, c] = [1, 2, 3].map(|image| arena.store(&rows(1000), image).unwrap());
        assert_eq!((a, b, c), (64, 1088, 2112));
        let words: Vec<AtomicU64> =
            arena.words().iter().map(|w| AtomicU64::new(w.load(Ordering::Relaxed))).collect();
        let late = UnwindTable::at(&words, b, 2).unwrap();
        assert!(UnwindTable::at(&words, b, 1).is_none() && late.rule(5).is_some());
        arena.remove(b);
        assert!(UnwindTable::at(arena.words(), b, 2).is_none());
        // A part of the area. The rest is merged with the neighbour that is freed.
        assert_eq!(arena.store(&rows(500), 4), Some(b));
        assert!(
            UnwindTable::at(arena.words(), b, 2).is_none() && UnwindTable::at(arena.words(), b, 4).is_some()
        );
        let again = arena.words()[b as usize / 8 + 3].load(Ordering::Relaxed);
        words[b as usize / 8 + 3].store(again, Ordering::Relaxed);
        assert_eq!(late.rule(5), None, "replaced between finding and reading");
        arena.remove(a);
        arena.remove(b);
        assert_eq!(arena.store(&rows(2048), 5), Some(a));
        arena.remove(c);
        arena.remove(a);
        arena.remove(a);
        assert_eq!((arena.used, arena.free.len(), arena.allocated.len()), (ROWS_START, 0, 0));
        let mut random = 7u64;
        let mut stored = std::collections::VecDeque::new();
        for image in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            stored.push_back((image, arena.store(&rows(64 + (random >> 40) as usize % 60_000), image)));
            if stored.len() > 256 {
                let (image, at) = stored.pop_front().unwrap();
                let at = at.expect("room for 256 of these for ever");
                assert!(UnwindTable::at(arena.words(), at, image).is_some());
                arena.remove(at);
            }
        }
    }
}
