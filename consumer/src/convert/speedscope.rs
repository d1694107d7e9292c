//! Reads and writes speedscope's file format.

use std::io::{BufRead, Write};

use serde::Deserialize;
use serde_json::json;

use super::{Text, Tracks, from_json};
use crate::amount;
use crate::error::Error;
use crate::folded;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
/// Maximum depth of a stack.
const DEEPEST: usize = 1 << 16;
/// Maximum size of the folded text made from a file.
const MOST: usize = 2 << 30;

/// Writes a profile for each thread, its samples in order of time.
///
/// # Errors
/// `out` cannot be written.
pub fn write(tracks: &Tracks, name: &str, out: &mut impl Write) -> Result<(), Error> {
    let put = |error| from_json(error, Error::Write);
    let frames: Vec<_> = tracks
        .labels
        .iter()
        .map(|label| match &label.module {
            Some(module) => json!({ "name": &*label.text, "file": &**module }),
            None => json!({ "name": &*label.text }),
        })
        .collect();
    let unit = match tracks.unit.as_str() {
        "ns" => "nanoseconds",
        "bytes" => "bytes",
        _ => "none",
    };
    let (_, decimals) = amount::decimals(&tracks.unit);
    write!(out, r#"{{"$schema":"{SCHEMA}","exporter":"flightline","activeProfileIndex":0,"name":"#)
        .map_err(Error::Write)?;
    serde_json::to_writer(&mut *out, name).map_err(put)?;
    out.write_all(br#","shared":{"frames":"#).map_err(Error::Write)?;
    serde_json::to_writer(&mut *out, &frames).map_err(put)?;
    out.write_all(br#"},"profiles":["#).map_err(Error::Write)?;
    for (at, track) in tracks.tracks.iter().enumerate() {
        let samples: Vec<Vec<usize>> = track
            .samples
            .iter()
            .map(|sample| tracks.path(sample.stack).iter().map(|label| label.index()).collect())
            .collect();
        let end = track.samples.iter().fold(0u64, |sum, sample| sum.saturating_add(sample.weight));
        let number = |weight: u64| match decimals {
            0 => json!(weight),
            decimals => json!(weight as f64 / 10f64.powi(decimals as i32)),
        };
        let weights: Vec<_> = track.samples.iter().map(|sample| number(sample.weight)).collect();
        let title = match (tracks.is_timed(), track.process.as_str()) {
            (true, process) => format!("{} ({process} {})", track.name, track.id),
            (false, _) => track.name.clone(),
        };
        let profile = json!({
            "type": "sampled", "name": title, "unit": unit, "startValue": 0, "endValue": number(end),
            "samples": samples, "weights": weights,
        });
        if at > 0 {
            out.write_all(b",").map_err(Error::Write)?;
        }
        serde_json::to_writer(&mut *out, &profile).map_err(put)?;
    }
    out.write_all(b"]}\n").map_err(Error::Write)
}

/// Returns true if a text begins like such a file.
pub(crate) fn is(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.trim_start().starts_with('{') && (head.contains("speedscope.app/") || head.contains("\"shared\""))
}

#[derive(Deserialize)]
struct File {
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Shared {
    frames: Vec<FrameOf>,
}

#[derive(Deserialize)]
struct FrameOf {
    name: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Profile {
    Sampled { unit: Option<String>, samples: Vec<Vec<usize>>, weights: Vec<f64> },
    Evented { unit: Option<String>, events: Vec<Event> },
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    frame: usize,
    at: f64,
}

/// Reads all profiles of the file as folded text.
pub(super) fn read(input: impl BufRead) -> Result<Text, Error> {
    let wrong = |what: &str| Error::Read(std::io::Error::other(format!("speedscope's file: {what}")));
    // speedscope could not show a larger file.
    let file: File =
        serde_json::from_reader(input.take(MOST as u64)).map_err(|error| from_json(error, Error::Read))?;
    let names: Vec<String> = file.shared.frames.iter().map(|frame| folded::clean(&frame.name)).collect();
    let mut text: Vec<u8> = Vec::new();
    let mut put = |path: &[usize], weight: f64| -> Result<(), Error> {
        if path.is_empty() || weight <= 0.0 {
            return Ok(());
        }
        if path.len() > DEEPEST || text.len() > MOST {
            return Err(wrong("it has too many frames"));
        }
        for (at, frame) in path.iter().enumerate() {
            let name = names.get(*frame).ok_or_else(|| wrong("a frame is not in its table"))?;
            text.extend_from_slice(if at > 0 { b";" } else { b"" });
            text.extend_from_slice(name.as_bytes());
        }
        writeln!(text, " {weight}").map_err(Error::Write)
    };
    // The file has fractions of seconds, trees have nanoseconds.
    let scaled = |weight: f64, unit: &Option<String>| match unit.as_deref() {
        Some("microseconds") => (weight * 1e3).round(),
        Some("milliseconds") => (weight * 1e6).round(),
        Some("seconds") => (weight * 1e9).round(),
        _ => weight,
    };
    for profile in &file.profiles {
        match profile {
            Profile::Sampled { samples, weights, unit } => {
                for (path, weight) in samples.iter().zip(weights) {
                    put(path, scaled(*weight, unit))?;
                }
            }
            Profile::Evented { events, unit } => {
                let (mut path, mut since): (Vec<usize>, f64) = (Vec::new(), 0.0);
                for event in events {
                    put(&path, scaled(event.at - since, unit))?;
                    since = event.at;
                    match event.kind.as_str() {
                        "O" => path.push(event.frame),
                        _ => drop(path.pop()),
                    }
                }
            }
        }
    }
    let unit = file.profiles.first().and_then(|profile| match profile {
        Profile::Sampled { unit, .. } | Profile::Evented { unit, .. } => unit.as_deref(),
    });
    let unit =
        unit.filter(|unit| *unit != "none").map(|unit| if unit.ends_with("seconds") { "ns" } else { unit });
    Ok(Text::from_folded(text, unit.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn tree_round_trips_through_speedscope() {
        let text = "main;\"q\";f 3\nmain;g 4\n";
        let tree = folded::read(text.as_bytes()).unwrap();
        let mut file = Vec::new();
        write(&Tracks::from_tree(&tree, "x"), "x", &mut file).unwrap();
        let again =
            super::super::to_folded(Box::new(std::io::Cursor::new(file)), &super::super::Choice::default())
                .unwrap();
        let mut out = Vec::new();
        folded::write(&folded::read(again.text).unwrap(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn evented_profile_weights_are_time_differences() {
        let file = r#"{"shared":{"frames":[{"name":"a"},{"name":"b"}]},"profiles":[{"type":"evented","events":[
            {"type":"O","frame":0,"at":10},{"type":"O","frame":1,"at":12},{"type":"C","frame":1,"at":17},{"type":"C","frame":0,"at":18}]}]}"#;
        assert!(is(file.as_bytes()));
        let mut text = String::new();
        read(file.as_bytes()).unwrap().text.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a 2\na;b 5\na 1\n");
        let mut seconds = read(
            file.replace(r#""evented""#, r#""evented","unit":"seconds""#).replace(":12", ":10.5").as_bytes(),
        )
        .unwrap();
        text.clear();
        seconds.text.read_to_string(&mut text).unwrap();
        assert_eq!(
            (text.as_str(), seconds.unit.as_deref()),
            ("a 500000000\na;b 6500000000\na 1000000000\n", Some("ns"))
        );
        for wrong in [
            "{\"shared\":",
            r#"{"shared":{"frames":[]},"profiles":[{"type":"sampled","samples":[[0]],"weights":[1]}]}"#,
        ] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
