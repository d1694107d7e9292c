//! The web page's files.

use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::nothing;
use crate::page::{FILES, POLICY};

/// Whether a path is one of the page's.
pub fn is_of_page(path: &str) -> bool {
    find(path).is_some()
}

fn find(path: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    FILES.iter().find(|(name, ..)| *name == path)
}

/// A file of the page, or nothing.
pub async fn file(method: Method, uri: Uri) -> Response {
    if !matches!(method, Method::GET | Method::HEAD) {
        return nothing().into_response();
    }
    match find(uri.path()) {
        Some(&(_, kind, text)) => {
            let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)];
            (StatusCode::OK, headers, text).into_response()
        }
        None => nothing().into_response(),
    }
}
