//! exec and spawn in all their forms. The variadic functions gather their arguments in a few instructions and
//! call the code here.

use core::ffi::{c_char, c_int, c_void};

use flightline_capture::lifecycle::exec;
use flightline_capture::target::Stripped;

use super::symbol_versions::Both;
use crate::real::{KeepErrno, fail, look_up, next};

type Words = *const *const c_char;

unsafe extern "C" {
    static mut environ: Words;
}

fn environment() -> Words {
    // SAFETY: the C library's own variable, read as exec itself would.
    unsafe { environ }
}

/// Inspects the target, disarms the process and calls exec. If it returns, it has failed, and the state from
/// before is restored.
///
/// # Safety
/// Pointers as for `execve(2)`.
unsafe fn execute(
    path: *const c_char,
    search: bool,
    envp: Words,
    call: impl FnOnce(Words) -> c_int,
) -> c_int {
    let strip = {
        let _errno = KeepErrno::new();
        // SAFETY: the caller guarantees pointers as for `execve(2)`.
        unsafe { exec::inspect(path, search, envp) }
    };
    let leaving_call = |envp| {
        let leaving = exec::leave();
        let r = call(envp);
        let _errno = KeepErrno::new();
        drop(leaving);
        r
    };
    if strip {
        // SAFETY: the caller guarantees pointers as for `execve(2)`.
        unsafe { without_us(envp, leaving_call) }
    } else {
        leaving_call(envp)
    }
}

/// Calls with an environment that does not name this object. A separate function because of its large frame,
/// which only programs that cannot be recorded need.
#[inline(never)]
unsafe fn without_us(envp: Words, call: impl FnOnce(Words) -> c_int) -> c_int {
    let mut space = Stripped::new();
    // SAFETY: the callers guarantee an environment as for `execve(2)`; `space` lives until the call has
    // returned.
    let envp = unsafe { space.strip(envp) };
    call(envp)
}

type Execve = unsafe extern "C" fn(*const c_char, Words, Words) -> c_int;

/// Disarms this process first.
///
/// # Safety
/// As `execve(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, argv: Words, envp: Words) -> c_int {
    let Some(real) = next!(c"execve" as Execve) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { execute(path, false, envp, |envp| real(path, argv, envp)) }
}

/// Disarms this process first.
///
/// # Safety
/// As `execv(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: Words) -> c_int {
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { execve(path, argv, environment()) }
}

/// Disarms this process first.
///
/// # Safety
/// As `execvpe(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, argv: Words, envp: Words) -> c_int {
    let Some(real) = next!(c"execvpe" as Execve) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { execute(file, true, envp, |envp| real(file, argv, envp)) }
}

/// Disarms this process first.
///
/// # Safety
/// As `execvp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: Words) -> c_int {
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { execvpe(file, argv, environment()) }
}

/// Disarms this process first.
///
/// # Safety
/// As `fexecve(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, argv: Words, envp: Words) -> c_int {
    type Fexecve = unsafe extern "C" fn(c_int, Words, Words) -> c_int;
    let Some(real) = next!(c"fexecve" as Fexecve) else { return fail(libc::ENOSYS) };
    let mut path = flightline_capture::os::Text::<64>::new();
    path.put(b"/proc/self/fd/").number(fd.max(0) as u64);
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { execute(path.as_ptr(), false, envp, |envp| real(fd, argv, envp)) }
}

/// Disarms this process first.
///
/// # Safety
/// As `execveat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: Words,
    envp: Words,
    flags: c_int,
) -> c_int {
    type Execveat = unsafe extern "C" fn(c_int, *const c_char, Words, Words, c_int) -> c_int;
    let Some(real) = next!(c"execveat" as Execveat) else { return fail(libc::ENOSYS) };
    let mut name = flightline_capture::os::Text::<1024>::new();
    name.put(b"/proc/self/fd/").number(dir.max(0) as u64);
    // SAFETY: the caller guarantees null or a C string.
    let relative = if path.is_null() { c"" } else { unsafe { core::ffi::CStr::from_ptr(path) } };
    let whole = match relative.to_bytes() {
        [b'/', ..] => path,
        bytes if dir == libc::AT_FDCWD => bytes.as_ptr().cast(),
        [] => name.as_ptr(),
        bytes => {
            name.put(b"/").put(bytes);
            name.as_ptr()
        }
    };
    // SAFETY: the program's own call, forwarded; `whole` is a C string that lives in this function or in the
    // caller.
    unsafe { execute(whole, false, envp, |envp| real(dir, path, argv, envp, flags)) }
}

/// `execl` and `execle` with their arguments in an array that ends with a null. For `execle` the environment
/// follows the null.
unsafe extern "C" fn from_list(path: *const c_char, argv: Words, with_environment: bool) -> c_int {
    let envp = if with_environment {
        let mut at = argv;
        // SAFETY: the caller of the variadic function guarantees a null-terminated list.
        while unsafe { !at.read().is_null() } {
            // SAFETY: the null has not been reached yet.
            at = unsafe { at.add(1) };
        }
        // SAFETY: the word after the null is the environment.
        unsafe { at.add(1).cast::<Words>().read() }
    } else {
        environment()
    };
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { execve(path, argv, envp) }
}

unsafe extern "C" fn list_plain(path: *const c_char, argv: Words) -> c_int {
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { from_list(path, argv, false) }
}

