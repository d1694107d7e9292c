//! Writes values as JSON.

use std::collections::HashMap;

use jfr_format::error::Error;
use jfr_format::event::{self, ArrayRef, EventRef, Reference, StructRef, Value};
use jfr_format::read::{Chunk, ClassIndex, Field};

use super::super::MAX_DEPTH;
use super::super::budget::Budget;
use super::super::moment::Clock;
use super::super::number;
use super::cache::{Cache, Cost, Name};
use super::escape;
use super::shape::{FieldShape, Meaning, Shape, Shapes};
use super::{EVENT_INDENT, Style};

/// Writes values; caches printed constants.
#[derive(Debug)]
pub(in crate::print) struct Renderer {
    style: Style,
    pub(in crate::print) stack_depth: usize,
    clock: Option<Clock>,
    cache: Cache,
    links: Links,
    bounds: Bounds,
}

/// Bounds the expansion of one event.
#[derive(Debug, Default)]
struct Bounds {
    budget: Budget,
    path: Vec<(ClassIndex, u64)>,
    /// The longest path since this was reset.
    deepest: usize,
    /// Something was omitted.
    cut: bool,
}

impl Bounds {
    fn start(&mut self, out: &[u8]) {
        self.budget.start(out.len());
        self.path.clear();
        (self.deepest, self.cut) = (0, false);
    }

    fn spend(&mut self, out: &[u8]) -> bool {
        let good = self.budget.spend(out.len());
        self.cut |= !good;
        good
    }

    fn has_room(&self, cost: Cost, len: usize, out: &[u8]) -> bool {
        cost.values <= self.budget.values
            && self.path.len() + cost.depth <= MAX_DEPTH
            && out.len().saturating_add(len) <= self.budget.end
    }

    /// Enters a reference, unless it is circular or nested too deeply.
    fn enter(&mut self, class: ClassIndex, key: u64) -> bool {
        let deep = self.path.len() >= MAX_DEPTH;
        if deep || self.path.contains(&(class, key)) {
            self.cut = true;
            if deep {
                self.budget.lose();
            }
            return false;
        }
        self.path.push((class, key));
        self.deepest = self.deepest.max(self.path.len());
        true
    }
}

/// The numbers of referenced constants.
#[derive(Debug, Default)]
struct Links {
    numbers: HashMap<(ClassIndex, u64), u64>,
    last: u64,
    /// Referenced, but not defined yet.
    untold: Vec<(ClassIndex, u64, u64)>,
}

impl Renderer {
    pub(in crate::print) fn new(style: Style, stack_depth: usize) -> Self {
        let (cache, links, bounds) = (Cache::default(), Links::default(), Bounds::default());
        Self { style, stack_depth, clock: None, cache, links, bounds }
    }

    pub(in crate::print) fn chunk(&mut self, chunk: &Chunk) {
        self.clock = Some(Clock::new(chunk));
        self.cache.clear();
    }

    pub(in crate::print) fn forget_links(&mut self) {
        self.links.numbers.clear();
        self.links.untold.clear();
    }

    /// Starts an event, whose text will be appended to `out`.
    pub(in crate::print) fn start(&mut self, out: &[u8]) {
        self.bounds.start(out);
    }

    /// Returns the outcome of printing an event and the constants defined with it.
    pub(in crate::print) fn outcome(
        &mut self,
        event: &EventRef<'_>,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        self.bounds.budget.outcome(event, outcome)
    }

    /// Returns true if the event may become longer than `out`.
    pub(in crate::print) fn spend(&mut self, out: &[u8]) -> bool {
        self.bounds.spend(out)
    }

    /// Writes the fields of an event, each with its name and the separator before it.
    pub(in crate::print) fn event(
        &mut self,
        shapes: &Shapes,
        event: &EventRef<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.bounds.start(out);
        let Some(shape) = shapes.get(event.class_index()) else { return Ok(()) };
        for (value, shape) in event.fields().iter().zip(&shape.fields) {
            let (field, value) = value?;
            out.extend_from_slice(&shape.in_event);
            self.value(shapes, field, shape, value, EVENT_INDENT + 2, out);
        }
        Ok(())
    }

