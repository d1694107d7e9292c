//! Finds the program to record, and checks beforehand that it can be recorded.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use flightline_capture::target;
use flightline_in_signal::layout::unrecorded;
use nix::unistd::{AccessFlags, access, getegid, geteuid};

pub use crate::error::refusal::{Reason, Refusal};
use crate::names::elf::{Head, note};

/// Limit of nested `#!` interpreters.
const MAX_SCRIPTS: usize = 5;

/// Returns the path of `program`: itself if it contains a slash, otherwise found in `PATH`.
pub fn find(program: &OsStr) -> Result<PathBuf, Refusal> {
    let refusal = |path: &Path, reason| Err(Refusal { path: path.to_owned(), reason });
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(reason) => refusal(&path, reason),
        };
    }
    let mut best = Reason::NotFound;
    let search = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    for dir in env::split_paths(&search).filter(|_| !program.is_empty()) {
        let path = dir.join(program);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(Reason::NotFound) => {}
            Err(reason) => best = reason,
        }
    }
    refusal(Path::new(program), best)
}

fn executable(path: &Path) -> Result<(), Reason> {
    let meta = fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Reason::NotExecutable("permission denied"),
        _ => Reason::NotFound,
    })?;
    if meta.is_dir() {
        return Err(Reason::NotExecutable("it is a directory"));
    }
    // access(2) allows root everything, but exec needs at least one execute bit.
    let any = meta.permissions().mode() & 0o111 != 0;
    match access(path, AccessFlags::X_OK) {
        Ok(()) if any => Ok(()),
        _ => Err(Reason::NotExecutable("permission denied")),
    }
}

/// Examines an executable file, following `#!` lines, and refuses programs that cannot be recorded.
pub fn check(path: &Path) -> Result<(), Refusal> {
    let mut path = path.to_owned();
    for _ in 0..MAX_SCRIPTS {
        let Ok(file) = File::open(&path) else {
            // Executable but not readable: exec and the loader decide.
            return Ok(());
        };
        match script_interpreter(&file) {
            Some(next) => path = next,
            None => {
                return match reason_against(&path, &file) {
                    Some(reason) => Err(Refusal { path, reason }),
                    None => Ok(()),
                };
            }
        }
    }
    Ok(())
}

fn script_interpreter(file: &File) -> Option<PathBuf> {
    let mut bytes = [0u8; 256];
    let n = file.read_at(&mut bytes, 0).ok()?;
    let line = bytes.get(..n)?.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?.trim_ascii();
    let interpreter = line.split(|b| b.is_ascii_whitespace()).next().filter(|i| !i.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(interpreter.to_vec())))
}

fn reason_against(path: &Path, file: &File) -> Option<Reason> {
    let head = Head::read(file)?;
    if let Some(how) = changes_user(path, file) {
        return Some(Reason::ChangesUser(how));
    }
    if !head.native() {
        return Some(Reason::Foreign(machine_name(&head)));
    }
    if is_go(&head, file) {
        return Some(Reason::Go);
    }
    let Some(loader) = &head.interpreter else {
        return head.is_static().then_some(Reason::Static);
    };
    if needs_sanitizer(path) {
        return Some(Reason::Sanitizer);
    }
    let musl = loader.contains("ld-musl");
    (musl != cfg!(target_env = "musl")).then(|| Reason::OtherLibc(loader.clone()))
}

/// The check that a recorded program makes before `exec`.
fn needs_sanitizer(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    matches!(target::look(&path), target::Target::Not { reason: unrecorded::SANITIZER, .. })
}

fn changes_user(path: &Path, file: &File) -> Option<&'static str> {
    let meta = file.metadata().ok()?;
    let mode = meta.permissions().mode();
    if mode & 0o4000 != 0 && meta.uid() != geteuid().as_raw() {
        return Some("is set-user-id");
    }
    if mode & 0o2010 == 0o2010 && meta.gid() != getegid().as_raw() {
        return Some("is set-group-id");
    }
    let has_capabilities = !geteuid().is_root() && has_attribute(path, c"security.capability");
    has_capabilities.then_some("has file capabilities")
}

