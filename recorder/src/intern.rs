//! Stacks, methods, classes and names of one output: each has one key for the whole output, and each is written once in
//! every chunk that uses it.

use std::{collections::HashMap, sync::Arc};

use jfr_format::{
    schema::{self, frame_type},
    write::{ChunkWriter, WriteError},
};

use crate::{images::ImageId, sequences::Sequences};

/// Index of a method in its [`Interner`].
pub type MethodIndex = u32;
/// Index of a stack trace in its [`Interner`].
pub type TraceIndex = u32;

/// `Method.modifiers` of native code, as async-profiler has it.
const NATIVE: i32 = 0x100;
/// Longest name or class in bytes; [`crate::demangle`] keeps to it.
const MAX_FRAMES: usize = 4096;
/// Most bytes a frame takes in a stack trace: key, line, index, type.
const FRAME_BYTES: usize = 5 + 1 + 1 + 1;
/// Most bytes a constant takes besides its text: keys, sizes, a new pool.
const CONSTANT_BYTES: usize = 48;

struct Method {
    /// Chunk it was written in last.
    chunk: u32,
    class: u32,
    symbol: u32,
    name: Box<str>,
    frame_type: u64,
}

struct Class {
    chunk: u32,
    symbol: u32,
    name: Arc<str>,
}

/// Dictionary of one output.
pub struct Interner {
    methods: Vec<Method>,
    by_function: HashMap<(ImageId, u64), MethodIndex>,
    classes: Vec<Class>,
    by_image: HashMap<ImageId, u32>,
    /// First element: 1 if truncated. The others: methods, leaf first.
    traces: Sequences<u32>,
    trace_chunk: Vec<u32>,
    /// Keys given to traces before the dictionary was thrown away.
    traces_before: u32,
    last_symbol: u32,
    descriptor_chunk: u32,
    /// Number of the present chunk, from 1.
    chunk: u32,
    name_bytes: usize,
    /// Incremented when trace indices become invalid.
    pub generation: u32,
}

impl Interner {
    /// An empty dictionary.
    pub fn new() -> Interner {
        Interner {
            methods: Vec::new(),
            by_function: HashMap::new(),
            classes: Vec::new(),
            by_image: HashMap::new(),
            traces: Sequences::new(),
            trace_chunk: Vec::new(),
            traces_before: 0,
            // Key 1 is the descriptor that all methods share.
            last_symbol: 1,
            descriptor_chunk: 0,
            chunk: 1,
            name_bytes: 0,
            generation: 0,
        }
    }

    /// The method for function `start` of `image`; `describe` gives class, name and whether the name was mangled.
    pub fn method(
        &mut self,
        image: ImageId,
        start: u64,
        describe: impl FnOnce() -> (Arc<str>, String),
    ) -> MethodIndex {
        if let Some(&index) = self.by_function.get(&(image, start)) {
            return index;
        }
        let (class, name) = describe();
        // async-profiler's reader knows one encoding of symbols, and the empty string has another.
        let class = if class.is_empty() { Arc::from("unknown") } else { class };
        let name = if name.is_empty() { "[unknown]".to_owned() } else { name };
        let class = match self.by_image.get(&image) {
            Some(&class) => class,
            None => {
                let symbol = self.next_symbol();
                self.classes.push(Class { chunk: 0, symbol, name: class });
                let index = self.classes.len() as u32 - 1;
                self.by_image.insert(image, index);
                index
            }
        };
        let symbol = self.next_symbol();
        self.name_bytes += name.len();
        self.methods.push(Method {
            chunk: 0,
            class,
            symbol,
            name: name.into_boxed_str(),
            frame_type: frame_type::CPP,
        });
        let index = self.methods.len() as u32 - 1;
        self.by_function.insert((image, start), index);
        index
    }

    fn next_symbol(&mut self) -> u32 {
        self.last_symbol += 1;
        self.last_symbol
    }

    /// The trace of these methods, leaf first.
    pub fn trace(&mut self, sequence: &[u32]) -> TraceIndex {
        let sequence = &sequence[..sequence.len().min(MAX_FRAMES + 1)];
        let (index, new) = self.traces.intern(sequence);
        if new {
            self.trace_chunk.push(0);
        }
        index
    }

    /// The pool key of a trace.
    pub fn key(&self, trace: TraceIndex) -> u64 {
        u64::from(self.traces_before) + u64::from(trace) + 1
    }

    /// Whether a trace is written in the present chunk already.
    #[inline]
    pub fn written(&self, trace: TraceIndex) -> bool {
        self.trace_chunk.get(trace as usize) == Some(&self.chunk)
    }

    /// Upper bound of the bytes [`Interner::write`] would take.
    pub fn cost(&self, trace: TraceIndex) -> usize {
        if self.written(trace) {
            return 0;
        }
        let frames = self.traces.get(trace).get(1..).unwrap_or(&[]);
        let mut bytes = 5 * CONSTANT_BYTES + frames.len() * FRAME_BYTES;
        for &frame in frames {
            let Some(method) = self.methods.get(frame as usize).filter(|m| m.chunk != self.chunk) else {
                continue;
            };
            bytes += method.name.len() + 2 * CONSTANT_BYTES;
            if let Some(class) = self.classes.get(method.class as usize).filter(|c| c.chunk != self.chunk) {
                bytes += class.name.len() + 2 * CONSTANT_BYTES;
            }
        }
        bytes
    }