    /// Defines the constants that were referenced since the last call, and the constants that they
    /// reference, one per line.
    pub(in crate::print) fn definitions(&mut self, shapes: &Shapes, chunk: &Chunk, out: &mut Vec<u8>) {
        while let Some((class, key, number)) = self.links.untold.pop() {
            out.extend_from_slice(b"{\"constant\":");
            number::unsigned(number, out);
            out.extend_from_slice(b",\"of\":");
            escape::string(chunk.types.class(class).map_or("", |class| &class.name), out);
            out.extend_from_slice(b",\"value\":");
            self.bounds.start(out);
            match (event::constant(chunk, class, key, 0), shapes.get(class)) {
                (Ok(Some(Value::Struct(of))), Some(shape)) => self.object(shapes, shape, &of, 0, out),
                _ => out.extend_from_slice(b"null"),
            }
            out.extend_from_slice(b"}\n");
        }
    }

    pub(in crate::print) fn value(
        &mut self,
        shapes: &Shapes,
        field: &Field,
        shape: &FieldShape,
        value: Value<'_>,
        indent: usize,
        out: &mut Vec<u8>,
    ) {
        if !self.bounds.spend(out) {
            return out.extend_from_slice(b"null");
        }
        match value {
            Value::Long(v) if shape.unsigned && shape.meaning == Meaning::Number => {
                number::unsigned(v.cast_unsigned(), out);
            }
            Value::Long(v) => self.integer(v, shape.meaning, out),
            Value::Int(v) if shape.unsigned => {
                self.integer(i64::from(v.cast_unsigned()), shape.meaning, out);
            }
            Value::Int(v) => self.integer(i64::from(v), shape.meaning, out),
            Value::Short(v) if shape.unsigned => {
                self.integer(i64::from(v.cast_unsigned()), shape.meaning, out);
            }
            Value::Short(v) => self.integer(i64::from(v), shape.meaning, out),
            Value::Byte(v) if shape.unsigned => {
                self.integer(i64::from(v.cast_unsigned()), shape.meaning, out);
            }
            Value::Byte(v) => self.integer(i64::from(v), shape.meaning, out),
            Value::Char(v) if shape.meaning != Meaning::Number => {
                self.integer(i64::from(v), shape.meaning, out);
            }
            Value::Char(unit) => escape::string(&String::from_utf16_lossy(&[unit]), out),
            Value::Boolean(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
            Value::Float(v) => number::float(v, out),
            Value::Double(v) => number::double(v, out),
            Value::Null => out.extend_from_slice(b"null"),
            Value::Text(text) => escape::string(&text.to_str(), out),
            Value::Reference(reference) => self.reference(shapes, field, shape, reference, indent, out),
            Value::Struct(of) => self.record(shapes, field, shape, &of, indent, out),
            Value::Array(list) => self.list(shapes, field, shape, &list, indent, out),
        }
    }

    fn integer(&mut self, value: i64, meaning: Meaning, out: &mut Vec<u8>) {
        let (Some(clock), Meaning::Time(unit) | Meaning::Span(unit)) = (&mut self.clock, meaning) else {
            return number::signed(value, out);
        };
        out.push(b'"');
        match meaning {
            Meaning::Span(_) => clock.write_span(value, unit, out),
            _ => clock.write_time(value, unit, out),
        }
        out.push(b'"');
    }

    fn reference(
        &mut self,
        shapes: &Shapes,
        field: &Field,
        shape: &FieldShape,
        reference: Reference<'_>,
        indent: usize,
        out: &mut Vec<u8>,
    ) {
        let Some((class, of)) = field.class.and_then(|class| Some((class, shapes.get(class)?))) else {
            return out.extend_from_slice(b"null");
        };
        let key = reference.key();
        if of.record && self.style == Style::Linked {
            return self.link(class, reference, out);
        }
        let name = Name { class: class.index() as u32, indent: indent as u32, key };
        if of.record
            && let Some((text, cost)) = self.cache.get(name)
            && self.bounds.has_room(cost, text.len(), out)
        {
            out.extend_from_slice(text);
            self.bounds.budget.values -= cost.values;
            self.bounds.deepest = self.bounds.deepest.max(self.bounds.path.len() + cost.depth);
            return;
        }
        // Treats a damaged constant as null; the decoder has reported the damage.
        let Ok(Some(value)) = reference.unbounded().resolve() else { return out.extend_from_slice(b"null") };
        let (start, values) = (out.len(), self.bounds.budget.values);
        let cut = std::mem::replace(&mut self.bounds.cut, false);
        let deepest = std::mem::replace(&mut self.bounds.deepest, self.bounds.path.len());
        if self.bounds.enter(class, key) {
            self.value(shapes, field, shape, value, indent, out);
            self.bounds.path.pop();
        } else {
            out.extend_from_slice(b"null");
        }
        if of.record && !self.bounds.cut {
            let cost = Cost {
                values: values - self.bounds.budget.values,
                depth: self.bounds.deepest - self.bounds.path.len(),
            };
            self.cache.put(name, &out[start..], cost);
        }
        self.bounds.cut |= cut;
        self.bounds.deepest = self.bounds.deepest.max(deepest);
    }

    /// `{"#":12}`
    fn link(&mut self, class: ClassIndex, reference: Reference<'_>, out: &mut Vec<u8>) {
        let links = &mut self.links;
        let key = reference.key();
        let number = match links.numbers.get(&(class, key)) {
            Some(&number) => number,
            None if matches!(reference.unbounded().resolve(), Ok(Some(_))) => {
                links.last += 1;
                links.numbers.insert((class, key), links.last);
                links.untold.push((class, key, links.last));
                links.last
            }
            None => return out.extend_from_slice(b"null"),
        };
        out.extend_from_slice(b"{\"#\":");
        number::unsigned(number, out);
        out.push(b'}');
    }

    fn record(
        &mut self,
        shapes: &Shapes,
        field: &Field,
        shape: &FieldShape,
        of: &StructRef<'_>,
        indent: usize,
        out: &mut Vec<u8>,
    ) {
        match shapes.get(of.class_index()) {
            Some(simple) if simple.simple => match of.iter().next() {
                // The annotations are those of the referring field; the type is that of the inner field.
                Some(Ok((inner, value))) => {
                    let inner = if matches!(value, Value::Reference(_)) { inner } else { field };
                    self.value(shapes, inner, shape, value, indent, out);
                }
                _ => out.extend_from_slice(b"null"),
            },
            Some(record) => self.object(shapes, record, of, indent, out),
            None => out.extend_from_slice(b"null"),
        }
    }

    /// `indent` is the indentation of the line in which the object begins.
    fn object(
        &mut self,
        shapes: &Shapes,
        shape: &Shape,
        of: &StructRef<'_>,
        indent: usize,
        out: &mut Vec<u8>,
    ) {
        let pretty = self.style == Style::Document;
        out.extend_from_slice(if pretty { b"{\n" } else { b"{" });
        // Prints the readable part of a damaged constant; the decoder has reported the damage.
        for (at, (value, shape)) in of.iter().map_while(Result::ok).zip(&shape.fields).enumerate() {
            let (field, value) = value;
            if pretty {
                if at > 0 {
                    out.extend_from_slice(b", \n");
                }
                blanks(indent + 2, out);
            } else if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&shape.name);
            self.value(shapes, field, shape, value, indent + 2, out);
        }
        if pretty {
            out.push(b'\n');
            blanks(indent, out);
        }
        out.push(b'}');
    }

    fn list(
        &mut self,
        shapes: &Shapes,
        field: &Field,
        shape: &FieldShape,
        list: &ArrayRef<'_>,
        indent: usize,
        out: &mut Vec<u8>,
    ) {
        let limit = if shape.frames { self.stack_depth } else { usize::MAX };
        let separator: &[u8] = if self.style == Style::Document { b", " } else { b"," };
        out.push(b'[');
        for (at, value) in list.iter().take(limit).map_while(Result::ok).enumerate() {
            if self.bounds.budget.values == 0 || out.len() >= self.bounds.budget.end {
                self.bounds.cut = true;
                self.bounds.budget.lose();
                break;
            }
            if at > 0 {
                out.extend_from_slice(separator);
            }
            self.value(shapes, field, shape, value, indent, out);
        }
        out.push(b']');
    }
}

fn blanks(count: usize, out: &mut Vec<u8>) {
    const BLANKS: &[u8; 64] = &[b' '; 64];
    match BLANKS.get(..count) {
        Some(blanks) => out.extend_from_slice(blanks),
        None => out.resize(out.len() + count, b' '),
    }
}
