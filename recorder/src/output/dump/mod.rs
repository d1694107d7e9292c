//! Dumps: copies a recording, or the last part of it, to another file while recording continues.
//!
//! The kernel copies whole chunks unchanged. Of the chunk that is being written, the part that its header
//! covers is copied, with a matching header; bytes appended during the copy lie after that part. All files
//! are opened before the first byte is copied, so that a repository may remove any file in the meantime.
//!
//! The header of the chunk being written is used only if two readings of it were equal. Dumps that the drain
//! makes itself are written by a thread.

mod policy;
mod trigger;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jfr_format::{
    constants::{FLAG_FINAL, STATE_FINISHED, STATE_UPDATING},
    header::{self, ChunkHeader},
};
use nix::{errno::Errno, fcntl::copy_file_range};

pub use policy::{EVERY, KEEP, Policy};
pub use trigger::{Condition, Runs};
pub(crate) use trigger::{Load, Waits};

use crate::error::Error;

/// How long to wait for a header that is being rewritten. It takes microseconds, unless the writer was killed
/// or stopped in between.
const HEADER_WAIT: Duration = Duration::from_secs(1);
/// Bytes copied at a time if the kernel cannot copy.
const BLOCK: usize = 1 << 20;
/// Clock differences of this size between chunks are visible in times computed with another chunk's clock.
const CLOCKS_DIFFER_NS: i128 = 100_000_000;

/// A chunk to copy.
#[derive(Debug)]
struct ChunkCopy {
    file: Arc<File>,
    at: u64,
    header: ChunkHeader,
}

/// Chunks of a recording, with open files.
#[derive(Debug, Default)]
pub struct Chunks {
    pieces: Vec<ChunkCopy>,
    /// Files that are not usable, with reasons.
    pub problems: Vec<String>,
}

/// The contents of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Number of chunks.
    pub chunks: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Its start and end according to the chunk headers, ns since 1970.
    pub times: (i64, i64),
    /// Largest change of the wall clock between chunks, ns. JDK 25 computes all times with the first chunk's
    /// clock.
    pub clock_set_ns: u64,
}

/// Returns the recordings at `path`: a file, the chunks in a process's folder, or those in all folders of a
/// repository.
///
/// # Errors
/// The path cannot be read, or has no chunk.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |e| Error::io("read", path, e);
    let folders = crate::output::repository::folders(path).map_err(failed)?;
    let mut found = Vec::new();
    for folder in &folders {
        match crate::output::repository::chunks(folder) {
            // It has been removed because of its age.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            chunks => found.extend(chunks.map_err(failed)?),
        }
    }
    match found.is_empty() {
        true => Err(Error::io("find a chunk in", path, io::ErrorKind::NotFound.into())),
        false => Ok(found),
    }
}

impl Chunks {
    /// Opens the chunks of these files that overlap the time since `since_ns` (ns since 1970). Files that no
    /// longer exist are ignored; they were removed because of their age.
    ///
    /// # Errors
    /// There is no such chunk.
    pub fn open(files: &[PathBuf], since_ns: Option<i64>) -> Result<Chunks, Error> {
        let mut chunks = Chunks::default();
        for path in files {
            if let Err(error) = chunks.add(path, since_ns.unwrap_or(i64::MIN))
                && error.kind() != io::ErrorKind::NotFound
            {
                chunks.problems.push(Error::io("read", path, error).to_string());
            }
        }
        if !chunks.pieces.is_empty() {
            // Chunks of several processes, in order of time.
            chunks.pieces.sort_by_key(|piece| piece.header.start_nanos);
            return Ok(chunks);
        }
        let problem = match chunks.problems.first() {
            Some(first) => format!("nothing to copy: {first}"),
            None if since_ns.is_some() => "no data was recorded in that time".into(),
            None => "no data has been recorded yet".into(),
        };
        Err(Error::Unavailable { name: "dump", problem })
    }

    fn add(&mut self, path: &Path, since_ns: i64) -> io::Result<()> {
        let file = Arc::new(File::open(path)?);
        let mut at = 0;
        while let Some(header) = settled_header(&file, at)? {
            // A chunk that was just started is empty. The file must contain what the header declares.
            let len = file.metadata()?.len();
            if header.metadata.0 == 0 || header.size <= header::LEN as u64 {
                break;
            }
            let end = at.checked_add(header.size).filter(|end| *end <= len);
            let end = end.ok_or_else(|| io::Error::other("it ends in the middle of a chunk"))?;
            if header.start_nanos.saturating_add(header.duration_nanos) >= since_ns {
                self.pieces.push(ChunkCopy { file: file.clone(), at, header });
            }
            if header.state != STATE_FINISHED {
                break;
            }
            at = end;
        }
        Ok(())
    }

