//! Slow reads and writes: the recording tells those that the program's own clock saw, with what they were about.

use std::path::Path;

use flightline_tests::record::Record;
use flightline_tests::run::beside;
use flightline_tests::spans::{self, Span};
use flightline_tests::victim::{self, OPTIMISED};

const TYPES: [&str; 7] = [
    "jdk.FileRead",
    "jdk.FileWrite",
    "jdk.FileForce",
    "jdk.SocketRead",
    "jdk.SocketWrite",
    "flightline.SocketConnect",
    "flightline.SocketAccept",
];

fn record(program: &Path, threshold: &str) -> flightline_tests::record::Recorded {
    Record::new().option("-e").option(threshold).run(program, &[]).expect_code(0)
}

#[test]
fn reads_and_writes_of_known_length() {
    let _place = beside();
    let program = victim::c("io_waits", OPTIMISED);
    let recorded = record(&program, "io@3ms");
    let (truth, spans) = (recorded.truth(), spans::read(&recorded.path, &TYPES));
    let port = truth.counts["peer port"].to_string();
    let table = [
        ("pipe_read", TYPES[0], "bytesRead", "/fifo"),
        ("pipe_readv", TYPES[0], "bytesRead", "/fifo"),
        ("stream_fgets", TYPES[0], "bytesRead", "/fifo"),
        ("stream_fread", TYPES[0], "bytesRead", "/fifo"),
        ("stream_getline", TYPES[0], "bytesRead", "/fifo"),
        ("stream_getc", TYPES[0], "bytesRead", "/fifo"),
        ("pipe_write", TYPES[1], "bytesWritten", "pipe:["),
        ("pipe_end", TYPES[0], "bytesRead", "pipe:["),
        ("socket_accept", TYPES[6], "", ""),
        ("socket_read", TYPES[3], "bytesRead", ""),
        ("socket_recv", TYPES[3], "bytesRead", ""),
        ("socket_recvmsg", TYPES[3], "bytesRead", ""),
    ];
    for (name, event, bytes, path) in table {
        let mut own: Vec<&Span> = spans.iter().filter(|s| s.has(name)).collect();
        own.sort_by_key(|s| s.duration_ns);
        assert_eq!(own.len() as i64, truth.counts[name], "{name}: number of calls");
        let mut calls: Vec<u64> =
            (0..own.len()).map(|i| truth.counts[&format!("{name} call {i}")] as u64).collect();
        calls.sort_unstable();
        let mut apart = 0;
        for (span, should) in own.iter().zip(calls) {
            let is = span.duration_ns;
            // Ticks of 1 µs, rounded at both ends.
            let within = (4_500_000..=should + 2_000).contains(&is);
            assert!(within, "{name}: {is} ns recorded, {should} ns truly");
            apart += usize::from((is as f64) < 0.85 * should as f64);
        }
        // The program may be put aside between its clock and ours, but not each time.
        assert!(apart <= own.len() / 2, "{name}: {apart} of {} far from the program's own clock", own.len());
        if !bytes.is_empty() {
            let moved: i64 = own.iter().map(|s| s.number(bytes)).sum();
            assert_eq!(moved, truth.counts[&format!("{name} bytes")], "{name}: bytes");
        }
        for span in own {
            assert_eq!(span.event, event, "{name}");
            // The C library's headers have getline inline.
            let near = span.frames.iter().take(2).any(|f| f.method == name);
            assert!(!span.truncated && near, "{name}: {:?}", span.frames);
            assert!(span.field("path").contains(path), "{name}: {}", span.field("path"));
            if event.contains("Socket") {
                assert_eq!(
                    (span.field("address"), span.field("port")),
                    ("127.0.0.1", port.as_str()),
                    "{name}"
                );
            }
            let ended = span.field("endOfFile") == "true" || span.field("endOfStream") == "true";
            assert_eq!(ended, name == "pipe_end", "{name}");
        }
    }
}

