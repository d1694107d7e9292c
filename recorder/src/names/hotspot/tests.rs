//! Tests of the resolver with the memory of invented JVMs: one with debug information in the blob, one with
//! debug information in memory of its own.

use jfr_format::schema::frame_type;

use super::layout::{
    BlobLayout, CodeCacheLayout, ConstMethodLayout, DebugInfoLayout, FlagsLayout, FrameLayout, HotspotLayout,
    MethodLayout, NmethodLayout, Position, ThreadListLayout, ThreadsLayout,
};
use super::memory::FakeMemory;
use super::scopes::tests::encode as encode_scopes;
use super::vm_structs::Field;
use super::vm_structs::LayoutError;
use super::vm_structs::tests::FakeTables;
use super::{HotspotNames, JavaFrame, Unresolved, UnresolvedCounts, line_table};

const fn word(offset: u32) -> Field {
    Field { offset, width: 4 }
}

const fn pointer(offset: u32) -> Field {
    Field { offset, width: 8 }
}

const fn short(offset: u32) -> Field {
    Field { offset, width: 2 }
}

fn layout(separate: bool) -> HotspotLayout {
    let debug_info = match separate {
        false => DebugInfoLayout::InBlob {
            pcs: word(80),
            pcs_end: word(84),
            scopes: pointer(88),
            metadata: word(96),
        },
        true => DebugInfoLayout::Separate {
            immutable_data: pointer(80),
            immutable_size: word(88),
            pcs: word(92),
            scopes: word(96),
            mutable_data: pointer(104),
            mutable_size: word(112),
            relocation_size: word(116),
        },
    };
    HotspotLayout {
        version: if separate { 25 } else { 17 },
        code_cache: CodeCacheLayout {
            heaps: 0x100,
            low_bound: 0x108,
            high_bound: 0x110,
            array_len: 0,
            array_data: 8,
            heap_low: 0,
            heap_high: 8,
            segmap_low: 16,
            segmap_high: 24,
            log2_segment_size: 32,
            heap_size: 40,
            block_header_size: 16,
            block_used: 8,
        },
        blob: BlobLayout {
            name: 8,
            size: word(16),
            frame_size: word(20),
            frame_complete: if separate { short(24) } else { word(24) },
            code: if separate { Position::FromBlob(word(28)) } else { Position::Address(pointer(32)) },
            kind: None,
            type_size: 40,
        },
        nmethod: NmethodLayout {
            method: 48,
            compile_id: word(56),
            comp_level: Field { offset: 60, width: 1 },
            verified_entry: Position::FromCode(word(64)),
            deopt_handler: Position::FromBlob(word(68)),
            orig_pc_offset: word(72),
            debug_info,
            type_size: 120,
        },
        method: MethodLayout {
            const_method: 8,
            access_flags: word(16),
            code: 24,
            constant: ConstMethodLayout {
                constants: 8,
                size: word(16),
                flags: short(20),
                has_line_numbers: 1,
                code_size: short(22),
                name_index: short(24),
                signature_index: short(26),
                type_size: 32,
            },
            pool_holder: 8,
            pool_length: 16,
            pool_size: 24,
            klass_name: 8,
            symbol_length: 4,
            symbol_body: 6,
            type_size: 32,
            without_zero_bytes: separate,
        },
        frame: FrameLayout {
            call_stub_return_address: 0x118,
            interpreter_code: 0x120,
            stub_queue_buffer: 8,
            stub_queue_limit: 20,
            interpreted_method: -24,
            interpreted_bcp: -64,
            interpreted_sender_sp: -8,
            anchor_sp: 0,
            anchor_pc: 8,
            anchor_fp: 16,
            call_wrapper: -48,
            wrapper_anchor_sp: 8,
            wrapper_anchor_pc: 16,
            wrapper_anchor_fp: 24,
        },
        threads: ThreadsLayout {
            list: ThreadListLayout::Linked { first: 0x128, next: 24 },
            os_thread: 32,
            thread_id: 4,
        },
        flags: FlagsLayout { array: 0x130, count: 0x138, size: 24, name: 8, address: 0, origin: word(16) },
    }
}

