//! The output of `flightline export` is accepted by programs of other projects: an OpenTelemetry Collector,
//! by OTLP and by Fluentd's protocol, and `go tool pprof`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flightline_tests::run::{beside, run, signal, spawn, until, wait};
use flightline_tests::victim::{flightline, target_dir};
use flightline_tests::{foreign, skip};
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry, StreamOutput};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

/// The number of samples in the recording below, the number with a span, and the time that a sample
/// represents in ns.
const SAMPLES: i64 = 400;
const IN_SPANS: i64 = 300;
const SPANS: i64 = 100;
const PERIOD: i64 = 10_000_000;

/// A recording of a service of one thread: of every four samples three are in spans, each span of four samples its own.
fn recording() -> Vec<u8> {
    let mut pipe = StreamOutput::new(Vec::new());
    let start_epoch_ns = 1_700_000_000_000_000_000;
    let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns, ticks_per_second: 1_000_000 };
    let geometry = Geometry::Fixed { size: 256 << 10 };
    let mut chunk = ChunkWriter::begin(geometry, &line, FileOffset(0), Ticks(0)).unwrap();
    let texts = [(1, "main"), (2, "()L;"), (3, "serve"), (4, "shop")];
    for (key, text) in texts {
        chunk.constant(schema::SYMBOL, key, |s| _ = s.string(text)).unwrap();
    }
    chunk.constant(schema::THREAD_GROUP, 1, |g| _ = g.key(0).string("shop (77)")).unwrap();
    chunk
        .constant(schema::THREAD, 4711, |t| _ = t.string("worker").long(4711).null().long(0).key(1))
        .unwrap();
    chunk.constant(schema::CLASS, 1, |c| _ = c.key(0).key(4).key(0).int(0).boolean(false)).unwrap();
    for (method, name) in [(1, 1), (2, 3)] {
        chunk
            .constant(schema::METHOD, method, |m| _ = m.key(1).key(name).key(2).int(0x100).boolean(false))
            .unwrap();
    }
    let frame = frame_type::CPP;
    let stack = |s: &mut jfr_format::write::FieldWriter<'_>| {
        s.boolean(false).array(2).key(2).int(7).int(0).key(frame).key(1).int(3).int(0).key(frame);
    };
    chunk.constant(schema::STACK_TRACE, 1, stack).unwrap();
    chunk
        .event(schema::PROCESS_LABEL, |e| _ = e.ticks(Ticks(0)).long(77).string("service").string("cart"))
        .unwrap();
    let setting = |e: &mut jfr_format::write::FieldWriter<'_>| {
        e.ticks(Ticks(0)).long(schema::EXECUTION_SAMPLE.0.into()).string("period").string("10 ms");
    };
    chunk.event(schema::ACTIVE_SETTING, setting).unwrap();
    for (key, text) in [(1, "GET /cart"), (2, r#"{"tenant":"a"}"#)] {
        chunk.constant(schema::STRING, key, |s| _ = s.string(text)).unwrap();
    }
    for span in 1..=SPANS {
        chunk
            .constant(schema::SPAN_CONTEXT, span as u64, |c| {
                c.long(span).long(span).long(-1).long(span).int(1).key(2);
            })
            .unwrap();
        for at in 0..4 {
            // The fourth when the span is over.
            let time = Ticks(span * 1_000 + at * if at < 3 { 10 } else { 200 });
            if at < 3 {
                chunk
                    .event(schema::SAMPLE_CONTEXT, |e| {
                        _ = e.ticks(time).key(4711).key(span as u64).long(span)
                    })
                    .unwrap();
            }
            let sample = |e: &mut jfr_format::write::FieldWriter<'_>| {
                e.ticks(time).key(4711).key(1).key(thread_state::DEFAULT);
            };
            chunk.event(schema::EXECUTION_SAMPLE, sample).unwrap();
        }
        let scope = |e: &mut jfr_format::write::FieldWriter<'_>| {
            e.ticks(Ticks(span * 1_000)).ticks(Ticks(500)).key(4711);
            e.long(span).long(0).long(span).boolean(false);
        };
        chunk.event(schema::SPAN_SCOPE, scope).unwrap();
        chunk
            .event(schema::SPAN, |e| {
                e.ticks(Ticks(span * 1_000)).ticks(Ticks(500)).key(4711).key(1);
                e.long(span).long(0).long(span).long(-1).long(span).int(1).int(3).key(2);
            })
            .unwrap();
    }
    chunk.finish(Ticks(2_000_000), true, &mut pipe).unwrap();
    pipe.into_inner()
}

