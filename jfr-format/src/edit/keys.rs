//! Keys of constants across several recordings.

/// Types whose keys some readers treat as equal in all chunks: Pyroscope does, with the lowest 32 bits for
/// methods.
const TYPES: [&str; 2] = ["jdk.types.StackTrace", "jdk.types.Method"];
/// Larger keys are ignored: their writer hardly counts from one, and keys must not grow without limit.
const MOST: u64 = u32::MAX as u64;

/// The increase of a recording's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shift([u64; TYPES.len()]);

impl Shift {
    /// Returns the increase for constants of a type.
    pub(super) fn offset(&self, name: &str) -> u64 {
        TYPES.iter().zip(self.0).find(|(of, _)| **of == name).map_or(0, |(_, by)| by)
    }
}

/// Returns the new key of `key`. Different keys stay different, and 0, which means no constant, does not
/// change.
pub(super) fn moved(key: u64, by: u64) -> u64 {
    match key.checked_add(by) {
        _ if key == 0 => 0,
        Some(moved) => moved,
        // Wrap around, and skip 0.
        None => key.wrapping_add(by).wrapping_add(1),
    }
}

/// The keys in use. When a recording starts to count again, its keys are moved above those of all previous
/// recordings.
#[derive(Debug, Default)]
pub(super) struct KeySpace {
    last: [u64; TYPES.len()],
    shift: Shift,
}

impl KeySpace {
    /// Begins another recording.
    pub(super) fn begin(&mut self) {
        self.shift = Shift(self.last);
    }

    /// Returns the increase for the current recording.
    pub(super) fn shift(&self) -> Shift {
        self.shift
    }

    /// Registers a constant of the current recording, by its type and its original key.
    pub(super) fn note(&mut self, name: &str, key: u64) {
        let Some(at) = TYPES.iter().position(|of| *of == name) else { return };
        let moved = moved(key, self.shift.0[at]);
        if moved <= MOST {
            self.last[at] = self.last[at].max(moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_start_after_previous_recording_keys() {
        let (mut space, [stack, method]) = (KeySpace::default(), TYPES);
        space.begin();
        assert_eq!(space.shift(), Shift::default(), "the first stays");
        for (name, key) in [(stack, 7), (stack, 3), (method, 40), (method, u64::MAX), ("java.lang.Class", 99)]
        {
            space.note(name, key);
        }
        space.begin();
        assert_eq!([stack, method, "java.lang.Class"].map(|name| space.shift().offset(name)), [7, 40, 0]);
        space.note(stack, 5);
        space.begin();
        assert_eq!([stack, method].map(|name| space.shift().offset(name)), [12, 40]);
    }

    #[test]
    fn shifted_keys_remain_distinct_and_nonzero() {
        for by in [0, 1, 5, 1 << 40, u64::MAX] {
            let keys = [1, 2, 6, 1 << 41, u64::MAX - 5, u64::MAX - 1, u64::MAX];
            let moved = keys.map(|key| moved(key, by));
            assert!(!moved.contains(&0), "{by}: {moved:?}");
            let mut different = moved.to_vec();
            different.sort_unstable();
            different.dedup();
            assert_eq!(different.len(), keys.len(), "{by}: {moved:?}");
            assert_eq!(super::moved(0, by), 0);
        }
    }
}
