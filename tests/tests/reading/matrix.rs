//! Tests the cells of docs/guide/reference/interoperability.md (outputs × readers) that no other test covers.

mod document;
mod made;
mod readers;
mod rows;
mod table;

use flightline_tests::run::beside;
use std::fs;
use std::path::Path;

fn top() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn interoperability_document_matches_table() {
    let _place = beside();
    let path = top().join("docs/guide/reference/interoperability.md");
    let wanted = document::written();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == wanted,
        "docs/guide/reference/interoperability.md is not what the table says: BLESS=1 regenerates it"
    );
}

#[test]
fn every_test_named_in_table_exists() {
    let _place = beside();
    for table::Shown(file, name) in table::tests() {
        // A test's own file, and those below it.
        let below = fs::read_dir(top().join(file).with_extension("")).into_iter().flatten().flatten();
        let files = below.map(|entry| entry.path()).chain([top().join(file)]);
        let text: String = files
            .map(|path| fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
            .collect();
        let there = match file.ends_with(".rs") {
            true => text.contains(&format!("\n#[test]\nfn {name}()")),
            false => text.contains(&format!("test(\"{name}\"")),
        };
        assert!(there, "{file} has no test {name}");
    }
    // Each reader reads some kind, and each kind is read.
    let read = |kind, reader| matches!(table::cell(kind, reader), table::Cell::Read { .. });
    for reader in &table::READERS {
        assert!(table::KINDS.iter().any(|kind| read(kind, reader)), "{}", reader.name);
    }
    for kind in &table::KINDS {
        assert!(table::READERS.iter().any(|reader| read(kind, reader)), "{}", kind.name);
    }
}