/// A Collector. After its end, a file contains the received data.
struct Collector {
    process: Child,
    grpc: u16,
    http: u16,
    /// Fluentd's forward protocol.
    forward: u16,
    folder: tempfile::TempDir,
}

impl Collector {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The ports are released just before the Collector opens them.
        let free = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [grpc, http, forward] = free.map(|listener| listener.local_addr().unwrap().port());
        let config = format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:{grpc}'}}, http: {{endpoint: '127.0.0.1:{http}'}}}}}}, \
             fluentforward: {{endpoint: '127.0.0.1:{forward}'}}}}\n\
             exporters: {{file: {{path: '{}'}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n    \
             profiles: {{receivers: [otlp], exporters: [file]}}\n    logs: {{receivers: [fluentforward], exporters: [file]}}\n    traces: {{receivers: [otlp], exporters: [file]}}\n",
            folder.path().join("out.json").display()
        );
        let path = folder.path().join("config.yaml");
        fs::write(&path, config).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(target_dir().join("readers/collector"));
        command
            .arg(format!("--config=file:{}", path.display()))
            .arg("--feature-gates=service.profilesSupport");
        let process = spawn(command.stdout(Stdio::null()).stderr(log));
        let collector = Self { process, grpc, http, forward, folder };
        until(LIMIT, "the Collector listens", || {
            [grpc, http, forward]
                .iter()
                .all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok())
                .then_some(())
        });
        // The collector installs its signal handlers only then, without logging it.
        let log = collector.folder.path().join("log");
        until(LIMIT, "the Collector is ready", || {
            fs::read_to_string(&log).unwrap().contains("Everything is ready").then_some(())
        });
        std::thread::sleep(Duration::from_millis(300));
        collector
    }

    /// Sends a request that must be accepted.
    fn post(&self, path: &str, kind: &str, body: &[u8]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }

    /// Ends it; returns the received messages.
    fn finish(mut self) -> Vec<Value> {
        signal(self.process.id(), libc::SIGTERM);
        let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let status = wait(&mut self.process, LIMIT, "the Collector");
        assert!(status.success(), "{}", log());
        let text = fs::read_to_string(self.folder.path().join("out.json")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// The text of an attribute; a Collector may store it as an index into its string table.
fn text<'a>(resource: &'a Value, dictionary: &'a Value, name: &str) -> Option<&'a str> {
    let string = |index: &Value| dictionary["stringTable"][index.as_u64()? as usize].as_str();
    let attribute = list(resource, "attributes").iter().find(|attribute| {
        attribute["key"].as_str().or_else(|| string(&attribute["keyStrindex"])) == Some(name)
    })?;
    let value = &attribute["value"];
    value["stringValue"].as_str().or_else(|| string(&value["stringValueStrindex"]))
}

/// The data received through one protocol.
#[derive(Debug, Default, PartialEq, Eq)]
struct Came {
    value: i64,
    in_spans: i64,
    links: BTreeSet<(String, String)>,
    spans: BTreeSet<(String, String, String)>,
    /// Trace, parent, name, frames folded into it.
    inferred: BTreeSet<(String, String, String, String)>,
}

fn came(messages: &[Value]) -> BTreeMap<String, Came> {
    let mut all: BTreeMap<String, Came> = BTreeMap::new();
    for message in messages {
        let dictionary = &message["dictionary"];
        for of in list(message, "resourceProfiles").iter().chain(list(message, "resourceSpans")) {
            let resource = &of["resource"];
            assert_eq!(text(resource, dictionary, "service.name"), Some("cart"), "{resource}");
            let came = all.entry(text(resource, dictionary, "via").unwrap().to_owned()).or_default();
            for profile in list(of, "scopeProfiles").iter().flat_map(|scope| list(scope, "profiles")) {
                let kind = &dictionary["stringTable"]
                    [profile["sampleType"]["typeStrindex"].as_u64().unwrap() as usize];
                assert_eq!(kind, "cpu");
                for sample in list(profile, "samples") {
                    let values = list(sample, "values");
                    assert_eq!(values.len(), list(sample, "timestampsUnixNano").len());
                    came.value +=
                        values.iter().map(|v| v.as_str().unwrap().parse::<i64>().unwrap()).sum::<i64>();
                    if let Some(link) = sample["linkIndex"].as_u64() {
                        let link = &dictionary["linkTable"][link as usize];
                        let id = |name: &str| link[name].as_str().unwrap().to_owned();
                        came.in_spans += values.len() as i64;
                        came.links.insert((id("traceId"), id("spanId")));
                    }
                }
            }
            for span in list(of, "scopeSpans").iter().flat_map(|scope| list(scope, "spans")) {
                let of = |name: &str| span[name].as_str().unwrap().to_owned();
                let attribute = |name: &str| {
                    let attributes = list(span, "attributes").iter();
                    attributes.filter(|a| a["key"] == name).map(|a| &a["value"]).next()
                };
                match attribute("is_inferred") {
                    None => _ = came.spans.insert((of("traceId"), of("spanId"), of("name"))),
                    Some(_) => {
                        let stack = attribute("code.stacktrace").unwrap()["stringValue"].as_str().unwrap();
                        let of = (of("traceId"), of("parentSpanId"), of("name"), stack.to_owned());
                        came.inferred.insert(of);
                    }
                }
            }
        }
    }
    all
}

fn export(path: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(flightline());
    command.arg("export").arg(path).args(args);
    command
}

#[test]
fn opentelemetry_collector_accepts_all_exported_data() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jfr");
    fs::write(&path, recording()).unwrap();
    let collector = Collector::start();
    let (http, grpc) =
        (format!("http://127.0.0.1:{}", collector.http), format!("grpc://127.0.0.1:{}", collector.grpc));
    for (to, via, more) in
        [(&http, "http", "--no-gzip"), (&http, "http-gzip", "--every=1s"), (&grpc, "grpc", "--inferred")]
    {
        let via = format!("via={via}");
        let sent = run(&mut export(&path, &["--send", to, "--attribute", &via, more]), LIMIT)
            .expect_success("export");
        let spans = if more == "--inferred" { 2 * SPANS } else { SPANS };
        let told = format!(
            "{SAMPLES} samples, {IN_SPANS} of them in spans, and {spans} spans in 2 messages; 0 retries"
        );
        assert!(sent.stderr.contains(&told), "{}", sent.stderr);
    }
    // As a stream, whose end is not known in advance.
    let mut stream = export(Path::new("-"), &["--send", &grpc, "--inferred", "--attribute", "via=stream"]);
    run(stream.stdin(File::open(&path).unwrap()), LIMIT).expect_success("export of a stream");
    for (format, to) in [("otlp-json", "/v1development/profiles"), ("otlp-traces-json", "/v1/traces")] {
        let args = ["--format", format, "-o", "-", "--attribute", "via=json"];
        let json = run(&mut export(&path, &args), LIMIT).expect_success("export to JSON").stdout;
        collector.post(to, "application/json", &json);
    }
    let found = came(&collector.finish());

    let id = |span: i64| (format!("ffffffffffffffff{span:016x}"), format!("{span:016x}"));
    let named = |span: i64| (id(span).0, id(span).1, "GET /cart".to_owned());
    let inferred = |span: i64| (id(span).0, id(span).1, "serve".to_owned(), "main".to_owned());
    let expected = |way: &str| Came {
        value: SAMPLES * PERIOD,
        in_spans: IN_SPANS,
        links: (1..=SPANS).map(id).collect(),
        spans: (1..=SPANS).map(named).collect(),
        inferred: (1..=SPANS).map(inferred).filter(|_| ["grpc", "stream"].contains(&way)).collect(),
    };
    let ways = ["grpc", "http", "http-gzip", "json", "stream"];
    assert_eq!(found, ways.map(|way| (way.to_owned(), expected(way))).into());
}

#[test]
fn opentelemetry_collector_accepts_converted_totals() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let (path, to) = (folder.path().join("run.jfr"), folder.path().join("run.otlp"));
    fs::write(&path, recording()).unwrap();
    run(Command::new(flightline()).arg("convert").arg(&path).args(["--total", "-o"]).arg(&to), LIMIT)
        .expect_success("convert");
    let collector = Collector::start();
    collector.post("/v1development/profiles", "application/x-protobuf", &fs::read(&to).unwrap());
    let mut found = BTreeMap::new();
    for message in collector.finish() {
        let dictionary = &message["dictionary"];
        let entry =
            |table: &str, index: &Value| dictionary[table][index.as_u64().unwrap_or(0) as usize].clone();
        let scopes = list(&message, "resourceProfiles").iter().flat_map(|of| list(of, "scopeProfiles"));
        for sample in scopes.flat_map(|of| list(of, "profiles")).flat_map(|profile| list(profile, "samples"))
        {
            let stack = entry("stackTable", &sample["stackIndex"]);
            let names = list(&stack, "locationIndices").iter().map(|location| {
                let line = entry("locationTable", location)["lines"][0].clone();
                let name = entry("functionTable", &line["functionIndex"])["nameStrindex"].clone();
                entry("stringTable", &name).as_str().unwrap().to_owned()
            });
            let names: Vec<String> = names.collect();
            let values = list(sample, "values").iter().map(|v| v.as_str().unwrap().parse::<i64>().unwrap());
            *found.entry(names.join(" < ")).or_insert(0) += values.sum::<i64>();
        }
    }
    assert_eq!(found, BTreeMap::from([("serve < main".to_owned(), SAMPLES * PERIOD)]));
}

