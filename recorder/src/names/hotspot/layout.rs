//! Where the parts of a JVM's structures are: plain numbers, built from the JVM's own description
//! (`vm_structs.rs`).
//!
//! HotSpot's tables have no entries for the slots of an interpreter frame. These are the same in all supported
//! releases.

use super::memory::ReadMemory;
use super::vm_structs::{Field, LayoutError, LibjvmSymbols, VmStructs};

/// The oldest and the newest supported feature release.
const VERSIONS: std::ops::RangeInclusive<u32> = 11..=25;
/// The first release whose compressed integers do not use the byte 0.
const FIRST_WITHOUT_ZERO_BYTES: u32 = 20;

/// The description of a JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotspotLayout {
    /// The feature release: 11, 17, 21, 25.
    pub version: u32,
    /// `CodeCache` and `CodeHeap`.
    pub code_cache: CodeCacheLayout,
    /// `CodeBlob`.
    pub blob: BlobLayout,
    /// `nmethod`.
    pub nmethod: NmethodLayout,
    /// `Method`, `ConstMethod`, `ConstantPool`, `Klass`, `Symbol`.
    pub method: MethodLayout,
    /// The frames of Java threads.
    pub frame: FrameLayout,
    /// The list of Java threads.
    pub threads: ThreadsLayout,
    /// The JVM's flags.
    pub flags: FlagsLayout,
}

/// `CodeCache`, `CodeHeap` and what they contain. The first three are addresses, the others are offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeCacheLayout {
    /// Address of `CodeCache::_heaps`, a pointer to a `GrowableArray<CodeHeap*>`.
    pub heaps: u64,
    /// Address of `CodeCache::_low_bound`. It contains 0 until the JVM has reserved the code cache.
    pub low_bound: u64,
    /// Address of `CodeCache::_high_bound`.
    pub high_bound: u64,
    /// `GrowableArray::_len`, 32 bits.
    pub array_len: u32,
    /// `GrowableArray::_data`, a pointer to the elements.
    pub array_data: u32,
    /// `CodeHeap::_memory` and in it `VirtualSpace::_low`: the start of the heap.
    pub heap_low: u32,
    /// `CodeHeap::_memory` and in it `VirtualSpace::_high`: the end of the committed part, which grows.
    pub heap_high: u32,
    /// `CodeHeap::_segmap` and in it `VirtualSpace::_low`: one byte per segment.
    pub segmap_low: u32,
    /// `CodeHeap::_segmap` and in it `VirtualSpace::_high`.
    pub segmap_high: u32,
    /// `CodeHeap::_log2_segment_size`, 32 bits.
    pub log2_segment_size: u32,
    /// `sizeof(CodeHeap)`.
    pub heap_size: u32,
    /// `sizeof(HeapBlock)`: the distance from the first segment of a block to its blob.
    pub block_header_size: u32,
    /// `HeapBlock::_header._used`, one byte.
    pub block_used: u32,
}

/// `CodeBlob`: offsets from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobLayout {
    /// `_name`, a pointer to a C string.
    pub name: u32,
    /// `_size`: bytes from the start of the blob to its end.
    pub size: Field,
    /// `_frame_size` in words; 0 if frames have no fixed size.
    pub frame_size: Field,
    /// `_frame_complete_offset` from the start of the code: the frame is complete from there on.
    pub frame_complete: Field,
    /// The start of the code.
    pub code: Position,
    /// `_kind` (from 23 on).
    pub kind: Option<Field>,
    /// `sizeof(CodeBlob)`.
    pub type_size: u32,
}

/// A position within a blob's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The field is an address.
    Address(Field),
    /// The field is a distance from the start of the blob.
    FromBlob(Field),
    /// The field is a distance from the start of the blob's code.
    FromCode(Field),
}

/// `nmethod`: offsets from the start of its blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NmethodLayout {
    /// `_method`, a pointer to the `Method`.
    pub method: u32,
    /// `_compile_id`.
    pub compile_id: Field,
    /// `_comp_level`: 1 to 3 for C1, 4 for C2.
    pub comp_level: Field,
    /// The verified entry point, at which the code of a frame begins.
    pub verified_entry: Position,
    /// The return address that replaces those of frames to deoptimize.
    pub deopt_handler: Position,
    /// `_orig_pc_offset`: the distance from a frame's stack pointer to the return address that was replaced.
    pub orig_pc_offset: Field,
    /// Where debug information is.
    pub debug_info: DebugInfoLayout,
    /// `sizeof(nmethod)`.
    pub type_size: u32,
}

