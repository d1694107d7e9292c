//! `libflightline.so`: the recorder as an object to preload, and its C API ([`flightline.h`](../include/flightline.h)).
//!
//! The only crate of the workspace that exports symbols (`exports.txt` lists them all). Each exported
//! function is a thin hook: `interpose` forwards to the C library's own function and reports the call to
//! `capture`, `start` runs before the program's `main`, and `c_api` is for programs that control the
//! recording themselves. The crate uses no heap: it is `no_std`, so none of its code can enter the program's
//! `malloc`. A build that unwinds, such as a development build, needs `std` and enters it when it panics.
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
    flightline_capture::os::say(&[b"internal error in the recorder; aborting the program"]);
    // SAFETY: ends the process; the recorder must not continue after a broken invariant.
    unsafe { libc::abort() }
}

// The prebuilt `core` refers to a personality routine although no code here unwinds. The routine lets foreign
// unwinding (a cancelled thread, say) pass.
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
