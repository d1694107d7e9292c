//! Inspects a program before it is executed: can it be recorded, and will its loader accept the preload
//! object?

use core::ffi::{CStr, c_char};

use flightline_in_signal::layout::unrecorded;

use crate::os::{self, Fd, Text};

/// Result of the inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Dynamic, same architecture and C library: will be recorded.
    Recorded,
    /// Cannot be recorded ([`unrecorded`]); `strip` if its loader would reject the preload object or fail
    /// because of it.
    Not {
        /// One of [`unrecorded`].
        reason: u32,
        /// Remove the preload object from `LD_PRELOAD`.
        strip: bool,
    },
    /// The file is not an ELF file, not readable or missing: exec will report an error.
    Unknown,
}

/// Enough for the ELF header and for a `#!` line.
const HEAD: usize = 256;
const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
const OURS_IS_MUSL: bool = cfg!(target_env = "musl");

/// Inspects the file `path` as exec would open it, through up to four `#!` lines. Uses little stack, because
/// it runs on the stack of the caller of exec.
pub fn look(path: &CStr) -> Target {
    let mut file = os::open(path, libc::O_RDONLY, 0);
    if file.is_err() {
        return unreadable(path);
    }
    for _ in 0..5 {
        let Ok(fd) = file else { return Target::Unknown };
        let mut head = [0u8; HEAD];
        let len = os::read_full(&fd, &mut head);
        let head = head.get(..len).unwrap_or_default();
        let Some(interpreter) = script_interpreter(head) else { return judge(&fd, head) };
        let mut script = Text::<HEAD>::new();
        script.put(interpreter);
        file = script.cstr().and_then(|name| os::open(name, libc::O_RDONLY, 0));
    }
    Target::Unknown
}

/// A program that may be executed but not read: only its mode is known.
fn unreadable(path: &CStr) -> Target {
    let Ok(fd) = os::open(path, libc::O_PATH, 0) else { return Target::Unknown };
    if changes_user(&fd) { Target::Not { reason: unrecorded::SETUID, strip: false } } else { Target::Unknown }
}

fn script_interpreter(head: &[u8]) -> Option<&[u8]> {
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?.trim_ascii_start();
    line.split(|b| *b == b' ' || *b == b'\t').next().filter(|path| !path.is_empty())
}

fn changes_user(fd: &Fd) -> bool {
    let Ok(st) = os::stat(fd) else { return false };
    let set_uid = st.st_mode & libc::S_ISUID != 0 && st.st_uid != os::euid();
    let set_gid = st.st_mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
    let by_mode = set_uid || (set_gid && st.st_gid != os::egid());
    by_mode || (os::euid() != 0 && has_capabilities(fd))
}

