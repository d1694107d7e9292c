//! Exported recordings are complete, and every message conforms to its specification.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use flightline_consumer::live::{
    Event, Feed, Frame, Item, Kind, Options, Sample, Stack, Time, Value, Weight,
};
use flightline_consumer::load::{LoadOptions, load};
use flightline_consumer::model::{FrameKind, Thread, Unit};
use flightline_export::{Attributes, Batch, Collector, Link, Span, otlp, pprof};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesData, ProfilesDictionary};
use prost::Message;

fn recording(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn batch_of(bytes: &[u8]) -> Batch {
    let mut collector = Collector::new(Attributes::new());
    let mut feed = Feed::new(Options::default());
    feed.push(bytes);
    feed.close();
    while let Some(item) = feed.next() {
        collector.take(&item);
    }
    collector.finish()
}

fn profiles(data: &ProfilesData) -> impl Iterator<Item = &Profile> {
    data.resource_profiles.iter().flat_map(|r| &r.scope_profiles).flat_map(|s| &s.profiles)
}

fn text(dictionary: &ProfilesDictionary, index: i32) -> &str {
    &dictionary.string_table[index as usize]
}

fn attributes(dictionary: &ProfilesDictionary, indices: &[i32]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for &index in indices {
        assert_ne!(index, 0);
        let attribute = &dictionary.attribute_table[index as usize];
        let value = match attribute.value.as_ref().unwrap().value.as_ref().unwrap() {
            any_value::Value::StringValue(text) => text.clone(),
            any_value::Value::IntValue(number) => number.to_string(),
            other => panic!("{other:?}"),
        };
        let twice = found.insert(text(dictionary, attribute.key_strindex).to_owned(), value);
        assert!(twice.is_none(), "an attribute is there twice: {twice:?}");
    }
    found
}

/// Checks the rules of the specification that apply to any message.
fn check(data: &ProfilesData) {
    let dictionary = data.dictionary.as_ref().unwrap();
    let d = dictionary;
    assert_eq!(d.mapping_table[0], Default::default());
    assert_eq!(d.location_table[0], Default::default());
    assert_eq!(d.function_table[0], Default::default());
    assert_eq!(d.attribute_table[0], Default::default());
    assert_eq!(d.stack_table[0], Default::default());
    assert_eq!(d.string_table[0], "");
    assert_eq!((&*d.link_table[0].trace_id, &*d.link_table[0].span_id), (&[0; 16][..], &[0; 8][..]));
    assert_eq!(d.string_table.iter().collect::<BTreeSet<_>>().len(), d.string_table.len());
    assert_eq!(
        d.stack_table.iter().map(|s| &s.location_indices).collect::<BTreeSet<_>>().len(),
        d.stack_table.len()
    );
    let within = |index: i32, len: usize| assert!((0..len as i32).contains(&index), "{index} of {len}");
    for mapping in &d.mapping_table {
        within(mapping.filename_strindex, d.string_table.len());
    }
    for function in &d.function_table {
        within(function.name_strindex, d.string_table.len());
    }
    for location in &d.location_table {
        within(location.mapping_index, d.mapping_table.len());
        location.lines.iter().for_each(|line| within(line.function_index, d.function_table.len()));
        attributes(d, &location.attribute_indices);
    }
    for stack in &d.stack_table {
        stack.location_indices.iter().for_each(|&index| {
            within(index, d.location_table.len());
            assert_ne!(index, 0, "a frame that is none");
        });
    }
    for link in &d.link_table {
        assert_eq!((link.trace_id.len(), link.span_id.len()), (16, 8));
    }
    for profile in profiles(data) {
        assert!(!text(d, profile.sample_type.unwrap().type_strindex).is_empty());
        attributes(d, &profile.attribute_indices);
        let mut identities = BTreeSet::new();
        for sample in &profile.samples {
            within(sample.stack_index, d.stack_table.len());
            within(sample.link_index, d.link_table.len());
            attributes(d, &sample.attribute_indices);
            assert_eq!(sample.values.len(), sample.timestamps_unix_nano.len());
            assert!(!sample.values.is_empty());
            let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
            for &time in &sample.timestamps_unix_nano {
                assert!((profile.time_unix_nano..end).contains(&time) || time == u64::MAX, "{time}");
            }
            let identity = (sample.stack_index, sample.attribute_indices.clone(), sample.link_index);
            assert!(identities.insert(identity), "samples that are the same stand twice");
        }
    }
    assert_eq!(ProfilesData::decode(&*data.encode_to_vec()).unwrap(), *data);
}

/// The number of events and the sum of their weights by event type, from our other reader.
fn expected(bytes: &[u8]) -> BTreeMap<String, i64> {
    let mut input = jfr_format::read::Input::bytes(bytes.to_vec().into());
    let model = load(&mut input, &LoadOptions::default(), |_| {}).unwrap().model;
    let mut sums = BTreeMap::new();
    for (key, weight) in &model.samples {
        let kind = model.kinds.get(key.kind);
        let value = match (kind.unit, kind.period_nanos) {
            (Unit::Samples, Some(period)) => weight.count * period,
            (Unit::Samples, None) => weight.count,
            _ => weight.value,
        };
        *sums.entry(kind.name.to_string()).or_default() += value as i64;
    }
    sums
}

fn sums(data: &ProfilesData) -> BTreeMap<String, i64> {
    let dictionary = data.dictionary.as_ref().unwrap();
    let mut sums = BTreeMap::new();
    for profile in profiles(data) {
        let event = attributes(dictionary, &profile.attribute_indices)["jfr.event.type"].clone();
        *sums.entry(event).or_default() += profile.samples.iter().flat_map(|s| &s.values).sum::<i64>();
    }
    sums
}

#[test]
fn exported_totals_equal_recording_totals() {
    for name in ["flightline.jfr", "ap-java-wall.jfr", "ap-native-mem.jfr", "jdk25.jfr"] {
        let bytes = recording(name);
        let batch = batch_of(&bytes);
        let data = otlp::profiles(&batch);
        check(&data);
        let mut expected = expected(&bytes);
        // Events about threads and addresses, without a stack, are not samples.
        let sampled = |event: &str| !["jdk.ThreadStart", "jdk.ThreadEnd", "profiler.Free"].contains(&event);
        expected.retain(|event, _| sampled(event));
        let mut found = sums(&data);
        found.retain(|event, _| sampled(event));
        // The messages omit events without weight.
        expected.retain(|_, sum| *sum > 0);
        found.retain(|_, sum| *sum > 0);
        assert!(!found.is_empty(), "{name}");
        assert_eq!(found, expected, "{name}");

        // pprof has the same totals.
        let profile = pprof::profile(&batch);
        check_pprof(&profile);
        let all: i64 = profile.sample.iter().flat_map(|s| &s.value).sum();
        assert_eq!(all, sums(&data).values().sum::<i64>(), "{name}");
        let mut gzipped = Vec::new();
        pprof::write(&profile, &mut gzipped).unwrap();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*gzipped).read_to_end(&mut plain).unwrap();
        assert_eq!(pprof::Profile::decode(&*plain).unwrap(), profile);

        // Messages in parts have the same content, and no part exceeds the limit.
        let (mut samples, mut in_parts) = (0, BTreeMap::new());
        let most = data.encoded_len() / 3;
        otlp::parts(&batch, most, |bytes, count| -> Result<(), ()> {
            assert!(bytes.len() <= most || count == 1);
            samples += count;
            let part = ProfilesData::decode(&*bytes).unwrap();
            check(&part);
            sums(&part).into_iter().for_each(|(event, sum)| *in_parts.entry(event).or_default() += sum);
            Ok(())
        })
        .unwrap();
        assert_eq!(samples, batch.len() as u64);
        in_parts.retain(|event, sum| *sum > 0 && found.contains_key(event));
        assert_eq!(in_parts, found, "{name}");
    }
}

