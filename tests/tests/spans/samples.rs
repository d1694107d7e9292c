//! Spans: every sample of every engine has the span in which it was taken, and spans are recorded when they
//! end.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_consumer::live::{Feed, Item, Options};
use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, run};
use flightline_tests::spans::{self, Span};
use flightline_tests::victim;

const CONTEXT: &str = "flightline.SampleContext";
const SAMPLES: [&str; 6] = [
    "jdk.ExecutionSample",
    "profiler.WallClockSample",
    "profiler.Malloc",
    "jdk.SocketRead",
    "jdk.JavaMonitorEnter",
    "jdk.ThreadPark",
];

fn record(options: &[&str], rounds: &str) -> Recorded {
    let record = options.iter().fold(Record::new(), |record, option| record.option(*option));
    record.run(victim::program("spans_victim"), &[rounds]).expect_code(0)
}

/// The names and parents of the program's spans, by id, as the program printed them.
fn truth(recorded: &Recorded) -> HashMap<i64, (String, i64)> {
    let mut spans = HashMap::new();
    for line in recorded.finished.stdout_text().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let [name, id, parent] = words[..] {
            spans.insert(id.parse().unwrap(), (name.to_owned(), parent.parse().unwrap()));
        }
    }
    spans
}

/// Contexts by thread and time.
fn contexts(path: &Path) -> HashMap<(u64, i64), Span> {
    let contexts = spans::read(path, &[CONTEXT]);
    contexts.into_iter().map(|c| ((c.tid, c.number("startTime")), c)).collect()
}

#[test]
fn every_sample_kind_has_its_span() {
    let _place = beside();
    let events = "cpu,wall@2ms,alloc@4k,lock@100us,io@1ms";
    let recorded = record(&["-e", events], "40");
    assert!(recorded.finished.stdout_text().contains("child 0"), "a forked child begins with nothing");
    let (truth, contexts) = (truth(&recorded), contexts(&recorded.path));
    let mut right: HashMap<String, u64> = HashMap::new();
    for sample in spans::read(&recorded.path, &SAMPLES) {
        let function = ["in_outer", "in_inner", "in_none"].into_iter().find(|name| sample.has(name));
        let context = contexts.get(&(sample.tid, sample.number("startTime")));
        let of = context.and_then(|c| truth.get(&c.number("spanId"))).map(|(name, _)| name.as_str());
        let Some(function) = function else { continue };
        assert_eq!(of, function.strip_prefix("in_").filter(|name| *name != "none"), "{sample:?} {context:?}");
        *right.entry(format!("{function} {}", sample.event)).or_default() += 1;
        let Some(context) = context else { continue };
        let (name, parent) = &truth[&context.number("spanId")];
        let root = if name == "inner" { *parent } else { context.number("spanId") };
        assert_eq!(context.number("localRootSpanId"), root);
        assert_eq!(context.number("flags") & 1, 1);
        assert!(context.number("seq") > 0);
        let labels: serde_json::Value = serde_json::from_str(context.field("labels")).unwrap();
        assert!(labels["tenant"].as_str().is_some_and(|t| t.len() == 2 && t.starts_with('t')), "{labels}");
        assert_eq!(labels["path"].as_str(), (name == "inner").then_some("/a \"b\""));
    }
    println!("{right:?}");
    for (function, event) in [
        ("in_outer", "jdk.ExecutionSample"),
        ("in_inner", "jdk.ExecutionSample"),
        ("in_none", "jdk.ExecutionSample"),
        ("in_inner", "profiler.WallClockSample"),
        ("in_inner", "profiler.Malloc"),
        ("in_inner", "jdk.SocketRead"),
    ] {
        let seen = right.get(&format!("{function} {event}")).copied().unwrap_or(0);
        assert!(seen >= 20, "{seen} of {event} in {function}");
    }

    // Readers of a live stream get samples with their spans.
    let mut feed = Feed::new(Options::default());
    feed.push(&std::fs::read(&recorded.path).unwrap());
    feed.close();
    let mut given = 0;
    let mut unknown = BTreeSet::new();
    while let Some(item) = feed.next() {
        let Item::Sample(sample) = item else { continue };
        let Some(context) = &sample.span else { continue };
        given += 1;
        let span = context.span.id().cast_signed();
        let Some((name, _)) = truth.get(&span) else {
            unknown.insert(span);
            continue;
        };
        assert!(context.trace.is_some());
        // A span is entered before it has labels, and one has none.
        let frames = sample.stack.as_ref().map_or(&[][..], |stack| &stack.frames);
        if frames.iter().any(|frame| ["in_outer", "in_inner"].contains(&&*frame.function)) {
            assert_eq!(context.labels.contains_key("path"), name == "inner");
            assert!(context.labels["tenant"].starts_with('t'));
        }
    }
    assert!(given >= contexts.len(), "{given} samples with a span, {} moments recorded", contexts.len());
    assert_eq!(feed.stats().contexts_unused, 0);

    // The spans that are recorded when they end.
    let ended = spans::read(&recorded.path, &["flightline.Span"]);
    assert!(ended.len() >= 100, "{} spans", ended.len());
    for span in &ended {
        let Some((name, parent)) = truth.get(&span.number("spanId")) else {
            assert_eq!(span.field("name"), "forking");
            unknown.remove(&span.number("spanId"));
            continue;
        };
        assert_eq!((span.field("name"), span.number("parentSpanId")), (name.as_str(), *parent));
        assert!(span.number("samples") > 0, "{span:?}");
        assert!(name == "idle" || span.duration_ns > 3_000_000, "{span:?}");
    }
    assert!(unknown.is_empty(), "samples in spans without an event: {unknown:?}");
    // The same for readers that know async-profiler's.
    let tags = spans::read(&recorded.path, &["profiler.Span"]);
    let names = |spans: &[Span], field: &str| {
        let mut names: Vec<String> = spans.iter().map(|s| format!("{} {}", s.tid, s.field(field))).collect();
        names.sort();
        names
    };
    assert_eq!(names(&tags, "tag"), names(&ended, "name"));
    // The inner span was entered once, within the outer.
    let scopes = spans::read(&recorded.path, &["flightline.SpanScope"]);
    for scope in &scopes {
        let Some((name, parent)) = truth.get(&scope.number("spanId")) else { continue };
        assert_eq!(scope.number("previousSpanId"), if name == "inner" { *parent } else { 0 });
        assert!(scope.number("seq") > 0 && scope.field("open") == "false");
    }
    assert_eq!(scopes.len(), ended.len());
}

