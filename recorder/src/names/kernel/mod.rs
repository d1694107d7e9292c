//! Names of kernel functions: one at a time where that is permitted (`bpf_symbolizer.rs`), otherwise from
//! `/proc/kallsyms`.
//!
//! The list is read once, by a thread with low priority, and only when a stack has a kernel frame. If the
//! kernel hides its addresses (`kernel.kptr_restrict`), all its frames are the same.

mod bpf_symbolizer;

use std::{
    fs::File,
    io::{BufRead, BufReader},
    sync::Arc,
    thread,
};

use crossbeam_channel::{Receiver, TryRecvError, bounded};
use jfr_format::schema::frame_type;

use crate::{
    names::frames::Resolved,
    names::images::{ImageId, Images},
    names::intern::{Frame, FrameIndex, Interner, Origin},
    names::kernel::bpf_symbolizer::BpfSymbolizer,
};

/// Class of functions that belong to no kernel module.
const CLASS: &str = "kernel";
/// Name of a frame whose function is unknown.
const UNKNOWN: &str = "[kernel]";
/// Limit of functions.
const MOST: usize = 1 << 20;

/// A kernel function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its first address; 0 if unknown.
    pub start: u64,
    /// Index of its module; 0 is the kernel itself.
    pub module: u32,
    /// The module's name.
    pub class: Arc<str>,
    /// Its name.
    pub name: String,
}

#[derive(Default)]
struct Table {
    /// Address, start of the name in the text, module; sorted by address.
    functions: Vec<(u64, u32, u16)>,
    names: String,
    modules: Vec<Arc<str>>,
}

enum State {
    /// No name has been requested yet.
    Unread,
    Bpf(BpfSymbolizer),
    Reading(Receiver<Table>),
    Read(Table),
}

/// The kernel's functions.
pub struct Kernel {
    state: State,
    /// Names of modules by index, the kernel itself first.
    modules: Vec<Arc<str>>,
}

/// Returns true if an address is in the kernel's half of the address space.
pub fn is_kernel(address: u64) -> bool {
    flightline_in_signal::perf::perf_ring::is_kernel(address)
}

impl Kernel {
    /// Returns the symbols before anything is requested or read.
    pub fn new() -> Kernel {
        Kernel { state: State::Unread, modules: vec![Arc::from(CLASS)] }
    }

    /// Returns the function that contains `address`; `None` while the list of all names is being read, which
    /// the first call starts if the BPF program is not available.
    pub fn function(&mut self, address: u64) -> Option<Function> {
        self.take_read();
        if let State::Unread = self.state {
            match BpfSymbolizer::new() {
                Some(symbolizer) => self.state = State::Bpf(symbolizer),
                None => self.begin(),
            }
        }
        if let State::Bpf(symbolizer) = &mut self.state {
            match symbolizer.text(address) {
                Ok(text) => return Some(self.function_from_text(address, &text)),
                Err(_) => self.begin(),
            }
        }
        match &self.state {
            State::Read(table) => Some(table.find(address)),
            _ => None,
        }
    }

    /// Returns the function that contains `address`, with the names known now.
    pub fn function_now(&self, address: u64) -> Function {
        match &self.state {
            State::Read(table) => table.find(address),
            _ => Function::unknown(),
        }
    }

    fn function_from_text(&mut self, address: u64, text: &str) -> Function {
        let Some((name, offset, module)) = bpf_symbolizer::parts(text) else { return Function::unknown() };
        let module = module.map_or(0, |name| number(&mut self.modules, name));
        Function {
            start: address.wrapping_sub(offset),
            module: u32::from(module),
            class: self.modules.get(usize::from(module)).cloned().unwrap_or_else(|| Arc::from(CLASS)),
            name: name.to_owned(),
        }
    }

    fn begin(&mut self) {
        let (answer, table) = bounded(1);
        let reading = thread::Builder::new().name("fl-kernel".into()).spawn(move || {
            crate::names::reader::lower_priority();
            let _ = answer.send(
                File::open("/proc/kallsyms")
                    .map_or_else(|_| Table::default(), |file| Table::parse(BufReader::new(file))),
            );
        });
        self.state = match reading {
            Ok(_) => State::Reading(table),
            Err(_) => State::Read(Table::default()),
        };
    }

    /// Takes the list if it has been read. Returns true if that changed anything.
    pub fn take_read(&mut self) -> bool {
        let State::Reading(answer) = &self.state else { return false };
        match answer.try_recv() {
            Ok(table) => self.state = State::Read(table),
            Err(TryRecvError::Disconnected) => self.state = State::Read(Table::default()),
            Err(TryRecvError::Empty) => return false,
        }
        true
    }

    /// Returns true while the list is being read.
    pub fn reading(&self) -> bool {
        matches!(self.state, State::Reading(_))
    }
}

impl Function {
    fn unknown() -> Function {
        Function { start: 0, module: 0, class: Arc::from(CLASS), name: UNKNOWN.into() }
    }
}

/// Returns the index of a module by its name.
fn number(modules: &mut Vec<Arc<str>>, name: &str) -> u16 {
    // Lines of one module are adjacent.
    if let Some(at) = modules.iter().rposition(|m| &**m == name) {
        return at as u16;
    }
    if modules.len() >= usize::from(u16::MAX) {
        return 0;
    }
    modules.push(Arc::from(name));
    (modules.len() - 1) as u16
}

