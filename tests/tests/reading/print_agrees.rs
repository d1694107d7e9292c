//! Compares `flightline print --json` with `jfr print --json` of JDK 17 and 25: every field of every event of
//! every fixture, in the same order. [`Allowed`] lists the permitted differences; this file lists the cases
//! that the JDKs refuse or read wrongly.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flightline_tests::jfr_tool::JfrTool;
use flightline_tests::print_agreement::{Agreement, Allowed, compare};
use flightline_tests::run::{beside, run};
use flightline_tests::{foreign, victim};

/// Deeper than any stack of the fixtures.
const DEEP: usize = 3000;

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn name(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

/// The tool `jfr` of both JDKs, each in one JVM; `None`, with a visible message, if one is missing.
fn tools() -> Option<[(u32, JfrTool); 2]> {
    let tools = [17, 25].map(|release| Some((release, JfrTool::start(&foreign::jdk(release)?))));
    let [Some(old), Some(new)] = tools else { return None };
    Some([old, new])
}

/// Recordings that the JDK refuses unchanged, by release: those of killed processes, or written through a
/// pipe. The JDK reads the output of `flightline repair`, our command the file itself.
const REPAIRED: &[(&str, u32)] = &[
    ("ap-native-fifo", 17),
    ("ap-native-fifo", 25),
    ("ap-native-killed", 17),
    ("ap-native-killed", 25),
    ("jdk17-killed", 25),
    ("jdk25-killed", 25),
];

fn repaired(file: &Path, folder: &Path) -> PathBuf {
    let into = folder.join(file.file_name().unwrap());
    let mut repair = std::process::Command::new(victim::flightline());
    repair.arg("repair").arg(file).arg("-o").arg(&into);
    let done = run(&mut repair, Duration::from_secs(60));
    assert!(into.exists(), "repair of {}: {}", file.display(), done.stderr);
    into
}

/// Compares one fixture with one JDK; returns the differences.
fn recording(
    file: &Path,
    release: u32,
    jfr: &mut JfrTool,
    kinds: &mut BTreeSet<(Allowed, u32)>,
) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let refused = REPAIRED.contains(&(name(file), release));
    let readable = if refused { repaired(file, folder.path()) } else { file.to_path_buf() };
    let mut wrong = Vec::new();
    if refused && compare(victim::flightline(), jfr, file, file, None).jdk_failed.is_none() {
        wrong.push(format!("{}: JDK {release} reads it, and is said not to", name(file)));
    }
    // All frames, and the tool's default of five.
    for depth in [None, Some(DEEP)].into_iter().filter(|depth| depth.is_some() || flightline_tests::long()) {
        let agreement = compare(victim::flightline(), jfr, file, &readable, depth);
        println!("{}, JDK {release}, depth {depth:?}: {agreement}", name(file));
        kinds.extend(agreement.allowed.keys().map(|kind| (*kind, release)));
        let fine = agreement.differences.is_empty() && agreement.jdk_failed.is_none() && agreement.events > 0;
        if !fine {
            wrong.push(format!("{}, JDK {release}, depth {depth:?}: {agreement}", name(file)));
        }
    }
    wrong
}

#[test]
fn json_matches_jdk_for_every_recording() {
    let _place = beside();
    let Some(tools) = tools() else { return };
    let flightline = victim::flightline();
    assert!(flightline.exists());
    let (wrong, kinds): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
        let one_jdk = |(release, mut jfr): (u32, JfrTool)| {
            scope.spawn(move || {
                let mut kinds = BTreeSet::new();
                // One JDK for each recording; `.ci/long agree` prints each with both.
                let taken = |n: usize| flightline_tests::long() || n.is_multiple_of(2) == (release == 17);
                let wrong = fixtures("recordings")
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| taken(*n))
                    .flat_map(|(_, file)| recording(file, release, &mut jfr, &mut kinds))
                    .collect::<Vec<_>>();
                (wrong, kinds)
            })
        };
        tools.map(one_jdk).into_iter().map(|thread| thread.join().unwrap()).unzip()
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let kinds: BTreeSet<(Allowed, u32)> = kinds.into_iter().flatten().collect();
    let needed =
        |release: u32, kinds: &[Allowed]| kinds.iter().map(|kind| (*kind, release)).collect::<Vec<_>>();
    use Allowed::{Character, Clock, Digits, Extreme, Overflow, Scale, Sign, Surrogate};
    let both = [Character, Clock, Surrogate, Overflow];
    let needed =
        [needed(17, &both), needed(17, &[Extreme, Sign, Digits]), needed(25, &both), needed(25, &[Scale])];
    let needed: BTreeSet<_> = needed.into_iter().flatten().collect();
    assert!(kinds.is_subset(&needed), "{kinds:?}");
    // An unused allowance would hide later differences.
    assert!(!flightline_tests::long() || kinds == needed, "{kinds:?}");
}

