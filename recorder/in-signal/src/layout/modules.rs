//! The executable mappings and their unwind information.

use core::sync::atomic::AtomicU32;

use super::{MODULES_PER_TABLE, Plain, SharedCell};

/// One executable mapping and where its unwind information is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ModuleEntry {
    /// First address of the executable mapping.
    pub start: u64,
    /// One past its last address.
    pub end: u64,
    /// Address − file virtual address ("load bias").
    pub bias: u64,
    /// Address of the mapped `.eh_frame_hdr` (0: none).
    pub eh_frame_hdr: u64,
    /// End of the segment that holds `.eh_frame_hdr` and `.eh_frame`.
    pub eh_readable_end: u64,
    /// Offset of the module's [`RowsHeader`] in the rows arena; 0 = rows not ready.
    pub rows_off: u64,
    /// [`module_flags`].
    pub flags: u32,
    /// Number of the image in the drain's tables; in the program's own table, which has no rows, the number
    /// of the string.
    pub path_id: u32,
    /// Start of the segment that holds `.eh_frame_hdr` and `.eh_frame`: some linkers put `.eh_frame` first.
    pub eh_readable_start: u64,
}

// SAFETY: eight words of integers without padding (the size is asserted in `layout`).
unsafe impl Plain for ModuleEntry {}

/// Bits of [`ModuleEntry::flags`].
pub mod module_flags {
    /// Present when the program started: never unmapped, so `.eh_frame` may be read by plain loads.
    pub const PERMANENT: u32 = 1;
    /// Being closed or closed: do not touch its memory, its rows are still safe.
    pub const DEAD: u32 = 2;
    /// The vDSO.
    pub const VDSO: u32 = 4;
}

/// A sorted table of modules. Readers use table [`super::ModuleStatus::generation`] `% MODULE_TABLES` and
/// search `entries[..count]`.
#[repr(C)]
pub struct ModuleTable {
    /// Valid entries, ≤ [`super::MODULES_PER_TABLE`].
    pub count: AtomicU32,
    /// Generation this table was published as.
    pub generation: AtomicU32,
    /// Sorted by `start`, disjoint.
    pub entries: [SharedCell<ModuleEntry>; MODULES_PER_TABLE],
}

/// A module as the program's loader reports it (one entry per PT_LOAD with PF_X).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InitModule {
    /// As in [`ModuleEntry`].
    pub start: u64,
    /// As in [`ModuleEntry`].
    pub end: u64,
    /// As in [`ModuleEntry`].
    pub bias: u64,
    /// As in [`ModuleEntry`].
    pub eh_frame_hdr: u64,
    /// As in [`ModuleEntry`].
    pub eh_readable_end: u64,
    /// As in [`ModuleEntry`].
    pub eh_readable_start: u64,
    /// Path: offset and length in the string area.
    pub path: [u32; 2],
    /// [`module_flags`].
    pub flags: u32,
    /// Bytes of `build_id` in use (0: none).
    pub build_id_len: u32,
    /// GNU build id.
    pub build_id: [u8; 24],
}

// SAFETY: eleven words of integers and bytes without padding (the size is asserted in `layout`).
unsafe impl Plain for InitModule {}

/// Header of one module's rows in the rows arena (written by the drain, then published in a [`ModuleEntry`]).
/// Followed by `buckets + 1` × u32 (first row of each bucket), `rows` × [`Row`], 8-byte aligned each.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RowsHeader {
    /// [`super::MAGIC`].
    pub magic: u64,
    /// File virtual address that row locations are relative to.
    pub base: u64,
    /// Number of rows.
    pub rows: u32,
    /// Number of buckets; bucket i covers locations `i << bucket_shift ..`.
    pub buckets: u32,
    /// log2 of a bucket's bytes.
    pub bucket_shift: u32,
    /// [`ModuleEntry::path_id`] of the module, to detect that the memory now belongs to another module.
    pub image: u32,
}

/// One unwind row: valid from `loc` to the next row's `loc`. The packing of `rule` is in `rule`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Location relative to [`RowsHeader::base`].
    pub loc: u32,
    /// Packed rule.
    pub rule: u32,
}
