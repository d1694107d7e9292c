//! A stream: chunks of fixed size for any number of readers, written without ever waiting.
//!
//! ```text
//! Recording ─▶ StreamSink ─▶ Broadcast ─┬▶ Reader: queue ─▶ Link      each queue bounded, the bytes shared
//!                            ▲          └▶ Reader: queue ─▶ Link
//!              Listener ─────┘ new readers, who begin with the next chunk
//! ```
//!
//! A reader receives complete chunks of complete records. It begins with a chunk, and is cut off only after a
//! segment. Its chunk is then completed for it alone (`jfr-format/src/write/cut.rs`) with
//! `flightline.StreamLoss`, `jdk.DataLoss`, filler, and an anchor that points to the last checkpoint that the
//! reader has received. This is written when the reader continues, so that it reports the whole loss; without
//! room in the chunk, in a chunk of its own.
//!
//! Every byte written is delivered to a reader, reported to it as lost, or reported as lost to the next
//! reader (`losses.rs`). While there is no reader, `recording/readers.rs` adds up losses that are reported
//! only once. A FIFO may still contain bytes for its last reader; the next reader starts at the next chunk
//! header.

mod address;
mod broadcast;
mod link;
mod listener;
mod losses;
mod reader;

use std::{
    fs, io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::FileTypeExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jfr_format::{ids::FileOffset, write::Output};

pub use address::{Address, MOST_TOKEN, TOKEN_ENV, Token, inherited, resolve};
pub use broadcast::{Broadcast, Gone, MOST_READERS, Status};
pub use link::Link;
pub use listener::{Accepted, Fifo, Listener, Tcp, Unix};

use crate::error::Error;

/// Time that the start of a recording waits for a reader of its FIFO, so that a shell's `cat fifo &` misses nothing.
const FIFO_WAIT: Duration = Duration::from_secs(2);
/// Most notices about readers; more say nothing new.
const MAX_NOTICES: u32 = 20;
/// Bytes that may wait for a reader of a pipe before samples are dropped.
pub const QUEUE_BYTES: usize = 8 << 20;
/// Smallest and largest queue of a reader: one round of the drain may write 128 KiB at once.
pub const QUEUES: [usize; 2] = [256 << 10, 1 << 30];

/// How streams are written.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that may wait for a reader.
    pub queue_bytes: usize,
    /// Bytes of the pipe or of a socket's buffer, if not the kernel's default.
    pub pipe_bytes: Option<usize>,
    /// The token that clients of TCP must send.
    pub token: Option<Token>,
    /// Whether TCP may be reached from other machines.
    pub anywhere: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { queue_bytes: QUEUE_BYTES, pipe_bytes: None, token: None, anywhere: false }
    }
}

/// A recording on its way to readers.
pub struct StreamSink {
    broadcast: Broadcast,
    /// Accepts readers; `None`: there is one reader, and the output ends with it.
    listener: Option<Listener>,
    path: PathBuf,
    options: Options,
    notices: Vec<String>,
    notice_count: u32,
}

impl StreamSink {
    /// Writes to one reader, by an open descriptor.
    ///
    /// # Errors
    /// The type of the descriptor cannot be determined.
    pub fn to(fd: OwnedFd, path: &Path, options: &Options) -> io::Result<StreamSink> {
        let mut sink = StreamSink::new(path, None, options);
        let link = Link::new(fd)?;
        sink.add_reader(link, path.display().to_string());
        Ok(sink)
    }

    /// Waits for readers at an address that is not a descriptor.
    ///
    /// # Errors
    /// It cannot be listened at.
    pub fn at(address: &Address, options: &Options) -> Result<StreamSink, Error> {
        let name = address.to_string();
        let listener = match address {
            Address::Unix(path) => Listener::Unix(Unix::open(path)?),
            Address::Tcp(at) => Listener::Tcp(Tcp::open(at, options.token.clone(), options.anywhere)?),
            Address::Path(path) => {
                let kind = fs::metadata(path).map_err(|e| Error::io("open", path, e))?.file_type();
                if !kind.is_fifo() {
                    let problem = format!("{name} is no FIFO, and neither unix:PATH nor tcp:HOST:PORT");
                    return Err(Error::Unavailable { name: "output", problem });
                }
                Listener::Fifo(Fifo::new(path))
            }
            Address::Descriptor(fd) => {
                let fd = inherited(*fd).map_err(|e| Error::io("use", Path::new(&name), e))?;
                return StreamSink::to(fd, Path::new(&name), options)
                    .map_err(|e| Error::io("use", Path::new(&name), e));
            }
        };
        Ok(StreamSink::new(Path::new(&name), Some(listener), options))
    }

