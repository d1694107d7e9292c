//! The walker over hand-made process images: one test per rule of the walk, on every architecture (the aarch64 ones
//! run under an emulator too).

use crate::image;

use flightline_in_signal::layout::{ModuleEntry, sample_flags, walk_end};
use flightline_in_signal::unwind::interrupted::{Regs, arch};
use image::{CODE, Function, Image, STACK, frame_first, function, unwind_info};

const X86: bool = cfg!(target_arch = "x86_64");

/// Unwind program of a function whose frame has `words` words above the stack pointer and does not save the
/// frame pointer; on aarch64 the link register is saved at the top.
fn framed(words: u8) -> Vec<u8> {
    if X86 { vec![0x0e, words * 8 + 8] } else { vec![0x0e, words * 8 + 8, 0x80 | 30, 1] }
}

/// Unwind program: CFA = frame pointer + 16, frame pointer and return address saved right below it.
fn by_frame_pointer() -> Vec<u8> {
    if X86 { vec![0x0c, 6, 16, 0x80 | 6, 2] } else { vec![0x0c, 29, 16, 0x80 | 29, 2, 0x80 | 30, 1] }
}

/// Unwind program of an outermost function.
fn root() -> Vec<u8> {
    vec![0x07, arch::RA as u8]
}

fn leaf_at(pc: u64, sp: u64) -> Regs {
    let mut regs = Regs::unknown();
    for number in 0..arch::COUNT {
        regs.set(number, 0);
    }
    regs.set(arch::SP, sp);
    regs.set(arch::RA, pc);
    regs.pc = pc;
    regs
}

fn end_of(flags: u16) -> u16 {
    flags >> sample_flags::REASON_SHIFT & sample_flags::REASON_MASK
}

#[test]
fn walk_passes_leaf_and_frame_pointer_frames_to_root() {
    let info = unwind_info(&[
        function(0x100, 0x200, &framed(3)),
        function(0x200, 0x300, &by_frame_pointer()),
        function(0x300, 0x400, &root()),
    ]);
    // leaf: 3 words, ra; middle: 2 words, saved fp, ra.
    let stack = [1, 2, 3, CODE + 0x250, 4, 5, 0, CODE + 0x350, 0];
    let mut image = Image::new(info, &stack);
    let mut regs = leaf_at(CODE + 0x110, STACK);
    regs.set(arch::FP, STACK + 6 * 8);
    // Twice: the second walk uses the rules in the cache.
    for _ in 0..2 {
        let (frames, walked) = image.walk(&regs, 100);
        assert_eq!(frames, [CODE + 0x110, CODE + 0x250, CODE + 0x350]);
        assert_eq!((walked.end, walked.flags, walked.exact_frames), (walk_end::ROOT, 0, 1));
    }
}

#[test]
fn eh_frame_before_its_header_table_is_used() {
    let (info, table) = frame_first(&[function(0x100, 0x200, &framed(3)), function(0x300, 0x400, &root())]);
    let mut image = Image::new(info, &[1, 2, 3, CODE + 0x350, 0]);
    let entry = &image.tables[0].entries[0];
    entry.store(ModuleEntry { eh_frame_hdr: table, ..entry.load() });
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x110, STACK), 100);
    assert_eq!(frames, [CODE + 0x110, CODE + 0x350]);
    assert_eq!((walked.end, walked.flags), (walk_end::ROOT, 0));
}

#[test]
fn return_address_after_the_last_call_belongs_to_its_function() {
    // The callee's caller ends with the call: the return address is the first of the next function.
    let info = unwind_info(&[
        function(0x100, 0x200, &framed(1)),
        function(0x200, 0x300, &framed(2)),
        function(0x300, 0x400, &root()),
        function(0x400, 0x500, &root()),
    ]);
    let mut image = Image::new(info, &[0, CODE + 0x300, 0, 0, CODE + 0x440, 0]);
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x150, STACK), 100);
    assert_eq!(frames, [CODE + 0x150, CODE + 0x300, CODE + 0x440]);
    assert_eq!(walked.end, walk_end::ROOT);
}

#[test]
fn null_return_address_is_the_root() {
    let info = unwind_info(&[function(0x100, 0x200, &framed(1))]);
    let mut image = Image::new(info, &[7, 0, 0]);
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x100, STACK), 100);
    assert_eq!((frames.len(), walked.end, walked.flags), (1, walk_end::ROOT, 0));
}

