//! Sends requests to a collector: a bounded queue, a thread that empties it, and retries after temporary
//! failures.
//!
//! Each request is accepted by the receiver or counted: as rejected, as failed after all attempts, or
//! as dropped. Files wait for space in the queue, streams never do.

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

/// The content of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// An `ExportProfilesServiceRequest`.
    Profiles,
    /// An `ExportTraceServiceRequest`.
    Traces,
    /// A recording for Pyroscope's `/ingest`, encoded.
    Recording(Form),
    /// Fluentd events, concatenated.
    Rows,
}

/// The query and content type with which a recording is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The URL's query, without the `?`.
    pub query: String,
    /// Content type of the body, which is already encoded.
    pub content_type: String,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Type of the content.
    pub signal: Signal,
    /// The encoded message without compression, or the body of a recording.
    pub body: Vec<u8>,
    /// Number of samples or spans in it.
    pub count: u64,
}

/// Settings for timeouts, retries, the queue and authentication.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Time limit for a request with all retries, from the first attempt.
    pub patience: Duration,
    /// The first pause between attempts. Each further pause is twice as long, up to
    /// [`longest_pause`](Self::longest_pause).
    pub first_pause: Duration,
    /// The longest pause, unless the receiver requests a longer one.
    pub longest_pause: Duration,
    /// Bytes of requests that may wait in the queue.
    pub queue: usize,
    /// Headers added to each request, such as tokens.
    pub headers: Vec<(String, String)>,
    /// Compress with gzip.
    pub gzip: bool,
    /// CA certificates in PEM that must have signed the receiver's certificate. They replace those that
    /// this machine trusts.
    pub ca_cert: Option<Vec<u8>>,
    /// Do not verify the receiver's certificate (HTTP only).
    pub insecure: bool,
    /// Tag by which Fluentd routes events.
    pub tag: String,
    /// Key shared by a Fluentd and its senders.
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

/// The response to a successful request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Accepted {
    /// Samples, profiles or spans that the receiver rejected.
    rejected: u64,
    /// The reason, or another warning.
    message: String,
}

/// The reason why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    message: String,
    /// True if a retry may succeed.
    passing: bool,
    /// The pause that the receiver requests.
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

/// A protocol for sending.
trait Transport: Send {
    /// Makes one attempt, which takes at most `limit`.
    fn send(&mut self, request: &Request, limit: Duration) -> Result<Accepted, Failure>;
}

/// Returns true if rustls rejected the receiver's certificate; a retry cannot help.
#[cfg(any(feature = "http", feature = "grpc"))]
fn distrusted(message: &str) -> bool {
    message.contains("invalid peer certificate")
}

/// The hint for this failure.
#[cfg(any(feature = "http", feature = "grpc"))]
const DISTRUSTED: &str = " (give the certificate of its authority with --ca-cert)";

/// Characters of a receiver's message that are shown.
const MOST_TEXT: usize = 300;

/// Returns a receiver's message, shortened and without control characters.
fn shown(text: &str) -> String {
    text.chars()
        .take(MOST_TEXT)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Decodes the response to a successful request. The responses for traces and profiles have the same
/// encoding.
fn accepted(body: &[u8]) -> Accepted {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
    use prost::Message;
    let partial = ExportProfilesServiceResponse::decode(body).ok().and_then(|answer| answer.partial_success);
    partial.map_or_else(Accepted::default, |partial| Accepted {
        rejected: u64::try_from(partial.rejected_profiles).unwrap_or(0),
        message: shown(&partial.error_message),
    })
}
