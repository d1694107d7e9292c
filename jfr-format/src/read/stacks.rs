//! Stack traces, read by a plan made once per chunk: their frames are most of what resolving samples costs.

use super::binding::Binding;
use crate::chunk::Chunk;
use crate::cursor::Cursor;
use crate::error::{Malformed, Result};
use crate::types::layout::{self, Step};
use crate::types::{Class, ClassIndex, Field, Kind, Types};

const STACK_TRACE: &str = "jdk.types.StackTrace";
/// Slots of [`StackReader::frame`].
const FRAME_FIELDS: [&str; 4] = ["method", "lineNumber", "type", "bytecodeIndex"];

/// Reads the `jdk.types.StackTrace` constants of one chunk.
#[derive(Clone, Debug)]
pub struct StackReader {
    class: ClassIndex,
    parts: Vec<Part>,
    frame: Binding,
}

#[derive(Clone, Debug)]
enum Part {
    Skip(Vec<Step>),
    Truncated,
    Frames,
}

/// A frame as it stands in its stack trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// Key of the method.
    pub method: u64,
    /// Source line.
    pub line: i32,
    /// Key of the frame type; `None` if frames have none.
    pub kind: Option<u64>,
    /// Bytecode index, 0 if frames have none; in recordings of Flightline the address in a library without lines.
    pub bytecode_index: i32,
}

impl StackReader {
    /// A plan for `chunk`; `None` if it declares no stack traces, or not as a list of frames whose methods, lines, types
    /// and bytecode indexes are plain keys and numbers.
    pub fn new(chunk: &Chunk) -> Option<Self> {
        let (class, trace) = chunk.types.by_name(STACK_TRACE)?;
        let (mut frame, mut truncated) = (None, false);
        let mut parts = Vec::new();
        let mut skipped = 0;
        for (at, field) in trace.fields.iter().enumerate() {
            let part = match &*field.name {
                "frames" if frame.is_none() => {
                    frame = Some(frame_plan(chunk, field)?);
                    Part::Frames
                }
                "truncated" if !truncated && is_boolean(&chunk.types, field) => {
                    truncated = true;
                    Part::Truncated
                }
                _ => continue,
            };
            parts.push(Part::Skip(layout::layout_steps(chunk.types.classes(), &trace.fields[skipped..at])));
            parts.push(part);
            skipped = at + 1;
        }
        Some(Self { class, parts, frame: frame? })
    }

    /// Calls `each` with the frames of the stack `key`, leaf first. Returns whether the root is missing; `None` if
    /// there is no such stack.
    ///
    /// # Errors
    /// The constant is malformed; the frames before the fault have been told.
    pub fn read(&self, chunk: &Chunk, key: u64, mut each: impl FnMut(StackFrame)) -> Result<Option<bool>> {
        let Some(raw) = chunk.pools.get(self.class, key) else { return Ok(None) };
        let mut cursor = Cursor::new(raw.bytes);
        self.parts(chunk, &mut cursor, &mut each).map(Some).map_err(|fault| {
            let what = format!("constant {key} of {STACK_TRACE}");
            chunk.malformed(fault, raw.offset + cursor.pos() as u64, what)
        })
    }

    fn parts(
        &self,
        chunk: &Chunk,
        cursor: &mut Cursor<'_>,
        each: &mut impl FnMut(StackFrame),
    ) -> std::result::Result<bool, Malformed> {
        let mut truncated = false;
        let has_kind = self.frame.is_bound(2);
        for part in &self.parts {
            match part {
                Part::Skip(steps) => layout::skip(chunk.types.classes(), steps, cursor, 0)?,
                Part::Truncated => truncated = cursor.byte()? != 0,
                Part::Frames => {
                    for _ in 0..cursor.count()? {
                        let [method, line, kind, index] = self.frame.pass(chunk, cursor)?;
                        let kind = has_kind.then_some(kind);
                        each(StackFrame { method, line: line as i32, kind, bytecode_index: index as i32 });
                    }
                }
            }
        }
        Ok(truncated)
    }
}

fn is_boolean(types: &Types, field: &Field) -> bool {
    let kind = field.class.and_then(|index| types.class(index)).map(|class| class.kind);
    kind == Some(Kind::Boolean) && !field.array && !field.pooled
}

/// The plan for the elements of `frames`, if all that is wanted of them can be taken out by it.
fn frame_plan(chunk: &Chunk, frames: &Field) -> Option<Binding> {
    let class = chunk.types.class(frames.class?)?;
    if !frames.array || frames.pooled || class.kind != Kind::Struct || class.nothing {
        return None;
    }
    let plan = Binding::new(chunk, class, &FRAME_FIELDS);
    let shaped = |slot: usize, good: fn(&Types, &Field) -> bool| {
        let field = class.field_index(FRAME_FIELDS[slot]).map(|at| &class.fields[at]);
        field.is_none_or(|field| plan.is_bound(slot) && good(&chunk.types, field))
    };
    let key = |_: &Types, field: &Field| field.pooled;
    let number = |types: &Types, field: &Field| !field.pooled && is_int(types, field);
    (shaped(0, key) && shaped(1, number) && shaped(2, key) && shaped(3, number)).then_some(plan)
}

fn is_int(types: &Types, field: &Field) -> bool {
    let class: Option<&Class> = field.class.and_then(|index| types.class(index));
    class.is_some_and(|class| class.kind == Kind::Int)
}