#[test]
fn depth_limit_marks_the_stack() {
    let info = unwind_info(&[function(0x100, 0x200, &framed(0))]);
    let mut image = Image::new(info, &[CODE + 0x150; 1500]);
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x150, STACK), 1024);
    assert_eq!((frames.len(), end_of(walked.flags)), (1024, walk_end::DEPTH));
    assert!(walked.flags & sample_flags::TRUNCATED != 0);
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x150, STACK), 2048);
    assert_eq!((frames.len(), end_of(walked.flags)), (1501, walk_end::BAD_STACK));
}

/// In a function's epilogue, registers are popped already while the rules still name their slots, which then
/// lie below the stack pointer: a copy of the stack begins above them.
#[test]
fn popped_registers_in_epilogue_do_not_end_walk() {
    if !X86 {
        return;
    }
    const RBX: u8 = 3;
    let mut leaf = framed(0);
    leaf.extend([0x80 | 6, 2, 0x80 | RBX, 3]);
    let by_rbx = vec![0x0c, RBX, 16];
    let info = unwind_info(&[
        function(0x100, 0x200, &leaf),
        function(0x200, 0x280, &by_frame_pointer()),
        function(0x280, 0x300, &by_rbx),
        function(0x300, 0x400, &root()),
    ]);
    for middle in [CODE + 0x250, CODE + 0x290] {
        let mut image = Image::new(info.clone(), &[middle, 5, 0, CODE + 0x350, 0]);
        let mut regs = leaf_at(CODE + 0x150, STACK);
        regs.set(arch::FP, STACK + 2 * 8);
        regs.set(usize::from(RBX), STACK + 2 * 8);
        let (frames, walked) = image.walk(&regs, 100);
        assert_eq!(frames, [CODE + 0x150, middle, CODE + 0x350], "{walked:?}");
        assert_eq!((walked.end, walked.flags), (walk_end::ROOT, 0));
        // A slot that is not below the stack pointer must be readable.
        regs.set(arch::SP, STACK - 64);
        assert_eq!(end_of(image.walk(&regs, 100).1.flags), walk_end::BAD_STACK);
    }
}

#[test]
fn decreasing_frame_pointer_ends_walk() {
    let info = unwind_info(&[function(0x100, 0x200, &by_frame_pointer())]);
    let mut image = Image::new(info, &[0, 0, STACK, CODE + 0x150, 0]);
    let mut regs = leaf_at(CODE + 0x150, STACK + 16);
    regs.set(arch::FP, STACK + 16);
    let (frames, walked) = image.walk(&regs, 100);
    assert_eq!((frames.len(), end_of(walked.flags)), (2, walk_end::NO_PROGRESS));
}

#[test]
fn only_plausible_frame_pointer_is_followed_without_unwind_info() {
    let info = unwind_info(&[function(0x100, 0x200, &framed(1)), function(0x300, 0x400, &root())]);
    // No unwind information covers 0x250: the frame pointer is followed and the sample is marked.
    let stack = [0, CODE + 0x250, 9, STACK + 0x100, CODE + 0x350, 0];
    let mut image = Image::new(info, &stack);
    let mut regs = leaf_at(CODE + 0x150, STACK);
    regs.set(arch::FP, STACK + 3 * 8);
    let (frames, walked) = image.walk(&regs, 100);
    assert_eq!(frames, [CODE + 0x150, CODE + 0x250, CODE + 0x350]);
    assert_eq!((walked.end, walked.flags), (walk_end::ROOT, sample_flags::GUESSED));
    for bad in [8, STACK - 8, STACK + 3 * 8 + 1, STACK + (1 << 30)] {
        regs.set(arch::FP, bad);
        let (frames, walked) = image.walk(&regs, 100);
        assert_eq!((frames.len(), end_of(walked.flags)), (2, walk_end::NO_INFO), "{bad:#x}");
    }
}

#[test]
fn zero_frame_pointer_is_root_only_for_a_caller() {
    let info = unwind_info(&[function(0x100, 0x200, &framed(1))]);
    let mut image = Image::new(info, &[0, CODE + 0x250, 0]);
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x150, STACK), 100);
    assert_eq!((frames.len(), walked.end), (2, walk_end::ROOT));
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x250, STACK), 100);
    assert_eq!((frames.len(), end_of(walked.flags)), (1, walk_end::NO_INFO));
}

