//! `prctl` and the general system call function, for seccomp, names of threads and futexes ([`super::futex`]).

use core::ffi::{c_char, c_int, c_long};
use core::sync::atomic::{AtomicUsize, Ordering};

use flightline_capture::threads::{names, seccomp};

use crate::real::{KeepErrno, fail, next};

type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;

/// Disarms before `PR_SET_SECCOMP` restricts the thread; records the name that `PR_SET_NAME` gives it.
///
/// # Safety
/// As `prctl(2)`, which is variadic; all its arguments are words in registers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let Some(real) = next!(c"prctl" as Prctl) else { return fail(libc::ENOSYS) };
    if option != libc::PR_SET_SECCOMP {
        // SAFETY: the program's own call, forwarded to the C library's function.
        let r = unsafe { real(option, a, b, c, d) };
        if option == libc::PR_SET_NAME && r == 0 {
            let _errno = KeepErrno::new();
            // SAFETY: the kernel has read 15 bytes there, or fewer up to a zero.
            unsafe { names::renamed(None, a as *const c_char) };
        }
        return r;
    }
    let entering = seccomp::enter(false);
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { real(option, a, b, c, d) };
    let _errno = KeepErrno::new();
    entering.done(r);
    r
}

/// The C library's `syscall`, set before the program runs.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// The type of the C library's `syscall(2)`.
pub type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// Looks the real function up; until then calls take the slow path.
pub fn publish() {
    let real = real_syscall().map_or(0, |f| f as usize);
    REAL.store(real, Ordering::Relaxed);
}

/// Returns the C library's function.
pub fn real_syscall() -> Option<Syscall> {
    next!(c"syscall" as Syscall)
}

unsafe extern "C" fn slow(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let Some(real) = real_syscall() else { return c_long::from(fail(libc::ENOSYS)) };
    if number != libc::SYS_seccomp {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(number, a, b, c, d, e, f) };
    }
    const GET_ACTION_AVAIL: usize = 2;
    const ALL_THREADS: usize = 1;
    let entering = (a < GET_ACTION_AVAIL).then(|| seccomp::enter(a == 1 && b & ALL_THREADS != 0));
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { real(number, a, b, c, d, e, f) };
    if let Some(entering) = entering {
        let _errno = KeepErrno::new();
        entering.done(r as c_int);
    }
    r
}

/// Forwards every call by a jump, except for seccomp and futexes.
///
/// # Safety
/// As `syscall(2)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn syscall() -> c_long {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {seccomp}",
        "je {slow}",
        "cmp rdi, {futex_number}",
        "je {futex}",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "je {slow}",
        "jmp rax",
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        slow = sym slow,
        futex_number = const libc::SYS_futex,
        futex = sym super::futex::futex,
        real = sym REAL,
    )
}

/// Forwards every call by a jump, except for seccomp and futexes.
///
/// # Safety
/// As `syscall(2)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn syscall() -> c_long {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp x0, #{seccomp}",
        "b.eq 2f",
        "cmp x0, #{futex_number}",
        "b.eq 3f",
        "adrp x16, {real}",
        "ldr x16, [x16, #:lo12:{real}]",
        "cbz x16, 2f",
        "br x16",
        "2: b {slow}",
        "3: b {futex}",
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        slow = sym slow,
        futex_number = const libc::SYS_futex,
        futex = sym super::futex::futex,
        real = sym REAL,
    )
}
