//! One thread-local word, reached by two instructions in the initial-exec model: never through `__tls_get_addr`,
//! which may call `malloc` on a thread's first touch. It works in an executable (the linker relaxes the access) and in
//! a preloaded object. The word is zero in a new thread.

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .tbss.flightline_slot,\"awT\",@nobits",
    ".p2align 3",
    ".hidden flightline_slot",
    ".globl flightline_slot",
    ".type flightline_slot, @object",
    ".size flightline_slot, 8",
    "flightline_slot: .zero 8",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .tbss.flightline_slot,\"awT\",%nobits",
    ".p2align 3",
    ".hidden flightline_slot",
    ".globl flightline_slot",
    ".type flightline_slot, %object",
    ".size flightline_slot, 8",
    "flightline_slot: .zero 8",
    ".popsection",
);

/// The calling thread's word.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn get() -> usize {
    let value: usize;
    // SAFETY: reads this thread's own word; the offset comes from the GOT entry the linker made for it.
    unsafe {
        core::arch::asm!(
            "mov {v}, qword ptr [rip + flightline_slot@GOTTPOFF]",
            "mov {v}, qword ptr fs:[{v}]",
            v = out(reg) value, options(nostack, readonly, preserves_flags));
    }
    value
}

/// Sets the calling thread's word.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn set(value: usize) {
    // SAFETY: writes this thread's own word.
    unsafe {
        core::arch::asm!(
            "mov {o}, qword ptr [rip + flightline_slot@GOTTPOFF]",
            "mov qword ptr fs:[{o}], {v}",
            o = out(reg) _, v = in(reg) value, options(nostack, preserves_flags));
    }
}

/// The calling thread's word.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn get() -> usize {
    let value: usize;
    // SAFETY: reads this thread's own word; the offset comes from the GOT entry the linker made for it.
    unsafe {
        core::arch::asm!(
            "adrp {v}, :gottprel:flightline_slot",
            "ldr {v}, [{v}, #:gottprel_lo12:flightline_slot]",
            "mrs {t}, tpidr_el0",
            "ldr {v}, [{t}, {v}]",
            v = out(reg) value, t = out(reg) _, options(nostack, readonly, preserves_flags));
    }
    value
}

/// Sets the calling thread's word.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn set(value: usize) {
    // SAFETY: writes this thread's own word.
    unsafe {
        core::arch::asm!(
            "adrp {o}, :gottprel:flightline_slot",
            "ldr {o}, [{o}, #:gottprel_lo12:flightline_slot]",
            "mrs {t}, tpidr_el0",
            "str {v}, [{t}, {o}]",
            o = out(reg) _, t = out(reg) _, v = in(reg) value, options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    #[test]
    fn one_word_per_thread() {
        assert_eq!(super::get(), 0);
        super::set(7);
        std::thread::spawn(|| {
            assert_eq!(super::get(), 0);
            super::set(9);
            assert_eq!(super::get(), 9);
        })
        .join()
        .unwrap();
        assert_eq!(super::get(), 7);
        super::set(0);
    }
}
