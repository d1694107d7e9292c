//! Joins a recording: opens the session directory and makes this process's file in it.
//!
//! ```text
//! open session → check it → map it, rows → create <pid>-<n>.tmp → reserve and map it → fill the header and the
//! module log → rename to <pid>-<n>.proc → close everything
//! ```
//! No descriptor stays open. Memory that is written later is made present first: a full tmpfs refuses the attach (or one
//! thread, one module) instead of killing the program with SIGBUS.

use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use flightline_in_signal::layout::{
    INIT_MODULES, InitModule, MAGIC, MAX_DEPTH, MODULE_TABLES, MODULES_PER_TABLE, ModuleEntry, ModuleTable,
    PROC_SUFFIX, ProcHeader, ProcLayout, ROWS_FILE, SESSION_FILE, SIZES, STRING_BYTES, SessionPage,
    ThreadSlot, proc_state, session_flags,
};
use flightline_in_signal::ring::Ring;
use flightline_in_signal::state::{PRIVATE_BYTES, Private, ProcState};
use flightline_in_signal::{clock, state, sys};

use crate::os::{self, Fd, Spin, Text};
use crate::{modules, sandbox};

/// Why a process did not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A system call on this file failed with this errno.
    Os(&'static str, c_int),
    /// The session belongs to another user.
    Owner,
    /// The session was made by another build, or its page holds nonsense.
    Format,
    /// The session is over, or does not follow children.
    NotWanted,
}

impl Refused {
    /// What happened, for one line of text.
    pub fn text(&self) -> (&'static str, c_int) {
        match self {
            Refused::Os(what, errno) => (what, *errno),
            Refused::Owner => ("the session directory belongs to another user", 0),
            Refused::Format => ("the session was made by another version", 0),
            Refused::NotWanted => ("the session is over or does not follow children", 0),
        }
    }
}

/// Path of a session directory.
pub type Dir = Text<256>;

/// A joined recording; lives in memory that is never unmapped while the process has handlers.
pub struct Attached {
    /// Process that joined: a forked child sees its parent's `Attached` until it joins itself.
    pub pid: u32,
    /// The session directory.
    pub dir: Dir,
    /// What handlers use.
    pub state: ProcState,
    /// Held while the module log or the string area grows.
    pub log_lock: Spin,
    base: usize,
    layout: ProcLayout,
    rows: (usize, usize),
    private: usize,
    /// Ends of what is present of the slots, the module log, the strings and table 0, as addresses.
    present: [AtomicUsize; 4],
    /// Registrations so far.
    registered: AtomicUsize,
}

/// Parts of the file that grow, as indices of `Attached::present`.
#[derive(Clone, Copy)]
enum Part {
    Slots,
    Log,
    Strings,
    Table,
}

static CURRENT: AtomicPtr<Attached> = AtomicPtr::new(core::ptr::null_mut());

/// The joined recording of this process. `None` before, in a child that has not joined, in a `vfork` child, and in a
/// thread that may make no system calls.
pub fn current() -> Option<&'static Attached> {
    if sandbox::applies() {
        return None;
    }
    // SAFETY: set by `attach` only, to memory that stays.
    let attached = unsafe { CURRENT.load(Acquire).as_ref() }?;
    (attached.pid == sys::getpid()).then_some(attached)
}

/// The joined recording of this process or of the parent whose memory this child shares or copied.
pub fn inherited() -> Option<&'static Attached> {
    // SAFETY: as above.
    unsafe { CURRENT.load(Acquire).as_ref() }
}

/// Present from the start, before the first thread registers.
const FIRST_SLOTS: usize = 16;
/// Made present at once when more are needed.
const MORE_SLOTS: usize = 64;
/// Longest command line recorded.
const CMDLINE_BYTES: usize = 16 * 1024;

impl Attached {
    /// The process header in shared memory.
    pub fn header(&self) -> &ProcHeader {
        self.state.header
    }

    /// The session's page.
    pub fn session(&self) -> &SessionPage {
        self.state.session
    }

    /// First module table.
    pub fn tables(&self) -> *mut ModuleTable {
        (self.base + self.layout.modules as usize) as *mut ModuleTable
    }

