//! A process's folder in a repository. Each chunk is a file; old ones are removed.
//!
//! The JDK's event streams require that a chunk begins where the one before it ended or later, that its state
//! is 0 at its end, and that only the last chunk of a recording has the flag of a last chunk.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use jfr_format::{
    ids::FileOffset,
    write::{FileOutput, Output},
};

use super::Syncer;
use crate::{
    os::clock,
    output::repository::{Owner, Repository, Space, hold, remove_folder, stamp},
    settings::labels::Label,
};

/// Until a chunk has this many bytes, its directory entry is synchronized with it.
const NAMED_AFTER: u64 = 256 << 10;

/// The chunks of one process.
pub struct RepositorySink {
    repository: Repository,
    owner: Owner,
    folder: PathBuf,
    /// Locked to mark the folder as in use.
    in_use_lock: Option<File>,
    /// The chunk being written; `None` while the disk refuses it.
    chunk: Option<Chunk>,
    /// Bytes of finished chunks.
    finished: u64,
}

struct Chunk {
    output: FileOutput,
    /// The same file: locked while it is being written, and used to check whether it still has a name.
    file: File,
    path: PathBuf,
    space: Space,
}

impl RepositorySink {
    /// Creates the folder of the process and its first chunk.
    pub fn open(repository: &Repository, owner: Owner) -> io::Result<RepositorySink> {
        let mut sink = RepositorySink::later(repository, owner);
        sink.next_chunk()?;
        Ok(sink)
    }

    /// Returns a sink whose folder could not be created yet. The next attempt creates it.
    pub fn later(repository: &Repository, owner: Owner) -> RepositorySink {
        RepositorySink {
            repository: repository.clone(),
            owner,
            folder: PathBuf::new(),
            in_use_lock: None,
            chunk: None,
            finished: 0,
        }
    }

    /// Continues in a folder that another process wrote to.
    pub fn again(folder: &Path) -> io::Result<RepositorySink> {
        let mut sink = RepositorySink {
            // The next recorder enforces the limits of the repository.
            repository: Repository::new(folder.parent().unwrap_or(Path::new("/"))),
            owner: Owner::read(folder).unwrap_or_default(),
            folder: folder.to_owned(),
            in_use_lock: Some(hold(folder)?),
            chunk: None,
            finished: 0,
        };
        sink.next_chunk()?;
        Ok(sink)
    }

    /// Updates the labels, which change when the process executes another program. The recorder works without
    /// this update.
    pub fn relabel(&mut self, labels: &[Label]) {
        if self.owner.labels == labels {
            return;
        }
        self.owner.labels = labels.to_vec();
        if self.in_use_lock.is_some() {
            let _ = self.owner.write(&self.folder);
        }
    }

