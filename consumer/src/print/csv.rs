//! Events as a CSV table with the quoting of RFC 4180.
//!
//! If one event type is selected, its fields are the columns. For several types, the columns are the
//! fields that most types have, and one with the other fields as JSON:
//!
//! ```text
//! event,startTime,duration,eventThread,stackTrace,fields
//! ```
//! Threads, classes, methods and other named values are written as their name, a stack as its frames
//! (leaf first), durations in seconds, and null as an empty cell.

use std::borrow::Cow;
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{EventRef, StructRef, Value};
use jfr_format::read::{Chunk, Class, Field};

use super::json::Style;
use super::json::cache::{Cache, Cost, Name};
use super::json::render::Renderer;
use super::json::shape::{FieldShape, Meaning, Shapes};
use super::moment::{Clock, Unit};
use super::{EventWriter, Selection, number};
use crate::fields;

/// Columns of a table with several types.
const COMMON: [&str; 5] = ["event", "startTime", "duration", "eventThread", "stackTrace"];

/// Size of a stack in bytes from which further frames are omitted.
const MAX_STACK: usize = 1 << 20;

#[derive(Debug)]
enum Columns {
    /// The fields of one type.
    Of(Vec<Arc<str>>),
    Common,
}

/// Prints a CSV table.
#[derive(Debug)]
pub struct CsvPrinter {
    selection: Selection,
    columns: Option<Arc<Columns>>,
    /// For each class, the column of each field.
    maps: Vec<Option<Vec<Option<usize>>>>,
    shapes: Shapes,
    render: Renderer,
    stack_depth: usize,
    clock: Option<Clock>,
    cache: Cache,
    /// Cells of the row in decoding order.
    text: Vec<u8>,
    /// For each column, the range in `text`.
    cells: Vec<(usize, usize)>,
    rest: Vec<u8>,
}

impl CsvPrinter {
    /// Creates a printer for the selected events, with this maximum number of frames per stack.
    pub fn new(selection: Selection, stack_depth: usize) -> Self {
        Self {
            selection,
            columns: None,
            maps: Vec::new(),
            shapes: Shapes::default(),
            render: Renderer::new(Style::Line, stack_depth),
            stack_depth,
            clock: None,
            cache: Cache::default(),
            text: Vec::new(),
            cells: Vec::new(),
            rest: Vec::new(),
        }
    }

    fn map(&self, class: &Class) -> Vec<Option<usize>> {
        let column = |field: &Field| match self.columns.as_deref() {
            Some(Columns::Of(names)) => names.iter().position(|name| *name == field.name),
            _ => COMMON.iter().skip(1).position(|name| **name == *field.name).map(|at| at + 1),
        };
        class.fields.iter().map(column).collect()
    }

    fn count(&self) -> usize {
        match self.columns.as_deref() {
            Some(Columns::Of(names)) => names.len(),
            _ => COMMON.len(),
        }
    }

