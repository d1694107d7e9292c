//! The profiling service from outside: programs that join it, who asks it, and who means it harm.
//!
//! What needs no process is in `consumer/service/src/core/tests.rs`; the page in `tests/browser/service.test.mjs`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flightline_tests::http::{Answer, read, send};
use flightline_tests::run::{beside, run, signal, spawn, turn, until, wait};
use flightline_tests::victim::flightline;
use flightline_tests::{recording::Recording, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const JSON: &str = "Content-Type: application/json";

/// `flightline serve` on a port of its own; ended with the test.
struct Service {
    child: Child,
    port: u16,
    folder: TempDir,
    options: Vec<String>,
}

impl Service {
    fn start(options: &[&str]) -> Self {
        let folder = TempDir::with_prefix("flightline-service-").unwrap();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let (child, port) = begin(folder.path(), &options, 0);
        Self { child, port, folder, options }
    }

    fn profiling() -> Self {
        Self::start(&["--profiling", "--heartbeat", "1s"])
    }

    /// As `kill -9` and a new start on the same port leave it.
    fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, self.port) = begin(self.folder.path(), &self.options, self.port);
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    #[track_caller]
    fn get(&self, path: &str) -> Answer {
        send(self.port, "GET", path, &[], b"")
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.port, "POST", path, &[JSON], body.to_string().as_bytes())
    }

    /// Lets it record a program; `options` are the agent's.
    fn agent(&self, options: &[&str], program: &[&str]) -> Agent {
        let mut command = Command::new(flightline());
        command.args(["agent", "--join", &self.url()]).args(options);
        if !program.is_empty() {
            command.arg("--").args(program);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Agent(spawn(&mut command))
    }

    /// The one target with this label or number, once it has joined.
    fn joined(&self, is: impl Fn(&Value) -> bool) -> Value {
        until(LIMIT, "a target", || {
            let list = self.get("/v1/targets").json();
            list["targets"].as_array()?.iter().find(|target| target["state"] == "LIVE" && is(target)).cloned()
        })
    }

    #[track_caller]
    fn begin(&self, target: &Value, mode: &str, duration: u64) -> String {
        let path = format!("/v1/targets/{}/runs", target["id"].as_str().unwrap());
        let answer = self.post(&path, &json!({"mode": mode, "duration": duration}));
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    fn run(&self, id: &str) -> Value {
        self.get(&format!("/v1/runs/{id}")).json()
    }

    /// Waits until a run has ended.
    fn ended(&self, id: &str) -> Value {
        until(LIMIT, "the end of a run", || Some(self.run(id)).filter(|run| run["status"] != "RUNNING"))
    }

    fn file(&self, id: &str, format: &str) -> Answer {
        self.get(&format!("/v1/runs/{id}/files/{format}"))
    }

    /// A run's recording, read by our own reader.
    fn recording(&self, id: &str) -> Recording {
        let answer = self.file(id, "jfr");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let path = self.folder.path().join(format!("{id}.fetched"));
        std::fs::write(&path, &answer.body).unwrap();
        Recording::read(&path).expect("a recording")
    }

    fn remote(&self, words: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(flightline());
        let done =
            run(command.arg("remote").args(["--url", &self.url()]).args(words).stdin(Stdio::null()), LIMIT);
        (done.code(), done.stdout_text(), done.stderr.clone())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent and, if it started one, its program; both ended with the test.
struct Agent(Child);

impl Agent {
    /// The program that it started.
    fn program(&self) -> u32 {
        until(LIMIT, "the program", || flightline_tests::run::children(self.0.id()).first().copied())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let mut found = vec![self.0.id()];
        let mut at = 0;
        while let Some(&parent) = found.get(at) {
            found.extend(flightline_tests::run::children(parent));
            at += 1;
        }
        found.into_iter().skip(1).for_each(|child| signal(child, libc::SIGKILL));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program whose agent is killed; ended with the test.
struct Orphan(u32);

impl Drop for Orphan {
    fn drop(&mut self) {
        signal(self.0, libc::SIGKILL);
    }
}

fn begin(folder: &Path, options: &[String], port: u16) -> (Child, u16) {
    let mut command = Command::new(flightline());
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--min-free", "1m", "--dir"]);
    command.arg(folder.join("history")).args(options).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = spawn(command.stderr(Stdio::piped()));
    let said = BufReader::new(child.stderr.take().unwrap());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            eprintln!("serve: {line}");
            let _ = tell.send(line);
        }
    });
    let address = until(LIMIT, "the service", || {
        let line = told.recv_timeout(LIMIT).expect("the service says where it is");
        Some(line.split("://").nth(1)?.split(',').next()?.to_owned())
    });
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    (child, port)
}

/// Computes until it is ended.
const PYTHON: &str = "
def work():
    return sum(hash(str(i)) % 7 for i in range(20000))
while True: work()
";

/// A Python that is no script of a version manager.
fn python() -> &'static str {
    "/usr/bin/python3"
}

#[test]
fn a_program_that_nobody_prepared_is_profiled_and_all_formats_come() {
    let _turn = turn();
    let service = Service::profiling();
    let _agent = service.agent(&["--label", "zone=eu-1"], &[python(), "-c", PYTHON]);
    let target = service.joined(|target| target["labels"]["zone"] == "eu-1");
    assert_eq!(target["name"], "python3");
    let can = |mode: &str| {
        let modes = target["modes"].as_array().unwrap();
        modes.iter().find(|can| can["mode"] == mode).unwrap()["available"] == true
    };
    assert!(["CPU", "ITIMER", "WALL", "ALLOC", "LOCK", "IO"].into_iter().all(can), "{target}");
    let before = cpu_seconds(&target);
    let id = service.begin(&target, "CPU", 2);
    assert_eq!(service.run(&id)["status"], "RUNNING");
    let run = service.ended(&id);
    let worked = cpu_seconds(&target) - before;
    assert_eq!(run["status"], "FINISHED", "{run}");
    assert!(run["message"].as_str().unwrap().starts_with("Profiling Successful"), "{run}");
    let (began, ended) = (run["triggerTime"].as_i64().unwrap(), run["finishedTime"].as_i64().unwrap());
    assert!(ended - began >= 2000, "{run}");
    assert_eq!(run["events"][0], "cpu");
    // By the program's own clock, which also went on while the recorder began and ended.
    let recording = service.recording(&id);
    let samples = recording.samples.len() as f64;
    assert!(
        samples > 49.0 * worked && samples < 105.0 * worked,
        "{samples} samples of {worked} s of CPU time"
    );
    assert!(recording.share(|s| s.frames.iter().any(|f| f.method.contains("PyEval"))) > 90.0);
    let begins: [(&str, &[u8]); 3] =
        [("jfr", b"FLR\0"), ("html", b"<!DOCTYPE html>"), ("pprof", &[0x1f, 0x8b])];
    for (format, magic) in begins {
        let answer = service.file(&id, format);
        assert!(answer.status == 200 && answer.body.starts_with(magic), "{format}: {}", answer.status);
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert!(answer.headers["content-disposition"].starts_with("attachment; filename=\"python3-"));
        assert!(answer.headers["content-security-policy"].starts_with("sandbox "), "{:?}", answer.headers);
    }
    let folded = service.file(&id, "folded").text();
    let sum: u64 = folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, recording.samples.len() as u64);
    let path = service.folder.path().join("run.otlp");
    std::fs::write(&path, service.file(&id, "otlp").body).unwrap();
    // OpenTelemetry is told of CPU time: 99 samples are a second.
    assert_eq!(run_fold(&path), sum * 10_101_010);
    // A broken download goes on where it was.
    let whole = service.file(&id, "jfr");
    let range = format!("Range: bytes={}-", whole.body.len() / 2);
    let rest = send(service.port, "GET", &format!("/v1/runs/{id}/files/jfr"), &[&range], b"");
    assert_eq!((rest.status, &rest.body[..]), (206, &whole.body[whole.body.len() / 2..]));
    let page = service.get(&format!("/v1/runs/{id}/files/html?view=1"));
    assert!(page.headers["content-disposition"].starts_with("inline"));
    assert_eq!(service.get(&format!("/v1/runs/{id}/files/html?event=lock")).status, 422);
    // Flink's words for the same.
    let list = service.get(&format!("/taskmanagers/{}/profiler", target["id"].as_str().unwrap())).json();
    assert_eq!(list["profilingList"][0]["outputFile"], run["outputFile"]);
    let picture =
        service.get(&format!("/v1/taskmanagers/python3/profiler/{}", run["outputFile"].as_str().unwrap()));
    assert!(picture.status == 200 && picture.body.starts_with(b"<!DOCTYPE html>"));
    assert_eq!(service.get("/jobmanager/profiler").status, 404);
}

