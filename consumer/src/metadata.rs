//! Shows the types that recordings declare.

use std::collections::BTreeMap;
use std::io::Write;

use jfr_format::read::{Annotation, Chunk, Class, Field};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::print::{Categories, Patterns};

/// Maximum length of a chain of simple types; one is usual.
const MOST_SIMPLE: usize = 8;

/// A declared type, independent of its chunk.
#[derive(Clone, Debug)]
struct Declared {
    class: Class,
    /// Names of the fields' types.
    field_types: Vec<String>,
    /// Names of the fields' types, with simple types replaced by their content.
    shown_types: Vec<String>,
}

/// Selects the types to show, and the level of detail.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Event types by name. `None`: all types, including other types if `categories` is `None` too.
    pub events: Option<Patterns>,
    /// Event types by category. `None`: as above.
    pub categories: Option<Categories>,
    /// Show ids, settings, and which values are constants.
    pub details: bool,
}

impl Shown {
    fn chooses(&self, class: &Class) -> bool {
        if self.events.is_none() && self.categories.is_none() {
            return true;
        }
        class.is_event()
            && self.events.as_ref().is_none_or(|events| events.choose(&class.name))
            && self.categories.as_ref().is_none_or(|categories| categories.choose(class))
    }
}

/// Types of all chunks by name; the first declaration of a name is used.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    types: BTreeMap<String, Declared>,
}

impl Declarations {
    /// Adds the types of a chunk that has been read.
    pub fn add(&mut self, chunk: &Chunk) {
        let types = &chunk.types;
        let name = |field: &Field| {
            let of = field.class.and_then(|c| types.class(c));
            of.map_or_else(|| format!("type {}", field.type_id), |c| c.name.to_string())
        };
        // A simple type may contain another one.
        let shown = |field: &Field| {
            let mut field = field;
            for _ in 0..MOST_SIMPLE {
                match field.class.and_then(|c| types.class(c)) {
                    Some(class) if class.simple && class.fields.len() == 1 => field = &class.fields[0],
                    _ => break,
                }
            }
            name(field)
        };
        for class in types.classes() {
            self.types.entry(class.name.to_string()).or_insert_with(|| Declared {
                class: class.clone(),
                field_types: class.fields.iter().map(name).collect(),
                shown_types: class.fields.iter().map(shown).collect(),
            });
        }
    }