    /// Starts the next chunk, in a new folder if the old one is gone.
    pub fn next_chunk(&mut self) -> io::Result<()> {
        self.close();
        if self.in_use_lock.as_ref().is_none_or(nameless) {
            self.in_use_lock = None;
            self.folder = self.repository.make_folder(self.owner.pid)?;
            self.in_use_lock = Some(hold(&self.folder)?);
            self.owner.write(&self.folder)?;
        }
        let stamp = stamp(clock::realtime_ns());
        for number in 0..100 {
            let name =
                if number == 0 { format!("{stamp}.jfr") } else { format!("{stamp}_{:02}.jfr", number - 1) };
            let path = self.folder.join(name);
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    // If the file system has no locks, only the chunk's age protects it.
                    let _ = file.try_lock();
                    let output = FileOutput::new(file.try_clone()?)?;
                    self.chunk = Some(Chunk { output, file, path, space: Space::default() });
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Closes the chunk. A file without bytes is removed.
    pub fn close(&mut self) {
        let Some(mut chunk) = self.chunk.take() else { return };
        let end = chunk.output.end().0;
        chunk.space.release(&chunk.file, end);
        if end == 0 {
            let _ = std::fs::remove_file(&chunk.path);
        }
        self.finished += end;
    }

    /// Ends the recording. A folder with `nothing` worth retaining is removed.
    pub fn end(&mut self, nothing: bool) {
        self.close();
        if nothing && !self.folder.as_os_str().is_empty() {
            remove_folder(&self.folder);
        }
        self.in_use_lock = None;
    }

    /// Requests that the chunk and its directory entry are synchronized with the disk.
    pub fn sync(&self, syncer: &Syncer) {
        let Some(chunk) = &self.chunk else { return };
        syncer.sync(&chunk.file);
        if chunk.output.end().0 < NAMED_AFTER
            && let Ok(folder) = File::open(&self.folder)
        {
            syncer.sync(&folder);
        }
    }

    /// Returns the position of the next bytes in the chunk's file.
    pub fn position(&self) -> u64 {
        self.chunk.as_ref().map_or(0, |c| c.output.end().0)
    }

    /// Returns the file of the chunk being written.
    pub fn chunk(&self) -> Option<&Path> {
        self.chunk.as_ref().map(|c| c.path.as_path())
    }

    /// Returns the number of bytes of all chunks.
    pub fn bytes(&self) -> u64 {
        self.finished + self.position()
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Returns the location and limits.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }
}

impl Drop for RepositorySink {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns true if an open file has been removed.
fn nameless(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.nlink() == 0)
}

impl Output for RepositorySink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(chunk) = &mut self.chunk else { return Err(io::ErrorKind::NotFound.into()) };
        // Bytes written to a removed file would be lost without a message.
        if nameless(&chunk.file) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the folder was removed"));
        }
        chunk.space.take(&self.repository, &chunk.file, chunk.output.end().0, bytes.len() as u64)?;
        chunk.output.append(bytes)
    }

    fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()> {
        let Some(chunk) = &mut self.chunk else { return Err(io::ErrorKind::NotFound.into()) };
        chunk.output.patch(at, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::repository::{chunks, folders};
    use std::fs;

    fn files(root: &Path) -> Vec<PathBuf> {
        folders(root).unwrap().iter().flat_map(|f| chunks(f).unwrap()).collect()
    }

    fn sink(root: &Path, pid: u32) -> RepositorySink {
        let repository = Repository { max_size: Some(1 << 20), ..Repository::new(root) };
        RepositorySink::open(&repository, Owner { pid, ..Owner::default() }).unwrap()
    }

    #[test]
    fn repository_size_never_exceeds_limit() {
        let root = tempfile::tempdir().unwrap();
        let mut sinks = [sink(root.path(), 7), sink(root.path(), 8)];
        let mut written = 0;
        for i in 0..400 {
            for sink in &mut sinks {
                let block = vec![i as u8; 3000 + 97 * (i % 50)];
                sink.append(&block).unwrap();
                written += block.len() as u64;
                if sink.position() > 100_000 {
                    sink.next_chunk().unwrap();
                }
            }
            let used: u64 = files(root.path()).iter().map(|f| fs::metadata(f).unwrap().blocks() * 512).sum();
            assert!(used <= 1 << 20, "{used} bytes after {i} rounds");
        }
        assert!(written > 2 << 20);
        assert_eq!(sinks.iter().map(RepositorySink::bytes).sum::<u64>(), written);
        // The newest chunks of both remain.
        assert!(folders(root.path()).unwrap().iter().all(|f| chunks(f).unwrap().len() > 1));
    }

    #[test]
    fn removed_folder_is_detected_and_recreated() {
        let root = tempfile::tempdir().unwrap();
        let mut sink = sink(&root.path().join("r"), 7);
        sink.append(b"x").unwrap();
        fs::remove_dir_all(root.path().join("r")).unwrap();
        assert_eq!(sink.append(b"y").unwrap_err().kind(), io::ErrorKind::NotFound);
        sink.next_chunk().unwrap();
        sink.append(b"z").unwrap();
        assert_eq!(files(&root.path().join("r")).len(), 1);
    }

    #[test]
    fn folder_has_the_labels_from_the_last_exec() {
        let root = tempfile::tempdir().unwrap();
        let mut sink = sink(root.path(), 7);
        let folder = &folders(root.path()).unwrap()[0];
        for service in ["sh", "beam.smp", "beam.smp"] {
            let labels = [("service".to_owned(), service.to_owned())];
            sink.relabel(&labels);
            let owner = Owner::read(folder).unwrap();
            assert_eq!((owner.pid, &owner.labels[..]), (7, &labels[..]));
        }
        sink.end(true);
        assert!(!folder.exists(), "a file is left in it");
    }
}
