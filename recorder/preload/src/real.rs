//! The C library's functions behind the names that this object exports.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Address of the next definition of a name, found once: before `main`, by [`publish`].
///
/// A look-up takes the loader's lock, on which an interposed function must not wait: a library's constructor may hold it and wait for
/// the calling thread, a signal handler may have interrupted its owner, or a forked child may have inherited it in a locked state.
/// [`publish`] therefore looks up every `Next` of one linker section. Declare each `Next` with [`look_up!`], which puts it there.
#[repr(C)]
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

    /// Looks up one version of a name, if the C library has several with different objects: without a
    /// version, older C libraries return the oldest.
    pub const fn versioned(name: &'static CStr, version: &'static CStr) -> Next {
        Next { name, version: Some(version), address: AtomicUsize::new(0) }
    }

    /// The address if it has been looked up, else null; never enters the loader.
    #[inline]
    pub fn known(&self) -> *mut c_void {
        self.address.load(Ordering::Relaxed) as *mut c_void
    }

    /// Returns the address; null if no library after this object defines the name.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            known => known as *mut c_void,
        }
    }

    /// Runs only before [`publish`], and for names that no library defined at that time.
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
        if found.is_null() {
            // The program's own `dlerror` must not report this.
            // SAFETY: no preconditions.
            unsafe { libc::dlerror() };
        }
        self.address.store(found as usize, Ordering::Relaxed);
        found
    }
}

/// `look_up! { static NAME: Type = value; }`: a static that consists of [`Next`] values, which are looked up before `main`.
macro_rules! look_up {
    ($($visibility:vis static $name:ident: $type:ty = $value:expr;)*) => { $(
        #[unsafe(link_section = "flightline_next")]
        $visibility static $name: $type = {
            const { assert!(size_of::<$type>() % size_of::<$crate::real::Next>() == 0) };
            $value
        };
    )* };
}
pub(crate) use look_up;

/// `next!("name" as type)`: the C library's function, `None` if it has none.
macro_rules! next {
    ($name:literal as $type:ty) => {{
        $crate::real::look_up! { static NEXT: $crate::real::Next = $crate::real::Next::new($name); }
        let address = NEXT.address();
        // SAFETY: null or the C library's function of that name, which has this type.
        unsafe { core::mem::transmute::<*mut core::ffi::c_void, Option<$type>>(address) }
    }};
}
pub(crate) use next;

look_up! { static SIGACTION: Next = Next::new(c"sigaction"); }

/// Looks up every function behind the names that this object exports, once, and passes `sigaction` to `capture`.
pub fn publish() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    each(|next| {
        next.address();
    });
    // SAFETY: the C library's function.
    unsafe { flightline_capture::os::real::set_sigaction(SIGACTION.address()) };
    crate::interpose::publish();
}

/// Visits every [`Next`] of this object.
fn each(visit: impl Fn(&Next)) {
    unsafe extern "C" {
        #[link_name = "__start_flightline_next"]
        static FIRST: u8;
        #[link_name = "__stop_flightline_next"]
        static END: u8;
    }
    let (first, end) = (&raw const FIRST as usize, &raw const END as usize);
    let count = (end - first) / size_of::<Next>();
    // SAFETY: the linker's bounds of the section, which contains only these values (see `look_up!`).
    unsafe { core::slice::from_raw_parts(first as *const Next, count) }.iter().for_each(visit);
}

/// Sets `errno` as a failed call of the C library does.
pub fn fail(errno: i32) -> i32 {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Saves `errno`, and restores it on drop.
pub struct KeepErrno(i32);

impl KeepErrno {
    /// Saves the present value.
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
