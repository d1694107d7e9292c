//! Keys of a chunk's pools → entries of the model, each looked up once per chunk.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{StructRef, Value, constant};
use jfr_format::pool::KeyHash;
use jfr_format::read::{Chunk, StackReader};

use super::names::Names;
use crate::model::{Frame, FrameKind, Id, Model, Stack, Thread};
use crate::warnings::Warnings;

type Result<T> = std::result::Result<T, Error>;

/// Class, name, whether it is native code.
type Method = (Arc<str>, Arc<str>, bool);

/// The access flag of methods in native code.
const NATIVE: i64 = 0x100;
/// The descriptor that async-profiler, and we, give native functions.
const NATIVE_DESCRIPTOR: &str = "()L;";

/// Caches of the current chunk.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    lines: bool,
    threads: HashMap<u64, Option<Id<Thread>>, KeyHash>,
    stacks: HashMap<u64, Option<Id<Stack>>, KeyHash>,
    states: HashMap<u64, Option<Id<Arc<str>>>, KeyHash>,
    methods: HashMap<u64, Method, KeyHash>,
    kinds: HashMap<u64, FrameKind, KeyHash>,
    frames: HashMap<RawFrame, Id<Frame>, KeyHash>,
    names: Names,
    /// Whether the producer distinguishes kernel frames, as only native profilers do.
    knows_kernel: Option<bool>,
    /// `None` if stacks have to be read field by field.
    reader: Option<StackReader>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RawFrame {
    method: u64,
    kind: u64,
    line: i32,
}

impl Resolver {
    pub(super) fn new(lines: bool) -> Self {
        Self { lines, ..Self::default() }
    }

    /// Keys mean what they do in `chunk` from here on.
    pub(super) fn begin(&mut self, chunk: &Chunk) {
        *self = Self { lines: self.lines, reader: StackReader::new(chunk), ..Self::default() };
    }

    pub(super) fn thread(
        &mut self,
        chunk: &Chunk,
        model: &mut Model,
        key: u64,
        warnings: &mut Warnings,
    ) -> Option<Id<Thread>> {
        if let Some(&known) = self.threads.get(&key) {
            return known;
        }
        let thread = self.read_thread(chunk, key).unwrap_or_else(|error| {
            warnings.push(error);
            None
        });
        let id = thread.map(|t| model.threads.intern(t));
        self.threads.insert(key, id);
        id
    }

    pub(super) fn state(&mut self, chunk: &Chunk, model: &mut Model, key: u64) -> Option<Id<Arc<str>>> {
        if let Some(&known) = self.states.get(&key) {
            return known;
        }
        let value = lookup(chunk, "jdk.types.ThreadState", key).ok().flatten();
        let name = value.and_then(|value| self.names.of(value).ok()?);
        let id = name.map(|name| model.states.intern(name));
        self.states.insert(key, id);
        id
    }

    /// Which of several things an event tells of. What cannot be resolved is told, and has no name.
    pub(super) fn variant(&mut self, chunk: &Chunk, key: u64, warnings: &mut Warnings) -> Option<Arc<str>> {
        if key == u64::MAX {
            return None;
        }
        let name = lookup(chunk, "flightline.types.EventName", key)
            .and_then(|value| value.map_or(Ok(None), |value| self.names.of(value)));
        name.unwrap_or_else(|error| {
            warnings.push(error);
            None
        })
    }

    fn read_thread(&mut self, chunk: &Chunk, key: u64) -> Result<Option<Thread>> {
        let Some(Value::Struct(fields)) = lookup(chunk, "java.lang.Thread", key)? else { return Ok(None) };
        let number = |name| Ok(fields.field(name)?.and_then(|v| v.as_i64()).unwrap_or(0));
        let group = match record_field(&fields, "group")? {
            Some(group) => self.names.of_field(&group, "name")?,
            None => None,
        };
        Ok(Some(Thread {
            os_name: self.names.of_field(&fields, "osName")?,
            os_id: number("osThreadId")?,
            java_name: self.names.of_field(&fields, "javaName")?,
            java_id: number("javaThreadId")?,
            group,
        }))
    }

    pub(super) fn stack(
        &mut self,
        chunk: &Chunk,
        model: &mut Model,
        key: u64,
        warnings: &mut Warnings,
    ) -> Option<Id<Stack>> {
        if let Some(&known) = self.stacks.get(&key) {
            return known;
        }
        let id = self.read_stack(chunk, model, key).unwrap_or_else(|error| {
            warnings.push(error);
            None
        });
        self.stacks.insert(key, id);
        id
    }

    fn read_stack(&mut self, chunk: &Chunk, model: &mut Model, key: u64) -> Result<Option<Id<Stack>>> {
        let Some(reader) = self.reader.take() else { return self.read_odd_stack(chunk, model, key) };
        let mut frames = Vec::new();
        let mut fault = None;
        let read = reader.read(chunk, key, |frame| {
            let line = if self.lines { frame.line } else { 0 };
            let raw = RawFrame { method: frame.method, kind: frame.kind.unwrap_or(u64::MAX), line };
            match self.frame(chunk, model, raw) {
                Ok(frame) => frames.push(frame),
                Err(error) => fault = fault.take().or(Some(error)),
            }
        });
        self.reader = Some(reader);
        match (read?, fault) {
            (_, Some(error)) => Err(error),
            (None, None) => Ok(None),
            (Some(truncated), None) => {
                Ok(Some(model.stacks.intern(Stack { frames: frames.into(), truncated })))
            }
        }
    }

