//! Slow reads and writes: the recording contains those that the program's own clock measured, with their path
//! or peer.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, run, spawn};
use flightline_tests::spans::{self, Span};
use flightline_tests::victim::{self, OPTIMISED};
use flightline_tests::{folded, skip};

const TYPES: [&str; 7] = [
    "jdk.FileRead",
    "jdk.FileWrite",
    "jdk.FileForce",
    "jdk.SocketRead",
    "jdk.SocketWrite",
    "flightline.SocketConnect",
    "flightline.SocketAccept",
];

fn record(program: &Path, threshold: &str) -> Recorded {
    Record::new().option("-e").option(threshold).run(program, &[]).expect_code(0)
}

#[test]
fn reads_and_writes_have_known_durations() {
    let _place = beside();
    known_lengths(&record(&victim::c("io_waits", OPTIMISED), "io@3ms"), false);
}

/// The same from the kernel's tracepoints, at the system calls themselves.
#[test]
fn syscall_io_records_known_durations() {
    if skip::not_root("system calls of others are for root") {
        return;
    }
    let _place = beside();
    // A busy machine must not make the rate limit or a full ring drop calls.
    let room = ["--syscall-io=3ms", "--off-cpu-rate", "0", "--off-cpu-ring", "16m"];
    let record = room.iter().fold(Record::new(), |record, option| record.option(*option));
    known_lengths(&record.run(victim::c("io_waits", OPTIMISED), &[]).expect_code(0), true);
}

