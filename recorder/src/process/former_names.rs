//! The names that a thread had before: samples that are written late, because they wait for symbols, have the name of their time.

use crate::recording::{Recording, ThreadHandle};

/// Number of names kept of a thread. Samples that have waited longer get the oldest of them.
const MOST: usize = 32;

/// A name that is no longer in force.
struct Former {
    /// CLOCK_MONOTONIC ns of the next name.
    until_ns: u64,
    name: String,
    constant: Option<ThreadHandle>,
}

/// Former names of a thread, oldest first.
#[derive(Default)]
pub(super) struct FormerNames(Vec<Former>);

impl FormerNames {
    /// Adds the name that was in force up to `until_ns`, with its constant in the output if it has one.
    pub fn add(&mut self, until_ns: u64, name: String, constant: Option<ThreadHandle>) {
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(Former { until_ns, name, constant });
    }

    /// The last of them was in force no longer than up to `until_ns`.
    pub fn end_last_at(&mut self, until_ns: u64) {
        if let Some(last) = self.0.last_mut() {
            last.until_ns = last.until_ns.min(until_ns);
        }
    }

    /// Forgets all: nothing waits to be written.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The constant of the name in force at `time_ns`; `None` if that is the present name.
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
