//! Joins a recording: opens the session directory and creates this process's file in it.
//!
//! ```text
//! open session → check it → map it, rows → create <pid>-<n>.tmp → reserve and map it → fill the header and the
//! module log → rename to <pid>-<n>.proc → close everything
//! ```

use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use flightline_in_signal::layout::{
    FixedSettings, Format, Identity, LISTENS, MAGIC, MAX_DEPTH, PROC_SUFFIX, ProcLayout, ProcParts,
    ROWS_FILE, SESSION_BYTES, SIZES, SessionPage, ThreadSlot, proc_state, session_flags,
};
use flightline_in_signal::os::{clock, sys};
use flightline_in_signal::ring::Ring;
use flightline_in_signal::state::{PRIVATE_BYTES, Private, ProcState};
use flightline_in_signal::unwind::modules::select;

use crate::modules;
use crate::os::{self, Fd};
use crate::session::retained_mapping::Range;
use crate::session::{
    self, Attached, Dir, FIRST_SLOTS, Mappings, READ, READ_WRITE, RETAINED_FILE, RETAINED_PAGE,
    RETAINED_PRIVATE, RETAINED_ROWS, path, populate,
};
use crate::threads::names;

/// Number of recordings joined so far, see [`ProcState::salt`].
static JOINED: AtomicU32 = AtomicU32::new(0);

/// Reason why a process did not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A system call on this file failed with this errno.
    Os(&'static str, c_int),
    /// The session belongs to another user.
    Owner,
    /// The session was created by another build, or its page is invalid.
    Format,
    /// The session has ended, or does not follow children.
    NotWanted,
    /// The session has no memory for another process.
    Full,
}

impl Refused {
    /// Returns the failed step and its errno, for one line of text.
    pub fn text(&self) -> (&'static str, c_int) {
        match self {
            Refused::Os(what, errno) => (what, *errno),
            Refused::Owner => ("the session directory belongs to another user", 0),
            Refused::Format => ("the session belongs to another version of Flightline", 0),
            Refused::NotWanted => ("the session has ended or does not follow child processes", 0),
            Refused::Full => ("the session has reached its limit of processes", 0),
        }
    }
}

/// Maximum length of a recorded command line, bytes.
const CMDLINE_BYTES: usize = 16 * 1024;

/// The private mapping: the memory of handlers, then [`Attached`].
const PRIVATE_MAPPING_BYTES: usize = (PRIVATE_BYTES + size_of::<Attached>() + 4095) & !4095;

fn at(what: &'static str) -> impl Fn(c_int) -> Refused {
    move |errno| Refused::Os(what, errno)
}

/// Source of the module list for the new process file.
pub enum Modules<'a> {
    /// The loader; `true` while it starts the program.
    Loader(bool),
    /// Another process's list: in the child of a fork, where the holder of the loader's lock may not exist.
    Copy(&'a Attached),
    /// The drain, which reads the map of the process; until then handlers use the loader's lock-free table.
    /// For handlers, which may have interrupted the loader.
    Drain,
}

