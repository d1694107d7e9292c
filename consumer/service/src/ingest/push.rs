//! Encodes recordings for Pyroscope.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::App;

/// A request to `/ingest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The query string.
    pub query: String,
    /// Content type of the body.
    pub content_type: String,
    /// A form with the compressed recording.
    pub body: Vec<u8>,
}

/// Creates the request that sends a recording to Pyroscope. Times are UTC ms; they are rounded outwards to
/// Pyroscope's whole seconds. `rate` is the number of samples per second, which Pyroscope uses to scale
/// counts.
///
/// # Errors
/// Returns an error if the kernel has no random numbers.
pub fn push(app: &App, from: i64, until: i64, rate: Option<u32>, jfr: &[u8]) -> io::Result<Push> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    // A random boundary cannot occur in the recording.
    let boundary = format!("flightline-{:032x}", u128::from_ne_bytes(random));
    let from = from.div_euclid(1000);
    let until = until.saturating_add(999).div_euclid(1000).max(from + 1);
    let mut query = form_urlencoded::Serializer::new(String::new());
    query
        .append_pair("name", &app.text())
        .append_pair("from", &from.to_string())
        .append_pair("until", &until.to_string())
        .append_pair("format", "jfr")
        .append_pair("spyName", "flightline");
    if let Some(rate) = rate {
        query.append_pair("sampleRate", &rate.to_string());
    }
    let query = query.finish();
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"jfr\"; filename=\"jfr\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let mut gzip = GzEncoder::new(head.into_bytes(), Compression::fast());
    gzip.write_all(jfr)?;
    let mut body = gzip.finish()?;
    write!(body, "\r\n--{boundary}--\r\n")?;
    Ok(Push { query, content_type: format!("multipart/form-data; boundary={boundary}"), body })
}
