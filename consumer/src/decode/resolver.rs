//! Resolves keys of constant pools to names: threads, classes, methods, frames, states. The only resolver of
//! samples; the loader and the stream decoder store what it returns in their own form.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{StructRef, Value, constant};
use jfr_format::pool::KeyHash;
use jfr_format::read::{Chunk, StackReader};

use super::names::Names;
use crate::model::{CodeFile, FrameKind, Thread};
use crate::print::class_name;

type Result<T> = std::result::Result<T, Error>;

/// Class, name, and whether the method is native code.
type Method = (Arc<str>, Arc<str>, bool);

/// The access flag of methods in native code.
const NATIVE: i64 = 0x100;
/// The descriptor that async-profiler and Flightline give native functions.
const NATIVE_DESCRIPTOR: &str = "()L;";

/// Caches of the current chunk.
#[derive(Debug, Default)]
pub(crate) struct NameResolver {
    methods: HashMap<u64, Method, KeyHash>,
    files: HashMap<u64, Option<Arc<CodeFile>>, KeyHash>,
    kinds: HashMap<u64, FrameKind, KeyHash>,
    pub(crate) names: Names,
    /// True if the producer distinguishes kernel frames, which only native profilers do.
    knows_kernel: Option<bool>,
    /// `None` if stacks must be read field by field.
    reader: Option<StackReader>,
}

/// A frame by its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawFrame {
    pub(crate) method: u64,
    pub(crate) kind: u64,
    pub(crate) line: i32,
    pub(crate) bytecode_index: i32,
}

impl NameResolver {
    /// Creates the caches for a chunk whose types are known.
    pub(crate) fn new(chunk: &Chunk) -> Self {
        Self { reader: StackReader::new(chunk), ..Self::default() }
    }

    /// Further constants may have been read.
    pub(crate) fn more(&mut self) {
        if self.knows_kernel == Some(false) {
            self.knows_kernel = None;
            self.kinds.clear();
        }
    }

    /// Returns the thread with this key; `None` if there is none.
    pub(crate) fn thread(&mut self, chunk: &Chunk, key: u64) -> Result<Option<Thread>> {
        let Some(Value::Struct(fields)) = lookup(chunk, "java.lang.Thread", key)? else { return Ok(None) };
        let number = |name| Ok(fields.field(name)?.and_then(|v| v.as_i64()).unwrap_or(0));
        let group = match record_field(&fields, "group")? {
            Some(group) => self.names.field_text(&group, "name")?,
            None => None,
        };
        let is_virtual = matches!(fields.field("virtual")?, Some(Value::Boolean(true)));
        Ok(Some(Thread {
            is_virtual,
            os_name: self.names.field_text(&fields, "osName")?,
            os_id: number("osThreadId")?,
            java_name: self.names.field_text(&fields, "javaName")?,
            java_id: number("javaThreadId")?,
            group,
        }))
    }

    /// Returns the title of the process of the thread with this key. In recordings of Flightline it is
    /// the parent of the thread's group. In those of JVMs, a group is not called `name (pid)`, and its
    /// parent is another thread group.
    pub(crate) fn title(&mut self, chunk: &Chunk, key: u64) -> Result<Option<Arc<str>>> {
        let Some(Value::Struct(fields)) = lookup(chunk, "java.lang.Thread", key)? else { return Ok(None) };
        let Some(group) = record_field(&fields, "group")? else { return Ok(None) };
        let Some(parent) = record_field(&group, "parent")? else { return Ok(None) };
        if !self.names.field_text(&group, "name")?.is_some_and(|name| name.ends_with(')')) {
            return Ok(None);
        }
        Ok(self.names.field_text(&parent, "name")?.filter(|title| !title.is_empty()))
    }

    /// Returns the name of a thread state.
    pub(crate) fn state(&mut self, chunk: &Chunk, key: u64) -> Option<Arc<str>> {
        let value = lookup(chunk, "jdk.types.ThreadState", key).ok().flatten();
        value.and_then(|value| self.names.text(value).ok()?)
    }

