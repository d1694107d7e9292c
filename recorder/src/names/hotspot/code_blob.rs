//! Finds the code blob that contains an address, and reads the blob's header.
//!
//! ```text
//! code heap     [HeapBlock header, CodeBlob, …]  [HeapBlock header, CodeBlob, …]  free …
//! segment map   0 1 2 3 …                        0 1 2 …                          ff ff …
//! ```
//!
//! A byte of the segment map is the distance, in segments, by which to step back towards the first segment of
//! its block: 0 for the first one, at most 254, and 255 for a free segment. The JVM may change both at any
//! time, so a blob counts only if its block is in use and its range contains the address.

use std::{collections::HashMap, sync::Arc};

use super::Unresolved;
use super::layout::{CodeCacheLayout, DebugInfoLayout, HotspotLayout, Position};
use super::memory::ReadMemory;

/// A segment that belongs to no block.
const FREE: u8 = 0xff;
/// Limit of code heaps. HotSpot has up to three.
const MAX_HEAPS: u32 = 8;
/// Limit of a segment's size as a power of two.
const MAX_LOG2_SEGMENT_SIZE: u32 = 16;
/// Limit of the steps back in the segment map. The largest blobs need about a hundred.
const MAX_STEPS: u32 = 10_000;
/// Limit of a blob's size.
const MAX_BLOB_SIZE: u64 = 1 << 28;
/// Limit of the length of a blob's name.
const MAX_NAME: usize = 256;
/// Limit of cached names. HotSpot has about a hundred.
const MAX_NAMES: usize = 1024;

/// The kind of code in a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobKind {
    /// A compiled method.
    Nmethod,
    /// The wrapper that calls a native method.
    NativeNmethod,
    /// The interpreter.
    Interpreter,
    /// Stubs, adapters and runtime code.
    Stub,
}

/// A blob's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeBlob {
    /// The address of the `CodeBlob`.
    pub address: u64,
    /// The kind.
    pub kind: BlobKind,
    /// The JVM's name: "nmethod", "Interpreter", "StubRoutines (initial stubs)".
    pub name: Arc<str>,
    /// Bytes from the address to the end.
    pub size: u64,
    /// The first address of the code.
    pub code_begin: u64,
    /// The size of a frame in bytes, with the return address; 0 if it is not fixed.
    pub frame_size: u64,
    /// The first address at which a frame is complete.
    pub frame_complete: u64,
}

/// The identity of a compiled method and the location of its debug information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nmethod {
    /// The `Method`.
    pub method: u64,
    /// The number of the compilation.
    pub compile_id: u32,
    /// 1 to 3 for C1, 4 for C2, 0 for a native wrapper.
    pub comp_level: i8,
    /// The first address of the code.
    pub code_begin: u64,
    /// The return address that replaces those of frames to deoptimize.
    pub deopt_handler: u64,
    /// Distance from a frame's stack pointer to the return address that was replaced.
    pub orig_pc_offset: u32,
    /// Start and end of the `PcDesc`s.
    pub pcs: (u64, u64),
    /// Start and end of the encoded scopes.
    pub scopes: (u64, u64),
    /// Start and end of the array of metadata pointers.
    pub metadata: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct CodeHeap {
    low: u64,
    high: u64,
    segmap: (u64, u64),
    log2_segment_size: u32,
}

/// The code heaps of a JVM, and the names of blobs.
#[derive(Default)]
pub struct CodeHeaps {
    heaps: Vec<CodeHeap>,
    /// Names by the address of the string, which never changes: most are constants of `libjvm.so`.
    names: HashMap<u64, Arc<str>>,
}

/// Returns the 64-bit value at an offset of a copy.
fn word(bytes: &[u8], offset: u32) -> Option<u64> {
    let found = bytes.get(offset as usize..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*found))
}