    /// First entry of the module log.
    pub fn init_modules(&self) -> *mut InitModule {
        (self.base + self.layout.init_modules as usize) as *mut InitModule
    }

    /// Appends to the string area; offset and length, `None` when it is full. The caller holds `log_lock` or is alone.
    pub fn put_string(&self, text: &[u8]) -> Option<[u32; 2]> {
        let header = self.header();
        let len = u32::try_from(text.len()).ok()?;
        let at = header
            .string_len
            .fetch_update(AcqRel, Relaxed, |used| {
                used.checked_add(len).filter(|end| *end <= STRING_BYTES as u32)
            })
            .ok()?;
        let to = (self.base + self.layout.strings as usize + at as usize) as *mut u8;
        if !self.make_present(Part::Strings, to as usize + len as usize) {
            return None;
        }
        // SAFETY: the range was claimed by the update above and is present.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
        Some([at, len])
    }

    /// A string put earlier.
    pub fn string(&self, place: [u32; 2]) -> &[u8] {
        let [at, len] = place;
        if at.checked_add(len).is_none_or(|end| end > STRING_BYTES as u32) {
            return &[];
        }
        let from = (self.base + self.layout.strings as usize + at as usize) as *const u8;
        // SAFETY: inside the area; written before its place was handed out.
        unsafe { core::slice::from_raw_parts(from, len as usize) }
    }

    /// Makes room in the module log for entry `index`; `false` when the file system is full.
    pub fn room_in_log(&self, index: usize) -> bool {
        self.make_present(Part::Log, self.init_modules() as usize + (index + 1) * size_of::<InitModule>())
    }

    /// Makes room in table 0 for `count` entries; `false` when the file system is full.
    pub fn room_in_table(&self, count: usize) -> bool {
        self.make_present(Part::Table, self.tables() as usize + table_bytes(count))
    }

    /// Makes room for one more registration of a thread. Slots are taken from the lowest: no more of them than threads
    /// ever registered can be in use.
    pub fn room_for_thread(&self) -> bool {
        let wanted = (self.registered.fetch_add(1, Relaxed) + 1).min(self.state.slots.len());
        let slots = self.state.slots.as_ptr() as usize;
        let end = |count: usize| slots + count.min(self.state.slots.len()) * size_of::<ThreadSlot>();
        // A claim looks at one slot beyond those in use.
        end(wanted + 1) <= self.present[Part::Slots as usize].load(Acquire)
            || self.make_present(Part::Slots, end(wanted + MORE_SLOTS))
    }

    fn make_present(&self, part: Part, end: usize) -> bool {
        let Some(known) = self.present.get(part as usize) else { return false };
        let from = known.load(Acquire);
        if end <= from {
            return true;
        }
        let end = (end + 4095) & !4095;
        // Two threads may do the same at the same time: it is idempotent.
        if !populate(from, end - from) {
            return false;
        }
        known.fetch_max(end, Release);
        true
    }

    /// Unmaps everything of this recording, `self` included.
    ///
    /// # Safety
    /// No other thread of this process, no handler and no later code uses it: in the child of a fork, or when every
    /// thread is disarmed and [`state::uninstall`] was called long enough ago.
    pub unsafe fn unmap(&'static self) {
        let (base, end, rows, private) = (self.base, self.layout.end as usize, self.rows, self.private);
        let session = core::ptr::from_ref(self.state.session) as usize;
        // SAFETY: by the contract.
        unsafe { os::unmap(base, end) };
        // SAFETY: by the contract.
        unsafe { os::unmap(rows.0, rows.1) };
        // SAFETY: by the contract.
        unsafe { os::unmap(session, SESSION_BYTES) };
        // SAFETY: by the contract; `self` lived in here.
        unsafe { os::unmap(private, HOME_BYTES) };
    }
}

/// Bytes of a table's head and first entries.
fn table_bytes(count: usize) -> usize {
    core::mem::offset_of!(ModuleTable, entries) + count.min(MODULES_PER_TABLE) * size_of::<ModuleEntry>()
}

