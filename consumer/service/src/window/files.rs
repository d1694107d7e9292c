//! A window's files and their index.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use flightline_consumer::format;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};

use super::histogram::{Histogram, Timeline};
use super::names;
use crate::render::{Checked, NotWhole, Source, check, check_bytes};

/// Maximum number of chunks opened for one request.
pub const MOST_SELECTED: usize = 512;
/// How far a chunk's histogram may extend beyond it, ms.
const MARGIN: i64 = 60_000;
/// Maximum number of timeline steps.
const MOST_STEPS: usize = 2000;

/// Limits of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Total size in bytes.
    pub bytes: u64,
    /// Maximum time since arrival.
    pub age: Duration,
    /// Maximum number of files.
    pub chunks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, age: Duration::from_secs(3600), chunks: 4096 }
    }
}

/// Why a chunk cannot be stored or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A limit is exceeded. Contains a message.
    TooLarge(String),
    /// The disk failed.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(text) => f.write_str(text),
            Self::Io(error) => write!(f, "What is kept of the target cannot be read or written: {error}."),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// One upload: valid chunks.
#[derive(Debug)]
pub struct Chunk {
    content: Content,
    checked: Checked,
}

#[derive(Debug)]
enum Content {
    Bytes(Bytes),
    File(File),
}

impl Chunk {
    /// Validates bytes in memory.
    ///
    /// # Errors
    /// Returns the problem and its position if they are not valid chunks.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, NotWhole> {
        Ok(Self { checked: check_bytes(bytes.clone())?, content: Content::Bytes(bytes) })
    }

    /// Validates a file that no longer changes. `put` copies it.
    ///
    /// # Errors
    /// Returns the problem and its position if they are not valid chunks.
    pub fn from_file(file: File) -> Result<Self, NotWhole> {
        Ok(Self { checked: check(&file)?, content: Content::File(file) })
    }

    /// Returns the summary of its contents.
    pub fn checked(&self) -> &Checked {
        &self.checked
    }

    fn write(&mut self, out: &mut File) -> io::Result<()> {
        match &mut self.content {
            Content::Bytes(bytes) => out.write_all(bytes),
            Content::File(file) => {
                file.seek(SeekFrom::Start(0))?;
                let copied = io::copy(&mut file.take(self.checked.bytes), out)?;
                if copied == self.checked.bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
        }
    }
}

/// Time range and size of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// Earliest start, UTC ms.
    pub from: i64,
    /// Latest end, UTC ms.
    pub to: i64,
    /// Total size in bytes.
    pub bytes: u64,
}

/// A stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Start of the first chunk or event, UTC ms. An event with a duration may start long before its chunk.
    pub from: i64,
    /// End of the last chunk or event, UTC ms.
    pub to: i64,
    /// Size in bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct Entry {
    /// Increasing number.
    number: u64,
    /// Random part of the file name.
    random: u64,
    part: Part,
    /// Time of arrival, UTC ms by the service's clock.
    came: i64,
    /// `None` after a restart until the samples are counted again.
    line: Option<Histogram>,
}

impl Entry {
    fn name(&self) -> String {
        names::chunk_name(self.part.from, self.part.to, self.random)
    }
}

/// The latest chunks of a target.
#[derive(Debug)]
pub struct Window {
    dir: OwnedFd,
    limits: Limits,
    /// In order of arrival.
    entries: VecDeque<Entry>,
    bytes: u64,
    next: u64,
    /// Lower bound of the arrival times, UTC ms, so that the check for expired data, twice a second, need not
    /// scan all entries.
    oldest: i64,
    /// True if all chunks have been counted since a restart.
    counted: bool,
}

