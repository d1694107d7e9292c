//! Names of JIT-compiled code, from the files that the program writes: `/tmp/perf-<pid>.map`, jitdump.
//!
//! Both files grow as the program runs. Some programs write them in large blocks (V8: 2 MB), so samples of
//! code without a name wait for more as long as the program lives.
//!
//! A file is read only if it belongs to the process's user. When code is replaced, the results for its
//! addresses are dropped.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

mod dump;
mod perf_map;

use crate::{names::demangle::MAX_NAME, names::images::Images, names::modules::ModuleMap};

/// Limit of names per process, bytes. Later code has no name.
const MAX_BYTES: usize = 48 << 20;
/// Bytes read of one file at a time, so that rings do not wait.
const PIECE: usize = 1 << 20;
/// Limit of blocks read at the end of a process.
const MAX_PIECES: u32 = 128;
/// Shortest and longest time between two checks, ns.
const WAIT_NS: [u64; 2] = [20_000_000, 1_000_000_000];

/// Address and source line, by address.
type Lines = Arc<[(u64, u32)]>;

/// A range of code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Code {
    end: u64,
    name: Arc<str>,
    lines: Lines,
}

/// The known ranges of code by address.
#[derive(Debug, Default)]
struct Codes {
    by_start: BTreeMap<u64, Code>,
    bytes: usize,
    /// Number of ranges that were replaced.
    replaced: u64,
}

impl Codes {
    fn add(&mut self, start: u64, size: u64, name: &str, lines: Lines) {
        let end = start.saturating_add(size);
        let cut = (0..=name.len().min(MAX_NAME)).rev().find(|&i| name.is_char_boundary(i)).unwrap_or(0);
        let name = &name[..cut];
        if name.is_empty() || size == 0 || self.bytes > MAX_BYTES {
            return;
        }
        let old: Vec<u64> =
            self.by_start.range(..end).rev().take_while(|(_, c)| c.end > start).map(|(s, _)| *s).collect();
        if let [one] = old[..]
            && one == start
            && self.by_start.get(&one).is_some_and(|c| c.end == end && *c.name == *name && c.lines == lines)
        {
            return;
        }
        for start in old {
            if let Some(code) = self.by_start.remove(&start) {
                self.bytes -= code.bytes();
                self.replaced += 1;
            }
        }
        let code = Code { end, name: name.into(), lines };
        self.bytes += code.bytes();
        self.by_start.insert(start, code);
    }

    fn find(&self, address: u64) -> Option<(Arc<str>, u32)> {
        let (_, code) = self.by_start.range(..=address).next_back().filter(|(_, c)| address < c.end)?;
        let line = match code.lines.partition_point(|(at, _)| *at <= address) {
            0 => 0,
            n => code.lines.get(n - 1).map_or(0, |(_, line)| *line),
        };
        Some((code.name.clone(), line))
    }
}

impl Code {
    fn bytes(&self) -> usize {
        self.name.len() + self.lines.len() * 16 + 96
    }
}

/// A parser of a growing file.
trait Grown {
    /// Reads another block; returns false if there was nothing new.
    fn read(&mut self, file: &File, codes: &mut Codes) -> bool;
}

/// The symbol of an address in anonymous memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JitSymbol {
    /// Name, and line or 0.
    Named(Arc<str>, u32),
    /// No name, and none is expected.
    Nameless,
    /// No name yet.
    NotYet,
}

/// Names of JIT-compiled code of one process.
#[derive(Default)]
pub struct Jit {
    codes: Codes,
    map: Option<(File, perf_map::Reader)>,
    dumps: Vec<(PathBuf, File, dump::Reader)>,
    checked_ns: u64,
    wait_ns: u64,
    /// An address without a name was looked up.
    missed: bool,
    /// No more names will come.
    over: bool,
    /// Version of the module map that was searched for jitdump files.
    searched: u64,
    /// Root directory of the process's files, and its PID in its own namespace.
    place: Option<(PathBuf, u32)>,
    /// Incremented when an address may have changed its meaning.
    pub version: u64,
}

impl Jit {
    /// Returns the symbol at `address`.
    pub fn find(&mut self, address: u64) -> JitSymbol {
        match self.codes.find(address) {
            Some((name, line)) => JitSymbol::Named(name, line),
            None if self.over => JitSymbol::Nameless,
            None => {
                self.missed = true;
                let more = self.checked_ns == 0 || self.map.is_some() || !self.dumps.is_empty();
                if more { JitSymbol::NotYet } else { JitSymbol::Nameless }
            }
        }
    }

    /// Checks whether process `pid` has written more; returns true if so. Does nothing before the first
    /// lookup without a result. After it, known addresses may get another name at any time.
    pub fn look(&mut self, pid: u32, modules: &ModuleMap, images: &Images, now_ns: u64) -> bool {
        let open = self.map.is_some() || !self.dumps.is_empty();
        if !(self.missed || open) || now_ns.saturating_sub(self.checked_ns) < self.wait_ns {
            return false;
        }
        // Samples that waited for the first check need not wait any longer if there are no files.
        let first = self.checked_ns == 0;
        let more = self.read(pid, modules, images);
        self.checked_ns = now_ns.max(1);
        self.wait_ns = match more || open {
            true => WAIT_NS[0],
            false => (self.wait_ns * 2).clamp(WAIT_NS[0], WAIT_NS[1]),
        };
        self.missed &= !more;
        more || first
    }

