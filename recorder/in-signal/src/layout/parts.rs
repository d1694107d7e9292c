//! The parts of a mapped process file.

use core::sync::atomic::{AtomicU8, AtomicU64};

use super::{
    INIT_MODULES, InitModule, MODULE_TABLES, ModuleTable, ProcHeader, ProcLayout, STRING_BYTES, SharedCell,
    ThreadSlot,
};

/// References to the parts of a mapped process file.
///
/// All parts consist of atomics, so the references are sound whatever the program, the drain or a damaged
/// process writes there. Most pages of a new file are absent: make a part present before you access it.
#[derive(Clone, Copy)]
pub struct ProcParts<'a> {
    /// The header.
    pub header: &'a ProcHeader,
    /// The threads' slots.
    pub slots: &'a [ThreadSlot],
    /// The module tables.
    pub tables: &'a [ModuleTable; MODULE_TABLES],
    /// The log of modules, of which [`super::ModuleStatus::init_modules`] entries are valid.
    pub init_modules: &'a [SharedCell<InitModule>; INIT_MODULES],
    /// The string area.
    pub strings: &'a [AtomicU8; STRING_BYTES],
    /// The words of the ring.
    pub ring: &'a [AtomicU64],
}

impl<'a> ProcParts<'a> {
    /// Returns the parts of the file that is mapped at `base` and has `layout`.
    ///
    /// # Safety
    /// `layout.end` bytes from `base` on are mapped for `'a`, and `base` is the start of a page. For `'a`,
    /// this process only accesses them through such references, or reads bytes that no code writes any more.
    pub unsafe fn new(base: *const u8, layout: &ProcLayout) -> ProcParts<'a> {
        // SAFETY: the caller guarantees the mapping, in which `ProcLayout::new` places the parts one after
        // the other, each at the start of a page. All types consist of atomics, for which zeroed or foreign
        // contents are values.
        unsafe {
            let part = |offset: u64| base.add(offset as usize);
            ProcParts {
                header: &*base.cast(),
                slots: core::slice::from_raw_parts(part(layout.threads).cast(), layout.thread_slots as usize),
                tables: &*part(layout.modules).cast(),
                init_modules: &*part(layout.init_modules).cast(),
                strings: &*part(layout.strings).cast(),
                ring: core::slice::from_raw_parts(part(layout.ring).cast(), (layout.ring_bytes / 8) as usize),
            }
        }
    }
}
