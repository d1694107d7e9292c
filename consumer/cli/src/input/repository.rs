//! Folders as input: the chunks of a repository or of one process in it.
//!
//! Of a chunk that a recorder still writes, only the bytes that its header covers are read. A chunk
//! that disappears after it was listed has been rotated away, which is not an error.

use std::fs::{File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flightline_consumer::time_range::Bound;
use flightline_recorder::repository;
use jfr_format::constants::{STATE_FINISHED, STATE_UPDATING};
use jfr_format::header::{ChunkHeader, LEN};

use crate::diagnostics::shown;

/// Maximum number of reads of a header that is being updated; after that the file is read as it is.
const LOOKS: u32 = 300;

/// Expands folders to their chunks in order of time; returns files unchanged. With `last`, omits chunks of
/// folders that ended earlier.
pub fn expand(given: &[PathBuf], last: Option<Bound>) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for path in given {
        if path.is_dir() {
            crate::input::unfinished::before_reading(path);
            paths.extend(chunks(path, last)?);
        } else {
            paths.push(path.clone());
        }
    }
    Ok(paths)
}

/// A recording: a file, or the chunk files of a repository's folder.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    /// The file or folder.
    pub path: PathBuf,
    /// The files in order of time.
    pub files: Vec<PathBuf>,
}

/// Returns the recordings in `given`. Chunk files of a repository folder, whose names are dates, form one
/// recording. Each other file in a folder is a recording of its own, sorted by name.
pub fn recordings(given: &[PathBuf], last: Option<Bound>) -> Result<Vec<Parts>> {
    let mut all = Vec::new();
    for path in given {
        let mut found: Vec<Parts> = Vec::new();
        for file in expand(std::slice::from_ref(path), last)? {
            let folder = file.parent().filter(|_| path.is_dir() && is_chunk_name(&file));
            let name = folder.unwrap_or(&file);
            match found.iter_mut().find(|parts| parts.path == name) {
                Some(parts) => parts.files.push(file),
                None => found.push(Parts { path: name.to_owned(), files: vec![file] }),
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        all.append(&mut found);
    }
    Ok(all)
}

/// Returns true if a file is named as a chunk of a repository: `2026_11_21_15_00_00.jfr`,
/// `2026_11_21_15_00_00_01.jfr`.
fn is_chunk_name(path: &Path) -> bool {
    let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { return false };
    let mut parts = stem.split('_');
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let date = [4, 2, 2, 2, 2, 2];
    let dated = date.iter().all(|len| parts.next().is_some_and(|part| part.len() == *len && digits(part)));
    dated && parts.all(|part| !part.is_empty() && digits(part))
}

/// Returns true if a file that cannot be opened was an old chunk that has been removed since it was listed.
pub fn rolled_away(path: &Path, given: &[PathBuf]) -> bool {
    !given.iter().any(|given| given == path) && !path.exists()
}

struct Chunk {
    start: i64,
    end: i64,
    path: PathBuf,
}

fn chunks(folder: &Path, last: Option<Bound>) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", shown(folder));
    let mut found = Vec::new();
    for process in repository::folders(folder).with_context(cannot)? {
        // A chunk that disappears in the meantime is skipped.
        for path in repository::chunks(&process).unwrap_or_default() {
            let Ok(file) = File::open(&path) else { continue };
            let len = file.metadata().map_or(0, |meta| meta.len());
            // A chunk that has just been created.
            if len < LEN as u64 {
                continue;
            }
            // Files that are not recordings are reported when they are read.
            let (start, end) = match settled(&file) {
                Some(header) if header.state != STATE_FINISHED && header.size <= LEN as u64 => continue,
                Some(header) if header.size == len || header.state != STATE_FINISHED => {
                    (header.start_nanos, header.start_nanos.saturating_add(header.duration_nanos.max(0)))
                }
                Some(header) => (header.start_nanos, i64::MAX),
                None => (i64::MAX, i64::MAX),
            };
            found.push(Chunk { start, end, path });
        }
    }
    if found.is_empty() {
        bail!(
            "{} contains no recordings: no *.jfr files and no process folders; to wait for a recording, \
             use `flightline tail` or `print --follow`",
            shown(folder)
        );
    }
    found.sort_by(|a, b| (a.start, &a.path).cmp(&(b.start, &b.path)));
    let ends = found.iter().map(|chunk| chunk.end).filter(|&end| end < i64::MAX);
    if let (Some(last), Some(end)) = (last, ends.max()) {
        let from = last.at(i64::MIN, end);
        found.retain(|chunk| chunk.end >= from);
    }
    Ok(found.into_iter().map(|chunk| chunk.path).collect())
}

/// Returns the valid bytes of a chunk that is being written, marked as finished; `None` if `file` is not one.
/// An unfinished chunk without a writer is read to its end, as a damaged recording.
pub fn live(file: &File) -> Option<Vec<u8>> {
    let header = settled(file).filter(|header| header.state != STATE_FINISHED)?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        let _ = file.unlock();
        return None;
    }
    let size = usize::try_from(header.size).ok().filter(|&size| size > LEN)?;
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0).ok()?;
    bytes[..LEN].copy_from_slice(&ChunkHeader { state: STATE_FINISHED, ..header }.encode());
    Some(bytes)
}

