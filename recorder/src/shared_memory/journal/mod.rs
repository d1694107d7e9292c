//! The journal of records that were read from the rings but are not in the output yet. It is in shared
//! memory, where a recovery finds it if the drain is killed.
//!
//! **Problem.** Between ring and output, samples are in the drain's own memory: in the chunk's buffer until
//! the next flush, longer if their symbols are still being read. If the drain is killed, they are lost. If it
//! is killed after it has written samples but before it has noted that, they must not be written twice.
//!
//! **Mechanism.** Each record is copied here, with its ring position, before its space in the ring is
//! released. The position identifies records that are in both. When its events are queued, the record gets
//! the number of the batch with which they will be written. When a batch has been written, a *commit* records
//! that, with the current header and length of the output. A recovery truncates the output to the last
//! commit, so that it contains nothing of later batches, and then writes all records of later batches or
//! none. Commits alternate between two slots, and one word selects the valid one, so that it is always
//! complete. Because a recovery truncates the output at the commit, a commit must have a correct checksum.
//!
//! ```text
//! page 0: JournalHeader: magic, who, the clock; head, tail, active; two commits
//! then:   entries, end to end around: [words << 32 | kind][batch][process][place in the ring][payload …]
//! ```
//! Positions count words from the start and never wrap. When everything is written, both move to the start of
//! the memory, so that a journal uses only as many pages as its longest backlog.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering, fence},
};

use memmap2::MmapRaw;
use nix::fcntl::{FallocateFlags, fallocate};

#[cfg(not(feature = "fuzzing"))]
pub(crate) mod reported_counters;
#[cfg(feature = "fuzzing")]
pub mod reported_counters;

/// "FLJRNL01"
const MAGIC: u64 = u64::from_le_bytes(*b"FLJRNL01");
/// Suffix of journals in a session directory.
pub const SUFFIX: &str = ".journal";
/// Bytes of the first page, before the entries.
const HEAD_BYTES: usize = 8192;
/// Bytes of entries. A record that does not fit is safe only once it is written.
const DATA_BYTES: usize = 8 << 20;
const WORDS: u64 = (DATA_BYTES / 8) as u64;
/// Bytes of pages that are allocated at a time.
const STEP_BYTES: usize = 128 << 10;
/// Words of an entry before its payload.
const ENTRY_WORDS: u64 = 4;
/// Limit of an output's path.
const PATH_BYTES: usize = 2048;
/// Bytes of a chunk header.
const HEADER_BYTES: usize = jfr_format::header::LEN;

/// The state of an output after a batch was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The batch.
    pub batch: u64,
    /// The file.
    pub path: PathBuf,
    /// Position of its last chunk.
    pub chunk_at: u64,
    /// Its length.
    pub len: u64,
    /// The header of its last chunk.
    pub header: [u8; HEADER_BYTES],
}

#[repr(C)]
struct CommitSlot {
    seq: AtomicU64,
    batch: AtomicU64,
    chunk_at: AtomicU64,
    len: AtomicU64,
    path_len: AtomicU64,
    header: [u8; HEADER_BYTES.next_multiple_of(8)],
    path: [u8; PATH_BYTES],
    sum: AtomicU64,
}

impl CommitSlot {
    /// Returns the commit in this slot with its sequence number, if it is valid.
    fn read(&self, whose: [u64; 2]) -> Option<(u64, Commit)> {
        let words = [&self.seq, &self.batch, &self.chunk_at, &self.len, &self.path_len];
        let [seq, batch, chunk_at, len, path_len] = words.map(|word| word.load(Ordering::Acquire));
        let path = self.path.get(..usize::try_from(path_len).ok()?)?;
        let header = self.header.first_chunk::<HEADER_BYTES>()?;
        let numbers = [whose[0], whose[1], seq, batch, chunk_at, len, path_len];
        let whole = seq > 0 && self.sum.load(Ordering::Relaxed) == commit_checksum(numbers, header, path);
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        whole.then_some((seq, Commit { batch, path, chunk_at, len, header: *header }))
    }
}

/// Returns the checksum of a commit. A damaged commit must not cause an output to be truncated at the wrong
/// position.
fn commit_checksum(numbers: [u64; 7], header: &[u8], path: &[u8]) -> u64 {
    let numbers = numbers.map(u64::to_le_bytes);
    checksum(numbers.as_flattened().iter().chain(header).chain(path).copied())
}

