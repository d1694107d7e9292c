//! C++ exceptions and Rust panics as they are thrown.

use core::ffi::CStr;

use flightline_in_signal::layout::{engines, event_kind};
use flightline_in_signal::payload::{Words, throw};
use flightline_in_signal::publish::Event;
use flightline_in_signal::sync_event;

use crate::lock_waits::enabled_engine;
use crate::session;

/// Longest type name and message kept, bytes.
const NAME_BYTES: usize = 400;
const MESSAGE_BYTES: usize = 256;
/// Longest chain of base classes that is followed.
const BASES: usize = 16;

/// `true` if throws are recorded.
#[inline]
pub fn is_enabled() -> bool {
    enabled_engine(engines::THROW).is_some()
}

/// A `std::type_info`: a pointer to its virtual functions, one to the name, and for classes with one base (a subclass
/// of it) one to the base's, as the Itanium C++ ABI has it.
type TypeInfo = *const *const u8;

/// A C++ object is thrown.
///
/// # Safety
/// `object` is a live object whose type `info` describes, as `__cxa_throw` gets them.
#[cold]
pub unsafe fn cpp(object: *const u8, info: *const u8) {
    let info: TypeInfo = info.cast();
    // SAFETY: by the contract.
    let name = unsafe { type_name(info) };
    // SAFETY: by the contract.
    let message = unsafe { exception_message(object, info) };
    record(throw::CPP, name, message);
}

/// Something is thrown past the C++ runtime; `class` says by which language.
#[cold]
pub fn other(class: u64) {
    // Written as bytes; the C++ ABI would have a number.
    const RUST: u64 = u64::from_ne_bytes(*b"MOZ\0RUST");
    const OLD_RUST: u64 = u64::from_be_bytes(*b"MOZ\0RUST");
    const GNU_CPP: u64 = u64::from_be_bytes(*b"GNUCC++\0") >> 8;
    const CLANG_CPP: u64 = u64::from_be_bytes(*b"CLNGC++\0") >> 8;
    match class {
        RUST | OLD_RUST => record(throw::RUST, b"", b""),
        // Told by `cpp` already; `std::rethrow_exception` throws nothing new.
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
    // In the child of a vfork and in restricted threads nothing may be done.
    if session::current().is_none() {
        return;
    }
    let mut words = Words::new(&[language]);
    words.text(name.get(..NAME_BYTES).unwrap_or(name));
    words.text(message.get(..MESSAGE_BYTES).unwrap_or(message));
    let event = Event { kind: event_kind::THROW, index: 0, value: 1, extra: words.get() };
    // What finds no room is counted by the callee.
    let _ = sync_event::record(&event, true);
}

/// # Safety
/// `info` is null or a type's description.
unsafe fn type_name<'a>(info: TypeInfo) -> &'a [u8] {
    if info.is_null() {
        return b"";
    }
    // SAFETY: by the contract.
    let name = unsafe { info.add(1).read() };
    if name.is_null() {
        return b"";
    }
    // SAFETY: a C string by the ABI.
    let name = unsafe { CStr::from_ptr(name.cast()) }.to_bytes();
    // A star in front marks names that are compared by address.
    name.strip_prefix(b"*").unwrap_or(name)
}

/// The text inside the standard library's errors and what derives from them: they begin with a pointer to their
/// virtual functions and one to the text, in libstdc++ and in libc++. The program's own `what()` is not called.
///
/// # Safety
/// As [`cpp`].
unsafe fn exception_message<'a>(object: *const u8, info: TypeInfo) -> &'a [u8] {
    let mut at = info;
    for _ in 0..BASES {
        // SAFETY: a type's description, by the contract or as another's base.
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
        // SAFETY: as above.
        match unsafe { only_base(at) } {
            Some(base) => at = base,
            None => return b"",
        }
    }
    b""
}

/// The base of a class that has exactly one, at its start.
///
/// # Safety
/// `info` is null or a type's description.
unsafe fn only_base(info: TypeInfo) -> Option<TypeInfo> {
    if info.is_null() {
        return None;
    }
    // SAFETY: by the contract.
    let vtable: *const TypeInfo = unsafe { info.read() }.cast();
    if vtable.is_null() {
        return None;
    }
    // SAFETY: the word before a table of virtual functions describes the type that they belong to.
    let kind = unsafe { vtable.sub(1).read() };
    // SAFETY: as above.
    if unsafe { type_name(kind) } != b"N10__cxxabiv120__si_class_type_infoE" {
        return None;
    }
    // SAFETY: such a description has a third word.
    let base = unsafe { info.add(2).read() };
    (!base.is_null()).then_some(base.cast())
}
