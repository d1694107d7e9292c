//! Where the bytes of a recording go.
//!
//! A [`Sink`] never makes the drain wait for a reader. What it cannot place is told by [`Sink::full`]: the drain then
//! drops whole samples, before anything of them is interned, and counts them.

mod file;
mod pipe;

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use jfr_format::{ids::FileOffset, write::Output};

pub use file::FileSink;
pub use pipe::PipeSink;

use crate::error::Error;

/// Where a recording shall go.
#[derive(Clone, Debug)]
pub enum Target {
    /// A path; `%p` in its name stands for the process id and makes one recording per process.
    Path(PathBuf),
    /// An open descriptor: standard output.
    Descriptor(Arc<OwnedFd>),
}

/// An opened output.
pub enum Sink {
    /// Seekable: chunks with patched headers.
    File(FileSink),
    /// A pipe, socket or terminal: chunks of fixed size.
    Pipe(PipeSink),
}

impl Sink {
    /// Opens the output of process `pid`.
    pub fn open(target: &Target, pid: u32) -> Result<Sink, Error> {
        match target {
            Target::Descriptor(fd) => {
                let fd = fd.try_clone().map_err(|e| io_error("use", Path::new("standard output"), e))?;
                Sink::of(File::from(fd), Path::new("standard output"))
            }
            Target::Path(path) => {
                let path = path_of(path, pid);
                let file = create(&path).map_err(|e| io_error("create", &path, e))?;
                Sink::of(file, &path)
            }
        }
    }

    fn of(file: File, path: &Path) -> Result<Sink, Error> {
        let meta = file.metadata().map_err(|e| io_error("stat", path, e))?;
        if meta.file_type().is_file() {
            return FileSink::new(file, path).map(Sink::File).map_err(|e| io_error("write", path, e));
        }
        if meta.file_type().is_dir() {
            return Err(io_error("write to", path, io::ErrorKind::IsADirectory.into()));
        }
        let blocking_device = meta.file_type().is_char_device() || meta.file_type().is_block_device();
        PipeSink::new(file, path, blocking_device).map(Sink::Pipe).map_err(|e| io_error("write to", path, e))
    }

    /// Whether samples must be dropped because too much is waiting already.
    pub fn full(&self) -> bool {
        match self {
            Sink::File(_) => false,
            Sink::Pipe(pipe) => pipe.full(),
        }
    }

    /// Writes what is waiting, as far as that goes without waiting.
    pub fn push(&mut self) -> io::Result<()> {
        match self {
            Sink::File(_) => Ok(()),
            Sink::Pipe(pipe) => pipe.push(),
        }
    }

    /// Bytes waiting.
    pub fn waiting(&self) -> usize {
        match self {
            Sink::File(_) => 0,
            Sink::Pipe(pipe) => pipe.waiting(),
        }
    }

    /// Bytes written and waiting.
    pub fn bytes(&self) -> u64 {
        match self {
            Sink::File(file) => file.end(),
            Sink::Pipe(pipe) => pipe.bytes(),
        }
    }

    /// Where the next chunk begins.
    pub fn position(&self) -> FileOffset {
        FileOffset(self.bytes())
    }

    /// What to call it in messages.
    pub fn name(&self) -> &Path {
        match self {
            Sink::File(file) => file.path(),
            Sink::Pipe(pipe) => pipe.path(),
        }
    }
}

impl Output for Sink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file) => file.append(bytes),
            Sink::Pipe(pipe) => pipe.append(bytes),
        }
    }

    fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file) => file.patch(at, bytes),
            Sink::Pipe(pipe) => pipe.patch(at, bytes),
        }
    }
}

fn io_error(doing: &str, path: &Path, source: io::Error) -> Error {
    Error::io(doing, path, source)
}

/// Replaces `%p` in the file name by the process id.
pub fn path_of(path: &Path, pid: u32) -> PathBuf {
    match path.to_str() {
        Some(text) if text.contains("%p") => PathBuf::from(text.replace("%p", &pid.to_string())),
        _ => path.to_owned(),
    }
}

/// Whether each process gets a recording of its own.
pub fn per_process(target: &Target) -> bool {
    matches!(target, Target::Path(path) if path.to_str().is_some_and(|t| t.contains("%p")))
}

/// Opens a file for its owner only. A file that exists is replaced; a pipe, socket or device is written to.
fn create(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => OpenOptions::new().write(true).open(path),
        existing => {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path)?;
            // What was there may have been open to all; what is written now may name private things.
            let own = existing.is_ok_and(|m| m.uid() == nix::unistd::geteuid().as_raw());
            if own {
                use std::os::unix::fs::PermissionsExt;
                file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            }
            Ok(file)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn names_and_modes() {
        assert_eq!(path_of(Path::new("/a/run-%p.jfr"), 7), Path::new("/a/run-7.jfr"));
        assert!(per_process(&Target::Path("x%p".into())) && !per_process(&Target::Path("x".into())));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jfr");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let sink = Sink::open(&Target::Path(path.clone()), 1).unwrap();
        assert!(matches!(sink, Sink::File(_)) && sink.bytes() == 0);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let missing = Sink::open(&Target::Path("/nonexistent/dir/x.jfr".into()), 1);
        let message = missing.err().unwrap().to_string();
        assert_eq!(message, "cannot create /nonexistent/dir/x.jfr: No such file or directory");
        assert!(Sink::open(&Target::Path(dir.path().to_owned()), 1).is_err());
    }
}
