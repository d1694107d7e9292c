//! The destinations of a recording.

use std::{
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flightline_recorder::{repository, stream::Token};

use crate::Error;

/// The destination of a recording. A path becomes an [`Output::File`], so that
/// [`Builder::output`](crate::Builder::output) accepts both.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Output {
    /// A file, or an existing FIFO. `%p` in its name is replaced by the process id. An existing file is
    /// renamed to `NAME.old`, unless [`Builder::overwrite`](crate::Builder::overwrite).
    File(PathBuf),
    /// A folder with the last hours of the recording.
    Repository(Repository),
    /// A Unix socket that is created at this path. Each client gets the recording from the next chunk on.
    Unix(PathBuf),
    /// A TCP port for clients. The data is not encrypted.
    #[non_exhaustive]
    Tcp {
        /// The address to listen at.
        address: SocketAddr,
        /// The first line that a client must send: 1 to 256 bytes.
        token: String,
        /// Allow an address that other machines can reach.
        allow_remote: bool,
    },
    /// An open descriptor, such as a pipe. A thread of this process writes to it, as with
    /// [`Builder::in_process`](crate::Builder::in_process).
    Descriptor(Arc<OwnedFd>),
}

impl Output {
    /// Returns a TCP port of this machine, such as 127.0.0.1:4711.
    pub fn tcp(address: SocketAddr, token: impl Into<String>) -> Output {
        Output::Tcp { address, token: token.into(), allow_remote: false }
    }

    /// Returns a TCP port that other machines can reach too. The data is not encrypted.
    pub fn remote_tcp(address: SocketAddr, token: impl Into<String>) -> Output {
        Output::Tcp { address, token: token.into(), allow_remote: true }
    }

    /// Returns the output in the syntax of the command line, and the token of a TCP port. A file gets an
    /// absolute path, which cannot be mistaken for the address of a stream.
    pub(crate) fn to_address(&self) -> Result<(PathBuf, Option<Token>), Error> {
        let prefixed = |prefix: &str, path: &Path| {
            let mut text = std::ffi::OsString::from(prefix);
            text.push(path);
            PathBuf::from(text)
        };
        Ok(match self {
            Output::File(path) => (absolute(path)?, None),
            Output::Repository(repository) => (repository.folder.clone(), None),
            Output::Unix(path) => (prefixed("unix:", &absolute(path)?), None),
            Output::Tcp { address, token, .. } => {
                let token = Token::new(token).map_err(Error::from_recorder)?;
                (format!("tcp:{address}").into(), Some(token))
            }
            Output::Descriptor(fd) => (format!("fd:{}", fd.as_raw_fd()).into(), None),
        })
    }
}

impl<P: Into<PathBuf>> From<P> for Output {
    fn from(path: P) -> Output {
        Output::File(path.into())
    }
}

/// Returns an absolute path, which has the same meaning in the recorder's process.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path)
        .map_err(|source| Error::Io { operation: format!("find {}", path.display()), source })
}

/// A rolling repository: a folder for each process, a file for each chunk, and the oldest chunks are removed. It is the layout of the
/// JDK's repositories.
///
/// ```
/// use flightline::Repository;
/// use std::time::Duration;
/// let last_day = Repository::new("/var/lib/fl").max_age(Duration::from_secs(24 * 3600)).max_size(1 << 30);
/// # let _ = flightline::Builder::new().repository(last_day);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    folder: PathBuf,
    max_age: Option<Duration>,
    max_size: Option<u64>,
    chunk_age: Option<Duration>,
    chunk_size: Option<u64>,
}

impl Repository {
    /// Returns a repository in this folder, without limits.
    pub fn new(folder: impl Into<PathBuf>) -> Repository {
        Repository { folder: folder.into(), max_age: None, max_size: None, chunk_age: None, chunk_size: None }
    }

    /// Removes chunks that ended longer ago than this, at least 1 s.
    pub fn max_age(mut self, age: Duration) -> Repository {
        self.max_age = Some(age);
        self
    }

    /// Limits the bytes of all recordings in the repository, at least 1 MiB: the oldest chunks are removed.
    pub fn max_size(mut self, bytes: u64) -> Repository {
        self.max_size = Some(bytes);
        self
    }

    /// Closes a chunk at this age, at least 1 s; default 15 minutes, at most an eighth of
    /// [`Repository::max_age`].
    pub fn chunk_age(mut self, age: Duration) -> Repository {
        self.chunk_age = Some(age);
        self
    }

    /// Closes a chunk at this size in bytes, 64 KiB to 256 MiB; default 12 MiB, at most an eighth of
    /// [`Repository::max_size`].
    pub fn chunk_size(mut self, bytes: u64) -> Repository {
        self.chunk_size = Some(bytes);
        self
    }

    pub(crate) fn to_recorder(&self) -> repository::Repository {
        let default = repository::Repository::new(&self.folder);
        repository::Repository {
            max_age: self.max_age,
            max_size: self.max_size,
            chunk_age: self.chunk_age.unwrap_or(default.chunk_age),
            chunk_bytes: self.chunk_size.unwrap_or(default.chunk_bytes),
            ..default
        }
    }
}

impl From<Repository> for Output {
    fn from(repository: Repository) -> Output {
        Output::Repository(repository)
    }
}
