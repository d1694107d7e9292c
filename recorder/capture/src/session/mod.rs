//! The recording that this process has joined, and its memory. [`crate::lifecycle::join`] joins one,
//! `retained_mapping` reuses the addresses of the previous one.
//!
//! No descriptor stays open. Memory that is written later is populated first. So a full tmpfs refuses one
//! thread or one module instead of ending the program with SIGBUS.

pub(crate) mod retained_mapping;

use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};

use flightline_in_signal::layout::{
    INIT_MODULES, InitModule, MODULES_PER_TABLE, ModuleEntry, ModuleTable, ProcHeader, ProcLayout, ProcParts,
    SESSION_FILE, SessionPage, SharedCell, ThreadSlot, session_flags,
};
use flightline_in_signal::state::{self, PRIVATE_BYTES, ProcState};

use crate::os::spin::Spin;
use crate::os::{self, Text, fork_token};
use crate::sandbox;
use crate::session::retained_mapping::{Range, RetainedMapping};

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
    /// Number of this process's file in the session.
    number: u64,
    /// The state that handlers use.
    pub state: ProcState,
    /// Held while the module log or the string area grows.
    pub log_lock: Spin,
    /// The process file.
    parts: ProcParts<'static>,
    mappings: Mappings,
    /// End addresses of the populated parts of the slots, the module log, the strings and table 0.
    present: [AtomicUsize; 4],
    /// Number of registrations so far.
    registered: AtomicUsize,
}

/// The memory of a joined recording.
#[derive(Clone, Copy)]
pub(crate) struct Mappings {
    /// The process file.
    pub file: Range,
    /// Unwind rows; empty if the session has none.
    pub rows: Range,
    /// The session's page.
    pub page: Range,
    /// The memory of handlers, followed by [`Attached`].
    pub private: Range,
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

/// Address ranges of the previous recording, see [`crate::session::retained_mapping`].
pub(crate) static RETAINED_FILE: RetainedMapping = RetainedMapping::new();
/// See [`RETAINED_FILE`].
pub(crate) static RETAINED_ROWS: RetainedMapping = RetainedMapping::new();
/// See [`RETAINED_FILE`].
pub(crate) static RETAINED_PAGE: RetainedMapping = RetainedMapping::new();
/// See [`RETAINED_FILE`].
pub(crate) static RETAINED_PRIVATE: RetainedMapping = RetainedMapping::new();

/// Protection of memory that is only read.
pub(crate) const READ: c_int = libc::PROT_READ;
/// Protection of memory that is written.
pub(crate) const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Returns the joined recording of this process. `None` before the join, in a child that has not joined, in a
/// `vfork` child, and in a thread that may make no system calls.
pub fn current() -> Option<&'static Attached> {
    if sandbox::applies() {
        return None;
    }
    // SAFETY: only `publish` sets it, to memory that is never unmapped while used.
    let attached = unsafe { CURRENT.load(Acquire).as_ref() }?;
    attached.is_ours().then_some(attached)
}

/// Returns the joined recording of this process, or of the parent whose memory this child shares or copied.
pub fn inherited() -> Option<&'static Attached> {
    // SAFETY: only `publish` sets it, to memory that is never unmapped while used.
    unsafe { CURRENT.load(Acquire).as_ref() }
}

/// Makes handlers use the recording from now on.
pub(crate) fn publish(attached: &'static Attached) {
    CURRENT.store(core::ptr::from_ref(attached).cast_mut(), Release);
    // SAFETY: the mappings stay until the process ends or `unmap` is called under its contract.
    unsafe { state::install(&attached.state) };
}

/// Number of slots that are populated from the start, before the first thread registers.
pub(crate) const FIRST_SLOTS: usize = 16;
/// Number of slots that are populated at once when more are needed.
const MORE_SLOTS: usize = 64;