fn check_pprof(profile: &pprof::Profile) {
    let ids = |ids: &mut dyn Iterator<Item = u64>| ids.collect::<BTreeSet<_>>();
    let locations = ids(&mut profile.location.iter().map(|l| l.id));
    let functions = ids(&mut profile.function.iter().map(|f| f.id));
    let mappings = ids(&mut profile.mapping.iter().map(|m| m.id));
    assert!(![&locations, &functions, &mappings].iter().any(|ids| ids.contains(&0)));
    assert_eq!(profile.string_table[0], "");
    let text = |index: i64| &*profile.string_table[index as usize];
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        assert!(sample.location_id.iter().all(|id| locations.contains(id)));
        sample.label.iter().for_each(|label| assert!(!text(label.key).is_empty()));
    }
    for location in &profile.location {
        assert!(location.mapping_id == 0 || mappings.contains(&location.mapping_id));
        assert!(location.line.iter().all(|line| functions.contains(&line.function_id)));
    }
}

fn thread(id: i64) -> Arc<Thread> {
    let name = Some(Arc::from(format!("worker-{id}")));
    Arc::new(Thread { os_name: name, os_id: id, group: Some("shop (7)".into()), ..Thread::default() })
}

fn stack(functions: &[&str]) -> Arc<Stack> {
    let frame = |name: &&str| Frame {
        function: (*name).into(),
        class: "".into(),
        module: "shop".into(),
        line: 3,
        bytecode_index: 0,
        kind: FrameKind::Native,
        type_name: "C++".into(),
    };
    Arc::new(Stack { frames: functions.iter().map(frame).collect(), truncated: false })
}

