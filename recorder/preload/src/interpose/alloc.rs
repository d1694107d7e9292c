//! The allocator's functions. Each is a jump: to the allocator behind this object, or to the sampling
//! function ([`flightline_capture::alloc`]).
//!
//! The first call of any of them looks the real ones up. A C library's `dlsym` may itself allocate (glibc
//! before 2.34 does): such allocations come from a small [`EARLY`] area, whose blocks are recognised by their
//! address and never reused.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use flightline_capture::alloc::{self, FUNCTIONS, NAMES, SLOTS};
use flightline_in_signal::layout::alloc_function as function;

use crate::real::{KeepErrno, fail};

type Pointer = *mut c_void;
type Malloc = unsafe extern "C" fn(usize) -> Pointer;
type Free = unsafe extern "C" fn(Pointer);
type Two = unsafe extern "C" fn(usize, usize) -> Pointer;
type Realloc = unsafe extern "C" fn(Pointer, usize) -> Pointer;
type PosixMemalign = unsafe extern "C" fn(*mut Pointer, usize, usize) -> c_int;

/// Defines an exported function: a jump through its slot, or to its first call while the slot is empty.
macro_rules! entry {
    ($(#[$doc:meta])* $name:ident, $index:path, $first:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "mov rax, qword ptr [rip + {slots} + {offset}]",
                "test rax, rax",
                "je {first}",
                "jmp rax",
                ".cfi_endproc",
                slots = sym SLOTS,
                offset = const $index as usize * 8,
                first = sym $first,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "adrp x16, {slots}",
                "add x16, x16, #:lo12:{slots}",
                "ldr x16, [x16, #{offset}]",
                "cbz x16, 2f",
                "br x16",
                "2: b {first}",
                ".cfi_endproc",
                slots = sym SLOTS,
                offset = const $index as usize * 8,
                first = sym $first,
            )
        }
    };
}

entry! {
    /// `malloc(3)`.
    malloc, function::MALLOC, first_malloc
}
entry! {
    /// `free(3)`.
    free, function::FREE, first_free
}
entry! {
    /// `calloc(3)`.
    calloc, function::CALLOC, first_calloc
}
entry! {
    /// `realloc(3)`.
    realloc, function::REALLOC, first_realloc
}
entry! {
    /// `posix_memalign(3)`.
    posix_memalign, function::POSIX_MEMALIGN, first_posix_memalign
}
entry! {
    /// `aligned_alloc(3)`.
    aligned_alloc, function::ALIGNED_ALLOC, first_aligned
}
entry! {
    /// `memalign(3)`.
    memalign, function::MEMALIGN, first_memalign
}
entry! {
    /// `valloc(3)`.
    valloc, function::VALLOC, first_valloc
}

// ----- the first call -------------------------------------------------------------------------------------------

const UNKNOWN: u32 = 0;
const LOOKING: u32 = 1;
const KNOWN: u32 = 2;
static LOOKUP: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Looks the real functions up and fills the slots. Returns false while a lookup is running, in this thread
/// or in another one, which may be waiting for a lock that this thread holds.
pub fn look_up() -> bool {
    match LOOKUP.compare_exchange(UNKNOWN, LOOKING, AcqRel, Acquire) {
        Ok(_) => {}
        Err(state) => return state == KNOWN,
    }
    let _errno = KeepErrno::new();
    let mut real = [0usize; FUNCTIONS];
    for (to, name) in real.iter_mut().zip(NAMES) {
        // SAFETY: the name is NUL-terminated.
        *to = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    }
    for (index, to) in real.iter_mut().enumerate().filter(|(_, to)| **to == 0) {
        *to = missing(index);
    }
    if EARLY_USED.load(Acquire) != 0 {
        REAL_FREE.store(real[usize::from(function::FREE)], Relaxed);
        REAL_REALLOC.store(real[usize::from(function::REALLOC)], Relaxed);
        real[usize::from(function::FREE)] = guarded_free as Free as usize;
        real[usize::from(function::REALLOC)] = guarded_realloc as Realloc as usize;
    }
    // SAFETY: the loader's functions of these names, and guards of this module with the same types.
    unsafe { alloc::publish(&real) };
    LOOKUP.store(KNOWN, Release);
    true
}

/// Returns a replacement for a function that no later library defines.
fn missing(index: usize) -> usize {
    unsafe extern "C" fn no_memory() -> Pointer {
        fail(libc::ENOMEM);
        core::ptr::null_mut()
    }
    unsafe extern "C" fn no_memory_code() -> c_int {
        libc::ENOMEM
    }
    unsafe extern "C" fn nothing(_: Pointer) {}
    match index as u16 {
        function::FREE => nothing as Free as usize,
        function::POSIX_MEMALIGN => no_memory_code as unsafe extern "C" fn() -> c_int as usize,
        _ => no_memory as unsafe extern "C" fn() -> Pointer as usize,
    }
}

/// Returns the target of a function's slot, if the real functions are known.
macro_rules! known {
    ($index:expr => $type:ty) => {
        look_up().then(|| {
            let address = SLOTS[usize::from($index)].load(Acquire);
            // SAFETY: filled by `look_up` with functions of this type.
            unsafe { core::mem::transmute::<usize, $type>(address) }
        })
    };
}

unsafe extern "C" fn first_malloc(size: usize) -> Pointer {
    match known!(function::MALLOC => Malloc) {
        // SAFETY: the program's own call, forwarded to the allocator's function.
        Some(real) => unsafe { real(size) },
        None => early(size, ALIGN),
    }
}

