//! Finds the JVM of a process: reads the description in `libjvm.so`, and publishes the code cache for the
//! walker in the program's handlers.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use flightline_in_signal::layout::{CODE_HEAPS, CodeHeap, JvmLayout};

use super::layout::{HotspotLayout, Position};
use super::memory::{ReadMemory, RemoteMemory};
use super::vm_structs::{LayoutError, LibjvmSymbols};
use crate::names::images::Images;
use crate::names::modules::{Mapping, ModuleMap};

/// Limit of the size of a code cache. The largest that HotSpot reserves has 2 GiB.
const MAX_CODE_CACHE: u64 = 1 << 32;
/// Largest and smallest binary logarithm of a segment's size.
const SEGMENT_SHIFTS: std::ops::RangeInclusive<u32> = 3..=16;

/// Time after which `libjvm.so` must have been relocated, ns.
const RELOCATED_NS: u64 = 2_000_000_000;

/// The result of the search for a JVM.
#[derive(Default)]
enum State {
    /// No JVM is known.
    #[default]
    None,
    /// It has a JVM, which has not created its code cache yet.
    Starting(Box<HotspotLayout>),
    /// Its code cache is published.
    Published(Box<HotspotLayout>),
    /// Its version or description is unknown.
    Unsupported,
}

/// The search for the JVM of a process.
#[derive(Default)]
pub struct Discovery {
    state: State,
    /// Version of the modules that were searched without success.
    searched: u64,
    /// When `libjvm.so` was first seen, CLOCK_MONOTONIC ns; 0: not yet.
    found_ns: u64,
}

/// A result of the search.
#[derive(Debug, PartialEq)]
pub enum DiscoveryEvent {
    /// Its code cache is published: start address and layout.
    Published(u64, Box<HotspotLayout>),
    /// Its stacks will be recorded as those of native programs, for this reason.
    Unsupported(String),
}

impl Discovery {
    /// Returns the description of the JVM, which may be starting.
    pub fn layout(&self) -> Option<&HotspotLayout> {
        match &self.state {
            State::Starting(layout) | State::Published(layout) => Some(layout),
            State::None | State::Unsupported => None,
        }
    }

    /// Searches for a JVM if the modules have changed, and publishes its code cache in `shared`.
    pub fn search(
        &mut self,
        pid: u32,
        shared: &JvmLayout,
        modules: &ModuleMap,
        images: &Images,
        now_ns: u64,
    ) -> Option<DiscoveryEvent> {
        // The walker knows the frames of this architecture only.
        if cfg!(not(target_arch = "x86_64")) {
            return None;
        }
        let memory = RemoteMemory { pid };
        if matches!(self.state, State::None) && self.searched != modules.version {
            let file = |mapping: &&Mapping| {
                images.get(mapping.image).path.file_name().is_some_and(|name| name == "libjvm.so")
            };
            let Some(mapping) = modules.current().iter().find(file) else {
                self.searched = modules.version;
                return None;
            };
            if self.found_ns == 0 {
                self.found_ns = now_ns;
            }
            match read_layout(&memory, &images.get(mapping.image).path, mapping.bias) {
                Ok(layout) => self.state = State::Starting(Box::new(layout)),
                // The dynamic loader may still be relocating the tables.
                Err(_) if now_ns.saturating_sub(self.found_ns) < RELOCATED_NS => return None,
                Err(error) => {
                    self.state = State::Unsupported;
                    return Some(DiscoveryEvent::Unsupported(error.to_string()));
                }
            }
        }
        let layout = match &self.state {
            State::None | State::Unsupported => return None,
            State::Published(layout) => {
                publish_interpreter(&memory, layout, shared);
                publish_heaps(&memory, layout, shared);
                return None;
            }
            State::Starting(layout) => layout,
        };
        let start = publish(&memory, layout, shared)?;
        let layout = layout.clone();
        self.state = State::Published(layout.clone());
        Some(DiscoveryEvent::Published(start, layout))
    }
}

fn read_layout(memory: &RemoteMemory, path: &Path, bias: u64) -> Result<HotspotLayout, LayoutError> {
    let inside =
        Path::new(&format!("/proc/{}/root", memory.pid)).join(path.strip_prefix("/").unwrap_or(path));
    let symbols = LibjvmSymbols::read(&inside).or_else(|_| LibjvmSymbols::read(path))?;
    HotspotLayout::read(memory, &symbols, bias)
}

