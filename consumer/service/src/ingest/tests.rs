use std::collections::HashMap;
use std::fs::File;

use flate2::Compression;
use flate2::write::GzEncoder;
use flightline_consumer::folded;
use flightline_export::pprof as export;
use prost::Message;

use super::contexts::{One, Snapshot};
use super::*;
use crate::pictures::tests::FIXTURES;
use crate::pictures::{Format, Wanted, make};

fn gzip(bytes: &[u8]) -> Bytes {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap().into()
}

fn recording() -> Bytes {
    std::fs::read(format!("{FIXTURES}recordings/flightline.jfr")).unwrap().into()
}

/// A picture of that recording, and what it weighs.
fn drawn(format: Format) -> (Bytes, u64) {
    let file = [File::open(format!("{FIXTURES}recordings/flightline.jfr")).unwrap()];
    let wanted = Wanted { event: Some("cpu".into()), total: true, ..Wanted::default() };
    let total = make(Format::Folded, &file, &wanted, &mut Vec::new()).unwrap().total;
    let mut out = Vec::new();
    make(format, &file, &wanted, &mut out).unwrap();
    (out.into(), total)
}

fn sum(text: &[u8]) -> u64 {
    folded::read(text).unwrap().total
}

fn of(format: &str, body: impl Into<Bytes>) -> Result<Ingested, Error> {
    let query = format!("name=shop%7Benv%3Dtest%7D&from=1&until=2&format={format}");
    ingest(&query, None, body.into(), 0, Limits::default())
}

#[test]
fn what_is_pushed_can_be_taken_in() {
    let app = App::parse("shop.cart{env=test,version=1.2}").unwrap();
    let Push { query, content_type, body } =
        push(&app, 1_700_000_000_500, 1_700_000_010_200, &recording()).unwrap();
    let took = ingest(&query, Some(&content_type), body.into(), 0, Limits::default()).unwrap();
    assert_eq!((took.from, took.until), (1_700_000_000_000, 1_700_000_011_000));
    assert_eq!((took.app, took.profile), (app.clone(), Profile::Jfr(recording())));
    assert!(took.contexts.is_empty());
    let empty = push(&app, 5, 5, b"").unwrap();
    assert!(empty.query.contains("from=0&until=1"), "{}", empty.query);
}

#[test]
fn a_recording_may_be_packed_or_not_and_have_labels() {
    assert_eq!(of("jfr", recording()).unwrap().profile, Profile::Jfr(recording()));
    assert_eq!(of("jfr", gzip(&recording())).unwrap().profile, Profile::Jfr(recording()));
    let one = One { labels: HashMap::from([(1, 2), (3, 9)]) };
    let strings = [(1, "endpoint"), (2, "/cart"), (3, "lost")].map(|(at, text)| (at, text.to_owned()));
    let snapshot = Snapshot { contexts: HashMap::from([(7, one)]), strings: strings.into() };
    let mut body = b"--x\r\nContent-Disposition: form-data; name=\"jfr\"; filename=\"jfr\"\r\n\r\n".to_vec();
    body.extend(recording());
    body.extend(b"\r\n--x\r\nContent-Disposition: form-data; name=\"labels\"; filename=\"labels\"\r\n\r\n");
    body.extend(gzip(&snapshot.encode_to_vec()));
    body.extend(b"\r\n--x--\r\n");
    let of_form = |body: Vec<u8>| {
        let form = Some("multipart/form-data; boundary=x");
        ingest("name=shop&format=jfr", form, body.into(), 9, Limits::default())
    };
    let took = of_form(body.clone()).unwrap();
    assert_eq!(took.profile, Profile::Jfr(recording()));
    assert_eq!(took.contexts, [(7, Labels::from([("endpoint".to_owned(), "/cart".to_owned())]))].into());
    assert_eq!((took.from, took.until), (9, 9));
    // Cut off or damaged forms are refused or taken for others, and end in any case.
    for len in (0..body.len()).step_by(61) {
        assert!(of_form(body[..len].to_vec()).is_err(), "{len}");
        let mut other = body.clone();
        other[len] ^= 0xff;
        let _ = of_form(other);
    }
    for bad in [
        b"--x--\r\n".to_vec(),
        b"--x\r\nContent-Disposition: form-data; name=\"evil\"\r\n\r\n1\r\n--x--\r\n".to_vec(),
    ] {
        assert!(matches!(of_form(bad), Err(Error::Bad(_))));
    }
}

