//! The profiling service from outside: programs that join it, and its clients.
//!
//! Attacks are in `service_doors.rs` and `service_hostile.rs`, tests without processes in
//! `consumer/service/src/core/tests.rs`, and those of the page in `tests/browser/service.test.mjs`.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::http::send;
use flightline_tests::run::{beside, run, signal, spawn, until, wait};
use flightline_tests::served::{Agent, PYTHON, Served, python};
use flightline_tests::skip;
use flightline_tests::victim::flightline;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

/// A program whose agent is killed; it ends with the test.
struct Orphan(u32);

impl Drop for Orphan {
    fn drop(&mut self) {
        signal(self.0, libc::SIGKILL);
    }
}

#[test]
fn unmodified_program_is_profiled_in_all_formats() {
    let Some(python) = python() else { return };
    let _place = beside();
    let service = Served::profiling();
    let _agent = service.agent(&["--label", "zone=eu-1"], &[python, "-c", PYTHON]);
    let target = service.target(|target| target["labels"]["zone"] == "eu-1");
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
    // The kernel's account of the recorded time. The program's own clock also ran before and after.
    let recording = service.recording(&id);
    let samples = recording.samples.len() as f64;
    let clocks: HashMap<u64, u64> =
        recording.ledger.iter().map(|account| (account.tid, account.cpu_ns)).collect();
    let recorded = clocks.values().sum::<u64>() as f64 / 1e9;
    assert!(
        samples > 49.0 * recorded && samples < 105.0 * recorded && recorded < worked + 0.1 && samples > 20.0,
        "{samples} samples of {recorded} s, of {worked} s of CPU time"
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
    // The OTLP profile is in CPU time: 99 samples are a second.
    assert_eq!(run_fold(&path), sum * 10_101_010);
    // A broken download can be resumed.
    let whole = service.file(&id, "jfr");
    let range = format!("Range: bytes={}-", whole.body.len() / 2);
    let rest = send(service.port, "GET", &format!("/v1/runs/{id}/files/jfr"), &[&range], b"");
    assert_eq!((rest.status, &rest.body[..]), (206, &whole.body[whole.body.len() / 2..]));
    let page = service.get(&format!("/v1/runs/{id}/files/html?view=1"));
    assert!(page.headers["content-disposition"].starts_with("inline"));
    assert_eq!(service.get(&format!("/v1/runs/{id}/files/html?event=lock")).status, 422);
    // The same with Flink's names.
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
    // SAFETY: only a query.
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
fn running_program_is_profiled_from_outside() {
    let Some(python) = python() else { return };
    let _place = beside();
    if !skip::perf_allowed(true) {
        return;
    }
    let service = Served::profiling();
    let mut program = spawn(Command::new(python).args(["-c", PYTHON]).stdin(Stdio::null()));
    let _agent = service.agent(&["-p", &program.id().to_string()], &[]);
    let target = service.target(|target| target["pid"] == program.id());
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
    until(LIMIT, "the end to be reported", || {
        let target = service.get(&format!("/v1/targets/{}", target["id"].as_str().unwrap())).json();
        (target["state"] == "GONE").then_some(())
    });
}

#[test]
fn profiler_endpoints_are_disabled_by_default() {
    let _place = beside();
    let service = Served::start(&[]);
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
fn cancelled_run_has_partial_recording() {
    let Some(python) = python() else { return };
    let _place = beside();
    let service = Served::profiling();
    let _agent = service.agent(&[], &[python, "-c", PYTHON]);
    let target = service.target(|_| true);
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
    // A stop that was meant for the previous run does not end the next one.
    let next = service.ended(&service.begin(&target, "CPU", 2));
    assert_eq!(next["status"], "FINISHED", "{next}");
    assert!(next["elapsed"].as_u64().unwrap() >= 2000, "{next}");
    assert!(!service.recording(next["id"].as_str().unwrap()).samples.is_empty());
    assert_eq!(send(service.port, "DELETE", &format!("/v1/runs/{id}"), &[], b"").status, 204);
    assert_eq!(service.file(&id, "jfr").status, 404);
}

#[test]
fn child_processes_become_targets() {
    let Some(python) = python() else { return };
    let _place = beside();
    let service = Served::profiling();
    let script = format!("{0} -c '{PYTHON}' & {0} -c '{PYTHON}' & wait", python);
    let agent = service.agent(&["--label", "app=cart"], &["sh", "-c", &script]);
    let named = |name: &str| -> Vec<Value> {
        let list = service.get("/v1/targets").json();
        let of = list["targets"].as_array().unwrap().iter();
        of.filter(|target| target["name"].as_str().unwrap().starts_with(name)).cloned().collect()
    };
    let workers = until(LIMIT, "two workers", || Some(named("python")).filter(|found| found.len() == 2));
    assert_eq!(named("sh").len(), 1);
    assert!(workers.iter().all(|worker| worker["labels"]["app"] == "cart"), "{workers:?}");
    // Each alone, both at once, and from within.
    let ids: Vec<&Value> = workers.iter().map(|worker| &worker["id"]).collect();
    let group = service.post("/v1/runs", &json!({"targets": ids, "mode": "CPU", "duration": 1}));
    for run in group.json()["runs"].as_array().unwrap() {
        let ended = service.ended(run["id"].as_str().unwrap());
        assert_eq!(ended["status"], "FINISHED", "{ended}");
        assert!(!service.recording(run["id"].as_str().unwrap()).samples.is_empty());
    }
    // The first to end does not end the others.
    let first = workers[0]["pid"].as_u64().unwrap();
    signal(u32::try_from(first).unwrap(), libc::SIGKILL);
    let states = || {
        let found = named("python");
        let states: Vec<_> = found.iter().map(|target| target["state"] == "LIVE").collect();
        states.iter().filter(|live| **live).count()
    };
    until(LIMIT, "the end of one", || (states() == 1).then_some(()));
    drop(agent);
    // With --no-children the other processes are left alone.
    let service = Served::profiling();
    let _agent = service.agent(&["--no-children"], &["sh", "-c", &format!("{} -c '{PYTHON}'; true", python)]);
    let shell = service.target(|_| true);
    let run = service.ended(&service.begin(&shell, "OFF_CPU", 4));
    assert_eq!((&run["status"], &shell["name"]), (&json!("FINISHED"), &json!("sh")), "{run}");
    assert_eq!(service.get("/v1/targets").json()["targets"].as_array().unwrap().len(), 1);
}

#[test]
fn killed_target_fails_its_run_and_others_continue() {
    let Some(python) = python() else { return };
    let _place = beside();
    let service = Served::profiling();
    let agents: Vec<Agent> = (0..3).map(|_| service.agent(&[], &[python, "-c", PYTHON])).collect();
    let targets: Vec<Value> = agents
        .iter()
        .map(|agent| {
            let pid = agent.program();
            service.target(move |target| target["pid"] == pid && target["name"] == "python3")
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
        until(LIMIT, "three seconds of each run", || {
            (service.run(run)["elapsed"].as_u64()? > 3000).then_some(())
        });
    }
    // Kills the program of one agent, and the other agent.
    let orphan = Orphan(agents[1].program());
    signal(agents[0].program(), libc::SIGKILL);
    signal(agents[1].0.id(), libc::SIGKILL);
    let killed = service.ended(&runs[0]);
    assert_eq!(killed["status"], "FAILED", "{killed}");
    assert!(killed["message"].as_str().unwrap().contains("SIGKILL"), "{killed}");
    // All data that was recorded before is kept.
    assert!(service.recording(&runs[0]).samples.len() >= 20, "{killed}");
    let left = service.ended(&runs[1]);
    assert_eq!(left["status"], "FAILED", "{left}");
    assert_ne!(left["message"], killed["message"], "{left}");
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
fn restarted_service_restores_history_and_agents() {
    let Some(python) = python() else { return };
    let _place = beside();
    let mut service = Served::profiling();
    let _agent = service.agent(&[], &[python, "-c", PYTHON]);
    let target = service.target(|_| true);
    let whole = service.ended(&service.begin(&target, "CPU", 1));
    let broken = service.begin(&target, "CPU", 3);
    service.restart();
    let run = service.run(&broken);
    assert_eq!((&run["status"], &run["message"]), (&json!("FAILED"), &json!("service restarted")));
    assert_eq!(service.run(whole["id"].as_str().unwrap()), whole);
    assert!(!service.recording(whole["id"].as_str().unwrap()).samples.is_empty());
    let again = service.target(|_| true);
    assert_eq!(again["id"], target["id"]);
    // The agent refuses a run while it records the one from before the restart. On a busy machine it may be
    // late and join again.
    let next = until(LIMIT, "a run after the restart", || {
        let run = service.ended(&service.begin(&service.target(|_| true), "CPU", 1));
        std::thread::sleep(Duration::from_millis(100));
        (run["status"] == "FINISHED").then_some(run)
    });
    assert!(!service.recording(next["id"].as_str().unwrap()).samples.is_empty());
}

#[test]
fn continuous_recording_is_drawn_by_time_range_and_yields_to_run() {
    let Some(python) = python() else { return };
    let _place = beside();
    let service = Served::profiling();
    let agent = service.agent(&["--continuous=99"], &[python, "-c", PYTHON]);
    let target = service.target(|_| true);
    let path = format!("/v1/targets/{}/window", target["id"].as_str().unwrap());
    let kept =
        until(LIMIT, "a chunk", || Some(service.get(&path)).filter(|answer| answer.status == 200)).json();
    let rates = kept["timeline"]["rates"].as_array().unwrap();
    let most = rates.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    assert!(most > 5.0 && most < 120.0, "one busy thread at 99 a second: {kept}");
    // The middle half of it.
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
    // A run takes over the program. In that time, the continuous recording goes on from outside.
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
        skip::skip("perf_event_open is not allowed: the continuous profile during a run");
    }
    // The last data arrives after the program has ended.
    signal(agent.program(), libc::SIGKILL);
    until(LIMIT, "the end", || {
        (service.get(&format!("/v1/targets/{id}")).json()["state"] == "GONE").then_some(())
    });
    assert!(service.get(&path).json()["chunks"].as_array().unwrap().len() >= 3);
}

#[test]
fn pushed_profiles_are_stored_by_time() {
    let _place = beside();
    let service = Served::profiling();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/ap-native-cpu.jfr");
    let recording = std::fs::read(path).unwrap();
    let push = |query: &str, body: &[u8]| send(service.port, "POST", &format!("/ingest?{query}"), &[], body);
    // As Pyroscope's clients send names: escaped.
    let answer = push("name=cart%7Bzone%3Deu-1%2Cversion%3D2%7D&format=jfr&from=1&until=2", &recording);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let target = service.target(|target| target["name"] == "cart");
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
fn remote_command_supports_web_page_operations() {
    let Some(python) = python() else { return };
    let _place = beside();
    let service = Served::profiling();
    let _agent = service.agent(&["--label", "tier=web"], &[python, "-c", PYTHON]);
    service.target(|target| target["labels"]["tier"] == "web" && target["name"] == "python3");
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
    assert!(code == 1 && error.lines().count() == 1, "{error}");
    let (code, _, error) = service.remote(&["profile", "nobody"]);
    assert!(code == 1 && error.contains("flightline remote targets"), "{error}");
    let mut nowhere = Command::new(flightline());
    let done = run(nowhere.args(["remote", "--url", "http://127.0.0.1:9", "targets"]), LIMIT);
    assert!(done.code() == 1 && done.stderr.contains("flightline serve"), "{}", done.stderr);
}
