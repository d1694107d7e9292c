//! Every point of every checklist in `docs/checklists` has evidence, and the evidence exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use flightline_tests::checklists::{FOLDER, LISTS, Row, index, originals, page, points, rows};
use flightline_tests::shown::{root, shown};
use flightline_tests::{folded, skip};

const WRITE: &str = "FLIGHTLINE_WRITE_CHECKLISTS=1 cargo test -p flightline-tests --test all checklists::";

fn all() -> Vec<(&'static str, &'static str, Vec<Row>)> {
    LISTS.map(|(name, title)| (name, title, rows(name))).into()
}

#[test]
fn generated_checklist_pages_are_up_to_date() {
    let lists = all();
    let mut pages: BTreeMap<String, String> =
        lists.iter().map(|(name, title, rows)| (format!("{name}.md"), page(name, title, rows))).collect();
    pages.insert("README.md".into(), index(&lists));
    let folder = root().join(FOLDER);
    let write = std::env::var_os("FLIGHTLINE_WRITE_CHECKLISTS").is_some();
    let mut stale = Vec::new();
    for (name, text) in &pages {
        let path = folder.join(name);
        if write {
            fs::write(&path, text).unwrap();
        } else if fs::read_to_string(&path).unwrap_or_default() != *text {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "{stale:?} are not what is generated: {WRITE}");
    // The folder contains no other files, except the requirement lists of our own.
    let known = |name: &str| {
        name == "requirements"
            || pages.contains_key(name)
            || LISTS.iter().any(|(list, _)| name == format!("{list}.tsv"))
    };
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| !known(name)).collect::<Vec<_>>(), [] as [String; 0]);
}

#[test]
fn every_checklist_point_has_existing_evidence() {
    let mut wrong = Vec::new();
    let mut keys = BTreeSet::new();
    for (name, _, rows) in all() {
        assert!(!rows.is_empty(), "{name}");
        for row in rows {
            let place = format!("{name} {}", row.key);
            assert!(keys.insert(place.clone()), "{place} is there twice");
            wrong.extend(row.by().1.into_iter().map(|what| format!("{place}: {what}")));
            if row.asked.trim().is_empty() {
                wrong.push(format!("{place}: has no answer to the point"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Compares with the original lists, where they are available: by number and checksum, each of their points
/// is in our lists.
#[test]
fn no_original_checklist_point_is_missing() {
    let Some(folder) = originals() else {
        return skip::not_given(
            "the checklists themselves (FLIGHTLINE_CHECKLISTS, ../shared/checklists): points were not compared",
        );
    };
    let mut wrong = Vec::new();
    for (name, _) in LISTS {
        let text = fs::read_to_string(folder.join(format!("{name}.md"))).unwrap();
        let theirs: BTreeMap<String, (String, String)> =
            points::points(&text).into_iter().map(|point| (point.key, (point.sum, point.text))).collect();
        let ours: BTreeMap<String, String> = rows(name).into_iter().map(|row| (row.key, row.sum)).collect();
        for (key, (sum, text)) in &theirs {
            match ours.get(key) {
                None => wrong.push(format!("{name} {key} is not in ours: {sum}\t{text}")),
                Some(known) if known != sum => {
                    wrong.push(format!("{name} {key} says something else now: {sum}\t{text}"))
                }
                Some(_) => {}
            }
        }
        wrong.extend(
            ours.keys()
                .filter(|key| !theirs.contains_key(*key))
                .map(|key| format!("{name} {key} is not in theirs")),
        );
    }
    let known: BTreeSet<String> =
        LISTS.iter().map(|(name, _)| format!("{name}.md")).chain(["README.md".into()]).collect();
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    wrong.extend(
        files
            .filter(|file| !known.contains(file))
            .map(|file| format!("{file} is a list that is not known here")),
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The reference run of the off-CPU list, folded by other tools: its sums hold, and our command does not
/// change any text.
#[test]
fn off_cpu_reference_run_sums_match() {
    let Some(folder) = originals().map(|lists| lists.join("../offcpu-reference")) else {
        return skip::not_given(
            "the reference run of off-CPU graphs (../shared/offcpu-reference): its sums were not compared",
        );
    };
    let sum = |name: &str| -> u64 {
        let path = folder.join(name);
        let theirs: BTreeMap<Vec<String>, u64> =
            folded::parse(&fs::read_to_string(&path).unwrap()).into_iter().collect();
        let ours: BTreeMap<Vec<String>, u64> = folded::read(&path).into_iter().collect();
        assert_eq!(ours, theirs, "{name}");
        ours.values().sum()
    };
    let (off, off_wake, chain) = (sum("offcpu.folded"), sum("offwake.irq.folded"), sum("chain.irq.folded"));
    assert!(off > 0 && sum("wakeup.irq.folded") <= off);
    assert_eq!((off_wake, chain), (18_128_924, 18_128_924));
    assert!([18_128_924, 18_147_488].contains(&off), "{off}");
}

/// Missing tests and files are detected. Without this test, a broken parser of names would let all tests
/// above pass.
#[test]
fn missing_tests_and_files_are_detected() {
    let missing = |text: &str| shown(text, &root().join(FOLDER)).missing.len();
    assert_eq!(missing("`tests/tests/checklists.rs::missing_tests_and_files_are_detected`"), 0);
    assert_eq!(
        missing("`tests/tests/checklists.rs::all`, `::no_such_test`"),
        2,
        "a function that is no test, and none"
    );
    assert_eq!(missing("`tests/tests/no_such_file.rs::x`"), 2);
    assert_eq!(missing("`tests/browser/flame.test.mjs` \"a graph of half a million\", \"no such title\""), 1);
    assert_eq!(
        missing(
            "`bench/no_such.py`, [x](../no-such.md), [y](../../bench/RESULTS.md#x), `bench/pipe.py bytes`"
        ),
        2
    );
}
