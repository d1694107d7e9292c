//! The destinations of a recording's bytes.
//!
//! A [`Sink`] never makes the drain wait for a reader. [`Sink::full`] returns true if it has no room: the
//! drain then drops whole samples, before any part of them is interned, and counts them.

mod file;
mod repository;
pub mod stream;
mod sync;

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jfr_format::{ids::FileOffset, write::Output};

pub use file::FileSink;
pub use repository::RepositorySink;
pub use stream::StreamSink;
pub use sync::Syncer;

use crate::{
    error::Error,
    output::repository::{Owner, Repository},
};

/// The destination of a recording.
#[derive(Clone, Debug)]
pub enum Target {
    /// A path. `%p` in its name is replaced by the PID and makes one recording per process.
    Path(PathBuf),
    /// An open descriptor, such as standard output.
    Descriptor(Arc<OwnedFd>),
    /// A socket or FIFO to which readers connect.
    Listen(stream::Address),
    /// A folder for each process under one root, with a file for each chunk.
    Repository(Repository),
}

/// An opened output.
pub enum Sink {
    /// A seekable file: chunks with headers that are updated.
    File(FileSink),
    /// A pipe, socket or terminal: chunks of fixed size.
    Stream(Box<StreamSink>),
    /// Seekable files, one per chunk, of which old ones are removed.
    Repository(RepositorySink),
}

impl Sink {
    /// Opens the output for a recording of `owner`.
    pub fn open(target: &Target, owner: &Owner, options: &stream::Options) -> Result<Sink, Error> {
        let pid = owner.pid;
        match target {
            Target::Repository(repository) => RepositorySink::open(repository, owner.clone())
                .map(Sink::Repository)
                .map_err(|e| io_error("record to", &repository.root, e)),
            Target::Descriptor(fd) => {
                let fd = fd.try_clone().map_err(|e| io_error("use", Path::new("standard output"), e))?;
                Sink::from_file(File::from(fd), Path::new("standard output"), options)
            }
            Target::Listen(address) => stream::StreamSink::at(address, options).map(Sink::from_stream),
            Target::Path(path) => {
                let path = path_for_process(path, pid);
                if std::fs::metadata(&path).is_ok_and(|m| m.file_type().is_fifo()) {
                    return stream::StreamSink::at_soon(&stream::Address::Path(path), options)
                        .map(Sink::from_stream);
                }
                let file = create(&path).map_err(|e| io_error("create", &path, e))?;
                Sink::from_file(file, &path, options)
            }
        }
    }

    /// Returns the output for a folder of a repository that could not be created yet.
    pub fn later(repository: &Repository, owner: &Owner) -> Sink {
        Sink::Repository(RepositorySink::later(repository, owner.clone()))
    }

    /// Continues a file that another process wrote.
    pub fn append(file: File, path: &Path) -> io::Result<Sink> {
        FileSink::new(file, path).map(Sink::File)
    }

    /// Continues in a folder of a repository.
    pub fn again(folder: &Path) -> io::Result<Sink> {
        RepositorySink::again(folder).map(Sink::Repository)
    }

    fn from_stream(stream: StreamSink) -> Sink {
        Sink::Stream(Box::new(stream))
    }

    fn from_file(file: File, path: &Path, options: &stream::Options) -> Result<Sink, Error> {
        let meta = file.metadata().map_err(|e| io_error("stat", path, e))?;
        if meta.file_type().is_file() {
            return FileSink::new(file, path).map(Sink::File).map_err(|e| io_error("write", path, e));
        }
        if meta.file_type().is_dir() {
            return Err(io_error("write to", path, io::ErrorKind::IsADirectory.into()));
        }
        StreamSink::to(file.into(), path, options)
            .map(Sink::from_stream)
            .map_err(|e| io_error("write to", path, e))
    }

    /// Returns true if samples must be dropped because too many bytes are queued.
    pub fn full(&self) -> bool {
        match self {
            Sink::File(_) | Sink::Repository(_) => false,
            Sink::Stream(stream) => stream.full(),
        }
    }

    /// Writes queued bytes, as far as that is possible without blocking.
    pub fn push(&mut self) -> io::Result<()> {
        match self {
            Sink::File(_) | Sink::Repository(_) => Ok(()),
            Sink::Stream(stream) => stream.push(),
        }
    }

    /// Returns the number of queued bytes.
    pub fn waiting(&self) -> usize {
        match self {
            Sink::File(_) | Sink::Repository(_) => 0,
            Sink::Stream(stream) => stream.waiting(),
        }
    }

