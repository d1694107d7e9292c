//! Finds a function in a file: its address and file offset.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use object::{
    Endianness, Object, ObjectSymbol, SymbolKind,
    elf::{PF_X, PT_LOAD},
    read::elf::ElfFile64,
};

use crate::{names::demangle::demangle, names::elf::Head};

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The file, with symbolic links followed.
    pub path: PathBuf,
    /// Its address within the file's address space.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u64,
}

/// Finds `symbol` (or `symbol+offset`) in `file`, a path or the name of a library or program.
///
/// # Errors
/// The file or symbol that is missing, and where it was looked up.
pub fn find(file: &str, symbol: &str) -> Result<Function, String> {
    let path = place(file)?;
    let (name, beyond) = match symbol.rsplit_once('+') {
        Some((name, beyond)) => match number(beyond) {
            Some(beyond) => (name, beyond),
            None => (symbol, 0),
        },
        None => (symbol, 0),
    };
    in_file(&path, name, beyond)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns the path of a file: searches libraries like the dynamic loader, then programs.
fn place(file: &str) -> Result<PathBuf, String> {
    let resolved = |path: &Path| fs::canonicalize(path).ok().filter(|p| p.is_file());
    if file.contains('/') {
        return resolved(Path::new(file)).ok_or_else(|| format!("file not found: {file}"));
    }
    let libraries = library_folders();
    let programs = env::var_os("PATH").map(|p| env::split_paths(&p).collect::<Vec<_>>()).unwrap_or_default();
    let exact = libraries.iter().chain(&programs).find_map(|dir| resolved(&dir.join(file)));
    // For example, `libc` for `libc.so.6`.
    let versioned = || {
        let begin = format!("{file}.so");
        libraries.iter().find_map(|dir| {
            let entries = fs::read_dir(dir).ok()?.flatten();
            let mut names: Vec<PathBuf> = entries
                .map(|e| e.path())
                .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&begin)))
                .collect();
            names.sort();
            names.iter().rev().find_map(|p| resolved(p))
        })
    };
    exact.or_else(versioned).ok_or_else(|| format!("library or program {file:?} not found; give its path"))
}

fn library_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("LD_LIBRARY_PATH").map(|p| env::split_paths(&p).collect()).unwrap_or_default();
    let mut files = vec![PathBuf::from("/etc/ld.so.conf")];
    let included = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten().map(|e| e.path());
    files.extend(included.filter(|p| p.extension().is_some_and(|e| e == "conf")));
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        folders.extend(text.lines().map(str::trim).filter(|l| l.starts_with('/')).map(PathBuf::from));
    }
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from));
    folders
}

fn in_file(path: &Path, name: &str, beyond: u64) -> Result<Function, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|e| format!("{shown}: {}", crate::error::plain(&e)))?;
    let head = Head::read(&file).ok_or_else(|| format!("{shown} is not an ELF file"))?;
    // SAFETY: a private read-only mapping of a program or library. If the file is truncated in the meantime,
    // reading raises SIGBUS, for which our own processes map zeros (`sigbus.rs`).
    let map = unsafe { Mmap::map(&file) }.map_err(|e| format!("{shown}: {}", crate::error::plain(&e)))?;
    let elf = ElfFile64::<Endianness>::parse(&map[..]).map_err(|_| format!("{shown} cannot be read"))?;
    let address = find_address(&elf, name).ok_or_else(|| {
        let stripped = if elf.symbols().next().is_none() { "; it is stripped" } else { "" };
        format!("{shown} has no function {name:?}{stripped}")
    })?;
    let address = address.checked_add(beyond).ok_or("the offset is too large")?;
    let inside = head.segments.iter().find(|s| {
        s.kind == PT_LOAD.0
            && s.flags & PF_X.0 != 0
            && address.checked_sub(s.vaddr).is_some_and(|d| d < s.filesz)
    });
    let inside = inside.ok_or_else(|| format!("{name:?} is not in the code of {shown}"))?;
    let offset = address - inside.vaddr + inside.offset;
    Ok(Function { path: path.to_owned(), address, offset })
}

/// Finds a symbol by its raw name, otherwise by its demangled name, with or without parameters.
fn find_address(elf: &ElfFile64<'_, Endianness>, name: &str) -> Option<u64> {
    let code = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown | SymbolKind::Label);
    let all = || {
        let both = elf.symbols().chain(elf.dynamic_symbols());
        both.filter(|s| s.is_definition() && code(s.kind()) && s.address() != 0)
    };
    // In some tables, a version follows an at-sign.
    let exact = all().find(|s| {
        s.name().is_ok_and(|n| n == name || n.strip_prefix(name).is_some_and(|rest| rest.starts_with('@')))
    });
    let read = || {
        all().find(|s| {
            let Ok(raw) = s.name_bytes() else { return false };
            if !raw.starts_with(b"_Z") && !raw.starts_with(b"_R") {
                return false;
            }
            let text = demangle(raw).text;
            text == name || text.split('(').next() == Some(name)
        })
    };
    exact.or_else(read).map(|s| s.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_functions_are_found_by_name_and_offset() {
        let exe = env::current_exe().unwrap();
        let path = exe.to_str().unwrap();
        let main = find(path, "main").unwrap();
        assert!(main.address > 0 && main.path == fs::canonicalize(&exe).unwrap());
        assert_eq!(find(path, "main+0x4").unwrap().offset, main.offset + 4);
        assert!(find(path, "no_such_function").unwrap_err().contains("no_such_function"));
        assert!(find("no-such-library", "x").unwrap_err().contains("no-such-library"));
        assert!(find("/etc/passwd", "x").unwrap_err().contains("ELF"));
    }
}
