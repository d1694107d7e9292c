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
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use flightline_in_signal::layout::{
    INIT_MODULES, InitModule, LISTENS, MAGIC, MAX_DEPTH, MODULE_TABLES, MODULES_PER_TABLE, ModuleEntry,
    ModuleTable, PROC_SUFFIX, ProcHeader, ProcLayout, ROWS_FILE, SESSION_BYTES, SESSION_FILE, SIZES,
    STRING_BYTES, SessionPage, ThreadSlot, proc_state, session_flags,
};
use flightline_in_signal::ring::Ring;
use flightline_in_signal::state::{PRIVATE_BYTES, Private, ProcState};
use flightline_in_signal::{clock, state, sys};

use crate::kept::{Kept, Range};
use crate::os::{self, Fd, Text};
use crate::spin::Spin;
use crate::{fork_token, modules, names, sandbox};

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
    /// As many processes as the session has memory for are recorded.
    Full,
}

impl Refused {
    /// What happened, for one line of text.
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

/// Path of a session directory.
pub type Dir = Text<256>;

/// A joined recording; lives in memory that is never unmapped while the process has handlers.
pub struct Attached {
    /// Process that joined: a forked child sees its parent's `Attached` until it joins itself.
    pub pid: u32,
    /// The process that joined, see [`fork_token::this_process`]: processes of different pid namespaces may have the same pid.
    process: u64,
    /// The session directory.
    pub dir: Dir,
    /// Which process file of the session is ours.
    number: u64,
    /// What handlers use.
    pub state: ProcState,
    /// Held while the module log or the string area grows.
    pub log_lock: Spin,
    file: Range,
    layout: ProcLayout,
    rows: Range,
    page: Range,
    private: Range,
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

/// Address ranges of the recording before, see [`crate::kept`].
static KEPT_FILE: Kept = Kept::new();
static KEPT_ROWS: Kept = Kept::new();
static KEPT_PAGE: Kept = Kept::new();
static KEPT_HOME: Kept = Kept::new();

/// Recordings joined so far, see [`ProcState::salt`].
static JOINED: AtomicU32 = AtomicU32::new(0);

const READ: c_int = libc::PROT_READ;
const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// The joined recording of this process. `None` before, in a child that has not joined, in a `vfork` child, and in a
/// thread that may make no system calls.
pub fn current() -> Option<&'static Attached> {
    if sandbox::applies() {
        return None;
    }
    // SAFETY: set by `attach` only, to memory that stays.
    let attached = unsafe { CURRENT.load(Acquire).as_ref() }?;
    attached.is_ours().then_some(attached)
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

    /// Returns false in a child that shares the memory of the process that joined, or has copied it.
    pub fn is_ours(&self) -> bool {
        self.process == fork_token::this_process()
    }

    /// Returns true if children are recorded too.
    pub fn follows(&self) -> bool {
        self.session().flags & session_flags::FOLLOW != 0
    }

    /// Length of a process file of this session.
    pub fn file_bytes(&self) -> u64 {
        self.layout.end
    }

    /// First module table.
    pub fn tables(&self) -> *mut ModuleTable {
        (self.file.at + self.layout.modules as usize) as *mut ModuleTable
    }

    /// First entry of the module log.
    pub fn init_modules(&self) -> *mut InitModule {
        (self.file.at + self.layout.init_modules as usize) as *mut InitModule
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
        let to = (self.file.at + self.layout.strings as usize + at as usize) as *mut u8;
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
        let from = (self.file.at + self.layout.strings as usize + at as usize) as *const u8;
        // SAFETY: inside the area; written before its place was handed out.
        unsafe { core::slice::from_raw_parts(from, len as usize) }
    }

    /// `true` if the session's directory was removed: its drain ended, or died and was cleared away.
    pub fn directory_is_gone(&self) -> bool {
        let gone = self.dir.cstr().and_then(|dir| os::open(dir, libc::O_PATH, 0)).map(drop);
        gone == Err(libc::ENOENT)
    }

