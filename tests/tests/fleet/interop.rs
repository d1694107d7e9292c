//! The profiling service with other systems: scrapers that pull, agents that push, and readers of its log.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::http::{Answer, send};
use flightline_tests::run::{beside, run, until};
use flightline_tests::served::{HEARTBEAT, Served};
use flightline_tests::skip;
use flightline_tests::victim::flightline;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
const PYTHON: &str = "
def work():
    kept = bytearray(1 << 20)
    return sum(hash(str(i)) % 7 for i in range(20000))
while True: work()
";
const WORKS: [&str; 3] = ["/usr/bin/python3", "-c", PYTHON];

/// The stacks of a profile or recording and their weights, by our own reader.
fn folded(path: &Path, options: &[&str]) -> BTreeMap<String, u64> {
    let mut command = Command::new(flightline());
    let done = run(command.arg("fold").arg(path).args(options), LIMIT).expect_success("fold");
    let text = done.stdout_text();
    let lines = text.lines().map(|line| line.rsplit_once(' ').expect("a weight"));
    lines.map(|(stack, weight)| (stack.to_owned(), weight.parse().expect("a number"))).collect()
}

/// A received pprof profile, read by our own reader.
fn pulled(service: &Served, answer: &Answer) -> BTreeMap<String, u64> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.body.starts_with(&[0x1f, 0x8b]), "it is packed");
    let path = service.folder.path().join("pulled.pb.gz");
    std::fs::write(&path, &answer.body).unwrap();
    folded(&path, &[])
}

fn runs(service: &Served) -> Vec<Value> {
    service.get("/v1/runs").json()["runs"].as_array().unwrap().clone()
}

#[test]
fn profile_is_pulled_by_go_pprof_paths() {
    if !skip::have_python() {
        return;
    }
    let _place = beside();
    let service = Served::start(&["--profiling", "--heartbeat", HEARTBEAT]);
    assert_eq!(service.get("/debug/pprof/profile?seconds=1").status, 404, "nobody is there");
    let agent = service.agent(&["--label", "zone=eu-1"], &WORKS);
    let target = service.target(|target| target["name"] == "python3");
    let id = target["id"].as_str().unwrap();
    let base = format!("/v1/targets/{id}/debug/pprof");
    for index in [&format!("{base}/"), &base, "/debug/pprof/", "/debug/pprof"] {
        let listed = service.get(index);
        assert!(listed.status == 200 && listed.text().contains("profile"), "{index}: {}", listed.text());
    }
    // By id, by name or label, and as the only one.
    for path in [format!("{base}/profile?seconds=1"), "/debug/pprof/profile?target=eu-1&seconds=1".into()] {
        let stacks = pulled(&service, &service.get(&path));
        let total: u64 = stacks.values().sum();
        // Nearly a second of one thread, whatever else the machine did.
        assert!((100_000_000..4_000_000_000).contains(&total), "{path}: {total} ns");
        let working =
            stacks.iter().filter(|(stack, _)| stack.contains("Eval")).map(|(_, ns)| ns).sum::<u64>();
        assert!(working * 10 >= total * 8, "{path}: {working} of {total} ns");
    }
    let allocated = pulled(&service, &service.get("/debug/pprof/allocs?seconds=1"));
    assert!(allocated.values().sum::<u64>() > 0);
    // The service keeps no run, because the page did not request it.
    assert_eq!(runs(&service), [] as [Value; 0]);
    for (path, status, sentence) in [
        ("profile?seconds=0", 400, "`duration` must be set between (0s, 300s]."),
        ("profile?seconds=x", 400, "`duration` must be set between (0s, 300s]."),
        ("goroutine", 404, "Profile not found; the profiles are profile, allocs, heap, mutex, block."),
    ] {
        let answer = service.get(&format!("/debug/pprof/{path}"));
        assert_eq!((answer.status, answer.sentence().as_str()), (status, sentence), "{path}");
    }
    // A run of another client is not disturbed.
    let body = json!({"mode": "CPU", "duration": 200}).to_string();
    let json = ["Content-Type: application/json"];
    let begun = send(service.port, "POST", &format!("/v1/targets/{id}/runs"), &json, body.as_bytes());
    assert_eq!(begun.status, 202, "{}", begun.text());
    assert_eq!(service.get("/debug/pprof/profile?seconds=1").status, 409);
    drop(agent);
}