const HEAP: u64 = 0x10_0000;
const SEGMENT: u64 = 128;
/// The blob of the compiled method begins in the second block.
pub const NMETHOD: u64 = HEAP + 4 * SEGMENT + 16;
pub const CODE: u64 = NMETHOD + 128;
pub const STUB: u64 = HEAP + 16;
const COMPILE_ID: u32 = 77;
/// Methods, in pages of their own.
pub const OUTER: u64 = 0x20_0000;
const INNER: u64 = 0x20_1000;
const NATIVE: u64 = 0x20_2000;
/// Distance from a method to its bytecodes.
const BYTECODES: u64 = 0x100 + 32;

fn set_word(memory: &mut FakeMemory, address: u64, value: u32) {
    memory.set(address, &value.to_le_bytes());
}

fn set_short(memory: &mut FakeMemory, address: u64, value: u16) {
    memory.set(address, &value.to_le_bytes());
}

/// Writes a method with 40 bytes of bytecodes, and lines 100 and 200 from bytecodes 0 and 20 on.
fn write_method(memory: &mut FakeMemory, layout: &HotspotLayout, at: u64, names: [&str; 3], flags: u32) {
    memory.set(at, &[0; 0x1000]);
    let (constant, pool, klass) = (at + 0x100, at + 0x400, at + 0x500);
    memory.set_u64(at + 8, constant);
    set_word(memory, at + 16, flags);
    memory.set_u64(constant + 8, pool);
    set_word(memory, constant + 16, 0x200 / 8);
    for (offset, value) in [(20, 1), (22, 40), (24, 2), (26, 3)] {
        set_short(memory, constant + offset, value);
    }
    let lines = line_table::tests::encode(&[(0, 100), (20, 200)], layout.method.without_zero_bytes);
    memory.set(constant + 32 + 40, &lines);
    memory.set_u64(pool + 8, klass);
    set_word(memory, pool + 16, 4);
    let symbols = [at + 0x600, at + 0x700, at + 0x800];
    for (symbol, name) in symbols.into_iter().zip(names) {
        set_short(memory, symbol + 4, name.len() as u16);
        memory.set(symbol + 6, name.as_bytes());
    }
    memory.set_u64(klass + 8, symbols[0]);
    memory.set_u64(pool + 24 + 8 * 2, symbols[1]);
    memory.set_u64(pool + 24 + 8 * 3, symbols[2]);
}

/// Writes a JVM with one stub and one compiled method, which calls another one that is inlined.
pub fn jvm(separate: bool) -> (FakeMemory, HotspotNames) {
    let layout = layout(separate);
    let mut memory = FakeMemory::default();
    let (array, heap, map) = (0x1000, 0x2000, 0x3000);
    memory.set_u64(0x100, array);
    memory.set(array, &[1, 0, 0, 0, 0, 0, 0, 0]);
    memory.set(array + 8, &0x1800u64.to_le_bytes());
    memory.set_u64(0x1800, heap);
    let words = [HEAP, HEAP + 64 * SEGMENT, map, map + 64, 7];
    memory.set(heap, &words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect::<Vec<_>>());
    let segments: Vec<u8> = (0..4).chain(0..40).chain([0xff; 20]).collect();
    memory.set(map, &segments);
    memory.set(HEAP, &vec![0; 64 * SEGMENT as usize]);
    memory.set_c_string(0x4000, "nmethod");
    memory.set_c_string(0x4100, "StubRoutines (1)");
    for (blob, name, size, code) in [(STUB, 0x4100, 400, STUB + 64), (NMETHOD, 0x4000, 4000, CODE)] {
        memory.set(blob - 8, &[1]);
        memory.set_u64(blob + 8, name);
        set_word(&mut memory, blob + 16, size);
        set_word(&mut memory, blob + 20, 6);
        set_short(&mut memory, blob + 24, 12);
        match layout.blob.code {
            Position::Address(_) => memory.set_u64(blob + 32, code),
            _ => set_word(&mut memory, blob + 28, (code - blob) as u32),
        }
    }
    memory.set_u64(NMETHOD + 48, OUTER);
    set_word(&mut memory, NMETHOD + 56, COMPILE_ID);
    memory.set(NMETHOD + 60, &[4]);
    write_debug_info(&mut memory, separate);
    write_method(&mut memory, &layout, OUTER, ["a/Outer", "run", "(I)V"], 9);
    write_method(&mut memory, &layout, INNER, ["a/Inner$$Lambda$3+0x12ab", "apply", "()J"], 0x8000_0001);
    write_method(&mut memory, &layout, NATIVE, ["a/Outer", "wait0", "()V"], 0x101);
    (memory, HotspotNames::new(layout))
}

