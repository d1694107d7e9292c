//! Compaction, aggregation and retention: the answers before and after must be equal.

use std::collections::BTreeMap;
use std::fs;
use std::future::{pending, ready};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::kit::{self, answer, open};
use flightline_store::layout::Table;
use flightline_store::maintain::{Done, Lock, Maintainer, Options};
use flightline_store::storage::{Storage, is_gone};
use flightline_store::write::{self, Writer, chunks};
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema;
use jfr_format::write::{ChunkWriter, ClockLine, FieldWriter, Geometry};

const DAY: i64 = 86_400_000;
/// A time after all fixture recordings, ms.
const NOW: i64 = 4_000_000_000_000;
const DAYS: fn(u64) -> Duration = |days| Duration::from_secs(days * 86_400);

fn place(store: &Path) -> Storage {
    Storage::create(store.to_str().unwrap()).unwrap()
}

async fn add(store: &Path, service: &str, labels: &[(&str, &str)], recording: &[u8]) {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let options =
        write::Options { service: service.to_owned(), labels, unfinished: true, ..write::Options::default() };
    Writer::new(place(store), options).unwrap().add(recording).await.unwrap();
}

fn read(name: &str) -> Vec<u8> {
    fs::read(kit::fixture(name)).unwrap()
}

/// Creates a store of several recordings in many files.
async fn store(at: &Path) {
    for (number, name) in
        ["jdk17-multichunk.jfr", "jdk25-multichunk.jfr", "ap-java-multichunk.jfr"].iter().enumerate()
    {
        let recording = read(name);
        for chunk in chunks(&recording).unwrap() {
            let host = format!("h{}", chunk.id.0 % 3);
            let mut labels = vec![("host", host.as_str())];
            labels.extend([("even", "1")].into_iter().filter(|_| number % 2 == 0));
            add(at, "api", &labels, chunk.bytes).await;
        }
    }
    add(at, "db", &[], &read("ap-native-cpu.jfr")).await;
    add(at, "db", &[], &read("flightline.jfr")).await;
}

fn options() -> Options {
    Options { files: 2, ..Options::default() }
}

async fn maintain(store: &Path, options: Options) -> Done {
    let done = Maintainer::new(place(store), options, NOW).run(pending()).await.unwrap();
    assert_eq!(done.failed, [""; 0]);
    done
}

/// Returns a summary of all columns of the samples.
async fn samples(store: &Path) -> String {
    let sql = "SELECT service, day, event_type, thread, tid, state, unit, label_host, chunk, count(*), sum(samples), sum(value), min(ts), max(ts),
        sum(stack_id % 1000003), sum(duration_ns) FROM samples GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9";
    answer(&open(store).await, sql).await
}

async fn dictionary(store: &Path) -> String {
    let sql = "SELECT 'stacks', count(*), sum(stack_id % 1000003), sum(depth) FROM stacks UNION ALL SELECT 'nodes', count(*), sum(node_id % 1000003), sum(depth) FROM nodes
        UNION ALL SELECT 'frames', count(*), sum(frame_hash % 1000003), sum(line) FROM frames ORDER BY 1";
    answer(&open(store).await, sql).await
}

fn count(store: &Path, table: &str) -> usize {
    kit::files(store).iter().filter(|file| file.starts_with(table)).count()
}

#[tokio::test]
async fn compaction_changes_only_number_of_files() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path()).await;
    let (before, names) = (samples(folder.path()).await, dictionary(folder.path()).await);
    let files = kit::files(folder.path()).len();
    let dry = maintain(folder.path(), Options { dry_run: true, ..options() }).await;
    assert_eq!(kit::files(folder.path()).len(), files);
    let done = maintain(folder.path(), options()).await;
    assert_eq!((done.compacted, done.into), (dry.compacted, dry.into));
    assert_eq!(kit::files(folder.path()).len() as u64, files as u64 - done.compacted + done.into);
    let folders: std::collections::BTreeSet<_> =
        kit::files(folder.path()).iter().map(|file| file.parent().unwrap().to_owned()).collect();
    assert_eq!(kit::files(folder.path()).len(), folders.len());
    assert_eq!(samples(folder.path()).await, before);
    assert_eq!(dictionary(folder.path()).await, names);
    assert_eq!(maintain(folder.path(), options()).await, Done::default());
    // Chunks in the store are still recognized.
    store(folder.path()).await;
    assert_eq!(kit::files(folder.path()).len(), folders.len());
    // Young files are not compacted.
    let young = Options { younger: Duration::from_secs(u64::MAX / 2000), ..options() };
    add(folder.path(), "db", &[], &read("ap-native-wall.jfr")).await;
    assert_eq!(maintain(folder.path(), young).await.compacted, 0);
}

