//! Fuzzes `/ingest`, to which other profilers push. The first line is the query, the second the content type,
//! the rest the body.
#![no_main]

use bytes::Bytes;
use flightline_service::ingest::{App, Limits, ingest};
use flightline_service::render::check_bytes;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { body: 1 << 20, recording: 2 << 20, message: 1 << 20, text: 2 << 20 };

fuzz_target!(|data: &[u8]| {
    let mut lines = data.splitn(3, |&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (query, kind, body) = (line(), line(), line());
    let (query, kind) = (String::from_utf8_lossy(query), String::from_utf8_lossy(kind));
    let kind = Some(&*kind).filter(|kind| !kind.is_empty());
    // Sanitizing is idempotent: parsing the sanitized text yields the same app.
    if let Ok(app) = App::parse(&query) {
        let plain = App::parse(&app.text()).expect("a name");
        assert_eq!(App::parse(&plain.text()).as_ref(), Ok(&plain), "{query:?}");
    }
    let got = ingest(&query, kind, Bytes::copy_from_slice(body), 1_700_000_000_000, LIMITS);
    if let Ok(got) = got {
        assert!(got.from <= got.until, "{} {}", got.from, got.until);
        assert!(!got.app.name.is_empty());
        let whole = got.recording.is_none_or(|recording| check_bytes(recording).is_ok());
        // JFR recordings are passed through unchecked; converted ones must be valid.
        assert!(whole || !(query.contains("format=pprof") || query.contains("format=folded")), "{query:?}");
    }
});
