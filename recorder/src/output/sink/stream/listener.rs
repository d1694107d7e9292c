//! Accepts readers: a FIFO that is opened repeatedly, a Unix socket, or a TCP port.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::{
    address::{MOST_TOKEN, Token, resolve},
    broadcast::MOST_READERS,
    link::Link,
};
use crate::error::Error;

/// Time between two attempts to open a FIFO without a reader.
const RETRY: Duration = Duration::from_millis(20);
/// Time limit for a TCP client to send its token.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// Limit of clients accepted in one call.
const AT_ONCE: usize = 16;

/// Accepts readers.
pub enum Listener {
    /// A FIFO, with at most one known reader.
    Fifo(Fifo),
    /// A listening Unix socket.
    Unix(Unix),
    /// A listening TCP socket.
    Tcp(Tcp),
}

/// A reader that connected, or the reason why it was refused.
pub type Accepted = Result<(Link, String), String>;

impl Listener {
    /// Returns the readers that connected since the last call. `alone`: no reader is connected.
    pub fn accept(&mut self, alone: bool) -> Vec<Accepted> {
        match self {
            Listener::Fifo(fifo) => fifo.accept(alone),
            Listener::Unix(unix) => unix.accept(),
            Listener::Tcp(tcp) => tcp.accept(),
        }
    }

    /// Returns the descriptors that are readable when a reader connects.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Listener::Fifo(_) => Vec::new(),
            Listener::Unix(unix) => vec![unix.listener.as_fd()],
            Listener::Tcp(tcp) => {
                let pending = tcp.pending.iter().map(|p| p.stream.as_fd());
                pending.chain([tcp.listener.as_fd()]).collect()
            }
        }
    }
}

/// The listener of a FIFO.
pub struct Fifo {
    path: PathBuf,
    next: Instant,
}

impl Fifo {
    /// Returns the listener without opening the FIFO.
    pub fn new(path: &Path) -> Fifo {
        Fifo { path: path.to_owned(), next: Instant::now() }
    }

    fn accept(&mut self, alone: bool) -> Vec<Accepted> {
        let now = Instant::now();
        if !alone || now < self.next {
            return Vec::new();
        }
        self.next = now + RETRY;
        // Without a reader, this fails.
        let file = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&self.path);
        let file = file.ok().filter(|f| f.metadata().is_ok_and(|m| m.file_type().is_fifo()));
        let link = file.and_then(|file| Link::new(OwnedFd::from(file)).ok());
        link.map(|link| Ok((link, self.path.display().to_string()))).into_iter().collect()
    }
}

/// The listener of a Unix socket.
pub struct Unix {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket file, so that only our own file is removed.
    file: (u64, u64),
    accepted_count: u64,
}

