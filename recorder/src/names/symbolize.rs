//! Adds symbols to finished recordings: finds the files again by build id, once their debug files are
//! available.

use std::{
    collections::HashMap,
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use memmap2::Mmap;
use object::{Object, read::elf::ElfFile64};

use crate::{
    names::debug_files::{DebugDirs, hex, map},
    names::dwarf::Lines,
    names::elf::Head,
    names::symbols::Symbols,
};

pub use crate::names::{declarations::Declaration, dwarf::SourceFrame};

/// Files and debug files, each opened on first use.
pub struct Symbolizer {
    dirs: DebugDirs,
    given: HashMap<String, PathBuf>,
    files: HashMap<(String, String), Option<Binary>>,
}

struct Binary {
    symbols: Symbols,
    lines: Option<Lines>,
    /// The file with the code; `None` if only its debug file was found.
    code: Option<PathBuf>,
}

impl Symbolizer {
    /// Searches `debug_dirs` before the standard directories, and `files` by their build ids.
    pub fn new(debug_dirs: &[PathBuf], files: &[PathBuf]) -> Symbolizer {
        let id = |path: &PathBuf| Some((hex(&Head::read(&File::open(path).ok()?)?.build_id), path.clone()));
        let given = files.iter().filter_map(id).filter(|(id, _)| !id.is_empty()).collect();
        Symbolizer { dirs: DebugDirs::new(debug_dirs), given, files: HashMap::new() }
    }

    /// Returns the functions at an address of a file, innermost first. The last one is the function into
    /// which the others are inlined; its name is empty if there is no symbol. Empty if nothing is known.
    pub fn frames(&mut self, path: &str, build_id: &str, address: u64) -> Vec<SourceFrame> {
        self.binary(path, build_id).map(|binary| binary.frames(address)).unwrap_or_default()
    }

    /// Returns where the functions with this demangled name are defined, by the debug information of a file: at most 16 places.
    /// Empty if there is no file, no debug information, or no such function.
    pub fn declarations(&mut self, path: &str, build_id: &str, function: &str) -> Vec<Declaration> {
        let lines = self.binary(path, build_id).and_then(|binary| binary.lines.as_ref());
        lines.map(|lines| lines.declarations(function)).unwrap_or_default()
    }

    /// Returns the file with the code of a recorded file, and in it the address ranges of the functions with
    /// this demangled name. `None` if the file was not found.
    pub fn code(&mut self, path: &str, build_id: &str, function: &str) -> Option<(PathBuf, Vec<Range<u64>>)> {
        let binary = self.binary(path, build_id)?;
        Some((binary.code.clone()?, binary.symbols.ranges(function)))
    }

    fn binary(&mut self, path: &str, build_id: &str) -> Option<&mut Binary> {
        let Symbolizer { dirs, given, files } = self;
        let file = files
            .entry((path.to_owned(), build_id.to_owned()))
            .or_insert_with(|| Binary::find(path, build_id, given, dirs));
        file.as_mut()
    }

    /// Returns the files that were looked up and not found: path and build id.
    pub fn missing(&self) -> Vec<(&str, &str)> {
        let none = self.files.iter().filter(|(_, file)| file.is_none());
        let mut missing: Vec<_> = none.map(|((path, id), _)| (&**path, &**id)).collect();
        missing.sort_unstable();
        missing
    }
}

impl Binary {
    fn find(
        path: &str,
        build_id: &str,
        given: &HashMap<String, PathBuf>,
        dirs: &DebugDirs,
    ) -> Option<Binary> {
        let place = Path::new(path);
        let known = given.get(build_id).map(PathBuf::as_path);
        for candidate in known.into_iter().chain([place]) {
            // Without a build id, the path must be enough.
            if let Some(file) = map(candidate)
                && (build_id.is_empty() || self::build_id(&file).as_deref() == Some(build_id))
            {
                let (symbols, lines) = Symbols::read(&file, candidate, dirs);
                return Some(Binary { symbols, lines, code: Some(candidate.to_path_buf()) });
            }
        }
        // The file is gone or has been replaced; its debug file has the same information.
        let candidates = dirs.by_hex(build_id);
        let (file, path) = candidates.iter().find_map(|p| Some((map(p)?, p)))?;
        let (symbols, lines) = Symbols::read(&file, path, dirs);
        (self::build_id(&file).as_deref() == Some(build_id)).then_some(Binary { symbols, lines, code: None })
    }

    fn frames(&mut self, address: u64) -> Vec<SourceFrame> {
        let mut frames = self.lines.as_mut().map(|l| l.frames(address)).unwrap_or_default();
        let name = self.symbols.name(self.symbols.find(address)).map(|n| Arc::from(n.text));
        match (frames.last_mut(), name) {
            (Some(last), Some(name)) => last.name = name,
            (None, Some(name)) => frames.push(SourceFrame { name, line: 0 }),
            (_, None) => {}
        }
        frames
    }
}

fn build_id(file: &Arc<Mmap>) -> Option<String> {
    let elf = ElfFile64::<object::Endianness>::parse(&file[..]).ok()?;
    elf.build_id().ok().flatten().map(hex)
}