/// CPU time of a target's process by the kernel's account.
fn cpu_seconds(target: &Value) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", target["pid"])).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // SAFETY: asks.
    ticks as f64 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

fn value(line: &str) -> u64 {
    line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a folded line ends in a number")
}

fn run_fold(path: &Path) -> u64 {
    let folded = run(Command::new(flightline()).arg("fold").arg(path).stdin(Stdio::null()), LIMIT);
    folded.expect_success("fold").stdout_text().lines().map(value).sum()
}

#[test]
fn what_runs_already_is_profiled_from_outside() {
    let _turn = turn();
    if !skip::perf_allowed(true) {
        return;
    }
    let service = Service::profiling();
    let mut program = spawn(Command::new(python()).args(["-c", PYTHON]).stdin(Stdio::null()));
    let _agent = service.agent(&["-p", &program.id().to_string()], &[]);
    let target = service.joined(|target| target["pid"] == program.id());
    let alloc = target["modes"].as_array().unwrap().iter().find(|can| can["mode"] == "ALLOC").unwrap();
    assert!(
        alloc["available"] == false && alloc["reason"].as_str().unwrap().contains("libflightline.so"),
        "{alloc}"
    );
    let refused = service.post(
        &format!("/v1/targets/{}/runs", target["id"].as_str().unwrap()),
        &json!({"mode": "ALLOC", "duration": 1}),
    );
    assert_eq!(refused.status, 400);
    let run = service.ended(&service.begin(&target, "CPU", 1));
    assert_eq!(run["status"], "FINISHED", "{run}");
    let recording = service.recording(run["id"].as_str().unwrap());
    assert!(recording.share(|s| s.frames.iter().any(|f| f.method.contains("PyEval"))) > 90.0);
    program.kill().unwrap();
    program.wait().unwrap();
    until(LIMIT, "the end to be told", || {
        let target = service.get(&format!("/v1/targets/{}", target["id"].as_str().unwrap())).json();
        (target["state"] == "GONE").then_some(())
    });
}