/// Writes PcDescs at offsets 0x20 (both methods) and 0x40 (the outer one).
fn write_debug_info(memory: &mut FakeMemory, separate: bool) {
    let (scopes, inner) = encode_scopes(&[(1, 5), (2, 21)], separate);
    // The scope of the outer method is the first one.
    let pcs: Vec<u8> = [(-1, 0), (0x20, inner), (0x40, 1), (i32::MAX, 0)]
        .iter()
        .flat_map(|(pc, scope)| [*pc, *scope, 0, 0])
        .flat_map(i32::to_le_bytes)
        .collect();
    let metadata: Vec<u8> = [OUTER, INNER].iter().flat_map(|method| method.to_le_bytes()).collect();
    if separate {
        let (immutable, mutable) = (0x5000, 0x6000);
        memory.set(immutable, &[&[0; 8], &pcs[..], &scopes].concat());
        memory.set(mutable, &[&[0; 24], &metadata[..]].concat());
        memory.set_u64(NMETHOD + 80, immutable);
        memory.set_u64(NMETHOD + 104, mutable);
        let sizes = [8 + pcs.len() + scopes.len(), 8, 8 + pcs.len()];
        for (offset, value) in [88, 92, 96].into_iter().zip(sizes) {
            set_word(memory, NMETHOD + offset, value as u32);
        }
        set_word(memory, NMETHOD + 112, 24 + 16);
        set_word(memory, NMETHOD + 116, 20);
    } else {
        let at = 0x800u64;
        memory.set(NMETHOD + at, &[&metadata[..], &scopes, &[0; 64]].concat());
        let pcs_at = (at + 16 + scopes.len() as u64).next_multiple_of(8);
        memory.set(NMETHOD + pcs_at, &pcs);
        set_word(memory, NMETHOD + 80, pcs_at as u32);
        set_word(memory, NMETHOD + 84, pcs_at as u32 + pcs.len() as u32);
        memory.set_u64(NMETHOD + 88, NMETHOD + at + 16);
        set_word(memory, NMETHOD + 96, at as u32);
    }
}

fn text(frames: &[JavaFrame]) -> Vec<String> {
    let text = |f: &JavaFrame| {
        let JavaFrame { method: m, bci, line, kind } = f;
        format!(
            "{}.{}{} @{bci} :{line} {} {}",
            m.class,
            m.name,
            m.descriptor,
            frame_type::ALL[*kind as usize],
            m.modifiers
        )
    };
    frames.iter().map(text).collect()
}

fn compiled(
    names: &mut HotspotNames,
    memory: &FakeMemory,
    offset: u64,
    is_return_address: bool,
) -> Result<Vec<String>, Unresolved> {
    let mut frames = Vec::new();
    let result =
        names.compiled(memory, NMETHOD, None, CODE.wrapping_add(offset), is_return_address, &mut frames);
    result.map(|()| text(&frames))
}

const INNER_TEXT: &str = "a/Inner$$Lambda.apply()J @21 :200 Inlined 1";
const OUTER_TEXT: &str = "a/Outer.run(I)V @5 :100 JIT compiled 9";

