//! Pages that the program requests from the kernel itself, by `mmap`, `mremap`, `sbrk` or `brk`.
//!
//! They are sampled in the same stream of bytes as the allocations of `malloc`. Mappings of the allocator
//! behind this object are not sampled: that memory counts when the allocator hands it out. (The C library's
//! own calls do not come here. Calls of another allocator are recognised by their return address.) A mapping
//! counts if it is anonymous and writable: a reservation uses no memory, and a file's pages belong to the
//! file.
//!
//! A range may be unmapped in parts, or by mapping over it. Once a sampled mapping is watched, every range
//! unmapped between the lowest and the highest such address is recorded, and the drain finds the mappings
//! that it belongs to.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{alloc_flags, alloc_function as function, event_kind};
use flightline_in_signal::publish::{Event, sync_event};

use super::{REAL, SAMPLING, count_unrecorded, due, recording, sampled, watched, words};
use crate::os;

const PAGE: usize = 4096;
/// `MREMAP_DONTUNMAP`
const DONTUNMAP: c_int = 4;

/// First and last address of the allocator's object; empty if the allocator is the C library.
static ALLOCATOR: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Lowest and highest address of the watched mappings.
static WATCHED: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(0)];

/// Returns true if mappings are sampled, or watched until they are unmapped.
#[inline]
pub fn is_enabled() -> bool {
    SAMPLING.load(Relaxed) || watching()
}

fn watching() -> bool {
    WATCHED[1].load(Relaxed) != 0 && watched().is_some()
}

/// Forgets all watched mappings.
pub(super) fn forget() {
    WATCHED[0].store(usize::MAX, Relaxed);
    WATCHED[1].store(0, Relaxed);
}

/// Handles a new mapping of `bytes` bytes at `at`, called from `caller`.
pub fn mapped(at: usize, bytes: usize, protection: c_int, flags: c_int, caller: usize) {
    if flags & libc::MAP_FIXED != 0 {
        unmapped(at, bytes);
    }
    if flags & libc::MAP_ANONYMOUS != 0 && protection & libc::PROT_WRITE != 0 {
        record_mapping(at, bytes, function::MMAP, caller);
    }
}

/// Handles a mapping that is about to be moved or resized, `fixed` to an address that the program chose. The
/// range that it leaves may belong to another thread immediately afterwards, so its free is recorded before
/// the call. If the kernel then refuses, the free of a range that still exists has been recorded.
pub fn moving(old: usize, old_bytes: usize, new_bytes: usize, flags: c_int) {
    if flags & DONTUNMAP != 0 || !old.is_multiple_of(PAGE) || new_bytes == 0 {
        return;
    }
    if flags & libc::MREMAP_MAYMOVE != 0 {
        unmapped(old, old_bytes);
    } else if new_bytes < old_bytes {
        unmapped(old.wrapping_add(new_bytes).next_multiple_of(PAGE), old_bytes - new_bytes);
    }
}

/// Handles a mapping that has moved to `at`. As with `realloc`, a new size is a new allocation. If it stayed
/// in place, only the added part is.
pub fn moved(old: usize, old_bytes: usize, at: usize, bytes: usize, flags: c_int, caller: usize) {
    if flags & libc::MREMAP_FIXED != 0 {
        unmapped(at, bytes);
    }
    let (at, bytes) = match flags & libc::MREMAP_MAYMOVE {
        0 if at == old => (at.wrapping_add(old_bytes), bytes.saturating_sub(old_bytes)),
        _ => (at, bytes),
    };
    if bytes != 0 && SAMPLING.load(Relaxed) && is_anonymous(at) {
        record_mapping(at, bytes, function::MREMAP, caller);
    }
}

/// Handles a change of the program break.
pub fn end_moved(from: usize, to: usize, by_sbrk: bool, caller: usize) {
    if to < from {
        given_back(to, from - to);
    } else if to > from {
        record_mapping(from, to - from, if by_sbrk { function::SBRK } else { function::BRK }, caller);
    }
}

/// Handles pages that were unmapped or are about to be. Calls that the kernel will refuse are ignored.
pub fn unmapped(at: usize, bytes: usize) {
    if let Some(whole) = bytes.checked_next_multiple_of(PAGE).filter(|_| at.is_multiple_of(PAGE)) {
        given_back(at, whole);
    }
}

fn given_back(at: usize, bytes: usize) {
    let hit = at < WATCHED[1].load(Relaxed) && WATCHED[0].load(Relaxed) < at.saturating_add(bytes);
    if !hit || bytes == 0 || watched().is_none() {
        return;
    }
    let extra = [at as u64, bytes as u64];
    let event = Event { kind: event_kind::FREE, index: alloc_flags::MAPPED, value: 0, extra: &extra };
    if recording() {
        // `record` counts an event that finds no room.
        let _ = sync_event::record(&event, false);
    } else {
        count_unrecorded(&event);
    }
}

fn record_mapping(at: usize, bytes: usize, index: u16, caller: usize) {
    let allocator = ALLOCATOR[0].load(Relaxed)..ALLOCATOR[1].load(Relaxed);
    if !SAMPLING.load(Relaxed) || allocator.contains(&caller) || !words::take(bytes) {
        return;
    }
    if let Some(weight) = due(bytes) {
        sampled(at, bytes, weight, index | alloc_flags::MAPPED);
    }
}

