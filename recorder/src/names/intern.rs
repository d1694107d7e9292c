//! Stacks, methods, classes and names of one output. Each has one key for the whole output, and is written
//! once in every chunk that uses it.
//!
//! A class is a binary file; its package and module identify the file by build id and path, so that names can
//! be added to the recording later.

use std::{collections::HashMap, sync::Arc};

use jfr_format::{
    schema::{self, frame_type},
    write::{ChunkWriter, WriteError},
};

use crate::{names::images::ImageId, names::stack_table::StackTable};

/// Index of a method in its [`Interner`].
pub type MethodIndex = u32;
/// Index of a frame in its [`Interner`].
pub type FrameIndex = u32;
/// Index of a stack trace in its [`Interner`].
pub type TraceIndex = u32;
/// Index of a class in its [`Interner`].
pub type ClassIndex = u32;

/// `Method.modifiers` of native code, as in async-profiler.
const NATIVE: i32 = 0x100;
/// Limit of a stack's frames.
const MAX_FRAMES: usize = 4096;
/// Limit of classes that are not files, because programs choose their names.
const MAX_KINDS: usize = 4096;
/// Name of all further ones.
const TOO_MANY: &str = "[too many types]";
/// Largest size of a frame in a stack trace: key, line, index, type.
const FRAME_BYTES: usize = 5 + 5 + 5 + 1;
/// Largest size of a constant without its text: keys, sizes, a new pool.
const CONSTANT_BYTES: usize = 48;
/// Number of symbols of a class: name, path, build id.
const CLASS_SYMBOLS: u64 = 3;
/// Limit of the text that identifies the file of a class, bytes.
const ORIGIN_BYTES: usize = 512;

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The method.
    pub method: MethodIndex,
    /// Source line, 0 if unknown.
    pub line: u32,
    /// Address within the file if there is no debug information, so that the frame can be symbolized later;
    /// otherwise 0. It is written as the bytecode index.
    pub address: u32,
    /// One of [`frame_type`].
    pub kind: u64,
}

/// The file that contains a method.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Short name.
    pub class: Arc<str>,
    /// Path, empty if it is not a file.
    pub path: Arc<str>,
    /// Build id in hexadecimal, empty if there is none.
    pub build_id: Arc<str>,
}

/// A method of a Java class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JavaMethod {
    /// The class's internal name, such as `java/util/HashMap`.
    pub class: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its descriptor, such as `(I)V`.
    pub descriptor: Arc<str>,
    /// Its access flags.
    pub modifiers: u16,
}

struct Method {
    /// The chunk that it was last written to.
    chunk: u32,
    class: u32,
    /// Key of the name's symbol; that of the descriptor follows if there is one.
    symbol: u64,
    name: Arc<str>,
    /// The descriptor; `None`: the one that all native functions share.
    descriptor: Option<Arc<str>>,
    modifiers: i32,
}

struct Class {
    chunk: u32,
    /// Key of the name's symbol; those of path and build id, or that of a Java package, follow.
    symbol: u64,
    origin: Origin,
    /// It is a Java class, in the package that its name begins with.
    java: bool,
}

/// Methods, and maps to find them.
#[derive(Default)]
struct MethodTable {
    list: Vec<Method>,
    by_function: HashMap<(ImageId, u64), MethodIndex>,
    by_name: HashMap<(ImageId, Arc<str>), MethodIndex>,
    java: HashMap<JavaMethod, MethodIndex>,
}

/// Unique frames.
#[derive(Default)]
struct FrameTable {
    list: Vec<Frame>,
    by_frame: HashMap<Frame, FrameIndex>,
}

/// Classes, and maps to find them.
#[derive(Default)]
struct ClassTable {
    list: Vec<Class>,
    by_image: HashMap<ImageId, ClassIndex>,
    /// Classes that are not files: kinds of locks, types of exceptions.
    by_name: HashMap<Arc<str>, ClassIndex>,
    /// Java classes by their internal names.
    java: HashMap<Arc<str>, ClassIndex>,
}

/// Stack traces and the chunks that have them.
struct TraceTable {
    /// First element: 1 if truncated. Then the frames, leaf first.
    stacks: StackTable<u32>,
    /// The chunk that each trace was written to last.
    written_in: Vec<u32>,
}

/// Keys of symbols. Key 1 is the descriptor that all methods share.
struct SymbolKeys {
    last: u64,
    /// The chunk that the descriptor was written to last.
    descriptor_chunk: u32,
}

