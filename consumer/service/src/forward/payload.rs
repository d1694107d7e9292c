//! Converts recordings to the receivers' formats.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::FileExt;

use flightline_consumer::live::{Feed, Item as Read, Kind as Of, Options};
use flightline_consumer::model::Unit;
use flightline_export::send::{Form, Request, Sender, Signal};
use flightline_export::{Attributes, Collector, otlp};

use super::Kind;
use super::queue::{Content, Item};
use crate::ingest::{App, Push, push};
use crate::wire::Labels;

/// Read size in bytes.
const READ: usize = 256 << 10;
/// Maximum bytes of one chunk that may be buffered because its constants follow its events.
const MOST_KEPT: u64 = 64 << 20;
/// Number of samples at which a message is sent.
const MANY: usize = 50_000;

/// Sends a recording. Blocks while the sender's queue is full.
pub(super) fn send(item: &Item, kind: Kind, most: usize, sender: &Sender) -> Result<(), String> {
    match kind {
        Kind::Pyroscope => {
            let jfr = whole(item).map_err(|error| format!("its recording cannot be read: {error}"))?;
            let made = push(&app(item), item.from, item.until, rate(&jfr), &jfr);
            let Push { query, content_type, body } = made.map_err(|error| error.to_string())?;
            sender.put(Request { signal: Signal::Recording(Form { query, content_type }), body, count: 1 });
        }
        Kind::Otlp => {
            profiles(item, most, sender).map_err(|error| format!("its recording cannot be read: {error}"))?
        }
    }
    Ok(())
}

fn whole(item: &Item) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    each(item, |piece| {
        all.extend_from_slice(piece);
        true
    })?;
    Ok(all)
}

/// Passes a recording to `take` piece by piece, until it returns false.
fn each(item: &Item, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    match &item.content {
        Content::Bytes(bytes) => {
            bytes.chunks(READ).all(take);
            Ok(())
        }
        Content::File(file) => {
            let (mut buffer, mut at) = (vec![0; READ], 0);
            loop {
                let read = match file.read_at(&mut buffer, at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                };
                if read == 0 || !take(buffer.get(..read).unwrap_or_default()) {
                    return Ok(());
                }
                at += read as u64;
            }
        }
    }
}

fn profiles(item: &Item, most: usize, sender: &Sender) -> io::Result<()> {
    let mut feed = Feed::new(Options { memory: MOST_KEPT, ..Options::default() });
    let mut collector = Collector::new(attributes(item));
    let hand_over = |collector: &mut Collector, last: bool| {
        let batch = if last { collector.finish() } else { collector.cut() };
        let Ok(()) = otlp::parts(&batch, most, |body, _| -> Result<(), Infallible> {
            sender.put(Request { signal: Signal::Profiles, body, count: 1 });
            Ok(())
        });
    };
    let take = |feed: &mut Feed, collector: &mut Collector| {
        while let Some(read) = feed.next() {
            collector.take(&read);
            if collector.len() >= MANY {
                hand_over(collector, false);
            }
        }
    };
    each(item, |piece| {
        feed.push(piece);
        take(&mut feed, &mut collector);
        true
    })?;
    feed.close();
    take(&mut feed, &mut collector);
    hand_over(&mut collector, true);
    Ok(())
}

/// Returns samples per second, the unit in which Pyroscope expects the rate: of CPU samples, or of wall-clock
/// samples if there are none.
fn rate(jfr: &[u8]) -> Option<u32> {
    let mut feed = Feed::new(Options { memory: MOST_KEPT, ..Options::default() });
    let mut other = None;
    let mut of = |feed: &mut Feed| {
        while let Some(read) = feed.next() {
            let Read::Sample(sample) = read else { continue };
            let one = sample.weight.value.checked_div(sample.weight.samples).filter(|&one| one > 0);
            let Some(one) = one.filter(|_| sample.weight.unit == Unit::Nanoseconds) else { continue };
            match sample.kind {
                Of::Cpu => return Some(one),
                Of::Wall => other = other.or(Some(one)),
                _ => {}
            }
        }
        None
    };
    let mut period = None;
    for piece in jfr.chunks(READ) {
        feed.push(piece);
        period = of(&mut feed);
        if period.is_some() {
            break;
        }
    }
    if period.is_none() {
        feed.close();
        period = of(&mut feed);
    }
    let period = period.or(other)?;
    u32::try_from((1_000_000_000 + period / 2) / period).ok().filter(|&rate| rate > 0)
}

/// Merges the labels of the target, its host and the run.
fn labels(item: &Item) -> Labels {
    let mut labels = item.of.labels.clone();
    if !item.of.host.is_empty() {
        labels.entry("host".into()).or_insert_with(|| item.of.host.clone());
    }
    labels.extend(item.labels.clone());
    labels
}

/// Name and labels for Pyroscope. The name is the label `service`, if present.
fn app(item: &Item) -> App {
    let all = labels(item);
    let names = ["service_name", "service.name", "service"];
    let name = names.iter().find_map(|name| all.get(*name)).filter(|name| !name.is_empty());
    let plain = |key: &str| -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() || "_.".contains(c) { c } else { '_' };
        let key: String = key.chars().map(letter).collect();
        if key.starts_with(|c: char| c.is_ascii_digit()) { format!("_{key}") } else { key }
    };
    let others = all.iter().filter(|(key, _)| !names.contains(&key.as_str()));
    App {
        name: name.unwrap_or(&item.of.name).clone(),
        labels: others.map(|(key, value)| (plain(key), value.clone())).collect(),
    }
}

/// Resource attributes for OpenTelemetry.
fn attributes(item: &Item) -> Attributes {
    let named = |key: String| match key.as_str() {
        "service" | "service_name" => "service.name".to_owned(),
        "version" => "service.version".to_owned(),
        "host" => "host.name".to_owned(),
        _ => key,
    };
    labels(item).into_iter().map(|(key, value)| (named(key), value)).collect()
}
