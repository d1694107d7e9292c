//! Following a recording while it is being written.
//!
//! A live chunk has a state byte that is not 0. Its writer appends, then patches the header: state 255 while it does,
//! the new size, at last the next generation; state 0 when nothing will change any more. Only bytes that a header
//! has vouched for are decoded. A JVM's repository has one chunk per file; the next file is the one that starts next.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::push::{Decoder, Delivery, Item, trusted_end};
use crate::constants::{FLAG_FINAL, MAGIC, STATE_FINISHED, STATE_UPDATING};
use crate::error::{Error, Result};
use crate::header::{ChunkHeader, LEN};

/// Bytes read at a time.
const READ_SIZE: u64 = 256 * 1024;
/// Writers flush once a second.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long a file may end with a finished chunk that is not said to be the last.
const LINGER: Duration = Duration::from_secs(2);

/// What [`Follow::poll`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// [`Follow::next`] will not wait.
    Ready,
    /// Nothing new yet.
    Waiting,
    /// The recording is over.
    Ended,
}

/// Follows a growing file, or a JVM's repository directory, to its end. Offsets in warnings count on from file to
/// file.
///
/// ```no_run
/// use jfr_format::read::{Follow, Item};
///
/// # fn main() -> Result<(), jfr_format::error::Error> {
/// let mut follow = Follow::open("run.jfr".as_ref())?;
/// while let Some(item) = follow.next()? {
///     if let Item::Events(batch) = item {
///         for event in batch.events() {
///             println!("{}", event.class().name);
///         }
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Follow {
    decoder: Decoder,
    directory: Option<PathBuf>,
    source: Option<Source>,
    interval: Duration,
    patience: Option<Duration>,
    since: i64,
    changed: Instant,
    last: Option<ChunkHeader>,
    /// The writer is gone: what is there is taken as it is.
    salvage: bool,
    ended: bool,
}

/// Position of a repository's file among the others.
type Key = (i64, OsString);

#[derive(Debug)]
struct Source {
    file: File,
    key: Key,
    /// Where the current chunk starts.
    start: u64,
    /// Bytes handed to the decoder.
    read: u64,
    chunk_ended: bool,
}

impl Follow {
    /// Follows the file at `path`, or the repository if it is a directory.
    ///
    /// # Errors
    /// The file or directory cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let directory = path.is_dir().then(|| path.to_owned());
        let source = match directory {
            Some(_) => None,
            None => Some(Source::open(path, (0, OsString::new())).map_err(|e| Error::io(e, 0))?),
        };
        Ok(Self {
            decoder: Decoder::new(Delivery::Streaming),
            directory,
            source,
            interval: INTERVAL,
            patience: None,
            since: i64::MIN,
            changed: Instant::now(),
            last: None,
            salvage: false,
            ended: false,
        })
    }

    /// Looks for news this often; every half second if not said.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Ends when nothing has changed for so long, with what can be had of the unfinished chunk. Without it a
    /// recording whose writer was killed is waited for as long as it is there.
    #[must_use]
    pub fn give_up_after(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Passes over the files of a repository that end before this moment, in ns since 1970.
    #[must_use]
    pub fn since(mut self, epoch_nanos: i64) -> Self {
        self.since = epoch_nanos;
        self
    }

    /// The decoder it drives, to tell it what is wanted.
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// The next item, waiting for it; `None` when the recording is over.
    ///
    /// # Errors
    /// The file cannot be read.
    #[allow(clippy::should_implement_trait)] // the items borrow from the decoder
    pub fn next(&mut self) -> Result<Option<Item<'_>>> {
        loop {
            match self.poll()? {
                Progress::Ready => return Ok(self.decoder.next()),
                Progress::Ended => return Ok(None),
                Progress::Waiting => thread::sleep(self.interval),
            }
        }
    }

    /// Reads what is new without waiting.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn poll(&mut self) -> Result<Progress> {
        loop {
            if self.decoder.ready() {
                return Ok(Progress::Ready);
            }
            if self.ended {
                return Ok(Progress::Ended);
            }
            let read = self.source.as_ref().map_or(0, |source| source.read);
            if self.advance().map_err(|e| Error::io(e, read))? {
                self.changed = Instant::now();
            } else if self.patience.is_some_and(|patience| self.changed.elapsed() >= patience) {
                self.let_go()?;
            } else {
                return Ok(Progress::Waiting);
            }
        }
    }

    /// Says that the writer is gone: what is there is taken as it is; said again when that was taken, it goes on to the
    /// next file of the repository, or to the end.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub fn let_go(&mut self) -> Result<()> {
        if !self.salvage && self.source.is_some() {
            self.salvage = true;
            return Ok(());
        }
        if !self.next_file().map_err(|e| Error::io(e, 0))? {
            self.end();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.decoder.close();
        self.ended = true;
    }

    /// One step; `false` if there is nothing to be done now.
    fn advance(&mut self) -> io::Result<bool> {
        let Some(source) = &mut self.source else { return self.next_file() };
        let stat = source.file.metadata()?;
        let header = source.header()?;
        let grown = header.is_some() && header != self.last;
        if grown {
            self.last = header;
        }
        let finished = header.filter(|header| header.state == STATE_FINISHED);
        let end = match header {
            _ if self.salvage => stat.len(),
            // Damaged or no recording: the decoder tells.
            None if source.is_foreign()? => stat.len(),
            None => source.read,
            Some(header) => match (finished, trusted_end(&header, source.start)) {
                (Some(_), Some(end)) => end,
                (Some(_), None) => stat.len(),
                // This size says that the header is not in use yet.
                (None, _) if header.size <= LEN as u64 => source.read,
                (None, _) => source.start.saturating_add(header.size),
            },
        };
        if let Some(bytes) = source.bytes(end.min(stat.len()))? {
            self.decoder.push(bytes);
            return Ok(true);
        }
        if self.salvage {
            let deleted = stat.nlink() == 0;
            if deleted && !self.next_file()? {
                self.end();
            }
            return Ok(deleted);
        }
        let over = match finished {
            Some(_) => source.read >= end,
            None => header.is_none() && source.is_foreign()?,
        };
        if !over {
            // A repository is deleted when its JVM ends.
            let abandoned = !grown && stat.nlink() == 0;
            self.salvage = abandoned;
            return Ok(grown || abandoned);
        }
        if let (Some(header), false) = (finished, source.chunk_ended) {
            self.decoder.end_chunk(header);
            source.chunk_ended = true;
            return Ok(true);
        }
        if source.read + LEN as u64 <= stat.len() {
            source.start = source.read;
            source.chunk_ended = false;
            return Ok(true);
        }
        let last = finished.is_none_or(|header| header.flags & FLAG_FINAL != 0);
        if self.next_file()? {
            return Ok(true);
        }
        let quiet = match &self.directory {
            None => last || self.changed.elapsed() >= LINGER,
            Some(directory) => last || !directory.exists(),
        };
        if quiet {
            self.end();
        }
        Ok(quiet)
    }

    /// Opens the file of the repository that starts next, if there is one.
    fn next_file(&mut self) -> io::Result<bool> {
        let Some(directory) = &self.directory else { return Ok(false) };
        let mut files = chunks_in(directory)?;
        if files.is_empty() && self.source.is_none() {
            // The directory above a JVM's own: the newest in it.
            let Some(newest) = newest_repository(directory)? else { return Ok(false) };
            files = chunks_in(&newest)?;
            if !files.is_empty() {
                self.directory = Some(newest);
            }
        }
        let key = match &self.source {
            Some(source) => files.keys().find(|key| **key > source.key),
            // Each file ends where the next one begins.
            None => files.keys().rfind(|key| key.0 <= self.since).or_else(|| files.keys().next()),
        };
        let next = key.cloned().and_then(|key| files.remove_entry(&key));
        let Some((key, path)) = next else { return Ok(false) };
        match Source::open(&path, key) {
            Ok(source) => self.source = Some(source),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        self.salvage = false;
        self.last = None;
        Ok(true)
    }
}

