//! Clients and agents of the profiling service that are slow, lie, leave, or are many. Others are served at
//! the same time, and memory, files and descriptors stay within limits. Tests of single requests are in
//! `service.rs`, those of time-outs in `consumer/service/src/http/body.rs`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::http::{Answer, read, send};
use flightline_tests::run::{beside, until};
use flightline_tests::served::Served;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
/// A complete recording.
const RECORDING: &[u8] = include_bytes!("../../../fixtures/recordings/ap-native-cpu.jfr");

/// A running service, with helpers for hostile requests.
struct Service(Served);

impl std::ops::Deref for Service {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}

impl Service {
    fn start(options: &[&str]) -> Self {
        Self(Served::start(&[&["--profiling"], options].concat()))
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.port, "POST", path, &[], body.to_string().as_bytes())
    }

    fn agent(&self, pid: u32) -> Agent {
        let welcome = self.post("/v1/agents", &hello(pid)).json();
        let word = |name: &str| welcome[name].as_str().unwrap_or_else(|| panic!("{welcome}")).to_owned();
        Agent { target: word("target"), header: format!("X-Flightline-Agent: {}", word("secret")) }
    }

    #[track_caller]
    fn chunks(&self, agent: &Agent, bytes: &[u8]) -> Answer {
        send(self.port, "POST", &format!("/v1/agents/{}/chunks", agent.target), &[&agent.header], bytes)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Sends exactly these bytes; returns the response, if there is one.
    fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = self.connect();
        // The service may close the connection of a rejected request early.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut stream = BufReader::new(stream);
        let there = stream.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        there.then(|| read(&mut stream))
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("flightline_service_{name} ")));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    }

    /// The service's peak memory as the kernel reports it, in MB.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Names of all files below its directory.
    fn files(&self) -> Vec<String> {
        fn below(path: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => below(&entry.path(), found),
                    false => found.push(entry.file_name().into_string().unwrap()),
                }
            }
        }
        let mut found = Vec::new();
        below(&self.folder.path().join("history"), &mut found);
        found
    }
}

struct Agent {
    target: String,
    header: String,
}

fn hello(pid: u32) -> Value {
    json!({"protocol": 1, "key": format!("h/b/{pid}/1"), "name": "simulated", "host": "h", "pid": pid, "startTime": 1,
        "modes": [{"mode": "CPU", "available": true}]})
}

fn head(path: &str, more: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n\r\n").into_bytes()
}

#[test]
fn slow_senders_do_not_block_others() {
    let _place = beside();
    let service = Service::start(&[]);
    let agents: Vec<Agent> = (1..=8).map(|pid| service.agent(pid)).collect();
    let mut held = Vec::new();
    for number in 0..100usize {
        let agent = &agents[number % agents.len()];
        // A head that does not end; bodies that were announced as large, begun, and then stall.
        let mut slow = service.connect();
        slow.write_all(&head("/v1/runs", "X-Slow: 1")[..40]).unwrap();
        held.push(slow);
        for path in [format!("/v1/agents/{}/chunks", agent.target), "/ingest?name=x&format=jfr".into()] {
            let mut slow = service.connect();
            slow.write_all(&head(&path, &format!("{}\r\nContent-Length: 16777216", agent.header))).unwrap();
            slow.write_all(&vec![b'F'; 96 << 10]).unwrap();
            held.push(slow);
        }
    }
    // None of them is finished, and complete requests are served.
    let agent = &agents[0];
    let large = RECORDING.repeat(16);
    assert!(large.len() > 256 << 10);
    assert_eq!(service.chunks(agent, &large).status, 204);
    assert_eq!(service.get("/v1/targets").json()["targets"].as_array().unwrap().len(), 8);
    let run =
        service.post(&format!("/v1/targets/{}/runs", agent.target), &json!({"mode": "CPU", "duration": 1}));
    assert_eq!(run.status, 202, "{}", run.text());
    let commands = format!("/v1/agents/{}/commands?after=0", agent.target);
    let told = send(service.port, "GET", &commands, &[&agent.header], b"").json();
    assert_eq!(told["commands"][0]["run"], run.json()["id"]);
    // The three hundred clients have sent little data each.
    assert!(service.peak() < 300, "{} MB", service.peak());
    let with_them = service.descriptors();
    assert!(with_them >= held.len(), "{with_them}");
    drop(held);
    until(LIMIT, "their places to be free", || (service.descriptors() < with_them - 250).then_some(()));
}

