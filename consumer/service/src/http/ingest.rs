//! Receives pushed profiles: Pyroscope's `/ingest` and `Push`, and OTLP.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
use prost::Message;

use super::{App, apart, body};
use crate::api_error::ApiError;
use crate::ingest::{self, Limits};
use crate::limits::LARGEST_CHUNKS;

const PROTOBUF: &str = "application/x-protobuf";
const CONNECT: &str = "application/proto";

fn limits() -> Limits {
    Limits { body: LARGEST_CHUNKS, recording: 2 * LARGEST_CHUNKS, ..Limits::default() }
}

impl From<ingest::Error> for ApiError {
    fn from(error: ingest::Error) -> Self {
        Self::new(error.status(), error.to_string())
    }
}

/// Reads a body and processes it. Decoded messages take many times their size, so only a few are processed at
/// the same time.
async fn read_body<T: Send + 'static>(
    app: &App,
    request: Body,
    work: impl FnOnce(&App, Bytes) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let (request, room) = body::large(app, request, LARGEST_CHUNKS).await?;
    let turn = app.messages.clone().acquire_owned().await;
    let turn = turn.map_err(|error| ApiError::internal("process the pushed profile", error))?;
    let app = app.clone();
    apart(move || {
        let _until_it_is_done = (room, turn);
        work(&app, request)
    })
    .await
}

/// Stores a recording in the window of the target with this name and labels.
pub async fn ingest(
    State(app): State<App>,
    uri: Uri,
    headers: HeaderMap,
    request: Body,
) -> Result<StatusCode, ApiError> {
    read_body(&app, request, move |app, request| {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let query = uri.query().unwrap_or_default();
        let got = ingest::ingest(query, kind, request, app.core.utc(), limits())?;
        // An empty profile is not an error.
        got.recording.map_or(Ok(()), |recording| app.core.pushed(&got.app, recording))
    })
    .await?;
    Ok(StatusCode::OK)
}

/// Pyroscope's `Push` over Connect; may contain several profiles.
pub async fn push(State(app): State<App>, headers: HeaderMap, request: Body) -> Result<Response, ApiError> {
    check_encoding(&headers, CONNECT)?;
    read_body(&app, request, move |app, request| {
        let mut taken = ingest::pushed(request, app.core.utc(), limits())?.into_iter();
        taken.try_for_each(|(of, recording)| app.core.pushed(&of, recording))
    })
    .await?;
    // A PushResponse has no fields.
    Ok(([(header::CONTENT_TYPE, CONNECT)], Bytes::new()).into_response())
}

/// OTLP profiles, one target per resource. The response reports rejected profiles.
pub async fn otlp(State(app): State<App>, headers: HeaderMap, request: Body) -> Result<Response, ApiError> {
    check_encoding(&headers, PROTOBUF)?;
    let answer = read_body(&app, request, move |app, request| {
        let (mut rejected, mut any, mut first) = (0, false, None);
        for one in ingest::otlp(request, app.core.utc(), limits())? {
            match app.core.pushed(&one.app, one.recording) {
                Ok(()) => any = true,
                Err(fault) => {
                    rejected += one.profiles;
                    first = first.or(Some(fault));
                }
            }
        }
        match first {
            // Return an error only if nothing was accepted, since the client then resends everything.
            Some(fault) if !any => Err(fault),
            first => Ok(first.map(|fault| ExportProfilesPartialSuccess {
                rejected_profiles: i64::try_from(rejected).unwrap_or(i64::MAX),
                error_message: fault.message,
            })),
        }
    })
    .await?;
    let answer = ExportProfilesServiceResponse { partial_success: answer };
    Ok(([(header::CONTENT_TYPE, PROTOBUF)], answer.encode_to_vec()).into_response())
}

fn check_encoding(headers: &HeaderMap, kind: &str) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let content_type = text(header::CONTENT_TYPE).unwrap_or(kind);
    let packed = text(header::CONTENT_ENCODING).unwrap_or("identity");
    if !content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(kind) {
        let message = format!("Send protobuf with Content-Type {kind}; JSON is not supported.");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    if !matches!(packed, "identity" | "gzip") {
        let message = "Send the body uncompressed, or with Content-Encoding gzip.";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}
