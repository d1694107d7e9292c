//! Names of Java code in a HotSpot JVM, read from the JVM's memory while it runs.
//!
//! ```text
//! vm_structs.rs   the tables in which libjvm.so describes its structures     layout.rs  the parts that we need
//! memory.rs       checked reads of the JVM's memory
//! discovery.rs    finds libjvm.so, publishes the code cache for the handlers
//! flags.rs        makes the JVM describe all its compiled code
//! code_blob.rs    address → blob, compiled method     scopes.rs  address in it → inlined methods, bytecodes
//! method.rs       method → class, name, descriptor, modifiers                line_table.rs  bytecode → line
//! ```
//!
//! The JVM changes all of this at any time: it unloads classes and compiled methods, and reuses their memory.
//! Therefore each lookup reads the identity of the compiled method and of its methods again, and uses cached
//! results only if it is the same. A method that was unloaded before the lookup is counted.

pub mod code_blob;
pub mod discovery;
pub mod flags;
pub mod layout;
pub mod line_table;
#[cfg(test)]
pub(crate) mod live_tests;
pub mod memory;
pub mod method;
pub mod scopes;
#[cfg(test)]
pub(crate) mod tests;
pub mod vm_structs;

use std::{collections::HashMap, sync::Arc};

use flightline_in_signal::layout::java_frame;
use jfr_format::schema::frame_type;

use code_blob::{CodeBlob, CodeHeaps, Nmethod};
use layout::HotspotLayout;
use memory::ReadMemory;
use method::{JavaMethod, MethodIdentity};
use scopes::{PC_DESC_SIZE, PcDesc};

/// Limit of the cached methods and debug information of one JVM. Above it, all are dropped.
const MAX_CACHE_BYTES: usize = 16 << 20;
/// Limit of the debug information of one compiled method.
const MAX_PC_DESCS: u64 = 1 << 17;
/// Addresses below this are bytecode indices. HotSpot stores them in some frames instead of an address.
const MAX_BCI: u64 = 1 << 16;

/// A reason why a frame has no name, or only that of its outermost method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The code was unloaded, or replaced by other code.
    Unloaded,
    /// Memory cannot be read, or has contents that no JVM writes.
    Unreadable,
    /// There is no debug information at the address.
    NoDebugInfo,
}

/// Lookups without a complete result, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnresolvedCounts {
    /// See [`Unresolved::Unloaded`].
    pub unloaded: u64,
    /// See [`Unresolved::Unreadable`].
    pub unreadable: u64,
    /// See [`Unresolved::NoDebugInfo`]. These lookups return the outermost method.
    pub no_debug_info: u64,
}

impl UnresolvedCounts {
    fn add(&mut self, cause: Unresolved) {
        match cause {
            Unresolved::Unloaded => self.unloaded += 1,
            Unresolved::Unreadable => self.unreadable += 1,
            Unresolved::NoDebugInfo => self.no_debug_info += 1,
        }
    }
}

/// A frame of Java code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JavaFrame {
    /// The method.
    pub method: Arc<JavaMethod>,
    /// Bytecode index; 0 if it is unknown, and for native methods.
    pub bci: u16,
    /// Source line; 0 if it is unknown.
    pub line: u32,
    /// One of [`frame_type`], as the JDK writes it.
    pub kind: u64,
}

impl JavaFrame {
    fn new(method: Arc<JavaMethod>, bci: Option<u16>, kind: u64) -> JavaFrame {
        if method.is_native() {
            return JavaFrame { method, bci: 0, line: 0, kind: frame_type::NATIVE };
        }
        let line = bci.map_or(0, |bci| method.line(bci));
        JavaFrame { method, bci: bci.unwrap_or(0), line, kind }
    }
}

/// A method that is inlined at an address, or the compiled method itself.
#[derive(Clone, Copy, Debug)]
struct InlinedMethod {
    method: u64,
    /// -1 before the first bytecode.
    bci: i32,
}

/// Cached debug information of a compiled method.
struct CachedNmethod {
    nmethod: Nmethod,
    pcs: Box<[PcDesc]>,
    /// Methods by the offset of the innermost scope, innermost first.
    scopes: HashMap<i32, Arc<[InlinedMethod]>>,
}

/// Resolves Java frames of one JVM.
pub struct HotspotNames {
    layout: HotspotLayout,
    heaps: CodeHeaps,
    nmethods: HashMap<u64, CachedNmethod>,
    methods: HashMap<u64, (MethodIdentity, Arc<JavaMethod>)>,
    /// Estimated memory of the two caches.
    bytes: usize,
    counts: UnresolvedCounts,
}

impl HotspotNames {
    /// Returns a resolver with empty caches.
    pub fn new(layout: HotspotLayout) -> HotspotNames {
        HotspotNames {
            layout,
            heaps: CodeHeaps::default(),
            nmethods: HashMap::new(),
            methods: HashMap::new(),
            bytes: 0,
            counts: UnresolvedCounts::default(),
        }
    }

