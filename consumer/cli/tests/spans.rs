//! `flightline spans` on a recording with known content.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, FileOutput, Geometry};

/// One tick is a microsecond.
const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(0),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};
const MS: i64 = 1_000;
const TRACE: i64 = 0x4bf9;
/// Requests that each contain a query; the last one takes much longer, and waits.
const REQUESTS: i64 = 20;

/// Defines a stack of a function called by `serve` and `main`; returns its key.
fn stack(chunk: &mut ChunkWriter, function: u64, name: &str) -> u64 {
    let define = |chunk: &mut ChunkWriter, key: u64, name: &str| {
        chunk.constant(schema::SYMBOL, key, |s| _ = s.string(name)).unwrap();
        chunk
            .constant(schema::METHOD, key, |m| _ = m.key(0).key(key).key(0).int(0x100).boolean(false))
            .unwrap();
    };
    if function == 3 {
        define(chunk, 1, "main");
        define(chunk, 2, "serve");
    }
    define(chunk, function, name);
    chunk
        .constant(schema::STACK_TRACE, function, |s| {
            s.boolean(false).array(3);
            [function, 2, 1].iter().for_each(|&key| _ = s.key(key).int(0).int(0).key(frame_type::CPP));
        })
        .unwrap();
    function
}

fn make(path: &Path) {
    let mut out = FileOutput::new(std::fs::File::create(path).unwrap()).unwrap();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &LINE, FileOffset(0), Ticks(0)).unwrap();
    chunk.constant(schema::THREAD, 7, |t| _ = t.string("worker").long(7).null().long(0).key(0)).unwrap();
    let texts = ["GET /cart", "SELECT", r#"{"tenant":"red"}"#, r#"{"tenant":"blue"}"#];
    for (key, text) in (50..).zip(texts) {
        chunk.constant(schema::STRING, key, |s| _ = s.string(text)).unwrap();
    }
    let (parse, query) = (stack(&mut chunk, 3, "parse"), stack(&mut chunk, 4, "query"));
    let id = i64::from(schema::EXECUTION_SAMPLE.0);
    chunk
        .event(schema::ACTIVE_SETTING, |e| {
            _ = e.ticks(Ticks(0)).long(id).string("interval").string("10000000")
        })
        .unwrap();
    for request in 0..REQUESTS {
        let slow = request + 1 == REQUESTS;
        let begin = request * 200 * MS;
        let (root, child, trace) = (2 * request + 1, 2 * request + 2, TRACE + request);
        let labels = if request % 2 == 0 { 52 } else { 53 };
        for (key, span) in [(root, root), (child, child)] {
            chunk
                .constant(schema::SPAN_CONTEXT, key as u64, |c| {
                    c.long(span).long(root).long(0).long(trace).int(1).key(labels);
                })
                .unwrap();
        }
        let lasts = if slow { 1_000 * MS } else { 100 * MS };
        // The query starts at 40 ms.
        let mut at = 5 * MS;
        while at < 100 * MS {
            let (span, stack) = if at < 40 * MS { (root, parse) } else { (child, query) };
            let time = Ticks(begin + at);
            // In either order.
            let sample = |chunk: &mut ChunkWriter| {
                chunk
                    .event(schema::EXECUTION_SAMPLE, |e| {
                        _ = e.ticks(time).key(7).key(stack).key(thread_state::DEFAULT)
                    })
                    .unwrap();
            };
            if request % 2 == 0 {
                sample(&mut chunk);
            }
            chunk
                .event(schema::SAMPLE_CONTEXT, |e| _ = e.ticks(time).key(7).key(span as u64).long(1))
                .unwrap();
            if request % 2 == 1 {
                sample(&mut chunk);
            }
            at += 10 * MS;
        }
        if slow {
            let time = Ticks(begin + 100 * MS);
            chunk
                .event(schema::WALL_CLOCK_SAMPLE, |e| {
                    e.ticks(time)
                        .key(7)
                        .key(query)
                        .key(thread_state::SLEEPING)
                        .int(80)
                        .ticks(Ticks(800 * MS));
                })
                .unwrap();
            chunk
                .event(schema::SAMPLE_CONTEXT, |e| _ = e.ticks(time).key(7).key(child as u64).long(1))
                .unwrap();
        }
        for (key, parent, from, to, name) in
            [(child, root, 40 * MS, lasts - 10 * MS, 51), (root, 0, 0, lasts, 50)]
        {
            let (start, length) = (Ticks(begin + from), Ticks(to - from));
            chunk
                .event(schema::SPAN_SCOPE, |e| {
                    e.ticks(start).ticks(length).key(7).long(key).long(parent).long(1).boolean(false);
                })
                .unwrap();
            chunk
                .event(schema::SPAN, |e| {
                    e.ticks(start).ticks(length).key(7).key(name).long(key).long(parent).long(root);
                    e.long(0).long(trace).int(1).int(3).key(labels);
                })
                .unwrap();
            chunk
                .event(schema::PROFILER_SPAN, |e| _ = e.ticks(start).ticks(length).key(7).key(name))
                .unwrap();
        }
    }
    chunk.finish(Ticks(10_000 * MS), true, &mut out).unwrap();
}

