//! `flightline export` of rows: to files, from streams, and to a simulated Fluentd.

#![cfg(feature = "export")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::spawn;
use std::time::Duration;

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry, StreamOutput};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rmpv::Value;
use serde_json::{Value as Json, json};

/// Rows of the recording below with `--attribute task_id=t7 --attribute label_thread=a`.
const ROWS: &str = include_str!("rows.ndjson");
const LABELS: [&str; 4] = ["--attribute", "task_id=t7", "--attribute", "label_thread=a"];

/// Native and Java frames, a truncated stack, a span with ambiguous labels, and a duplicate sample.
fn recording() -> Vec<u8> {
    let mut pipe = StreamOutput::new(Vec::new());
    let start_epoch_ns = 1_700_000_000_000_000_000;
    let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns, ticks_per_second: 1_000_000 };
    let mut chunk =
        ChunkWriter::begin(Geometry::Fixed { size: 256 << 10 }, &line, FileOffset(0), Ticks(0)).unwrap();
    let texts = ["main", "()V", "serve", "libshop.so", "org/shop/Cart", "add", "grüße-Ω"];
    for (key, text) in (1..).zip(texts) {
        chunk.constant(schema::SYMBOL, key, |s| _ = s.string(text)).unwrap();
    }
    chunk.constant(schema::THREAD_GROUP, 1, |g| _ = g.key(0).string("shop (77)")).unwrap();
    chunk
        .constant(schema::THREAD, 4711, |t| _ = t.string("grüße-Ω").long(4711).null().long(0).key(1))
        .unwrap();
    for (class, name) in [(1, 4), (2, 5)] {
        chunk
            .constant(schema::CLASS, class, |c| _ = c.key(0).key(name).key(0).int(0).boolean(false))
            .unwrap();
    }
    for (method, class, name) in [(1, 1, 1), (2, 1, 3), (3, 2, 6)] {
        let write = |m: &mut jfr_format::write::FieldWriter<'_>| {
            m.key(class).key(name).key(2).int(1).boolean(false);
        };
        chunk.constant(schema::METHOD, method, write).unwrap();
    }
    for (stack, truncated) in [(1, false), (2, true)] {
        let write = |s: &mut jfr_format::write::FieldWriter<'_>| {
            s.boolean(truncated).array(3);
            s.key(3).int(42).int(0).key(frame_type::JIT_COMPILED);
            s.key(2).int(7).int(0).key(frame_type::CPP);
            s.key(1).int(0).int(0).key(frame_type::CPP);
        };
        chunk.constant(schema::STACK_TRACE, stack, write).unwrap();
    }
    let labels = r#"{"tenant":"ä","thread":"mine","task_id":"t8"}"#;
    chunk.constant(schema::STRING, 1, |s| _ = s.string(labels)).unwrap();
    let write = |c: &mut jfr_format::write::FieldWriter<'_>| {
        c.long(5).long(5).long(-1).long(5).int(1).key(1);
    };
    chunk.constant(schema::SPAN_CONTEXT, 1, write).unwrap();
    let context =
        |e: &mut jfr_format::write::FieldWriter<'_>| _ = e.ticks(Ticks(2_000)).key(4711).key(1).long(5);
    chunk.event(schema::SAMPLE_CONTEXT, context).unwrap();
    for (time, stack) in [(1_000, 1), (2_000, 1), (3_000, 2), (4_000, 1), (4_000, 1)] {
        let write = |e: &mut jfr_format::write::FieldWriter<'_>| {
            e.ticks(Ticks(time)).key(4711).key(stack).key(thread_state::RUNNABLE);
        };
        chunk.event(schema::EXECUTION_SAMPLE, write).unwrap();
    }
    chunk.finish(Ticks(2_000_000), true, &mut pipe).unwrap();
    pipe.into_inner()
}

fn export(input: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.arg("export").arg(input).args(args).env_remove("FLIGHTLINE_TOKEN").stdin(Stdio::null());
    command
}

