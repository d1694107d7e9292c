//! The process context (OTEP 4719) that a recorded process has published: the names of label keys in another
//! tracer's thread contexts.
//!
//! ```text
//! mapping named OTEL_CTX: signature[8] version u32 payload_size u32 published_at_ns u64 payload *const u8 ─▶ ProcessContext
//! ```
//! There is no notification when it appears or changes, so it is polled while contexts have unnamed keys:
//! first the whole map of the process until one is found, then the 32 bytes of its header.
//!
//! The contents are not trusted, and are read at most once per second.

use std::fs;

use flightline_in_signal::os::sys;
use prost::Message;

use crate::names::modules;

/// Time between two checks.
const LOOK_NS: u64 = 1_000_000_000;
const SIGNATURE: &[u8; 8] = b"OTEL_CTX";
/// Limit of a payload, bytes.
const MOST_BYTES: usize = 64 << 10;
/// Number of keys that a record can reference.
const MOST_KEYS: usize = 256;
/// Limit of mappings with this name that are examined.
const MOST_MAPPINGS: usize = 4;
const KEY_MAP: &str = "threadlocal.attribute_key_map";
const HEAD: usize = 32;

/// The required parts of `opentelemetry.proto.common.v1.ProcessContext`.
#[derive(Clone, PartialEq, Message)]
struct ProcessContext {
    #[prost(message, repeated, tag = "2")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(message, optional, tag = "5")]
    list: Option<ArrayValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

/// The names of keys as last published.
#[derive(Default)]
pub(super) struct Published {
    names: Vec<String>,
    /// Address of the header, and its publication time; 0: none was found.
    at: u64,
    stamp: u64,
    checked_ns: u64,
}

impl Published {
    /// Returns the name of the key with this index.
    pub fn name(&self, index: u8) -> Option<&str> {
        self.names.get(usize::from(index)).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Reads the names again if it is due. Returns true if they changed.
    pub fn look(&mut self, pid: u32, now_ns: u64) -> bool {
        if self.checked_ns != 0 && now_ns.saturating_sub(self.checked_ns) < LOOK_NS {
            return false;
        }
        self.checked_ns = now_ns.max(1);
        let head = if self.at == 0 { None } else { Head::read(pid, self.at) };
        if head.as_ref().is_some_and(|head| head.stamp == self.stamp) {
            return false;
        }
        let found = fs::read_to_string(format!("/proc/{pid}/maps")).ok().and_then(|maps| best(pid, &maps));
        let Some((at, stamp, names)) = found else { return false };
        (self.at, self.stamp) = (at, stamp);
        let changed = self.names != names;
        self.names = names;
        changed
    }
}

/// Returns header address, timestamp and names of the process context that other tracers' records use.
fn best(pid: u32, maps: &str) -> Option<(u64, u64, Vec<String>)> {
    let named = |line: &modules::Line<'_>| {
        let path = line.path.strip_suffix(" (deleted)").unwrap_or(line.path);
        matches!(path, "[anon:OTEL_CTX]" | "[anon_shmem:OTEL_CTX]" | "/memfd:OTEL_CTX")
    };
    let found =
        maps.lines().filter_map(modules::parse).filter(named).take(MOST_MAPPINGS).filter_map(|line| {
            let head = Head::read(pid, line.start)?;
            let names = head.names(pid, line.start)?;
            // Our own library stores its payload in the mapping itself; contexts of other libraries belong to
            // other records.
            let ours = (line.start..line.end).contains(&head.payload);
            Some(((!ours, head.stamp), line.start, names))
        });
    found.max_by_key(|(rank, ..)| *rank).map(|((_, stamp), at, names)| (at, stamp, names))
}

struct Head {
    stamp: u64,
    size: usize,
    payload: u64,
}

impl Head {
    /// Reads a context that is published and not being changed.
    fn read(pid: u32, at: u64) -> Option<Head> {
        let bytes = read(pid, at, HEAD)?;
        let word = |from: usize| Some(u64::from_le_bytes(*bytes.get(from..)?.first_chunk()?));
        let size = (word(8)? >> 32) as usize;
        let head = Head { stamp: word(16)?, size, payload: word(24)? };
        (bytes.starts_with(SIGNATURE) && head.stamp != 0 && size <= MOST_BYTES).then_some(head)
    }