    /// Returns the number of bytes that [`Chunks::write`] writes.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|p| p.header.size).sum()
    }

    /// Writes the chunks as one recording.
    ///
    /// # Errors
    /// A file system error.
    pub fn write(&self, out: &File) -> io::Result<Dumped> {
        let mut dumped = Dumped { times: (i64::MAX, i64::MIN), ..Dumped::default() };
        let clocks = self.pieces.iter().map(|p| origin_ns(&p.header));
        let (first, last) = (clocks.clone().min().unwrap_or(0), clocks.max().unwrap_or(0));
        if last - first >= CLOCKS_DIFFER_NS {
            dumped.clock_set_ns = u64::try_from(last - first).unwrap_or(u64::MAX);
        }
        for (index, piece) in self.pieces.iter().enumerate() {
            let ChunkCopy { file, at, header } = piece;
            let mut header =
                ChunkHeader { state: STATE_FINISHED, flags: header.flags & !FLAG_FINAL, ..*header };
            if index + 1 == self.pieces.len() {
                header.flags |= FLAG_FINAL;
            }
            (&mut &*out).write_all(&header.encode())?;
            let head = header::LEN as u64;
            copy(file, at + head, out, header.size - head)?;
            dumped.chunks += 1;
            dumped.bytes += header.size;
            let end = header.start_nanos.saturating_add(header.duration_nanos);
            dumped.times = (dumped.times.0.min(header.start_nanos), dumped.times.1.max(end));
        }
        Ok(dumped)
    }

    /// Writes the chunks to a file that only its owner can read. The file appears under its name when it is
    /// complete.
    ///
    /// # Errors
    /// A file system error.
    pub fn write_to(&self, path: &Path) -> Result<Dumped, Error> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let failed = |e| Error::io("write", path, e);
        let mut options = OpenOptions::new();
        let file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&partial).map_err(failed)?;
        let done = self.write(&file).and_then(|dumped| fs::rename(&partial, path).map(|()| dumped));
        done.map_err(|error| {
            let _ = fs::remove_file(&partial);
            failed(error)
        })
    }
}

/// Returns the wall-clock time of tick 0.
fn origin_ns(header: &ChunkHeader) -> i128 {
    let ticks = i128::from(header.start_ticks.0) * 1_000_000_000;
    i128::from(header.start_nanos) - ticks / i128::from(header.frequency())
}

