//! The functions of one ELF file: finds the function that contains an address, and its name.
//!
//! The sources, in this order:
//!
//! * `.symtab` of the file or, if it was stripped, of its separate debug file (`debug_files.rs`) or of
//!   `.gnu_debugdata`,
//! * `.dynsym`,
//! * the function starts of `.eh_frame_hdr` for addresses that no symbol covers, so that a stripped function
//!   is one frame `module+0xoffset` and not one per call site.

use std::{ops::Range, path::Path, sync::Arc};

use memmap2::Mmap;
use object::{
    Endianness,
    elf::{PF_X, PT_LOAD, STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE},
    read::elf::{ElfFile64, ProgramHeader, SectionHeader, Sym},
};

use crate::{
    names::debug_files::{DebugDirs, left_in},
    names::demangle::{Name, demangle},
    names::dwarf::Lines,
    names::go,
    names::plt::{self, Stub},
};

/// A symbol: address, size, offset of its name.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    size: u32,
    name: u32,
}

/// Symbols of one section, sorted by address, one per address.
struct Table {
    /// True for `.symtab`.
    full: bool,
    symbols: Vec<Symbol>,
    /// The file that contains the names.
    file: Arc<Mmap>,
    names: Range<usize>,
}

/// Functions of one file by file address.
#[derive(Default)]
pub struct Symbols {
    tables: Vec<Table>,
    /// Function starts from `.eh_frame_hdr`, sorted.
    starts: Vec<u64>,
    stubs: Vec<Stub>,
    go: Option<go::Functions>,
}

/// A function that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its first address, or the address itself if nothing is known.
    pub start: u64,
    table: u32,
    symbol: u32,
}

impl Function {
    const UNNAMED: u32 = u32::MAX;
    const STUB: u32 = u32::MAX - 1;
    const GO: u32 = u32::MAX - 2;

    /// Returns true if it has a symbol.
    pub fn named(&self) -> bool {
        self.table != Function::UNNAMED
    }
}

impl Symbols {
    /// Reads the functions of a file mapped at `file` and opens its debug information. `path` is used for
    /// debug links.
    pub fn read(file: &Arc<Mmap>, path: &Path, dirs: &DebugDirs) -> (Symbols, Option<Lines>) {
        let mut symbols = Symbols::default();
        let Ok(elf) = ElfFile64::<Endianness>::parse(&file[..]) else { return (symbols, None) };
        symbols.starts = function_starts(&elf, file);
        symbols.stubs = plt::stubs(&elf);
        let full = table(&elf, file, Section::Full);
        let mut lines = open_lines(file, path, dirs);
        if full.is_none() || lines.is_none() {
            let separate = dirs.find(&elf, path);
            if let (None, Some((map, path))) = (&lines, &separate) {
                lines = open_lines(map, path, dirs);
            }
            let other = || {
                let map = separate.map(|(map, _)| map).or_else(|| left_in(&elf))?;
                table(&ElfFile64::parse(&map[..]).ok()?, &map, Section::Full)
            };
            symbols.tables.extend(full.or_else(other));
        } else {
            symbols.tables.extend(full);
        }
        symbols.tables.extend(table(&elf, file, Section::Dynamic));
        if symbols.tables.first().is_none_or(|t| !t.full) {
            symbols.go = go::Functions::read(&elf, file);
        }
        (symbols, lines)
    }

    /// Returns the function that contains file address `address`.
    pub fn find(&self, address: u64) -> Function {
        let known_start = match self.starts.partition_point(|s| *s <= address) {
            0 => None,
            n => self.starts.get(n - 1).copied(),
        };
        for (t, table) in self.tables.iter().enumerate() {
            if let Some(s) = table.find(address, known_start) {
                return Function { start: table.symbols[s].address, table: t as u32, symbol: s as u32 };
            }
        }
        if let Some((at, start)) = self.go.as_ref().and_then(|go| go.find(address)) {
            return Function { start, table: Function::GO, symbol: at as u32 };
        }
        let stub = self.stubs.partition_point(|s| s.start <= address).checked_sub(1);
        if let Some((at, stub)) = stub.and_then(|i| Some((i, self.stubs.get(i)?)))
            && address < stub.end
        {
            return Function { start: stub.start, table: Function::STUB, symbol: at as u32 };
        }
        Function { start: known_start.unwrap_or(address), table: Function::UNNAMED, symbol: 0 }
    }

