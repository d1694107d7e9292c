//! The shared file of one recorded process, mapped and untrusted.
//!
//! Every value in the file is read once, checked, and only then used. The program can write anything into it
//! at any time, but can only lose its own samples that way.

use std::{
    cell::{Cell, RefCell},
    fs::OpenOptions,
    mem::offset_of,
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering, fence},
};

use flightline_in_signal::{
    layout::{
        CONTEXT_PLACES, Identity, InitModule, JvmLayout, LISTENS, MAGIC, MAX_EVENTS, MAX_TRACES,
        MODULES_PER_TABLE, ModuleEntry, ModuleTable, ProcHeader, ProcLayout, ProcParts, SharedCell,
        ThreadSlot, event_kind, proc_state,
    },
    ring::Ring,
    unwind::modules,
};
use memmap2::MmapRaw;
use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, fallocate},
};

use crate::{
    error::Error, os::process_info::ProcessInfo, settings, shared_memory::journal::reported_counters,
};

/// A process file of the session.
pub struct ProcFile {
    memory: Memory,
    /// Its path.
    pub path: PathBuf,
    /// Its inode, which identifies the process's own mapping of it.
    pub inode: u64,
    /// The PID, from the file's name.
    pub pid: u32,
    /// The fixed part of the header, as it was when the file was opened.
    identity: Identity,
    process: ProcessHandle,
}

/// The mapping of a file. All its parts are inside; this is checked once, when the file is opened.
struct Memory {
    map: MmapRaw,
    present: Present,
    layout: ProcLayout,
}

/// The process to which a file belongs.
struct ProcessHandle {
    pidfd: Option<OwnedFd>,
    /// Our `/proc/<pid>` is another process.
    foreign: Cell<bool>,
}

/// The pages of a file that are present.
///
/// Reading an absent page of a tmpfs allocates it, and raises SIGBUS if the file system is full. The file has
/// room for thousands of threads and modules, most of which no program needs, so pages are made present only
/// before they are accessed.
struct Present {
    /// A bit for each page; empty if all are present.
    pages: RefCell<Vec<u64>>,
}

const PAGE: usize = 4096;

impl Present {
    fn none(bytes: usize) -> Present {
        Present { pages: RefCell::new(vec![0; bytes.div_ceil(PAGE).div_ceil(64)]) }
    }

    fn all() -> Present {
        Present { pages: RefCell::default() }
    }

    /// Makes the pages of a range present. Returns the errno if there is no memory for them, or if the kernel
    /// does not support it (before Linux 5.14).
    fn reach(&self, map: &MmapRaw, from: usize, bytes: usize) -> Result<(), Errno> {
        let mut pages = self.pages.borrow_mut();
        let (first, end) = (from / PAGE, (from + bytes).div_ceil(PAGE));
        if pages.is_empty() || bytes == 0 || (first..end).all(|page| pages[page / 64] >> (page % 64) & 1 != 0)
        {
            return Ok(());
        }
        let at = map.as_mut_ptr().wrapping_add(first * PAGE);
        // SAFETY: whole pages of the mapping, whose contents do not change.
        let done = unsafe { libc::madvise(at.cast(), (end - first) * PAGE, libc::MADV_POPULATE_WRITE) };
        Errno::result(done)?;
        for page in first..end {
            pages[page / 64] |= 1 << (page % 64);
        }
        Ok(())
    }
}

impl ProcFile {
    /// Returns the description of the process that the program wrote.
    pub fn info(&self) -> ProcessInfo {
        ProcessInfo {
            pid: self.pid,
            exe: self.exe(),
            arguments: self.arguments(),
            start_mono_ns: self.start_mono_ns(),
        }
    }

