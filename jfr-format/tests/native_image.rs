//! Recordings in the form of a GraalVM native image, by its documented differences from HotSpot: sizes and
//! numbers of pools are padded to four bytes, and a separate type marks the checkpoints of threads. An
//! emergency dump is patched but never finished: its state is not 0. No such recording was available, so
//! other recordings are rewritten in this form.

use crate::dump;

use dump::{Dump, fixtures, name};
use jfr_format::read::Delivery;

const HEADER: usize = 68;

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for i in 0..9 {
        let byte = bytes[*at];
        *at += 1;
        // The ninth byte has all eight bits.
        let bits = if i == 8 { byte } else { byte & 0x7f };
        value |= u64::from(bits) << (7 * i);
        if i == 8 || byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    for _ in 0..8 {
        if value < 0x80 {
            return out.push(value as u8);
        }
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Encodes `value` in four bytes.
fn padded(value: usize) -> [u8; 4] {
    assert!(value < 1 << 28);
    [0, 1, 2, 3].map(|i| (value >> (7 * i)) as u8 & 0x7f | if i < 3 { 0x80 } else { 0 })
}

fn be_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Rewrites one finished chunk in the other form.
fn rewritten(chunk: &[u8], state: u8) -> Vec<u8> {
    let mut out = chunk[..HEADER].to_vec();
    let (mut metadata, mut last_checkpoint) = (0, None);
    let mut at = HEADER;
    while at < chunk.len() {
        let start = at;
        let size = varint(chunk, &mut at) as usize;
        let end = start + size;
        let mut body = at;
        let kind = varint(chunk, &mut body);
        let mut event = Vec::new();
        if kind == 1 {
            push_varint(kind, &mut event);
            for _ in 0..2 {
                push_varint(varint(chunk, &mut body), &mut event);
            }
            varint(chunk, &mut body);
            let delta = last_checkpoint.map_or(0, |last| last as i64 - out.len() as i64);
            push_varint(delta.cast_unsigned(), &mut event);
            // Threads.
            event.push(8);
            body += 1;
            event.extend(padded(varint(chunk, &mut body) as usize));
            event.extend(&chunk[body..end]);
            last_checkpoint = Some(out.len());
        } else {
            if kind == 0 {
                metadata = out.len();
            }
            event.extend(&chunk[at..end]);
        }
        out.extend(padded(event.len() + 4));
        out.extend(event);
        at = end;
    }
    let patched = [out.len(), last_checkpoint.unwrap(), metadata];
    for (at, value) in [8, 16, 24].into_iter().zip(patched) {
        out[at..at + 8].copy_from_slice(&(value as u64).to_be_bytes());
    }
    out[64] = state;
    out
}

/// Rewrites all chunks of a recording; `None` if it has unfinished ones.
fn native(recording: &[u8], state: u8) -> Option<Vec<u8>> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < recording.len() {
        let chunk = &recording[at..];
        let size = usize::try_from(be_u64(chunk, 8)).ok()?;
        if chunk[64] != 0 || size > chunk.len() || be_u64(chunk, 16) == 0 {
            return None;
        }
        at += size;
        // Only the last chunk was left unfinished.
        let state = if at == recording.len() { state } else { 0 };
        out.extend(rewritten(&chunk[..size], state));
    }
    Some(out)
}

/// Events have other offsets.
fn without_offsets(dump: &Dump) -> impl Iterator<Item = &str> {
    dump.events.iter().map(|event| event.split_once(' ').unwrap().1)
}

#[test]
fn native_image_format_yields_equal_events() {
    let mut compared = 0;
    for path in fixtures("recordings") {
        let recording = std::fs::read(&path).unwrap();
        if recording.len() > 300_000 {
            continue;
        }
        for state in [0, 3] {
            let Some(native) = native(&recording, state) else { continue };
            assert_ne!(native, recording);
            let expected = Dump::of(&[&recording], Delivery::WholeChunks);
            let seen = Dump::of(&[&native], Delivery::WholeChunks);
            assert!(expected.events.len() > 10);
            let differing = without_offsets(&seen).zip(without_offsets(&expected)).find(|(a, b)| a != b);
            assert_eq!(differing, None, "{}, state {state}: {:?}", name(&path), seen.warnings);
            assert_eq!(seen.events.len(), expected.events.len(), "{}, state {state}", name(&path));
            compared += 1;
        }
    }
    assert!(compared > 12, "{compared} recordings");
}