impl CodeHeaps {
    /// Returns the address of the blob that contains `pc`.
    pub fn find(&mut self, memory: &impl ReadMemory, layout: &HotspotLayout, pc: u64) -> Option<u64> {
        let cache = &layout.code_cache;
        let covers = |heap: &&CodeHeap| heap.low <= pc && pc < heap.high;
        let heap = match self.heaps.iter().find(covers) {
            Some(heap) => *heap,
            // The committed parts grow.
            None => {
                self.heaps = read_heaps(memory, cache)?;
                *self.heaps.iter().find(covers)?
            }
        };
        let segment = first_segment(memory, &heap, (pc - heap.low) >> heap.log2_segment_size)?;
        let block = heap.low.checked_add(segment << heap.log2_segment_size)?;
        block.checked_add(u64::from(cache.block_header_size))
    }

    /// Reads the header of the blob at `address`.
    pub fn blob(
        &mut self,
        memory: &impl ReadMemory,
        layout: &HotspotLayout,
        address: u64,
    ) -> Result<CodeBlob, Unresolved> {
        let bytes = used_block(memory, &layout.code_cache, address, layout.blob.type_size)?;
        let blob = &layout.blob;
        let name = word(&bytes, blob.name).ok_or(Unresolved::Unreadable)?;
        let name = self.name(memory, name).ok_or(Unresolved::Unreadable)?;
        let parse = || {
            let size = blob.size.unsigned(&bytes).filter(|size| *size <= MAX_BLOB_SIZE)?;
            let code_begin = position(blob.code, &bytes, address, 0)?;
            let frame_complete = code_begin.wrapping_add_signed(blob.frame_complete.signed(&bytes)?);
            let frame_size = 8 * blob.frame_size.unsigned(&bytes).filter(|words| *words <= MAX_BLOB_SIZE)?;
            let (kind, name) = (BlobKind::by_name(&name), name.clone());
            Some(CodeBlob { address, kind, name, size, code_begin, frame_size, frame_complete })
        };
        parse().filter(CodeBlob::is_plausible).ok_or(Unresolved::Unreadable)
    }

    /// Reads the compiled method at `address`.
    pub fn nmethod(
        &mut self,
        memory: &impl ReadMemory,
        layout: &HotspotLayout,
        address: u64,
    ) -> Result<Nmethod, Unresolved> {
        let bytes = used_block(memory, &layout.code_cache, address, layout.nmethod.type_size)?;
        let name = word(&bytes, layout.blob.name).ok_or(Unresolved::Unreadable)?;
        let name = self.name(memory, name).ok_or(Unresolved::Unreadable)?;
        if !matches!(BlobKind::by_name(&name), BlobKind::Nmethod | BlobKind::NativeNmethod) {
            return Err(Unresolved::Unloaded);
        }
        let nmethod = Nmethod::parse(layout, address, &bytes).ok_or(Unresolved::Unreadable)?;
        match nmethod.method {
            0 => Err(Unresolved::Unloaded),
            _ => Ok(nmethod),
        }
    }

    fn name(&mut self, memory: &impl ReadMemory, address: u64) -> Option<Arc<str>> {
        if let Some(name) = self.names.get(&address) {
            return Some(name.clone());
        }
        let name: Arc<str> = memory.c_string(address, MAX_NAME)?.into();
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(address, name.clone());
        Some(name)
    }
}

impl BlobKind {
    fn by_name(name: &str) -> BlobKind {
        match name {
            "nmethod" => BlobKind::Nmethod,
            "native nmethod" => BlobKind::NativeNmethod,
            "Interpreter" => BlobKind::Interpreter,
            _ => BlobKind::Stub,
        }
    }
}

impl CodeBlob {
    /// Returns true if the code may contain an address.
    pub fn contains(&self, pc: u64) -> bool {
        self.code_begin <= pc && pc < self.address.saturating_add(self.size)
    }

    fn is_plausible(&self) -> bool {
        self.address < self.code_begin && self.code_begin <= self.address.saturating_add(self.size)
    }
}

