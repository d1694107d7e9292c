//! Size of the frame that the kernel writes to the stack for a signal.

use crate::os;

/// Maximum size of the kernel's signal frame in this process, in bytes.
pub fn bytes() -> usize {
    const OLD_KERNELS: usize = 2048;
    let most = (os::auxval(libc::AT_MINSIGSTKSZ) as usize).max(OLD_KERNELS);
    most.saturating_sub(not_permitted())
}

/// Bytes of `AT_MINSIGSTKSZ` for state that this process may not use: no frame has AMX state before the process requests the
/// permission for it (Linux, Documentation/arch/x86/xstate.rst).
#[cfg(target_arch = "x86_64")]
fn not_permitted() -> usize {
    use core::arch::x86_64::__cpuid_count;
    const GET_PERMITTED: usize = 0x1022;
    const TILE_CONFIGURATION: u32 = 17;
    const TILE_DATA: u32 = 18;
    const LEAF: u32 = 0xd;
    let mut permitted = 0u64;
    let args = [GET_PERMITTED, &raw mut permitted as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one word.
    if unsafe { os::syscall(libc::SYS_arch_prctl, args) }.is_err() || permitted >> TILE_DATA & 1 != 0 {
        return 0;
    }
    // Size and offset of each component in the frame's XSAVE area (Intel SDM, volume 1, 13.5).
    let all = __cpuid_count(LEAF, 0);
    let end = |component: u32| {
        let part = __cpuid_count(LEAF, component);
        part.ebx + part.eax
    };
    let enabled = |component: &u32| all.eax >> component & 1 != 0;
    if !enabled(&TILE_DATA) {
        return 0;
    }
    let rest = (2..TILE_CONFIGURATION).filter(enabled).map(end).max().unwrap_or(0);
    all.ebx.saturating_sub(rest) as usize
}

#[cfg(not(target_arch = "x86_64"))]
fn not_permitted() -> usize {
    0
}
