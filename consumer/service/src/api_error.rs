//! Errors that are sent to clients.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::wire::Errors;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// Message that says what to do.
    pub message: String,
}

impl ApiError {
    /// Creates an error with any status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// 400: the request is invalid.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404: the resource does not exist or is not accessible.
    pub fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 409: not possible in the current state.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 500: an operation failed unexpectedly.
    pub fn internal(doing: &str, error: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot {doing}: {error}"))
    }
}

/// The message, attached to the response for the access log.
#[derive(Clone, Debug)]
pub(crate) struct LoggedMessage(pub(crate) std::sync::Arc<str>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let why = LoggedMessage(self.message.as_str().into());
        let body = serde_json::to_vec(&Errors { errors: vec![self.message] }).unwrap_or_default();
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        response.extensions_mut().insert(why);
        response
    }
}