    /// Returns its demangled name; `None` if it has no symbol.
    pub fn name(&self, function: Function) -> Option<Name> {
        if function.table == Function::STUB {
            let mut name = demangle(&self.stubs.get(function.symbol as usize)?.name);
            name.text.push_str("@plt");
            return Some(name);
        }
        if function.table == Function::GO {
            return self.go.as_ref()?.name(function.symbol as usize).map(demangle);
        }
        let table = self.tables.get(function.table as usize)?;
        let symbol = table.symbols.get(function.symbol as usize)?;
        table.name(symbol).filter(|n| !n.is_empty()).map(demangle)
    }

    /// Returns the address ranges of the functions with this demangled name, by address. A function without a symbol is named
    /// `FILE+0xSTART`, as in recordings.
    pub fn ranges(&self, name: &str) -> Vec<Range<u64>> {
        let next_start = |address: u64| {
            let next = self.starts.partition_point(|start| *start <= address);
            self.starts.get(next).copied()
        };
        let mut found: Vec<Range<u64>> = Vec::new();
        for table in &self.tables {
            for (at, symbol) in table.symbols.iter().enumerate() {
                if table.name(symbol).is_none_or(|raw| demangle(raw).text != name) {
                    continue;
                }
                let end = match symbol.size {
                    0 => {
                        let next = table.symbols.get(at + 1).map(|next| next.address);
                        next.into_iter().chain(next_start(symbol.address)).min()
                    }
                    size => symbol.address.checked_add(size.into()),
                };
                found.extend(end.map(|end| symbol.address..end));
            }
        }
        let start = name.rsplit_once("+0x").and_then(|(_, start)| u64::from_str_radix(start, 16).ok());
        if let Some(start) = start.filter(|start| self.starts.binary_search(start).is_ok()) {
            found.extend(next_start(start).map(|end| start..end));
        }
        found.sort_unstable_by_key(|range| (range.start, range.end));
        found.dedup_by_key(|range| range.start);
        found
    }

    /// Returns the memory in use, bytes (names remain in the mapped file).
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.starts.len() * 8
            + self.tables.iter().map(|t| t.symbols.len() * size_of::<Symbol>()).sum::<usize>()
    }
}

impl Table {
    fn find(&self, address: u64, known_start: Option<u64>) -> Option<usize> {
        let after = self.symbols.partition_point(|s| s.address <= address);
        // Inner symbols (cold parts, labels) may end before the address while an outer one still contains it.
        (after.saturating_sub(8)..after).rev().find(|&i| {
            let symbol = &self.symbols[i];
            match symbol.size {
                // A symbol without a size ends at the next symbol, or where unwind information starts another
                // function.
                0 => i + 1 == after && known_start.is_none_or(|start| start <= symbol.address),
                size => address - symbol.address < u64::from(size),
            }
        })
    }

    fn name(&self, symbol: &Symbol) -> Option<&[u8]> {
        let names = self.file.get(self.names.clone())?;
        let name = names.get(symbol.name as usize..)?;
        let len = name.iter().take(1 << 16).position(|b| *b == 0).unwrap_or(0);
        name.get(..len)
    }
}

fn open_lines(file: &Arc<Mmap>, path: &Path, dirs: &DebugDirs) -> Option<Lines> {
    let elf = ElfFile64::<Endianness>::parse(&file[..]).ok()?;
    Lines::open(file, dirs.supplementary(&elf, path).as_ref())
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Full,
    Dynamic,
}

