//! Downloads of runs and windows.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;

use super::range::{Whole, answer};
use super::{App, PathParams, QueryParams, apart, nothing};
use crate::api_error::ApiError;
use crate::clock::{self, stamp};
use crate::render::{self, Format, Outcome, RenderOptions, Side, Source};
use crate::wire::{Run, Target};

/// The output contains names from other programs, so it gets an opaque origin and loads nothing.
const PICTURE_POLICY: &str = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'";

/// Default number of timeline steps.
const STEPS: usize = 300;

/// Query parameters of a download.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Showing {
    /// Display inline instead of as a download.
    #[serde(default)]
    view: Option<u8>,
    /// Events to include.
    #[serde(default)]
    event: Option<String>,
}

pub async fn run_file(
    State(app): State<App>,
    PathParams((run, format)): PathParams<(String, String)>,
    QueryParams(showing): QueryParams<Showing>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    app.core.is_on()?;
    let format = Format::named(&format).ok_or_else(nothing)?;
    download(app, run, format, showing, &headers).await
}

/// Returns a run's recording in a format.
pub async fn download(
    app: App,
    run: String,
    format: Format,
    showing: Showing,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let (file, run) = app.core.recording(&run)?;
    let event = showing.event.filter(|event| !event.is_empty());
    let tag = format!("{}-{}-{}", run.id, format.name(), event.as_deref().map_or(String::new(), plain));
    let name = named(&run, format);
    let whole = match format {
        Format::Jfr => Whole::File(file),
        _ => {
            let options = render_options(&run, event);
            Whole::Bytes(draw(&app, move |out| render::make(format, &[file], &options, out)).await?)
        }
    };
    let (builder, body) = answer(whole, &tag, headers)?;
    let disposition = if showing.view == Some(1) { "inline" } else { "attachment" };
    let response = builder
        .header(header::CONTENT_TYPE, format.content_type())
        .header(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY)
        .header(header::CONTENT_DISPOSITION, format!("{disposition}; filename=\"{name}\""));
    response.body(body).map_err(|error| ApiError::internal("answer", error))
}

#[derive(Debug, Deserialize)]
pub struct Steps {
    /// Number of timeline steps.
    steps: Option<usize>,
}

/// Describes a target's window.
pub async fn window(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
    QueryParams(Steps { steps }): QueryParams<Steps>,
) -> Result<Response, ApiError> {
    let kept = apart(move || app.core.window(&target, steps.unwrap_or(STEPS))).await?;
    Ok(super::json(StatusCode::OK, &kept))
}

#[derive(Debug, Deserialize)]
pub struct Interval {
    from: i64,
    to: i64,
    view: Option<u8>,
    event: Option<String>,
}

/// Returns an interval of a window in a format.
pub async fn window_file(
    State(app): State<App>,
    PathParams((target, format)): PathParams<(String, String)>,
    QueryParams(asked): QueryParams<Interval>,
) -> Result<Response, ApiError> {
    let core = app.core.clone();
    let (from, to) = (asked.from, asked.to);
    let (sources, of) = apart(move || core.interval(&target, from, to)).await?;
    let stem = of.id.clone();
    interval(&app, &format, asked, sources, &called(&of), &stem).await
}

#[derive(Debug, Deserialize)]
pub struct LabelledInterval {
    label: String,
    from: i64,
    to: i64,
    view: Option<u8>,
    event: Option<String>,
}

/// Returns an interval of all targets with a label, merged.
pub async fn label_file(
    State(app): State<App>,
    PathParams(format): PathParams<String>,
    QueryParams(asked): QueryParams<LabelledInterval>,
) -> Result<Response, ApiError> {
    let LabelledInterval { label, from, to, view, event } = asked;
    let core = app.core.clone();
    let named = label.clone();
    let together = apart(move || {
        let (key, value) = key_and_value(&named)?;
        core.label_group(key, value, from, to)
    })
    .await?;
    interval(&app, &format, Interval { from, to, view, event }, together.sources, &together.of, &label).await
}

async fn interval(
    app: &App,
    format: &str,
    Interval { from, to, view, event }: Interval,
    sources: Vec<Source>,
    of: &str,
    stem: &str,
) -> Result<Response, ApiError> {
    let format = Format::named(format).ok_or_else(nothing)?;
    let options = RenderOptions {
        event: event.filter(|event| !event.is_empty()),
        title: format!("{of}, {}", clock::interval(from, to)),
        from_ms: Some(from),
        to_ms: Some(to),
        ..RenderOptions::default()
    };
    let made = draw(app, move |out| render::make(format, &sources, &options, out)).await?;
    let name = format!("{stem}_{}_{}.{}", stamp(from), stamp(to), format.ending());
    picture(format, made, &name, view == Some(1))
}

pub(super) fn picture(
    format: Format,
    made: impl Into<Body>,
    name: &str,
    shown: bool,
) -> Result<Response, ApiError> {
    let disposition = if shown { "inline" } else { "attachment" };
    let response = Response::builder()
        .header(header::CONTENT_TYPE, format.content_type())
        .header(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY)
        .header(header::CONTENT_DISPOSITION, format!("{disposition}; filename=\"{}\"", plain(name)));
    response.body(made.into()).map_err(|error| ApiError::internal("answer", error))
}