impl Unix {
    /// Listens at `path`. A socket file without a listener is replaced.
    ///
    /// # Errors
    /// The path is not a socket, another process listens there, or the socket cannot be created.
    pub fn open(path: &Path) -> Result<Unix, Error> {
        let path = std::path::absolute(path).map_err(|e| Error::io("listen at", path, e))?;
        let failed = |e: io::Error| Error::io("listen at", &path, e);
        if let Ok(meta) = fs::symlink_metadata(&path) {
            if !meta.file_type().is_socket() {
                return Err(failed(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "the file exists and is not a socket",
                )));
            }
            match UnixStream::connect(&path) {
                Ok(_) => {
                    let why = "another program listens at this socket; give another path";
                    return Err(failed(io::Error::new(io::ErrorKind::AddrInUse, why)));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(&path).map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        // The users of clients that connected before this call are checked too.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let meta = fs::symlink_metadata(&path).map_err(failed)?;
        Ok(Unix { listener, file: (meta.dev(), meta.ino()), path, accepted_count: 0 })
    }

    fn accept(&mut self) -> Vec<Accepted> {
        let mut accepted = Vec::new();
        while accepted.len() < AT_ONCE
            && let Ok((stream, _)) = self.listener.accept()
        {
            self.accepted_count += 1;
            let name = format!("unix:{} reader {}", self.path.display(), self.accepted_count);
            let own = nix::unistd::geteuid().as_raw();
            accepted.push(match getsockopt(&stream, PeerCredentials) {
                Ok(peer) if peer.uid() == own || peer.uid() == 0 => {
                    Link::new(stream.into()).map(|link| (link, name)).map_err(|e| e.to_string())
                }
                Ok(peer) => Err(format!("{name} is user {}: refused", peer.uid())),
                Err(error) => Err(format!("{name}: {error}")),
            });
        }
        accepted
    }
}

impl Drop for Unix {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The listener of a TCP port.
pub struct Tcp {
    listener: TcpListener,
    token: Token,
    pending: Vec<Pending>,
}

/// A client that has not sent its token yet.
struct Pending {
    stream: TcpStream,
    name: String,
    received: Vec<u8>,
    until: Instant,
}

impl Tcp {
    /// Listens at `HOST:PORT`.
    ///
    /// # Errors
    /// There is no token; the address is not local and `anywhere` is not set; or the address is not
    /// available.
    pub fn open(address: &str, token: Option<Token>, anywhere: bool) -> Result<Tcp, Error> {
        let name = format!("tcp:{address}");
        let wrong = |problem: String| Error::Setting { name: "output", problem };
        let failed = |e: io::Error| Error::io("listen at", Path::new(&name), e);
        let Some(token) = token else {
            let how = "TCP streams need a token, which clients send as their first line; give \
                --token-file FILE, or set FLIGHTLINE_TOKEN";
            return Err(wrong(format!("{name}: {how}")));
        };
        let found = resolve(address).map_err(failed)?;
        if !anywhere && let Some(far) = found.iter().find(|a| !a.ip().is_loopback()) {
            let how = "reachable from other machines, and the stream is not encrypted; to allow this, give --listen-anywhere";
            return Err(wrong(format!("{name}: {} is {how}", far.ip())));
        }
        let listener = TcpListener::bind(&found[..]).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Tcp { listener, token, pending: Vec::new() })
    }

    /// Returns the port.
    pub fn port(&self) -> Option<u16> {
        self.listener.local_addr().ok().map(|a| a.port())
    }

    fn accept(&mut self) -> Vec<Accepted> {
        let now = Instant::now();
        while self.pending.len() < MOST_READERS
            && let Ok((stream, peer)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                let _ = stream.set_nodelay(true);
                let name = format!("tcp:{peer}");
                self.pending.push(Pending { stream, name, received: Vec::new(), until: now + CLIENT_TIME });
            }
        }
        let mut accepted = Vec::new();
        for mut client in std::mem::take(&mut self.pending) {
            match client.hear() {
                None if now < client.until => self.pending.push(client),
                Some(said) if self.token.is(&said) => {
                    let Pending { stream, name, .. } = client;
                    accepted
                        .push(Link::new(stream.into()).map(|link| (link, name)).map_err(|e| e.to_string()));
                }
                None => accepted.push(Err(format!("{} did not send the token in time", client.name))),
                Some(_) => accepted.push(Err(format!("{} did not send the correct token", client.name))),
            }
        }
        accepted
    }
}

impl Pending {
    /// Returns the bytes before the first newline, or all bytes if they are too many for a token; `None` if
    /// more are needed.
    fn hear(&mut self) -> Option<Vec<u8>> {
        let mut part = [0; MOST_TOKEN + 2];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Some(Vec::new()),
                Ok(n) => self.received.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Vec::new()),
            }
            if let Some(end) = self.received.iter().position(|b| *b == b'\n') {
                let line = &self.received[..end];
                return Some(line.strip_suffix(b"\r").unwrap_or(line).to_vec());
            }
            if self.received.len() > MOST_TOKEN + 1 {
                return Some(Vec::new());
            }
        }
    }
}