unsafe extern "C" fn first_calloc(count: usize, each: usize) -> Pointer {
    match known!(function::CALLOC => Two) {
        // SAFETY: the program's own call, forwarded to the allocator's function.
        Some(real) => unsafe { real(count, each) },
        // The area is zeroed, and each block of it is used once.
        None => early(count.saturating_mul(each), ALIGN),
    }
}

unsafe extern "C" fn first_aligned(align: usize, size: usize) -> Pointer {
    match known!(function::ALIGNED_ALLOC => Two) {
        // SAFETY: the program's own call, forwarded to the allocator's function.
        Some(real) => unsafe { real(align, size) },
        None => early(size, align),
    }
}

unsafe extern "C" fn first_memalign(align: usize, size: usize) -> Pointer {
    match known!(function::MEMALIGN => Two) {
        // SAFETY: the program's own call, forwarded to the allocator's function.
        Some(real) => unsafe { real(align, size) },
        None => early(size, align),
    }
}

unsafe extern "C" fn first_valloc(size: usize) -> Pointer {
    match known!(function::VALLOC => Malloc) {
        // SAFETY: the program's own call, forwarded to the allocator's function.
        Some(real) => unsafe { real(size) },
        None => early(size, 4096),
    }
}

unsafe extern "C" fn first_posix_memalign(out: *mut Pointer, align: usize, size: usize) -> c_int {
    if let Some(real) = known!(function::POSIX_MEMALIGN => PosixMemalign) {
        // SAFETY: the program's own call, forwarded to the allocator's function.
        return unsafe { real(out, align, size) };
    }
    let block = early(size, align);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller of `posix_memalign` guarantees that `out` may be written.
    unsafe { out.write(block) };
    0
}

unsafe extern "C" fn first_free(address: Pointer) {
    // Before the first allocation by the real function, only early blocks and null can be freed.
    if let Some(real) = known!(function::FREE => Free) {
        // SAFETY: the program's own call, forwarded to the allocator's function.
        unsafe { real(address) }
    }
}

unsafe extern "C" fn first_realloc(address: Pointer, size: usize) -> Pointer {
    match known!(function::REALLOC => Realloc) {
        // SAFETY: the program's own call, forwarded to the allocator's function.
        Some(real) => unsafe { real(address, size) },
        // SAFETY: an early block or null, because the real function has not allocated yet.
        None => unsafe { grown(address, early(size, ALIGN), size) },
    }
}

// ----- blocks allocated before the allocator is known
// ----------------------------------------------------------------

const EARLY_BYTES: usize = 64 * 1024;
const ALIGN: usize = 16;

#[repr(C, align(4096))]
struct Early(core::cell::UnsafeCell<[u8; EARLY_BYTES]>);

// SAFETY: each part of the area is handed out once.
unsafe impl Sync for Early {}

static EARLY: Early = Early(core::cell::UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);
static REAL_FREE: AtomicUsize = AtomicUsize::new(0);
static REAL_REALLOC: AtomicUsize = AtomicUsize::new(0);

/// Returns a zeroed block that is never reused. Its size is stored before it.
fn early(size: usize, align: usize) -> Pointer {
    let base = EARLY.0.get() as usize;
    let align = align.max(ALIGN);
    let mut block = 0;
    let taken = EARLY_USED.fetch_update(AcqRel, Acquire, |used| {
        block = used.checked_add(ALIGN)?.checked_next_multiple_of(align)?;
        block.checked_add(size)?.checked_next_multiple_of(ALIGN).filter(|end| *end <= EARLY_BYTES)
    });
    if taken.is_err() {
        fail(libc::ENOMEM);
        return core::ptr::null_mut();
    }
    // SAFETY: inside the area, and the update above reserved this part, with the 16 bytes before it.
    unsafe { ((base + block - ALIGN) as *mut usize).write(size) };
    (base + block) as Pointer
}

fn is_early(address: Pointer) -> bool {
    (address as usize).wrapping_sub(EARLY.0.get() as usize) < EARLY_BYTES
}

/// Copies the contents of an early block, if any, to a new one.
unsafe fn grown(old: Pointer, new: Pointer, size: usize) -> Pointer {
    if !new.is_null() && !old.is_null() {
        // SAFETY: the size of an early block is stored before it; the new one has `size` bytes.
        unsafe {
            let len = (old as usize - ALIGN) as *const usize;
            core::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), len.read().min(size));
        }
    }
    new
}

unsafe extern "C" fn guarded_free(address: Pointer) {
    if !is_early(address) {
        let real = REAL_FREE.load(Relaxed);
        // SAFETY: the allocator's `free`.
        unsafe { core::mem::transmute::<usize, Free>(real)(address) }
    }
}

unsafe extern "C" fn guarded_realloc(address: Pointer, size: usize) -> Pointer {
    if is_early(address) {
        // SAFETY: the caller of `realloc` guarantees a valid block; both blocks are large enough for the
        // copy.
        return unsafe { grown(address, malloc_by_slot(size), size) };
    }
    let real = REAL_REALLOC.load(Relaxed);
    // SAFETY: the allocator's `realloc`.
    unsafe { core::mem::transmute::<usize, Realloc>(real)(address, size) }
}

fn malloc_by_slot(size: usize) -> Pointer {
    let address = SLOTS[usize::from(function::MALLOC)].load(Acquire);
    // SAFETY: the slot was filled before the guards can see an early block.
    unsafe { core::mem::transmute::<usize, Malloc>(address)(size) }
}