#[test]
fn ten_thousand_targets_and_stalled_readers_stay_within_limits() {
    let _place = beside();
    let service = Service::start(&["--max-targets", "10000", "--heartbeat", "60s"]);
    std::thread::scope(|scope| {
        for part in 0..4u32 {
            let service = &service;
            scope.spawn(move || {
                let mut stream = BufReader::new(service.connect());
                for pid in (1 + part..=10_000).step_by(4) {
                    let body = hello(pid).to_string();
                    let request = head("/v1/agents", &format!("Content-Length: {}", body.len()));
                    stream.get_mut().write_all(&[&request, body.as_bytes()].concat()).unwrap();
                    assert_eq!(read(&mut stream).status, 200, "{pid}");
                }
            });
        }
    });
    let more = service.post("/v1/agents", &hello(10_001));
    assert!(more.status == 429 && more.sentence().contains("--max-targets"), "{}", more.text());
    // Known agents may join again.
    assert_eq!(service.post("/v1/targets/x/runs", &json!({"mode": "CPU", "duration": 1})).status, 404);
    let list = service.get("/v1/targets");
    assert_eq!(list.json()["targets"].as_array().unwrap().len(), 10_000);
    assert!(service.get("/metrics").text().contains("targets{state=\"live\"} 10000"));
    let before = service.peak();
    // Each list has megabytes. More clients request it than fit into memory, and none reads it.
    let size = list.body.len();
    assert!(size > 6 << 20, "{size}");
    let room = (256 << 20) / size;
    let ask = b"GET /v1/targets HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut waiting = Vec::new();
    let mut answers = [0, 0];
    while answers[1] == 0 && answers[0] < room + 8 {
        let mut stream = service.connect();
        takes_little(&stream);
        stream.write_all(ask).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        match &first[9..] {
            b"200" => answers[0] += 1,
            b"503" => answers[1] += 1,
            other => panic!("{:?}", String::from_utf8_lossy(other)),
        }
        waiting.push(stream);
    }
    assert!(answers[0] + 1 >= room && answers[1] > 0, "{answers:?} of {size} bytes");
    assert!(service.peak() < before + 400, "{} MB, {before} before", service.peak());
    // Small requests are answered. When the slow clients have left, large ones are answered too.
    assert_eq!(service.get("/healthz").status, 200);
    assert_eq!(service.get("/v1/targets").status, 503);
    drop(waiting);
    until(LIMIT, "the list", || (service.get("/v1/targets").status == 200).then_some(()));
}

/// The kernel would buffer megabytes for a client that does not read.
fn takes_little(stream: &TcpStream) {
    let bytes: libc::c_int = 4096;
    let (at, length) = ((&raw const bytes).cast(), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: an open socket, and a number that is there during the call.
    let set = unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, at, length) };
    assert_eq!(set, 0);
}

/// The same bytes, each time they are decompressed.
fn bomb(mebibytes: usize) -> Vec<u8> {
    let packed = Command::new("sh").args(["-c", "head -c 1048576 /dev/zero | gzip -9n"]).output().unwrap();
    assert!(packed.status.success());
    packed.stdout.repeat(mebibytes)
}

