//! Fluentd's forward protocol, version 1, over TCP. Entries are packed into one message, which the
//! receiver acknowledges by its id.
//!
//! A message that is not acknowledged is sent again with the same id, a hash of its tag and content. A
//! receiver may get it twice and can recognize the duplicate.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use rmpv::Value;
use sha2::{Digest, Sha512};

use super::{Accepted, Failure, Request, Settings, Signal, Transport, shown};
use crate::hdps::hex;

/// Bytes of a response that are read at most.
const MOST_ANSWER: usize = 64 << 10;
/// Maximum nesting of values in a response.
const DEEPEST: usize = 8;

/// A receiver of the forward protocol.
pub(super) struct Fluentd {
    place: String,
    tag: String,
    key: Option<String>,
    gzip: bool,
    /// An open connection without errors so far.
    connection: Option<TcpStream>,
}

/// The reason why a message was not delivered.
enum Trouble {
    /// The receiver closed the connection.
    Closed,
    Failed(Failure),
}

impl Trouble {
    fn failure(self) -> Failure {
        match self {
            Self::Closed => Failure::passing("the connection was closed"),
            Self::Failed(failure) => failure,
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => Self::Closed,
            // Both kinds report a socket's timeout.
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Failed(over()),
            _ => Self::Failed(Failure::passing(error.to_string())),
        }
    }
}

fn over() -> Failure {
    Failure::passing("no response in time")
}

impl Fluentd {
    pub(super) fn new(place: &str, settings: &Settings) -> Result<Self, String> {
        if settings.tag.is_empty() || settings.tag.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("{:?} is not a Fluentd tag", settings.tag));
        }
        Ok(Self {
            place: place.to_owned(),
            tag: settings.tag.clone(),
            key: settings.shared_key.clone(),
            gzip: settings.gzip,
            connection: None,
        })
    }

    /// Connects. Also returns whether the connection may be used for more than one message.
    fn connect(&self, until: Instant) -> Result<(TcpStream, bool), Failure> {
        let cannot = |error: Error| Failure::passing(format!("cannot connect to {}: {error}", self.place));
        let mut last = None;
        for address in self.place.to_socket_addrs().map_err(cannot)? {
            match TcpStream::connect_timeout(&address, left(until)?) {
                Ok(mut stream) => {
                    let _ = stream.set_nodelay(true); // only affects speed
                    let keep = match &self.key {
                        Some(key) => self.introduce(&mut stream, key, until)?,
                        None => true,
                    };
                    return Ok((stream, keep));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| Failure::passing(format!("{} has no address", self.place)), cannot))
    }

    /// Performs the HELO, PING, PONG handshake, in which both sides prove that they know the key. Returns
    /// whether the connection may be used for more than one message.
    fn introduce(&self, stream: &mut TcpStream, key: &str, until: Instant) -> Result<bool, Failure> {
        let strange = |what: &str| Failure::passing(format!("{}: {what}", self.place));
        let helo = answer(stream, until).map_err(|trouble| {
            let why = trouble.failure().message;
            strange(&format!(
                "no HELO: {why} (a receiver without a shared key sends none; omit --shared-key-file)"
            ))
        })?;
        let options = named(&helo, "HELO").and_then(|parts| parts.get(1)).and_then(Value::as_map);
        let Some(options) = options else { return Err(strange("the response is not HELO")) };
        let option = |name: &str| {
            options.iter().find(|(known, _)| known.as_str() == Some(name)).map(|(_, value)| value)
        };
        let nonce = option("nonce").map(bytes).unwrap_or_default();
        let keep = option("keepalive").and_then(Value::as_bool) != Some(false);
        let mut salt = [0; 16];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut salt));
        random.map_err(|error| Failure::lasting(format!("cannot read /dev/urandom: {error}")))?;
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim();
        let digest = |name: &[u8]| {
            let mut hash = Sha512::new();
            for part in [&salt[..], name, &nonce, key.as_bytes()] {
                hash.update(part);
            }
            hex(&hash.finalize())
        };
        let ping = [
            "PING".into(),
            name.into(),
            Value::Binary(salt.to_vec()),
            digest(name.as_bytes()).into(),
            "".into(),
            "".into(),
        ];
        let pong = write(stream, &Value::Array(ping.to_vec()), until).and_then(|()| answer(stream, until));
        let pong = pong.map_err(|trouble| strange(&format!("no PONG: {}", trouble.failure().message)))?;
        let Some(parts) = named(&pong, "PONG") else {
            return Err(strange("the response is not PONG"));
        };
        if parts.get(1).and_then(Value::as_bool) != Some(true) {
            let why = parts.get(2).and_then(Value::as_str).unwrap_or_default();
            return Err(Failure::lasting(format!("{} rejected the shared key: {}", self.place, shown(why))));
        }
        let theirs = parts.get(3).map(bytes).unwrap_or_default();
        if parts.get(4).map(bytes).unwrap_or_default() != digest(&theirs).into_bytes() {
            return Err(Failure::lasting(format!("{} did not prove that it has the shared key", self.place)));
        }
        Ok(keep)
    }

    fn message(&self, request: &Request) -> Result<(Value, String), Failure> {
        // The same rows with another tag are another message.
        let hash = Sha512::new().chain_update(&self.tag).chain_update([0]).chain_update(&request.body);
        let id = hex(&hash.finalize()[..16]);
        let mut options: Vec<(Value, Value)> =
            vec![("chunk".into(), id.as_str().into()), ("size".into(), request.count.into())];
        let entries = if self.gzip {
            options.push(("compressed".into(), "gzip".into()));
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            let packed = gzip.write_all(&request.body).and_then(|()| gzip.finish());
            packed.map_err(|error| Failure::lasting(error.to_string()))?
        } else {
            request.body.clone()
        };
        let message =
            Value::Array(vec![self.tag.as_str().into(), Value::Binary(entries), Value::Map(options)]);
        Ok((message, id))
    }

    /// Sends a message and reads the acknowledgement.
    fn exchange(
        &self,
        stream: &mut TcpStream,
        (message, id): &(Value, String),
        until: Instant,
    ) -> Result<(), Trouble> {
        let ack = match write(stream, message, until) {
            // A receiver that stopped reading may have sent the reason.
            Ok(()) | Err(Trouble::Closed) => answer(stream, until)?,
            Err(trouble) => return Err(trouble),
        };
        if self.key.is_none() && named(&ack, "HELO").is_some() {
            let told = "the receiver requires a shared key; give it with --shared-key-file";
            return Err(Failure::lasting(told).into());
        }
        let told =
            ack.as_map().and_then(|members| members.iter().find(|(name, _)| name.as_str() == Some("ack")));
        if told.map(|(_, value)| bytes(value)).as_deref() != Some(id.as_bytes()) {
            return Err(Failure::passing("the response is not an acknowledgement").into());
        }
        Ok(())
    }
}

