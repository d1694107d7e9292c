//! Requests of agents.

use std::io::Write;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;

use super::body::{Pieces, large, small, too_large};
use super::{App, PathParams, QueryParams, apart, json};
use crate::api_error::ApiError;
use crate::core::Delivered;
use crate::limits::LARGEST_CHUNKS;
use crate::render;
use crate::wire::{AGENT_HEADER, Gone, Hello, Progress};

pub async fn hello(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let body = small(body, app.core.settings.client_timeout).await?;
    let hello: Hello = parse_json(&body)?;
    let before = headers.get(AGENT_HEADER).and_then(|value| value.to_str().ok());
    Ok(json(StatusCode::OK, &app.core.hello(hello, before)?))
}

#[derive(Debug, Deserialize)]
pub struct After {
    #[serde(default)]
    after: u64,
}

/// Long poll: answers as soon as there is a command, or after a heartbeat.
pub async fn commands(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
    QueryParams(After { after }): QueryParams<After>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let secret = secret(&headers);
    let (_, wake) = app.core.commands(&target, secret, after)?;
    let mut woken = std::pin::pin!(wake.notified());
    // Commands queued from here on wake this task; earlier ones are in the list.
    woken.as_mut().enable();
    let (commands, _) = app.core.commands(&target, secret, after)?;
    if !commands.commands.is_empty() {
        return Ok(json(StatusCode::OK, &commands));
    }
    // Slightly less than a heartbeat, so that the agent polls again in time.
    let wait = app
        .core
        .settings
        .heartbeat
        .saturating_sub(Duration::from_millis(500))
        .max(Duration::from_millis(200));
    let _ = tokio::time::timeout(wait, woken).await;
    Ok(json(StatusCode::OK, &app.core.commands(&target, secret, after)?.0))
}

pub async fn progress(
    State(app): State<App>,
    PathParams((target, run)): PathParams<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let body = small(body, app.core.settings.client_timeout).await?;
    let progress: Progress = parse_json(&body)?;
    let secret = secret(&headers).to_owned();
    apart(move || app.core.progress(&target, &secret, &run, progress)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn gone(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let body = small(body, app.core.settings.client_timeout).await?;
    let Gone { message } = parse_json(&body)?;
    let secret = secret(&headers).to_owned();
    apart(move || app.core.gone(&target, &secret, &message)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Receives chunks of a continuous profile.
pub async fn chunks(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let secret = secret(&headers).to_owned();
    app.core.heard(&target, &secret)?;
    let (chunks, room) = large(&app, body, LARGEST_CHUNKS).await?;
    let turn = app.keeping.clone().acquire_owned().await;
    let turn = turn.map_err(|error| ApiError::internal("store the chunks", error))?;
    apart(move || {
        // Held until the chunks are stored, even if the client disconnects.
        let _until_it_is_kept = (room, turn);
        app.core.put(&target, &secret, chunks)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub struct WithMessage {
    #[serde(default)]
    message: String,
    /// How the process ended, if that is why the recording is short.
    #[serde(default)]
    ended: String,
}

/// Streams an uploaded recording to disk, then validates it.
pub async fn recording(
    State(app): State<App>,
    PathParams((target, run)): PathParams<(String, String)>,
    QueryParams(WithMessage { message, ended }): QueryParams<WithMessage>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let most = app.core.settings.max_recording;
    let (core, secret) = (app.core.clone(), secret(&headers).to_owned());
    let mut delivery = apart(move || core.deliver(&target, &secret, &run)).await?;
    let mut pieces = Pieces::new(body, app.core.settings.client_timeout);
    let mut bytes = 0u64;
    while let Some(piece) = pieces.next().await? {
        bytes = bytes.saturating_add(piece.len() as u64);
        if bytes > most {
            let fault = too_large(most);
            let why = format!(
                "The recording is larger than {most} bytes; record for a shorter time, or raise --max-recording."
            );
            apart(move || Ok(delivery.refuse(&why))).await?;
            return Err(fault);
        }
        delivery = apart(move || {
            if !delivery.goes_on() {
                return Err(ApiError::conflict("This run has ended; no more data is accepted."));
            }
            let written = delivery.file().and_then(|file| file.write_all(&piece));
            written.map_err(|error| ApiError::internal("write the recording", error))?;
            Ok(delivery)
        })
        .await?;
    }
    apart(move || {
        let file = delivery.file().and_then(|file| file.try_clone());
        let file = file.map_err(|error| ApiError::internal("read the recording", error))?;
        match render::check(&file) {
            Ok(checked) => delivery.complete(Delivered { bytes, events: checked.offered(), message, ended }),
            Err(flaw) => {
                let why = format!("The agent sent an incomplete recording: {}.", flaw.flaw());
                Err(delivery.refuse(&why))
            }
        }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn parse_json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad(format!("The body is invalid: {error}.")))
}

fn secret(headers: &HeaderMap) -> &str {
    headers.get(AGENT_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
