//! Names of kernel functions, one at a time, from the kernel itself.
//!
//! `/proc/kallsyms` has them all, and the kernel takes 35 to 70 ms of CPU time to write it. A program in its own machine (eBPF,
//! `BPF_PROG_TYPE_SYSCALL`, Linux 5.14) prints one address with `%pS` in 2 µs: `bpf_snprintf` writes into memory that is mapped here.
//! Three calls, so no library for it.
//!
//! Only with CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and only where no seccomp filter is: one may end a process that asks.

use std::{
    fs, io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use memmap2::{MmapOptions, MmapRaw};

/// What a name may take with offset, size and module; the kernel's own bound is 512 for the name alone.
const TEXT: usize = 1024 - size_of::<u64>();
/// The memory that is shared: an address, then the text for it.
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

/// A prefix of `union bpf_attr` of eight-byte words; what is behind it is zero for the kernel.
type Attr = [u64; 14];

/// Two halves of a word, the first in memory first.
const fn pair(first: u32, second: u32) -> u64 {
    first as u64 | (second as u64) << 32
}

/// # Safety
/// Pointers in `attr` must be good for what the command does with them.
unsafe fn bpf(command: i32, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: `attr` is as long as it is said to be; what it points to is the caller's business.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of::<Attr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// # Safety
/// As of [`bpf`]; the command must answer with a new descriptor.
unsafe fn bpf_fd(command: i32, attr: &mut Attr) -> io::Result<OwnedFd> {
    // SAFETY: by the caller; nobody else has this descriptor. The kernel makes it close-on-exec.
    unsafe { bpf(command, attr).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// An array of one value.
fn array(bytes: usize, flags: u32) -> io::Result<OwnedFd> {
    // map_type, key_size, value_size, max_entries, map_flags
    let mut attr: Attr = [0; 14];
    attr[..3].copy_from_slice(&[pair(ARRAY, 4), pair(bytes as u32, 1), pair(flags, 0)]);
    // SAFETY: no pointers; answers with a descriptor.
    unsafe { bpf_fd(MAP_CREATE, &mut attr) }
}

/// A BPF program that asks the kernel for names.
pub struct BpfSymbolizer {
    shared: MmapRaw,
    program: OwnedFd,
}

impl BpfSymbolizer {
    /// `None` where that is not permitted, not known to the kernel, or not to be tried.
    pub fn new() -> Option<BpfSymbolizer> {
        may(&fs::read_to_string("/proc/thread-self/status").ok()?).then(BpfSymbolizer::load)?.ok()
    }

    fn load() -> io::Result<BpfSymbolizer> {
        // The verifier wants the format in memory that nobody can change any more.
        let (format, key) = (array(8, RDONLY_PROG)?, 0u32);
        let value = *b"%pS\0\0\0\0\0";
        let mut attr: Attr = [0; 14];
        attr[..3].copy_from_slice(&[
            format.as_raw_fd() as u64,
            (&raw const key).expose_provenance() as u64,
            value.as_ptr().expose_provenance() as u64,
        ]);
        // SAFETY: four bytes of key and eight of value are read, which both outlive the call.
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
        // snprintf(r1 text, r2 its bytes, r3 format, r4 arguments, r5 their bytes): r4 is the shared memory, the text 8 behind.
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
        // SAFETY: so many instructions and a text that ends are read, which both outlive the call; answers with a descriptor. The
        // program keeps both maps alive.
        let program = unsafe { bpf_fd(PROG_LOAD, &mut attr)? };
        Ok(BpfSymbolizer { shared, program })
    }

    /// What the kernel calls an address: `name+0x10/0x20`, with ` [module]` behind; digits where it has no name for it.
    pub fn text(&mut self, address: u64) -> io::Result<String> {
        let at = self.shared.as_mut_ptr();
        // SAFETY: the mapping is as long, begins at a page, and only this thread and the program, run below by this call, use it.
        unsafe { at.cast::<u64>().write_volatile(address) };
        let mut attr: Attr = [0; 14];
        attr[0] = pair(self.program.as_raw_fd() as u32, 0);
        // SAFETY: no pointers: a program of this type needs no context.
        unsafe { bpf(TEST_RUN, &mut attr)? };
        let mut text = [0; TEXT];
        // SAFETY: as above; the text is behind the address, and the program has ended.
        unsafe { at.add(size_of::<u64>()).copy_to_nonoverlapping(text.as_mut_ptr(), TEXT) };
        let end = text.iter().position(|b| *b == 0).unwrap_or(TEXT);
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }
}

/// Whether a thread of this `/proc/PID/status` may ask, and is not watched by a filter that may end it for that.
fn may(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let effective = field("CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    let (admin, perfmon, bpf) = (has(21), has(38), has(39));
    field("Seccomp:") == Some("0") && (admin || perfmon && bpf)
}

/// The parts of such a text: name, distance of the address from the function's start, module.
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
    fn kernel_texts_are_parsed() {
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
        // A filter may end who asks.
        assert!(!may(&status(u64::MAX, 2)) && !may(&status(u64::MAX, 1)));
        assert!(!may("CapEff:\tffffffffffffffff\n") && !may("Seccomp:\t0\n") && !may(""));
    }
}