    /// The same; a FIFO's reader is waited for a moment.
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn at_soon(address: &Address, options: &Options) -> Result<StreamSink, Error> {
        let mut sink = StreamSink::at(address, options)?;
        let until = Instant::now() + FIFO_WAIT;
        while matches!(sink.listener, Some(Listener::Fifo(_)))
            && sink.broadcast.readers().is_empty()
            && Instant::now() < until
        {
            sink.accept_readers();
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(sink)
    }

    /// For the bytes of another stream, which does not stop when all readers are behind.
    pub fn relaying(mut self) -> StreamSink {
        let mut broadcast = Broadcast::relaying(self.options.queue_bytes);
        self.broadcast.hand_over(&mut broadcast);
        self.broadcast = broadcast;
        self
    }

    fn new(path: &Path, listener: Option<Listener>, options: &Options) -> StreamSink {
        StreamSink {
            broadcast: Broadcast::new(options.queue_bytes),
            listener,
            path: path.to_owned(),
            options: options.clone(),
            notices: Vec::new(),
            notice_count: 0,
        }
    }

    fn add_reader(&mut self, link: Link, name: String) {
        if let Some(bytes) = self.options.pipe_bytes
            && let Err(why) = link.resize(bytes)
        {
            self.add_notice(format!("{name}: pipe size of {bytes} bytes refused: {why}"));
        }
        if let Err(error) = self.broadcast.add(link, name.clone()) {
            self.add_notice(format!("{name} is refused: {error}"));
        }
    }

    fn add_notice(&mut self, message: String) {
        self.notice_count += 1;
        if self.notice_count <= MAX_NOTICES {
            self.notices.push(message);
        }
    }

    /// Adds the readers that have connected.
    fn accept_readers(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        for accepted in listener.accept(self.broadcast.readers().is_empty()) {
            match accepted {
                Ok((link, name)) => self.add_reader(link, name),
                Err(refused) => self.add_notice(refused),
            }
        }
    }

    /// Returns the notices for the user.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Whether too much waits for every reader, or none is there.
    pub fn full(&self) -> bool {
        self.broadcast.full()
    }

    /// Returns true if no connected reader gets the bytes that are written.
    pub fn has_no_reader(&self) -> bool {
        self.broadcast.has_no_reader()
    }

    /// Returns true if a reader waits for the next chunk to begin.
    pub fn wants_chunk(&self) -> bool {
        self.broadcast.wants_chunk()
    }

    /// Bytes that wait for the reader that is furthest behind.
    pub fn waiting(&self) -> usize {
        self.broadcast.waiting()
    }

    /// Bytes accepted so far.
    pub fn bytes(&self) -> u64 {
        self.broadcast.bytes()
    }

    /// Returns what the readers got.
    pub fn status(&self) -> Status {
        self.broadcast.status()
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The TCP port, if it is one.
    pub fn port(&self) -> Option<u16> {
        match &self.listener {
            Some(Listener::Tcp(tcp)) => tcp.port(),
            _ => None,
        }
    }

    /// Nothing more comes: readers that were cut off get a record of their losses.
    pub fn finish(&mut self) {
        self.broadcast.finish();
    }

    /// The next bytes of another stream.
    ///
    /// # Errors
    /// They are no stream of chunks of known size: says where.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), jfr_format::read::FrameError> {
        self.broadcast.append(bytes)
    }

    /// Whether what was written ends with a chunk.
    pub fn is_at_chunk_end(&self) -> bool {
        self.broadcast.is_at_chunk_end()
    }

    /// Lets readers in and writes what they take.
    ///
    /// # Errors
    /// The only reader that there can be is gone.
    pub fn push(&mut self) -> io::Result<()> {
        self.accept_readers();
        for Gone { name, error } in self.broadcast.push() {
            if self.listener.is_none() {
                return Err(error);
            }
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.add_notice(format!("{name} is gone: {}", crate::error::plain(&error)));
            }
        }
        Ok(())
    }

    /// Readable when a reader comes; writable when one of those that are behind takes more.
    pub fn wakes(&self) -> (Vec<BorrowedFd<'_>>, Vec<BorrowedFd<'_>>) {
        let listening = self.listener.as_ref().map_or_else(Vec::new, Listener::descriptors);
        let behind = self.broadcast.readers().iter().filter(|r| r.waiting() > 0);
        (listening, behind.filter_map(|r| r.link().descriptor()).collect())
    }
}

impl Output for StreamSink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.broadcast.append(bytes).map_err(io::Error::other)?;
        self.push()
    }

    fn fill(&mut self, len: usize) -> io::Result<()> {
        self.broadcast.fill(len).map_err(io::Error::other)?;
        self.push()
    }

    fn patch(&mut self, _: FileOffset, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
