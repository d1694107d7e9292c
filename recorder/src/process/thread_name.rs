//! The name of a thread, and its constants in the output under its names.

use super::former_names::FormerNames;
use crate::recording::{Recording, ThreadHandle};

/// The name of a thread. Each name, and each title of its process, has its own constant in the output.
#[derive(Default)]
pub(super) struct ThreadName {
    text: String,
    former: FormerNames,
    /// Handle of the constant of the current name, created at first use.
    constant: Option<ThreadHandle>,
    /// Group of a title of the process, and the handle of the constant in it.
    titled: Option<(u32, ThreadHandle)>,
    /// The name came from the kernel or from the ring, so it need not be looked up.
    pub is_known: bool,
    /// Progress of the thread when the name was looked up.
    looked_up_at: Option<u64>,
}

impl ThreadName {
    /// Returns the name, empty if it is unknown.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the handle of the constant of the current name, if it has one.
    pub fn handle(&self) -> Option<ThreadHandle> {
        self.constant
    }

    /// Sets a preliminary name, if there is none.
    pub fn set_first(&mut self, name: impl FnOnce() -> String) {
        if self.text.is_empty() {
            self.text = name();
        }
    }

    /// Drops the constants of the current name.
    pub fn forget_constants(&mut self) {
        self.constant = None;
        self.titled = None;
    }

    /// Changes the name, which gets another constant.
    pub fn rename(&mut self, name: String) {
        if name != self.text {
            self.text = name;
            self.forget_constants();
        }
    }

    /// Changes the name from `time_ns` on. `waits`: earlier samples may still have to be written. Returns
    /// true if the name is new.
    pub fn rename_at(&mut self, name: String, time_ns: u64, waits: bool) -> bool {
        self.is_known = true;
        if !waits {
            self.former.clear();
        }
        if name == self.text {
            // The name was looked up before this record was read.
            self.former.end_last_at(time_ns);
            return false;
        }
        let old = std::mem::replace(&mut self.text, name);
        let constant = self.constant.take();
        self.titled = None;
        if waits {
            self.former.add(time_ns, old, constant);
        }
        true
    }

    /// Returns true if the name is unknown, or the thread has made progress since it was last looked up.
    pub fn look_up_is_due(&mut self, progress: u64) -> bool {
        self.looked_up_at.replace(progress) != Some(progress) || !self.is_known
    }

    /// Returns the constant of the name that was valid at `time_ns`; `None` for the current name.
    #[inline]
    pub fn former_constant(
        &mut self,
        time_ns: u64,
        tid: u32,
        group: u32,
        recording: &mut Recording,
    ) -> Option<usize> {
        self.former.constant_at(time_ns, tid, group, recording)
    }

    /// Returns the constant of the current name.
    #[inline]
    pub fn constant(&mut self, tid: u32, group: u32, recording: &mut Recording) -> usize {
        let handle = self.constant.get_or_insert_with(|| recording.add_thread(tid, &self.text, group));
        recording.thread_index(handle, tid, &self.text, group)
    }

    /// Returns the constant of the current name in the group of a title.
    pub fn titled_constant(&mut self, tid: u32, titled: u32, recording: &mut Recording) -> usize {
        let known = self.titled.take().filter(|(group, _)| *group == titled).map(|(_, handle)| handle);
        let mut handle = known.unwrap_or_else(|| recording.add_thread(tid, &self.text, titled));
        let index = recording.thread_index(&mut handle, tid, &self.text, titled);
        self.titled = Some((titled, handle));
        index
    }
}
