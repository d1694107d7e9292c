//! Modules that are bound to the C library's `malloc` and `free` past the interposed functions, because they were opened with
//! `RTLD_DEEPBIND` (dlopen(3)). Their allocations cannot be recorded, and blocks that they free for others are reported as live.
//! The recorder reports them.

use std::{
    collections::HashSet,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use object::{Endianness, read::elf::ElfFile64};

use crate::names::modules::{Mapping, ModuleMap};
use crate::names::{
    debug_files,
    images::{Image, ImageId, Images},
    plt,
};

/// The functions whose calls are counted.
const COUNTED: &[&[u8]] = &[b"malloc", b"calloc", b"realloc", b"free"];

/// Finds modules of one process that are bound to the C library's allocator.
#[derive(Default)]
pub struct DirectCalls {
    /// First addresses of modules whose bindings are known, with their images.
    scanned: HashSet<(u64, ImageId)>,
    /// Modules that have been reported.
    reported: HashSet<PathBuf>,
}

impl DirectCalls {
    /// Reads the bindings of modules that are new or whose functions were not called before. Returns the
    /// messages.
    pub fn look(&mut self, pid: u32, modules: &ModuleMap, images: &Images) -> Vec<String> {
        let new = |m: &&Mapping| !self.scanned.contains(&(m.start, m.image));
        let new: Vec<Mapping> = modules.current().iter().filter(new).copied().collect();
        if new.is_empty() {
            return Vec::new();
        }
        let present = |(start, image): &(u64, ImageId)| {
            modules.current().iter().any(|m| m.start == *start && m.image == *image)
        };
        self.scanned.retain(present);
        let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
        let mut reports = Vec::new();
        for mapping in new {
            let image = images.get(mapping.image);
            let bound = bindings(pid, image, &mapping, &memory, modules).unwrap_or_default();
            if !bound.contains(&mapping.image) {
                // All functions are bound, so the result is final.
                self.scanned.insert((mapping.start, mapping.image));
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

/// Returns the images that the counted functions of a module are bound to: the module itself for a function
/// that is bound on its first call.
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