impl Nmethod {
    fn parse(layout: &HotspotLayout, address: u64, bytes: &[u8]) -> Option<Nmethod> {
        let nmethod = &layout.nmethod;
        let size = layout.blob.size.unsigned(bytes).filter(|size| *size <= MAX_BLOB_SIZE)?;
        let end = address.checked_add(size)?;
        let code_begin = position(layout.blob.code, bytes, address, 0)?;
        let method = word(bytes, nmethod.method)?;
        if !(address..end).contains(&code_begin) {
            return None;
        }
        let (pcs, scopes, metadata) = match nmethod.debug_info {
            DebugInfoLayout::InBlob { pcs, pcs_end, scopes, metadata } => {
                let pcs = address.checked_add(pcs.unsigned(bytes)?)?;
                let pcs_end = address.checked_add(pcs_end.unsigned(bytes)?)?;
                let scopes = scopes.unsigned(bytes)?;
                let metadata = address.checked_add(metadata.unsigned(bytes)?)?;
                let inside = [pcs, pcs_end, scopes, metadata].iter().all(|at| (address..=end).contains(at));
                inside.then_some(((pcs, pcs_end), (scopes, pcs), (metadata, scopes)))?
            }
            DebugInfoLayout::Separate {
                immutable_data,
                immutable_size,
                pcs,
                scopes,
                mutable_data,
                mutable_size,
                relocation_size,
            } => {
                let value = |field: super::vm_structs::Field| field.unsigned(bytes);
                let start = value(immutable_data)?;
                let scopes = start.checked_add(value(scopes)?)?;
                let scopes_end = start.checked_add(value(immutable_size)?)?;
                let metadata = value(relocation_size)?.checked_next_multiple_of(8)?;
                let metadata_end = value(mutable_data)?.checked_add(value(mutable_size)?)?;
                (
                    (start.checked_add(value(pcs)?)?, scopes),
                    (scopes, scopes_end),
                    (value(mutable_data)?.checked_add(metadata)?, metadata_end),
                )
            }
        };
        Some(Nmethod {
            method,
            compile_id: nmethod.compile_id.unsigned(bytes)? as u32,
            comp_level: nmethod.comp_level.signed(bytes)? as i8,
            code_begin,
            deopt_handler: position(nmethod.deopt_handler, bytes, address, code_begin)?,
            orig_pc_offset: nmethod.orig_pc_offset.unsigned(bytes)? as u32,
            pcs,
            scopes,
            metadata,
        })
    }
}

/// Returns an address within a blob, whose header is `bytes`.
fn position(position: Position, bytes: &[u8], blob: u64, code_begin: u64) -> Option<u64> {
    match position {
        Position::Address(field) => field.unsigned(bytes),
        Position::FromBlob(field) => blob.checked_add(field.unsigned(bytes)?),
        Position::FromCode(field) => code_begin.checked_add(field.unsigned(bytes)?),
    }
}

/// Returns the first `len` bytes of the blob at `address`, if its block is in use.
fn used_block(
    memory: &impl ReadMemory,
    cache: &CodeCacheLayout,
    address: u64,
    len: u32,
) -> Result<Vec<u8>, Unresolved> {
    let header = cache.block_header_size;
    let block = address.checked_sub(u64::from(header)).ok_or(Unresolved::Unreadable)?;
    let mut bytes = memory.bytes(block, header as usize + len as usize).ok_or(Unresolved::Unreadable)?;
    match bytes.get(cache.block_used as usize) {
        Some(0) => Err(Unresolved::Unloaded),
        Some(_) => Ok(bytes.split_off(header as usize)),
        None => Err(Unresolved::Unreadable),
    }
}