#[test]
fn without_being_asked_for_there_is_no_profiler() {
    let _place = beside();
    let service = Service::start(&[]);
    for path in
        ["/v1/runs", "/v1/targets/x/runs", "/taskmanagers/x/profiler", "/jobmanager/profiler", "/v1/runs/x"]
    {
        let answer = service.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.sentence().contains("--profiling"), "{path}: {}", answer.text());
    }
    for path in ["/v1/runs", "/v1/targets/x/runs", "/taskmanagers/x/profiler", "/jobmanager/profiler"] {
        assert_eq!(service.post(path, &json!({"mode": "CPU", "duration": 1})).status, 404, "{path}");
    }
    assert_eq!(service.get("/v1/targets").json()["profiling"], false);
    assert_eq!(service.get("/").status, 200);
}

#[test]
fn a_run_that_is_cancelled_keeps_what_there_is() {
    let _turn = turn();
    let service = Service::profiling();
    let _agent = service.agent(&[], &[python(), "-c", PYTHON]);
    let target = service.joined(|_| true);
    let before = cpu_seconds(&target);
    let id = service.begin(&target, "CPU", 30);
    until(LIMIT, "ten of thirty seconds' third", || {
        (service.run(&id)["elapsed"].as_u64()? >= 2500).then_some(())
    });
    assert_eq!(service.post(&format!("/v1/runs/{id}/cancel"), &json!({})).status, 202);
    let run = service.ended(&id);
    assert_eq!(run["status"], "CANCELLED", "{run}");
    let (samples, worked) = (service.recording(&id).samples.len() as f64, cpu_seconds(&target) - before);
    assert!(
        samples > 30.0 * worked && samples < 105.0 * worked,
        "{samples} samples of {worked} s of CPU time"
    );
    assert_eq!(service.post(&format!("/v1/runs/{id}/cancel"), &json!({})).status, 409);
    // The next one is not ended by a stop that was meant for this one.
    let next = service.ended(&service.begin(&target, "CPU", 2));
    assert_eq!(next["status"], "FINISHED", "{next}");
    assert!(next["elapsed"].as_u64().unwrap() >= 2000, "{next}");
    assert!(!service.recording(next["id"].as_str().unwrap()).samples.is_empty());
    assert_eq!(send(service.port, "DELETE", &format!("/v1/runs/{id}"), &[], b"").status, 204);
    assert_eq!(service.file(&id, "jfr").status, 404);
}

