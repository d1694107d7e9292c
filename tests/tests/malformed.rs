//! Malformed recordings: what can be read is read, the rest is told with its place; little time, little memory.

use std::collections::BTreeMap;

use flightline_tests::canonical;
use flightline_tests::malformed::cases;

#[test]
fn there_are_many_kinds() {
    let cases = cases();
    let names: BTreeMap<_, _> = cases.iter().map(|c| (c.name, c)).collect();
    assert_eq!(names.len(), cases.len(), "names occur once");
    assert!(cases.len() >= 60);
}

#[test]
fn what_can_be_read_is_read_and_the_rest_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for case in cases() {
        let path = folder.path().join("malformed.jfr");
        std::fs::write(&path, &case.bytes).unwrap();
        let file = canonical::of_file(&path).unwrap();
        let stream = canonical::of_stream(&case.bytes[..]).unwrap();
        for (driver, contents) in [("file", &file), ("stream", &stream)] {
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
                        "{} as {driver}: {text:?} is not told: {:?}",
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