#[test]
fn false_lengths_and_malformed_bodies_are_rejected() {
    let _place = beside();
    let service = Service::start(&[]);
    let (agent, other) = (service.agent(1), service.agent(2));
    let path = format!("/v1/agents/{}/chunks", agent.target);
    let with = |more: &str, body: &[u8]| {
        let head = head(&path, &format!("{}\r\n{more}", agent.header));
        service.raw(&[&head, body].concat())
    };
    // Longer and shorter than announced, and both at once.
    let short = with("Content-Length: 100000", RECORDING).expect("an answer");
    assert_eq!(short.status, 400, "{}", short.text());
    let long = with("Content-Length: 100", RECORDING).expect("an answer");
    assert_eq!(long.status, 422, "{}", long.text());
    for lie in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: -1",
        "Content-Length: 99999999999999999999",
    ] {
        let answer = with(lie, RECORDING);
        assert!(answer.as_ref().is_some_and(|answer| answer.status == 400), "{lie}: {answer:?}");
    }
    // Requests whose bodies do not end.
    let piece = [b"10000\r\n".as_slice(), &[b'F'; 65536], b"\r\n"].concat();
    for (path, pieces) in [(path.as_str(), 300), ("/ingest?name=x&format=jfr", 300), ("/v1/agents", 3)] {
        let head = head(path, &format!("{}\r\nTransfer-Encoding: chunked", agent.header));
        let mut stream = service.connect();
        stream.write_all(&head).unwrap();
        // It closes the connection early.
        let _ = (0..pieces).try_for_each(|_| stream.write_all(&piece));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        // The response can be lost while the client still sends, but the body is never accepted.
        let said = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || said.starts_with("HTTP/1.1 413"), "{path}: {said}");
    }
    // Nested compression, parts without end, bodies that are no recording, and the name of another target.
    let ingest = "/ingest?name=x&format=jfr";
    let answer = send(service.port, "POST", ingest, &[], &bomb(4096));
    assert!(answer.status == 413, "{}", answer.text());
    let form = ["Content-Type: multipart/form-data; boundary=b"];
    let part = "--b\r\nContent-Disposition: form-data; name=\"labels\"\r\n\r\nx\r\n";
    for body in
        [part.repeat(100_000), "--b\r\n".repeat(1_000_000), format!("--b\r\n{}", "a: b\r\n".repeat(500_000))]
    {
        let answer = send(service.port, "POST", ingest, &form, body.as_bytes());
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    assert_eq!(service.chunks(&agent, b"no recording").status, 422);
    let stranger = Agent { target: other.target.clone(), header: agent.header.clone() };
    assert_eq!(service.chunks(&stranger, RECORDING).status, 404);
    assert!(service.peak() < 350, "{} MB", service.peak());
    assert!(
        service.files().iter().all(|name| !name.ends_with(".jfr") && !name.ends_with(".tmp")),
        "{:?}",
        service.files()
    );
    let refused = service.metric("answers_total{code=\"4xx\"}");
    assert!(refused >= 10, "{refused}");
    assert_eq!(service.metric("answers_total{code=\"5xx\"}"), 0);
    assert_eq!(service.chunks(&agent, RECORDING).status, 204);
}

#[test]
fn implausible_chunk_times_are_stored_and_queryable() {
    let _place = beside();
    let service = Service::start(&[]);
    for (pid, start) in (1..).zip([i64::MIN, -1, 0, 9_000_000_000_000_000_000, i64::MAX - 1, i64::MAX]) {
        let agent = service.agent(pid);
        let mut chunk = RECORDING.to_vec();
        // The start time of a chunk, in ns since 1970.
        chunk[32..40].copy_from_slice(&start.to_be_bytes());
        let answer = service.chunks(&agent, &chunk);
        assert!(matches!(answer.status, 204 | 422), "{start}: {}", answer.text());
        if answer.status == 422 {
            continue;
        }
        let kept = service.get(&format!("/v1/targets/{}/window", agent.target));
        assert_eq!(kept.status, 200, "{start}: {}", kept.text());
        let kept = kept.json();
        let (from, to) = (kept["from"].as_i64().unwrap(), kept["to"].as_i64().unwrap());
        assert!((0..=253_402_300_799_999).contains(&from) && from <= to, "{start}: {kept}");
        assert!(kept["timeline"]["rates"].as_array().unwrap().len() <= 300, "{start}");
        for (from, to) in [(from, to.saturating_add(1)), (i64::MIN, i64::MAX)] {
            let path = format!("/v1/targets/{}/window/files/folded?from={from}&to={to}", agent.target);
            let status = service.get(&path).status;
            assert!(matches!(status, 200 | 422), "{start}: {status}");
        }
    }
    assert_eq!(service.metric("answers_total{code=\"5xx\"}"), 0);
    assert_eq!(service.get("/v1/targets").json()["targets"].as_array().unwrap().len(), 6);
}

