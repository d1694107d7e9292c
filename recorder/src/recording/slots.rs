//! The recordings of a session, with keys that never refer to another recording.
//!
//! A process that ended leaves a free slot, which the next recording fills, so there are never more slots
//! than recordings that were open at the same time. The generation of a slot changes when its recording is
//! retired, so that old keys become invalid.

use super::Recording;

/// Key of a recording in [`RecordingSlots`]. The default key belongs to no recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordingId {
    index: u32,
    generation: u32,
}

impl RecordingId {
    /// Returns the key of the first recording in a slot, for lists in which no recording is retired.
    pub fn first(index: usize) -> RecordingId {
        RecordingId { index: u32::try_from(index).unwrap_or(u32::MAX), generation: FIRST_GENERATION }
    }

    /// Returns the index of the slot.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Generation 0 belongs to the default key.
const FIRST_GENERATION: u32 = 1;

struct Slot<R> {
    generation: u32,
    /// The process of an open recording (0: all processes). `None`: the recording is retired, and the next one replaces it.
    pid: Option<u32>,
    recording: R,
}

/// Open recordings, and retired ones whose slots are not filled yet.
pub struct RecordingSlots<R = Recording> {
    slots: Vec<Slot<R>>,
}

impl<R> Default for RecordingSlots<R> {
    fn default() -> RecordingSlots<R> {
        RecordingSlots { slots: Vec::new() }
    }
}

impl<R> RecordingSlots<R> {
    /// Adds the recording of a process (0: of all processes).
    pub fn insert(&mut self, pid: u32, recording: R) -> RecordingId {
        let free = self.slots.iter().position(|slot| slot.pid.is_none());
        let index = free.unwrap_or(self.slots.len());
        match self.slots.get_mut(index) {
            Some(slot) => (slot.pid, slot.recording) = (Some(pid), recording),
            None => self.slots.push(Slot { generation: FIRST_GENERATION, pid: Some(pid), recording }),
        }
        RecordingId { generation: self.slots[index].generation, ..RecordingId::first(index) }
    }

    /// Returns an open recording.
    pub fn get(&self, id: RecordingId) -> Option<&R> {
        self.slot(id).map(|slot| &slot.recording)
    }

    /// Returns an open recording.
    pub fn get_mut(&mut self, id: RecordingId) -> Option<&mut R> {
        let slot = self.slots.get_mut(id.index())?;
        (slot.generation == id.generation && slot.pid.is_some()).then_some(&mut slot.recording)
    }

    /// Returns the process of an open recording (0: all processes).
    pub fn pid(&self, id: RecordingId) -> Option<u32> {
        self.slot(id)?.pid
    }

    /// Returns the key of the open recording of a process (0: of all processes).
    pub fn find(&self, pid: u32) -> Option<RecordingId> {
        self.iter().find(|(_, owner, _)| *owner == pid).map(|(id, ..)| id)
    }

    /// Retires an open recording, whose key becomes invalid. The recording itself remains until another one
    /// fills its slot.
    pub fn retire(&mut self, id: RecordingId) -> Option<&mut R> {
        let slot = self.slots.get_mut(id.index())?;
        if slot.generation != id.generation {
            return None;
        }
        slot.pid.take()?;
        slot.generation = slot.generation.wrapping_add(1).max(FIRST_GENERATION);
        Some(&mut slot.recording)
    }

    /// Returns the keys of the open recordings.
    pub fn ids(&self) -> Vec<RecordingId> {
        self.iter().map(|(id, ..)| id).collect()
    }