#[repr(C)]
struct JournalHeader {
    magic: AtomicU64,
    /// The PID of the recorded process, 0 for all processes of the session.
    pid: AtomicU64,
    /// CLOCK_MONOTONIC ns of tick 0.
    origin_ns: AtomicU64,
    head: AtomicU64,
    tail: AtomicU64,
    /// Sequence number of the valid commit; its parity selects the slot.
    active: AtomicU64,
    commits: [CommitSlot; 2],
}

const _: () = assert!(size_of::<JournalHeader>() <= HEAD_BYTES);

impl JournalHeader {
    /// Returns the constant fields: process and tick 0.
    fn owner(&self) -> [u64; 2] {
        [&self.pid, &self.origin_ns].map(|word| word.load(Ordering::Relaxed))
    }
}

/// The position of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u64);

/// A record from a journal.
#[derive(Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// Key of its process file: PID << 32 | number.
    pub process: u64,
    /// Its position in the ring.
    pub place: u64,
    /// Kind of the record.
    pub kind: u8,
    /// Its payload.
    pub payload: Vec<u64>,
}

/// The journal of one output.
pub struct Journal {
    map: MmapRaw,
    file: File,
    path: PathBuf,
    real_bytes: usize,
    head: u64,
    tail: u64,
    seq: u64,
    /// Number of the batch for which events are queued now.
    batch: u64,
    /// Number of the last committed batch.
    committed: u64,
}

