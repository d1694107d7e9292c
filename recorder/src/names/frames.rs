//! Converts addresses of a process to frames of the output.
//!
//! An address has the frame of its function and, above it, those of the functions inlined there. While better
//! names are being read, the sample waits; a result that was used without waiting is not stored. A frame in a
//! file without debug information has its address as bytecode index, and the package and module of its class
//! have path and build id. `symbolize.rs` and `jfr-format/src/edit/symbolize.rs` use both to add names later.

use std::{collections::HashMap, sync::Arc};

use jfr_format::schema::frame_type;

use crate::{
    names::dwarf::SourceFrame,
    names::images::{ANONYMOUS, ImageId, Images, JIT, UNKNOWN},
    names::intern::{Frame, FrameIndex, Interner, Origin},
    names::java_frames::JavaFrames,
    names::jit::{Jit, JitSymbol},
    names::kernel,
    names::modules::ModuleMap,
};

/// Cached frames of the addresses of one process.
#[derive(Default)]
pub struct Frames {
    /// Index in `frames`, and number of frames: a function and the functions inlined into it.
    cache: HashMap<u64, (u32, u16)>,
    frames: Vec<FrameIndex>,
    /// Symbols of JIT-compiled code.
    pub jit: Jit,
    /// Frames of a JVM's interpreter and of its compiled code.
    pub java: JavaFrames,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The final frames.
    Known,
    /// The best frames at this time; a later lookup may find better ones.
    ForNow,
    /// A file is being read, so retry later. Nothing was added.
    Waiting,
    /// The program has not written a name for this code yet. Nothing was added.
    Unnamed,
}

impl Frames {
    /// Drops all cached frames, because addresses or frame indices have changed their meaning.
    pub fn clear(&mut self) {
        self.cache = HashMap::new();
        self.frames = Vec::new();
        self.java.clear();
    }

    /// Returns a number that changes when an address in generated code may have changed its meaning.
    pub fn version(&self) -> u64 {
        self.jit.version + self.java.version
    }

    /// Returns the number of cached addresses.
    pub fn count(&self) -> usize {
        self.cache.len()
    }

    /// Returns the memory in use, bytes.
    pub fn bytes(&self) -> usize {
        self.cache.capacity() * (size_of::<(u64, (u32, u16))>() + 1)
            + self.frames.capacity() * size_of::<FrameIndex>()
            + self.java.bytes()
    }

    /// Adds the frames of a code address to `stack`, innermost first. With `anyway`, uses the symbols
    /// available now instead of waiting.
    pub fn resolve(
        &mut self,
        address: u64,
        modules: &ModuleMap,
        interner: &mut Interner,
        images: &mut Images,
        anyway: bool,
        stack: &mut Vec<FrameIndex>,
    ) -> Resolved {
        if let Some(&(at, count)) = self.cache.get(&address) {
            let at = at as usize;
            stack.extend_from_slice(self.frames.get(at..at + usize::from(count)).unwrap_or(&[]));
            return Resolved::Known;
        }
        let before = stack.len();
        let resolved = look_up(address, modules, interner, images, &mut self.jit, anyway, stack);
        if resolved == Resolved::Known {
            let new = stack.get(before..).unwrap_or(&[]);
            self.cache.insert(address, (self.frames.len() as u32, new.len() as u16));
            self.frames.extend_from_slice(new);
        }
        resolved
    }
}

fn look_up(
    address: u64,
    modules: &ModuleMap,
    interner: &mut Interner,
    images: &mut Images,
    jit: &mut Jit,
    anyway: bool,
    stack: &mut Vec<FrameIndex>,
) -> Resolved {
    if kernel::is_kernel(address) {
        return kernel::frame(address, interner, images, anyway, stack);
    }
    let Some(mapping) = modules.find(address) else {
        let unknown = || Origin { class: Arc::from("unknown"), ..Origin::default() };
        let method = interner.method(UNKNOWN, 0, || (unknown(), "[unknown]".to_owned()));
        stack.push(interner.frame(Frame { method, line: 0, address: 0, kind: frame_type::CPP }));
        return Resolved::ForNow;
    };
    let id = mapping.image;
    // JIT-compiled code lies in anonymous memory, or in a file that is not a program.
    if !images.get(id).has_code() {
        let found = jit.find(address);
        if let JitSymbol::Named(name, line) = &found {
            let origin = || Origin { class: Arc::from("jit"), ..Origin::default() };
            let method = interner.named(JIT, name, origin);
            let kind = frame_type::JIT_COMPILED;
            stack.push(interner.frame(Frame { method, line: *line, address: 0, kind }));
            return Resolved::Known;
        }
        if found == JitSymbol::NotYet && !anyway {
            return Resolved::Unnamed;
        }
        if id == ANONYMOUS {
            let method = interner.method(id, 0, || (images.get(id).origin(), "[anon]".to_owned()));
            stack.push(interner.frame(Frame { method, line: 0, address: 0, kind: frame_type::CPP }));
            return if found == JitSymbol::NotYet { Resolved::ForNow } else { Resolved::Known };
        }
    }
    let file_address = address.wrapping_sub(mapping.bias);
    let loaded = images.want(id);
    let known = loaded && source(id, file_address, interner, images).is_some();
    if !known && !anyway {
        return Resolved::Waiting;
    }
    in_file(id, file_address, interner, images, stack);
    if known { Resolved::Known } else { Resolved::ForNow }
}

/// Returns the frames of an address from debug information, innermost first. If lines and inlined functions
/// are not required, it is used only for addresses without a symbol, because reading it is the most expensive
/// step.
fn source<'a>(
    id: ImageId,
    address: u64,
    interner: &Interner,
    images: &'a mut Images,
) -> Option<&'a [SourceFrame]> {
    if !interner.lines && images.get(id).symbols.find(address).named() {
        Some(&[])
    } else {
        images.source(id, address)
    }
}

/// Adds the frames of an address in a file: its function from the symbols, inlined functions from the debug
/// information.
fn in_file(
    id: ImageId,
    address: u64,
    interner: &mut Interner,
    images: &mut Images,
    stack: &mut Vec<FrameIndex>,
) {
    let source: Vec<_> = source(id, address, interner, images).unwrap_or(&[]).to_vec();
    let image = images.get(id);
    let mut line = 0;
    let mut name = None;
    if let Some((last, inlined)) = source.split_last() {
        for frame in if interner.lines { inlined } else { &[] } {
            let method = interner.named(id, &frame.name, || image.origin());
            let line = frame.line;
            stack.push(interner.frame(Frame { method, line, address: 0, kind: frame_type::INLINED }));
        }
        line = last.line;
        name = Some(&last.name).filter(|n| !n.is_empty());
    }
    let function = image.symbols.find(address);
    let method = interner.method(id, function.start, || {
        let symbol = image.symbols.name(function).map(|n| n.text);
        let name = symbol.or_else(|| name.map(|n| n.to_string()));
        (image.origin(), name.unwrap_or_else(|| format!("{}+0x{:x}", image.class, function.start)))
    });
    // Without debug information, record the address, so that the frame can be symbolized later. If lines are
    // not required, record the function's address, and only if the function has no name.
    let address = match (image.has_lines(), interner.lines) {
        (true, _) => 0,
        (_, true) => address,
        _ if image.symbols.name(function).is_some() => 0,
        _ => function.start,
    };
    let address = u32::try_from(address).unwrap_or(0);
    stack.push(interner.frame(Frame { method, line, address, kind: frame_type::CPP }));
}