#[tokio::test]
async fn interrupted_compaction_is_invisible_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path()).await;
    let before = samples(folder.path()).await;
    let old: BTreeMap<_, _> = kit::files(folder.path())
        .into_iter()
        .map(|file| (file.clone(), fs::read(folder.path().join(file)).unwrap()))
        .collect();
    maintain(folder.path(), options()).await;
    let compacted = kit::files(folder.path());
    // Simulate an interruption: some or all of the replaced files remain.
    for (number, (file, bytes)) in old.iter().enumerate() {
        if number % 3 != 0 && !compacted.contains(file) {
            fs::write(folder.path().join(file), bytes).unwrap();
        }
    }
    assert!(kit::files(folder.path()).len() > compacted.len());
    assert_eq!(samples(folder.path()).await, before);
    maintain(folder.path(), options()).await;
    assert_eq!(kit::files(folder.path()), compacted);
    assert_eq!(samples(folder.path()).await, before);
}

#[tokio::test]
async fn chunk_delivered_twice_concurrently_is_compacted_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let recording = read("jdk17-multichunk.jfr");
    let once = tempfile::tempdir().unwrap();
    add(once.path(), "api", &[], &recording).await;
    let options = write::Options { service: "api".to_owned(), unfinished: true, ..write::Options::default() };
    let first = chunks(&recording).unwrap()[0].bytes.len();
    let last = recording.len() - chunks(&recording).unwrap().last().unwrap().bytes.len();
    let [one, other] = [(); 2].map(|()| Writer::new(place(folder.path()), options.clone()).unwrap());
    // Each writer has checked the store before the other one writes more.
    one.add(&recording[..first]).await.unwrap();
    other.add(&recording[..first]).await.unwrap();
    one.add(&recording).await.unwrap();
    other.add(&recording[last..]).await.unwrap();
    let sums = |store: &Path| {
        let store = store.to_owned();
        async move {
            let sql = "SELECT chunk, event_type, count(*), sum(value), sum(stack_id % 1000003) FROM samples GROUP BY 1, 2 ORDER BY 1, 2";
            answer(&open(&store).await, sql).await
        }
    };
    let want = sums(once.path()).await;
    assert_eq!(sums(folder.path()).await, want);
    maintain(folder.path(), self::options()).await;
    assert_eq!(count(folder.path(), "samples"), 1);
    assert_eq!(sums(folder.path()).await, want);
    // The file itself has no duplicates; they are not just filtered by the reader.
    let path = kit::files(folder.path()).into_iter().find(|file| file.starts_with("samples")).unwrap();
    let session = open(folder.path()).await;
    session.add_table("plain", &folder.path().join(path)).await.unwrap();
    let both = answer(&session, "SELECT (SELECT count(*) FROM plain) - (SELECT count(*) FROM samples)").await;
    assert_eq!(both, "0");
    let again = Writer::new(place(folder.path()), options).unwrap().add(&recording).await.unwrap();
    assert_eq!((again.chunks, again.rows), (0, 0));
}

/// Returns the same aggregation, computed from the samples and from the aggregated table.
async fn both(store: &Path, table: Table, seconds: u32) -> (String, String) {
    let session = open(store).await;
    let keys = "service, day, stack_id, event_type, state, unit, label_host";
    let time = format!("CAST(floor(extract(epoch FROM ts) / {seconds}) AS BIGINT) * {seconds}");
    let of = |table: &str| {
        format!(
            "SELECT {keys}, {time} AS t, sum(samples), sum(value) FROM {table} GROUP BY {keys}, {time} ORDER BY {keys}, t"
        )
    };
    (answer(&session, &of("samples")).await, answer(&session, &of(table.name())).await)
}