/// Joins the session in `dir`. Afterwards handlers may run, but nothing is armed yet.
pub fn attach(dir: &CStr, from: &Modules<'_>) -> Result<&'static Attached, Refused> {
    let mut home = Dir::new();
    home.put(dir.to_bytes());
    home.cstr().map_err(at("session directory"))?;
    let mapped = map_session(&home)?;
    let MappedSession { page, session, fixed } = &mapped;
    let number = session.processes.joined.fetch_add(1, Relaxed);
    let leave = || {
        session.processes.gone.fetch_add(1, Relaxed);
        RETAINED_PAGE.keep(*page, READ_WRITE);
    };
    if session.stop.load(Relaxed) != 0 || (number > 0 && fixed.flags & session_flags::FOLLOW == 0) {
        leave();
        return Err(Refused::NotWanted);
    }
    // Processes may begin and end faster than the drain removes their files.
    if number.saturating_sub(session.processes.gone.load(Relaxed)) >= fixed.most_processes {
        session.processes.refused.fetch_add(1, Relaxed);
        leave();
        return Err(Refused::Full);
    }
    let rows = map_rows(&home, fixed.rows_bytes).inspect_err(|_| leave())?;
    let attached = create(&home, &mapped, number, rows).inspect_err(|refused| {
        if let Refused::Os(_, libc::ENOSPC | libc::ENOMEM) = refused {
            session.processes.refused.fetch_add(1, Relaxed);
        }
        RETAINED_ROWS.keep(rows, READ);
        leave();
    })?;
    fill(attached, from);
    attached.header().magic.store(MAGIC, Release);
    let name = |suffix: &str| {
        let mut name = path(&home, b"");
        name.number(u64::from(attached.pid)).put(b"-").number(number).put(suffix.as_bytes());
        name
    };
    let (tmp, done) = (name(".tmp"), name(PROC_SUFFIX));
    let renamed = tmp.cstr().and_then(|tmp| os::rename(tmp, done.cstr()?));
    if let Err(errno) = renamed {
        if let Ok(tmp) = tmp.cstr() {
            os::unlink(tmp);
        }
        attached.give_back();
        return Err(Refused::Os("process file", errno));
    }
    session::publish(attached);
    Ok(attached)
}

/// A session that is mapped, but not joined yet.
struct MappedSession {
    page: Range,
    session: &'static SessionPage,
    /// The page's fixed part, read once and checked, because every recorded program can write the page.
    fixed: FixedSettings,
}

fn map_session(dir: &Dir) -> Result<MappedSession, Refused> {
    let name = session::page_path(dir);
    let name = name.cstr().map_err(at("session page"))?;
    let fd = os::open(name, libc::O_RDWR | libc::O_NOFOLLOW, 0).map_err(at("session page"))?;
    let st = os::stat(&fd).map_err(at("session page"))?;
    // A program that gave up root after its start joins root's session, which it could write in any case.
    if st.st_uid != os::euid() && st.st_uid != 0 {
        return Err(Refused::Owner);
    }
    if st.st_size < SESSION_BYTES as i64 {
        return Err(Refused::Format);
    }
    let page = RETAINED_PAGE
        .map(Some(&fd), SESSION_BYTES, READ_WRITE, libc::MAP_SHARED)
        .map_err(at("session page"))?;
    // SAFETY: a page-aligned mapping of a file that is long enough. The page consists of atomics, and the
    // range stays mapped: `RETAINED_PAGE` keeps it, and `Attached::unmap` requires that no code uses it.
    let session: &'static SessionPage = unsafe { &*(page.at as *const SessionPage) };
    let fixed = session.fixed.load();
    let good = session.format.load() == Format { magic: MAGIC, sizes: SIZES }
        && fixed.ring_bytes.is_power_of_two()
        && (8192..=1 << 33).contains(&fixed.ring_bytes)
        && (1..=1 << 16).contains(&fixed.thread_slots)
        && fixed.max_depth as usize <= MAX_DEPTH
        && session.live.period_ns.load(Relaxed) >= 1000
        && fixed.rows_bytes <= 1 << 40;
    if good {
        return Ok(MappedSession { page, session, fixed });
    }
    RETAINED_PAGE.keep(page, READ_WRITE);
    Err(Refused::Format)
}

fn map_rows(dir: &Dir, rows_bytes: u64) -> Result<Range, Refused> {
    let name = path(dir, ROWS_FILE.as_bytes());
    let name = name.cstr().map_err(at("unwind rows"))?;
    let fd = os::open(name, libc::O_RDONLY | libc::O_NOFOLLOW, 0).map_err(at("unwind rows"))?;
    let st = os::stat(&fd).map_err(at("unwind rows"))?;
    // A read beyond the file's end would raise SIGBUS.
    let bytes = rows_bytes.min(st.st_size.max(0) as u64) as usize & !4095;
    if bytes == 0 {
        return Ok(Range { at: 0, bytes: 0 });
    }
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    let range = RETAINED_ROWS.map(Some(&fd), bytes, READ, flags).map_err(at("unwind rows"))?;
    // A retained range may be longer than the file.
    Ok(Range { at: range.at, bytes })
}

fn create(dir: &Dir, mapped: &MappedSession, number: u64, rows: Range) -> Result<&'static Attached, Refused> {
    let layout = ProcLayout::new(mapped.fixed.thread_slots, mapped.fixed.ring_bytes);
    let pid = sys::getpid();
    let mut name = path(dir, b"");
    name.number(u64::from(pid)).put(b"-").number(number).put(b".tmp");
    let name = name.cstr().map_err(at("process file"))?;
    let fd =
        os::open(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600).map_err(at("process file"))?;
    let files = map_file(&fd, &layout).and_then(|file| {
        let private = RETAINED_PRIVATE.map(None, PRIVATE_MAPPING_BYTES, READ_WRITE, libc::MAP_PRIVATE);
        private.map(|private| (file, private)).inspect_err(|_| {
            RETAINED_FILE.keep(file, READ_WRITE);
        })
    });
    let (file, private) = files.map_err(|errno| {
        os::unlink(name);
        Refused::Os("process file", errno)
    })?;
    let mappings = Mappings { file, rows, page: mapped.page, private };
    place(dir, mapped, &layout, (pid, number), mappings).ok_or(Refused::Format)
}

