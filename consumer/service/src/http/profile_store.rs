//! Queries of the profile store.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{App, files, json};
use crate::api_error::ApiError;
use crate::profile_store::query::{Query, StoreRequest};
use crate::profile_store::{Answer, ProfileStore};
use crate::render::Format;

const TEXT: &str = "text/plain; charset=utf-8";
const CSV: &str = "text/csv; charset=utf-8";

/// Parses a query; returns the store and the query.
fn understood(app: App, query: Option<String>) -> Result<(Arc<ProfileStore>, StoreRequest), ApiError> {
    let store = app
        .store
        .ok_or_else(|| ApiError::missing("The service has no profile store; start it with --store DIR."))?;
    Ok((store, StoreRequest::parse(&query.unwrap_or_default())?))
}

/// Lists all values that can be selected.
pub async fn whole(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let (store, _) = understood(app, query)?;
    Ok(json(StatusCode::OK, &store.whole().await?))
}

/// Lists the values that can be selected within a filter.
pub async fn part(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let (store, StoreRequest { filters: [filter, _], .. }) = understood(app, query)?;
    Ok(json(StatusCode::OK, &store.part(&filter).await?))
}

/// A flame graph.
pub async fn flame(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let (store, StoreRequest { filters: [filter, _], weighing, min, diagnostics, .. }) =
        understood(app, query)?;
    let answer = store.ask(&Query::Flame { filter, weighing, min }).await?;
    page(answer, diagnostics, "flame.html")
}

/// A differential flame graph of two filters.
pub async fn diff(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let (store, StoreRequest { filters: [before, after], weighing, diagnostics, .. }) =
        understood(app, query)?;
    if before == after {
        return Err(ApiError::bad(
            "Both sides are the same; select the second one with b.service, b.label, b.from, …",
        ));
    }
    let answer = store.ask(&Query::Diff { before, after, weighing }).await?;
    page(answer, diagnostics, "difference.html")
}

/// The functions with the most samples.
pub async fn top(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let (store, StoreRequest { filters: [filter, _], weighing, limit, inclusive, diagnostics, .. }) =
        understood(app, query)?;
    let answer = store.ask(&Query::Top { filter, weighing, limit, inclusive }).await?;
    Ok(text(answer, diagnostics, TEXT))
}

/// The functions' share of samples over time.
pub async fn share(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let (store, asked) = understood(app, query)?;
    let StoreRequest { filters: [filter, _], weighing, function, by, every, diagnostics, .. } = asked;
    let function = function.ok_or_else(|| ApiError::bad("Give the functions: function=REGEX."))?;
    let answer = store.ask(&Query::Share { filter, weighing, function, by, every }).await?;
    Ok(text(answer, diagnostics, CSV))
}

/// The SQL behind a flame graph.
pub async fn sql(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let (store, StoreRequest { filters: [filter, _], weighing, min, engine, diagnostics, .. }) =
        understood(app, query)?;
    let answer = store.ask(&Query::Sql { filter, weighing, min, engine }).await?;
    Ok(text(answer, diagnostics, TEXT))
}

fn page(answer: Answer, diagnostics: bool, name: &str) -> Result<Response, ApiError> {
    if diagnostics { Ok(telling(&answer)) } else { files::picture(Format::Html, answer.body, name, true) }
}

fn text(answer: Answer, diagnostics: bool, kind: &'static str) -> Response {
    if diagnostics { telling(&answer) } else { ([(header::CONTENT_TYPE, kind)], answer.body).into_response() }
}