/// The location of an nmethod's `PcDesc`s, scopes and metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugInfoLayout {
    /// In the blob (up to 22).
    InBlob {
        /// `_scopes_pcs_offset` from the blob: the first `PcDesc`.
        pcs: Field,
        /// `_dependencies_offset` from the blob: the end of the `PcDesc`s.
        pcs_end: Field,
        /// `_scopes_data_begin`, an address.
        scopes: Field,
        /// `_metadata_offset` from the blob.
        metadata: Field,
    },
    /// In memory of its own (from 25 on).
    Separate {
        /// `_immutable_data`, an address.
        immutable_data: Field,
        /// `_immutable_data_size`.
        immutable_size: Field,
        /// `_scopes_pcs_offset` from the immutable data.
        pcs: Field,
        /// `_scopes_data_offset` from the immutable data: the end of the `PcDesc`s and the start of the scopes.
        scopes: Field,
        /// `_mutable_data`, an address.
        mutable_data: Field,
        /// `_mutable_data_size`.
        mutable_size: Field,
        /// `_relocation_size`: the metadata follow the relocations, aligned to 8 bytes.
        relocation_size: Field,
    },
}

/// `Method` and the structures that it leads to: offsets in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodLayout {
    /// `Method::_constMethod`, a pointer.
    pub const_method: u32,
    /// `Method::_access_flags`.
    pub access_flags: Field,
    /// `Method::_code`, a pointer to the nmethod or null.
    pub code: u32,
    /// `ConstMethod`.
    pub constant: ConstMethodLayout,
    /// `ConstantPool::_pool_holder`, a pointer to the `InstanceKlass`.
    pub pool_holder: u32,
    /// `ConstantPool::_length`, 32 bits.
    pub pool_length: u32,
    /// `sizeof(ConstantPool)`: the entries, 8 bytes each, follow.
    pub pool_size: u32,
    /// `Klass::_name`, a pointer to the `Symbol`.
    pub klass_name: u32,
    /// `Symbol::_length`, 16 bits.
    pub symbol_length: u32,
    /// `Symbol::_body`.
    pub symbol_body: u32,
    /// `sizeof(Method)`.
    pub type_size: u32,
    /// Compressed integers do not use the byte 0 (from 20 on).
    pub without_zero_bytes: bool,
}

/// `ConstMethod`: offsets from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstMethodLayout {
    /// `_constants`, a pointer to the `ConstantPool`.
    pub constants: u32,
    /// `_constMethod_size` in words, including what follows.
    pub size: Field,
    /// `_flags`.
    pub flags: Field,
    /// The bit of `_flags` that is set if a line number table follows the bytecodes.
    pub has_line_numbers: u32,
    /// `_code_size`: bytes of the bytecodes.
    pub code_size: Field,
    /// `_name_index` in the constant pool.
    pub name_index: Field,
    /// `_signature_index` in the constant pool.
    pub signature_index: Field,
    /// `sizeof(ConstMethod)`: the bytecodes follow.
    pub type_size: u32,
}