    /// Returns the names of its keys; `None` if it was changed in the meantime, or is not a process context
    /// with keys.
    fn names(&self, pid: u32, at: u64) -> Option<Vec<String>> {
        let payload = read(pid, self.payload, self.size)?;
        let same = Head::read(pid, at)?;
        if same.stamp != self.stamp || same.payload != self.payload {
            return None;
        }
        names(&payload)
    }
}

fn names(payload: &[u8]) -> Option<Vec<String>> {
    let context = ProcessContext::decode(payload).ok()?;
    let map = context.attributes.into_iter().rev().find(|attribute| attribute.key == KEY_MAP)?;
    let keys = map.value?.list?.values.into_iter().take(MOST_KEYS);
    Some(keys.map(|key| key.text.unwrap_or_default()).collect())
}

fn read(pid: u32, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    // SAFETY: the vector is as long as the given size.
    let got = unsafe { sys::read_process(pid, at, bytes.as_mut_ptr(), len) };
    (got == len).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(keys: &[&str]) -> Vec<u8> {
        let text = |text: &str| AnyValue { text: Some(text.to_owned()), list: None };
        let list = ArrayValue { values: keys.iter().map(|key| text(key)).collect() };
        let value = Some(AnyValue { text: None, list: Some(list) });
        let attributes = vec![
            KeyValue { key: "threadlocal.schema_version".into(), value: Some(text("tlsdesc_v1_dev")) },
            KeyValue { key: KEY_MAP.into(), value },
        ];
        ProcessContext { attributes }.encode_to_vec()
    }

    #[repr(C)]
    struct Mapped {
        signature: [u8; 8],
        version: u32,
        size: u32,
        stamp: u64,
        payload: *const u8,
    }

    fn mapped(payload: &[u8]) -> Box<Mapped> {
        let (size, payload) = (payload.len() as u32, payload.as_ptr());
        Box::new(Mapped { signature: *SIGNATURE, version: 2, size, stamp: 7, payload })
    }

    fn maps(heads: &[(&Mapped, &str)]) -> String {
        let line = |(head, name): &(&Mapped, &str)| {
            let at = &raw const **head as u64;
            format!("{at:x}-{:x} rw-p 00000000 00:00 0    {name}\n", at + HEAD as u64)
        };
        heads.iter().map(line).collect()
    }

    #[test]
    fn names_are_from_the_last_publication() {
        let (first, second) = (payload(&["root", "path"]), payload(&["root", "tenant", ""]));
        let (old, mut new) = (mapped(&first), mapped(&second));
        new.stamp = 8;
        let pid = std::process::id();
        let named = [(&*old, "[anon:OTEL_CTX]"), (&*new, "/memfd:OTEL_CTX (deleted)")];
        let (at, stamp, names) = best(pid, &maps(&named)).unwrap();
        assert_eq!(
            (at, stamp, &names[..]),
            (&raw const *new as u64, 8, &["root", "tenant", ""].map(String::from)[..])
        );
        let published = Published { names, ..Published::default() };
        assert_eq!([0, 1, 2, 3].map(|i| published.name(i)), [Some("root"), Some("tenant"), None, None]);
        // A context that is being changed, has another name, an invalid address, or too large a size.
        let alone = |head: &Mapped, name| best(pid, &maps(&[(head, name)]));
        assert!(alone(&new, "[anon_shmem:OTEL_CTX]").is_some() && alone(&new, "[anon:OTEL_CTX_2]").is_none());
        new.stamp = 0;
        assert_eq!(alone(&new, "[anon:OTEL_CTX]"), None);
        (new.stamp, new.size) = (9, u32::MAX);
        assert_eq!(alone(&new, "[anon:OTEL_CTX]"), None);
        (new.size, new.payload) = (10, 8 as *const u8);
        assert_eq!(alone(&new, "[anon:OTEL_CTX]"), None);
    }

    #[test]
    fn malformed_payloads_do_not_panic() {
        let whole = payload(&["a", "b"]);
        assert_eq!(names(&whole), Some(vec!["a".to_owned(), "b".to_owned()]));
        for cut in 0..whole.len() {
            let _ = names(&whole[..cut]);
            let mut wrong = whole.clone();
            wrong[cut] ^= 0xff;
            let _ = names(&wrong);
        }
        assert_eq!(names(b""), None);
        let many: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(names(&payload(&many)).unwrap().len(), MOST_KEYS);
    }
}
