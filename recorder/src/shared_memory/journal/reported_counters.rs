//! Saves which part of the program's own counters (losses, events below a threshold) is in its output, so
//! that a recovery can report the rest.
//!
//! **Problem.** These counters are in the process file, only grow, and outlive the program. But only the
//! drain knows which part of them had been reported before it was killed.
//!
//! **Mechanism.** A file next to the process file, created on demand, has an entry for the process and for
//! each thread slot with counts: the reported counters, in two versions. Each version has the number of the
//! batch in which it was reported. The valid one is the newer one whose batch was committed; the other one is
//! overwritten next. If the drain is killed while it writes a version, that version has a wrong checksum, and
//! belongs to a batch that was not committed.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use flightline_in_signal::layout::{event_kind::KINDS, loss::CAUSES};

use super::checksum;
use crate::settings::THREAD_SLOTS;

/// Extension of these files.
pub const EXTENSION: &str = "told";
/// Counters per entry: as many as a process needs; a thread needs fewer.
pub const COUNTS: usize = 4 * KINDS;
const _: () = assert!(2 * CAUSES <= COUNTS);
/// Words of a version: batch, owner, counts, checksum.
const WORDS: usize = COUNTS + 3;
const ENTRY_BYTES: u64 = 2 * 8 * WORDS as u64;
/// One for each slot, and one for the process.
const MOST_ENTRIES: u64 = THREAD_SLOTS as u64 + 1;

/// The reported counters. Their order is defined by the caller.
pub type Counts = [u64; COUNTS];

/// The owner of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterOwner {
    /// The process.
    Process,
    /// The thread that uses or used a slot: number and generation.
    Thread(u32, u32),
}

impl CounterOwner {
    /// Encodes slot and generation in one word.
    fn word(self) -> u64 {
        match self {
            CounterOwner::Process => 0,
            CounterOwner::Thread(slot, generation) => (u64::from(slot) + 1) << 32 | u64::from(generation),
        }
    }
}

struct Entry {
    /// Its index in the file.
    number: u64,
    /// Batches of the two versions.
    batches: [u64; 2],
    newest: usize,
    owner: u64,
    counts: Counts,
}

/// The reported counters of a process, in the drain.
#[derive(Default)]
pub struct ReportedCounters {
    file: Option<File>,
    /// Entries by slot.
    entries: HashMap<u32, Entry>,
}

impl ReportedCounters {
    /// Saves that `counts` are reported by events of `batch`; `committed` is the last committed batch. If
    /// this fails, recording continues.
    pub fn keep(&mut self, path: &Path, [committed, batch]: [u64; 2], owner: CounterOwner, counts: &Counts) {
        let word = owner.word();
        let place = (word >> 32) as u32;
        let known = self.entries.get(&place);
        // Counters that are all zero need no entry.
        let before = known.filter(|e| e.owner == word).map_or([0; COUNTS], |e| e.counts);
        if before == *counts {
            return;
        }
        let number = known.map_or(self.entries.len() as u64, |e| e.number);
        let (batches, newest) = known.map_or(([0; 2], 0), |e| (e.batches, e.newest));
        // Overwrite the version that is not needed: the one that was not committed, otherwise the older one.
        let version = if batches[newest] > committed { newest } else { 1 - newest };
        if number >= MOST_ENTRIES || self.write(path, number, version, batch, word, counts).is_err() {
            return;
        }
        let mut batches = batches;
        batches[version] = batch;
        let entry = Entry { number, batches, newest: version, owner: word, counts: *counts };
        self.entries.insert(place, entry);
    }

    fn write(
        &mut self,
        path: &Path,
        number: u64,
        version: usize,
        batch: u64,
        owner: u64,
        counts: &Counts,
    ) -> io::Result<()> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            self.file = Some(options.write(true).create_new(true).mode(0o600).open(path)?);
        }
        let mut words = [0; WORDS];
        words[0] = batch;
        words[1] = owner;
        words[2..2 + COUNTS].copy_from_slice(counts);
        words[WORDS - 1] = sum(&words);
        let bytes = words.map(u64::to_le_bytes);
        let at = number * ENTRY_BYTES + (version * 8 * WORDS) as u64;
        self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(bytes.as_flattened(), at))
    }
}

