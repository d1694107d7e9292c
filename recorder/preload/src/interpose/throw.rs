//! C++ exceptions and Rust panics on their way to the unwinder. The hooks leave no frame behind: they record
//! the exception, then jump to the function with all registers as they were.

use core::ffi::{CStr, c_char, c_int, c_void};

use flightline_capture::engines::exceptions;

use crate::real::{KeepErrno, Next, look_up};

/// Returns the address of a function of a language's runtime. A library that was opened with `RTLD_LOCAL`
/// finds the hook first and loads the real function with it, in a scope that `RTLD_NEXT` does not search.
/// Then the function is looked up in the scope of that library.
fn target(next: &Next, caller: *const c_void) -> usize {
    let address = next.address() as usize;
    if address != 0 {
        return address;
    }
    let found = by_caller(next.name(), caller);
    if found == 0 {
        // The caller was linked against the function, so this cannot happen; and the hook cannot return.
        flightline_capture::os::say(&[b"cannot find ", next.name().to_bytes(), b"; aborting the program"]);
        // SAFETY: ends the process, as an exception that cannot be thrown does.
        unsafe { libc::abort() };
    }
    found
}

fn by_caller(name: &CStr, caller: *const c_void) -> usize {
    // SAFETY: all-zero is a valid structure.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address is allowed; the structure is only written.
    if unsafe { libc::dladdr(caller, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return 0;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    let path: *const c_char = info.dli_fname;
    // SAFETY: the loader's own name of a loaded object.
    let handle = unsafe { libc::dlopen(path, flags) };
    if handle.is_null() {
        return 0;
    }
    // SAFETY: a live handle; the name is NUL-terminated.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    // The caller keeps its object loaded; `libc::dlclose` would call the hook of this object.
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    if let Some(close) = crate::real::next!(c"dlclose" as Close) {
        // SAFETY: opened above.
        unsafe { close(handle) };
    }
    found as usize
}

unsafe extern "C" fn cpp(
    object: *const u8,
    info: *const u8,
    _destroy: *const c_void,
    caller: *const c_void,
) -> usize {
    look_up! { static NEXT: Next = Next::new(c"__cxa_throw"); }
    let _errno = KeepErrno::new();
    if exceptions::is_enabled() {
        // SAFETY: the arguments of `__cxa_throw`.
        unsafe { exceptions::cpp(object, info) };
    }
    target(&NEXT, caller)
}

unsafe extern "C" fn raise(exception: *const u64, caller: *const c_void) -> usize {
    look_up! { static NEXT: Next = Next::new(c"_Unwind_RaiseException"); }
    let _errno = KeepErrno::new();
    if exceptions::is_enabled() && !exception.is_null() {
        // SAFETY: the class is the first word of every exception object.
        exceptions::other(unsafe { exception.read() });
    }
    target(&NEXT, caller)
}

/// Throws a C++ exception.
///
/// # Safety
/// As the function itself, see the Itanium C++ ABI.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn __cxa_throw() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "mov rcx, [rsp + 24]",
        "call {tell}",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        tell = sym cpp,
    )
}

/// Starts to unwind for an exception of any language.
///
/// # Safety
/// As the function itself, see the Itanium C++ ABI.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn _Unwind_RaiseException() -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "mov rsi, [rsp + 8]",
        "call {tell}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        tell = sym raise,
    )
}

/// Throws a C++ exception.
///
/// # Safety
/// As the function itself, see the Itanium C++ ABI.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn __cxa_throw() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-48]!",
        ".cfi_adjust_cfa_offset 48",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x3, x30",
        "bl {tell}",
        "mov x16, x0",
        "ldr x2, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        ".cfi_adjust_cfa_offset -48",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        tell = sym cpp,
    )
}

/// Starts to unwind for an exception of any language.
///
/// # Safety
/// As the function itself, see the Itanium C++ ABI.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn _Unwind_RaiseException() -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x29, sp",
        "str x0, [sp, #16]",
        "mov x1, x30",
        "bl {tell}",
        "mov x16, x0",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        tell = sym raise,
    )
}
