//! Writes real recordings to a store and compares its contents with the recordings.

use std::fs;
use std::path::Path;

use crate::kit::{self, answer, open, text};
use flightline_consumer::fold::{FoldOptions, Measure as Folded, fold};
use flightline_consumer::model::{ASLEEP, COVERED, Model};
use flightline_store::query::paths::Paths;
use flightline_store::query::weights::{Choice, Measure, weights};
use flightline_store::storage::Storage;
use flightline_store::write::{Added, Options, Writer, chunks};

fn options(service: &str) -> Options {
    Options { service: service.to_owned(), unfinished: true, ..Options::default() }
}

fn place(store: &Path) -> Storage {
    Storage::create(store.to_str().unwrap()).unwrap()
}

async fn add(store: &Path, options: Options, recording: &[u8]) -> Added {
    Writer::new(place(store), options).unwrap().add(recording).await.unwrap()
}

fn read(name: &str) -> Vec<u8> {
    fs::read(kit::fixture(name)).unwrap()
}

/// All recordings of the fixtures.
fn all() -> Vec<String> {
    let entries = fs::read_dir(kit::fixture(".")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".jfr")).collect();
    names.sort();
    names
}

#[tokio::test]
async fn store_flame_graphs_equal_those_of_recordings() {
    let (mut compared, mut kinds) = (0, 0);
    for name in all() {
        let folder = tempfile::tempdir().unwrap();
        let added = add(folder.path(), options(&name), &read(&name)).await;
        assert!(added.chunks > 0 && added.known == 0, "{name}: {added:?}");
        let path = kit::fixture(&name);
        let (model, with_lines) = (kit::model(&path), kit::model_with_lines(&path));
        if model.samples.is_empty() {
            continue;
        }
        let session = open(folder.path()).await;
        for (model, lines) in [(&model, false), (&with_lines, true)] {
            let names = FoldOptions { lines, classes: true, ..FoldOptions::default() };
            let all = weights(&session, Choice { table: "samples", filter: "", measure: Measure::Samples });
            let stacks = all.await.unwrap().by_stack.into_keys();
            let paths = Paths::read(&session, "samples", "", stacks, &names).await.unwrap();
            for (_, kind) in model.kinds.iter() {
                kinds += 1;
                let mut filter = format!("event_type = '{}'", kind.name);
                // The store has the variants that events report, not those derived from other events of a
                // chunk.
                let variant =
                    kind.variant.as_ref().filter(|variant| ![ASLEEP, COVERED].contains(&&***variant));
                if let Some(variant) = variant {
                    filter += &format!(" AND variant = '{variant}'");
                }
                for (folded, measure) in
                    [(Folded::Samples, Measure::Samples), (Folded::Total, Measure::Value)]
                {
                    let events = vec![variant.unwrap_or(&kind.name).to_string()];
                    let how = FoldOptions { events, measure: folded, ..names.clone() };
                    let Ok(want) = fold(model, &how) else { continue };
                    if folded == Folded::Total && (lines || !one_unit(model, &kind.name)) {
                        continue;
                    }
                    let choice = Choice { table: "samples", filter: &filter, measure };
                    let grown = paths.tree(&weights(&session, choice).await.unwrap(), measure.unit());
                    // Flame graphs of recordings count samples if there is nothing to sum up.
                    if folded == Folded::Total && grown.tree.total == 0 {
                        continue;
                    }
                    let of = format!("{name}: {} {folded:?}", kind.name);
                    kit::same(&text(&grown.tree), &text(&want), &of);
                    assert_eq!(grown.missing, 0);
                    compared += want.nodes.len();
                }
            }
        }
    }
    assert!(kinds > 200 && compared > 20_000, "{kinds} {compared}");
}

/// Returns true if all samples of a type have the same unit; others cannot be summed.
fn one_unit(model: &Model, event: &str) -> bool {
    let units: Vec<_> = model
        .kinds
        .iter()
        .filter(|(_, kind)| *kind.name == *event)
        .map(|(_, kind)| (kind.unit, kind.period_nanos))
        .collect();
    units.windows(2).all(|pair| pair[0] == pair[1])
}