fn summed() -> Options {
    Options { sums: Table::SUMS.to_vec(), ..options() }
}

#[tokio::test]
async fn sums_equal_samples_for_every_key_and_delivery_order() {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "api", &[("host", "h1")], &read("jdk17-multichunk.jfr")).await;
    let first = maintain(folder.path(), summed()).await;
    assert!(first.summed > 0);
    // Samples that arrive after a compaction.
    store(folder.path()).await;
    let late = maintain(folder.path(), summed()).await;
    assert!(late.summed > 0);
    assert_eq!(maintain(folder.path(), summed()).await.summed, 0);
    for (table, seconds) in [(Table::Minutes, 60), (Table::Hours, 3600), (Table::Days, 86_400)] {
        let (raw, sums) = both(folder.path(), table, seconds).await;
        kit::same(&sums, &raw, table.name());
        assert!(raw.lines().count() > 500);
        let session = open(folder.path()).await;
        let begins = format!(
            "SELECT count(*) FROM {} WHERE arrow_cast(ts, 'Int64') % {seconds}000000 <> 0",
            table.name()
        );
        assert_eq!(answer(&session, &begins).await, "0");
    }
}

#[tokio::test]
async fn labels_with_many_values_are_reported_and_selected_ones_retained() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..40 {
        add(folder.path(), "api", &[("task", &format!("t{number}")), ("host", "h")], &read("flightline.jfr"))
            .await;
        // Other bytes make another chunk.
        let mut other = read("flightline.jfr");
        other[39] ^= number + 1;
        add(folder.path(), "api", &[("task", &format!("t{number}")), ("host", "h")], &other).await;
    }
    let done = maintain(folder.path(), Options { sums: vec![Table::Hours], ..options() }).await;
    assert!(done.notes[0].contains("without label_task"), "{:?}", done.notes);
    let session = open(folder.path()).await;
    assert!(session.stream("SELECT label_task FROM samples_hour").await.is_err());
    let labels = Some(vec!["task".to_owned()]);
    maintain(folder.path(), Options { sums: vec![Table::Days], labels, ..options() }).await;
    let session = open(folder.path()).await;
    let tasks = "SELECT (SELECT count(DISTINCT label_task) FROM samples_day) - (SELECT count(DISTINCT label_task) FROM samples)";
    assert_eq!(answer(&session, tasks).await, "0");
}

#[tokio::test]
async fn old_rows_are_removed_and_rows_of_sums_retained() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path()).await;
    maintain(folder.path(), summed()).await;
    // Only one service has samples in the aggregated table, so it does not refer to all stacks.
    let hours = "SELECT service, event_type, sum(samples), sum(value), count(DISTINCT stack_id) FROM samples_hour GROUP BY 1, 2 ORDER BY 1, 2";
    let before = answer(&open(folder.path()).await, hours).await;
    let names = dictionary(folder.path()).await;
    let keep = |days: &[(Table, u64)]| days.iter().map(|&(table, days)| (table, DAYS(days))).collect();

    let none = maintain(folder.path(), Options { keep: keep(&[(Table::Samples, 36_500)]), ..summed() }).await;
    assert_eq!(none.expired, 0);
    let all = [(Table::Samples, 7), (Table::Minutes, 7)];
    let dry = maintain(folder.path(), Options { keep: keep(&all), dry_run: true, ..summed() }).await;
    assert!(dry.expired > 0);
    assert!(count(folder.path(), "samples") > 0);
    maintain(folder.path(), Options { keep: keep(&all), ..summed() }).await;
    assert_eq!(
        (
            count(folder.path(), "samples"),
            count(folder.path(), "samples_minute"),
            count(folder.path(), "losses")
        ),
        (0, 0, 0)
    );
    assert!(count(folder.path(), "samples_hour") > 0);
    assert_eq!(answer(&open(folder.path()).await, hours).await, before);
    assert_eq!(dictionary(folder.path()).await, names);

    let rest = [(Table::Hours, 7), (Table::Days, 7)];
    maintain(folder.path(), Options { keep: keep(&rest), ..options() }).await;
    assert_eq!(kit::files(folder.path()), [""; 0].map(std::path::PathBuf::from));
}

