//! `operator new` and `delete` of allocators that define their own (jemalloc, mimalloc, tcmalloc).
//!
//! The C++ library's operators call `malloc`, which this object interposes. Those of such an allocator do
//! not. Exporting the operators from this object would be wrong for programs that load a C++ library later
//! and privately. So, if the allocator has its own operators, the relocation entries of loaded objects are
//! changed to functions here that count first. An object that is loaded later calls the allocator's operators
//! directly, so its `new` is not sampled.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, Release};

use flightline_in_signal::layout::alloc_function as function;

use super::{REAL, due, freed, sampled, watched};
use crate::os;

const OPERATORS: usize = 20;
const NEWS: usize = 8;

/// Their names, `new` first.
const NAMES: [&CStr; OPERATORS] = [
    c"_Znwm",
    c"_Znam",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZdlPvm",
    c"_ZdaPvm",
    c"_ZdlPvRKSt9nothrow_t",
    c"_ZdaPvRKSt9nothrow_t",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
    c"_ZdlPvmSt11align_val_t",
    c"_ZdaPvmSt11align_val_t",
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

/// The allocator's operators; 0: it has none with that name.
static OWN: [AtomicUsize; OPERATORS] = [const { AtomicUsize::new(0) }; OPERATORS];

/// Returns the bytes that a sample of this `new` represents, 0 if no sample is due.
extern "C" fn due_by_new(size: usize) -> u64 {
    due(size).unwrap_or(0)
}

extern "C" fn sampled_by_new(address: usize, size: usize, weight: u64) {
    if weight != 0 {
        sampled(address, size, weight, function::NEW);
    }
}

/// `new` number `I`: counts the bytes, and jumps to the allocator's operator. For a sample it calls the
/// operator instead, from a frame through which an exception can be thrown.
#[unsafe(naked)]
unsafe extern "C" fn new<const I: usize>() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rax, qword ptr [rip + flightline_alloc@GOTTPOFF]",
        "sub qword ptr fs:[rax], rdi",
        "jb 2f",
        "jmp qword ptr [rip + {own} + {offset}]",
        "2:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "call {due}",
        "mov rdx, qword ptr [rsp]",
        "mov rsi, qword ptr [rsp + 8]",
        "mov rdi, qword ptr [rsp + 16]",
        // Size, weight and the slot for the address.
        "mov qword ptr [rsp + 8], rax",
        "call qword ptr [rip + {own} + {offset}]",
        "mov qword ptr [rsp], rax",
        "mov rdi, rax",
        "mov rdx, qword ptr [rsp + 8]",
        "mov rsi, qword ptr [rsp + 16]",
        "call {sampled}",
        "mov rax, qword ptr [rsp]",
        "add rsp, 24",
        ".cfi_adjust_cfa_offset -24",
        "ret",
        ".cfi_endproc",
        own = sym OWN,
        offset = const I * 8,
        due = sym due_by_new,
        sampled = sym sampled_by_new,
    )
}

type Delete = unsafe extern "C" fn(usize, usize, usize);

/// `delete` number `I`.
unsafe extern "C" fn delete<const I: usize>(address: usize, a: usize, b: usize) {
    if watched().is_some_and(|set| set.maybe(address)) {
        freed(address);
    }
    let own = OWN.get(I).map_or(0, |own| own.load(Relaxed));
    // SAFETY: this is the allocator's operator; it ignores arguments that it does not have.
    unsafe { core::mem::transmute::<usize, Delete>(own)(address, a, b) }
}

fn hooks() -> [usize; OPERATORS] {
    macro_rules! list {
        ($($new:literal)* ; $($delete:literal)*) => {
            [$(new::<$new> as unsafe extern "C" fn() as usize,)* $(delete::<$delete> as Delete as usize,)*]
        };
    }
    list!(0 1 2 3 4 5 6 7 ; 8 9 10 11 12 13 14 15 16 17 18 19)
}

/// First address of the object that contains an address.
fn containing_object(address: usize) -> Option<usize> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the loader fills the structure.
    let found = unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is valid, and the call filled it.
    found.then(|| unsafe { info.assume_init() }.dli_fbase as usize)
}

/// Changes all loaded objects' entries for the allocator's operators to functions here. Not for handlers.
pub fn watch() {
    let allocator = containing_object(REAL[0].load(Relaxed));
    let libc = containing_object(libc::getenv as unsafe extern "C" fn(*const c_char) -> *mut c_char as usize);
    let own = containing_object(watch as fn() as usize);
    let Some(allocator) = allocator.filter(|object| Some(*object) != libc && Some(*object) != own) else {
        return;
    };
    let mut any = false;
    for (index, (own, name)) in OWN.iter().zip(NAMES).enumerate() {
        // SAFETY: the name is NUL-terminated.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
        if address == 0 || containing_object(address) != Some(allocator) {
            if index == 0 {
                return;
            }
            continue;
        }
        own.store(address, Release);
        any |= index < NEWS;
    }
    if any {
        let mut skip = [allocator, own.unwrap_or(0)];
        // SAFETY: the callback gets exactly this pointer back, during this call only.
        unsafe { libc::dl_iterate_phdr(Some(on_object), (&raw mut skip).cast()) };
    }
}

