use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use flightline_export::pprof as export;
use opentelemetry_proto::tonic::profiles::v1development::ProfilesData;
use prost::Message;

use super::contexts::{One, Snapshot};
use super::pusher::{Pair, Raw, Request, Series};
use super::*;
use crate::render::tests::FIXTURES;
use crate::render::{Format, RenderOptions, check_bytes, make};

fn gzip(bytes: &[u8]) -> Bytes {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap().into()
}

fn recording() -> Bytes {
    std::fs::read(format!("{FIXTURES}recordings/flightline.jfr")).unwrap().into()
}

/// Renders the fixture in a format; returns the output and the total weight.
fn drawn(format: Format) -> (Bytes, u64) {
    let file = [File::open(format!("{FIXTURES}recordings/flightline.jfr")).unwrap()];
    let wanted = RenderOptions { event: Some("cpu".into()), total: true, ..RenderOptions::default() };
    let total = make(Format::Folded, &file, &wanted, &mut Vec::new()).unwrap().total;
    let mut out = Vec::new();
    make(format, &file, &wanted, &mut out).unwrap();
    (out.into(), total)
}

fn of(format: &str, body: impl Into<Bytes>) -> Result<Ingested, Error> {
    let query = format!("name=shop%7Benv%3Dtest%7D&from=1&until=2&format={format}");
    ingest(&query, None, body.into(), 0, Limits::default())
}

#[test]
fn pushed_recording_is_ingested_unchanged() {
    let app = App::parse("shop.cart{env=test,version=1.2}").unwrap();
    let Push { query, content_type, body } =
        push(&app, 1_700_000_000_500, 1_700_000_010_200, Some(19), &recording()).unwrap();
    let took = ingest(&query, Some(&content_type), body.into(), 0, Limits::default()).unwrap();
    assert_eq!((took.from, took.until), (1_700_000_000_000, 1_700_000_011_000));
    assert_eq!((took.app, took.recording), (app.clone(), Some(recording())));
    assert!(took.contexts.is_empty());
    let empty = push(&app, 5, 5, None, b"").unwrap();
    assert!(empty.query.contains("from=0&until=1"), "{}", empty.query);
}

#[test]
fn recording_may_be_compressed_or_multipart_with_labels() {
    assert_eq!(of("jfr", recording()).unwrap().recording, Some(recording()));
    assert_eq!(of("jfr", gzip(&recording())).unwrap().recording, Some(recording()));
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
    assert_eq!(took.recording, Some(recording()));
    assert_eq!(took.contexts, [(7, Labels::from([("endpoint".to_owned(), "/cart".to_owned())]))].into());
    assert_eq!((took.from, took.until), (9, 9));
    // Truncated or damaged forms terminate, with an error or a different result.
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

/// Returns the total, unit and stacks of a converted recording.
fn weighed(recording: &Bytes, event: &str) -> (u64, String, BTreeMap<String, u64>) {
    check_bytes(recording.clone()).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(recording).unwrap();
    let wanted = RenderOptions { event: Some(event.into()), total: true, ..RenderOptions::default() };
    let mut out = Vec::new();
    let made = make(Format::Folded, &[file], &wanted, &mut out).unwrap();
    let lines = String::from_utf8(out).unwrap();
    let stacks = lines.lines().map(|line| line.rsplit_once(' ').unwrap());
    let stacks = stacks.map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap())).collect();
    (made.total, made.unit, stacks)
}

#[test]
fn pprof_is_converted_with_equal_totals() {
    let (packed, total) = drawn(Format::Pprof);
    let before = weighed(&recording(), "cpu");
    let took = of("pprof", packed.clone()).unwrap();
    assert_eq!((took.from, took.until), (1_000, 2_000));
    let recording = took.recording.unwrap();
    assert_eq!(weighed(&recording, "cpu"), before);
    assert_eq!((before.0, before.1.as_str()), (total, "ns"));
    // Spread evenly over the profile's time.
    let checked = check_bytes(recording).unwrap();
    assert_eq!((checked.first_ms, checked.last_ms), (1_000, 2_000));
    for len in (0..packed.len()).step_by(37) {
        assert!(of("pprof", packed.slice(..len)).is_err(), "{len}");
    }
}