    /// Returns the number of written and queued bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Sink::File(file) => file.end(),
            Sink::Stream(stream) => stream.bytes(),
            Sink::Repository(repository) => repository.bytes(),
        }
    }

    /// Returns the position of the next chunk.
    pub fn position(&self) -> FileOffset {
        match self {
            Sink::Repository(repository) => FileOffset(repository.position()),
            _ => FileOffset(self.bytes()),
        }
    }

    /// Returns the file that is being written, if the output is a file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Sink::File(file) => Some(file.path()),
            Sink::Stream(_) => None,
            Sink::Repository(repository) => repository.chunk(),
        }
    }

    /// Requests that written data is synchronized with the disk.
    pub fn sync(&self, syncer: &Syncer) {
        match self {
            Sink::File(file) => syncer.sync(file.file()),
            Sink::Stream(_) => {}
            Sink::Repository(repository) => repository.sync(syncer),
        }
    }

    /// Returns the repository, if the output is one.
    pub fn repository(&mut self) -> Option<&mut RepositorySink> {
        match self {
            Sink::Repository(repository) => Some(repository),
            _ => None,
        }
    }

    /// Returns the stream, if the output is one.
    pub fn stream(&self) -> Option<&StreamSink> {
        match self {
            Sink::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// Returns the mutable stream, if the output is one.
    pub fn stream_mut(&mut self) -> Option<&mut StreamSink> {
        match self {
            Sink::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// Returns its name for messages.
    pub fn name(&self) -> &Path {
        match self {
            Sink::File(file) => file.path(),
            Sink::Stream(stream) => stream.path(),
            Sink::Repository(repository) => repository.path(),
        }
    }
}

impl Output for Sink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file) => file.append(bytes),
            Sink::Stream(stream) => stream.append(bytes),
            Sink::Repository(repository) => repository.append(bytes),
        }
    }

    fn fill(&mut self, len: usize) -> io::Result<()> {
        match self {
            Sink::File(file) => file.fill(len),
            Sink::Stream(stream) => stream.fill(len),
            Sink::Repository(repository) => repository.fill(len),
        }
    }

    fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file) => file.patch(at, bytes),
            Sink::Stream(stream) => stream.patch(at, bytes),
            Sink::Repository(repository) => repository.patch(at, bytes),
        }
    }
}

fn io_error(doing: &str, path: &Path, source: io::Error) -> Error {
    Error::io(doing, path, source)
}

/// Replaces `%p` in the file name by the PID.
pub fn path_for_process(path: &Path, pid: u32) -> PathBuf {
    match path.to_str() {
        Some(text) if text.contains("%p") => PathBuf::from(text.replace("%p", &pid.to_string())),
        _ => path.to_owned(),
    }
}

impl Target {
    /// Parses the value of `-o` or `FLIGHTLINE_OUTPUT`: a path, `-`, `fd:N`, `unix:PATH`, `tcp:HOST:PORT`.
    ///
    /// # Errors
    /// The value is invalid, or the descriptor is not open.
    pub fn parse(text: &Path) -> Result<Target, Error> {
        match stream::Address::parse(text, 1)? {
            stream::Address::Path(path) => Ok(Target::Path(path)),
            stream::Address::Descriptor(fd) => {
                let fd = stream::inherited(fd).map_err(|e| io_error("use", text, e))?;
                Ok(Target::Descriptor(Arc::new(fd)))
            }
            address => Ok(Target::Listen(address)),
        }
    }
}

/// Returns true if each process gets a recording of its own.
pub fn per_process(target: &Target) -> bool {
    match target {
        Target::Path(path) => path.to_str().is_some_and(|t| t.contains("%p")),
        Target::Repository(_) => true,
        Target::Descriptor(_) | Target::Listen(_) => false,
    }
}

/// Renames a recording that exists under the output's name to `NAME.old`, as `perf record` does, and returns both names. One
/// generation is retained: an older `NAME.old` is replaced. Empty files, pipes, sockets and devices keep their name.
///
/// # Errors
/// Another recording is being written to the file, or the file cannot be renamed.
pub fn retain_previous(target: &Target, pid: u32) -> Result<Option<[PathBuf; 2]>, Error> {
    let Target::Path(path) = target else { return Ok(None) };
    let path = path_for_process(path, pid);
    // A link remains a link. An output that cannot be reached is reported when it is created.
    let file_path = if path.is_symlink() { path.canonicalize().ok() } else { Some(path.clone()) };
    let Some(file_path) = file_path else { return Ok(None) };
    let Ok(meta) = std::fs::metadata(&file_path) else { return Ok(None) };
    if !meta.is_file() || meta.len() == 0 {
        return Ok(None);
    }
    let mut old = file_path.clone().into_os_string();
    old.push(".old");
    let old = PathBuf::from(old);
    let rename = || {
        // A file that cannot be opened cannot be one that this user's recorder writes.
        if let Ok(file) = File::open(&file_path) {
            refuse_locked(&file)?;
        }
        std::fs::rename(&file_path, &old)
    };
    match rename() {
        Ok(()) => Ok(Some([path, old])),
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => Err(io_error("create", &path, e)),
        Err(e) => {
            let why = format!("{e}; use --force to overwrite it, or give another name with -o");
            Err(io_error("rename the existing recording", &path, io::Error::new(e.kind(), why)))
        }
    }
}

