//! Names of kernel functions, one at a time, from the kernel itself.
//!
//! `/proc/kallsyms` has all names, but the kernel takes 35 to 70 ms of CPU time to write it. An eBPF program
//! (`BPF_PROG_TYPE_SYSCALL`, Linux 5.14) prints one address with `%pS` in 2 µs: `bpf_snprintf` writes into
//! memory that is mapped here. This needs only three system calls, so no library is used.
//!
//! Requires CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN). It is not tried under a seccomp filter, because a
//! filter may kill a process that calls `bpf`.

use std::{
    fs, io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use memmap2::{MmapOptions, MmapRaw};

/// Limit of a name with offset, size and module. The kernel's own limit for the name alone is 512.
const TEXT: usize = 1024 - size_of::<u64>();
/// Size of the shared memory: an address, then its text.
const SHARED: usize = size_of::<u64>() + TEXT;

// linux/bpf.h
const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROG_LOAD: i32 = 5;
const TEST_RUN: i32 = 10;
const MAP_FREEZE: i32 = 22;
const ARRAY: u32 = 2;
const RDONLY_PROG: u32 = 1 << 7;
const MMAPABLE: u32 = 1 << 10;
const SYSCALL: u32 = 31;
const SLEEPABLE: u32 = 1 << 4;
const PSEUDO_MAP_VALUE: u8 = 2;
const SNPRINTF: i32 = 165;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Insn {
    code: u8,
    /// Destination in the low four bits, source in the high ones.
    registers: u8,
    off: i16,
    imm: i32,
}

impl Insn {
    const fn new(code: u8, dst: u8, src: u8, imm: i32) -> Insn {
        Insn { code, registers: dst | src << 4, off: 0, imm }
    }
}

/// A prefix of `union bpf_attr` as eight-byte words. The kernel treats the rest as zero.
type Attr = [u64; 14];

/// Combines two halves of a word, the first at the lower address.
const fn pair(first: u32, second: u32) -> u64 {
    first as u64 | (second as u64) << 32
}

/// # Safety
/// Pointers in `attr` must be valid for the command.
unsafe fn bpf(command: i32, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: `attr` is as long as the given size; the caller guarantees its pointers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of::<Attr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// # Safety
/// As for [`bpf`]; the command must return a new descriptor.
unsafe fn bpf_fd(command: i32, attr: &mut Attr) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller; the descriptor has no other owner. The kernel sets close-on-exec.
    unsafe { bpf(command, attr).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Creates an array map with one value.
fn array(bytes: usize, flags: u32) -> io::Result<OwnedFd> {
    // map_type, key_size, value_size, max_entries, map_flags
    let mut attr: Attr = [0; 14];
    attr[..3].copy_from_slice(&[pair(ARRAY, 4), pair(bytes as u32, 1), pair(flags, 0)]);
    // SAFETY: no pointers; returns a descriptor.
    unsafe { bpf_fd(MAP_CREATE, &mut attr) }
}

/// A BPF program that returns kernel symbols.
pub struct BpfSymbolizer {
    shared: MmapRaw,
    program: OwnedFd,
}

impl BpfSymbolizer {
    /// Returns `None` if it is not permitted, not supported by the kernel, or must not be tried.
    pub fn new() -> Option<BpfSymbolizer> {
        may(&fs::read_to_string("/proc/thread-self/status").ok()?).then(BpfSymbolizer::load)?.ok()
    }

    fn load() -> io::Result<BpfSymbolizer> {
        // The verifier requires the format in a frozen map.
        let (format, key) = (array(8, RDONLY_PROG)?, 0u32);
        let value = *b"%pS\0\0\0\0\0";
        let mut attr: Attr = [0; 14];
        attr[..3].copy_from_slice(&[
            format.as_raw_fd() as u64,
            (&raw const key).expose_provenance() as u64,
            value.as_ptr().expose_provenance() as u64,
        ]);
        // SAFETY: the kernel reads four bytes of key and eight of value, which both outlive the call.
        unsafe { bpf(MAP_UPDATE, &mut attr)? };
        let mut attr: Attr = [0; 14];
        attr[0] = format.as_raw_fd() as u64;
        // SAFETY: no pointers.
        unsafe { bpf(MAP_FREEZE, &mut attr)? };

        let memory = array(SHARED, MMAPABLE)?;
        let shared = MmapOptions::new().len(SHARED).map_raw(&memory)?;
        let value_of = |register, fd: &OwnedFd| {
            // ld_imm64: two instructions.
            [Insn::new(0x18, register, PSEUDO_MAP_VALUE, fd.as_raw_fd()), Insn::default()]
        };
        // snprintf(r1 text, r2 its size, r3 format, r4 arguments, r5 their size): r4 is the shared memory,
        // with the text at offset 8.
        let mut code = Vec::with_capacity(10);
        code.extend(value_of(4, &memory));
        code.push(Insn::new(0xbf, 1, 4, 0));
        code.push(Insn::new(0x07, 1, 0, size_of::<u64>() as i32));
        code.push(Insn::new(0xb7, 2, 0, TEXT as i32));
        code.extend(value_of(3, &format));
        code.push(Insn::new(0xb7, 5, 0, size_of::<u64>() as i32));
        code.push(Insn::new(0x85, 0, 0, SNPRINTF));
        code.push(Insn::new(0x95, 0, 0, 0));
        let licence = c"Dual MIT/GPL";
        // prog_type, insn_cnt; insns; license; log_level, log_size; log_buf; kern_version, prog_flags
        let mut attr: Attr = [0; 14];
        attr[0] = pair(SYSCALL, code.len() as u32);
        attr[1] = code.as_ptr().expose_provenance() as u64;
        attr[2] = licence.as_ptr().expose_provenance() as u64;
        attr[5] = pair(0, SLEEPABLE);
        // SAFETY: the kernel reads as many instructions as given and a terminated string, which both outlive
        // the call; it returns a descriptor. The program keeps both maps alive.
        let program = unsafe { bpf_fd(PROG_LOAD, &mut attr)? };
        Ok(BpfSymbolizer { shared, program })
    }

    /// Returns the kernel's text for an address: `name+0x10/0x20`, followed by ` [module]`; digits if it has
    /// no name.
    pub fn text(&mut self, address: u64) -> io::Result<String> {
        let at = self.shared.as_mut_ptr();
        // SAFETY: the mapping is long enough and page aligned; only this thread and the program, which this
        // call runs below, use it.
        unsafe { at.cast::<u64>().write_volatile(address) };
        let mut attr: Attr = [0; 14];
        attr[0] = pair(self.program.as_raw_fd() as u32, 0);
        // SAFETY: no pointers: a program of this type needs no context.
        unsafe { bpf(TEST_RUN, &mut attr)? };
        let mut text = [0; TEXT];
        // SAFETY: as above; the text follows the address, and the program has ended.
        unsafe { at.add(size_of::<u64>()).copy_to_nonoverlapping(text.as_mut_ptr(), TEXT) };
        let end = text.iter().position(|b| *b == 0).unwrap_or(TEXT);
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }
}

/// Returns true if a thread with this `/proc/PID/status` has the capabilities, and no seccomp filter.
fn may(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let effective = field("CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    let (admin, perfmon, bpf) = (has(21), has(38), has(39));
    field("Seccomp:") == Some("0") && (admin || perfmon && bpf)
}

/// Splits such a text into name, offset of the address in the function, and module.
pub fn parts(text: &str) -> Option<(&str, u64, Option<&str>)> {
    let (symbol, module) = match text.split_once(" [") {
        Some((symbol, module)) => (symbol, Some(module.trim_end_matches(']'))),
        None => (text, None),
    };
    let (name, place) = symbol.rsplit_once('+')?;
    let (offset, _) = place.split_once('/')?;
    let offset = u64::from_str_radix(offset.strip_prefix("0x")?, 16).ok()?;
    (!name.is_empty()).then_some((name, offset, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_symbol_texts_are_parsed() {
        assert_eq!(parts("do_syscall_64+0x10/0x80"), Some(("do_syscall_64", 0x10, None)));
        assert_eq!(parts("probe+0x4/0x20 [nf_tables]"), Some(("probe", 4, Some("nf_tables"))));
        assert_eq!(parts("a.cold+b+0x0/0x1"), Some(("a.cold+b", 0, None)));
        for nothing in
            ["0xffffffff81000000", "", "x", "+0x1/0x2", "x+1/2", "x+0x1", "x+0xz/0x1", "[m]", " [m]"]
        {
            assert_eq!(parts(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn required_capabilities_are_checked() {
        let status = |caps: u64, seccomp: u32| {
            format!("Name:\tx\nCapEff:\t{caps:016x}\nSeccomp:\t{seccomp}\nSeccomp_filters:\t0\n")
        };
        assert!(may(&status(1 << 21, 0)) && may(&status(1 << 38 | 1 << 39, 0)));
        assert!(!may(&status(1 << 38, 0)) && !may(&status(1 << 39, 0)) && !may(&status(0, 0)));
        // A seccomp filter may kill the caller.
        assert!(!may(&status(u64::MAX, 2)) && !may(&status(u64::MAX, 1)));
        assert!(!may("CapEff:\tffffffffffffffff\n") && !may("Seccomp:\t0\n") && !may(""));
    }
}