fn has_capabilities(fd: &Fd) -> bool {
    let name = c"security.capability";
    // SAFETY: the name is NUL-terminated; no buffer is given.
    unsafe { os::syscall(libc::SYS_fgetxattr, [fd.raw() as usize, name.as_ptr() as usize, 0, 0, 0, 0]) }
        .is_ok_and(|len| len > 0)
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn half(from: &[u8], at: usize) -> Option<u16> {
    bytes(from, at).map(u16::from_le_bytes)
}

fn word(from: &[u8], at: usize) -> Option<u32> {
    bytes(from, at).map(u32::from_le_bytes)
}

fn long(from: &[u8], at: usize) -> Option<u64> {
    bytes(from, at).map(u64::from_le_bytes)
}

/// Inspects an ELF file by its first bytes, and reads the name of its interpreter at the offset in the
/// header.
fn judge(fd: &Fd, head: &[u8]) -> Target {
    if !head.starts_with(b"\x7fELF") {
        return Target::Unknown;
    }
    if changes_user(fd) {
        return Target::Not { reason: unrecorded::SETUID, strip: false };
    }
    const CLASS_64_LITTLE: [u8; 2] = [2, 1];
    if head.get(4..6) != Some(&CLASS_64_LITTLE) || half(head, 18) != Some(MACHINE) {
        return Target::Not { reason: unrecorded::FOREIGN, strip: true };
    }
    match interpreter(fd, head) {
        None => Target::Not { reason: unrecorded::STATIC, strip: false },
        Some(name) => {
            let musl = contains(name.bytes(), b"ld-musl");
            if needs_sanitizer(fd, head) == Some(true) {
                Target::Not { reason: unrecorded::SANITIZER, strip: true }
            } else if musl == OURS_IS_MUSL {
                Target::Recorded
            } else {
                Target::Not { reason: unrecorded::OTHER_LIBC, strip: true }
            }
        }
    }
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

/// Returns the first segment that `selects` accepts: its offset in the file, address and size in bytes.
fn segment(fd: &Fd, head: &[u8], selects: impl Fn(u32, [u64; 3]) -> bool) -> Option<[u64; 3]> {
    let offset = long(head, 32)?;
    let (size, count) = (u64::from(half(head, 54)?), u64::from(half(head, 56)?).min(128));
    for i in 0..count {
        let mut header = [0u8; 56];
        let at = offset.checked_add(i.checked_mul(size)?)?;
        if os::read_at(fd, &mut header, at) != Ok(header.len()) {
            return None;
        }
        let found = [long(&header, 8)?, long(&header, 16)?, long(&header, 32)?];
        if selects(word(&header, 0)?, found) {
            return Some(found);
        }
    }
    None
}

fn interpreter(fd: &Fd, head: &[u8]) -> Option<Text<256>> {
    let [offset, _, bytes] = segment(fd, head, |kind, _| kind == PT_INTERP)?;
    let mut name = [0u8; 255];
    let len = os::read_at(fd, &mut name, offset).ok()?;
    let mut text = Text::new();
    text.put(name.get(..len.min(bytes as usize))?);
    Some(text)
}

/// Returns true if the program needs a sanitizer's library; `None` if the file has no list of libraries.
fn needs_sanitizer(fd: &Fd, head: &[u8]) -> Option<bool> {
    const NEEDED: u64 = 1;
    const STRINGS: u64 = 5;
    const MOST: u64 = 512;
    let [dynamic, _, bytes] = segment(fd, head, |kind, _| kind == PT_DYNAMIC)?;
    let entry = |i: u64| {
        let mut entry = [0u8; 16];
        let at = dynamic.checked_add(i.checked_mul(16)?)?;
        let read = os::read_at(fd, &mut entry, at) == Ok(entry.len());
        read.then_some([long(&entry, 0)?, long(&entry, 8)?]).filter(|[tag, _]| *tag != 0)
    };
    let entries = || (0..(bytes / 16).min(MOST)).map_while(entry);
    let [_, address] = entries().find(|[tag, _]| *tag == STRINGS)?;
    let holds = |[_, from, bytes]: [u64; 3]| from <= address && address - from < bytes;
    let [offset, from, _] = segment(fd, head, |kind, load| kind == PT_LOAD && holds(load))?;
    let strings = offset.checked_add(address - from)?;
    let mut found = entries().filter(|[tag, _]| *tag == NEEDED).map_while(|[_, at]| {
        let mut name = [0u8; 32];
        let len = os::read_at(fd, &mut name, strings.checked_add(at)?).ok()?;
        Some(unrecorded::is_sanitizer(name.get(..len)?))
    });
    Some(found.any(|sanitizer| sanitizer))
}

/// Splits a value of `LD_PRELOAD` into its entries.
pub fn preloaded(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b':' | b' ')).filter(|entry| !entry.is_empty())
}

/// Returns true if an entry of `LD_PRELOAD` is this library.
pub fn is_ours(entry: &[u8]) -> bool {
    contains(entry, b"libflightline")
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}

/// Finds `file` on `PATH` as execvp does; a name with a slash is returned unchanged.
pub fn on_path(file: &CStr, path: Option<&CStr>) -> Text<1024> {
    let mut found = Text::new();
    if contains(file.to_bytes(), b"/") {
        found.put(file.to_bytes());
        return found;
    }
    let path = path.unwrap_or(c"/bin:/usr/bin").to_bytes();
    for dir in path.split(|b| *b == b':') {
        found = Text::new();
        if !dir.is_empty() {
            found.put(dir).put(b"/");
        }
        found.put(file.to_bytes());
        if found.cstr().is_ok_and(|name| os::open(name, libc::O_PATH, 0).is_ok()) {
            return found;
        }
    }
    found
}