impl Window {
    /// Opens a directory that belongs to this window alone. Chunks are recognized by their names, incomplete
    /// files are removed, other files are ignored. `now` is UTC ms.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read, or files cannot be removed.
    pub fn open(dir: OwnedFd, limits: Limits, now: i64) -> Result<Self, Error> {
        let mut window = Self {
            dir,
            limits,
            entries: VecDeque::new(),
            bytes: 0,
            next: 0,
            oldest: i64::MAX,
            counted: false,
        };
        let listed =
            openat(&window.dir, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        let mut found = Vec::new();
        for entry in Dir::from_fd(listed)?.iter() {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if names::is_part(name) {
                window.remove_file(name)?;
            } else if let Some((from, to, random)) = names::chunk(name)
                && let Some((bytes, came)) = window.measure(name)?
            {
                found.push(Entry {
                    number: 0,
                    random,
                    part: Part { from, to, bytes },
                    // Clamp, so that a clock that was set back does not extend the retention.
                    came: came.min(now),
                    line: None,
                });
            }
        }
        found.sort_by_key(|entry| (entry.came, entry.part.to, entry.random));
        for entry in found {
            window.push(entry);
        }
        window.trim(0, 0, now)?;
        Ok(window)
    }

    /// Stores a chunk; the oldest chunks make room for it. `now` is UTC ms.
    ///
    /// # Errors
    /// Returns an error if the chunk exceeds the limits alone, or the disk fails. Then nothing of it remains.
    pub fn put(&mut self, chunk: &mut Chunk, now: i64) -> Result<(), Error> {
        let bytes = chunk.checked.bytes;
        if bytes > self.limits.bytes || self.limits.chunks == 0 {
            return Err(Error::TooLarge(format!(
                "A chunk of {} exceeds the limit per target of {}; send shorter chunks, or raise --window-size.",
                format::bytes(bytes),
                format::bytes(self.limits.bytes)
            )));
        }
        self.trim(bytes, 1, now)?;
        let (from, to) =
            (chunk.checked.first_ms.min(names::LATEST), chunk.checked.last_ms.min(names::LATEST));
        let random = names::random()?;
        let name = names::chunk_name(from, to.max(from), random);
        let part = names::part_name(names::random()?);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&self.dir, part.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        let written = chunk.write(&mut file).map_err(Error::from);
        drop(file);
        let written =
            written.and_then(|()| Ok(renameat(&self.dir, part.as_str(), &self.dir, name.as_str())?));
        if let Err(error) = written {
            self.remove_file(&part)?;
            return Err(error);
        }
        self.push(Entry {
            number: 0,
            random,
            part: Part { from, to: to.max(from), bytes },
            came: now,
            line: Some(chunk.checked.line.compact()),
        });
        Ok(())
    }

    /// Removes the oldest chunks to make room for `bytes` without growing. Returns false if that is not
    /// possible.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn give_way(&mut self, bytes: u64) -> Result<bool, Error> {
        let most = self.bytes;
        if most < bytes {
            return Ok(false);
        }
        while !self.entries.is_empty() && self.bytes.saturating_add(bytes) > most {
            self.remove(0)?;
        }
        Ok(true)
    }