fn table(elf: &ElfFile64<'_, Endianness>, file: &Arc<Mmap>, which: Section) -> Option<Table> {
    let endian = elf.endian();
    let symbols = match which {
        Section::Full => elf.elf_symbol_table(),
        Section::Dynamic => elf.elf_dynamic_symbol_table(),
    };
    let section = elf.elf_section_table().section(symbols.string_section()).ok()?;
    let at = usize::try_from(section.sh_offset(endian)).ok()?;
    let size = usize::try_from(section.sh_size(endian)).ok()?;
    let names = at..at.checked_add(size)?.min(file.len());
    let strings = file.get(names.clone())?;
    let executable: Vec<(u64, u64)> = elf
        .elf_program_headers()
        .iter()
        .filter(|p| p.p_type(endian) == PT_LOAD && p.p_flags(endian).0 & PF_X.0 != 0)
        .map(|p| (p.p_vaddr(endian), p.p_vaddr(endian).saturating_add(p.p_memsz(endian))))
        .collect();
    let mut found: Vec<(Symbol, u32)> = Vec::new();
    for symbol in symbols.iter() {
        let address = symbol.st_value(endian);
        let kind = symbol.st_type();
        if symbol.st_shndx(endian).0 == 0
            || !matches!(kind, STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE)
            || !executable.iter().any(|(start, end)| (*start..*end).contains(&address))
        {
            continue;
        }
        let name = symbol.st_name(endian);
        let text = strings.get(name as usize..).unwrap_or(&[]);
        // Mapping symbols of aarch64 and assembler labels are not functions.
        if text.first().is_none_or(|b| matches!(b, 0 | b'$'))
            || text.starts_with(b".L")
            || (kind == STT_NOTYPE && symbol.st_bind() == STB_LOCAL && symbol.st_size(endian) == 0)
        {
            continue;
        }
        let size = u32::try_from(symbol.st_size(endian)).unwrap_or(u32::MAX);
        found.push((Symbol { address, size, name }, preference(size, symbol.st_bind().0, text)));
    }
    found.sort_unstable_by_key(|(s, preference)| (s.address, *preference));
    found.dedup_by_key(|(s, _)| s.address);
    let mut symbols: Vec<Symbol> = found.into_iter().map(|(s, _)| s).collect();
    symbols.shrink_to_fit();
    (!symbols.is_empty()).then(|| Table { full: which == Section::Full, symbols, file: file.clone(), names })
}

/// Ranks several names of one address like `perf`: prefers names with a size, not weak, global, with few
/// leading underscores, long.
fn preference(size: u32, bind: u8, name: &[u8]) -> u32 {
    let underscores = name.iter().take(15).take_while(|b| **b == b'_').count() as u32;
    let len = name.iter().take(255).position(|b| *b == 0).unwrap_or(255) as u32;
    let no_size = u32::from(size == 0);
    let weak = u32::from(bind == STB_WEAK.0);
    let local = u32::from(bind != STB_GLOBAL.0);
    no_size << 20 | weak << 19 | local << 18 | underscores << 8 | (255 - len)
}