#[test]
fn aborted_uploads_leave_no_files_or_descriptors() {
    let _place = beside();
    let service = Service::start(&["--heartbeat", "60s"]);
    let agent = service.agent(1);
    assert_eq!(service.chunks(&agent, RECORDING).status, 204);
    let create = json!({"mode": "CPU", "duration": 1});
    let run = service.post(&format!("/v1/targets/{}/runs", agent.target), &create).json()["id"].clone();
    let run = run.as_str().unwrap();
    let delivery = format!("/v1/agents/{}/runs/{run}/recording", agent.target);
    let put = |body: &[u8]| send(service.port, "PUT", &delivery, &[&agent.header], body);
    let before = service.descriptors();
    let requests: Vec<Vec<u8>> = [
        format!("PUT {delivery} HTTP/1.1\r\nHost: localhost\r\n{}\r\nContent-Length: 99999\r\n\r\nFLR", agent.header),
        format!("POST /v1/agents/{}/chunks HTTP/1.1\r\nHost: localhost\r\n{}\r\nContent-Length: 99999\r\n\r\nFLR", agent.target, agent.header),
        format!("GET /v1/agents/{}/commands?after=9 HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", agent.target, agent.header),
        format!("GET /v1/targets/{}/window/files/html?from=0&to=99999999999999 HTTP/1.1\r\nHost: localhost\r\n\r\n", agent.target),
        "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{\"mode\"".into(),
        "GET /v1/targets HTTP/1.1\r\nHo".into(),
    ]
    .map(String::into_bytes)
    .to_vec();
    for round in 0..30 {
        for request in &requests {
            let mut stream = service.connect();
            stream.write_all(request).unwrap();
            // Some wait until the service has started to read them.
            if round % 3 == 0 {
                stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
                let _ = stream.read(&mut [0; 64]);
            }
        }
    }
    until(LIMIT, "all connections to be over", || (service.descriptors() <= before + 2).then_some(()));
    // The run still waits for its recording, and receives it.
    assert_eq!(service.get(&format!("/v1/runs/{run}")).json()["status"], "RUNNING");
    let done = until(LIMIT, "the half recording to be given up", || {
        Some(put(RECORDING)).filter(|answer| answer.status != 409)
    });
    assert_eq!(done.status, 204, "{}", done.text());
    assert_eq!(service.get(&format!("/v1/runs/{run}")).json()["status"], "FINISHED");
    let files = service.files();
    assert_eq!(files.iter().filter(|name| name.ends_with(".jfr")).count(), 2, "{files:?}");
    assert!(files.iter().all(|name| !name.ends_with(".tmp")), "{files:?}");
    assert_eq!(service.metric("answers_total{code=\"5xx\"}"), 0);
}

#[test]
fn labels_are_accepted_up_to_limits() {
    let _place = beside();
    let service = Service::start(&[]);
    let labels = |count: usize, letters: usize| -> Value {
        let label = |number: usize| (format!("{number:0letters$}"), json!("ü".repeat(letters)));
        Value::Object((0..count).map(label).collect())
    };
    let with = |labels: Value| {
        let mut hello = hello(1);
        hello["key"] = json!(format!("h/b/1/{}", labels.as_object().unwrap().len()));
        hello["labels"] = labels;
        service.post("/v1/agents", &hello)
    };
    assert_eq!(with(labels(32, 256)).status, 200);
    let list = service.get("/v1/targets").json();
    assert_eq!(list["targets"][0]["labels"], labels(32, 256));
    for (count, letters) in [(33, 1), (1, 257), (1000, 4)] {
        let answer = with(labels(count, letters));
        assert!(answer.status == 400 && answer.sentence().contains("32 `labels`"), "{}", answer.text());
    }
    assert_eq!(with(json!({"": "x"})).status, 400);
    // A body above the limit is not even read.
    assert_eq!(with(labels(32, 1024)).status, 413);
    assert_eq!(service.get("/v1/targets").json()["targets"].as_array().unwrap().len(), 1);
}
