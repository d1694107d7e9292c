//! Threads, stack traces and strings as constants, written once per chunk.

use super::field_value::{StackTraceKey, StringKey, ThreadKey};
use super::{ChunkWriter, FieldWriter, WriteError};
use crate::ids::TypeId;
use crate::schema::{self, frame_type};
use std::collections::HashMap;
use std::hash::Hash;

/// Written for the empty name of a method, which some readers refuse.
const UNKNOWN: &str = "[unknown]";
/// Readers require a descriptor; this one has no parameters and no known result.
const DESCRIPTOR: &str = "()L;";

/// A frame of a stack trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Class, module or library of the method; may be empty. Without the brackets of names such as `[vdso]`: JDK
    /// Mission Control treats these as array types and fails.
    pub class: &'a str,
    /// Name of the method or function; `[unknown]` is written for an empty name.
    pub method: &'a str,
    /// Line number; 0 = unknown.
    pub line: u32,
    /// Key of the kind of frame, one of [`frame_type`].
    pub kind: u64,
}

impl<'a> Frame<'a> {
    /// Returns a frame of native code without a line number.
    pub fn new(class: &'a str, method: &'a str) -> Frame<'a> {
        Frame { class, method, line: 0, kind: frame_type::CPP }
    }
}

/// Gives threads, stack traces and strings their keys. One value serves all chunks of a file.
///
/// A key has the same meaning in the whole file. The constant itself is queued once per chunk, so call these
/// methods again for each event, with the chunk into which the event is written. If an event is written into a
/// new chunk because the previous one was full, get its keys again.
///
/// Do not mix it with keys of the caller's own in the same file.
///
/// The values of all chunks are stored until it is dropped.
#[derive(Debug, Default)]
pub struct Constants {
    symbols: Pool<str>,
    classes: Pool<u64>,
    methods: Pool<(u64, u64)>,
    stack_traces: Pool<[u64]>,
    threads: Pool<[u8]>,
    strings: Pool<str>,
    /// Memory reused by each stack trace and thread.
    stack_trace: Vec<u64>,
    thread: Vec<u8>,
}

impl Constants {
    /// Returns an empty set of constants.
    pub fn new() -> Constants {
        Constants::default()
    }

    /// Returns the key of a thread of the operating system.
    ///
    /// # Errors
    /// As [`ChunkWriter::constant`].
    pub fn thread(&mut self, chunk: &mut ChunkWriter, id: u64, name: &str) -> Result<ThreadKey, WriteError> {
        let thread = &mut self.thread;
        thread.clear();
        thread.extend_from_slice(&id.to_le_bytes());
        thread.extend_from_slice(name.as_bytes());
        let key = self.threads.key(chunk, schema::THREAD, thread.as_slice(), |t| {
            t.string(name).long(id as i64).null().long(0).key(0);
        })?;
        ThreadKey::new(key)
    }

    /// Returns the key of a stack trace. The first frame is the innermost one. `truncated`: outer frames are
    /// missing.
    ///
    /// # Errors
    /// As [`ChunkWriter::constant`].
    pub fn stack_trace(
        &mut self,
        chunk: &mut ChunkWriter,
        frames: &[Frame<'_>],
        truncated: bool,
    ) -> Result<StackTraceKey, WriteError> {
        let mut stack_trace = std::mem::take(&mut self.stack_trace);
        let key = self.stack_trace_in(&mut stack_trace, chunk, frames, truncated);
        self.stack_trace = stack_trace;
        StackTraceKey::new(key?)
    }

    fn stack_trace_in(
        &mut self,
        value: &mut Vec<u64>,
        chunk: &mut ChunkWriter,
        frames: &[Frame<'_>],
        truncated: bool,
    ) -> Result<u64, WriteError> {
        value.clear();
        value.push(u64::from(truncated));
        for frame in frames {
            value.extend([self.method(chunk, frame)?, u64::from(frame.line), frame.kind]);
        }
        self.stack_traces.key(chunk, schema::STACK_TRACE, value.as_slice(), |s| {
            s.boolean(truncated).array(frames.len());
            for frame in value[1..].chunks_exact(3) {
                s.key(frame[0]).int(i32::try_from(frame[1]).unwrap_or(i32::MAX)).int(0).key(frame[2]);
            }
        })
    }

    fn method(&mut self, chunk: &mut ChunkWriter, frame: &Frame<'_>) -> Result<u64, WriteError> {
        let descriptor = self.symbol(chunk, DESCRIPTOR)?;
        let class_name = self.symbol(chunk, without_brackets(frame.class))?;
        let class = self.classes.key(chunk, schema::CLASS, &class_name, |c| {
            c.key(0).key(class_name).key(0).int(0).boolean(false);
        })?;
        let name = if frame.method.is_empty() { UNKNOWN } else { frame.method };
        let name = self.symbol(chunk, name)?;
        self.methods.key(chunk, schema::METHOD, &(class, name), |m| {
            m.key(class).key(name).key(descriptor).int(0).boolean(false);
        })
    }

    fn symbol(&mut self, chunk: &mut ChunkWriter, name: &str) -> Result<u64, WriteError> {
        self.symbols.key(chunk, schema::SYMBOL, name, |s| {
            s.string(name);
        })
    }

    /// Returns the key of a string. Worthwhile for long strings that many events share.
    ///
    /// # Errors
    /// As [`ChunkWriter::constant`].
    pub fn string(&mut self, chunk: &mut ChunkWriter, text: &str) -> Result<StringKey, WriteError> {
        let key = self.strings.key(chunk, schema::STRING, text, |s| {
            s.string(text);
        })?;
        StringKey::new(key)
    }
}

fn without_brackets(class: &str) -> &str {
    let name = class.trim_start_matches('[');
    if name.len() < class.len() { name.trim_end_matches(']') } else { class }
}

/// The constants of one type.
#[derive(Debug)]
struct Pool<Q: ?Sized + ToOwned<Owned: std::fmt::Debug>> {
    entries: HashMap<Q::Owned, Entry>,
}

#[derive(Debug)]
struct Entry {
    key: u64,
    /// [`ChunkWriter::id`] of the chunk into which it was last written; 0 = none.
    chunk: u64,
}

impl<Q: ?Sized + ToOwned<Owned: std::fmt::Debug>> Default for Pool<Q> {
    fn default() -> Self {
        Pool { entries: HashMap::new() }
    }
}

impl<Q> Pool<Q>
where
    Q: ?Sized + ToOwned<Owned: std::fmt::Debug + Eq + Hash> + Eq + Hash,
{
    /// Returns the key of `value`, which `write` writes unless it is already in the chunk.
    fn key(
        &mut self,
        chunk: &mut ChunkWriter,
        ty: TypeId,
        value: &Q,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<u64, WriteError> {
        let key = self.entries.len() as u64 + 1;
        let entry = match self.entries.get_mut(value) {
            Some(entry) => entry,
            None => self.entries.entry(value.to_owned()).or_insert(Entry { key, chunk: 0 }),
        };
        if entry.chunk != chunk.id() {
            chunk.constant(ty, entry.key, write)?;
            entry.chunk = chunk.id();
        }
        Ok(entry.key)
    }
}
