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
    INIT_MODULES, LISTENS, MAGIC, MAX_DEPTH, MODULE_TABLES, ModuleTable, PROC_SUFFIX, ProcHeader, ProcLayout,
    ROWS_FILE, SESSION_BYTES, SIZES, SessionPage, ThreadSlot, proc_state, session_flags,
};
use flightline_in_signal::os::{clock, sys};
use flightline_in_signal::ring::Ring;
use flightline_in_signal::state::{PRIVATE_BYTES, Private, ProcState};

use crate::modules;
use crate::os::{self, Fd};
use crate::session::retained_mapping::Range;
use crate::session::{
    self, Attached, Dir, FIRST_SLOTS, Mappings, READ, READ_WRITE, RETAINED_FILE, RETAINED_PAGE,
    RETAINED_PRIVATE, RETAINED_ROWS, path, populate, table_bytes,
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
            Refused::Format => ("the session was made by another version", 0),
            Refused::NotWanted => ("the session is over or does not follow children", 0),
            Refused::Full => ("the session has memory for no more processes", 0),
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
    let (page, sizes) = map_session(&home)?;
    // SAFETY: `map_session` has checked the size, and the range is never unmapped while referenced.
    let session = unsafe { &*(page.at as *const SessionPage) };
    let number = session.processes.fetch_add(1, Relaxed);
    let leave = || {
        session.processes_gone.fetch_add(1, Relaxed);
        RETAINED_PAGE.keep(page, READ_WRITE);
    };
    if session.stop.load(Relaxed) != 0 || (number > 0 && session.flags & session_flags::FOLLOW == 0) {
        leave();
        return Err(Refused::NotWanted);
    }
    // Processes may begin and end faster than the drain removes their files.
    if number.saturating_sub(session.processes_gone.load(Relaxed)) >= session.most_processes {
        session.processes_refused.fetch_add(1, Relaxed);
        leave();
        return Err(Refused::Full);
    }
    let rows = map_rows(&home, sizes.rows_bytes).inspect_err(|_| leave())?;
    let attached = create(&home, page, &sizes, number, rows).inspect_err(|refused| {
        if let Refused::Os(_, libc::ENOSPC | libc::ENOMEM) = refused {
            session.processes_refused.fetch_add(1, Relaxed);
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

/// Sizes from the session page, read once and checked, because every recorded program can write the page.
struct Sizes {
    thread_slots: u32,
    ring_bytes: u64,
    rows_bytes: u64,
}

impl Sizes {
    fn layout(&self) -> ProcLayout {
        ProcLayout::new(self.thread_slots, self.ring_bytes)
    }
}

fn map_session(dir: &Dir) -> Result<(Range, Sizes), Refused> {
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
    // SAFETY: inside a file that is long enough; the reference ends here.
    let session = unsafe { &*(page.at as *const SessionPage) };
    // SAFETY: fields of that page; another process may write them at any time.
    let sizes = unsafe {
        Sizes {
            thread_slots: (&raw const session.thread_slots).read_volatile(),
            ring_bytes: (&raw const session.ring_bytes).read_volatile(),
            rows_bytes: (&raw const session.rows_bytes).read_volatile(),
        }
    };
    let good = session.magic == MAGIC
        && session.sizes == SIZES
        && sizes.ring_bytes.is_power_of_two()
        && (8192..=1 << 33).contains(&sizes.ring_bytes)
        && (1..=1 << 16).contains(&sizes.thread_slots)
        && session.max_depth as usize <= MAX_DEPTH
        && session.period_ns.load(Relaxed) >= 1000
        && sizes.rows_bytes <= 1 << 40;
    if good {
        return Ok((page, sizes));
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

fn create(
    dir: &Dir,
    page: Range,
    sizes: &Sizes,
    number: u64,
    rows: Range,
) -> Result<&'static Attached, Refused> {
    let layout = sizes.layout();
    let pid = sys::getpid();
    let mut name = path(dir, b"");
    name.number(u64::from(pid)).put(b"-").number(number).put(b".tmp");
    let name = name.cstr().map_err(at("process file"))?;
    let fd =
        os::open(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600).map_err(at("process file"))?;
    let mapped = map_file(&fd, &layout).and_then(|file| {
        let private = RETAINED_PRIVATE.map(None, PRIVATE_MAPPING_BYTES, READ_WRITE, libc::MAP_PRIVATE);
        private.map(|private| (file, private)).inspect_err(|_| {
            RETAINED_FILE.keep(file, READ_WRITE);
        })
    });
    let (file, private) = mapped.map_err(|errno| {
        os::unlink(name);
        Refused::Os("process file", errno)
    })?;
    place(dir, sizes, (pid, number), Mappings { file, rows, page, private }).ok_or(Refused::Format)
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
    sizes: &Sizes,
    (pid, number): (u32, u64),
    mappings: Mappings,
) -> Option<&'static Attached> {
    let layout = sizes.layout();
    let Mappings { file, rows, page, private } = mappings;
    let base = file.at;
    let part = |offset: u64| base + offset as usize;
    // SAFETY: `map_session` has checked the size, and the range is never unmapped while referenced.
    let session: &'static SessionPage = unsafe { &*(page.at as *const SessionPage) };
    let ring_words = (sizes.ring_bytes / 8) as usize;
    // SAFETY: the mapping has all parts of its layout; the header starts zeroed, which is valid for atomics and integers.
    let header = unsafe { &mut *(base as *mut ProcHeader) };
    header.pid = pid;
    header.ppid = os::ppid();
    header.pid_namespace = pid_namespace();
    header.names_recorded = u32::from(names::are_recorded());
    header.start_mono_ns = clock::monotonic_ns();
    header.thread_slots = sizes.thread_slots;
    header.threads_off = layout.threads;
    header.modules_off = layout.modules;
    header.init_modules_off = layout.init_modules;
    header.strings_off = layout.strings;
    header.ring_off = layout.ring;
    header.ring_bytes = sizes.ring_bytes;
    header.state.store(proc_state::LIVE, Relaxed);
    // A change of the controls from here on is not applied yet.
    header.controlled.store(session.control.load(Acquire) & !LISTENS, Relaxed);
    // SAFETY: from here on the header is only read, or written through its atomics.
    let header = unsafe { &*(base as *const ProcHeader) };
    // SAFETY: `thread_slots` slots lie there; zeroed memory is valid for their atomics.
    let slots = unsafe {
        core::slice::from_raw_parts(part(layout.threads) as *const ThreadSlot, sizes.thread_slots as usize)
    };
    // SAFETY: `ring_bytes` bytes of zeroed words lie there.
    let words = unsafe { core::slice::from_raw_parts(part(layout.ring) as *const AtomicU64, ring_words) };
    let rows_words = if rows.bytes == 0 {
        &[]
    } else {
        // SAFETY: mapped read-only for that many bytes; atomics are only loaded.
        unsafe { core::slice::from_raw_parts(rows.at as *const AtomicU64, rows.bytes / 8) }
    };
    let ring = Ring::new(&header.ring, words)?;
    let salt = JOINED.fetch_add(1, Relaxed) as u8;
    // SAFETY: the start of a zeroed private mapping that is large enough.
    let handlers = unsafe { &*(private.at as *const Private) };
    let state = ProcState {
        session,
        header,
        slots,
        tables: part(layout.modules) as *const ModuleTable,
        ring,
        rows: rows_words,
        private: handlers,
        salt,
    };
    let mut home = Dir::new();
    home.put(dir.bytes());
    let attached = Attached::new(pid, home, number, state, mappings);
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
    let header_at = core::ptr::from_ref(header).cast_mut();
    let mut buffer = [0u8; 4096];
    let exe = os::readlink(c"/proc/self/exe", &mut buffer).unwrap_or(0);
    let place = attached.put_string(buffer.get(..exe).unwrap_or_default()).unwrap_or_default();
    // SAFETY: the file is not yet visible to the drain, and no other thread knows it: plain fields may be
    // written.
    unsafe { (&raw mut (*header_at).exe).write(place) };
    let directory = os::readlink(c"/proc/self/cwd", &mut buffer).unwrap_or(0);
    let place = attached.put_string(buffer.get(..directory).unwrap_or_default()).unwrap_or_default();
    // SAFETY: the file is not yet visible to the drain, and no other thread knows it: plain fields may be
    // written.
    unsafe { (&raw mut (*header_at).directory).write(place) };
    if let Ok(fd) = os::open(c"/proc/self/cmdline", libc::O_RDONLY, 0) {
        let start = header.string_len.load(Relaxed);
        let mut total = 0;
        while total < CMDLINE_BYTES {
            let len = os::read_full(&fd, &mut buffer);
            if len == 0 || attached.put_string(buffer.get(..len).unwrap_or_default()).is_none() {
                break;
            }
            total += len;
        }
        // SAFETY: the file is not yet visible to the drain, and no other thread knows it: plain fields may be
        // written.
        unsafe { (&raw mut (*header_at).cmdline).write([start, total as u32]) };
    }
    match from {
        Modules::Loader(permanent) => modules::write_initial(attached, *permanent),
        Modules::Copy(parent) => copy_modules(attached, parent),
        Modules::Drain => {
            // Table 0 is empty, and its count, which must be populated, says so.
            attached.room_in_table(0);
            attached.header().maps_dirty.store(1, Release);
        }
    }
}

/// Copies the parent's log and its active table: a forked child has the same mappings.
fn copy_modules(attached: &Attached, parent: &Attached) {
    let mut count = 0;
    for module in modules::log(parent).iter().take(INIT_MODULES) {
        let mut module = *module;
        let Some(place) = attached.put_string(parent.string(module.path)) else { break };
        module.path = place;
        if !attached.room_in_log(count as usize) {
            break;
        }
        // SAFETY: inside the area and populated; the entry is read only after the count includes it.
        unsafe { attached.init_modules().add(count as usize).write(module) };
        count += 1;
    }
    attached.header().init_modules.store(count, Release);
    loop {
        let generation = parent.header().modules_gen.load(Acquire);
        // SAFETY: the parent's tables are still mapped in the child.
        let from = unsafe { parent.tables().add(generation as usize % MODULE_TABLES) };
        // SAFETY: an atomic of that table.
        let count = unsafe { (*from).count.load(Acquire) } as usize;
        if !attached.room_in_table(count) {
            break;
        }
        // SAFETY: only this process writes table 0 of the new file until it is published; it is populated and
        // lies in another mapping.
        unsafe {
            core::ptr::copy_nonoverlapping(from.cast::<u8>(), attached.tables().cast(), table_bytes(count));
        }
        // The drain never rewrites the active table, nor the one before it.
        let now = parent.header().modules_gen.load(Acquire);
        if now.wrapping_sub(generation) < 2 {
            break;
        }
    }
    if attached.room_in_table(0) {
        // SAFETY: populated, and an atomic of the process's own table.
        unsafe { (*attached.tables()).generation.store(0, Relaxed) };
    }
    attached.header().maps_dirty.store(1, Release);
}
