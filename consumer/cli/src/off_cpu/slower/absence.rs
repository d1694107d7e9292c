//! Explains why a recording has no slow calls: they were not recorded, or none exceeded the threshold.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flightline_consumer::live::{self, Event, Feed, Item, Loss, Value};
use flightline_consumer::slow::EVENTS;
use jfr_format::read;

use crate::input::{
    self,
    event_reader::{self, Taker},
};
use crate::{diagnostics, output};

/// Event types that Flightline declares only if calls or block requests are recorded.
const DECLARED: [&str; 2] = ["flightline.SocketConnect", "flightline.BlockIo"];
/// Event names in counts of short or lost calls.
const NAMES: [&str; 3] = ["io", "syscall-io", "block-io"];
/// Maximum number of options to report.
const MOST: usize = 6;

/// Returns true if calls or requests were lost.
pub fn is_call_loss(loss: &Loss) -> bool {
    let named = |of: &str| {
        NAMES.contains(&of) || of.starts_with("kernel-io: ") || EVENTS.iter().any(|(name, ..)| *name == of)
    };
    loss.event_type.as_deref().is_some_and(named)
}

/// Returns why there are no calls although they were recorded; `None` if the recordings do not show that they
/// were.
pub fn explain_absence(paths: &[PathBuf], lost: u64) -> Result<Option<String>> {
    let mut calls = RecordedCalls::default();
    // Standard input cannot be read again.
    for path in paths.iter().filter(|path| !output::is_stdout(path)) {
        let wanted = live::Options { samples: vec![String::new()], ..live::Options::default() };
        event_reader::read_file(path, &wanted, &mut calls)?;
        calls.declared = calls.declared || declares(path)?;
    }
    let said = calls.declared || calls.shorter > 0 || !calls.options.is_empty();
    Ok(said.then(|| calls.explanation(lost)))
}

/// Returns true if the recording declares types of calls.
fn declares(path: &Path) -> Result<bool> {
    let mut input = input::recording(path)?;
    input.decoder().set_filter(|_| read::Filter::Skip);
    while let Some(item) = input.next().with_context(|| diagnostics::shown(path))? {
        if let read::Item::ChunkEnd(end) = item
            && end.chunk.types.classes().iter().any(|class| DECLARED.contains(&&*class.name))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Settings and counters of recordings that contain no calls.
#[derive(Default)]
struct RecordedCalls {
    /// The event types are declared.
    declared: bool,
    /// Options by which they were recorded.
    options: BTreeSet<String>,
    /// One of these has a threshold.
    threshold: bool,
    /// Number of calls below the threshold.
    shorter: u64,
}

impl Taker for RecordedCalls {
    fn take(&mut self, item: &Item, _feed: &Feed) {
        let Item::Other(event) = item else { return };
        match &*event.event {
            "jdk.ActiveSetting" => self.setting(text(event, "name"), text(event, "value")),
            "flightline.BelowThreshold" if NAMES.contains(&text(event, "event")) => {
                let count = event.field("count").and_then(Value::integer).unwrap_or(0);
                self.shorter = self.shorter.saturating_add(u64::try_from(count).unwrap_or(0));
            }
            _ => {}
        }
    }
}

fn text<'a>(event: &'a Event, name: &str) -> &'a str {
    match event.field(name) {
        Some(Value::Text(text)) => text,
        _ => "",
    }
}

impl RecordedCalls {
    fn setting(&mut self, name: &str, value: &str) {
        let (option, least) = match name {
            "syscallIo" => ("--syscall-io=", value),
            "blockIo" => ("--block-io=", value),
            "engines" => match value.split(',').find_map(|engine| engine.strip_prefix("io@")) {
                Some(least) => ("-e io@", least),
                None => return,
            },
            _ => return,
        };
        // Limits memory for malicious recordings.
        if self.options.len() >= MOST {
            return;
        }
        let threshold = !least.starts_with('0');
        self.threshold |= threshold;
        self.options.insert(match threshold {
            true => format!("{option}{least}"),
            false => option.trim_end_matches(['=', '@']).to_owned(),
        });
    }

    fn explanation(&self, lost: u64) -> String {
        let by: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let by =
            if by.is_empty() { String::new() } else { format!(" ({})", diagnostics::plain(&by.join(", "))) };
        let shorter = match (self.shorter, self.threshold) {
            (0, false) => "there were none".to_owned(),
            (0, true) => "none exceeded the threshold".to_owned(),
            (shorter, _) => format!("none exceeded the threshold, {shorter} were shorter"),
        };
        let lost = match lost {
            0 => String::new(),
            lost => format!("; {lost} were lost, `flightline summary` lists the causes"),
        };
        format!("they were enabled{by}, but {shorter}{lost}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_slow_calls_message_lists_options_and_shorter_calls() {
        let mut calls = RecordedCalls::default();
        for (name, value) in [("syscallIo", "10ms"), ("blockIo", "0ns"), ("engines", "cpu@99hz"), ("x", "y")]
        {
            calls.setting(name, value);
        }
        assert_eq!(
            calls.explanation(0),
            "they were enabled (--block-io, --syscall-io=10ms), but none exceeded the threshold"
        );
        calls.shorter = 7;
        assert!(calls.explanation(3).ends_with(
            "none exceeded the threshold, 7 were shorter; 3 were lost, `flightline summary` lists the causes"
        ));
        let mut calls = RecordedCalls::default();
        calls.setting("engines", "cpu@99hz,io@5ms");
        assert!(calls.explanation(0).contains("(-e io@5ms)"));
        assert_eq!(RecordedCalls::default().explanation(0), "they were enabled, but there were none");
    }
}