    /// Reads the rest after the end of the process.
    pub fn finish(&mut self, pid: u32, modules: &ModuleMap, images: &Images) {
        for _ in 0..MAX_PIECES {
            if self.over || !self.missed || !self.read(pid, modules, images) {
                break;
            }
        }
        self.over = true;
        self.map = None;
        self.dumps.clear();
    }

    /// Stops waiting for names.
    pub fn give_up(&mut self) {
        self.over = true;
    }

    fn read(&mut self, pid: u32, modules: &ModuleMap, images: &Images) -> bool {
        if self.place.is_none() {
            self.place = place(pid);
        }
        let Some((root, own_pid)) = &self.place else { return false };
        let owner = fs::metadata(format!("/proc/{pid}")).map(|m| m.uid()).ok();
        let before = (self.codes.replaced, self.map.is_some() || !self.dumps.is_empty());
        if self.map.is_none() {
            let map = open(&inside(root, Path::new(&format!("/tmp/perf-{own_pid}.map"))), owner);
            self.map = map.map(|file| (file, perf_map::Reader::default()));
        }
        if self.searched != modules.version {
            self.searched = modules.version;
            for path in modules.current().iter().map(|m| &images.get(m.image).path) {
                if is_dump(path)
                    && !self.dumps.iter().any(|(known, ..)| known == path)
                    && let Some(file) = open(&inside(root, path), owner)
                {
                    self.dumps.push((path.clone(), file, dump::Reader::default()));
                }
            }
        }
        let mut more = false;
        if let Some((file, reader)) = &mut self.map {
            more |= reader.read(file, &mut self.codes);
        }
        for (_, file, reader) in &mut self.dumps {
            more |= reader.read(file, &mut self.codes);
        }
        let after = (self.codes.replaced, self.map.is_some() || !self.dumps.is_empty());
        // Addresses without a name may now wait for one, or addresses may contain other code.
        if after != before {
            self.version += 1;
        }
        more
    }
}

/// Returns the root directory of process `pid`, and its PID there.
fn place(pid: u32) -> Option<(PathBuf, u32)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|l| l.strip_prefix("NStgid:"));
    let own = numbers.and_then(|n| n.split_whitespace().last()?.parse().ok()).unwrap_or(pid);
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    // The link disappears with the process; its files may not.
    let real = fs::read_link(&root).ok().filter(|real| real == Path::new("/") && same_root(&root));
    Some((real.unwrap_or(root), own))
}

fn same_root(root: &Path) -> bool {
    let id = |p: &Path| fs::metadata(p).map(|m| (m.dev(), m.ino())).ok();
    id(root).is_some() && id(root) == id(Path::new("/"))
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Opens a regular file owned by the process's user or root, without blocking.
fn open(path: &Path, owner: Option<u32>) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    let ours = meta.uid() == 0 || owner.is_none_or(|o| o == meta.uid());
    (meta.is_file() && ours).then_some(file)
}

/// Returns true for `jit-<pid>.dump`, which its writer maps executable so that tools find it.
fn is_dump(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let number = name.strip_prefix("jit-").and_then(|n| n.strip_suffix(".dump"));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_code_replaces_overlapping_code() {
        let mut codes = Codes::default();
        let none: Lines = Arc::new([]);
        for (start, size, name) in [(0x100, 0x10, "a"), (0x110, 0x10, "b"), (0x120, 0x10, "c")] {
            codes.add(start, size, name, none.clone());
        }
        let name = |codes: &Codes, at| codes.find(at).map(|(n, _)| n.to_string());
        assert_eq!(name(&codes, 0x10f).as_deref(), Some("a"));
        assert_eq!(codes.replaced, 0);
        codes.add(0x110, 0x10, "b", none.clone());
        assert_eq!(codes.replaced, 0, "the same again");
        codes.add(0x10f, 0x12, "d", none.clone());
        assert_eq!(codes.replaced, 3);
        assert_eq!(name(&codes, 0x100), None);
        assert_eq!(name(&codes, 0x120).as_deref(), Some("d"));
        assert_eq!(name(&codes, 0x121), None);
        codes.add(u64::MAX - 1, u64::MAX, "end", none);
        assert_eq!(name(&codes, u64::MAX - 1).as_deref(), Some("end"));
    }

    #[test]
    fn lines_are_found_by_address() {
        let mut codes = Codes::default();
        codes.add(0x100, 0x10, "f", Arc::new([(0x102, 7), (0x108, 9)]));
        let line = |at| codes.find(at).unwrap().1;
        assert_eq!([line(0x100), line(0x102), line(0x107), line(0x10f)], [0, 7, 7, 9]);
    }

    #[test]
    fn code_memory_is_bounded() {
        let mut codes = Codes::default();
        let long = "x".repeat(2 * MAX_NAME);
        for i in 0..20_000 {
            codes.add(i * 16, 16, &long, Arc::new([]));
        }
        assert!(codes.bytes < MAX_BYTES + 2 * MAX_NAME);
        assert_eq!(codes.find(0).unwrap().0.len(), MAX_NAME);
    }

    #[test]
    fn dump_file_names_are_recognized() {
        assert!(is_dump(Path::new("/tmp/.debug/jit/x/jit-123.dump")));
        assert!(!is_dump(Path::new("/tmp/jit-.dump")) && !is_dump(Path::new("/tmp/jit-1x.dump")));
    }
}
