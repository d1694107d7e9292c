//! The span of the interrupted thread: the record of OpenTelemetry's thread context (OTEP 4947) that the
//! thread has published. `labels` reads the labels of a thread that has no span.
//!
//! ```text
//! thread pointer + offset ─▶ pointer ─▶ trace_id[16] span_id[8] valid flags attrs_size[2] attrs[attrs_size]
//!                                       directly before a record of ours: the side-car, 64 bytes
//! ```
//! In libraries that are loaded while the program runs, the drain finds the variable ([`place`]).
//!
//! The writer is the thread itself and publishes by one store of the pointer: its handler sees the old record
//! or the new one. The writer may be any library, so a record is copied by a system call that checks the
//! address. Plain loads are used only for memory in which a record of this project was found before, because
//! that memory stays mapped until the thread ends.
//!
//! In a sample's record the context follows the stack. A thread without a context costs three loads per
//! sample.

pub(crate) mod labels;

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::layout::{
    CONTEXT_PLACES, HEAD_WORDS, MAX_CONTEXT, RECORD_BYTES, RECORD_HEAD, SampleRecord, ThreadSlot,
    context_word, sample_flags,
};
use crate::os::sys;
use crate::state::ProcState;

/// Bytes of the side-car.
pub const CAR_BYTES: usize = 64;
/// First four bytes of the side-car, "FLCX".
pub const CAR_MAGIC: u32 = 0x5843_4c46;
/// Words of the side-car.
pub mod car {
    /// The magic number, and in the upper half the length of the name.
    pub const MAGIC: usize = 0;
    /// Changes with each new contents of the record; 0 while they are written.
    pub const VERSION: usize = 1;
    /// The activation's number.
    pub const SEQ: usize = 2;
    /// The local root's id.
    pub const ROOT: usize = 3;
    /// The parent's id.
    pub const PARENT: usize = 4;
    /// Address of the record that was active before.
    pub const PREVIOUS: usize = 5;
    /// Start of the activation, `CLOCK_MONOTONIC` ns.
    pub const START: usize = 6;
    /// Address of the name.
    pub const NAME: usize = 7;
}

/// Location of a thread-local variable, in two words: the generation of the loader's modules that a thread
/// must have seen, and one of the encodings below. The drain finds the location. Handlers read the memory
/// there only by calls that check the address.
pub mod place {
    /// Kinds, in the low byte.
    const FIXED: u64 = 1;
    const DYNAMIC: u64 = 2;
    /// Flag next to the kind: the variable leads to labels only ([`crate::context::labels`]).
    pub const LABELS: u64 = 0x80;

    /// A variable at the same distance from the thread pointer in all threads.
    pub const fn fixed(distance: i64) -> u64 {
        ((distance as u64) << 8) | FIXED
    }

    /// A variable in the block that each thread has for a module (glibc's dynamic thread vector). Returns
    /// `None` if the numbers do not fit into a word.
    pub const fn dynamic(module: u64, offset: u64) -> Option<u64> {
        if module == 0 || module >> 24 != 0 || offset >> 32 != 0 {
            return None;
        }
        Some(offset << 32 | module << 8 | DYNAMIC)
    }

    /// A decoded location.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TlsLocation {
        /// Distance from the thread pointer.
        Fixed(u64),
        /// Module and offset in its block.
        Dynamic(u64, u64),
    }

    /// Decodes a word.
    pub const fn read(word: u64) -> Option<TlsLocation> {
        match word & 0xff & !LABELS {
            FIXED => Some(TlsLocation::Fixed((word as i64 >> 8) as u64)),
            DYNAMIC => Some(TlsLocation::Dynamic(word >> 8 & 0xff_ffff, word >> 32)),
            _ => None,
        }
    }
}

/// Distances from the thread pointer to the words that point to records: this project's, and another
/// writer's. 0: none.
static OFFSETS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Sets the distances at which threads store their contexts; 0 = none. Both must lie in every thread's static
/// TLS.
pub fn set_offsets(offsets: [usize; 2]) {
    for (to, offset) in OFFSETS.iter().zip(offsets) {
        to.store(offset, Relaxed);
    }
}

/// Returns the distances of the last [`set_offsets`].
pub fn offsets() -> [usize; 2] {
    let [ours, other] = &OFFSETS;
    [ours.load(Relaxed), other.load(Relaxed)]
}

