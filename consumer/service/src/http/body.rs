//! Request bodies, with limits on size and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::App;
use crate::api_error::ApiError;
use crate::limits::SMALL_BODY;

/// Reads a small body, not a recording.
///
/// # Errors
/// Returns an error if the body is too long or arrives too slowly.
pub async fn small(body: Body, client_timeout: Duration) -> Result<Bytes, ApiError> {
    timeout(client_timeout * 4, whole(body, SMALL_BODY, client_timeout)).await.unwrap_or_else(|_| Err(late()))
}

/// Reads a body of at most `most` bytes. The returned permit accounts for its memory; all large bodies
/// together share a limit.
///
/// # Errors
/// Returns an error if the body is too long, arrives too slowly, or there is no room.
pub async fn large(
    app: &App,
    body: Body,
    most: usize,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), ApiError> {
    let client_timeout = app.core.settings.client_timeout;
    let mut pieces = Pieces::new(body, client_timeout);
    let (mut whole, mut room) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
    while let Some(piece) = pieces.next().await? {
        let length = whole.len() + piece.len();
        if length > most {
            return Err(too_large(most as u64));
        }
        // Acquire memory as bytes arrive; an announced length alone must not block other clients.
        let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = (length.saturating_sub(1) / SMALL_BODY).saturating_sub(held);
        if more > 0 {
            let units = u32::try_from(more).unwrap_or(u32::MAX);
            let permit = timeout(client_timeout, Arc::clone(&app.bodies).acquire_many_owned(units)).await;
            let message = "Too many large uploads are in progress; retry later.";
            let busy = || ApiError::new(StatusCode::TOO_MANY_REQUESTS, message);
            let permit = permit.map_err(|_| busy())?.map_err(|_| busy())?;
            match &mut room {
                Some(room) => room.merge(permit),
                None => room = Some(permit),
            }
        }
        whole.extend_from_slice(&piece);
    }
    Ok((whole.freeze(), room))
}

async fn whole(body: Body, most: usize, client_timeout: Duration) -> Result<Bytes, ApiError> {
    let mut pieces = Pieces::new(body, client_timeout);
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await? {
        if whole.len() + piece.len() > most {
            return Err(too_large(most as u64));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// Reads a body piece by piece. Each piece must arrive within `client_timeout`. A client that has begun to send a
/// large body uses shared memory, so it must also keep a minimum rate: one unit per quarter of `client_timeout`,
/// and `SLOWEST` on average.
#[derive(Debug)]
pub struct Pieces {
    body: Body,
    client_timeout: Duration,
    /// Time spent waiting for the client: in total, and since the last full unit. Processing time does not
    /// count.
    waited: [Duration; 2],
    got: u64,
}

/// Bytes that must arrive within a quarter of the client's timeout.
const UNIT: u64 = 64 << 10;
/// Minimum average rate in bytes per second after four times the client's timeout. Agents assume this rate.
const SLOWEST: u64 = 64 << 10;

impl Pieces {
    /// Creates a reader of a body.
    pub fn new(body: Body, client_timeout: Duration) -> Self {
        Self { body, client_timeout, waited: Default::default(), got: 0 }
    }

    /// Returns how much longer to wait for the next piece.
    fn left(&self) -> Duration {
        let [in_all, for_unit] = self.waited;
        let whole = self.client_timeout * 4 + Duration::from_secs(self.got / SLOWEST);
        let left = self.client_timeout.min(whole.saturating_sub(in_all));
        if self.got < UNIT { left } else { left.min((self.client_timeout / 4).saturating_sub(for_unit)) }
    }

    /// Returns the next piece, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if the piece does not arrive in time.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let began = Instant::now();
            let frame = timeout(self.left(), self.body.frame()).await;
            let waited = began.elapsed();
            self.waited.iter_mut().for_each(|sum| *sum += waited);
            match frame {
                Err(_) => return Err(late()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(ApiError::bad("The body was cut off.")),
                Ok(Some(Ok(frame))) => {
                    // Ignore trailers.
                    if let Ok(data) = frame.into_data() {
                        let units = self.got / UNIT;
                        self.got += data.len() as u64;
                        if self.got / UNIT > units {
                            self.waited[1] = Duration::ZERO;
                        }
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

fn late() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "The body was not received in time.")
}

/// The error for a body above `most` bytes.
pub fn too_large(most: u64) -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("The body is too large; the limit is {most} bytes."))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// A body that arrives in pieces of one size, with a delay before each.
    struct Drip {
        size: usize,
        every: Duration,
        left: usize,
        pause: Option<Pin<Box<tokio::time::Sleep>>>,
    }

    impl axum::body::HttpBody for Drip {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            let every = self.every;
            let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(every)));
            std::task::ready!(pause.as_mut().poll(context));
            self.pause = None;
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= 1;
            Poll::Ready(Some(Ok(hyper::body::Frame::data(vec![0; self.size].into()))))
        }
    }

    const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Reads a body; returns the outcome, the bytes received, and the time until then.
    async fn read_slowly(size: usize, every: f64, count: usize) -> (Result<(), u16>, u64, Duration) {
        let drip = Drip { size, every: Duration::from_secs_f64(every), left: count, pause: None };
        let mut pieces = Pieces::new(Body::new(drip), CLIENT_TIMEOUT);
        let began = Instant::now();
        let ended = loop {
            match pieces.next().await {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(fault) => break Err(fault.status.as_u16()),
            }
        };
        (ended, pieces.got, began.elapsed())
    }

    /// Uses tokio's paused clock, which only advances while tasks wait.
    #[tokio::test(start_paused = true)]
    async fn slow_bodies_are_read_and_stalled_ones_time_out() {
        // One byte per second is accepted until four times the client's timeout has passed.
        let (ended, bytes, after) = read_slowly(1, 1.0, 1 << 20).await;
        assert!(ended == Err(408) && bytes <= 120 && after.as_secs() == 120, "{bytes} {after:?}");
        // After a fast start, one byte per second is accepted for a quarter of the client's timeout.
        let drip = async {
            let body = Body::new(Drip { size: 1, every: Duration::from_secs(1), left: 1000, pause: None });
            let mut pieces = Pieces::new(body, CLIENT_TIMEOUT);
            pieces.got = 10 * UNIT;
            let began = Instant::now();
            while pieces.next().await.is_ok_and(|piece| piece.is_some()) {}
            began.elapsed()
        };
        assert_eq!(drip.await.as_millis(), 7500);
        // 16 KiB per second suffices for a whole chunk; it takes 63 s.
        let (ended, bytes, _) = read_slowly(4 << 10, 0.25, 250).await;
        assert!(ended == Ok(()) && bytes == 1_024_000, "{ended:?} {bytes}");
        // The average rate is too low for a longer body.
        let (ended, _, after) = read_slowly(4 << 10, 0.25, 1 << 20).await;
        assert!(ended == Err(408) && after.as_secs() < 200, "{after:?}");
        // The rate that agents assume suffices for any length.
        let (ended, bytes, _) = read_slowly(64 << 10, 1.0, 2048).await;
        assert!(ended == Ok(()) && bytes == 128 << 20, "{ended:?} {bytes}");
    }
}