/// `by_kernel`: recorded as system calls, which are some frames of the C library away from the caller, and
/// which show the true length of `getc`'s reads.
fn known_lengths(recorded: &Recorded, by_kernel: bool) {
    let (near, getc) = if by_kernel { (8, 16) } else { (2, 1) };
    let (mut unknown, mut all) = (0, 0);
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
        // The program may be descheduled between its clock reading and ours, but not each time.
        assert!(apart <= own.len() / 2, "{name}: {apart} of {} far from the program's own clock", own.len());
        if !bytes.is_empty() {
            let moved: i64 = own.iter().map(|s| s.number(bytes)).sum();
            let each = if name == "stream_getc" { getc } else { 1 };
            assert_eq!(moved, each * truth.counts[&format!("{name} bytes")], "{name}: bytes");
        }
        for span in own {
            all += 1;
            // A descriptor that was closed before its path was read is shown by its number, not as the file
            // that the number means later.
            let late = span.field("path").starts_with("[fd ")
                || event.contains("Socket") && span.field("address").is_empty();
            if by_kernel && late {
                unknown += 1;
                continue;
            }
            assert_eq!(span.event, event, "{name}");
            // The C library's headers have getline inline.
            let near = span.frames.iter().take(near).any(|f| f.method == name);
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
    assert!(unknown * 2 < all, "{unknown} of {all} unknown");
}

/// Connections: delayed, timed out, refused at once, non-blocking.
#[test]
fn connections_have_known_durations_and_errors() {
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
        // The other side answers 6 ms after it has seen the program asleep; on a busy machine, that may have
        // been an earlier wait. Otherwise the socket's time-out is 6 ms.
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
    // With a threshold, only slow calls.
    let recorded = record(&program, "io@3ms");
    let slow = spans::read(&recorded.path, &TYPES[5..6]);
    let (truth, names) = (recorded.truth(), ["unix_connect", "late_connect", "tcp_connect"]);
    let expected: i64 = names.iter().map(|name| truth.counts[*name]).sum();
    let known: Vec<&Span> = slow.iter().filter(|s| names.iter().any(|name| s.has(name))).collect();
    assert_eq!(known.len() as i64, expected, "{slow:?}");
}

/// With no threshold every call is recorded: as many as the program made, including errors.
#[test]
fn zero_threshold_records_every_call() {
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
    // Calls that did not fit into the ring are counted, and no others are missing.
    assert!(reads + writes + lost >= 40_000, "{reads} reads, {writes} writes, {lost} lost");
    let forced: Vec<&str> =
        spans.iter().filter(|s| s.event == "jdk.FileForce").map(|s| s.field("metaData")).collect();
    assert!(lost > 0 || forced == ["true", "false"], "{forced:?}");
}

/// The engine changes nothing that the program can see, and records nothing unless it is selected.
#[test]
fn io_is_not_recorded_by_default() {
    let _place = beside();
    let program = victim::c("io_waits", OPTIMISED);
    let recorded = Record::new().run(program, &[]).expect_code(0);
    assert_eq!(spans::read(&recorded.path, &TYPES).len(), 0);
}

/// Options with which a busy program has no losses.
const ROOM: [&str; 6] = ["--off-cpu-rate", "0", "--off-cpu-ring", "64m", "--off-cpu-stack", "512"];

fn traced(options: &[&str], program: impl AsRef<Path>, arguments: &[&str]) -> Recorded {
    let record = options.iter().chain(&ROOM).fold(Record::new(), |record, option| record.option(*option));
    let recorded = record.run(program, arguments).expect_code(0);
    let mut losses = spans::read(&recorded.path, &["flightline.EventLoss"]);
    if options == ["--block-io"] {
        // Requests to disks are recorded of all programs. Those that others had begun before have no beginning.
        losses.retain(|loss| loss.field("event") != "kernel-io: beginning or end not seen");
    }
    assert!(losses.is_empty(), "{losses:?}");
    recorded
}

/// A program of another project that reports its own transfers.
#[test]
fn every_dd_system_call_is_recorded() {
    if skip::not_root("system calls of others are for root") {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy");
    let of = format!("of={}", file.display());
    let recorded =
        traced(&["--syscall-io"], "dd", &["if=/dev/zero", &of, "bs=256k", "count=400", "conv=fdatasync"]);
    let all = spans::read(&recorded.path, &TYPES);
    let sum = |event: &str, path: &str, bytes: &str| -> (usize, i64) {
        let own = all.iter().filter(|span| span.event == event && span.field("path") == path);
        own.fold((0, 0), |(count, moved), span| (count + 1, moved + span.number(bytes)))
    };
    let bytes = 400 * (256 << 10);
    assert_eq!(sum(TYPES[0], "/dev/zero", "bytesRead"), (400, bytes));
    let path = file.to_string_lossy();
    assert_eq!(sum(TYPES[1], &path, "bytesWritten"), (400, bytes));
    let forced: Vec<&Span> = all.iter().filter(|span| span.event == TYPES[2]).collect();
    assert_eq!(forced.len(), 1, "{forced:?}");
    assert_eq!((forced[0].field("path"), forced[0].field("metaData")), (&*path, "false"));
    // One after another, so that they cannot overlap.
    let mut own: Vec<&Span> = all.iter().filter(|span| span.thread == "dd").collect();
    own.sort_by_key(|span| span.number("startTime"));
    for pair in own.windows(2) {
        let end = pair[0].number("startTime") + pair[0].duration_ns as i64 / 1000;
        assert!(end <= pair[1].number("startTime") + 1, "{pair:?}");
    }
    // Calls below the threshold are counted instead.
    let recorded = traced(&["--syscall-io=1h"], "dd", &["if=/dev/zero", "of=/dev/null", "bs=1M", "count=50"]);
    assert!(spans::read(&recorded.path, &TYPES).is_empty());
    let short = spans::read(&recorded.path, &["flightline.BelowThreshold"]);
    let short: Vec<&Span> = short.iter().filter(|span| span.field("event") == "syscall-io").collect();
    let count: i64 = short.iter().map(|span| span.number("count")).sum();
    assert!((100..1000).contains(&count), "{short:?}");
}

/// Every processor is busy.
struct Busy(Vec<std::process::Child>);

impl Busy {
    fn everywhere() -> Busy {
        let processors = std::thread::available_parallelism().unwrap().get();
        Busy((0..processors).map(|_| spawn(Command::new("sh").args(["-c", "while :; do :; done"]))).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The kernel's count of bytes written to the disk is the sum of the requests.
#[test]
fn disk_request_bytes_match_kernel_count() {
    if skip::not_root("requests of others to disks are for root") {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let of = format!("of={}", folder.path().join("direct").display());
    let arguments = ["if=/dev/zero", &of, "bs=1M", "count=16", "oflag=direct"];
    let probe = Command::new("dd").args(arguments).output().unwrap();
    if !probe.status.success() {
        return skip::skip("no direct writing to the file system here: requests to disks");
    }
    // On some virtual machines, events on an idle processor are not reported.
    let _busy = Busy::everywhere();
    let recorded = traced(&["--block-io"], "dd", &arguments);
    let all = spans::read(&recorded.path, &["flightline.BlockIo"]);
    if all.is_empty() && !std::path::Path::new("/sys/dev/block").read_dir().is_ok_and(|d| d.count() > 0) {
        return skip::skip("no block devices here: requests to disks");
    }
    let data: Vec<&Span> =
        all.iter().filter(|span| span.thread == "dd" && span.field("operation") == "write").collect();
    assert_eq!(data.iter().map(|span| span.number("bytes")).sum::<i64>(), 16 << 20, "{all:?}");
    for span in &data {
        assert!(span.field("flags").starts_with('W') && span.number("error") == 0, "{span:?}");
        assert!(!span.field("device").is_empty() && span.duration_ns > 0, "{span:?}");
        let has = |part: &str| span.frames.iter().any(|frame| frame.method.contains(part));
        assert!(has("submit_bio") && has("write"), "{:?}", span.frames);
    }
    // Counted, as for a kernel tracepoint; each request has a stack.
    let counted: u64 = folded::fold(&recorded.path, "block", false).iter().map(|(_, count)| count).sum();
    assert_eq!(counted, all.len() as u64);
    // The disk's writes are to different sectors.
    let places: std::collections::BTreeSet<i64> = data.iter().map(|span| span.number("sector")).collect();
    assert_eq!(places.len(), data.len());
}

/// Growth of address space by function, exact to the byte.
#[test]
fn address_space_growth_is_exact_by_function() {
    if skip::not_root("system calls of others are for root") {
        return;
    }
    let _place = beside();
    let recorded = traced(&["--growth"], victim::c("grows", OPTIMISED), &[]);
    let (truth, all) = (recorded.truth(), spans::read(&recorded.path, &["flightline.MemoryGrowth"]));
    for (name, call) in [
        ("by_brk", "brk"),
        ("by_mmap", "mmap"),
        ("by_file", "mmap of a file"),
        ("by_mremap", "mremap"),
        ("in_child", "brk"),
    ] {
        let own: Vec<&Span> = all.iter().filter(|span| span.has(name)).collect();
        assert!(own.iter().all(|span| span.field("call") == call), "{own:?}");
        let count = own.len() as i64;
        let bytes: i64 = own.iter().map(|span| span.number("bytes")).sum();
        let should = (truth.counts[&format!("{name} calls")], truth.counts[&format!("{name} bytes")]);
        assert_eq!((count, bytes), should, "{name}: {own:?}");
    }
    assert!(all.iter().all(|span| !span.has("by_shrinking")), "{all:?}");
}

/// The error names the option that requests the impossible.
#[test]
fn conflicting_io_options_are_rejected() {
    let _place = beside();
    let refused = |options: &[&str], said: &str| {
        let record = options.iter().fold(Record::new(), |record, option| record.option(*option));
        let finished = run(&mut record.command("true", &[]), Duration::from_secs(60));
        assert_eq!(finished.code(), 2, "{}", finished.stderr);
        assert!(finished.stderr.contains(said), "{}", finished.stderr);
    };
    refused(&["--syscall-io", "-e", "io"], "syscall-io: `-e io` records the same calls");
    refused(&["--block-io", "--off-cpu-stack", "5"], "block-io: 5 bytes of stack");
    refused(&["--growth", "--off-cpu-ring", "100000"], "growth: a ring of 100000 bytes");
    refused(&["--off-cpu-ring", "1m"], "--syscall-io");
}
