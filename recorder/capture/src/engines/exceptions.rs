//! Records C++ exceptions and Rust panics when they are thrown.

use core::ffi::CStr;

use flightline_in_signal::layout::{engines, event_kind};
use flightline_in_signal::payload::{Words, throw};
use flightline_in_signal::publish::{Event, sync_event};

use crate::engines::lock_waits::enabled_engine;
use crate::session;

/// Maximum length of a stored type name and message, bytes.
const NAME_BYTES: usize = 400;
const MESSAGE_BYTES: usize = 256;
/// Maximum number of base classes that are followed.
const BASES: usize = 16;

/// Returns true if throws are recorded.
#[inline]
pub fn is_enabled() -> bool {
    enabled_engine(engines::THROW).is_some()
}

/// A `std::type_info`: a pointer to its virtual functions, a pointer to the name, and for classes with one
/// base (a subclass of `std::type_info`) a pointer to the base's, as the Itanium C++ ABI defines it.
type TypeInfo = *const *const u8;

/// Records a thrown C++ object.
///
/// # Safety
/// `object` is a live object whose type `info` describes, as `__cxa_throw` gets them.
#[cold]
pub unsafe fn cpp(object: *const u8, info: *const u8) {
    let info: TypeInfo = info.cast();
    // SAFETY: the caller guarantees that `info` describes a type.
    let name = unsafe { type_name(info) };
    // SAFETY: the caller guarantees a live object of the type `info`.
    let message = unsafe { exception_message(object, info) };
    record(throw::CPP, name, message);
}

/// Records an exception that does not come from the C++ runtime; `class` identifies the language.
#[cold]
pub fn other(class: u64) {
    // The class is written as bytes; the C++ ABI defines it as a number.
    const RUST: u64 = u64::from_ne_bytes(*b"MOZ\0RUST");
    const OLD_RUST: u64 = u64::from_be_bytes(*b"MOZ\0RUST");
    const GNU_CPP: u64 = u64::from_be_bytes(*b"GNUCC++\0") >> 8;
    const CLANG_CPP: u64 = u64::from_be_bytes(*b"CLNGC++\0") >> 8;
    match class {
        RUST | OLD_RUST => record(throw::RUST, b"", b""),
        // `cpp` has already recorded it; `std::rethrow_exception` throws no new exception.
        class if [GNU_CPP, CLANG_CPP].contains(&(class >> 8)) => {}
        class => {
            if session::current().is_some() {
                let words = Words::new(&[throw::OTHER, class]);
                let event = Event { kind: event_kind::THROW, index: 0, value: 1, extra: words.get() };
                let _ = sync_event::record(&event, true);
            }
        }
    }
}

fn record(language: u64, name: &[u8], message: &[u8]) {
    // The child of a vfork and restricted threads must not record.
    if session::current().is_none() {
        return;
    }
    let mut words = Words::new(&[language]);
    words.text(name.get(..NAME_BYTES).unwrap_or(name));
    words.text(message.get(..MESSAGE_BYTES).unwrap_or(message));
    let event = Event { kind: event_kind::THROW, index: 0, value: 1, extra: words.get() };
    // `record` counts an event that finds no room.
    let _ = sync_event::record(&event, true);
}

/// # Safety
/// `info` is null or a type's description.
unsafe fn type_name<'a>(info: TypeInfo) -> &'a [u8] {
    if info.is_null() {
        return b"";
    }
    // SAFETY: the caller guarantees a type's description, whose second word is its name.
    let name = unsafe { info.add(1).read() };
    if name.is_null() {
        return b"";
    }
    // SAFETY: a C string by the ABI.
    let name = unsafe { CStr::from_ptr(name.cast()) }.to_bytes();
    // A leading star marks names that are compared by address.
    name.strip_prefix(b"*").unwrap_or(name)
}

/// Returns the text of the standard library's errors and of types derived from them. These objects begin with
/// a pointer to their virtual functions and a pointer to the text, in libstdc++ and in libc++. The program's
/// own `what()` is not called.
///
/// # Safety
/// As [`cpp`].
unsafe fn exception_message<'a>(object: *const u8, info: TypeInfo) -> &'a [u8] {
    let mut at = info;
    for _ in 0..BASES {
        // SAFETY: a type's description, from the caller or as the base of another one.
        let name = unsafe { type_name(at) };
        if name == b"St13runtime_error" || name == b"St11logic_error" {
            // SAFETY: such an object's second word is the text.
            let text = unsafe { object.cast::<*const core::ffi::c_char>().add(1).read() };
            if text.is_null() {
                return b"";
            }
            // SAFETY: a C string that the object owns.
            return unsafe { CStr::from_ptr(text) }.to_bytes();
        }
        // SAFETY: a type's description, from the caller or as the base of another one.
        match unsafe { only_base(at) } {
            Some(base) => at = base,
            None => return b"",
        }
    }
    b""
}

/// Returns the base of a class with exactly one base, at its start.
///
/// # Safety
/// `info` is null or a type's description.
unsafe fn only_base(info: TypeInfo) -> Option<TypeInfo> {
    if info.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees a type's description, whose first word points to its virtual functions.
    let vtable: *const TypeInfo = unsafe { info.read() }.cast();
    if vtable.is_null() {
        return None;
    }
    // SAFETY: the word before a table of virtual functions describes the type that they belong to.
    let kind = unsafe { vtable.sub(1).read() };
    // SAFETY: the word read above is null or the description of a type.
    if unsafe { type_name(kind) } != b"N10__cxxabiv120__si_class_type_infoE" {
        return None;
    }
    // SAFETY: such a description has a third word.
    let base = unsafe { info.add(2).read() };
    (!base.is_null()).then_some(base.cast())
}