#[tokio::test]
async fn unreferenced_stacks_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let recording = read("jdk17-multichunk.jfr");
    let all = chunks(&recording).unwrap();
    add(folder.path(), "api", &[], all[0].bytes).await;
    maintain(folder.path(), Options { sums: vec![Table::Hours], ..options() }).await;
    let alone = dictionary(folder.path()).await;
    add(folder.path(), "api", &[], &recording).await;
    let with_all = dictionary(folder.path()).await;
    assert_ne!(alone, with_all);
    // No new aggregation was requested, so only samples refer to the other services' stacks.
    let keep = [(Table::Samples, DAYS(1))].into();
    maintain(folder.path(), Options { keep, ..options() }).await;
    assert_eq!(dictionary(folder.path()).await, alone);
}

#[tokio::test]
async fn samples_are_retained_until_summed_and_if_in_future() {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "api", &[], &read("flightline.jfr")).await;
    let mut future = read("flightline.jfr");
    future[32..40].copy_from_slice(&(NOW * 1_000_000 + 3 * DAY * 1_000_000).to_be_bytes());
    add(folder.path(), "future", &[], &future).await;
    let keep = [(Table::Samples, DAYS(1))].into();
    // An unreadable aggregated file.
    maintain(folder.path(), Options { sums: vec![Table::Hours], ..options() }).await;
    let sum = kit::files(folder.path()).into_iter().find(|file| file.starts_with("samples_hour")).unwrap();
    fs::write(folder.path().join(&sum), b"PAR1 torn").unwrap();
    let options = Options { sums: vec![Table::Hours], keep, ..options() };
    let done = Maintainer::new(place(folder.path()), options.clone(), NOW).run(pending()).await.unwrap();
    assert!(done.failed[0].contains("no whole Parquet file"), "{:?}", done.failed);
    assert_eq!((done.failed.len(), done.expired), (1, 0));
    fs::remove_file(folder.path().join(&sum)).unwrap();
    let done = maintain(folder.path(), options).await;
    assert!(done.expired > 0 && done.summed > 0);
    let left = answer(&open(folder.path()).await, "SELECT DISTINCT service FROM samples").await;
    assert_eq!(left, "future");
}

#[tokio::test]
async fn stacks_of_later_samples_are_retained() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path()).await;
    fs::remove_dir_all(folder.path().join("samples")).unwrap();
    let files = kit::files(folder.path());
    assert!(!files.is_empty());
    for keep in [Default::default(), [(Table::Samples, DAYS(365_000))].into()] {
        maintain(folder.path(), Options { files: usize::MAX, keep, ..Options::default() }).await;
        assert_eq!(kit::files(folder.path()), files);
    }
    // Stacks of a day that ended and was written long ago belong to no delivery in progress.
    let keep = [(Table::Samples, DAYS(7))].into();
    maintain(folder.path(), Options { files: usize::MAX, keep, ..Options::default() }).await;
    assert!(kit::files(folder.path()).is_empty());
}

#[tokio::test]
async fn truncated_file_stops_only_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path()).await;
    let torn = kit::files(folder.path())
        .into_iter()
        .find(|file| file.starts_with("samples") && file.to_str().unwrap().contains("service=api"));
    let torn = folder.path().join(torn.unwrap());
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let done = Maintainer::new(place(folder.path()), summed(), NOW).run(pending()).await.unwrap();
    let name = torn.file_name().unwrap().to_str().unwrap();
    assert!(done.failed.len() == 1 && done.failed[0].contains(name), "{:?}", done.failed);
    assert!(done.summed > 0);
    assert_eq!(fs::read(&torn).unwrap().len(), bytes.len() / 2);
}