#[test]
fn leaf_without_frame_or_unwind_info_uses_return_address_at_sp() {
    if !X86 {
        return;
    }
    let info = unwind_info(&[function(0x300, 0x400, &root())]);
    let mut image = Image::new(info, &[CODE + 0x350, 0]);
    let mut regs = leaf_at(CODE + 0x250, STACK);
    regs.set(arch::FP, 12345);
    // No call stands before the word on top of the stack, so it is not accepted.
    image.memory.areas.push((CODE + 0x340, vec![0x90; 32]));
    let (frames, walked) = image.walk(&regs, 100);
    assert_eq!((frames.len(), end_of(walked.flags)), (1, walk_end::NO_INFO));
    image.memory.areas[2].1[11] = 0xe8;
    let (frames, walked) = image.walk(&regs, 100);
    assert_eq!(frames, [CODE + 0x250, CODE + 0x350]);
    assert_eq!((walked.end, walked.flags), (walk_end::ROOT, sample_flags::GUESSED));
}

#[test]
fn unknown_code_is_counted() {
    let info = unwind_info(&[function(0x100, 0x200, &framed(1))]);
    let mut image = Image::new(info, &[0, 0x5000_0000, 0]);
    let mut regs = leaf_at(CODE + 0x150, STACK);
    regs.set(arch::FP, 3);
    let (frames, walked) = image.walk(&regs, 100);
    assert_eq!((frames.len(), walked.unknown_pcs, end_of(walked.flags)), (2, 1, walk_end::NO_INFO));
}

/// A `ucontext_t` at word 0 of the stack (after `siginfo_t` on aarch64), as the kernel pushes it.
fn signal_stack(pc: u64, sp: u64) -> Vec<u64> {
    let mut stack = vec![0; 120];
    let base = (arch::TRAMPOLINE_CONTEXT + arch::CONTEXT_REGS) as usize / 8;
    stack[base + usize::from(arch::CONTEXT_ORDER[arch::SP])] = sp;
    stack[base + arch::CONTEXT_PC as usize] = pc;
    stack
}

#[test]
fn signal_trampoline_without_unwind_info_is_recognized_by_code() {
    let info = unwind_info(&[function(0x100, 0x200, &framed(0)), function(0x300, 0x400, &root())]);
    let mut stack = vec![CODE + 0x250];
    stack.extend(signal_stack(CODE + 0x100, STACK + 121 * 8));
    stack.extend([CODE + 0x350, 0]);
    let mut image = Image::new(info, &stack);
    let code: &[u8] = if X86 {
        &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]
    } else {
        &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0]
    };
    image.memory.areas.push((CODE + 0x250, code.to_vec()));
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x150, STACK), 100);
    // The interrupted function is at its first instruction, so one byte must not be subtracted from its
    // address.
    assert_eq!(frames, [CODE + 0x150, CODE + 0x250, CODE + 0x100, CODE + 0x350]);
    assert_eq!((walked.end, walked.flags, walked.exact_frames), (walk_end::ROOT, 0, 0b101));
}

#[test]
fn signal_frame_is_unwound_by_its_unwind_info() {
    // Restores the stack pointer and the program counter by expressions over the stack pointer.
    let base = arch::TRAMPOLINE_CONTEXT + arch::CONTEXT_REGS;
    let sp_at = base + u64::from(arch::CONTEXT_ORDER[arch::SP]) * 8;
    let pc_at = base + arch::CONTEXT_PC * 8;
    let sleb = |n: u64| [n as u8 & 0x7f | 0x80, (n >> 7) as u8];
    let breg = 0x70 + arch::SP as u8;
    let [a, b] = sleb(sp_at);
    let [c, d] = sleb(pc_at);
    let ra = arch::RA as u8;
    let sp = arch::SP as u8;
    let program = vec![0x0f, 3, breg, a, b, 0x06, 0x10, sp, 3, breg, a, b, 0x10, ra, 3, breg, c, d];
    // def_cfa_expression needs its deref inside the block.
    let mut fixed = program;
    fixed[1] = 4;
    let functions = [
        function(0x100, 0x200, &framed(0)),
        Function { start: 0x24f, end: 0x260, program: fixed, signal: true },
        function(0x300, 0x400, &root()),
    ];
    let mut stack = vec![CODE + 0x250];
    stack.extend(signal_stack(CODE + 0x100, STACK + 121 * 8));
    stack.extend([CODE + 0x350, 0]);
    let mut image = Image::new(unwind_info(&functions), &stack);
    let (frames, walked) = image.walk(&leaf_at(CODE + 0x150, STACK), 100);
    assert_eq!(frames, [CODE + 0x150, CODE + 0x250, CODE + 0x100, CODE + 0x350]);
    assert_eq!((walked.end, walked.flags, walked.exact_frames), (walk_end::ROOT, 0, 0b101));
}