const SESSION_BYTES: usize = 4096;
/// The private mapping: what handlers need, then [`Attached`].
const HOME_BYTES: usize = (PRIVATE_BYTES + size_of::<Attached>() + 4095) & !4095;

fn at(what: &'static str) -> impl Fn(c_int) -> Refused {
    move |errno| Refused::Os(what, errno)
}

fn path(dir: &Dir, name: &[u8]) -> Text<320> {
    let mut path = Text::new();
    path.put(dir.bytes()).put(b"/").put(name);
    path
}

/// Where a module list for the new process file comes from.
pub enum Modules<'a> {
    /// Ask the loader; `true` while it is still starting the program.
    Loader(bool),
    /// Copy another process's: in the child of a fork, where the loader's lock may be held by nobody.
    Copy(&'a Attached),
}

/// Joins the session in `dir`: afterwards handlers may run, nothing is armed yet.
pub fn attach(dir: &CStr, from: &Modules<'_>) -> Result<&'static Attached, Refused> {
    let mut home = Dir::new();
    home.put(dir.to_bytes());
    home.cstr().map_err(at("session directory"))?;
    let session = map_session(&home)?;
    let number = session.processes.fetch_add(1, Relaxed);
    if session.stop.load(Relaxed) != 0 || (number > 0 && session.flags & session_flags::FOLLOW == 0) {
        return Err(Refused::NotWanted);
    }
    let rows = map_rows(&home, session)?;
    let attached = create(&home, session, number, rows)?;
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
        // SAFETY: nothing was installed yet, nobody knows the mapping.
        unsafe { attached.unmap() };
        return Err(Refused::Os("process file", errno));
    }
    CURRENT.store(core::ptr::from_ref(attached).cast_mut(), Release);
    // SAFETY: the mappings stay until the process ends or `unmap` is called under its contract.
    unsafe { state::install(&attached.state) };
    Ok(attached)
}

/// Forgets the recording: in the child of a fork, or when everything is disarmed. Its memory stays mapped.
pub fn forget() {
    state::uninstall();
    CURRENT.store(core::ptr::null_mut(), Release);
}

fn map_session(dir: &Dir) -> Result<&'static SessionPage, Refused> {
    let name = path(dir, SESSION_FILE.as_bytes());
    let name = name.cstr().map_err(at("session page"))?;
    let fd = os::open(name, libc::O_RDWR | libc::O_NOFOLLOW, 0).map_err(at("session page"))?;
    let st = os::stat(&fd).map_err(at("session page"))?;
    // Root's session is joined by programs that gave up root after they were started: they could write it anyway.
    if st.st_uid != os::euid() && st.st_uid != 0 {
        return Err(Refused::Owner);
    }
    if st.st_size < SESSION_BYTES as i64 {
        return Err(Refused::Format);
    }
    let page = os::map(Some(&fd), SESSION_BYTES, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
        .map_err(at("session page"))?;
    // SAFETY: one whole page of a file that has it; never unmapped while referenced.
    let session = unsafe { &*(page as *const SessionPage) };
    let good = session.magic == MAGIC
        && session.sizes == SIZES
        && session.ring_bytes.is_power_of_two()
        && (8192..=1 << 33).contains(&session.ring_bytes)
        && (1..=1 << 16).contains(&session.thread_slots)
        && session.max_depth as usize <= MAX_DEPTH
        && session.period_ns >= 1000
        && session.rows_bytes <= 1 << 40;
    if good {
        return Ok(session);
    }
    // SAFETY: mapped above, the only reference ends here.
    unsafe { os::unmap(page, SESSION_BYTES) };
    Err(Refused::Format)
}

fn map_rows(dir: &Dir, session: &SessionPage) -> Result<(usize, usize), Refused> {
    let name = path(dir, ROWS_FILE.as_bytes());
    let name = name.cstr().map_err(at("unwind rows"))?;
    let fd = os::open(name, libc::O_RDONLY | libc::O_NOFOLLOW, 0).map_err(at("unwind rows"))?;
    let st = os::stat(&fd).map_err(at("unwind rows"))?;
    // Reading beyond the file's end would be SIGBUS.
    let bytes = session.rows_bytes.min(st.st_size.max(0) as u64) as usize & !4095;
    if bytes == 0 {
        return Ok((0, 0));
    }
    let address = os::map(Some(&fd), bytes, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_NORESERVE)
        .map_err(at("unwind rows"))?;
    Ok((address, bytes))
}

