//! The paths of Go's net/http/pprof, which Parca, Alloy's pyroscope.scrape and `go tool pprof` pull from. A
//! request starts an ordinary run and waits for it.
//!
//! The run ends when the client disconnects.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Response;
use flightline_export::pprof::{Profile, ValueType, write};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::{App, PathParams, QueryParams, apart, files};
use crate::api_error::ApiError;
use crate::core::{Core, RunRequest};
use crate::render;
use crate::wire::Mode;

/// A profile that can be pulled.
struct PulledProfile {
    name: &'static str,
    mode: Mode,
    /// Description in the index.
    what: &'static str,
    /// Name and unit of the values in an empty profile, as `flightline export` writes them.
    value: [&'static str; 2],
}

const TIME: &str = "nanoseconds";
const PROFILES: [PulledProfile; 5] = [
    PulledProfile { name: "profile", mode: Mode::Cpu, what: "CPU time", value: ["cpu", TIME] },
    PulledProfile {
        name: "allocs",
        mode: Mode::Alloc,
        what: "memory that is allocated",
        value: ["alloc_space", "bytes"],
    },
    PulledProfile {
        name: "heap",
        mode: Mode::Live,
        what: "of that, what is not freed again",
        value: ["inuse_space", "bytes"],
    },
    PulledProfile { name: "mutex", mode: Mode::Lock, what: "waits for locks", value: ["lock", TIME] },
    PulledProfile {
        name: "block",
        mode: Mode::Wall,
        what: "all threads, running or not",
        value: ["wall", TIME],
    },
];

/// The same as Go's default, and shorter than the timeout of scrapers.
const CPU_SECONDS: u64 = 30;
const OTHER_SECONDS: u64 = 10;

/// Poll interval for the end of a run.
const LOOK: Duration = Duration::from_millis(100);

/// Returns true if a request with this path starts a run, whatever its method.
pub fn begins_a_run(path: &str) -> bool {
    path.rsplit_once("/debug/pprof/").is_some_and(|(_, name)| !name.is_empty())
}

#[derive(Debug, Deserialize)]
pub struct Pulling {
    seconds: Option<String>,
    target: Option<String>,
}

/// Lists the profiles.
pub async fn index(State(app): State<App>) -> Result<String, ApiError> {
    app.core.is_on()?;
    let target = app.core.only_one()?;
    Ok(listed(&app.core, &target, &format!("?target={target}")))
}

pub async fn target_index(
    State(app): State<App>,
    PathParams(target): PathParams<String>,
) -> Result<String, ApiError> {
    app.core.is_on()?;
    let target = app.core.meant(&target)?;
    Ok(listed(&app.core, &target, ""))
}

fn listed(core: &Core, target: &str, query: &str) -> String {
    let Ok(target) = core.target(target) else { return String::new() };
    let mut text = format!("/debug/pprof/ of {}: each takes ?seconds=N\n", target.id);
    for known in PROFILES {
        let can = target.modes.iter().find(|can| can.mode == known.mode);
        let cannot = can.filter(|can| !can.available).map(|can| format!(" (not here: {})", can.reason));
        text += &format!("{}{query}\t{}{}\n", known.name, known.what, cannot.unwrap_or_default());
    }
    // The reasons come from agents, so remove control characters.
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Pulls a profile of the target in `?target=`, or of the default target.
pub async fn pull(
    State(app): State<App>,
    PathParams(profile): PathParams<String>,
    QueryParams(asked): QueryParams<Pulling>,
) -> Result<Response, ApiError> {
    app.core.is_on()?;
    let target = match &asked.target {
        Some(word) => app.core.meant(word)?,
        None => app.core.only_one()?,
    };
    answer(app, target, &profile, asked.seconds).await
}

/// Pulls a profile of the target in the path.
pub async fn pull_target(
    State(app): State<App>,
    PathParams((target, profile)): PathParams<(String, String)>,
    QueryParams(asked): QueryParams<Pulling>,
) -> Result<Response, ApiError> {
    app.core.is_on()?;
    let target = app.core.meant(&target)?;
    answer(app, target, &profile, asked.seconds).await
}

/// HEAD must not start a recording.
pub async fn no_head() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "Request a profile with GET.")
}