fn read_heaps(memory: &impl ReadMemory, layout: &CodeCacheLayout) -> Option<Vec<CodeHeap>> {
    let array = memory.u64(layout.heaps)?;
    let count = memory.u32(array.checked_add(u64::from(layout.array_len))?)?.min(MAX_HEAPS);
    let data = memory.u64(array.checked_add(u64::from(layout.array_data))?)?;
    let mut heaps = Vec::with_capacity(count as usize);
    for i in 0..u64::from(count) {
        let heap = memory.u64(data.checked_add(8 * i)?)?;
        let bytes = memory.bytes(heap, layout.heap_size as usize)?;
        let log2 = bytes.get(layout.log2_segment_size as usize..)?.first_chunk::<4>()?;
        let log2_segment_size = u32::from_le_bytes(*log2);
        if log2_segment_size <= MAX_LOG2_SEGMENT_SIZE {
            heaps.push(CodeHeap {
                low: word(&bytes, layout.heap_low)?,
                high: word(&bytes, layout.heap_high)?,
                segmap: (word(&bytes, layout.segmap_low)?, word(&bytes, layout.segmap_high)?),
                log2_segment_size,
            });
        }
    }
    Some(heaps)
}

/// Returns the first segment of the block that contains a segment; `None` if it is free.
fn first_segment(memory: &impl ReadMemory, heap: &CodeHeap, segment: u64) -> Option<u64> {
    const WINDOW: u64 = 512;
    let (map, map_end) = heap.segmap;
    let (mut at, mut start, mut window) = (segment, u64::MAX, Vec::new());
    for _ in 0..MAX_STEPS {
        if start > at {
            // A window that ends with this segment, because the walk goes back.
            start = at.saturating_sub(WINDOW - 1);
            let end = map.checked_add(at)?.checked_add(1)?;
            if end > map_end {
                return None;
            }
            window = memory.bytes(map.checked_add(start)?, usize::try_from(at - start).ok()? + 1)?;
        }
        match *window.get(usize::try_from(at - start).ok()?)? {
            0 => return Some(at),
            FREE => return None,
            back => at = at.checked_sub(u64::from(back))?,
        }
    }
    None
}

/// Returns the addresses of all blobs of a JVM that does not change them.
#[cfg(test)]
pub fn all_blobs(memory: &impl ReadMemory, layout: &HotspotLayout) -> Vec<u64> {
    let mut found = Vec::new();
    for heap in read_heaps(memory, &layout.code_cache).unwrap() {
        let segments = (heap.high - heap.low) >> heap.log2_segment_size;
        let map = memory.bytes(heap.segmap.0, segments as usize).unwrap();
        let first = (0..segments).filter(|segment| map[*segment as usize] == 0);
        found.extend(first.map(|segment| {
            heap.low + (segment << heap.log2_segment_size) + u64::from(layout.code_cache.block_header_size)
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::hotspot::memory::FakeMemory;

    const MAP: u64 = 0x1000;

    fn heap(segments: &[u8]) -> (FakeMemory, CodeHeap) {
        let mut memory = FakeMemory::default();
        memory.set(MAP, segments);
        let segmap = (MAP, MAP + segments.len() as u64);
        (memory, CodeHeap { low: 0, high: 1 << 20, segmap, log2_segment_size: 7 })
    }

    #[test]
    fn block_is_found_by_any_segment() {
        let (memory, heap) = heap(&[0, 1, 2, 0, 1, FREE, 0, 9]);
        let first = |segment| first_segment(&memory, &heap, segment);
        assert_eq!([first(0), first(2), first(4), first(6)], [Some(0), Some(0), Some(3), Some(6)]);
        assert_eq!(first(5), None, "free");
        assert_eq!(first(7), None, "before the start of the map");
        assert_eq!(first(8), None, "beyond the end of the map");
        assert_eq!(first(u64::MAX), None);
    }

    #[test]
    fn large_block_is_found_in_few_steps() {
        let mut segments = vec![0; 3];
        segments.extend((1..=254).cycle().take(100_000));
        // Blocks that were merged have shorter steps.
        segments[2000] = 1;
        let (memory, heap) = heap(&segments);
        for segment in [3, 300, 2001, 50_000, 100_002] {
            assert_eq!(first_segment(&memory, &heap, segment), Some(2), "{segment}");
        }
        // One step per segment exceeds the limit.
        let (memory, heap) = self::heap(&[1; 50_000]);
        assert_eq!(first_segment(&memory, &heap, 49_999), None);
    }
}
