//! Streams as input: standard input, a FIFO, a Unix socket, TCP.

pub mod integrity;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use flightline_recorder::stream::{Address, Token};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Returns the stream that `name` represents; `None` for a regular file, a folder or a missing path.
///
/// # Errors
/// Returns an error if the address is invalid.
pub fn address(name: &Path) -> Result<Option<Address>> {
    let address = Address::parse(name, 0)?;
    if let Address::Path(path) = &address {
        let kind = fs::metadata(path).map(|meta| meta.file_type());
        if !kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device()) {
            return Ok(None);
        }
    }
    Ok(Some(address))
}

/// Returns true if another writer may connect later.
pub fn comes_back(address: &Address) -> bool {
    !matches!(address, Address::Descriptor(_))
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// Number of bytes read.
    Bytes(usize),
    /// No data yet.
    Nothing,
    /// All writers have closed the stream.
    End,
}

/// An open stream.
#[derive(Debug)]
pub struct Stream {
    file: File,
}

impl Stream {
    /// Opens a stream. Does not wait for the writer of a FIFO, since Ctrl-C could not interrupt that.
    ///
    /// # Errors
    /// Returns an error if no one listens there or the file system fails.
    pub fn open(address: &Address, token: Option<&Token>) -> io::Result<Stream> {
        let file = match address {
            Address::Path(path) => {
                OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?
            }
            _ => address.connect(token)?,
        };
        Ok(Stream { file })
    }

    /// Reads available data, or waits up to `time` for it; activity on `also` ends the wait.
    ///
    /// # Errors
    /// Returns an error if the stream cannot be read.
    pub fn read(&mut self, buffer: &mut [u8], also: Option<&dyn AsFd>, time: Duration) -> io::Result<Got> {
        let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let mut fds = vec![PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        fds.extend(also.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, time) {
            Ok(0) | Err(Errno::EINTR) => return Ok(Got::Nothing),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.first().and_then(PollFd::revents).unwrap_or(PollFlags::empty());
        if ready.is_empty() {
            return Ok(Got::Nothing);
        }
        match self.file.read(buffer) {
            Ok(0) => Ok(Got::End),
            Ok(bytes) => Ok(Got::Bytes(bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(Got::Nothing)
            }
            // The writer of a socket has ended.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Got::End),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_addresses_are_distinguished_from_files() {
        let is_one = |name: &str| address(Path::new(name)).unwrap().is_some();
        assert!(is_one("-") && is_one("unix:/run/x.sock") && is_one("tcp:[::1]:4711") && is_one("/dev/null"));
        assert!(!is_one("/etc/passwd") && !is_one("/") && !is_one("/no/such/file"));
        assert!(address(Path::new("tcp:4711")).is_err());
    }

    #[test]
    fn stream_read_returns_available_bytes_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut stream = Stream::open(&Address::Unix(path), None).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut buffer = [0; 8];
        assert_eq!(stream.read(&mut buffer, None, Duration::ZERO).unwrap(), Got::Nothing);
        io::Write::write_all(&mut server, b"x").unwrap();
        let long = Duration::from_secs(20);
        assert_eq!(stream.read(&mut buffer, None, long).unwrap(), Got::Bytes(1));
        drop(server);
        assert_eq!(stream.read(&mut buffer, None, long).unwrap(), Got::End);
    }
}
