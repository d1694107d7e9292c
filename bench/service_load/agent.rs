//! A simulated agent: polls for commands, sends a chunk every ten seconds, and executes runs.

use std::io::Result;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until};

use crate::chunk::{Random, chunk};
use crate::client::Client;
use crate::figures::{Kind, Load};

/// The interval between chunks.
const EVERY: Duration = Duration::from_secs(10);
/// The time for which the service holds a poll open: a little less than a heartbeat of 5 s.
const WAIT: Duration = Duration::from_millis(4500);

/// Registers agent `number` with the service. Returns its target and secret.
pub async fn join(load: &Load, number: u64) -> Result<(String, String)> {
    let modes: Vec<Value> =
        ["CPU", "ITIMER", "WALL", "OFF_CPU"].map(|mode| json!({"mode": mode, "available": true})).to_vec();
    let hello = json!({"protocol": 1, "key": format!("host-{}/boot/{number}/{number}", number % 100),
        "name": format!("service-{number}"), "host": format!("host-{}", number % 100), "pid": 1000 + number,
        "startTime": utc(), "labels": {"service": format!("s{}", number % 50), "version": "1.2.3"}, "modes": modes});
    let mut client = Client::new(load.address, "");
    let began = Instant::now();
    let answer = client.tell("POST", "/v1/agents", &hello).await?;
    load.took(Kind::Join, began.elapsed(), answer.status == 200);
    let welcome = answer.json();
    let word = |name: &str| welcome[name].as_str().unwrap_or_default().to_owned();
    Ok((word("target"), word("secret")))
}

/// Polls for commands until the load ends.
pub async fn poll(load: Arc<Load>, number: u64, target: String, secret: String) {
    let mut client = Client::new(load.address, &secret);
    let mut after = 0;
    while !load.is_over() {
        let began = Instant::now();
        let asked = client.ask("GET", &format!("/v1/agents/{target}/commands?after={after}"), b"").await;
        let Ok(answer) = asked else {
            load.took(Kind::Poll, Duration::ZERO, false);
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        let commands = answer.json();
        let commands = commands["commands"].as_array().map(Vec::as_slice).unwrap_or_default();
        if commands.is_empty() {
            // The latency beyond the intended wait.
            load.took(Kind::Poll, began.elapsed().saturating_sub(WAIT), answer.status == 200);
        }
        for command in commands {
            after = command["number"].as_u64().unwrap_or(after);
            if command["command"] == "start" {
                let run = command["run"].as_str().unwrap_or_default().to_owned();
                load.heard(&run);
                let duration = command["duration"].as_u64().unwrap_or(1);
                tokio::spawn(record(
                    Arc::clone(&load),
                    number,
                    target.clone(),
                    secret.clone(),
                    run,
                    duration,
                ));
            }
        }
    }
}

async fn record(load: Arc<Load>, number: u64, target: String, secret: String, run: String, duration: u64) {
    let mut client = Client::new(load.address, &secret);
    let path = format!("/v1/agents/{target}/runs/{run}");
    let started = client.tell("POST", &path, &json!({"state": "started"})).await;
    sleep(Duration::from_secs(duration)).await;
    let recording = chunk(number, utc()).unwrap_or_default();
    let began = Instant::now();
    let sent = client.ask("PUT", &format!("{path}/recording"), &recording).await;
    let good = |answer: Result<crate::client::Answer>| answer.is_ok_and(|answer| answer.status == 204);
    load.took(Kind::Recording, began.elapsed(), good(started) && good(sent));
}

/// Sends chunks until the load ends. Returns the sizes of the accepted chunks.
pub async fn stream(load: Arc<Load>, number: u64, target: String, secret: String) -> Vec<u64> {
    let mut client = Client::new(load.address, &secret);
    let mut random = Random(number.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
    let mut next =
        tokio::time::Instant::now() + Duration::from_millis(random.below(EVERY.as_millis() as u64));
    let mut taken = Vec::new();
    let path = format!("/v1/agents/{target}/chunks");
    loop {
        sleep_until(next).await;
        next += EVERY;
        if load.is_over() {
            return taken;
        }
        let Ok(bytes) = chunk(number, utc()) else { continue };
        let began = Instant::now();
        let sent = client.ask("POST", &path, &bytes).await;
        let good = sent.as_ref().is_ok_and(|answer| answer.status == 204);
        if let Ok(answer) = &sent
            && !good
        {
            load.say(format!("chunk {}: {}", answer.status, String::from_utf8_lossy(&answer.body)));
        }
        load.took(Kind::Chunk, began.elapsed(), good);
        if good {
            load.sent(bytes.len());
            taken.push(bytes.len() as u64);
        }
    }
}

/// Returns the time in UTC ms.
pub fn utc() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
