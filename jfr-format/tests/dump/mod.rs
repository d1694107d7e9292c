//! Prints every field of every event as text, for any driver of the decoder.

#![allow(dead_code)] // each test takes what it needs

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use jfr_format::event::{StructRef, Value};
use jfr_format::read::{Decoder, Delivery, Item, Recording};

/// Maximum number of references followed per event: enough to see every constant once, and a limit for
/// references that multiply.
const BUDGET: usize = 2_000;

/// The output of a decoder for some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dump {
    pub events: Vec<String>,
    pub warnings: Vec<String>,
    /// Size and completeness.
    pub chunks: Vec<(u64, bool)>,
    /// Offsets in warnings.
    pub offsets: Vec<u64>,
}

impl Dump {
    pub fn of(pieces: &[&[u8]], delivery: Delivery) -> Self {
        let mut dump = Self::default();
        let mut decoder = Decoder::new(delivery);
        for piece in pieces {
            decoder.push(Bytes::copy_from_slice(piece));
            dump.drain(&mut decoder);
        }
        decoder.close();
        dump.drain(&mut decoder);
        dump
    }

    /// Returns the output of `jobs` threads, piece by piece.
    pub fn parallel(bytes: &Bytes, delivery: Delivery, jobs: usize) -> Self {
        let mut all = Self::default();
        let decode = |decoder: &mut Decoder| {
            let mut dump = Self::default();
            dump.drain(decoder);
            dump
        };
        let outcome = Recording::bytes(bytes.clone()).run(delivery, jobs, decode, |dump| {
            all.append(dump);
            Ok::<(), std::convert::Infallible>(())
        });
        assert_eq!(outcome, Ok(()));
        all
    }

    fn append(&mut self, mut next: Self) {
        self.events.append(&mut next.events);
        self.warnings.append(&mut next.warnings);
        self.chunks.append(&mut next.chunks);
        self.offsets.append(&mut next.offsets);
    }

    pub fn drain(&mut self, decoder: &mut Decoder) {
        while let Some(item) = decoder.next() {
            match item {
                Item::ChunkStart(_) => {}
                Item::Events(batch) => {
                    for event in batch.events() {
                        let mut text = format!("{} {} ", event.offset(), event.class().name);
                        let mut budget = BUDGET;
                        record(&event.fields(), &mut text, &mut budget, 0);
                        self.events.push(text);
                    }
                }
                Item::ChunkEnd(end) => self.chunks.push((end.size, end.complete)),
                Item::Warning(warning) => {
                    self.warnings.push(warning.to_string());
                    self.offsets.push(warning.at());
                }
            }
        }
    }
}

fn record(of: &StructRef<'_>, out: &mut String, budget: &mut usize, depth: usize) {
    out.push('{');
    for field in of.iter() {
        match field {
            Ok((field, v)) => {
                let _ = write!(out, "{}=", field.name);
                value(v, out, budget, depth + 1);
                out.push(' ');
            }
            Err(error) => {
                let _ = write!(out, "ERROR {error}");
            }
        }
    }
    out.push('}');
}

fn value(v: Value<'_>, out: &mut String, budget: &mut usize, depth: usize) {
    *budget = budget.saturating_sub(1);
    if *budget == 0 || depth > 12 {
        out.push('…');
        return;
    }
    match v {
        Value::Reference(reference) => match reference.resolve() {
            Ok(Some(v)) => value(v, out, budget, depth + 1),
            Ok(None) => out.push_str("null"),
            Err(error) => {
                let _ = write!(out, "ERROR {error}");
            }
        },
        Value::Struct(fields) => record(&fields, out, budget, depth),
        Value::Array(list) => {
            for v in list.iter().take(BUDGET) {
                match v {
                    Ok(v) => value(v, out, budget, depth + 1),
                    Err(error) => {
                        let _ = write!(out, "ERROR {error}");
                    }
                }
                out.push(',');
            }
        }
        other => {
            let _ = write!(out, "{other:?}");
        }
    }
}

/// Returns true if `FLIGHTLINE_LONG` is set: tests then use more rounds and larger inputs.
pub fn long() -> bool {
    std::env::var_os("FLIGHTLINE_LONG").is_some()
}

/// The distance between the byte offsets that a test tries.
pub fn stride(usual: usize, of_long_tests: usize) -> usize {
    if long() { of_long_tests } else { usual }
}

pub fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "jfr"));
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no recording", folder.display());
    paths
}

pub fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}