fn sample(thread: &Arc<Thread>, time: i64, value: u64) -> Item {
    Item::Sample(Box::new(Sample {
        event: "jdk.ExecutionSample".into(),
        kind: Kind::Cpu,
        variant: None,
        time: Time { epoch_nanos: time, monotonic_nanos: None },
        duration_nanos: None,
        thread: Some(thread.clone()),
        process_title: None,
        stack: Some(stack(&["leaf", "main"])),
        state: None,
        weight: Weight { samples: 1, value, unit: Unit::Nanoseconds },
        span_id: None,
        span: None,
        labels: None,
        fields: Box::default(),
        contextual: Arc::default(),
        offset: 0,
    }))
}

fn event(name: &str, time: i64, fields: Vec<(&str, Value)>) -> Item {
    Item::Other(Event {
        event: name.into(),
        time: Time { epoch_nanos: time, monotonic_nanos: None },
        fields: fields.into_iter().map(|(name, value)| (name.into(), value)).collect(),
        contextual: Arc::default(),
        offset: 0,
    })
}

fn context(thread: &Arc<Thread>, time: i64, span: i64, trace: (i64, i64), labels: &str) -> Item {
    let fields = [
        ("spanId", Value::Integer(span)),
        ("localRootSpanId", Value::Integer(9)),
        ("traceIdHi", Value::Integer(trace.0)),
        ("traceIdLo", Value::Integer(trace.1)),
        ("labels", Value::Text(labels.into())),
    ];
    let context = fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect();
    let fields = vec![("eventThread", Value::Thread(thread.clone())), ("context", Value::Struct(context))];
    event("flightline.SampleContext", time, fields)
}