    /// Returns the name of a class as in source: `byte[]`, `java.lang.String`.
    pub(crate) fn class(&mut self, chunk: &Chunk, key: u64) -> Result<Option<Arc<str>>> {
        let Some(Value::Struct(class)) = lookup(chunk, "java.lang.Class", key)? else { return Ok(None) };
        let name = self.names.field_text(&class, "name")?;
        Ok(name.map(|name| self.names.keep(&class_name(&name, None))))
    }

    /// Returns the name of an event's variant.
    pub(crate) fn variant(&mut self, chunk: &Chunk, key: u64) -> Result<Option<Arc<str>>> {
        lookup(chunk, "flightline.types.EventName", key)?.map_or(Ok(None), |value| self.names.text(value))
    }

    /// Stores the frames of the stack `key` in `frames`, leaf first. Returns whether the stack is
    /// truncated; `None` if it does not exist.
    pub(crate) fn stack(
        &mut self,
        chunk: &Chunk,
        key: u64,
        frames: &mut Vec<RawFrame>,
    ) -> Result<Option<bool>> {
        frames.clear();
        let Some(reader) = &self.reader else { return odd_stack(chunk, key, frames) };
        reader.read(chunk, key, |frame| {
            frames.push(RawFrame {
                method: frame.method,
                kind: frame.kind.unwrap_or(u64::MAX),
                line: frame.line,
                bytecode_index: frame.bytecode_index,
            });
        })
    }

    /// Like [`Self::stack`], with the `called` method as leaf unless it is 0.
    pub(crate) fn call_stack(
        &mut self,
        chunk: &Chunk,
        key: u64,
        called: u64,
        frames: &mut Vec<RawFrame>,
    ) -> Result<Option<bool>> {
        let truncated = self.stack(chunk, key, frames)?;
        if called == 0 || truncated.is_none() && key != 0 {
            return Ok(truncated);
        }
        frames.insert(0, RawFrame { method: called, kind: u64::MAX, line: 0, bytecode_index: 0 });
        Ok(Some(truncated.unwrap_or(false)))
    }

    /// Returns the class or library, function and kind of a frame.
    pub(crate) fn frame(&mut self, chunk: &Chunk, raw: &RawFrame) -> Result<(Arc<str>, Arc<str>, FrameKind)> {
        let kind = self.kind(chunk, raw.kind)?;
        let (class, function, native) = self.method(chunk, raw.method)?;
        // In the JDK, "native" means a Java method written in C; in native profilers, code that was not
        // generated by a JVM.
        let kind = if native && self.knows_kernel(chunk)? { kind.in_native_code() } else { kind };
        if kind.in_library() || !class.contains('/') {
            return Ok((class, function, kind));
        }
        Ok((self.names.keep(&class.replace('/', ".")), function, kind))
    }

    /// Returns class and name of a method, and whether it is native code.
    fn method(&mut self, chunk: &Chunk, key: u64) -> Result<Method> {
        if let Some(known) = self.methods.get(&key) {
            return Ok(known.clone());
        }
        let mut names = (Arc::from(""), Arc::from("[unknown]"), false);
        if let Some(Value::Struct(method)) = lookup(chunk, "jdk.types.Method", key)? {
            if let Some(name) = self.names.field_text(&method, "name")? {
                names.1 = name;
            }
            if let Some(class) = record_field(&method, "type")? {
                names.0 = self.names.field_text(&class, "name")?.unwrap_or(names.0);
            }
            let modifiers = method.field("modifiers")?.and_then(|m| m.as_i64());
            // Java methods written in C are native too, but have a Java descriptor.
            names.2 = modifiers.is_some_and(|m| m & NATIVE != 0)
                && self.names.field_text(&method, "descriptor")?.as_deref() == Some(NATIVE_DESCRIPTOR);
        }
        self.methods.insert(key, names.clone());
        Ok(names)
    }

