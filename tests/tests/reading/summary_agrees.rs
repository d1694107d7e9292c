//! Compares `flightline summary --json` with `jfr summary` of JDK 17 and 25 on all fixtures: version, chunks,
//! start, duration, and for each event type the number of events and bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::jfr_tool::JfrTool;
use flightline_tests::run::{beside, run};
use flightline_tests::{foreign, victim};
use serde_json::Value as Json;

/// The figures that both print. Start in seconds, duration rounded to seconds, as the JDK prints it.
#[derive(Clone, Debug, PartialEq)]
struct Summary {
    version: String,
    chunks: u64,
    start: String,
    seconds: u64,
    /// By type: events and bytes.
    events: BTreeMap<String, (u64, u64)>,
}

/// Type names on which the JDKs disagree, and undeclared types.
fn plain(name: &str) -> String {
    match name.split_once(" (missing event metadata)") {
        Some((id, _)) => format!("type {id}"),
        None => name.replace("jdk.Checkpoint", "jdk.CheckPoint"),
    }
}

fn ours(file: &Path) -> Summary {
    let mut command = Command::new(victim::flightline());
    command.args(["summary", "--json", "--top", "0"]).arg(file);
    // Exit status 1 reports a doubtful file.
    let done = run(&mut command, Duration::from_secs(60));
    let told: Json = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|e| panic!("{}: {e}: {}", file.display(), done.stderr));
    let row = |event: &Json| {
        let number = |key: &str| event[key].as_u64().unwrap();
        (plain(event["type"].as_str().unwrap()), (number("count"), number("bytes")))
    };
    let events = told["events"].as_array().unwrap().iter().map(row).filter(|(_, (count, _))| *count > 0);
    Summary {
        version: told["version"].as_str().unwrap().to_owned(),
        chunks: told["chunks"].as_u64().unwrap(),
        start: told["start"].as_str().unwrap()[..19].replace('T', " "),
        seconds: (told["durationNanos"].as_u64().unwrap() + 500_000_000) / 1_000_000_000,
        events: events.collect(),
    }
}

/// The output of `jfr summary`; `None` if it fails.
fn theirs(jfr: &mut JfrTool, file: &Path) -> Option<Summary> {
    let done = jfr.run(&["summary", file.to_str().unwrap()]);
    if !done.status.success() {
        return None;
    }
    let text = done.stdout_text();
    let head =
        |name: &str| text.lines().find_map(|l| l.trim().strip_prefix(name)).map(str::trim).map(str::to_owned);
    let rows = text.lines().skip_while(|line| !line.starts_with("===")).skip(1);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let [name @ .., count, bytes] = &cells[..] else { panic!("{line:?}") };
        (plain(&name.join(" ")), (count.parse().unwrap(), bytes.parse().unwrap()))
    };
    let events = rows
        .filter(|line| !line.trim().is_empty())
        .map(row)
        .filter(|(_, (count, _)): &(_, (u64, u64))| *count > 0);
    Some(Summary {
        version: head("Version:")?,
        chunks: head("Chunks:")?.parse().unwrap(),
        start: head("Start:")?[..19].to_owned(),
        seconds: head("Duration:")?.trim_end_matches(" s").parse().unwrap(),
        events: events.collect(),
    })
}

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Recordings that `jfr summary` of at least one JDK refuses. The rows of unfinished ones are compared in
/// `fixtures.rs` and `print_agrees.rs`.
const REFUSED: &[&str] = &[
    "20_unpatched_zero_state0",
    "22_unpatched_size68_state1",
    "23_huge_size_meta68_cp0_state0",
    "25_full_but_state1",
    "26_full_but_state255",
    "27_huge_size_cp_ok_state0",
    "28_size_maxlong_cp_first_state0",
    "31_truncated_tail",
    "32_trailing_garbage",
    "33_state1_size_ok_truncmid",
    "54_no_region",
    "82_arrays",
    "ap-native-fifo",
    "ap-native-killed",
    "jdk17-killed",
    "jdk25-killed",
];
/// Recordings on which it hangs.
const HANGS: &[&str] = &["21_unpatched_zero_state1", "29_size0_rest_ok"];
/// The JDK adds up the durations of chunks; ours is from the first start to the last end. Here chunks overlap
/// or have gaps.
const OTHER_DURATION: &[&str] = &[
    "ap-jfrsync",
    "40_two_chunks_same_ids_same_vals",
    "41_two_chunks_id_clash_same_mid",
    "42_two_chunks_id_clash_diff_mid",
    "43_two_chunks_disjoint_ids",
    "79_same_mid_diff_types",
];
/// The JDK counts by type id, which means a different type in each chunk here. `fixtures.rs` compares the
/// counts with `RecordingFile`.
const OTHER_TYPES: &[&str] = &["ap-jfrsync"];