/// An environment without the preload object, built in place.
pub struct Stripped {
    entries: [*const c_char; MAX_ENV],
    value: Text<4096>,
}

const MAX_ENV: usize = 2048;

impl Stripped {
    /// Creates an empty one. It is large, so create it in its final place.
    pub fn new() -> Stripped {
        Stripped { entries: [core::ptr::null(); MAX_ENV], value: Text::new() }
    }

    /// Returns `envp` without the preload object in `LD_PRELOAD`; `envp` itself if the variable is not set or
    /// the result does not fit.
    ///
    /// # Safety
    /// `envp` is null or a null-terminated array of NUL-terminated strings that outlive `self`.
    pub unsafe fn strip(&mut self, envp: *const *const c_char) -> *const *const c_char {
        const NAME: &[u8] = b"LD_PRELOAD=";
        if envp.is_null() {
            return envp;
        }
        let mut out = 0;
        let mut at = envp;
        loop {
            // SAFETY: inside the array, up to its null.
            let entry = unsafe { at.read() };
            // SAFETY: the null has not been reached yet when `at` is used again.
            at = unsafe { at.add(1) };
            let keep = if entry.is_null() {
                entry
            } else {
                // SAFETY: an entry of the array.
                match unsafe { CStr::from_ptr(entry) }.to_bytes().strip_prefix(NAME) {
                    Some(list) => {
                        self.without_us(list);
                        if self.value.cstr().is_err() {
                            return envp;
                        }
                        if self.value.bytes().len() == NAME.len() {
                            continue;
                        }
                        self.value.as_ptr()
                    }
                    None => entry,
                }
            };
            match self.entries.get_mut(out) {
                Some(to) => *to = keep,
                None => return envp,
            }
            if keep.is_null() {
                return self.entries.as_ptr();
            }
            out += 1;
        }
    }

    fn without_us(&mut self, list: &[u8]) {
        self.value = Text::new();
        self.value.put(b"LD_PRELOAD=");
        let mut first = true;
        for part in preloaded(list).filter(|entry| !is_ours(entry)) {
            if !first {
                self.value.put(b":");
            }
            first = false;
            self.value.put(part);
        }
    }
}

impl Default for Stripped {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_object_is_removed_from_ld_preload() {
        let envp = [
            c"A=1".as_ptr(),
            c"LD_PRELOAD=/x/libother.so:/y/libflightline.so".as_ptr(),
            c"B=LD_PRELOAD=libflightline.so".as_ptr(),
            core::ptr::null(),
        ];
        let mut stripped = Stripped::new();
        // SAFETY: a null-terminated array of C strings.
        let out = unsafe { stripped.strip(envp.as_ptr()) };
        // SAFETY: three entries and the null.
        let entries = unsafe { core::slice::from_raw_parts(out, 4) };
        // SAFETY: all entries are C strings.
        let texts = [0, 1, 2].map(|i| unsafe { CStr::from_ptr(entries[i]) });
        assert_eq!(texts, [c"A=1", c"LD_PRELOAD=/x/libother.so", c"B=LD_PRELOAD=libflightline.so"]);
        assert!(entries[3].is_null());
    }

    #[test]
    fn script_interpreter_is_parsed() {
        assert_eq!(script_interpreter(b"#! /bin/sh -e\nx"), Some(&b"/bin/sh"[..]));
        assert_eq!(script_interpreter(b"#!\n"), None);
        assert_eq!(script_interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn native_dynamic_program_is_recorded_and_other_files_are_unknown() {
        assert_eq!(look(c"/proc/self/exe"), Target::Recorded);
        assert_eq!(look(c"/no/such/file"), Target::Unknown);
        assert_eq!(look(c"/etc/passwd"), Target::Unknown);
    }
}
