//! Properties of types that affect how their values are printed, computed once per chunk.

use std::sync::Arc;

use jfr_format::read::{Class, ClassIndex, Field, Kind, Types};

use super::super::moment::Unit;
use super::escape;
use super::{EVENT_INDENT, Style};

/// The meaning of a field's numbers according to its annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::print) enum Meaning {
    Number,
    Time(Unit),
    Span(Unit),
}

#[derive(Debug)]
pub(in crate::print) struct FieldShape {
    /// `"name": `
    pub(in crate::print) name: Vec<u8>,
    /// The name with the text before it in an event.
    pub(in crate::print) in_event: Vec<u8>,
    pub(in crate::print) meaning: Meaning,
    pub(in crate::print) unsigned: bool,
    /// A list of stack frames.
    pub(in crate::print) frames: bool,
}

#[derive(Debug, Default)]
pub(in crate::print) struct Shape {
    /// The text before the fields of an event.
    pub(in crate::print) head: Vec<u8>,
    pub(in crate::print) fields: Vec<FieldShape>,
    /// Printed as the value of its only field.
    pub(in crate::print) simple: bool,
    /// A struct that is printed as an object, so caching or referencing it is worthwhile.
    pub(in crate::print) record: bool,
}

/// Shapes by class.
#[derive(Debug, Default)]
pub(in crate::print) struct Shapes {
    of: Arc<Types>,
    shapes: Vec<Shape>,
}

impl Shapes {
    /// Updates the shapes for the types of a chunk. Chunks of a recording mostly share their types.
    pub(in crate::print) fn update(&mut self, types: &Arc<Types>, style: Style) {
        if Arc::ptr_eq(&self.of, types) && self.shapes.len() == types.classes().len() {
            return;
        }
        self.of = types.clone();
        self.shapes = types.classes().iter().map(|class| shape(types, class, style)).collect();
    }

    pub(in crate::print) fn get(&self, class: ClassIndex) -> Option<&Shape> {
        self.shapes.get(class.index())
    }
}

fn shape(types: &Types, class: &Class, style: Style) -> Shape {
    let mut head = Vec::new();
    match style {
        Style::Document => {
            head.extend_from_slice(b"{\n      \"type\": ");
            escape::string(&class.name, &mut head);
            head.extend_from_slice(b", \n      \"values\": {\n");
        }
        Style::Line | Style::Linked => {
            head.extend_from_slice(b"{\"event\":");
            escape::string(&class.name, &mut head);
        }
    }
    let simple = class.simple && class.fields.len() == 1;
    let fields = class.fields.iter().enumerate().map(|(at, field)| field_shape(types, field, at, style));
    Shape { head, fields: fields.collect(), simple, record: class.kind == Kind::Struct && !simple }
}

fn field_shape(types: &Types, field: &Field, at: usize, style: Style) -> FieldShape {
    let mut name = Vec::new();
    escape::string(&field.name, &mut name);
    name.extend_from_slice(if style == Style::Document { b": " } else { b":" });
    let mut in_event = Vec::new();
    if style == Style::Document {
        if at > 0 {
            in_event.extend_from_slice(b", \n");
        }
        in_event.resize(in_event.len() + EVENT_INDENT + 2, b' ');
        in_event.extend_from_slice(&name);
    } else {
        // The event's type is a member like the fields.
        let clash = &*field.name == "event";
        in_event.push(b',');
        in_event.extend_from_slice(if clash { b"\"event_\":" } else { &name });
    }
    let of = field.class.and_then(|class| types.class(class));
    let meaning = match (field.annotation("jdk.jfr.Timespan"), field.annotation("jdk.jfr.Timestamp")) {
        (Some(unit), _) => Meaning::Span(Unit::from_annotation(unit.value())),
        (None, Some(unit)) => Meaning::Time(Unit::from_annotation(unit.value())),
        (None, None) => Meaning::Number,
    };
    FieldShape {
        name,
        in_event,
        meaning,
        unsigned: field.annotation("jdk.jfr.Unsigned").is_some(),
        frames: of.is_some_and(|of| &*of.name == "jdk.types.StackFrame"),
    }
}
