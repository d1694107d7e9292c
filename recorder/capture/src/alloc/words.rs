//! Two thread-local words of the allocation sampler, in the initial-exec model like
//! [`flightline_in_signal::os::tls`]. They are the bytes left until the next sample, and the state of the random
//! numbers (0 in a new thread, before its first draw).

/// Defines the words, with the symbol type in the syntax of this architecture's assembler.
macro_rules! define {
    ($nobits:literal) => {
        core::arch::global_asm!(
            concat!(".pushsection .tbss.flightline_alloc,\"awT\",", $nobits),
            ".p2align 4",
            ".hidden flightline_alloc",
            ".globl flightline_alloc",
            ".type flightline_alloc, @object",
            ".size flightline_alloc, 16",
            "flightline_alloc: .zero 16",
            ".popsection",
        );
    };
}

#[cfg(target_arch = "x86_64")]
define!("@nobits");
#[cfg(target_arch = "aarch64")]
define!("%nobits");

/// Address of the calling thread's words.
pub fn here() -> usize {
    words() as usize
}

#[inline(always)]
fn words() -> *mut [u64; 2] {
    let at: *mut [u64; 2];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes the address of this thread's own words; the offset comes from the GOT entry the linker made.
    unsafe {
        core::arch::asm!(
            "mov {a}, qword ptr fs:[0]",
            "add {a}, qword ptr [rip + flightline_alloc@GOTTPOFF]",
            a = out(reg) at, options(nostack, readonly, pure));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: computes the address of this thread's own words; the offset comes from the GOT entry the linker
    // made.
    unsafe {
        core::arch::asm!(
            "adrp {a}, :gottprel:flightline_alloc",
            "ldr {a}, [{a}, #:gottprel_lo12:flightline_alloc]",
            "mrs {t}, tpidr_el0",
            "add {a}, {a}, {t}",
            a = out(reg) at, t = out(reg) _, options(nostack, readonly, pure, preserves_flags));
    }
    at
}

/// Counts `bytes` down. Returns true if a sample is due, after which [`set_left`] must follow.
#[inline(always)]
pub fn take(bytes: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let due: u8;
        // SAFETY: changes this thread's own word; the offset comes from the GOT entry the linker made for it.
        unsafe {
            core::arch::asm!(
                "mov {o}, qword ptr [rip + flightline_alloc@GOTTPOFF]",
                "sub qword ptr fs:[{o}], {b}",
                "setb {d}",
                o = out(reg) _, b = in(reg) bytes, d = out(reg_byte) due, options(nostack));
        }
        due != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: this thread's own words.
        let left = unsafe { &mut (*words())[0] };
        let (less, due) = left.overflowing_sub(bytes as u64);
        *left = less;
        due
    }
}

/// Sets the number of bytes until the next sample.
pub fn set_left(bytes: u64) {
    // SAFETY: this thread's own words.
    unsafe { (*words())[0] = bytes };
}

/// Returns the state of the random numbers.
pub fn random() -> u64 {
    // SAFETY: this thread's own words.
    unsafe { (*words())[1] }
}

/// Sets the state of the random numbers.
pub fn set_random(state: u64) {
    // SAFETY: this thread's own words.
    unsafe { (*words())[1] = state };
}
