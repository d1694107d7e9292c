//! Messages for the user: children that cannot be recorded, an output that failed.

use std::collections::HashSet;

/// Messages that have not been printed yet.
#[derive(Default)]
pub(super) struct UserNotices {
    pending: Vec<String>,
    /// Events that the kernel refused, by name and errno; each is reported once.
    refusals: HashSet<(String, i32)>,
}

impl UserNotices {
    pub(super) fn push(&mut self, message: String) {
        self.pending.push(message);
    }

    pub(super) fn extend(&mut self, messages: impl IntoIterator<Item = String>) {
        self.pending.extend(messages);
    }

    /// Takes the new messages.
    pub(super) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pending)
    }

    /// Returns true the first time that an event is refused for this reason.
    pub(super) fn is_first_refusal(&mut self, name: &str, errno: i32) -> bool {
        self.refusals.insert((name.to_owned(), errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_returned_once_and_refusals_are_reported_once() {
        let mut notices = UserNotices::default();
        notices.push("one".to_owned());
        notices.extend(Some("two".to_owned()));
        assert_eq!(notices.take(), ["one", "two"]);
        assert_eq!(notices.take(), [""; 0]);
        let first = [("a", 1), ("a", 2), ("a", 1), ("b", 1)]
            .map(|(name, errno)| notices.is_first_refusal(name, errno));
        assert_eq!(first, [true, true, false, true]);
    }
}
