//! What other profilers push to `/ingest`: first line the query, second the content type, then the body.
#![no_main]

use bytes::Bytes;
use flightline_service::ingest::{App, Limits, ingest};
use flightline_service::pictures::check_bytes;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { body: 1 << 20, recording: 2 << 20, message: 1 << 20, text: 2 << 20 };

fuzz_target!(|data: &[u8]| {
    let mut lines = data.splitn(3, |&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (query, kind, body) = (line(), line(), line());
    let (query, kind) = (String::from_utf8_lossy(query), String::from_utf8_lossy(kind));
    let kind = Some(&*kind).filter(|kind| !kind.is_empty());
    // What is named can be named again, and means the same: letters with a meaning become others once.
    if let Ok(app) = App::parse(&query) {
        let plain = App::parse(&app.text()).expect("a name");
        assert_eq!(App::parse(&plain.text()).as_ref(), Ok(&plain), "{query:?}");
    }
    let got = ingest(&query, kind, Bytes::copy_from_slice(body), 1_700_000_000_000, LIMITS);
    if let Ok(got) = got {
        assert!(got.from <= got.until, "{} {}", got.from, got.until);
        assert!(!got.app.name.is_empty());
        let whole = got.recording.is_none_or(|recording| check_bytes(recording).is_ok());
        // Recordings come as they are and are checked later; what is made of others is whole.
        assert!(whole || !(query.contains("format=pprof") || query.contains("format=folded")), "{query:?}");
    }
});