fn name(file: &Path) -> String {
    file.file_stem().unwrap().to_str().unwrap().to_owned()
}

/// The differences, and the names of the recordings that this JDK refuses.
fn by_one_jdk(
    release: u32,
    home: PathBuf,
    files: &[&PathBuf],
    ours: &[Summary],
) -> (Vec<String>, BTreeSet<String>) {
    let mut jfr = JfrTool::start(&home);
    let mut wrong = Vec::new();
    let mut refused = BTreeSet::new();
    for (file, ours) in files.iter().zip(ours) {
        let mut ours = ours.clone();
        let theirs = theirs(&mut jfr, file).inspect(|theirs| {
            if OTHER_DURATION.contains(&&*name(file)) {
                ours.seconds = theirs.seconds;
            }
        });
        match theirs {
            None => {
                refused.insert(name(file));
            }
            Some(theirs) if ours == theirs => {}
            Some(theirs) if OTHER_TYPES.contains(&&*name(file)) => {
                let all = |s: &Summary| s.events.values().map(|(count, _)| count).sum::<u64>();
                assert_eq!(all(&ours), all(&theirs), "{}", name(file));
            }
            Some(theirs) => {
                let types: BTreeSet<_> = ours.events.iter().chain(&theirs.events).map(|(t, _)| t).collect();
                let types: Vec<_> = types
                    .into_iter()
                    .filter(|t| ours.events.get(*t) != theirs.events.get(*t))
                    .map(|t| format!("{t}: {:?}, JDK {:?}", ours.events.get(t), theirs.events.get(t)))
                    .collect();
                let of = |s: &Summary| format!("{} {} {} {}", s.version, s.chunks, s.start, s.seconds);
                let (o, t) = (of(&ours), of(&theirs));
                wrong.push(format!("{}, JDK {release}: {o}, JDK {t}; {types:?}", name(file)));
            }
        }
    }
    (wrong, refused)
}

#[test]
fn summary_matches_jdk_for_every_fixture() {
    let _place = beside();
    let homes = [17, 25].map(|release| Some((release, foreign::jdk(release)?)));
    let [Some(old), Some(new)] = homes else { return };
    let files: Vec<PathBuf> = fixtures("recordings").into_iter().chain(fixtures("cases")).collect();
    let files: Vec<&PathBuf> = files.iter().filter(|file| !HANGS.contains(&&*name(file))).collect();
    let ours: Vec<Summary> = files.iter().map(|file| ours(file)).collect();
    let (ours, files) = (&ours[..], &files[..]);
    let (wrong, refused): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
        let one_jdk = |(release, home)| scope.spawn(move || by_one_jdk(release, home, files, ours));
        [old, new].map(one_jdk).into_iter().map(|thread| thread.join().unwrap()).unzip()
    });
    let wrong = wrong.concat();
    let refused: BTreeSet<String> = refused.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(refused, REFUSED.iter().map(|name| (*name).to_owned()).collect());
}
