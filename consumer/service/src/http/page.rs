//! Serves the web page's files.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::nothing;
use crate::page::{FILES, POLICY};

/// Returns true if the path belongs to the page.
pub fn is_page_path(path: &str) -> bool {
    find(path).is_some()
}

fn find(path: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    FILES.iter().find(|(name, ..)| *name == path)
}

/// Returns a file of the page, or 404.
pub async fn file(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if !matches!(method, Method::GET | Method::HEAD) {
        return nothing().into_response();
    }
    match find(uri.path()) {
        Some(&(_, kind, text)) => {
            // Browsers must revalidate cached files, so that all files come from the same version.
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

/// ETag of a file: a hash of its text.
fn tag(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
