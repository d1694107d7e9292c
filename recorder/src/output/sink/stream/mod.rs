//! A stream: chunks of fixed size for any number of readers. Writes never block.
//!
//! ```text
//! Recording ─▶ StreamSink ─▶ Broadcast ─┬▶ Reader: queue ─▶ Link      each queue bounded, the bytes shared
//!                            ▲          └▶ Reader: queue ─▶ Link
//!              Listener ─────┘ new readers, which start with the next chunk
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

/// How long the start of a recording waits for a reader of its FIFO, so that a shell's `cat fifo &` misses
/// nothing.
const FIFO_WAIT: Duration = Duration::from_secs(2);
/// Limit of messages about readers.
const MAX_NOTICES: u32 = 20;
/// Default limit of a reader's queue, bytes. Beyond it, samples are dropped.
pub const QUEUE_BYTES: usize = 8 << 20;
/// Smallest and largest limit of a reader's queue: one round of the drain may write 128 KiB at once.
const QUEUES: [usize; 2] = [256 << 10, 1 << 30];
/// Sizes of pipes and of send buffers, bytes.
const PIPES: std::ops::RangeInclusive<usize> = 4096..=1 << 30;

/// Options of streams.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limit of a reader's queue, bytes.
    pub queue_bytes: usize,
    /// Size of the pipe or socket buffer, if not the kernel's default.
    pub pipe_bytes: Option<usize>,
    /// The token that clients of TCP must send.
    pub token: Option<Token>,
    /// Other machines may connect by TCP.
    pub anywhere: bool,
}

impl Options {
    /// Returns an error for sizes out of range.
    ///
    /// # Errors
    /// The option and its range.
    pub fn check(&self) -> Result<(), Error> {
        if !(QUEUES[0]..=QUEUES[1]).contains(&self.queue_bytes) {
            let problem = format!("{} is not between 256k and 1g", self.queue_bytes);
            return Err(Error::Setting { name: "queue-size", problem });
        }
        match self.pipe_bytes.filter(|bytes| !PIPES.contains(bytes)) {
            Some(bytes) => Err(Error::Setting {
                name: "pipe-size",
                problem: format!("{bytes} is not between 4k and 1g"),
            }),
            None => Ok(()),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { queue_bytes: QUEUE_BYTES, pipe_bytes: None, token: None, anywhere: false }
    }
}

/// The output that writes a recording to readers.
pub struct StreamSink {
    broadcast: Broadcast,
    /// Accepts readers. `None`: there is a single reader, and the output ends with it.
    listener: Option<Listener>,
    path: PathBuf,
    options: Options,
    notices: Vec<String>,
    notice_count: u32,
}

impl StreamSink {
    /// Writes to a single reader at an open descriptor.
    ///
    /// # Errors
    /// The type of the descriptor cannot be determined.
    pub fn to(fd: OwnedFd, path: &Path, options: &Options) -> io::Result<StreamSink> {
        let mut sink = StreamSink::new(path, None, options);
        let link = Link::new(fd)?;
        sink.add_reader(link, path.display().to_string());
        Ok(sink)
    }

    /// Accepts readers at an address that is not a descriptor.
    ///
    /// # Errors
    /// The address is not available.
    pub fn at(address: &Address, options: &Options) -> Result<StreamSink, Error> {
        let name = address.to_string();
        let listener = match address {
            Address::Unix(path) => Listener::Unix(Unix::open(path)?),
            Address::Tcp(at) => Listener::Tcp(Tcp::open(at, options.token.clone(), options.anywhere)?),
            Address::Path(path) => {
                let kind = fs::metadata(path).map_err(|e| Error::io("open", path, e))?.file_type();
                if !kind.is_fifo() {
                    let problem = format!("{name} is neither a FIFO nor unix:PATH nor tcp:HOST:PORT");
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

    /// Like [`at`](Self::at), but waits for a moment for the reader of a FIFO.
    ///
    /// # Errors
    /// As for [`at`](Self::at).
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

    /// Configures the sink for another stream's bytes, which do not stop when all readers are behind.
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

    /// Takes the messages for the user.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Returns true if the queues of all readers are full, or no reader is connected.
    pub fn full(&self) -> bool {
        self.broadcast.full()
    }

    /// Returns true if no connected reader gets the bytes that are written.
    pub fn has_no_reader(&self) -> bool {
        self.broadcast.has_no_reader()
    }

    /// Returns true if a reader waits for the next chunk.
    pub fn wants_chunk(&self) -> bool {
        self.broadcast.wants_chunk()
    }

    /// Returns the length of the longest queue, bytes.
    pub fn waiting(&self) -> usize {
        self.broadcast.waiting()
    }

    /// Returns the number of bytes accepted so far.
    pub fn bytes(&self) -> u64 {
        self.broadcast.bytes()
    }

    /// Returns the totals of bytes and events that the readers got.
    pub fn status(&self) -> Status {
        self.broadcast.status()
    }

    /// Returns its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the TCP port, if it listens on one.
    pub fn port(&self) -> Option<u16> {
        match &self.listener {
            Some(Listener::Tcp(tcp)) => tcp.port(),
            _ => None,
        }
    }

    /// Ends the stream: readers that were cut off get a record of their losses.
    pub fn finish(&mut self) {
        self.broadcast.finish();
    }

    /// Writes the next bytes of another stream.
    ///
    /// # Errors
    /// The bytes are not a stream of chunks of known size. The error contains the position.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), jfr_format::read::FrameError> {
        self.broadcast.append(bytes)
    }

    /// Returns true if the written bytes end with a complete chunk.
    pub fn is_at_chunk_end(&self) -> bool {
        self.broadcast.is_at_chunk_end()
    }

    /// Accepts readers and writes as much as they accept.
    ///
    /// # Errors
    /// The single reader has disconnected.
    pub fn push(&mut self) -> io::Result<()> {
        self.accept_readers();
        for Gone { name, error } in self.broadcast.push() {
            if self.listener.is_none() {
                return Err(error);
            }
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.add_notice(format!("{name} has disconnected: {}", crate::error::plain(&error)));
            }
        }
        Ok(())
    }

    /// Returns the descriptors that are readable when a reader connects, and those that are writable when a
    /// reader that is behind accepts more.
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
