//! Collects a stream in a file that is a valid recording at every moment.
//!
//! ```text
//! │ chunk │ chunk │ header … events │ filler (a hole on the disk)             │
//!                                   ▲ the next segment is written into the filler; then the header refers to its constants;
//!                                     finally its first bytes replace the filler's head
//! ```
//! A reader that opens the file, even after this program was killed, thus finds finished chunks of valid
//! events. The next chunk is written into the filler as well. Only between setting the file's length and
//! writing the header is there an instant in which the two do not agree.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use flightline_recorder::repository::stamp;
use jfr_format::constants::{CHECKPOINT_EVENT, STATE_FINISHED};
use jfr_format::edit::collect::ChunkSink;
use jfr_format::header::{ChunkHeader, LEN, STATE};
use jfr_format::varint;

/// Space after a chunk, in which the next one begins.
const SPARE: u64 = 1 << 20;
/// Size of a filler's head in bytes: padded size, type.
const FILLER: usize = 5;
/// Bytes at the start of a segment that are written last. Until then readers recognize the filler by its head
/// and the zeros after it.
const GATE: usize = 16;

/// When to rotate the file.
#[derive(Clone, Copy, Debug)]
pub enum Rotate {
    /// At this size.
    Size(u64),
    /// At this age.
    Age(Duration),
}

impl std::str::FromStr for Rotate {
    type Err = String;

    /// `64m` is a size and `1h` a time. Since `m` means megabytes, `min` is rejected.
    fn from_str(text: &str) -> Result<Self, String> {
        use flightline_recorder::settings::units::{bytes, duration};
        let time = text.ends_with(['s', 'h', 'd']).then(|| duration(text));
        match time {
            Some(Ok(age)) if age >= Duration::from_secs(1) => Ok(Rotate::Age(age)),
            Some(Ok(_)) => Err("at least 1s".to_owned()),
            Some(Err(why)) => Err(why),
            None => match bytes(text)? {
                size if size >= 64 << 10 => Ok(Rotate::Size(size)),
                _ => Err("at least 64k".to_owned()),
            },
        }
    }
}

/// Limits on rotated files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Total bytes.
    pub size: Option<u64>,
    /// Age of the oldest file.
    pub age: Option<Duration>,
}

/// How to treat an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Fail.
    Refuse,
    /// Replace it.
    Overwrite,
    /// Append chunks.
    Append,
}

/// The output file.
pub struct FilePlace {
    file: File,
    path: PathBuf,
    /// Start of the current chunk, and its header at that time.
    chunk: Option<(u64, ChunkHeader)>,
    /// End of the events.
    end: u64,
    /// Length of the file.
    len: u64,
    most: u64,
    begun: bool,
    rotate: Option<Rotate>,
    limits: Limits,
    since: Instant,
    /// The file did not exist before.
    created: bool,
}

