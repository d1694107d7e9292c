//! What profilers that pull ask for, under the paths of Go's net/http/pprof: an ordinary run, which is waited for. Parca, Alloy's
//! pyroscope.scrape and `go tool pprof` know them.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Response;
use flightline_export::pprof::{Profile, ValueType, write};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::{App, Asking, Named, apart, files};
use crate::core::{Asked, Core};
use crate::fault::Fault;
use crate::pictures;
use crate::wire::Mode;

/// A profile that can be pulled.
struct Known {
    name: &'static str,
    mode: Mode,
    /// What it is, beside its name in the index.
    what: &'static str,
    /// What the values of one without samples would be, as `flightline export` calls them.
    value: [&'static str; 2],
}

const TIME: &str = "nanoseconds";
const KNOWN: [Known; 5] = [
    Known { name: "profile", mode: Mode::Cpu, what: "CPU time", value: ["cpu", TIME] },
    Known {
        name: "allocs",
        mode: Mode::Alloc,
        what: "memory that is allocated",
        value: ["alloc_space", "bytes"],
    },
    Known {
        name: "heap",
        mode: Mode::Live,
        what: "of that, what is not freed again",
        value: ["inuse_space", "bytes"],
    },
    Known { name: "mutex", mode: Mode::Lock, what: "waits for locks", value: ["lock", TIME] },
    Known { name: "block", mode: Mode::Wall, what: "all threads, running or not", value: ["wall", TIME] },
];

/// As long as Go's, and short enough for a scraper's patience.
const CPU_SECONDS: u64 = 30;
const OTHER_SECONDS: u64 = 10;

/// How often it is looked whether a run has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Whether a request with this path begins a run, whatever its method.
pub fn begins_a_run(path: &str) -> bool {
    path.rsplit_once("/debug/pprof/").is_some_and(|(_, name)| !name.is_empty())
}

#[derive(Debug, Deserialize)]
pub struct Pulling {
    seconds: Option<String>,
    target: Option<String>,
}

/// What there is.
pub async fn index(State(app): State<App>) -> Result<String, Fault> {
    app.core.is_on()?;
    let target = app.core.only_one()?;
    Ok(listed(&app.core, &target, &format!("?target={target}")))
}

pub async fn index_of(State(app): State<App>, Named(target): Named<String>) -> Result<String, Fault> {
    app.core.is_on()?;
    let target = app.core.meant(&target)?;
    Ok(listed(&app.core, &target, ""))
}

fn listed(core: &Core, target: &str, query: &str) -> String {
    let Ok(target) = core.target(target) else { return String::new() };
    let mut text = format!("/debug/pprof/ of {}: each takes ?seconds=N\n", target.id);
    for known in KNOWN {
        let can = target.modes.iter().find(|can| can.mode == known.mode);
        let cannot = can.filter(|can| !can.available).map(|can| format!(" (not here: {})", can.reason));
        text += &format!("{}{query}\t{}{}\n", known.name, known.what, cannot.unwrap_or_default());
    }
    // Reasons are agents' words.
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Of the target in `?target=`, or of the only one.
pub async fn pull(
    State(app): State<App>,
    Named(profile): Named<String>,
    Asking(asked): Asking<Pulling>,
) -> Result<Response, Fault> {
    app.core.is_on()?;
    let target = match &asked.target {
        Some(word) => app.core.meant(word)?,
        None => app.core.only_one()?,
    };
    answer(app, target, &profile, asked.seconds).await
}

/// Of the target in the path.
pub async fn pull_of(
    State(app): State<App>,
    Named((target, profile)): Named<(String, String)>,
    Asking(asked): Asking<Pulling>,
) -> Result<Response, Fault> {
    app.core.is_on()?;
    let target = app.core.meant(&target)?;
    answer(app, target, &profile, asked.seconds).await
}

/// Asking what it would be like is no reason to record.
pub async fn no_head() -> Fault {
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, "Ask for a profile with GET.")
}

async fn answer(app: App, target: String, profile: &str, seconds: Option<String>) -> Result<Response, Fault> {
    let known = KNOWN.iter().find(|known| known.name == profile).ok_or_else(|| {
        let names = KNOWN.map(|known| known.name).join(", ");
        Fault::missing(format!("There is no such profile; there are {names}."))
    })?;
    let usual = if known.mode == Mode::Cpu { CPU_SECONDS } else { OTHER_SECONDS };
    let usual = usual.min(app.core.settings.max_duration.as_secs());
    let duration = match seconds.filter(|text| !text.is_empty()) {
        // What is no number is refused as any other duration is.
        Some(text) => text.parse().map_or(json!(text), |seconds: u64| json!(seconds)),
        None => json!(usual),
    };
    let body = json!({"mode": known.mode.name(), "duration": duration}).to_string();
    let asked = Asked { pulled: true, ..Asked::parse(body.as_bytes(), &app.core.settings)? };
    // Who goes away before the end drops this, and so ends the run; also while it is being made.
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
        .map_err(|error| Fault::internal("answer", error))
}

/// A profile in which nothing was met.
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

/// A run that somebody waits for.
struct Waiting {
    app: App,
    run: Option<String>,
}

impl Waiting {
    async fn profile(&self, known: &Known) -> Result<Vec<u8>, Fault> {
        let Some(id) = &self.run else { return Err(Fault::missing("There is no such run.")) };
        let run = loop {
            let run = self.app.core.run(id)?;
            if run.finished_time != 0 {
                break run;
            }
            sleep(LOOK).await;
        };
        if run.files.is_empty() {
            return Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, run.message));
        }
        let (file, run) = self.app.core.recording(id)?;
        let wanted = files::wanted(&run, None);
        let empty = without_samples(known.value);
        files::draw(&self.app, move |out| {
            match pictures::make(pictures::Format::Pprof, &[file], &wanted, out) {
                // Of a process that did nothing a scraper takes a profile without samples for what it is.
                Err(pictures::Error::Refused(_)) => {
                    write(&empty, out).map_err(pictures::Error::Write)?;
                    Ok(pictures::Outcome::default())
                }
                made => made,
            }
        })
        .await
    }

    /// It was answered: history is of what people asked for.
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
            // One that has ended cannot be cancelled; `Core::look` removes it.
            let _ = self.app.core.cancel(&run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_profiles_begin_runs() {
        for begins in ["/debug/pprof/profile", "/v1/targets/t/debug/pprof/heap", "/debug/pprof/x"] {
            assert!(begins_a_run(begins), "{begins}");
        }
        for other in ["/debug/pprof/", "/debug/pprof", "/v1/targets", "/v1/targets/t/debug/pprof/", "/"] {
            assert!(!begins_a_run(other), "{other}");
        }
    }
}
