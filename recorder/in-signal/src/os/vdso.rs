//! Finds one function of the vDSO by name, from the ELF header whose address the auxiliary vector gives. Runs
//! once at start, outside handlers. Reads only memory that belongs to the image according to its header.

#[inline]
unsafe fn load<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: callers stay inside the image that the kernel mapped.
    unsafe { base.add(offset).cast::<T>().read_unaligned() }
}

/// Returns the address of `clock_gettime` in the vDSO at `image`, 0 if there is none.
///
/// # Safety
/// `image` is null or the value of `AT_SYSINFO_EHDR`.
pub unsafe fn clock_gettime(image: *const u8) -> usize {
    #[cfg(target_arch = "x86_64")]
    const NAME: &[u8] = b"__vdso_clock_gettime\0";
    #[cfg(target_arch = "aarch64")]
    const NAME: &[u8] = b"__kernel_clock_gettime\0";
    if image.is_null() {
        return 0;
    }
    // SAFETY: the caller guarantees that `image` is null, or the vDSO's ELF image that the kernel mapped.
    unsafe { find(image, NAME) }.unwrap_or(0)
}

/// # Safety
/// `image` is the start of a mapped, well-formed ELF image.
unsafe fn find(image: *const u8, name: &[u8]) -> Option<usize> {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    // SAFETY: offsets of Elf64_Ehdr.
    let (phoff, phnum) = unsafe { (load::<u64>(image, 32) as usize, load::<u16>(image, 56) as usize) };
    let mut bias = None;
    let mut dynamic = None;
    for i in 0..phnum.min(16) {
        let at = phoff.checked_add(i.checked_mul(56)?)?;
        // SAFETY: offsets of Elf64_Phdr.
        let (kind, offset, vaddr) = unsafe {
            (
                load::<u32>(image, at),
                load::<u64>(image, at + 8) as usize,
                load::<u64>(image, at + 16) as usize,
            )
        };
        match kind {
            PT_LOAD if bias.is_none() => {
                bias = Some((image as usize).wrapping_add(offset).wrapping_sub(vaddr));
            }
            PT_DYNAMIC => dynamic = Some(offset),
            _ => {}
        }
    }
    let (bias, dynamic) = (bias?, dynamic?);
    let (mut strings, mut symbols, mut hash) = (0usize, 0usize, 0usize);
    for i in 0..64 {
        // SAFETY: Elf64_Dyn entries up to the null one.
        let (tag, value) = unsafe {
            (load::<i64>(image, dynamic + i * 16), load::<u64>(image, dynamic + i * 16 + 8) as usize)
        };
        match tag {
            0 => break,
            4 => hash = value,
            5 => strings = value,
            6 => symbols = value,
            _ => {}
        }
    }
    if strings == 0 || symbols == 0 {
        return None;
    }
    // Without DT_HASH the number of symbols is unknown; the string table follows the symbols in every vDSO.
    let count = if hash != 0 {
        // SAFETY: word 1 of DT_HASH is the number of symbols.
        (unsafe { load::<u32>(bias.wrapping_add(hash) as *const u8, 4) }) as usize
    } else {
        strings.checked_sub(symbols)? / 24
    };
    let (strings, symbols) =
        (bias.wrapping_add(strings) as *const u8, bias.wrapping_add(symbols) as *const u8);
    for i in 0..count.min(64) {
        // SAFETY: offsets of Elf64_Sym.
        let (label, value) =
            unsafe { (load::<u32>(symbols, i * 24) as usize, load::<u64>(symbols, i * 24 + 8) as usize) };
        // SAFETY: names are NUL terminated; the comparison stops at the first difference.
        let same =
            name.iter().enumerate().all(|(n, byte)| unsafe { load::<u8>(strings, label + n) } == *byte);
        if same && value != 0 {
            return Some(bias.wrapping_add(value));
        }
    }
    None
}
