//! `libflightline.so`: the recorder as an object to preload, and its C API ([`flightline.h`](../include/flightline.h)).
//!
//! The only crate of the workspace that exports symbols (`exports.txt` lists them all). Each exported function is a
//! thin door: `interpose` leads to the C library's own function and tells `capture` what the program does,
//! `start` runs before the program's `main`, `c_api` is for programs that control the recording themselves.
//! No heap: the crate is `no_std`, so nothing of it can enter the program's `malloc`. A build that unwinds, as those of development do,
//! needs `std` for that, and enters it when it panics.
#![cfg_attr(panic = "abort", no_std)]

mod c_api;
mod c_spans;
mod context;
mod helper;
mod interpose;
mod machine;
mod real;
mod start;

#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    flightline_capture::os::say(&[b"internal error, the program is stopped"]);
    // SAFETY: ends the process; nothing of ours may continue after a broken invariant.
    unsafe { libc::abort() }
}

// The prebuilt `core` names a personality routine although nothing here unwinds. It lets foreign unwinding (a cancelled
// thread, say) pass.
#[cfg(all(panic = "abort", target_arch = "x86_64"))]
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality:",
    "mov eax, 8", // _URC_CONTINUE_UNWIND
    "ret",
);

#[cfg(all(panic = "abort", target_arch = "aarch64"))]
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    ".type rust_eh_personality, %function",
    "rust_eh_personality:",
    "mov w0, #8", // _URC_CONTINUE_UNWIND
    "ret",
);