#[derive(Debug, Deserialize)]
pub struct Comparing {
    before: String,
    after: String,
    #[serde(default)]
    event: Option<String>,
}

/// One side of a comparison.
struct Compared {
    recordings: Vec<Source>,
    range: Option<(i64, i64)>,
    title: String,
    /// Events of the run's mode.
    event: Option<String>,
}

impl Compared {
    fn part(recordings: Vec<Source>, of: &str, from: i64, to: i64) -> Self {
        let title = format!("{of}, {}", clock::interval(from, to));
        Self { recordings, range: Some((from, to)), title, event: None }
    }

    /// Parses `run:ID`, `window:TARGET:FROM:TO` or `windows:KEY=VALUE:FROM:TO`.
    fn resolve(app: &App, word: &str) -> Result<Self, ApiError> {
        let parts: Vec<&str> = word.split(':').collect();
        match parts[..] {
            ["run", id] => {
                app.core.is_on()?;
                let (file, run) = app.core.recording(id)?;
                let event = render_options(&run, None).event;
                Ok(Self { recordings: vec![file], range: None, title: titled(&run), event })
            }
            ["window", target, from, to] => {
                let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { return Err(unclear()) };
                let (recordings, of) = app.core.interval(target, from, to)?;
                Ok(Self::part(recordings, &called(&of), from, to))
            }
            ["windows", ..] => {
                // A label may contain colons.
                let mut ends = word.rsplitn(3, ':');
                let (Some(to), Some(from), Some(rest)) = (ends.next(), ends.next(), ends.next()) else {
                    return Err(unclear());
                };
                let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { return Err(unclear()) };
                let (key, value) = key_and_value(rest.strip_prefix("windows:").ok_or_else(unclear)?)?;
                let together = app.core.label_group(key, value, from, to)?;
                Ok(Self::part(together.sources, &together.of, from, to))
            }
            _ => Err(unclear()),
        }
    }

    fn side(&self) -> Side<'_> {
        let (from_ms, to_ms) = self.range.unzip();
        Side { recordings: &self.recordings, from_ms, to_ms }
    }
}

fn unclear() -> ApiError {
    ApiError::bad(
        "Give two profiles: ?before=run:ID&after=run:ID, or window:TARGET:FROM:TO or windows:KEY=VALUE:FROM:TO with UTC ms.",
    )
}

/// Compares two runs or window intervals in a differential flame graph.
pub async fn compared(
    State(app): State<App>,
    QueryParams(Comparing { before, after, event }): QueryParams<Comparing>,
) -> Result<Response, ApiError> {
    let of = app.clone();
    let [before, after] =
        apart(move || Ok([Compared::resolve(&of, &before)?, Compared::resolve(&of, &after)?])).await?;
    let event =
        event.filter(|event| !event.is_empty()).or_else(|| after.event.clone().or(before.event.clone()));
    let title = format!("{} → {}", before.title, after.title);
    let options = RenderOptions { title, event, ..RenderOptions::default() };
    let page = draw(&app, move |out| render::compare(&before.side(), &after.side(), &options, out)).await?;
    picture(Format::Html, page, "compared.html", true)
}

/// Adds the PID, since other processes may have the same name.
fn called(of: &Target) -> String {
    if of.pid == 0 { of.name.clone() } else { format!("{} ({})", of.name, of.pid) }
}

fn key_and_value(label: &str) -> Result<(&str, &str), ApiError> {
    let parts = label.split_once('=').filter(|(key, _)| !key.is_empty());
    parts.ok_or_else(|| ApiError::bad("Give the label of the targets as KEY=VALUE."))
}

/// Renders output once a permit is available. Each rendering takes a CPU and memory, so only a few run at the
/// same time.
pub(super) async fn draw(
    app: &App,
    make: impl FnOnce(&mut Vec<u8>) -> Result<Outcome, render::Error> + Send + 'static,
) -> Result<Vec<u8>, ApiError> {
    let permit = app.pictures.clone().acquire_owned().await;
    let permit = permit.map_err(|error| ApiError::internal("draw", error))?;
    apart(move || {
        let _until_it_is_made = permit;
        let mut out = Vec::new();
        make(&mut out).map_err(|error| ApiError::new(error.status(), error.to_string()))?;
        Ok(out)
    })
    .await
}

pub(super) fn render_options(run: &Run, event: Option<String>) -> RenderOptions {
    // Off-CPU time is a graph, not a group of events.
    let event = event.unwrap_or_else(|| run.mode.event().unwrap_or("offcpu").to_owned());
    RenderOptions { event: Some(event), title: titled(run), ..RenderOptions::default() }
}

fn titled(run: &Run) -> String {
    format!("{} ({}) {}", run.target_name, run.target, run.mode.name())
}

/// File name of a download: the flame graph's name with the extension of the format.
fn named(run: &Run, format: Format) -> String {
    let stem = run.output_file.strip_suffix(".html").unwrap_or(&run.id);
    format!("{}.{}", plain(stem), format.ending())
}

/// Replaces characters that are special in a header.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .take(200)
        .collect()
}
