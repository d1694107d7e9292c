//! exec and spawn. No signal of the recorder may be pending when another image starts, because it would kill
//! the new program. Programs that cannot be recorded are reported to the drain, not to the program.

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};

use flightline_in_signal::layout::{SESSION_ENV, proc_state, unrecorded};
use flightline_in_signal::os::clock;

use crate::session::{self, Attached};
use crate::shadow::{self, KernelSet};
use crate::signals::command::Quiet;
use crate::signals::{self, masks};
use crate::target::{self, Target};
use crate::{os, threads};

/// The process is about to execute another program. Dropped if that failed.
pub struct Leaving {
    mask: KernelSet,
    attached: Option<&'static Attached>,
    _quiet: Quiet,
}

/// Disarms the process (unless it is a `vfork` child, which owns nothing) and makes the kernel's signal state
/// the program's own.
pub fn leave() -> Leaving {
    // A command at this point would arm the thread again.
    let quiet = Quiet::begin();
    let attached = session::current();
    if let Some(attached) = attached {
        attached.header().state.store(proc_state::EXECING, Release);
        threads::disarm_all(attached);
        note_clocks(attached);
    }
    let mask = signals::bare_for_exec();
    if attached.is_some() {
        signals::swallow_pending();
    }
    Leaving { mask, attached, _quiet: quiet }
}

/// Stores the last clock readings of all ledgers, because no handler will complete them.
fn note_clocks(attached: &Attached) {
    for slot in threads::live(attached) {
        slot.ledger.end_cpu_ns.store(clock::cpu_ns_by_tid(slot.tid.load(Relaxed)), Relaxed);
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        signals::dress_again(self.mask);
        if let Some(attached) = self.attached {
            threads::arm_all(attached);
            attached.header().state.store(proc_state::LIVE, Release);
        }
    }
}

/// A spawn. The child inherits this thread's mask, so it must be the one that the program believes in. Undone
/// on drop.
pub struct Spawning(Option<KernelSet>);

/// Prepares the calling thread for a spawn.
pub fn spawning() -> Spawning {
    let hidden = masks::hidden();
    Spawning((hidden != 0).then(|| shadow::kernel_mask(libc::SIG_BLOCK, Some(hidden))))
}

impl Drop for Spawning {
    fn drop(&mut self) {
        if let Some(mask) = self.0 {
            shadow::kernel_mask(libc::SIG_SETMASK, Some(mask));
        }
    }
}

/// Returns true if a program executed now can read the file. A process that changed its user may still have
/// capabilities, which the executed program loses: then the modes of the file and of all directories of its
/// path decide.
fn is_readable(path: &CStr) -> bool {
    if os::open(path, libc::O_RDONLY, 0).is_err() {
        return false;
    }
    let user = os::euid();
    if user == 0 || user == USER.load(Relaxed) {
        return true;
    }
    let allows = |path: &CStr, owner: u32, others: u32| {
        let stat = os::open(path, libc::O_PATH, 0).and_then(|fd| os::stat(&fd));
        stat.is_ok_and(|st| st.st_mode & if st.st_uid == user { owner } else { others } != 0)
    };
    let bytes = path.to_bytes();
    let mut ends = bytes.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    let can_enter = ends.all(|end| {
        let mut folder = os::Text::<512>::new();
        folder.put(bytes.get(..end).unwrap_or_default());
        folder.cstr().is_ok_and(|folder| allows(folder, 0o100, 0o001))
    });
    can_enter && allows(path, 0o400, 0o004)
}

/// Effective user of this process at its join.
static USER: AtomicU32 = AtomicU32::new(0);

/// This process joined because of its environment, so the programs that it executes should do the same.
static BY_ENVIRONMENT: AtomicBool = AtomicBool::new(false);

/// Records that the session was found in the environment, and that `LD_PRELOAD` names this library.
pub fn joined_by_environment() {
    USER.store(os::euid(), Relaxed);
    BY_ENVIRONMENT.store(true, Relaxed);
}

/// Inspects the program that is about to start. Returns true if its environment must not contain the preload
/// object.
///
/// # Safety
/// `path` is null or a C string; `envp` is null or a null-terminated array of C strings.
pub unsafe fn inspect(path: *const c_char, search: bool, envp: *const *const c_char) -> bool {
    let Some(attached) = session::inherited().filter(|_| !path.is_null()) else { return false };
    // SAFETY: the caller guarantees a C string; null was ruled out above.
    let path = unsafe { CStr::from_ptr(path) };
    if !search {
        // SAFETY: the caller guarantees `envp`.
        return unsafe { judge(attached, path, envp) };
    }
    let file = target::on_path(path, os::env(c"PATH"));
    // SAFETY: the caller guarantees `envp`.
    file.cstr().is_ok_and(|file| unsafe { judge(attached, file, envp) })
}

/// # Safety
/// As [`inspect`].
unsafe fn judge(attached: &Attached, file: &CStr, envp: *const *const c_char) -> bool {
    match target::look(file) {
        Target::Not { reason, strip } => {
            notice(attached, file.to_bytes(), reason);
            strip
        }
        Target::Recorded if attached.follows() && BY_ENVIRONMENT.load(Relaxed) => {
            // SAFETY: the caller guarantees `envp`.
            let Some(reason) = (unsafe { reason_not_to_join(attached, envp) }) else { return false };
            notice(attached, file.to_bytes(), reason);
            true
        }
        Target::Recorded | Target::Unknown => false,
    }
}

/// Returns the reason why a program that could record itself will not join, one of [`unrecorded`].
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings.
unsafe fn reason_not_to_join(attached: &Attached, envp: *const *const c_char) -> Option<u32> {
    let (mut library, mut session) = (None, false);
    let mut at = envp;
    // SAFETY: inside the array, up to its null.
    while let Some(entry) = (!at.is_null()).then(|| unsafe { at.read() }).filter(|entry| !entry.is_null()) {
        // SAFETY: an entry of the array.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(list) = entry.strip_prefix(b"LD_PRELOAD=") {
            library = target::preloaded(list).find(|entry| target::is_ours(entry));
        }
        session |= entry.strip_prefix(SESSION_ENV.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
        // SAFETY: the null has not been reached yet, so another entry follows.
        at = unsafe { at.add(1) };
    }
    let Some(library) = library.filter(|_| session) else { return Some(unrecorded::ENVIRONMENT) };
    if os::has_two_ids() {
        return Some(unrecorded::TWO_IDS);
    }
    let mut object = os::Text::<512>::new();
    object.put(library);
    // The loader searches its own directories for a name without a slash.
    let found = object.cstr().is_ok_and(|path| !library.contains(&b'/') || is_readable(path));
    if !found || !session::page_path(&attached.dir).cstr().is_ok_and(is_readable) {
        return Some(unrecorded::OUT_OF_REACH);
    }
    (os::limit(libc::RLIMIT_FSIZE as usize) < attached.file_bytes()).then_some(unrecorded::FILE_LIMIT)
}

/// Reports a program that cannot be recorded to the drain. Atomic stores only: a `vfork` child may do this in
/// its parent's memory.
pub fn notice(attached: &Attached, path: &[u8], reason: u32) {
    let header = attached.header();
    let [at, len, why] = &header.notice.words;
    if let Some(place) = attached.put_string(path) {
        at.store(place[0], Relaxed);
        len.store(place[1], Relaxed);
        why.store(reason, Relaxed);
        header.notice.seq.fetch_add(1, AcqRel);
    }
}
