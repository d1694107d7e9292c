//! System calls and small buffers for code that runs in the program's threads outside handlers; a lock ([`spin`]),
//! the C library's own functions ([`real`]), and the identity of the process ([`fork_token`]).
//!
//! All of it uses raw system calls: no cancellation point, no `errno`, no call of the program's `malloc`, and
//! no function that another preloaded library may have replaced.

pub mod fork_token;
pub mod real;
pub mod spin;

use core::ffi::{CStr, c_char, c_int};

use flightline_in_signal::os::sys;

/// A descriptor that is closed on drop.
pub struct Fd(c_int);

impl Fd {
    /// Takes over a descriptor.
    ///
    /// # Safety
    /// No other code closes it.
    pub unsafe fn own(fd: c_int) -> Fd {
        Fd(fd)
    }

    /// Returns the descriptor's number.
    pub fn raw(&self) -> c_int {
        self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

/// One system call; `Err` is the positive errno.
///
/// # Safety
/// As the call itself.
pub unsafe fn syscall(number: libc::c_long, a: [usize; 6]) -> Result<usize, c_int> {
    // SAFETY: the caller guarantees the contract of the system call.
    sys::check(unsafe { sys::call(number as usize, a) })
}

const AT_CWD: usize = libc::AT_FDCWD as isize as usize;

/// openat(2) relative to the working directory, with `O_CLOEXEC`. Descriptors 0–2 are not used even if they
/// are free, because the program may be about to open its standard streams.
pub fn open(path: &CStr, flags: c_int, mode: u32) -> Result<Fd, c_int> {
    let args = [AT_CWD, path.as_ptr() as usize, (flags | libc::O_CLOEXEC) as usize, mode as usize, 0, 0];
    // SAFETY: the path is NUL-terminated and lives across the call.
    let fd = unsafe { syscall(libc::SYS_openat, args) }?;
    Ok(Fd(fd as c_int))
}

/// Creates an anonymous file, memfd_create(2).
pub fn anonymous_file<const N: usize>(name: &Text<N>) -> Result<Fd, c_int> {
    // Kernels before 6.3 reject the flag that forbids execution, and later ones log a warning without it.
    let mut made = Err(libc::EINVAL);
    for flags in [libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL, libc::MFD_CLOEXEC] {
        let args = [name.as_ptr() as usize, flags as usize, 0, 0, 0, 0];
        // SAFETY: the name is NUL-terminated and lives across the call.
        made = unsafe { syscall(libc::SYS_memfd_create, args) };
        if made != Err(libc::EINVAL) {
            break;
        }
    }
    Ok(Fd(made? as c_int))
}

/// read(2), retried on EINTR.
pub fn read(fd: &Fd, to: &mut [u8]) -> Result<usize, c_int> {
    loop {
        // SAFETY: the buffer is writable for its length.
        let r = unsafe {
            syscall(libc::SYS_read, [fd.raw() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0, 0])
        };
        if r != Err(libc::EINTR) {
            return r;
        }
    }
}

/// write(2), retried on EINTR.
pub fn write(fd: &Fd, from: &[u8]) -> Result<usize, c_int> {
    loop {
        let args = [fd.raw() as usize, from.as_ptr() as usize, from.len(), 0, 0, 0];
        // SAFETY: the buffer is readable for its length.
        let r = unsafe { syscall(libc::SYS_write, args) };
        if r != Err(libc::EINTR) {
            return r;
        }
    }
}

/// pread(2), repeated up to the buffer's length or the end of the file.
pub fn read_at(fd: &Fd, to: &mut [u8], offset: u64) -> Result<usize, c_int> {
    loop {
        let args = [fd.raw() as usize, to.as_mut_ptr() as usize, to.len(), offset as usize, 0, 0];
        // SAFETY: the buffer is writable for its length.
        let r = unsafe { syscall(libc::SYS_pread64, args) };
        if r != Err(libc::EINTR) {
            return r;
        }
    }
}

/// Reads until the buffer is full or the file ends.
pub fn read_full(fd: &Fd, to: &mut [u8]) -> usize {
    let mut len = 0;
    while let Some(rest) = to.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match read(fd, rest) {
            Ok(n) if n > 0 => len += n,
            _ => break,
        }
    }
    len
}

/// fstat(2).
pub fn stat(fd: &Fd) -> Result<libc::stat, c_int> {
    let mut st = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills the structure; libc's `stat` has the kernel's layout on these architectures.
    unsafe { syscall(libc::SYS_fstat, [fd.raw() as usize, st.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
    // SAFETY: all-zero is valid, and the call filled it.
    Ok(unsafe { st.assume_init() })
}

/// readlink(2) into `to`. Returns the length, which is cut to the buffer's.
pub fn readlink(path: &CStr, to: &mut [u8]) -> Result<usize, c_int> {
    let args = [AT_CWD, path.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0];
    // SAFETY: the path is NUL-terminated, the buffer writable for its length.
    unsafe { syscall(libc::SYS_readlinkat, args) }
}

/// rename(2).
pub fn rename(from: &CStr, to: &CStr) -> Result<(), c_int> {
    let args = [AT_CWD, from.as_ptr() as usize, AT_CWD, to.as_ptr() as usize, 0, 0];
    // SAFETY: both paths are NUL-terminated. renameat2 exists on every architecture, renameat does not.
    unsafe { syscall(libc::SYS_renameat2, args) }.map(drop)
}

/// unlink(2).
pub fn unlink(path: &CStr) {
    // SAFETY: the path is NUL-terminated.
    let _ = unsafe { syscall(libc::SYS_unlinkat, [AT_CWD, path.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// Maps a file (or, with `None`, zeroed private memory) and returns its address.
pub fn map(fd: Option<&Fd>, bytes: usize, prot: c_int, flags: c_int) -> Result<usize, c_int> {
    let (fd, flags) = match fd {
        Some(fd) => (fd.raw() as usize, flags),
        None => (usize::MAX, flags | libc::MAP_ANONYMOUS),
    };
    // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
    unsafe { syscall(libc::SYS_mmap, [0, bytes, prot as usize, flags as usize, fd, 0]) }
}

/// Replaces the mapping of a range that the recorder owns, see [`map`].
///
/// # Safety
/// The recorder owns the range, and code that still uses it tolerates that its contents change.
pub unsafe fn map_over(
    at: usize,
    fd: Option<&Fd>,
    bytes: usize,
    prot: c_int,
    flags: c_int,
) -> Result<(), c_int> {
    let (fd, flags) = match fd {
        Some(fd) => (fd.raw() as usize, flags),
        None => (usize::MAX, flags | libc::MAP_ANONYMOUS),
    };
    let flags = (flags | libc::MAP_FIXED) as usize;
    // SAFETY: the caller guarantees that the recorder owns the range and that its contents may change.
    unsafe { syscall(libc::SYS_mmap, [at, bytes, prot as usize, flags, fd, 0]) }.map(drop)
}

/// munmap(2).
///
/// # Safety
/// Nothing uses the range any more.
pub unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller guarantees that nothing uses the range any more.
    let _ = unsafe { syscall(libc::SYS_munmap, [address, bytes, 0, 0, 0, 0]) };
}

/// madvise(2) on the recorder's own memory. Returns false if the kernel refused (or does not know the
/// advice).
pub fn advise(address: usize, bytes: usize, advice: c_int) -> bool {
    // SAFETY: callers pass ranges of their own mappings and advice that preserves their contents.
    unsafe { syscall(libc::SYS_madvise, [address, bytes, advice as usize, 0, 0, 0]) }.is_ok()
}

/// Returns true if real and effective ids differ: the loader of an executed program then ignores `LD_PRELOAD`.
pub fn has_two_ids() -> bool {
    id(libc::SYS_getuid) != euid() || id(libc::SYS_getgid) != egid()
}

/// Effective user id.
pub fn euid() -> u32 {
    id(libc::SYS_geteuid)
}

/// Effective group id.
pub fn egid() -> u32 {
    id(libc::SYS_getegid)
}

/// Parent process id.
pub fn ppid() -> u32 {
    id(libc::SYS_getppid)
}

/// Makes one of the system calls that return an id.
fn id(number: libc::c_long) -> u32 {
    // SAFETY: these calls have no arguments and change nothing.
    unsafe { sys::call(number as usize, [0; 6]) as u32 }
}

/// Value of an entry of the auxiliary vector, 0 if there is none.
pub fn auxval(entry: libc::c_ulong) -> u64 {
    // SAFETY: the function has no pointer arguments, and only reads the process's own vector.
    unsafe { libc::getauxval(entry) }
}

/// The calling thread's name (`comm`).
pub fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    let args = [libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes at most 16 bytes.
    let _ = unsafe { syscall(libc::SYS_prctl, args) };
    name
}

/// Soft limit of a resource, `u64::MAX` when unlimited.
pub fn limit(resource: usize) -> u64 {
    let mut now = [0u64; 2];
    // SAFETY: the kernel writes two words; no new limit is given.
    let r = unsafe { syscall(libc::SYS_prlimit64, [0, resource, 0, now.as_mut_ptr() as usize, 0, 0]) };
    if r.is_ok() { now[0] } else { u64::MAX }
}

/// Value of an environment variable, as the C library sees the environment now.
pub fn env(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name is NUL-terminated.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: getenv's result is NUL-terminated; it is used at once, by code that runs before the program's own.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// NUL-terminated text built in place, for paths and messages. If a text does not fit, [`Text::cstr`] fails.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
    cut: bool,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Text { bytes: [0; N], len: 0, cut: false }
    }
}

impl<const N: usize> Text<N> {
    /// Empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes up to the first NUL.
    pub fn put(&mut self, bytes: &[u8]) -> &mut Self {
        for &byte in bytes.iter().take_while(|byte| **byte != 0) {
            match self.bytes.get_mut(self.len).filter(|_| self.len + 1 < N) {
                Some(to) => {
                    *to = byte;
                    self.len += 1;
                }
                None => self.cut = true,
            }
        }
        self
    }

    /// Appends a number in decimal.
    pub fn number(&mut self, value: u64) -> &mut Self {
        let mut digits = [0u8; 20];
        let mut rest = value;
        let mut at = digits.len();
        while at > 0 {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + (rest % 10) as u8;
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.put(digits.get(at..).unwrap_or_default())
    }

    /// Returns the text without its NUL.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the text with its NUL; `ENAMETOOLONG` if it did not fit.
    pub fn cstr(&self) -> Result<&CStr, c_int> {
        if self.cut {
            return Err(libc::ENAMETOOLONG);
        }
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| libc::ENAMETOOLONG)
    }

    /// Pointer for C, for texts known to fit.
    pub fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

/// Writes one line to stderr, in one call.
pub fn say(parts: &[&[u8]]) {
    let mut line = Text::<1024>::new();
    line.put(b"flightline: ");
    for part in parts {
        line.put(part);
    }
    line.put(b"\n");
    let text = line.bytes();
    // SAFETY: the buffer lives across the call.
    let _ = unsafe { syscall(libc::SYS_write, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}