impl Table {
    /// `ffffffff81000000 T _stext`, `ffffffffc0000000 t name [module]`.
    fn parse(text: impl BufRead) -> Table {
        let mut table = Table { modules: vec![Arc::from(CLASS)], ..Table::default() };
        for line in text.lines().map_while(Result::ok) {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if !is_kernel(address) || !matches!(kind, "t" | "T" | "w" | "W") || table.functions.len() >= MOST
            {
                continue;
            }
            let module = words.next().map_or(0, |m| number(&mut table.modules, m.trim_matches(['[', ']'])));
            let at = table.names.len() as u32;
            table.names.push_str(name);
            table.names.push('\n');
            table.functions.push((address, at, module));
        }
        // Stable, so that of several names the first one remains, which is more general.
        table.functions.sort_by_key(|f| f.0);
        table.functions.dedup_by_key(|f| f.0);
        table.functions.shrink_to_fit();
        table
    }

    fn find(&self, address: u64) -> Function {
        let after = self.functions.partition_point(|f| f.0 <= address);
        let found = after.checked_sub(1).and_then(|at| self.functions.get(at));
        let Some(&(start, at, module)) = found else {
            return Function::unknown();
        };
        let name = self.names.get(at as usize..).and_then(|rest| rest.split('\n').next()).unwrap_or(UNKNOWN);
        let class = self.modules.get(usize::from(module)).cloned().unwrap_or_else(|| Arc::from(CLASS));
        Function { start, module: u32::from(module), class, name: name.to_owned() }
    }
}

/// First image key of the kernel and its modules: above all files, below
/// [`UNKNOWN`](crate::names::images::UNKNOWN).
const KERNEL: ImageId = 0xffff_0000;

/// Adds the frame of a kernel address to `stack`.
pub fn frame(
    address: u64,
    interner: &mut Interner,
    images: &mut Images,
    anyway: bool,
    stack: &mut Vec<FrameIndex>,
) -> Resolved {
    let known = images.kernel.function(address);
    if known.is_none() && !anyway {
        return Resolved::Waiting;
    }
    let resolved = if known.is_some() { Resolved::Known } else { Resolved::ForNow };
    let function = known.unwrap_or_else(|| images.kernel.function_now(address));
    let id = KERNEL + function.module;
    let origin = Origin { class: function.class.clone(), ..Origin::default() };
    let method = interner.method(id, function.start, || (origin, function.name.clone()));
    stack.push(interner.frame(Frame { method, line: 0, address: 0, kind: frame_type::KERNEL }));
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kallsyms_lines_are_parsed() {
        let text = "ffffffff81000000 T _stext\nffffffff81000000 T alias\nffffffff81000100 t inner\n\
                    ffffffff81000180 D data\n0000000000001000 A percpu\nffffffffc0000000 t probe\t[nf_tables]\nnonsense\n";
        let table = Table::parse(text.as_bytes());
        let name = |address| {
            let f = table.find(address);
            format!("{}!{}", f.class, f.name)
        };
        assert_eq!(name(0xffff_ffff_8100_0050), "kernel!_stext");
        assert_eq!(name(0xffff_ffff_8100_0190), "kernel!inner");
        assert_eq!(name(0xffff_ffff_c000_0004), "nf_tables!probe");
        assert_eq!(name(0xffff_8000_0000_0000), "kernel![kernel]");
    }

    #[test]
    fn hidden_addresses_map_to_unknown_function() {
        let table = Table::parse("0000000000000000 T _stext\n0000000000000000 T other\n".as_bytes());
        assert_eq!((table.find(0xffff_ffff_8100_0050).name, table.functions.len()), (UNKNOWN.into(), 0));
    }

    #[test]
    fn kernel_symbols_are_read_in_background() {
        let mut kernel = Kernel::new();
        kernel.begin();
        assert_eq!(kernel.function(0xffff_ffff_8100_0000), None);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while kernel.reading() && std::time::Instant::now() < until {
            kernel.take_read();
            thread::yield_now();
        }
        assert!(kernel.function(0xffff_ffff_8100_0000).is_some());
    }

    #[test]
    fn bpf_symbols_match_kallsyms() {
        let list =
            File::open("/proc/kallsyms").map(|file| Table::parse(BufReader::new(file))).unwrap_or_default();
        let mut kernel = Kernel::new();
        let first = list.functions.first().map_or(0xffff_ffff_8100_0000, |f| f.0);
        let asked = kernel.function(first).is_some();
        assert_eq!(
            asked,
            matches!(kernel.state, State::Bpf(_)),
            "either it answers at once, or the list is being read"
        );
        if !asked || list.functions.is_empty() {
            use std::io::Write;
            let _ = writeln!(
                std::io::stderr(),
                "\n*** SKIPPED: the kernel cannot be asked here, or hides its addresses ***\n"
            );
            return;
        }
        // Symbols that the list omits (data, weak and absolute symbols) can be nearer, so names may differ
        // inside a function, but not at its start.
        let some =
            list.functions.iter().step_by(97).filter(|f| !list.modules[usize::from(f.2)].starts_with("bpf"));
        let mut compared = 0;
        for &(start, _, _) in some {
            let (symbol, listed) = (kernel.function(start).unwrap(), list.find(start));
            assert_eq!(
                (symbol.start, symbol.class, symbol.name),
                (listed.start, listed.class, listed.name),
                "{start:x}"
            );
            compared += 1;
        }
        assert!(compared > 100, "{compared}");
        assert_eq!(kernel.function(0xffff_8000_0000_0000).unwrap(), Function::unknown());
    }
}
