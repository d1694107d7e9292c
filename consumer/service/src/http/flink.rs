//! Flink's REST paths (FLIP-375, as shipped) for existing scripts and pages. They access the same runs with
//! Flink's terms.

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::files::{Showing, download};
use super::{App, PathParams, json, profiler};
use crate::api_error::ApiError;
use crate::render::Format;
use crate::wire::{History, Run, Status};

pub async fn history(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
) -> Result<Response, ApiError> {
    app.core.is_on()?;
    list(&app, &app.core.meant(&target)?)
}

pub async fn create(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
    body: Body,
) -> Result<Response, ApiError> {
    app.core.is_on()?;
    let target = app.core.meant(&target)?;
    Ok(json(StatusCode::OK, &in_its_words(profiler::begin(&app, target, body).await?)))
}

pub async fn file(
    State(app): State<App>,
    PathParams((target, file)): PathParams<(String, String)>,
) -> Result<Response, ApiError> {
    app.core.is_on()?;
    let target = app.core.meant(&target).map_err(|_| super::nothing())?;
    picture(app, &target, &file).await
}

pub async fn job_manager(State(app): State<App>) -> Result<Response, ApiError> {
    app.core.is_on()?;
    list(&app, &app.core.job_manager()?)
}

pub async fn create_job_manager(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    app.core.is_on()?;
    let target = app.core.job_manager()?;
    Ok(json(StatusCode::OK, &in_its_words(profiler::begin(&app, target, body).await?)))
}

pub async fn job_manager_file(
    State(app): State<App>,
    PathParams(file): PathParams<String>,
) -> Result<Response, ApiError> {
    app.core.is_on()?;
    let target = app.core.job_manager().map_err(|_| super::nothing())?;
    picture(app, &target, &file).await
}

fn list(app: &App, target: &str) -> Result<Response, ApiError> {
    let profiling_list = app.core.history(target)?.into_iter().map(in_its_words).collect();
    Ok(json(StatusCode::OK, &History { profiling_list }))
}

async fn picture(app: App, target: &str, file: &str) -> Result<Response, ApiError> {
    let run = app.core.named(target, file)?;
    download(app, run, Format::Html, Showing::default(), &axum::http::HeaderMap::new()).await
}

/// Flink has no status for cancelled runs: report those with a flame graph as finished.
fn in_its_words(mut run: Run) -> Run {
    if run.status == Status::Cancelled {
        run.status = if run.files.is_empty() { Status::Failed } else { Status::Finished };
    }
    run
}