/// A profile of the single stack `main;work`.
fn profile(types: &[(&str, &str)], period: Option<(&str, &str, i64)>, values: &[&[i64]]) -> export::Profile {
    let mut strings = vec![String::new(), "work".into(), "main".into(), "/usr/lib/libx.so".into()];
    let mut text = |text: &str| {
        strings.push(text.to_owned());
        strings.len() as i64 - 1
    };
    let mut of = |(name, unit): (&str, &str)| export::ValueType { r#type: text(name), unit: text(unit) };
    let sample_type = types.iter().map(|&pair| of(pair)).collect();
    let period_type = period.map(|(name, unit, _)| of((name, unit)));
    let location = |id| export::Location {
        id,
        mapping_id: 1,
        line: vec![export::Line { function_id: id, line: 7 }],
        ..Default::default()
    };
    let sample =
        |value: &&[i64]| export::Sample { location_id: vec![1, 2], value: value.to_vec(), label: vec![] };
    export::Profile {
        sample_type,
        period_type,
        period: period.map_or(0, |(.., period)| period),
        mapping: vec![export::Mapping { id: 1, filename: 3, has_functions: true }],
        function: [1, 2].map(|id| export::Function { id, name: id as i64, ..Default::default() }).to_vec(),
        location: [1, 2].map(location).to_vec(),
        sample: values.iter().map(sample).collect(),
        string_table: strings,
        ..Default::default()
    }
}

#[test]
fn foreign_sample_types_are_interpreted() {
    let of_profile =
        |profile: &export::Profile| of("pprof", profile.encode_to_vec()).unwrap().recording.unwrap();
    let stack = |weight: u64| BTreeMap::from([("main;work".to_owned(), weight)]);
    // As Go writes it: samples and their CPU time.
    let go =
        profile(&[("samples", "count"), ("cpu", "nanoseconds")], None, &[&[3, 30_000_000], &[1, 10_000_000]]);
    let recording = of_profile(&go);
    assert_eq!(weighed(&recording, "cpu"), (40_000_000, "ns".into(), stack(40_000_000)));
    assert_eq!(check_bytes(recording).unwrap().types["jdk.ExecutionSample"], 4, "not twice");
    // Samples with a known period only.
    let counted = profile(&[("samples", "count")], Some(("cpu", "nanoseconds", 10_000_000)), &[&[5]]);
    assert_eq!(weighed(&of_profile(&counted), "cpu").0, 50_000_000);
    // The weight of a sample is unknown.
    let counted = profile(&[("samples", "count")], None, &[&[5]]);
    assert_eq!(weighed(&of_profile(&counted), "cpu"), (5, "samples".into(), stack(5)));
    // Values with a small common divisor, too many for one event each.
    let odd = profile(&[("cpu", "nanoseconds")], None, &[&[3_600_000_000_001], &[2]]);
    // All but a fraction of one event of 360 ms.
    let (total, ..) = weighed(&of_profile(&odd), "cpu");
    assert!((3_599_600_000_000..=3_600_000_000_003).contains(&total), "{total}");
    let heap = profile(
        &[
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_space", "bytes"),
            ("delay", "nanoseconds"),
        ],
        None,
        &[&[2, 4096, 512, 77]],
    );
    let recording = of_profile(&heap);
    for (event, total, unit) in
        [("alloc", 4096, "bytes"), ("live", 512, "bytes"), ("alloc_objects", 2, "samples")]
    {
        let (weight, of, stacks) = weighed(&recording, event);
        assert_eq!((weight, stacks), (total, stack(total)), "{event} in {of}, {unit}");
    }
    assert_eq!(weighed(&recording, "delay (ns)").0, 77);
    let wall = profile(&[("wall", "microseconds")], None, &[&[250]]);
    assert_eq!(weighed(&of_profile(&wall), "wall").0, 250_000);
    let nothing = profile(&[("cpu", "nanoseconds")], None, &[]);
    assert_eq!(of("pprof", nothing.encode_to_vec()).unwrap().recording, None);
    // Cumulative profiles are rejected, so that no sample is counted twice.
    let form = b"--x\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\n1\r\n--x\r\n\
        Content-Disposition: form-data; name=\"prev_profile\"\r\n\r\n1\r\n--x--\r\n";
    let form = ingest(
        "name=a&format=pprof",
        Some("multipart/form-data; boundary=x"),
        form.as_slice().into(),
        0,
        Limits::default(),
    );
    assert!(matches!(form, Err(Error::Unknown(_))), "{form:?}");
}

#[test]
fn folded_text_is_converted_to_recording() {
    let lines = b"main;a 1\n\nmain;b c 41\r\n".as_slice();
    let stacks = |a, b| BTreeMap::from([("main;a".to_owned(), a), ("main;b c".to_owned(), b)]);
    let made = |format: &str, body: Bytes| of(format, body).unwrap().recording.unwrap();
    assert_eq!(weighed(&made("folded", lines.into()), "cpu"), (42, "samples".into(), stacks(1, 41)));
    let timed = made("folded&sampleRate=100", lines.into());
    assert_eq!(weighed(&timed, "cpu"), (420_000_000, "ns".into(), stacks(10_000_000, 410_000_000)));
    let memory = made("collapsed&units=bytes", gzip(lines));
    assert_eq!(weighed(&memory, "alloc"), (42, "bytes".into(), stacks(1, 41)));
    let error = of("folded", "main;a 1\nmain\n").unwrap_err();
    assert_eq!(error.to_string(), "Line 2 is not a folded stack; write `frame;frame 42`.");
    assert!(of("folded", "\n\n").is_err() && of("folded", vec![0xff; 100]).is_err());
    // Too many for one event each.
    assert_eq!(weighed(&made("folded", "a 99999999999".into()), "samples").0, 99_999_999_999);
}

#[test]
fn missing_names_become_unknown() {
    let recording = of("folded", "main;;a 1\n").unwrap().recording.unwrap();
    assert_eq!(weighed(&recording, "cpu").2, BTreeMap::from([("main;[unknown];a".to_owned(), 1)]));
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&recording).unwrap();
    let mut packed = Vec::new();
    make(Format::Pprof, &[file], &RenderOptions::default(), &mut packed).unwrap();
    let profile = export::Profile::decode(&*export::unpacked(&*packed).unwrap()).unwrap();
    let modules: Vec<&str> =
        profile.mapping.iter().map(|of| &*profile.string_table[of.filename as usize]).collect();
    assert_eq!(modules, ["unknown"]);
    // The JDK's tool looks for the parentheses.
    assert!(recording.windows(4).any(|bytes| bytes == b"()L;"));
}

