//! Walks through Java frames, in a code heap made by hand.
#![cfg(target_arch = "x86_64")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use flightline_in_signal::layout::java_frame::{self, Word};
use flightline_in_signal::layout::walk_end;
use flightline_in_signal::unwind::interrupted::{Regs, arch};

use crate::image::{CODE, Image, STACK, function, unwind_info};

/// The code heap, and the parts of it that the tests use. A segment has 128 bytes.
const HEAP: u64 = 0x5000_0000;
const SEGMENTS: u64 = 0x5100_0000;
const SIZE: u64 = 0x4000;
/// The interpreter's block, and the block of a compiled method with a frame of 4 words.
const INTERPRETER: u64 = HEAP + 0x1000;
const METHOD: u64 = HEAP + 0x2000;
/// The prologue, the body and the epilogue of the compiled method: offsets of its instructions.
const PUSH: u64 = 0x40;
const SUB: u64 = 0x41;
const BODY: u64 = 0x45;
const ADD: u64 = 0x4a;
const POP: u64 = 0x4e;
const POLL: u64 = 0x4f;
const RETURN: u64 = 0x59;
/// A loop of an intrinsic, which has pushed a register.
const LOOP: u64 = 0x5a;
const HEADER: u64 = 16;
const COMPILE_ID: u32 = 77;

/// The native function that called Java, at an address after a call: the root.
const NATIVE: u64 = CODE + 0x105;

fn compiled_method() -> Vec<u8> {
    let mut blob = vec![0; 0x100];
    blob[8..12].copy_from_slice(&0x100u32.to_le_bytes()); // size
    blob[12..16].copy_from_slice(&4u32.to_le_bytes()); // frame size
    blob[16..20].copy_from_slice(&(BODY as u32 - PUSH as u32).to_le_bytes()); // frame complete
    blob[24..32].copy_from_slice(&(METHOD + HEADER + PUSH).to_le_bytes()); // code
    blob[32..36].copy_from_slice(&COMPILE_ID.to_le_bytes());
    let code: &[&[u8]] = &[
        &[0x55],                      // push rbp
        &[0x48, 0x83, 0xec, 0x10],    // sub rsp, 16
        &[0xe8, 0, 0, 0, 0],          // call
        &[0x48, 0x83, 0xc4, 0x10],    // add rsp, 16
        &[0x5d],                      // pop rbp
        &[0x49, 0x3b, 0x67, 0x28],    // cmp rsp, [r15 + 0x28]
        &[0x0f, 0x87, 0x10, 0, 0, 0], // ja
        &[0xc3],                      // ret
        &[0x48, 0xff, 0xc2],          // inc rdx
        &[0xeb, 0xfb],                // jmp to the previous instruction
    ];
    let bytes = code.concat();
    blob[PUSH as usize..PUSH as usize + bytes.len()].copy_from_slice(&bytes);
    blob
}

/// A process with a JVM and this stack.
fn image(stack: &[u64]) -> Image {
    let root = function(0x100, 0x180, &[0x07, arch::RA as u8]);
    let mut image = Image::new(unwind_info(&[root]), stack);
    let mut heap = vec![0; SIZE as usize];
    let at = (METHOD + HEADER - HEAP) as usize;
    let method = compiled_method();
    heap[at..at + method.len()].copy_from_slice(&method);
    let mut segments = vec![0xff; (SIZE / 128) as usize];
    segments[(METHOD - HEAP) as usize / 128] = 0;
    segments[(METHOD - HEAP) as usize / 128 + 1] = 1;
    segments[(METHOD - HEAP) as usize / 128 + 2] = 1;
    image.memory.areas.push((HEAP, heap));
    image.memory.areas.push((SEGMENTS, segments));
    let jvm = &image.jvm;
    let (set, set64) =
        (|to: &AtomicU32, n: u32| to.store(n, Relaxed), |to: &AtomicU64, n: u64| to.store(n, Relaxed));
    set(&jvm.segment_shift, 7);
    set(&jvm.block_header, HEADER as u32);
    set(&jvm.blob.size, 8);
    set(&jvm.blob.frame_size, 12);
    set(&jvm.blob.frame_complete[0], 16);
    set(&jvm.blob.frame_complete[1], 4);
    set(&jvm.blob.code[0], 24);
    set(&jvm.blob.code[1], 8);
    set(&jvm.blob.compile_id, 32);
    set64(&jvm.interpreter[0], INTERPRETER);
    set64(&jvm.interpreter[1], INTERPRETER + 0x800);
    set64(&jvm.heaps[0].start, HEAP);
    set64(&jvm.heaps[0].end, HEAP + SIZE);
    set64(&jvm.heaps[0].segments, SEGMENTS);
    set64(&jvm.heaps[0].segments_end, SEGMENTS + SIZE / 128);
    set64(&jvm.code_start, HEAP);
    set64(&jvm.code_size, 2 * SIZE);
    image
}