impl FilePlace {
    /// Opens the file.
    pub fn open(
        path: &Path,
        existing: Existing,
        rotate: Option<Rotate>,
        limits: Limits,
    ) -> Result<FilePlace> {
        let cannot = || format!("cannot write {}", path.display());
        if existing == Existing::Refuse && path.is_file() {
            bail!(
                "{0} exists: use --append to extend it, --force to overwrite it, or -o to name another file",
                path.display()
            );
        }
        let there = path.exists();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600).truncate(existing == Existing::Overwrite);
        let file = options.open(path).with_context(cannot)?;
        if !file.metadata().with_context(cannot)?.is_file() {
            bail!("{} is not a regular file; to forward a stream, use `flightline relay`", path.display());
        }
        if matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)) {
            bail!("{}: another recording is being written to it", path.display());
        }
        let mut place = FilePlace {
            file,
            path: path.to_owned(),
            chunk: None,
            end: 0,
            len: 0,
            most: 0,
            begun: false,
            rotate,
            limits,
            since: Instant::now(),
            created: !there,
        };
        place.take_up().with_context(cannot)?;
        Ok(place)
    }

    /// Continues after the existing chunks.
    fn take_up(&mut self) -> Result<()> {
        self.len = self.file.metadata()?.len();
        let mut at = 0;
        while at < self.len {
            let header = self.header_at(at)?;
            let whole = header
                .filter(|h| h.state == STATE_FINISHED && h.size >= LEN as u64 && h.size <= self.len - at);
            let Some(header) = whole else {
                // The previous process was killed while it created the file.
                if at == 0 && header.is_none() && self.is_empty()? {
                    self.file.set_len(0)?;
                    self.len = 0;
                    return Ok(());
                }
                if self.chunk.is_some() && header.is_none() {
                    // The previous process was killed while it began the next chunk.
                    break;
                }
                bail!("the recording is incomplete; run `flightline repair` first");
            };
            self.chunk = Some((at, header));
            at += header.size;
        }
        let Some((base, header)) = &mut self.chunk else { return Ok(()) };
        let bytes = self.file.try_clone()?;
        self.end = *base + events_end(&bytes, *base, header.size)?;
        header.size = self.end - *base;
        if at != self.len {
            self.close()?;
        }
        Ok(())
    }

    fn header_at(&self, at: u64) -> io::Result<Option<ChunkHeader>> {
        let mut bytes = [0; LEN];
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(ChunkHeader::decode(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns true if nothing has been written.
    fn is_empty(&self) -> io::Result<bool> {
        let mut bytes = [0; LEN];
        let got = self.file.read_at(&mut bytes, 0)?;
        Ok(bytes.iter().take(got).all(|&byte| byte == 0))
    }

    /// Writes the header without the magic in one call, so that a reader sees either the old or the new one.
    fn patch(&self, base: u64, header: &ChunkHeader) -> io::Result<()> {
        let from = LEN - 60;
        self.file.write_all_at(&header.encode()[from..=STATE], base + from as u64)
    }

    fn first(&mut self, bytes: &[u8], header: &ChunkHeader) -> io::Result<()> {
        let base = self.end;
        let len = bytes.len() as u64;
        let room = (self.most.max(len) + SPARE).min(u64::from(u32::MAX >> 4)).max(len + SPARE);
        let file_len = base + room;
        let told = ChunkHeader { size: room, state: STATE_FINISHED, ..*header };
        let mut with_filler = followed(bytes, file_len - (base + len))?;
        if let Some((before, header)) = self.chunk {
            self.file.write_all_at(&with_filler[LEN..], base + LEN as u64)?;
            self.file.set_len(file_len)?;
            self.patch(before, &header)?;
            self.file.write_all_at(&told.encode(), base)?;
        } else {
            // Include the header: if the process is killed here, the file is unchanged or valid.
            with_filler[..LEN].copy_from_slice(&told.encode());
            self.file.set_len(file_len)?;
            self.file.write_all_at(&with_filler, base)?;
        }
        self.chunk = Some((base, *header));
        (self.end, self.len) = (base + len, file_len);
        Ok(())
    }

    fn more(&mut self, bytes: &[u8], header: &ChunkHeader) -> io::Result<()> {
        let Some((base, _)) = self.chunk else { return Err(io::ErrorKind::InvalidInput.into()) };
        let (at, end) = (self.end, self.end + bytes.len() as u64);
        if end + (FILLER + GATE) as u64 > self.len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a chunk is longer than its header says",
            ));
        }
        // Write a checkpoint before the header that refers to it, and the header before events that need its
        // constants.
        let checkpoint = type_id(bytes) == Some(u64::from(CHECKPOINT_EVENT.0));
        let bytes = followed(bytes, self.len - end)?;
        let (gate, behind) = bytes.split_at(GATE.min(bytes.len()));
        self.file.write_all_at(behind, at + gate.len() as u64)?;
        let told = ChunkHeader { size: self.len - base, state: STATE_FINISHED, ..*header };
        if checkpoint {
            self.file.write_all_at(gate, at)?;
            self.patch(base, &told)?;
        } else {
            self.patch(base, &told)?;
            self.file.write_all_at(gate, at)?;
        }
        self.chunk = Some((base, *header));
        self.end = end;
        Ok(())
    }

    /// Truncates the file after the last event.
    pub fn close(&mut self) -> io::Result<()> {
        if let Some((base, header)) = self.chunk {
            self.patch(base, &ChunkHeader { state: STATE_FINISHED, ..header })?;
            self.file.set_len(self.end)?;
            self.len = self.end;
        } else if self.end == 0 && self.created {
            // No data arrived.
            fs::remove_file(&self.path)?;
            self.created = false;
        }
        Ok(())
    }

    /// Rotates the file if it is due.
    fn rotate(&mut self) -> io::Result<()> {
        let due = match self.rotate {
            Some(Rotate::Size(size)) => self.end >= size,
            Some(Rotate::Age(age)) => self.since.elapsed() >= age,
            None => false,
        };
        if !due || self.end == 0 {
            return Ok(());
        }
        self.close()?;
        let aside = free_name(&self.path)?;
        fs::rename(&self.path, &aside)?;
        let mut options = OpenOptions::new();
        self.file = options.read(true).write(true).create_new(true).mode(0o600).open(&self.path)?;
        let _ = self.file.try_lock();
        (self.chunk, self.end, self.len, self.since) = (None, 0, 0, Instant::now());
        self.tidy();
        Ok(())
    }

    /// Removes rotated files above the limits.
    fn tidy(&self) {
        let mut files = aside(&self.path);
        let now = SystemTime::now();
        let old = |modified: &SystemTime| {
            self.limits.age.is_some_and(|age| now.duration_since(*modified).is_ok_and(|since| since > age))
        };
        let mut bytes: u64 = files.iter().map(|file| file.2).sum();
        files.sort();
        for (modified, path, size) in files {
            let much = self.limits.size.is_some_and(|most| bytes > most);
            if (much || old(&modified)) && fs::remove_file(path).is_ok() {
                bytes -= size;
            }
        }
    }
}