/// The calling thread's thread pointer.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word at the thread pointer is the thread pointer.
    unsafe {
        core::arch::asm!("mov {p}, qword ptr fs:[0]", p = out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {p}, tpidr_el0", p = out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// The calling thread's word at `offset`.
#[inline]
fn word(offset: usize) -> u64 {
    let at = thread_pointer().wrapping_add(offset) as *const u64;
    // SAFETY: `set_offsets` requires that this is an aligned word of every thread's static TLS.
    unsafe { at.read_volatile() }
}

/// Copies the calling thread's context to `to`. Returns the number of words in use; 0: the thread has no
/// context.
#[inline]
pub fn take(
    state: &ProcState,
    slot: Option<&ThreadSlot>,
    fixed: &mut SampleRecord,
    to: &mut [u64; MAX_CONTEXT],
) -> usize {
    let [ours, other] = offsets();
    if ours | other == 0 {
        return 0;
    }
    let mut at = if ours != 0 { word(ours) } else { 0 };
    if at == 0 && other != 0 {
        at = word(other);
    }
    let words = if at != 0 {
        copy(state.pid, slot, at, to)
    } else {
        let [first, ..] = &state.header.contexts.places;
        let [_, place] = first;
        if place.load(Relaxed) == 0 {
            return 0;
        }
        let places = state.header.contexts.places.each_ref().map(|[generation, place]| {
            let place = place.load(Acquire);
            [generation.load(Relaxed), place]
        });
        found(state.pid, slot, thread_pointer() as u64, &places, to)
    };
    if words != 0 {
        fixed.flags |= sample_flags::CONTEXT;
    }
    words
}

/// Copies the context found through one of the locations.
#[inline(never)]
fn found(
    pid: u32,
    slot: Option<&ThreadSlot>,
    pointer: u64,
    places: &[[u64; 2]; CONTEXT_PLACES],
    to: &mut [u64; MAX_CONTEXT],
) -> usize {
    for [generation, word] in places {
        let Some(place) = place::read(*word) else { break };
        let mut at = [0u64];
        let variable = variable(pid, pointer, place, *generation);
        if variable == 0 || checked(pid, variable, &mut at) != size_of_val(&at) || at == [0] {
            continue;
        }
        let words =
            if word & place::LABELS != 0 { labels::copy(pid, at[0], to) } else { copy(pid, slot, at[0], to) };
        if words != 0 {
            return words;
        }
    }
    0
}

/// Bytes from the thread pointer to the pointer to glibc's vector of the thread's blocks.
#[cfg(target_arch = "x86_64")]
const TO_VECTOR: u64 = 8;
#[cfg(target_arch = "aarch64")]
const TO_VECTOR: u64 = 0;

/// Address of a thread's variable; 0 if it has none (yet).
fn variable(pid: u32, pointer: u64, place: place::TlsLocation, generation: u64) -> u64 {
    let (module, offset) = match place {
        place::TlsLocation::Fixed(distance) => return pointer.wrapping_add(distance),
        place::TlsLocation::Dynamic(module, offset) => (module, offset),
    };
    // Layout of the vector: at -1 the number of entries; at 0 the generation of modules that it is up to date
    // with; then, for each module, its block and the pointer to free.
    const ENTRY: u64 = 16;
    const NOT_YET: u64 = u64::MAX;
    let (mut vector, mut head, mut entry) = ([0u64], [0u64; 4], [0u64]);
    let got = checked(pid, pointer.wrapping_add(TO_VECTOR), &mut vector);
    if got != size_of_val(&vector)
        || checked(pid, vector[0].wrapping_sub(ENTRY), &mut head) != size_of_val(&head)
        || head[0] < module
        || head[2] < generation
    {
        return 0;
    }
    let at = vector[0].wrapping_add(module.wrapping_mul(ENTRY));
    let known = checked(pid, at, &mut entry) == size_of_val(&entry) && entry != [0] && entry != [NOT_YET];
    if known { entry[0].wrapping_add(offset) } else { 0 }
}

/// Copies the context of a thread of another process, which is stopped, as [`take`] does; `pointer` is its
/// thread pointer.
pub fn outside(
    pid: u32,
    pointer: u64,
    offsets: [u64; 2],
    places: &[[u64; 2]; CONTEXT_PLACES],
    to: &mut [u64; MAX_CONTEXT],
) -> usize {
    for offset in offsets {
        let mut at = [0u64];
        if offset != 0
            && pointer != 0
            && checked(pid, pointer.wrapping_add(offset), &mut at) == size_of_val(&at)
            && at != [0]
        {
            return copy(pid, None, at[0], to);
        }
    }
    if pointer == 0 || offsets == [0; 2] {
        return 0;
    }
    found(pid, None, pointer, places, to)
}

#[inline(never)]
fn copy(pid: u32, slot: Option<&ThreadSlot>, at: u64, to: &mut [u64; MAX_CONTEXT]) -> usize {
    let own = slot.is_some_and(|slot| is_known(slot, at));
    if let Some(slot) = slot
        && slot.memory.thread_pointer.load(Relaxed) == 0
    {
        // Another thread registered this one.
        slot.memory.thread_pointer.store(thread_pointer() as u64, Relaxed);
    }
    let mut car = [0u64; CAR_BYTES / 8];
    let Some((_, record)) = to.split_at_mut_checked(HEAD_WORDS) else { return 0 };
    let ours = if own {
        // SAFETY: a record of this project was found before in every page from the side-car to the record's
        // end; such memory stays mapped until the thread's end.
        unsafe {
            plain(at.wrapping_sub(CAR_BYTES as u64), &mut car);
            plain(at, record.get_mut(..RECORD_HEAD.div_ceil(8)).unwrap_or_default());
            let words = record_size(record).div_ceil(8).min(record.len());
            plain(at, record.get_mut(..words).unwrap_or_default());
        }
        is_car(&car)
    } else {
        let got = checked(pid, at, record);
        if got < RECORD_HEAD || got < record_size(record) {
            return 0;
        }
        // Records of this project have this alignment. Records of other writers fail the check for the magic
        // number.
        let ours = at.is_multiple_of(CAR_BYTES as u64)
            && checked(pid, at.wrapping_sub(CAR_BYTES as u64), &mut car) == CAR_BYTES
            && is_car(&car);
        if let (true, Some(slot)) = (ours && got == RECORD_BYTES, slot) {
            know(slot, at);
        }
        ours
    };
    finish(to, ours.then_some(&car))
}

/// Completes the record that was copied after [`HEAD_WORDS`]. Returns the number of words in use; 0 if the
/// record is not valid.
pub fn finish(to: &mut [u64; MAX_CONTEXT], car: Option<&[u64; CAR_BYTES / 8]>) -> usize {
    let Some(record) = to.get(HEAD_WORDS..) else { return 0 };
    let bytes = record_size(record);
    let head = record.get(3).copied().unwrap_or(0);
    let span = record.get(2).copied().unwrap_or(0);
    const VALID: u64 = 1;
    if head & 0xff != VALID || bytes > RECORD_BYTES || (span == 0 && bytes == RECORD_HEAD) {
        return 0;
    }
    let words = HEAD_WORDS.wrapping_add(bytes.div_ceil(8));
    let word = |i: usize| car.and_then(|car| car.get(i)).copied().unwrap_or(0);
    let head = [context_word(words as u32, car.is_some()), word(car::SEQ), word(car::ROOT)];
    for (to, value) in to.iter_mut().zip(head) {
        *to = value;
    }
    words
}

/// Size of the record in bytes, with its head, according to its header.
fn record_size(record: &[u64]) -> usize {
    let size = record.get(3).map_or(0, |word| (word >> 16) & 0xffff);
    (size as usize).wrapping_add(RECORD_HEAD)
}

/// Returns true if these are the words of a side-car.
pub fn is_car(car: &[u64; CAR_BYTES / 8]) -> bool {
    car.first().is_some_and(|word| *word as u32 == CAR_MAGIC)
}

/// # Safety
/// Words from `at` on are mapped.
unsafe fn plain(at: u64, to: &mut [u64]) {
    let mut from = at as *const u64;
    for to in to {
        // SAFETY: the caller guarantees that the words from `at` on are mapped.
        *to = unsafe { from.read_unaligned() };
        from = from.wrapping_add(1);
    }
}

fn checked(pid: u32, at: u64, to: &mut [u64]) -> usize {
    // SAFETY: the buffer is as long as the slice.
    unsafe { sys::read_process(pid, at, to.as_mut_ptr().cast(), size_of_val(to)) }
}

const PAGE: u64 = 4096;

/// First and last page of a record of this project at `at`, including its side-car.
fn pages(at: u64) -> Option<(u64, u64)> {
    let from = at.checked_sub(CAR_BYTES as u64)? & !(PAGE - 1);
    let to = at.checked_add(RECORD_BYTES as u64 + PAGE - 1)? & !(PAGE - 1);
    Some((from, to))
}

fn is_known(slot: &ThreadSlot, at: u64) -> bool {
    let [from, to] = &slot.memory.context_pages;
    at & 7 == 0 && pages(at).is_some_and(|(low, high)| low >= from.load(Relaxed) && high <= to.load(Relaxed))
}

/// Stores that a record of this project was read at `at`: its pages stay mapped until the thread's end.
fn know(slot: &ThreadSlot, at: u64) {
    let Some((low, high)) = pages(at) else { return };
    let [from, to] = &slot.memory.context_pages;
    let (old_low, old_high) = (from.load(Relaxed), to.load(Relaxed));
    // Merge only adjacent pages: the memory between two other ranges may be anything.
    let beside = low <= old_high && high >= old_low;
    from.store(if beside { low.min(old_low) } else { low }, Relaxed);
    to.store(if beside { high.max(old_high) } else { high }, Relaxed);
}
