//! What other profilers push: Pyroscope's `/ingest`.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};

use super::{App, apart, body};
use crate::fault::Fault;
use crate::ingest::{self, Limits, Profile};
use crate::settings::LARGEST_CHUNKS;

/// Keeps a recording in the window of the target that its name and labels mean, as an agent's.
pub async fn ingest(
    State(app): State<App>,
    uri: Uri,
    headers: HeaderMap,
    request: Body,
) -> Result<StatusCode, Fault> {
    let limits = Limits { body: LARGEST_CHUNKS, recording: 2 * LARGEST_CHUNKS, ..Limits::default() };
    let (request, _room) = body::large(&app, request, limits.body).await?;
    apart(move || {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let got = ingest::ingest(uri.query().unwrap_or_default(), kind, request, app.core.utc(), limits);
        let got = got.map_err(|error| Fault::new(error.status(), error.to_string()))?;
        match got.profile {
            Profile::Jfr(recording) => app.core.pushed(&got.app, recording),
            _ => Err(Fault::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "What is kept by time has times in it: push format=jfr.",
            )),
        }
    })
    .await?;
    Ok(StatusCode::OK)
}
