//! The name of a thread, and its constants in the output under its names.

use super::former_names::FormerNames;
use crate::recording::{Recording, ThreadHandle};

/// The name of a thread. Each name, and each title of its process, has a constant of its own in the output.
#[derive(Default)]
pub(super) struct ThreadName {
    text: String,
    former: FormerNames,
    /// Handle of the constant of the present name, made at first use.
    constant: Option<ThreadHandle>,
    /// The same in the group of a title of the process, and that group.
    titled: Option<(u32, ThreadHandle)>,
    /// The name was read from the kernel or from the ring: it need not be looked up.
    pub is_known: bool,
    /// Progress of the thread when the name was looked up.
    looked_up_at: Option<u64>,
}

impl ThreadName {
    /// The name, empty if it is not known.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Handle of the constant of the present name, if it has one.
    pub fn handle(&self) -> Option<ThreadHandle> {
        self.constant
    }

    /// Sets a name that may be looked up again, if there is none.
    pub fn set_first(&mut self, name: impl FnOnce() -> String) {
        if self.text.is_empty() {
            self.text = name();
        }
    }

    /// Forgets the constants of the present name.
    pub fn forget_constants(&mut self) {
        self.constant = None;
        self.titled = None;
    }

    /// Another name from now on: another constant.
    pub fn rename(&mut self, name: String) {
        if name != self.text {
            self.text = name;
            self.forget_constants();
        }
    }

    /// Another name from `time_ns` on. `waits`: samples of before may still have to be written. Returns true if the name is new.
    pub fn rename_at(&mut self, name: String, time_ns: u64, waits: bool) -> bool {
        self.is_known = true;
        if !waits {
            self.former.clear();
        }
        if name == self.text {
            // Seen before this record was read.
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

    /// Returns true if the thread has made progress, or its name is not known, since the name was looked up last.
    pub fn look_up_is_due(&mut self, progress: u64) -> bool {
        self.looked_up_at.replace(progress) != Some(progress) || !self.is_known
    }

    /// The constant of the name in force at `time_ns`; `None` if that is the present name.
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

    /// The constant of the present name.
    #[inline]
    pub fn constant(&mut self, tid: u32, group: u32, recording: &mut Recording) -> usize {
        let handle = self.constant.get_or_insert_with(|| recording.add_thread(tid, &self.text, group));
        recording.thread_index(handle, tid, &self.text, group)
    }

    /// The constant of the present name in the group of a title.
    pub fn titled_constant(&mut self, tid: u32, titled: u32, recording: &mut Recording) -> usize {
        let known = self.titled.take().filter(|(group, _)| *group == titled).map(|(_, handle)| handle);
        let mut handle = known.unwrap_or_else(|| recording.add_thread(tid, &self.text, titled));
        let index = recording.thread_index(&mut handle, tid, &self.text, titled);
        self.titled = Some((titled, handle));
        index
    }
}