fn span_event(time: i64, span: i64, name: &str) -> Item {
    event(
        "flightline.Span",
        time,
        vec![
            ("duration", Value::Integer(500)),
            ("eventThread", Value::Thread(thread(1))),
            ("name", Value::Text(name.into())),
            ("spanId", Value::Integer(span)),
            ("traceIdHi", Value::Integer(-1)),
            ("traceIdLo", Value::Integer(2)),
            ("flags", Value::Integer(1)),
            ("samples", Value::Integer(2)),
            ("labels", Value::Text(r#"{"tenant":"a","n":1}"#.into())),
        ],
    )
}

#[test]
fn samples_link_to_spans_in_any_event_order() {
    let (one, two) = (thread(1), thread(2));
    let mut items = [
        sample(&one, 1_000, 10),
        sample(&one, 2_000, 10),
        sample(&two, 1_000, 10),
        context(&one, 1_000, -2, (-1, 2), r#"{"tenant":"a"}"#),
        context(&two, 1_000, 5, (0, 0), "not JSON"),
        context(&two, 7_000, 5, (0, 1), ""),
        span_event(500, 9, "GET /"),
    ];
    for _ in 0..items.len() {
        items.rotate_left(1);
        let mut collector = Collector::new(Attributes::new());
        items.iter().for_each(|item| collector.take(item));
        let batch = collector.finish();
        let counts = batch.counts();
        assert_eq!((counts.samples, counts.in_spans, counts.spans), (3, 2, 1));
        assert_eq!(collector.counts().contexts_unused, 1);
        let data = otlp::profiles(&batch);
        check(&data);
        let d = data.dictionary.as_ref().unwrap();
        let all: Vec<_> = profiles(&data).collect();
        assert_eq!(all.len(), 1, "one process, one measure");
        assert_eq!((all[0].period, all[0].time_unix_nano, all[0].duration_nano), (10, 1_000, 1_001));
        let mut found = BTreeMap::new();
        for sample in &all[0].samples {
            let of = attributes(d, &sample.attribute_indices);
            let link = &d.link_table[sample.link_index as usize];
            found.insert((of["thread.id"].clone(), sample.timestamps_unix_nano[0]), (of, link.clone()));
        }
        let (of, link) = &found[&("1".into(), 1_000)];
        assert_eq!(link.span_id, (-2i64).to_be_bytes());
        assert_eq!(link.trace_id, [&(-1i64).to_be_bytes()[..], &2i64.to_be_bytes()].concat());
        assert_eq!((&*of["tenant"], &*of["endpoint"]), ("a", "GET /"));
        let (of, link) = &found[&("1".into(), 2_000)];
        assert!(link.span_id == [0; 8] && !of.contains_key("endpoint"));
        // An incomplete link is omitted; the id becomes an attribute.
        let (of, link) = &found[&("2".into(), 1_000)];
        assert!(link.span_id == [0; 8] && of["span.id"] == "0000000000000005");
        let stack = &d.stack_table[all[0].samples[0].stack_index as usize];
        let name = |location: i32| {
            let location = &d.location_table[location as usize];
            text(d, d.function_table[location.lines[0].function_index as usize].name_strindex)
        };
        assert_eq!(stack.location_indices.iter().map(|&at| name(at)).collect::<Vec<_>>(), ["leaf", "main"]);

        let profile = pprof::profile(&batch);
        check_pprof(&profile);
        let text = |index: i64| &*profile.string_table[index as usize];
        let labels: BTreeSet<(&str, &str)> =
            profile.sample.iter().flat_map(|s| &s.label).map(|l| (text(l.key), text(l.str))).collect();
        for label in [
            ("process", "shop (7)"),
            ("thread", "worker-1"),
            ("trace_id", "ffffffffffffffff0000000000000002"),
            ("span_id", "fffffffffffffffe"),
            ("span_id", "0000000000000005"),
            ("endpoint", "GET /"),
        ] {
            assert!(labels.contains(&label), "{label:?} is not among {labels:?}");
        }
    }
}

#[test]
fn samples_wait_for_spans_across_batches() {
    const SECOND: i64 = 1_000_000_000;
    let one = thread(1);
    let scope = |span: i64, from: i64, took: i64| {
        let fields = vec![
            ("duration", Value::Integer(took)),
            ("eventThread", Value::Thread(thread(1))),
            ("spanId", Value::Integer(span)),
            ("previousSpanId", Value::Integer(0)),
        ];
        event("flightline.SpanScope", from, fields)
    };
    let mut collector = Collector::new(Attributes::new());
    collector.take(&sample(&one, 10 * SECOND, 10));
    collector.take(&event("flightline.Watermark", 9 * SECOND, vec![]));
    assert!(collector.cut().is_empty(), "its span may still arrive");
    // A span scope that contains the sample, and the span itself, which has the trace id.
    collector.take(&scope(5, 9 * SECOND, 2 * SECOND));
    collector.take(&span_event(9 * SECOND, 5, "GET /"));
    collector.take(&sample(&one, 12 * SECOND, 10));
    collector.take(&event("flightline.Watermark", 11 * SECOND, vec![]));
    let batch = collector.cut();
    assert_eq!((batch.counts().samples, batch.counts().in_spans), (1, 1));
    let data = otlp::profiles(&batch);
    check(&data);
    let link = &data.dictionary.as_ref().unwrap().link_table[1];
    assert_eq!((&*link.span_id, link.trace_id[15]), (&5i64.to_be_bytes()[..], 2));
    // Nothing is lost, and nothing is duplicated.
    let rest = collector.finish();
    assert_eq!((rest.counts().samples, rest.counts().in_spans, rest.counts().spans), (1, 0, 0));
}

#[test]
fn traces_have_ids_links_and_parents() {
    let mut batch = Collector::new([("service.name".to_owned(), "mine".to_owned())].into());
    batch.take(&span_event(500, 9, "GET /"));
    let inferred = Span {
        trace_id: 1,
        span_id: 77,
        parent_span_id: 9,
        name: "work".into(),
        start: 600,
        end: 550,
        process: Some("shop (7)".into()),
        inferred: true,
        stack: vec!["b".into(), "c".into()],
        links: vec![Link { trace_id: 1, span_id: 3, is_child: true }, Link::default()],
        ..Span::default()
    };
    batch.span(inferred.clone());
    batch.span(Span { trace_id: 0, ..inferred });
    let batch = batch.finish();
    let data = otlp::traces(&batch);
    assert_eq!(data.resource_spans.len(), 1);
    let spans = &data.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.len(), 2);
    assert_eq!(
        (spans[0].trace_id.len(), &*spans[0].span_id, spans[0].parent_span_id.len()),
        (16, &9u64.to_be_bytes()[..], 0)
    );
    assert_eq!(spans[1].parent_span_id, 9u64.to_be_bytes());
    assert_eq!(spans[1].links.len(), 1);
    assert_eq!(spans[1].end_time_unix_nano, 600);
    let json = otlp::traces_json(&data).unwrap();
    let span = &json["resourceSpans"][0]["scopeSpans"][0]["spans"][1];
    assert_eq!(span["spanId"], "000000000000004d");
    assert_eq!(span["startTimeUnixNano"], "600");
    let attribute = |name: &str| {
        let all = span["attributes"].as_array().unwrap();
        all.iter().find(|a| a["key"] == name).unwrap_or_else(|| panic!("{name}: {span}"))["value"].clone()
    };
    assert_eq!(attribute("is_inferred")["boolValue"], true);
    assert_eq!(attribute("code.stacktrace")["stringValue"], "b\nc");
    assert_eq!(span["links"][0]["attributes"][0]["key"], "is_child");
}

#[test]
fn json_follows_otlp_encoding() {
    let mut batch = Collector::new(Attributes::new());
    let one = thread(1);
    batch.take(&sample(&one, 1_700_000_000_000_000_001, 10));
    batch.take(&context(&one, 1_700_000_000_000_000_001, 5, (0, 1), r#"{"zero":"0"}"#));
    let json = otlp::profiles_json(&otlp::profiles(&batch.finish())).unwrap();
    let dictionary = &json["dictionary"];
    assert_eq!(dictionary["linkTable"][1]["traceId"], "00000000000000000000000000000001");
    assert_eq!(dictionary["linkTable"][1]["spanId"], "0000000000000005");
    assert_eq!(dictionary["stringTable"][0], "");
    assert_eq!(dictionary["stackTable"][0], serde_json::json!({}));
    assert_eq!(dictionary["locationTable"][1]["lines"][0]["line"], "3");
    let profile = &json["resourceProfiles"][0]["scopeProfiles"][0]["profiles"][0];
    assert_eq!(profile["timeUnixNano"], "1700000000000000001");
    assert_eq!(profile["samples"][0]["values"][0], "10");
    assert_eq!(profile["samples"][0]["timestampsUnixNano"][0], "1700000000000000001");
    assert_eq!(profile["originalPayload"], serde_json::Value::Null);
    let values: Vec<_> =
        dictionary["attributeTable"].as_array().unwrap().iter().map(|a| &a["value"]).collect();
    assert!(values.contains(&&serde_json::json!({"stringValue": "0"})), "{values:?}");
}

#[test]
fn extreme_numbers_and_malformed_labels_do_not_panic() {
    let mut batch = Collector::new(Attributes::new());
    let far = thread(i64::MIN);
    let labels = format!(r#"{{"thread.name":"twice","endpoint":"e","":"x","a":{}}}"#, "[".repeat(100_000));
    for (time, value) in [(i64::MIN, u64::MAX), (i64::MAX, u64::MAX), (-1, 0), (0, u64::MAX)] {
        batch.take(&sample(&far, time, value));
        batch.take(&context(&far, time, i64::MIN, (i64::MIN, i64::MAX), &labels));
        batch.take(&context(&far, time, 1, (1, 1), r#"{"thread.name":"twice","endpoint":"e","":"x"}"#));
    }
    for (duration, pid) in [(i64::MAX, i64::MAX), (i64::MIN, -1)] {
        batch.take(&event(
            "flightline.Span",
            i64::MAX,
            vec![
                ("spanId", Value::Integer(-1)),
                ("traceIdLo", Value::Integer(-1)),
                ("duration", Value::Integer(duration)),
                ("samples", Value::Integer(i64::MIN)),
                ("flags", Value::Integer(i64::MIN)),
            ],
        ));
        batch.take(&event("flightline.Label", 0, vec![("pid", Value::Integer(pid)), ("name", Value::Null)]));
    }
    for broken in ["flightline.SampleContext", "flightline.Span", "flightline.Label"] {
        batch.take(&event(broken, 0, vec![("context", Value::List(Box::default()))]));
    }
    let batch = batch.finish();
    let data = otlp::profiles(&batch);
    check(&data);
    let profile = pprof::profile(&batch);
    check_pprof(&profile);
    assert!(profile.sample.iter().flat_map(|s| &s.value).all(|&value| value >= 0));
    assert_eq!(otlp::traces(&batch).resource_spans[0].scope_spans[0].spans.len(), 2);
    otlp::profiles_json(&data).unwrap();
    let empty = Collector::new(Attributes::new()).finish();
    check(&otlp::profiles(&empty));
    check_pprof(&pprof::profile(&empty));
}
