//! Names of PLT stubs, through which calls into other files go: `write@plt`.

use std::collections::HashMap;

use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
    elf::{
        EM_AARCH64, EM_X86_64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT,
    },
    read::elf::ElfFile64,
};

/// A stub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stub {
    /// Its first address.
    pub start: u64,
    /// One past its last.
    pub end: u64,
    /// The function that it jumps to.
    pub name: Box<[u8]>,
}

/// Returns the stubs of a file, by address. x86-64 only; on other machines they have the names of their
/// sections.
pub fn stubs(elf: &ElfFile64<'_, Endianness>) -> Vec<Stub> {
    if elf.elf_header().e_machine.get(elf.endian()) != EM_X86_64 {
        return Vec::new();
    }
    let slots = slots(elf, |_| true);
    let mut stubs = Vec::new();
    // Calls go to .plt.sec if there is one; .plt then only serves the dynamic loader.
    for (section, size) in [(".plt.sec", 16), (".plt.got", 8), (".plt", 16), (".plt.bnd", 16)] {
        let Some(section) = elf.section_by_name(section) else { continue };
        let Ok(code) = section.data() else { continue };
        // With indirect branch tracking, a stub in .plt.got has 16 bytes.
        let size = if code.starts_with(&ENDBR64) { 16 } else { size };
        for (i, code) in code.chunks_exact(size).enumerate() {
            let start = section.address() + (i * size) as u64;
            if let Some(name) = target(code, start).and_then(|slot| slots.get(&slot)) {
                stubs.push(Stub { start, end: start + size as u64, name: name.clone() });
            }
        }
    }
    stubs.sort_unstable_by_key(|s| s.start);
    stubs
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Returns the slot that a stub at `start` jumps through: `[endbr64] [bnd] jmp *offset(%rip)`.
fn target(code: &[u8], start: u64) -> Option<u64> {
    let mut at = if code.starts_with(&ENDBR64) { 4 } else { 0 };
    at += usize::from(code.get(at) == Some(&0xf2));
    let jump = code.get(at..at + 6).filter(|j| j.starts_with(&[0xff, 0x25]))?;
    let offset = i32::from_le_bytes(jump[2..6].try_into().ok()?);
    Some((start + at as u64 + 6).wrapping_add_signed(i64::from(offset)))
}

/// Returns the slots of the global offset table by address, with the name of the function that the loader
/// binds, if `wanted` accepts it.
pub fn slots(elf: &ElfFile64<'_, Endianness>, wanted: impl Fn(&[u8]) -> bool) -> HashMap<u64, Box<[u8]>> {
    let mut slots = HashMap::new();
    let kinds = match elf.elf_header().e_machine.get(elf.endian()) {
        EM_X86_64 => [R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT],
        EM_AARCH64 => [R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT],
        _ => return slots,
    };
    let Some(symbols) = elf.dynamic_symbol_table() else { return slots };
    let Some(relocations) = elf.dynamic_relocations() else { return slots };
    for (slot, relocation) in relocations {
        let object::RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        if !kinds.contains(&r_type) {
            continue;
        }
        if let RelocationTarget::Symbol(index) = relocation.target()
            && let Ok(symbol) = symbols.symbol_by_index(index)
            && let Ok(name) = symbol.name_bytes()
            && !name.is_empty()
            && wanted(name)
        {
            slots.insert(slot, name.into());
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plt_jump_targets_are_decoded() {
        let plain = [0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 0, 0, 0, 0];
        assert_eq!(target(&plain, 0x1030), Some(0x1030 + 6 + 0x2fe2));
        let tracked = [&ENDBR64[..], &[0xf2, 0xff, 0x25, 0xfa, 0xff, 0xff, 0xff]].concat();
        assert_eq!(target(&tracked, 0x1000), Some(0x1000 + 11 - 6));
        assert_eq!(target(&[0xff, 0x35, 0, 0, 0, 0], 0), None, "a push");
        assert_eq!(target(&[0xff, 0x25], 0), None);
    }
}