unsafe extern "C" fn list_with_environment(path: *const c_char, argv: Words) -> c_int {
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { from_list(path, argv, true) }
}

/// A variadic exec function. Rust cannot define variadic functions, so the register arguments are stored
/// right below those that the caller passed on the stack, which results in the array that the callee needs.
macro_rules! variadic {
    ($(#[$doc:meta])* $name:ident => $callee:path) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C" fn $name() -> c_int {
            core::arch::naked_asm!(
                ".cfi_startproc",
                // The return address moves below the array, so that the array is contiguous.
                "pop r10",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_register rip, r10",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                ".cfi_adjust_cfa_offset 40",
                "mov rsi, rsp",
                "push r10",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_offset rip, -48",
                "call {callee}",
                "pop r10",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_register rip, r10",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "jmp r10",
                ".cfi_endproc",
                callee = sym $callee,
            )
        }

        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C" fn $name() -> c_int {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub sp, sp, #80",
                ".cfi_adjust_cfa_offset 80",
                "stp x29, x30, [sp]",
                ".cfi_rel_offset x29, 0",
                ".cfi_rel_offset x30, 8",
                "mov x29, sp",
                "stp x1, x2, [sp, #24]",
                "stp x3, x4, [sp, #40]",
                "stp x5, x6, [sp, #56]",
                "str x7, [sp, #72]",
                "add x1, sp, #24",
                "bl {callee}",
                "ldp x29, x30, [sp]",
                "add sp, sp, #80",
                ".cfi_adjust_cfa_offset -80",
                "ret",
                ".cfi_endproc",
                callee = sym $callee,
            )
        }
    };
}

variadic! {
    /// `execl(3)`.
    ///
    /// # Safety
    /// As the function itself.
    execl => list_plain
}
variadic! {
    /// `execle(3)`.
    ///
    /// # Safety
    /// As the function itself.
    execle => list_with_environment
}
variadic! {
    /// `execlp(3)`.
    ///
    /// # Safety
    /// As the function itself.
    execlp => execvp
}

type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Words,
    Words,
) -> c_int;

/// Inspects the target, and gives the child the mask that the program believes in.
///
/// # Safety
/// As `posix_spawn(3)`.
unsafe fn spawn(
    real: Spawn,
    search: bool,
    pid: *mut libc::pid_t,
    path: *const c_char,
    options: [*const c_void; 2],
    argv: Words,
    envp: Words,
) -> c_int {
    // SAFETY: the caller guarantees pointers as for `posix_spawn(3)`.
    let strip = unsafe { exec::inspect(path, search, if envp.is_null() { environment() } else { envp }) };
    // SAFETY: the program's own call, forwarded to the C library's function.
    let call = |envp| unsafe {
        let _mask = exec::spawning();
        real(pid, path, options[0], options[1], argv, envp)
    };
    if strip {
        // SAFETY: the caller guarantees pointers as for `posix_spawn(3)`.
        unsafe { without_us(if envp.is_null() { environment() } else { envp }, call) }
    } else {
        call(envp)
    }
}

look_up! {
    // The older version runs a file without an interpreter with the shell.
    static SPAWN: Both<2> = Both::new(c"posix_spawn", c"GLIBC_2.15");
    static SPAWN_BY_NAME: Both<3> = Both::new(c"posix_spawnp", c"GLIBC_2.15");
}

/// The functions that programs call. They add the return address of the call, which determines the version
/// that the caller uses.
macro_rules! spawns {
    ($($(#[$doc:meta])* $name:ident $inner:ident, $both:expr, $search:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function itself.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            _pid: *mut libc::pid_t,
            _path: *const c_char,
            _actions: *const c_void,
            _attr: *const c_void,
            _argv: Words,
            _envp: Words,
        ) -> c_int {
            core::arch::naked_asm!(
                ".cfi_startproc",
                // The seventh argument is the first on the stack.
                "push qword ptr [rsp]",
                ".cfi_adjust_cfa_offset 8",
                "call {inner}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As the function itself.
        #[cfg(not(target_arch = "x86_64"))]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut libc::pid_t,
            path: *const c_char,
            actions: *const c_void,
            attr: *const c_void,
            argv: Words,
            envp: Words,
        ) -> c_int {
            // SAFETY: the program's own call, forwarded to the C library's function.
            unsafe { $inner(pid, path, actions, attr, argv, envp, 0) }
        }

        unsafe extern "C" fn $inner(
            pid: *mut libc::pid_t,
            path: *const c_char,
            actions: *const c_void,
            attr: *const c_void,
            argv: Words,
            envp: Words,
            caller: usize,
        ) -> c_int {
            // SAFETY: null or a version of that function; both have this type.
            let real = unsafe { core::mem::transmute::<*mut c_void, Option<Spawn>>($both.address(caller)) };
            let Some(real) = real else { return libc::ENOSYS };
            // SAFETY: the program's own call, forwarded to the C library's function.
            unsafe { spawn(real, $search, pid, path, [actions, attr], argv, envp) }
        }
    )* };
}

spawns! {
    /// Starts a child.
    posix_spawn spawn_path, SPAWN, false;
    /// Starts a child found on `PATH`.
    posix_spawnp spawn_name, SPAWN_BY_NAME, true;
}
