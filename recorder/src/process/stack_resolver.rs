//! Caches the stacks of a process: each distinct stack is stored and resolved once.

use flightline_in_signal::layout::java_frame;

use crate::{
    names::frames::{Frames, Resolved},
    names::images::Images,
    names::intern::TraceIndex,
    names::kernel,
    names::modules::ModuleMap,
    names::stack_table::StackTable,
    recording::Recording,
    settings::{STACK_BYTES, STACKS_BYTES},
};

/// Words of a stored stack before its addresses: whether it is truncated, and exact frames.
pub(super) const STACK_HEAD: usize = 2;

/// The reason why a stack cannot be resolved yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The symbols of a module are still being read.
    Symbols,
    /// Only names of JIT-compiled code are missing.
    Names,
}

/// Distinct raw stacks, and their traces in the recording.
pub(super) struct StackResolver {
    table: StackTable<u64>,
    /// Trace index + 1 of each stack, 0 = not resolved yet. As long as `table`.
    traces: Vec<u32>,
    pub frames: Frames,
    /// Versions of the modules, of the interner and of JIT-compiled code for which `traces` and `frames` are
    /// valid.
    versions: (u64, u32, u64),
    /// Limit of stored stacks, bytes.
    byte_limit: usize,
    /// Reused buffer for the frames of the stack that is being resolved.
    sequence: Vec<u32>,
    /// An address was in no known mapping.
    unknown_address: bool,
}

impl StackResolver {
    pub fn new() -> StackResolver {
        StackResolver {
            table: StackTable::new(),
            traces: Vec::new(),
            frames: Frames::default(),
            versions: (0, 0, 0),
            byte_limit: STACK_BYTES[1],
            sequence: Vec::new(),
            unknown_address: false,
        }
    }

    /// Limits the memory of this process's stacks to its share among `processes`.
    pub fn share_memory(&mut self, processes: usize) {
        self.byte_limit = (STACKS_BYTES / processes.max(1)).clamp(STACK_BYTES[0], STACK_BYTES[1]);
    }

    /// Returns the number of distinct stacks.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if the stacks use more than `times` their memory limit.
    pub fn exceeds(&self, times: usize) -> bool {
        self.table.bytes() > times * self.byte_limit
    }

    /// Returns the index of a raw stack, which is stored if it is new.
    #[inline]
    pub fn intern(&mut self, stack: &[u64]) -> u32 {
        let (index, new) = self.table.intern(stack);
        if new {
            self.traces.push(0);
        }
        index
    }

    /// Drops all stacks. Their indices become invalid.
    pub fn clear(&mut self) {
        self.table.clear();
        self.traces = Vec::new();
    }

    /// Drops resolved stacks if addresses or trace indices have changed their meaning.
    pub fn forget_outdated(&mut self, modules: &ModuleMap, recording: &Recording) {
        let versions = (modules.version, recording.interner.generation, self.frames.version());
        if versions != self.versions || self.frames.bytes() > self.byte_limit {
            self.versions = versions;
            self.frames.clear();
            self.traces.iter_mut().for_each(|t| *t = 0);
        }
    }

    /// Returns the trace of a raw stack. `anyway`: uses offsets instead of missing symbols and names.
    #[inline]
    pub fn trace(
        &mut self,
        stack: u32,
        modules: &ModuleMap,
        recording: &mut Recording,
        images: &mut Images,
        anyway: bool,
    ) -> Result<TraceIndex, Missing> {
        match self.traces.get(stack as usize) {
            Some(&known) if known != 0 => Ok(known - 1),
            _ => self.resolve(stack, modules, recording, images, anyway),
        }
    }

    #[cold]
    fn resolve(
        &mut self,
        stack: u32,
        modules: &ModuleMap,
        recording: &mut Recording,
        images: &mut Images,
        anyway: bool,
    ) -> Result<TraceIndex, Missing> {
        let raw = self.table.get(stack);
        let [truncated, exact, addresses @ ..] = raw else { return Err(Missing::Symbols) };
        let sequence = &mut self.sequence;
        sequence.clear();
        sequence.push(u32::from(*truncated != 0));
        let (mut complete, mut lasting, mut unnamed) = (true, true, false);
        for (i, &address) in addresses.iter().enumerate() {
            let is_exact = i < 64 && exact >> i & 1 == 1;
            if java_frame::is_java(address) {
                let next = addresses.get(i + 1).copied().unwrap_or(0);
                self.frames.java.resolve(address, next, is_exact, &mut recording.interner, sequence);
                continue;
            }
            // A return address may be the first address of the next function.
            let address = if is_exact { address } else { address.wrapping_sub(1) };
            let interner = &mut recording.interner;
            match self.frames.resolve(address, modules, interner, images, anyway, sequence) {
                Resolved::Known => continue,
                Resolved::ForNow => lasting = false,
                Resolved::Waiting => complete = false,
                Resolved::Unnamed => unnamed = true,
            }
            self.unknown_address |= !kernel::is_kernel(address) && !modules.holds(address);
        }
        match (complete, unnamed) {
            (false, _) => return Err(Missing::Symbols),
            (true, true) => return Err(Missing::Names),
            (true, false) => {}
        }
        let trace = recording.interner.trace(sequence);
        if let (Some(known), true) = (self.traces.get_mut(stack as usize), lasting) {
            *known = trace + 1;
        }
        Ok(trace)
    }

    /// Notes that an address was in no known mapping.
    pub fn note_unknown_address(&mut self) {
        self.unknown_address = true;
    }

    /// Returns true if an address was in no known mapping since [`StackResolver::mappings_read`].
    pub fn has_unknown_address(&self) -> bool {
        self.unknown_address
    }

    /// Notes that the mappings are being read again.
    pub fn mappings_read(&mut self) {
        self.unknown_address = false;
    }
}
