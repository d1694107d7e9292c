//! What is asked for with a run, checked.

use serde_json::Value;

use crate::fault::Fault;
use crate::settings::{LONGEST_LABEL, MOST_AT_ONCE, MOST_ENGINES, MOST_LABELS, Settings};
use crate::wire::{Create, Labels, Mode};

/// A run that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What is recorded.
    pub mode: Mode,
    /// For how many seconds.
    pub duration: u64,
    /// How far apart samples are.
    pub interval: Option<String>,
    /// Other engines.
    pub engines: Vec<String>,
    /// What it is told apart by.
    pub labels: Labels,
    /// Which targets, where they are named in it.
    pub targets: Vec<String>,
    /// Who asked waits for it and takes it at once: it is not kept for others.
    pub pulled: bool,
}

impl Asked {
    /// Reads and checks a body.
    ///
    /// # Errors
    /// It is no such request, or asks for what there is not.
    pub fn parse(body: &[u8], settings: &Settings) -> Result<Self, Fault> {
        let create: Create = serde_json::from_slice(body).map_err(|error| {
            Fault::bad(format!(
                "The body is no request for a run, {error}. Send {{\"mode\":\"CPU\",\"duration\":30}}."
            ))
        })?;
        let Create { mode, duration, interval, engines, labels, targets } = create;
        let Some(mode) = Mode::named(&mode) else {
            let names: Vec<&str> = Mode::ALL.iter().map(|mode| mode.name()).collect();
            return Err(Fault::bad(format!("There is no such `mode`; choose one of {}.", names.join(", "))));
        };
        let duration = seconds(&duration, settings)?;
        if engines.len() > MOST_ENGINES {
            return Err(Fault::bad(format!("At most {MOST_ENGINES} `engines` can be recorded at once.")));
        }
        for word in interval.iter().chain(&engines) {
            word_of_recorder(word)?;
        }
        if targets.len() > MOST_AT_ONCE {
            return Err(Fault::bad(format!("At most {MOST_AT_ONCE} `targets` can be asked for at once.")));
        }
        check_labels(&labels)?;
        Ok(Self { mode, duration, interval, engines, labels, targets, pulled: false })
    }
}

/// Whole seconds in (0, max], as Flink wants them and says so.
fn seconds(value: &Value, settings: &Settings) -> Result<u64, Fault> {
    let max = settings.max_duration.as_secs();
    value
        .as_u64()
        .filter(|&seconds| seconds > 0 && seconds <= max)
        .ok_or_else(|| Fault::bad(format!("`duration` must be set between (0s, {max}s].")))
}

/// An engine or interval: letters that mean nothing to anything but the recorder's parser, which has the last word.
fn word_of_recorder(word: &str) -> Result<(), Fault> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '.' | '-' | '_' | ':' | '/' | '=');
    if !word.is_empty() && word.len() <= 64 && !word.starts_with('-') && word.chars().all(plain) {
        return Ok(());
    }
    Err(Fault::bad("An `interval` is like 10ms or 512k, one of `engines` like alloc@512k or page-faults@64."))
}

/// # Errors
/// There are too many, or one is too long.
pub fn check_labels(labels: &Labels) -> Result<(), Fault> {
    let too_long = |text: &String| text.chars().count() > LONGEST_LABEL;
    if labels.len() > MOST_LABELS
        || labels.iter().any(|(key, value)| key.is_empty() || too_long(key) || too_long(value))
    {
        return Err(Fault::bad(format!(
            "At most {MOST_LABELS} `labels` can be given, each of at most {LONGEST_LABEL} letters and with a key."
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<Asked, String> {
        Asked::parse(body.as_bytes(), &Settings::default()).map_err(|fault| {
            assert_eq!(fault.status, 400);
            fault.sentence
        })
    }

    #[test]
    fn durations_are_whole_seconds_up_to_the_longest() {
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
    fn what_is_not_in_the_contract_is_refused() {
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
    fn labels_stay_what_they_are() {
        let asked = parse(r#"{"mode":"CPU","duration":1,"labels":{"why":"`;$(id)<b>"}}"#).unwrap();
        assert_eq!(asked.labels["why"], "`;$(id)<b>");
    }
}