    /// Returns the description of the JVM.
    #[cfg(test)]
    pub fn layout(&self) -> &HotspotLayout {
        &self.layout
    }

    /// Returns how many lookups had no complete result.
    pub fn counts(&self) -> UnresolvedCounts {
        self.counts
    }

    /// Returns the estimated memory in use, bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the frames at an address of a compiled method, innermost first: those of inlined methods and of the
    /// method itself. `nmethod` is the address of the blob; `compile_id` is that of the
    /// sample, as [`java_frame::short_id`] returns it, if it is known.
    ///
    /// # Errors
    ///
    /// If the compiled method no longer exists or cannot be read. Nothing is added then.
    pub fn compiled(
        &mut self,
        memory: &impl ReadMemory,
        nmethod: u64,
        compile_id: Option<u32>,
        pc: u64,
        is_return_address: bool,
        frames: &mut Vec<JavaFrame>,
    ) -> Result<(), Unresolved> {
        let before = frames.len();
        let result = self.compiled_frames(memory, nmethod, compile_id, (pc, is_return_address), frames);
        if let Err(cause) = result {
            self.counts.add(cause);
            frames.truncate(before);
        }
        result
    }

    /// Returns the frame of an interpreted method. `bcp` is the address of the bytecode, or its index, or 0 if
    /// it is unknown.
    ///
    /// # Errors
    ///
    /// If the method cannot be read.
    pub fn interpreted(
        &mut self,
        memory: &impl ReadMemory,
        method: u64,
        bcp: u64,
    ) -> Result<JavaFrame, Unresolved> {
        let found = self.method(memory, method);
        let (identity, method) = found.inspect_err(|cause| self.counts.add(*cause))?;
        let bci = match bcp {
            0..MAX_BCI => u16::try_from(bcp).ok(),
            // The frame of a method that is being entered does not have the address yet.
            address => identity.bci(&self.layout.method, address).or(Some(0)),
        };
        Ok(JavaFrame::new(method, bci, frame_type::INTERPRETED))
    }

    /// Returns the frame of an interpreted method from the cache, for a process that has ended.
    pub fn interpreted_from_cache(&self, method: u64, bcp: u64) -> Option<JavaFrame> {
        let (identity, method) = self.methods.get(&method)?;
        let bci = identity.bci(&self.layout.method, bcp);
        Some(JavaFrame::new(method.clone(), bci, frame_type::INTERPRETED))
    }

    /// Returns the blob that contains an address.
    ///
    /// # Errors
    ///
    /// If there is none, or if it cannot be read.
    pub fn blob(&mut self, memory: &impl ReadMemory, pc: u64) -> Result<CodeBlob, Unresolved> {
        let address = self.heaps.find(memory, &self.layout, pc).ok_or(Unresolved::Unloaded);
        let blob = address.and_then(|address| self.heaps.blob(memory, &self.layout, address));
        let blob = blob.and_then(|blob| if blob.contains(pc) { Ok(blob) } else { Err(Unresolved::Unloaded) });
        blob.inspect_err(|cause| self.counts.add(*cause))
    }

    /// Returns the JVM's name for the code at an address: of a stub, an adapter, the interpreter.
    ///
    /// # Errors
    ///
    /// As [`HotspotNames::blob`].
    #[cfg(test)]
    pub fn blob_name(&mut self, memory: &impl ReadMemory, pc: u64) -> Result<Arc<str>, Unresolved> {
        self.blob(memory, pc).map(|blob| blob.name)
    }

    fn compiled_frames(
        &mut self,
        memory: &impl ReadMemory,
        address: u64,
        compile_id: Option<u32>,
        (pc, is_return_address): (u64, bool),
        frames: &mut Vec<JavaFrame>,
    ) -> Result<(), Unresolved> {
        let nmethod = self.heaps.nmethod(memory, &self.layout, address)?;
        if compile_id.is_some_and(|id| id != java_frame::short_id(nmethod.compile_id)) {
            return Err(Unresolved::Unloaded);
        }
        let before = frames.len();
        let scopes = self.scopes(memory, address, &nmethod, (pc, is_return_address));
        let scopes = scopes.and_then(|scopes| self.inlined_frames(memory, &nmethod, &scopes, frames));
        if let Err(cause) = scopes {
            // The compiled method itself is known, but not what is inlined.
            frames.truncate(before);
            let (_, method) = self.method(memory, nmethod.method)?;
            if !method.is_native() {
                self.counts.add(cause);
            }
            frames.push(JavaFrame::new(method, None, frame_type::JIT_COMPILED));
        }
        // The reads above belong together only if the compiled method is still the same.
        if self.heaps.nmethod(memory, &self.layout, address)? != nmethod {
            return Err(Unresolved::Unloaded);
        }
        Ok(())
    }

