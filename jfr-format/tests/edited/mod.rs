//! Checks of edited recordings for any input, used by the tests and by fuzzing.

use std::collections::BTreeMap;

use bytes::Bytes;
use jfr_format::edit::{self, Decision, Options, Part, Redact, Redaction, Scope, Source};
use jfr_format::error::{ErrorKind, Nonconformance};
use jfr_format::event::{EventRef, Value};
use jfr_format::read::{Class, Field, Input, Item};

/// Events by type name.
pub type Counts = BTreeMap<String, u64>;

/// Reads a result, which must cause no warning, except that a sound chunk may contain duplicate or undeclared
/// items.
pub fn sound(bytes: &Bytes, what: &str, each: &mut dyn FnMut(&EventRef<'_>)) -> Counts {
    let mut counts = Counts::new();
    let mut input = Input::bytes(bytes.clone());
    while let Some(item) = input.next().expect("memory does not fail") {
        match item {
            Item::Warning(warning) => {
                let content = matches!(
                    warning.kind(),
                    ErrorKind::UnknownEvents { .. }
                        | ErrorKind::UnknownTypes { .. }
                        | ErrorKind::Nonconformance(
                            Nonconformance::Redeclared { .. } | Nonconformance::Redefined { .. }
                        )
                );
                assert!(content || bytes.is_empty(), "{what}: {warning}");
            }
            Item::Events(batch) => {
                for event in batch.events() {
                    *counts.entry(event.class().name.to_string()).or_default() += 1;
                    each(&event);
                }
            }
            Item::ChunkStart(_) | Item::ChunkEnd(_) => {}
        }
    }
    counts
}

/// Repairs, and checks that a second repair changes nothing.
pub fn repair(bytes: &Bytes, what: &str) -> Bytes {
    let once = repaired(bytes);
    // Up to four chunks, and more up to the size of the input, may get metadata from another one.
    assert!(once.len() <= 7 * bytes.len() + 4096, "{what}: {} bytes of {}", once.len(), bytes.len());
    assert_eq!(repaired(&once), once, "{what}: repairing again changes it");
    sound(&once, what, &mut |_| {});
    once
}

fn repaired(bytes: &Bytes) -> Bytes {
    let mut out = Vec::new();
    edit::repair(&Source::from(bytes.clone()), &Options::default(), &mut out).expect("memory does not fail");
    out.into()
}

/// Drops the events whose type ids are not divisible by `keep`; all others must be retained.
pub fn scrub(bytes: &Bytes, keep: u64, what: &str) {
    let mut retained = Counts::new();
    let mut decide = |event: &EventRef<'_>| {
        if !event.class().id.is_multiple_of(keep.max(1)) {
            return Decision::Drop;
        }
        *retained.entry(event.class().name.to_string()).or_default() += 1;
        Decision::Keep
    };
    let mut out = Vec::new();
    edit::filter(&Source::from(bytes.clone()), Scope::default(), &mut decide, &mut out)
        .expect("memory does not fail");
    assert_eq!(sound(&out.into(), what, &mut |_| {}), retained, "{what}: scrub");
}

/// Cuts the range `from..to`; every event in the result must have been selected.
pub fn cut(bytes: &Bytes, from: i64, to: i64, what: &str) {
    let source = Source::from(bytes.clone());
    let Some((start, end)) = edit::time_range(&source) else { return };
    let (from, to) = (start.saturating_add(from), end.saturating_sub(to));
    let wanted = |event: &EventRef<'_>| event.start_nanos().is_some_and(|at| (from..to).contains(&at));
    let mut retained = 0;
    let mut decide = |event: &EventRef<'_>| {
        let wanted = wanted(event);
        retained += u64::from(wanted);
        if wanted { Decision::Keep } else { Decision::Drop }
    };
    let scope = Scope { range: Some((from, to)), ..Scope::default() };
    let mut out = Vec::new();
    edit::filter(&source, scope, &mut decide, &mut out).expect("memory does not fail");
    let counts = sound(&out.into(), what, &mut |_| {});
    assert_eq!(counts.values().sum::<u64>(), retained, "{what}: cut {from}..{to}");
}

