//! Bodies of requests, which are bounded in length and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::App;
use crate::fault::Fault;
use crate::settings::SMALL_BODY;

/// Reads a body that is not a recording.
///
/// # Errors
/// It is too long, or does not come.
pub async fn small(body: Body, patience: Duration) -> Result<Bytes, Fault> {
    timeout(patience * 4, whole(body, SMALL_BODY, patience)).await.unwrap_or_else(|_| Err(late()))
}

/// Reads a body of at most `most` bytes, which memory holds while the permit is held: beyond what is small only some do at a time.
///
/// # Errors
/// It is too long, does not come, or too many others do.
pub async fn large(
    app: &App,
    body: Body,
    most: usize,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Fault> {
    let patience = app.core.settings.patience;
    let all = async {
        let mut pieces = Pieces::new(body, patience);
        let (mut whole, mut room) = (BytesMut::new(), None);
        while let Some(piece) = pieces.next().await? {
            if whole.len() + piece.len() > most {
                return Err(too_large(most as u64));
            }
            if room.is_none() && whole.len() + piece.len() > SMALL_BODY {
                let permit = timeout(patience, Arc::clone(&app.bodies).acquire_owned()).await;
                let sentence = "Too many large bodies come at once; try again in a while.";
                let busy = || Fault::new(StatusCode::TOO_MANY_REQUESTS, sentence);
                room = Some(permit.map_err(|_| busy())?.map_err(|_| busy())?);
            }
            whole.extend_from_slice(&piece);
        }
        Ok((whole.freeze(), room))
    };
    // Who sends a letter at a time would hold a place for ever.
    timeout(patience * 4, all).await.unwrap_or_else(|_| Err(late()))
}

async fn whole(body: Body, most: usize, patience: Duration) -> Result<Bytes, Fault> {
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
            match timeout(self.patience, self.body.frame()).await {
                Err(_) => return Err(late()),
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

fn late() -> Fault {
    Fault::new(StatusCode::REQUEST_TIMEOUT, "The body did not come in time.")
}

/// More came than is taken.
pub fn too_large(most: u64) -> Fault {
    Fault::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("The body is too large; {most} bytes are taken at most."),
    )
}
