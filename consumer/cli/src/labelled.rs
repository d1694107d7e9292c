//! Selects samples of pprof profiles by label. Labels in recordings belong to spans; `spans` handles those.

use std::path::PathBuf;

use anyhow::{Result, bail};
use flightline_consumer::convert::Text;

use crate::input::{self, ProfileSelection, Source};
use crate::select::SelectArgs;
use crate::talk::{all_shown, shown};

/// Converts the samples with all of the labels to folded text; returns no text if the inputs are recordings.
///
/// # Errors
/// Returns an error if an input has no labels, recordings and profiles are mixed, or no sample matches.
pub fn read(inputs: &[PathBuf], args: &SelectArgs) -> Result<Vec<(PathBuf, Text)>> {
    let mut texts = Vec::new();
    let mut samples = 0;
    let mut there: Vec<String> = Vec::new();
    let mut other = None;
    for path in inputs {
        // A stream can be read only once.
        if path.as_os_str() == "-" || !path.is_file() {
            other = other.or(Some(path));
            continue;
        }
        match input::open(path, ProfileSelection { types: &args.events, labels: &args.labels }) {
            Ok(Source::Pprof(profile)) => {
                samples += profile.samples;
                there.extend(profile.there);
                texts.push((path.clone(), profile.text));
            }
            Ok(Source::Text(_) | Source::Otlp(_)) => bail!(
                "{} is neither a recording nor a pprof profile; only these have spans (--span) and labels (--label)",
                shown(path)
            ),
            Ok(Source::Recording(_) | Source::Stream(_)) => other = other.or(Some(path)),
            Err(error) => return Err(error),
        }
    }
    let Some((first, _)) = texts.first() else { return Ok(texts) };
    if let Some(other) = other {
        bail!(
            "{} is a recording and {} is a pprof profile; give inputs of one kind",
            shown(other),
            shown(first)
        );
    }
    if let Some(name) = args.spans.first() {
        bail!(
            "{} is a pprof profile, which has no nested spans; --span needs the recording. In profiles \
             of `flightline export`, --label span_name={name} selects samples in these spans without \
             nested spans",
            shown(first)
        );
    }
    if samples == 0 {
        there.sort();
        there.dedup();
        let wanted: Vec<String> = args.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let have = match there.is_empty() {
            true => "its samples have no labels".to_owned(),
            false => format!("its labels are {}", there.join(", ")),
        };
        bail!("{} has no sample with the label {}: {have}", all_shown(inputs), wanted.join(" "));
    }
    Ok(texts)
}
