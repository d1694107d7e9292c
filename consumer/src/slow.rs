//! Single I/O calls and disk requests, as listed by bcc's `fileslower` and `biosnoop`.

mod sorted;

use std::sync::Arc;

use crate::live::{Sample, Value};
use crate::model::Thread;

pub use sorted::{Longest, Sorted};

/// The object of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallObject {
    /// A file, pipe, terminal or similar.
    File,
    /// A socket.
    Socket,
    /// A block device.
    Disk,
}

impl CallObject {
    /// The name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Socket => "socket",
            Self::Disk => "disk",
        }
    }
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Waits until written data is on the device.
    Sync,
    /// Connects.
    Connect,
    /// Waits for a connection.
    Accept,
    /// Tells a disk that data is no longer needed.
    Discard,
    /// Anything else.
    Other,
}

impl Direction {
    /// The letter shown in lists.
    pub fn letter(self) -> char {
        match self {
            Self::Read => 'R',
            Self::Write => 'W',
            Self::Sync => 'S',
            Self::Connect => 'C',
            Self::Accept => 'A',
            Self::Discard => 'D',
            Self::Other => '-',
        }
    }

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Connect => "connect",
            Self::Accept => "accept",
            Self::Discard => "discard",
            Self::Other => "other",
        }
    }

    /// Returns the operation of a disk request.
    fn from_request(operation: Option<&str>) -> Self {
        match operation {
            Some("read") => Self::Read,
            Some("write") => Self::Write,
            Some("flush") => Self::Sync,
            Some("discard") => Self::Discard,
            _ => Self::Other,
        }
    }
}

/// Event types of such calls.
pub const EVENTS: &[(&str, CallObject, Direction)] = &[
    ("jdk.FileRead", CallObject::File, Direction::Read),
    ("jdk.FileWrite", CallObject::File, Direction::Write),
    ("jdk.FileForce", CallObject::File, Direction::Sync),
    ("jdk.SocketRead", CallObject::Socket, Direction::Read),
    ("jdk.SocketWrite", CallObject::Socket, Direction::Write),
    ("flightline.SocketConnect", CallObject::Socket, Direction::Connect),
    ("flightline.SocketAccept", CallObject::Socket, Direction::Accept),
    // A field has the operation.
    ("flightline.BlockIo", CallObject::Disk, Direction::Other),
];

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Start, in ns since 1970.
    pub start: i64,
    /// Duration in ns.
    pub nanos: u64,
    /// The calling thread.
    pub thread: Option<Arc<Thread>>,
    /// The object of the call.
    pub what: CallObject,
    /// The operation.
    pub direction: Direction,
    /// Number of bytes, if it is recorded.
    pub bytes: Option<u64>,
    /// Path, peer, or position on a disk; empty if not known.
    pub name: Arc<str>,
    /// Event type.
    pub event: Arc<str>,
}

impl Call {
    /// Returns the call of a sample; `None` if it is another event, or has no duration.
    pub fn from_sample(sample: &Sample) -> Option<Call> {
        let (_, what, direction) = EVENTS.iter().find(|(name, ..)| *name == &*sample.event)?;
        let text = |name: &str| match sample.field(name) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        let number = |name: &str| sample.field(name).and_then(Value::integer);
        let name = match what {
            CallObject::File => text("path"),
            CallObject::Socket => socket(text("host"), text("address"), number("port")),
            CallObject::Disk => disk(text("device"), number("sector")),
        };
        let direction = match what {
            CallObject::Disk => Direction::from_request(text("operation").as_deref()),
            _ => *direction,
        };
        let bytes = ["bytesRead", "bytesWritten", "bytes"].iter().find_map(|name| number(name));
        Some(Call {
            start: sample.time.epoch_nanos,
            nanos: sample.duration_nanos?,
            thread: sample.thread.clone(),
            what: *what,
            direction,
            bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            name: name.unwrap_or_default(),
            event: sample.event.clone(),
        })
    }

    /// Returns the process id, if recorded: threads of Flightline are in a group `name (pid)`.
    pub fn pid(&self) -> Option<u32> {
        let group = self.thread.as_ref()?.group.as_ref()?;
        group.rsplit_once('(')?.1.strip_suffix(')')?.parse().ok()
    }

    /// Returns its approximate memory use in bytes.
    fn size(&self) -> usize {
        size_of::<Call>() + self.name.len()
    }
}

/// `vda sector 2048`.
fn disk(device: Option<Arc<str>>, sector: Option<i64>) -> Option<Arc<str>> {
    let device = device?;
    Some(sector.map_or_else(|| device.clone(), |sector| format!("{device} sector {sector}").into()))
}

/// `host:port`, or the path of a local socket.
fn socket(host: Option<Arc<str>>, address: Option<Arc<str>>, port: Option<i64>) -> Option<Arc<str>> {
    match (host, address, port) {
        (host, address, Some(port)) if port > 0 => {
            let host = host.or(address)?;
            let six = host.contains(':');
            Some(if six { format!("[{host}]:{port}") } else { format!("{host}:{port}") }.into())
        }
        (Some(host), Some(address), _) if host != address => Some(format!("{host}:{address}").into()),
        (host, address, _) => address.or(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_names_are_formatted() {
        let name = |host: &str, address: &str, port| {
            let text = |text: &str| (!text.is_empty()).then(|| text.into());
            socket(text(host), text(address), Some(port)).unwrap_or_default().to_string()
        };
        assert_eq!(name("localhost", "127.0.0.1", 80), "localhost:80");
        assert_eq!(name("", "::1", 80), "[::1]:80");
        assert_eq!(name("unix", "/run/x.sock", 0), "unix:/run/x.sock");
        assert_eq!(name("10.0.0.1", "10.0.0.1", 0), "10.0.0.1");
        assert_eq!(name("unix", "", 0), "unix");
        assert_eq!(name("", "", 9), "");
    }

    #[test]
    fn disk_requests_are_formatted() {
        assert_eq!(disk(Some("vda".into()), Some(8)).as_deref(), Some("vda sector 8"));
        assert_eq!((disk(Some("vda".into()), None).as_deref(), disk(None, Some(8))), (Some("vda"), None));
        for (operation, letter) in
            [("read", 'R'), ("write", 'W'), ("flush", 'S'), ("discard", 'D'), ("zone", '-')]
        {
            assert_eq!(Direction::from_request(Some(operation)).letter(), letter);
        }
    }
}
