//! The drain's end of the control socket. It never blocks: a client that sends half a line or does not read
//! is disconnected.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::{
            fs::OpenOptionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::{Value, json};

use super::{REQUEST_BYTES, SOCKET};

/// Clients at a time. Others wait in the kernel's queue.
const CLIENTS: usize = 16;
/// Time limit for a client to send its request, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Report rates, losses and memory.
    Status,
    /// Record nothing until [`Request::Resume`].
    Pause,
    /// End a [`Request::Pause`].
    Resume,
    /// End the recording. Answered when the output is complete.
    Stop,
    /// Write everything recorded so far to the output. Answered when it is written.
    Dump,
    /// Like [`Request::Dump`], but with a short wait for symbols, because the client is about to copy the
    /// output.
    Save,
    /// Switch to other engines, in the syntax of `-e`.
    Engines(String),
}

impl Request {
    fn parse(line: &str) -> Result<Request, String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let request = match word {
            "status" => Request::Status,
            "pause" => Request::Pause,
            "resume" => Request::Resume,
            "stop" => Request::Stop,
            "dump" => Request::Dump,
            "save" => Request::Save,
            "engines" if !rest.is_empty() => return Ok(Request::Engines(rest.to_owned())),
            _ => return Err(format!("unknown request {:?}", word.chars().take(40).collect::<String>())),
        };
        if rest.is_empty() { Ok(request) } else { Err(format!("{word} takes no argument")) }
    }
}

/// The condition that a deferred answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The waiting samples have their symbols, or this time has passed; a flush follows.
    Named(Instant),
    /// This flush is done.
    Flushed(u64),
    /// The output is complete.
    Ended,
    /// Every program has applied this change, or this time has passed.
    Applied(u32, Instant),
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    until: Option<Until>,
    answered: bool,
    since: Instant,
}

/// The socket and its clients.
pub(crate) struct Server {
    listener: UnixListener,
    clients: Vec<Client>,
}

impl Server {
    /// Creates the socket in a session directory.
    pub(crate) fn open(dir: &Path) -> io::Result<Server> {
        let (_dir, path) = through_descriptor(dir)?;
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Server { listener, clients: Vec::new() })
    }

    /// Returns the descriptors to wait for.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let room = self.clients.len() < CLIENTS;
        let reading = self.clients.iter().filter(|c| c.until.is_none() && !c.answered);
        reading.map(|c| c.stream.as_fd()).chain(room.then(|| self.listener.as_fd()))
    }

    /// Reads what clients sent. Returns the complete requests, by client.
    pub(crate) fn requests(&mut self) -> Vec<(usize, Request)> {
        while self.clients.len() < CLIENTS
            && let Ok((stream, _)) = self.listener.accept()
        {
            if let Some(client) = Client::new(stream) {
                self.clients.push(client);
            }
        }
        let mut requests = Vec::new();
        for (index, client) in self.clients.iter_mut().enumerate() {
            match client.read() {
                Some(Ok(request)) => requests.push((index, request)),
                Some(Err(problem)) => client.answer(&json!({"ok": false, "error": problem})),
                None => {}
            }
        }
        requests
    }

    /// Answers a client now.
    pub(crate) fn answer(&mut self, client: usize, answer: &Value) {
        if let Some(client) = self.clients.get_mut(client) {
            client.answer(answer);
        }
    }

    /// Answers a client later.
    pub(crate) fn defer(&mut self, client: usize, until: Until) {
        if let Some(client) = self.clients.get_mut(client) {
            client.until = Some(until);
        }
    }

    /// Answers the clients whose condition is met. The others wait for the condition that `answer` returns.
    pub(crate) fn settle(&mut self, answer: &mut dyn FnMut(Until) -> Result<Value, Until>) {
        for client in &mut self.clients {
            match client.until.map(&mut *answer) {
                Some(Ok(answer)) => {
                    client.until = None;
                    client.answer(&answer);
                }
                Some(Err(until)) => client.until = Some(until),
                None => {}
            }
        }
    }

    /// Continues to write answers, and disconnects clients that are done or too slow. Call this last in a
    /// round, because it changes the indexes of clients.
    pub(crate) fn push(&mut self) {
        for client in &mut self.clients {
            client.write();
        }
        self.clients.retain(|c| {
            let done = c.answered && c.output.is_empty();
            !done && (c.until.is_some() || c.since.elapsed() < PATIENCE)
        });
    }
}