#[test]
fn remember_restore_args_size_and_location_are_interpreted() {
    // At 0x110 one more word is pushed, at 0x120 the remembered state is restored.
    let mut program = vec![0x2e, 0x20];
    program.extend(framed(1));
    program.extend([0x0a, 0x40 | 0x10]);
    program.extend([0x0e, 24]);
    if !X86 {
        program.extend([0x80 | 30, 1]);
    }
    program.extend([0x02, 0x10, 0x0b]);
    let info = unwind_info(&[function(0x100, 0x200, &program), function(0x300, 0x400, &root())]);
    for (pc, stack) in [
        (0x100, [0, CODE + 0x350, 1]),
        (0x110, [0, 1, CODE + 0x351]),
        (0x11f, [0, 1, CODE + 0x352]),
        (0x120, [0, CODE + 0x353, 1]),
    ] {
        let mut image = Image::new(info.clone(), &stack);
        let (frames, walked) = image.walk(&leaf_at(CODE + pc, STACK), 100);
        assert_eq!((frames.len(), walked.end), (2, walk_end::ROOT), "{pc:#x}");
        assert!((CODE + 0x350..CODE + 0x354).contains(&frames[1]));
    }
}

#[test]
fn cfa_from_another_register_is_found_by_interpreting_frames() {
    // The caller's CFA counts from a preserved register that the leaf saved.
    let (saved, number) = if X86 { (3u8, 3usize) } else { (19u8, 19usize) };
    let mut leaf = framed(2);
    leaf.extend([0x80 | saved, if X86 { 2 } else { 3 }]);
    let mut middle = vec![0x0c, saved, 16];
    if !X86 {
        middle.extend([0x80 | 30, 1]);
    }
    let info = unwind_info(&[
        function(0x100, 0x200, &leaf),
        function(0x200, 0x300, &middle),
        function(0x300, 0x400, &root()),
    ]);
    let base = STACK + 4 * 8;
    let stack = if X86 {
        [0, base, CODE + 0x250, 9, 9, CODE + 0x350, 0]
    } else {
        [base, 0, CODE + 0x250, 9, 9, CODE + 0x350, 0]
    };
    let mut image = Image::new(info, &stack);
    let mut regs = leaf_at(CODE + 0x150, STACK);
    regs.set(number, 0x1234);
    for _ in 0..2 {
        let (frames, walked) = image.walk(&regs, 100);
        assert_eq!(frames, [CODE + 0x150, CODE + 0x250, CODE + 0x350]);
        assert_eq!((walked.end, walked.flags), (walk_end::ROOT, 0));
    }
}

