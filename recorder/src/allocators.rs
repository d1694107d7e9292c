//! Allocations that cannot be recorded, because the calls do not reach the interposed functions. The recorder reports them.
//!
//! * An allocator that is linked into the program is called directly.
//! * A module that was opened with `RTLD_DEEPBIND` is bound to the C library's `malloc` and `free`. Blocks that it frees for others are
//!   reported as live. See dlopen(3).

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use object::{Endianness, Object, ObjectSymbol, SymbolKind, read::elf::ElfFile64};

use crate::{
    names::{
        debug_files,
        images::{Image, ImageId, Images},
        plt,
    },
    process::modules::{Mapping, ModuleMap},
};

/// Functions whose calls are counted and that a module may be bound to past us.
const COUNTED: &[&[u8]] = &[b"malloc", b"calloc", b"realloc", b"free"];

/// Functions by which allocators are known: as such, under the prefix that they have in Rust crates, under their own names.
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

/// Programs remembered; beyond, what was said of one may be said again.
const MANY: usize = 1024;

/// Programs looked at so far.
#[derive(Default)]
pub struct Allocators {
    known: HashMap<PathBuf, Option<&'static str>>,
}

impl Allocators {
    /// What to tell the user of a program as process `pid` runs it, if it has an allocator of its own. Once for each program.
    pub fn notice(&mut self, pid: u32, exe: &Path) -> Option<String> {
        if self.known.contains_key(exe) {
            return None;
        }
        if self.known.len() >= MANY {
            self.known.clear();
        }
        let path = PathBuf::from(format!("/proc/{pid}/exe"));
        let function = linked_in(&path).or_else(|| linked_in(exe));
        self.known.insert(exe.to_owned(), function);
        let function = function?;
        let name = exe.file_name().unwrap_or_default().to_string_lossy();
        Some(format!(
            "{name} has an allocator of its own linked in ({function}): of that only the pages it maps are seen; \
             `-e uprobe:{}:{function}` counts its calls",
            exe.display()
        ))
    }
}

/// The function by which an allocator defined in this file is known. Only its tables of symbols are read.
fn linked_in(path: &Path) -> Option<&'static str> {
    let map = debug_files::map(path)?;
    let elf = ElfFile64::<Endianness>::parse(&**map).ok()?;
    let defined = |name: &str| FUNCTIONS.iter().find(|function| **function == name).copied();
    elf.symbols()
        .chain(elf.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .find_map(|symbol| defined(symbol.name().ok()?))
}

/// Modules of one process that are bound to the C library's allocator.
#[derive(Default)]
pub struct DirectCalls {
    /// First addresses of modules whose bindings are known, with what is mapped there.
    known: HashSet<(u64, ImageId)>,
    /// Modules that were reported.
    reported: HashSet<PathBuf>,
}

impl DirectCalls {
    /// Reads the bindings of modules that are new or whose functions were not called before. Returns what to report.
    pub fn look(&mut self, pid: u32, modules: &ModuleMap, images: &Images) -> Vec<String> {
        let new = |m: &&Mapping| !self.known.contains(&(m.start, m.image));
        let new: Vec<Mapping> = modules.current().iter().filter(new).copied().collect();
        if new.is_empty() {
            return Vec::new();
        }
        let present = |(start, image): &(u64, ImageId)| {
            modules.current().iter().any(|m| m.start == *start && m.image == *image)
        };
        self.known.retain(present);
        let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
        let mut reports = Vec::new();
        for mapping in new {
            let image = images.get(mapping.image);
            let bound = bindings(pid, image, &mapping, &memory, modules).unwrap_or_default();
            if !bound.contains(&mapping.image) {
                // Nothing is left to be bound on the first call.
                self.known.insert((mapping.start, mapping.image));
            }
            let Some(library) = bound.iter().map(|id| images.get(*id)).find(|to| is_libc(to)) else {
                continue;
            };
            if is_libc(image) || !self.reported.insert(image.path.clone()) {
                continue;
            }
            reports.push(format!(
                "{} calls the allocator of {} directly (RTLD_DEEPBIND): its allocations are not recorded, and memory that it frees \
                 is reported as live",
                image.path.display(),
                library.class
            ));
        }
        reports
    }
}

fn is_libc(image: &Image) -> bool {
    image.class.starts_with("libc.so") || image.class.starts_with("libc-")
}

/// The images that the counted functions of a module are bound to: the module itself if a function is bound on its first call.
fn bindings(
    pid: u32,
    image: &Image,
    mapping: &Mapping,
    memory: &File,
    modules: &ModuleMap,
) -> Option<Vec<ImageId>> {
    let inside = image.path.strip_prefix("/").ok()?;
    let map = debug_files::map(&Path::new(&format!("/proc/{pid}/root")).join(inside))?;
    let elf = ElfFile64::<Endianness>::parse(&**map).ok()?;
    let slots = plt::slots(&elf, |name| COUNTED.contains(&name));
    let target = |slot: &u64| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, slot.wrapping_add(mapping.bias)).ok()?;
        modules.find(u64::from_ne_bytes(word)).map(|to| to.image)
    };
    Some(slots.keys().filter_map(target).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_with_and_without() {
        // This test program calls malloc, but does not define it.
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
