//! Events as JSON: a document that equals the JDK's `jfr print --json` byte for byte, or JSON lines.

pub(super) mod cache;
mod escape;
pub(super) mod render;
pub(super) mod shape;

use jfr_format::error::Error;
use jfr_format::event::EventRef;
use jfr_format::read::Chunk;

use super::EventWriter;
use render::Renderer;
use shape::Shapes;

/// Indentation of the line that opens an event's values.
const EVENT_INDENT: usize = 6;

/// The layout of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Like the JDK.
    Document,
    /// Without whitespace, one event per line.
    Line,
    /// The same; structs in constant pools are written once and then referenced.
    Linked,
}

/// Prints `{"recording": {"events": [ … ]}}`.
#[derive(Debug)]
pub struct JsonPrinter {
    shapes: Shapes,
    render: Renderer,
}

impl JsonPrinter {
    /// Prints this maximum number of frames per stack.
    pub fn new(stack_depth: usize) -> Self {
        Self { shapes: Shapes::default(), render: Renderer::new(Style::Document, stack_depth) }
    }
}

impl EventWriter for JsonPrinter {
    fn begin(&self) -> &'static [u8] {
        b"{\n  \"recording\": {\n    \"events\": ["
    }

    fn between(&self) -> &'static [u8] {
        b", "
    }

    fn end(&self) -> &'static [u8] {
        b"]\n  }\n}"
    }

    fn another(&self) -> Option<Box<dyn EventWriter>> {
        Some(Box::new(Self::new(self.render.stack_depth)))
    }

    fn chunk(&mut self, chunk: &Chunk) {
        self.shapes.update(&chunk.types, Style::Document);
        self.render.chunk(chunk);
    }

    fn event(&mut self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let Some(shape) = self.shapes.get(event.class_index()) else { return Ok(()) };
        out.extend_from_slice(&shape.head);
        let outcome = self.render.event(&self.shapes, event, out);
        out.extend_from_slice(b"\n      }\n    }");
        self.render.outcome(event, outcome)
    }
}

/// Prints each event as one JSON object per line, with the type as a member like the fields.
#[derive(Debug)]
pub struct LinePrinter {
    shapes: Shapes,
    render: Renderer,
}

impl LinePrinter {
    /// Prints this maximum number of frames per stack.
    pub fn new(stack_depth: usize) -> Self {
        Self { shapes: Shapes::default(), render: Renderer::new(Style::Line, stack_depth) }
    }
}

impl EventWriter for LinePrinter {
    fn another(&self) -> Option<Box<dyn EventWriter>> {
        Some(Box::new(Self::new(self.render.stack_depth)))
    }

    fn chunk(&mut self, chunk: &Chunk) {
        self.shapes.update(&chunk.types, Style::Line);
        self.render.chunk(chunk);
    }

    fn event(&mut self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let Some(shape) = self.shapes.get(event.class_index()) else { return Ok(()) };
        out.extend_from_slice(&shape.head);
        let outcome = self.render.event(&self.shapes, event, out);
        out.extend_from_slice(b"}\n");
        self.render.outcome(event, outcome)
    }
}

/// Prints each event as one JSON object in a line; structs in constant pools (stacks, methods, classes,
/// threads) have their own line before the first event that needs them, and are referenced by number.
///
/// ```text
/// {"chunk":1}
/// {"constant":1,"of":"java.lang.Thread","value":{"osName":"main",…,"group":{"#":2}}}
/// {"constant":2,"of":"jdk.types.ThreadGroup","value":{…}}
/// {"event":"jdk.ThreadPark","startTime":"…","eventThread":{"#":1},…}
/// ```
/// Numbers are never reused, and one chunk does not refer to numbers of another: at `{"chunk":…}`,
/// readers can discard all earlier constants.
#[derive(Debug)]
pub struct CompactPrinter {
    shapes: Shapes,
    render: Renderer,
    /// The chunk that was written last.
    told: Option<u32>,
    chunk: u32,
    line: Vec<u8>,
}

impl CompactPrinter {
    /// Prints this maximum number of frames per stack.
    pub fn new(stack_depth: usize) -> Self {
        let render = Renderer::new(Style::Linked, stack_depth);
        Self { shapes: Shapes::default(), render, told: None, chunk: 0, line: Vec::new() }
    }
}

impl EventWriter for CompactPrinter {
    fn another(&self) -> Option<Box<dyn EventWriter>> {
        None
    }

    fn chunk(&mut self, chunk: &Chunk) {
        self.shapes.update(&chunk.types, Style::Linked);
        if self.told.is_none() || self.chunk != chunk.index.0 {
            self.render.forget_links();
        }
        self.chunk = chunk.index.0;
        self.render.chunk(chunk);
    }

    fn event(&mut self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let Some(shape) = self.shapes.get(event.class_index()) else { return Ok(()) };
        if self.told != Some(self.chunk) {
            self.told = Some(self.chunk);
            out.extend_from_slice(b"{\"chunk\":");
            super::number::unsigned(event.chunk().index.number(), out);
            out.extend_from_slice(b"}\n");
        }
        self.line.clear();
        self.line.extend_from_slice(&shape.head);
        let outcome = self.render.event(&self.shapes, event, &mut self.line);
        self.line.extend_from_slice(b"}\n");
        self.render.definitions(&self.shapes, event.chunk(), out);
        out.extend_from_slice(&self.line);
        self.render.outcome(event, outcome)
    }
}
