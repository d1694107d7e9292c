//! Folded stacks of every fixture against what foreign readers saw in it (`fixtures/expected`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flightline_consumer::fold::{FoldOptions, Measure, fold};
use flightline_consumer::folded;
use flightline_consumer::load::{LoadOptions, Loaded, load, load_recording};
use jfr_format::error::{Dubious, ErrorKind};
use jfr_format::read::{Input, Recording};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

fn loaded(path: &Path) -> Loaded {
    load(&mut Input::open(path).unwrap(), &LoadOptions::default(), |_| {}).unwrap()
}

fn folded_text(path: &Path, options: &FoldOptions) -> String {
    let mut out = Vec::new();
    folded::write(&fold(&loaded(path).model, options).unwrap(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Lines `count  thread  id  state  leaf;…;root` as stacks under their thread.
fn expected(text: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [count, name, id, _state, frames] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let thread = match name {
            "?" => "[no thread]".to_owned(),
            name if name.starts_with("[tid=") => name.to_owned(),
            // The foreign reader takes the name the operating system has, with surrogates as UTF-8; we take Java's.
            name => format!("[{} tid={id}]", name.replace("\u{fffd}\u{fffd}", "\u{1f980}")),
        };
        let stack = match frames {
            "" | "?" => "[no stack]".to_owned(),
            frames => {
                frames.split(';').rev().map(|f| f.trim_start_matches("?.")).collect::<Vec<_>>().join(";")
            }
        };
        *stacks.entry(format!("{thread};{stack}")).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

#[test]
fn stacks_are_those_foreign_readers_see() {
    let mut compared = 0;
    for entry in std::fs::read_dir(fixtures().join("expected")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".samples.txt") else { continue };
        // Where others lose constants that no chain leads to, we have those of the same file with a chain.
        let of = if matches!(&stem[..3], "12_" | "24_") { "02_defs_after" } else { stem };
        let path = path.with_file_name(format!("{of}.samples.txt"));
        let want = expected(&std::fs::read_to_string(&path).unwrap());
        let [case, recording] =
            ["cases", "recordings"].map(|d| fixtures().join(d).join(format!("{stem}.jfr")));
        let file = if case.exists() { case } else { recording };
        if want.is_empty() {
            continue;
        }
        let options = FoldOptions {
            events: vec!["jdk.ExecutionSample".into()],
            by_thread: true,
            modules: true,
            ..FoldOptions::default()
        };
        let without_ids = want.keys().any(|stack| stack.contains(" tid=-]"));
        let mut got: BTreeMap<String, u64> = BTreeMap::new();
        for line in folded_text(&file, &options).lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            // Some readers' interfaces do not give the thread's id.
            let stack = match stack
                .split_once(" tid=")
                .and_then(|(name, rest)| Some((name, rest.split_once(']')?.1)))
            {
                Some((name, rest)) if without_ids => format!("{name} tid=-]{rest}"),
                _ => stack.to_owned(),
            };
            // Where the foreign readers write library.function, we write library`function.
            *got.entry(stack.replace('`', ".")).or_default() += count.parse::<u64>().unwrap();
        }
        let missing: Vec<_> = want.iter().filter(|(k, v)| got.get(*k) != Some(v)).take(3).collect();
        let extra: Vec<_> = got.iter().filter(|(k, v)| want.get(*k) != Some(v)).take(3).collect();
        assert!(missing.is_empty() && extra.is_empty(), "{stem}: missing {missing:#?}, extra {extra:#?}");
        compared += 1;
    }
    assert!(compared > 40, "only {compared} fixtures compared");
}

/// async-profiler cannot fill in sizes on a FIFO; no other reader gets the constants of such a recording.
#[test]
fn a_recording_without_sizes_is_whole() {
    let path = fixtures().join("recordings/ap-native-fifo.jfr");
    let Loaded { model, warnings } = loaded(&path);
    // That the header was never completed is told; nothing is lost by it.
    let [warning] = warnings.kept() else { panic!("{warnings:?}") };
    assert!(matches!(warning.kind(), ErrorKind::Dubious(Dubious::Unpatched)) && warning.at() == 8, "{warning}");
    assert!(!warnings.damage());
    let tree = fold(&model, &FoldOptions::default()).unwrap();
    assert_eq!(tree.total, 351);
    let roots = tree.nodes.iter().filter(|n| n.depth == 0).map(|n| &*tree.label(n).text);
    // "unknown" is async-profiler's own word.
    assert_eq!(roots.collect::<Vec<_>>(), ["start_thread", "unknown"]);
}

#[test]
fn wall_clock_samples_count_what_they_stand_for() {
    // One event may stand for many samples; the sums are by hand from `jfr print` of the file.
    let path = fixtures().join("recordings/ap-native-wall.jfr");
    let model = loaded(&path).model;
    let events = vec!["wall".to_owned()];
    let samples = fold(&model, &FoldOptions { events: events.clone(), ..FoldOptions::default() }).unwrap();
    let time =
        fold(&model, &FoldOptions { events, measure: Measure::Total, ..FoldOptions::default() }).unwrap();
    assert_eq!((samples.unit.as_str(), time.unit.as_str()), ("samples", "ns"));
    assert_eq!(samples.total, WALL_SAMPLES);
    assert_eq!(time.total, WALL_NANOS);
}

const WALL_SAMPLES: u64 = 402;
const WALL_NANOS: u64 = 990_187_814;

#[test]
fn damaged_recordings_fold_without_panic() {
    let original = std::fs::read(fixtures().join("recordings/ap-native-ctimer.jfr")).unwrap();
    let mut bytes = original.clone();
    for at in (0..bytes.len()).step_by(97) {
        for flip in [0x01, 0xff] {
            bytes[at] ^= flip;
            let mut input = Input::bytes(bytes::Bytes::copy_from_slice(&bytes));
            if let Ok(loaded) = load(&mut input, &LoadOptions::default(), |_| {}) {
                let tree = fold(&loaded.model, &FoldOptions::default()).unwrap();
                assert!(tree.nodes.iter().all(|n| n.total <= tree.total));
            }
            bytes[at] = original[at];
        }
    }
}

/// With any number of threads a recording gives the same samples, names, chunks and warnings.
#[test]
fn threads_do_not_change_the_result() {
    let mut several = 0;
    for folder in ["recordings", "cases"] {
        for entry in std::fs::read_dir(fixtures().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "jfr") {
                continue;
            }
            let recording = Recording::open(&path).unwrap();
            several += usize::from(recording.pieces() > 1);
            let seen = |loaded: Loaded| {
                let options = FoldOptions { by_thread: true, by_process: true, ..FoldOptions::default() };
                let mut out = Vec::new();
                let outcome = fold(&loaded.model, &options).map(|tree| folded::write(&tree, &mut out));
                let warnings: Vec<String> = loaded.warnings.kept().iter().map(|w| w.to_string()).collect();
                let names: Vec<Arc<str>> = loaded.model.kinds.iter().map(|(_, k)| k.name.clone()).collect();
                let Loaded { model, .. } = loaded;
                let numbers = (model.chunks, model.start_nanos, model.period_nanos, model.samples.len());
                (String::from_utf8(out).unwrap(), outcome.is_ok(), warnings, names, numbers)
            };
            let one_by_one = seen(loaded(&path));
            for jobs in [1, 2, 3, 8] {
                let loaded = load_recording(&recording, &LoadOptions::default(), jobs, |_| {}).unwrap();
                assert_eq!(seen(loaded), one_by_one, "{} with {jobs} threads", path.display());
            }
        }
    }
    assert!(several > 3, "only {several} recordings of several chunks");
}
