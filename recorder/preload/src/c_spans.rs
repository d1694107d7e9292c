//! The functions of `flightline.h` that say what a thread is working at.

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use core::mem::MaybeUninit;

use flightline_context::{self as context, Entering, LabelError, Scope, SpanContext};

use crate::real::KeepErrno;

/// `struct flightline_span_context`.
#[repr(C)]
pub struct Ids {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    local_root_span_id: [u8; 8],
    flags: u8,
    reserved: [u8; 7],
}

/// A C string as far as it is UTF-8.
fn text<'a>(word: *const c_char) -> Option<&'a str> {
    if word.is_null() {
        return None;
    }
    // SAFETY: a C string, by the contract of the functions.
    let bytes = unsafe { CStr::from_ptr(word) }.to_bytes();
    bytes.utf8_chunks().next().map_or(Some(""), |chunk| Some(chunk.valid()))
}

/// Enters a span that somebody else made; see `flightline.h`.
///
/// # Safety
/// `ids` is null or points at a `struct flightline_span_context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_enter(ids: *const Ids) -> u64 {
    let _errno = KeepErrno::new();
    // SAFETY: by the caller.
    let Some(ids) = (unsafe { ids.as_ref() }) else { return 0 };
    let context = SpanContext {
        trace_id: ids.trace_id,
        span_id: u64::from_be_bytes(ids.span_id),
        parent_span_id: 0,
        local_root_span_id: u64::from_be_bytes(ids.local_root_span_id),
        flags: ids.flags,
    };
    context::enter(&Entering { context: &context, name: "", attrs: &[], owner: 0 })
}

/// Leaves what was entered; see `flightline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn flightline_exit(token: u64) -> c_int {
    let _errno = KeepErrno::new();
    if context::exit(token).is_some() { 0 } else { -libc::ESRCH }
}

/// Begins and enters a span; see `flightline.h`.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_span_begin(name: *const c_char) -> u64 {
    let _errno = KeepErrno::new();
    context::begin(text(name).unwrap_or(""))
}

/// Leaves and ends a span; see `flightline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn flightline_span_end(token: u64) -> c_int {
    let _errno = KeepErrno::new();
    if context::end(token) { 0 } else { -libc::ESRCH }
}

/// Sets a label; see `flightline.h`.
///
/// # Safety
/// `key` and `value` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_label(key: *const c_char, value: *const c_char) -> c_int {
    let _errno = KeepErrno::new();
    let (Some(key), Some(value)) = (text(key), text(value)) else { return -libc::EINVAL };
    match context::label(key, value) {
        Ok(()) => 0,
        Err(LabelError::NoSpan) => -libc::ESRCH,
        Err(LabelError::Full) => -libc::ENOSPC,
        Err(_) => -libc::EINVAL,
    }
}

/// Ids of the thread's span; see `flightline.h`.
///
/// # Safety
/// `ids` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_current(ids: *mut Ids) -> c_int {
    let _errno = KeepErrno::new();
    if ids.is_null() {
        return -libc::EINVAL;
    }
    let Some(context) = context::current() else { return -libc::ESRCH };
    let found = Ids {
        trace_id: context.trace_id,
        span_id: context.span_id.to_be_bytes(),
        local_root_span_id: context.local_root_span_id.to_be_bytes(),
        flags: context.flags,
        reserved: [0; 7],
    };
    // SAFETY: by the caller.
    unsafe { ids.write(found) };
    0
}

/// `struct flightline_scope_label`.
#[repr(C)]
pub struct ScopeLabel {
    key: *const c_char,
    value: *const c_char,
}

/// `struct flightline_scope`: room for ours, which the program keeps where it likes.
#[repr(C, align(8))]
pub struct ScopeRoom {
    size: usize,
    /// [`BEGUN`] while there is a scope in `room`.
    state: usize,
    token: u64,
    room: MaybeUninit<Scope>,
}

/// Bytes of the structure in the header.
const SCOPE_BYTES: usize = 1024;
const BEGUN: usize = usize::from_ne_bytes(*b"flscope1");
const _: () = assert!(size_of::<ScopeRoom>() <= SCOPE_BYTES && align_of::<Scope>() <= 8);

/// A C string's text, with what is not UTF-8 replaced.
struct Lossy<'a>(&'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

/// Key and value; no key, or one that is not UTF-8, is one that is left out, and no value an empty one.
fn parse_label(label: &ScopeLabel) -> (&str, Lossy<'_>) {
    let bytes = |word: *const c_char| {
        if word.is_null() {
            return &[][..];
        }
        // SAFETY: a C string, by the contract of `flightline_scope_begin`.
        unsafe { CStr::from_ptr(word) }.to_bytes()
    };
    (core::str::from_utf8(bytes(label.key)).unwrap_or_default(), Lossy(bytes(label.value)))
}

/// Begins a unit of work with labels; see `flightline.h`.
///
/// # Safety
/// `scope` is null or points at a `struct flightline_scope` whose first word is its size; `labels` points at `count` labels of C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_scope_begin(
    scope: *mut ScopeRoom,
    labels: *const ScopeLabel,
    count: usize,
) -> c_int {
    let _errno = KeepErrno::new();
    // SAFETY: by the caller.
    if scope.is_null() || unsafe { (*scope).size } < size_of::<ScopeRoom>() || labels.is_null() && count != 0
    {
        return -libc::EINVAL;
    }
    // SAFETY: by the caller.
    let labels = if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(labels, count) } };
    let begun = Scope::new(labels.iter().map(parse_label));
    let left_out = begun.left_out();
    // SAFETY: as large as it has to be, as its size says; what stood in it before was no scope, by the caller.
    unsafe {
        (*scope).room.write(begun);
        (*scope).state = BEGUN;
        (*scope).token = (*scope).room.assume_init_ref().activate();
    }
    c_int::try_from(left_out).unwrap_or(c_int::MAX)
}

/// Enters a scope on another thread; see `flightline.h`.
///
/// # Safety
/// `scope` is null or points at a `struct flightline_scope`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_scope_enter(scope: *const ScopeRoom) -> u64 {
    let _errno = KeepErrno::new();
    // SAFETY: by the caller.
    unsafe {
        if scope.is_null() || (*scope).state != BEGUN {
            return 0;
        }
        (*scope).room.assume_init_ref().activate()
    }
}

/// Leaves a scope on such a thread; see `flightline.h`.
///
/// # Safety
/// As [`flightline_scope_enter`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_scope_exit(scope: *const ScopeRoom, token: u64) -> c_int {
    let _errno = KeepErrno::new();
    // SAFETY: by the caller.
    let left = unsafe {
        !scope.is_null() && (*scope).state == BEGUN && (*scope).room.assume_init_ref().leave(token)
    };
    if left { 0 } else { -libc::ESRCH }
}

/// Leaves and ends a scope; see `flightline.h`.
///
/// # Safety
/// As [`flightline_scope_enter`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_scope_end(scope: *mut ScopeRoom) -> c_int {
    let _errno = KeepErrno::new();
    // SAFETY: by the caller; once it is not begun any more, nobody has it.
    unsafe {
        if scope.is_null() || (*scope).state != BEGUN {
            return -libc::ESRCH;
        }
        let (token, begun) = ((*scope).token, (*scope).room.assume_init_mut());
        // 0: the thread had no place for it.
        if token != 0 && !begun.leave(token) {
            return -libc::ESRCH;
        }
        (*scope).state = 0;
        (*scope).room.assume_init_drop();
    }
    0
}