#[tokio::test]
async fn maintenance_runs_once_at_a_time_and_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path()).await;
    let files = kit::files(folder.path());
    let work = || Maintainer::new(place(folder.path()), options(), NOW);
    let lock = Lock::take(&place(folder.path())).await.unwrap();
    let told = work().run(pending()).await.unwrap_err();
    assert!(format!("{told:#}").contains("is locked by process"), "{told:#}");
    // A dry run needs no lock.
    let dry = Options { dry_run: true, ..options() };
    assert!(Maintainer::new(place(folder.path()), dry, NOW).run(pending()).await.unwrap().compacted > 0);
    // Simulate a killed holder.
    drop(lock);
    let before = samples(folder.path()).await;
    assert!(work().run(ready(())).await.unwrap().stopped);
    assert_eq!(samples(folder.path()).await, before);
    maintain(folder.path(), options()).await;
    assert!(kit::files(folder.path()).len() < files.len());
    assert_eq!(samples(folder.path()).await, before);
}

#[test]
fn periodic_maintain_exits_on_signal() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(add(folder.path(), "api", &[], &read("flightline.jfr")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline-sql"));
    command.arg("maintain").arg("--store").arg(folder.path()).args(["--every", "1h"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // The first pass is complete, and the process waits.
    let mut told = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.contains("0 rows of sums made"), "{told}");
    // Use the shell's builtin; the kill program may not be installed.
    let killed = Command::new("sh").args(["-c", &format!("kill {}", child.id())]).status().unwrap();
    assert!(killed.success());
    assert!(child.wait().unwrap().success());
    runtime.block_on(Lock::take(&place(folder.path()))).unwrap();
}

#[tokio::test]
async fn expired_sums_are_not_made_and_dry_run_has_same_counts() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path()).await;
    let keep: BTreeMap<_, _> = [(Table::Minutes, DAYS(1))].into();
    let of = |dry_run| Options { keep: keep.clone(), dry_run, ..summed() };
    let dry = maintain(folder.path(), of(true)).await;
    let done = maintain(folder.path(), of(false)).await;
    assert!(done.summed > 0 && dry.summed == done.summed, "{dry:?} {done:?}");
    assert!(done.notes.iter().any(|note| note.starts_with("samples_minute is not made")), "{done:?}");
    assert_eq!((count(folder.path(), "samples_minute"), done.expired), (0, 0));
    assert!(count(folder.path(), "samples_hour") > 0);
    assert_eq!(maintain(folder.path(), of(false)).await.summed, 0);
    // Samples expire without waiting for these.
    let keep = [(Table::Minutes, DAYS(1)), (Table::Samples, DAYS(1))].into();
    assert!(maintain(folder.path(), Options { keep, ..summed() }).await.expired > 0);
    assert_eq!(count(folder.path(), "samples"), 0);
}

#[tokio::test]
async fn labels_of_sums_are_selected_once() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = [&read("flightline.jfr"), &read("ap-native-wall.jfr")];
    let hours = || Options { sums: vec![Table::Hours], files: usize::MAX, ..options() };
    add(folder.path(), "api", &[("host", "h1")], first).await;
    maintain(folder.path(), hours()).await;
    // Add another label with few values on the same day.
    let mut late = first.clone();
    late[39] ^= 1;
    add(folder.path(), "api", &[("host", "h1"), ("zone", "a")], &late).await;
    add(folder.path(), "other", &[("zone", "a")], second).await;
    let done = maintain(folder.path(), hours()).await;
    assert!(
        done.notes.len() == 1 && done.notes[0].contains("without label_zone, as those before"),
        "{done:?}"
    );
    let session = open(folder.path()).await;
    let by = |table: &str| {
        format!("SELECT service, label_host, sum(samples) FROM {table} GROUP BY 1, 2 ORDER BY 1, 2")
    };
    assert_eq!(answer(&session, &by("samples_hour")).await, answer(&session, &by("samples")).await);
    let zones = "SELECT DISTINCT service FROM samples_hour WHERE label_zone IS NOT NULL";
    assert_eq!(answer(&session, zones).await, "other");
}