fn written(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("run.jfr");
    std::fs::write(&path, recording()).unwrap();
    path
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn rows(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn exported_rows_match_golden_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let args = [&LABELS[..], &["--format", "hdps", "-o"]].concat();
    let to = folder.path().join("rows.ndjson");
    let output = export(&path, &args).arg(&to).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(std::fs::read_to_string(&to).unwrap(), ROWS);
    // The expected file. Ids are arbitrary but distinct.
    let rows = rows(ROWS);
    let frame = |class: &str, method: &str, line: u32, java: bool, kind: &str| json!({"class_name": class, "method_name": method, "line_number": line, "is_java_frame": java, "type": kind});
    let whole = [
        frame("org.shop.Cart", "add", 42, true, "JIT compiled"),
        frame("libshop.so", "serve", 7, false, "C++"),
        frame("libshop.so", "main", 0, false, "C++"),
    ];
    let cut = [&whole[..], &[frame("", "[truncated]", 0, false, "marker")]].concat();
    let wanted = |millis: i64, stack: &[Json], more: Json| {
        let mut row = json!({"event_type": "jdk.ExecutionSample", "start_time_millis": 1_700_000_000_000i64 + millis,
            "thread": "grüße-Ω", "state": "STATE_RUNNABLE", "stack_trace": stack, "label_label_thread": "a"});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    let plain = json!({"task_id": "t7"});
    let wanted = [
        wanted(1, &whole, plain.clone()),
        wanted(2, &whole, json!({"task_id": "t8", "tenant": "ä", "label_thread": "mine"})),
        wanted(3, &cut, plain.clone()),
        wanted(4, &whole, plain.clone()),
        wanted(4, &whole, plain),
    ];
    let mut ids = std::collections::BTreeSet::new();
    let without_ids = rows.into_iter().map(|mut row| {
        ids.insert(row.as_object_mut().unwrap().remove("stack_trace_id").unwrap().to_string());
        row
    });
    assert_eq!(without_ids.collect::<Vec<_>>(), wanted);
    assert_eq!(ids.len(), wanted.len());
}

/// A socket that delivers a recording and stays open.
fn live(folder: &Path) -> (std::path::PathBuf, std::thread::JoinHandle<std::os::unix::net::UnixStream>) {
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let open = spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&recording()).unwrap();
        stream
    });
    (format!("unix:{}", path.display()).into(), open)
}

fn interrupt(child: &Child) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
}

const LIMIT: Duration = Duration::from_secs(120);

/// Kills a child that hangs, unless the returned value is dropped before.
fn watched(child: &Child) -> Sender<()> {
    let (over, wait) = channel();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    spawn(move || {
        if wait.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    });
    over
}

#[test]
fn stream_rows_are_live_on_stdout_and_complete_in_file() {
    let folder = tempfile::tempdir().unwrap();
    let args = [&LABELS[..], &["--format", "hdps", "-o"]].concat();

    let (input, open) = live(folder.path());
    let mut child = export(&input, &args).arg("-").stdout(Stdio::piped()).spawn().unwrap();
    let over = watched(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let came: Vec<String> = lines.by_ref().take(ROWS.lines().count()).map(Result::unwrap).collect();
    assert_eq!(came, ROWS.lines().collect::<Vec<_>>());
    interrupt(&child);
    assert!(child.wait().unwrap().success() && lines.next().is_none());
    drop((over, open.join().unwrap()));
    std::fs::remove_file(folder.path().join("socket")).unwrap();

    let (input, open) = live(folder.path());
    let to = folder.path().join("rows.ndjson");
    let mut child = export(&input, &args).arg(&to).spawn().unwrap();
    let over = watched(&child);
    // The temporary file.
    let partial = folder.path().join(format!("rows.ndjson.{}.partial", child.id()));
    while std::fs::read_to_string(&partial).unwrap_or_default() != ROWS {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!to.exists());
    interrupt(&child);
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(&to).unwrap(), ROWS);
    assert!(!partial.exists());
    drop((over, open.join().unwrap()));
}