    /// Maps `<pid>-<n>.proc`.
    pub fn open(path: &Path) -> Result<ProcFile, Error> {
        let pid = pid_from_name(path).ok_or_else(|| Error::shared(path, "is not named <pid>-<n>.proc"))?;
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(|e| Error::io("open", path, e))?;
        let meta = file.metadata().map_err(|e| Error::io("stat", path, e))?;
        if meta.len() < size_of::<ProcHeader>() as u64 || meta.len() > 2 * settings::RING_BYTES[1] {
            return Err(Error::shared(path, format!("has an impossible length of {} bytes", meta.len())));
        }
        let map = MmapRaw::map_raw(&file).map_err(|e| Error::io("map", path, e))?;
        let mut present = Present::none(meta.len() as usize);
        let none = |e: Errno| Error::io("allocate", path, e.into());
        match present.reach(&map, 0, size_of::<ProcHeader>()) {
            Err(Errno::EINVAL) => {
                fallocate(&file, FallocateFlags::empty(), 0, meta.len() as i64).map_err(none)?;
                present = Present::all();
            }
            done => done.map_err(none)?,
        }
        // SAFETY: the mapping is page aligned, at least a ProcHeader long, and lives until the end of this
        // function; a ProcHeader consists of atomics, which other processes may write.
        let header = unsafe { &*map.as_ptr().cast::<ProcHeader>() };
        let magic = header.magic.load(Ordering::Acquire);
        let identity = header.identity.load();
        let Identity { thread_slots: slots, ring_bytes, .. } = identity;
        if magic != MAGIC {
            return Err(Error::shared(
                path,
                format!("magic {magic:#018x} at offset 0, expected {MAGIC:#018x}"),
            ));
        }
        if slots > 1 << 16 || !ring_bytes.is_power_of_two() || ring_bytes > settings::RING_BYTES[1] {
            return Err(Error::shared(
                path,
                format!("impossible sizes: {slots} slots, ring of {ring_bytes}"),
            ));
        }
        let layout = ProcLayout::new(slots, ring_bytes);
        if layout.end > meta.len() {
            return Err(Error::shared(
                path,
                format!("has {} bytes, its parts need {}", meta.len(), layout.end),
            ));
        }
        present.reach(&map, layout.ring as usize, ring_bytes as usize).map_err(none)?;
        let process = ProcessHandle { pidfd: pidfd(pid), foreign: Cell::new(false) };
        let file = ProcFile {
            memory: Memory { map, present, layout },
            path: path.to_owned(),
            inode: meta.ino(),
            pid,
            identity,
            process,
        };
        Ok(file)
    }

    /// Makes a slice of the file's parts present; returns false if there is no memory for it.
    fn reach<T>(&self, part: &[T]) -> bool {
        let from = part.as_ptr().addr() - self.memory.map.as_ptr().addr();
        self.memory.present.reach(&self.memory.map, from, size_of_val(part)).is_ok()
    }

