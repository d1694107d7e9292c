//! These tests replace the command with a script.

use std::fs;
use std::path::Path;

use super::filter::Filter;
use super::query::{Query, Weighing};
use super::*;

pub(crate) struct Bench {
    folder: TempDir,
    pub(crate) settings: StoreSettings,
}

impl Bench {
    pub(crate) fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("flightline-sql");
        // Write the script from another process. If this process had it open for writing while a parallel
        // test forks, the child would inherit the descriptor and exec would fail with ETXTBSY.
        let text = format!("#!/bin/sh\ncd {}\n{script}\n", folder.path().display());
        let write = ["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""];
        let written = std::process::Command::new("sh").args(write).arg(&program).arg(text).status();
        assert!(written.unwrap().success());
        let settings = StoreSettings::new(program, "/the store".into());
        Self { folder, settings }
    }

    fn stored(&self) -> Arc<ProfileStore> {
        Arc::new(ProfileStore::new(self.settings.clone()).unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

fn flame(service: &str) -> Query {
    let mut filter = Filter::default();
    filter.take("service", service).unwrap();
    Query::Flame { filter, weighing: Weighing::default(), min: 1.0 }
}

/// Waits for a change made by another process.
pub(crate) async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn is_alive(pid: &str) -> bool {
    // Read the state, which follows the name in parentheses. The command line is empty during an exec.
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn words_come_as_they_are_and_the_same_question_is_answered_once() {
    let bench = Bench::new(
        "echo >> runs; for word; do echo \"[$word]\"; done; echo 'flightline: 5 files read' >&2; echo note >&2",
    );
    let stored = bench.stored();
    let value = "';$(touch bad)`touch bad` \"x\" * -- --output=bad";
    let answer = stored.ask(&flame(value)).await.unwrap();
    let words = format!(
        "[flame]\n[--store=/the store]\n[--where=service = '''{}']\n[--min-percent=1]\n[--format=html]\n",
        &value[1..]
    );
    assert_eq!(String::from_utf8(answer.body.to_vec()).unwrap(), words);
    assert_eq!(*answer.diagnostics, ["5 files read", "note"]);
    assert!(!bench.folder.path().join("bad").exists());
    stored.ask(&flame(value)).await.unwrap();
    assert_eq!(bench.file("runs").lines().count(), 1);
    stored.ask(&flame("other")).await.unwrap();
    assert_eq!(bench.file("runs").lines().count(), 2);
}

#[tokio::test]
async fn a_page_is_written_to_the_name_that_is_given() {
    let bench = Bench::new(
        "for word; do case $word in --output=*.html) echo page > \"${word#--output=}\";; esac; done",
    );
    let query =
        Query::Diff { before: Filter::default(), after: Filter::default(), weighing: Weighing::default() };
    assert_eq!(&bench.stored().ask(&query).await.unwrap().body[..], b"page\n");
}

#[tokio::test]
async fn failed_command_is_reported() {
    for (script, status, want) in [
        (
            "echo 'flightline: noted' >&2; echo 'error: no sample is one where x' >&2; exit 1",
            422,
            "The query failed: no sample is one where x.",
        ),
        ("printf 'error: a\\033[31m\\nb.\\n' >&2; exit 2", 422, "The query failed: a?[31m b."),
        ("exit 1", 422, "The query failed: no error message."),
        (
            "kill -9 $$",
            500,
            "flightline-sql was killed, probably because it ran out of memory; select fewer samples.",
        ),
        ("kill -6 $$", 500, "flightline-sql failed (signal: 6 (SIGABRT)); see the log of the service."),
    ] {
        let bench = Bench::new(script);
        let fault = bench.stored().ask(&flame("x")).await.unwrap_err();
        assert_eq!((fault.status.as_u16(), &*fault.message), (status, want), "{script}");
    }
    let bench = Bench::new("");
    fs::remove_file(&bench.settings.program).unwrap();
    let fault = bench.stored().ask(&flame("x")).await.unwrap_err();
    assert!(fault.status == 500 && fault.message.contains("cannot start flightline-sql"), "{fault:?}");
}

#[tokio::test]
async fn command_with_too_much_output_is_killed() {
    // A command that never stops writing, to standard output or standard error.
    let mut bench = Bench::new("echo $$ > pid; exec yes");
    bench.settings.most_bytes = 100_000;
    let fault = bench.stored().ask(&flame("x")).await.unwrap_err();
    assert_eq!(fault.status, 413);
    assert!(!is_alive(bench.file("pid").trim()));
    let bench = Bench::new("yes | head -c 1000000 >&2; echo done");
    let answer = bench.stored().ask(&flame("x")).await.unwrap();
    let length: usize = answer.diagnostics.iter().map(String::len).sum();
    assert!(&answer.body[..] == b"done\n" && length as u64 <= MOST_DIAGNOSTICS, "{length}");
}

#[tokio::test]
async fn slow_command_is_killed() {
    let mut bench = Bench::new("echo $$ > pid; exec sleep 1000");
    bench.settings.longest = Duration::from_millis(300);
    let fault = bench.stored().ask(&flame("x")).await.unwrap_err();
    assert!(fault.status == 504 && fault.message.contains("within 0.3 s"), "{fault:?}");
    let pid = bench.file("pid");
    assert!(pid.is_empty() || !is_alive(pid.trim()));
}

#[tokio::test]
async fn concurrent_queries_are_limited_and_aborted_ones_killed() {
    let mut bench = Bench::new("echo $$ >> pids; exec sleep 1000");
    bench.settings.turn = Duration::from_millis(50);
    let stored = bench.stored();
    let ask = |service: &'static str| {
        let stored = Arc::clone(&stored);
        tokio::spawn(async move { stored.ask(&flame(service)).await })
    };
    let asking = [ask("a"), ask("b")];
    until(|| bench.file("pids").lines().count() == 2).await;
    let fault = stored.ask(&flame("c")).await.unwrap_err();
    assert!(fault.status == 503 && fault.message.contains("busy"), "{fault:?}");
    assert_eq!(bench.file("pids").lines().count(), 2);
    for one in &asking {
        one.abort();
    }
    let pids = bench.file("pids");
    until(|| !pids.lines().any(is_alive)).await;
    let asking = ask("d");
    until(|| bench.file("pids").lines().count() == 3).await;
    asking.abort();
}

#[tokio::test]
async fn no_more_wait_than_there_are_places() {
    let mut bench = Bench::new("echo $$ >> pids; exec sleep 1000");
    bench.settings.turn = Duration::from_secs(1000);
    bench.settings.at_once = 1;
    let stored = bench.stored();
    let ask = |at: usize| {
        let stored = Arc::clone(&stored);
        tokio::spawn(async move { stored.ask(&flame(&at.to_string())).await })
    };
    let mut asking = vec![ask(0)];
    until(|| stored.turns.available_permits() == 0 && stored.waiting.available_permits() == MOST_WAITING)
        .await;
    asking.extend((1..=MOST_WAITING).map(ask));
    until(|| stored.waiting.available_permits() == 0).await;
    assert_eq!(stored.ask(&flame("x")).await.unwrap_err().status, 503);
    asking.iter().for_each(|one| one.abort());
}

#[tokio::test]
async fn facets_are_listed() {
    let bench = Bench::new(
        r#"echo "$3" >> asked
case $3 in
  *"AS kind, CAST"*"'day'"*"'label' AS kind"*) cat <<'END'
{"kind":"service","value":"small","n":3}
{"kind":"service","value":"o'shop","n":30}
{"kind":"day","value":"2026-01-30","n":3}
{"kind":"day","value":"2026-01-31","n":30}
{"kind":"label","value":"label_version","n":0}
{"kind":"label","value":"label_host","n":0}
{"kind":"label","value":"label_\" OR 1","n":0}
END
  ;;
  *"'samples' AS kind"*) cat <<'END'
{"kind":"samples","value":"all","n":33}
{"kind":"day","value":"2026-01-31","n":33}
{"kind":"event","value":"jdk.ExecutionSample","n":33}
{"kind":"0","value":"h1","n":1}
{"kind":"0","n":32}
{"kind":"7","value":"nobody","n":32}
END
  ;;
  *) echo '{"kind":"label","value":"label_host","n":0}' ;;
esac"#,
    );
    let stored = bench.stored();
    let whole = serde_json::to_value(stored.whole().await.unwrap()).unwrap();
    assert_eq!(
        whole,
        serde_json::json!({
            "services": [{"value": "o'shop", "samples": 30}, {"value": "small", "samples": 3}],
            "days": [{"value": "2026-01-31", "samples": 30}, {"value": "2026-01-30", "samples": 3}],
            "labels": ["host", "version"],
        })
    );
    let mut filter = Filter::default();
    for (name, value) in [("service", "o'shop"), ("label", "host=h'1"), ("from", "1000")] {
        filter.take(name, value).unwrap();
    }
    let part = serde_json::to_value(stored.part(&filter).await.unwrap()).unwrap();
    assert_eq!(part["samples"], 33);
    assert_eq!(
        part["labels"],
        serde_json::json!([{"key": "host", "more": false,
            "values": [{"value": null, "samples": 32}, {"value": "h1", "samples": 1}]}])
    );
    let asked = bench.file("asked");
    let asked = asked.lines().last().unwrap();
    // The alternatives of a label ignore its own filter; those of days ignore the time range.
    let of_label = asked.split("UNION ALL").find(|part| part.contains("SELECT label_host")).unwrap();
    assert!(
        of_label.contains("service = 'o''shop' AND day >= '1970-01-01'") && !of_label.contains("h''1"),
        "{of_label}"
    );
    let of_day = asked.split("UNION ALL").find(|part| part.contains("SELECT day")).unwrap();
    assert!(of_day.contains("label_host = 'h''1'") && !of_day.contains("1970"), "{of_day}");
}
