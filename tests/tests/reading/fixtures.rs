//! `fixtures/`: every file is listed and unchanged, and our reader agrees with foreign readers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::canonical::{self, Contents};
use flightline_tests::run::{beside, run};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// Rows of the tables in fixtures/README.md: file → sha256.
fn listed() -> BTreeMap<String, String> {
    let readme = fs::read_to_string(fixtures().join("README.md")).unwrap();
    readme
        .lines()
        .filter(|line| line.starts_with("| recordings/") || line.starts_with("| cases/"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].to_owned(), cells[cells.len() - 1].trim_matches('`').to_owned())
        })
        .collect()
}

fn recordings() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["recordings", "cases"]
        .iter()
        .flat_map(|folder| fs::read_dir(fixtures().join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// A file of `expected/` without its comment; `None` if there is none.
fn expected(name: &str, kind: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(fixtures().join(format!("expected/{name}.{kind}.txt"))).ok()?;
    Some(text.lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect())
}

/// Lines without their time, with the number of their occurrences: `count<TAB>thread<TAB>…`.
fn counted(contents: &Contents) -> Vec<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &contents.samples {
        *counts.entry(line.split_once('\t').unwrap().1).or_default() += 1;
    }
    counts.into_iter().map(|(line, n)| format!("{n}\t{line}")).collect()
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_unstable_by(|a, b| a.split_once('\t').cmp(&b.split_once('\t')));
    lines
}

/// Normalises a line of `expected/` or of our reader for the comparison. The JDK prints the two surrogates
/// that HotSpot writes for a character beyond the basic plane as two U+FFFD, we print the character. Some
/// readers give no thread id.
fn plain(line: &str, without_ids: bool) -> String {
    let line = line.replace("\u{fffd}\u{fffd}", "\u{1f980}");
    if !without_ids {
        return line;
    }
    let mut cells: Vec<&str> = line.split('\t').collect();
    cells.remove(2);
    cells.join("\t")
}

#[test]
fn every_file_is_listed_and_unchanged() {
    let _place = beside();
    let listed = listed();
    let found: Vec<String> = recordings()
        .iter()
        .map(|p| p.strip_prefix(fixtures()).unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), listed.keys().collect::<Vec<_>>());
    let mut sha256sum = Command::new("sha256sum");
    let sums = run(sha256sum.current_dir(fixtures()).args(&found), Duration::from_secs(60))
        .expect_success("sha256sum")
        .stdout_text();
    for line in sums.lines() {
        let (sum, file) = line.split_once("  ").unwrap();
        assert_eq!(sum, listed[file], "{file} changed: fixtures/make.sh expected rewrites the sums");
    }
}

#[test]
fn every_expectation_file_has_recording() {
    let _place = beside();
    let names: Vec<String> = recordings().iter().map(|p| name(p)).collect();
    for entry in fs::read_dir(fixtures().join("expected")).unwrap() {
        let file = entry.unwrap().file_name().to_string_lossy().into_owned();
        let of = file.trim_end_matches(".txt").trim_end_matches(".samples").trim_end_matches(".types");
        assert!(names.iter().any(|n| n == of), "expected/{file} is of no recording");
    }
}

/// Cases in which we find constants that no other reader finds, because we read every checkpoint and not only
/// the chain. The samples are those of the second case.
const FOUND_BY_US: &[(&str, &str)] = &[
    ("12_delta0_unchained", "01_defs_before"),
    ("24_size_ok_cp0_meta68_state0", "01_defs_before"),
    ("20_unpatched_zero_state0", "01_defs_before"),
    ("21_unpatched_zero_state1", "01_defs_before"),
    ("22_unpatched_size68_state1", "01_defs_before"),
    ("23_huge_size_meta68_cp0_state0", "01_defs_before"),
    ("27_huge_size_cp_ok_state0", "01_defs_before"),
    ("28_size_maxlong_cp_first_state0", "01_defs_before"),
    ("32_trailing_garbage", "01_defs_before"),
];

#[test]
fn our_reader_agrees_with_foreign_readers() {
    let _place = beside();
    let mut wrong = Vec::new();
    for path in recordings() {
        let name = name(&path);
        let like = FOUND_BY_US.iter().find(|(n, _)| *n == name).map_or(&*name, |(_, like)| like);
        let Some(samples) = expected(like, "samples") else { continue };
        for (driver, contents) in [
            ("file", canonical::of_file(&path).unwrap()),
            ("stream", canonical::of_stream(fs::File::open(&path).unwrap()).unwrap()),
        ] {
            let without_ids = samples.iter().any(|line| line.contains("\t-\t"));
            let comparable = |lines: Vec<String>| {
                sorted(lines.iter().map(|line| plain(line, without_ids)).collect::<Vec<_>>())
            };
            let (ours, theirs) = (comparable(counted(&contents)), comparable(samples.clone()));
            if ours != theirs {
                let differing = ours.iter().zip(&theirs).find(|(a, b)| a != b);
                wrong.push(format!(
                    "{name} as {driver}: {} lines, expected {}; {differing:?}; {:?}",
                    ours.len(),
                    theirs.len(),
                    contents.warnings
                ));
            }
            if let Some(types) = expected(&name, "types") {
                let ours: Vec<String> = contents.types.iter().map(|(t, n)| format!("{t}\t{n}")).collect();
                if ours != types {
                    let differing = ours.iter().zip(&types).find(|(a, b)| a != b);
                    wrong.push(format!("{name} as {driver}: event counts, first {differing:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn thread_names_outside_basic_multilingual_plane_are_read() {
    let _place = beside();
    for name in ["jdk17", "jdk25", "ap-java-cpu"] {
        let contents = canonical::of_file(&fixtures().join(format!("recordings/{name}.jfr"))).unwrap();
        assert!(contents.samples.iter().any(|l| l.contains("\tcrab-\u{1f980}\t")), "{name}");
        assert!(contents.samples.iter().any(|l| l.contains("\tgrüße-Ω\t")), "{name}");
        assert!(contents.samples.iter().all(|l| !l.contains('\u{fffd}')), "{name}");
    }
}

/// The recoverable part of a damaged recording, which no foreign reader reads, and the message about the
/// rest.
#[test]
fn damaged_recordings_yield_recoverable_samples_and_warning() {
    let _place = beside();
    let table: &[(&str, usize, Option<&str>)] = &[
        ("cases/11_unknown_pool_type", 5, Some("not declared in the metadata (at offset 4097")),
        ("cases/20_unpatched_zero_state0", 15, None),
        ("cases/21_unpatched_zero_state1", 15, None),
        ("cases/22_unpatched_size68_state1", 15, None),
        ("cases/23_huge_size_meta68_cp0_state0", 15, Some("at offset 4386")),
        ("cases/27_huge_size_cp_ok_state0", 15, Some("at offset 4386")),
        ("cases/28_size_maxlong_cp_first_state0", 15, Some("at offset 4386")),
        ("cases/31_truncated_tail", 12, Some("ends 20 bytes before the chunk does (at offset 4366")),
        ("cases/32_trailing_garbage", 15, Some("skipped 50 bytes that could not be read (at offset 4386")),
        ("recordings/ap-native-killed", 0, None),
        ("recordings/ap-native-fifo", 351, None),
    ];
    for &(name, samples, warning) in table {
        let contents = canonical::of_file(&fixtures().join(format!("{name}.jfr"))).unwrap();
        assert_eq!(contents.samples.len(), samples, "{name}: {:?}", contents.warnings);
        if let Some(text) = warning {
            assert!(contents.warnings.iter().any(|w| w.contains(text)), "{name}: {:?}", contents.warnings);
        }
    }
}