impl Client {
    /// Returns `None` for a process of another user.
    fn new(stream: UnixStream) -> Option<Client> {
        stream.set_nonblocking(true).ok()?;
        let peer = getsockopt(&stream, PeerCredentials).ok()?;
        let mut client = Client {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            until: None,
            answered: false,
            since: Instant::now(),
        };
        if peer.uid() != 0 && peer.uid() != nix::unistd::geteuid().as_raw() {
            let problem = format!("the recording belongs to user {}", nix::unistd::geteuid());
            client.answer(&json!({"ok": false, "error": problem}));
        }
        Some(client)
    }

    fn read(&mut self) -> Option<Result<Request, String>> {
        if self.answered || self.until.is_some() {
            return None;
        }
        let mut bytes = [0u8; 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => {
                self.answered = true;
                None
            }
            Ok(n) => {
                self.input.extend_from_slice(&bytes[..n]);
                if let Some(end) = self.input.iter().position(|b| *b == b'\n') {
                    let line = String::from_utf8_lossy(&self.input[..end]).trim().to_owned();
                    return Some(Request::parse(&line));
                }
                (self.input.len() > REQUEST_BYTES).then(|| Err("the request is too long".into()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(_) => {
                self.answered = true;
                None
            }
        }
    }

    fn answer(&mut self, answer: &Value) {
        self.output = answer.to_string().into_bytes();
        self.output.push(b'\n');
        self.answered = true;
        self.since = Instant::now();
        self.write();
    }

    fn write(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(n) if n > 0 => drop(self.output.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => {
                    self.output.clear();
                    self.answered = true;
                }
            }
        }
    }
}

/// Returns a path to the socket that fits into a socket address, however long the directory's path is. It is
/// valid while the descriptor is open.
pub(super) fn through_descriptor(dir: &Path) -> io::Result<(File, PathBuf)> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let dir = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd()));
    Ok((dir, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    #[test]
    fn request_lines_are_parsed() {
        assert_eq!(Request::parse("status"), Ok(Request::Status));
        assert_eq!(Request::parse("engines cpu@10ms,lock"), Ok(Request::Engines("cpu@10ms,lock".into())));
        for bad in ["", "stat", "stop now", "engines", "STATUS", "\u{0}"] {
            assert!(Request::parse(bad).is_err(), "{bad:?}");
        }
    }

    fn served(sent: &[u8], at_least: usize) -> (Vec<Request>, String) {
        let dir = tempfile::tempdir().unwrap();
        // Longer than a socket address allows.
        let long = dir.path().join("x".repeat(200));
        std::fs::create_dir(&long).unwrap();
        let mut server = Server::open(&long).unwrap();
        let (_dir, path) = through_descriptor(&long).unwrap();
        let mut client = UnixStream::connect(path).unwrap();
        client.write_all(sent).unwrap();
        let mut got = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while got.len() < at_least && Instant::now() < deadline {
            for (index, request) in server.requests() {
                got.push(request);
                server.answer(index, &json!({"ok": true}));
            }
            server.push();
            if server.clients.is_empty() {
                break;
            }
        }
        for _ in 0..10 {
            server.requests();
            server.push();
        }
        drop(server);
        let mut line = String::new();
        let _ = BufReader::new(client).read_line(&mut line);
        (got, line)
    }

    #[test]
    fn request_is_answered_once() {
        let (got, line) = served(b"status\nstop\n", 1);
        assert_eq!((got.as_slice(), line.as_str()), (&[Request::Status][..], "{\"ok\":true}\n"));
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let (got, line) = served(b"\xff\x00\n", 1);
        assert!(got.is_empty() && line.starts_with("{\"error\":\"unknown request"), "{line}");
        let (got, line) = served(&[b'x'; 3 * REQUEST_BYTES], 1);
        assert!(got.is_empty() && line.contains("too long"), "{line}");
    }

    #[test]
    fn incomplete_line_waits_without_answer() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::open(dir.path()).unwrap();
        let (_dir, path) = through_descriptor(dir.path()).unwrap();
        let mut client = UnixStream::connect(path).unwrap();
        client.write_all(b"sta").unwrap();
        for _ in 0..3 {
            assert_eq!(server.requests(), []);
            server.push();
        }
        assert_eq!(server.clients.len(), 1);
        client.write_all(b"tus\n").unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let got = loop {
            let got = server.requests();
            if !got.is_empty() || Instant::now() > deadline {
                break got;
            }
        };
        assert_eq!(got, [(0, Request::Status)]);
        drop(client);
        server.answer(0, &json!({"ok": true}));
        server.push();
        assert!(server.clients.is_empty(), "one that is gone does not stay");
    }
}