    /// A stack trace of another shape than all known producers write.
    fn read_odd_stack(&mut self, chunk: &Chunk, model: &mut Model, key: u64) -> Result<Option<Id<Stack>>> {
        let Some(Value::Struct(trace)) = lookup(chunk, "jdk.types.StackTrace", key)? else { return Ok(None) };
        let mut truncated = false;
        let mut frames = Vec::new();
        for field in trace.iter() {
            match field? {
                (field, Value::Boolean(set)) if &*field.name == "truncated" => truncated = set,
                (field, Value::Array(list)) if &*field.name == "frames" => {
                    for frame in list.iter() {
                        if let Some(frame) = frame?.record()? {
                            let raw = self.raw_frame(&frame)?;
                            frames.push(self.frame(chunk, model, raw)?);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(Some(model.stacks.intern(Stack { frames: frames.into(), truncated })))
    }

    fn raw_frame(&self, frame: &StructRef<'_>) -> Result<RawFrame> {
        let mut raw = RawFrame { method: 0, kind: u64::MAX, line: 0 };
        for field in frame.iter() {
            match field? {
                (field, Value::Reference(method)) if &*field.name == "method" => raw.method = method.key(),
                (field, Value::Reference(kind)) if &*field.name == "type" => raw.kind = kind.key(),
                (field, Value::Int(line)) if self.lines && &*field.name == "lineNumber" => raw.line = line,
                _ => {}
            }
        }
        Ok(raw)
    }

    fn frame(&mut self, chunk: &Chunk, model: &mut Model, raw: RawFrame) -> Result<Id<Frame>> {
        if let Some(&id) = self.frames.get(&raw) {
            return Ok(id);
        }
        let kind = self.kind(chunk, raw.kind)?;
        let (class, function, native) = self.method(chunk, raw.method)?;
        // The JDK calls Java methods native that are written in C; native profilers mean code that no JVM made.
        let kind = if native && self.knows_kernel(chunk)? { kind.of_native() } else { kind };
        let class = if kind.in_library() || !class.contains('/') {
            class
        } else {
            self.names.keep(&class.replace('/', "."))
        };
        let id = model.frames.intern(Frame { function, class, kind, line: raw.line });
        self.frames.insert(raw, id);
        Ok(id)
    }

    /// Class and name of a method, and whether it is native code.
    fn method(&mut self, chunk: &Chunk, key: u64) -> Result<Method> {
        if let Some(known) = self.methods.get(&key) {
            return Ok(known.clone());
        }
        let mut names = (Arc::from(""), Arc::from("[unknown]"), false);
        if let Some(Value::Struct(method)) = lookup(chunk, "jdk.types.Method", key)? {
            if let Some(name) = self.names.of_field(&method, "name")? {
                names.1 = name;
            }
            if let Some(class) = record_field(&method, "type")? {
                names.0 = self.names.of_field(&class, "name")?.unwrap_or(names.0);
            }
            let modifiers = method.field("modifiers")?.and_then(|m| m.as_i64());
            // Java methods written in C are native too, but have a descriptor of Java.
            names.2 = modifiers.is_some_and(|m| m & NATIVE != 0)
                && self.names.of_field(&method, "descriptor")?.as_deref() == Some(NATIVE_DESCRIPTOR);
        }
        self.methods.insert(key, names.clone());
        Ok(names)
    }

    fn kind(&mut self, chunk: &Chunk, key: u64) -> Result<FrameKind> {
        if let Some(&known) = self.kinds.get(&key) {
            return Ok(known);
        }
        let text = match lookup(chunk, "jdk.types.FrameType", key)? {
            Some(value) => self.names.of(value)?,
            None => None,
        };
        let kind = match text.as_deref() {
            Some("Interpreted") => FrameKind::Interpreted,
            Some("JIT compiled" | "C1 compiled" | "C2 compiled") => FrameKind::Compiled,
            Some("Inlined") => FrameKind::Inlined,
            Some("C++") => FrameKind::Native,
            Some("Kernel") => FrameKind::Kernel,
            // Of the JDK: a Java method written in C, with a Java class. Of async-profiler: a C function.
            Some("Native") if self.knows_kernel(chunk)? => FrameKind::Native,
            Some("Native") => FrameKind::Compiled,
            _ => FrameKind::Unknown,
        };
        self.kinds.insert(key, kind);
        Ok(kind)
    }

    fn knows_kernel(&mut self, chunk: &Chunk) -> Result<bool> {
        if let Some(known) = self.knows_kernel {
            return Ok(known);
        }
        // Whatever goes wrong below, goes wrong once.
        self.knows_kernel = Some(false);
        let Some((index, _)) = chunk.types.by_name("jdk.types.FrameType") else { return Ok(false) };
        for key in chunk.pools.keys(index) {
            let Some(value) = constant(chunk, index, key, 0)? else { continue };
            if self.names.of(value)?.as_deref() == Some("Kernel") {
                self.knows_kernel = Some(true);
                break;
            }
        }
        Ok(self.knows_kernel == Some(true))
    }
}

fn lookup<'a>(chunk: &'a Chunk, class: &str, key: u64) -> Result<Option<Value<'a>>> {
    match chunk.types.by_name(class) {
        Some((index, _)) => constant(chunk, index, key, 0),
        None => Ok(None),
    }
}

fn record_field<'a>(of: &StructRef<'a>, name: &str) -> Result<Option<StructRef<'a>>> {
    match of.field(name)? {
        Some(value) => value.record(),
        None => Ok(None),
    }
}
