//! Steps without unwind information. Frames found here are marked as guessed, except a signal trampoline.

use crate::layout::{ModuleEntry, sample_flags};
use crate::unwind::eh_frame::Failure;
use crate::unwind::hotspot::CodeCache;
use crate::unwind::instruction_analysis::CodeMemory;
use crate::unwind::interrupted::{Regs, arch, strip};
use crate::unwind::modules::is_plain;
use crate::unwind::rule::{Rule, Saved, Simple};
use crate::unwind::rule_cache::Tag;
use crate::unwind::stack::Memory;
use crate::unwind::walk::{Lookup, MAX_GUESSED_FRAME, Walk};
use crate::unwind::x86::Code;

/// Marks cache entries for the step that the epilogue simulation found from an address; a gap if it found
/// none. User-space addresses do not have this bit.
const SIMULATED: u64 = 1 << 47;

/// Moves the cache entry of a return address to a slot other than that of the code at the address.
const APART: u64 = 0x2aaa_aaaa;

/// Distance from an address within which its function is searched if no module is known.
const AROUND: u64 = 1 << 16;

impl<M: Memory> Walk<'_, M> {
    /// Tries, in this order: a signal trampoline, recognized by its instructions; the function's own
    /// epilogue; a return address on top of the stack; the end of a chain; the frame pointer.
    #[cold]
    #[inline(never)]
    pub(crate) fn guess(&mut self, at: u64, module: Option<&ModuleEntry>) -> Result<(), Failure> {
        // A trampoline may be the first code of its mapping, and the address that is looked up is one byte
        // before it.
        let pc = self.regs.pc;
        let known = self.lookup.rule_cache.get(pc | SIMULATED, self.lookup.tag);
        let known = known.map(|value| Rule::unpack(value as u32));
        if known.is_none() {
            let here = module.copied().or_else(|| self.lookup.modules.find(pc));
            if here.is_some_and(|module| self.trampoline(&module)) {
                return self.leave_signal();
            }
            if !self.exact && here.is_some_and(|module| self.starts_context(&module)) {
                return Err(Failure::Root);
            }
        }
        if self.simulate_epilogue(module, known) || (self.exact && self.frameless()) {
            return Ok(());
        }
        if self.memory.is_exhausted() || self.machine.simulator.is_exhausted() {
            return Err(Failure::NoInfo);
        }
        let sp = self.regs.sp();
        let Some(fp) = self.regs.get(arch::FP) else { return Err(Failure::NeedRegister) };
        if fp == 0 && module.is_some() && !self.exact {
            // C libraries without unwind information start a thread with a chain that ends in zero.
            self.result.flags |= sample_flags::GUESSED;
            return Err(Failure::Root);
        }
        let near = fp >= sp && fp.wrapping_sub(sp) < MAX_GUESSED_FRAME;
        if !near || fp & 7 != 0 {
            return Err(Failure::NoInfo);
        }
        let next = self.memory.word(fp).ok_or(Failure::NoInfo)?;
        let ra = strip(self.memory.word(fp.wrapping_add(8)).ok_or(Failure::NoInfo)?);
        // Code that is compiled at run time calls itself before any map contains its memory.
        let same_code = module.is_none() && ra > 0xffff && ra.abs_diff(at) < 1 << 26;
        let known = ra == 0
            || same_code
            || self.lookup.modules.find(ra.wrapping_sub(1)).is_some()
            || (cfg!(target_arch = "x86_64") && after_call(self.memory, ra));
        if !known || ra & arch::CODE_ALIGN.wrapping_sub(1) != 0 {
            return Err(Failure::NoInfo);
        }
        self.result.flags |= sample_flags::GUESSED;
        self.go_to(ra, fp.wrapping_add(16), Some(next));
        Ok(())
    }

    /// Returns true if `pc` is at the instructions of `rt_sigreturn`. C libraries without unwind information,
    /// and the aarch64 vDSO, provide no other means to recognize a signal trampoline.
    fn trampoline(&mut self, module: &ModuleEntry) -> bool {
        self.memory.set_info(module.start, module.end, false);
        let pc = self.regs.pc;
        if cfg!(target_arch = "x86_64") {
            // mov $15, %rax (7 bytes); syscall
            let first = self.memory.info(pc, 8);
            let last = self.memory.info(pc.wrapping_add(8), 1);
            return first == Some(0x0f00_0000_0fc0_c748) && last == Some(0x05);
        }
        // mov x8, #139; svc #0
        self.memory.info(pc, 8) == Some(0xd400_0001_d280_1168)
    }

    /// Returns true if the frame is `__start_context`, to which glibc lets the function of `makecontext`
    /// return: the root of a coroutine. The return address is its first byte, so the address before it has no
    /// unwind information that could mark it as a root. Source: glibc,
    /// `sysdeps/unix/sysv/linux/x86_64/__start_context.S`.
    fn starts_context(&mut self, module: &ModuleEntry) -> bool {
        if cfg!(not(target_arch = "x86_64")) {
            return false;
        }
        self.memory.set_info(module.start, module.end, is_plain(module));
        // mov %rbx, %rsp; mov (%rsp), %rdi; test %rdi, %rdi
        let pc = self.regs.pc;
        self.memory.info(pc, 8) == Some(0x4824_3c8b_48dc_8948)
            && self.memory.info(pc.wrapping_add(8), 2) == Some(0xff85)
    }

    /// Steps to the caller by running the function's own instructions to its return. The rule cache stores the outcome, found or not, because
    /// a run is slow and most functions are seen many times.
    pub(crate) fn simulate_epilogue(&mut self, module: Option<&ModuleEntry>, known: Option<Rule>) -> bool {
        let pc = self.regs.pc;
        if cfg!(not(target_arch = "x86_64")) {
            return false;
        }
        // Code made at run time is in no table at first: the code around the address is copied, not read in
        // place.
        let range = match (module, self.code_range) {
            (Some(module), _) => (module.start, module.end, is_plain(module)),
            (None, (from, to)) if from <= pc && pc < to => (from, to, true),
            _ => (pc.saturating_sub(AROUND), pc.saturating_add(AROUND), false),
        };
        let (lookup, code_cache) = (self.lookup, self.code_cache);
        let mut text = Text { memory: &mut *self.memory, lookup, code_cache, range, code: NO_CODE };
        let found = match known {
            Some(Rule::Gap) => return false,
            Some(Rule::Simple(rule)) if !self.full && again(&mut text, &mut self.regs, rule) => true,
            _ => {
                text.memory.set_info(range.0, range.1, range.2);
                let found = self.machine.simulator.run(&mut text, &mut self.regs);
                let exhausted = self.memory.is_exhausted() || self.machine.simulator.is_exhausted();
                // A run that was stopped early says nothing about the code.
                if let Some(rule) = found.or((!exhausted).then_some(Rule::Gap)) {
                    self.lookup.rule_cache.put(pc | SIMULATED, self.lookup.tag, u64::from(rule.pack()));
                }
                found.is_some()
            }
        };
        if found {
            self.result.flags |= sample_flags::GUESSED;
            self.exact = false;
        }
        found
    }

    /// Steps out of an interrupted function without a frame (a copying loop, say, or a function at its first
    /// instruction), which has its return address on top of the stack. The address is accepted if a call
    /// instruction stands before it.
    fn frameless(&mut self) -> bool {
        if cfg!(not(target_arch = "x86_64")) {
            return false;
        }
        let sp = self.regs.sp();
        let Some(ra) = self.memory.word(sp) else { return false };
        if self.lookup.modules.find(ra.wrapping_sub(1)).is_none() || !after_call(self.memory, ra) {
            return false;
        }
        self.result.flags |= sample_flags::GUESSED;
        let fp = self.regs.get(arch::FP);
        self.go_to(ra, sp.wrapping_add(8), fp);
        true
    }

    #[inline(never)]
    fn leave_signal(&mut self) -> Result<(), Failure> {
        let context = self.regs.sp().wrapping_add(arch::TRAMPOLINE_CONTEXT);
        let memory = &mut *self.memory;
        if !self.regs.load_context(context, |at| memory.word(at)) {
            return Err(Failure::BadStack);
        }
        self.memory.switched(self.regs.sp());
        self.exact = true;
        Ok(())
    }
}

