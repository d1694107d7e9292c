//! Reads a descriptor without blocking in the read itself.
//!
//! The descriptor's blocking mode may be shared with other programs, so it is not changed. poll(2) waits
//! for input, and the read uses a non-blocking system call, because another process may have read the
//! input in the meantime.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::net::{RecvFlags, recv};

/// The offset with which preadv2 uses the current position.
const CURRENT: u64 = u64::MAX;

/// A descriptor and its read method.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    how: ReadMethod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadMethod {
    /// recv(2) with `MSG_DONTWAIT`.
    Socket,
    /// preadv2(2) with `RWF_NOWAIT`.
    NoWait,
    /// read(2) after poll(2): a file, which is always ready, or a device or kernel without a non-blocking
    /// read.
    Plain,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Bytes(usize),
    Nothing,
    End,
}

impl Source {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        let file = File::from(fd);
        let kind = file.metadata()?.file_type();
        let how = match () {
            () if kind.is_socket() => ReadMethod::Socket,
            () if kind.is_fifo() => ReadMethod::NoWait,
            () => ReadMethod::Plain,
        };
        Ok(Self { file, how })
    }

    /// Reads available input.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        loop {
            let read = match self.how {
                ReadMethod::Socket => recv(&self.file, &mut *buffer, RecvFlags::DONTWAIT).map(|(_, n)| n),
                ReadMethod::NoWait => {
                    let mut slices = [IoSliceMut::new(buffer)];
                    preadv2(&self.file, &mut slices, CURRENT, ReadWriteFlags::NOWAIT)
                }
                ReadMethod::Plain if !self.ready(Some(Duration::ZERO))? => return Ok(Got::Nothing),
                ReadMethod::Plain => match self.file.read(buffer) {
                    Ok(n) => Ok(n),
                    Err(error) => Err(Errno::from_io_error(&error).ok_or(error)?),
                },
            };
            return match read {
                Ok(0) => Ok(Got::End),
                Ok(n) => Ok(Got::Bytes(n)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Got::Nothing),
                // Kernels before 6.4 do not support it for pipes.
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::SPIPE)
                    if self.how == ReadMethod::NoWait =>
                {
                    self.how = ReadMethod::Plain;
                    continue;
                }
                Err(Errno::CONNRESET) if self.how == ReadMethod::Socket => Ok(Got::End),
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Waits for input or its end. Returns false after `limit`.
    pub(super) fn ready(&self, limit: Option<Duration>) -> io::Result<bool> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(n) => return Ok(n > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