    /// Returns the program or library with a native function: the module of its class, as Flightline
    /// records it.
    pub(crate) fn code_file(&mut self, chunk: &Chunk, method: u64) -> Result<Option<Arc<CodeFile>>> {
        if let Some(known) = self.files.get(&method) {
            return Ok(known.clone());
        }
        let mut found = None;
        if let Some(Value::Struct(method)) = lookup(chunk, "jdk.types.Method", method)?
            && let Some(class) = record_field(&method, "type")?
            && let Some(package) = record_field(&class, "package")?
            && let Some(module) = record_field(&package, "module")?
        {
            let mut text = |name| -> Result<String> {
                let text = self.names.field_text(&module, name)?;
                Ok(text.map(|text| text.to_string()).unwrap_or_default())
            };
            let file = CodeFile { path: text("location")?, build_id: text("version")? };
            found = (!file.path.is_empty() || !file.build_id.is_empty()).then(|| Arc::new(file));
        }
        self.files.insert(method, found.clone());
        Ok(found)
    }

    fn kind(&mut self, chunk: &Chunk, key: u64) -> Result<FrameKind> {
        if let Some(&known) = self.kinds.get(&key) {
            return Ok(known);
        }
        let text = match lookup(chunk, "jdk.types.FrameType", key)? {
            Some(value) => self.names.text(value)?,
            None => None,
        };
        let kind = match text.as_deref() {
            Some("Interpreted") => FrameKind::Interpreted,
            Some("JIT compiled" | "C1 compiled" | "C2 compiled") => FrameKind::Compiled,
            Some("Inlined") => FrameKind::Inlined,
            Some("C++") => FrameKind::Native,
            Some("Kernel") => FrameKind::Kernel,
            // From the JDK: a Java method written in C, in a Java class. From async-profiler: a C
            // function.
            Some("Native") if self.knows_kernel(chunk)? => FrameKind::Native,
            Some("Native") => FrameKind::NativeMethod,
            _ => FrameKind::Unknown,
        };
        self.kinds.insert(key, kind);
        Ok(kind)
    }

    fn knows_kernel(&mut self, chunk: &Chunk) -> Result<bool> {
        if let Some(known) = self.knows_kernel {
            return Ok(known);
        }
        // Set first, so that an error below occurs only once.
        self.knows_kernel = Some(false);
        let Some((index, _)) = chunk.types.by_name("jdk.types.FrameType") else { return Ok(false) };
        for key in chunk.pools.keys(index) {
            let Some(value) = constant(chunk, index, key, 0)? else { continue };
            if self.names.text(value)?.as_deref() == Some("Kernel") {
                self.knows_kernel = Some(true);
                break;
            }
        }
        Ok(self.knows_kernel == Some(true))
    }
}

/// Reads a stack trace with a layout that no known producer uses.
fn odd_stack(chunk: &Chunk, key: u64, frames: &mut Vec<RawFrame>) -> Result<Option<bool>> {
    let Some(Value::Struct(trace)) = lookup(chunk, "jdk.types.StackTrace", key)? else { return Ok(None) };
    let mut truncated = false;
    for field in trace.iter() {
        match field? {
            (field, Value::Boolean(set)) if &*field.name == "truncated" => truncated = set,
            (field, Value::Array(list)) if &*field.name == "frames" => {
                for frame in list.iter() {
                    if let Some(frame) = frame?.record()? {
                        frames.push(raw_frame(&frame)?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(Some(truncated))
}

fn raw_frame(frame: &StructRef<'_>) -> Result<RawFrame> {
    let mut raw = RawFrame { method: 0, kind: u64::MAX, line: 0, bytecode_index: 0 };
    for field in frame.iter() {
        match field? {
            (field, Value::Reference(method)) if &*field.name == "method" => raw.method = method.key(),
            (field, Value::Reference(kind)) if &*field.name == "type" => raw.kind = kind.key(),
            (field, Value::Int(line)) if &*field.name == "lineNumber" => raw.line = line,
            (field, Value::Int(index)) if &*field.name == "bytecodeIndex" => raw.bytecode_index = index,
            _ => {}
        }
    }
    Ok(raw)
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