    /// Returns the open recordings with their keys and processes.
    pub fn iter(&self) -> impl Iterator<Item = (RecordingId, u32, &R)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| Some((slot.id(index), slot.pid?, &slot.recording)))
    }

    /// Returns the open recordings with their keys.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (RecordingId, &mut R)> {
        let open = self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.pid.is_some());
        open.map(|(index, slot)| (slot.id(index), &mut slot.recording))
    }

    /// Returns the open recordings.
    pub fn open(&self) -> impl Iterator<Item = &R> {
        self.iter().map(|(.., recording)| recording)
    }

    /// Returns the open recordings.
    pub fn open_mut(&mut self) -> impl Iterator<Item = &mut R> {
        self.iter_mut().map(|(_, recording)| recording)
    }

    /// Returns the open recordings, and the retired ones whose slots are not filled yet.
    pub fn all(&self) -> impl Iterator<Item = &R> {
        self.slots.iter().map(|slot| &slot.recording)
    }

    /// Returns the open recordings, and the retired ones whose slots are not filled yet.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut R> {
        self.slots.iter_mut().map(|slot| &mut slot.recording)
    }

    /// Returns the number of slots, including those of retired recordings.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, id: RecordingId) -> Option<&Slot<R>> {
        self.slots.get(id.index()).filter(|slot| slot.generation == id.generation && slot.pid.is_some())
    }
}

impl<R> Slot<R> {
    fn id(&self, index: usize) -> RecordingId {
        RecordingId { generation: self.generation, ..RecordingId::first(index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(slots: &RecordingSlots<&'static str>) -> Vec<(u32, &'static str)> {
        slots.iter().map(|(_, pid, recording)| (pid, *recording)).collect()
    }

    #[test]
    fn open_recordings_are_found_by_key_and_process() {
        let mut slots = RecordingSlots::default();
        let [one, two] = [(10, "one"), (20, "two")].map(|(pid, recording)| slots.insert(pid, recording));
        assert_eq!((slots.get(one), slots.get(two)), (Some(&"one"), Some(&"two")));
        assert_eq!((slots.find(20), slots.find(30)), (Some(two), None));
        assert_eq!((slots.pid(one), slots.ids()), (Some(10), vec![one, two]));
        *slots.get_mut(two).unwrap() = "changed";
        assert_eq!(contents(&slots), [(10, "one"), (20, "changed")]);
    }

    #[test]
    fn stale_key_finds_no_recording() {
        let mut slots = RecordingSlots::default();
        let old = slots.insert(10, "old");
        assert_eq!(slots.retire(old).copied(), Some("old"));
        assert_eq!((slots.get(old), slots.pid(old), slots.find(10)), (None, None, None));
        let new = slots.insert(20, "new");
        assert_eq!((new.index(), slots.slot_count()), (old.index(), 1));
        assert_ne!(new, old);
        assert_eq!((slots.get(old), slots.pid(old)), (None, None));
        assert_eq!(slots.get_mut(old), None);
        assert_eq!(slots.retire(old), None);
        assert_eq!((slots.get(new), slots.find(20)), (Some(&"new"), Some(new)));
    }

    #[test]
    fn retired_recording_remains_until_its_slot_is_filled() {
        let mut slots = RecordingSlots::default();
        let first = slots.insert(10, "first");
        slots.insert(20, "second");
        slots.retire(first).unwrap();
        assert_eq!(slots.retire(first), None);
        assert_eq!(contents(&slots), [(20, "second")]);
        assert_eq!(slots.all().copied().collect::<Vec<_>>(), ["first", "second"]);
        slots.insert(30, "third");
        assert_eq!(contents(&slots), [(30, "third"), (20, "second")]);
        assert_eq!(slots.all_mut().count(), 2);
    }

    #[test]
    fn slot_count_equals_maximum_open_recordings() {
        let mut slots = RecordingSlots::default();
        for pid in 1..1000 {
            let [one, two] = [pid, 1000 + pid].map(|pid| slots.insert(pid, pid));
            assert!(slots.retire(one).is_some() && slots.retire(two).is_some());
        }
        assert_eq!((slots.slot_count(), slots.open().count(), slots.open_mut().count()), (2, 0, 0));
    }

    #[test]
    fn default_key_and_missing_slots_find_nothing() {
        let mut slots = RecordingSlots::default();
        slots.insert(0, "all");
        assert_eq!(slots.get(RecordingId::default()), None);
        assert_eq!(slots.get(RecordingId::first(7)), None);
        assert_eq!(slots.get(RecordingId::first(0)), Some(&"all"));
    }
}
