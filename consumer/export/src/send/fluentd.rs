//! Fluentd's forward protocol, version 1, over TCP: entries packed into one message, which the receiver acknowledges by its id.
//!
//! A message that is not acknowledged is sent again with the same id, which is a hash of its content: receivers may get it twice and can tell.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use rmpv::Value;
use sha2::{Digest, Sha512};

use super::{Accepted, Failure, Request, Settings, Signal, Transport, shown};
use crate::hdps::hex;

/// Most that is read of an answer.
const MOST_ANSWER: usize = 64 << 10;
/// Values within values of an answer.
const DEEPEST: usize = 8;

/// A receiver of the forward protocol.
pub(super) struct Fluentd {
    place: String,
    tag: String,
    key: Option<String>,
    gzip: bool,
    connection: Option<TcpStream>,
}

impl Fluentd {
    pub(super) fn new(place: &str, settings: &Settings) -> Result<Self, String> {
        if settings.tag.is_empty() || settings.tag.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("{:?} is no tag of Fluentd's", settings.tag));
        }
        Ok(Self {
            place: place.to_owned(),
            tag: settings.tag.clone(),
            key: settings.shared_key.clone(),
            gzip: settings.gzip,
            connection: None,
        })
    }

    fn connect(&self, until: Instant) -> Result<TcpStream, Failure> {
        let cannot =
            |error: std::io::Error| Failure::passing(format!("cannot connect to {}: {error}", self.place));
        let mut last = None;
        for address in self.place.to_socket_addrs().map_err(cannot)? {
            match TcpStream::connect_timeout(&address, left(until)?) {
                Ok(mut stream) => {
                    let _ = stream.set_nodelay(true); // a matter of speed
                    if let Some(key) = &self.key {
                        self.introduce(&mut stream, key, until)?;
                    }
                    return Ok(stream);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| Failure::passing(format!("{} has no address", self.place)), cannot))
    }

    /// HELO, PING, PONG: both show that they know the key.
    fn introduce(&self, stream: &mut TcpStream, key: &str, until: Instant) -> Result<(), Failure> {
        let strange = |what: &str| Failure::passing(format!("{}: {what}", self.place));
        let helo = answer(stream, until).map_err(|error| strange(&format!("no HELO: {}", error.message)))?;
        let parts = helo.as_array().filter(|parts| parts.first().and_then(Value::as_str) == Some("HELO"));
        let options = parts.and_then(|parts| parts.get(1)).and_then(Value::as_map);
        let Some(options) = options else { return Err(strange("answers with something else than HELO")) };
        let nonce =
            options.iter().find(|(name, _)| name.as_str() == Some("nonce")).map(|(_, value)| bytes(value));
        let nonce = nonce.unwrap_or_default();
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
        write(stream, &Value::Array(ping.to_vec()), until)?;
        let pong = answer(stream, until).map_err(|error| strange(&format!("no PONG: {}", error.message)))?;
        let Some(parts) =
            pong.as_array().filter(|parts| parts.first().and_then(Value::as_str) == Some("PONG"))
        else {
            return Err(strange("answers with something else than PONG"));
        };
        if parts.get(1).and_then(Value::as_bool) != Some(true) {
            let why = parts.get(2).and_then(Value::as_str).unwrap_or_default();
            return Err(Failure::lasting(format!(
                "{} does not take the shared key: {}",
                self.place,
                shown(why)
            )));
        }
        let theirs = parts.get(3).map(bytes).unwrap_or_default();
        if parts.get(4).map(bytes).unwrap_or_default() != digest(&theirs).into_bytes() {
            return Err(Failure::lasting(format!("{} does not know the shared key itself", self.place)));
        }
        Ok(())
    }

    fn message(&self, request: &Request) -> Result<(Value, String), Failure> {
        let id = hex(&Sha512::digest(&request.body)[..16]);
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
}

impl Transport for Fluentd {
    fn send(&mut self, request: &Request, limit: Duration) -> Result<Accepted, Failure> {
        if request.signal != Signal::Rows {
            return Err(Failure::lasting("Fluentd takes rows only"));
        }
        let until = Instant::now().checked_add(limit).unwrap_or_else(Instant::now);
        let (message, id) = self.message(request)?;
        let mut stream = match self.connection.take() {
            Some(stream) => stream,
            None => self.connect(until)?,
        };
        write(&mut stream, &message, until)?;
        let of_receiver = |failure: Failure| Failure {
            message: format!("{} does not acknowledge: {}", self.place, failure.message),
            ..failure
        };
        let ack = answer(&mut stream, until).map_err(of_receiver)?;
        let told =
            ack.as_map().and_then(|members| members.iter().find(|(name, _)| name.as_str() == Some("ack")));
        if told.map(|(_, value)| bytes(value)).as_deref() != Some(id.as_bytes()) {
            return Err(Failure::passing(format!("{} acknowledges something else", self.place)));
        }
        // Only a connection on which all is well is used again.
        self.connection = Some(stream);
        Ok(Accepted::default())
    }
}

fn left(until: Instant) -> Result<Duration, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Failure::passing("time is over")) } else { Ok(left) }
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Binary(bytes) => bytes.clone(),
        value => value.as_str().unwrap_or_default().as_bytes().to_vec(),
    }
}

fn write(stream: &mut TcpStream, value: &Value, until: Instant) -> Result<(), Failure> {
    let mut message = Vec::new();
    rmpv::encode::write_value(&mut message, value).map_err(|error| Failure::lasting(error.to_string()))?;
    let mut rest = &message[..];
    while !rest.is_empty() {
        let written = stream.set_write_timeout(Some(left(until)?)).and_then(|()| stream.write(rest));
        match written {
            Ok(0) => return Err(Failure::passing("the connection was closed")),
            Ok(bytes) => rest = &rest[bytes..],
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::passing(error.to_string())),
        }
    }
    Ok(())
}

/// The next value that the receiver sends.
fn answer(stream: &mut TcpStream, until: Instant) -> Result<Value, Failure> {
    let (mut received, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let read = stream.set_read_timeout(Some(left(until)?)).and_then(|()| stream.read(&mut buffer));
        match read {
            Ok(0) => return Err(Failure::passing("the connection was closed")),
            Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::passing(error.to_string())),
        }
        match rmpv::decode::read_value_with_max_depth(&mut &received[..], DEEPEST) {
            Ok(value) => return Ok(value),
            Err(error)
                if error.kind() == std::io::ErrorKind::UnexpectedEof && received.len() < MOST_ANSWER => {}
            Err(_) => return Err(Failure::passing("what it answers is no MessagePack")),
        }
    }
}
