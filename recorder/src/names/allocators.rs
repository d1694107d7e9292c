//! Detects allocators that are linked into the program itself. The program calls them directly, so no
//! interposer can count allocations, and the user must learn that they are missing in the recording.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use object::{Endianness, Object, ObjectSymbol, SymbolKind, read::elf::ElfFile64};

use crate::names::debug_files;

/// Functions that identify an allocator: plain names, names with the prefix used in Rust crates, and names of
/// the allocator's own API.
const FUNCTIONS: &[&str] = &[
    "malloc",
    "_rjem_malloc",
    "je_malloc",
    "jemalloc",
    "mi_malloc",
    "tc_malloc",
    "rpmalloc",
    "sn_malloc",
    "_rjem_je_arena_malloc_hard",
    "je_arena_malloc_hard",
];

/// Limit of remembered programs. Beyond it, a message may be repeated.
const MANY: usize = 1024;

/// The programs examined so far.
#[derive(Default)]
pub struct Allocators {
    cache: HashMap<PathBuf, Option<&'static str>>,
}

impl Allocators {
    /// Returns a message for the user if the program that process `pid` runs has an allocator of its own.
    /// Once per program.
    pub fn notice(&mut self, pid: u32, exe: &Path) -> Option<String> {
        if self.cache.contains_key(exe) {
            return None;
        }
        if self.cache.len() >= MANY {
            self.cache.clear();
        }
        let path = PathBuf::from(format!("/proc/{pid}/exe"));
        let function = linked_in(&path).or_else(|| linked_in(exe));
        self.cache.insert(exe.to_owned(), function);
        let function = function?;
        let name = exe.file_name().unwrap_or_default().to_string_lossy();
        Some(format!(
            "{name} contains its own allocator ({function}), for which only the pages that it maps are \
             recorded; to count its calls, use `-e uprobe:{}:{function}`",
            exe.display()
        ))
    }
}

/// Returns the function that identifies an allocator defined in this file. Reads only the file's symbol
/// tables.
fn linked_in(path: &Path) -> Option<&'static str> {
    let map = debug_files::map(path)?;
    let elf = ElfFile64::<Endianness>::parse(&**map).ok()?;
    let defined = |name: &str| FUNCTIONS.iter().find(|function| **function == name).copied();
    elf.symbols()
        .chain(elf.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .find_map(|symbol| defined(symbol.name().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocator_is_detected_in_defining_libraries() {
        // This test program calls malloc but does not define it.
        assert_eq!(linked_in(Path::new("/proc/self/exe")), None);
        assert_eq!(linked_in(Path::new("/nowhere")), None);
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.lines().filter_map(|line| line.split_whitespace().nth(5));
        if let Some(libc) =
            libc.into_iter().find(|path| path.contains("/libc.so") || path.contains("/libc-2"))
        {
            assert_eq!(linked_in(Path::new(libc)), Some("malloc"));
        }
    }
}
