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
    ptr,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use flightline_in_signal::{
    layout::{
        CONTEXT_PLACES, INIT_MODULES, InitModule, LISTENS, MAGIC, MAX_EVENTS, MAX_TRACES, MODULE_TABLES,
        MODULES_PER_TABLE, ModuleEntry, ModuleTable, ProcHeader, ProcLayout, STRING_BYTES, ThreadSlot,
        event_kind, proc_state,
    },
    ring::Ring,
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
    /// CLOCK_MONOTONIC ns when the program opened it.
    pub start_mono_ns: u64,
    /// Inode of the PID namespace of `pid`.
    pub pid_namespace: u64,
    /// True if the ring contains each name that the program gives to a thread.
    pub names_recorded: bool,
    strings: HeaderStrings,
    process: ProcessHandle,
}

/// The mapping of a file. All its parts are inside; this is checked once, when the file is opened.
struct Memory {
    map: MmapRaw,
    present: Present,
    layout: ProcLayout,
    slots: u32,
    ring_bytes: u64,
}

/// Strings referenced by the header: offset and length in the string area.
struct HeaderStrings {
    exe: [u32; 2],
    cmdline: [u32; 2],
    directory: [u32; 2],
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
            start_mono_ns: self.start_mono_ns,
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
        let header = map.as_ptr().cast::<ProcHeader>();
        // SAFETY: the mapping is at least a ProcHeader long and page aligned; volatile reads of plain
        // integers are defined even if another process writes at the same time.
        let (magic, slots, ring_bytes, start_mono_ns, pid_namespace, names_recorded, exe, cmdline, directory) = unsafe {
            (
                ptr::addr_of!((*header).magic).cast::<u64>().read_volatile(),
                ptr::addr_of!((*header).thread_slots).read_volatile(),
                ptr::addr_of!((*header).ring_bytes).read_volatile(),
                ptr::addr_of!((*header).start_mono_ns).read_volatile(),
                ptr::addr_of!((*header).pid_namespace).read_volatile(),
                ptr::addr_of!((*header).names_recorded).read_volatile(),
                ptr::addr_of!((*header).exe).read_volatile(),
                ptr::addr_of!((*header).cmdline).read_volatile(),
                ptr::addr_of!((*header).directory).read_volatile(),
            )
        };
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
            memory: Memory { map, present, layout, slots, ring_bytes },
            path: path.to_owned(),
            inode: meta.ino(),
            pid,
            start_mono_ns,
            pid_namespace,
            names_recorded: names_recorded == 1,
            strings: HeaderStrings { exe, cmdline, directory },
            process,
        };
        Ok(file)
    }

    /// Makes a range of the file present; returns false if there is no memory for it.
    fn reach(&self, from: usize, bytes: usize) -> bool {
        self.memory.present.reach(&self.memory.map, from, bytes).is_ok()
    }

    fn header(&self) -> *const ProcHeader {
        self.memory.map.as_ptr().cast()
    }

    /// Returns an atomic of the header.
    fn word<T>(&self, field: fn(*const ProcHeader) -> *const T) -> &T {
        // SAFETY: `field` projects into the header, which is mapped for as long as self lives; it is only used
        // with atomic fields, which any number of processes may write.
        unsafe { &*field(self.header()) }
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
        // SAFETY: the ring header is all atomics (its padding is never read) and mapped; see `word`.
        let header = unsafe { &(*self.header()).ring };
        let start = self.memory.map.as_ptr().wrapping_add(usize::try_from(self.memory.layout.ring).ok()?);
        // SAFETY: `layout.end <= file length` was checked at open, so ring_bytes bytes from layout.ring on are
        // mapped; page aligned; words are only accessed as atomics.
        let words = unsafe {
            std::slice::from_raw_parts(
                start.cast::<AtomicU64>(),
                usize::try_from(self.memory.ring_bytes / 8).ok()?,
            )
        };
        Ring::new(header, words)
    }

    /// Skips the ring up to `place`, after another drain was killed and the program has stopped writing.
    pub fn skip_to(&self, place: u64) {
        if let Some(ring) = self.ring() {
            ring.resume(place);
        }
    }

    /// Returns the bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.memory.ring_bytes
    }

    /// Returns the producers' position, as far as they have advanced the head.
    pub fn head(&self) -> u64 {
        // SAFETY: projection to an atomic inside the mapped header.
        self.word(|h| unsafe { ptr::addr_of!((*h).ring.head) }).load(Ordering::Acquire)
    }

    /// Returns the drain's position.
    pub fn tail(&self) -> u64 {
        // SAFETY: as in `head`.
        self.word(|h| unsafe { ptr::addr_of!((*h).ring.tail) }).load(Ordering::Acquire)
    }

    /// Returns the number of thread slots.
    pub fn slots(&self) -> u32 {
        self.memory.slots
    }

    /// Returns a thread's slot; `None` out of range, or without memory.
    pub fn slot(&self, index: u32) -> Option<&ThreadSlot> {
        if index >= self.memory.slots {
            return None;
        }
        let at = self.memory.layout.threads as usize + index as usize * size_of::<ThreadSlot>();
        if !self.reach(at, size_of::<ThreadSlot>()) {
            return None;
        }
        // SAFETY: index < slots, and slots × size_of::<ThreadSlot>() bytes from layout.threads on lie before
        // layout.modules ≤ layout.end ≤ mapped length; a ThreadSlot is atomics only and 64-byte aligned.
        Some(unsafe { &*self.memory.map.as_ptr().wrapping_add(at).cast::<ThreadSlot>() })
    }

    /// Returns the [`proc_state`]; unknown values become LIVE.
    pub fn state(&self) -> u32 {
        // SAFETY: as in `head`.
        match self.word(|h| unsafe { ptr::addr_of!((*h).state) }).load(Ordering::Acquire) {
            s @ (proc_state::EXITED | proc_state::EXECING) => s,
            _ => proc_state::LIVE,
        }
    }

    /// Returns the engine in use, and the errno with which `perf_event_open` was refused (0: not refused).
    pub fn engine(&self) -> (u32, i32) {
        // SAFETY: as in `head`.
        let engine = self.word(|h| unsafe { ptr::addr_of!((*h).engine) }).load(Ordering::Relaxed);
        // SAFETY: as in `head`.
        let errno = self.word(|h| unsafe { ptr::addr_of!((*h).engine_errno) }).load(Ordering::Relaxed);
        (engine, errno)
    }

    /// Returns the number of the last settings change that the program has applied; `None` if it accepts no
    /// commands.
    pub fn controlled(&self) -> Option<u32> {
        // SAFETY: as in `head`.
        let word = self.word(|h| unsafe { ptr::addr_of!((*h).controlled) }).load(Ordering::Acquire);
        (word & LISTENS != 0).then_some(word & !LISTENS)
    }

    /// Returns the number of threads that found no slot.
    pub fn no_slot(&self) -> u64 {
        // SAFETY: as in `head`.
        self.word(|h| unsafe { ptr::addr_of!((*h).no_slot) }).load(Ordering::Relaxed)
    }

    /// Returns the events for which there was no room, by kind: number and sum of values.
    pub fn events_lost(&self) -> [(u64, u64); event_kind::KINDS] {
        std::array::from_fn(|kind| {
            // SAFETY: as in `head`.
            let counts = self.word(|h| unsafe { ptr::addr_of!((*h).event_lost) });
            // SAFETY: as in `head`.
            let values = self.word(|h| unsafe { ptr::addr_of!((*h).event_lost_value) });
            (counts[kind].load(Ordering::Relaxed), values[kind].load(Ordering::Relaxed))
        })
    }

    /// Returns the errno with which the kernel refused each perf event other than CPU time, 0 if it did not.
    pub fn event_errno(&self) -> [i32; MAX_EVENTS] {
        std::array::from_fn(|index| {
            // SAFETY: as in `head`.
            let words = self.word(|h| unsafe { ptr::addr_of!((*h).event_errno) });
            words[index].load(Ordering::Relaxed)
        })
    }

    /// Returns the errno with which each traced function's breakpoint was refused, 0 if it was not.
    pub fn trace_errno(&self) -> [i32; MAX_TRACES] {
        std::array::from_fn(|index| {
            // SAFETY: as in `head`.
            let words = self.word(|h| unsafe { ptr::addr_of!((*h).trace_errno) });
            words[index].load(Ordering::Relaxed)
        })
    }

    /// Returns the cost of recording in the process, by kind: calls, timed calls, CPU time of the timed ones
    /// in ns.
    pub fn costs(&self) -> [[u64; 3]; event_kind::KINDS] {
        // SAFETY: as in `head`; structs of atomics.
        let costs = self.word(|h| unsafe { ptr::addr_of!((*h).costs) });
        costs.each_ref().map(|c| [&c.runs, &c.timed, &c.timed_ns].map(|word| word.load(Ordering::Relaxed)))
    }

    /// Returns the events below their threshold, by kind: number and sum of values.
    pub fn events_short(&self) -> [(u64, u64); event_kind::KINDS] {
        std::array::from_fn(|kind| {
            // SAFETY: as in `head`.
            let counts = self.word(|h| unsafe { ptr::addr_of!((*h).event_short) });
            // SAFETY: as in `head`.
            let values = self.word(|h| unsafe { ptr::addr_of!((*h).event_short_value) });
            (counts[kind].load(Ordering::Relaxed), values[kind].load(Ordering::Relaxed))
        })
    }

    /// Returns the offsets from a thread's thread pointer to the words that lead to its context, see
    /// [`flightline_in_signal::context`].
    pub fn context_offsets(&self) -> [u64; 2] {
        // SAFETY: as in `head`.
        let words = self.word(|h| unsafe { ptr::addr_of!((*h).context_offsets) });
        words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the locations of other libraries' variables, for handlers; see
    /// [`flightline_in_signal::context::place`].
    pub fn context_places(&self) -> [[u64; 2]; CONTEXT_PLACES] {
        // SAFETY: as in `head`.
        let places = self.word(|h| unsafe { ptr::addr_of!((*h).context_places) });
        places.each_ref().map(|place| place.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Publishes these locations for handlers, each with its generation first.
    pub fn set_context_places(&self, places: &[[u64; 2]; CONTEXT_PLACES]) {
        // SAFETY: as in `head`.
        let words = self.word(|h| unsafe { ptr::addr_of!((*h).context_places) });
        for ([generation, place], expected) in words.iter().zip(places) {
            if [generation, place].map(|word| word.load(Ordering::Relaxed)) != *expected {
                place.store(0, Ordering::Relaxed);
                generation.store(expected[0], Ordering::Release);
                place.store(expected[1], Ordering::Release);
            }
        }
    }

    /// Returns the name of the labels with this index.
    pub fn label_name(&self, index: u8) -> Option<String> {
        // SAFETY: as in `head`.
        let places = self.word(|h| unsafe { ptr::addr_of!((*h).label_names) });
        let [at, len] = places.get(usize::from(index))?.each_ref().map(|word| word.load(Ordering::Acquire));
        (len != 0).then(|| String::from_utf8_lossy(&self.string([at, len])).into_owned())
    }

    /// Returns the number of addresses that handlers found in no known module.
    pub fn unknown_pcs(&self) -> u64 {
        // SAFETY: as in `head`.
        self.word(|h| unsafe { ptr::addr_of!((*h).unknown_pcs) }).load(Ordering::Relaxed)
    }

    /// Returns true if the program loaded or unloaded a module since the last call.
    pub fn take_maps_dirty(&self) -> bool {
        // SAFETY: as in `head`.
        self.word(|h| unsafe { ptr::addr_of!((*h).maps_dirty) }).swap(0, Ordering::AcqRel) != 0
    }

    /// Returns the sequence number of `dlclose` calls, which is odd during one.
    pub fn dlclose_seq(&self) -> u32 {
        // SAFETY: as in `head`.
        self.word(|h| unsafe { ptr::addr_of!((*h).dlclose_seq) }).load(Ordering::Acquire)
    }

    /// Returns CLOCK_MONOTONIC ns of the program's exit, if its exit hook ran.
    pub fn exit_mono_ns(&self) -> Option<u64> {
        // SAFETY: as in `head`.
        match self.word(|h| unsafe { ptr::addr_of!((*h).exit_mono_ns) }).load(Ordering::Acquire) {
            0 => None,
            t => Some(t),
        }
    }

    /// Returns the number of notices so far.
    pub fn notice_seq(&self) -> u32 {
        // SAFETY: as in `head`.
        self.word(|h| unsafe { ptr::addr_of!((*h).notice_seq) }).load(Ordering::Acquire)
    }

    /// Returns the number of notices so far, and the latest: a path that could not be recorded and the
    /// reason.
    pub fn notice(&self) -> (u32, String, u32) {
        // SAFETY: as in `head`.
        let seq = self.word(|h| unsafe { ptr::addr_of!((*h).notice_seq) }).load(Ordering::Acquire);
        // SAFETY: as in `head`; an array of atomics.
        let [off, len, reason] = self
            .word(|h| unsafe { ptr::addr_of!((*h).notice) })
            .each_ref()
            .map(|w| w.load(Ordering::Relaxed));
        (seq, String::from_utf8_lossy(&self.string([off, len])).into_owned(), reason)
    }

    /// Returns a copy of a string in the string area, cut at its end; empty without memory.
    pub fn string(&self, [off, len]: [u32; 2]) -> Vec<u8> {
        let off = (off as usize).min(STRING_BYTES);
        let len = (len as usize).min(STRING_BYTES - off);
        let at = self.memory.layout.strings as usize + off;
        if !self.reach(at, len) {
            return Vec::new();
        }
        let start = self.memory.map.as_ptr().wrapping_add(at);
        // SAFETY: off + len ≤ STRING_BYTES, and the string area lies inside the mapping (checked at open);
        // byte-wise volatile reads tolerate concurrent writes.
        (0..len).map(|i| unsafe { start.wrapping_add(i).read_volatile() }).collect()
    }

    /// Returns the executable's path.
    pub fn exe(&self) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        PathBuf::from(std::ffi::OsString::from_vec(self.string(self.strings.exe)))
    }

    /// Returns the path of a module that the program's loader calls `path`. A relative path starts at the
    /// program's first working directory. The loader's own objects, such as the vDSO, have names without a
    /// slash.
    pub fn module_path(&self, path: PathBuf) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        if path.is_absolute() || path.components().nth(1).is_none() {
            return path;
        }
        let directory = PathBuf::from(std::ffi::OsString::from_vec(self.string(self.strings.directory)));
        directory.join(path).components().collect()
    }

    /// Returns the command line, split into arguments.
    pub fn arguments(&self) -> Vec<String> {
        let bytes = self.string(self.strings.cmdline);
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        bytes.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
    }

    /// Returns the modules that the program's loader has logged so far, from entry `from` on.
    pub fn init_modules(&self, from: usize) -> Vec<InitModule> {
        // SAFETY: as in `head`.
        let count = self.word(|h| unsafe { ptr::addr_of!((*h).init_modules) }).load(Ordering::Acquire);
        let at = self.memory.layout.init_modules as usize;
        let mut count = (count as usize).min(INIT_MODULES);
        if !self.reach(at, count * size_of::<InitModule>()) {
            count = 0;
        }
        let start = self.memory.map.as_ptr().wrapping_add(at).cast::<InitModule>();
        (from..count)
            // SAFETY: i < INIT_MODULES, whose entries lie inside the mapping (checked at open); plain integers,
            // read volatile because the program may still write.
            .map(|i| unsafe { start.wrapping_add(i).read_volatile() })
            .collect()
    }

    /// Publishes a module table unless a `dlclose` ran since `seq` was read, or memory is missing. `entries` must be sorted and disjoint.
    pub fn publish(&self, entries: &[ModuleEntry], seq: u32) -> bool {
        if seq % 2 == 1 || self.dlclose_seq() != seq {
            return false;
        }
        // SAFETY: as in `head`.
        let word = self.word(|h| unsafe { ptr::addr_of!((*h).modules_gen) });
        let generation = word.load(Ordering::Acquire).wrapping_add(1);
        let index = generation as usize % MODULE_TABLES;
        let at = self.memory.layout.modules as usize + index * size_of::<ModuleTable>();
        let table = self.memory.map.as_mut_ptr().wrapping_add(at).cast::<ModuleTable>();
        let entries = &entries[..entries.len().min(MODULES_PER_TABLE)];
        if !self.reach(at, offset_of!(ModuleTable, entries) + size_of_val(entries)) {
            return false;
        }
        // SAFETY: index < MODULE_TABLES, so the table lies inside the mapping and is 8-byte aligned; at most
        // MODULES_PER_TABLE entries are written. Handlers do not read this table until the generation names it.
        unsafe {
            let count = &*ptr::addr_of!((*table).count);
            count.store(0, Ordering::Relaxed);
            let first = ptr::addr_of_mut!((*table).entries).cast::<ModuleEntry>();
            for (i, entry) in entries.iter().enumerate() {
                first.add(i).write_volatile(*entry);
            }
            (*ptr::addr_of!((*table).generation)).store(generation, Ordering::Relaxed);
            count.store(entries.len() as u32, Ordering::Release);
        }
        // A dlclose that starts after this check finds the new entries in the table and marks them itself.
        fence(Ordering::SeqCst);
        if self.dlclose_seq() != seq {
            return false;
        }
        word.store(generation, Ordering::Release);
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
