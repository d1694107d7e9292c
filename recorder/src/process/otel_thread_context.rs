//! Other libraries that write OpenTelemetry's thread context (OTEP 4947): they define `otel_thread_ctx_v1`
//! and may be loaded at any time. Also libraries and programs that write only labels: they define
//! `custom_labels_current_set` (ABI of custom-labels, version 1).
//!
//! The recorder in the program finds the variables that exist at the start (`capture/context/mod.rs`). This
//! module finds those of libraries loaded later, from the words that the dynamic loader fills in
//! (`names/context_words.rs`), and writes their locations to the process's shared file, where handlers read
//! them.

use flightline_in_signal::context::place;
use flightline_in_signal::layout::CONTEXT_PLACES;

use crate::names::context_words::{VARIABLES, find_words};
use crate::names::images::Images;
use crate::names::modules::ModuleMap;
use crate::shared_memory::proc_file::ProcFile;

/// Shortest and longest time between two searches of the mapped files if no module has changed, ns.
const WAIT_NS: [u64; 2] = [100_000_000, 16_000_000_000];

/// The context-writing libraries of a process.
#[derive(Default)]
pub(super) struct Writers {
    /// Version of the modules at the last search.
    version: u64,
    /// The dynamic loader has not filled in some word yet.
    again: bool,
    wait_ns: u64,
    checked_ns: u64,
}

impl Writers {
    /// Returns true if it is time to read the mappings, because a library without samples may have been
    /// loaded.
    pub fn is_due(&self, file: &ProcFile, now_ns: u64) -> bool {
        file.context_offsets() != [0; 2] && now_ns.saturating_sub(self.checked_ns) >= self.wait_ns
    }

    /// Searches the mapped files, and writes the locations of the variables for the program's handlers.
    pub fn look(&mut self, file: &ProcFile, modules: &ModuleMap, images: &Images, now_ns: u64) {
        if self.is_due(file, now_ns) {
            self.checked_ns = now_ns;
            self.wait_ns = (2 * self.wait_ns).clamp(WAIT_NS[0], WAIT_NS[1]);
        }
        let offsets = file.context_offsets();
        if offsets == [0; 2] || (self.version == modules.version && !self.again) {
            return;
        }
        self.version = modules.version;
        self.again = false;
        let mut places = [[0; 2]; CONTEXT_PLACES];
        let mut free = places.iter_mut();
        let mut seen = offsets.map(|offset| [0, place::fixed(offset as i64)]).to_vec();
        for mapping in modules.current() {
            let words = find_words(file.pid, mapping.image, images);
            for (variable, word) in VARIABLES.iter().zip(words) {
                let Some(word) = word else { continue };
                let Some([generation, place]) = word.read(file.pid, mapping.bias) else {
                    self.again = true;
                    continue;
                };
                let found = [generation, place | variable.mark];
                if !seen.contains(&found)
                    && let Some(to) = free.next()
                {
                    seen.push(found);
                    *to = found;
                }
            }
        }
        // Variables with spans come first, because they contain more than labels.
        places.sort_by_key(|[_, place]| (*place == 0, place & place::LABELS));
        file.set_context_places(&places);
    }
}
