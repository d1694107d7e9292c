//! Range requests (RFC 9110, section 14).

use std::fs::File;
use std::io::{Seek, SeekFrom};

use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{StatusCode, response};
use axum::response::Response;
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use crate::api_error::ApiError;

/// Content of a response.
#[derive(Debug)]
pub enum Whole {
    /// An open file.
    File(File),
    /// Bytes in memory.
    Bytes(Vec<u8>),
}

/// The requested part of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    From(u64, u64),
    Impossible,
}

/// Creates a response whose content never changes under its `tag`.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn answer(whole: Whole, tag: &str, asked: &HeaderMap) -> Result<(response::Builder, Body), ApiError> {
    let failed = |error: std::io::Error| ApiError::internal("read the file", error);
    let length = match &whole {
        Whole::File(file) => file.metadata().map_err(failed)?.len(),
        Whole::Bytes(bytes) => bytes.len() as u64,
    };
    let tag = format!("\"{tag}\"");
    let builder = Response::builder().header(header::ACCEPT_RANGES, "bytes").header(header::ETAG, &tag);
    let text = |name| asked.get(name).map(HeaderValue::to_str);
    // With a different `If-Range` tag the client must get all of it.
    let same = text(header::IF_RANGE).is_none_or(|wanted| wanted.is_ok_and(|wanted| wanted == tag));
    let part = match text(header::RANGE) {
        Some(Ok(range)) if same => part(range, length),
        _ => Part::All,
    };
    let (from, to, builder) = match part {
        Part::All => (0, length, builder.status(StatusCode::OK)),
        Part::From(from, to) => {
            let range = format!("bytes {from}-{}/{length}", to - 1);
            (from, to, builder.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, range))
        }
        Part::Impossible => {
            let builder = builder.status(StatusCode::RANGE_NOT_SATISFIABLE);
            return Ok((builder.header(header::CONTENT_RANGE, format!("bytes */{length}")), Body::empty()));
        }
    };
    let builder = builder.header(header::CONTENT_LENGTH, to - from);
    let body = match whole {
        Whole::File(mut file) => {
            file.seek(SeekFrom::Start(from)).map_err(failed)?;
            Body::from_stream(ReaderStream::with_capacity(
                tokio::fs::File::from_std(file).take(to - from),
                64 << 10,
            ))
        }
        // A slice of the bytes that are in memory anyway.
        Whole::Bytes(bytes) => Body::from(
            Bytes::from(bytes).slice(usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0)),
        ),
    };
    Ok((builder, body))
}

/// Requests for several ranges get the whole content, as the RFC allows.
fn part(range: &str, length: u64) -> Part {
    let Some((from, to)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Part::All;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (from.trim().is_empty(), number(from), to.trim().is_empty(), number(to)) {
        (true, _, false, Some(0)) => Part::Impossible,
        (true, _, false, Some(last)) if length > 0 => Part::From(length.saturating_sub(last), length),
        (false, Some(from), true, _) if from < length => Part::From(from, length),
        (false, Some(from), false, Some(to)) if from <= to && from < length => {
            Part::From(from, to.min(length - 1) + 1)
        }
        (false, Some(from), _, _) if from >= length => Part::Impossible,
        _ => Part::All,
    }
}

/// Returns start and end if only a part is sent.
#[cfg(feature = "fuzzing")]
pub(crate) fn parse_range(range: &str, length: u64) -> Option<(u64, u64)> {
    match part(range, length) {
        Part::From(from, to) => Some((from, to)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_header_is_parsed_per_rfc_9110() {
        let cases = [
            ("bytes=0-9", Part::From(0, 10)),
            ("bytes=90-200", Part::From(90, 100)),
            ("bytes=99-", Part::From(99, 100)),
            ("bytes=-10", Part::From(90, 100)),
            ("bytes=-200", Part::From(0, 100)),
            ("bytes=100-", Part::Impossible),
            ("bytes=-0", Part::Impossible),
            ("bytes=5-4", Part::All),
            ("bytes=0-1,3-4", Part::All),
            ("bytes=a-b", Part::All),
            ("items=0-1", Part::All),
            ("bytes=0-18446744073709551615", Part::From(0, 100)),
        ];
        for (text, right) in cases {
            assert_eq!(part(text, 100), right, "{text}");
        }
        assert_eq!(part("bytes=-5", 0), Part::All);
    }
}
