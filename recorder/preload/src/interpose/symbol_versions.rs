//! Functions with two different versions in glibc. Old objects use the older one, and some build tools select
//! it by name to run on all systems. The hook here has no version, so the calls of both come to it, and it
//! finds out which version the caller uses.
//!
//! An object's import contains the version that it is bound to. It is looked up once per call site, through
//! `_dl_find_object` (glibc 2.35). Without that function, or for a call through a pointer of another object,
//! the newer version is used.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::real::Next;

/// A function with its older version, GLIBC_2.2.5.
///
/// `INDEX` (0 to 3) identifies the function in the cache of call sites.
#[repr(C)]
pub struct Both<const INDEX: usize> {
    newer: Next,
    older: Next,
}

const OLDER: &CStr = c"GLIBC_2.2.5";

impl<const INDEX: usize> Both<INDEX> {
    /// Not looked up yet; see [`Next`].
    pub const fn new(name: &'static CStr, newer: &'static CStr) -> Both<INDEX> {
        Both { newer: Next::versioned(name, newer), older: Next::versioned(name, OLDER) }
    }

    /// Returns the version used by the call that returns to `caller`.
    #[inline]
    pub fn address(&self, caller: usize) -> *mut c_void {
        if cfg!(all(target_env = "gnu", target_arch = "x86_64")) && self.is_older(caller) {
            self.older.address()
        } else {
            self.newer.address()
        }
    }

    fn is_older(&self, caller: usize) -> bool {
        let key = (caller << 2 | INDEX) << 1;
        let place = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        let Some(known) = SITES.get(place % SITES.len()) else { return false };
        let word = known.load(Relaxed);
        if word & !1 == key {
            return word & 1 != 0;
        }
        let older = imports(caller, self.newer.name()).unwrap_or(false);
        known.store(key | usize::from(older), Relaxed);
        older
    }
}

/// Call site, function and result, in one word, so that no reader sees half of it.
static SITES: [AtomicUsize; 128] = [const { AtomicUsize::new(0) }; 128];

/// Clears the cache after objects were unloaded, because other objects may be mapped at their addresses.
pub fn forget() {
    for site in &SITES {
        site.store(0, Relaxed);
    }
}

/// The public part of a `link_map`.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
}

/// Returns true if the object that contains `caller` imports `name` in the older version; `None` if it does
/// not import it.
#[cold]
#[inline(never)]
fn imports(caller: usize, name: &CStr) -> Option<bool> {
    let map = flightline_in_signal::unwind::loader::link_map(caller as u64)?.cast::<LinkMap>();
    // SAFETY: the loader's description of a loaded object, which is not unloaded while its code calls this
    // function.
    let (bias, dynamic) = unsafe { ((*map).bias, (*map).dynamic) };
    if dynamic.is_null() {
        return None;
    }
    // SAFETY: the dynamic section of a loaded object, which is not unloaded while its code calls this
    // function.
    let object = unsafe { Object::from_dynamic(bias, dynamic) }?;
    // SAFETY: the object is not unloaded while its code calls this function.
    unsafe { object.is_older(name) }
}

/// Tables of a loaded object, found through its dynamic section.
struct Object {
    names: usize,
    symbols: usize,
    /// Number of each symbol's version.
    versions: usize,
    /// Required versions, by library.
    needs: usize,
    relocations: [(usize, usize); 2],
}

impl Object {
    /// # Safety
    /// `dynamic` is the dynamic section of an object loaded with this bias that is not unloaded.
    unsafe fn from_dynamic(bias: usize, mut dynamic: *const [usize; 2]) -> Option<Object> {
        let mut object = Object { names: 0, symbols: 0, versions: 0, needs: 0, relocations: [(0, 0); 2] };
        loop {
            // SAFETY: the section ends with a null entry, which ends the loop.
            let [tag, value] = unsafe { dynamic.read() };
            // glibc has replaced some of them by addresses.
            let address = if value < bias { bias.wrapping_add(value) } else { value };
            match tag {
                0 => break,
                2 => object.relocations[0].1 = value,
                5 => object.names = address,
                6 => object.symbols = address,
                7 => object.relocations[1].0 = address,
                8 => object.relocations[1].1 = value,
                23 => object.relocations[0].0 = address,
                0x6fff_fff0 => object.versions = address,
                0x6fff_fffe => object.needs = address,
                _ => {}
            }
            // SAFETY: the null entry has not been reached yet.
            dynamic = unsafe { dynamic.add(1) };
        }
        let complete =
            [object.names, object.symbols, object.versions, object.needs].iter().all(|at| *at != 0);
        complete.then_some(object)
    }

    /// # Safety
    /// The object is loaded.
    unsafe fn is_older(&self, name: &CStr) -> Option<bool> {
        for (table, bytes) in self.relocations {
            for index in 0..if table == 0 { 0 } else { bytes / size_of::<libc::Elf64_Rela>() } {
                // SAFETY: a relocation of the table, and the symbol it names (the first one for none).
                let (symbol, text) = unsafe {
                    let relocation = (table as *const libc::Elf64_Rela).add(index).read();
                    let symbol = (relocation.r_info >> 32) as usize;
                    let text = (self.symbols as *const libc::Elf64_Sym).add(symbol).read().st_name;
                    (symbol, CStr::from_ptr((self.names + text as usize) as *const c_char))
                };
                if text == name {
                    // SAFETY: every symbol has a version where there are versions.
                    let version = unsafe { (self.versions as *const u16).add(symbol).read() };
                    // SAFETY: the object is loaded, as the caller guarantees.
                    return Some(unsafe { self.is_named_older(version & 0x7fff) });
                }
            }
        }
        None
    }

    /// # Safety
    /// The object is loaded.
    unsafe fn is_named_older(&self, version: u16) -> bool {
        /// `Elf64_Verneed`: version and number of entries; file; offset of the entries; offset of the next library.
        type Need = [u32; 4];
        /// `Elf64_Vernaux`: hash; flags and, above them, the number; name; offset of the next.
        type Entry = [u32; 4];
        let mut library = self.needs;
        loop {
            // SAFETY: the section's lists end where the offset of the next is zero.
            let [_, _, entries, next_library] = unsafe { (library as *const Need).read() };
            let mut at = library + entries as usize;
            loop {
                // SAFETY: the section's lists end where the offset of the next entry is zero.
                let [_, number, name, next] = unsafe { (at as *const Entry).read() };
                if number >> 16 & 0x7fff == u32::from(version) {
                    // SAFETY: a name of the object.
                    return unsafe { CStr::from_ptr((self.names + name as usize) as *const c_char) } == OLDER;
                }
                if next == 0 {
                    break;
                }
                at += next as usize;
            }
            if next_library == 0 {
                return false;
            }
            library += next_library as usize;
        }
    }
}
