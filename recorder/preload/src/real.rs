//! The C library's functions behind the names we export.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Address of the next definition of a name, found once.
pub struct Next {
    name: &'static CStr,
    version: Option<&'static CStr>,
    address: AtomicUsize,
}

impl Next {
    /// Not looked up yet.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, version: None, address: AtomicUsize::new(0) }
    }

    /// The name.
    pub fn name(&self) -> &'static CStr {
        self.name
    }

    /// The definition of a name in a version, where the C library has several with different objects behind them:
    /// without a version older ones of it answer with the oldest.
    pub const fn versioned(name: &'static CStr, version: &'static CStr) -> Next {
        Next { name, version: Some(version), address: AtomicUsize::new(0) }
    }

    /// The address if it has been looked up, else null; never enters the loader.
    #[inline]
    pub fn known(&self) -> *mut c_void {
        self.address.load(Ordering::Relaxed) as *mut c_void
    }

    /// The address; null if no library after ours defines the name.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            known => known as *mut c_void,
        }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> *mut c_void {
        #[cfg(all(target_env = "gnu", target_arch = "x86_64"))]
        if let Some(version) = self.version {
            // SAFETY: both are NUL-terminated.
            let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) };
            if !found.is_null() {
                self.address.store(found as usize, Ordering::Relaxed);
                return found;
            }
        }
        let _ = self.version;
        // SAFETY: the name is NUL-terminated.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found as usize, Ordering::Relaxed);
        found
    }
}

/// `next!("name" as type)`: the C library's function, `None` where it has none.
macro_rules! next {
    ($name:literal as $type:ty) => {{
        static NEXT: $crate::real::Next = $crate::real::Next::new($name);
        let address = NEXT.address();
        // SAFETY: null or the C library's function of that name, which has this type.
        unsafe { core::mem::transmute::<*mut core::ffi::c_void, Option<$type>>(address) }
    }};
}
pub(crate) use next;

/// Tells `capture` the real functions behind the names this object exports.
pub fn publish() {
    crate::interpose::publish();
    static SIGACTION: Next = Next::new(c"sigaction");
    // SAFETY: the C library's function.
    unsafe { flightline_capture::real::set_sigaction(SIGACTION.address()) };
}

/// Sets `errno` as a failed call of the C library does.
pub fn fail(errno: i32) -> i32 {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Keeps `errno` as it was, whatever happens meanwhile.
pub struct KeepErrno(i32);

impl KeepErrno {
    /// Remembers it.
    pub fn new() -> KeepErrno {
        // SAFETY: the calling thread's own errno.
        KeepErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: the calling thread's own errno.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