#[test]
fn what_a_program_starts_is_a_target_too() {
    let _place = beside();
    let service = Service::profiling();
    let script = format!("{0} -c '{PYTHON}' & {0} -c '{PYTHON}' & wait", python());
    let agent = service.agent(&["--label", "app=cart"], &["sh", "-c", &script]);
    let named = |name: &str| -> Vec<Value> {
        let list = service.get("/v1/targets").json();
        let of = list["targets"].as_array().unwrap().iter();
        of.filter(|target| target["name"].as_str().unwrap().starts_with(name)).cloned().collect()
    };
    let workers = until(LIMIT, "two workers", || Some(named("python")).filter(|found| found.len() == 2));
    assert_eq!(named("sh").len(), 1);
    assert!(workers.iter().all(|worker| worker["labels"]["app"] == "cart"), "{workers:?}");
    // Each for itself, both at once, and from within.
    let ids: Vec<&Value> = workers.iter().map(|worker| &worker["id"]).collect();
    let group = service.post("/v1/runs", &json!({"targets": ids, "mode": "CPU", "duration": 1}));
    for run in group.json()["runs"].as_array().unwrap() {
        let ended = service.ended(run["id"].as_str().unwrap());
        assert_eq!(ended["status"], "FINISHED", "{ended}");
        assert!(!service.recording(run["id"].as_str().unwrap()).samples.is_empty());
    }
    // The first to end does not take the others with it.
    let first = workers[0]["pid"].as_u64().unwrap();
    signal(u32::try_from(first).unwrap(), libc::SIGKILL);
    let states = || {
        let found = named("python");
        let states: Vec<_> = found.iter().map(|target| target["state"] == "LIVE").collect();
        states.iter().filter(|live| **live).count()
    };
    until(LIMIT, "the end of one", || (states() == 1).then_some(()));
    drop(agent);
    // Or it is left alone, however long.
    let service = Service::profiling();
    let _agent =
        service.agent(&["--no-children"], &["sh", "-c", &format!("{} -c '{PYTHON}'; true", python())]);
    let shell = service.joined(|_| true);
    let run = service.ended(&service.begin(&shell, "OFF_CPU", 4));
    assert_eq!((&run["status"], &shell["name"]), (&json!("FINISHED"), &json!("sh")), "{run}");
    assert_eq!(service.get("/v1/targets").json()["targets"].as_array().unwrap().len(), 1);
}