/// Returns the header at `at` once no recorder is rewriting it; `None` at the end of the file.
fn settled_header(file: &File, at: u64) -> io::Result<Option<ChunkHeader>> {
    let read = || -> io::Result<Option<[u8; header::LEN]>> {
        let mut bytes = [0; header::LEN];
        match file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    };
    let end = std::time::Instant::now() + HEADER_WAIT;
    loop {
        let (Some(first), Some(second)) = (read()?, read()?) else { return Ok(None) };
        if first == second && first[header::STATE] != STATE_UPDATING {
            return ChunkHeader::decode(&first).map(Some).map_err(io::Error::other);
        }
        if std::time::Instant::now() >= end {
            return Err(io::Error::other(
                "its header is incomplete: the recorder stopped while it was writing it",
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Copies a range to the current position of `out`. The kernel shares blocks if the file system supports it.
fn copy(from: &File, at: u64, out: &File, bytes: u64) -> io::Result<()> {
    let (mut at, mut left) = (at, bytes);
    while left > 0 {
        let mut offset = i64::try_from(at).map_err(io::Error::other)?;
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(1 << 30);
        match copy_file_range(from, Some(&mut offset), out, None, most) {
            // Some file systems also return 0 if they cannot copy.
            Ok(0) => break,
            Ok(n) => {
                at += n as u64;
                left -= n as u64;
            }
            Err(Errno::EINTR) => {}
            Err(
                Errno::EXDEV
                | Errno::EINVAL
                | Errno::ENOSYS
                | Errno::EOPNOTSUPP
                | Errno::EPERM
                | Errno::EBADF,
            ) => {
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let mut block = vec![0; if left > 0 { BLOCK } else { 0 }];
    while left > 0 {
        let n = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        from.read_exact_at(&mut block[..n], at)?;
        (&mut &*out).write_all(&block[..n])?;
        at += n as u64;
        left -= n as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jfr_format::{
        ids::{FileOffset, Ticks},
        read::{Input, Item},
        schema,
        write::{ChunkWriter, ClockLine, FileOutput, Geometry},
    };

    const START: i64 = 1_790_000_000_000_000_000;
    const SECOND: i64 = 1_000_000_000;

    /// Appends a chunk of one second, `number` seconds after the start, with this many anchors; finished or
    /// still being written.
    fn chunk(path: &Path, number: i64, anchors: i64, finished: bool) -> ChunkWriter {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        let mut out = FileOutput::new(file).unwrap();
        let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: START, ticks_per_second: SECOND };
        let at = |tenths: i64| Ticks(number * SECOND + tenths * SECOND / 10);
        let base: FileOffset = out.end();
        let mut writer = ChunkWriter::begin(Geometry::Patched, &line, base, at(0)).unwrap();
        for i in 0..anchors {
            writer
                .event(schema::CLOCK_ANCHOR, |e| {
                    e.ticks(at(5)).long(number * 1000 + i).long(0);
                })
                .unwrap();
        }
        writer.flush(at(10), &mut out).unwrap();
        if finished {
            writer.finish(at(10), number == 2, &mut out).unwrap();
        }
        writer
    }

    /// Returns the values of the anchors that our reader finds, after checking that it found no problems.
    fn anchors(path: &Path) -> Vec<i64> {
        let mut input = Input::open(path).unwrap();
        let mut found = Vec::new();
        while let Some(item) = input.next().unwrap() {
            match item {
                Item::Events(batch) => {
                    for event in batch.events() {
                        assert_eq!(&*event.class().name, "flightline.ClockAnchor");
                        let value = event.field("monotonic").ok().flatten().and_then(|v| v.as_i64());
                        found.push(value.unwrap());
                    }
                }
                Item::Warning(warning) => panic!("{warning}"),
                _ => {}
            }
        }
        found
    }

    #[test]
    fn chunks_that_overlap_the_window_are_copied_from_a_growing_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, out) = (dir.path().join("run.jfr"), dir.path().join("out.jfr"));
        chunk(&path, 0, 1, true);
        chunk(&path, 1, 2, true);
        // Marked as the last chunk, which it must not be in front of another.
        chunk(&path, 2, 1, true);
        chunk(&path, 3, 1, false);
        let len = fs::metadata(&path).unwrap().len();
        // A flush whose header has not been written yet.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"half a checkpoint").unwrap();
        let all = Chunks::open(std::slice::from_ref(&path), None).unwrap();
        assert_eq!((all.pieces.len(), all.bytes(), all.problems.len()), (4, len, 0));
        let dumped = all.write_to(&out).unwrap();
        assert_eq!(
            dumped,
            Dumped { chunks: 4, bytes: len, times: (START, START + 4 * SECOND), clock_set_ns: 0 }
        );
        assert_eq!(anchors(&out), [0, 1000, 1001, 2000, 3000]);
        let headers: Vec<u16> = all
            .pieces
            .iter()
            .map(|p| settled_header(&File::open(&out).unwrap(), p.at).unwrap().unwrap().flags)
            .collect();
        assert_eq!(headers.iter().map(|f| f & FLAG_FINAL).collect::<Vec<_>>(), [0, 0, 0, FLAG_FINAL]);
        let last = Chunks::open(std::slice::from_ref(&path), Some(START + 2 * SECOND + 1)).unwrap();
        last.write_to(&out).unwrap();
        assert_eq!(anchors(&out), [2000, 3000]);
        let later = Chunks::open(&[path], Some(START + 9 * SECOND)).unwrap_err().to_string();
        assert_eq!(later, "dump: no data was recorded in that time");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing half is left");
    }

    #[test]
    fn opened_chunk_files_may_be_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..3).map(|i| dir.path().join(format!("{i}.jfr"))).collect();
        for (i, path) in paths.iter().enumerate() {
            chunk(path, i as i64, 1, i < 2);
        }
        fs::remove_file(&paths[0]).unwrap();
        // A chunk that was started but is empty.
        let empty = dir.path().join("9.jfr");
        fs::write(&empty, "").unwrap();
        let torn = dir.path().join("torn.jfr");
        fs::write(&torn, &fs::read(&paths[1]).unwrap()[..200]).unwrap();
        let mut given = paths.clone();
        given.extend([empty, torn]);
        let chunks = Chunks::open(&given, None).unwrap();
        assert_eq!((chunks.pieces.len(), chunks.problems.len()), (2, 1), "{:?}", chunks.problems);
        assert!(
            chunks.problems[0].ends_with("torn.jfr: it ends in the middle of a chunk"),
            "{:?}",
            chunks.problems
        );
        fs::remove_file(&paths[1]).unwrap();
        let out = dir.path().join("out.jfr");
        chunks.write_to(&out).unwrap();
        assert_eq!(anchors(&out), [1000, 2000]);
    }

    #[test]
    fn pipe_receives_same_bytes_as_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, out) = (dir.path().join("run.jfr"), dir.path().join("out.jfr"));
        chunk(&path, 0, 3, true);
        chunk(&path, 1, 3, false);
        let chunks = Chunks::open(&[path], None).unwrap();
        chunks.write_to(&out).unwrap();
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let thread = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut File::from(reader), &mut bytes).unwrap();
            bytes
        });
        chunks.write(&File::from(writer)).unwrap();
        assert_eq!(thread.join().unwrap(), fs::read(out).unwrap());
    }

    #[test]
    fn changed_clock_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("0.jfr"), dir.path().join("1.jfr")];
        chunk(&paths[0], 0, 1, true);
        chunk(&paths[1], 1, 1, true);
        let mut bytes = fs::read(&paths[1]).unwrap();
        let mut header = ChunkHeader::decode(&bytes).unwrap();
        header.start_nanos -= 3600 * SECOND;
        bytes[..header::LEN].copy_from_slice(&header.encode());
        fs::write(&paths[1], bytes).unwrap();
        let dumped = Chunks::open(&paths, None).unwrap().write_to(&dir.path().join("out.jfr")).unwrap();
        assert_eq!(dumped.clock_set_ns, 3600 * SECOND as u64);
    }
}
