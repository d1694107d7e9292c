//! Fields of events and constants by name. Missing and malformed fields are `None`.

use std::borrow::Cow;

use jfr_format::event::{StructRef, Value};

/// Returns the text of a field, also of a constant with one text.
pub(crate) fn text<'a>(of: &StructRef<'a>, name: &str) -> Option<Cow<'a, str>> {
    of.field(name).ok()??.text().ok()?
}

/// Returns the struct in a field, or the constant that it refers to.
pub(crate) fn record<'a>(of: &StructRef<'a>, name: &str) -> Option<StructRef<'a>> {
    of.field(name).ok()??.record().ok()?
}

/// Returns the integer in a field.
pub(crate) fn number(of: &StructRef<'_>, name: &str) -> Option<i64> {
    of.field(name).ok()??.as_i64()
}

/// Returns true if a field is the boolean `true`.
pub(crate) fn is_set(of: &StructRef<'_>, name: &str) -> bool {
    matches!(of.field(name), Ok(Some(Value::Boolean(true))))
}