    /// Writes the selected types as declarations, like the JDK's `jfr metadata`, in the order: primitive
    /// types, structs, annotations, settings, events.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_text(&self, shown: &Shown, out: &mut dyn Write) -> Result<(), Error> {
        let mut chosen: Vec<&Declared> = self.chosen(shown).collect();
        chosen.sort_by_key(|declared| group(&declared.class));
        for declared in chosen {
            out.write_all(self.text(declared, shown.details).as_bytes()).map_err(Error::Write)?;
        }
        Ok(())
    }

    /// Writes the selected types as JSON.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_json(&self, shown: &Shown, out: &mut dyn Write) -> Result<(), Error> {
        let types: Vec<Value> = self.chosen(shown).map(to_json).collect();
        serde_json::to_writer_pretty(&mut *out, &json!({ "types": types }))
            .map_err(|e| Error::Write(e.into()))?;
        writeln!(out).map_err(Error::Write)
    }

    fn text(&self, declared: &Declared, details: bool) -> String {
        let Declared { class, shown_types, .. } = declared;
        let mut out = String::new();
        if details {
            out.push_str(&format!("// type id {}\n", class.id));
        }
        if class.name.contains('.') {
            out.push_str(&format!("@Name(\"{}\")\n", class.name));
        }
        let notes = class.annotations.iter().filter(|note| &*note.type_name != "jdk.jfr.Name");
        notes.for_each(|note| self.annotation(note, "", &mut out));
        let extends = class.super_type.as_ref().map(|of| format!(" extends {of}")).unwrap_or_default();
        out.push_str(&format!("class {}{extends} {{\n", simple(&class.name)));
        for (i, (field, of)) in class.fields.iter().zip(shown_types).enumerate() {
            if i > 0 {
                out.push('\n');
            }
            field.annotations.iter().for_each(|note| self.annotation(note, "  ", &mut out));
            let brackets = if field.array { "[]" } else { "" };
            let pooled = if details && field.pooled { " // constant pool" } else { "" };
            out.push_str(&format!("  {}{brackets} {};{pooled}\n", simple(of), field.name));
        }
        if details {
            for setting in &class.settings {
                out.push_str(&format!("  // setting {} = {:?}\n", setting.name, setting.default));
            }
        }
        out.push_str("}\n\n");
        out
    }

    /// `@Label("…")`, or `@Of(name="…", number=1)` if the annotation's type declares more than a `value`.
    fn annotation(&self, annotation: &Annotation, indent: &str, out: &mut String) {
        out.push_str(&format!("{indent}@{}", simple(&annotation.type_name)));
        let values = values(annotation);
        let declared = self.types.get(&*annotation.type_name);
        let fields = declared.map_or(&[][..], |declared| &declared.class.fields);
        let elements: Vec<String> = match (declared, fields) {
            (Some(_), [only]) if &*only.name == "value" => {
                values.values().map(|v| element(v, true)).collect()
            }
            (Some(declared), [_, ..]) => fields
                .iter()
                .zip(&declared.field_types)
                .filter_map(|(field, of)| {
                    let empty = || field.array.then(|| json!([]));
                    let value = values.get(&*field.name).cloned().or_else(empty)?;
                    let quoted = !PRIMITIVE.contains(&of.as_str());
                    Some(format!("{}={}", field.name, element(&value, quoted)))
                })
                .collect(),
            // The annotation is not declared: written as stored.
            _ => values.values().map(|v| element(v, true)).collect(),
        };
        if !elements.is_empty() {
            out.push_str(&format!("({})", elements.join(", ")));
        }
        out.push('\n');
    }

    fn chosen<'a>(&'a self, shown: &'a Shown) -> impl Iterator<Item = &'a Declared> {
        self.types.values().filter(|declared| shown.chooses(&declared.class))
    }
}

/// Rank of a kind of type in the output.
fn group(class: &Class) -> u8 {
    match class.super_type.as_deref() {
        None if !class.name.contains('.') => 0,
        None => 1,
        Some("java.lang.annotation.Annotation") => 2,
        Some("jdk.jfr.SettingControl") => 3,
        Some(_) => 4,
    }
}

fn simple(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// Types whose values are written without quotation marks.
const PRIMITIVE: &[&str] = &["boolean", "byte", "char", "short", "int", "long", "float", "double"];

/// Formats a value of an annotation. An array with one element has no braces, as in the JDK.
fn element(value: &Value, quoted: bool) -> String {
    match value {
        Value::Array(elements) => {
            let texts: Vec<String> = elements.iter().map(|value| element(value, quoted)).collect();
            if texts.len() == 1 { texts.concat() } else { format!("{{{}}}", texts.join(", ")) }
        }
        Value::String(text) if quoted => format!("\"{text}\""),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the values by the names of the annotation's elements. Arrays are stored as `name-0`, `name-1`
/// and so on.
fn values(annotation: &Annotation) -> Map<String, Value> {
    let mut values = Map::new();
    for (name, value) in &annotation.values {
        let element = name.rsplit_once('-').filter(|(_, index)| index.parse::<u32>().is_ok());
        match element {
            None => {
                values.insert(name.to_string(), json!(&**value));
            }
            Some((array, _)) => match values.entry(array).or_insert_with(|| json!([])) {
                Value::Array(elements) => elements.push(json!(&**value)),
                // An element with the same name has a scalar value.
                scalar => *scalar = json!([scalar.take(), &**value]),
            },
        }
    }
    values
}

fn to_json(declared: &Declared) -> Value {
    let Declared { class, field_types, .. } = declared;
    let notes = |list: &[Annotation]| -> Vec<Value> {
        list.iter().map(|a| json!({ "type": &*a.type_name, "values": values(a) })).collect()
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
