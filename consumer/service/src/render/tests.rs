use std::io::Write as _;

use flightline_consumer::folded;
use jfr_format::header::ChunkHeader;

use super::*;

pub(crate) const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/");

fn open(name: &str) -> Source {
    File::open(format!("{FIXTURES}{name}")).unwrap()
}

fn source(bytes: &[u8]) -> Source {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn made(format: Format, recordings: &[Source], wanted: &RenderOptions) -> Result<(Vec<u8>, Outcome), Error> {
    let mut out = Vec::new();
    let outcome = make(format, recordings, wanted, &mut out)?;
    Ok((out, outcome))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn of(event: &str, total: bool) -> RenderOptions {
    RenderOptions {
        event: Some(event.to_owned()),
        total,
        title: "cart on db1".into(),
        ..RenderOptions::default()
    }
}

/// Returns the sum of the folded lines.
fn sum(text: &[u8]) -> u64 {
    folded::read(text).unwrap().total
}

/// Splits a recording into its chunks.
pub(crate) fn split(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut chunks) = (bytes, Vec::new());
    while let Ok(header) = ChunkHeader::decode(rest) {
        let (chunk, behind) = rest.split_at(header.size as usize);
        chunks.push(chunk);
        rest = behind;
    }
    assert!(rest.is_empty());
    chunks
}

const WITH_CPU: [&str; 8] = [
    "flightline.jfr",
    "ap-native-cpu.jfr",
    "ap-native-ctimer.jfr",
    "ap-java-cpu.jfr",
    "ap-java-multichunk.jfr",
    "jdk17.jfr",
    "jdk17-multichunk.jfr",
    "jdk25-spans.jfr",
];

#[test]
fn all_formats_have_equal_totals() {
    for name in WITH_CPU {
        let recording = [open(&format!("recordings/{name}"))];
        let (folded, outcome) = made(Format::Folded, &recording, &of("cpu", true)).unwrap();
        assert_eq!(sum(&folded), outcome.total, "{name}");
        assert!(outcome.whole && outcome.notes.is_empty() && outcome.total > 0, "{name}: {outcome:?}");
        let (packed, _) = made(Format::Pprof, &recording, &of("cpu", true)).unwrap();
        let mut of_pprof = Vec::new();
        flightline_export::pprof::folded(packed.as_slice(), &mut of_pprof).unwrap();
        assert_eq!(sum(&of_pprof), outcome.total, "{name}: pprof");
        let (message, _) = made(Format::Otlp, &recording, &of("cpu", true)).unwrap();
        let mut of_otlp = Vec::new();
        let unit = flightline_export::otlp::tree::folded(&message, &[], &mut of_otlp).unwrap();
        assert!(unit.is_some(), "{name}");
        assert_eq!(sum(&of_otlp), outcome.total, "{name}: OTLP");
        let (_, of_page) = made(Format::Html, &recording, &of("cpu", true)).unwrap();
        assert_eq!((of_page.total, &of_page.unit), (outcome.total, &outcome.unit), "{name}");
        let (page, of_page) = made(Format::Html, &recording, &of("cpu", false)).unwrap();
        assert!(of_page.unit == "samples" && of_page.notes.is_empty(), "{name}: {of_page:?}");
        assert!(text(&page).contains("cart on db1"), "{name}");
        let (copy, _) = made(Format::Jfr, &recording, &RenderOptions::default()).unwrap();
        assert!(copy == std::fs::read(format!("{FIXTURES}recordings/{name}")).unwrap(), "{name}");
    }
}

#[test]
fn markup_in_title_is_escaped() {
    let wanted = RenderOptions { title: "</title><script>alert(1)</script>".into(), ..of("cpu", false) };
    let (page, _) = made(Format::Html, &[open("recordings/flightline.jfr")], &wanted).unwrap();
    assert!(!text(&page).contains("<script>alert(1)"));
}

#[test]
fn listed_events_can_be_rendered() {
    let offered = |name: &str| events(&[open(name)]).unwrap();
    assert_eq!(offered("recordings/flightline.jfr"), ["cpu"]);
    assert_eq!(offered("recordings/ap-native-mem.jfr").first().map(String::as_str), Some("alloc"));
    for name in ["recordings/ap-java-multichunk.jfr", "recordings/jdk17.jfr", "off-cpu/off_cpu.jfr"] {
        let all = offered(name);
        assert!(all.len() > 2, "{name}: {all:?}");
        for event in &all {
            match made(Format::Folded, &[open(name)], &of(event, false)) {
                Ok((folded, outcome)) => assert_eq!(sum(&folded), outcome.total, "{name}: {event}"),
                Err(error) => panic!("{name}: {event}: {error}"),
            }
        }
    }
    let all = offered("off-cpu/off_cpu.jfr");
    assert_eq!(all[..3], ["cpu", "offcpu", "threadtime"], "{all:?}");
    let refused = made(Format::Html, &[open("recordings/flightline.jfr")], &of("lock", false)).unwrap_err();
    assert!(
        refused.to_string().starts_with("The recording has no lock events; choose one of cpu"),
        "{refused}"
    );
}

#[test]
fn off_cpu_events_have_separate_pages() {
    let recording = [open("off-cpu/off_cpu.jfr")];
    let (page, outcome) = made(Format::Html, &recording, &of("offcpu", true)).unwrap();
    assert_eq!((outcome.unit.as_str(), outcome.whole), ("ns", true));
    assert!(text(&page).contains("Off-CPU time: cart on db1"));
    let (_, all) = made(Format::Html, &recording, &of("threadtime", true)).unwrap();
    let (_, queue) = made(Format::Html, &recording, &of("runqueue", true)).unwrap();
    assert!(all.total > outcome.total && queue.total > 0, "{all:?} {outcome:?} {queue:?}");
    let (lines, micros) = made(Format::Folded, &recording, &of("offcpu", true)).unwrap();
    assert_eq!(sum(&lines), micros.total);
    assert!(micros.unit == "us" && micros.total.abs_diff(outcome.total / 1000) < 1000, "{micros:?}");
    let (_, threads) =
        made(Format::Folded, &recording, &RenderOptions { threads: true, ..of("offcpu", true) }).unwrap();
    assert!(threads.total.abs_diff(micros.total) < 1000, "{threads:?}");
    let (packed, _) = made(Format::Pprof, &recording, &of("offcpu", true)).unwrap();
    let mut of_pprof = Vec::new();
    flightline_export::pprof::folded(packed.as_slice(), &mut of_pprof).unwrap();
    assert!(sum(&of_pprof) >= outcome.total, "waits of all states are exported");
    let none = made(Format::Html, &[open("recordings/flightline.jfr")], &of("offcpu", true)).unwrap_err();
    assert!(none.to_string().contains("record in mode OFF_CPU"), "{none}");
}

#[test]
fn invalid_selections_are_rejected_with_message() {
    let recording = [open("recordings/flightline.jfr")];
    let small = RenderOptions { most_bytes: 9000, ..RenderOptions::default() };
    for format in Format::ALL {
        let error = made(format, &recording, &small).unwrap_err();
        assert!(matches!(error, Error::TooLarge(_)), "{error}");
        let empty = RenderOptions { from_ms: Some(5), to_ms: Some(5), ..RenderOptions::default() };
        assert!(matches!(made(format, &recording, &empty), Err(Error::Refused(_))), "{format:?}");
        let past = RenderOptions { to_ms: Some(5), ..RenderOptions::default() };
        assert!(matches!(made(format, &recording, &past), Err(Error::Refused(_))), "{format:?}");
        assert!(matches!(made(format, &[], &RenderOptions::default()), Err(Error::Refused(_))), "{format:?}");
        let folder = [File::open(FIXTURES).unwrap()];
        assert!(
            matches!(made(format, &folder, &RenderOptions::default()), Err(Error::Read(_))),
            "{format:?}"
        );
        assert_eq!(Format::named(format.name()), Some(format));
    }
    assert!(check(&File::open(FIXTURES).unwrap()).is_err());
    let mixed = made(Format::Folded, &[open("recordings/ap-java-multichunk.jfr")], &of("nonsense", true));
    assert!(mixed.unwrap_err().to_string().contains("choose one of cpu, "));
}

#[test]
fn comparison_shows_both_totals() {
    let (before, after) = ([open("recordings/jdk17.jfr")], [open("recordings/jdk17-multichunk.jfr")]);
    let totals = [&before, &after].map(|side| made(Format::Folded, side, &of("cpu", false)).unwrap().1.total);
    let whole = |recordings| Side { recordings, from_ms: None, to_ms: None };
    let mut page = Vec::new();
    let outcome = compare(&whole(&before), &whole(&after), &of("cpu", false), &mut page).unwrap();
    assert_eq!(outcome.total, totals[1]);
    let told = format!("{} → {} samples, the first scaled by", totals[0], totals[1]);
    assert!(text(&page).contains(&told), "{told}");
    let other = [open("recordings/ap-java-wall.jfr")];
    let unlike =
        compare(&whole(&before), &whole(&other), &RenderOptions::default(), &mut Vec::new()).unwrap_err();
    assert!(unlike.to_string().contains("choose an event with `event`"), "{unlike}");
    let none = compare(&whole(&before), &whole(&other), &of("live", false), &mut Vec::new()).unwrap_err();
    assert!(none.to_string().starts_with("Before: The recording has no live events"), "{none}");
    let off = [open("off-cpu/off_cpu.jfr")];
    let outcome = compare(&whole(&off), &whole(&off), &of("offcpu", true), &mut Vec::new()).unwrap();
    assert_eq!(outcome.unit, "ns");
}

#[test]
fn truncated_upload_reports_error_offset() {
    for name in ["cases/40_two_chunks_same_ids_same_vals.jfr", "recordings/flightline.jfr"] {
        let whole = std::fs::read(format!("{FIXTURES}{name}")).unwrap();
        let sound: Vec<usize> = split(&whole)
            .iter()
            .scan(0, |at, chunk| {
                *at += chunk.len();
                Some(*at)
            })
            .collect();
        for len in 0..whole.len() {
            match check_bytes(whole[..len].to_vec().into()) {
                Ok(checked) => assert!(sound.contains(&len) && checked.bytes == len as u64, "{name}: {len}"),
                Err(error) => assert!(error.offset <= len as u64, "{name}: {len}: {error}"),
            }
        }
        assert_eq!(check(&source(&whole)).unwrap().chunks as usize, sound.len());
    }
    let error = check(&source(b"<html>")).unwrap_err().to_string();
    assert!(
        error.starts_with("This is not a whole JFR recording: ") && error.contains("offset 0"),
        "{error}"
    );
}

/// Input that passes the check is rendered or refused; a panic would end the process.
#[test]
fn altered_bytes_do_not_panic() {
    for (name, step) in [("cases/40_two_chunks_same_ids_same_vals.jfr", 3), ("recordings/flightline.jfr", 29)]
    {
        let whole = std::fs::read(format!("{FIXTURES}{name}")).unwrap();
        let mut passed = 0;
        for at in (0..whole.len()).step_by(step) {
            let mut other = whole.clone();
            other[at] ^= if at % 2 == 0 { 0xff } else { 0x01 };
            passed += u32::from(check_bytes(other.clone().into()).is_ok());
            let recording = [source(&other)];
            let range = RenderOptions {
                from_ms: Some(0),
                to_ms: Some(4_000_000_000_000),
                ..RenderOptions::default()
            };
            for format in [Format::Folded, Format::Pprof, Format::Otlp, Format::Jfr] {
                let _ = made(format, &recording, &range);
            }
            if at % 64 == 0 {
                let _ = made(Format::Html, &recording, &RenderOptions::default());
                let _ = made(Format::Html, &recording, &of("threadtime", true));
            }
        }
        assert!(passed > 0, "{name}: times and texts may be anything");
    }
}

#[test]
fn separate_chunks_render_like_one_file() {
    for name in ["jdk17-multichunk.jfr", "jdk25-multichunk.jfr", "ap-jfrsync.jfr"] {
        let whole = std::fs::read(format!("{FIXTURES}recordings/{name}")).unwrap();
        let chunks: Vec<Source> = split(&whole).into_iter().map(source).collect();
        let whole = [source(&whole)];
        let checked = check(&whole[0]).unwrap();
        assert!(chunks.len() > 1, "{name}");
        assert_eq!(checked.chunks as usize, chunks.len(), "{name}");
        let length = checked.last_ms - checked.first_ms;
        // Everything, part of one chunk, parts of two chunks.
        for (from, to) in [(0, 100), (30, 35), (20, 70), (60, 99)] {
            let at = |percent: i64| Some(checked.first_ms + length * percent / 100);
            let wanted = RenderOptions { from_ms: at(from), to_ms: at(to), ..of("cpu", true) };
            for format in [Format::Folded, Format::Pprof, Format::Otlp, Format::Html] {
                let said = format!("{name}: {format:?} {from}% to {to}%");
                match (made(format, &chunks, &wanted), made(format, &whole, &wanted)) {
                    (Ok(parts), Ok(whole)) => assert!(parts == whole, "{said}"),
                    (Err(parts), Err(whole)) => assert_eq!(parts.to_string(), whole.to_string(), "{said}"),
                    (parts, whole) => panic!("{said}: {:?} {:?}", parts.map(|p| p.1), whole.map(|w| w.1)),
                }
            }
            // The cut recording weighs the same as the interval of the whole one.
            let plain = of("cpu", false);
            let part = made(
                Format::Folded,
                &whole,
                &RenderOptions { from_ms: wanted.from_ms, to_ms: wanted.to_ms, ..plain.clone() },
            );
            let (jfr, _) = made(Format::Jfr, &chunks, &wanted).unwrap();
            let of_cut = made(Format::Folded, &[source(&jfr)], &plain);
            match (part, of_cut) {
                (Ok(part), Ok(of_cut)) => {
                    assert_eq!(text(&part.0), text(&of_cut.0), "{name}: {from}% to {to}%")
                }
                (part, of_cut) => assert!(part.is_err() && of_cut.is_err(), "{name}: {from}% to {to}%"),
            }
            assert!(check(&source(&jfr)).is_ok(), "{name}");
        }
    }
}