#[test]
fn who_dies_is_told_and_others_run_on() {
    let _turn = turn();
    let service = Service::profiling();
    let agents: Vec<Agent> = (0..3).map(|_| service.agent(&[], &[python(), "-c", PYTHON])).collect();
    let targets: Vec<Value> = agents
        .iter()
        .map(|agent| {
            let pid = agent.program();
            service.joined(move |target| target["pid"] == pid && target["name"] == "python3")
        })
        .collect();
    let ids: Vec<&str> = targets.iter().map(|target| target["id"].as_str().unwrap()).collect();
    let group = service.post("/v1/runs", &json!({"mode": "CPU", "duration": 20, "targets": ids}));
    assert_eq!(group.status, 202);
    let runs: Vec<String> = group.json()["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["id"].as_str().unwrap().to_owned())
        .collect();
    for run in &runs {
        until(LIMIT, "a second of each run", || (service.run(run)["elapsed"].as_u64()? > 1500).then_some(()));
    }
    // The program of one, the agent of another.
    let orphan = Orphan(agents[1].program());
    signal(agents[0].program(), libc::SIGKILL);
    signal(agents[1].0.id(), libc::SIGKILL);
    let killed = service.ended(&runs[0]);
    assert_eq!(killed["status"], "FAILED", "{killed}");
    assert!(killed["message"].as_str().unwrap().contains("SIGKILL"), "{killed}");
    // Nothing of what was recorded by then is lost.
    assert!(service.recording(&runs[0]).samples.len() >= 20, "{killed}");
    let left = service.ended(&runs[1]);
    assert_eq!(left["status"], "FAILED", "{left}");
    assert!(left["message"].as_str().unwrap().contains("was not heard of"), "{left}");
    assert_eq!(service.run(&runs[2])["status"], "RUNNING");
    let list = service.get("/v1/targets").json();
    let live = list["targets"].as_array().unwrap().iter().filter(|target| target["state"] == "LIVE").count();
    assert_eq!(live, 1, "{list}");
    let status = {
        let mut agents = agents;
        wait(&mut agents[0].0, LIMIT, "the agent of a program that was killed")
    };
    assert_eq!(status.code(), Some(128 + libc::SIGKILL));
    drop(orphan);
}

#[test]
fn a_service_that_comes_back_knows_its_history_and_its_agents() {
    let _turn = turn();
    let mut service = Service::profiling();
    let _agent = service.agent(&[], &[python(), "-c", PYTHON]);
    let target = service.joined(|_| true);
    let whole = service.ended(&service.begin(&target, "CPU", 1));
    let broken = service.begin(&target, "CPU", 3);
    service.restart();
    let run = service.run(&broken);
    assert_eq!((&run["status"], &run["message"]), (&json!("FAILED"), &json!("service restarted")));
    assert_eq!(service.run(whole["id"].as_str().unwrap()), whole);
    assert!(!service.recording(whole["id"].as_str().unwrap()).samples.is_empty());
    let again = service.joined(|_| true);
    assert_eq!(again["id"], target["id"]);
    // The agent may still be at the run that nobody wants any more, and then says so.
    let next = until(LIMIT, "a run after the restart", || {
        let run = service.ended(&service.begin(&again, "CPU", 1));
        (run["status"] == "FINISHED").then_some(run)
    });
    assert!(!service.recording(next["id"].as_str().unwrap()).samples.is_empty());
}

#[test]
fn what_is_recorded_all_the_time_is_drawn_by_the_clock_and_makes_room_for_a_run() {
    let _place = beside();
    let service = Service::profiling();
    let agent = service.agent(&["--continuous=99"], &[python(), "-c", PYTHON]);
    let target = service.joined(|_| true);
    let path = format!("/v1/targets/{}/window", target["id"].as_str().unwrap());
    let kept =
        until(LIMIT, "a chunk", || Some(service.get(&path)).filter(|answer| answer.status == 200)).json();
    let rates = kept["timeline"]["rates"].as_array().unwrap();
    let most = rates.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    assert!(most > 5.0 && most < 120.0, "one busy thread at 99 a second: {kept}");
    // The middle of it, which is half of it.
    let (from, to) = (kept["from"].as_i64().unwrap(), kept["to"].as_i64().unwrap());
    let quarter = (to - from) / 4;
    let drawn = |from: i64, to: i64| -> u64 {
        let folded = service.get(&format!("{path}/files/folded?from={from}&to={to}"));
        assert_eq!(folded.status, 200, "{}", folded.text());
        assert!(folded.text().contains("PyEval"));
        folded.text().lines().map(value).sum()
    };
    let (all, middle) = (drawn(from, to + 1), drawn(from + quarter, to - quarter));
    let outer = drawn(from, from + quarter) + drawn(to - quarter, to + 1);
    assert_eq!(all, middle + outer);
    assert_eq!(
        service.get(&format!("{path}/files/html?from={}&to={}", to + 9_000_000, to + 9_000_001)).status,
        404
    );
    let id = target["id"].as_str().unwrap();
    let both = format!(
        "/v1/compare/html?before=window:{id}:{from}:{}&after=window:{id}:{}:{to}",
        from + quarter,
        to - quarter
    );
    let compared = service.get(&both);
    assert!(compared.status == 200 && compared.body.starts_with(b"<!DOCTYPE html>"), "{}", compared.text());
    // A run has the program for itself; meanwhile this goes on from outside.
    let run = service.ended(&service.begin(&target, "WALL", 5));
    assert_eq!(run["status"], "FINISHED", "{run}");
    let (began, finished) = (run["triggerTime"].as_i64().unwrap(), run["finishedTime"].as_i64().unwrap());
    until(LIMIT, "what came after the run", || {
        (service.get(&path).json()["to"].as_i64()? > finished).then_some(())
    });
    if skip::perf_allowed(false) {
        let meanwhile = drawn(began + 2_000, began + 5_000);
        assert!(meanwhile >= 30, "{meanwhile} samples at 99 a second in 3 s of the run");
    } else {
        skip::skip("perf_event_open is not allowed: what is recorded all the time beside a run");
    }
    // What was recorded last comes when the program has ended.
    signal(agent.program(), libc::SIGKILL);
    until(LIMIT, "the end", || {
        (service.get(&format!("/v1/targets/{id}")).json()["state"] == "GONE").then_some(())
    });
    assert!(service.get(&path).json()["chunks"].as_array().unwrap().len() >= 3);
}

#[test]
fn what_other_profilers_push_is_kept_by_time() {
    let _place = beside();
    let service = Service::profiling();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/ap-native-cpu.jfr");
    let recording = std::fs::read(path).unwrap();
    let push = |query: &str, body: &[u8]| send(service.port, "POST", &format!("/ingest?{query}"), &[], body);
    // As Pyroscope's clients name things: escaped.
    let answer = push("name=cart%7Bzone%3Deu-1%2Cversion%3D2%7D&format=jfr&from=1&until=2", &recording);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let target = service.joined(|target| target["name"] == "cart");
    assert_eq!(target["labels"], json!({"zone": "eu-1", "version": "2"}));
    assert!(target["modes"].as_array().unwrap().iter().all(|can| can["available"] == false));
    let (from, to) = (&target["continuous"]["from"], target["continuous"]["to"].as_i64().unwrap() + 1);
    let id = target["id"].as_str().unwrap();
    let folded = service.get(&format!("/v1/targets/{id}/window/files/folded?from={from}&to={to}"));
    assert!(folded.status == 200 && folded.text().lines().count() > 3, "{}", folded.text());
    let refused = [
        ("format=jfr", 400),
        ("name=x&format=jfr", 422),
        ("name=x%7B&format=jfr", 400),
        ("name=x&format=trie", 422),
    ];
    for (query, status) in refused {
        assert_eq!(push(query, b"main;work 3\n").status, status, "{query}");
    }
    assert_eq!(service.get("/v1/targets").json()["targets"].as_array().unwrap().len(), 1);
}

#[test]
fn the_shell_does_what_the_page_does() {
    let _turn = turn();
    let service = Service::profiling();
    let _agent = service.agent(&["--label", "tier=web"], &[python(), "-c", PYTHON]);
    service.joined(|target| target["labels"]["tier"] == "web" && target["name"] == "python3");
    let (code, said, _) = service.remote(&["targets"]);
    assert!(code == 0 && said.contains("python3") && said.contains("tier=web"), "{said}");
    let page = service.folder.path().join("x.html");
    let (code, said, error) = service.remote(&[
        "profile",
        "web",
        "--mode",
        "wall",
        "--duration",
        "1s",
        "-o",
        page.to_str().unwrap(),
    ]);
    assert!(code == 0 && said.contains("finished"), "{said}{error}");
    assert!(std::fs::read(&page).unwrap().starts_with(b"<!DOCTYPE html>"));
    let (_, runs, _) = service.remote(&["runs", "web", "--json"]);
    let runs: Value = serde_json::from_str(&runs).unwrap();
    let id = runs["profilingList"][0]["id"].as_str().unwrap();
    let (code, folded, _) = service.remote(&["get", id, "--format", "folded"]);
    assert!(code == 0 && folded.lines().count() > 0);
    let difference = service.folder.path().join("diff.html");
    let (code, _, error) = service.remote(&["compare", id, id, "-o", difference.to_str().unwrap()]);
    assert!(code == 0 && std::fs::read(&difference).unwrap().starts_with(b"<!DOCTYPE html>"), "{error}");
    assert_eq!(service.remote(&["delete", id]).0, 0);
    let (code, _, error) = service.remote(&["run", id]);
    assert!(code == 1 && error.contains("no such run"), "{error}");
    let (code, _, error) = service.remote(&["profile", "nobody"]);
    assert!(code == 1 && error.contains("flightline remote targets"), "{error}");
    let mut nowhere = Command::new(flightline());
    let done = run(nowhere.args(["remote", "--url", "http://127.0.0.1:9", "targets"]), LIMIT);
    assert!(done.code() == 1 && done.stderr.contains("flightline serve"), "{}", done.stderr);
}

#[test]
fn nothing_is_had_by_a_path() {
    let _place = beside();
    let service = Service::profiling();
    std::fs::write(service.folder.path().join("history/secret"), "s").unwrap();
    let first = service.get("/v1/runs/1700000000000-0123456789abcdef/files/jfr");
    assert_eq!(first.status, 404);
    for name in [
        "..",
        "../secret",
        "%2e%2e%2fsecret",
        "..%5csecret",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%00",
        "secret",
        "secret%00.html",
        "%ff",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "lock",
        ".",
        "%c0%ae%c0%ae%2f",
    ] {
        for path in [
            format!("/v1/runs/{name}/files/jfr"),
            format!("/v1/runs/1700000000000-0123456789abcdef/files/{name}"),
            format!("/jobmanager/profiler/{name}"),
            format!("/taskmanagers/x/profiler/{name}"),
            format!("/page/{name}"),
        ] {
            let answer = service.get(&path);
            assert_eq!((answer.status, answer.text()), (404, first.text()), "{path}");
        }
    }
}

#[test]
fn other_sites_other_names_and_strangers_are_refused() {
    let _place = beside();
    let token = TempDir::with_prefix("flightline-token-").unwrap();
    let token_file = token.path().join("token");
    std::fs::write(&token_file, "0123456789abcdef0123\n").unwrap();
    let open = Service::profiling();
    let create = json!({"mode": "CPU", "duration": 1}).to_string();
    let ask = |service: &Service, headers: &[&str]| {
        send(service.port, "POST", "/v1/targets/x/runs", headers, create.as_bytes()).status
    };
    let own = format!("Origin: http://127.0.0.1:{}", open.port);
    assert_eq!(ask(&open, &[JSON]), 404);
    assert_eq!(ask(&open, &[JSON, &own]), 404);
    for foreign in [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://127.0.0.1:1",
        "Sec-Fetch-Site: cross-site",
    ] {
        assert_eq!(ask(&open, &[JSON, foreign]), 403, "{foreign}");
    }
    let rebound = send(open.port, "GET", "/v1/targets", &["Host: evil.example"], b"");
    assert_eq!(rebound.status, 403);
    let closed = Service::start(&["--profiling", "--token-file", token_file.to_str().unwrap()]);
    assert_eq!(closed.get("/v1/targets").status, 401);
    assert_eq!(
        send(closed.port, "GET", "/v1/targets", &["Authorization: Bearer wrong-wrong-wrong"], b"").status,
        401
    );
    let right = ["Authorization: Bearer 0123456789abcdef0123"];
    assert_eq!(send(closed.port, "GET", "/v1/targets", &right, b"").status, 200);
    assert_eq!(closed.get("/healthz").status, 200);
    assert_eq!(closed.get("/").status, 200);
    assert_eq!(closed.get("/metrics").status, 401);
    assert_eq!(closed.post("/v1/session", &json!({"token": "wrong"})).status, 401);
    let session = closed.post("/v1/session", &json!({"token": "0123456789abcdef0123"}));
    let cookie = session.headers["set-cookie"].clone();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert_eq!(send(closed.port, "GET", "/v1/targets", &[&cookie], b"").status, 200);
    let mut everywhere = Command::new(flightline());
    let done = run(everywhere.args(["serve", "--listen", "0.0.0.0:0", "--dir"]).arg(token.path()), LIMIT);
    assert!(done.code() == 1 && done.stderr.contains("--token-file"), "{}", done.stderr);
}

/// Over TLS, with a certificate that nobody else believes; and the token is changed while the agent runs.
#[test]
fn agents_and_shells_come_encrypted_and_find_a_new_token() {
    let _place = beside();
    let folder = TempDir::with_prefix("flightline-tls-").unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) =
        (file("cert.pem", &made.cert.pem()), file("key.pem", &made.signing_key.serialize_pem()));
    let token = file("token", "the first token of this service\n");
    let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--token-file", &token];
    let mut service = Service::start(&[&["--profiling", "--heartbeat", "1s"][..], &tls[..]].concat());
    let url = format!("https://127.0.0.1:{}", service.port);
    let remote = |options: &[&str], words: &[&str]| {
        let mut command = Command::new(flightline());
        run(command.args(["remote", "--url", &url]).args(options).args(words).stdin(Stdio::null()), LIMIT)
    };
    let ours = ["--ca-file", certificate.as_str(), "--token-file", token.as_str()];
    let mut agent = Command::new(flightline());
    agent.args(["agent", "--join", &url]).args(ours).args(["--", python(), "-c", PYTHON]);
    let _agent = Agent(spawn(agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())));
    let live = || {
        let listed = remote(&ours, &["targets", "--json"]);
        let list: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        list["targets"].as_array()?.iter().find(|target| target["state"] == "LIVE").cloned()
    };
    let target = until(LIMIT, "a target", live);
    let fetched = folder.path().join("run.jfr");
    let words =
        ["profile", target["id"].as_str().unwrap(), "--duration", "1s", "-o", fetched.to_str().unwrap()];
    let profiled = remote(&ours, &words);
    assert_eq!(profiled.code(), 0, "{}", profiled.stderr);
    assert!(!Recording::read(&fetched).unwrap().samples.is_empty());
    for (options, why) in [
        (&ours[2..], "certificate"),
        (&ours[..2], "--token-file"),
        (&["--ca-file", token.as_str()], "no certificate in it"),
    ] {
        let refused = remote(options, &["targets"]);
        assert!(refused.code() != 0 && refused.stderr.contains(why), "{why}: {}", refused.stderr);
    }
    // The same service with another token; the agent finds it where the first stood.
    file("token", "the second token of this service\n");
    service.restart();
    assert_eq!(until(LIMIT, "the target again", live)["id"], target["id"]);
}