/// A value of OTLP as plain JSON.
fn plain(value: &Value) -> Value {
    let Some((kind, value)) = value.as_object().and_then(|value| value.iter().next()) else {
        return Value::Null;
    };
    match kind.as_str() {
        "intValue" => value.as_str().unwrap().parse::<i64>().unwrap().into(),
        "arrayValue" => list(value, "values").iter().map(plain).collect(),
        "kvlistValue" => members(list(value, "values")),
        _ => value.clone(),
    }
}

fn members(pairs: &[Value]) -> Value {
    pairs.iter().map(|pair| (pair["key"].as_str().unwrap().to_owned(), plain(&pair["value"]))).collect()
}

#[test]
fn fluent_forward_receiver_accepts_every_row() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jfr");
    fs::write(&path, recording()).unwrap();
    let collector = Collector::start();
    let to = format!("fluentd://127.0.0.1:{}", collector.forward);
    let label = ["--attribute", "thread=mine"];
    // As a file in several messages, and as a stream; packed and not.
    for (input, tag, more) in
        [(path.as_path(), "file", &["--queue-size", "64k"][..]), (Path::new("-"), "stream", &["--no-gzip"])]
    {
        let args = [&["--send", &to, "--tag", tag], &label[..], more].concat();
        let mut command = export(input, &args);
        let sent = run(command.stdin(File::open(&path).unwrap()), LIMIT).expect_success("export");
        let told = format!("{SAMPLES} of {SAMPLES} samples acknowledged");
        assert!(sent.stderr.contains(&told), "{}", sent.stderr);
    }
    let args = [&["--format", "hdps", "-o", "-"], &label[..]].concat();
    let rows = run(&mut export(&path, &args), LIMIT).expect_success("export of rows").stdout_text();
    let mut rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tenants = rows.iter().filter(|row| row["tenant"] == "a" && row["label_thread"] == "mine");
    assert_eq!((rows.len() as i64, tenants.count() as i64), (SAMPLES, IN_SPANS));

    let id = |row: &Value| row["stack_trace_id"].as_str().unwrap().to_owned();
    rows.sort_by_key(id);
    let mut came: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut messages = 0;
    for message in collector.finish() {
        let scopes = list(&message, "resourceLogs").iter().flat_map(|of| list(of, "scopeLogs"));
        for record in scopes.flat_map(|scope| list(scope, "logRecords")) {
            let mut row = members(list(record, "attributes"));
            let nanos: i64 = record["timeUnixNano"].as_str().unwrap().parse().unwrap();
            assert_eq!(row["start_time_millis"], nanos / 1_000_000);
            let tag = row.as_object_mut().unwrap().remove("fluent.tag").unwrap();
            came.entry(tag.as_str().unwrap().to_owned()).or_default().push(row);
        }
        messages += 1;
    }
    assert!(messages > 2);
    came.values_mut().for_each(|rows| rows.sort_by_key(id));
    assert_eq!(came, ["file", "stream"].map(|tag| (tag.to_owned(), rows.clone())).into());
}

