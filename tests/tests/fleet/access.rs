//! The requests that strangers, other sites, lying agents and a single client may make of the profiling
//! service, and its answers.

use std::fs::Permissions;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flightline_tests::http::{Answer, read, send};
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, run, spawn, until};
use flightline_tests::served::{Agent, HEARTBEAT, JSON, PYTHON, Served, python};
use flightline_tests::victim::flightline;
use serde_json::{Value, json};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn path_traversal_returns_not_found() {
    let _place = beside();
    let service = Served::profiling();
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
fn foreign_origins_hosts_and_tokens_are_rejected() {
    let _place = beside();
    let token = TempDir::with_prefix("flightline-token-").unwrap();
    let token_file = token.path().join("token");
    std::fs::write(&token_file, "0123456789abcdef0123\n").unwrap();
    let open = Served::profiling();
    let create = json!({"mode": "CPU", "duration": 1}).to_string();
    let ask = |service: &Served, headers: &[&str]| {
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
    let closed = Served::start(&["--profiling", "--token-file", token_file.to_str().unwrap()]);
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
    everywhere.args(["serve", "--no-token", "--listen", "0.0.0.0:0", "--dir"]).arg(token.path());
    let done = run(&mut everywhere, LIMIT);
    assert!(done.code() == 2 && done.stderr.contains("--no-token"), "{}", done.stderr);
}

/// A service without a given token creates one, also on the loopback, where every user of the machine could
/// connect.
#[test]
fn service_creates_its_own_token() {
    let _place = beside();
    let folder = TempDir::with_prefix("flightline-token-").unwrap();
    let agents = folder.path().join("agents");
    std::fs::write(&agents, "the token of agents\n").unwrap();
    let service = Served::start(&["--profiling", "--agent-token-file", agents.to_str().unwrap()]);
    let own = service.folder.path().join("history/token");
    assert_eq!(own.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let own = std::fs::read_to_string(own).unwrap();
    let ask = |method: &str, path: &str, token: &str| {
        let token = format!("Authorization: Bearer {}", token.trim());
        send(service.port, method, path, &[JSON, &token], b"{}").status
    };
    assert_eq!(service.get("/v1/targets").status, 401);
    assert_eq!(ask("GET", "/v1/targets", &own), 200);
    // Agents have a token of their own here; neither token grants the other's rights.
    assert_eq!(ask("GET", "/v1/targets", "the token of agents"), 401);
    assert_eq!(ask("POST", "/v1/agents", &own), 401);
    assert_eq!(ask("POST", "/v1/agents", "the token of agents"), 400);
    assert_eq!(service.post("/v1/session", &json!({"token": "the token of agents"})).status, 401);
}

/// Another user who could write the file could choose the token.
#[test]
fn others_writable_token_file_is_rejected() {
    let _place = beside();
    let folder = TempDir::with_prefix("flightline-token-").unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123\n").unwrap();
    std::fs::set_permissions(&token, Permissions::from_mode(0o622)).unwrap();
    let mut command = Command::new(flightline());
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--token-file"])
        .arg(&token)
        .arg("--dir")
        .arg(folder.path());
    let done = run(&mut command, LIMIT);
    assert!(done.code() == 1 && done.stderr.contains(token.to_str().unwrap()), "{}", done.stderr);
}

/// The agents that a service starts get its token.
#[test]
fn service_passes_token_to_its_own_agents() {
    let Some(python) = python() else { return };
    let _place = beside();
    let folder = TempDir::with_prefix("flightline-token-").unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123\n").unwrap();
    let options =
        ["--profiling", "--local", "--heartbeat", HEARTBEAT, "--token-file", token.to_str().unwrap()];
    let service = Served::start(&options);
    let mut program = Command::new(python);
    program.args(["-c", PYTHON]).stdin(Stdio::null());
    let program = Agent(spawn(&mut program));
    let ask = |method: &str, body: &str| {
        let headers = [JSON, "Authorization: Bearer 0123456789abcdef0123"];
        send(service.port, method, "/v1/targets", &headers, body.as_bytes())
    };
    let adopted = ask("POST", &json!({"pid": program.0.id()}).to_string());
    assert!((200..300).contains(&adopted.status), "{}", adopted.text());
    until(LIMIT, "the adopted process", || ask("GET", "").text().contains("\"LIVE\"").then_some(()));
}

/// Over TLS, with a self-signed certificate. The token is changed while the agent runs.
#[test]
fn agents_and_clients_use_tls_and_reload_changed_token() {
    let Some(python) = python() else { return };
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
    let mut service = Served::start(&[&["--profiling", "--heartbeat", HEARTBEAT][..], &tls[..]].concat());
    let url = format!("https://127.0.0.1:{}", service.port);
    let remote = |options: &[&str], words: &[&str]| {
        let mut command = Command::new(flightline());
        run(command.args(["remote", "--url", &url]).args(options).args(words).stdin(Stdio::null()), LIMIT)
    };
    let ours = ["--ca-file", certificate.as_str(), "--token-file", token.as_str()];
    let mut agent = Command::new(flightline());
    agent.args(["agent", "--join", &url]).args(ours).args(["--", python, "-c", PYTHON]);
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
        (&["--ca-file", token.as_str()], "contains no certificate"),
    ] {
        let refused = remote(options, &["targets"]);
        assert!(refused.code() != 0 && refused.stderr.contains(why), "{why}: {}", refused.stderr);
    }
    // The same service with another token; the agent finds it at the same path.
    file("token", "the second token of this service\n");
    service.restart();
    assert_eq!(until(LIMIT, "the target again", live)["id"], target["id"]);
}

#[test]
fn invalid_agent_data_and_oversized_requests_are_rejected() {
    let _place = beside();
    let service = Served::start(&["--profiling", "--max-recording", "100k"]);
    let modes: Vec<Value> = ["CPU", "WALL"].map(|mode| json!({"mode": mode, "available": true})).to_vec();
    let hello = json!({"protocol": 1, "key": "h/b/1/1", "name": "<img src=x onerror=alert(1)>`;$(id)", "host": "h", "pid": 1,
        "startTime": 1, "labels": {"x": "</script><script>alert(1)</script>"}, "modes": modes});
    let welcome = service.post("/v1/agents", &hello).json();
    let (target, secret) = (welcome["target"].as_str().unwrap(), welcome["secret"].as_str().unwrap());
    assert!(target.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{target}");
    let secret = format!("X-Flightline-Agent: {secret}");
    // Names and labels of clients are not changed.
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
    assert!(status == 422 && run["status"] == "FAILED", "{status} {run}");
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
    // Refused requests leave no files.
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
fn idle_connections_do_not_block_others() {
    let _place = beside();
    let service = Served::profiling();
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
fn openapi_description_matches_routes() {
    let _place = beside();
    let service = Served::profiling();
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
fn target_list_does_not_wait_for_agents() {
    let _place = beside();
    let service = Served::profiling();
    let hello = json!({"protocol": 1, "key": "h/b/1/1", "name": "silent", "host": "h", "pid": 1, "startTime": 1,
        "modes": [{"mode": "CPU", "available": true}]});
    let target = service.post("/v1/agents", &hello).json()["target"].as_str().unwrap().to_owned();
    let id = service.begin(&json!({"id": target}), "CPU", 1);
    let began = Instant::now();
    assert_eq!(service.run(&id)["status"], "RUNNING");
    assert_eq!(service.get("/v1/targets").status, 200);
    // Both requests were answered although the agent never polls. After two heartbeats the service gives it
    // up.
    eprintln!("answered in {:?}", began.elapsed());
    let run = service.ended(&id);
    assert!(run["status"] == "FAILED" && run["message"] != "", "{run}");
}

/// Joins as an agent that then does nothing; returns the service's name for it.
fn silent(service: &Served, pid: u32, role: &str) -> String {
    let hello = json!({"protocol": 1, "key": format!("h/b/{pid}/1"), "name": "silent", "host": "h", "pid": pid, "startTime": 1,
        "labels": {"role": role}, "modes": [{"mode": "ITIMER", "available": true}]});
    service.post("/v1/agents", &hello).json()["target"].as_str().unwrap().to_owned()
}

#[test]
fn flink_paths_create_and_list_runs_like_flink() {
    let _place = beside();
    // With the usual heartbeat: a silent agent stays registered longer than this test takes.
    let service = Served::start(&["--profiling"]);
    let worker = silent(&service, 1, "taskmanager");
    let manager = silent(&service, 2, "jobmanager");
    let ask = |method: &str, path: &str, body: &Value| -> Answer {
        send(service.port, method, path, &[JSON], body.to_string().as_bytes())
    };
    let asked = json!({"mode": "ITIMER", "duration": 30});
    // Some proxies block POST.
    for (method, path, target) in [
        ("POST", format!("/taskmanagers/{worker}/profiler"), &worker),
        ("PUT", "/v1/jobmanager/profiler".to_owned(), &manager),
    ] {
        for wrong in [json!(0), json!(-1), json!(301), json!(1.5), json!("x"), Value::Null] {
            let refused = ask(method, &path, &json!({"mode": "ITIMER", "duration": wrong}));
            let sentence = "`duration` must be set between (0s, 300s].";
            assert_eq!((refused.status, refused.sentence().as_str()), (400, sentence), "{wrong}");
        }
        let made = ask(method, &path, &asked);
        assert_eq!(made.status, 200, "{}", made.text());
        let made = made.json();
        assert_eq!(
            (&made["status"], &made["mode"], &made["duration"]),
            (&json!("RUNNING"), &json!("ITIMER"), &json!(30))
        );
        assert!(made["triggerTime"].as_i64().unwrap() > 1_700_000_000_000, "{made}");
        assert_eq!(
            (&made["finishedTime"], &made["outputFile"], &made["message"]),
            (&json!(0), &json!(""), &json!(""))
        );
        let twice = ask(method, &path, &asked);
        let sentence = format!("{target} is still under profiling.");
        assert_eq!((twice.status, twice.sentence()), (409, sentence));
        let list = service.get(&path).json();
        let list = list["profilingList"].as_array().unwrap();
        assert_eq!((list.len(), &list[0]["triggerTime"]), (1, &made["triggerTime"]));
        let missing = service.get(&format!("{path}/none_ITIMER_2026-01-01_00_00_00.html"));
        assert_eq!(missing.status, 404);
        assert!(!missing.sentence().is_empty());
    }
}