/// Maps the whole file and populates the parts that handlers write. Parts that grow later are populated then.
fn map_file(fd: &Fd, layout: &ProcLayout) -> Result<Range, c_int> {
    let ring = layout.ring as usize;
    let end = layout.end as usize;
    let slots_end = layout.threads as usize + FIRST_SLOTS * size_of::<ThreadSlot>();
    // Beyond the program's limit the kernel does not only refuse: it sends SIGXFSZ, which ends the program.
    if end as u64 > os::limit(libc::RLIMIT_FSIZE as usize) {
        return Err(libc::EFBIG);
    }
    // SAFETY: no pointers.
    unsafe { os::syscall(libc::SYS_ftruncate, [fd.raw() as usize, end, 0, 0, 0, 0]) }?;
    let file = RETAINED_FILE.map(Some(fd), end, READ_WRITE, libc::MAP_SHARED)?;
    // The recorder's memory does not belong in core dumps, and the drain has it in any case.
    os::advise(file.at, end, libc::MADV_DONTDUMP);
    let parts = [(0, slots_end), (ring, end - ring)];
    let all = parts.iter().all(|(from, bytes)| populate(file.at + from, *bytes));
    // Before Linux 5.14 the pages are reserved in the file, which also prevents a later failure.
    if all || reserve(fd, end).is_ok() {
        return Ok(file);
    }
    RETAINED_FILE.keep(file, READ_WRITE);
    Err(libc::ENOSPC)
}

/// Reserves every page of the file.
fn reserve(fd: &Fd, bytes: usize) -> Result<(), c_int> {
    // SAFETY: no pointers.
    unsafe { os::syscall(libc::SYS_fallocate, [fd.raw() as usize, 0, 0, bytes, 0, 0]) }.map(drop)
}

fn place(
    dir: &Dir,
    mapped: &MappedSession,
    layout: &ProcLayout,
    (pid, number): (u32, u64),
    mappings: Mappings,
) -> Option<&'static Attached> {
    let Mappings { file, rows, private, .. } = mappings;
    let MappedSession { session, fixed, .. } = *mapped;
    // SAFETY: the file is as long as its layout and mapped as a whole at a page; it is never unmapped while
    // referenced. It starts zeroed, and from here on it is only accessed through these references.
    let parts: ProcParts<'static> = unsafe { ProcParts::new(file.at as *const u8, layout) };
    let header = parts.header;
    header.identity.store(Identity {
        pid,
        ppid: os::ppid(),
        pid_namespace: pid_namespace(),
        names_recorded: u32::from(names::are_recorded()),
        start_mono_ns: clock::monotonic_ns(),
        thread_slots: fixed.thread_slots,
        ring_bytes: fixed.ring_bytes,
        ..Identity::default()
    });
    header.state.store(proc_state::LIVE, Relaxed);
    // A change of the controls from here on is not applied yet.
    header.controlled.store(session.live.control.load(Acquire) & !LISTENS, Relaxed);
    let rows_words = if rows.bytes == 0 {
        &[]
    } else {
        // SAFETY: mapped read-only for that many bytes; atomics are only loaded.
        unsafe { core::slice::from_raw_parts(rows.at as *const AtomicU64, rows.bytes / 8) }
    };
    let ring = Ring::new(&header.ring, parts.ring)?;
    let salt = JOINED.fetch_add(1, Relaxed) as u8;
    // SAFETY: the start of a zeroed private mapping that is large enough.
    let handlers = unsafe { &*(private.at as *const Private) };
    let state = ProcState {
        session,
        fixed,
        pid,
        header,
        slots: parts.slots,
        tables: parts.tables,
        ring,
        rows: rows_words,
        private: handlers,
        salt,
    };
    let mut home = Dir::new();
    home.put(dir.bytes());
    let attached = Attached::new(home, number, state, parts, mappings);
    let at = (private.at + PRIVATE_BYTES) as *mut Attached;
    // SAFETY: after `Private` in the same mapping, aligned because PRIVATE_BYTES is a multiple of a page.
    unsafe { at.write(attached) };
    // SAFETY: written above, in memory that is never unmapped.
    Some(unsafe { &*at })
}

