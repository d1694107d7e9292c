//! OTLP over HTTP/1.1, with compressed protobuf.

use std::io::Write;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use ureq::Agent;
use ureq::Body;
use ureq::http::Response;

use super::{
    Accepted, DISTRUSTED, Failure, Request, Settings, Signal, Target, Transport, accepted, distrusted, shown,
};

/// Bytes of a response that are read at most.
const MOST_ANSWER: u64 = 64 << 10;

/// An HTTP receiver.
pub(super) struct Http {
    agent: Agent,
    base: String,
    name: String,
    headers: Vec<(String, String)>,
    gzip: bool,
}

impl Http {
    pub(super) fn new(target: &Target, settings: &Settings) -> Result<Self, String> {
        for (name, value) in &settings.headers {
            let fits = ureq::http::HeaderName::try_from(name).is_ok()
                && ureq::http::HeaderValue::try_from(value).is_ok();
            if !fits {
                return Err(format!("{name:?} cannot be sent as a header"));
            }
        }
        // No redirects: a token must be sent only to the receiver that the user named.
        let config = Agent::config_builder().http_status_as_error(false).max_redirects(0);
        #[cfg(feature = "tls")]
        let config = match target.is_encrypted() {
            true => config.tls_config(super::tls::http_config(settings)?),
            false => config,
        };
        let config = config.build();
        Ok(Self {
            agent: config.into(),
            base: target.url(),
            name: target.to_string(),
            headers: settings.headers.clone(),
            gzip: settings.gzip,
        })
    }

    fn answer(&self, mut response: Response<Body>, is_recording: bool) -> Result<Accepted, Failure> {
        let status = response.status().as_u16();
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| pause(text, SystemTime::now()));
        let protobuf = response
            .headers()
            .get("content-type")
            .is_some_and(|value| value.as_bytes().starts_with(b"application/x-protobuf"));
        let body = response.body_mut().with_config().limit(MOST_ANSWER).read_to_vec();
        if (200..300).contains(&status) {
            // A success response with a broken body is still a success.
            return Ok(body.map_or_else(
                |_| Accepted::default(),
                |body| if protobuf { accepted(&body) } else { Accepted::default() },
            ));
        }
        let body = body.unwrap_or_default();
        let text = match protobuf {
            true => Status::decode(&*body).unwrap_or_default().message,
            false => String::from_utf8_lossy(&body).into_owned(),
        };
        let (name, text) = (&self.name, shown(&text));
        let hint = match status {
            404 if is_recording => ": it is not a Pyroscope server, or has another path",
            404 => {
                ": the receiver does not support this data (a Collector needs the feature gate \
                 service.profilesSupport and a pipeline for profiles)"
            }
            413 => ": the message is too large for it",
            401 | 403 if is_recording => ": give its token, with a file of headers",
            401 | 403 => ": give its token with --header",
            _ => "",
        };
        let message =
            format!("{name} returned {status}{hint}{}{text}", if text.is_empty() { "" } else { ": " });
        // Pyroscope does not state which of its failures are permanent.
        let passing = matches!(status, 429 | 502 | 503 | 504) || is_recording && status >= 500;
        Err(Failure { message, passing, after })
    }
}

impl Transport for Http {
    fn send(&mut self, request: &Request, limit: Duration) -> Result<Accepted, Failure> {
        let (path, kind) = match &request.signal {
            Signal::Profiles => ("v1development/profiles".to_owned(), "application/x-protobuf"),
            Signal::Traces => ("v1/traces".to_owned(), "application/x-protobuf"),
            Signal::Recording(form) => (format!("ingest?{}", form.query), form.content_type.as_str()),
            Signal::Rows => return Err(Failure::lasting("rows go to fluentd:// only")),
        };
        let is_recording = matches!(request.signal, Signal::Recording(_));
        let mut call = self
            .agent
            .post(format!("{}/{path}", self.base))
            .config()
            .timeout_global(Some(limit))
            .build()
            .header("content-type", kind);
        for (name, value) in &self.headers {
            call = call.header(name, value);
        }
        let response = if self.gzip && !is_recording {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            let body = gzip.write_all(&request.body).and_then(|()| gzip.finish());
            let body = body.map_err(|error| Failure::lasting(error.to_string()))?;
            call.header("content-encoding", "gzip").send(&body)
        } else {
            call.send(&request.body)
        };
        let passing = |error: &ureq::Error| {
            !matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::RequireHttpsOnly(_))
        };
        match response {
            Ok(response) => self.answer(response, is_recording),
            // Any network error may be temporary.
            Err(error) => {
                let message = format!("{}: {error}", self.name);
                match distrusted(&message) {
                    true => Err(Failure::lasting(message + DISTRUSTED)),
                    false => Err(Failure { message, passing: passing(&error), after: None }),
                }
            }
        }
    }
}

/// Parses `Retry-After`: seconds, or a date. A date in the past gives a pause of 0.
fn pause(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let seconds = text.parse().ok().map(Duration::from_secs);
    let until = || httpdate::parse_http_date(text).ok();
    seconds.or_else(|| until().map(|date| date.duration_since(now).unwrap_or_default()))
}

/// The fields of `google.rpc.Status` that are used.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_parsed_as_seconds_or_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let seconds = |text: &str| pause(text, now).map(|pause| pause.as_secs());
        assert_eq!(seconds(" 120 "), Some(120));
        // The three forms of RFC 9110.
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun Nov  6 08:50:37 1994"), Some(60));
        // A date in the past means "immediately".
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:36 GMT"), Some(0));
        for wrong in ["", "soon", "-1", "Sun, 06 Nov 1994 08:50:37", "1.5"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
