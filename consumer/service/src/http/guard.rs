//! Access control, and security headers of all responses.

use std::net::IpAddr;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::access_log::AccessLog;
use super::{App, body, page, pprof, response_budget};
use crate::api_error::ApiError;
use crate::id;

/// Cookie of a browser session that has presented the token.
const COOKIE: &str = "flightline";

/// Checks host, origin and token before the request is processed.
pub async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let access = AccessLog::new(&request);
    let mut response = match checked(&app, &request) {
        Ok(()) => response_budget::bounded(&app.answers, next.run(request).await).await,
        Err(fault) => fault.into_response(),
    };
    app.counts.answered(response.status());
    access.write(&app.core.settings.log, &response);
    let headers = response.headers_mut();
    let always = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in always {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    response
}

fn checked(app: &App, request: &Request) -> Result<(), ApiError> {
    let (headers, uri, method) = (request.headers(), request.uri(), request.method());
    let host = host(headers, uri).unwrap_or_default();
    // With a token, any host name is accepted. Without one, refuse foreign host names to prevent DNS
    // rebinding.
    if app.core.settings.token.is_none() && !is_ours(&host, &app.core.settings.hosts) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "Unknown host name of this service; use its address, or start it with --host NAME.",
        ));
    }
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let safe = reads && !pprof::begins_a_run(uri.path());
    if !safe && comes_from_elsewhere(headers, &host) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "Cross-site request refused; only pages of this service may send requests.",
        ));
    }
    let Some(token) = &app.core.settings.token else { return Ok(()) };
    if is_open(uri.path()) {
        return Ok(());
    }
    if let Some(agent_token) = app.core.settings.agent_token.as_ref().filter(|_| is_sender_path(uri.path())) {
        if says(headers, agent_token) {
            return Ok(());
        }
        return Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "Authentication required: send the agents' token as `Authorization: Bearer TOKEN`.",
        ));
    }
    if says(headers, token) || has_session(headers, &app.session) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNAUTHORIZED,
        "Authentication required: send `Authorization: Bearer TOKEN`.",
    ))
}

/// Returns true for the paths of agents and those to which programs push profiles.
fn is_sender_path(path: &str) -> bool {
    let path = path.strip_prefix("/v1/").or_else(|| path.strip_prefix('/')).unwrap_or(path);
    matches!(path, "agents" | "ingest" | "v1development/profiles" | "push.v1.PusherService/Push")
        || path.starts_with("agents/")
}

fn host(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    host.or_else(|| uri.authority().map(|authority| authority.as_str())).map(str::to_ascii_lowercase)
}

/// Returns true for loopback addresses, `localhost` and the configured host names.
fn is_ours(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost"
        || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

fn comes_from_elsewhere(headers: &HeaderMap, host: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let foreign = |origin: &str| {
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        authority.is_empty() || !authority.eq_ignore_ascii_case(host)
    };
    text("origin").is_some_and(foreign)
        || text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

/// Returns true for paths that need no token: health checks and the page with the login form.
fn is_open(path: &str) -> bool {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    matches!(path, "/healthz" | "/readyz" | "/session") || page::is_page_path(path)
}

fn says(headers: &HeaderMap, token: &str) -> bool {
    let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer =
        said.and_then(|said| said.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
    bearer.is_some_and(|(_, said)| id::same(said.trim(), token))
}

fn has_session(headers: &HeaderMap, session: &str) -> bool {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.any(|(name, value)| name == COOKIE && id::same(value, session))
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

/// Exchanges a token for a session cookie, so that a browser can load flame graphs.
pub async fn log_in(State(app): State<App>, request: Body) -> Result<Response, ApiError> {
    let said = body::small(request, app.core.settings.client_timeout).await?;
    let said: Token = serde_json::from_slice(&said).map_err(|_| ApiError::bad("Send {\"token\":\"…\"}."))?;
    let right = app.core.settings.token.as_ref().is_none_or(|token| id::same(&said.token, token));
    if !right {
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "Wrong token."));
    }
    let secure = if app.tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/{secure}", app.session);
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_and_configured_host_names_are_accepted() {
        for own in [
            "localhost",
            "localhost:7070",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:7070",
            "[::1]",
            "Prof.example:80",
        ] {
            assert!(is_ours(&own.to_ascii_lowercase(), &["prof.example".into()]), "{own}");
        }
        for other in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:7070",
            "10.0.0.1",
            "[::2]:1",
            "[",
            "]",
        ] {
            assert!(!is_ours(other, &[]), "{other}");
        }
    }

    #[test]
    fn sender_paths_are_known() {
        for path in [
            "/agents",
            "/v1/agents/abc/commands",
            "/agents/abc/gone",
            "/v1/ingest",
            "/v1development/profiles",
        ] {
            assert!(is_sender_path(path), "{path}");
        }
        for path in ["/", "/targets", "/v1/targets/agents/runs", "/agentsx", "/v1/runs", "/v1"] {
            assert!(!is_sender_path(path), "{path}");
        }
    }

    #[test]
    fn cross_origin_requests_are_detected() {
        let from = |name: &str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            comes_from_elsewhere(&headers, "localhost:7070")
        };
        for other in [
            "null",
            "",
            "http://localhost",
            "http://localhost:7071",
            "https://evil.example",
            "http://localhost:7070.evil",
        ] {
            assert!(from("origin", other), "{other}");
        }
        assert!(from("sec-fetch-site", "cross-site"));
        assert!(from("sec-fetch-site", "same-site"));
        assert!(!from("origin", "http://localhost:7070"));
        assert!(!from("sec-fetch-site", "same-origin"));
        assert!(!comes_from_elsewhere(&HeaderMap::new(), "localhost:7070"));
    }
}
