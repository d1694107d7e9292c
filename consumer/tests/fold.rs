//! Compares folded stacks of every fixture with the output of other tools (`fixtures/expected`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flightline_consumer::fold::{Filter, FoldOptions, Measure, fold, java_kinds};
use flightline_consumer::folded;
use flightline_consumer::load::{LoadOptions, Loaded, load, load_recording};
use flightline_consumer::model::Model;
use flightline_consumer::tree::Tree;
use flightline_consumer::view::{self, Plan, Viewer};
use jfr_format::error::{ErrorKind, Nonconformance};
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::read::{Input, Recording};
use jfr_format::schema::{self, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, FieldWriter, Geometry};

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

/// Converts lines `count  thread  id  state  leaf;…;root` to stacks below their thread.
fn expected(text: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [count, name, id, _state, frames] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let thread = match name {
            "?" => "[no thread]".to_owned(),
            name if name.starts_with("[tid=") => name.to_owned(),
            // The other reader uses the operating system's thread name with surrogates in UTF-8; we use
            // Java's name.
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
fn stacks_match_other_readers() {
    let mut compared = 0;
    for entry in std::fs::read_dir(fixtures().join("expected")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".samples.txt") else { continue };
        // Other readers lose constants that no checkpoint chain leads to. Compare with the same file with a
        // chain.
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
            // Some readers do not expose the thread id.
            let stack = match stack
                .split_once(" tid=")
                .and_then(|(name, rest)| Some((name, rest.split_once(']')?.1)))
            {
                Some((name, rest)) if without_ids => format!("{name} tid=-]{rest}"),
                _ => stack.to_owned(),
            };
            // The other readers write library.function instead of library`function.
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
fn recording_without_header_sizes_is_read_completely() {
    let path = fixtures().join("recordings/ap-native-fifo.jfr");
    let Loaded { model, warnings } = loaded(&path);
    // Only a warning about the incomplete header; no data is lost.
    let [warning] = warnings.stored() else { panic!("{warnings:?}") };
    assert!(
        matches!(warning.kind(), ErrorKind::Nonconformance(Nonconformance::Unpatched)) && warning.at() == 8,
        "{warning}"
    );
    assert!(!warnings.damage());
    let tree = fold(&model, &FoldOptions::default()).unwrap();
    assert_eq!(tree.total, 351);
    let roots = tree.nodes.iter().filter(|n| n.depth == 0).map(|n| &*tree.label(n).text);
    // async-profiler itself writes "unknown".
    assert_eq!(roots.collect::<Vec<_>>(), ["start_thread", "unknown"]);
}

#[test]
fn wall_clock_samples_count_represented_samples() {
    // An event counts `samples`, and each of them represents one interval. Its `timeSpan` is the time between
    // the first and the last of them, which is 0 for one sample. The sums were made by hand from `jfr print`
    // of the file.
    for (file, samples, interval, stacks) in
        [("ap-native-wall", 402, 5_000_000, None), ("ap-java-wall", 1_075, 20_000_000, Some(136))]
    {
        let model = loaded(&fixtures().join(format!("recordings/{file}.jfr"))).model;
        let tree = |measure| {
            let events = vec!["wall".to_owned()];
            fold(&model, &FoldOptions { events, measure, ..FoldOptions::default() }).unwrap()
        };
        let (counted, time) = (tree(Measure::Samples), tree(Measure::Total));
        assert_eq!((counted.unit.as_str(), time.unit.as_str()), ("samples", "ns"));
        assert_eq!((counted.total, time.total), (samples, samples * interval), "{file}");
        let number = |tree: &Tree| tree.nodes.iter().filter(|node| node.own > 0).count();
        assert_eq!(number(&time), number(&counted), "{file}");
        assert!(stacks.is_none_or(|stacks| number(&time) == stacks), "{file}: {}", number(&time));
    }
}

/// Returns the recording with all threads asleep, as async-profiler wrote wall-clock samples before version
/// 4.
fn asleep(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    // Strings in the constant pool of thread states; the second follows its key.
    let (old, new) = (b"\x03\x0dSTATE_DEFAULT", b"\x03\x0eSTATE_SLEEPING");
    let at = (0..bytes.len()).find(|&at| bytes[at..].starts_with(old)).unwrap();
    let key = bytes[at + old.len()];
    let next = b"\x03\x0eSTATE_RUNNABLE";
    assert!(bytes[at + old.len() + 1..].starts_with(next));
    let both = [&new[..], &[key], b"\x03\x0dSTATE_RUNNABL"].concat();
    assert_eq!(both.len(), old.len() + 1 + next.len());
    bytes[at..at + both.len()].copy_from_slice(&both);
    bytes
}

#[test]
fn sleeping_execution_samples_count_as_wall_clock() {
    let path = fixtures().join("recordings/ap-java-cpu.jfr");
    let total = |model: &Model, event: &str| {
        let events = if event.is_empty() { vec![] } else { vec![event.to_owned()] };
        fold(model, &FoldOptions { events, ..FoldOptions::default() }).map(|tree| tree.total).ok()
    };
    let totals = |model: &Model| ["", "cpu", "wall", "jdk.ExecutionSample"].map(|event| total(model, event));
    let all = Some(1_495);
    let mut awake = loaded(&path).model;
    assert_eq!(totals(&awake), [all, all, None, all], "no wall clock");
    let recording = Recording::bytes(bytes::Bytes::from(asleep(&path)));
    let asleep = load_recording(&recording, &LoadOptions::default(), 1, |_| {}).unwrap().model;
    assert_eq!(totals(&asleep), [all, None, all, all], "all asleep");
    let hot = view::find("hot-methods").unwrap();
    let samples = |recording: &Recording| {
        let mut viewer = Viewer::new(vec![Plan::from_view(hot)], view::Options::default());
        let mut input = Input::bytes(bytes::Bytes::copy_from_slice(recording.as_bytes()));
        while let Some(item) = input.next().unwrap() {
            viewer.take(item);
        }
        viewer.finish()[0].events
    };
    assert_eq!(samples(&Recording::open(&path).unwrap()), 1_495);
    assert_eq!(samples(&recording), 0, "hot methods ran");
    awake.merge(asleep);
    assert_eq!(totals(&awake), [all, all, Some(2_990), Some(2_990)], "half of them asleep");
}

/// File, event, number of events, total value and unit. Counts and totals are from `jfr print --json` of JDK
/// 25; for events without a value the total is their number times the period in `jdk.ActiveSetting`.
const TOTALS: &[(&str, &str, u64, u64, &str)] = &[
    ("ap-java-live", "alloc", 494, 129_499_136, "bytes"),
    ("ap-java-live", "live", 119, 459_176, "bytes"),
    ("ap-java-multichunk", "jdk.ObjectAllocationInNewTLAB", 882, 29_595_009_024, "bytes"),
    ("ap-java-multichunk", "cpu", 1_985, 1_985 * 5_000_000, "ns"),
    ("ap-native-lock", "lock", 5_209, 369_154_599, "ns"),
    ("ap-native-mem", "nativemem", 93, 279_000, "bytes"),
    ("ap-java-trace", "trace", 2_266, 207_693_300, "ns"),
    ("flightline", "cpu", 95, 95 * 2_000_000, "ns"),
    ("jdk11", "ObjectAllocationInNewTLAB", 4_045, 2_693_968_272, "bytes"),
    ("jdk11", "ObjectAllocationOutsideTLAB", 346, 24_502_440, "bytes"),
    ("jdk17", "jdk.ExecutionSample", 64, 64 * 10_000_000, "ns"),
    ("jdk17", "NativeMethodSample", 17, 17 * 20_000_000, "ns"),
    ("jdk17-multichunk", "ThreadPark", 2, 20_705_462, "ns"),
    ("jdk25", "jdk.ExecutionSample", 281, 281 * 10_000_000, "ns"),
    // The more accurate of the two types that measure CPU time.
    ("jdk25", "cpu", 391, 3_970_000_000, "ns"),
    ("jdk25", "NativeMethodSample", 23, 23 * 20_000_000, "ns"),
    ("jdk25", "jdk.CPUTimeSample", 391, 3_970_000_000, "ns"),
    ("jdk25", "JavaMonitorEnter", 3, 46_568_801, "ns"),
    ("jdk25", "ObjectAllocationSample", 480, 9_972_387_208, "bytes"),
    ("jdk25", "OldObjectSample", 17, 111_488, "bytes"),
    ("jdk25-methods", "trace", 361, 762_699_791, "ns"),
];

#[test]
fn event_weights_match_their_producers() {
    for &(file, event, count, total, unit) in TOTALS {
        let model = loaded(&fixtures().join(format!("recordings/{file}.jfr"))).model;
        let tree = |measure| {
            let events = vec![event.to_owned()];
            fold(&model, &FoldOptions { events, measure, ..FoldOptions::default() }).unwrap()
        };
        assert_eq!(tree(Measure::Samples).total, count, "{event} of {file}");
        let sum = tree(Measure::Total);
        assert_eq!((sum.total, &*sum.unit), (total, unit), "{event} of {file}");
    }
}

/// The JDK's stacks of traced calls begin with the caller, those of async-profiler with the traced method,
/// which no field names. Counts are from `jfr view method-calls` of JDK 25 and `jfr print`.
#[test]
fn traced_call_is_drawn_above_its_callers() {
    let leaves = |file: &str| {
        let options = FoldOptions { events: vec!["trace".into()], ..FoldOptions::default() };
        let mut leaves: BTreeMap<String, u64> = BTreeMap::new();
        for line in folded_text(&fixtures().join(format!("recordings/{file}.jfr")), &options).lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            let frames: Vec<&str> = stack.split(';').collect();
            assert!(frames.len() > 1, "{line}");
            *leaves.entry(frames[frames.len() - 1].to_owned()).or_default() += count.parse::<u64>().unwrap();
        }
        leaves
    };
    assert_eq!(leaves("jdk25-methods"), BTreeMap::from([("Work.files".to_owned(), 361)]));
    let of_profiler = leaves("ap-java-trace");
    assert_eq!(of_profiler.values().sum::<u64>(), 2_266);
    assert_eq!(of_profiler.len(), 1, "{of_profiler:?}");
}

#[test]
fn events_with_different_units_cannot_be_summed() {
    let model = loaded(&fixtures().join("recordings/jdk25.jfr")).model;
    let events = vec!["cpu".to_owned(), "alloc".to_owned()];
    let options = FoldOptions { events, measure: Measure::Total, ..FoldOptions::default() };
    let refused = fold(&model, &options).unwrap_err().to_string();
    assert!(
        refused.starts_with("jdk.CPUTimeSample measures in ns and jdk.ObjectAllocationSample in bytes"),
        "{refused}"
    );
    let counted = fold(&model, &FoldOptions { measure: Measure::Samples, ..options }).unwrap();
    assert_eq!(counted.total, 391 + 480);
}

/// Turns the first setting, whose name is in a constant pool, into one with a period of 10 ms. The string
/// becomes UTF-16 with padded units and the value gets leading zeros, so that no length changes.
fn with_pooled_interval() -> Vec<u8> {
    let mut bytes = std::fs::read(fixtures().join("cases/58_strings.jfr")).unwrap();
    let mut replace = |old: &[u8], new: &[u8]| {
        assert_eq!(old.len(), new.len());
        let at: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(old)).collect();
        let &[at] = &at[..] else { panic!("{old:x?} at {at:?}") };
        bytes[at..at + new.len()].copy_from_slice(new);
    };
    let mut name = vec![4, 8];
    for (i, unit) in b"interval".iter().enumerate() {
        // 8 units in 19 bytes.
        let padding: &[u8] = [&[0x80, 0][..], &[0][..], &[][..]][usize::from(i > 4) + usize::from(i > 5)];
        name.push(unit | if padding.is_empty() { 0 } else { 0x80 });
        name.extend(padding);
    }
    replace(b"\x03\x13pooled-setting-name", &name);
    replace("v-utf8 \u{2603}".as_bytes(), b"0010000000");
    bytes
}

#[test]
fn pooled_setting_string_defines_the_period() {
    let bytes = bytes::Bytes::from(with_pooled_interval());
    let stream = load(&mut Input::bytes(bytes.clone()), &LoadOptions::default(), |_| {}).unwrap();
    // Here the setting is read before the pool to which it refers.
    let whole = load_recording(&Recording::bytes(bytes), &LoadOptions::default(), 1, |_| {}).unwrap();
    for loaded in [stream, whole] {
        let tree = |measure| fold(&loaded.model, &FoldOptions { measure, ..FoldOptions::default() }).unwrap();
        let (samples, time) = (tree(Measure::Samples), tree(Measure::Total));
        assert_eq!((samples.total, time.total, &*time.unit), (SAMPLES_58, SAMPLES_58 * 10_000_000, "ns"));
    }
}

/// From `jfr summary`.
const SAMPLES_58: u64 = 5;

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

/// Loading with any number of threads yields the same samples, names, chunks and warnings.
#[test]
fn thread_count_does_not_change_result() {
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
                let warnings: Vec<String> = loaded.warnings.stored().iter().map(|w| w.to_string()).collect();
                let names: Vec<Arc<str>> = loaded.model.kinds.iter().map(|(_, k)| k.name.clone()).collect();
                let Loaded { model, .. } = loaded;
                let numbers = (model.chunks, model.start_nanos, model.periods.clone(), model.samples.len());
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

#[test]
fn function_kind_is_most_frequent_sample_kind() {
    let kinds = |name: &str, options: &FoldOptions| {
        let model = loaded(&fixtures().join("recordings").join(name)).model;
        let kinds = java_kinds(&model, options, Clone::clone).unwrap();
        let mut kinds: Vec<(String, &'static str)> =
            kinds.into_iter().map(|(name, kind)| (name.to_string(), kind.name())).collect();
        kinds.sort();
        kinds
    };
    let of = |kinds: &[(String, &'static str)], name: &str| {
        kinds.iter().find(|(of, _)| of == name).map(|&(_, kind)| kind)
    };
    // Counted by `jfr print --events ExecutionSample --stack-depth 64`.
    let jdk = kinds("jdk25.jfr", &FoldOptions::default());
    assert_eq!(of(&jdk, "Work.fib"), Some("inlined"));
    assert_eq!(of(&jdk, "Work.lambda$start$3"), Some("interpreted"));
    assert_eq!(of(&jdk, "Work$$Lambda.0x0000000057040450.run"), Some("compiled"));
    let events = vec!["jdk.NativeMethodSample".to_owned()];
    let native = kinds("jdk25.jfr", &FoldOptions { events, ..FoldOptions::default() });
    assert!(native.iter().any(|(_, kind)| *kind == "native-method"), "{native:?}");
    // C functions in async-profiler's recordings are not Java.
    let profiler = kinds("ap-java-multichunk.jfr", &FoldOptions::default());
    assert_eq!(of(&profiler, "Work.fib"), Some("inlined"));
    assert!(
        profiler.iter().all(|(name, kind)| !name.contains("::") && *kind != "native-method"),
        "{profiler:?}"
    );
}

/// A recording of a server whose process has two titles and then none, and of a JVM whose thread groups have
/// parents.
fn titled_recording() -> Vec<u8> {
    let line =
        ClockLine { start_ticks: Ticks(0), start_epoch_ns: 1_000_000_000, ticks_per_second: 1_000_000_000 };
    let mut out = Vec::new();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0)).unwrap();
    let groups = [
        (1, 0, "postgres (7)"),
        (2, 0, "postgres: UPDATE"),
        (3, 2, "postgres (7)"),
        (4, 0, "postgres: SELECT"),
        (5, 4, "postgres (7)"),
        (6, 0, "system"),
        (7, 6, "main"),
    ];
    for (key, parent, name) in groups {
        chunk.constant(schema::THREAD_GROUP, key, |g| _ = g.key(parent).string(name)).unwrap();
    }
    for (key, name, id, group) in
        [(7, "postgres", 7, 1), (70, "postgres", 7, 3), (71, "postgres", 7, 5), (8, "main", 8, 7)]
    {
        chunk
            .constant(schema::THREAD, key, |t| _ = t.string(name).long(id).null().long(0).key(group))
            .unwrap();
    }
    for (at, (thread, samples)) in [(7, 1), (70, 2), (71, 4), (70, 8), (8, 16)].into_iter().enumerate() {
        for _ in 0..samples {
            let sample = |e: &mut FieldWriter<'_>| {
                e.ticks(Ticks(at as i64)).key(thread).key(0).key(thread_state::DEFAULT);
            };
            chunk.event(schema::EXECUTION_SAMPLE, sample).unwrap();
        }
    }
    chunk.finish(Ticks(60), true, &mut out).unwrap();
    out
}

#[test]
fn stacks_are_grouped_by_process_title() {
    let recording = titled_recording();
    let loaded = load(&mut Input::stream(&recording[..]), &LoadOptions::default(), |_| {}).unwrap();
    let text = |options: FoldOptions| {
        let mut out = Vec::new();
        folded::write(&fold(&loaded.model, &options).unwrap(), &mut out).unwrap();
        let mut lines: Vec<String> = String::from_utf8(out).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let by_title = FoldOptions { by_title: true, ..FoldOptions::default() };
    assert_eq!(
        text(by_title.clone()),
        [
            "main;[no stack] 16",
            "postgres (7);[no stack] 1",
            "postgres: SELECT;[no stack] 4",
            "postgres: UPDATE;[no stack] 10"
        ]
    );
    // A thread counts once, however many titles its process has.
    assert_eq!(loaded.model.threads.len(), 2);
    let by_thread = FoldOptions { by_thread: true, ..FoldOptions::default() };
    assert_eq!(text(by_thread), ["[main tid=8];[no stack] 16", "[postgres tid=7];[no stack] 15"]);
    let filter = Filter { include: vec![regex::Regex::new("UPDATE").unwrap()], ..Filter::default() };
    let updates = FoldOptions { by_process: true, filter, ..by_title };
    assert_eq!(text(updates), ["postgres (7);postgres: UPDATE;[no stack] 10"]);
    // Merge models of two parts.
    let mut merged = Model::default();
    for _ in 0..2 {
        merged
            .merge(load(&mut Input::stream(&recording[..]), &LoadOptions::default(), |_| {}).unwrap().model);
    }
    assert_eq!(merged.titles.len(), 2);
    assert_eq!(merged.samples.values().map(|weight| weight.count).sum::<u64>(), 62);
}