    fn parts(&self) -> ProcParts<'_> {
        // SAFETY: `layout.end` bytes are mapped for as long as self lives (checked in `open`), from the start
        // of a page on; this process only accesses them through such references.
        unsafe { ProcParts::new(self.memory.map.as_ptr(), &self.memory.layout) }
    }

    fn header(&self) -> &ProcHeader {
        self.parts().header
    }

    /// Returns CLOCK_MONOTONIC ns when the program opened the file.
    pub fn start_mono_ns(&self) -> u64 {
        self.identity.start_mono_ns
    }

    /// Returns the inode of the PID namespace of `pid`.
    pub fn pid_namespace(&self) -> u64 {
        self.identity.pid_namespace
    }

    /// Returns true if the ring contains each name that the program gives to a thread.
    pub fn names_recorded(&self) -> bool {
        self.identity.names_recorded == 1
    }

    /// Returns its key in journals: PID << 32 | number of the file.
    pub fn key(&self) -> u64 {
        let name = self.path.file_stem().and_then(|n| n.to_str()).unwrap_or("");
        let number = name.rsplit('-').next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
        u64::from(self.pid) << 32 | u64::from(number)
    }

    /// Returns the path where the process's memory map is saved for a recovery.
    pub fn maps_path(&self) -> PathBuf {
        self.path.with_extension("maps")
    }

    /// Returns the path where the reported part of the program's own counters is saved.
    pub fn reported_path(&self) -> PathBuf {
        self.path.with_extension(reported_counters::EXTENSION)
    }

    /// Removes all data of the process from the session.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.maps_path());
        let _ = std::fs::remove_file(self.reported_path());
    }

    /// Returns the sample ring.
    pub fn ring(&self) -> Option<Ring<'_>> {
        let parts = self.parts();
        Ring::new(&parts.header.ring, parts.ring)
    }

    /// Skips the ring up to `place`, after another drain was killed and the program has stopped writing.
    pub fn skip_to(&self, place: u64) {
        if let Some(ring) = self.ring() {
            ring.resume(place);
        }
    }

    /// Returns the bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.memory.layout.ring_bytes
    }

    /// Returns the producers' position, as far as they have advanced the head.
    pub fn head(&self) -> u64 {
        self.header().ring.head.load(Ordering::Acquire)
    }

    /// Returns the drain's position.
    pub fn tail(&self) -> u64 {
        self.header().ring.tail.load(Ordering::Acquire)
    }

    /// Returns the number of thread slots.
    pub fn slots(&self) -> u32 {
        self.memory.layout.thread_slots
    }

    /// Returns a thread's slot; `None` out of range, or without memory.
    pub fn slot(&self, index: u32) -> Option<&ThreadSlot> {
        let slot = self.parts().slots.get(index as usize)?;
        self.reach(std::slice::from_ref(slot)).then_some(slot)
    }

    /// Returns the [`proc_state`]; unknown values become LIVE.
    pub fn state(&self) -> u32 {
        match self.header().state.load(Ordering::Acquire) {
            s @ (proc_state::EXITED | proc_state::EXECING) => s,
            _ => proc_state::LIVE,
        }
    }

    /// Returns the engine in use, and the errno with which `perf_event_open` was refused (0: not refused).
    pub fn engine(&self) -> (u32, i32) {
        let engine = &self.header().engine;
        (engine.kind.load(Ordering::Relaxed), engine.errno.load(Ordering::Relaxed))
    }

    /// Returns the number of the last settings change that the program has applied; `None` if it accepts no
    /// commands.
    pub fn controlled(&self) -> Option<u32> {
        let word = self.header().controlled.load(Ordering::Acquire);
        (word & LISTENS != 0).then_some(word & !LISTENS)
    }

    /// Returns the number of threads that found no slot.
    pub fn no_slot(&self) -> u64 {
        self.header().counters.no_slot.load(Ordering::Relaxed)
    }

    /// Returns the events for which there was no room, by kind: number and sum of values.
    pub fn events_lost(&self) -> [(u64, u64); event_kind::KINDS] {
        let counters = &self.header().counters;
        pairs(&counters.event_lost, &counters.event_lost_value)
    }

    /// Returns the errno with which the kernel refused each perf event other than CPU time, 0 if it did not.
    pub fn event_errno(&self) -> [i32; MAX_EVENTS] {
        self.header().engine.event_errno.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the errno with which each traced function's breakpoint was refused, 0 if it was not.
    pub fn trace_errno(&self) -> [i32; MAX_TRACES] {
        self.header().engine.trace_errno.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the cost of recording in the process, by kind: calls, timed calls, CPU time of the timed ones
    /// in ns.
    pub fn costs(&self) -> [[u64; 3]; event_kind::KINDS] {
        let costs = self.header().costs.each_ref();
        costs.map(|c| [&c.runs, &c.timed, &c.timed_ns].map(|word| word.load(Ordering::Relaxed)))
    }

    /// Returns the events below their threshold, by kind: number and sum of values.
    pub fn events_short(&self) -> [(u64, u64); event_kind::KINDS] {
        let counters = &self.header().counters;
        pairs(&counters.event_short, &counters.event_short_value)
    }

    /// Returns the offsets from a thread's thread pointer to the words that lead to its context, see
    /// [`flightline_in_signal::context`].
    pub fn context_offsets(&self) -> [u64; 2] {
        self.header().contexts.offsets.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the locations of other libraries' variables, for handlers; see
    /// [`flightline_in_signal::context::place`].
    pub fn context_places(&self) -> [[u64; 2]; CONTEXT_PLACES] {
        let places = self.header().contexts.places.each_ref();
        places.map(|place| place.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Publishes these locations for handlers, each with its generation first.
    pub fn set_context_places(&self, places: &[[u64; 2]; CONTEXT_PLACES]) {
        for ([generation, place], expected) in self.header().contexts.places.iter().zip(places) {
            if [generation, place].map(|word| word.load(Ordering::Relaxed)) != *expected {
                place.store(0, Ordering::Relaxed);
                generation.store(expected[0], Ordering::Release);
                place.store(expected[1], Ordering::Release);
            }
        }
    }

    /// Returns the description of the process's code cache, which the drain writes.
    pub fn jvm(&self) -> &JvmLayout {
        &self.header().jvm
    }

    /// Returns the name of the labels with this index.
    pub fn label_name(&self, index: u8) -> Option<String> {
        let place = self.header().contexts.label_names.get(usize::from(index))?;
        let [at, len] = place.each_ref().map(|word| word.load(Ordering::Acquire));
        (len != 0).then(|| String::from_utf8_lossy(&self.string([at, len])).into_owned())
    }

    /// Returns the number of addresses that handlers found in no known module.
    pub fn unknown_pcs(&self) -> u64 {
        self.header().modules.unknown_pcs.load(Ordering::Relaxed)
    }

    /// Returns true if the program loaded or unloaded a module since the last call.
    pub fn take_maps_dirty(&self) -> bool {
        self.header().modules.maps_dirty.swap(0, Ordering::AcqRel) != 0
    }

    /// Returns the sequence number of `dlclose` calls, which is odd during one.
    pub fn dlclose_seq(&self) -> u32 {
        self.header().modules.dlclose_seq.load(Ordering::Acquire)
    }

    /// Returns CLOCK_MONOTONIC ns of the program's exit, if its exit hook ran.
    pub fn exit_mono_ns(&self) -> Option<u64> {
        match self.header().exit_mono_ns.load(Ordering::Acquire) {
            0 => None,
            t => Some(t),
        }
    }

    /// Returns the number of notices so far.
    pub fn notice_seq(&self) -> u32 {
        self.header().notice.seq.load(Ordering::Acquire)
    }

    /// Returns the number of notices so far, and the latest: a path that could not be recorded and the
    /// reason.
    pub fn notice(&self) -> (u32, String, u32) {
        let seq = self.notice_seq();
        let words = self.header().notice.words.each_ref();
        let [off, len, reason] = words.map(|word| word.load(Ordering::Relaxed));
        (seq, String::from_utf8_lossy(&self.string([off, len])).into_owned(), reason)
    }

    /// Returns a copy of a string in the string area, cut at its end; empty without memory.
    pub fn string(&self, [off, len]: [u32; 2]) -> Vec<u8> {
        let strings = self.parts().strings;
        let off = (off as usize).min(strings.len());
        let text = &strings[off..off + (len as usize).min(strings.len() - off)];
        if !self.reach(text) {
            return Vec::new();
        }
        text.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// Returns the executable's path.
    pub fn exe(&self) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        PathBuf::from(std::ffi::OsString::from_vec(self.string(self.identity.exe)))
    }

    /// Returns the path of a module that the program's loader calls `path`. A relative path starts at the
    /// program's first working directory. The loader's own objects, such as the vDSO, have names without a
    /// slash.
    pub fn module_path(&self, path: PathBuf) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        if path.is_absolute() || path.components().nth(1).is_none() {
            return path;
        }
        let directory = PathBuf::from(std::ffi::OsString::from_vec(self.string(self.identity.directory)));
        directory.join(path).components().collect()
    }

    /// Returns the command line, split into arguments.
    pub fn arguments(&self) -> Vec<String> {
        let bytes = self.string(self.identity.cmdline);
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        bytes.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
    }

    /// Returns the modules that the program's loader has logged so far, from entry `from` on.
    pub fn init_modules(&self, from: usize) -> Vec<InitModule> {
        let ProcParts { header, init_modules: log, .. } = self.parts();
        let count = header.modules.init_modules.load(Ordering::Acquire) as usize;
        let log = &log[..count.min(log.len())];
        if !self.reach(log) {
            return Vec::new();
        }
        log.iter().skip(from).map(SharedCell::load).collect()
    }

    /// Publishes a module table unless a `dlclose` ran since `seq` was read, or memory is missing. `entries` must be sorted and disjoint.
    pub fn publish(&self, entries: &[ModuleEntry], seq: u32) -> bool {
        if seq % 2 == 1 || self.dlclose_seq() != seq {
            return false;
        }
        let ProcParts { header, tables, .. } = self.parts();
        let active = &header.modules.generation;
        let generation = active.load(Ordering::Acquire).wrapping_add(1);
        let table = modules::select(tables, generation);
        let entries = &entries[..entries.len().min(MODULES_PER_TABLE)];
        let head = offset_of!(ModuleTable, entries);
        let from = std::ptr::from_ref(table).addr() - self.memory.map.as_ptr().addr();
        if self.memory.present.reach(&self.memory.map, from, head + size_of_val(entries)).is_err() {
            return false;
        }
        // Handlers do not read this table until the generation names it.
        table.count.store(0, Ordering::Relaxed);
        for (to, entry) in table.entries.iter().zip(entries) {
            to.store(*entry);
        }
        table.generation.store(generation, Ordering::Relaxed);
        table.count.store(entries.len() as u32, Ordering::Release);
        // A dlclose that starts after this check finds the new entries in the table and marks them itself.
        fence(Ordering::SeqCst);
        if self.dlclose_seq() != seq {
            return false;
        }
        active.store(generation, Ordering::Release);
        true
    }

    /// Returns true if our `/proc/<pid>` is the process that wrote this file (it may be in another PID
    /// namespace).
    pub fn trusted_pid(&self) -> bool {
        !self.process.foreign.get()
    }

    /// Notes that `/proc/<pid>` is another process.
    pub fn distrust_pid(&self) {
        self.process.foreign.set(true);
    }

    /// Returns a descriptor that is readable when the process has ended.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.process.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Returns true if the process still runs (a zombie does not).
    pub fn alive(&self) -> bool {
        self.process.pidfd.as_ref().is_some_and(|fd| !ended(fd.as_fd()))
    }
}

/// Reads two counters of each kind of event.
fn pairs(
    counts: &[AtomicU64; event_kind::KINDS],
    values: &[AtomicU64; event_kind::KINDS],
) -> [(u64, u64); event_kind::KINDS] {
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    std::array::from_fn(|kind| (load(&counts[kind]), load(&values[kind])))
}

/// Returns true if the process of a pidfd has ended.
pub fn ended(pidfd: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(pidfd, PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
}

/// Opens a pidfd for a process.
pub fn pidfd(pid: u32) -> Option<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and returns a new close-on-exec descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    // SAFETY: a non-negative result is a descriptor without another owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Returns the PID in `<pid>-<n>.proc`.
pub fn pid_from_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_suffix(flightline_in_signal::layout::PROC_SUFFIX)?;
    let (pid, n) = name.split_once('-')?;
    n.parse::<u32>().ok()?;
    pid.parse().ok().filter(|&pid| pid > 0 && pid < 1 << 30)
}