impl Transport for Fluentd {
    fn send(&mut self, request: &Request, limit: Duration) -> Result<Accepted, Failure> {
        if request.signal != Signal::Rows {
            return Err(Failure::lasting("Fluentd accepts only rows"));
        }
        let until = Instant::now().checked_add(limit).unwrap_or_else(Instant::now);
        let message = self.message(request)?;
        let of_receiver = |trouble: Trouble| {
            let failure = trouble.failure();
            Failure { message: format!("{} did not acknowledge: {}", self.place, failure.message), ..failure }
        };
        let kept = self.connection.take();
        if let Some(mut stream) = kept {
            match self.exchange(&mut stream, &message, until) {
                Ok(()) => {
                    self.connection = Some(stream);
                    return Ok(Accepted::default());
                }
                // The receiver accepts one message per connection, or was restarted. Reconnect without a
                // pause.
                Err(Trouble::Closed) => {}
                Err(trouble) => return Err(of_receiver(trouble)),
            }
        }
        let (mut stream, keep) = self.connect(until)?;
        self.exchange(&mut stream, &message, until).map_err(of_receiver)?;
        self.connection = keep.then_some(stream);
        Ok(Accepted::default())
    }
}

fn left(until: Instant) -> Result<Duration, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(over()) } else { Ok(left) }
}

/// Returns the parts of a message that begins with `name`.
fn named<'v>(value: &'v Value, name: &str) -> Option<&'v Vec<Value>> {
    value.as_array().filter(|parts| parts.first().and_then(Value::as_str) == Some(name))
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Binary(bytes) => bytes.clone(),
        value => value.as_str().unwrap_or_default().as_bytes().to_vec(),
    }
}

fn write(stream: &mut TcpStream, value: &Value, until: Instant) -> Result<(), Trouble> {
    let mut message = Vec::new();
    rmpv::encode::write_value(&mut message, value).map_err(|error| Failure::lasting(error.to_string()))?;
    let mut rest = &message[..];
    while !rest.is_empty() {
        let time = left(until)?;
        match stream.set_write_timeout(Some(time)).and_then(|()| stream.write(rest)) {
            Ok(0) => return Err(Trouble::Closed),
            Ok(bytes) => rest = &rest[bytes..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads the next value that the receiver sends.
fn answer(stream: &mut TcpStream, until: Instant) -> Result<Value, Trouble> {
    let (mut received, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let time = left(until)?;
        match stream.set_read_timeout(Some(time)).and_then(|()| stream.read(&mut buffer)) {
            Ok(0) => return Err(Trouble::Closed),
            Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        match rmpv::decode::read_value_with_max_depth(&mut &received[..], DEEPEST) {
            Ok(value) => return Ok(value),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && received.len() < MOST_ANSWER => {}
            Err(_) => return Err(Failure::passing("the response is not MessagePack").into()),
        }
    }
}