impl Journal {
    /// Creates a journal in the session directory.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(session: &Path, number: u64, pid: u32, origin_ns: u64) -> io::Result<Journal> {
        let path = session.join(format!("{number}{SUFFIX}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.set_len((HEAD_BYTES + DATA_BYTES) as u64)?;
        let journal = Journal::over(file, path, HEAD_BYTES)?;
        let header = journal.header();
        header.pid.store(u64::from(pid), Ordering::Relaxed);
        header.origin_ns.store(origin_ns, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(journal)
    }

    fn over(file: File, path: PathBuf, real_bytes: usize) -> io::Result<Journal> {
        // Allocate real pages, so that a full tmpfs is an error here and not a SIGBUS at a store.
        fallocate(&file, FallocateFlags::empty(), 0, real_bytes as i64)?;
        let map = MmapRaw::map_raw(&file)?;
        Ok(Journal { map, file, path, real_bytes, head: 0, tail: 0, seq: 0, batch: 1, committed: 0 })
    }

    fn header(&self) -> &JournalHeader {
        // SAFETY: the mapping is HEAD_BYTES + DATA_BYTES long, page aligned; the header is atomics and bytes that are
        // only written through `slot`.
        unsafe { &*self.map.as_ptr().cast() }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: DATA_BYTES from HEAD_BYTES on are mapped and 8-byte aligned; only accessed as atomics.
        unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().wrapping_add(HEAD_BYTES).cast(), DATA_BYTES / 8)
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words()[(at % WORDS) as usize]
    }

    /// Allocates the pages for `words` more words. Returns false if there is no memory.
    fn make_real(&mut self, words: u64) -> bool {
        let end = (self.head % WORDS + words).min(WORDS) as usize * 8 + HEAD_BYTES;
        if end <= self.real_bytes {
            return true;
        }
        let file_bytes = end.next_multiple_of(STEP_BYTES).min(HEAD_BYTES + DATA_BYTES);
        let more = (file_bytes - self.real_bytes) as i64;
        let done = fallocate(&self.file, FallocateFlags::empty(), self.real_bytes as i64, more).is_ok();
        if done {
            self.real_bytes = file_bytes;
        }
        done
    }

    /// Copies a record. Returns `None` if there is no room; the record is then safe only once it is written.
    pub fn append(&mut self, process: u64, place: u64, kind: u8, payload: &[AtomicU64]) -> Option<Entry> {
        let len = ENTRY_WORDS + payload.len() as u64;
        if self.head - self.tail + len > WORDS || !self.make_real(len) {
            return None;
        }
        // An entry may wrap around the end, to pages that were allocated in the first lap.
        let at = self.head;
        self.word(at).store(len << 32 | u64::from(kind), Ordering::Relaxed);
        self.word(at + 1).store(0, Ordering::Relaxed);
        self.word(at + 2).store(process, Ordering::Relaxed);
        self.word(at + 3).store(place, Ordering::Relaxed);
        for (i, word) in payload.iter().enumerate() {
            self.word(at + ENTRY_WORDS + i as u64).store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.head += len;
        self.header().head.store(self.head, Ordering::Release);
        Some(Entry(at))
    }

    /// Notes that the events of an entry are queued, or that it has none.
    pub fn queued(&self, entry: Entry) {
        self.word(entry.0 + 1).store(self.batch, Ordering::Release);
    }

    /// Notes that the queued events are in the output, whose new state is given; or that they are lost and
    /// counted as such.
    pub fn commit(&mut self, path: &Path, chunk_at: u64, len: u64, header: &[u8; HEADER_BYTES]) {
        let seq = self.seq + 1;
        let [pid, origin_ns] = self.header().owner();
        let slots = self.map.as_mut_ptr().cast::<JournalHeader>();
        // SAFETY: projection into the mapped header; this slot is not the active one, so it has no readers.
        let slot = unsafe { &mut (*slots).commits[(seq % 2) as usize] };
        let bytes = path.as_os_str().as_bytes();
        let bytes = bytes.get(..PATH_BYTES).unwrap_or(bytes);
        slot.path[..bytes.len()].copy_from_slice(bytes);
        slot.header[..HEADER_BYTES].copy_from_slice(header);
        slot.path_len.store(bytes.len() as u64, Ordering::Relaxed);
        slot.batch.store(self.batch, Ordering::Relaxed);
        slot.chunk_at.store(chunk_at, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        let numbers = [pid, origin_ns, seq, self.batch, chunk_at, len, bytes.len() as u64];
        slot.sum.store(commit_checksum(numbers, header, bytes), Ordering::Relaxed);
        slot.seq.store(seq, Ordering::Relaxed);
        fence(Ordering::Release);
        self.header().active.store(seq, Ordering::Release);
        self.seq = seq;
        self.committed = self.batch;
        self.batch += 1;
        self.trim();
    }

    /// Returns the numbers of the last committed batch, and of the one for which events are queued now.
    pub fn batches(&self) -> [u64; 2] {
        [self.committed, self.batch]
    }

    /// Notes that the queued events could not be written and are counted as lost, so a recovery must not
    /// write them.
    pub fn give_up(&mut self) {
        self.batch += 1;
        self.trim();
    }

    /// Drops entries of completed batches, up to the first one that still waits.
    fn trim(&mut self) {
        while self.tail < self.head {
            let batch = self.word(self.tail + 1).load(Ordering::Relaxed);
            if batch == 0 || batch >= self.batch {
                break;
            }
            self.tail += (self.word(self.tail).load(Ordering::Relaxed) >> 32).max(ENTRY_WORDS);
        }
        self.header().tail.store(self.tail, Ordering::Release);
        if self.tail == self.head {
            // Empty: reuse the same pages. Positions only grow, so advance by whole laps.
            self.head = self.head.next_multiple_of(WORDS);
            self.tail = self.head;
            // The tail first: a journal whose tail is beyond its head is empty too.
            self.header().tail.store(self.tail, Ordering::Release);
            self.header().head.store(self.head, Ordering::Release);
        }
    }

    /// Removes the journal, because its output is complete.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The contents of an abandoned journal.
pub struct Left {
    /// The PID of the recorded process, 0 for all processes of the session.
    pub pid: u32,
    /// CLOCK_MONOTONIC ns of tick 0.
    pub origin_ns: u64,
    /// The last known state of the output.
    pub commit: Commit,
    /// Records that are not in the output, in the order in which they were read.
    pub records: Vec<JournalRecord>,
    /// For each process file, the ring position up to which records were copied.
    pub copied: std::collections::HashMap<u64, u64>,
}

/// Reads a journal; `None` if nothing was ever committed.
///
/// # Errors
/// The file is not a journal, is damaged, or cannot be opened.
pub fn read(path: &Path) -> io::Result<Option<Left>> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("damaged: {what}"));
    // Do not follow links, and do not block on a FIFO.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let len = file.metadata()?.len();
    if len == 0 {
        // The drain was killed before it set the size.
        return Ok(None);
    }
    if len != (HEAD_BYTES + DATA_BYTES) as u64 {
        return Err(damaged("another length"));
    }
    // Pages that were never allocated are zeros; allocate them before they are read.
    let journal = Journal::over(file, path.to_owned(), HEAD_BYTES)?;
    let header = journal.header();
    let active = header.active.load(Ordering::Acquire);
    match (header.magic.load(Ordering::Acquire), active) {
        (MAGIC, 1..) => {}
        (MAGIC | 0, 0) => return Ok(None),
        _ => return Err(damaged("magic")),
    }
    let [pid, origin_ns] = header.owner();
    let found = header.commits.iter().filter_map(|slot| slot.read([pid, origin_ns]));
    // The next commit may be complete before its number is published.
    let (seq, commit) = found.max_by_key(|(seq, _)| *seq).ok_or_else(|| damaged("no commit"))?;
    if seq != active && seq != active.wrapping_add(1) {
        return Err(damaged("its last commit"));
    }
    let (head, tail) = (header.head.load(Ordering::Acquire), header.tail.load(Ordering::Acquire));
    let (mut records, mut copied) = (Vec::new(), std::collections::HashMap::new());
    let mut at = tail;
    while at < head && head - tail <= WORDS {
        let word = journal.word(at).load(Ordering::Relaxed);
        let len = word >> 32;
        let Some(end_at) = at.checked_add(len).filter(|end| len >= ENTRY_WORDS && *end <= head) else {
            break;
        };
        let batch = journal.word(at + 1).load(Ordering::Relaxed);
        let process = journal.word(at + 2).load(Ordering::Relaxed);
        let place = journal.word(at + 3).load(Ordering::Relaxed);
        // In the ring, a record has one word before its payload.
        let end = place.saturating_add(len - ENTRY_WORDS + 1);
        let known = copied.entry(process).or_insert(end);
        *known = end.max(*known);
        if batch == 0 || batch > commit.batch {
            let payload =
                (at + ENTRY_WORDS..end_at).map(|i| journal.word(i).load(Ordering::Relaxed)).collect();
            records.push(JournalRecord { process, place, kind: word as u8, payload });
        }
        at = end_at;
    }
    Ok(Some(Left { pid: pid as u32, origin_ns, commit, records, copied }))
}

/// FNV-1a, which detects every single wrong byte.
fn checksum(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn payload(n: u64, len: usize) -> Vec<AtomicU64> {
        (0..len).map(|_| AtomicU64::new(n)).collect()
    }

    fn journal(dir: &Path) -> Journal {
        Journal::create(dir, 1, 7, 99).unwrap()
    }

    fn left(dir: &Path) -> Left {
        read(&dir.join(format!("1{SUFFIX}"))).unwrap().unwrap()
    }

    #[test]
    fn uncommitted_records_are_recovered() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        let out = Path::new("/x/y.jfr");
        assert!(read(&dir.path().join(format!("1{SUFFIX}"))).unwrap().is_none(), "nothing was committed yet");
        journal.commit(out, 0, 68, &[1; 68]);
        let first = journal.append(5, 0, 1, &payload(10, 8)).unwrap();
        let second = journal.append(5, 9, 1, &payload(11, 8)).unwrap();
        let third = journal.append(6, 0, 2, &payload(12, 3)).unwrap();
        journal.queued(second);
        let found = left(dir.path());
        assert_eq!((found.pid, found.origin_ns, found.commit.len, found.records.len()), (7, 99, 68, 3));
        assert_eq!(found.records[2], JournalRecord { process: 6, place: 0, kind: 2, payload: vec![12; 3] });
        assert_eq!((found.copied[&5], found.copied[&6]), (18, 4));
        // Written, while the first one still waits.
        journal.commit(out, 0, 500, &[2; 68]);
        let found = left(dir.path());
        assert_eq!(found.records.iter().map(|k| k.payload[0]).collect::<Vec<_>>(), [10, 12]);
        assert_eq!(
            found.commit,
            Commit { batch: 2, path: out.into(), chunk_at: 0, len: 500, header: [2; 68] }
        );
        // Queued, but the drain is killed before the commit: both must be returned again.
        journal.queued(first);
        journal.queued(third);
        assert_eq!(left(dir.path()).records.len(), 2);
        journal.commit(out, 0, 600, &[3; 68]);
        assert_eq!((left(dir.path()).records.len(), journal.head - journal.tail), (0, 0));
        // Empty: the same pages are reused.
        journal.append(5, 18, 1, &payload(13, 8)).unwrap();
        assert_eq!((left(dir.path()).records[0].place, journal.head % WORDS), (18, 12));
    }

    /// Reads damaged journals without failure, and without returning more than fits.
    #[test]
    fn damaged_journal_is_read_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        journal.commit(Path::new("/x"), 0, 68, &[1; 68]);
        for n in 0..50 {
            journal.append(5, n * 9, 1, &payload(n, 8)).unwrap();
        }
        let len = journal.word(12 * 20).load(Ordering::Relaxed);
        for damage in [0, 3 << 32, 5 << 32, u64::MAX, 1 << 63, len + (1 << 32)] {
            journal.word(12 * 20).store(damage, Ordering::Relaxed);
            let records = left(dir.path()).records;
            let words: usize = records.iter().map(|k| k.payload.len()).sum();
            assert!(records.len() >= 20 && words <= DATA_BYTES / 8, "{damage:#x}: {}", records.len());
        }
        let ends = [
            (u64::MAX, u64::MAX - 100),
            (u64::MAX, 0),
            (0, u64::MAX),
            (WORDS, 0),
            (u64::MAX, u64::MAX - WORDS),
        ];
        for (head, tail) in ends {
            journal.header().head.store(head, Ordering::Relaxed);
            journal.header().tail.store(tail, Ordering::Relaxed);
            for first in [len, u64::MAX, 0] {
                journal.word(tail).store(first, Ordering::Relaxed);
                let words: usize = left(dir.path()).records.iter().map(|k| k.payload.len()).sum();
                assert!(words <= DATA_BYTES / 8, "{head:#x} {tail:#x}");
            }
        }
        journal.header().active.store(u64::MAX, Ordering::Relaxed);
        assert!(read(&dir.path().join(format!("1{SUFFIX}"))).is_err());
    }