#[tokio::test]
async fn compacted_files_have_no_more_labels_than_others() {
    let folder = tempfile::tempdir().unwrap();
    let recording = read("flightline.jfr");
    for number in 0..3u8 {
        let keys: Vec<String> = (0..40).map(|key| format!("k{number}_{key}")).collect();
        let labels: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
        let mut other = recording.clone();
        other[39] ^= number;
        add(folder.path(), "api", &labels, &other).await;
        // The same labels.
        other[39] ^= 64;
        add(folder.path(), "api", &labels, &other).await;
    }
    let of_each = "SELECT count(label_k0_0), count(label_k1_39), count(label_k2_7), count(*) FROM samples";
    let before = answer(&open(folder.path()).await, of_each).await;
    maintain(folder.path(), options()).await;
    assert_eq!(answer(&open(folder.path()).await, of_each).await, before);
    maintain(folder.path(), options()).await;
    // Two files with 40 labels each exceed the limit for one file.
    let left: Vec<_> =
        kit::files(folder.path()).into_iter().filter(|file| file.starts_with("samples")).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    let session = open(folder.path()).await;
    for (number, file) in left.iter().enumerate() {
        let name = format!("t{number}");
        session.add_table(&name, &folder.path().join(file)).await.unwrap();
        let columns = format!(
            "SELECT count(*) FROM information_schema.columns WHERE table_name = '{name}' AND starts_with(column_name, 'label_')"
        );
        assert_eq!(answer(&session, &columns).await, "40");
    }
}

/// A recording of page faults and branch misses.
fn of_two_variants() -> Vec<u8> {
    let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 1 << 60, ticks_per_second: 1_000_000_000 };
    let mut out = Vec::new();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0)).unwrap();
    for (key, name) in [(1, "page-faults"), (2, "branch-misses")] {
        chunk.constant(schema::EVENT_NAME, key, |n| _ = n.string(name)).unwrap();
    }
    for number in 0..10 {
        let write = |e: &mut FieldWriter<'_>| {
            e.ticks(Ticks(number)).key(0).key(0).key(1 + number as u64 % 2).long(7);
        };
        chunk.event(schema::EVENT_SAMPLE, write).unwrap();
    }
    chunk.finish(Ticks(20), true, &mut out).unwrap();
    out
}

#[tokio::test]
async fn losses_variants_and_invalid_days_survive_maintenance() {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "two", &[], &of_two_variants()).await;
    // One recording without a clock, one with a clock far ahead.
    for (number, begin) in [0, 4_300_000_000_000_000_000_i64].into_iter().enumerate() {
        let mut recording = read("ap-native-wall.jfr");
        recording[32..40].copy_from_slice(&(begin + number as i64).to_be_bytes());
        add(folder.path(), "odd", &[], &recording).await;
    }
    store(folder.path()).await;
    let variants =
        "SELECT service, event_type, variant, sum(samples) FROM samples GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
    let losses = "SELECT day, service, told_by, cause, sum(events), sum(cpu_ns), count(*) FROM losses GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4";
    let days = "SELECT DISTINCT day FROM samples WHERE service = 'odd' ORDER BY 1";
    let all = async |path: &Path| {
        let session = open(path).await;
        [answer(&session, variants).await, answer(&session, losses).await, answer(&session, days).await]
    };
    let before = all(folder.path()).await;
    assert!(before[1].lines().count() > 0, "no losses in the fixtures");
    assert!(before[0].contains("page-faults,5") && before[0].contains("branch-misses,5"), "{}", before[0]);
    assert!(before[2].starts_with("1970-01-01") && before[2].contains("2106-"), "{}", before[2]);
    let done = maintain(folder.path(), summed()).await;
    assert_eq!(done.failed, [""; 0]);
    assert_eq!(all(folder.path()).await, before);
    let of_sums = variants.replace("FROM samples", "FROM samples_day");
    assert_eq!(answer(&open(folder.path()).await, &of_sums).await, before[0]);
}

