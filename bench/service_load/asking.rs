//! The clients of the service: they request lists, timelines, flame graphs of random intervals, comparisons and runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::agent::utc;
use crate::chunk::Random;
use crate::client::Client;
use crate::figures::{Kind, Load};

type Path = fn(&mut Random, &[String]) -> String;

/// Starts all clients; each has its own connection.
pub fn begin(load: &Arc<Load>, targets: &Arc<Vec<String>>) {
    let asked: [(u64, Kind, Path); 5] = [
        (1000, Kind::List, |_, _| "/v1/targets".into()),
        (1000, Kind::Timeline, |random, targets| format!("/v1/targets/{}/window", one(random, targets))),
        (1000, Kind::Picture, picture),
        (5000, Kind::Compare, compared),
        (5000, Kind::Metrics, |_, _| "/metrics".into()),
    ];
    for (every, kind, path) in asked {
        tokio::spawn(ask(Arc::clone(load), Arc::clone(targets), every, kind, path));
    }
    tokio::spawn(runs(Arc::clone(load), Arc::clone(targets)));
}

fn one<'a>(random: &mut Random, targets: &'a [String]) -> &'a str {
    &targets[random.below(targets.len() as u64) as usize]
}

/// Returns the path of a graph of half a minute of a target.
fn picture(random: &mut Random, targets: &[String]) -> String {
    let format = ["html", "folded", "pprof"][random.below(3) as usize];
    let to = utc() - random.below(10_000) as i64;
    let target = one(random, targets);
    format!("/v1/targets/{target}/window/files/{format}?from={}&to={to}", to - 30_000)
}

fn compared(random: &mut Random, targets: &[String]) -> String {
    let to = utc();
    let mut side = || format!("window:{}:{}:{to}", one(random, targets), to - 30_000);
    let (before, after) = (side(), side());
    format!("/v1/compare/html?before={before}&after={after}")
}

async fn ask(load: Arc<Load>, targets: Arc<Vec<String>>, every: u64, kind: Kind, path: Path) {
    let mut client = Client::new(load.address, "");
    let mut random = Random(0x9e37_79b9 + every + kind as u64);
    let mut beat = interval(Duration::from_millis(every));
    beat.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        beat.tick().await;
        let path = path(&mut random, &targets);
        let began = Instant::now();
        let answer = client.ask("GET", &path, b"").await;
        if load.is_over() {
            return;
        }
        let good = answer.as_ref().is_ok_and(|answer| answer.status == 200);
        if !good {
            let said = answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned());
            load.say(format!("{kind:?} {path}: {said:?}"));
        }
        load.took(kind, began.elapsed(), good);
    }
}

/// Starts a run of two seconds every five seconds, and follows it to its end.
async fn runs(load: Arc<Load>, targets: Arc<Vec<String>>) {
    let mut random = Random(77);
    let mut beat = interval(Duration::from_secs(5));
    loop {
        beat.tick().await;
        if load.is_over() {
            return;
        }
        tokio::spawn(run(Arc::clone(&load), one(&mut random, &targets).to_owned()));
    }
}

async fn run(load: Arc<Load>, target: String) {
    let mut client = Client::new(load.address, "");
    let began = Instant::now();
    let path = format!("/v1/targets/{target}/runs");
    let Ok(answer) = client.tell("POST", &path, &json!({"mode": "CPU", "duration": 2})).await else {
        return load.took(Kind::Create, began.elapsed(), false);
    };
    load.took(Kind::Create, began.elapsed(), answer.status == 202);
    let run = answer.json()["id"].as_str().unwrap_or_default().to_owned();
    load.asked(&run, began);
    for _ in 0..60 {
        sleep(Duration::from_millis(500)).await;
        let Ok(answer) = client.ask("GET", &format!("/v1/runs/{run}"), b"").await else { break };
        match answer.json()["status"].as_str() {
            Some("RUNNING") => {}
            status => {
                let good = status == Some("FINISHED");
                if !good {
                    load.say(format!("run: {}", String::from_utf8_lossy(&answer.body)));
                }
                // The latency beyond the two seconds of the recording.
                return load.took(Kind::Run, began.elapsed().saturating_sub(Duration::from_secs(2)), good);
            }
        }
    }
    load.took(Kind::Run, began.elapsed(), false);
}