fn regs(pc: u64, sp: u64, fp: u64) -> Regs {
    let mut regs = Regs::unknown();
    regs.pc = pc;
    regs.set(arch::SP, sp);
    regs.set(arch::FP, fp);
    regs
}

fn code(address: u64) -> u64 {
    java_frame::code(address - HEAP, COMPILE_ID)
}

#[test]
fn compiled_frame_is_walked_at_every_instruction() {
    let at = |offset: u64| METHOD + HEADER + offset;
    // Locals, the saved rbp, the return address.
    let stack = [1, 2, 0x1234, NATIVE, 0, 0];
    // How far the stack pointer is above the lowest word at each instruction.
    let places = [(PUSH, 3), (SUB, 2), (BODY, 0), (ADD, 0), (POP, 2), (POLL, 3), (RETURN, 3)];
    for (offset, words) in places {
        let mut image = image(&stack);
        let (frames, walked) = image.walk(&regs(at(offset), STACK + 8 * words, 0x1234), 64);
        assert_eq!(
            (walked.end, &frames[..]),
            (walk_end::ROOT, &[code(at(offset)), NATIVE][..]),
            "{offset:x}"
        );
        assert_eq!(walked.fp, 0x1234, "{offset:x}");
    }
}

#[test]
fn register_pushed_by_intrinsic_is_skipped() {
    let at = METHOD + HEADER + LOOP;
    // The pushed register, locals, the saved rbp, the return address.
    let (frames, walked) = image(&[9, 1, 2, 0x1234, NATIVE, 0, 0]).walk(&regs(at, STACK, 7), 64);
    assert_eq!((walked.end, &frames[..]), (walk_end::ROOT, &[code(at), NATIVE][..]));
    assert_eq!(walked.fp, 0x1234);
}

#[test]
fn interpreted_frames_are_followed_by_their_callers() {
    let (method, bytecode) = (0x7f00_0000_1000, 0x7f00_0000_2010);
    // From the lowest address: bytecode pointer, 4 words, Method*, last sp, sender sp, rbp, return address; then
    // the frame of the compiled caller.
    let caller_sp = STACK + 8 * 10;
    let stack =
        [bytecode, 0, 0, 0, 0, method, 0, caller_sp, 0x1234, METHOD + HEADER + ADD, 1, 2, 0x5678, NATIVE];
    let fp = STACK + 8 * 8;
    let expected = [
        java_frame::interpreted(method, bytecode)[0],
        java_frame::interpreted(method, bytecode)[1],
        code(METHOD + HEADER + ADD),
        NATIVE,
    ];
    let (frames, walked) = image(&stack).walk(&regs(INTERPRETER + 0x20, STACK, fp), 64);
    assert_eq!((walked.end, &frames[..]), (walk_end::ROOT, &expected[..]));
    // The bytecode pointer of the interrupted frame is in r13.
    let mut now = regs(INTERPRETER + 0x20, STACK, fp);
    now.set(13, bytecode + 3);
    let (frames, _) = image(&stack).walk(&now, 64);
    assert_eq!(java_frame::decode(frames[1]), Word::Bytecode(bytecode + 3));
    // There must be room for both words.
    let (frames, walked) = image(&stack).walk(&regs(INTERPRETER + 0x20, STACK, fp), 1);
    assert_eq!((walked.end, frames.len()), (walk_end::DEPTH, 1));
}

#[test]
fn interpreter_entry_has_its_caller() {
    let method = 0x7f00_0000_1000;
    // The return address, then the frame of the compiled caller.
    let stack = [METHOD + HEADER + ADD, 1, 2, 0x5678, NATIVE];
    let mut entry = regs(INTERPRETER + 0x10, STACK, 0x1234);
    entry.set(13, STACK + 8);
    entry.set(3, method);
    let (frames, walked) = image(&stack).walk(&entry, 64);
    let [first, second] = java_frame::interpreted(method, 0);
    assert_eq!(
        (walked.end, &frames[..]),
        (walk_end::ROOT, &[first, second, code(METHOD + HEADER + ADD), NATIVE][..])
    );
}

#[test]
fn damaged_code_heaps_end_the_walk() {
    let stack: Vec<u64> = (0..64).map(|i| METHOD + i).collect();
    for seed in 0..20_000u64 {
        let mut image = image(&stack);
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for (start, bytes) in &mut image.memory.areas {
            if *start == HEAP || *start == SEGMENTS {
                for _ in 0..20 {
                    let at = random() as usize % bytes.len();
                    bytes[at] = random() as u8;
                }
                let header = (METHOD + HEADER - HEAP) as usize;
                if *start == HEAP {
                    bytes[header + random() as usize % 36] = random() as u8;
                }
            }
        }
        let pc = METHOD + HEADER + random() % 0x100;
        let (frames, _) = image.walk(&regs(pc, STACK + 8 * (random() % 8), STACK + 8 * (random() % 64)), 64);
        assert!(!frames.is_empty() && image.memory.reads < 100_000, "seed {seed}");
    }
}
