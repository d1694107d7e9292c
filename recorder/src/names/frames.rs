//! Addresses of a process → frames of the output.
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
    names::jit::{Jit, JitSymbol},
    names::kernel,
    names::modules::ModuleMap,
};

/// Frames of the addresses of one process, as far as they were met.
#[derive(Default)]
pub struct Frames {
    /// Where in `frames`, and how many: a function and what is inlined into it.
    known: HashMap<u64, (u32, u16)>,
    frames: Vec<FrameIndex>,
    /// Names of code that is in no file.
    pub jit: Jit,
}

/// How far an address could be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// That is it.
    Known,
    /// As well as it can be said now; later it may be known better.
    ForNow,
    /// Something is being read: try again. Nothing was added.
    Waiting,
    /// The program has not written down yet what this code is. Nothing was added.
    Unnamed,
}

impl Frames {
    /// Forgets everything: addresses or frame indices mean something else now.
    pub fn clear(&mut self) {
        self.known = HashMap::new();
        self.frames = Vec::new();
    }

    /// How many addresses are known.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.known.capacity() * (size_of::<(u64, (u32, u16))>() + 1)
            + self.frames.capacity() * size_of::<FrameIndex>()
    }

    /// Adds the frames of a code address to `stack`, innermost first. With `anyway` it takes what is known now instead of
    /// waiting.
    pub fn resolve(
        &mut self,
        address: u64,
        modules: &ModuleMap,
        interner: &mut Interner,
        images: &mut Images,
        anyway: bool,
        stack: &mut Vec<FrameIndex>,
    ) -> Resolved {
        if let Some(&(at, count)) = self.known.get(&address) {
            let at = at as usize;
            stack.extend_from_slice(self.frames.get(at..at + usize::from(count)).unwrap_or(&[]));
            return Resolved::Known;
        }
        let before = stack.len();
        let resolved = look_up(address, modules, interner, images, &mut self.jit, anyway, stack);
        if resolved == Resolved::Known {
            let new = stack.get(before..).unwrap_or(&[]);
            self.known.insert(address, (self.frames.len() as u32, new.len() as u16));
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
    // Code made at run time lies in memory of no file, or of one that is no program.
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

/// What debug information tells of an address, innermost first. Where lines and inlined functions do not matter it is asked only for
/// what has no symbol: reading it costs more than all else.
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

/// The frames of an address in a file: its function by the symbols, what is inlined there by debug information.
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
    // Where debug information is missing, the address is what it can be asked for later: if lines do not matter, that of the
    // function, as long as it has no name.
    let address = match (image.has_lines(), interner.lines) {
        (true, _) => 0,
        (_, true) => address,
        _ if image.symbols.name(function).is_some() => 0,
        _ => function.start,
    };
    let address = u32::try_from(address).unwrap_or(0);
    stack.push(interner.frame(Frame { method, line, address, kind: frame_type::CPP }));
}