/// Inode of this process's pid namespace; 0 if `/proc` cannot be read.
fn pid_namespace() -> u64 {
    let namespace = os::open(c"/proc/self/ns/pid", libc::O_PATH, 0).and_then(|fd| os::stat(&fd));
    namespace.map_or(0, |stat| stat.st_ino)
}

fn fill(attached: &'static Attached, from: &Modules<'_>) {
    let header = attached.header();
    let mut identity = header.identity.load();
    let mut buffer = [0u8; 4096];
    let exe = os::readlink(c"/proc/self/exe", &mut buffer).unwrap_or(0);
    identity.exe = attached.put_string(buffer.get(..exe).unwrap_or_default()).unwrap_or_default();
    let directory = os::readlink(c"/proc/self/cwd", &mut buffer).unwrap_or(0);
    identity.directory = attached.put_string(buffer.get(..directory).unwrap_or_default()).unwrap_or_default();
    if let Ok(fd) = os::open(c"/proc/self/cmdline", libc::O_RDONLY, 0) {
        let start = header.modules.string_len.load(Relaxed);
        let mut total = 0;
        while total < CMDLINE_BYTES {
            let len = os::read_full(&fd, &mut buffer);
            if len == 0 || attached.put_string(buffer.get(..len).unwrap_or_default()).is_none() {
                break;
            }
            total += len;
        }
        identity.cmdline = [start, total as u32];
    }
    header.identity.store(identity);
    match from {
        Modules::Loader(permanent) => modules::write_initial(attached, *permanent),
        Modules::Copy(parent) => copy_modules(attached, parent),
        Modules::Drain => {
            // Table 0 is empty, and its count, which must be populated, says so.
            attached.room_in_table(0);
            attached.header().modules.maps_dirty.store(1, Release);
        }
    }
}

/// Copies the parent's log and its active table: a forked child has the same mappings.
fn copy_modules(attached: &Attached, parent: &Attached) {
    let mut count = 0;
    for (module, to) in modules::log(parent).iter().zip(attached.init_modules()) {
        let mut module = module.load();
        let Some(place) = attached.put_string(parent.string(module.path)) else { break };
        module.path = place;
        if !attached.room_in_log(count as usize) {
            break;
        }
        to.store(module);
        count += 1;
    }
    attached.header().modules.init_modules.store(count, Release);
    let own = attached.own_table();
    loop {
        let generation = parent.header().modules.generation.load(Acquire);
        let from = select(parent.state.tables, generation);
        let count = from.count.load(Acquire);
        if !attached.room_in_table(count as usize) {
            break;
        }
        for (to, from) in own.entries.iter().zip(&from.entries).take(count as usize) {
            to.store(from.load());
        }
        own.count.store(count, Relaxed);
        // The drain never rewrites the active table, nor the one before it.
        let now = parent.header().modules.generation.load(Acquire);
        if now.wrapping_sub(generation) < 2 {
            break;
        }
    }
    if attached.room_in_table(0) {
        own.generation.store(0, Relaxed);
    }
    attached.header().modules.maps_dirty.store(1, Release);
}
