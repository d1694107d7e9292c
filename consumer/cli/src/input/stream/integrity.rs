//! Loss and damage in a stream.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;
use flightline_consumer::warnings::Warnings;
use jfr_format::event::EventRef;
use jfr_format::read::{Decoder, Delivery, Filter, Item};
use serde_json::{Value, json};

use crate::diagnostics::count;

/// Events that report losses.
pub const LOSSES: [&str; 4] =
    ["flightline.SampleLoss", "flightline.EventLoss", "flightline.StreamLoss", "jdk.DataLoss"];
/// Maximum number of causes; a malicious stream may name any number.
const MOST: usize = 1000;

/// One kind of loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The event that reported it.
    pub told_by: String,
    /// The cause.
    pub cause: String,
    /// The lost event type or engine, if known.
    pub of: String,
}

/// Amount of a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Samples or events.
    pub events: u64,
    /// CPU time that they represent, in ns.
    pub cpu: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Decodes a stream to find losses and damage, in addition to its main use.
pub struct IntegrityCheck {
    decoder: Decoder,
    /// Losses by kind.
    pub losses: BTreeMap<Loss, Amount>,
    /// Warnings about unreadable data.
    pub warnings: Warnings,
}

impl Default for IntegrityCheck {
    fn default() -> Self {
        Self { decoder: decoder(), losses: BTreeMap::new(), warnings: Warnings::default() }
    }
}

fn decoder() -> Decoder {
    let mut decoder = Decoder::new(Delivery::Streaming);
    decoder.set_filter(|class| if LOSSES.contains(&&*class.name) { Filter::Constants } else { Filter::Skip });
    decoder
}

impl IntegrityCheck {
    /// Processes more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(Bytes::copy_from_slice(bytes));
        self.take();
    }

    /// Ends the stream; another one may follow.
    pub fn cut(&mut self) {
        self.decoder.close();
        self.take();
        self.decoder = decoder();
    }

    fn take(&mut self) {
        while let Some(item) = self.decoder.next() {
            match item {
                Item::Events(batch) => {
                    for event in batch.events() {
                        if let Some((loss, amount)) = loss(&event)
                            && (self.losses.len() < MOST || self.losses.contains_key(&loss))
                        {
                            let sum = self.losses.entry(loss).or_default();
                            sum.events = sum.events.saturating_add(amount.events);
                            sum.cpu = sum.cpu.saturating_add(amount.cpu);
                            sum.bytes = sum.bytes.saturating_add(amount.bytes);
                        }
                    }
                }
                Item::Warning(warning) => self.warnings.push(warning),
                Item::ChunkStart(_) | Item::ChunkEnd(_) => {}
            }
        }
    }

    /// Formats the losses by cause: `12 events of jdk.ExecutionSample (reader behind)`.
    pub fn messages(&self) -> Vec<String> {
        let mut causes: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
        for (loss, amount) in self.losses.iter().filter(|(_, amount)| amount.events > 0) {
            causes.entry(&loss.cause).or_default().push((&loss.of, amount.events));
        }
        let of_cause = |(cause, mut of): (&str, Vec<(&str, u64)>)| {
            of.sort_by_key(|(_, events)| Reverse(*events));
            let events = of.iter().fold(0u64, |sum, (_, events)| sum.saturating_add(*events));
            let most = of.first().map_or("", |(of, _)| of);
            let most = if most.is_empty() { "unknown type" } else { most };
            // A reader that connects late loses events of every type.
            let types = if of.len() > 1 { format!("{} types, mostly {most}", of.len()) } else { most.into() };
            format!("{} of {types} ({cause})", count(events, "event"))
        };
        let mut told: Vec<String> = causes.into_iter().map(of_cause).collect();
        // The JDK counts bytes; if events were reported, these are the same data.
        if told.is_empty() {
            let bytes = self.losses.values().fold(0u64, |sum, amount| sum.saturating_add(amount.bytes));
            told.extend((bytes > 0).then(|| count(bytes, "byte")));
        }
        told
    }

    /// Returns the losses as JSON.
    pub fn json(&self) -> Value {
        self.losses.iter().map(|(loss, amount)| loss_json(loss, amount)).collect()
    }
}

/// Returns a loss as JSON.
pub fn loss_json(loss: &Loss, amount: &Amount) -> Value {
    json!({
        "toldBy": loss.told_by, "cause": loss.cause, "of": loss.of,
        "events": amount.events, "cpuNanos": amount.cpu, "bytes": amount.bytes,
    })
}

/// Returns the loss that an event reports.
pub fn loss(event: &EventRef<'_>) -> Option<(Loss, Amount)> {
    let name = &*event.class().name;
    if !LOSSES.contains(&name) {
        return None;
    }
    let number = |name: &str| {
        let value = event.field(name).ok().flatten().and_then(|v| v.as_i64());
        value.and_then(|v| u64::try_from(v).ok()).unwrap_or(0)
    };
    let text = |name: &str| {
        let value = event.field(name).ok().flatten().and_then(|v| v.text().ok().flatten());
        value.map(|t| t.chars().take(200).collect::<String>()).unwrap_or_default()
    };
    let told_by = name.to_owned();
    Some(match name {
        "flightline.SampleLoss" => {
            let amount = Amount { events: number("samples"), cpu: number("cpuTime"), bytes: 0 };
            (Loss { told_by, cause: text("cause"), of: "jdk.ExecutionSample".to_owned() }, amount)
        }
        "flightline.EventLoss" => {
            let amount = Amount { events: number("count"), ..Amount::default() };
            (Loss { told_by, cause: "no room".to_owned(), of: text("event") }, amount)
        }
        "flightline.StreamLoss" => {
            let amount = Amount { events: number("events"), cpu: 0, bytes: number("bytes") };
            (Loss { told_by, cause: text("cause"), of: text("eventType") }, amount)
        }
        _ => {
            let amount = Amount { bytes: number("amount"), ..Amount::default() };
            (Loss { told_by, cause: "data loss".to_owned(), of: String::new() }, amount)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_losses_are_not_reported() {
        let mut integrity = IntegrityCheck::default();
        let mut lose = |told_by: &str, cause: &str, of: &str, events, bytes| {
            let loss = Loss { told_by: told_by.into(), cause: cause.into(), of: of.into() };
            integrity.losses.insert(loss, Amount { events, cpu: 0, bytes });
            integrity.messages()
        };
        assert!(lose("jdk.DataLoss", "data loss", "", 0, 0).is_empty());
        assert_eq!(lose("jdk.DataLoss", "data loss", "", 0, 700), ["700 bytes"]);
        assert_eq!(
            lose("flightline.StreamLoss", "reader behind", "jdk.FileRead", 1, 700),
            ["1 event of jdk.FileRead (reader behind)"]
        );
        assert_eq!(
            lose("flightline.StreamLoss", "reader behind", "jdk.FileWrite", 3, 7),
            ["4 events of 2 types, mostly jdk.FileWrite (reader behind)"]
        );
    }
}
