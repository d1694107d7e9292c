//! Access log.

use std::net::SocketAddr;
use std::time::Instant;

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;

use crate::api_error::LoggedMessage;
use crate::log::{Level, Log, Value};

/// The client's address.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Logged properties of a request. Query strings and headers are never logged.
pub struct AccessLog {
    began: Instant,
    method: Method,
    path: String,
    peer: Option<Peer>,
}

impl AccessLog {
    /// Captures a request that begins.
    pub fn new(request: &Request) -> Self {
        Self {
            began: Instant::now(),
            method: request.method().clone(),
            path: request.uri().path().chars().take(256).collect(),
            peer: request.extensions().get::<Peer>().copied(),
        }
    }

    /// Logs the response.
    pub fn write(&self, log: &Log, response: &Response) {
        let status = response.status();
        let reads = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        // Routine requests of agents are logged at debug level; the changes they cause are logged separately.
        let of_agent = self.path.strip_prefix("/v1").unwrap_or(&self.path).starts_with("/agents");
        let level = match status.as_u16() {
            500.. => Level::Error,
            400.. => Level::Warn,
            _ if reads || of_agent => Level::Debug,
            _ => Level::Info,
        };
        if !log.takes(level) {
            return;
        }
        let remote = self.peer.map(|Peer(address)| address.to_string()).unwrap_or_default();
        let took = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut fields: Vec<(&str, Value<'_>)> = vec![
            ("method", self.method.as_str().into()),
            ("path", (&self.path).into()),
            ("status", u64::from(status.as_u16()).into()),
            ("remote", (&remote).into()),
            ("duration_ms", took.into()),
        ];
        for (key, before) in [("target", &["targets", "taskmanagers", "agents"][..]), ("run", &["runs"])] {
            if let Some(value) = named(&self.path, before) {
                fields.push((key, value.into()));
            }
        }
        let why = response.extensions().get::<LoggedMessage>();
        if let Some(LoggedMessage(why)) = why {
            fields.push(("why", (&**why).into()));
        }
        log.write(level, "request", &fields);
    }
}

/// Returns the path segment after one of these.
fn named<'a>(path: &'a str, before: &[&str]) -> Option<&'a str> {
    let mut words = path.split('/');
    words.find(|word| before.contains(word))?;
    words.next().filter(|word| !word.is_empty())
}
