//! Errors that are sent to clients.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::wire::Errors;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// HTTP status.
    pub status: StatusCode,
    /// Message that says what to do.
    pub sentence: String,
}

impl Fault {
    /// Creates an error with any status.
    pub fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    /// 400: the request is invalid.
    pub fn bad(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }

    /// 404: the resource does not exist or is not accessible.
    pub fn missing(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, sentence)
    }

    /// 409: not possible in the current state.
    pub fn conflict(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, sentence)
    }

    /// 500: an operation failed unexpectedly.
    pub fn internal(doing: &str, error: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot {doing}: {error}"))
    }
}

/// The message, attached to the response for the access log.
#[derive(Clone, Debug)]
pub(crate) struct Why(pub(crate) std::sync::Arc<str>);

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let why = Why(self.sentence.as_str().into());
        let body = serde_json::to_vec(&Errors { errors: vec![self.sentence] }).unwrap_or_default();
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        response.extensions_mut().insert(why);
        response
    }
}