fn has_attribute(path: &Path, name: &std::ffi::CStr) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings are NUL-terminated; no buffer is given, so only the size is returned.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Returns true if a process runs a Go program.
pub fn runs_go(pid: u32) -> bool {
    let exe = File::open(format!("/proc/{pid}/exe")).ok();
    exe.and_then(|file| Some(is_go(&Head::read(&file)?, &file))).unwrap_or(false)
}

/// Type of the note that the Go linker writes.
const GO_BUILD_ID: u32 = 4;

/// Returns true if the file has a note of the Go linker. With cgo, notes of the C linker precede it.
fn is_go(head: &Head, file: &File) -> bool {
    head.segments.iter().filter(|s| s.kind == object::elf::PT_NOTE.0).any(|s| {
        let mut bytes = vec![0; usize::try_from(s.filesz).unwrap_or(0).min(4096)];
        file.read_exact_at(&mut bytes, s.offset).is_ok() && note(&bytes, b"Go\0\0", GO_BUILD_ID).is_some()
    })
}

fn machine_name(head: &Head) -> String {
    match (head.machine, head.class) {
        (62, 1) => "x32".into(),
        (62, _) => "x86_64".into(),
        (3, _) => "i386".into(),
        (183, _) => "aarch64".into(),
        (40, _) => "arm".into(),
        (243, 1) => "riscv32".into(),
        (243, _) => "riscv64".into(),
        (21, _) => "ppc64".into(),
        (20, _) => "ppc".into(),
        (22, _) => "s390x".into(),
        (8, _) => "mips".into(),
        (258, _) => "loongarch64".into(),
        (other, class) => format!("ELF machine {other}, {} bits", if class == 1 { 32 } else { 64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, name: &str, contents: &[u8], mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn missing_program_error_has_shell_exit_code() {
        let dir = tempfile::tempdir().unwrap();
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        let gone = find(OsStr::new("no-such-program")).unwrap_err();
        assert_eq!(
            (gone.exit_code(), gone.to_string().as_str()),
            (127, "no-such-program: program not found")
        );
        let plain = file(dir.path(), "plain", b"", 0o644);
        assert_eq!(find(plain.as_os_str()).unwrap_err().exit_code(), 126);
        assert_eq!(find(dir.path().as_os_str()).unwrap_err().exit_code(), 126);
        assert_eq!(find(OsStr::new("")).unwrap_err().exit_code(), 127);
    }

    #[test]
    fn unsupported_programs_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check(Path::new("/bin/sh")), Ok(()));
        assert_eq!(check(&file(dir.path(), "script", b"#! /bin/sh -e\ntrue\n", 0o755)), Ok(()));
        assert_eq!(check(&file(dir.path(), "text", b"true\n", 0o755)), Ok(()), "the shell's business");
        let mut elf = vec![0u8; 256];
        elf[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
        elf[16] = 2;
        elf[18] = 3;
        let foreign = file(dir.path(), "foreign", &elf, 0o755);
        let refusal = check(&foreign).unwrap_err();
        assert_eq!((&refusal.reason, refusal.exit_code()), (&Reason::Foreign("i386".into()), 126));
        let line = format!("#!{}\n", foreign.display());
        let through = check(&file(dir.path(), "through", line.as_bytes(), 0o755)).unwrap_err();
        assert_eq!(through, refusal, "the interpreter is named");
        let own = format!("#!{}\n", dir.path().join("loop").display());
        assert_eq!(check(&file(dir.path(), "loop", own.as_bytes(), 0o755)), Ok(()), "exec says ELOOP");
        elf[4] = 2;
        elf[18..20].copy_from_slice(&crate::names::elf::NATIVE_MACHINE.to_le_bytes());
        assert_eq!(check(&file(dir.path(), "static", &elf, 0o755)).unwrap_err().reason, Reason::Static);
    }
}