    /// An output is truncated at the position in its commit, so a damaged commit must always be rejected.
    #[test]
    fn damaged_commit_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        let out = Path::new("/x/y.jfr");
        for len in [68, 500, 600] {
            journal.commit(out, 0, len, &[len as u8; 68]);
        }
        let path = dir.path().join(format!("1{SUFFIX}"));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // The third commit is in the second slot.
        let slot = std::mem::offset_of!(JournalHeader, commits) + size_of::<CommitSlot>();
        let (header, name) =
            (std::mem::offset_of!(CommitSlot, header), std::mem::offset_of!(CommitSlot, path));
        let whose = 0..std::mem::offset_of!(JournalHeader, head);
        let active = std::mem::offset_of!(JournalHeader, active);
        let sum = std::mem::offset_of!(CommitSlot, sum);
        let commit = (0..header + HEADER_BYTES).chain(name..name + out.as_os_str().len());
        let commit = commit.chain(sum..sum + 8).map(|at| slot + at);
        for at in whose.chain(active..active + 8).chain(commit) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at as u64).unwrap();
            for bit in 0..8 {
                file.write_all_at(&[byte[0] ^ 1 << bit], at as u64).unwrap();
                // With the last commit damaged, the previous one must not be used.
                let len = read(&path).map(|left| left.map(|left| left.commit.len));
                assert!(matches!(len, Err(_) | Ok(Some(600))), "bit {bit} of byte {at}: {len:?}");
                assert!(len.is_err() || (active..active + 8).contains(&at), "bit {bit} of byte {at}");
            }
            file.write_all_at(&byte, at as u64).unwrap();
        }
        assert_eq!(left(dir.path()).commit.len, 600);
    }

    #[test]
    fn full_journal_rejects_records_and_continues() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        let out = Path::new("/x");
        journal.commit(out, 0, 68, &[1; 68]);
        let (mut entries, mut n) = (std::collections::VecDeque::new(), 0u64);
        for round in 0..40 {
            while let Some(entry) = journal.append(1, n, 1, &payload(n, 1000)) {
                entries.push_back(entry);
                n += 1;
            }
            assert!(entries.len() > 1000);
            // Never empty, so that it wraps around its end.
            for entry in entries.drain(..600) {
                journal.queued(entry);
            }
            journal.commit(out, 0, 68 + round, &[1; 68]);
            let found = left(dir.path());
            assert_eq!(found.records.len(), entries.len());
            let expected = n - entries.len() as u64..n;
            assert!(found.records.iter().map(|k| k.payload[999]).eq(expected));
        }
        journal.give_up();
    }
}