fn flightline(args: &[&str], input: Stdio) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).stdin(input).output().unwrap()
}

#[track_caller]
fn shown(args: &[&str]) -> String {
    let output = flightline(args, Stdio::null());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the words of the line with this prefix.
#[track_caller]
fn line<'a>(text: &'a str, begins: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.trim_start().starts_with(begins));
    line.unwrap_or_else(|| panic!("no {begins} in\n{text}")).split_whitespace().collect()
}

#[test]
fn span_tables_and_trace_match_known_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jfr");
    make(&file);
    let run = file.to_str().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();

    let names = shown(&["spans", run]);
    assert_eq!(
        line(&names, "SELECT")[..15].join(" "),
        "SELECT 20 1.90 s 50.0 ms 950 ms 1.20 s 800 ms 800 ms 200"
    );
    assert!(line(&names, "SELECT").ends_with(&["query", "(100", "%)"]), "{names}");
    // 4 of 10 samples of each request.
    assert!(line(&names, "GET /cart").join(" ").contains(" 80 40.0 parse"), "{names}");
    assert_eq!(line(&shown(&["spans", run, "--by", "endpoint"]), "GET /cart")[2], "20");
    assert_eq!(line(&shown(&["spans", run, "--by", "label=tenant"]), "red")[1], "20");
    assert_eq!(shown(&["spans", run, "--by", "trace", "--limit", "3"]).lines().count(), 5);
    // A stream yields the same output.
    let piped = flightline(&["spans", "-"], std::fs::File::open(&file).unwrap().into());
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), names);

    let trace = format!("{:032x}", TRACE + REQUESTS - 1);
    let page = out("trace.html");
    let text = shown(&["spans", run, "--trace", &trace, "--inferred", "-o", &page]);
    assert!(text.starts_with(&format!("trace {trace}: 2 spans and 3 inferred ones in 1.00 s")), "{text}");
    // serve started the span in which query ran.
    let depths: Vec<(usize, &str)> = text
        .lines()
        .skip(3)
        .take_while(|line| !line.is_empty())
        .map(|line| (line.len() - line.trim_start().len(), line.split_whitespace().next().unwrap()))
        .collect();
    assert_eq!(depths, [(0, "GET"), (2, "serve"), (4, "parse"), (4, "SELECT"), (6, "query")], "{text}");
    let drawn = std::fs::read_to_string(&page).unwrap();
    assert!(
        drawn.contains("script-src 'sha256-") && drawn.contains("\"SELECT\"") && drawn.contains("\"query\"")
    );
    let folded = shown(&["spans", run, "--trace", &trace, "-o", &out("trace.folded")]);
    assert!(folded.contains("SELECT"));
    assert_eq!(
        std::fs::read_to_string(out("trace.folded")).unwrap(),
        "main;serve;parse 4\nmain;serve;query 6\n"
    );

    // A flame graph of spans has the usual title.
    let graph = out("requests.svg");
    shown(&["spans", run, "--span", "GET /cart", "-o", &graph]);
    let drawn = std::fs::read_to_string(&graph).unwrap();
    assert!(drawn.contains(">cpu: 200 samples · every 10.0 ms<"), "{drawn}");

    // The exported profile has the same labels.
    if cfg!(feature = "export") {
        shown(&["export", run, "--format", "pprof", "-o", &out("run.pb.gz")]);
        for label in ["tenant=red", "tenant=blue"] {
            let of = |path: &str| shown(&["fold", path, "--label", label, "--total"]);
            assert_eq!(of(&out("run.pb.gz")), of(run), "{label}");
            assert!(of(run).contains("main;serve;parse "), "{label}");
        }
    }

    let compared = out("difference.html");
    shown(&["spans", run, "--slowest", "--span", "GET /cart", "-o", &compared]);
    assert!(std::fs::read_to_string(&compared).unwrap().contains("\"difference\":{"));
    let picture = out("difference.svg");
    let text = shown(&["spans", run, "--slowest", "--span", "GET /cart", "-o", &picture]);
    assert!(text.contains("the 1 slowest spans against 4 median ones"), "{text}");
    assert_eq!(line(&text, "slowest")[1..3], ["1.00", "s"]);
    assert!(std::fs::read_to_string(&picture).unwrap().contains("query"));

    let json: serde_json::Value =
        serde_json::from_str(&shown(&["spans", run, "--inferred", "--json"])).unwrap();
    assert_eq!(json["counts"]["inSpans"], 280);
    let linked =
        json["inferred"].as_array().unwrap().iter().filter(|span| span["links"][0]["isChild"] == true);
    assert_eq!(linked.count(), 20);

    assert_eq!(shown(&["fold", run, "--span", "SELECT"]), "main;serve;query 120\n");
    assert_eq!(shown(&["fold", run, "--label", "tenant=red"]), "main;serve;parse 40\nmain;serve;query 60\n");

    // The usual filters apply to tables too, and reshaping applies to flame graphs.
    let queries = shown(&["spans", run, "-I", "query", "--only-thread", "worker", "--to", "0.5"]);
    assert_eq!(line(&queries, "SELECT")[1], "3", "{queries}");
    assert!(line(&queries, "SELECT").join(" ").contains(" 18 "), "{queries}");
    assert!(!queries.contains("parse"), "{queries}");
    shown(&["spans", run, "--span", "SELECT", "--focus", "serve", "-t", "-o", &out("focus.folded")]);
    assert_eq!(std::fs::read_to_string(out("focus.folded")).unwrap(), "[worker tid=7];serve;query 120\n");
    assert!(!flightline(&["spans", run, "--only-thread", "nobody"], Stdio::null()).stdout.is_empty());
    // Filters apply to exports.
    #[cfg(feature = "export")]
    let exported = |select: &[&str]| {
        let args = [&["export", run, "--format", "otlp-json", "-e", "cpu", "-o", "-"], select].concat();
        let json = String::from_utf8(flightline(&args, Stdio::null()).stdout).unwrap();
        json.matches("\"timestampsUnixNano\"").count()
    };
    #[cfg(feature = "export")]
    assert!(exported(&[]) > exported(&["-X", "parse"]) && exported(&["-X", "parse"]) > 0);
}

