//! Threads, classes and methods on one line, in the format of the JDK's tool.

use std::borrow::Cow;

use jfr_format::event::{StructRef, Value};

use super::java;
use super::units::decimal;

pub(super) fn text_of<'a>(of: &StructRef<'a>, field: &str) -> Option<Cow<'a, str>> {
    of.field(field).ok()??.text().ok()?
}

pub(super) fn record_of<'a>(of: &StructRef<'a>, field: &str) -> Option<StructRef<'a>> {
    match of.field(field).ok()?? {
        Value::Reference(to) => to.unbounded().resolve().ok()??.record().ok()?,
        value => value.record().ok()?,
    }
}

pub(super) fn number_of(of: &StructRef<'_>, field: &str) -> Option<i64> {
    of.field(field).ok()??.as_i64()
}

pub(super) fn is_set(of: &StructRef<'_>, field: &str) -> bool {
    matches!(of.field(field), Ok(Some(Value::Boolean(true))))
}

/// `"main" (javaThreadId = 1)`
pub(super) fn thread(of: &StructRef<'_>, out: &mut Vec<u8>) {
    let java = number_of(of, "javaThreadId").filter(|&id| id > 0);
    let (name, what, id) = match java {
        Some(id) => (text_of(of, "javaName").or_else(|| text_of(of, "osName")), "javaThreadId", Some(id)),
        None => (text_of(of, "osName"), "osThreadId", number_of(of, "osThreadId")),
    };
    out.push(b'"');
    out.extend_from_slice(name.unwrap_or_default().as_bytes());
    out.push(b'"');
    let Some(id) = id else { return };
    out.extend_from_slice(b" (");
    out.extend_from_slice(what.as_bytes());
    out.extend_from_slice(b" = ");
    decimal(id.into(), out);
    if java.is_some() && is_set(of, "virtual") {
        out.extend_from_slice(b", virtual");
    }
    out.push(b')');
}

/// `java.lang.String (classLoader = bootstrap)`
pub(super) fn class(of: &StructRef<'_>, out: &mut Vec<u8>) {
    let name = text_of(of, "name").unwrap_or_default();
    out.extend_from_slice(java::class_name(&name, None).as_bytes());
    out.extend_from_slice(b" (classLoader = ");
    let loader = record_of(of, "classLoader");
    let name = loader.and_then(|loader| {
        text_of(&loader, "name").map(Cow::into_owned).or_else(|| {
            let class = record_of(&loader, "type")?;
            Some(java::class_name(&text_of(&class, "name")?, None))
        })
    });
    out.extend_from_slice(name.as_deref().unwrap_or("null").as_bytes());
    out.push(b')');
}

/// `jdk.internal.loader.ClassLoaders$AppClassLoader (id = 3)`; the bootstrap loader is `null`, as in Java.
pub(super) fn class_loader(of: &StructRef<'_>, key: Option<u64>, out: &mut Vec<u8>) {
    let Some(class) = record_of(of, "type") else { return out.extend_from_slice(b"null") };
    let name = text_of(&class, "name").unwrap_or_default();
    out.extend_from_slice(java::class_name(&name, None).as_bytes());
    if let Some(key) = key {
        out.extend_from_slice(b" (id = ");
        decimal(key.into(), out);
        out.push(b')');
    }
}

/// `java.lang.Object.wait(long)`
pub(super) fn method(of: &StructRef<'_>, out: &mut Vec<u8>) {
    let class = record_of(of, "type").and_then(|class| text_of(&class, "name"));
    out.extend_from_slice(java::class_name(&class.unwrap_or_default(), None).as_bytes());
    out.push(b'.');
    out.extend_from_slice(text_of(of, "name").unwrap_or_default().as_bytes());
    out.push(b'(');
    java::parameters(&text_of(of, "descriptor").unwrap_or_default(), out);
    out.push(b')');
}

/// The known properties of an object: `byte[100]`, `java.util.ArrayList Size: 2`.
pub(super) fn object(of: &StructRef<'_>, length: Option<i64>, out: &mut Vec<u8>) {
    if let Some(class) = record_of(of, "type") {
        let name = text_of(&class, "name").unwrap_or_default();
        out.extend_from_slice(java::class_name(&name, length.filter(|&n| n > 0)).as_bytes());
        if let Some(description) = text_of(of, "description") {
            out.push(b' ');
            out.extend_from_slice(description.as_bytes());
        }
    }
    out.push(b'\n');
}