/// The result of the JDKs for a case.
enum Jdk {
    /// Fails with this error.
    Refuses(&'static str),
    /// Never ends; not run.
    Hangs,
    /// Reads it, with values at these paths that differ from those of other readers.
    Reads(&'static [&'static str]),
}
use Jdk::*;

/// Constants that only we find: the JDK follows the chain only.
const UNRESOLVED: &[&str] = &[
    "jdk.ExecutionSample.values.sampledThread",
    "jdk.ExecutionSample.values.stackTrace",
    "jdk.ExecutionSample.values.state",
];
/// Constants of the first chunk instead of the second's.
const FIRST_CHUNKS: &[&str] = &[
    "jdk.ExecutionSample.values.sampledThread.osName",
    "jdk.ExecutionSample.values.sampledThread.osThreadId",
    "jdk.ExecutionSample.values.stackTrace.frames",
];

/// The cases that a JDK reads differently: release, case, behaviour. It reads all others as we do.
#[rustfmt::skip]
const JDKS: &[(&str, &[u32], Jdk)] = &[
    ("09_empty_pool", &[17, 25], Refuses("")),
    ("11_unknown_pool_type", &[17, 25], Refuses("unknown(77)")),
    ("12_delta0_unchained", &[17, 25], Reads(&[
        UNRESOLVED[0], UNRESOLVED[1], UNRESOLVED[2],
        "jdk.ExecutionSample.values.stackTrace.frames[].method.descriptor",
        "jdk.ExecutionSample.values.stackTrace.frames[].method.type",
        "jdk.ExecutionSample.values.stackTrace.frames[].type",
    ])),
    ("20_unpatched_zero_state0", &[17, 25], Refuses("No metadata event")),
    ("21_unpatched_zero_state1", &[17, 25], Hangs),
    ("22_unpatched_size68_state1", &[17, 25], Refuses("locked stream state")),
    ("23_huge_size_meta68_cp0_state0", &[17, 25], Refuses("")),
    ("24_size_ok_cp0_meta68_state0", &[17, 25], Reads(UNRESOLVED)),
    ("25_full_but_state1", &[25], Refuses("locked stream state")),
    ("26_full_but_state255", &[17, 25], Refuses("locked stream state")),
    ("27_huge_size_cp_ok_state0", &[17, 25], Refuses("")),
    ("28_size_maxlong_cp_first_state0", &[17, 25], Refuses("")),
    ("29_size0_rest_ok", &[17, 25], Hangs),
    ("31_truncated_tail", &[17, 25], Refuses("")),
    ("32_trailing_garbage", &[17, 25], Refuses("Not a Flight Recorder file")),
    ("33_state1_size_ok_truncmid", &[17, 25], Refuses("")),
    ("41_two_chunks_id_clash_same_mid", &[17, 25], Reads(FIRST_CHUNKS)),
    ("42_two_chunks_id_clash_diff_mid", &[17, 25], Reads(FIRST_CHUNKS)),
    ("54_no_region", &[17, 25], Refuses("")),
    // The second chunk's types have another declaration, so its events are lost.
    ("79_same_mid_diff_types", &[17, 25], Reads(&["more of ours"])),
    // A type whose name is a Java keyword.
    ("82_arrays", &[25], Refuses("")),
];

