//! A well-behaved program from the drain's point of view: a process file, written with the real layout and
//! ring.
#![allow(dead_code, reason = "each user takes its part")]

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use flightline_in_signal::{
    layout::{
        Identity, MAGIC, ProcHeader, ProcLayout, ProcParts, SampleRecord, ThreadSlot, loss, proc_state,
        record, slot_state,
    },
    ring::Ring,
};
use memmap2::MmapRaw;

pub const SLOTS: u32 = 64;
pub const RING: u64 = 64 << 10;
/// Age of the fake process, ns.
const HOURS_NS: u64 = 5 * 3600 * 1_000_000_000;

/// The program's side of a process file.
pub struct Fake {
    map: MmapRaw,
    pub layout: ProcLayout,
    pub path: PathBuf,
}

impl Fake {
    pub fn new(dir: &Path, pid: u32, n: u32) -> Fake {
        let layout = ProcLayout::new(SLOTS, RING);
        let path = dir.join(format!("{pid}-{n}.proc"));
        let temporary = dir.join(format!("{pid}-{n}.tmp"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary).unwrap();
        file.set_len(layout.end).unwrap();
        let map = MmapRaw::map_raw(&file).unwrap();
        let fake = Fake { map, layout, path };
        let header = fake.header();
        header.identity.store(Identity {
            pid,
            // Its samples carry more CPU time than passes during a test, so it must have run for hours.
            start_mono_ns: now().saturating_sub(HOURS_NS),
            thread_slots: SLOTS,
            ring_bytes: RING,
            ..Identity::default()
        });
        header.state.store(proc_state::LIVE, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        fs::rename(&temporary, &fake.path).unwrap();
        fake
    }

    fn parts(&self) -> ProcParts<'_> {
        // SAFETY: the file was sized for the layout, and this process only accesses it through such references.
        unsafe { ProcParts::new(self.map.as_ptr(), &self.layout) }
    }

    pub fn header(&self) -> &ProcHeader {
        self.parts().header
    }

    pub fn slot(&self, index: u32) -> &ThreadSlot {
        &self.parts().slots[index as usize]
    }

    pub fn ring(&self) -> Ring<'_> {
        let parts = self.parts();
        Ring::new(&parts.header.ring, parts.ring).unwrap()
    }

    pub fn start_thread(&self, index: u32, tid: u32, period: u64) {
        let slot = self.slot(index);
        slot.tid.store(tid, Ordering::Relaxed);
        slot.ledger.start_mono_ns.store(now(), Ordering::Relaxed);
        slot.ledger.first_ns.store(period, Ordering::Relaxed);
        slot.ledger.armed_cpu_ns.store(1, Ordering::Relaxed);
        slot.ledger.last_cpu_ns.store(1, Ordering::Relaxed);
        slot.state.store(0x100 | slot_state::LIVE, Ordering::Release);
    }

    /// Writes a sample like the handler. Returns false if the ring was full and the loss was counted.
    pub fn sample(&self, index: u32, weight: u64, frames: &[u64], flags: u16) -> bool {
        let slot = self.slot(index);
        slot.ledger.last_cpu_ns.fetch_add(weight, Ordering::Relaxed);
        let Ok(claim) = self.ring().claim(record::SAMPLE, frames.len() + size_of::<SampleRecord>() / 8)
        else {
            slot.ledger.lost_ns[loss::RING_FULL].fetch_add(weight, Ordering::Relaxed);
            slot.ledger.lost[loss::RING_FULL].fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let tid = slot.tid.load(Ordering::Relaxed);
        let head = [
            now(),
            u64::from(tid) | u64::from(index) << 32,
            weight,
            frames.len() as u64 | u64::from(flags) << 16,
            0,
        ];
        for (word, value) in claim.words.iter().zip(head.iter().chain(frames)) {
            word.store(*value, Ordering::Relaxed);
        }
        claim.publish();
        slot.ledger.samples.fetch_add(1, Ordering::Relaxed);
        slot.ledger.sampled_ns.fetch_add(weight, Ordering::Relaxed);
        true
    }

    pub fn end_thread(&self, index: u32, tail: u64) {
        let slot = self.slot(index);
        slot.ledger
            .end_cpu_ns
            .store(slot.ledger.last_cpu_ns.load(Ordering::Relaxed) + tail, Ordering::Relaxed);
        slot.ledger.end_mono_ns.store(now(), Ordering::Relaxed);
        slot.state.store(0x100 | slot_state::ENDED, Ordering::Release);
    }
}

fn now() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