impl FrameTable {
    fn get(&self, index: FrameIndex) -> Option<&Frame> {
        self.list.get(index as usize)
    }

    fn intern(&mut self, frame: Frame) -> FrameIndex {
        *self.by_frame.entry(frame).or_insert_with(|| {
            self.list.push(frame);
            self.list.len() as u32 - 1
        })
    }
}

impl MethodTable {
    fn get(&self, index: MethodIndex) -> Option<&Method> {
        self.list.get(index as usize)
    }

    fn push(&mut self, method: Method) -> MethodIndex {
        self.list.push(method);
        self.list.len() as u32 - 1
    }
}

impl ClassTable {
    fn get(&self, index: ClassIndex) -> Option<&Class> {
        self.list.get(index as usize)
    }

    fn push(&mut self, symbol: u64, origin: Origin) -> ClassIndex {
        self.list.push(Class { chunk: 0, symbol, origin, java: false });
        self.list.len() as u32 - 1
    }

    fn push_java(&mut self, symbol: u64, name: &Arc<str>) -> ClassIndex {
        let origin = Origin { class: name.clone(), ..Origin::default() };
        self.list.push(Class { chunk: 0, symbol, origin, java: true });
        let index = self.list.len() as u32 - 1;
        self.java.insert(name.clone(), index);
        index
    }
}

impl TraceTable {
    fn intern(&mut self, sequence: &[u32]) -> TraceIndex {
        let (index, new) = self.stacks.intern(sequence);
        if new {
            self.written_in.push(0);
        }
        index
    }

    /// Returns the frames of a trace, leaf first.
    fn frames(&self, trace: TraceIndex) -> &[u32] {
        self.stacks.get(trace).get(1..).unwrap_or(&[])
    }
}

impl SymbolKeys {
    /// Returns the first of `count` new keys.
    fn next(&mut self, count: u64) -> u64 {
        let first = self.last + 1;
        self.last += count;
        first
    }
}

/// Dictionary of one output.
pub struct Interner {
    methods: MethodTable,
    frames: FrameTable,
    classes: ClassTable,
    traces: TraceTable,
    symbols: SymbolKeys,
    /// Number of keys of traces, methods and classes used before the dictionary was last cleared.
    before: [u64; 3],
    /// Number of the current chunk, from 1.
    chunk: u32,
    name_bytes: usize,
    pub(super) lines: bool,
    /// Incremented when trace indices become invalid.
    pub generation: u32,
}

impl Interner {
    /// Returns an empty dictionary.
    pub fn new() -> Interner {
        Interner {
            methods: MethodTable::default(),
            frames: FrameTable::default(),
            classes: ClassTable::default(),
            traces: TraceTable { stacks: StackTable::new(), written_in: Vec::new() },
            symbols: SymbolKeys { last: 1, descriptor_chunk: 0 },
            before: [0; 3],
            chunk: 1,
            name_bytes: 0,
            lines: true,
            generation: 0,
        }
    }

    /// Returns an empty dictionary whose frames have `lines`, addresses and inlined functions. Without them,
    /// stacks of the same functions are identical.
    pub fn with_lines(lines: bool) -> Interner {
        Interner { lines, ..Interner::new() }
    }

    /// Returns the method for function `start` of `image`; `describe` returns its file and name.
    pub fn method(
        &mut self,
        image: ImageId,
        start: u64,
        describe: impl FnOnce() -> (Origin, String),
    ) -> MethodIndex {
        if let Some(&index) = self.methods.by_function.get(&(image, start)) {
            return index;
        }
        let (origin, name) = describe();
        let index = self.new_method(image, || origin, name.into());
        self.methods.by_function.insert((image, start), index);
        index
    }

    /// Returns the method with this name in `image`, for functions without an address of their own.
    pub fn named(&mut self, image: ImageId, name: &Arc<str>, origin: impl FnOnce() -> Origin) -> MethodIndex {
        let key = (image, name.clone());
        if let Some(&index) = self.methods.by_name.get(&key) {
            return index;
        }
        let index = self.new_method(image, origin, name.clone());
        self.methods.by_name.insert(key, index);
        index
    }