#[test]
fn idle_program_returns_profile_without_samples() {
    let _place = beside();
    let service = Served::start(&["--profiling", "--heartbeat", HEARTBEAT]);
    let _agent = service.agent(&[], &["sleep", "1000"]);
    service.target(|target| target["name"] == "sleep");
    let answer = service.get("/debug/pprof/mutex?seconds=1");
    assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
    let answer = service.get("/debug/pprof/profile?seconds=1");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let path = service.folder.path().join("empty.pb.gz");
    std::fs::write(&path, &answer.body).unwrap();
    let mut unpack = Command::new("gzip");
    let message = run(unpack.arg("-dc").arg(&path), LIMIT).expect_success("gzip").stdout_text();
    assert!(message.contains("cpu") && message.contains("nanoseconds"), "{message:?}");
}

#[test]
fn run_ends_when_pulling_client_disconnects() {
    if !skip::have_python() {
        return;
    }
    let _place = beside();
    let service = Served::start(&["--profiling", "--heartbeat", HEARTBEAT, "--max-duration", "1h"]);
    let _agent = service.agent(&[], &WORKS);
    service.target(|target| target["name"] == "python3");
    // Neither HEAD requests nor requests from other sites start a run.
    let mut head = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
    head.write_all(b"HEAD /debug/pprof/profile?seconds=1 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(head).read_line(&mut line).unwrap();
    assert!(line.contains(" 405 "), "{line}");
    let foreign = ["Sec-Fetch-Site: cross-site"];
    assert_eq!(send(service.port, "GET", "/debug/pprof/profile", &foreign, b"").status, 403);
    assert_eq!(runs(&service), [] as [Value; 0]);
    let mut stream = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
    stream.write_all(b"GET /debug/pprof/profile?seconds=3600 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let is = |status: &str| {
        let of = |run: &Value| run["status"] == status;
        until(LIMIT, status, || runs(&service).first().filter(|run| of(run)).map(|_| ()));
    };
    is("RUNNING");
    drop(stream);
    is("CANCELLED");
    // The next run is not affected.
    assert!(!pulled(&service, &service.get("/debug/pprof/profile?seconds=1")).is_empty());
}

/// The window of the one target of a name, as folded stacks of CPU time.
fn kept(service: &Served, name: &str) -> BTreeMap<String, u64> {
    let target = service.target(|target| target["name"] == name);
    let window = format!("/v1/targets/{}/window", target["id"].as_str().unwrap());
    let bounds = service.get(&window).json();
    let (from, to) = (bounds["from"].as_i64().unwrap(), bounds["to"].as_i64().unwrap() + 1);
    let jfr = service.get(&format!("{window}/files/jfr?from={from}&to={to}"));
    assert_eq!(jfr.status, 200, "{}", jfr.text());
    let path = service.folder.path().join(format!("{name}.jfr"));
    std::fs::write(&path, &jfr.body).unwrap();
    folded(&path, &["-e", "cpu", "--total"])
}

#[test]
fn pushed_profiles_preserve_weights() {
    if !skip::have_python() {
        return;
    }
    let _place = beside();
    let service = Served::start(&["--profiling"]);
    let path = |name: &str| service.folder.path().join(name);
    let mut record = Command::new(flightline());
    record.args(["record", "-o"]).arg(path("run.jfr")).args(["--", "/usr/bin/python3", "-c"]);
    let some = "for i in range(40): sum(hash(str(i)) % 7 for i in range(20000))";
    run(record.arg(some), LIMIT).expect_success("record");
    let mut recorded = BTreeMap::new();
    for (stack, weight) in folded(&path("run.jfr"), &["-e", "cpu", "--total"]) {
        // Neither pprof nor OTLP has a mark for a truncated stack.
        *recorded.entry(stack.trim_start_matches("[truncated];").to_owned()).or_default() += weight;
    }
    assert!(recorded.values().sum::<u64>() > 0);
    // OTLP, as exporters send it: compressed, to the path of profiles.
    let mut export = Command::new(flightline());
    export.arg("export").arg(path("run.jfr")).args(["-e", "cpu", "--send", &service.url()]);
    run(export.args(["--attribute", "service.name=by-otlp", "--attribute", "zone=eu"]), LIMIT)
        .expect_success("export");
    assert_eq!(kept(&service, "by-otlp"), recorded);
    assert_eq!(service.target(|target| target["name"] == "by-otlp")["labels"]["zone"], "eu");
    // pprof, as Pyroscope's agents send it.
    let mut export = Command::new(flightline());
    export
        .arg("export")
        .arg(path("run.jfr"))
        .args(["-e", "cpu", "--format", "pprof", "-o"])
        .arg(path("run.pb.gz"));
    run(&mut export, LIMIT).expect_success("export");
    let mut form =
        b"--x\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"profile.pprof\"\r\n\r\n"
            .to_vec();
    form.extend(std::fs::read(path("run.pb.gz")).unwrap());
    form.extend(
        b"\r\n--x\r\nContent-Disposition: form-data; name=\"sample_type_config\"\r\n\r\n{}\r\n--x--\r\n",
    );
    let query = "/ingest?name=by-pprof%7Bzone%3Deu%7D&format=pprof&from=1700000000&until=1700000010";
    let answer = send(service.port, "POST", query, &["Content-Type: multipart/form-data; boundary=x"], &form);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(kept(&service, "by-pprof"), recorded);
    // Text.
    let query = "/ingest?name=by-text&format=folded&sampleRate=100&from=1700000000&until=1700000010";
    assert_eq!(send(service.port, "POST", query, &[], b"main;a 3\nmain;b 4\n").status, 200);
    let expected = [("main;a".to_owned(), 30_000_000), ("main;b".to_owned(), 40_000_000)];
    assert_eq!(kept(&service, "by-text"), BTreeMap::from(expected));
    // Bodies in other formats are refused.
    let post = |path: &str, kind: &str, body: &[u8]| {
        send(service.port, "POST", path, &[&format!("Content-Type: {kind}")], body).status
    };
    assert_eq!(post("/v1development/profiles", "application/x-protobuf", b"hello"), 400);
    assert_eq!(post("/v1development/profiles", "application/json", b"{}"), 415);
    assert_eq!(post("/v1development/profiles", "application/x-protobuf", &vec![0; 20 << 20]), 413);
    assert_eq!(post("/push.v1.PusherService/Push", "application/proto", b"hello"), 400);
    assert_eq!(post("/push.v1.PusherService/Push", "application/json", b"{}"), 415);
}

const TOKEN: &str = "0123456789abcdef-secret";
const HOSTILE: &str = "a\nforged {\"event\":\"x\"}\u{1b}[31m\u{9b}2J\r\u{202e}";

#[test]
fn log_is_one_json_line_per_event_without_secrets() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let options = ["--profiling", "--heartbeat", HEARTBEAT, "--log-level", "debug", "--token-file"];
    let mut service = Served::start(&[&options[..], &[file.to_str().unwrap()]].concat());
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let all = ["Content-Type: application/json", &bearer];
    let modes = json!([{"mode": "CPU", "available": true}]);
    let hello = json!({"protocol": 1, "key": "h/b/1/1", "name": HOSTILE, "host": "h", "pid": 1, "startTime": 1,
        "labels": {"zone": HOSTILE}, "modes": modes});
    let welcome = send(service.port, "POST", "/v1/agents", &all, hello.to_string().as_bytes()).json();
    let (target, secret) = (welcome["target"].as_str().unwrap(), welcome["secret"].as_str().unwrap());
    let begun = send(
        service.port,
        "POST",
        &format!("/v1/targets/{target}/runs"),
        &all,
        br#"{"mode":"CPU","duration":3}"#,
    );
    let run = begun.json()["id"].as_str().unwrap().to_owned();
    // Refused: without the token, with a wrong one, in the query, in the path, in a body.
    for (method, path, header, body) in [
        ("GET", "/v1/targets", "X: y", String::new()),
        (
            "GET",
            &format!("/v1/targets?token={TOKEN}"),
            "Authorization: Bearer wrong-token-of-mine",
            String::new(),
        ),
        ("POST", "/v1/session", "X: y", json!({"token": "wrong-token-of-mine"}).to_string()),
        ("GET", "/v1/runs/%0aforged%1b", &bearer, String::new()),
    ] {
        let status = send(service.port, method, path, &[header], body.as_bytes()).status;
        assert!(matches!(status, 401 | 404), "{method} {path}: {status}");
    }
    let gone = json!({"message": HOSTILE}).to_string();
    let agent = format!("X-Flightline-Agent: {secret}");
    send(service.port, "POST", &format!("/v1/agents/{target}/gone"), &[&bearer, &agent], gone.as_bytes());
    service.end();
    let lines = service.lines();
    let told: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
        .collect();
    for line in &lines {
        assert!(![TOKEN, secret, "wrong-token-of-mine"].iter().any(|secret| line.contains(secret)), "{line}");
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
    }
    let of = |event: &str| told.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let one = |event: &str| match of(event)[..] {
        [one] => one.clone(),
        ref several => panic!("{event}: {several:?}"),
    };
    let joined = one("target joined");
    assert_eq!((&joined["name"], &joined["target"]), (&json!(HOSTILE), &json!(target)));
    assert_eq!(joined["labels"], json!(format!("zone={HOSTILE}")));
    assert_eq!((&one("run began")["run"], &one("run began")["mode"]), (&json!(run), &json!("CPU")));
    assert_eq!((&one("run ended")["status"], &one("run ended")["run"]), (&json!("FAILED"), &json!(run)));
    assert_eq!(one("target gone")["why"], json!(HOSTILE));
    let requests = of("request");
    for request in &requests {
        assert!(request["duration_ms"].is_u64() && request["status"].is_u64(), "{request}");
        assert!(request["remote"].as_str().unwrap().starts_with("127.0.0.1:"), "{request}");
        assert!(request["time"].as_str().unwrap().ends_with('Z'), "{request}");
    }
    let refused: Vec<u64> =
        requests.iter().filter(|r| r["level"] == "warn").map(|r| r["status"].as_u64().unwrap()).collect();
    assert_eq!(refused, [401, 401, 401, 404]);
    let create =
        requests.iter().find(|r| r["method"] == "POST" && r["target"] == json!(target) && r["status"] == 202);
    assert_eq!(create.expect("the request for the run")["level"], "info");
}

