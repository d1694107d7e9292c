//! C++ exceptions, in the JDK's form; a panic is recorded as an error.

use flightline_in_signal::payload::throw;
use jfr_format::schema::{JAVA_ERROR_THROW, JAVA_EXCEPTION_THROW};

use super::{Event, EventSite};
use crate::{names::demangle, recording::Recording};

/// Returns the type for the name of a `type_info`.
fn type_name(raw: &[u8]) -> String {
    // Only whole symbols can be demangled, so prepend _ZTI to get the symbol of the type's `type_info`.
    const PREFIX: &str = "typeinfo for ";
    let mut symbol = b"_ZTI".to_vec();
    symbol.extend_from_slice(raw);
    match demangle::demangle(&symbol).text.strip_prefix(PREFIX) {
        Some(name) => name.to_owned(),
        None => String::from_utf8_lossy(raw).into_owned(),
    }
}

/// Writes the event.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let language = event.word(0);
    let (name, message) = match language {
        throw::CPP => {
            let (raw, next) = event.bytes(1);
            (type_name(&raw), event.text(next))
        }
        throw::RUST => ("panic".to_owned(), String::new()),
        _ => {
            // Vendor and language, four letters each.
            let class = event.word(1).to_be_bytes();
            let text: String =
                class.iter().filter(|b| b.is_ascii_graphic()).map(|b| char::from(*b)).collect();
            (text, String::new())
        }
    };
    let id = if language == throw::RUST { JAVA_ERROR_THROW } else { JAVA_EXCEPTION_THROW };
    recording.counters.panics += u64::from(language == throw::RUST);
    let class = recording.interner.class(&name);
    let (start, took) = recording.interval(place.time_ns, 0);
    let bytes = recording.interner.class_cost(class) + message.len();
    recording.event_with_constants(
        id,
        place.thread,
        place.trace,
        bytes,
        |recording| recording.class_key(class),
        |e, thread, stack, class| {
            e.ticks(start).ticks(took).key(thread).key(stack).string(&message).key(class);
        },
    );
}

#[cfg(test)]
mod tests {
    use super::type_name;

    #[test]
    fn exception_type_names_are_demangled() {
        for (raw, name) in [
            ("St13runtime_error", "std::runtime_error"),
            ("i", "int"),
            ("PKc", "char const*"),
            ("N3app5ErrorE", "app::Error"),
            ("7Failure", "Failure"),
            ("", ""),
            ("\u{1}x", "\u{1}x"),
        ] {
            assert_eq!(type_name(raw.as_bytes()), name);
        }
    }
}
