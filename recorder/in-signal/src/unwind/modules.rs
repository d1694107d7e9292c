//! Finds the module of an address in the active table.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::layout::{MODULE_TABLES, MODULES_PER_TABLE, ModuleEntry, ModuleTable, module_flags};

/// A view of the module tables at one generation.
#[derive(Clone, Copy)]
pub struct Modules<'a> {
    table: *const ModuleTable,
    count: usize,
    generation: u32,
    current: &'a AtomicU32,
}

impl<'a> Modules<'a> {
    /// Selects the table that `current` (the header's `modules_gen`) names.
    ///
    /// # Safety
    /// `tables` points to [`MODULE_TABLES`] tables that stay mapped for `'a`.
    #[inline]
    pub unsafe fn now(tables: *const ModuleTable, current: &'a AtomicU32) -> Modules<'a> {
        let generation = current.load(Ordering::Acquire);
        // SAFETY: the index is below MODULE_TABLES.
        let table = unsafe { tables.add(generation as usize % MODULE_TABLES) };
        // SAFETY: the index is below MODULE_TABLES, so the table is mapped; the count is an atomic of shared
        // memory.
        let count = unsafe { &(*table).count }.load(Ordering::Acquire) as usize;
        Modules { table, count: count.min(MODULES_PER_TABLE), generation, current }
    }

    /// Returns a view of a table that does not change while the view lives.
    pub fn new(table: &'a ModuleTable) -> Modules<'a> {
        let (count, generation) =
            (table.count.load(Ordering::Relaxed) as usize, table.generation.load(Ordering::Relaxed));
        Modules { table, count: count.min(MODULES_PER_TABLE), generation, current: &table.generation }
    }

    /// Generation of this view.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Copies entry `i`. Returns `None` if the table may have been rewritten in the meantime.
    #[inline]
    fn entry(&self, i: usize) -> Option<ModuleEntry> {
        if i >= self.count {
            return None;
        }
        // SAFETY: in bounds (count is capped); volatile because the drain may write at the same time.
        let entry =
            unsafe { (&raw const (*self.table).entries).cast::<ModuleEntry>().add(i).read_volatile() };
        core::sync::atomic::fence(Ordering::Acquire);
        let newer = self.current.load(Ordering::Relaxed).wrapping_sub(self.generation) as usize;
        // The drain writes table g + MODULE_TABLES while generation g + MODULE_TABLES − 1 is active.
        (newer < MODULE_TABLES.wrapping_sub(1)).then_some(entry)
    }

    #[inline]
    fn start(&self, i: usize) -> u64 {
        if i >= self.count {
            return u64::MAX;
        }
        // SAFETY: in bounds; a torn value only misleads the search, the entry is checked afterwards.
        unsafe {
            (&raw const (*self.table).entries).cast::<ModuleEntry>().add(i).cast::<u64>().read_volatile()
        }
    }

    /// Returns the module that covers `address`.
    #[inline]
    pub fn find(&self, address: u64) -> Option<ModuleEntry> {
        let (mut low, mut high) = (0usize, self.count);
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

/// Returns true if plain loads of the module's unwind information are safe.
#[inline]
pub fn is_plain(entry: &ModuleEntry) -> bool {
    entry.flags & module_flags::PERMANENT != 0 && entry.flags & module_flags::DEAD == 0
}
