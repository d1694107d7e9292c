//! Converts the Java frames of raw stacks to frames of the output.
//!
//! The names are read from the JVM's memory, so they are found only while the process lives. A frame whose
//! method was unloaded before has a placeholder, and is counted by cause.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use flightline_in_signal::layout::JvmLayout;
use flightline_in_signal::layout::java_frame::{self, Word};
use jfr_format::schema::frame_type;

use super::hotspot::code_blob::BlobKind;
use super::hotspot::discovery::{Discovery, DiscoveryEvent};
use super::hotspot::flags;
use super::hotspot::memory::{ReadMemory, RemoteMemory};
use super::hotspot::{self, HotspotNames, JavaFrame, Unresolved, UnresolvedCounts};
use super::images::{Images, JVM};
use super::intern::{Frame, FrameIndex, Interner, JavaMethod, Origin};
use super::modules::ModuleMap;

/// Marks the key of a frame whose address was interrupted. Offsets in a code cache do not have this bit.
const EXACT: u64 = 1 << 35;

/// Time after which names of interpreted methods are read again, because the JVM may have unloaded a class and
/// reused the address of its methods, ns. Compiled methods have a number, which is checked.
const NAMES_NS: u64 = 10_000_000_000;

/// Limit of compiled methods whose name is known after they were unloaded.
const MAX_COMPILED: usize = 1 << 15;

/// The JVM of a process.
struct Jvm {
    memory: RemoteMemory,
    /// Start of the code cache.
    code_start: u64,
    /// The return address in the stub by which native code calls Java.
    call_stub_return: u64,
    names: HotspotNames,
    /// Compiled methods that were found, by the start of their blob.
    compiled: BTreeMap<u64, Compiled>,
}

/// A compiled method. Its name is still known after the JVM has unloaded it, or has ended.
struct Compiled {
    end: u64,
    /// [`java_frame::short_id`] of its compile id.
    id: u32,
    method: Arc<hotspot::method::JavaMethod>,
}

/// A number of attempts. The dynamic loader may still be relocating the flags.
struct Attempts(u8);

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts(20)
    }
}

/// The Java frames of one process.
#[derive(Default)]
pub struct JavaFrames {
    discovery: Discovery,
    /// Remaining attempts to make the JVM describe all code that it compiles.
    description_attempts: Attempts,
    jvm: Option<Box<Jvm>>,
    /// Index in `frames`, and number of frames, by the words of the frame.
    cache: HashMap<[u64; 2], (u32, u16)>,
    frames: Vec<FrameIndex>,
    /// Reused buffer for the frames of one address.
    found: Vec<JavaFrame>,
    /// When the names of interpreted methods were last dropped, CLOCK_MONOTONIC ns.
    dropped_ns: u64,
    /// Incremented when a word may have changed its meaning.
    pub version: u64,
}

impl JavaFrames {
    /// Searches for a JVM if the modules have changed, and publishes its code cache in `shared`. Returns a
    /// message for the user if the JVM is not supported.
    pub fn find_jvm(
        &mut self,
        pid: u32,
        shared: &JvmLayout,
        modules: &ModuleMap,
        images: &Images,
        now_ns: u64,
    ) -> Option<String> {
        if now_ns.saturating_sub(self.dropped_ns) >= NAMES_NS {
            self.dropped_ns = now_ns;
            let interpreted =
                self.cache.keys().any(|[word, _]| matches!(java_frame::decode(*word), Word::Method(_)));
            self.version += u64::from(interpreted);
        }
        match self.discovery.search(pid, shared, modules, images, now_ns)? {
            DiscoveryEvent::Published(code_start, layout) => {
                let memory = RemoteMemory { pid };
                let call_stub_return = memory.u64(layout.frame.call_stub_return_address).unwrap_or(0);
                let names = HotspotNames::new(*layout);
                let compiled = BTreeMap::new();
                self.jvm = Some(Box::new(Jvm { memory, code_start, call_stub_return, names, compiled }));
                None
            }
            DiscoveryEvent::Unsupported(reason) => Some(format!("process {pid}: no Java frames: {reason}")),
        }
    }

