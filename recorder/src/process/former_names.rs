//! Earlier names of a thread. A sample that waits for symbols may be written after the thread was renamed,
//! and must get the name at its time.

use crate::recording::{Recording, ThreadHandle};

/// Limit of earlier names of a thread. Samples from before the oldest of them get its name.
const MOST: usize = 32;

/// An earlier name.
struct Former {
    /// CLOCK_MONOTONIC ns of the next name.
    until_ns: u64,
    name: String,
    constant: Option<ThreadHandle>,
}

/// Earlier names of a thread, oldest first.
#[derive(Default)]
pub(super) struct FormerNames(Vec<Former>);

impl FormerNames {
    /// Adds the name that was valid up to `until_ns`, with its constant in the output if it has one.
    pub fn add(&mut self, until_ns: u64, name: String, constant: Option<ThreadHandle>) {
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(Former { until_ns, name, constant });
    }

    /// Ends the last name at `until_ns`, if that is earlier.
    pub fn end_last_at(&mut self, until_ns: u64) {
        if let Some(last) = self.0.last_mut() {
            last.until_ns = last.until_ns.min(until_ns);
        }
    }

    /// Removes all names, once no sample waits to be written.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the constant of the name that was valid at `time_ns`; `None` for the current name.
    pub fn constant_at(
        &mut self,
        time_ns: u64,
        tid: u32,
        group: u32,
        recording: &mut Recording,
    ) -> Option<usize> {
        let Former { name, constant, .. } = self.0.iter_mut().find(|former| time_ns < former.until_ns)?;
        let handle = constant.get_or_insert_with(|| recording.add_thread(tid, name, group));
        Some(recording.thread_index(handle, tid, name, group))
    }
}