/// Reads and acknowledges a message; returns its rows as JSON.
fn message(stream: &mut TcpStream) -> Option<Vec<Json>> {
    let message = rmpv::decode::read_value(stream).ok()?;
    let [Value::String(tag), Value::Binary(entries), Value::Map(options)] = message.as_array()?.as_slice()
    else {
        panic!("{message}")
    };
    assert_eq!(tag.as_str(), Some("profiles.app"));
    let (mut left, mut rows) = (&entries[..], Vec::new());
    while !left.is_empty() {
        let entry = rmpv::decode::read_value(&mut left).unwrap();
        rows.push(json_of(&entry[1]));
    }
    let id = options.iter().find(|(name, _)| name.as_str() == Some("chunk")).unwrap().1.clone();
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &Value::Map(vec![("ack".into(), id)])).unwrap();
    stream.write_all(&bytes).unwrap();
    Some(rows)
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Boolean(value) => (*value).into(),
        Value::Integer(number) => number.as_i64().into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => values.iter().map(json_of).collect(),
        Value::Map(members) => {
            let members =
                members.iter().map(|(name, value)| (name.as_str().unwrap().to_owned(), json_of(value)));
            Json::Object(members.collect())
        }
        other => panic!("{other}"),
    }
}

const SEND: [&str; 5] = ["--tag", "profiles.app", "--no-gzip", "--patience", "300ms"];

#[test]
fn rows_acknowledged_by_fluentd_count_as_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    for input in [path.as_path(), Path::new("-")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = format!("fluentd://{}", listener.local_addr().unwrap());
        let receiver = spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            std::iter::from_fn(|| message(&mut stream)).flatten().collect::<Vec<_>>()
        });
        let args = [&LABELS[..], &SEND[..3], &["--send", &to]].concat();
        let output = export(input, &args).stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        let summary = format!("{to}: 5 of 5 samples acknowledged, in 1 messages; 0 retries");
        assert!(told(&output).contains(&summary), "{}", told(&output));
        assert_eq!(receiver.join().unwrap(), rows(ROWS));
    }
}

#[test]
fn undelivered_rows_are_reported_and_exit_with_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    // No receiver listens.
    let output = export(&path, &[&SEND[..], &["--send", "fluentd://127.0.0.1:1"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let lost = "cannot send; 5 samples and spans are lost: cannot connect to";
    assert!(told(&output).contains(lost), "{}", told(&output));

    // Accepts the first of several messages, then requires a key; a retry does not help.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("fluentd://{}", listener.local_addr().unwrap());
    let (tell, taken) = channel();
    spawn(move || {
        tell.send(message(&mut listener.accept().unwrap().0).unwrap().len()).unwrap();
        let helo = Value::Array(vec!["HELO".into(), Value::Map(Vec::new())]);
        for stream in listener.incoming() {
            rmpv::encode::write_value(&mut stream.unwrap(), &helo).unwrap();
        }
    });
    let few = ["--queue-size", "2000", "--send", &to];
    let output = export(&path, &[&SEND[..3], &few].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let taken = taken.recv_timeout(LIMIT).unwrap();
    assert!((1..5).contains(&taken), "{taken}");
    let summary = format!("{taken} of 5 samples acknowledged, in 1 messages");
    assert!(
        told(&output).contains(&summary) && told(&output).contains("--shared-key-file"),
        "{}",
        told(&output)
    );
}

#[test]
fn options_without_effect_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    for (args, named) in [
        (&["--send", "fluentd://127.0.0.1", "--header", "a=b"][..], "--header"),
        (&["--send", "fluentd://127.0.0.1", "--inferred"], "--inferred"),
        (&["--format", "hdps", "-o", "-", "--inferred"], "--inferred"),
        (&["--send", "http://127.0.0.1", "--tag", "a"], "--tag"),
        (&["--send", "grpc://127.0.0.1", "--shared-key-file", "key"], "--shared-key-file"),
    ] {
        let output = export(&path, args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(told(&output).starts_with(&format!("error: {named} ")), "{args:?}: {}", told(&output));
    }
    let several = export(&path, &["unix:/no/socket", "--format", "hdps", "-o", "-"]).output().unwrap();
    assert_eq!(several.status.code(), Some(2));
    assert!(told(&several).contains("unix:/no/socket"), "{}", told(&several));
}