#[test]
fn inlined_frames_are_resolved() {
    for separate in [false, true] {
        let (memory, mut names) = jvm(separate);
        for _ in 0..2 {
            let both = Ok(vec![INNER_TEXT.to_owned(), OUTER_TEXT.to_owned()]);
            assert_eq!(compiled(&mut names, &memory, 0, false), both);
            assert_eq!(compiled(&mut names, &memory, 0x20, true), both);
            let outer = Ok(vec![OUTER_TEXT.to_owned()]);
            assert_eq!(compiled(&mut names, &memory, 0x20, false), outer);
            assert_eq!(compiled(&mut names, &memory, 0x40, true), outer);
        }
        assert_eq!(names.counts(), UnresolvedCounts::default());
        let last = Ok(vec!["a/Outer.run(I)V @0 :0 JIT compiled 9".to_owned()]);
        assert_eq!(compiled(&mut names, &memory, 0x41, true), last, "beyond the last PcDesc");
        assert_eq!(names.counts(), UnresolvedCounts { no_debug_info: 1, ..UnresolvedCounts::default() });
        let mut frames = Vec::new();
        let other = names.compiled(&memory, NMETHOD, Some(COMPILE_ID), CODE, false, &mut frames);
        assert_eq!((other, frames.len()), (Ok(()), 2));
        let other = names.compiled(&memory, NMETHOD, Some(COMPILE_ID + 1), CODE, false, &mut frames);
        assert_eq!((other, frames.len()), (Err(Unresolved::Unloaded), 2), "another compilation");
    }
}

#[test]
fn replaced_code_is_noticed() {
    for separate in [false, true] {
        let (mut memory, mut names) = jvm(separate);
        assert!(compiled(&mut names, &memory, 0, false).is_ok());
        // Another compilation at the same address, of another method.
        memory.set_u64(NMETHOD + 48, INNER);
        set_word(&mut memory, NMETHOD + 56, COMPILE_ID + 1);
        let fallback = Ok(vec!["a/Inner$$Lambda.apply()J @0 :0 JIT compiled 1".to_owned()]);
        assert_eq!(compiled(&mut names, &memory, 0, false), fallback, "the scopes end with another method");
        // Another method at the same address.
        let layout = *names.layout();
        write_method(&mut memory, &layout, INNER, ["b/New", "run", "(I)V"], 1);
        set_short(&mut memory, INNER + 0x100 + 22, 39);
        let renamed = compiled(&mut names, &memory, 0, false).unwrap();
        assert_eq!(renamed, ["b/New.run(I)V @0 :0 JIT compiled 1"]);
        // The method was unloaded.
        memory.set_u64(NMETHOD + 48, 0);
        assert_eq!(compiled(&mut names, &memory, 0, false), Err(Unresolved::Unloaded));
        // The block is free.
        memory.set_u64(NMETHOD + 48, OUTER);
        memory.set(NMETHOD - 8, &[0]);
        assert_eq!(compiled(&mut names, &memory, 0, false), Err(Unresolved::Unloaded));
        // A stub at the same address.
        memory.set(NMETHOD - 8, &[1]);
        memory.set_u64(NMETHOD + 8, 0x4100);
        assert_eq!(compiled(&mut names, &memory, 0, false), Err(Unresolved::Unloaded));
        let counts = UnresolvedCounts { unloaded: 3, unreadable: 2, no_debug_info: 0 };
        assert_eq!(names.counts(), counts);
    }
}

#[test]
fn interpreted_frames_are_resolved() {
    let (memory, mut names) = jvm(true);
    let mut frame =
        |method, bcp| names.interpreted(&memory, method, bcp).map(|frame| text(&[frame]).remove(0));
    let outer = |place: &str| Ok(format!("a/Outer.run(I)V {place} Interpreted 9"));
    assert_eq!(frame(OUTER, OUTER + BYTECODES + 20), outer("@20 :200"));
    assert_eq!(frame(OUTER, OUTER + BYTECODES), outer("@0 :100"));
    assert_eq!(frame(OUTER, OUTER + BYTECODES + 40), outer("@0 :100"), "after the bytecodes");
    assert_eq!(frame(OUTER, OUTER + BYTECODES - 1), outer("@0 :100"));
    assert_eq!(frame(OUTER, 39), outer("@39 :200"), "an index");
    assert_eq!(frame(NATIVE, 0), Ok("a/Outer.wait0()V @0 :0 Native 257".to_owned()));
    for method in [0, 8, OUTER + 4, u64::MAX, OUTER + 8] {
        assert_eq!(frame(method, 0), Err(Unresolved::Unreadable), "{method:x}");
    }
    assert_eq!(names.counts().unreadable, 5);
}