#[tokio::test]
async fn truncated_dictionary_or_wrong_column_type_is_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path()).await;
    for table in ["nodes", "stacks", "frames"] {
        let file = kit::files(folder.path()).into_iter().find(|file| file.starts_with(table)).unwrap();
        let path = folder.path().join(&file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let told = kit::unopened(folder.path()).await;
        assert!(told.contains(file.file_name().unwrap().to_str().unwrap()), "{told}");
        let done = Maintainer::new(place(folder.path()), options(), NOW).run(pending()).await.unwrap();
        assert!(
            done.failed.len() == 1 && done.failed[0].contains("no whole Parquet file"),
            "{:?}",
            done.failed
        );
        fs::write(&path, &whole).unwrap();
    }
    // A file of another writer whose label is an integer.
    let any = kit::files(folder.path()).into_iter().find(|file| file.starts_with("samples")).unwrap();
    let file = folder.path().join(any).with_file_name("theirs.parquet");
    kit::one_column(&file, "label_host", 7);
    let told = kit::unopened(folder.path()).await;
    assert!(told.contains("theirs.parquet") && told.contains("label_host"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_reader_and_maintenance_run_concurrently() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let recording = Arc::new(read("jdk25-multichunk.jfr"));
    let writers = 8;
    let whole = tempfile::tempdir().unwrap();
    add(whole.path(), "api", &[], &recording).await;
    let one: u64 = answer(&open(whole.path()).await, "SELECT count(*) FROM samples").await.parse().unwrap();
    add(folder.path(), "first", &[], &recording).await;
    let running = Arc::new(AtomicBool::new(true));
    let compactions = Arc::new(AtomicU64::new(0));
    let at_work = |what: &'static str| {
        let (folder, running, compactions) = (folder.clone(), running.clone(), compactions.clone());
        tokio::spawn(async move {
            let mut rounds = 0;
            let mut last = 0;
            while running.load(Ordering::Relaxed) {
                if what == "reader" {
                    let session = open(folder.path()).await;
                    // Files that disappear during a query cause a retry.
                    match kit::try_answer(&session, "SELECT count(*) FROM samples").await {
                        Ok(count) => {
                            let count: u64 = count.parse().unwrap();
                            assert!(count >= last, "{count} after {last}");
                            last = count;
                            rounds += 1;
                        }
                        Err(error) => assert!(is_gone(&error), "{error:#}"),
                    }
                } else {
                    let done = maintain(folder.path(), summed()).await;
                    compactions.fetch_add(done.compacted, Ordering::Relaxed);
                    rounds += 1;
                }
            }
            rounds
        })
    };
    let (reader, maintainer) = (at_work("reader"), at_work("maintainer"));
    // All writers write, then compaction starts, then all write again.
    for round in [0, 1] {
        let tasks: Vec<_> = (0..writers)
            .map(|number| {
                let (folder, recording) = (folder.clone(), recording.clone());
                tokio::spawn(async move {
                    for chunk in chunks(&recording).unwrap() {
                        // Change the last digit of the clock to make each chunk unique.
                        let mut bytes = chunk.bytes.to_vec();
                        bytes[39] ^= number + writers * round + 1;
                        add(folder.path(), "api", &[("writer", &number.to_string())], &bytes).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        while compactions.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    running.store(false, Ordering::Relaxed);
    let (read, maintained) = (reader.await.unwrap(), maintainer.await.unwrap());
    assert!(read > 0 && maintained > 0, "{read} {maintained}");
    maintain(folder.path(), summed()).await;
    let session = open(folder.path()).await;
    assert_eq!(
        answer(&session, "SELECT count(*) FROM samples").await,
        ((2 * u64::from(writers) + 1) * one).to_string()
    );
    let each =
        answer(&session, "SELECT count(*) FROM samples WHERE service = 'api' GROUP BY label_writer").await;
    assert_eq!(each.lines().collect::<Vec<_>>(), vec![(2 * one).to_string(); usize::from(writers)]);
    let (raw, sums) = (
        answer(&session, "SELECT sum(samples), sum(value) FROM samples"),
        answer(&session, "SELECT sum(samples), sum(value) FROM samples_minute"),
    );
    assert_eq!(raw.await, sums.await);
}