#[test]
fn go_pprof_reads_exported_profile() {
    let _place = beside();
    if !skip::have("go") {
        return skip::skip("go is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, to): (PathBuf, PathBuf) = (folder.path().join("run.jfr"), folder.path().join("run.pb.gz"));
    fs::write(&path, recording()).unwrap();
    let raw = |what: &str| {
        let raw =
            run(Command::new("go").args(["tool", "pprof", "-raw"]).arg(&to), LIMIT).expect_success("pprof");
        let raw = raw.stdout_text();
        let mut lines = raw.lines().skip_while(|line| *line != "Samples:").skip(1);
        assert_eq!(lines.next(), Some(what), "{raw}");
        let values = lines.take_while(|line| *line != "Locations").filter_map(|line| {
            let (value, locations) = line.split_once(": ")?;
            locations.starts_with(|c: char| c.is_ascii_digit()).then(|| value.trim().parse::<i64>().ok())?
        });
        assert_eq!(values.sum::<i64>(), SAMPLES * PERIOD, "{raw}");
        raw
    };
    // The same selection, summed up, without labels.
    run(Command::new(flightline()).arg("convert").arg(&path).args(["--total", "-o"]).arg(&to), LIMIT)
        .expect_success("convert");
    let summed = raw("time/nanoseconds[dflt]");
    assert!(summed.contains("serve") && summed.contains("main"), "{summed}");
    run(&mut export(&path, &["--format", "pprof", "-o", to.to_str().unwrap()]), LIMIT)
        .expect_success("export");
    let raw = raw("cpu/nanoseconds[dflt]");
    for label in [
        "thread:[worker]",
        "process:[shop (77)]",
        "endpoint:[GET /cart]",
        "tenant:[a]",
        "span_id:[0000000000000064]",
        "trace_id:[ffffffffffffffff0000000000000064]",
    ] {
        assert!(raw.contains(label), "{label} is missing: {raw}");
    }
}

/// Work with labels, and memory of one size, which is a numeric label in Go's heap profile.
const LABELLED: &str = r#"package main

import (
	"context"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

//go:noinline
func red(until time.Time) (n int) {
	for time.Now().Before(until) {
		n++
	}
	return
}

//go:noinline
func blue(until time.Time) int { return red(until) + 1 }

var kept [][]byte

func main() {
	runtime.MemProfileRate = 1
	for range 100 {
		kept = append(kept, make([]byte, 4096))
	}
	runtime.GC() // what is told is that of the last one
	heap, _ := os.Create("heap.pb.gz")
	pprof.WriteHeapProfile(heap)
	heap.Close()
	cpu, _ := os.Create("cpu.pb.gz")
	pprof.StartCPUProfile(cpu)
	for name, work := range map[string]func(time.Time) int{"red": red, "blue": blue} {
		pprof.Do(context.Background(), pprof.Labels("tenant", name), func(context.Context) {
			work(time.Now().Add(500 * time.Millisecond))
		})
	}
	pprof.StopCPUProfile()
	cpu.Close()
}
"#;

#[test]
fn label_option_selects_same_samples_as_go_pprof() {
    let _place = beside();
    if !skip::have("go") {
        return skip::skip("go is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("main.go"), LABELLED).unwrap();
    run(Command::new("go").args(["run", "main.go"]).current_dir(folder.path()), LIMIT)
        .expect_success("go run");
    let weight = |file: &str, focus: &str| {
        let mut pprof = Command::new("go");
        pprof.args(["tool", "pprof", "-raw", &format!("-tagfocus={focus}"), file]).current_dir(folder.path());
        let raw = run(&mut pprof, LIMIT).expect_success("pprof").stdout_text();
        let lines = raw.lines().skip_while(|line| *line != "Samples:").skip(2);
        let lines = lines.take_while(|line| *line != "Locations").filter_map(|line| line.split_once(": "));
        let values = lines.filter_map(|(values, _)| values.split_whitespace().last()?.parse::<u64>().ok());
        values.sum::<u64>()
    };
    let fold = |file: &str, label: &str| {
        let mut fold = Command::new(flightline());
        fold.args(["fold", file, "--label", label]).current_dir(folder.path());
        let text = run(&mut fold, LIMIT).expect_success("fold").stdout_text();
        let weights = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        (weights.sum::<u64>(), text)
    };
    let [(red, of_red), (blue, of_blue)] =
        ["red", "blue"].map(|name| fold("cpu.pb.gz", &format!("tenant={name}")));
    assert!(of_red.contains("main.red") && !of_red.contains("main.blue"), "{of_red}");
    assert!(of_blue.contains("main.blue"), "{of_blue}");
    assert_eq!([red, blue], ["red", "blue"].map(|name| weight("cpu.pb.gz", &format!("tenant={name}"))));
    let (kept, text) = fold("heap.pb.gz", "bytes=4096");
    assert!(kept >= 100 * 4096, "{text}");
    assert_eq!(kept, weight("heap.pb.gz", "bytes=4096b:4096b"));
}