    fn new_method(&mut self, image: ImageId, origin: impl FnOnce() -> Origin, name: Arc<str>) -> MethodIndex {
        let name = if name.is_empty() { Arc::from("[unknown]") } else { name };
        let class = match self.classes.by_image.get(&image) {
            Some(&class) => class,
            None => {
                let mut origin = origin();
                // async-profiler's reader knows only one encoding of symbols, and the empty string has
                // another.
                if origin.class.is_empty() {
                    origin.class = Arc::from("unknown");
                }
                if origin.path.len() + origin.build_id.len() > ORIGIN_BYTES {
                    origin.path = Arc::default();
                }
                let index = self.classes.push(self.symbols.next(CLASS_SYMBOLS), origin);
                self.classes.by_image.insert(image, index);
                index
            }
        };
        let symbol = self.symbols.next(1);
        self.name_bytes += name.len();
        self.methods.push(Method { chunk: 0, class, symbol, name, descriptor: None, modifiers: NATIVE })
    }

    /// Returns the index of a Java method.
    pub fn java_method(&mut self, method: &JavaMethod) -> MethodIndex {
        if let Some(&index) = self.methods.java.get(method) {
            return index;
        }
        let class = match self.classes.java.get(&method.class) {
            Some(&class) => class,
            None => self.classes.push_java(self.symbols.next(CLASS_SYMBOLS), &method.class),
        };
        let symbol = self.symbols.next(2);
        self.name_bytes += method.name.len() + method.descriptor.len() + size_of::<JavaMethod>();
        let index = self.methods.push(Method {
            chunk: 0,
            class,
            symbol,
            name: method.name.clone(),
            descriptor: Some(method.descriptor.clone()),
            modifiers: i32::from(method.modifiers),
        });
        self.methods.java.insert(method.clone(), index);
        index
    }

    /// Returns the index of a frame.
    pub fn frame(&mut self, mut frame: Frame) -> FrameIndex {
        if !self.lines {
            frame.line = 0;
        }
        self.frames.intern(frame)
    }

    /// Returns a class that is not a file.
    pub fn class(&mut self, name: &str) -> ClassIndex {
        let name = if name.is_empty() { "[unknown]" } else { name };
        let known = self.classes.by_name.len() < MAX_KINDS || self.classes.by_name.contains_key(name);
        let name = if known { name } else { TOO_MANY };
        if let Some(&index) = self.classes.by_name.get(name) {
            return index;
        }
        let name: Arc<str> = Arc::from(name);
        self.name_bytes += name.len();
        let origin = Origin { class: name.clone(), ..Origin::default() };
        let index = self.classes.push(self.symbols.next(CLASS_SYMBOLS), origin);
        self.classes.by_name.insert(name, index);
        index
    }

    /// Returns an upper bound of the bytes that [`Interner::write_class`] writes.
    pub fn class_cost(&self, class: ClassIndex) -> usize {
        self.classes.get(class).map_or(0, |c| c.origin.class.len() + 2 * CONSTANT_BYTES)
    }

    /// Returns the pool key of a class that is not a file, and queues the class if this chunk does not have
    /// it yet; 0 if that is not possible.
    pub fn write_class(&mut self, class: ClassIndex, to: &mut ChunkWriter) -> u64 {
        let key = self.before[2] + u64::from(class) + 1;
        let Some(class) = self.classes.list.get_mut(class as usize) else { return 0 };
        if class.chunk != self.chunk {
            if class.write(key, to).is_err() {
                return 0;
            }
            class.chunk = self.chunk;
        }
        key
    }

    /// Returns the names of a trace's functions, leaf first.
    pub fn names(&self, trace: TraceIndex) -> impl Iterator<Item = &str> {
        let frames = self.traces.frames(trace).iter();
        let methods = frames.filter_map(|&frame| self.methods.get(self.frames.get(frame)?.method));
        methods.map(|method| &*method.name)
    }

    /// Returns the trace of these frames, leaf first.
    pub fn trace(&mut self, sequence: &[u32]) -> TraceIndex {
        let sequence = &sequence[..sequence.len().min(MAX_FRAMES + 1)];
        self.traces.intern(sequence)
    }

    /// Returns the pool key of a trace.
    pub fn key(&self, trace: TraceIndex) -> u64 {
        self.before[0] + u64::from(trace) + 1
    }

    /// Splits a trace into its innermost method that is not inlined, and the trace of its callers.
    pub fn call(&mut self, trace: TraceIndex) -> Option<(MethodIndex, TraceIndex)> {
        let (truncated, frames) = self.traces.stacks.get(trace).split_first()?;
        let is_called = |&frame: &u32| self.frames.get(frame).is_some_and(|f| f.kind != frame_type::INLINED);
        let at = frames.iter().position(is_called)?;
        let method = self.frames.get(frames[at])?.method;
        let callers: Vec<u32> = std::iter::once(truncated).chain(&frames[at + 1..]).copied().collect();
        Some((method, self.trace(&callers)))
    }