#[test]
fn pprof_and_text_become_stacks() {
    let (packed, total) = drawn(Format::Pprof);
    let Profile::Folded { text, unit } = of("pprof", packed.clone()).unwrap().profile else { panic!() };
    assert_eq!((sum(&text), unit.as_str()), (total, "ns"));
    for len in (0..packed.len()).step_by(37) {
        assert!(of("pprof", packed.slice(..len)).is_err(), "{len}");
    }
    let lines = b"main;a 1\n\nmain;b c 41\r\n".as_slice();
    let Profile::Folded { text, unit } = of("folded", lines).unwrap().profile else { panic!() };
    assert_eq!((text.as_slice(), unit.as_str()), (lines, "samples"));
    assert_eq!(
        of("collapsed&units=bytes", gzip(lines)).unwrap().profile,
        Profile::Folded { text, unit: "bytes".into() }
    );
    let error = of("folded", "main;a 1\nmain\n").unwrap_err();
    assert_eq!(error.to_string(), "Line 2 is no folded stack: write `frame;frame 42`.");
    assert!(of("folded", "\n\n").is_err() && of("folded", vec![0xff; 100]).is_err());
}

#[test]
fn what_grows_beyond_all_bounds_is_refused() {
    let zeros = gzip(&vec![0; 200 << 20]);
    assert!(zeros.len() < 2 << 20);
    for format in ["jfr", "pprof", "folded"] {
        assert!(matches!(of(format, zeros.clone()), Err(Error::TooLarge(_))), "{format}");
    }
    assert!(matches!(otlp(zeros.clone(), Limits::default()), Err(Error::TooLarge(_))));
    let small = Limits { body: 1000, ..Limits::default() };
    assert!(matches!(ingest("name=a", None, recording(), 0, small), Err(Error::TooLarge(_))));
    // One function of a long name, in a stack again and again: 300 KB, as text 20 GB.
    let profile = export::Profile {
        sample_type: vec![export::ValueType { r#type: 1, unit: 1 }],
        string_table: vec![String::new(), "count".into(), "f".repeat(200_000)],
        function: vec![export::Function { id: 1, name: 2, ..Default::default() }],
        location: vec![export::Location {
            id: 1,
            line: vec![export::Line { function_id: 1, line: 0 }],
            ..Default::default()
        }],
        sample: vec![export::Sample { location_id: vec![1; 100_000], value: vec![1], ..Default::default() }],
        ..Default::default()
    };
    assert!(matches!(of("pprof", profile.encode_to_vec()), Err(Error::TooLarge(_))));
    // As many functions of that name as there are bytes.
    let many = (1..100_000).map(|id| export::Function { id, name: 2, ..Default::default() }).collect();
    let profile = export::Profile { function: many, sample: Vec::new(), ..profile };
    let Profile::Folded { text, .. } = of("pprof", profile.encode_to_vec()).unwrap().profile else {
        panic!()
    };
    assert!(text.is_empty());
    let strings = HashMap::from([(1, "k".repeat(500_000))]);
    let one = One { labels: HashMap::from([(1, 1)]) };
    let contexts: HashMap<i64, One> = (0..30_000).map(|at| (at, one.clone())).collect();
    let snapshot = Snapshot { contexts, strings };
    let read = contexts::read(&gzip(&snapshot.encode_to_vec()));
    assert!(read.is_ok_and(|contexts| contexts[&5].keys().all(|key| key.len() == 256)));
}

#[test]
fn opentelemetry_comes_resource_by_resource() {
    let (message, total) = drawn(Format::Otlp);
    let received = otlp(message.clone(), Limits::default()).unwrap();
    let [one] = received.as_slice() else { panic!("{}", received.len()) };
    assert_eq!(one.labels.get("service.name").map(String::as_str), Some("burn"), "{:?}", one.labels);
    assert!(one.from > 1_700_000_000_000 && one.until > one.from, "{} {}", one.from, one.until);
    let [stacks] = one.stacks.as_slice() else { panic!("{:?}", one.stacks.len()) };
    assert_eq!((sum(&stacks.text), stacks.unit.as_str()), (total, "ns"));
    assert_eq!(otlp(gzip(&message), Limits::default()).unwrap(), received);
    let mut twice =
        opentelemetry_proto::tonic::profiles::v1development::ProfilesData::decode(message.clone()).unwrap();
    twice.resource_profiles.extend(twice.resource_profiles.clone());
    let received_twice = otlp(twice.encode_to_vec().into(), Limits::default()).unwrap();
    assert_eq!(received_twice, [received.clone(), received.clone()].concat());
    let short = Limits { text: stacks.text.len() + 10, ..Limits::default() };
    assert!(otlp(message.clone(), short).is_ok());
    assert!(matches!(otlp(twice.encode_to_vec().into(), short), Err(Error::TooLarge(_))));
    for at in (0..message.len()).step_by(13) {
        let mut other = message.to_vec();
        other[at] ^= 0xff;
        let _ = otlp(other.into(), Limits::default());
        let _ = otlp(message.slice(..at), Limits::default());
    }
    assert_eq!(otlp(Bytes::new(), Limits::default()).unwrap(), []);
    assert!(matches!(otlp(Bytes::from_static(b"hello"), Limits::default()), Err(Error::Bad(_))));
}
