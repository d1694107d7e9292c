//! A recording on its way to Pyroscope.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::App;

/// A request to `/ingest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// What stands behind the `?`.
    pub query: String,
    /// Of the body.
    pub content_type: String,
    /// A form with the packed recording.
    pub body: Vec<u8>,
}

/// Makes the request that gives a recording to Pyroscope. Times are UTC ms; Pyroscope knows seconds, so that the interval is a little longer.
/// `rate` is how many samples a second of time there are, which Pyroscope multiplies with.
///
/// # Errors
/// There is no random number to be had.
pub fn push(app: &App, from: i64, until: i64, rate: Option<u32>, jfr: &[u8]) -> io::Result<Push> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    // Nobody can have put it into the recording.
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
