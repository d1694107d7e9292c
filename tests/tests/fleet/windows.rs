//! Continuous recordings of several targets merged into one, by HTTP and from a shell; and the requests for
//! the page's files.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::http::send;
use flightline_tests::run::{beside, run};
use flightline_tests::served::Served;
use flightline_tests::victim::flightline;
use serde_json::Value;

fn value(line: &str) -> u64 {
    line.rsplit_once(' ').and_then(|(_, samples)| samples.parse().ok()).expect("a line of folded text")
}

/// `flightline remote`.
fn remote(service: &Served, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(flightline());
    command.arg("remote").args(["--url", &service.url()]).args(words).stdin(Stdio::null());
    let done = run(&mut command, Duration::from_secs(60));
    (done.code(), done.stdout_text(), done.stderr.clone())
}

#[test]
fn targets_with_same_label_are_drawn_and_compared_as_one() {
    let _place = beside();
    let service = Served::start(&["--profiling"]);
    let recording = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fixtures/recordings/{name}.jfr"));
        std::fs::read(path).unwrap()
    };
    for (name, zone, version, of) in [
        ("cart", "eu-1", "1:1", "ap-native-cpu"),
        ("cart", "eu-2", "1:1", "ap-native-ctimer"),
        ("cart", "eu-3", "2", "ap-native-ctimer"),
    ] {
        let query =
            format!("name={name}%7Bzone%3D{zone}%2Cversion%3D{}%7D&format=jfr", version.replace(':', "%3A"));
        let pushed = send(service.port, "POST", &format!("/ingest?{query}"), &[], &recording(of));
        assert_eq!(pushed.status, 200, "{}", pushed.text());
    }
    let list = service.get("/v1/targets?load=1").json();
    assert_eq!(list["local"], false);
    let targets = list["targets"].as_array().unwrap();
    let times =
        |key: &'static str| targets.iter().map(move |target| target["continuous"][key].as_i64().unwrap());
    let (from, to) = (times("from").min().unwrap(), times("to").max().unwrap() + 1);
    let sum = |path: &str| -> u64 {
        let folded = service.get(&format!("{path}from={from}&to={to}&event=cpu"));
        assert_eq!(folded.status, 200, "{path}: {}", folded.text());
        folded.text().lines().map(value).sum()
    };
    let each: Vec<(&Value, u64)> = targets
        .iter()
        .map(|target| {
            let id = target["id"].as_str().unwrap();
            (&target["labels"]["version"], sum(&format!("/v1/targets/{id}/window/files/folded?")))
        })
        .collect();
    let of = |version: &str| -> u64 {
        each.iter().filter(|(is, _)| *is == version).map(|(_, samples)| samples).sum()
    };
    assert!(of("1:1") > 0 && of("2") > 0);
    assert_eq!(sum("/v1/window/files/folded?label=version%3D1%3A1&"), of("1:1"));
    let page =
        service.get(&format!("/v1/window/files/html?label=version%3D1%3A1&from={from}&to={to}")).text();
    assert!(page.contains("version=1:1 (2 targets), 20"), "whose, and when, as people say it");
    let side = |version: &str| format!("windows:version%3D{}:{from}:{to}", version.replace(':', "%3A"));
    let compared = service.get(&format!("/v1/compare/html?before={}&after={}", side("1:1"), side("2")));
    assert!(compared.status == 200 && compared.body.starts_with(b"<!DOCTYPE html>"), "{}", compared.text());
    for (query, status) in [
        ("label=version%3D3&from=1&to=2", 404),
        ("label=version%3D2&from=1&to=2", 404),
        ("label=version&from=1&to=2", 400),
        ("label=version%3D2&from=2&to=1", 400),
    ] {
        let refused = service.get(&format!("/v1/window/files/html?{query}"));
        assert!(
            refused.status == status && refused.json()["errors"].is_array(),
            "{query}: {}",
            refused.text()
        );
    }
    for side in ["windows:version%3D2", "windows:version:1:2", "windows::1:2", "windows:version%3D2:a:2"] {
        assert_eq!(
            service.get(&format!("/v1/compare/html?before={side}&after={side}")).status,
            400,
            "{side}"
        );
    }
    // The same from a shell.
    let (code, said, error) = remote(&service, &["window", "version=1:1"]);
    assert!(code == 0 && said.starts_with("version=1:1: 2 targets, "), "{said}{error}");
    let (code, folded, error) =
        remote(&service, &["window", "version=1:1", "--format", "folded", "--event", "cpu"]);
    assert_eq!((code, folded.lines().map(value).sum()), (0, of("1:1")), "{error}");
    let difference = service.folder.path().join("diff.html");
    let words = ["compare", "version=1:1@..", "version=2@-1h..", "-o", difference.to_str().unwrap()];
    let (code, _, error) = remote(&service, &words);
    assert!(code == 0 && std::fs::read(&difference).unwrap().starts_with(b"<!DOCTYPE html>"), "{error}");
    let (code, _, error) = remote(&service, &["window", "version=3", "-o", "x.html"]);
    assert!(code == 1 && error.contains("version=3"), "{error}");
}

#[test]
fn page_files_are_revalidated_by_etag() {
    let _place = beside();
    let service = Served::start(&["--profiling"]);
    let ask = |path: &str, headers: &[&str]| send(service.port, "GET", path, headers, b"");
    let (main, page) = (ask("/page/main.js", &[]), ask("/", &[]));
    let tag = &main.headers["etag"];
    assert_ne!(&page.headers["etag"], tag, "each text has its own");
    assert_eq!(main.headers["cache-control"], "no-cache", "asked about each time");
    let same = ask("/page/main.js", &[&format!("If-None-Match: {tag}")]);
    assert_eq!((same.status, same.body.len()), (304, 0));
    let other = ask("/page/main.js", &["If-None-Match: \"another\""]);
    assert_eq!((other.status, other.body), (200, main.body));
}