    /// Makes the JVM describe all code that it compiles from now on, once. Only for programs that were started
    /// with the recorder: others go on unchanged after a recording.
    pub fn describe_all_code(&mut self, pid: u32) {
        let Some(layout) = self.discovery.layout().filter(|_| self.description_attempts.0 > 0) else {
            return;
        };
        let described = flags::describe_all_code(RemoteMemory { pid }, layout);
        self.description_attempts.0 = if described { 0 } else { self.description_attempts.0 - 1 };
    }

    /// Returns how many lookups had no complete result, by cause, if there were any.
    pub fn unresolved(&self) -> Option<String> {
        let UnresolvedCounts { unloaded, unreadable, no_debug_info } = self.jvm.as_ref()?.names.counts();
        (unloaded + unreadable + no_debug_info > 0).then(|| {
            format!(
                "addresses of Java code without a complete name: {unloaded} unloaded, {unreadable} unreadable, \
                 {no_debug_info} without debug information"
            )
        })
    }

    /// Stops reading the process's memory, because it has ended and another may get its PID.
    pub fn end(&mut self) {
        if let Some(jvm) = &mut self.jvm {
            // No process has this PID.
            jvm.memory = RemoteMemory { pid: 0 };
        }
    }

    /// Drops all cached frames.
    pub fn clear(&mut self) {
        self.cache = HashMap::new();
        self.frames = Vec::new();
    }

    /// Returns the memory in use, bytes.
    pub fn bytes(&self) -> usize {
        self.cache.capacity() * (size_of::<([u64; 2], (u32, u16))>() + 1)
            + self.frames.capacity() * size_of::<FrameIndex>()
    }

    /// Adds the frames of a word of a raw stack and the methods inlined there to `stack`, innermost first.
    /// `next` is the word that follows. `exact`: the address was interrupted, it is not a return address.
    pub fn resolve(
        &mut self,
        word: u64,
        next: u64,
        exact: bool,
        interner: &mut Interner,
        stack: &mut Vec<FrameIndex>,
    ) {
        let key = match java_frame::decode(word) {
            Word::Code { .. } => [word | if exact { EXACT } else { 0 }, 0],
            Word::Method(_) => [word, next],
            Word::Bytecode(_) | Word::Native(_) => return,
        };
        let (at, count) = match self.cache.get(&key) {
            Some(&known) => known,
            None => {
                let at = self.frames.len();
                self.look_up(word, next, exact, interner);
                let known = (at as u32, (self.frames.len() - at) as u16);
                self.cache.insert(key, known);
                known
            }
        };
        let at = at as usize;
        stack.extend_from_slice(self.frames.get(at..at + usize::from(count)).unwrap_or(&[]));
    }

    /// Reads the names of a stack that is written later, when the process may have ended. Bit i of `exact`: the
    /// address of frame i was interrupted.
    pub fn read_ahead(&mut self, stack: &[u64], exact: u64, interner: &mut Interner) {
        let mut frames = Vec::new();
        for (i, &word) in stack.iter().enumerate().filter(|(_, word)| java_frame::is_java(**word)) {
            let next = stack.get(i + 1).copied().unwrap_or(0);
            self.resolve(word, next, i < 64 && exact >> i & 1 == 1, interner, &mut frames);
        }
    }

    /// Adds the frames of a word to `self.frames`.
    fn look_up(&mut self, word: u64, next: u64, exact: bool, interner: &mut Interner) {
        self.found.clear();
        let stub = match &mut self.jvm {
            Some(jvm) => jvm.look_up(word, next, exact, &mut self.found),
            None => Err(Unresolved::Unloaded),
        };
        match stub {
            Ok(None) => {}
            Ok(Some(stub)) => self.frames.push(stub_frame(&stub, interner)),
            Err(cause) => self.frames.push(stub_frame(&Arc::from(placeholder(cause)), interner)),
        }
        for JavaFrame { method, bci, line, kind } in &self.found {
            let method = interner.java_method(&JavaMethod {
                class: method.class.clone(),
                name: method.name.clone(),
                descriptor: method.descriptor.clone(),
                modifiers: method.modifiers,
            });
            let (line, kind) = (*line, *kind);
            let address = if interner.lines { u32::from(*bci) } else { 0 };
            self.frames.push(interner.frame(Frame { method, line, address, kind }));
        }
    }
}

