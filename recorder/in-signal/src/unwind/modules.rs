//! Finds the module of an address in the active table.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::layout::{MODULE_TABLES, MODULES_PER_TABLE, ModuleEntry, ModuleTable, SharedCell, module_flags};

/// A view of the module tables at one generation.
#[derive(Clone, Copy)]
pub struct Modules<'a> {
    entries: &'a [SharedCell<ModuleEntry>],
    generation: u32,
    current: &'a AtomicU32,
}

impl<'a> Modules<'a> {
    /// Selects the table that `current` (the header's [`crate::layout::ModuleStatus::generation`]) names.
    #[inline]
    pub fn now(tables: &'a [ModuleTable; MODULE_TABLES], current: &'a AtomicU32) -> Modules<'a> {
        let generation = current.load(Ordering::Acquire);
        Modules { entries: entries(select(tables, generation)), generation, current }
    }

    /// Returns a view of a table that does not change while the view lives.
    pub fn new(table: &'a ModuleTable) -> Modules<'a> {
        let generation = table.generation.load(Ordering::Relaxed);
        Modules { entries: entries(table), generation, current: &table.generation }
    }

    /// Generation of this view.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Copies entry `i`. Returns `None` if the table may have been rewritten in the meantime.
    #[inline]
    fn entry(&self, i: usize) -> Option<ModuleEntry> {
        let entry = self.entries.get(i)?.load();
        core::sync::atomic::fence(Ordering::Acquire);
        let newer = self.current.load(Ordering::Relaxed).wrapping_sub(self.generation) as usize;
        // The drain writes table g + MODULE_TABLES while generation g + MODULE_TABLES − 1 is active.
        (newer < MODULE_TABLES.wrapping_sub(1)).then_some(entry)
    }

    #[inline]
    fn start(&self, i: usize) -> u64 {
        // A value that is being rewritten only misleads the search; the entry is checked afterwards.
        let entry = self.entries.get(i);
        entry.map_or(u64::MAX, |e| e.word::<{ offset_of!(ModuleEntry, start) }>().load(Ordering::Relaxed))
    }

    /// Returns the module that covers `address`.
    #[inline]
    pub fn find(&self, address: u64) -> Option<ModuleEntry> {
        let (mut low, mut high) = (0usize, self.entries.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.start(middle) <= address {
                low = middle.wrapping_add(1);
            } else {
                high = middle;
            }
        }
        let entry = self.entry(low.checked_sub(1)?)?;
        (entry.start <= address && address < entry.end).then_some(entry)
    }
}

/// Returns the valid entries of a table.
#[inline]
fn entries(table: &ModuleTable) -> &[SharedCell<ModuleEntry>] {
    let count = table.count.load(Ordering::Acquire) as usize;
    table.entries.get(..count.min(MODULES_PER_TABLE)).unwrap_or_default()
}

/// Returns the table of a generation.
#[inline]
pub fn select(tables: &[ModuleTable; MODULE_TABLES], generation: u32) -> &ModuleTable {
    let [first, ..] = tables;
    tables.get(generation as usize % MODULE_TABLES).unwrap_or(first)
}

/// Returns true if plain loads of the module's unwind information are safe.
#[inline]
pub fn is_plain(entry: &ModuleEntry) -> bool {
    entry.flags & module_flags::PERMANENT != 0 && entry.flags & module_flags::DEAD == 0
}
