//! Targets and runs.

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::{App, PathParams, QueryParams, apart, body, json};
use crate::api_error::ApiError;
use crate::core::RunRequest;
use crate::local::Adopt;
use crate::wire::{History, Run, Runs};

#[derive(Debug, Deserialize)]
pub struct Listing {
    /// Include the load of each target.
    load: Option<u8>,
}

pub async fn targets(
    State(app): State<App>,
    QueryParams(Listing { load }): QueryParams<Listing>,
) -> Result<Response, ApiError> {
    let mut targets = app.core.targets();
    targets.local = app.local.is_some();
    if load == Some(1) {
        targets = apart(move || {
            app.core.add_loads(&mut targets);
            Ok(targets)
        })
        .await?;
    }
    Ok(json(StatusCode::OK, &targets))
}

/// Lists local processes that can be adopted.
pub async fn processes(State(app): State<App>) -> Result<Response, ApiError> {
    let local = app.local.ok_or_else(no_local)?;
    let processes = apart(move || Ok(local.processes())).await?;
    Ok(json(StatusCode::OK, &serde_json::json!({ "processes": processes })))
}

pub async fn adopt(State(app): State<App>, request: Body) -> Result<Response, ApiError> {
    let local = app.local.ok_or_else(no_local)?;
    let request = body::small(request, app.core.settings.client_timeout).await?;
    let asked: Adopt = serde_json::from_slice(&request)
        .map_err(|error| ApiError::bad(format!("The body is invalid: {error}. Send {{\"pid\":4711}}.")))?;
    apart(move || local.adopt(&asked)).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

fn no_local() -> ApiError {
    ApiError::missing(
        "Processes of the service's machine are not offered; start it with `flightline serve --local`.",
    )
}

pub async fn target(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
) -> Result<Response, ApiError> {
    Ok(json(StatusCode::OK, &app.core.target(&target)?))
}

pub async fn forget(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
) -> Result<StatusCode, ApiError> {
    apart(move || app.core.forget(&target)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn history(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
) -> Result<Response, ApiError> {
    Ok(json(StatusCode::OK, &History { profiling_list: app.core.history(&target)? }))
}

pub async fn create(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
    request: Body,
) -> Result<Response, ApiError> {
    Ok(json(StatusCode::ACCEPTED, &begin(&app, target, request).await?))
}

/// Starts a run on a target, for all paths that do so.
pub async fn begin(app: &App, target: String, request: Body) -> Result<Run, ApiError> {
    app.core.is_on()?;
    let request = body::small(request, app.core.settings.client_timeout).await?;
    let core = app.core.clone();
    apart(move || {
        let asked = RunRequest::parse(&request, &core.settings)?;
        if !asked.targets.is_empty() {
            return Err(ApiError::bad(
                "The path already names the target; for several targets use POST /v1/runs.",
            ));
        }
        core.create(&target, &asked)
    })
    .await
}

pub async fn create_group(State(app): State<App>, request: Body) -> Result<Response, ApiError> {
    app.core.is_on()?;
    let request = body::small(request, app.core.settings.client_timeout).await?;
    let (group, runs) = apart(move || {
        let asked = RunRequest::parse(&request, &app.core.settings)?;
        app.core.create_group(&asked)
    })
    .await?;
    Ok(json(StatusCode::ACCEPTED, &Runs { group: Some(group), runs }))
}

#[derive(Debug, Deserialize)]
pub struct OfGroup {
    group: Option<String>,
}

pub async fn runs(
    State(app): State<App>,
    QueryParams(of): QueryParams<OfGroup>,
) -> Result<Response, ApiError> {
    Ok(json(StatusCode::OK, &Runs { runs: app.core.all(of.group.as_deref())?, group: of.group }))
}

pub async fn run(State(app): State<App>, PathParams(run): PathParams<String>) -> Result<Response, ApiError> {
    Ok(json(StatusCode::OK, &app.core.run(&run)?))
}

pub async fn cancel(
    State(app): State<App>,
    PathParams(run): PathParams<String>,
) -> Result<Response, ApiError> {
    Ok(json(StatusCode::ACCEPTED, &app.core.cancel(&run)?))
}

pub async fn delete(
    State(app): State<App>,
    PathParams(run): PathParams<String>,
) -> Result<Response, ApiError> {
    let core = app.core.clone();
    let id = run.clone();
    if apart(move || core.delete(&id)).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(json(StatusCode::ACCEPTED, &app.core.run(&run)?))
}