    /// Queues a trace and whatever it refers to, as far as the present chunk does not have it yet.
    #[inline]
    pub fn write(&mut self, trace: TraceIndex, to: &mut ChunkWriter) -> Result<(), WriteError> {
        if self.written(trace) { Ok(()) } else { self.write_new(trace, to) }
    }

    #[cold]
    fn write_new(&mut self, trace: TraceIndex, to: &mut ChunkWriter) -> Result<(), WriteError> {
        let Some((truncated, frames)) = self.traces.get(trace).split_first() else { return Ok(()) };
        if self.descriptor_chunk != self.chunk {
            to.constant(schema::SYMBOL, 1, |s| {
                s.string("()L;");
            })?;
            self.descriptor_chunk = self.chunk;
        }
        for &frame in frames {
            let Some(method) = self.methods.get_mut(frame as usize).filter(|m| m.chunk != self.chunk) else {
                continue;
            };
            let class_key = u64::from(method.class) + 1;
            if let Some(class) = self.classes.get_mut(method.class as usize).filter(|c| c.chunk != self.chunk)
            {
                to.constant(schema::SYMBOL, class.symbol.into(), |s| {
                    s.string(&class.name);
                })?;
                to.constant(schema::CLASS, class_key, |c| {
                    c.key(0).key(class.symbol.into()).key(0).int(0).boolean(false);
                })?;
                class.chunk = self.chunk;
            }
            to.constant(schema::SYMBOL, method.symbol.into(), |s| {
                s.string(&method.name);
            })?;
            to.constant(schema::METHOD, u64::from(frame) + 1, |m| {
                m.key(class_key).key(method.symbol.into()).key(1).int(NATIVE).boolean(false);
            })?;
            method.chunk = self.chunk;
        }
        let key = self.key(trace);
        let methods = &self.methods;
        to.constant(schema::STACK_TRACE, key, |s| {
            s.boolean(*truncated != 0).array(frames.len());
            for &frame in frames {
                let kind = methods.get(frame as usize).map_or(frame_type::CPP, |m| m.frame_type);
                s.key(u64::from(frame) + 1).int(0).int(0).key(kind);
            }
        })?;
        if let Some(chunk) = self.trace_chunk.get_mut(trace as usize) {
            *chunk = self.chunk;
        }
        Ok(())
    }

    /// Begins another chunk. Above `bound` bytes the remembered stacks are forgotten: their keys are not used again.
    pub fn next_chunk(&mut self, bound: usize) {
        self.chunk += 1;
        if self.bytes() > bound {
            self.traces_before += self.traces.len() as u32;
            self.traces.clear();
            self.trace_chunk = Vec::new();
            self.generation += 1;
        }
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.traces.bytes()
            + self.trace_chunk.capacity() * 4
            + self.name_bytes
            + self.methods.capacity() * (size_of::<Method>() + 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jfr_format::{
        ids::{FileOffset, Ticks},
        write::{ClockLine, Geometry},
    };

    fn chunk() -> ChunkWriter {
        let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 0, ticks_per_second: 1_000_000 };
        ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0)).unwrap()
    }

    fn method(interner: &mut Interner, image: ImageId, start: u64) -> MethodIndex {
        interner.method(image, start, || (Arc::from(format!("lib{image}.so")), format!("f{start}")))
    }

    #[test]
    fn constants_are_written_once_per_chunk_and_within_their_cost() {
        let mut interner = Interner::new();
        let methods: Vec<u32> = (0..100).map(|i| method(&mut interner, i % 3, u64::from(i))).collect();
        assert_eq!(method(&mut interner, 1, 1), methods[1]);
        let traces: Vec<u32> = (0..50usize)
            .map(|i| {
                let sequence: Vec<u32> =
                    std::iter::once(i as u32 % 2).chain(methods[i..i + 50].to_vec()).collect();
                interner.trace(&sequence)
            })
            .collect();
        for round in 0..2 {
            let mut to = chunk();
            for &trace in &traces {
                let (before, cost) = (to.pending(), interner.cost(trace));
                interner.write(trace, &mut to).unwrap();
                assert!(to.pending() > before && to.pending() - before <= cost, "round {round}");
                let after = to.pending();
                assert_eq!(interner.cost(trace), 0);
                interner.write(trace, &mut to).unwrap();
                assert_eq!(to.pending(), after);
            }
            interner.next_chunk(usize::MAX);
        }
    }

    #[test]
    fn forgotten_traces_get_fresh_keys() {
        let mut interner = Interner::new();
        let m = method(&mut interner, 1, 1);
        let first = interner.trace(&[0, m]);
        let key = interner.key(first);
        interner.next_chunk(usize::MAX);
        assert_eq!((interner.generation, interner.key(interner.trace_for_test(&[0, m]))), (0, key));
        interner.next_chunk(0);
        assert_eq!(interner.generation, 1);
        let again = interner.trace(&[0, m]);
        assert!(interner.key(again) > key);
    }

    impl Interner {
        fn trace_for_test(&self, sequence: &[u32]) -> TraceIndex {
            (0..self.traces.len() as u32).find(|&i| self.traces.get(i) == sequence).unwrap()
        }
    }
}