#[test]
fn alloy_connect_push_is_ingested() {
    let raw = gzip(&profile(&[("cpu", "nanoseconds")], None, &[&[7]]).encode_to_vec());
    let pair = |name: &str, value: &str| Pair { name: name.into(), value: value.into() };
    let series = Series {
        labels: vec![pair("__name__", "process_cpu"), pair("service_name", "shop"), pair("zone", "eu")],
        samples: vec![Raw { raw_profile: raw.clone() }, Raw { raw_profile: raw.clone() }],
    };
    let request =
        Request { series: vec![series.clone(), Series { labels: vec![], ..series }] }.encode_to_vec();
    let taken = pushed(gzip(&request), 1_700_000_000_000, Limits::default()).unwrap();
    let apps: Vec<String> = taken.iter().map(|(app, _)| app.text()).collect();
    assert_eq!(apps, ["shop{zone=eu}", "shop{zone=eu}", "unspecified", "unspecified"]);
    for (_, recording) in &taken {
        assert_eq!(weighed(recording, "cpu").0, 7);
        assert_eq!(check_bytes(recording.clone()).unwrap().first_ms, 1_700_000_000_000);
    }
    let few = Limits { recording: taken[0].1.len() + 10, ..Limits::default() };
    assert!(matches!(pushed(request.clone().into(), 0, few), Err(Error::TooLarge(_))));
    for at in (0..request.len()).step_by(3) {
        let mut other = request.clone();
        other[at] ^= 0xff;
        let _ = pushed(other.into(), 0, Limits::default());
        let _ = pushed(request[..at].to_vec().into(), 0, Limits::default());
    }
}