/// Opens a file that only its owner can read. An existing file is overwritten, unless another recording is
/// still being written to it. A pipe, socket or device is written to.
fn create(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => OpenOptions::new().write(true).open(path),
        existing => {
            let options =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
            let file = options?;
            // The lock is held as long as the file is open. If the file system has no locks, two recordings
            // may still write to the same file.
            refuse_locked(&file)?;
            file.set_len(0)?;
            // The old file may have been readable by all; the new recording may contain private names.
            let own = existing.is_ok_and(|m| m.uid() == nix::unistd::geteuid().as_raw());
            if own {
                use std::os::unix::fs::PermissionsExt;
                file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            }
            Ok(file)
        }
    }
}

/// Returns an error if another recording is being written to the file; locks the file otherwise.
fn refuse_locked(file: &File) -> io::Result<()> {
    if locked_by_another(file) {
        let why = "another recording is being written to this file; give another name with -o";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    Ok(())
}

/// Waits for a moment, because a recorder that has just reported its file as complete may still be exiting.
fn locked_by_another(file: &File) -> bool {
    const TRIES: u32 = 50;
    (0..TRIES).all(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn existing_recording_is_retained_as_old() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("r-7.jfr"), dir.path().join("r-7.jfr.old"));
        let target = Target::Path(dir.path().join("r-%p.jfr"));
        assert_eq!(retain_previous(&target, 7).unwrap(), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(retain_previous(&target, 7).unwrap(), None, "an empty file is not renamed");
        for generation in ["first", "second"] {
            std::fs::write(&path, generation).unwrap();
            let names = retain_previous(&target, 7).unwrap().unwrap();
            assert_eq!(names.map(|name| name.canonicalize().ok()), [None, Some(old.clone())]);
            assert_eq!(std::fs::read_to_string(&old).unwrap(), generation);
        }
        // Through a link: the file is renamed, the link remains.
        let link = dir.path().join("link.jfr");
        std::fs::write(&path, "third").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        retain_previous(&Target::Path(link.clone()), 0).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "third");
        assert!(link.is_symlink() && !path.exists());
        assert_eq!(retain_previous(&Target::Path("/dev/null".into()), 0).unwrap(), None);
    }

    #[test]
    fn recording_that_is_being_written_is_not_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jfr");
        let target = Target::Path(path.clone());
        let writer = create(&path).unwrap();
        std::fs::write(&path, "bytes").unwrap();
        let refused = retain_previous(&target, 0).unwrap_err().to_string();
        assert!(refused.contains("another recording is being written to this file"), "{refused}");
        drop(writer);
        // A folder has the name of the retained file.
        std::fs::create_dir(dir.path().join("r.jfr.old")).unwrap();
        let refused = retain_previous(&target, 0).unwrap_err().to_string();
        assert!(refused.contains("use --force to overwrite it"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "bytes");
    }

    #[test]
    fn output_path_is_expanded_and_file_is_private() {
        assert_eq!(path_for_process(Path::new("/a/run-%p.jfr"), 7), Path::new("/a/run-7.jfr"));
        assert!(per_process(&Target::Path("x%p".into())) && !per_process(&Target::Path("x".into())));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jfr");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let sink =
            Sink::open(&Target::Path(path.clone()), &Owner::default(), &stream::Options::default()).unwrap();
        assert!(matches!(sink, Sink::File(_)) && sink.bytes() == 0);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let missing = Sink::open(
            &Target::Path("/nonexistent/dir/x.jfr".into()),
            &Owner::default(),
            &stream::Options::default(),
        );
        let message = missing.err().unwrap().to_string();
        assert_eq!(message, "cannot create /nonexistent/dir/x.jfr: No such file or directory");
        assert!(
            Sink::open(&Target::Path(dir.path().to_owned()), &Owner::default(), &stream::Options::default())
                .is_err()
        );
    }
}