/// Frames of Java threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// Address of `StubRoutines::_call_stub_return_address`, which is the return address of frames that native
    /// code has called.
    pub call_stub_return_address: u64,
    /// Address of `AbstractInterpreter::_code`, a pointer to a `StubQueue`.
    pub interpreter_code: u64,
    /// `StubQueue::_stub_buffer`, an address.
    pub stub_queue_buffer: u32,
    /// `StubQueue::_buffer_limit`, 32 bits: the size of the buffer.
    pub stub_queue_limit: u32,
    /// Interpreted frame: distance from the frame pointer to the `Method*`.
    pub interpreted_method: i32,
    /// Interpreted frame: distance from the frame pointer to the address of the current bytecode, which is up to
    /// date only while the frame calls another one.
    pub interpreted_bcp: i32,
    /// Interpreted frame: distance from the frame pointer to the caller's stack pointer.
    pub interpreted_sender_sp: i32,
    /// `JavaThread::_anchor` and in it `JavaFrameAnchor::_last_Java_sp`.
    pub anchor_sp: u32,
    /// `JavaThread::_anchor` and in it `JavaFrameAnchor::_last_Java_pc`.
    pub anchor_pc: u32,
    /// `JavaThread::_anchor` and in it `JavaFrameAnchor::_last_Java_fp`.
    pub anchor_fp: u32,
    /// Frame of the call stub: distance from the frame pointer to the `JavaCallWrapper*`.
    pub call_wrapper: i32,
    /// `JavaCallWrapper::_anchor` and in it `_last_Java_sp`: where the thread left Java code before it entered
    /// it again.
    pub wrapper_anchor_sp: u32,
    /// `JavaCallWrapper::_anchor` and in it `_last_Java_pc`.
    pub wrapper_anchor_pc: u32,
    /// `JavaCallWrapper::_anchor` and in it `_last_Java_fp`.
    pub wrapper_anchor_fp: u32,
}

/// The JVM's flags, an array of `JVMFlag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagsLayout {
    /// Address of `JVMFlag::flags`, a pointer to the first.
    pub array: u64,
    /// Address of `JVMFlag::numFlags`, 64 bits.
    pub count: u64,
    /// `sizeof(JVMFlag)`.
    pub size: u32,
    /// `JVMFlag::_name`, a pointer to a C string.
    pub name: u32,
    /// `JVMFlag::_addr`, a pointer to the value.
    pub address: u32,
    /// `JVMFlag::_flags`, with the value's origin in its lowest bits.
    pub origin: Field,
}

/// The list of Java threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadsLayout {
    /// How to find the threads.
    pub list: ThreadListLayout,
    /// `Thread::_osthread`, a pointer to the `OSThread`.
    pub os_thread: u32,
    /// `OSThread::_thread_id`, 32 bits: the TID.
    pub thread_id: u32,
}

/// How the JVM lists its Java threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadListLayout {
    /// A linked list (up to 11).
    Linked {
        /// Address of `Threads::_thread_list`, a pointer to the first thread.
        first: u64,
        /// `JavaThread::_next`.
        next: u32,
    },
    /// An array, which is replaced when a thread starts or ends.
    Array {
        /// Address of `ThreadsSMRSupport::_java_thread_list`, a pointer to the `ThreadsList`.
        list: u64,
        /// `ThreadsList::_length`, 32 bits.
        length: u32,
        /// `ThreadsList::_threads`, a pointer to the array.
        threads: u32,
    },
}

impl HotspotLayout {
    /// Reads the description of a JVM. `bias` is the address of `libjvm.so` minus its file address.
    ///
    /// # Errors
    ///
    /// If the JVM's release is not supported, or if its description lacks a part or cannot be read.
    pub fn read(
        memory: &impl ReadMemory,
        symbols: &LibjvmSymbols,
        bias: u64,
    ) -> Result<HotspotLayout, LayoutError> {
        let vm = VmStructs::read(memory, symbols, bias)?;
        let version = vm.address("Abstract_VM_Version", "_vm_major_version")?;
        let version =
            memory.u32(version).ok_or(LayoutError::Field("Abstract_VM_Version", "_vm_major_version"))?;
        if !VERSIONS.contains(&version) {
            return Err(LayoutError::Version(version));
        }
        Ok(HotspotLayout {
            version,
            code_cache: code_cache(&vm)?,
            blob: blob(&vm)?,
            nmethod: nmethod(&vm)?,
            method: method(&vm, version)?,
            frame: frame(&vm)?,
            threads: threads(&vm)?,
            flags: flags(&vm)?,
        })
    }
}