    fn fields(&mut self, event: &EventRef<'_>) -> Result<(), Error> {
        let Some(shape) = self.shapes.get(event.class_index()) else { return Ok(()) };
        let Some(Some(map)) = self.maps.get(event.class_index().index()) else { return Ok(()) };
        self.render.start(&self.rest);
        let (mut own, common) = (
            Own { stack_depth: self.stack_depth, clock: &mut self.clock, cache: &mut self.cache },
            !matches!(self.columns.as_deref(), Some(Columns::Of(_))),
        );
        for ((value, shape), column) in event.fields().iter().zip(&shape.fields).zip(map) {
            let (field, value) = value?;
            // Checks the longer of the two, because they grow separately.
            let longer = if self.text.len() > self.rest.len() { &self.text } else { &self.rest };
            if !self.render.spend(longer) {
                break;
            }
            match column {
                Some(column) => {
                    let start = self.text.len();
                    if !own.cell(field, shape, value, &mut self.text) {
                        // A value without a name is written as JSON.
                        self.render.value(&self.shapes, field, shape, value, 0, &mut self.text);
                    }
                    if let Some(cell) = self.cells.get_mut(*column) {
                        *cell = (start, self.text.len());
                    }
                }
                None if common => {
                    self.rest.push(if self.rest.is_empty() { b'{' } else { b',' });
                    self.rest.extend_from_slice(&shape.name);
                    self.render.value(&self.shapes, field, shape, value, 0, &mut self.rest);
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl EventWriter for CsvPrinter {
    fn head(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        let mut chosen =
            chunk.types.classes().iter().filter(|class| class.is_event() && self.selection.chooses(class));
        let columns = match (chosen.next(), chosen.next()) {
            (Some(one), None) => Columns::Of(one.fields.iter().map(|field| field.name.clone()).collect()),
            _ => Columns::Common,
        };
        match &columns {
            Columns::Of(names) => row(names.iter().map(|name| name.as_bytes()), out),
            Columns::Common => row(COMMON.into_iter().chain(["fields"]).map(str::as_bytes), out),
        }
        self.columns = Some(Arc::new(columns));
    }

    fn another(&self) -> Option<Box<dyn EventWriter>> {
        let mut other = Self::new(self.selection.clone(), self.stack_depth);
        other.columns = self.columns.clone();
        Some(Box::new(other))
    }

    fn chunk(&mut self, chunk: &Chunk) {
        self.shapes.update(&chunk.types, Style::Line);
        self.render.chunk(chunk);
        self.clock = Some(Clock::new(chunk));
        self.cache.clear();
        self.maps.clear();
    }

    fn event(&mut self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let class = event.class_index().index();
        if self.maps.len() <= class {
            self.maps.resize_with(class + 1, || None);
        }
        if self.maps[class].is_none() {
            self.maps[class] = Some(self.map(event.class()));
        }
        self.text.clear();
        self.rest.clear();
        self.cells.clear();
        self.cells.resize(self.count(), (0, 0));
        let outcome = self.fields(event);
        let outcome = self.render.outcome(event, outcome);
        let cells = self.cells.iter().map(|&(start, end)| self.text.get(start..end).unwrap_or_default());
        if let Some(Columns::Of(_)) = self.columns.as_deref() {
            row(cells, out);
        } else {
            if !self.rest.is_empty() {
                self.rest.push(b'}');
            }
            let name = event.class().name.as_bytes();
            row(std::iter::once(name).chain(cells.skip(1)).chain([self.rest.as_slice()]), out);
        }
        outcome
    }
}

/// Writes cells separated by commas, quoted if necessary.
fn row<'a>(cells: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if !cell.iter().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n')) {
            out.extend_from_slice(cell);
            continue;
        }
        out.push(b'"');
        for &byte in cell {
            if byte == b'"' {
                out.push(b'"');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
    out.push(b'\n');
}

/// State for formatting a cell.
struct Own<'p> {
    stack_depth: usize,
    clock: &'p mut Option<Clock>,
    cache: &'p mut Cache,
}

impl Own<'_> {
    /// Writes the text of a value; returns false if it has none.
    fn cell(&mut self, field: &Field, shape: &FieldShape, value: Value<'_>, out: &mut Vec<u8>) -> bool {
        if let (Value::Reference(reference), Some(class)) = (value, field.class) {
            let name = Name { class: class.index() as u32, indent: 0, key: reference.key() };
            if let Some((text, _)) = self.cache.get(name) {
                out.extend_from_slice(text);
                return true;
            }
            let start = out.len();
            let Ok(value) = value.resolved() else { return true };
            let done = self.plain(shape, value, out);
            if done {
                self.cache.put(name, &out[start..], Cost::default());
            }
            return done;
        }
        match value.resolved() {
            Ok(value) => self.plain(shape, value, out),
            Err(_) => true,
        }
    }

    fn plain(&mut self, shape: &FieldShape, value: Value<'_>, out: &mut Vec<u8>) -> bool {
        let integer = match value {
            Value::Null => return true,
            Value::Text(text) => {
                out.extend_from_slice(text.to_str().as_bytes());
                return true;
            }
            Value::Float(v) if !v.is_finite() => return true,
            Value::Double(v) if !v.is_finite() => return true,
            Value::Struct(of) => return named(&of, self.stack_depth, out),
            Value::Char(unit) => {
                out.extend_from_slice(String::from_utf16_lossy(&[unit]).as_bytes());
                return true;
            }
            Value::Byte(v) if shape.unsigned => i64::from(v.cast_unsigned()),
            Value::Short(v) if shape.unsigned => i64::from(v.cast_unsigned()),
            Value::Int(v) if shape.unsigned => i64::from(v.cast_unsigned()),
            Value::Byte(v) => i64::from(v),
            Value::Short(v) => i64::from(v),
            Value::Int(v) => i64::from(v),
            Value::Long(v) => v,
            _ => return false,
        };
        match (shape.meaning, self.clock.as_mut()) {
            (Meaning::Time(_) | Meaning::Span(_), Some(_)) if integer == i64::MIN => {}
            (Meaning::Span(_), Some(_)) if integer == i64::MAX => out.extend_from_slice(b"inf"),
            (Meaning::Time(unit), Some(clock)) => clock.write_time(integer, unit, out),
            (Meaning::Span(unit), Some(clock)) => seconds(clock, integer, unit, out),
            _ if shape.unsigned && matches!(value, Value::Long(_)) => {
                number::unsigned(integer.cast_unsigned(), out);
            }
            _ => number::signed(integer, out),
        }
        true
    }
}

/// `0.0451`
fn seconds(clock: &Clock, value: i64, unit: Unit, out: &mut Vec<u8>) {
    let span = clock.span(value, unit);
    let (mut whole, mut nanos) = (i128::from(span.whole), span.nanos);
    if whole < 0 && nanos > 0 {
        (whole, nanos) = (whole + 1, 1_000_000_000 - nanos);
        if whole == 0 {
            out.push(b'-');
        }
    }
    number::signed(whole as i64, out);
    if nanos > 0 {
        out.push(b'.');
        number::nanos(nanos, 0, out);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Writes the name of a struct; returns false if it has none.
fn named(of: &StructRef<'_>, stack_depth: usize, out: &mut Vec<u8>) -> bool {
    match &*of.class().name {
        "java.lang.Thread" => {
            let name = |field| fields::text(of, field).filter(|name| !name.is_empty());
            let name = name("javaName").or_else(|| name("osName")).unwrap_or_default();
            out.extend_from_slice(name.as_bytes());
        }
        "java.lang.Class" => dotted(fields::text(of, "name"), out),
        "jdk.types.Method" => method(of, out),
        "jdk.types.StackTrace" => {
            let start = out.len();
            let Ok(Some(Value::Array(frames))) = of.field("frames") else { return true };
            for (at, value) in frames.iter().take(stack_depth).flatten().enumerate() {
                if out.len() - start > MAX_STACK {
                    break;
                }
                if at > 0 {
                    out.push(b';');
                }
                if let Ok(Some(of)) = value.record() {
                    frame(&of, out);
                }
            }
        }
        "jdk.types.StackFrame" => frame(of, out),
        _ => match of.field("name") {
            Ok(Some(name)) => match name.text() {
                Ok(name) => out.extend_from_slice(name.unwrap_or_default().as_bytes()),
                Err(_) => return false,
            },
            _ => return false,
        },
    }
    true
}

fn frame(of: &StructRef<'_>, out: &mut Vec<u8>) {
    if let Some(of) = fields::record(of, "method") {
        method(&of, out);
    }
    if let Some(line @ 1..) = fields::number(of, "lineNumber") {
        out.push(b':');
        number::signed(line, out);
    }
}

fn method(of: &StructRef<'_>, out: &mut Vec<u8>) {
    let class = fields::record(of, "type").and_then(|class| fields::text(&class, "name")).unwrap_or_default();
    if !class.is_empty() {
        dotted(Some(class), out);
        out.push(b'.');
    }
    out.extend_from_slice(fields::text(of, "name").unwrap_or_default().as_bytes());
}

fn dotted(name: Option<Cow<'_, str>>, out: &mut Vec<u8>) {
    out.extend(name.unwrap_or_default().bytes().map(|byte| if byte == b'/' { b'.' } else { byte }));
}