impl Jvm {
    /// Adds the Java frames of a word to `found`; returns the name of a stub instead if it is one.
    fn look_up(
        &mut self,
        word: u64,
        next: u64,
        exact: bool,
        found: &mut Vec<JavaFrame>,
    ) -> Result<Option<Arc<str>>, Unresolved> {
        match java_frame::decode(word) {
            Word::Code { offset, compile_id } => {
                let pc = self.code_start.wrapping_add(offset);
                self.look_up_code(pc, compile_id, exact, found)
            }
            Word::Method(method) => {
                let bytecode = match java_frame::decode(next) {
                    Word::Bytecode(bytecode) => bytecode,
                    _ => 0,
                };
                let frame = self.names.interpreted(&self.memory, method, bytecode);
                let frame = frame.or_else(|cause| match cause {
                    Unresolved::Unreadable => {
                        self.names.interpreted_from_cache(method, bytecode).ok_or(cause)
                    }
                    _ => Err(cause),
                });
                found.push(frame?);
                Ok(None)
            }
            Word::Bytecode(_) | Word::Native(_) => Ok(None),
        }
    }

    /// Does the same for an address in the code cache.
    fn look_up_code(
        &mut self,
        pc: u64,
        compile_id: u32,
        exact: bool,
        found: &mut Vec<JavaFrame>,
    ) -> Result<Option<Arc<str>>, Unresolved> {
        if pc == self.call_stub_return {
            return Ok(Some(Arc::from("call_stub")));
        }
        // A return address may be the end of its code.
        let at = if exact { pc } else { pc.wrapping_sub(1) };
        let result = self.read_code(pc, at, compile_id, exact, found);
        if result.is_err()
            && let Some((_, known)) = self.compiled.range(..=at).next_back()
            && at < known.end
            && known.id == compile_id
        {
            let (method, kind) = (known.method.clone(), frame_type::JIT_COMPILED);
            found.push(JavaFrame { method, bci: 0, line: 0, kind });
            return Ok(None);
        }
        result
    }

    fn read_code(
        &mut self,
        pc: u64,
        at: u64,
        compile_id: u32,
        exact: bool,
        found: &mut Vec<JavaFrame>,
    ) -> Result<Option<Arc<str>>, Unresolved> {
        let Jvm { memory, names, compiled, .. } = self;
        let blob = names.blob(memory, at)?;
        if !matches!(blob.kind, BlobKind::Nmethod | BlobKind::NativeNmethod) {
            return Ok(Some(blob.name));
        }
        names.compiled(memory, blob.address, Some(compile_id), pc, !exact, found)?;
        if let Some(frame) = found.last() {
            if compiled.len() >= MAX_COMPILED {
                compiled.clear();
            }
            let (end, method) = (blob.address.wrapping_add(blob.size), frame.method.clone());
            compiled.insert(blob.address, Compiled { end, id: compile_id, method });
        }
        Ok(None)
    }
}

/// The name of a frame that could not be resolved.
fn placeholder(cause: Unresolved) -> &'static str {
    match cause {
        Unresolved::Unloaded => "[unloaded Java method]",
        Unresolved::Unreadable | Unresolved::NoDebugInfo => "[unknown Java method]",
    }
}

/// The frame of code of the JVM that is not a Java method.
fn stub_frame(name: &Arc<str>, interner: &mut Interner) -> FrameIndex {
    let origin = || Origin { class: Arc::from("jvm"), ..Origin::default() };
    let method = interner.named(JVM, name, origin);
    interner.frame(Frame { method, line: 0, address: 0, kind: frame_type::CPP })
}