    /// Path of a file of ours in the session.
    pub fn own_file(&self, suffix: &str) -> Text<320> {
        let mut name = path(&self.dir, b"");
        name.number(u64::from(self.pid)).put(b"-").number(self.number).put(suffix.as_bytes());
        name
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

    /// Empties the ranges and keeps them. Whoever still writes there writes into memory that nobody reads.
    pub(crate) fn give_back(&'static self) {
        let page = self.page;
        KEPT_FILE.keep(self.file, READ_WRITE);
        if self.rows.bytes != 0 {
            KEPT_ROWS.keep(self.rows, READ);
        }
        if KEPT_PAGE.keep(page, READ_WRITE) {
            // SAFETY: the empty memory that is there now; zeroed atomics are valid.
            unsafe { &*(page.at as *const SessionPage) }.stop.store(1, Release);
        }
        // What `self` says of addresses stays true.
        os::advise(self.private.at, PRIVATE_BYTES, libc::MADV_DONTNEED);
        KEPT_HOME.keep_contents(self.private);
    }

    /// Unmaps everything of this recording, `self` included.
    ///
    /// # Safety
    /// No other thread of this process, no handler and no later code uses it: in the child of a fork, or when every
    /// thread is disarmed and [`state::uninstall`] was called long enough ago.
    pub unsafe fn unmap(&'static self) {
        let (file, rows, page, private) = (self.file, self.rows, self.page, self.private);
        for range in [file, rows, page, private] {
            if range.bytes != 0 {
                // SAFETY: by the contract; `self` lived in the last one.
                unsafe { os::unmap(range.at, range.bytes) };
            }
        }
    }
}

/// Bytes of a table's head and first entries.
fn table_bytes(count: usize) -> usize {
    core::mem::offset_of!(ModuleTable, entries) + count.min(MODULES_PER_TABLE) * size_of::<ModuleEntry>()
}

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
    /// Ask the loader; `true` while it starts the program.
    Loader(bool),
    /// Copy another process's: in the child of a fork, where the loader's lock may be held by nobody.
    Copy(&'a Attached),
    /// The drain reads the map of the process; until then handlers ask the loader's lock-free table. In a handler, which
    /// may have interrupted the loader.
    Drain,
}

/// Joins the session in `dir`: afterwards handlers may run, nothing is armed yet.
pub fn attach(dir: &CStr, from: &Modules<'_>) -> Result<&'static Attached, Refused> {
    let mut home = Dir::new();
    home.put(dir.to_bytes());
    home.cstr().map_err(at("session directory"))?;
    let (page, sizes) = map_session(&home)?;
    // SAFETY: checked by `map_session`; its range is never unmapped while referenced.
    let session = unsafe { &*(page.at as *const SessionPage) };
    let number = session.processes.fetch_add(1, Relaxed);
    let leave = || {
        session.processes_gone.fetch_add(1, Relaxed);
        KEPT_PAGE.keep(page, READ_WRITE);
    };
    if session.stop.load(Relaxed) != 0 || (number > 0 && session.flags & session_flags::FOLLOW == 0) {
        leave();
        return Err(Refused::NotWanted);
    }
    // Processes may begin and end faster than the drain removes what they leave.
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
        KEPT_ROWS.keep(rows, READ);
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

/// Forgets the recording and gives its memory back; the addresses stay for the next one.
pub fn leave(attached: &'static Attached) {
    forget();
    attached.give_back();
}

/// Path of the page of the session in `dir`.
pub fn page_path(dir: &Dir) -> Text<320> {
    path(dir, SESSION_FILE.as_bytes())
}

/// Sizes from the session's page, read once and checked, because every recorded program can write the page.
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
    let name = page_path(dir);
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
    let page =
        KEPT_PAGE.map(Some(&fd), SESSION_BYTES, READ_WRITE, libc::MAP_SHARED).map_err(at("session page"))?;
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
    KEPT_PAGE.keep(page, READ_WRITE);
    Err(Refused::Format)
}

fn map_rows(dir: &Dir, rows_bytes: u64) -> Result<Range, Refused> {
    let name = path(dir, ROWS_FILE.as_bytes());
    let name = name.cstr().map_err(at("unwind rows"))?;
    let fd = os::open(name, libc::O_RDONLY | libc::O_NOFOLLOW, 0).map_err(at("unwind rows"))?;
    let st = os::stat(&fd).map_err(at("unwind rows"))?;
    // Reading beyond the file's end would be SIGBUS.
    let bytes = rows_bytes.min(st.st_size.max(0) as u64) as usize & !4095;
    if bytes == 0 {
        return Ok(Range { at: 0, bytes: 0 });
    }
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    let range = KEPT_ROWS.map(Some(&fd), bytes, READ, flags).map_err(at("unwind rows"))?;
    // A kept range may be longer than the file.
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
        let private = KEPT_HOME.map(None, HOME_BYTES, READ_WRITE, libc::MAP_PRIVATE);
        private.map(|private| (file, private)).inspect_err(|_| {
            KEPT_FILE.keep(file, READ_WRITE);
        })
    });
    let (file, private) = mapped.map_err(|errno| {
        os::unlink(name);
        Refused::Os("process file", errno)
    })?;
    place(dir, page, sizes, (pid, number), file, rows, private).ok_or(Refused::Format)
}

/// Maps the whole file and makes the parts present that handlers write. What grows later is made present then.
fn map_file(fd: &Fd, layout: &ProcLayout) -> Result<Range, c_int> {
    let ring = layout.ring as usize;
    let end = layout.end as usize;
    let slots_end = layout.threads as usize + FIRST_SLOTS * size_of::<ThreadSlot>();
    // Beyond the program's limit the kernel does not only refuse, it sends SIGXFSZ, which ends the program.
    if end as u64 > os::limit(libc::RLIMIT_FSIZE as usize) {
        return Err(libc::EFBIG);
    }
    // SAFETY: no pointers.
    unsafe { os::syscall(libc::SYS_ftruncate, [fd.raw() as usize, end, 0, 0, 0, 0]) }?;
    let file = KEPT_FILE.map(Some(fd), end, READ_WRITE, libc::MAP_SHARED)?;
    // Kept out of core dumps: it is the recorder's memory, and the drain has it anyway.
    os::advise(file.at, end, libc::MADV_DONTDUMP);
    let parts = [(0, slots_end), (ring, end - ring)];
    let all = parts.iter().all(|(from, bytes)| populate(file.at + from, *bytes));
    // Before Linux 5.14 the pages are reserved in the file, which cannot fail later either.
    if all || reserve(fd, end).is_ok() {
        return Ok(file);
    }
    KEPT_FILE.keep(file, READ_WRITE);
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
    page: Range,
    sizes: &Sizes,
    (pid, number): (u32, u64),
    file: Range,
    rows: Range,
    private: Range,
) -> Option<&'static Attached> {
    let layout = sizes.layout();
    let base = file.at;
    let part = |offset: u64| base + offset as usize;
    // SAFETY: checked by `map_session`; its range is never unmapped while referenced.
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
    // A change from here on is not applied yet.
    header.controlled.store(session.control.load(Acquire) & !LISTENS, Relaxed);
    // SAFETY: from here on the header is only read, or written through its atomics.
    let header = unsafe { &*(base as *const ProcHeader) };
    // SAFETY: `thread_slots` slots lie there, zeroed atomics.
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
    let attached = Attached {
        pid,
        process: fork_token::this_process(),
        dir: home,
        number,
        state,
        log_lock: Spin::new(),
        file,
        layout,
        rows,
        page,
        private,
        present: [
            AtomicUsize::new(part(layout.threads) + FIRST_SLOTS * size_of::<ThreadSlot>()),
            AtomicUsize::new(part(layout.init_modules)),
            AtomicUsize::new(part(layout.strings)),
            AtomicUsize::new(part(layout.modules)),
        ],
        registered: AtomicUsize::new(0),
    };
    let at = (private.at + PRIVATE_BYTES) as *mut Attached;
    // SAFETY: behind `Private` in the same mapping, aligned because PRIVATE_BYTES is a multiple of a page.
    unsafe { at.write(attached) };
    // SAFETY: written above, in memory that stays.
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
    // SAFETY: the file is not yet visible to the drain and no other thread knows it: plain fields may be written.
    unsafe { (&raw mut (*header_at).exe).write(place) };
    let directory = os::readlink(c"/proc/self/cwd", &mut buffer).unwrap_or(0);
    let place = attached.put_string(buffer.get(..directory).unwrap_or_default()).unwrap_or_default();
    // SAFETY: as above.
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
        // SAFETY: as above.
        unsafe { (&raw mut (*header_at).cmdline).write([start, total as u32]) };
    }
    match from {
        Modules::Loader(permanent) => modules::write_initial(attached, *permanent),
        Modules::Copy(parent) => copy_modules(attached, parent),
        Modules::Drain => {
            // Table 0 is empty, which the count of a present page says.
            attached.room_in_table(0);
            attached.header().maps_dirty.store(1, Release);
        }
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
