//! Reads the counters that handlers write in the shared memory of a live session, independently of the drain.
//!
//! The mapping outlives both processes, so a test can compare the samples taken with those recorded after any
//! death.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use flightline_in_signal::layout::{
    Identity, PROC_SUFFIX, ProcHeader, ProcLayout, ProcParts, SIZES, loss, record,
};
use flightline_in_signal::os::clock::monotonic_ns;
use flightline_in_signal::ring::Ring;
use memmap2::{Mmap, MmapRaw};

/// A mapped process file.
pub struct ProcFile {
    map: Mmap,
    layout: ProcLayout,
}

/// One thread's counters.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Kernel thread id (0: slot never used).
    pub tid: u32,
    /// Samples that handlers wrote to the ring.
    pub samples: u64,
    /// The sum of their weights in ns.
    pub sampled_ns: u64,
    /// Samples that handlers discarded, by cause.
    pub lost: [u32; loss::CAUSES],
    /// The sum of time-stamp cycles in handlers.
    pub handler_cycles: u64,
}

/// Session directories of this user whose drain has this pid.
pub fn session_of(drain: u32) -> Option<PathBuf> {
    std::fs::read_dir("/dev/shm").ok()?.flatten().map(|e| e.path()).find(|dir| {
        dir.file_name().is_some_and(|n| n.to_string_lossy().starts_with("flightline-"))
            && std::fs::read(dir.join("session")).is_ok_and(|page| {
                // SessionPage: format (24), drain_pid.
                page.get(24..28).is_some_and(|p| u32::from_le_bytes(p.try_into().unwrap()) == drain)
            })
    })
}

/// Process files of a session.
pub fn processes(session: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(session)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.to_string_lossy().ends_with(PROC_SUFFIX))
        .collect();
    files.sort();
    files
}

impl ProcFile {
    /// Maps a process file for reading.
    pub fn open(path: &Path) -> std::io::Result<ProcFile> {
        let file = File::open(path)?;
        // SAFETY: the file is only read through atomics, and no process truncates it (programs set its size
        // once).
        let map = unsafe { Mmap::map(&file)? };
        assert!(map.len() >= SIZES[1] as usize, "{} is too short", path.display());
        // SAFETY: the mapping is page-aligned and at least as long as the header, which consists of atomics.
        let Identity { thread_slots, ring_bytes, .. } =
            unsafe { &*map.as_ptr().cast::<ProcHeader>() }.identity.load();
        let layout = ProcLayout::new(thread_slots, ring_bytes);
        assert!(map.len() as u64 >= layout.end, "{} is too short", path.display());
        Ok(ProcFile { map, layout })
    }

    /// Returns the layout of the file.
    pub fn layout(&self) -> ProcLayout {
        self.layout
    }

    /// Returns the parts of the file.
    pub fn parts(&self) -> ProcParts<'_> {
        // SAFETY: the mapping is page-aligned and as long as its layout (checked in `open`), and only read.
        unsafe { ProcParts::new(self.map.as_ptr(), &self.layout) }
    }

    fn header(&self) -> &ProcHeader {
        self.parts().header
    }

    /// Pid that made the file.
    pub fn pid(&self) -> u32 {
        self.header().identity.load().pid
    }

    /// Samples taken or counted as lost by handlers.
    pub fn taken(&self) -> u64 {
        self.header().counters.taken.load(Ordering::Acquire)
    }

    /// Events of a kind that did not fit into the ring.
    pub fn events_lost(&self, kind: u16) -> u64 {
        self.header().counters.event_lost[usize::from(kind)].load(Ordering::Acquire)
    }

    /// The selected engine.
    pub fn engine(&self) -> u32 {
        self.header().engine.kind.load(Ordering::Acquire)
    }

    /// Counters of all slots that are or were in use.
    pub fn threads(&self) -> Vec<Counters> {
        let slots = self.parts().slots.iter();
        slots
            .map(|slot| {
                let long = |word: &AtomicU64| word.load(Ordering::Acquire);
                let lost = slot.ledger.lost.each_ref().map(|n: &AtomicU32| n.load(Ordering::Acquire));
                Counters {
                    tid: slot.tid.load(Ordering::Acquire),
                    samples: long(&slot.ledger.samples),
                    sampled_ns: long(&slot.ledger.sampled_ns),
                    lost,
                    handler_cycles: long(&slot.ledger.handler_cycles),
                }
            })
            .filter(|c| c.tid != 0)
            .collect()
    }
}

/// Writes samples into the ring of a process until `end`, as fast as they are read, as a hostile program could write them into its own:
/// sample `n` has the thread id and the weight in ns that `of(n)` returns. Returns their number.
///
/// # Panics
/// The file cannot be mapped.
pub fn write_samples(path: &Path, end: Instant, of: impl Fn(u64) -> (u32, u64)) -> u64 {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let map = MmapRaw::map_raw(&file).unwrap();
    assert!(map.len() >= SIZES[1] as usize, "{} is too short", path.display());
    // SAFETY: the mapping is page-aligned and at least as long as the header, which consists of atomics.
    let Identity { thread_slots, ring_bytes, .. } =
        unsafe { &*map.as_ptr().cast::<ProcHeader>() }.identity.load();
    let layout = ProcLayout::new(thread_slots, ring_bytes);
    assert!(map.len() as u64 >= layout.end, "{} is too short", path.display());
    // SAFETY: the mapping is as long as the layout and lives until the end of this function.
    let parts = unsafe { ProcParts::new(map.as_ptr(), &layout) };
    let ring = Ring::new(&parts.header.ring, parts.ring).unwrap();
    let mut written = 0;
    while Instant::now() < end {
        let Ok(claim) = ring.claim(record::SAMPLE, 7) else {
            std::thread::yield_now();
            continue;
        };
        let (tid, weight_ns) = of(written);
        let fixed = [monotonic_ns(), u64::from(tid) | u64::from(u32::MAX) << 32, weight_ns, 2, 1];
        for (word, value) in
            claim.words.iter().zip(fixed.into_iter().chain([0x40_0000 + written % 4096, 0x40_0000]))
        {
            word.store(value, Ordering::Relaxed);
        }
        claim.publish();
        written += 1;
    }
    written
}