#[test]
fn oversized_payloads_are_rejected_or_truncated() {
    let zeros = gzip(&vec![0; 200 << 20]);
    assert!(zeros.len() < 2 << 20);
    for format in ["jfr", "pprof", "folded"] {
        assert!(matches!(of(format, zeros.clone()), Err(Error::TooLarge(_))), "{format}");
    }
    assert!(matches!(otlp(zeros.clone(), 0, Limits::default()), Err(Error::TooLarge(_))));
    let small = Limits { body: 1000, ..Limits::default() };
    assert!(matches!(ingest("name=a", None, recording(), 0, small), Err(Error::TooLarge(_))));
    // One function with a long name, repeated in a stack: 300 KB, which would be 20 GB of text.
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
    // Deep stacks and long names are truncated.
    let made = of("pprof", profile.encode_to_vec()).unwrap().recording.unwrap();
    assert!(made.len() < 50_000, "{}", made.len());
    check_bytes(made).unwrap();
    // Stacks that are much larger than their encoding: one location with many functions, in many stacks.
    let line = vec![export::Line { function_id: 1, line: 0 }; 5_000];
    let location = (1..4_000).map(|id| export::Location { id, line: line.clone(), ..Default::default() });
    let of_one = |id| export::Sample { location_id: vec![1, id], value: vec![1], ..Default::default() };
    let sample = (1..4_000).map(of_one).collect();
    let wide = export::Profile { location: location.take(1).collect(), sample, ..profile.clone() };
    assert!(matches!(of("pprof", wide.encode_to_vec()), Err(Error::TooLarge(_))));
    // As many functions with that name as the limit allows.
    let many = (1..100_000).map(|id| export::Function { id, name: 2, ..Default::default() }).collect();
    let profile = export::Profile { function: many, sample: Vec::new(), ..profile };
    assert_eq!(of("pprof", profile.encode_to_vec()).unwrap().recording, None);
    let strings = HashMap::from([(1, "k".repeat(500_000))]);
    let one = One { labels: HashMap::from([(1, 1)]) };
    let contexts: HashMap<i64, One> = (0..30_000).map(|at| (at, one.clone())).collect();
    let snapshot = Snapshot { contexts, strings };
    let read = contexts::read(&gzip(&snapshot.encode_to_vec()));
    assert!(read.is_ok_and(|contexts| contexts[&5].keys().all(|key| key.len() == 256)));
}

#[test]
fn otlp_profiles_are_ingested_per_resource() {
    let (message, total) = drawn(Format::Otlp);
    let otlp = |body: Bytes| otlp(body, 0, Limits::default());
    let received = otlp(message.clone()).unwrap();
    let [one] = received.as_slice() else { panic!("{}", received.len()) };
    assert_eq!((one.app.name.as_str(), one.profiles), ("burn", 1), "{:?}", one.app.labels);
    // Stacks, weights, threads and times are unchanged.
    let before = check_bytes(recording()).unwrap();
    assert_eq!(weighed(&one.recording, "cpu"), weighed(&recording(), "cpu"));
    assert_eq!(weighed(&one.recording, "cpu").0, total);
    let after = check_bytes(one.recording.clone()).unwrap();
    assert!(after.first_ms >= before.first_ms && after.last_ms <= before.last_ms + 1, "{after:?}");
    assert_eq!(after.line.total(), before.line.total());
    assert_eq!(otlp(gzip(&message)).unwrap(), received);
    let mut twice = ProfilesData::decode(message.clone()).unwrap();
    twice.resource_profiles.extend(twice.resource_profiles.clone());
    assert_eq!(otlp(twice.encode_to_vec().into()).unwrap(), [received.clone(), received.clone()].concat());
    for at in (0..message.len()).step_by(89) {
        let mut other = message.to_vec();
        other[at] ^= 0xff;
        let _ = otlp(other.into());
        let _ = otlp(message.slice(..at));
    }
    assert_eq!(otlp(Bytes::new()).unwrap(), []);
    assert!(matches!(otlp(Bytes::from_static(b"hello")), Err(Error::Bad(_))));
    // Timestamps out of range, and timestamps without values.
    let profile =
        |data: &mut ProfilesData| data.resource_profiles[0].scope_profiles[0].profiles[0].samples.len();
    let mut far = ProfilesData::decode(message.clone()).unwrap();
    assert!(profile(&mut far) > 1);
    let of = |data: &ProfilesData| otlp(data.encode_to_vec().into());
    let samples = &mut far.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    samples[0].timestamps_unix_nano[0] = 1 << 40;
    assert!(matches!(of(&far), Err(Error::Bad(_))));
    let samples = &mut far.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    samples.truncate(1);
    (samples[0].values, samples[0].timestamps_unix_nano) = (vec![], vec![1_700_000_000_000_000_000; 3]);
    far.resource_profiles[0].scope_profiles[0].profiles[0].time_unix_nano = 0;
    let recording = of(&far).unwrap();
    let three = check_bytes(recording[0].recording.clone()).unwrap();
    assert_eq!((three.line.total(), three.first_ms), (3, 1_700_000_000_000));
}
