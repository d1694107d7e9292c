//! Bodies of requests, which are bounded in length and time.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use crate::fault::Fault;
use crate::settings::SMALL_BODY;

/// Reads a body that is not a recording.
///
/// # Errors
/// It is too long, or does not come.
pub async fn small(body: Body, patience: Duration) -> Result<Bytes, Fault> {
    whole(body, SMALL_BODY, patience).await
}

/// Reads a body of at most so many bytes.
///
/// # Errors
/// It is too long, or does not come.
pub async fn whole(body: Body, most: usize, patience: Duration) -> Result<Bytes, Fault> {
    let mut pieces = Pieces::new(body, patience);
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await? {
        if whole.len() + piece.len() > most {
            return Err(too_large(most as u64));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// A body piece by piece.
#[derive(Debug)]
pub struct Pieces {
    body: Body,
    patience: Duration,
}

impl Pieces {
    /// Of a body; each piece must come within `patience`.
    pub fn new(body: Body, patience: Duration) -> Self {
        Self { body, patience }
    }

    /// The next; `None`: that was all.
    ///
    /// # Errors
    /// It does not come.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            match tokio::time::timeout(self.patience, self.body.frame()).await {
                Err(_) => {
                    return Err(Fault::new(StatusCode::REQUEST_TIMEOUT, "The body did not come in time."));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(Fault::bad("The body broke off.")),
                Ok(Some(Ok(frame))) => {
                    // Trailers say nothing to us.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// More came than is taken.
pub fn too_large(most: u64) -> Fault {
    Fault::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("The body is too large; {most} bytes are taken at most."),
    )
}
