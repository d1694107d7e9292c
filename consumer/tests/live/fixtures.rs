//! Recordings of JDKs, async-profiler and Flightline: streaming yields the same samples as loading.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flightline_consumer::live::{Feed, Item, Options, Sample};
use flightline_consumer::load::{LoadOptions, load};
use flightline_consumer::model::FrameKind;
use jfr_format::read::Input;

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "jfr"))
        .collect();
    paths.sort();
    paths
}

fn samples(bytes: &[u8], step: usize) -> Vec<Sample> {
    let mut feed = Feed::new(Options { others: false, ..Options::default() });
    let mut samples = Vec::new();
    let mut take = |feed: &mut Feed| {
        while let Some(item) = feed.next() {
            if let Item::Sample(sample) = item {
                samples.push(*sample);
            }
        }
    };
    for piece in bytes.chunks(step) {
        feed.push(piece);
        take(&mut feed);
    }
    feed.close();
    take(&mut feed);
    samples
}

type Row = (String, String, Vec<(String, String, FrameKind, i32)>, Option<String>);

#[test]
fn samples_match_profile_for_any_input_split() {
    let mut compared = 0;
    for path in recordings() {
        let bytes = std::fs::read(&path).unwrap();
        let options = LoadOptions { lines: true, ..LoadOptions::default() };
        let loaded = load(&mut Input::open(&path).unwrap(), &options, |_| {}).unwrap().model;
        let mut expected: BTreeMap<Row, (u64, u64)> = BTreeMap::new();
        for (key, weight) in &loaded.samples {
            let frames = key.stack.map(|id| &loaded.stacks.get(id).frames[..]).unwrap_or_default();
            let frames = frames.iter().map(|&id| loaded.frames.get(id)).map(|frame| {
                (frame.function.to_string(), frame.class.to_string(), frame.kind, frame.line.max(0))
            });
            let row = (
                loaded.kinds.get(key.kind).name.to_string(),
                key.thread.map_or_else(String::new, |id| loaded.threads.get(id).label()),
                frames.collect(),
                key.state.map(|id| loaded.states.get(id).to_string()),
            );
            let sum = expected.entry(row).or_default();
            (sum.0, sum.1) = (sum.0 + weight.count, sum.1 + weight.value);
        }
        for step in [9_973, 1 << 20] {
            let mut seen: BTreeMap<Row, (u64, u64)> = BTreeMap::new();
            for sample in samples(&bytes, step) {
                let frames = sample.stack.iter().flat_map(|stack| stack.frames.iter()).map(|frame| {
                    let class = if frame.class.is_empty() { &frame.module } else { &frame.class };
                    (frame.function.to_string(), class.to_string(), frame.kind, frame.line)
                });
                let row = (
                    sample.event.to_string(),
                    sample.thread.as_ref().map_or_else(String::new, |thread| thread.label()),
                    frames.collect(),
                    sample.state.as_ref().map(|state| state.to_string()),
                );
                // For types without a value, loading assigns the value to the type, not to the sample.
                let value = expected.get(&row).is_some_and(|(_, value)| *value > 0);
                let sum = seen.entry(row).or_default();
                sum.0 += sample.weight.samples;
                sum.1 += if value { sample.weight.value } else { 0 };
            }
            let diff = |from: &BTreeMap<Row, (u64, u64)>, to: &BTreeMap<Row, (u64, u64)>| {
                from.iter()
                    .find(|(row, sum)| to.get(row) != Some(sum))
                    .map(|(r, s)| (r.clone(), *s, to.get(r).copied()))
            };
            assert_eq!(diff(&expected, &seen), None, "{} in pieces of {step}", path.display());
            assert_eq!(diff(&seen, &expected), None, "{} in pieces of {step}", path.display());
            compared += seen.values().map(|sum| sum.0).sum::<u64>();
        }
    }
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn times_match_the_decoder() {
    for path in recordings() {
        let mut expected = Vec::new();
        let mut input = Input::open(&path).unwrap();
        while let Some(item) = input.next().unwrap() {
            if let jfr_format::read::Item::Events(batch) = item {
                const NO_SAMPLES: [&str; 3] =
                    ["jdk.ActiveSetting", "jdk.ActiveRecording", "datadog.Endpoint"];
                let sample = |e: &jfr_format::event::EventRef<'_>| {
                    e.class().field_index("stackTrace").is_some() && !NO_SAMPLES.contains(&&*e.class().name)
                };
                expected.extend(batch.events().filter(sample).filter_map(|e| e.start_nanos()));
            }
        }
        let mut seen: Vec<i64> =
            samples(&std::fs::read(&path).unwrap(), 1 << 16).iter().map(|s| s.time.epoch_nanos).collect();
        expected.sort_unstable();
        seen.sort_unstable();
        assert!(seen == expected, "{}", path.display());
    }
}
