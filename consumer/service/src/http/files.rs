//! What can be had of a run: its recording, and what is made of it.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::Deserialize;

use super::range::{Whole, answer};
use super::{App, Asking, Named, apart, nothing};
use crate::fault::Fault;
use crate::pictures::{self, Format, Outcome, Side, Wanted};
use crate::wire::Run;

/// Another program's names are in it: it gets an origin of its own, and nothing from anywhere.
const PICTURE_POLICY: &str = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'";

/// How something is to be shown.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Showing {
    /// In the page, not as a download.
    #[serde(default)]
    view: Option<u8>,
    /// Which events.
    #[serde(default)]
    event: Option<String>,
}

pub async fn of_run(
    State(app): State<App>,
    Named((run, format)): Named<(String, String)>,
    Asking(showing): Asking<Showing>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    app.core.is_on()?;
    let format = Format::named(&format).ok_or_else(nothing)?;
    download(app, run, format, showing, &headers).await
}

/// A run's recording in a format.
pub async fn download(
    app: App,
    run: String,
    format: Format,
    showing: Showing,
    headers: &HeaderMap,
) -> Result<Response, Fault> {
    let (file, run) = app.core.recording(&run)?;
    let event = showing.event.filter(|event| !event.is_empty());
    let tag = format!("{}-{}-{}", run.id, format.name(), event.as_deref().map_or(String::new(), plain));
    let name = named(&run, format);
    let whole = match format {
        Format::Jfr => Whole::File(file),
        _ => {
            let wanted = wanted(&run, event);
            Whole::Bytes(draw(&app, move |out| pictures::make(format, &[file], &wanted, out)).await?)
        }
    };
    let (builder, body) = answer(whole, &tag, headers)?;
    let disposition = if showing.view == Some(1) { "inline" } else { "attachment" };
    let response = builder
        .header(header::CONTENT_TYPE, format.content_type())
        .header(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY)
        .header(header::CONTENT_DISPOSITION, format!("{disposition}; filename=\"{name}\""));
    response.body(body).map_err(|error| Fault::internal("answer", error))
}

#[derive(Debug, Deserialize)]
pub struct Comparing {
    before: String,
    after: String,
    #[serde(default)]
    event: Option<String>,
}

/// Two runs as one picture of what changed.
pub async fn compared(
    State(app): State<App>,
    Asking(Comparing { before, after, event }): Asking<Comparing>,
) -> Result<Response, Fault> {
    app.core.is_on()?;
    let of = |word: &str| match word.split_once(':') {
        Some(("run", id)) => app.core.recording(id),
        _ => Err(Fault::bad("Say what is compared: ?before=run:ID&after=run:ID.")),
    };
    let ((before, one), (after, other)) = (of(&before)?, of(&after)?);
    let title = format!("{} → {}", titled(&one), titled(&other));
    let wanted = Wanted { title, ..wanted(&other, event) };
    let page = draw(&app, move |out| {
        let of = |recordings| Side { recordings, from_ms: None, to_ms: None };
        pictures::compare(&of(&[before]), &of(&[after]), &wanted, out)
    })
    .await?;
    let response = Response::builder()
        .header(header::CONTENT_TYPE, Format::Html.content_type())
        .header(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY);
    response.body(page.into()).map_err(|error| Fault::internal("answer", error))
}

/// Makes something when its turn has come: only a few are made at once, as each takes a processor and memory.
async fn draw(
    app: &App,
    make: impl FnOnce(&mut Vec<u8>) -> Result<Outcome, pictures::Error> + Send + 'static,
) -> Result<Vec<u8>, Fault> {
    let permit = app.pictures.clone().acquire_owned().await;
    let permit = permit.map_err(|error| Fault::internal("draw", error))?;
    apart(move || {
        let _until_it_is_made = permit;
        let mut out = Vec::new();
        make(&mut out).map_err(|error| Fault::new(error.status(), error.to_string()))?;
        Ok(out)
    })
    .await
}

fn wanted(run: &Run, event: Option<String>) -> Wanted {
    // Off-CPU time is no group of events but a graph.
    let event = event.unwrap_or_else(|| run.mode.event().unwrap_or("offcpu").to_owned());
    Wanted { event: Some(event), title: titled(run), ..Wanted::default() }
}

fn titled(run: &Run) -> String {
    format!("{} ({}) {}", run.target_name, run.target, run.mode.name())
}

/// The name of a download: that of the picture, with the ending of the format.
fn named(run: &Run, format: Format) -> String {
    let stem = run.output_file.strip_suffix(".html").unwrap_or(&run.id);
    format!("{}.{}", plain(stem), format.ending())
}

/// Nothing in it that a header would obey.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .take(200)
        .collect()
}