fn code_cache(vm: &VmStructs) -> Result<CodeCacheLayout, LayoutError> {
    // Up to 16, the members of the array's base had another name.
    let base = if vm.has("GrowableArrayBase", "_len") { "GrowableArrayBase" } else { "GenericGrowableArray" };
    let (memory, segmap) = (vm.offset("CodeHeap", "_memory")?, vm.offset("CodeHeap", "_segmap")?);
    let (low, high) = (vm.offset("VirtualSpace", "_low")?, vm.offset("VirtualSpace", "_high")?);
    Ok(CodeCacheLayout {
        heaps: vm.address("CodeCache", "_heaps")?,
        low_bound: vm.address("CodeCache", "_low_bound")?,
        high_bound: vm.address("CodeCache", "_high_bound")?,
        array_len: vm.offset(base, "_len")?,
        // The offset is the same for all types of elements.
        array_data: vm.offset("GrowableArray<int>", "_data")?,
        heap_low: memory + low,
        heap_high: memory + high,
        segmap_low: segmap + low,
        segmap_high: segmap + high,
        log2_segment_size: vm.offset("CodeHeap", "_log2_segment_size")?,
        heap_size: vm.size("CodeHeap")?,
        block_header_size: vm.size("HeapBlock")?,
        block_used: vm.offset("HeapBlock", "_header")? + vm.offset("HeapBlock::Header", "_used")?,
    })
}

fn blob(vm: &VmStructs) -> Result<BlobLayout, LayoutError> {
    let code = if vm.has("CodeBlob", "_code_begin") {
        Position::Address(vm.number("CodeBlob", "_code_begin")?)
    } else {
        Position::FromBlob(vm.number("CodeBlob", "_code_offset")?)
    };
    let kind = vm.has("CodeBlob", "_kind").then(|| vm.number("CodeBlob", "_kind")).transpose()?;
    Ok(BlobLayout {
        name: vm.offset("CodeBlob", "_name")?,
        size: vm.number("CodeBlob", "_size")?,
        frame_size: vm.number("CodeBlob", "_frame_size")?,
        frame_complete: vm.number("CodeBlob", "_frame_complete_offset")?,
        code,
        kind,
        type_size: vm.size("CodeBlob")?,
    })
}

fn nmethod(vm: &VmStructs) -> Result<NmethodLayout, LayoutError> {
    // CompiledMethod was merged into nmethod in 23.
    let class = if vm.has("CompiledMethod", "_method") { "CompiledMethod" } else { "nmethod" };
    let verified_entry = if vm.has("nmethod", "_verified_entry_point") {
        Position::Address(vm.number("nmethod", "_verified_entry_point")?)
    } else {
        Position::FromCode(vm.number("nmethod", "_verified_entry_offset")?)
    };
    let deopt_handler = if vm.has(class, "_deopt_handler_begin") {
        Position::Address(vm.number(class, "_deopt_handler_begin")?)
    } else {
        Position::FromBlob(vm.number("nmethod", "_deopt_handler_offset")?)
    };
    let debug_info = if vm.has(class, "_scopes_data_begin") {
        DebugInfoLayout::InBlob {
            pcs: vm.number("nmethod", "_scopes_pcs_offset")?,
            pcs_end: vm.number("nmethod", "_dependencies_offset")?,
            scopes: vm.number(class, "_scopes_data_begin")?,
            metadata: vm.number("nmethod", "_metadata_offset")?,
        }
    } else {
        DebugInfoLayout::Separate {
            immutable_data: vm.number("nmethod", "_immutable_data")?,
            immutable_size: vm.number("nmethod", "_immutable_data_size")?,
            pcs: vm.number("nmethod", "_scopes_pcs_offset")?,
            scopes: vm.number("nmethod", "_scopes_data_offset")?,
            mutable_data: vm.number("CodeBlob", "_mutable_data")?,
            mutable_size: vm.number("CodeBlob", "_mutable_data_size")?,
            relocation_size: vm.number("CodeBlob", "_relocation_size")?,
        }
    };
    Ok(NmethodLayout {
        method: vm.offset(class, "_method")?,
        compile_id: vm.number("nmethod", "_compile_id")?,
        comp_level: vm.number("nmethod", "_comp_level")?,
        verified_entry,
        deopt_handler,
        orig_pc_offset: vm.number("nmethod", "_orig_pc_offset")?,
        debug_info,
        type_size: vm.size("nmethod")?,
    })
}

