//! The contents of those of `fixtures/cases` and of the unfinished recordings that no foreign reader reads,
//! and all warnings that fixtures may cause. Counted by hand from the sizes of the events.

use flightline_tests::run::beside;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flightline_tests::canonical;

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(folder);
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

const SAMPLE: &str = "jdk.ExecutionSample";

/// Events by type of the files that have no `expected/NAME.types.txt`: the JDK reads them wrongly or not at all.
const TYPES: &[(&str, &[(&str, u64)])] = &[
    ("09_empty_pool", &[(SAMPLE, 5)]),
    ("11_unknown_pool_type", &[(SAMPLE, 5)]),
    ("20_unpatched_zero_state0", &[(SAMPLE, 15)]),
    ("21_unpatched_zero_state1", &[(SAMPLE, 15)]),
    ("22_unpatched_size68_state1", &[(SAMPLE, 15)]),
    ("23_huge_size_meta68_cp0_state0", &[(SAMPLE, 15)]),
    ("25_full_but_state1", &[(SAMPLE, 15)]),
    ("26_full_but_state255", &[(SAMPLE, 15)]),
    ("27_huge_size_cp_ok_state0", &[(SAMPLE, 15)]),
    ("28_size_maxlong_cp_first_state0", &[(SAMPLE, 15)]),
    ("29_size0_rest_ok", &[(SAMPLE, 15)]),
    ("31_truncated_tail", &[(SAMPLE, 12)]),
    ("32_trailing_garbage", &[(SAMPLE, 15)]),
    ("33_state1_size_ok_truncmid", &[(SAMPLE, 15)]),
    ("41_two_chunks_id_clash_same_mid", &[(SAMPLE, 20)]),
    ("42_two_chunks_id_clash_diff_mid", &[(SAMPLE, 20)]),
    ("54_no_region", &[(SAMPLE, 3)]),
    ("79_same_mid_diff_types", &[(SAMPLE, 6), ("profiler.WallClockSample", 1)]),
    ("82_arrays", &[(SAMPLE, 3), ("native.Arr", 1)]),
    (
        "ap-native-fifo",
        &[
            ("jdk.ActiveRecording", 1),
            ("jdk.ActiveSetting", 24),
            ("jdk.CPUInformation", 1),
            (SAMPLE, 351),
            ("jdk.NativeLibrary", 9),
            ("jdk.OSInformation", 1),
            ("profiler.Log", 5),
        ],
    ),
    (
        "ap-native-killed",
        &[
            ("jdk.ActiveRecording", 1),
            ("jdk.ActiveSetting", 24),
            ("jdk.CPUInformation", 1),
            ("jdk.NativeLibrary", 9),
            ("jdk.OSInformation", 1),
            ("profiler.Log", 3),
        ],
    ),
];

/// Events, types that have any, and samples of the chunks of killed JVMs, which no JDK reads.
const KILLED: &[(&str, [u64; 3])] = &[("jdk17-killed", [7994, 62, 51]), ("jdk25-killed", [12917, 68, 293])];

/// All warnings; none for files that are not available.
const WARNINGS: &[(&str, &str)] = &[
    (
        "06_dup_redefined",
        "constant 10 of jdk.types.Symbol is defined again with other content; the first is taken \
         (at offset 4099, chunk 1, reading constant pools)",
    ),
    (
        "11_unknown_pool_type",
        "a type is not declared in the metadata (at offset 4097, chunk 1, reading constant pools)",
    ),
    (
        "12_delta0_unchained",
        "3 checkpoints are not in the chain (at offset 3760, chunk 1, reading the checkpoint chain)",
    ),
    (
        "20_unpatched_zero_state0",
        "the header of the finished chunk was never completed (at offset 8, chunk 1, reading the chunk header)",
    ),
    (
        "23_huge_size_meta68_cp0_state0",
        "the input ends 1073737438 bytes before the chunk does (at offset 4386, chunk 1, reading events)",
    ),
    (
        "24_size_ok_cp0_meta68_state0",
        "the header names no checkpoint, though there are some (at offset 16, chunk 1, reading the chunk header)",
    ),
    (
        "26_full_but_state255",
        "the chunk's header was left in the middle of an update (at offset 64, chunk 1, reading the chunk header)",
    ),
    (
        "27_huge_size_cp_ok_state0",
        "the input ends 1073737438 bytes before the chunk does (at offset 4386, chunk 1, reading events)",
    ),
    (
        "28_size_maxlong_cp_first_state0",
        "the input ends 9223372036854771421 bytes before the chunk does (at offset 4386, chunk 1, reading events)",
    ),
    (
        "29_size0_rest_ok",
        "the header says the chunk has 0 bytes, it has 4386 (at offset 8, chunk 1, reading the chunk header)",
    ),
    (
        "31_truncated_tail",
        "the input ends 20 bytes before the chunk does (at offset 4366, chunk 1, reading events)",
    ),
    (
        "32_trailing_garbage",
        "skipped 50 bytes that could not be read (at offset 4386, reading a chunk header)",
    ),
    (
        "55_flags0",
        "integers said to be uncompressed are read as compressed (at offset 66, chunk 1, reading the chunk header)",
    ),
    (
        "ap-native-fifo",
        "the header of the finished chunk was never completed (at offset 8, chunk 1, reading the chunk header)",
    ),
    (
        "ap-native-killed",
        "the header of the finished chunk was never completed (at offset 8, chunk 1, reading the chunk header)",
    ),
    (
        "60_unknown_event_type",
        "skipped 1 events of undeclared type 3000 (at offset 0, chunk 1, reading events)",
    ),
];

