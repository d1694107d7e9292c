//! Messages for the user: children that cannot be recorded, an output that failed.

use std::collections::HashSet;

/// Messages that the user has not read yet.
#[derive(Default)]
pub(super) struct UserNotices {
    pending: Vec<String>,
    /// Events that the kernel refused, by name and error number: each is reported once.
    refusals: HashSet<(String, i32)>,
}

impl UserNotices {
    pub(super) fn push(&mut self, message: String) {
        self.pending.push(message);
    }

    pub(super) fn extend(&mut self, messages: impl IntoIterator<Item = String>) {
        self.pending.extend(messages);
    }

    /// Returns the messages that are new.
    pub(super) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pending)
    }

    /// Returns true the first time that an event is refused for a reason.
    pub(super) fn is_first_refusal(&mut self, name: &str, errno: i32) -> bool {
        self.refusals.insert((name.to_owned(), errno))
    }
}
