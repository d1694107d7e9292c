//! Bodies of requests, which are bounded in length and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

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

/// Reads a body of at most `most` bytes, which memory holds while the permit is held: of those that are not small there is only so much together.
///
/// # Errors
/// It is too long, does not come, or there is no room.
pub async fn large(
    app: &App,
    body: Body,
    most: usize,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Fault> {
    let patience = app.core.settings.patience;
    let mut pieces = Pieces::new(body, patience);
    let (mut whole, mut room) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
    while let Some(piece) = pieces.next().await? {
        let length = whole.len() + piece.len();
        if length > most {
            return Err(too_large(most as u64));
        }
        // Room is taken as bytes come: what was only announced holds nobody up.
        let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = (length.saturating_sub(1) / SMALL_BODY).saturating_sub(held);
        if more > 0 {
            let units = u32::try_from(more).unwrap_or(u32::MAX);
            let permit = timeout(patience, Arc::clone(&app.bodies).acquire_many_owned(units)).await;
            let sentence = "Too many large bodies come at once; try again in a while.";
            let busy = || Fault::new(StatusCode::TOO_MANY_REQUESTS, sentence);
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

/// A body piece by piece, of which each must come within `patience`; and who has begun to send much must go on with it, since it takes room
/// from others: so many bytes at least in a quarter of that time, and on the whole.
#[derive(Debug)]
pub struct Pieces {
    body: Body,
    patience: Duration,
    /// How long was waited: for all, and since the last unit was full. How long we took ourselves does not count.
    waited: [Duration; 2],
    got: u64,
}

/// What is to come in a quarter of the patience.
const UNIT: u64 = 64 << 10;
/// Bytes a second on the whole, after four times the patience: what agents reckon with.
const SLOWEST: u64 = 64 << 10;

impl Pieces {
    /// Of a body.
    pub fn new(body: Body, patience: Duration) -> Self {
        Self { body, patience, waited: Default::default(), got: 0 }
    }

    /// How much longer the next piece is waited for.
    fn left(&self) -> Duration {
        let [in_all, for_unit] = self.waited;
        let whole = self.patience * 4 + Duration::from_secs(self.got / SLOWEST);
        let left = self.patience.min(whole.saturating_sub(in_all));
        if self.got < UNIT { left } else { left.min((self.patience / 4).saturating_sub(for_unit)) }
    }

    /// The next; `None`: that was all.
    ///
    /// # Errors
    /// It does not come.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            let began = Instant::now();
            let frame = timeout(self.left(), self.body.frame()).await;
            let waited = began.elapsed();
            self.waited.iter_mut().for_each(|sum| *sum += waited);
            match frame {
                Err(_) => return Err(late()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(Fault::bad("The body broke off.")),
                Ok(Some(Ok(frame))) => {
                    // Trailers say nothing to us.
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// Pieces of a size, each some time after the one before.
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

    const PATIENCE: Duration = Duration::from_secs(30);

    /// How many bytes are taken of a body before it is given up, and after how long.
    async fn taken(size: usize, every: f64, count: usize) -> (Result<(), u16>, u64, Duration) {
        let drip = Drip { size, every: Duration::from_secs_f64(every), left: count, pause: None };
        let mut pieces = Pieces::new(Body::new(drip), PATIENCE);
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

    /// The clock of these tests is tokio's, which stands unless somebody waits.
    #[tokio::test(start_paused = true)]
    async fn who_sends_slowly_is_waited_for_and_who_holds_up_is_not() {
        // A byte a second: until four times the patience is over.
        let (ended, bytes, after) = taken(1, 1.0, 1 << 20).await;
        assert!(ended == Err(408) && bytes <= 120 && after.as_secs() == 120, "{bytes} {after:?}");
        // Much at once and then a byte a second: a quarter of it.
        let drip = async {
            let body = Body::new(Drip { size: 1, every: Duration::from_secs(1), left: 1000, pause: None });
            let mut pieces = Pieces::new(body, PATIENCE);
            pieces.got = 10 * UNIT;
            let began = Instant::now();
            while pieces.next().await.is_ok_and(|piece| piece.is_some()) {}
            began.elapsed()
        };
        assert_eq!(drip.await.as_millis(), 7500);
        // A modest line: 16 KiB a second, for a whole chunk; it takes 63 s.
        let (ended, bytes, _) = taken(4 << 10, 0.25, 250).await;
        assert!(ended == Ok(()) && bytes == 1_024_000, "{ended:?} {bytes}");
        // For ever at that pace it is not.
        let (ended, _, after) = taken(4 << 10, 0.25, 1 << 20).await;
        assert!(ended == Err(408) && after.as_secs() < 200, "{after:?}");
        // What agents reckon with goes on for as long as it takes.
        let (ended, bytes, _) = taken(64 << 10, 1.0, 2048).await;
        assert!(ended == Ok(()) && bytes == 128 << 20, "{ended:?} {bytes}");
    }
}
