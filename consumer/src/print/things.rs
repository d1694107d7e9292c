//! Threads, classes and methods on one line, in the format of the JDK's tool.

use std::borrow::Cow;

use jfr_format::event::{StructRef, Value};

use super::java;
use super::units::decimal;
use crate::fields;

/// Returns the struct in a field. A constant may be nested more deeply than others.
pub(super) fn field_record<'a>(of: &StructRef<'a>, field: &str) -> Option<StructRef<'a>> {
    match of.field(field).ok()?? {
        Value::Reference(to) => to.unbounded().resolve().ok()??.record().ok()?,
        value => value.record().ok()?,
    }
}

/// `"main" (javaThreadId = 1)`
pub(super) fn thread(of: &StructRef<'_>, out: &mut Vec<u8>) {
    let java = fields::number(of, "javaThreadId").filter(|&id| id > 0);
    let (name, what, id) = match java {
        Some(id) => {
            (fields::text(of, "javaName").or_else(|| fields::text(of, "osName")), "javaThreadId", Some(id))
        }
        None => (fields::text(of, "osName"), "osThreadId", fields::number(of, "osThreadId")),
    };
    out.push(b'"');
    out.extend_from_slice(name.unwrap_or_default().as_bytes());
    out.push(b'"');
    let Some(id) = id else { return };
    out.extend_from_slice(b" (");
    out.extend_from_slice(what.as_bytes());
    out.extend_from_slice(b" = ");
    decimal(id.into(), out);
    if java.is_some() && fields::is_set(of, "virtual") {
        out.extend_from_slice(b", virtual");
    }
    out.push(b')');
}

/// `java.lang.String (classLoader = bootstrap)`
pub(super) fn class(of: &StructRef<'_>, out: &mut Vec<u8>) {
    let name = fields::text(of, "name").unwrap_or_default();
    out.extend_from_slice(java::class_name(&name, None).as_bytes());
    out.extend_from_slice(b" (classLoader = ");
    let loader = field_record(of, "classLoader");
    let name = loader.and_then(|loader| {
        fields::text(&loader, "name").map(Cow::into_owned).or_else(|| {
            let class = field_record(&loader, "type")?;
            Some(java::class_name(&fields::text(&class, "name")?, None))
        })
    });
    out.extend_from_slice(name.as_deref().unwrap_or("null").as_bytes());
    out.push(b')');
}

/// `jdk.internal.loader.ClassLoaders$AppClassLoader (id = 3)`; the bootstrap loader is `null`, as in Java.
pub(super) fn class_loader(of: &StructRef<'_>, key: Option<u64>, out: &mut Vec<u8>) {
    let Some(class) = field_record(of, "type") else { return out.extend_from_slice(b"null") };
    let name = fields::text(&class, "name").unwrap_or_default();
    out.extend_from_slice(java::class_name(&name, None).as_bytes());
    if let Some(key) = key {
        out.extend_from_slice(b" (id = ");
        decimal(key.into(), out);
        out.push(b')');
    }
}

/// `java.lang.Object.wait(long)`
pub(super) fn method(of: &StructRef<'_>, out: &mut Vec<u8>) {
    let class = field_record(of, "type").and_then(|class| fields::text(&class, "name"));
    out.extend_from_slice(java::class_name(&class.unwrap_or_default(), None).as_bytes());
    out.push(b'.');
    out.extend_from_slice(fields::text(of, "name").unwrap_or_default().as_bytes());
    out.push(b'(');
    java::parameters(&fields::text(of, "descriptor").unwrap_or_default(), out);
    out.push(b')');
}

/// The known properties of an object: `byte[100]`, `java.util.ArrayList Size: 2`.
pub(super) fn object(of: &StructRef<'_>, length: Option<i64>, out: &mut Vec<u8>) {
    if let Some(class) = field_record(of, "type") {
        let name = fields::text(&class, "name").unwrap_or_default();
        out.extend_from_slice(java::class_name(&name, length.filter(|&n| n > 0)).as_bytes());
        if let Some(description) = fields::text(of, "description") {
            out.push(b' ');
            out.extend_from_slice(description.as_bytes());
        }
    }
    out.push(b'\n');
}