/// Publishes the code cache; returns its start. `None` if the JVM has not created it or its interpreter yet.
fn publish(memory: &RemoteMemory, layout: &HotspotLayout, shared: &JvmLayout) -> Option<u64> {
    let cache = &layout.code_cache;
    let start = memory.u64(cache.low_bound)?;
    let size = memory.u64(cache.high_bound)?.checked_sub(start)?;
    if start == 0 || size == 0 || size > MAX_CODE_CACHE {
        return None;
    }
    let heap = heaps(memory, layout)?.into_iter().next()?;
    let shift = memory.u32(heap.checked_add(u64::from(cache.log2_segment_size))?)?;
    if !SEGMENT_SHIFTS.contains(&shift)
        || !publish_interpreter(memory, layout, shared)
        || !publish_heaps(memory, layout, shared)
    {
        return None;
    }
    let set = |to: &AtomicU32, value: u32| to.store(value, Ordering::Relaxed);
    let blob = &shared.blob;
    set(&blob.size, layout.blob.size.offset);
    set(&blob.frame_size, layout.blob.frame_size.offset);
    let complete = layout.blob.frame_complete;
    set(&blob.frame_complete[0], complete.offset);
    set(&blob.frame_complete[1], complete.width.into());
    let (Position::Address(code) | Position::FromBlob(code) | Position::FromCode(code)) = layout.blob.code;
    set(&blob.code[0], code.offset);
    set(&blob.code[1], code.width.into());
    set(&blob.compile_id, layout.nmethod.compile_id.offset);
    set(&shared.segment_shift, shift);
    set(&shared.block_header, cache.block_header_size);
    let set = |to: &AtomicU64, value: u64| to.store(value, Ordering::Relaxed);
    set(&shared.call_stub_return, memory.u64(layout.frame.call_stub_return_address)?);
    set(&shared.code_start, start);
    shared.code_size.store(size, Ordering::Release);
    Some(start)
}

/// Publishes the range of the interpreter's code. Returns false if the JVM has not created it yet. The JVM
/// releases the unused end of the range when the interpreter is complete, and uses it for other code.
fn publish_interpreter(memory: &RemoteMemory, layout: &HotspotLayout, shared: &JvmLayout) -> bool {
    let Some([start, end]) = interpreter(memory, layout) else { return false };
    shared.interpreter[0].store(start, Ordering::Relaxed);
    shared.interpreter[1].store(end, Ordering::Relaxed);
    true
}

/// Returns the first address of the interpreter, and one past its last.
fn interpreter(memory: &RemoteMemory, layout: &HotspotLayout) -> Option<[u64; 2]> {
    let queue = memory.u64(layout.frame.interpreter_code).filter(|queue| *queue != 0)?;
    let start = memory.u64(queue.checked_add(u64::from(layout.frame.stub_queue_buffer))?)?;
    let size = memory.u32(queue.checked_add(u64::from(layout.frame.stub_queue_limit))?)?;
    (start != 0 && size != 0).then(|| [start, start.wrapping_add(u64::from(size))])
}

/// Returns the addresses of the code heaps.
fn heaps(memory: &RemoteMemory, layout: &HotspotLayout) -> Option<Vec<u64>> {
    let cache = &layout.code_cache;
    let array = memory.u64(cache.heaps).filter(|array| *array != 0)?;
    let count = memory.u32(array.checked_add(u64::from(cache.array_len))?)?;
    let data = memory.u64(array.checked_add(u64::from(cache.array_data))?)?;
    (0..u64::from(count).min(CODE_HEAPS as u64)).map(|i| memory.u64(data.wrapping_add(8 * i))).collect()
}

/// Publishes the committed parts of the code heaps. Returns false if there is none.
fn publish_heaps(memory: &RemoteMemory, layout: &HotspotLayout, shared: &JvmLayout) -> bool {
    let found = heaps(memory, layout).unwrap_or_default();
    for (heap, to) in found.iter().zip(&shared.heaps) {
        publish_heap(memory, layout, *heap, to);
    }
    !found.is_empty()
}

fn publish_heap(memory: &RemoteMemory, layout: &HotspotLayout, heap: u64, to: &CodeHeap) {
    let cache = &layout.code_cache;
    let [low, high, segments, segments_end] =
        [cache.heap_low, cache.heap_high, cache.segmap_low, cache.segmap_high]
            .map(|offset| heap.wrapping_add(u64::from(offset)));
    let values = [low, high, segments, segments_end].map(|address| memory.u64(address));
    let [Some(start), Some(end), Some(map), Some(map_end)] = values else { return };
    if start == 0 || start > end || map > map_end {
        return;
    }
    let set = |to: &AtomicU64, value: u64| to.store(value, Ordering::Relaxed);
    set(&to.segments, map);
    set(&to.segments_end_at, segments_end);
    set(&to.segments_end, map_end);
    set(&to.end_at, high);
    set(&to.start, start);
    to.end.store(end, Ordering::Release);
}
