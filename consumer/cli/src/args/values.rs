//! Parsers of option values: sizes, times, percentages and pairs.

use std::time::Duration;

use flightline_recorder::settings::units::{bytes, duration};

/// Parses a duration; without a unit in µs, as in bcc's off-CPU tools.
///
/// # Errors
/// Returns an error if the text is not a duration.
pub fn micros(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_micros).or_else(|_| duration(text))
}

/// Parses a duration; without a unit in ms, as in bcc's `fileslower`.
///
/// # Errors
/// Returns an error if the text is not a duration.
pub fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).or_else(|_| duration(text))
}

/// Parses a duration that is suitable as a timeout.
///
/// # Errors
/// Returns an error if the text is not a duration, or not between 100 ms and a day.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    let within = (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&time);
    within.then_some(time).ok_or_else(|| format!("{text} is not between 100ms and 1d"))
}

/// Parses a number of bytes above 0.
///
/// # Errors
/// Returns an error if the text is not a size, or 0.
pub fn size(text: &str) -> Result<u64, String> {
    bytes(text).and_then(|bytes| if bytes > 0 { Ok(bytes) } else { Err("must be more than 0".into()) })
}

/// Parses a percentage, with or without `%`.
///
/// # Errors
/// Returns an error if the text is not a number of at least 0.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    number.filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(|| "give a percentage, such as 5%".into())
}

/// Parses `KEY=VALUE`.
///
/// # Errors
/// Returns an error if there is no key or no `=`.
pub fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    parts.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "give KEY=VALUE".into())
}

/// Parses `on` or `off`.
///
/// # Errors
/// Returns an error if the text is neither.
pub fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("give on or off".to_owned()),
    }
}