fn create(
    dir: &Dir,
    session: &'static SessionPage,
    number: u64,
    rows: (usize, usize),
) -> Result<&'static Attached, Refused> {
    let layout = ProcLayout::new(session.thread_slots, session.ring_bytes);
    let pid = sys::getpid();
    let mut name = path(dir, b"");
    name.number(u64::from(pid)).put(b"-").number(number).put(b".tmp");
    let name = name.cstr().map_err(at("process file"))?;
    let fd =
        os::open(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600).map_err(at("process file"))?;
    let mapped = map_file(&fd, &layout).and_then(|base| {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let private = os::map(None, HOME_BYTES, rw, libc::MAP_PRIVATE);
        private.map(|private| (base, private)).inspect_err(|_| {
            // SAFETY: mapped a moment ago, unknown to anybody.
            unsafe { os::unmap(base, layout.end as usize) }
        })
    });
    let (base, private) = mapped.map_err(|errno| {
        os::unlink(name);
        Refused::Os("process file", errno)
    })?;
    place(dir, session, &layout, pid, base, rows, private).ok_or(Refused::Format)
}

/// Maps the whole file and makes the parts present that handlers write. What grows later is made present then.
fn map_file(fd: &Fd, layout: &ProcLayout) -> Result<usize, c_int> {
    let ring = layout.ring as usize;
    let end = layout.end as usize;
    let slots_end = layout.threads as usize + FIRST_SLOTS * size_of::<ThreadSlot>();
    // SAFETY: no pointers.
    unsafe { os::syscall(libc::SYS_ftruncate, [fd.raw() as usize, end, 0, 0, 0, 0]) }?;
    let base = os::map(Some(fd), end, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)?;
    // Kept out of core dumps: it is the recorder's memory, and the drain has it anyway.
    os::advise(base, end, libc::MADV_DONTDUMP);
    let parts = [(0, slots_end), (ring, end - ring)];
    let all = parts.iter().all(|(from, bytes)| populate(base + from, *bytes));
    // Before Linux 5.14 the pages are reserved in the file, which cannot fail later either.
    if all || reserve(fd, end).is_ok() {
        return Ok(base);
    }
    // SAFETY: mapped above, unknown to anybody.
    unsafe { os::unmap(base, end) };
    Err(libc::ENOSPC)
}

/// Makes pages present; `false` if there is no memory for them or the kernel cannot (before Linux 5.14). Unlike a plain
/// access, that is no SIGBUS when the file system is full.
fn populate(address: usize, bytes: usize) -> bool {
    let from = address & !4095;
    os::advise(from, (address + bytes).next_multiple_of(4096) - from, libc::MADV_POPULATE_WRITE)
}

/// Reserves every page of the file.
fn reserve(fd: &Fd, bytes: usize) -> Result<(), c_int> {
    // SAFETY: no pointers.
    unsafe { os::syscall(libc::SYS_fallocate, [fd.raw() as usize, 0, 0, bytes, 0, 0]) }.map(drop)
}

