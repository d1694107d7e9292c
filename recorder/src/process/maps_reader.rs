//! Decides when to read the mappings of a process again, and publishes the module table for its handlers.

use crate::{names::images::Images, names::modules::ModuleMap, shared_memory::proc_file::ProcFile};

/// Shortest and longest time between two readings of `/proc/<pid>/maps` that unknown addresses cause, ns.
const MAPS_WAIT_NS: [u64; 2] = [20_000_000, 5_000_000_000];

/// The state of reading `/proc/<pid>/maps` and of publishing the module table.
pub(super) struct MapsReader {
    /// Unknown addresses counted by the program at the last reading.
    unknown_pcs: u64,
    /// Time of the last reading, CLOCK_MONOTONIC ns; 0: read as soon as possible.
    read_ns: u64,
    /// Current time between readings that unknown addresses cause, ns.
    wait_ns: u64,
    /// Version of the modules, and number of those with unwind tables, in the table that the handlers have.
    published: (u64, u64),
}

impl Default for MapsReader {
    fn default() -> MapsReader {
        MapsReader { unknown_pcs: 0, read_ns: 0, wait_ns: MAPS_WAIT_NS[0], published: (0, 0) }
    }
}

impl MapsReader {
    /// Returns true if the mappings have not been read yet, or an address was in none of them and the next
    /// reading is due. `unknown`: such an address was in a stack; `unknown_pcs`: number of such addresses
    /// counted by the program.
    pub fn is_due(&self, unknown: bool, unknown_pcs: u64, now_ns: u64) -> bool {
        let requested = unknown || unknown_pcs != self.unknown_pcs;
        self.read_ns == 0 || requested && now_ns.saturating_sub(self.read_ns) >= self.wait_ns
    }

    /// Reads the mappings.
    pub fn read(
        &mut self,
        file: &ProcFile,
        unknown_pcs: u64,
        modules: &mut ModuleMap,
        images: &mut Images,
        now_ns: u64,
    ) {
        self.read_ns = now_ns.max(1);
        self.unknown_pcs = unknown_pcs;
        match modules.read_maps(file, images) {
            Ok(Some(true)) => self.wait_ns = MAPS_WAIT_NS[0],
            // Code that remains unknown must not cause endless readings.
            Ok(Some(false)) => self.wait_ns = (self.wait_ns * 2).min(MAPS_WAIT_NS[1]),
            // A process that has just ended has no mappings either.
            Ok(None) if file.alive() => file.distrust_pid(),
            Ok(None) => {}
            Err(_) => {}
        }
    }

    /// Publishes a new table for the program's handlers if it differs from their current one.
    pub fn publish(&mut self, file: &ProcFile, modules: &ModuleMap, images: &Images) {
        let rows: u64 = modules.current().iter().filter(|m| images.get(m.image).rows_off != 0).count() as u64;
        let state = (modules.version, rows);
        if state == self.published || modules.current().is_empty() {
            return;
        }
        let seq = file.dlclose_seq();
        if file.publish(&modules.table(images), seq) {
            self.published = state;
        } else {
            // A dlclose was in progress, so the mappings are out of date.
            self.read_ns = 0;
        }
    }
}
