//! A pipe: written without waiting, with a bounded queue before it.
//!
//! The descriptor may be shared with other programs (a shell's standard output), so its blocking mode is not touched:
//! pipes and sockets are written only when poll says they have room, and then no more than surely fits.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use jfr_format::{ids::FileOffset, write::Output};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::settings::QUEUE_BYTES;

/// A pipe that poll calls writable takes at least this much without blocking (PIPE_BUF).
const PIECE: usize = 4096;

/// A recording on its way to a reader.
pub struct PipeSink {
    file: File,
    path: PathBuf,
    queue: VecDeque<u8>,
    accepted: u64,
    /// A terminal or device, where poll says nothing useful: written at once.
    device: bool,
}

impl PipeSink {
    /// Writes to `file`.
    pub fn new(file: File, path: &Path, device: bool) -> io::Result<PipeSink> {
        Ok(PipeSink { file, path: path.to_owned(), queue: VecDeque::new(), accepted: 0, device })
    }

    /// Whether the reader is too far behind for more samples.
    pub fn full(&self) -> bool {
        self.queue.len() >= QUEUE_BYTES
    }

    /// Bytes in the queue.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Bytes accepted so far.
    pub fn bytes(&self) -> u64 {
        self.accepted
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes from the queue until the pipe is full.
    pub fn push(&mut self) -> io::Result<()> {
        use io::Write;
        while !self.queue.is_empty() {
            if !self.device {
                let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
                match poll(&mut fds, PollTimeout::ZERO) {
                    Ok(0) | Err(nix::errno::Errno::EINTR) => break,
                    Ok(_) => {}
                    Err(error) => return Err(error.into()),
                }
                let events = fds[0].revents().unwrap_or(PollFlags::empty());
                if events.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL) {
                    self.queue = VecDeque::new();
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            let (front, _) = self.queue.as_slices();
            let piece = &front[..front.len().min(PIECE)];
            match self.file.write(piece) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.queue.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.queue = VecDeque::new();
                    return Err(error);
                }
            }
        }
        if self.queue.is_empty() && self.queue.capacity() > QUEUE_BYTES / 4 {
            self.queue = VecDeque::new();
        }
        Ok(())
    }
}

impl Output for PipeSink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.queue.extend(bytes);
        self.accepted += bytes.len() as u64;
        self.push()
    }

    fn patch(&mut self, _: FileOffset, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn pair() -> (PipeSink, File) {
        let (read, write) = nix::unistd::pipe().unwrap();
        (PipeSink::new(File::from(write), Path::new("pipe"), false).unwrap(), File::from(read))
    }

    #[test]
    fn a_reader_that_stops_does_not_stop_us() {
        let (mut sink, mut reader) = pair();
        let block = vec![7u8; 1 << 20];
        let mut sent = 0u64;
        while !sink.full() {
            sink.append(&block).unwrap();
            sent += block.len() as u64;
        }
        assert!(sink.waiting() >= QUEUE_BYTES && sink.waiting() < QUEUE_BYTES + (1 << 20));
        let mut got = 0;
        let mut buffer = vec![0; 1 << 16];
        while got < sent {
            got += reader.read(&mut buffer).unwrap() as u64;
            sink.push().unwrap();
        }
        assert_eq!((got, sink.waiting(), sink.bytes()), (sent, 0, sent));
        assert!(!sink.full());
    }

    #[test]
    fn a_reader_that_is_gone_is_an_error() {
        let (mut sink, reader) = pair();
        drop(reader);
        assert_eq!(sink.append(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(sink.waiting(), 0);
    }
}