fn telling(answer: &Answer) -> Response {
    json(StatusCode::OK, &serde_json::json!({ "told": *answer.diagnostics, "bytes": answer.body.len() }))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::HeaderMap;
    use http_body_util::BodyExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;
    use tower_service::Service;

    use super::*;
    use crate::clock::Machine;
    use crate::core::Core;
    use crate::profile_store::tests::{Bench, is_alive, until};
    use crate::settings::Settings;

    const ROUTES: [&str; 7] = ["", "/values", "/flame", "/diff", "/top", "/share", "/sql"];

    async fn get(
        settings: Settings,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (StatusCode, HeaderMap, String) {
        let folder = tempfile::tempdir().unwrap();
        let core = Core::open(folder.path(), settings, Arc::new(Machine::default())).unwrap().0;
        let mut router = super::super::router(App::new(core, false, None).unwrap());
        let mut request = Request::get(path);
        for (name, value) in [("host", "localhost")].iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let response = router.call(request.body(Body::empty()).unwrap()).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn without_a_store_there_is_none() {
        for route in ROUTES {
            let (status, _, body) = get(Settings::default(), &format!("/v1/store{route}"), &[]).await;
            assert_eq!(status, 404);
            assert!(body.contains("start it with --store DIR"), "{route}: {body}");
        }
    }

    #[tokio::test]
    async fn unauthorized_requests_start_no_query() {
        let bench = Bench::new("echo >> runs");
        let open = Settings { store: Some(bench.settings.clone()), ..Settings::default() };
        let closed = Settings { token: Some("a token of many letters".into()), ..open.clone() };
        for route in ROUTES {
            let path = format!("/v1/store{route}?service=x&function=x&b.service=y");
            assert_eq!(get(closed.clone(), &path, &[]).await.0, 401, "{route}");
            let (status, ..) = get(closed.clone(), &path, &[("authorization", "Bearer a token")]).await;
            assert_eq!(status, 401, "{route}");
        }
        // A foreign host name.
        let folder = tempfile::tempdir().unwrap();
        let core = Core::open(folder.path(), open.clone(), Arc::new(Machine::default())).unwrap().0;
        let mut router = super::super::router(App::new(core, false, None).unwrap());
        let request = Request::get("/v1/store/flame").header("host", "evil.example").body(Body::empty());
        assert_eq!(router.call(request.unwrap()).await.unwrap().status(), 403);
        for bad in [
            "/store/flame?x=1",
            "/store/diff?service=a&b.service=a",
            "/store/share",
            "/store/flame?from=2&to=1",
        ] {
            assert_eq!(get(open.clone(), bad, &[]).await.0, 400, "{bad}");
        }
        assert_eq!(bench.file("runs"), "");
        let token = ("authorization", "Bearer a token of many letters");
        assert_eq!(get(closed, "/v1/store/top", &[token]).await.0, 200);
        assert_eq!(bench.file("runs"), "\n");
    }

    #[tokio::test]
    async fn pages_are_sandboxed_and_other_answers_are_text() {
        let bench = Bench::new(
            "echo 'flightline: pruned 5 %' >&2; for word; do case $word in --output=*) exec > \"${word#--output=}\";; esac; done; echo '<b>'",
        );
        let settings = Settings { store: Some(bench.settings.clone()), ..Settings::default() };
        for (path, kind) in [
            ("flame?", "text/html; charset=utf-8"),
            ("diff?b.service=x", "text/html; charset=utf-8"),
            ("top?", TEXT),
            ("sql?engine=hive", TEXT),
            ("share?function=x", CSV),
        ] {
            let (status, headers, body) = get(settings.clone(), &format!("/store/{path}"), &[]).await;
            assert_eq!((status.as_u16(), &*body), (200, "<b>\n"), "{path}");
            assert_eq!(
                (&headers["content-type"], &headers["x-content-type-options"]),
                (&kind.parse().unwrap(), &"nosniff".parse().unwrap())
            );
            let policy = headers["content-security-policy"].to_str().unwrap();
            assert_eq!(
                policy.starts_with("sandbox allow-scripts"),
                kind.starts_with("text/html"),
                "{policy}"
            );
            let (_, headers, body) = get(settings.clone(), &format!("/store/{path}&told=1"), &[]).await;
            assert_eq!(
                (&headers["content-type"], &*body),
                (&"application/json".parse().unwrap(), r#"{"bytes":4,"told":["pruned 5 %"]}"#)
            );
        }
    }

    #[tokio::test]
    async fn the_command_ends_when_its_client_goes_away() {
        let bench = Bench::new("echo $$ > pid; exec sleep 1000");
        let settings = Settings { store: Some(bench.settings.clone()), ..Settings::default() };
        let folder = tempfile::tempdir().unwrap();
        let (diagnostics, address) = tokio::sync::oneshot::channel();
        let (end, stop) = tokio::sync::oneshot::channel::<()>();
        let directory = folder.path().to_owned();
        let serving = tokio::spawn(async move {
            let ready = |address, _| diagnostics.send(address).unwrap();
            let stop = async { drop(stop.await) };
            crate::server::serve(
                "127.0.0.1:0".parse().unwrap(),
                &directory,
                settings,
                None,
                None,
                ready,
                stop,
            )
            .await
        });
        let mut client = TcpStream::connect(address.await.unwrap()).await.unwrap();
        client.write_all(b"GET /v1/store/flame HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        until(|| bench.file("pid").ends_with('\n')).await;
        let pid = bench.file("pid");
        assert!(is_alive(pid.trim()));
        drop(client);
        until(|| !is_alive(pid.trim())).await;
        end.send(()).unwrap();
        serving.await.unwrap().unwrap();
    }
}