#[test]
fn blobs_are_found() {
    for separate in [false, true] {
        let (memory, mut names) = jvm(separate);
        let blob = names.blob(&memory, CODE + 1000).unwrap();
        assert_eq!((blob.address, blob.code_begin, blob.size), (NMETHOD, CODE, 4000));
        assert_eq!((blob.frame_size, blob.frame_complete), (48, CODE + 12));
        assert_eq!(names.blob_name(&memory, STUB + 100).as_deref(), Ok("StubRoutines (1)"));
        for outside in [HEAP, STUB + 63, STUB + 400, NMETHOD + 4000, HEAP + 60 * SEGMENT, 0, u64::MAX] {
            assert_eq!(names.blob_name(&memory, outside), Err(Unresolved::Unloaded), "{outside:x}");
        }
    }
}

#[test]
fn caches_are_bounded() {
    let (mut memory, mut names) = jvm(true);
    let layout = *names.layout();
    let long = "x".repeat(0x700);
    for i in 0..16_000 {
        let at = 0x100_0000 + 0x1000 * i;
        write_method(&mut memory, &layout, at, ["a/B", "c", &format!("({long})V")], 1);
        assert!(names.interpreted(&memory, at, 0).is_ok());
        assert!(names.bytes() <= super::MAX_CACHE_BYTES);
    }
    assert!(names.methods.len() < 9000 && names.bytes() > 1 << 20);
}

/// Changes bytes anywhere in the memory and resolves: never a panic, an endless loop or a wrong number of
/// frames.
#[test]
fn arbitrary_memory_is_resolved_without_panic() {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..3000 {
        let (mut memory, mut names) = jvm(round % 2 == 0);
        let count = memory.all_bytes().count() as u64;
        // Most of the memory is unused: choose bytes that are not 0 in most cases.
        let used: Vec<usize> =
            memory.all_bytes().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
        for _ in 0..=random() % 8 {
            let at = match random() % 4 {
                0 => (random() % count) as usize,
                _ => used[random() as usize % used.len()] + random() as usize % 2,
            };
            let value = [0, 0xff, random() as u8, 1][random() as usize % 4];
            if let Some(byte) = memory.all_bytes().nth(at) {
                *byte = value;
            }
        }
        for offset in [0, 0x20, 0x41, u64::MAX] {
            let frames = compiled(&mut names, &memory, offset, round % 3 == 0);
            assert!(
                frames.is_ok_and(|frames| frames.len() <= super::scopes::MAX_INLINED)
                    || frames_failed(&names)
            );
        }
        let _ = names.interpreted(&memory, OUTER, OUTER + BYTECODES + 3);
        let _ = names.blob(&memory, CODE + 3);
    }
}

fn frames_failed(names: &HotspotNames) -> bool {
    names.counts() != UnresolvedCounts::default()
}

#[test]
fn missing_entries_are_named() {
    let (memory, symbols) = FakeTables::default().write();
    let error = HotspotLayout::read(&memory, &symbols, 0).unwrap_err();
    assert_eq!(error.to_string(), "libjvm.so describes no field Abstract_VM_Version::_vm_major_version");
    for (version, expected) in [
        (8, LayoutError::Version(8)),
        (26, LayoutError::Version(26)),
        (17, LayoutError::Field("CodeHeap", "_memory")),
    ] {
        let version_field = ("Abstract_VM_Version", "_vm_major_version", "int", true, 0x9000);
        let tables = FakeTables { fields: vec![version_field], ..FakeTables::default() };
        let (mut memory, symbols) = tables.write();
        set_word(&mut memory, 0x9000, version);
        assert_eq!(HotspotLayout::read(&memory, &symbols, 0), Err(expected));
    }
}
