//! Malformed recordings: readable events are read, and the rest is reported with its offset, in little time
//! and memory.

use flightline_tests::run::beside;
use std::collections::BTreeMap;
use std::io::Read;

use flightline_tests::canonical;
use flightline_tests::malformed::cases;
use jfr_format::read::{Input, Item};

/// A stream that returns few bytes at a time: after each piece the reader checks whether an event's constants
/// are complete.
struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = buffer.len().min(64);
        self.0.read(&mut buffer[..len])
    }
}

#[test]
fn malformed_cases_have_unique_names() {
    let _place = beside();
    let cases = cases();
    let names: BTreeMap<_, _> = cases.iter().map(|c| (c.name, c)).collect();
    assert_eq!(names.len(), cases.len(), "names occur once");
    assert!(cases.len() >= 60);
}

#[test]
fn readable_events_are_read_and_rest_is_reported() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for case in cases() {
        let path = folder.path().join("malformed.jfr");
        std::fs::write(&path, &case.bytes).unwrap();
        let file = canonical::of_file(&path).unwrap();
        let stream = canonical::of_stream(&case.bytes[..]).unwrap();
        let pieces = canonical::of_stream(Pieces(&case.bytes)).unwrap();
        for (driver, contents) in [("file", &file), ("stream", &stream), ("pieces", &pieces)] {
            let events: u64 = contents.types.values().sum();
            if events != case.events {
                wrong.push(format!(
                    "{} as {driver}: {events} events, expected {}; {:.300?}",
                    case.name, case.events, contents.warnings
                ));
            }
            for text in case.told {
                if !contents.warnings.iter().any(|w| w.contains(text)) {
                    wrong.push(format!(
                        "{} as {driver}: {text:?} is not reported: {:?}",
                        case.name, contents.warnings
                    ));
                }
            }
            if case.told.is_empty() && !contents.warnings.is_empty() {
                wrong.push(format!("{} as {driver}: needless warnings {:?}", case.name, contents.warnings));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Iterating over fields and visiting them decode independently; they return the same number and end with the
/// same error.
#[test]
fn field_iterator_and_visitor_agree() {
    let _place = beside();
    let mut faults = 0;
    for case in cases() {
        let mut input = Input::bytes(case.bytes.into());
        while let Some(item) = input.next().unwrap() {
            let Item::Events(batch) = item else { continue };
            for event in batch.events() {
                let mut visited = 0;
                let fault = event.visit(|_| visited += 1).err().map(|error| error.to_string());
                let (fields, failed): (Vec<_>, Vec<_>) = event.fields().iter().partition(Result::is_ok);
                let failed = failed.into_iter().find_map(Result::err).map(|error| error.to_string());
                assert_eq!((visited, &fault), (fields.len(), &failed), "{}", case.name);
                faults += usize::from(fault.is_some());
            }
        }
    }
    assert!(faults > 3, "{faults} events with a fault");
}
