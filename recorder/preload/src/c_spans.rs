//! The functions of `flightline.h` that say what a thread is working at.

use core::ffi::{CStr, c_char, c_int};

use flightline_context::{self as context, Entering, LabelError, SpanContext};

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
        Err(LabelError::Key) => -libc::EINVAL,
        Err(LabelError::Full) => -libc::ENOSPC,
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