#[test]
fn event_counts_by_type_match_hand_counts() {
    let _place = beside();
    let by_hand: BTreeMap<&str, _> = TYPES.iter().copied().collect();
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/expected");
    for path in fixtures("cases").into_iter().chain(fixtures("recordings")) {
        let name = name(&path);
        let contents = canonical::of_file(&path).unwrap();
        if let Some((_, want)) = KILLED.iter().find(|(killed, _)| *killed == name) {
            let samples = contents.types.get(SAMPLE).copied().unwrap_or_default();
            let found = [contents.types.values().sum(), contents.types.len() as u64, samples];
            assert_eq!(found, *want, "{name}");
            continue;
        }
        let types: Vec<(&str, u64)> = contents.types.iter().map(|(t, n)| (&**t, *n)).collect();
        match by_hand.get(&*name) {
            Some(want) => assert_eq!(types, *want, "{name}"),
            // Compared in tests/fixtures.rs.
            None => assert!(expected.join(format!("{name}.types.txt")).exists(), "{name} has no expectation"),
        }
    }
}

#[test]
fn fixtures_cause_expected_warnings_with_offsets() {
    let _place = beside();
    let mut wrong = Vec::new();
    for path in fixtures("cases").into_iter().chain(fixtures("recordings")) {
        let name = name(&path);
        for contents in [
            canonical::of_file(&path).unwrap(),
            canonical::of_stream(std::fs::File::open(&path).unwrap()).unwrap(),
        ] {
            let want = WARNINGS.iter().filter(|(of, _)| *of == name).map(|&(_, text)| text);
            if !want.clone().eq(&contents.warnings) {
                wrong.push(format!(
                    "{name}: {:#?}\nexpected {:#?}",
                    contents.warnings,
                    want.collect::<Vec<_>>()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Samples of the files that no foreign reader reads, or reads without their constants: those of `01_defs_before`, as far
/// as the file goes.
#[test]
fn samples_have_expected_threads_and_stacks() {
    let _place = beside();
    let like = |count: [usize; 3]| -> Vec<String> {
        let line = |i: usize| {
            let frames: Vec<String> = (0..3).map(|frame| format!("libdemo.so.fn_{i}_{frame}")).collect();
            format!("worker-{i}\t{}\tSTATE_RUNNABLE\t{}", 4000 + i, frames.join(";"))
        };
        (0..3).flat_map(|i| std::iter::repeat_n(line(i), count[i])).collect()
    };
    for (name, count) in [
        ("11_unknown_pool_type", [5, 0, 0]),
        ("12_delta0_unchained", [5, 5, 5]),
        ("20_unpatched_zero_state0", [5, 5, 5]),
        ("21_unpatched_zero_state1", [5, 5, 5]),
        ("22_unpatched_size68_state1", [5, 5, 5]),
        ("23_huge_size_meta68_cp0_state0", [5, 5, 5]),
        ("24_size_ok_cp0_meta68_state0", [5, 5, 5]),
        ("27_huge_size_cp_ok_state0", [5, 5, 5]),
        ("28_size_maxlong_cp_first_state0", [5, 5, 5]),
        ("29_size0_rest_ok", [5, 5, 5]),
        ("31_truncated_tail", [5, 5, 2]),
        ("32_trailing_garbage", [5, 5, 5]),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fixtures/cases/{name}.jfr"));
        let contents = canonical::of_file(&path).unwrap();
        let samples: Vec<&str> = contents.samples.iter().map(|l| l.split_once('\t').unwrap().1).collect();
        assert_eq!(samples, like(count), "{name}");
    }
}

/// `jfr-format/docs/decisions.md` names the fixture or test for each decision: all of them exist, and all
/// warnings about fixtures are covered by a decision.
#[test]
fn decisions_name_existing_fixtures_and_tests() {
    let _place = beside();
    let text = include_str!("../../../jfr-format/docs/decisions.md");
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let shown: Vec<&str> = rows
        .filter_map(|row| row.trim_end_matches(" |").rsplit("| ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let fixtures: Vec<String> =
        ["cases", "recordings"].iter().flat_map(|f| fixtures(f)).map(|p| name(&p)).collect();
    let malformed = flightline_tests::malformed::cases();
    let tests = [include_str!("readers.rs"), include_str!("../../../jfr-format/tests/splits.rs")];
    for &name in &shown {
        let known = fixtures.iter().any(|f| f == name)
            || malformed.iter().any(|case| case.name == name)
            || tests.iter().any(|test| test.contains(&format!("fn {name}()")));
        assert!(known, "{name}");
    }
    assert!(shown.len() > 40);
    for (name, _) in WARNINGS {
        assert!(text.contains(name) || name.starts_with("ap-native"), "{name}");
    }
}