    /// Removes expired chunks.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn expire(&mut self, now: i64) -> Result<(), Error> {
        self.trim(0, 0, now)
    }

    /// Opens the chunks that overlap an interval (UTC ms, end exclusive), in order of time.
    ///
    /// # Errors
    /// Returns an error if there are too many, or the disk fails.
    pub fn select(&mut self, from: i64, to: i64) -> Result<Vec<Source>, Error> {
        let overlaps = |entry: &&Entry| entry.part.from < to && entry.part.to >= from;
        let mut chosen: Vec<&Entry> = self.entries.iter().filter(overlaps).collect();
        if chosen.len() > MOST_SELECTED {
            return Err(Error::TooLarge(format!(
                "The interval has {} chunks, but the limit is {MOST_SELECTED}; choose a shorter interval.",
                chosen.len()
            )));
        }
        chosen.sort_by_key(|entry| (entry.part.from, entry.part.to, entry.number));
        let numbers: Vec<u64> = chosen.iter().map(|entry| entry.number).collect();
        let mut sources = Vec::with_capacity(numbers.len());
        for number in numbers {
            // Forget files that another process removed.
            match self.open_entry(number)? {
                Some(source) => sources.push(source),
                None => self.forget(number),
            }
        }
        Ok(sources)
    }

    /// Returns a value that changes when chunks are added, removed or counted.
    pub fn changes(&self) -> (u64, usize, usize) {
        let uncounted = self.entries.iter().filter(|entry| entry.line.is_none()).count();
        (self.next, self.entries.len(), uncounted)
    }

    /// Returns true if a chunk overlaps an interval (UTC ms, end exclusive).
    pub fn overlaps(&self, from: i64, to: i64) -> bool {
        self.entries.iter().any(|entry| entry.part.from < to && entry.part.to >= from)
    }

    /// Returns the time range and size; `None` if the window is empty.
    pub fn bounds(&self) -> Option<Bounds> {
        let parts = || self.entries.iter().map(|entry| entry.part);
        let from = parts().map(|part| part.from).min()?;
        let to = parts().map(|part| part.to).max()?;
        Some(Bounds { from, to, bytes: self.bytes })
    }

    /// Returns the chunks that overlap an interval (UTC ms, end exclusive), in order of time.
    pub fn chunks(&self, from: i64, to: i64) -> Vec<Part> {
        let parts = self.entries.iter().map(|entry| entry.part);
        let mut parts: Vec<Part> = parts.filter(|part| part.from < to && part.to >= from).collect();
        parts.sort_by_key(|part| (part.from, part.to));
        parts
    }

    /// Returns samples per second over an interval, in at most `steps` steps.
    pub fn timeline(&self, from: i64, to: i64, steps: usize) -> Timeline {
        let mut timeline = Timeline::new(from, to, steps.clamp(1, MOST_STEPS));
        // A histogram extends at most one step beyond its chunk, which for a chunk of minutes is a second.
        let near = |entry: &&Entry| entry.part.from < to && entry.part.to.saturating_add(MARGIN) >= from;
        for line in self.entries.iter().filter(near).filter_map(|entry| entry.line.as_ref()) {
            timeline.add(line);
        }
        for entry in self.entries.iter().filter(|entry| entry.line.is_none()) {
            timeline.unknown(entry.part.from, entry.part.to);
        }
        timeline
    }

    /// Returns a chunk that has not been counted since a restart. Pass the result of [`check`] to
    /// [`Window::counted`]. The two are separate so that the slow check runs without the lock.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn uncounted(&mut self) -> Result<Option<(u64, Source)>, Error> {
        if self.counted {
            return Ok(None);
        }
        while let Some(number) =
            self.entries.iter().find(|entry| entry.line.is_none()).map(|entry| entry.number)
        {
            match self.open_entry(number)? {
                Some(source) => return Ok(Some((number, source))),
                None => self.forget(number),
            }
        }
        self.counted = true;
        Ok(None)
    }

    /// Stores the result of a check; removes a chunk that is no longer valid.
    ///
    /// # Errors
    /// Returns an error if the chunk cannot be removed.
    pub fn counted(&mut self, number: u64, found: Result<Checked, NotWhole>) -> Result<(), Error> {
        let Some(at) = self.entries.iter().position(|entry| entry.number == number) else { return Ok(()) };
        match found {
            Ok(checked) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.line = Some(checked.line.compact());
                }
                Ok(())
            }
            Err(_) => self.remove(at),
        }
    }

    /// Removes all chunks.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn clear(&mut self) -> Result<(), Error> {
        while !self.entries.is_empty() {
            self.remove(0)?;
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        self.bytes = self.bytes.saturating_add(entry.part.bytes);
        self.oldest = self.oldest.min(entry.came);
        self.entries.push_back(Entry { number: self.next, ..entry });
        self.next += 1;
    }

    /// Removes expired chunks, and the oldest ones until there is room.
    fn trim(&mut self, bytes: u64, files: usize, now: i64) -> Result<(), Error> {
        let age = i64::try_from(self.limits.age.as_millis()).unwrap_or(i64::MAX);
        // The clock may have been set back, so the order of arrival says nothing about age.
        if now.saturating_sub(self.oldest) > age {
            while let Some(at) = self.entries.iter().position(|entry| now.saturating_sub(entry.came) > age) {
                self.remove(at)?;
            }
            self.oldest = self.entries.iter().map(|entry| entry.came).min().unwrap_or(i64::MAX);
        }
        while !self.entries.is_empty()
            && (self.bytes.saturating_add(bytes) > self.limits.bytes
                || self.entries.len() + files > self.limits.chunks)
        {
            self.remove(0)?;
        }
        Ok(())
    }

    fn remove(&mut self, at: usize) -> Result<(), Error> {
        let Some(entry) = self.entries.get(at) else { return Ok(()) };
        let number = entry.number;
        self.remove_file(&entry.name())?;
        self.forget(number);
        Ok(())
    }

    fn forget(&mut self, number: u64) {
        if let Some(at) = self.entries.iter().position(|entry| entry.number == number)
            && let Some(entry) = self.entries.remove(at)
        {
            self.bytes = self.bytes.saturating_sub(entry.part.bytes);
        }
    }

    fn remove_file(&self, name: &str) -> Result<(), Error> {
        match unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir) {
            // Already removed.
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn open_file(&self, name: &str) -> Result<Option<File>, Error> {
        // Without O_NONBLOCK, opening a FIFO would block.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        match openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file)).filter(is_file)),
            Err(Errno::ENOENT | Errno::ELOOP | Errno::ENXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the file of an entry if its size is unchanged.
    fn open_entry(&self, number: u64) -> Result<Option<Source>, Error> {
        let Some(entry) = self.entries.iter().find(|entry| entry.number == number) else { return Ok(None) };
        let file = self.open_file(&entry.name())?;
        Ok(file.filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() == entry.part.bytes)))
    }

    /// Returns the size of a file and when it was written (UTC ms); `None` if it is not a regular file.
    fn measure(&self, name: &str) -> Result<Option<(u64, i64)>, Error> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let metadata = file.metadata()?;
        let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Some((metadata.len(), i64::try_from(since.as_millis()).unwrap_or(i64::MAX))))
    }

    /// The directory.
    pub fn dir(&self) -> impl AsFd + '_ {
        self.dir.as_fd()
    }
}

fn is_file(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}