/// Steps by a stored rule of an earlier run; returns false if the stack does not match it.
fn again<M: Memory>(text: &mut Text<'_, M>, regs: &mut Regs, rule: Simple) -> bool {
    let base = if rule.from_fp { regs.get(arch::FP) } else { Some(regs.sp()) };
    let Some(cfa) = base.map(|base| base.wrapping_add(rule.offset)) else { return false };
    if cfa <= regs.sp() {
        return false;
    }
    let fp = match rule.saved {
        Saved::Fp(below) => text.word(cfa.wrapping_sub(below)),
        _ => regs.get(arch::FP),
    };
    let (Some(fp), Some(ra)) = (fp, text.word(cfa.wrapping_sub(8))) else { return false };
    if !text.returns_to(ra) {
        return false;
    }
    regs.pc = ra;
    regs.valid = 0;
    regs.set(arch::SP, cfa);
    regs.set(arch::FP, fp);
    true
}

/// Code of one module and the stack.
struct Text<'a, M> {
    memory: &'a mut M,
    lookup: &'a Lookup<'a>,
    code_cache: CodeCache<'a>,
    /// First and one past the last address that may be read, and whether by plain loads.
    range: (u64, u64, bool),
    /// Address and value of the last eight bytes of code read, because instructions are read byte by byte.
    code: (u64, u64),
}