    /// Returns an upper bound of the bytes that [`Interner::write_method`] writes.
    pub fn method_cost(&self, method: MethodIndex) -> usize {
        // Include the descriptor.
        CONSTANT_BYTES + self.method_cost_in(method, u32::MAX)
    }

    /// Returns the pool key of a method, and queues the method if this chunk does not have it yet; 0 if that
    /// is not possible.
    pub fn write_method(&mut self, method: MethodIndex, to: &mut ChunkWriter) -> u64 {
        let known = (method as usize) < self.methods.list.len() && self.queue_method(method, to).is_ok();
        if known { self.before[1] + u64::from(method) + 1 } else { 0 }
    }

    /// Returns true if a trace is written in the current chunk already.
    #[inline]
    pub fn written(&self, trace: TraceIndex) -> bool {
        self.traces.written_in.get(trace as usize) == Some(&self.chunk)
    }

    /// Returns an upper bound of the bytes that [`Interner::write`] writes.
    pub fn cost(&self, trace: TraceIndex) -> usize {
        if self.written(trace) { 0 } else { self.cost_in(trace, self.chunk) }
    }

    /// Returns this bound for a new chunk.
    pub fn most_cost(&self, trace: TraceIndex) -> usize {
        self.cost_in(trace, u32::MAX)
    }

    fn cost_in(&self, trace: TraceIndex, chunk: u32) -> usize {
        let frames = self.traces.frames(trace);
        let mut bytes = 5 * CONSTANT_BYTES + frames.len() * FRAME_BYTES;
        for &frame in frames {
            bytes += self.frames.get(frame).map_or(0, |frame| self.method_cost_in(frame.method, chunk));
        }
        bytes
    }

    fn method_cost_in(&self, method: MethodIndex, chunk: u32) -> usize {
        let method = self.methods.get(method).filter(|m| m.chunk != chunk);
        let Some(method) = method else { return 0 };
        let class = self.classes.get(method.class).filter(|c| c.chunk != chunk);
        // A Java class's package is a part of its name.
        let class = class.map_or(0, |class| 2 * class.origin.bytes() + 6 * CONSTANT_BYTES);
        let descriptor = method.descriptor.as_ref().map_or(0, |descriptor| descriptor.len() + CONSTANT_BYTES);
        method.name.len() + 2 * CONSTANT_BYTES + descriptor + class
    }

    /// Queues a trace and the constants that it refers to, unless the current chunk has them.
    #[inline]
    pub fn write(&mut self, trace: TraceIndex, to: &mut ChunkWriter) -> Result<(), WriteError> {
        if self.written(trace) { Ok(()) } else { self.write_new(trace, to) }
    }

    #[cold]
    fn write_new(&mut self, trace: TraceIndex, to: &mut ChunkWriter) -> Result<(), WriteError> {
        for at in 0..self.traces.frames(trace).len() {
            let frame = self.traces.frames(trace).get(at).and_then(|&frame| self.frames.get(frame));
            if let Some(&Frame { method, .. }) = frame {
                self.queue_method(method, to)?;
            }
        }
        let Some((truncated, frames)) = self.traces.stacks.get(trace).split_first() else { return Ok(()) };
        let methods_before = self.before[1];
        let key = self.key(trace);
        let known = &self.frames;
        to.constant(schema::STACK_TRACE, key, |s| {
            s.boolean(*truncated != 0).array(frames.len());
            for &frame in frames {
                let nothing = Frame { method: 0, line: 0, address: 0, kind: frame_type::CPP };
                let frame = known.get(frame).unwrap_or(&nothing);
                s.key(methods_before + u64::from(frame.method) + 1)
                    .int(frame.line as i32)
                    .int(frame.address as i32);
                s.key(frame.kind);
            }
        })?;
        if let Some(chunk) = self.traces.written_in.get_mut(trace as usize) {
            *chunk = self.chunk;
        }
        Ok(())
    }