impl ChunkSink for FilePlace {
    fn begin(&mut self, most: u64) -> io::Result<()> {
        self.rotate()?;
        (self.most, self.begun) = (most, true);
        Ok(())
    }

    fn grow(&mut self, bytes: &[u8], header: &ChunkHeader) -> io::Result<()> {
        if std::mem::take(&mut self.begun) { self.first(bytes, header) } else { self.more(bytes, header) }
    }

    fn end(&mut self, header: &ChunkHeader, last: bool) -> io::Result<()> {
        if let Some((_, chunk)) = &mut self.chunk {
            *chunk = *header;
        }
        if last { self.close() } else { Ok(()) }
    }
}

/// Returns the events followed by the head of a filler of `len` bytes.
fn followed(events: &[u8], len: u64) -> io::Result<Vec<u8>> {
    let size = u32::try_from(len).ok().and_then(varint::padded).ok_or(io::ErrorKind::InvalidInput)?;
    let mut bytes = Vec::with_capacity(events.len() + FILLER);
    bytes.extend_from_slice(events);
    bytes.extend_from_slice(&size);
    bytes.push(0);
    // Overwrite data of a collector that was killed.
    bytes.extend_from_slice(&[0; GATE]);
    Ok(bytes)
}

/// Returns the type of the first event.
fn type_id(bytes: &[u8]) -> Option<u64> {
    let mut at = 0;
    varint::get(bytes, &mut at).ok()?;
    varint::get(bytes, &mut at).ok()
}

/// Returns the offset, from the chunk's start, of the filler at its end.
fn events_end(file: &File, base: u64, size: u64) -> io::Result<u64> {
    let mut at = LEN as u64;
    let mut head = [0; 2 * varint::MAX_LEN];
    while at < size {
        let got = file.read_at(&mut head, base + at)?;
        let mut read = 0;
        let head = head.get(..got).unwrap_or_default();
        let len = varint::get(head, &mut read).ok().filter(|len| *len > 0 && *len <= size - at);
        let (Some(len), Ok(kind)) = (len, varint::get(head, &mut read)) else { break };
        if kind == 0 && at > LEN as u64 && at + len == size {
            return Ok(at);
        }
        at += len;
    }
    Ok(size)
}

/// `run.jfr` → `run_2026_11_22_01_30_00.jfr`, with a number if necessary.
fn free_name(path: &Path) -> io::Result<PathBuf> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let (stem, extension) = parts(path);
    for number in 0..10_000 {
        let more = if number == 0 { String::new() } else { format!("_{number:02}") };
        let name = path.with_file_name(format!("{stem}_{}{more}{extension}", stamp(now)));
        if !name.exists() {
            return Ok(name);
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn parts(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    (stem, path.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy())))
}

/// Returns rotated files: modification time, name, size.
fn aside(path: &Path) -> Vec<(SystemTime, PathBuf, u64)> {
    let (stem, extension) = parts(path);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_one = |name: &str| {
        let rest = name.strip_prefix(&format!("{stem}_")).and_then(|rest| rest.strip_suffix(&extension));
        rest.is_some_and(|rest| rest.len() >= 19 && rest.bytes().all(|b| b.is_ascii_digit() || b == b'_'))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_one))
        .filter_map(|entry| {
            let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((meta.modified().ok()?, entry.path(), meta.len()))
        })
        .collect()
}