#[test]
fn agents_that_lie_and_clients_that_send_too_much_are_refused() {
    let _place = beside();
    let service = Service::start(&["--profiling", "--max-recording", "100k"]);
    let modes: Vec<Value> = ["CPU", "WALL"].map(|mode| json!({"mode": mode, "available": true})).to_vec();
    let hello = json!({"protocol": 1, "key": "h/b/1/1", "name": "<img src=x onerror=alert(1)>`;$(id)", "host": "h", "pid": 1,
        "startTime": 1, "labels": {"x": "</script><script>alert(1)</script>"}, "modes": modes});
    let welcome = service.post("/v1/agents", &hello).json();
    let (target, secret) = (welcome["target"].as_str().unwrap(), welcome["secret"].as_str().unwrap());
    assert!(target.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{target}");
    let secret = format!("X-Flightline-Agent: {secret}");
    // What others say stays what it is.
    let list = service.get("/v1/targets").json();
    assert_eq!(list["targets"][0]["name"], hello["name"]);
    assert_eq!(list["targets"][0]["labels"], hello["labels"]);
    let upload = |body: &[u8]| {
        let answer =
            service.post(&format!("/v1/targets/{target}/runs"), &json!({"mode": "CPU", "duration": 1}));
        let run = answer.json()["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned();
        let path = format!("/v1/agents/{target}/runs/{run}/recording");
        let answer = send(service.port, "PUT", &path, &[&secret], body);
        (answer.status, service.run(&run))
    };
    let (status, run) = upload(b"<html>no recording</html>");
    assert!(status == 422 && run["status"] == "FAILED", "{status} {run}");
    let whole = small_recording();
    assert!(whole.len() < 100 << 10);
    let (status, run) = upload(&whole[..whole.len() - 7]);
    assert!(
        status == 422 && run["message"].as_str().unwrap().contains("no whole recording"),
        "{status} {run}"
    );
    let (status, run) = upload(&vec![0; 200 << 10]);
    assert!(status == 413 && run["status"] == "FAILED", "{status} {run}");
    let (status, run) = upload(&whole);
    assert!(status == 204 && run["status"] == "FINISHED", "{status} {run}");
    let big = service.post("/v1/agents", &json!({"x": "y".repeat(1 << 20)}));
    assert_eq!(big.status, 413);
    for path in ["commands", "gone"] {
        let answer = send(
            service.port,
            "GET",
            &format!("/v1/agents/{target}/{path}"),
            &["X-Flightline-Agent: x"],
            b"",
        );
        assert!(matches!(answer.status, 404 | 405), "{path}: {}", answer.status);
    }
    // Nothing is left of what was refused.
    let files: Vec<String> = std::fs::read_dir(service.folder.path().join("history"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files.iter().filter(|name| name.ends_with(".jfr")).count(), 1, "{files:?}");
    assert!(files.iter().all(|name| !name.ends_with(".tmp")), "{files:?}");
}

/// A recording of a program that ends at once.
fn small_recording() -> Vec<u8> {
    let folder = TempDir::with_prefix("flightline-small-").unwrap();
    let path = folder.path().join("run.jfr");
    let mut command = Command::new(flightline());
    run(command.args(["record", "-o"]).arg(&path).args(["--", "true"]), LIMIT).expect_success("record");
    std::fs::read(&path).unwrap()
}

#[test]
fn a_connection_that_says_nothing_holds_nobody_up() {
    let _place = beside();
    let service = Service::profiling();
    let idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(("127.0.0.1", service.port)).unwrap()).collect();
    let mut slow = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
    slow.write_all(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{").unwrap();
    assert_eq!(service.get("/v1/targets").status, 200);
    slow.write_all(&[b' '; 99]).unwrap();
    assert_eq!(read(&mut BufReader::new(slow)).status, 400);
    drop(idle);
}

#[test]
fn the_description_knows_every_path_and_the_paths_know_it() {
    let _place = beside();
    let service = Service::profiling();
    let description = service.get("/openapi.json").json();
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() >= 20);
    let all = ["get", "post", "put", "delete"];
    for (path, methods) in paths {
        let filled = path
            .replace("{target}", "t")
            .replace("{run}", "r")
            .replace("{format}", "jfr")
            .replace("{file}", "f")
            .replace("{profile}", "profile");
        for method in all {
            let answer = send(service.port, &method.to_uppercase(), &filled, &[JSON], b"");
            let known = methods.get(method).is_some();
            assert_eq!(answer.status != 405, known, "{method} {path}: {}", answer.status);
            let status = answer.status.to_string();
            assert!(
                !known || methods[method]["responses"].get(&status).is_some(),
                "{method} {path} answers {status}"
            );
        }
    }
}

#[test]
fn the_list_of_targets_waits_for_no_agent() {
    let _place = beside();
    let service = Service::profiling();
    let hello = json!({"protocol": 1, "key": "h/b/1/1", "name": "silent", "host": "h", "pid": 1, "startTime": 1,
        "modes": [{"mode": "CPU", "available": true}]});
    let target = service.post("/v1/agents", &hello).json()["target"].as_str().unwrap().to_owned();
    let id = service.begin(&json!({"id": target}), "CPU", 1);
    let began = Instant::now();
    assert_eq!(service.run(&id)["status"], "RUNNING");
    assert_eq!(service.get("/v1/targets").status, 200);
    // Both were answered although the agent never asks; after two heartbeats it is given up.
    eprintln!("answered in {:?}", began.elapsed());
    let run = service.ended(&id);
    assert!(run["status"] == "FAILED" && run["message"].as_str().unwrap().contains("not heard of"), "{run}");
}