#[test]
fn plt_cfa_expression_is_evaluated() {
    if !X86 {
        return;
    }
    // CFA = rsp + 8 + ((rip & 15) >= 11) × 8, as GNU ld writes it.
    let program = [0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let info = unwind_info(&[function(0x100, 0x200, &program), function(0x300, 0x400, &root())]);
    let mut image = Image::new(info, &[CODE + 0x350, CODE + 0x360, 0]);
    assert_eq!(image.walk(&leaf_at(CODE + 0x116, STACK), 9).0, [CODE + 0x116, CODE + 0x350]);
    assert_eq!(image.walk(&leaf_at(CODE + 0x11b, STACK), 9).0, [CODE + 0x11b, CODE + 0x360]);
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Damaged unwind information, random programs and random stacks cause no panic, and a bounded number of
/// reads.
#[test]
fn damaged_unwind_info_does_not_panic() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut reached = [0u32; 8];
    for round in 0..20_000 {
        let mut program =
            |max: u64| -> Vec<u8> { (0..random.next() % max).map(|_| random.next() as u8).collect() };
        let mut functions = vec![
            function(0x100, 0x200, &framed(1)),
            function(0x200, 0x300, &program(60)),
            function(0x300, 0x400, &program(60)),
            Function { start: 0x400, end: 0x500, program: program(60), signal: true },
        ];
        if round % 2 == 0 {
            // A valid expression opcode stream at the CFA.
            let mut block = program(100);
            block.truncate(100);
            let mut whole = vec![0x0f, block.len() as u8];
            whole.extend(block);
            functions.push(function(0x500, 0x600, &whole));
        }
        let mut info = unwind_info(&functions);
        if round % 3 == 0 {
            for _ in 0..random.next() % 20 {
                let at = random.next() as usize % info.len();
                info[at] = random.next() as u8;
            }
        }
        if round % 7 == 0 {
            info.truncate(random.next() as usize % info.len());
        }
        let stack: Vec<u64> = (0..64)
            .map(|_| match random.next() % 4 {
                0 => random.next(),
                1 => STACK + random.next() % 600,
                _ => CODE + random.next() % 0x700,
            })
            .collect();
        let mut image = Image::new(info, &stack);
        let mut regs = leaf_at(CODE + random.next() % 0x600, STACK + random.next() % 64);
        for number in 0..arch::COUNT {
            if random.next().is_multiple_of(2) && number != arch::SP {
                regs.set(number, STACK + random.next() % 512);
            }
        }
        let (_, walked) = image.walk(&regs, 256);
        reached[usize::from(walked.end)] += 1;
        assert!(image.memory.reads < 40_000_000, "{} reads", image.memory.reads);
    }
    // Not all inputs are refused at the first check.
    assert!(reached[..6].iter().filter(|n| **n > 20).count() >= 4, "{reached:?}");
}

/// Hand-written code without unwind information, interrupted anywhere, is simulated up to its return.
#[cfg(target_arch = "x86_64")]
#[test]
fn code_without_unwind_information_is_simulated() {
    // push rbx; push rbp; mov rax,rsp; and rsp,-64; sub rsp,0x80; mov [rsp+0x40],rax; xor ebp,ebp; dec ebp; jne −4;
    // vpaddd ymm4,ymm4,ymm5; mov rsp,[rsp+0x40]; pop rbp; pop rbx; vzeroupper; ret
    let code: Vec<u8> = [
        &[0x53u8, 0x55] as &[u8],
        &[0x48, 0x89, 0xe0],
        &[0x48, 0x83, 0xe4, 0xc0],
        &[0x48, 0x81, 0xec, 0x80, 0, 0, 0],
        &[0x48, 0x89, 0x44, 0x24, 0x40],
        &[0x31, 0xed],
        &[0xff, 0xcd],
        &[0x75, 0xfc],
        &[0xc5, 0xdd, 0xfe, 0xe5],
        &[0x48, 0x8b, 0x64, 0x24, 0x40],
        &[0x5d, 0x5b],
        &[0xc5, 0xf8, 0x77],
        &[0xc3],
    ]
    .concat();
    let length = code.len() as u64;
    // The caller's CFA comes from rbp: it must be restored, not guessed. `call rel32` before its return address.
    let info = unwind_info(&[function(0x200, 0x300, &by_frame_pointer()), function(0x300, 0x400, &root())]);
    let caller = CODE + 0x250;
    let mut around = vec![0x90; 0x500];
    around[0x100..0x100 + code.len()].copy_from_slice(&code);
    around[0x24b] = 0xe8;
    let mut stack = vec![0u64; 96];
    // The function is entered with its return address at word 64; the caller's frame is at word 70.
    let frame = STACK + 70 * 8;
    (stack[64], stack[63], stack[62]) = (caller, 0x1234, frame);
    (stack[70], stack[71]) = (0, CODE + 0x350);
    let aligned = (STACK + 62 * 8) & !63;
    let moved = aligned - 0x80;
    stack[((moved + 0x40 - STACK) / 8) as usize] = STACK + 62 * 8;
    // Before each instruction: the stack pointer, and whether rbp still has the caller's value.
    let mut at = 0;
    let steps: [(u64, u64, bool); 15] = [
        (1, 64, true),
        (1, 63, true),
        (3, 62, true),
        (4, 62, true),
        (7, 1000, true),
        (5, 1001, true),
        (2, 1001, true),
        (2, 1001, false),
        (2, 1001, false),
        (4, 1001, false),
        (5, 1001, false),
        (1, 62, false),
        (1, 63, true),
        (3, 64, true),
        (1, 64, true),
    ];
    for (bytes, word, own) in steps {
        let sp = match word {
            1000 => aligned,
            1001 => moved,
            word => STACK + word * 8,
        };
        let mut image = Image::new(info.clone(), &stack);
        image.memory.areas.push((CODE, around.clone()));
        let mut regs = leaf_at(CODE + 0x100 + at, sp);
        regs.set(arch::FP, if own { frame } else { 0 });
        // rax has the old stack pointer where it is about to be saved.
        regs.set(0, STACK + 62 * 8);
        for _ in 0..2 {
            let (frames, walked) = image.walk(&regs, 100);
            assert_eq!(frames, [CODE + 0x100 + at, caller, CODE + 0x350], "at {at}");
            assert_eq!(
                (walked.end, walked.flags & sample_flags::GUESSED),
                (walk_end::ROOT, sample_flags::GUESSED)
            );
        }
        at += bytes;
    }
    assert_eq!(at, length);
}
