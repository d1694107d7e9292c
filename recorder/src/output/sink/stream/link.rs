//! A connection to a reader. Writes never block.
//!
//! The flags of a shared descriptor are not changed: writes use `MSG_DONTWAIT`, or a pipe that is opened
//! again.

use std::{
    io::{self, IoSlice},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        socket::{MsgFlags, getsockopt, sendmsg, setsockopt, sockopt::SndBuf},
        uio::writev,
    },
};

/// A pipe that poll reports as writable accepts at least this many bytes without blocking (PIPE_BUF).
const PIECE: usize = 4096;

/// An open pipe, socket or device.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    kind: LinkKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkKind {
    /// A socket, written with MSG_DONTWAIT.
    Socket,
    /// A pipe opened by us in non-blocking mode.
    Pipe,
    /// A pipe opened by others, who may need blocking mode.
    SharedPipe,
    /// A terminal or device, for which poll is not useful.
    Device,
}

impl Link {
    /// Writes to `fd`, which other processes may use too, so its flags do not change.
    ///
    /// # Errors
    /// Its type cannot be determined.
    pub fn new(fd: OwnedFd) -> io::Result<Link> {
        let file = std::fs::File::from(fd);
        let kind = file.metadata()?.file_type();
        let fd = OwnedFd::from(file);
        if kind.is_socket() {
            return Ok(Link { fd, kind: LinkKind::Socket });
        }
        if !kind.is_fifo() {
            return Ok(Link { fd, kind: LinkKind::Device });
        }
        // Open the same pipe again: this is the only way to be non-blocking without changing the flags for
        // other processes.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let own = std::fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
        Ok(match own {
            Ok(own) => Link { fd: own.into(), kind: LinkKind::Pipe },
            Err(_) => Link { fd, kind: LinkKind::SharedPipe },
        })
    }

    /// Requests a pipe or send buffer of this size. Returns an error with the actual size if that is less.
    pub fn resize(&self, bytes: usize) -> Result<(), String> {
        let asked = i32::try_from(bytes).unwrap_or(i32::MAX);
        match self.kind {
            LinkKind::Socket => {
                let _ = setsockopt(&self.fd, SndBuf, &bytes);
                // The kernel returns twice the requested size.
                let has = getsockopt(&self.fd, SndBuf).unwrap_or(0) / 2;
                let most = "see net.core.wmem_max";
                if has < bytes { Err(format!("the kernel gave {has} bytes ({most})")) } else { Ok(()) }
            }
            LinkKind::Pipe | LinkKind::SharedPipe => {
                fcntl(&self.fd, FcntlArg::F_SETPIPE_SZ(asked)).map(drop).map_err(|e| {
                    let has = fcntl(&self.fd, FcntlArg::F_GETPIPE_SZ).unwrap_or(0);
                    let most = "see /proc/sys/fs/pipe-max-size";
                    format!("{}; it stays at {has} bytes ({most})", crate::error::plain(&e.into()))
                })
            }
            LinkKind::Device => Ok(()),
        }
    }

    /// Returns true if the peer has disconnected.
    pub fn gone(&self) -> bool {
        if self.kind == LinkKind::Device {
            return false;
        }
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::empty())];
        let over = PollFlags::POLLERR | PollFlags::POLLNVAL | PollFlags::POLLHUP;
        matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
            && fds[0].revents().is_some_and(|events| events.intersects(over))
    }

    /// Writes as many bytes as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room. After any other error, the link is unusable.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(first) = slices.first() else { return Ok(0) };
        let wrote = match self.kind {
            LinkKind::Socket => {
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                sendmsg::<()>(self.fd.as_raw_fd(), slices, &[], flags, None)
            }
            LinkKind::Pipe => writev(&self.fd, slices),
            LinkKind::SharedPipe if !self.writable() => Err(Errno::EAGAIN),
            LinkKind::SharedPipe => nix::unistd::write(&self.fd, &first[..first.len().min(PIECE)]),
            LinkKind::Device => nix::unistd::write(&self.fd, first),
        };
        match wrote {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => Ok(n),
            Err(Errno::ENOBUFS | Errno::EINTR) => Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::ECONNRESET) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn writable(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLOUT)];
        // The write will report the error.
        matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
    }

    /// Returns the descriptor to poll; `None` if poll is not useful.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (self.kind != LinkKind::Device).then(|| self.fd.as_fd())
    }
}