#[test]
fn invalid_span_queries_are_rejected_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jfr");
    make(&file);
    let run = file.to_str().unwrap();
    let none = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings");
    let none = std::fs::read_dir(none).unwrap().map(|entry| entry.unwrap().path());
    let none = none.filter(|path| path.to_string_lossy().contains("jdk17")).min().unwrap();
    for (args, told) in [
        (vec![none.to_str().unwrap()], "contains no spans"),
        (vec![run, "--span", "nobody"], "its spans are GET /cart, SELECT"),
        (vec![run, "--trace", "00000000000000000000000000000001"], "--by trace lists the traces"),
        (vec![run, "--trace", "xyz"], "32 hexadecimal digits"),
        (vec![run, "--by", "label"], "label=KEY"),
        (vec![run, "--label", "tenant"], "KEY=VALUE"),
        (vec![run, "-"], "is a stream; give it as the only input"),
        (vec![run, "-o", run], "run.jfr"),
        (
            vec![run, "--trace", "00000000000000000000000000004bf9", "-e", "cpu", "-o", "x.html"],
            "only to flame graphs",
        ),
        (vec![run, "--min-duration", "5ms"], "--inferred"),
    ] {
        let args: Vec<&str> = [vec!["spans"], args].concat();
        let output = flightline(&args, Stdio::null());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(told), "{args:?}: {error}");
    }
}
