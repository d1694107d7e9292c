//! The types recordings declare.

use std::collections::BTreeMap;
use std::io::Write;

use jfr_format::read::{Annotation, Chunk, Class, Field};
use serde_json::{Value, json};

use crate::error::Error;
use crate::print::Patterns;

/// A declared type, apart from its chunk.
#[derive(Clone, Debug)]
struct Declared {
    class: Class,
    /// Names of the fields' types.
    field_types: Vec<String>,
}

/// Types of all chunks, by name; the first declaration of a name is kept.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    types: BTreeMap<String, Declared>,
}

impl Declarations {
    /// Takes in the types of a chunk that has been read.
    pub fn add(&mut self, chunk: &Chunk) {
        for class in chunk.types.classes() {
            self.types.entry(class.name.to_string()).or_insert_with(|| {
                let name = |field: &Field| {
                    let of = field.class.and_then(|c| chunk.types.class(c));
                    of.map_or_else(|| format!("type {}", field.type_id), |c| c.name.to_string())
                };
                Declared { class: class.clone(), field_types: class.fields.iter().map(name).collect() }
            });
        }
    }

    /// Writes the chosen types as declarations.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_text(&self, which: &Patterns, out: &mut dyn Write) -> Result<(), Error> {
        for declared in self.chosen(which) {
            out.write_all(text(declared).as_bytes()).map_err(Error::Write)?;
        }
        Ok(())
    }

    /// Writes the chosen types as JSON.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_json(&self, which: &Patterns, out: &mut dyn Write) -> Result<(), Error> {
        let types: Vec<Value> = self.chosen(which).map(to_json).collect();
        serde_json::to_writer_pretty(&mut *out, &json!({ "types": types }))
            .map_err(|e| Error::Write(e.into()))?;
        writeln!(out).map_err(Error::Write)
    }

    fn chosen<'a>(&'a self, which: &'a Patterns) -> impl Iterator<Item = &'a Declared> {
        self.types.values().filter(|declared| which.choose(&declared.class.name))
    }
}

fn text(declared: &Declared) -> String {
    let Declared { class, field_types } = declared;
    let mut out = format!("// type id {}\n", class.id);
    annotations(&class.annotations, "", &mut out);
    let extends = class.super_type.as_ref().map(|of| format!(" extends {of}")).unwrap_or_default();
    out.push_str(&format!("class {}{extends} {{\n", class.name));
    for (i, (field, of)) in class.fields.iter().zip(field_types).enumerate() {
        if i > 0 {
            out.push('\n');
        }
        annotations(&field.annotations, "  ", &mut out);
        let brackets = if field.array { "[]" } else { "" };
        let pooled = if field.pooled { " // constant pool" } else { "" };
        out.push_str(&format!("  {of}{brackets} {};{pooled}\n", field.name));
    }
    out.push_str("}\n\n");
    out
}

fn annotations(list: &[Annotation], indent: &str, out: &mut String) {
    for annotation in list {
        let name = annotation.type_name.rsplit('.').next().unwrap_or_default();
        let values: Vec<String> = annotation.values.iter().map(|(_, value)| format!("{value:?}")).collect();
        let values = match values.len() {
            0 => String::new(),
            1 => format!("({})", values[0]),
            _ => format!("({{{}}})", values.join(", ")),
        };
        out.push_str(&format!("{indent}@{name}{values}\n"));
    }
}

fn to_json(declared: &Declared) -> Value {
    let Declared { class, field_types } = declared;
    let notes = |list: &[Annotation]| -> Vec<Value> {
        let value = |a: &Annotation| a.values.iter().map(|(_, v)| v.to_string()).collect::<Vec<_>>();
        list.iter().map(|a| json!({ "type": &*a.type_name, "values": value(a) })).collect()
    };
    let field = |(field, of): (&Field, &String)| {
        json!({
            "name": &*field.name,
            "type": of,
            "constantPool": field.pooled,
            "array": field.array,
            "annotations": notes(&field.annotations),
        })
    };
    json!({
        "name": &*class.name,
        "id": class.id,
        "superType": class.super_type.as_deref(),
        "simple": class.simple,
        "annotations": notes(&class.annotations),
        "fields": class.fields.iter().zip(field_types).map(field).collect::<Vec<_>>(),
        "settings": class.settings.iter().map(|s| json!({
            "name": &*s.name,
            "default": &*s.default,
        })).collect::<Vec<_>>(),
    })
}
