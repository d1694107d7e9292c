//! The exported allocator functions while allocations are sampled.
//!
//! A call that is not sampled ends in a jump to the allocator's function, so it costs a few instructions and
//! no stack.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::alloc_function as function;

use super::{FUNCTIONS, REAL, due, freed, sampled, watched, words};

type Pointer = *mut c_void;

/// Returns the allocator's function `index`. A call of it at the end of a function here is compiled to a
/// jump.
///
/// # Safety
/// The allocator has that function, and it has the type `F`.
#[inline(always)]
unsafe fn real<F: Copy>(index: u16) -> F {
    let address = REAL.get(usize::from(index)).map_or(0, |f| f.load(Relaxed));
    // SAFETY: the caller guarantees that the function exists and has the type `F`; a function pointer is one
    // word.
    unsafe { core::mem::transmute_copy::<usize, F>(&address) }
}

type Malloc = unsafe extern "C" fn(usize) -> Pointer;
type Free = unsafe extern "C" fn(Pointer);
type Two = unsafe extern "C" fn(usize, usize) -> Pointer;
type Realloc = unsafe extern "C" fn(Pointer, usize) -> Pointer;
type PosixMemalign = unsafe extern "C" fn(*mut Pointer, usize, usize) -> c_int;

/// Returns the addresses of the functions here, to `sample` allocations and to `watch` frees. An entry is 0
/// if the allocator's own function must be used. In musl this is the case for functions that call another one
/// of these by its name.
pub fn addresses(sample: bool, watch: bool) -> [usize; FUNCTIONS] {
    let when = |condition: bool, hook: usize| if condition { hook } else { 0 };
    let once = sample && !cfg!(target_env = "musl");
    [
        when(sample, malloc as Malloc as usize),
        when(watch, free as Free as usize),
        when(once, calloc as Two as usize),
        when(sample || watch, realloc as Realloc as usize),
        when(once, posix_memalign as PosixMemalign as usize),
        when(sample, aligned_alloc as Two as usize),
        when(once, memalign as Two as usize),
        when(once, valloc as Malloc as usize),
    ]
}

unsafe extern "C" fn malloc(size: usize) -> Pointer {
    if words::take(size) {
        return one(size, function::MALLOC);
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    unsafe { real::<Malloc>(function::MALLOC)(size) }
}

unsafe extern "C" fn valloc(size: usize) -> Pointer {
    if words::take(size) {
        return one(size, function::VALLOC);
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    unsafe { real::<Malloc>(function::VALLOC)(size) }
}

#[cold]
#[inline(never)]
fn one(size: usize, index: u16) -> Pointer {
    let weight = due(size);
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    let address = unsafe { real::<Malloc>(index)(size) };
    if let Some(weight) = weight {
        sampled(address as usize, size, weight, index);
    }
    address
}

unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    // The allocator refuses a size that overflows.
    let (size, overflows) = count.overflowing_mul(each);
    if !overflows && words::take(size) {
        return two(count, each, size, function::CALLOC);
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    unsafe { real::<Two>(function::CALLOC)(count, each) }
}

unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> Pointer {
    if words::take(size) {
        return two(align, size, size, function::ALIGNED_ALLOC);
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    unsafe { real::<Two>(function::ALIGNED_ALLOC)(align, size) }
}

unsafe extern "C" fn memalign(align: usize, size: usize) -> Pointer {
    if words::take(size) {
        return two(align, size, size, function::MEMALIGN);
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    unsafe { real::<Two>(function::MEMALIGN)(align, size) }
}

#[cold]
#[inline(never)]
fn two(a: usize, b: usize, size: usize, index: u16) -> Pointer {
    let weight = due(size);
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    let address = unsafe { real::<Two>(index)(a, b) };
    if let Some(weight) = weight {
        sampled(address as usize, size, weight, index);
    }
    address
}

unsafe extern "C" fn posix_memalign(out: *mut Pointer, align: usize, size: usize) -> c_int {
    if words::take(size) {
        // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
        return unsafe { into(out, align, size) };
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    unsafe { real::<PosixMemalign>(function::POSIX_MEMALIGN)(out, align, size) }
}

#[cold]
#[inline(never)]
unsafe fn into(out: *mut Pointer, align: usize, size: usize) -> c_int {
    let weight = due(size);
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    let failed = unsafe { real::<PosixMemalign>(function::POSIX_MEMALIGN)(out, align, size) };
    if let Some(weight) = weight.filter(|_| failed == 0) {
        // SAFETY: the allocator has written the address there.
        sampled(unsafe { out.read() } as usize, size, weight, function::POSIX_MEMALIGN);
    }
    failed
}

unsafe extern "C" fn free(address: Pointer) {
    if watched().is_some_and(|set| set.maybe(address as usize)) {
        freed(address as usize);
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    unsafe { real::<Free>(function::FREE)(address) }
}

unsafe extern "C" fn realloc(address: Pointer, size: usize) -> Pointer {
    let due = words::take(size);
    if due || watched().is_some_and(|set| set.maybe(address as usize)) {
        // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
        return unsafe { moved(address, size, due) };
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    unsafe { real::<Realloc>(function::REALLOC)(address, size) }
}

/// Samples a `realloc`: a new size is a new allocation. The free of the old block is recorded before it
/// happens, because another thread may be given the address right afterwards. (If the allocator then refuses,
/// the free of a live block has been recorded.)
#[cold]
#[inline(never)]
unsafe fn moved(address: Pointer, size: usize, is_due: bool) -> Pointer {
    let weight = if is_due { due(size) } else { None };
    if size <= isize::MAX as usize {
        freed(address as usize);
    }
    // SAFETY: this is the allocator's function of that type, and the arguments are the program's own.
    let new = unsafe { real::<Realloc>(function::REALLOC)(address, size) };
    if let Some(weight) = weight {
        sampled(new as usize, size, weight, function::REALLOC);
    }
    new
}