/// No code has been read.
const NO_CODE: (u64, u64) = (u64::MAX, 0);

impl<M: Memory> Code for Text<'_, M> {
    #[inline]
    fn byte(&mut self, at: u64) -> Option<u8> {
        let mut offset = at.wrapping_sub(self.code.0);
        if offset >= 8 {
            // Fewer bytes are left near the end of the range.
            let Some(word) = self.memory.info(at, 8) else {
                return self.memory.info(at, 1).map(|byte| byte as u8);
            };
            self.code = (at, word);
            offset = 0;
        }
        Some(self.code.1.wrapping_shr((offset as u32).wrapping_mul(8)) as u8)
    }
}

impl<M: Memory> CodeMemory for Text<'_, M> {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.memory.word(address)
    }

    fn returns_to(&mut self, address: u64) -> bool {
        // The rule cache also stores verified call sites, because a check copies a page.
        let (key, tag) = ((address ^ APART) | SIMULATED, Tag(!self.lookup.tag.0));
        if self.lookup.rule_cache.get(key, tag).is_some() {
            return true;
        }
        let near = address.wrapping_sub(1) >= self.range.0 && address < self.range.1;
        let known = near
            || self.code_cache.contains(address)
            || self.lookup.modules.find(address.wrapping_sub(1)).is_some();
        let found = known && after_call(self.memory, address);
        if found {
            self.lookup.rule_cache.put(key, tag, 1);
        }
        self.memory.set_info(self.range.0, self.range.1, self.range.2);
        found
    }
}

/// Returns true if a call stands before a return address. The check is safe for any address.
fn after_call<M: Memory>(memory: &mut M, ra: u64) -> bool {
    memory.set_info(ra.wrapping_sub(8), ra, false);
    memory.info(ra.wrapping_sub(8), 8).is_some_and(|before| follows_call(before.to_le_bytes()))
}

/// Returns true if the eight bytes before a return address end with an x86_64 call.
pub fn follows_call(before: [u8; 8]) -> bool {
    let [_, b7, b6, b5, b4, b3, b2, b1] = before;
    // The ModRM byte of `call r/m64` (FF /2) by its addressing mode.
    let mode = |modrm: u8, mode: u8| modrm & 0xf8 == mode << 6 | 0x10;
    let register_or_plain = |modrm: u8| (mode(modrm, 3) || mode(modrm, 0)) && modrm != 0x14 && modrm != 0x15;
    // e8 rel32
    b5 == 0xe8
        // ff /2: register or [register]; [register + disp8]; [rip + disp32], [register + disp32]
        || (b2 == 0xff && register_or_plain(b1))
        || (b3 == 0xff && (mode(b2, 1) || b2 == 0x14))
        || (b6 == 0xff && (b5 == 0x15 || mode(b5, 2)))
        // with a SIB byte
        || (b4 == 0xff && b3 == 0x54)
        || (b7 == 0xff && (b6 == 0x94 || b6 == 0x14))
}

#[cfg(test)]
mod tests {
    use super::follows_call;

    fn bytes(code: &[u8]) -> [u8; 8] {
        let mut before = [0x90; 8];
        before[8 - code.len()..].copy_from_slice(code);
        before
    }

    #[test]
    fn call_instructions_are_recognized() {
        for call in [
            &[0xe8u8, 1, 2, 3, 4] as &[u8],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd5],
            &[0xff, 0x50, 0x18],
            &[0xff, 0x15, 0, 1, 2, 0],
            &[0xff, 0x90, 0, 1, 0, 0],
            &[0xff, 0x14, 0xc8],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x94, 0xc1, 0, 1, 0, 0],
        ] {
            assert!(follows_call(bytes(call)), "{call:x?}");
        }
        for other in
            [&[0x90u8] as &[u8], &[0xff, 0xe0], &[0xff, 0x25, 0, 0, 0, 0], &[0xc3], &[0x48, 0x89, 0xe5]]
        {
            assert!(!follows_call(bytes(other)), "{other:x?}");
        }
    }
}