unsafe extern "C" fn on_object(info: *mut libc::dl_phdr_info, _: usize, skip: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, and the pointer given to it by `watch`.
    let (info, skip) = unsafe { (&*info, &*skip.cast::<[usize; 2]>()) };
    let vdso = os::auxval(libc::AT_SYSINFO_EHDR) as usize;
    let bias = info.dlpi_addr as usize;
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: dlpi_phdr points to dlpi_phnum headers that stay mapped during the callback.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let first = headers.iter().find(|h| h.p_type == libc::PT_LOAD).map(|h| h.p_vaddr as usize & !4095);
    let base = bias.wrapping_add(first.unwrap_or(0));
    if skip.contains(&base) || base == vdso {
        return 0;
    }
    let range =
        |kind| headers.iter().find(|h| h.p_type == kind).map(|h| (h.p_vaddr as usize, h.p_memsz as usize));
    if let Some((dynamic, _)) = range(libc::PT_DYNAMIC) {
        let relro = range(libc::PT_GNU_RELRO).map_or(0..0, |(at, len)| {
            let start = bias.wrapping_add(at);
            start & !4095..start.wrapping_add(len) & !4095
        });
        // SAFETY: a loaded object's own dynamic section.
        unsafe { patch(bias, bias.wrapping_add(dynamic) as *const [usize; 2], &relro) };
    }
    0
}

/// Changes the relocated entries of one object.
///
/// # Safety
/// `dynamic` is the dynamic section of the object loaded with this bias.
unsafe fn patch(bias: usize, mut dynamic: *const [usize; 2], relro: &core::ops::Range<usize>) {
    const NULL: usize = 0;
    const PLTRELSZ: usize = 2;
    const STRTAB: usize = 5;
    const SYMTAB: usize = 6;
    const RELA: usize = 7;
    const RELASZ: usize = 8;
    const JMPREL: usize = 23;
    let mut words = [0usize; 24];
    loop {
        // SAFETY: the section ends with a null entry, which ends the loop.
        let [tag, value] = unsafe { dynamic.read() };
        if tag == NULL {
            break;
        }
        if let Some(word) = words.get_mut(tag) {
            *word = value;
        }
        // SAFETY: the null entry has not been reached yet, so another one follows.
        dynamic = unsafe { dynamic.add(1) };
    }
    // glibc stores relocated addresses there, musl the values of the file.
    let address = |value: usize| if value < bias { bias.wrapping_add(value) } else { value };
    let (names, symbols) = (address(words[STRTAB]), address(words[SYMTAB]));
    if words[STRTAB] == 0 || words[SYMTAB] == 0 {
        return;
    }
    let hooks = hooks();
    for (table, bytes) in [(words[RELA], words[RELASZ]), (words[JMPREL], words[PLTRELSZ])] {
        if table == 0 || bytes == 0 {
            continue;
        }
        // SAFETY: the object's relocations, according to its dynamic section.
        let entries =
            unsafe { core::slice::from_raw_parts(address(table) as *const libc::Elf64_Rela, bytes / 24) };
        for entry in entries {
            const ABSOLUTE: u32 = 1;
            const GLOB_DAT: u32 = 6;
            const JUMP_SLOT: u32 = 7;
            let kind = entry.r_info as u32;
            if !matches!(kind, ABSOLUTE | GLOB_DAT | JUMP_SLOT) || entry.r_addend != 0 {
                continue;
            }
            let symbol = (symbols + (entry.r_info >> 32) as usize * 24) as *const u32;
            // SAFETY: a symbol of the object's table, and its name.
            let name = unsafe { CStr::from_ptr((names + symbol.read() as usize) as *const c_char) };
            if !name.to_bytes().starts_with(b"_Zn") && !name.to_bytes().starts_with(b"_Zd") {
                continue;
            }
            let Some(index) = NAMES.iter().position(|known| *known == name) else { continue };
            let (Some(own), Some(hook)) = (OWN.get(index).map(|own| own.load(Relaxed)), hooks.get(index))
            else {
                continue;
            };
            let slot = bias.wrapping_add(entry.r_offset as usize);
            // SAFETY: a word that the loader relocated.
            let slot_word = unsafe { &*(slot as *const AtomicUsize) };
            let now = slot_word.load(Relaxed);
            // A lazily bound entry points into its own object until its first call.
            let unbound = kind == JUMP_SLOT && containing_object(now) == containing_object(slot);
            if own == 0 || (now != own && !unbound) {
                continue;
            }
            let guarded = relro.contains(&slot);
            if guarded && !protect(slot, libc::PROT_READ | libc::PROT_WRITE) {
                continue;
            }
            slot_word.store(*hook, Release);
            if guarded {
                protect(slot, libc::PROT_READ);
            }
        }
    }
}

fn protect(slot: usize, prot: c_int) -> bool {
    let args = [slot & !4095, 4096, prot as usize, 0, 0, 0];
    // SAFETY: a page of an object's table that the loader made read-only; it is readable at any moment.
    unsafe { os::syscall(libc::SYS_mprotect, args) }.is_ok()
}