fn sum(words: &[u64; WORDS]) -> u64 {
    checksum(words[..WORDS - 1].iter().flat_map(|word| word.to_le_bytes()))
}

/// The counters that had been reported when a batch was committed.
#[derive(Default)]
pub struct CommittedCounters(HashMap<u32, (u64, u64, Counts)>);

impl CommittedCounters {
    /// Returns an owner's counters, zeros if none were reported.
    pub fn get(&self, owner: CounterOwner) -> Counts {
        let word = owner.word();
        let found = self.0.get(&((word >> 32) as u32)).filter(|(_, of, _)| *of == word);
        found.map_or([0; COUNTS], |(.., counts)| *counts)
    }
}

/// Reads the counters that had been reported when `committed` was committed; none if there is no file.
pub fn read(path: &Path, committed: u64) -> CommittedCounters {
    let mut found = CommittedCounters::default();
    // Do not follow links, and do not block on a FIFO.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else { return found };
    let mut bytes = Vec::new();
    // Use the part that could be read.
    let _ = file.take(MOST_ENTRIES * ENTRY_BYTES).read_to_end(&mut bytes);
    for version in bytes.chunks_exact(8 * WORDS) {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(version.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [batch, owner, ..] = words;
        if words[WORDS - 1] != sum(&words) || batch > committed {
            continue;
        }
        let mut counts = [0; COUNTS];
        counts.copy_from_slice(&words[2..2 + COUNTS]);
        let entry = found.0.entry((owner >> 32) as u32).or_insert((batch, owner, counts));
        if entry.0 <= batch {
            *entry = (batch, owner, counts);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(n: u64) -> Counts {
        std::array::from_fn(|i| n * 100 + i as u64)
    }

    #[test]
    fn committed_counters_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1-0.told");
        let found = |committed, owner| read(&path, committed).get(owner);
        let mut counters = ReportedCounters::default();
        counters.keep(&path, [1, 2], CounterOwner::Thread(3, 0x100), &[0; COUNTS]);
        assert!(!path.exists(), "nothing to keep");
        let (thread, process) = (CounterOwner::Thread(3, 0x100), CounterOwner::Process);
        counters.keep(&path, [1, 2], thread, &counts(1));
        counters.keep(&path, [1, 2], process, &counts(9));
        assert_eq!((found(1, thread), found(2, thread)), ([0; COUNTS], counts(1)));
        assert_eq!((found(2, process), found(2, CounterOwner::Thread(4, 0x100))), (counts(9), [0; COUNTS]));
        // Several times in a batch, and in a batch that is not committed yet.
        counters.keep(&path, [2, 3], thread, &counts(2));
        counters.keep(&path, [2, 3], thread, &counts(3));
        assert_eq!((found(2, thread), found(3, thread)), (counts(1), counts(3)));
        // That batch was given up: the counters reported before remain valid while the next batch is written.
        counters.keep(&path, [2, 4], thread, &counts(1));
        assert_eq!((found(2, thread), found(4, thread)), (counts(1), counts(1)));
        counters.keep(&path, [4, 5], thread, &counts(4));
        assert_eq!((found(4, thread), found(5, thread)), (counts(1), counts(4)));
        // Another thread uses the slot: none of its counters have been reported.
        assert_eq!(found(5, CounterOwner::Thread(3, 0x200)), [0; COUNTS]);
        counters.keep(&path, [5, 6], CounterOwner::Thread(3, 0x200), &counts(7));
        assert_eq!((found(5, thread), found(6, thread)), (counts(4), [0; COUNTS]));
        assert_eq!(found(6, CounterOwner::Thread(3, 0x200)), counts(7));
        assert_eq!(found(6, process), counts(9));
    }

    #[test]
    fn damaged_version_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1-0.told");
        let mut counters = ReportedCounters::default();
        let owner = CounterOwner::Thread(0, 0);
        counters.keep(&path, [1, 2], owner, &counts(1));
        counters.keep(&path, [2, 3], owner, &counts(2));
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            let found = read(&path, 3).get(owner);
            // The second version comes first in the file, because the first write had no version to preserve.
            assert!(found == counts(1) || found == counts(2), "byte {at}");
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        read(&path, 3);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path, 3).get(owner), [0; COUNTS]);
    }
}
