//! The recorder of this process: found by its data symbol, or set by [`set_recorder`]. Without a recorder, the slot and the keys of this
//! copy of the crate are used.

use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use crate::abi::{Abi, SYMBOL, ScopeEnd, SpanEnd, Switches, VERSION, mode};
use crate::key_table::{self, KEY_MAX};
use crate::{process, tls};

/// The recorder; null before the first search, [`NONE`] if there is none.
static RECORDER: AtomicPtr<Abi> = AtomicPtr::new(core::ptr::null_mut());

/// True after [`set_recorder`].
static OF_THIS_COPY: AtomicBool = AtomicBool::new(false);

static NO_MODE: AtomicU32 = AtomicU32::new(mode::OFF);

unsafe extern "C" fn no_samples() -> *const AtomicU32 {
    core::ptr::null()
}
unsafe extern "C" fn no_span(_: *const SpanEnd) {}
unsafe extern "C" fn no_scope(_: *const ScopeEnd) {}
unsafe extern "C" fn no_switched() {}

static NO_SWITCHES: Switches = Switches { mark: AtomicU64::new(0), word: AtomicUsize::new(0) };

/// The table that is used without a recorder: this copy's own slot and keys, so that other tools can read the context.
static NONE: Abi = Abi {
    size: size_of::<Abi>() as u32,
    version: VERSION,
    slot: tls::own_slot,
    samples: no_samples,
    mode: &raw const NO_MODE,
    key: own_key,
    key_name: own_key_name,
    span: no_span,
    scope: no_scope,
    switches: &raw const NO_SWITCHES,
    switched: no_switched,
};

impl Abi {
    /// Returns true if there is no recorder.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        core::ptr::eq(self, &NONE)
    }

    /// Returns true if the recorder requests no events.
    pub(crate) fn is_off(&self) -> bool {
        // SAFETY: the ABI requires that this is never null.
        unsafe { (*self.mode).load(Relaxed) == mode::OFF }
    }

    /// Called before the thread's context changes: the recorder records the time that the thread was off its
    /// processor, if it was.
    #[inline(always)]
    pub(crate) fn changes(&self) {
        // SAFETY: the ABI requires that this is never null and that, if there is a mark, the thread has a
        // word at this distance.
        unsafe {
            let mark = (*self.switches).mark.load(Relaxed);
            if mark != 0 {
                let at = tls::thread_pointer().wrapping_add((*self.switches).word.load(Relaxed));
                if (*(at as *const AtomicU64)).load(Relaxed) != mark {
                    (self.switched)();
                }
            }
        }
    }
}

/// Sets the recorder of this process: one that is linked into the same binary as this copy of the crate, or `libflightline.so` itself. Its
/// `slot` must be [`crate::own_slot`], because threads with an active span keep their slot.
pub fn set_recorder(abi: &'static Abi) {
    OF_THIS_COPY.store(true, Release);
    RECORDER.store(core::ptr::from_ref(abi).cast_mut(), Release);
}

/// Returns true if this copy owns the process's single table of keys: it has the recorder, or there is none.
fn keys_are_ours() -> bool {
    OF_THIS_COPY.load(Acquire) || recorder().is_none()
}

/// Returns the recorder. The first call searches for it (`dlsym`).
#[inline]
pub(crate) fn recorder() -> &'static Abi {
    let known = RECORDER.load(Relaxed);
    if known.is_null() {
        return find();
    }
    // SAFETY: only `'static` tables are stored, which were complete before the program's first instruction or before `Release`;
    // a processor does not read through a pointer before it has the pointer.
    unsafe { &*known }
}

#[cold]
#[inline(never)]
fn find() -> &'static Abi {
    // SAFETY: a lookup by name; the answer is a data symbol of that name or null.
    let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr().cast::<c_char>()) };
    let found = found.cast::<Abi>();
    // SAFETY: a symbol of this name is a table whose first two words are its size and version.
    let fits = !found.is_null()
        && unsafe { (*found).version == VERSION && (*found).size as usize >= size_of::<Abi>() };
    let chosen = if fits { found } else { (&raw const NONE).cast_mut() };
    // A recorder that another thread has set in the meantime stays.
    let _ = RECORDER.compare_exchange(core::ptr::null_mut(), chosen, Release, Acquire);
    // SAFETY: never null from here on; only `'static` tables are stored, which are complete.
    unsafe { &*RECORDER.load(Acquire) }
}

/// Publishes the process context if it has the keys of this copy and is not published yet.
pub(crate) fn ensure_published() {
    if keys_are_ours() {
        process::ensure();
    }
}

/// Returns the index of a key in this copy's table. A new key is added, and the process context is published again. `None`:
/// the table is full, the key is empty or longer than [`KEY_MAX`].
pub fn index(key: &str) -> Option<u8> {
    let (index, added) = key_table::add(key)?;
    if added && keys_are_ours() {
        process::publish();
    }
    Some(index)
}

/// [`index`] as [`Abi::key`], for a recorder without a table of its own.
///
/// # Safety
/// `name` points to `len` bytes.
pub unsafe extern "C" fn own_key(name: *const u8, len: usize) -> i32 {
    if name.is_null() || len > KEY_MAX {
        return -1;
    }
    // SAFETY: the caller guarantees `len` bytes at `name`; null was ruled out above.
    let bytes = unsafe { core::slice::from_raw_parts(name, len) };
    core::str::from_utf8(bytes).ok().and_then(index).map_or(-1, i32::from)
}

/// Returns a name of this copy's table, as [`Abi::key_name`].
///
/// # Safety
/// `len` may be written.
pub unsafe extern "C" fn own_key_name(index: u8, len: *mut usize) -> *const u8 {
    let Some(name) = key_table::all().nth(usize::from(index)) else { return core::ptr::null() };
    // SAFETY: the caller guarantees that `len` may be written.
    unsafe { len.write(name.len()) };
    name.as_ptr()
}