fn place(
    dir: &Dir,
    session: &'static SessionPage,
    layout: &ProcLayout,
    pid: u32,
    base: usize,
    rows: (usize, usize),
    private: usize,
) -> Option<&'static Attached> {
    let part = |offset: u64| base + offset as usize;
    let ring_words = (session.ring_bytes / 8) as usize;
    // SAFETY: the mapping has all parts of its layout; the header starts zeroed, which is valid for atomics and integers.
    let header = unsafe { &mut *(base as *mut ProcHeader) };
    header.pid = pid;
    header.ppid = os::ppid();
    header.start_mono_ns = clock::monotonic_ns();
    header.thread_slots = session.thread_slots;
    header.threads_off = layout.threads;
    header.modules_off = layout.modules;
    header.init_modules_off = layout.init_modules;
    header.strings_off = layout.strings;
    header.ring_off = layout.ring;
    header.ring_bytes = session.ring_bytes;
    header.state.store(proc_state::LIVE, Relaxed);
    // SAFETY: from here on the header is only read, or written through its atomics.
    let header = unsafe { &*(base as *const ProcHeader) };
    // SAFETY: `thread_slots` slots lie there, zeroed atomics.
    let slots = unsafe {
        core::slice::from_raw_parts(part(layout.threads) as *const ThreadSlot, session.thread_slots as usize)
    };
    // SAFETY: `ring_bytes` bytes of zeroed words lie there.
    let words = unsafe { core::slice::from_raw_parts(part(layout.ring) as *const AtomicU64, ring_words) };
    let rows_words = if rows.1 == 0 {
        &[]
    } else {
        // SAFETY: mapped read-only for that many bytes; atomics are only loaded.
        unsafe { core::slice::from_raw_parts(rows.0 as *const AtomicU64, rows.1 / 8) }
    };
    let ring = Ring::new(&header.ring, words)?;
    // SAFETY: the start of a zeroed private mapping that is large enough.
    let handlers = unsafe { &*(private as *const Private) };
    let state = ProcState {
        session,
        header,
        slots,
        tables: part(layout.modules) as *const ModuleTable,
        ring,
        rows: rows_words,
        private: handlers,
    };
    let mut home = Dir::new();
    home.put(dir.bytes());
    let attached = Attached {
        pid,
        dir: home,
        state,
        log_lock: Spin::new(),
        base,
        layout: *layout,
        rows,
        private,
        present: [
            AtomicUsize::new(part(layout.threads) + FIRST_SLOTS * size_of::<ThreadSlot>()),
            AtomicUsize::new(part(layout.init_modules)),
            AtomicUsize::new(part(layout.strings)),
            AtomicUsize::new(part(layout.modules)),
        ],
        registered: AtomicUsize::new(0),
    };
    let at = (private + PRIVATE_BYTES) as *mut Attached;
    // SAFETY: behind `Private` in the same mapping, aligned because PRIVATE_BYTES is a multiple of a page.
    unsafe { at.write(attached) };
    // SAFETY: written above, in memory that stays.
    Some(unsafe { &*at })
}

fn fill(attached: &'static Attached, from: &Modules<'_>) {
    let header = attached.header();
    let header_at = core::ptr::from_ref(header).cast_mut();
    let mut buffer = [0u8; 4096];
    let exe = os::readlink(c"/proc/self/exe", &mut buffer).unwrap_or(0);
    let place = attached.put_string(buffer.get(..exe).unwrap_or_default()).unwrap_or_default();
    // SAFETY: the file is not yet visible to the drain and no other thread knows it: plain fields may be written.
    unsafe { (&raw mut (*header_at).exe).write(place) };
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
        // SAFETY: as above.
        unsafe { (&raw mut (*header_at).cmdline).write([start, total as u32]) };
    }
    match from {
        Modules::Loader(permanent) => modules::write_initial(attached, *permanent),
        Modules::Copy(parent) => copy_modules(attached, parent),
    }
}

/// The parent's log and its table in force: a forked child has the same mappings.
fn copy_modules(attached: &Attached, parent: &Attached) {
    let mut count = 0;
    for module in modules::log(parent).iter().take(INIT_MODULES) {
        let mut module = *module;
        let Some(place) = attached.put_string(parent.string(module.path)) else { break };
        module.path = place;
        if !attached.room_in_log(count as usize) {
            break;
        }
        // SAFETY: inside the area and present; nobody reads it before the count says so.
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
        // SAFETY: table 0 of the new file is ours until it is published, and present; it lies in another mapping.
        unsafe {
            core::ptr::copy_nonoverlapping(from.cast::<u8>(), attached.tables().cast(), table_bytes(count));
        }
        // The drain never rewrites the active table nor the one before it.
        let now = parent.header().modules_gen.load(Acquire);
        if now.wrapping_sub(generation) < 2 {
            break;
        }
    }
    if attached.room_in_table(0) {
        // SAFETY: present, and atomics of our own table.
        unsafe { (*attached.tables()).generation.store(0, Relaxed) };
    }
    attached.header().maps_dirty.store(1, Release);
}
