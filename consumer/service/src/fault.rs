//! Why something is not done, as it goes to a client.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::wire::Errors;

/// A refusal or failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// By HTTP.
    pub status: StatusCode,
    /// A sentence that says what to do.
    pub sentence: String,
}

impl Fault {
    /// Of any kind.
    pub fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    /// What was asked for makes no sense.
    pub fn bad(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }

    /// There is no such thing, or none that may be seen.
    pub fn missing(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, sentence)
    }

    /// Not now.
    pub fn conflict(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, sentence)
    }

    /// It should have worked.
    pub fn internal(doing: &str, error: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot {doing}: {error}"))
    }
}

/// The sentence, beside the answer, for the log.
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
