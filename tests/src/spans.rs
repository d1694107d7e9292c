//! Reads the events of engines other than CPU time, with their times, stacks and fields.

use std::collections::HashMap;
use std::path::Path;

use jfr_format::event::{EventRef, StructRef, Value};
use jfr_format::read::{Input, Item};

use crate::recording::Frame;

/// One event.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// Type name.
    pub event: String,
    /// `duration` in ns, 0 without one.
    pub duration_ns: u64,
    /// Kernel thread id of `eventThread`, 0 without one.
    pub tid: u64,
    /// The name of that thread.
    pub thread: String,
    /// The frames of a second stack, that of the waker, leaf first.
    pub waker_frames: Vec<Frame>,
    /// Frames, leaf first.
    pub frames: Vec<Frame>,
    /// The walk did not reach the root, or there is no stack.
    pub truncated: bool,
    /// Other fields as text: numbers in decimal, classes and threads by name.
    pub fields: HashMap<String, String>,
}

impl Span {
    /// Returns true if the function is anywhere in the stack.
    pub fn has(&self, method: &str) -> bool {
        self.frames.iter().any(|frame| frame.method == method)
    }

    /// A field as text, empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// A field as a number.
    ///
    /// # Panics
    ///
    /// If it is not a number.
    #[track_caller]
    pub fn number(&self, name: &str) -> i64 {
        self.field(name).parse().unwrap_or_else(|_| panic!("{}.{name} is {:?}", self.event, self.field(name)))
    }
}

/// Reads all events of the given types, in file order.
///
/// # Panics
///
/// If the recording cannot be read, or our reader warns.
#[track_caller]
pub fn read(path: &Path, wanted: &[&str]) -> Vec<Span> {
    let mut input = Input::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut spans = Vec::new();
    while let Some(item) = input.next().unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
        match item {
            Item::Events(batch) => {
                for event in batch.events().filter(|e| wanted.contains(&&*e.class().name)) {
                    spans.push(span(&event).unwrap_or_else(|e| panic!("{}: {e}", event.class().name)));
                }
            }
            Item::Warning(warning) => panic!("our reader warns of our recording: {warning}"),
            Item::ChunkStart(_) | Item::ChunkEnd(_) => {}
        }
    }
    spans
}

fn span(event: &EventRef<'_>) -> Result<Span, jfr_format::error::Error> {
    let mut out = Span { event: event.class().name.to_string(), truncated: true, ..Span::default() };
    for field in event.fields().iter() {
        let (field, value) = field?;
        match (&*field.name, value.resolved()?) {
            // Ticks of our recordings are µs.
            ("duration", value) => out.duration_ns = value.as_i64().unwrap_or(0).max(0) as u64 * 1000,
            ("stackTrace", value) => {
                let Some(trace) = value.record()? else { continue };
                out.truncated = matches!(trace.field("truncated")?, Some(Value::Boolean(true)));
                out.frames = frames(&trace)?;
            }
            ("wakerStackTrace", value) => {
                if let Some(trace) = value.record()? {
                    out.waker_frames = frames(&trace)?;
                }
            }
            ("eventThread" | "sampledThread", value) => {
                out.thread = name_of(value)?;
                let thread = value.record()?;
                let tid = thread.map(|t| t.field("osThreadId")).transpose()?.flatten();
                out.tid = tid.and_then(|v| v.as_i64()).unwrap_or(0) as u64;
            }
            ("context", value) => {
                for inner in ["spanId", "localRootSpanId", "traceIdHi", "traceIdLo", "flags", "labels"] {
                    let Some(record) = value.record()? else { continue };
                    let Some(value) = record.field(inner)? else { continue };
                    let text = match value.as_i64() {
                        Some(number) => number.to_string(),
                        None => value.resolved()?.text()?.unwrap_or_default().into_owned(),
                    };
                    out.fields.insert(inner.to_owned(), text);
                }
            }
            (name, value) => {
                let text = match (&value, value.as_i64()) {
                    (Value::Boolean(yes), _) => yes.to_string(),
                    (_, Some(number)) => number.to_string(),
                    (_, None) => name_of(value)?,
                };
                out.fields.insert(name.to_owned(), text);
            }
        }
    }
    Ok(out)
}

fn frames(trace: &StructRef<'_>) -> Result<Vec<Frame>, jfr_format::error::Error> {
    match trace.field("frames")? {
        Some(Value::Array(frames)) => frames.iter().map(|one| crate::recording::frame(one?)).collect(),
        _ => Ok(Vec::new()),
    }
}

/// A string, or the name of a class or thread.
fn name_of(value: Value<'_>) -> Result<String, jfr_format::error::Error> {
    if let Some(record) = value.record()? {
        for name in ["osName", "name"] {
            if let Some(inner) = record.field(name)? {
                return Ok(inner.text()?.unwrap_or_default().into_owned());
            }
        }
        return Ok(String::new());
    }
    Ok(value.text()?.unwrap_or_default().into_owned())
}
