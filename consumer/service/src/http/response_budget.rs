//! Limits the memory of response bodies that clients have not read yet.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api_error::ApiError;

/// Unit of the limit, in bytes.
const UNIT: usize = 64 << 10;
/// Limit of all responses together, in units: 256 MiB. Responses of up to one unit do not count.
const MOST: usize = 4096;

/// Creates the semaphore for unread responses.
pub fn budget() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST))
}

/// Passes a response on if there is room for it. Bodies streamed from files need none.
pub async fn bounded(room: &Arc<Semaphore>, response: Response) -> Response {
    let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|&length| length > UNIT) else { return response };
    // A response larger than the limit may pass if no other is pending.
    let units = u32::try_from(length.div_ceil(UNIT).min(MOST)).unwrap_or(u32::MAX);
    let Ok(permit) = Arc::clone(room).try_acquire_many_owned(units) else {
        let message = "Too many responses are waiting to be read by clients; retry later.";
        return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(whole) => {
            let budgeted = BudgetedBody { left: whole.to_bytes(), _room: permit };
            Response::from_parts(parts, Body::new(budgeted))
        }
        Err(error) => ApiError::internal("answer", error).into_response(),
    }
}

/// A body sent in pieces, so that its memory is accounted for until nearly all of it has been written.
struct BudgetedBody {
    left: Bytes,
    _room: OwnedSemaphorePermit,
}

impl HttpBody for BudgetedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let length = self.left.len().min(UNIT);
        let piece = self.left.split_to(length);
        Poll::Ready((length > 0).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn status(room: &Arc<Semaphore>, length: usize) -> (StatusCode, Response) {
        let response = bounded(room, vec![b'x'; length].into_response()).await;
        (response.status(), response)
    }

    #[tokio::test]
    async fn unread_responses_are_limited_and_budget_is_returned() {
        let room = budget();
        let (first, waiting) = status(&room, MOST * UNIT - UNIT).await;
        assert_eq!(first, StatusCode::OK);
        assert_eq!(status(&room, 2 * UNIT).await.0, StatusCode::SERVICE_UNAVAILABLE);
        // Small responses always pass, and so does one of the size that is left.
        assert_eq!(status(&room, UNIT).await.0, StatusCode::OK);
        let mut body = waiting.into_body();
        assert_eq!(body.size_hint().exact(), Some((MOST * UNIT - UNIT) as u64));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), UNIT);
        assert_eq!(room.available_permits(), 1);
        drop(body);
        assert_eq!(room.available_permits(), MOST);
        let (large, response) = status(&room, MOST * UNIT * 2).await;
        assert_eq!(large, StatusCode::OK);
        let whole = response.into_body().collect().await.unwrap().to_bytes();
        assert!(whole.len() == MOST * UNIT * 2 && whole.iter().all(|&byte| byte == b'x'));
    }
}