/// Returns the function starts from the sorted table of `.eh_frame_hdr` (version 1, pairs of 4-byte offsets
/// relative to itself).
fn function_starts(elf: &ElfFile64<'_, Endianness>, file: &[u8]) -> Vec<u64> {
    let endian = elf.endian();
    let header = elf.elf_program_headers().iter().find(|p| p.p_type(endian) == object::elf::PT_GNU_EH_FRAME);
    let Some(header) = header else { return Vec::new() };
    let vaddr = header.p_vaddr(endian);
    let at = usize::try_from(header.p_offset(endian)).unwrap_or(usize::MAX);
    let Some(bytes) = file.get(at..) else { return Vec::new() };
    // Version, encoding of .eh_frame's address, of the count (udata4), of the table (datarel | sdata4).
    let count_at = match bytes.get(..4) {
        Some([1, pointer, 0x03, 0x3b]) if pointer & 0x0f == 0x0b || pointer & 0x0f == 0x03 => 8,
        Some([1, pointer, 0x03, 0x3b]) if pointer & 0x0f == 0x0c || pointer & 0x0f == 0x04 => 12,
        _ => return Vec::new(),
    };
    let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let count = word(count_at).unwrap_or(0) as usize;
    let table = bytes.get(count_at + 4..).unwrap_or(&[]);
    let mut starts: Vec<u64> = table
        .chunks_exact(8)
        .take(count)
        .map(|e| vaddr.wrapping_add_signed(i64::from(i32::from_le_bytes([e[0], e[1], e[2], e[3]]))))
        .collect();
    starts.sort_unstable();
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(path: &str) -> Arc<Mmap> {
        // SAFETY: test files do not change.
        Arc::new(unsafe { Mmap::map(&std::fs::File::open(path).unwrap()) }.unwrap())
    }

    #[inline(never)]
    extern "C" fn landmark() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn own_program_function_is_found() {
        landmark();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let symbols = Symbols::read(&map("/proc/self/exe"), &exe, &DebugDirs::default()).0;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let base = maps.lines().find(|l| l.ends_with(exe.to_str().unwrap())).unwrap();
        let base = u64::from_str_radix(base.split('-').next().unwrap(), 16).unwrap();
        let address = landmark as *const () as u64 - base;
        for offset in [0, 1] {
            let function = symbols.find(address + offset);
            assert_eq!(function.start, address);
            assert!(symbols.name(function).unwrap().text.ends_with("symbols::tests::landmark"));
        }
        assert!(symbols.starts.binary_search(&address).is_ok());
    }

    #[test]
    fn stripped_code_is_named_by_function_start() {
        let symbols = Symbols { starts: vec![0x1000, 0x2000], ..Symbols::default() };
        assert_eq!(symbols.find(0x1fff).start, 0x1000);
        assert_eq!(symbols.find(0x0fff).start, 0x0fff);
        assert_eq!(symbols.name(symbols.find(0x1fff)), None);
    }

    #[test]
    fn ranges_by_name_match_the_symbols() {
        landmark();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let symbols = Symbols::read(&map("/proc/self/exe"), &exe, &DebugDirs::default()).0;
        let table = &symbols.tables[0];
        let of = |symbol: &&Symbol| {
            let name = table.name(symbol).map(|raw| demangle(raw).text);
            name.is_some_and(|name| name.ends_with("symbols::tests::landmark"))
        };
        let symbol = table.symbols.iter().find(of).unwrap();
        let name = symbols.name(symbols.find(symbol.address)).unwrap().text;
        let end = symbol.address + u64::from(symbol.size);
        assert!(symbol.size > 0);
        assert!(symbols.ranges(&name).into_iter().eq(std::iter::once(symbol.address..end)));
        assert_eq!(symbols.ranges("no::such_function"), []);
        let symbols = Symbols { starts: vec![0x1000, 0x2000], ..Symbols::default() };
        assert!(symbols.ranges("app+0x1000").into_iter().eq(std::iter::once(0x1000..0x2000)));
        assert_eq!(symbols.ranges("app+0x1001"), []);
    }

    #[test]
    fn lookup_respects_symbol_sizes_and_gaps() {
        let symbol = |address, size| Symbol { address, size, name: 0 };
        let table = Table {
            full: true,
            symbols: vec![symbol(0x100, 0x100), symbol(0x120, 0x10), symbol(0x300, 0), symbol(0x400, 8)],
            file: map("/proc/self/exe"),
            names: 0..0,
        };
        assert_eq!(table.find(0x125, None), Some(1));
        assert_eq!(table.find(0x140, None), Some(0), "the outer one goes on");
        assert_eq!(table.find(0x200, None), None, "a gap");
        assert_eq!(table.find(0x3ff, None), Some(2), "no size: up to the next");
        assert_eq!(table.find(0x3ff, Some(0x350)), None, "another function starts between");
        assert_eq!(table.find(0x408, None), None);
        assert_eq!(table.find(0xff, None), None);
    }
}
