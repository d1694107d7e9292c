//! The records in a process's ring.

/// Maximum number of an event's words between its fixed part and its stack.
pub const MAX_EXTRA: usize = 192;

/// Kinds of [`record::EVENT`] records. The words of each kind are described where they are written.
pub mod event_kind {
    /// A perf event; index = its index in [`super::super::SessionPage::events`], value = number of events
    /// that the sample represents.
    pub const PERF: u16 = 1;
    /// A running thread sampled by the wall clock.
    pub const WALL: u16 = 2;
    /// An allocation; value = bytes that the sample represents.
    pub const ALLOC: u16 = 3;
    /// A sampled allocation was freed.
    pub const FREE: u16 = 4;
    /// A wait for a lock; value = ns.
    pub const LOCK: u16 = 5;
    /// A slow read or write; value = ns.
    pub const IO: u16 = 6;
    /// An exception or panic.
    pub const THROW: u16 = 7;
    /// A slow call of a named function; value = ns.
    pub const TRACE: u16 = 8;
    /// A last sample, see [`crate::payload::fatal`].
    pub const SIGNAL: u16 = 9;
    /// A span that ended, see [`crate::payload::span`]; value = ns.
    pub const SPAN: u16 = 10;
    /// An activation of a span that ended, see [`crate::payload::scope`]; value = ns.
    pub const SCOPE: u16 = 11;
    /// Off-CPU time that a thread records when it enters or leaves a span, see [`crate::payload::waited`];
    /// value = ns that the event represents.
    pub const WAITED: u16 = 12;
    /// One past the highest kind.
    pub const KINDS: usize = 13;
    /// Stable names, as they appear in recordings.
    pub const NAMES: [&str; KINDS] = [
        "", "perf", "wall", "alloc", "free", "lock", "io", "throw", "trace", "signal", "span", "scope",
        "waited",
    ];
}

/// The function that allocated: low half of the index of an [`event_kind::ALLOC`] event. The event's extra
/// words are the address and the requested size; those of an [`event_kind::FREE`] event are the address.
pub mod alloc_function {
    /// `malloc`
    pub const MALLOC: u16 = 0;
    /// `free`, never in an event.
    pub const FREE: u16 = 1;
    /// `calloc`
    pub const CALLOC: u16 = 2;
    /// `realloc`
    pub const REALLOC: u16 = 3;
    /// `posix_memalign`
    pub const POSIX_MEMALIGN: u16 = 4;
    /// `aligned_alloc`
    pub const ALIGNED_ALLOC: u16 = 5;
    /// `memalign`
    pub const MEMALIGN: u16 = 6;
    /// `valloc`
    pub const VALLOC: u16 = 7;
    /// `operator new` of an allocator that has its own.
    pub const NEW: u16 = 8;
    /// `mmap` of anonymous, writable memory.
    pub const MMAP: u16 = 9;
    /// `mremap` of such memory.
    pub const MREMAP: u16 = 10;
    /// `sbrk` by the program itself.
    pub const SBRK: u16 = 11;
    /// `brk` by the program itself.
    pub const BRK: u16 = 12;
}

/// Bits of the index of an [`event_kind::ALLOC`] event.
pub mod alloc_flags {
    /// Its free will be recorded.
    pub const WATCHED: u16 = 1 << 8;
    /// A range of pages, of which any part can be unmapped. Its free is a free event with this flag and two
    /// words, start and bytes.
    pub const MAPPED: u16 = 1 << 9;
}

/// Kinds of ring records.
pub mod record {
    /// Filler up to the end of the ring memory.
    pub const PAD: u8 = 1;
    /// [`super::SampleRecord`] followed by `depth` addresses, leaf first; those of the kernel are in the upper half.
    pub const SAMPLE: u8 = 2;
    /// [`super::SampleRecord`] (its `weight_ns` is the event's value), a word of [`super::event_word`], the extra
    /// words, then `depth` addresses, leaf first.
    pub const EVENT: u8 = 3;
    /// A thread got a name: the first two words of a [`super::SampleRecord`], then the 16 bytes of the name.
    pub const NAME: u8 = 4;
}