#[test]
fn spans_without_samples_are_omitted_unless_all_are_selected() {
    let _place = beside();
    const ENDED: [&str; 3] = ["flightline.Span", "flightline.SpanScope", CONTEXT];
    let count = |spans: &[Span], event: &str| spans.iter().filter(|s| s.event == event).count();
    let all = record(&["--spans", "all"], "10");
    let events = spans::read(&all.path, &ENDED);
    // Two threads; outer, inner and idle in each round, and the one that forks.
    assert_eq!((count(&events, ENDED[0]), count(&events, ENDED[1])), (61, 61));
    let sampled = record(&[], "10");
    let events = spans::read(&sampled.path, &ENDED);
    let idle = events.iter().filter(|s| s.field("name") == "idle").count();
    assert!(count(&events, ENDED[0]) > 20 && idle <= 2, "{idle} spans of no length at all had samples");
    assert!(count(&events, CONTEXT) > 20);
    // `flightline spans` joins them in the same way.
    let (truth, contexts) = (truth(&sampled), contexts(&sampled.path));
    let mut own: HashMap<String, u64> = HashMap::new();
    for sample in spans::read(&sampled.path, &SAMPLES[..1]) {
        let context = contexts.get(&(sample.tid, sample.number("startTime")));
        let name = context.and_then(|c| truth.get(&c.number("spanId"))).map(|(name, _)| name.clone());
        *own.entry(name.unwrap_or_default()).or_default() += 1;
    }
    let mut report = Command::new(victim::flightline());
    let report = run(report.args(["spans", "--json"]).arg(&sampled.path), Duration::from_secs(60));
    let report: serde_json::Value =
        serde_json::from_str(&report.expect_success("spans").stdout_text()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    for name in ["outer", "inner"] {
        let row = rows.iter().find(|row| row["key"] == name).unwrap_or_else(|| panic!("{name}: {report}"));
        assert_eq!(row["spent"]["samples"].as_u64(), own.get(name).copied(), "{row}");
    }
    // And so does `flightline tail`.
    let mut tail = Command::new(victim::flightline());
    let tail = run(
        tail.args(["tail", "--by", "span", "--from-start", "--json"]).arg(&sampled.path),
        Duration::from_secs(60),
    );
    let tail = tail.expect_success("tail").stdout_text();
    let table: serde_json::Value = serde_json::from_str(tail.lines().last().unwrap()).unwrap();
    // The program does not print the id of the span in which it forks, so those samples have no name in
    // `own`.
    for (name, samples) in own.iter().filter(|(name, _)| !name.is_empty()) {
        let of = |row: &&serde_json::Value| row["span"] == **name;
        let row =
            table["spans"].as_array().unwrap().iter().find(of).unwrap_or_else(|| panic!("{name}: {table}"));
        assert_eq!(row["samples"].as_u64(), Some(*samples), "{table}");
    }
    let off = record(&["--spans", "off"], "10");
    assert_eq!(spans::read(&off.path, &ENDED).len(), 0);
    assert_eq!(off.read().events.get("flightline.Watermark"), None);
}

/// A killed program loses only spans that began at its end.
#[test]
fn killed_program_open_spans_are_recorded() {
    let _place = beside();
    let victim = victim::program("spans_victim");
    let recorded = Record::new().run(victim, &["open", "2500"]).expect_code(137);
    let truth = truth(&recorded);
    let open = spans::read(&recorded.path, &["flightline.OpenSpan"]);
    let names: Vec<&str> = open.iter().map(|span| span.field("name")).collect();
    assert_eq!(names, ["outer", "inner"]);
    for (span, known_for_ms) in open.iter().zip([600, 500]) {
        let (name, parent) = &truth[&span.number("spanId")];
        assert_eq!((span.field("name"), span.number("parentSpanId")), (name.as_str(), *parent));
        assert_eq!(
            (span.number("localRootSpanId"), span.field("labels")),
            (open[0].number("spanId"), r#"{"tenant":"t"}"#)
        );
        assert!(span.duration_ns > known_for_ms * 1_000_000, "{span:?}");
    }
    assert!(open[0].number("startTime") < open[1].number("startTime"));
    let scopes = spans::read(&recorded.path, &["flightline.SpanScope"]);
    let scopes: Vec<(&str, i64, i64)> =
        scopes.iter().map(|s| (s.field("open"), s.number("spanId"), s.number("previousSpanId"))).collect();
    let [outer, inner] = [0, 1].map(|i: usize| open[i].number("spanId"));
    assert_eq!((scopes.len(), scopes[0].0, scopes[0].2), (3, "false", outer), "{scopes:?}");
    assert_eq!(scopes[1..], [("true", outer, 0), ("true", inner, outer)]);
    let ended = spans::read(&recorded.path, &["flightline.Span"]);
    assert_eq!(ended.iter().map(|span| span.field("name")).collect::<Vec<_>>(), ["done"]);
    // As intervals for readers that know async-profiler's.
    assert_eq!(spans::read(&recorded.path, &["profiler.Span"]).len(), 3);
    let mut report = Command::new(victim::flightline());
    let report = run(report.args(["spans", "--json"]).arg(&recorded.path), Duration::from_secs(60));
    let report: serde_json::Value =
        serde_json::from_str(&report.expect_success("spans").stdout_text()).unwrap();
    let row = |name: &str| {
        report["rows"].as_array().unwrap().iter().find(|row| row["key"] == name).unwrap().clone()
    };
    assert_eq!((row("inner")["count"].as_u64(), row("inner")["open"].as_u64()), (Some(1), Some(1)));
    assert_eq!((row("inner")["p50Nanos"].as_i64(), row("done")["open"].as_u64()), (None, Some(0)));
}

/// The thread-local variable of another tracer, in the program, in a library of its own, and next to
/// variables that must be rejected.
#[test]
fn another_tracers_thread_context_is_read() {
    let _place = beside();
    let program = victim::c("spans_foreign", &["-O2", "-rdynamic"]);
    let record = Record::new().option("-e").option("cpu,wall@2ms,alloc@4k");
    let recorded = record.run(program, &["300"]).expect_code(0);
    let contexts = contexts(&recorded.path);
    let mut right = [0; 3];
    for sample in spans::read(&recorded.path, &SAMPLES) {
        let context = contexts.get(&(sample.tid, sample.number("startTime")));
        let id = context.map_or(0, |context| context.number("spanId"));
        let expected = match ["in_first", "in_second", "in_garbage"].iter().position(|name| sample.has(name))
        {
            Some(at @ (0 | 1)) => at as i64 + 1,
            Some(_) => 0,
            None => continue,
        };
        assert_eq!(id, expected, "{sample:?} {context:?}");
        right[if expected == 0 { 2 } else { expected as usize - 1 }] += 1;
        let Some(context) = context else { continue };
        // The flags are 0, not sampled by the tracer, but the sample has the context. Activations are not
        // counted, and the root is unknown.
        assert_eq!((context.number("flags"), context.number("seq")), (i64::from(id == 1), 0));
        assert_eq!((context.number("traceIdHi"), context.number("traceIdLo")), (0x1111_1111_1111_1111, id));
        assert_eq!(context.field("labels"), format!(r#"{{"label 1":"/span/{id}"}}"#));
    }
    println!("{right:?}");
    assert!(right.iter().all(|seen| *seen > 50), "{right:?}");
}

/// Counts the samples of `spans_opened` with this library by type and span. Each sample in a span has the
/// right one, with all of its attributes. Samples before the recorder has found the variable have none.
fn of_opened(library: &Path, arguments: &[&str]) {
    let program = victim::c("spans_opened", &["-O2"]);
    let record = Record::new().option("-e").option("cpu,wall@2ms");
    let arguments = [&[library.to_str().unwrap()], arguments].concat();
    let recorded = record.run(program, &arguments).expect_code(0);
    let contexts = contexts(&recorded.path);
    let mut right: HashMap<(String, i64), u64> = HashMap::new();
    let mut missing = 0;
    for sample in spans::read(&recorded.path, &SAMPLES) {
        let context = contexts.get(&(sample.tid, sample.number("startTime")));
        let functions = ["in_none", "in_first", "in_second"];
        let Some(expected) = functions.iter().position(|name| sample.has(name)) else { continue };
        let id = context.map_or(0, |context| context.number("spanId"));
        if context.is_none() && expected > 0 {
            missing += 1;
            continue;
        }
        assert_eq!(id, expected as i64, "{sample:?} {context:?}");
        *right.entry((sample.event.clone(), id)).or_default() += 1;
        let Some(context) = context else { continue };
        assert_eq!((context.number("traceIdHi"), context.number("traceIdLo")), (0x1111_1111_1111_1111, id));
        assert_eq!((context.number("localRootSpanId"), context.number("flags")), (1, 1));
        assert_eq!(context.field("labels"), format!(r#"{{"http.route":"/span/{id}","label 7":"x"}}"#));
    }
    println!("{} {}: {right:?}, {missing} without", library.display(), arguments.len());
    for event in [SAMPLES[0], SAMPLES[1]] {
        let seen = right.get(&(event.to_owned(), 2)).copied().unwrap_or(0);
        assert!(seen > 40, "{seen} of {event}: {right:?}");
    }
}

/// Datadog's own writer, in a library that is opened while threads run; its keys have the names that the
/// process publishes.
#[test]
fn dlopened_datadog_thread_context_has_label_names() {
    let _place = beside();
    let library = victim::example("libotel_writer.so");
    of_opened(&library, &["400"]);
}

/// The same for libraries whose variable is at a different address in each thread, with both access models of
/// compilers.
#[test]
fn thread_context_in_dynamic_tls_is_found() {
    let _place = beside();
    for dialect in if cfg!(target_arch = "x86_64") { ["gnu", "gnu2"] } else { ["trad", "desc"] } {
        let dialect = format!("-mtls-dialect={dialect}");
        let flags = ["-O2", "-shared", "-fPIC", "-DPAD=65536", &dialect];
        let library = victim::compile("gcc", "otel_writer.c", &flags, &[]);
        of_opened(&library, &["400", "deep"]);
    }
}

fn include() -> String {
    format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("../recorder/preload/include").display())
}

/// Ours and another tracer's on one thread, nested: each has a variable of its own, so neither frees the
/// other's memory.
#[test]
fn two_tracers_on_one_thread_do_not_affect_each_other() {
    let _place = beside();
    let program = victim::c("spans_both", &["-O2", &include()]);
    let library = victim::example("libotel_writer.so");
    let recorded = Record::new().run(program, &[library.to_str().unwrap(), "200"]).expect_code(0);
    let contexts = contexts(&recorded.path);
    let mut seen = 0;
    for sample in spans::read(&recorded.path, &SAMPLES[..1]).iter().filter(|sample| sample.has("in_both")) {
        let context = contexts.get(&(sample.tid, sample.number("startTime")));
        let trace = context.map(|context| context.number("traceIdHi"));
        assert!(trace.is_some_and(|trace| trace != 0x1111_1111_1111_1111), "ours counts: {context:?}");
        seen += 1;
    }
    assert!(seen > 20, "{seen} samples");
}

/// Threads detect with rseq(2) that they were preempted; the program may use it too. Without it, only sampled
/// waits count.
#[test]
#[cfg(target_arch = "x86_64")]
fn program_rseq_use_is_not_disturbed() {
    let _place = beside();
    let program = victim::c("spans_rseq", &["-O2", "-pthread", &include()]);
    for tunables in ["", "glibc.pthread.rseq=0"] {
        let record = Record::new().option("-e").option("cpu,wall@1ms");
        let mut command = record.command(&program, &["4000"]);
        let finished = run(command.env("GLIBC_TUNABLES", tunables), Duration::from_secs(60));
        // Without the C library's registration it cannot count.
        assert_eq!(finished.code(), if tunables.is_empty() { 0 } else { 77 }, "{}", finished.stderr);
    }
    let on = record(&["-e", "cpu,wall@1ms"], "20");
    let mut without = Record::new().option("-e").option("cpu,wall@1ms");
    without = without.option("--spans").option("sampled");
    let mut command = without.command(victim::program("spans_victim"), &["20"]);
    run(command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0"), Duration::from_secs(60))
        .expect_success("record");
    // The time asleep in a span belongs to it in both cases: 12 ms and more in each of 40.
    for path in [&on.path, &without.path()] {
        let mut report = Command::new(victim::flightline());
        let report = run(report.args(["spans", "--json"]).arg(path), Duration::from_secs(60));
        let report: serde_json::Value =
            serde_json::from_str(&report.expect_success("spans").stdout_text()).unwrap();
        let inner = report["rows"].as_array().unwrap().iter().find(|row| row["key"] == "inner").unwrap();
        let off = inner["spent"]["offCpuNanos"].as_u64().unwrap();
        assert!(off >= 40 * 12_000_000 * 9 / 10, "{off} ns: {inner}");
    }
}

/// Labels of threads without spans: the ABI of custom-labels, in the program itself and in a library.
#[test]
fn custom_labels_without_spans_are_read() {
    let _place = beside();
    let dialect = if cfg!(target_arch = "x86_64") { "-mtls-dialect=gnu2" } else { "-mtls-dialect=desc" };
    let of_library = ["-O2", "-shared", "-fPIC", "-DLIBRARY", dialect];
    let library = victim::compile("gcc", "custom_labels.c", &of_library, &[]);
    let library = library.to_str().unwrap();
    let user = victim::compile("gcc", "custom_labels.c", &["-O2", "-DUSER"], &[library]);
    for program in [victim::c("custom_labels", &["-O2", "-rdynamic"]), user] {
        let record = Record::new().option("-e").option("cpu,wall@2ms");
        let recorded = record.run(program, &["200"]).expect_code(0);
        let contexts = contexts(&recorded.path);
        let mut right: HashMap<(&str, bool), u64> = HashMap::new();
        for sample in spans::read(&recorded.path, &SAMPLES[..2]) {
            let context = contexts.get(&(sample.tid, sample.number("startTime")));
            let customers = ["acme", "umbrella"];
            let Some(customer) = customers.into_iter().find(|name| sample.has(&format!("for_{name}"))) else {
                assert!(context.is_none() || !sample.has("for_nobody"), "{sample:?} {context:?}");
                continue;
            };
            if let Some(context) = context {
                let labels = format!(r#"{{"customer":"{customer}","region":"eu"}}"#);
                assert_eq!((context.field("labels"), context.number("spanId")), (labels.as_str(), 0));
            }
            *right.entry((customer, context.is_some())).or_default() += 1;
        }
        println!("{right:?}");
        assert!(right[&("acme", true)] > 100 && right[&("umbrella", true)] > 100, "{right:?}");
        let mut report = Command::new(victim::flightline());
        let report = report.args(["spans", "--json", "--by", "label=customer"]).arg(&recorded.path);
        let report = run(report, Duration::from_secs(60)).expect_success("spans").stdout_text();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        for customer in ["acme", "umbrella"] {
            let row = report["rows"].as_array().unwrap().iter().find(|row| row["key"] == customer);
            let cpu = row.and_then(|row| row["spent"]["cpuNanos"].as_u64()).unwrap_or(0);
            assert!((100_000_000..300_000_000).contains(&cpu), "{report}");
        }
    }
}