/// Records a sampled mapping.
pub(super) fn record(at: usize, bytes: usize, event: Event<'_>) {
    let mut index = event.index;
    if watched().is_some() {
        index |= alloc_flags::WATCHED;
        WATCHED[0].fetch_min(at, Relaxed);
        WATCHED[1].fetch_max(at.saturating_add(bytes).saturating_add(PAGE), Relaxed);
    }
    let _ = sync_event::record(&Event { index, extra: &[at as u64, bytes as u64], ..event }, true);
}

/// Returns true if the kernel's map shows an anonymous mapping at this address. Only called after an `mremap`
/// that moved a mapping.
fn is_anonymous(address: usize) -> bool {
    const PATH: &CStr = c"/proc/self/maps";
    let Ok(fd) = os::open(PATH, libc::O_RDONLY, 0) else { return false };
    let mut buffer = [0u8; 4096];
    let mut have = 0;
    loop {
        let Some(room) = buffer.get_mut(have..) else { return false };
        let more = os::read(&fd, room).unwrap_or(0);
        if more == 0 {
            return false;
        }
        have += more;
        let mut from = 0;
        while let Some(text) = buffer.get(from..have)
            && let Some(len) = text.iter().position(|c| *c == b'\n')
        {
            if let Some(answer) = line_says(text.get(..len).unwrap_or_default(), address) {
                return answer;
            }
            from += len + 1;
        }
        if from == 0 && have == buffer.len() {
            // A path longer than the buffer: its line is cut, and its rest is parsed as a line of its own.
            have = 0;
        }
        buffer.copy_within(from..have, 0);
        have -= from.min(have);
    }
}

/// Parses one line of the map: `None` if it is about another address, else whether the mapping is anonymous.
fn line_says(line: &[u8], address: usize) -> Option<bool> {
    let mut fields = line.split(|c| *c == b' ').filter(|field| !field.is_empty());
    let mut range = fields.next()?.split(|c| *c == b'-').map(hexadecimal);
    let (from, to) = (range.next()??, range.next()??);
    // Permissions, offset, device; then the inode.
    let inode = fields.nth(3)?;
    (from..to).contains(&address).then_some(inode == b"0")
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0usize, |n, digit| Some(n << 4 | (*digit as char).to_digit(16)? as usize))
}

/// Stores the bounds of the allocator's object, whose own mappings do not count. Not for handlers.
pub(super) fn learn_allocator() {
    struct Search {
        allocator: usize,
        libc: usize,
        found: [usize; 2],
    }
    unsafe extern "C" fn object(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description, and the pointer given to it below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: dlpi_phdr points to dlpi_phnum headers that stay mapped during the callback.
        let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let bias = info.dlpi_addr as usize;
        let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let range = loads.fold([usize::MAX, 0], |[low, high], h| {
            let from = bias.wrapping_add(h.p_vaddr as usize);
            [low.min(from), high.max(from.wrapping_add(h.p_memsz as usize))]
        });
        let holds = |address: usize| (range[0]..range[1]).contains(&address);
        if holds(search.allocator) && !holds(search.libc) {
            search.found = range;
        }
        0
    }
    let libc = libc::getenv as unsafe extern "C" fn(*const core::ffi::c_char) -> *mut core::ffi::c_char;
    let mut search = Search { allocator: REAL[0].load(Relaxed), libc: libc as usize, found: [0; 2] };
    // SAFETY: the callback gets exactly this pointer back, during this call only.
    unsafe { libc::dl_iterate_phdr(Some(object), (&raw mut search).cast()) };
    for (to, from) in ALLOCATOR.iter().zip(search.found) {
        to.store(from, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_map_lines_are_parsed() {
        let heap = b"55d0c0f6e000-55d0c0f8f000 rw-p 00000000 00:00 0                          [heap]";
        let file = b"7f1c8c000000-7f1c8c021000 r--s 00001000 08:01 1234                       /a b";
        assert_eq!(line_says(heap, 0x55d0_c0f6_e000), Some(true));
        assert_eq!(line_says(heap, 0x55d0_c0f8_f000), None);
        assert_eq!(line_says(file, 0x7f1c_8c01_0000), Some(false));
        assert_eq!((line_says(b"", 0), line_says(b"x-y", 0)), (None, None));
    }

    #[test]
    fn mapped_memory_differs_from_mapped_files() {
        let memory = os::map(None, PAGE, libc::PROT_READ, libc::MAP_PRIVATE).unwrap();
        let fd = os::open(c"/proc/self/exe", libc::O_RDONLY, 0).unwrap();
        let file = os::map(Some(&fd), PAGE, libc::PROT_READ, libc::MAP_PRIVATE).unwrap();
        assert!(is_anonymous(memory));
        assert!(!is_anonymous(file) && !is_anonymous(0));
        // SAFETY: mapped above.
        unsafe {
            os::unmap(memory, PAGE);
            os::unmap(file, PAGE);
        }
    }
}
