//! The web page's files.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
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
pub async fn file(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if !matches!(method, Method::GET | Method::HEAD) {
        return nothing().into_response();
    }
    match find(uri.path()) {
        Some(&(_, kind, text)) => {
            // Kept, but asked about each time: all of them are of one version, whichever was seen before.
            let tag = tag(text);
            let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
            let same = known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
            let headers = [
                (header::CONTENT_TYPE, kind),
                (header::CONTENT_SECURITY_POLICY, POLICY),
                (header::CACHE_CONTROL, "no-cache"),
                (header::ETAG, &tag),
            ];
            if same {
                return (StatusCode::NOT_MODIFIED, headers).into_response();
            }
            (StatusCode::OK, headers, text).into_response()
        }
        None => nothing().into_response(),
    }
}

/// Another text has another one.
fn tag(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
