//! Addresses of streams, as in `-o`, for writing and reading.

use std::{
    fs::File,
    io::{self, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    os::{
        fd::{BorrowedFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::{Path, PathBuf},
};

use nix::fcntl::{FcntlArg, fcntl};
use subtle::ConstantTimeEq;

use crate::error::Error;

/// The environment variable with the token for TCP.
pub const TOKEN_ENV: &str = "FLIGHTLINE_TOKEN";
/// Limit of a token, bytes.
pub const MOST_TOKEN: usize = 256;

/// The address of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `-` (for `standard`) or `fd:N`: an open descriptor.
    Descriptor(RawFd),
    /// `unix:PATH`
    Unix(PathBuf),
    /// `tcp:HOST:PORT`
    Tcp(String),
    /// A file, FIFO or device.
    Path(PathBuf),
}

impl Address {
    /// Parses an address; `-` is the descriptor `standard`.
    ///
    /// # Errors
    /// No number after `fd:`, no path after `unix:`, no host and port after `tcp:`.
    pub fn parse(text: &Path, standard: RawFd) -> Result<Address, Error> {
        let wrong = |problem: &str| Error::Setting {
            name: "output",
            problem: format!("{}: {problem}", text.display()),
        };
        let bytes = text.as_os_str().as_bytes();
        if bytes == b"-" {
            return Ok(Address::Descriptor(standard));
        }
        if let Some(path) = bytes.strip_prefix(b"unix:") {
            if path.is_empty() {
                return Err(wrong("give the path of a socket, such as unix:/run/user/1000/x.sock"));
            }
            return Ok(Address::Unix(Path::new(std::ffi::OsStr::from_bytes(path)).to_owned()));
        }
        let Some(text) = text.to_str() else { return Ok(Address::Path(text.to_owned())) };
        if let Some(number) = text.strip_prefix("fd:") {
            return match number.parse() {
                Ok(fd @ 0..) => Ok(Address::Descriptor(fd)),
                _ => Err(wrong("give the number of an open descriptor, such as fd:3")),
            };
        }
        if let Some(address) = text.strip_prefix("tcp:") {
            return match address.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Address::Tcp(address.to_owned()))
                }
                _ => Err(wrong("give host and port, such as tcp:127.0.0.1:4711")),
            };
        }
        Ok(Address::Path(text.into()))
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Descriptor(1) => write!(f, "standard output"),
            Address::Descriptor(0) => write!(f, "standard input"),
            Address::Descriptor(fd) => write!(f, "fd:{fd}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => write!(f, "tcp:{address}"),
            Address::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Address {
    /// Opens the address to read a stream. A FIFO blocks until there is a writer. TCP sends the token.
    ///
    /// # Errors
    /// There is no listener, it cannot be opened, or TCP without a token.
    pub fn connect(&self, token: Option<&Token>) -> io::Result<File> {
        Ok(match self {
            Address::Descriptor(fd) => inherited(*fd)?.into(),
            Address::Unix(path) => OwnedFd::from(UnixStream::connect(path)?).into(),
            Address::Path(path) => File::open(path)?,
            Address::Tcp(address) => {
                let why = "a token is required; give --token-file FILE, or set FLIGHTLINE_TOKEN";
                let Some(token) = token else { return Err(io::Error::new(io::ErrorKind::InvalidInput, why)) };
                let mut stream = TcpStream::connect(&resolve(address)?[..])?;
                stream.write_all(token.line().as_bytes())?;
                OwnedFd::from(stream).into()
            }
        })
    }
}

/// Resolves a host and port.
pub fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    if found.is_empty() { Err(io::ErrorKind::AddrNotAvailable.into()) } else { Ok(found) }
}

/// Duplicates an inherited descriptor.
///
/// # Errors
/// The descriptor is not open.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: only borrowed for the call below, which returns an error if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let copy = fcntl(borrowed, FcntlArg::F_DUPFD_CLOEXEC(3))?;
    // SAFETY: created by the call above, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// The token that a client of a TCP stream sends first.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Reads the token from a file's first line, otherwise from `FLIGHTLINE_TOKEN`; `None` if there is
    /// neither.
    ///
    /// # Errors
    /// The file cannot be read, or its contents are not a token.
    pub fn find(file: Option<&Path>) -> Result<Option<Token>, Error> {
        let text = match file {
            Some(file) => Some(std::fs::read_to_string(file).map_err(|e| Error::io("read", file, e))?),
            None => std::env::var(TOKEN_ENV).ok(),
        };
        text.map(|text| Token::new(text.lines().next().unwrap_or_default())).transpose()
    }

    /// Returns the token with this text.
    ///
    /// # Errors
    /// The text is empty, too long, or contains control characters.
    pub fn new(text: &str) -> Result<Token, Error> {
        let text = text.trim();
        if text.is_empty() || text.len() > MOST_TOKEN || text.chars().any(char::is_control) {
            let problem = format!("the token must be one line of 1 to {MOST_TOKEN} bytes");
            return Err(Error::Setting { name: "token", problem });
        }
        Ok(Token(text.to_owned()))
    }

    /// Returns the line that a client sends.
    pub fn line(&self) -> String {
        format!("{}\n", self.0)
    }

    /// Returns true if a client sent the right token. The time does not depend on the contents.
    pub fn is(&self, said: &[u8]) -> bool {
        said.ct_eq(self.0.as_bytes()).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_kinds_are_distinguished() {
        let parse = |text: &str| Address::parse(Path::new(text), 1);
        assert_eq!(parse("-").unwrap(), Address::Descriptor(1));
        assert_eq!(parse("fd:7").unwrap(), Address::Descriptor(7));
        assert_eq!(parse("unix:/a b").unwrap(), Address::Unix("/a b".into()));
        assert_eq!(parse("tcp:[::1]:80").unwrap(), Address::Tcp("[::1]:80".into()));
        assert_eq!(parse("x:y.jfr").unwrap(), Address::Path("x:y.jfr".into()));
        for wrong in ["fd:", "fd:-1", "fd:x", "unix:", "tcp:", "tcp:host", "tcp::1", "tcp:h:99999"] {
            assert!(parse(wrong).unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn only_exact_token_is_accepted() {
        let token = Token::new("secret\n").unwrap();
        assert!(token.is(b"secret"));
        for wrong in [&b""[..], b"secre", b"secret\0", b"secrets", b"Secret"] {
            assert!(!token.is(wrong), "{wrong:?}");
        }
        assert!(Token::new(" ").is_err() && Token::new(&"x".repeat(257)).is_err());
        assert_eq!(format!("{token:?}"), "Token");
    }
}
