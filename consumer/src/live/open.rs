//! Opens a stream by name: `unix:/path`, `tcp:HOST:PORT`, `fd:N`, `-` or a path.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::{Options, Stream};

/// The environment variable with the token for a recorder's TCP port.
pub const TOKEN: &str = "FLIGHTLINE_TOKEN";

/// Opens a stream by the name used for a recorder's `--output`:
///
/// * `unix:/path` and `tcp:HOST:PORT`: connects. A TCP port requires a token, which is read from
///   [`TOKEN`].
/// * `fd:N`: an inherited descriptor
/// * `-`: standard input
/// * any other name is a path. Opening a FIFO waits for a writer.
///
/// # Errors
/// It cannot be opened or connected to, or there is no token; the message contains the name.
pub fn open(name: &str, options: Options) -> io::Result<Stream> {
    let token = std::env::var(TOKEN).ok();
    open_with_token(name, token.as_deref(), options)
}

/// Like [`open`], with an explicit token.
///
/// # Errors
/// As for [`open`].
pub fn open_with_token(name: &str, token: Option<&str>, options: Options) -> io::Result<Stream> {
    let opened = descriptor(name, token).and_then(|fd| Stream::new(fd, options));
    opened.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
}

fn descriptor(name: &str, token: Option<&str>) -> io::Result<OwnedFd> {
    let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidInput, problem.to_owned());
    if name == "-" {
        return io::stdin().as_fd().try_clone_to_owned();
    }
    if let Some(path) = name.strip_prefix("unix:") {
        return Ok(UnixStream::connect(path)?.into());
    }
    if let Some(address) = name.strip_prefix("tcp:") {
        let Some(token) = token.map(str::trim).filter(|token| !token.is_empty()) else {
            return Err(wrong("a TCP address requires the recorder's token: set FLIGHTLINE_TOKEN"));
        };
        if token.contains('\n') {
            return Err(wrong("the token is one line"));
        }
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(format!("{token}\n").as_bytes())?;
        return Ok(stream.into());
    }
    if let Some(number) = name.strip_prefix("fd:") {
        let number = number.parse().map_err(|_| wrong("fd: is followed by the number of a descriptor"))?;
        return inherited(number);
    }
    let path = std::path::Path::new(name);
    if path.metadata()?.file_type().is_socket() {
        return Ok(UnixStream::connect(path)?.into());
    }
    Ok(File::open(path)?.into())
}

/// Duplicates an inherited descriptor.
fn inherited(number: i32) -> io::Result<OwnedFd> {
    match number {
        0 => return io::stdin().as_fd().try_clone_to_owned(),
        1 => return io::stdout().as_fd().try_clone_to_owned(),
        2 => return io::stderr().as_fd().try_clone_to_owned(),
        _ => {}
    }
    // Asks the kernel whether the descriptor exists. dup(2) of a bare number would require unsafe code.
    let other = |own: OwnedFd| match own.as_raw_fd() {
        // The new descriptor has this number, so the number was free and no descriptor was inherited.
        same if same == number => Err(Errno::BADF),
        _ => pidfd_getfd(own, number, PidfdGetfdFlags::empty()),
    };
    match pidfd_open(getpid(), PidfdFlags::empty()).and_then(other) {
        Ok(fd) => Ok(fd),
        // Some containers forbid the call. Everything except sockets can be reopened by path.
        Err(Errno::PERM | Errno::NOSYS) => Ok(File::open(format!("/proc/self/fd/{number}"))?.into()),
        Err(error) => Err(error.into()),
    }
}