#[test]
fn recordings_are_forwarded_with_labels() {
    if !skip::have_python() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (token, headers) =
        (file("token", TOKEN), file("headers", &format!("# of the other\nAuthorization: Bearer {TOKEN}\n")));
    let other = Served::start(&["--token-file", &token]);
    let url = other.url();
    let mut options = vec![
        "--profiling",
        "--heartbeat",
        HEARTBEAT,
        "--forward-otlp",
        &url,
        "--forward-otlp-headers",
        &headers,
    ];
    options.extend(["--forward-pyroscope", &url, "--forward-pyroscope-headers", &headers]);
    let mut service = Served::start(&options);
    let _agent = service.agent(&["--label", "service=shop", "--label", "zone=eu-1"], &WORKS);
    let target = service.target(|target| target["labels"]["service"] == "shop");
    // A pulled profile goes to its requester.
    assert!(!pulled(&service, &service.get("/debug/pprof/profile?seconds=1")).is_empty());
    let path = format!("/v1/targets/{}/runs", target["id"].as_str().unwrap());
    let asked = json!({"mode": "CPU", "duration": 1, "labels": {"why": "test"}}).to_string();
    let begun = send(service.port, "POST", &path, &["Content-Type: application/json"], asked.as_bytes());
    assert_eq!(begun.status, 202, "{}", begun.text());
    let run = begun.json()["id"].as_str().unwrap().to_owned();
    let counts = |to: &str| {
        let metrics = service.get("/metrics").text();
        let value = |result: &str| {
            let name = format!("flightline_service_forwarded_total{{to=\"{to}\",result=\"{result}\"}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).expect("a metric");
            line.parse::<u64>().unwrap()
        };
        ["sent", "failed", "dropped", "rejected"].map(value)
    };
    for to in ["pyroscope", "otlp"] {
        until(LIMIT, "it is passed on", || Some(counts(to)).filter(|counts| *counts != [0; 4]));
        assert_eq!(counts(to), [1, 0, 0, 0], "{to}");
    }
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let list = send(other.port, "GET", "/v1/targets", &[&bearer], b"").json();
    let targets: Vec<&Value> = list["targets"].as_array().unwrap().iter().collect();
    assert_eq!(targets.len(), 2, "as a recording and as OTLP: {list}");
    let whole = service.get(&format!("/v1/runs/{run}/files/folded?event=cpu"));
    for target in targets {
        assert_eq!(target["name"], "shop");
        assert_eq!((&target["labels"]["zone"], &target["labels"]["why"]), (&json!("eu-1"), &json!("test")));
        let window = format!("/v1/targets/{}/window", target["id"].as_str().unwrap());
        let bounds = send(other.port, "GET", &window, &[&bearer], b"").json();
        let (from, to) = (bounds["from"].as_i64().unwrap(), bounds["to"].as_i64().unwrap() + 1);
        let path = format!("{window}/files/folded?event=cpu&from={from}&to={to}");
        let came = send(other.port, "GET", &path, &[&bearer], b"");
        let sorted = |answer: &Answer| {
            let mut lines: Vec<String> = answer.text().lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&came), sorted(&whole));
    }
    service.end();
    assert!(!service.lines().iter().any(|line| line.contains(TOKEN)));
}