    /// Adds the frames of scopes, and checks that they end with the compiled method.
    fn inlined_frames(
        &mut self,
        memory: &impl ReadMemory,
        nmethod: &Nmethod,
        scopes: &[InlinedMethod],
        frames: &mut Vec<JavaFrame>,
    ) -> Result<(), Unresolved> {
        for (i, scope) in scopes.iter().enumerate() {
            let is_last = i + 1 == scopes.len();
            if is_last && scope.method != nmethod.method {
                return Err(Unresolved::Unreadable);
            }
            let kind = if is_last { frame_type::JIT_COMPILED } else { frame_type::INLINED };
            let (_, method) = self.method(memory, scope.method)?;
            // The entry of a method has no bytecode of its own.
            let bci = u16::try_from(scope.bci.max(0)).map_err(|_| Unresolved::Unreadable)?;
            frames.push(JavaFrame::new(method, Some(bci), kind));
        }
        Ok(())
    }

    /// Returns the methods at an address of a compiled method, innermost first.
    fn scopes(
        &mut self,
        memory: &impl ReadMemory,
        address: u64,
        nmethod: &Nmethod,
        (pc, is_return_address): (u64, bool),
    ) -> Result<Arc<[InlinedMethod]>, Unresolved> {
        let offset = pc.wrapping_sub(nmethod.code_begin) as i64;
        let offset = i32::try_from(offset).map_err(|_| Unresolved::NoDebugInfo)?;
        let known = self.nmethods.get(&address).is_some_and(|cached| cached.nmethod == *nmethod);
        if !known {
            let (start, end) = nmethod.pcs;
            let len = end.checked_sub(start).filter(|len| *len <= MAX_PC_DESCS * PC_DESC_SIZE as u64);
            let len = len.ok_or(Unresolved::Unreadable)? as usize;
            let bytes = memory.bytes(start, len).ok_or(Unresolved::Unreadable)?;
            let pcs = scopes::parse_pc_descs(&bytes);
            self.make_room(size_of::<CachedNmethod>() + size_of_val(&*pcs) + 64);
            let cached = CachedNmethod { nmethod: *nmethod, pcs, scopes: HashMap::new() };
            self.nmethods.insert(address, cached);
        }
        let cached = self.nmethods.get(&address).ok_or(Unresolved::Unreadable)?;
        let desc = scopes::find_pc_desc(&cached.pcs, offset, is_return_address);
        let desc = desc.ok_or(Unresolved::NoDebugInfo)?;
        if let Some(found) = cached.scopes.get(&desc.scope_offset) {
            return Ok(found.clone());
        }
        let found = read_scopes(memory, nmethod, desc.scope_offset, self.layout.method.without_zero_bytes);
        let found: Arc<[InlinedMethod]> = found.ok_or(Unresolved::Unreadable)?.into();
        if found.is_empty() {
            return Err(Unresolved::NoDebugInfo);
        }
        self.make_room(size_of_val(&*found) + 64);
        if let Some(cached) = self.nmethods.get_mut(&address) {
            cached.scopes.insert(desc.scope_offset, found.clone());
        }
        Ok(found)
    }

    /// Returns a method, from the cache if it has not changed.
    fn method(
        &mut self,
        memory: &impl ReadMemory,
        address: u64,
    ) -> Result<(MethodIdentity, Arc<JavaMethod>), Unresolved> {
        let identity = MethodIdentity::read(memory, &self.layout.method, address)?;
        if let Some((known, method)) = self.methods.get(&address)
            && *known == identity
        {
            return Ok((identity, method.clone()));
        }
        let method = JavaMethod::read(memory, &self.layout.method, &identity)?;
        // The names belong to the method only if it did not change while they were read.
        if MethodIdentity::read(memory, &self.layout.method, address)? != identity {
            return Err(Unresolved::Unreadable);
        }
        self.make_room(method.memory());
        let method = Arc::new(method);
        self.methods.insert(address, (identity, method.clone()));
        Ok((identity, method))
    }

    /// Accounts for new cache entries. Drops all entries if there would be too many.
    fn make_room(&mut self, bytes: usize) {
        if self.bytes.saturating_add(bytes) > MAX_CACHE_BYTES {
            self.nmethods = HashMap::new();
            self.methods = HashMap::new();
            self.bytes = 0;
        }
        self.bytes += bytes;
    }
}

/// Reads the scopes from `offset` on and their methods.
fn read_scopes(
    memory: &impl ReadMemory,
    nmethod: &Nmethod,
    offset: i32,
    without_zero_bytes: bool,
) -> Option<Vec<InlinedMethod>> {
    let (start, end) = nmethod.scopes;
    let scopes = scopes::decode_scopes(offset, without_zero_bytes, |offset, len| {
        let from = start.checked_add(u64::from(offset))?;
        let len = usize::try_from(end.checked_sub(from)?).ok()?.min(len);
        memory.bytes(from, len)
    })?;
    let (metadata, metadata_end) = nmethod.metadata;
    let method = |scope: &scopes::Scope| {
        let at = metadata.checked_add(8 * (u64::from(scope.method_index) - 1))?;
        let inside = at.checked_add(8)? <= metadata_end;
        Some(InlinedMethod { method: memory.u64(Some(at).filter(|_| inside)?)?, bci: scope.bci })
    };
    scopes.iter().map(method).collect()
}