async fn answer(
    app: App,
    target: String,
    profile: &str,
    seconds: Option<String>,
) -> Result<Response, ApiError> {
    let known = PROFILES.iter().find(|known| known.name == profile).ok_or_else(|| {
        let names = PROFILES.map(|known| known.name).join(", ");
        ApiError::missing(format!("Profile not found; the profiles are {names}."))
    })?;
    let usual = if known.mode == Mode::Cpu { CPU_SECONDS } else { OTHER_SECONDS };
    let usual = usual.min(app.core.settings.max_duration.as_secs());
    let duration = match seconds.filter(|text| !text.is_empty()) {
        // Text that is not a number is refused as an invalid duration.
        Some(text) => text.parse().map_or(json!(text), |seconds: u64| json!(seconds)),
        None => json!(usual),
    };
    let body = json!({"mode": known.mode.name(), "duration": duration}).to_string();
    let asked = RunRequest { pulled: true, ..RunRequest::parse(body.as_bytes(), &app.core.settings)? };
    // If the client disconnects, this is dropped and ends the run, even while the run is being created.
    let waiting = apart(move || {
        let run = app.core.create(&target, &asked)?;
        Ok(Waiting { app, run: Some(run.id) })
    })
    .await?;
    let made = waiting.profile(known).await?;
    waiting.done().await;
    Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}.pb.gz\"", known.name))
        .body(made.into())
        .map_err(|error| ApiError::internal("answer", error))
}

/// A profile without samples.
fn without_samples([kind, unit]: [&str; 2]) -> Profile {
    let value = ValueType { r#type: 1, unit: 2 };
    Profile {
        sample_type: vec![value],
        default_sample_type: 1,
        period_type: Some(value),
        string_table: vec![String::new(), kind.to_owned(), unit.to_owned()],
        ..Profile::default()
    }
}

/// A run that a client waits for.
struct Waiting {
    app: App,
    run: Option<String>,
}

impl Waiting {
    async fn profile(&self, known: &PulledProfile) -> Result<Vec<u8>, ApiError> {
        let Some(id) = &self.run else { return Err(ApiError::missing("Run not found.")) };
        let run = loop {
            let run = self.app.core.run(id)?;
            if run.finished_time != 0 {
                break run;
            }
            sleep(LOOK).await;
        };
        if run.files.is_empty() {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, run.message));
        }
        let (file, run) = self.app.core.recording(id)?;
        let options = files::render_options(&run, None);
        let empty = without_samples(known.value);
        files::draw(&self.app, move |out| {
            match render::make(render::Format::Pprof, &[file], &options, out) {
                // For a process that did nothing, return an empty profile, which scrapers accept.
                Err(render::Error::Refused(_)) => {
                    write(&empty, out).map_err(render::Error::Write)?;
                    Ok(render::Outcome::default())
                }
                made => made,
            }
        })
        .await
    }

    /// Deletes the run after it was delivered; the history is for runs that users requested.
    async fn done(mut self) {
        if let Some(run) = self.run.take() {
            let core = self.app.core.clone();
            let _ = apart(move || core.delete(&run)).await;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            // A run that has ended cannot be cancelled; `Core::look` deletes it.
            let _ = self.app.core.cancel(&run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_profile_paths_start_runs() {
        for begins in ["/debug/pprof/profile", "/v1/targets/t/debug/pprof/heap", "/debug/pprof/x"] {
            assert!(begins_a_run(begins), "{begins}");
        }
        for other in ["/debug/pprof/", "/debug/pprof", "/v1/targets", "/v1/targets/t/debug/pprof/", "/"] {
            assert!(!begins_a_run(other), "{other}");
        }
    }
}