#[tokio::test]
async fn repeated_delivery_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let recording = read("jdk17-multichunk.jfr");
    let parts: Vec<usize> = chunks(&recording).unwrap().iter().map(|chunk| chunk.bytes.len()).collect();
    assert!(parts.len() >= 3);
    let whole = tempfile::tempdir().unwrap();
    let all = add(whole.path(), options("a"), &recording).await;

    // Add the first chunk, everything, everything again, and the last chunk alone.
    let mut sum = add(folder.path(), options("a"), &recording[..parts[0]]).await;
    let rest = add(folder.path(), options("a"), &recording).await;
    assert_eq!((rest.known, rest.chunks), (1, parts.len() as u64 - 1));
    sum.add(rest);
    let again = add(folder.path(), options("a"), &recording).await;
    assert_eq!((again.known, again.chunks, again.rows, again.files), (parts.len() as u64, 0, 0, 0));
    let last = recording.len() - parts.last().unwrap();
    assert_eq!(add(folder.path(), options("a"), &recording[last..]).await.known, 1);
    assert_eq!(sum.rows, all.rows);
    assert_eq!(counts(folder.path()).await, counts(whole.path()).await);
    // For another service it is not a duplicate.
    assert_eq!(add(folder.path(), options("b"), &recording).await.rows, all.rows);
}

/// Samples and values by type.
async fn counts(store: &Path) -> String {
    let sql = "SELECT event_type, count(*), sum(samples), sum(value), min(ts), max(ts), sum(stack_id % 1000003) FROM samples GROUP BY 1 ORDER BY 1";
    answer(&open(store).await, sql).await
}

#[tokio::test]
async fn interrupted_delivery_is_completed_by_next() {
    let recording = read("jdk17-multichunk.jfr");
    let whole = tempfile::tempdir().unwrap();
    add(whole.path(), options("a"), &recording).await;
    let want = counts(whole.path()).await;
    let mut files = kit::files(whole.path());
    // In the order in which they are written.
    files.sort_by_key(|file| {
        ["frames", "nodes", "stacks", "losses", "samples"].iter().position(|table| file.starts_with(table))
    });
    // The writer may die after any file.
    for gone in 0..files.len() {
        let folder = tempfile::tempdir().unwrap();
        add(folder.path(), options("a"), &recording).await;
        for file in &files[gone..] {
            fs::remove_file(folder.path().join(file)).unwrap();
        }
        add(folder.path(), options("a"), &recording).await;
        assert_eq!(kit::files(folder.path()), kit::files(whole.path()));
        assert_eq!(counts(folder.path()).await, want);
    }
}

#[tokio::test]
async fn concurrent_deliveries_are_stored_once() {
    let recording = read("jdk17-multichunk.jfr");
    let first = chunks(&recording).unwrap()[0].bytes.len();
    let whole = tempfile::tempdir().unwrap();
    add(whole.path(), options("a"), &recording).await;
    let folder = tempfile::tempdir().unwrap();
    // Both writers checked the store before either wrote, so their deliveries overlap.
    let [one, other] = [(); 2].map(|()| Writer::new(place(folder.path()), options("a")).unwrap());
    let rest = chunks(&recording).unwrap().len() as u64 - 1;
    assert_eq!(one.add(&recording[..first]).await.unwrap().chunks, 1);
    assert_eq!(other.add(&recording[..first]).await.unwrap().known, 1);
    let last = recording.len() - chunks(&recording).unwrap().last().unwrap().bytes.len();
    let (one, other) = (one.add(&recording).await.unwrap(), other.add(&recording[last..]).await.unwrap());
    assert_eq!((one.chunks, other.chunks), (rest, 1));
    assert_eq!(counts(folder.path()).await, counts(whole.path()).await);
}

