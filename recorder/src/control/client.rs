//! Sends requests to a drain.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::Value;

use super::server::through_descriptor;
use crate::error::Error;

/// Time limit for an answer. The end of a recording waits for symbols and slow readers.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest answer, bytes.
const ANSWER_BYTES: u64 = 16 << 20;

/// Sends one request to the drain of a session and returns its answer.
///
/// # Errors
/// There is no drain, it belongs to another user, or it refuses; the error then contains the drain's message.
pub fn ask(session: &Path, request: &str) -> Result<Value, Error> {
    ask_within(session, request, PATIENCE)
}

/// Like [`ask`], with a time limit of `patience`.
///
/// # Errors
/// As for [`ask`].
pub fn ask_within(session: &Path, request: &str, patience: Duration) -> Result<Value, Error> {
    let failed = |e: std::io::Error| Error::io("ask the recorder of", session, e);
    let (_dir, path) = through_descriptor(session).map_err(failed)?;
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    let peer = getsockopt(&stream, PeerCredentials).map_err(|e| failed(e.into()))?;
    let own = nix::unistd::geteuid().as_raw();
    if peer.uid() != 0 && own != 0 && peer.uid() != own {
        return Err(failed(std::io::ErrorKind::PermissionDenied.into()));
    }
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.write_all(format!("{request}\n").as_bytes()).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_BYTES)).read_line(&mut line).map_err(failed)?;
    if line.is_empty() {
        return Err(failed(std::io::Error::other("it exited without a response")));
    }
    let answer: Value = serde_json::from_str(&line).map_err(|e| failed(e.into()))?;
    if answer["ok"] == true {
        return Ok(answer);
    }
    let problem = answer["error"].as_str().unwrap_or("it refused").to_owned();
    Err(Error::Unavailable { name: "recorder", problem })
}