/// Connections: waited for, given up, refused at once, not waited for.
#[test]
fn connections_of_known_length() {
    let _place = beside();
    let program = victim::c("connects", OPTIMISED);
    let recorded = record(&program, "io@0ms");
    let (truth, spans) = (recorded.truth(), spans::read(&recorded.path, &TYPES));
    let (full, closed) = (truth.counts["full port"], truth.counts["closed port"]);
    let table = [
        ("unix_connect", "unix", "listener", 0, 0),
        ("waitless_unix_connect", "unix", "listener", 0, libc::EAGAIN),
        ("late_connect", "127.0.0.1", "127.0.0.1", full, libc::EINPROGRESS),
        ("waitless_connect", "127.0.0.1", "127.0.0.1", full, libc::EINPROGRESS),
        ("tcp_connect", "127.0.0.1", "127.0.0.1", full, 0),
        ("refused_connect", "127.0.0.1", "127.0.0.1", closed, libc::ECONNREFUSED),
    ];
    for (name, host, address, port, error) in table {
        let own: Vec<&Span> = spans.iter().filter(|s| s.has(name)).collect();
        assert_eq!(own.len() as i64, truth.counts[name], "{name}: number of calls");
        let (is, should) = (own.iter().map(|s| s.duration_ns).sum::<u64>(), truth.functions[name]);
        assert!(is <= should + 2_000 * own.len() as u64, "{name}: {is} ns recorded, {should} ns truly");
        // The other side answers 6 ms after it has seen the program asleep, on a laden machine in another wait before it; or
        // the socket's limit is that.
        let waits = !name.starts_with("waitless") && error != libc::ECONNREFUSED;
        let least = if waits { 4_500_000 * own.len() as u64 } else { 0 };
        assert!(is >= least, "{name}: {is} ns recorded, at least {least} ns were waited");
        for span in own {
            assert_eq!((span.event.as_str(), span.field("host")), (TYPES[5], host), "{name}");
            assert_eq!((span.field("address"), span.number("port")), (address, port), "{name}");
            assert_eq!(span.number("error"), i64::from(error), "{name}");
            assert!(!span.truncated && span.frames[0].method == name, "{name}: {:?}", span.frames);
        }
    }
    // Only those that took long, with a threshold.
    let recorded = record(&program, "io@3ms");
    let slow = spans::read(&recorded.path, &TYPES[5..6]);
    let (truth, names) = (recorded.truth(), ["unix_connect", "late_connect", "tcp_connect"]);
    let expected: i64 = names.iter().map(|name| truth.counts[*name]).sum();
    let known: Vec<&Span> = slow.iter().filter(|s| names.iter().any(|name| s.has(name))).collect();
    assert_eq!(known.len() as i64, expected, "{slow:?}");
}

/// With no threshold every call is told: as many as the program made, errors too.
#[test]
fn every_call_without_a_threshold() {
    let _place = beside();
    let program = victim::c("io_waits", OPTIMISED);
    let recorded = Record::new().option("-e").option("io@0ms").option("--ring-size").option("64M");
    let recorded = recorded.run(program, &[]).expect_code(0);
    let spans = spans::read(&recorded.path, &TYPES);
    let lost: i64 =
        spans::read(&recorded.path, &["flightline.EventLoss"]).iter().map(|s| s.number("count")).sum();
    let of = |event: &str, file: &str| -> i64 {
        spans.iter().filter(|s| s.event == event && s.field("path").ends_with(file)).count() as i64
    };
    let (reads, writes) = (of("jdk.FileRead", "/file"), of("jdk.FileWrite", "/file"));
    assert!(reads <= 20_000 && writes <= 20_000, "{reads} reads, {writes} writes");
    // What found no room is counted, and no more than that is missing.
    assert!(reads + writes + lost >= 40_000, "{reads} reads, {writes} writes, {lost} lost");
    let forced: Vec<&str> =
        spans.iter().filter(|s| s.event == "jdk.FileForce").map(|s| s.field("metaData")).collect();
    assert!(lost > 0 || forced == ["true", "false"], "{forced:?}");
}

/// The engine changes nothing that the program can see, and nothing is recorded unless it is asked for.
#[test]
fn not_asked_for_not_recorded() {
    let _place = beside();
    let program = victim::c("io_waits", OPTIMISED);
    let recorded = Record::new().run(program, &[]).expect_code(0);
    assert_eq!(spans::read(&recorded.path, &TYPES).len(), 0);
}