impl Source {
    fn open(path: &Path, key: Key) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, key, start: 0, read: 0, chunk_ended: false })
    }

    /// The current chunk's header, if it is there and nobody is changing it.
    fn header(&self) -> io::Result<Option<ChunkHeader>> {
        let (Some(once), Some(again)) = (self.header_bytes()?, self.header_bytes()?) else { return Ok(None) };
        let header = ChunkHeader::decode(&once).ok();
        Ok(header.filter(|header| once == again && header.state != STATE_UPDATING))
    }

    fn header_bytes(&self) -> io::Result<Option<[u8; LEN]>> {
        let mut bytes = [0; LEN];
        match self.file.read_exact_at(&mut bytes, self.start) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether something else than a chunk starts where one should.
    fn is_foreign(&self) -> io::Result<bool> {
        let Some(bytes) = self.header_bytes()? else { return Ok(false) };
        // Space may be set aside before anything is written.
        let empty = bytes.iter().all(|&b| b == 0);
        Ok(!empty && (!bytes.starts_with(&MAGIC) || ChunkHeader::decode(&bytes).is_err()))
    }

    /// Some of the bytes up to `end` that have not been read yet.
    fn bytes(&mut self, end: u64) -> io::Result<Option<Bytes>> {
        let len = end.saturating_sub(self.read).min(READ_SIZE);
        if len == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; len as usize];
        let got = self.file.read_at(&mut bytes, self.read)?;
        bytes.truncate(got);
        self.read += got as u64;
        Ok((got > 0).then(|| bytes.into()))
    }
}

/// The chunk files of a repository by their start.
fn chunks_in(directory: &Path) -> io::Result<BTreeMap<Key, PathBuf>> {
    let mut found = BTreeMap::new();
    let entries = match directory.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "jfr") {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_owned();
        // One that has gone again, or has no header yet, is not there.
        if let Ok(source) = Source::open(&path, (0, OsString::new()))
            && let Ok(Some(bytes)) = source.header_bytes()
            && let Ok(header) = ChunkHeader::decode(&bytes)
        {
            found.insert((header.start_nanos, name), path);
        }
    }
    Ok(found)
}

/// The newest directory named as a JVM names its repository: date, time and process id, joined by `_`.
fn newest_repository(directory: &Path) -> io::Result<Option<PathBuf>> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parts: Vec<&str> = name.split('_').collect();
        parts.len() >= 7 && parts.iter().take(6).all(|part| part.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut found = Vec::new();
    for entry in directory.read_dir()? {
        found.push(entry?.path());
    }
    Ok(found.into_iter().filter(|path| is_one(path) && path.is_dir()).max())
}