/// Reads the first header in a consistent state.
fn settled(file: &File) -> Option<ChunkHeader> {
    for _ in 0..LOOKS {
        let [mut once, mut again] = [[0; LEN]; 2];
        file.read_exact_at(&mut once, 0).ok()?;
        file.read_exact_at(&mut again, 0).ok()?;
        let header = ChunkHeader::decode(&once).ok()?;
        if once == again && header.state != STATE_UPDATING {
            return Some(header);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(path: &Path, start: i64, duration: i64) {
        let header =
            ChunkHeader { size: LEN as u64, start_nanos: start, duration_nanos: duration, ..blank() };
        std::fs::write(path, header.encode()).unwrap();
    }

    fn blank() -> ChunkHeader {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(b"FLR\0");
        bytes[5] = 2;
        bytes[7] = 1;
        bytes[56..64].copy_from_slice(&1_000_000_000u64.to_be_bytes());
        ChunkHeader::decode(&bytes).unwrap()
    }

    #[test]
    fn chunk_files_are_one_recording_and_other_files_are_one_each() {
        let root = tempfile::tempdir().unwrap();
        let [process, other] =
            ["2026_11_21_15_00_00_7", "2026_11_21_15_00_01_8"].map(|n| root.path().join(n));
        for folder in [&process, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        let [first, second] =
            ["2026_11_21_15_00_00.jfr", "2026_11_21_15_00_00_01.jfr"].map(|n| process.join(n));
        let third = other.join("2026_11_21_15_00_01.jfr");
        for (file, start) in [(&second, 30), (&first, 10), (&third, 20)] {
            chunk(file, start, 5);
        }
        let of = |given: &[&Path]| {
            let given: Vec<PathBuf> = given.iter().map(|path| path.to_path_buf()).collect();
            let found = recordings(&given, None).unwrap();
            found.into_iter().map(|parts| (parts.path, parts.files)).collect::<Vec<_>>()
        };
        let one = (process.clone(), vec![first.clone(), second.clone()]);
        assert_eq!(of(&[&process]), std::slice::from_ref(&one));
        assert_eq!(of(&[root.path()]), [one, (other, vec![third])]);
        // Files given explicitly are separate recordings, whatever their names.
        let each = [first.clone(), second.clone()].map(|file| (file.clone(), vec![file]));
        assert_eq!(of(&[&first, &second]), each);
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a.jfr", "b.jfr"].map(|name| folder.path().join(name));
        chunk(&a, 30, 5);
        chunk(&b, 10, 5);
        assert_eq!(of(&[folder.path()]), [(a.clone(), vec![a]), (b.clone(), vec![b])]);
    }

    #[test]
    fn chunks_from_all_processes_are_ordered_by_time() {
        let root = tempfile::tempdir().unwrap();
        let [a, b] = ["2026_11_21_15_00_00_7", "2026_11_21_15_00_01_8"].map(|name| root.path().join(name));
        for folder in [&a, &b] {
            std::fs::create_dir(folder).unwrap();
        }
        chunk(&a.join("x.jfr"), 10, 5);
        chunk(&a.join("y.jfr"), 30, 5);
        chunk(&b.join("z.jfr"), 20, 5);
        std::fs::write(b.join("begun.jfr"), "").unwrap();
        let of = |path: &Path, last| expand(&[path.to_owned()], last).unwrap();
        assert_eq!(of(root.path(), None), [a.join("x.jfr"), b.join("z.jfr"), a.join("y.jfr")]);
        assert_eq!(of(&a, None), [a.join("x.jfr"), a.join("y.jfr")]);
        assert_eq!(of(root.path(), Some(Bound::FromEnd(12))), [b.join("z.jfr"), a.join("y.jfr")]);
        let empty = tempfile::tempdir().unwrap();
        assert!(
            expand(&[empty.path().to_owned()], None)
                .unwrap_err()
                .to_string()
                .contains("contains no recordings")
        );
    }
}