/// The word after the fixed part of a [`record::EVENT`].
#[inline]
pub const fn event_word(kind: u16, index: u16, extra: u32) -> u64 {
    kind as u64 | (index as u64) << 16 | (extra as u64) << 32
}

/// In the first word of a context: its attributes are keys and values as texts, each preceded by a byte with
/// its length ([`crate::context::labels`]).
pub const TEXT_LABELS: u64 = 1 << 33;

/// First word of a context after a stack: its length in words, itself included, and whether a side-car was
/// read. The number of the activation and the local root's id follow (0 without a side-car), then the bytes
/// of the record, see [`crate::context`].
#[inline]
pub const fn context_word(words: u32, ours: bool) -> u64 {
    words as u64 | (ours as u64) << 32
}

/// Fixed part of a sample, after the ring's header word. All words are little-endian u64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// Kernel thread id.
    pub tid: u32,
    /// Index of the thread's slot; `u32::MAX` if it has none.
    pub slot: u32,
    /// CPU time of the thread since its previous sample or loss, ns.
    pub weight_ns: u64,
    /// Frames that follow.
    pub depth: u16,
    /// [`sample_flags`].
    pub flags: u16,
    /// Module table generation used for the walk.
    pub modules_gen: u32,
    /// Low bits: bit i set = frame i (i < 64) was interrupted by a signal, so its address is exact, not a return address.
    pub exact_frames: u64,
}

/// Bits of [`SampleRecord::flags`].
pub mod sample_flags {
    /// The walk did not reach the root; the reason is in the bits of [`REASON_MASK`].
    pub const TRUNCATED: u16 = 1;
    /// Bits 8..16: why the walk ended, see [`super::walk_end`].
    pub const REASON_SHIFT: u16 = 8;
    /// Mask of the reason after shifting.
    pub const REASON_MASK: u16 = 0xff;
    /// First sample of its thread (random phase).
    pub const FIRST: u16 = 2;
    /// Taken through a timer: the thread's engine, or a timer that complements a perf event.
    pub const TIMER: u16 = 4;
    /// At least one frame was found by its frame pointer, because no unwind information covers it.
    pub const GUESSED: u16 = 8;
    /// The stack is followed by the thread's context, see [`super::context_word`].
    pub const CONTEXT: u16 = 16;
}

/// How a walk ended.
pub mod walk_end {
    /// Undefined return address by CFI, or a null return address in a frame-pointer chain: the root.
    pub const ROOT: u16 = 0;
    /// Deeper than the limit.
    pub const DEPTH: u16 = 1;
    /// No unwind information for an address and no plausible frame pointer.
    pub const NO_INFO: u16 = 2;
    /// A stack word outside the known bounds or unreadable.
    pub const BAD_STACK: u16 = 3;
    /// The canonical frame address did not grow.
    pub const NO_PROGRESS: u16 = 4;
    /// Unwind information that is malformed or not supported.
    pub const BAD_INFO: u16 = 5;
    /// The walk reached its maximum number of checked reads or simulated instructions.
    pub const TOO_LONG: u16 = 6;
    /// The walk reached the end of the part of the stack that was copied. Only for stacks that the recorder walks from outside.
    pub const COPY_END: u16 = 7;
}

/// Bytes of a context record (OTEP 4947) before its attributes.
pub const RECORD_HEAD: usize = 28;
/// Maximum bytes of a context record that are read, as the proposal recommends.
pub const RECORD_BYTES: usize = 640;
/// Words of a context in the ring before the record itself.
pub const HEAD_WORDS: usize = 3;
/// Maximum number of words of a context in the ring.
pub const MAX_CONTEXT: usize = HEAD_WORDS + RECORD_BYTES / 8;