/// Replaces all text of events; the result must be null or the mark, and no event may be lost.
pub fn redact(bytes: &Bytes, what: &str) {
    const MARK: &str = "gone";
    // A damaged super type turns other types into event types.
    let fields = |class: &Class, _: &Field| {
        if class.name.starts_with("jdk.types.") { Redact::Keep } else { Redact::All }
    };
    let redaction = Redaction { mark: MARK, fields: &fields, secrets: |_, _, _| None };
    let scope = Scope { redaction: Some(redaction), ..Scope::default() };
    let (mut out, mut before) = (Vec::new(), Counts::new());
    let mut decide = |event: &EventRef<'_>| {
        *before.entry(event.class().name.to_string()).or_default() += 1;
        Decision::Keep
    };
    edit::filter(&Source::from(bytes.clone()), scope, &mut decide, &mut out).expect("memory does not fail");
    let mut check = |event: &EventRef<'_>| {
        if event.class().name.starts_with("jdk.types.") {
            return;
        }
        for (field, value) in event.fields().iter().filter_map(Result::ok) {
            if let Value::Text(text) = value {
                assert_eq!(text.to_str(), MARK, "{what}: {}.{}", event.class().name, field.name);
            }
        }
    };
    assert_eq!(sound(&out.into(), what, &mut check), before, "{what}: redact");
}

/// Joins repaired recordings with and without new ids: all events must be in the result.
pub fn assemble(parts: [&Bytes; 2], what: &str) {
    let parts: Vec<Bytes> = parts.iter().map(|part| repaired(part)).filter(|part| !part.is_empty()).collect();
    let mut all = Counts::new();
    for part in &parts {
        for (name, count) in sound(part, what, &mut |_| {}) {
            *all.entry(name).or_default() += count;
        }
    }
    for rebase in [false, true] {
        let part = |bytes: &Bytes| Part { name: String::new(), source: bytes.clone().into() };
        let parts: Vec<Part> = parts.iter().map(part).collect();
        let mut out = Vec::new();
        edit::assemble(&parts, rebase, &mut out).expect("memory does not fail");
        let counts = sound(&out.into(), what, &mut |_| {});
        assert_eq!(counts, all, "{what}: assemble, rebase {rebase}");
    }
}

/// Replaces every text of events with an even length, and returns their number. The others must not change.
pub fn redact_secrets(bytes: &Bytes, what: &str) -> u64 {
    fn secrets(_: Option<&str>, text: &str, mark: &str) -> Option<String> {
        (!text.is_empty() && text.len().is_multiple_of(2)).then(|| format!("{mark}{}", text.len()))
    }
    let is_event = |class: &Class| class.is_event() && !class.name.starts_with("jdk.types.");
    let mut replaced = 0;
    let mut texts = |bytes: &Bytes, expect: bool| {
        let mut found = Vec::new();
        sound(bytes, what, &mut |event| {
            for (field, value) in event.fields().iter().filter_map(Result::ok) {
                let Value::Text(text) = value else { continue };
                let new = secrets(None, &text.to_str(), "gone")
                    .filter(|_| expect && !field.pooled && is_event(event.class()));
                replaced += u64::from(new.is_some());
                let text = new.unwrap_or_else(|| text.to_str().into_owned());
                found.push((event.class().name.to_string(), field.name.to_string(), text));
            }
        });
        found.sort();
        found
    };
    let fields = |class: &Class, field: &Field| match is_event(class) && !field.pooled {
        true => Redact::Secrets,
        false => Redact::Keep,
    };
    let redaction = Redaction { mark: "gone", fields: &fields, secrets };
    let scope = Scope { redaction: Some(redaction), ..Scope::default() };
    let repaired = repaired(bytes);
    let mut out = Vec::new();
    edit::filter(&Source::from(repaired.clone()), scope, &mut |_| Decision::Keep, &mut out)
        .expect("memory does not fail");
    let (before, after) = (texts(&repaired, true), texts(&out.into(), false));
    assert_eq!(before, after, "{what}: secrets");
    replaced
}