    /// Queues a method and the constants that it refers to, unless the current chunk has them.
    fn queue_method(&mut self, index: MethodIndex, to: &mut ChunkWriter) -> Result<(), WriteError> {
        let Some(method) = self.methods.list.get_mut(index as usize).filter(|m| m.chunk != self.chunk) else {
            return Ok(());
        };
        if self.symbols.descriptor_chunk != self.chunk {
            to.constant(schema::SYMBOL, 1, |s| {
                s.string("()L;");
            })?;
            self.symbols.descriptor_chunk = self.chunk;
        }
        let class_key = self.before[2] + u64::from(method.class) + 1;
        if let Some(class) =
            self.classes.list.get_mut(method.class as usize).filter(|c| c.chunk != self.chunk)
        {
            class.write(class_key, to)?;
            class.chunk = self.chunk;
        }
        to.constant(schema::SYMBOL, method.symbol, |s| {
            s.string(&method.name);
        })?;
        let descriptor = match &method.descriptor {
            None => 1,
            Some(descriptor) => {
                let key = method.symbol + 1;
                to.constant(schema::SYMBOL, key, |s| {
                    s.string(descriptor);
                })?;
                key
            }
        };
        to.constant(schema::METHOD, self.before[1] + u64::from(index) + 1, |m| {
            m.key(class_key).key(method.symbol).key(descriptor).int(method.modifiers).boolean(false);
        })?;
        method.chunk = self.chunk;
        Ok(())
    }

    /// Starts another chunk. Above `bound` bytes, the dictionary is cleared; keys are not reused.
    pub fn next_chunk(&mut self, bound: usize) {
        self.chunk += 1;
        if self.bytes() > bound {
            let [traces, methods, classes] = &mut self.before;
            *traces += self.traces.stacks.len() as u64;
            *methods += self.methods.list.len() as u64;
            *classes += self.classes.list.len() as u64;
            let (before, symbols) =
                (self.before, SymbolKeys { last: self.symbols.last, descriptor_chunk: 0 });
            let (chunk, generation) = (self.chunk, self.generation + 1);
            *self = Interner { before, symbols, chunk, generation, ..Interner::with_lines(self.lines) };
        }
    }

    /// Returns the numbers of stacks, frames, methods and classes.
    pub fn counts(&self) -> [usize; 4] {
        [self.traces.stacks.len(), self.frames.list.len(), self.methods.list.len(), self.classes.list.len()]
    }

    /// Returns the memory in use, bytes.
    pub fn bytes(&self) -> usize {
        self.traces.stacks.bytes()
            + self.traces.written_in.capacity() * 4
            + self.name_bytes
            + self.methods.list.capacity() * (size_of::<Method>() + 32)
            + self
                .classes
                .list
                .iter()
                .map(|class| class.origin.bytes() + 2 * size_of::<Class>())
                .sum::<usize>()
            + self.frames.list.capacity() * (2 * size_of::<Frame>() + 8)
    }
}

impl Origin {
    fn bytes(&self) -> usize {
        self.class.len() + self.path.len() + self.build_id.len()
    }
}

impl Class {
    /// Queues the class, and the package and module with the same key, which identify the file.
    fn write(&self, key: u64, to: &mut ChunkWriter) -> Result<(), WriteError> {
        let Origin { class, path, build_id } = &self.origin;
        let name = self.symbol;
        let mut symbol = |key: u64, text: &str| match text {
            "" => Ok(0),
            text => to
                .constant(schema::SYMBOL, key, |s| {
                    s.string(text);
                })
                .map(|()| key),
        };
        symbol(name, class)?;
        if self.java {
            let package = symbol(name + 1, class.rsplit_once('/').map_or("", |(package, _)| package))?;
            if package != 0 {
                to.constant(schema::PACKAGE, key, |p| {
                    p.key(package).key(0).boolean(true);
                })?;
            }
            let package = if package == 0 { 0 } else { key };
            return to.constant(schema::CLASS, key, |c| {
                c.key(0).key(name).key(package).int(0).boolean(false);
            });
        }
        let (location, version) = (symbol(name + 1, path)?, symbol(name + 2, build_id)?);
        let package = if location == 0 && version == 0 { 0 } else { key };
        if package != 0 {
            to.constant(schema::MODULE, key, |m| {
                m.key(name).key(version).key(location).key(0);
            })?;
            // Without a name, because JMC strips the package's name from the class's.
            to.constant(schema::PACKAGE, key, |p| {
                p.key(0).key(key).boolean(true);
            })?;
        }
        to.constant(schema::CLASS, key, |c| {
            c.key(0).key(name).key(package).int(0).boolean(false);
        })
    }
}

#[cfg(test)]
mod tests;
