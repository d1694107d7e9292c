//! Sending to a collector: a bounded queue, a thread that empties it, and patience with what may pass.

mod fluentd;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "http")]
mod http;
mod queue;
mod retry;
mod target;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

pub use queue::{Report, Sender};
pub use target::Target;

/// What a request carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// An `ExportProfilesServiceRequest`.
    Profiles,
    /// An `ExportTraceServiceRequest`.
    Traces,
    /// A recording for Pyroscope's `/ingest`, as it is to be sent.
    Recording(Form),
    /// Events of Fluentd, one behind the other.
    Rows,
}

/// How a recording is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// What stands behind the `?`.
    pub query: String,
    /// Of the body, which is packed already.
    pub content_type: String,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it carries.
    pub signal: Signal,
    /// The encoded message, not compressed; or the body of a recording.
    pub body: Vec<u8>,
    /// Samples or spans in it.
    pub count: u64,
}

/// How patiently to send.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time for one try.
    pub timeout: Duration,
    /// Time for a request with all its tries, from the first one.
    pub patience: Duration,
    /// The first pause between tries; the next ones are twice as long each, up to [`longest_pause`](Self::longest_pause).
    pub first_pause: Duration,
    /// The longest pause, unless the receiver asks for more.
    pub longest_pause: Duration,
    /// Bytes of requests that may wait.
    pub queue: usize,
    /// Headers for each request, as tokens of receivers.
    pub headers: Vec<(String, String)>,
    /// Compress with gzip.
    pub gzip: bool,
    /// Certificates in PEM that the receiver's is to be signed by, instead of those that this machine trusts.
    pub ca_cert: Option<Vec<u8>>,
    /// Do not ask who the receiver is (HTTP only).
    pub insecure: bool,
    /// What Fluentd routes by.
    pub tag: String,
    /// What a Fluentd and its senders show that they know.
    pub shared_key: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            patience: Duration::from_secs(60),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
            queue: 64 << 20,
            headers: Vec::new(),
            gzip: true,
            ca_cert: None,
            insecure: false,
            tag: "flightline".to_owned(),
            shared_key: None,
        }
    }
}

/// What a receiver took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Accepted {
    /// Samples, profiles or spans that it did not want.
    rejected: u64,
    /// Why, or another warning.
    message: String,
}

/// Why a try failed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    message: String,
    /// Another try may succeed.
    passing: bool,
    /// When the receiver wants to be asked again.
    after: Option<Duration>,
}

impl Failure {
    fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), passing: true, after: None }
    }

    fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), passing: false, after: None }
    }
}

/// One way to send.
trait Transport: Send {
    /// Tries once, no longer than `limit`.
    fn send(&mut self, request: &Request, limit: Duration) -> Result<Accepted, Failure>;
}

/// Whether a failure says that a receiver is not who it should be, in rustls' words: another try is no better.
#[cfg(any(feature = "http", feature = "grpc"))]
fn distrusted(message: &str) -> bool {
    message.contains("invalid peer certificate")
}

/// What can be done about that.
#[cfg(any(feature = "http", feature = "grpc"))]
const DISTRUSTED: &str = " (--ca-cert names the file with the certificate it is signed by)";

/// Most of a receiver's message that is passed on.
const MOST_TEXT: usize = 300;

/// A receiver's text, tamed.
fn shown(text: &str) -> String {
    text.chars()
        .take(MOST_TEXT)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .trim()
        .to_owned()
}

/// What an answer says of a request that was taken. The answers for traces and profiles are alike.
fn accepted(body: &[u8]) -> Accepted {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
    use prost::Message;
    let partial = ExportProfilesServiceResponse::decode(body).ok().and_then(|answer| answer.partial_success);
    partial.map_or_else(Accepted::default, |partial| Accepted {
        rejected: u64::try_from(partial.rejected_profiles).unwrap_or(0),
        message: shown(&partial.error_message),
    })
}