impl Attached {
    /// Creates the recording of this process, which has file `number` of the session in `dir`.
    /// [`crate::lifecycle::join`] has populated the slots, log, strings and table of the file.
    pub(crate) fn new(
        dir: Dir,
        number: u64,
        state: ProcState,
        parts: ProcParts<'static>,
        mappings: Mappings,
    ) -> Attached {
        let first_slots = FIRST_SLOTS * size_of::<ThreadSlot>();
        let present = [
            AtomicUsize::new(parts.slots.as_ptr() as usize + first_slots),
            AtomicUsize::new(parts.init_modules.as_ptr() as usize),
            AtomicUsize::new(parts.strings.as_ptr() as usize),
            AtomicUsize::new(parts.tables.as_ptr() as usize),
        ];
        Attached {
            pid: state.pid,
            process: fork_token::this_process(),
            dir,
            number,
            state,
            log_lock: Spin::new(),
            parts,
            mappings,
            present,
            registered: AtomicUsize::new(0),
        }
    }

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
        self.state.fixed.flags & session_flags::FOLLOW != 0
    }

    /// Length of a process file of this session.
    pub fn file_bytes(&self) -> u64 {
        ProcLayout::new(self.state.fixed.thread_slots, self.state.fixed.ring_bytes).end
    }

    /// Table 0, which only this process writes until the process file gets its name.
    pub fn own_table(&self) -> &ModuleTable {
        let [own, ..] = self.parts.tables;
        own
    }

    /// The module log, see [`Attached::room_in_log`].
    pub fn init_modules(&self) -> &[SharedCell<InitModule>; INIT_MODULES] {
        self.parts.init_modules
    }

    /// Appends to the string area. Returns offset and length, `None` if it is full. The caller holds
    /// `log_lock` or is the only user.
    pub fn put_string(&self, text: &[u8]) -> Option<[u32; 2]> {
        let strings = self.parts.strings;
        let len = u32::try_from(text.len()).ok()?;
        let used = &self.header().modules.string_len;
        let at = used
            .fetch_update(AcqRel, Relaxed, |used| {
                used.checked_add(len).filter(|end| *end as usize <= strings.len())
            })
            .ok()?;
        let to = strings.get(at as usize..at as usize + text.len())?;
        if !self.make_present(Part::Strings, to.as_ptr_range().end as usize) {
            return None;
        }
        for (to, byte) in to.iter().zip(text) {
            to.store(*byte, Relaxed);
        }
        Some([at, len])
    }

    /// Returns a string of [`Attached::put_string`].
    pub fn string(&self, place: [u32; 2]) -> &[u8] {
        let [at, len] = place.map(|word| word as usize);
        let Some(text) = at.checked_add(len).and_then(|end| self.parts.strings.get(at..end)) else {
            return &[];
        };
        // SAFETY: these bytes were written before their place was returned, and are not written again.
        unsafe { core::slice::from_raw_parts(text.as_ptr().cast(), text.len()) }
    }

    /// Returns true if the session's directory was removed: its drain ended, or died and was cleaned up.
    pub fn directory_is_gone(&self) -> bool {
        let gone = self.dir.cstr().and_then(|dir| os::open(dir, libc::O_PATH, 0)).map(drop);
        gone == Err(libc::ENOENT)
    }

    /// Returns the path of a file of this process in the session.
    pub fn own_file(&self, suffix: &str) -> Text<320> {
        let mut name = path(&self.dir, b"");
        name.number(u64::from(self.pid)).put(b"-").number(self.number).put(suffix.as_bytes());
        name
    }

    /// Makes room in the module log for entry `index`. Returns false if the file system is full.
    pub fn room_in_log(&self, index: usize) -> bool {
        let log = self.parts.init_modules.as_ptr() as usize;
        self.make_present(Part::Log, log + (index + 1) * size_of::<InitModule>())
    }

    /// Makes room in table 0 for `count` entries. Returns false if the file system is full.
    pub fn room_in_table(&self, count: usize) -> bool {
        self.make_present(Part::Table, self.parts.tables.as_ptr() as usize + table_bytes(count))
    }

    /// Makes room for one more registration of a thread. Slots are used in ascending order, so never more of
    /// them are in use than threads have registered.
    pub fn room_for_thread(&self) -> bool {
        let wanted = (self.registered.fetch_add(1, Relaxed) + 1).min(self.state.slots.len());
        let slots = self.state.slots.as_ptr() as usize;
        let end = |count: usize| slots + count.min(self.state.slots.len()) * size_of::<ThreadSlot>();
        // A claim reads one slot after those in use.
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
        // Two threads may do the same at the same time: populating is idempotent.
        if !populate(from, end - from) {
            return false;
        }
        known.fetch_max(end, Release);
        true
    }

    /// Empties the ranges and retains them. A thread that still writes there writes to memory that no code
    /// reads.
    pub(crate) fn give_back(&'static self) {
        let Mappings { file, rows, page, private } = self.mappings;
        RETAINED_FILE.keep(file, READ_WRITE);
        if rows.bytes != 0 {
            RETAINED_ROWS.keep(rows, READ);
        }
        if RETAINED_PAGE.keep(page, READ_WRITE) {
            // The page now maps empty memory.
            self.session().stop.store(1, Release);
        }
        // The addresses in `self` stay valid.
        os::advise(private.at, PRIVATE_BYTES, libc::MADV_DONTNEED);
        RETAINED_PRIVATE.keep_contents(private);
    }

    /// Unmaps all memory of this recording, `self` included.
    ///
    /// # Safety
    /// No other thread of this process, no handler and no later code uses it: in the child of a fork, or when every
    /// thread is disarmed and [`state::uninstall`] was called long enough ago.
    pub unsafe fn unmap(&'static self) {
        let Mappings { file, rows, page, private } = self.mappings;
        for range in [file, rows, page, private] {
            if range.bytes != 0 {
                // SAFETY: the caller guarantees that no code uses the ranges any more; `self` lived in the
                // last one.
                unsafe { os::unmap(range.at, range.bytes) };
            }
        }
    }
}

/// Size of a table's head and first entries, in bytes.
fn table_bytes(count: usize) -> usize {
    core::mem::offset_of!(ModuleTable, entries) + count.min(MODULES_PER_TABLE) * size_of::<ModuleEntry>()
}

/// Path of the page of the session in `dir`.
pub fn page_path(dir: &Dir) -> Text<320> {
    path(dir, SESSION_FILE.as_bytes())
}

/// Path of a file of the session in `dir`.
pub(crate) fn path(dir: &Dir, name: &[u8]) -> Text<320> {
    let mut path = Text::new();
    path.put(dir.bytes()).put(b"/").put(name);
    path
}

/// Clears the current recording: in the child of a fork, or when everything is disarmed. Its memory stays
/// mapped.
pub fn forget() {
    state::uninstall();
    CURRENT.store(core::ptr::null_mut(), Release);
}

/// Clears the current recording and releases its memory; the addresses are retained for the next one.
pub fn leave(attached: &'static Attached) {
    forget();
    attached.give_back();
}

/// Populates pages. Returns false if there is no memory for them or the kernel cannot (before Linux 5.14).
/// Unlike a plain access, this raises no SIGBUS when the file system is full.
pub(crate) fn populate(address: usize, bytes: usize) -> bool {
    let from = address & !4095;
    os::advise(from, (address + bytes).next_multiple_of(4096) - from, libc::MADV_POPULATE_WRITE)
}
