//! Requests for runs, validated.

use serde_json::Value;

use crate::api_error::ApiError;
use crate::limits::{LONGEST_LABEL, MOST_AT_ONCE, MOST_ENGINES, MOST_LABELS};
use crate::settings::Settings;
use crate::wire::{Create, Labels, Mode};

/// A valid request for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// The profiling mode.
    pub mode: Mode,
    /// Duration in seconds.
    pub duration: u64,
    /// Sampling interval.
    pub interval: Option<String>,
    /// Additional engines.
    pub engines: Vec<String>,
    /// Labels of the run.
    pub labels: Labels,
    /// Targets to record, if the request names them.
    pub targets: Vec<String>,
    /// True if the client waits for the result and downloads it immediately. Such a run does not enter the
    /// history.
    pub pulled: bool,
}

impl RunRequest {
    /// Parses and validates a request body.
    ///
    /// # Errors
    /// Returns an error if the body is malformed or a value is out of range.
    pub fn parse(body: &[u8], settings: &Settings) -> Result<Self, ApiError> {
        let create: Create = serde_json::from_slice(body).map_err(|error| {
            ApiError::bad(format!(
                "The body is not a valid request for a run: {error}. Send {{\"mode\":\"CPU\",\"duration\":30}}."
            ))
        })?;
        let Create { mode, duration, interval, engines, labels, targets } = create;
        let Some(mode) = Mode::named(&mode) else {
            let names: Vec<&str> = Mode::ALL.iter().map(|mode| mode.name()).collect();
            return Err(ApiError::bad(format!("Unknown `mode`; choose one of {}.", names.join(", "))));
        };
        let duration = seconds(&duration, settings)?;
        if engines.len() > MOST_ENGINES {
            return Err(ApiError::bad(format!(
                "At most {MOST_ENGINES} `engines` can be recorded at the same time."
            )));
        }
        for word in interval.iter().chain(&engines) {
            check_recorder_word(word)?;
        }
        if targets.len() > MOST_AT_ONCE {
            return Err(ApiError::bad(format!("A request can have at most {MOST_AT_ONCE} `targets`.")));
        }
        check_labels(&labels)?;
        Ok(Self { mode, duration, interval, engines, labels, targets, pulled: false })
    }
}

/// Parses whole seconds in (0, max]. The error message is Flink's.
fn seconds(value: &Value, settings: &Settings) -> Result<u64, ApiError> {
    let max = settings.max_duration.as_secs();
    value
        .as_u64()
        .filter(|&seconds| seconds > 0 && seconds <= max)
        .ok_or_else(|| ApiError::bad(format!("`duration` must be set between (0s, {max}s].")))
}

/// Accepts an engine or interval only if its characters are safe; the recorder's parser validates it.
fn check_recorder_word(word: &str) -> Result<(), ApiError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '.' | '-' | '_' | ':' | '/' | '=');
    if !word.is_empty() && word.len() <= 64 && !word.starts_with('-') && word.chars().all(plain) {
        return Ok(());
    }
    Err(ApiError::bad(
        "Give an `interval` such as 10ms or 512k, and `engines` such as alloc@512k or page-faults@64.",
    ))
}

/// # Errors
/// Returns an error if there are too many labels or one is too long.
pub fn check_labels(labels: &Labels) -> Result<(), ApiError> {
    let too_long = |text: &String| text.chars().count() > LONGEST_LABEL;
    if labels.len() > MOST_LABELS
        || labels.iter().any(|(key, value)| key.is_empty() || too_long(key) || too_long(value))
    {
        return Err(ApiError::bad(format!(
            "At most {MOST_LABELS} `labels` can be given, each of at most {LONGEST_LABEL} letters and with a key."
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<RunRequest, String> {
        RunRequest::parse(body.as_bytes(), &Settings::default()).map_err(|fault| {
            assert_eq!(fault.status, 400);
            fault.message
        })
    }

    #[test]
    fn duration_must_be_whole_seconds_within_limit() {
        for good in ["1", "30", "300"] {
            assert!(parse(&format!(r#"{{"mode":"cpu","duration":{good}}}"#)).is_ok(), "{good}");
        }
        for bad in ["0", "-1", "301", "1.5", "\"x\"", "null", "1e30", "[]", "true"] {
            let said = parse(&format!(r#"{{"mode":"CPU","duration":{bad}}}"#)).unwrap_err();
            assert_eq!(said, "`duration` must be set between (0s, 300s].", "{bad}");
        }
        assert!(parse(r#"{"mode":"CPU"}"#).unwrap_err().contains("duration"));
    }

    #[test]
    fn invalid_run_requests_are_rejected() {
        for bad in [
            r#"{"mode":"HEAP","duration":1}"#,
            r#"{"mode":"CPU","duration":1,"command":"rm"}"#,
            r#"{"mode":"CPU","duration":1,"interval":"-o/etc/passwd"}"#,
            r#"{"mode":"CPU","duration":1,"interval":"10ms;id"}"#,
            r#"{"mode":"CPU","duration":1,"engines":["$(id)"]}"#,
            r#"{"mode":"CPU","duration":1,"engines":[""]}"#,
            r#"{"mode":"CPU","duration":1,"labels":{"":"x"}}"#,
            "",
            "[]",
            "{\"mode\":\"CPU\",\"duration\":1}x",
        ] {
            parse(bad).unwrap_err();
        }
    }

    #[test]
    fn label_values_are_preserved_verbatim() {
        let asked = parse(r#"{"mode":"CPU","duration":1,"labels":{"why":"`;$(id)<b>"}}"#).unwrap();
        assert_eq!(asked.labels["why"], "`;$(id)<b>");
    }
}