#[tokio::test]
async fn labels_are_columns_with_unambiguous_names() {
    let folder = tempfile::tempdir().unwrap();
    let labels = |host: &str, more: usize| {
        let own =
            [("host", host), ("ts", "a label"), ("stack_id", "7"), ("Host", "other"), ("it's", "quoted")];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let many = (0..more).map(|number| (format!("k{number:05}"), format!("v{number}")));
        own.into_iter().chain(many).collect::<Vec<_>>()
    };
    let recording = read("flightline.jfr");
    add(folder.path(), Options { labels: labels("h1", 0), ..options("a") }, &recording).await;
    add(folder.path(), Options { labels: labels("h2", 10_000), ..options("b") }, &recording).await;
    add(folder.path(), options("c"), &recording).await;
    let session = open(folder.path()).await;
    let sql = "SELECT service, label_host, label_ts, label_stack_id, label_it_s, labels['Host'], labels['k09999'], count(*)
        FROM samples WHERE ts > TIMESTAMP '2000-01-01' GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1";
    let rows = 98;
    assert_eq!(
        answer(&session, sql).await,
        format!(
            "a,h1,a label,7,quoted,other,,{rows}\nb,h2,a label,7,quoted,other,v9999,{rows}\nc,,,,,,,{rows}"
        )
    );
    let columns = answer(
        &session,
        "SELECT count(*) FROM information_schema.columns WHERE table_name = 'samples' AND column_name LIKE 'label\\_%'",
    );
    assert_eq!(columns.await, "64");
}

#[tokio::test]
async fn labels_of_spans_are_labels_of_samples() {
    let folder = tempfile::tempdir().unwrap();
    let of_all = vec![("host".to_owned(), "h1".to_owned())];
    add(folder.path(), Options { labels: of_all, ..options("a") }, &read("jdk25-spans.jfr")).await;
    let session = open(folder.path()).await;
    let hosts = answer(&session, "SELECT label_host, count(*) FROM samples GROUP BY 1").await;
    assert_eq!(hosts, "h1,110");
}

#[tokio::test]
async fn damage_is_reported_and_other_rows_are_stored() {
    let recording = read("jdk17-multichunk.jfr");
    let folder = tempfile::tempdir().unwrap();
    let cut = &recording[..recording.len() - 5000];
    let left_out = add(folder.path(), Options { unfinished: false, ..options("a") }, cut).await;
    assert_eq!((left_out.unfinished, left_out.chunks), (1, 2));
    let all = add(folder.path(), options("a"), cut).await;
    assert_eq!((all.known, all.chunks), (2, 1));
    let none = Writer::new(place(folder.path()), options("a")).unwrap().add(b"no recording").await;
    assert!(format!("{:#}", none.unwrap_err()).contains("does not begin with FLR"));
    for name in ["", &"x".repeat(300)] {
        assert!(Writer::new(place(folder.path()), options(name)).is_err());
    }
}

#[tokio::test]
async fn impossible_times_get_own_days_and_too_many_are_rejected() {
    let recording = read("flightline.jfr");
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), options("a"), &recording).await;
    // Change the clock in the chunk header, which shifts all timestamps.
    for start in [0i64, -1_000_000_000_000, 4_102_444_800_000_000_000] {
        let mut jumped = recording.clone();
        jumped[32..40].copy_from_slice(&start.to_be_bytes());
        add(folder.path(), options("a"), &jumped).await;
    }
    let session = open(folder.path()).await;
    let days =
        answer(&session, "SELECT day, count(*) FROM samples WHERE day <> '2026-11-10' GROUP BY 1 ORDER BY 1")
            .await;
    assert!(days.starts_with("1969-12-31,98\n1970-01-01,98\n"), "{days}");
    assert!(days.ends_with("2100-01-01,98"), "{days}");
    // One tick becomes a tenth of a second.
    let mut slow = read("jdk17.jfr");
    slow[56..64].copy_from_slice(&10i64.to_be_bytes());
    let refused = Writer::new(place(folder.path()), options("a")).unwrap().add(&slow).await.unwrap_err();
    assert!(format!("{refused:#}").contains("the clock was not right"), "{refused:#}");
}

#[tokio::test]
async fn losses_are_rows() {
    let folder = tempfile::tempdir().unwrap();
    let added = add(folder.path(), options("a"), &read("flightline.jfr")).await;
    assert!(added.losses > 0);
    let session = open(folder.path()).await;
    let told = answer(&session, "SELECT count(*), count(cause), min(service) FROM losses").await;
    assert_eq!(told, format!("{0},{0},a", added.losses));
}