fn case(file: &Path, release: u32, jfr: &mut JfrTool) -> Result<(), String> {
    let known = JDKS.iter().find(|(case, releases, _)| *case == name(file) && releases.contains(&release));
    let places: &[&str] = match known {
        Some((_, _, Hangs)) => return Ok(()),
        Some((_, _, Refuses(why))) => {
            let Agreement { jdk_failed, .. } = compare(victim::flightline(), jfr, file, file, Some(DEEP));
            let expected = jdk_failed.as_ref().is_some_and(|told| told.contains(why));
            return if expected {
                Ok(())
            } else {
                Err(format!("{}, JDK {release}: {jdk_failed:?}", name(file)))
            };
        }
        Some((_, _, Reads(places))) => places,
        None => &[],
    };
    let agreement = compare(victim::flightline(), jfr, file, file, Some(DEEP));
    let differing: BTreeSet<&str> = agreement.differences.keys().map(String::as_str).collect();
    let same = differing == places.iter().copied().collect();
    let fine = same && agreement.jdk_failed.is_none() && agreement.events > 0;
    if fine { Ok(()) } else { Err(format!("{}, JDK {release}: {agreement}", name(file))) }
}

#[test]
fn json_matches_jdk_for_every_case_it_reads() {
    let _place = beside();
    let Some(tools) = tools() else { return };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let one_jdk = |(release, mut jfr): (u32, JfrTool)| {
            scope.spawn(move || {
                let files = fixtures("cases");
                files.iter().filter_map(|file| case(file, release, &mut jfr).err()).collect::<Vec<_>>()
            })
        };
        tools.map(one_jdk).into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let names: BTreeSet<String> = fixtures("cases").iter().map(|file| name(file).to_owned()).collect();
    assert!(JDKS.iter().all(|(case, ..)| names.contains(*case)), "a case that is not there");
}

#[test]
fn comparison_detects_different_recordings() {
    let _place = beside();
    let Some([_, (_, mut jfr)]) = tools() else { return };
    let file = |name: &str| fixtures("cases").into_iter().find(|f| f.ends_with(name)).unwrap();
    // Two recordings that are not the same.
    let (a, b) = (file("01_defs_before.jfr"), file("43_two_chunks_disjoint_ids.jfr"));
    let agreement = compare(victim::flightline(), &mut jfr, &a, &b, None);
    assert!(!agreement.differences.is_empty(), "{agreement}");
}

/// A recording with one sample of a thread in `groups` nested thread groups.
fn nested(groups: u64, into: &Path) {
    use jfr_format::ids::{FileOffset, Ticks};
    use jfr_format::schema::{self, thread_state};
    use jfr_format::write::{ChunkWriter, ClockLine, FileOutput, Geometry};

    let line = ClockLine {
        start_ticks: Ticks(0),
        start_epoch_ns: 1_700_000_000_000_000_000,
        ticks_per_second: 1_000,
    };
    let mut out = FileOutput::new(std::fs::File::create(into).unwrap()).unwrap();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0)).unwrap();
    for group in 1..=groups {
        let outer = if group == groups { 0 } else { group + 1 };
        chunk
            .constant(schema::THREAD_GROUP, group, |g| {
                g.key(outer).string(&format!("group {group}"));
            })
            .unwrap();
    }
    chunk
        .constant(schema::THREAD, 7, |t| {
            t.string("deep").long(7).string("deep").long(7).key(1);
        })
        .unwrap();
    chunk
        .event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(Ticks(5)).key(7).key(0).key(thread_state::DEFAULT);
        })
        .unwrap();
    chunk.finish(Ticks(10), true, &mut out).unwrap();
}

#[test]
fn deeply_nested_constants_are_printed_or_truncated() {
    let _place = beside();
    let Some(tools) = tools() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nested.jfr");
    // As deep as chains of objects that a JDK writes.
    nested(400, &file);
    for (release, mut jfr) in tools {
        let agreement = compare(victim::flightline(), &mut jfr, &file, &file, None);
        assert_eq!((agreement.events, agreement.same_bytes), (1, 1), "JDK {release}: {agreement}");
    }
    // Deeper than any real recording: the output is truncated with a message, and the stack does not
    // overflow.
    nested(100_000, &file);
    let print = |form| {
        let mut print = std::process::Command::new(victim::flightline());
        run(print.args(["print", form]).arg(&file), Duration::from_secs(60))
    };
    for form in ["--json", "--ndjson", "--csv"] {
        let done = print(form);
        assert_eq!(done.code(), 1, "{form}: {}", done.stderr);
        assert!(done.stderr.contains("too deep values (at offset"), "{form}: {}", done.stderr);
        assert!(done.stdout_text().contains("group 479"), "{form}");
    }
    // Referenced constants are next to each other.
    assert!(print("--compact").expect_success("--compact").stdout_text().contains("group 100000"));
}
