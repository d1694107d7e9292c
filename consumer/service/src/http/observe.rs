//! Monitoring: health, Prometheus metrics and the OpenAPI description.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::App;
use crate::api_error::ApiError;
use crate::wire::Status;

/// Responses by status class.
#[derive(Debug, Default)]
pub struct Counts {
    by_class: [AtomicU64; 5],
}

impl Counts {
    /// Counts a response.
    pub fn answered(&self, status: StatusCode) {
        if let Some(class) = self.by_class.get(usize::from(status.as_u16() / 100).wrapping_sub(1)) {
            class.fetch_add(1, Relaxed);
        }
    }
}

/// Liveness.
pub async fn healthy() -> &'static str {
    "ok\n"
}

/// Readiness: the disk has room for a recording.
pub async fn ready(State(app): State<App>) -> Result<&'static str, ApiError> {
    super::apart(move || app.core.has_room()).await?;
    Ok("ok\n")
}

/// Metrics in Prometheus text format.
pub async fn metrics(State(app): State<App>) -> Response {
    let (live, gone) = app.core.census();
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        let _ = writeln!(
            text,
            "# HELP flightline_service_{name} {help}\n# TYPE flightline_service_{name} {kind}"
        );
        for (labels, value) in values {
            let _ = writeln!(text, "flightline_service_{name}{labels} {value}");
        }
    };
    let label = |name: &str, value: &str| format!("{{{name}=\"{value}\"}}");
    let states = [("live", live), ("gone", gone)].map(|(name, count)| (label("state", name), count));
    put("targets", "gauge", "Targets by state, including those that have ended.", &states);
    let runs = app.core.totals();
    let of = |status| (label("status", &format!("{status:?}").to_lowercase()), runs.by_status(status));
    let kept = [Status::Running, Status::Finished, Status::Cancelled, Status::Failed].map(of);
    put("runs", "gauge", "Runs in progress or stored.", &kept);
    put("recording_bytes", "gauge", "Bytes of stored recordings.", &[(String::new(), runs.bytes)]);
    let answered = app.counts.by_class.iter().enumerate();
    let answered: Vec<_> =
        answered.map(|(class, n)| (label("code", &format!("{}xx", class + 1)), n.load(Relaxed))).collect();
    put("answers_total", "counter", "Responses by status class.", &answered);
    let (mut messages, mut waiting) = (Vec::new(), Vec::new());
    for (kind, counts) in app.core.forward().counts() {
        let to = kind.name();
        let of = |result: &str, n| (format!("{{to=\"{to}\",result=\"{result}\"}}"), n);
        messages.extend([
            of("sent", counts.sent),
            of("retried", counts.retries),
            of("failed", counts.failed),
            of("dropped", counts.dropped),
            of("rejected", counts.rejected),
        ]);
        waiting.push((label("to", to), counts.waiting));
    }
    if !waiting.is_empty() {
        put("forwarded_total", "counter", "Results of forwarding to other systems.", &messages);
        put("forward_waiting_bytes", "gauge", "Recordings waiting to be forwarded.", &waiting);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// The OpenAPI 3.1 description.
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json")).into_response()
}