fn method(vm: &VmStructs, version: u32) -> Result<MethodLayout, LayoutError> {
    let (flags, has_line_numbers) = if vm.has("ConstMethod", "_flags._flags") {
        ("_flags._flags", vm.constant("ConstMethodFlags::_misc_has_linenumber_table")?)
    } else {
        ("_flags", vm.constant("ConstMethod::_has_linenumber_table")?)
    };
    Ok(MethodLayout {
        const_method: vm.offset("Method", "_constMethod")?,
        access_flags: vm.number("Method", "_access_flags")?,
        code: vm.offset("Method", "_code")?,
        constant: ConstMethodLayout {
            constants: vm.offset("ConstMethod", "_constants")?,
            size: vm.number("ConstMethod", "_constMethod_size")?,
            flags: vm.number("ConstMethod", flags)?,
            has_line_numbers: has_line_numbers as u32,
            code_size: vm.number("ConstMethod", "_code_size")?,
            name_index: vm.number("ConstMethod", "_name_index")?,
            signature_index: vm.number("ConstMethod", "_signature_index")?,
            type_size: vm.size("ConstMethod")?,
        },
        pool_holder: vm.offset("ConstantPool", "_pool_holder")?,
        pool_length: vm.offset("ConstantPool", "_length")?,
        pool_size: vm.size("ConstantPool")?,
        klass_name: vm.offset("Klass", "_name")?,
        symbol_length: vm.offset("Symbol", "_length")?,
        symbol_body: vm.offset("Symbol", "_body")?,
        type_size: vm.size("Method")?,
        without_zero_bytes: version >= FIRST_WITHOUT_ZERO_BYTES,
    })
}

fn frame(vm: &VmStructs) -> Result<FrameLayout, LayoutError> {
    const WORD: i32 = 8;
    let (anchor, wrapper) = (vm.offset("JavaThread", "_anchor")?, vm.offset("JavaCallWrapper", "_anchor")?);
    let [sp, pc, fp] =
        ["_last_Java_sp", "_last_Java_pc", "_last_Java_fp"].map(|field| vm.offset("JavaFrameAnchor", field));
    let (sp, pc, fp) = (sp?, pc?, fp?);
    // An int, in words.
    let call_wrapper = vm.constant("frame::entry_frame_call_wrapper_offset")? as u32 as i32;
    Ok(FrameLayout {
        call_stub_return_address: vm.address("StubRoutines", "_call_stub_return_address")?,
        interpreter_code: vm.address("AbstractInterpreter", "_code")?,
        stub_queue_buffer: vm.offset("StubQueue", "_stub_buffer")?,
        stub_queue_limit: vm.offset("StubQueue", "_buffer_limit")?,
        interpreted_method: -3 * WORD,
        interpreted_bcp: -8 * WORD,
        interpreted_sender_sp: -WORD,
        anchor_sp: anchor + sp,
        anchor_pc: anchor + pc,
        anchor_fp: anchor + fp,
        call_wrapper: call_wrapper.clamp(-64, 0) * WORD,
        wrapper_anchor_sp: wrapper + sp,
        wrapper_anchor_pc: wrapper + pc,
        wrapper_anchor_fp: wrapper + fp,
    })
}

fn threads(vm: &VmStructs) -> Result<ThreadsLayout, LayoutError> {
    let list = if vm.has("ThreadsSMRSupport", "_java_thread_list") {
        ThreadListLayout::Array {
            list: vm.address("ThreadsSMRSupport", "_java_thread_list")?,
            length: vm.offset("ThreadsList", "_length")?,
            threads: vm.offset("ThreadsList", "_threads")?,
        }
    } else {
        ThreadListLayout::Linked {
            first: vm.address("Threads", "_thread_list")?,
            next: vm.offset("JavaThread", "_next")?,
        }
    };
    let class = if vm.has("Thread", "_osthread") { "Thread" } else { "JavaThread" };
    Ok(ThreadsLayout {
        list,
        os_thread: vm.offset(class, "_osthread")?,
        thread_id: vm.offset("OSThread", "_thread_id")?,
    })
}

fn flags(vm: &VmStructs) -> Result<FlagsLayout, LayoutError> {
    Ok(FlagsLayout {
        array: vm.address("JVMFlag", "flags")?,
        count: vm.address("JVMFlag", "numFlags")?,
        size: vm.size("JVMFlag")?,
        name: vm.offset("JVMFlag", "_name")?,
        address: vm.offset("JVMFlag", "_addr")?,
        origin: vm.number("JVMFlag", "_flags")?,
    })
}
