//! Streams with real programs and real readers, which stop, die, are slow, come late or come a thousand
//! times.
//!
//! The samples that a reader received and those that were reported to it as lost add up, by the program's own
//! clocks and by the counts of a reader that kept up.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::run::{beside, collect, programs, run, signal, spawn, status_kb, turn, until, wait};
use flightline_tests::skip;
use flightline_tests::stream::{Stream, check, check_start};
use flightline_tests::truth::Truth;
use flightline_tests::victim::{self, flightline};

const LIMIT: Duration = Duration::from_secs(300);
const SAMPLE: &str = "jdk.ExecutionSample";

/// A program that is being recorded as a stream.
struct Live {
    record: Record,
    drain: Child,
    stderr: JoinHandle<Vec<u8>>,
}

impl Live {
    #[track_caller]
    fn start(output: impl FnOnce(&Path) -> String, options: &[&str], program: &str, args: &[&str]) -> Live {
        let mut record = Record::new();
        for option in options {
            record = record.option(*option);
        }
        let output = output(record.folder());
        let record = record.output(output);
        let mut command = record.command(victim::c(program, victim::OPTIMISED), args);
        command.env("FLIGHTLINE_TOKEN", "open sesame").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut drain = spawn(&mut command);
        let stderr = collect(drain.stderr.take().unwrap());
        Live { record, drain, stderr }
    }

    /// At a Unix socket.
    fn at_socket(options: &[&str], program: &str, args: &[&str]) -> Live {
        Live::start(|dir| format!("unix:{}", dir.join("s").display()), options, program, args)
    }

    fn socket(&self) -> PathBuf {
        self.record.folder().join("s")
    }

    fn connect(&self) -> UnixStream {
        connect(&self.socket())
    }

    /// Returns true if the program has written its ground truth, which is its last act.
    fn over(&self) -> bool {
        fs::read_to_string(self.record.truth_path()).is_ok_and(|truth| truth.contains("main"))
    }

    #[track_caller]
    fn end(mut self) -> (Record, String) {
        let status = wait(&mut self.drain, LIMIT, "the recorder");
        let stderr = String::from_utf8_lossy(&self.stderr.join().unwrap()).into_owned();
        assert_eq!(status.code(), Some(7), "{stderr}");
        (self.record, stderr)
    }
}

#[track_caller]
fn connect(socket: &Path) -> UnixStream {
    until(LIMIT, "the socket", || UnixStream::connect(socket).ok())
}

/// Reads to the end; after each piece `pace` returns whether to continue.
fn read_all(
    mut from: impl Read + Send + 'static,
    mut pace: impl FnMut() + Send + 'static,
) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 8 << 10]);
        loop {
            pace();
            match from.read(&mut buffer) {
                Ok(0) | Err(_) => return all,
                Ok(n) => all.extend_from_slice(&buffer[..n]),
            }
        }
    })
}

/// Asserts that the program's CPU time is that of the samples that arrived or were reported as lost, plus the
/// threads' own losses.
#[track_caller]
fn conserved(stream: &Stream, truth: &Truth, period_ns: u64, what: &str) {
    let samples = stream.count(SAMPLE) + stream.lost(SAMPLE);
    let lost: u64 = stream.sample_loss.values().map(|(_, ns)| ns).sum();
    let seen = (samples * period_ns + lost) as i64;
    let off = seen - truth.cpu_ns() as i64;
    // For each thread: rounding, and its work after its last clock reading and, as in the loader, before
    // main.
    let most = truth.threads.len() as i64 * (period_ns as i64 * 2 + 12_000_000);
    assert!(off.abs() <= most, "{what}: off by {off} ns of {}: {stream:?}", truth.cpu_ns());
}

/// Asserts that `some` has all events of `all` since its first segment, or reports them as lost.
#[track_caller]
fn nothing_is_missing(some: &Stream, all: &Stream, what: &str) {
    assert!(!all.gaps(), "{what}");
    let first = some.segments[0].0;
    let written: u64 =
        all.segments.iter().filter(|(number, _)| *number >= first).map(|(_, events)| events).sum();
    let got: u64 = some.segments.iter().map(|(_, events)| events).sum();
    let lost = some.lost.iter().filter(|((cause, _), _)| cause == "reader behind");
    assert_eq!(got + lost.map(|(_, events)| events).sum::<u64>(), written, "{what}: {:?}", some.lost);
}

/// One that keeps up, one that is stopped by a signal, one that is slow, one that is killed, one that
/// connects late.
#[test]
fn readers_do_not_affect_each_other() {
    let _turn = turn();
    let engines = ["-e", "cpu@500us", "-e", "metrics", "-e", "io@0ms", "-e", "alloc@4k"];
    let options = [&["--flush", "50ms", "--queue-size", "256k", "--rate", "2000"][..], &engines].concat();
    let live = Live::at_socket(&options, "throughput", &["4", "unique"]);
    let steady = read_all(live.connect(), || {});
    let ended = Arc::new(AtomicBool::new(false));
    let hurry = ended.clone();
    let slow = read_all(live.connect(), move || {
        if !hurry.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(500));
        }
    });
    // Two real programs, one of which is stopped and one killed; they relay to a file.
    let relay = |name: &str| {
        let file = File::create(live.record.folder().join(name)).unwrap();
        let mut command = Command::new(flightline());
        let input = format!("unix:{}", live.socket().display());
        command.args(["relay", &input, "-o", "-"]).stdout(file).stderr(Stdio::null());
        spawn(&mut command)
    };
    let (mut stopped, mut killed) = (relay("stopped"), relay("killed"));
    let length = |name: &str| fs::metadata(live.record.folder().join(name)).map_or(0, |m| m.len());
    until(LIMIT, "readers have begun", || (length("stopped") > 0 && length("killed") > 0).then_some(()));
    signal(stopped.id(), libc::SIGSTOP);
    signal(killed.id(), libc::SIGKILL);
    let late = read_all(live.connect(), || {});
    let program = programs(live.drain.id());
    until(LIMIT, "the program ends while a reader is stopped", || live.over().then_some(()));
    signal(stopped.id(), libc::SIGCONT);
    ended.store(true, Ordering::Relaxed);
    let (record, stderr) = live.end();
    wait(&mut stopped, LIMIT, "the stopped reader");
    wait(&mut killed, LIMIT, "the killed reader");
    assert_eq!(program.len(), 1, "{program:?}");
    let truth = Truth::read(&record.truth_path());
    let file = |name: &str| fs::read(record.folder().join(name)).unwrap();
    let steady = check(steady.join().unwrap());
    assert!(steady.lost.keys().all(|(cause, _)| cause == "no reader"), "{stderr}");
    conserved(&steady, &truth, 500_000, "steady");
    for (name, stream) in [
        ("slow", check(slow.join().unwrap())),
        ("stopped", check(file("stopped"))),
        ("late", check(late.join().unwrap())),
    ] {
        nothing_is_missing(&stream, &steady, name);
        if name != "late" {
            assert!(
                stream.gaps() || stream.lost(SAMPLE) > 0,
                "{name} lost nothing: the test is too weak; {stderr}"
            );
            // All types with many events.
            for of in [SAMPLE, "flightline.ThreadCpu"] {
                assert!(stream.lost(of) > 0, "{name} lost no {of}: {:?}", stream.lost);
            }
        }
    }
    check_start(&file("killed"));
    assert!(!record.folder().join("s").exists(), "the socket is removed");
}

#[test]
fn thousand_reconnecting_readers_leak_no_resources() {
    let _place = beside();
    let live = Live::at_socket(&["--rate", "1000", "--flush", "10ms"], "throughput", &["1000000"]);
    let pid = live.drain.id();
    let descriptors = || fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let mut before = (0, 0);
    let mut read = 0;
    for i in 0..1000 {
        let mut stream = live.connect();
        // Some disconnect before any data, the others in the middle of it.
        let want = i * 37 % 20_000;
        let mut got = vec![0; want];
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.read_exact(&mut got).unwrap();
        check_start(&got);
        read += got.len();
        if i == 500 {
            before = (descriptors(), status_kb(pid, "RssAnon").unwrap());
        }
    }
    assert!(read > 5 << 20);
    let after = (descriptors(), status_kb(pid, "RssAnon").unwrap());
    assert!(after.0 <= before.0 + 5 && after.1 < before.1 + (24 << 10), "{before:?}, {after:?}");
    let last = read_all(live.connect(), || {});
    // The program ends by a signal, so it does not report its clocks.
    let program = programs(pid);
    thread::sleep(Duration::from_millis(500));
    signal(program[0], libc::SIGTERM);
    let mut drain = live.drain;
    wait(&mut drain, LIMIT, "the recorder");
    let stderr = String::from_utf8_lossy(&live.stderr.join().unwrap()).into_owned();
    let last = check(last.join().unwrap());
    assert!(last.count(SAMPLE) > 0 && !last.gaps(), "{stderr}");
    // Losses without a connected reader are reported to the next one.
    assert!(
        last.events.contains_key("jdk.JVMInformation"),
        "late readers receive the program's description: {:?}",
        last.events
    );
    // The engine may report why it is the fallback.
    let of_readers = stderr.replace("perf_event_open refused", "");
    assert!(
        !of_readers.contains("disconnected") && !of_readers.contains("refused"),
        "nothing of it is worth a word: {stderr}"
    );
}

/// One at a time, each of which reads to the end of its part: together they have everything.
#[test]
fn data_without_reader_is_reported_as_lost_to_next_reader() {
    let _place = beside();
    let live = Live::at_socket(&["--rate", "1000", "--flush", "20ms"], "throughput", &["3"]);
    until(LIMIT, "the program has run without a reader", || {
        let program = *programs(live.drain.id()).first()?;
        let stat = fs::read_to_string(format!("/proc/{program}/stat")).ok()?;
        let ticks: u64 = stat.rsplit(' ').nth(38)?.parse().ok()?;
        (ticks > 50).then_some(())
    });
    let all = read_all(live.connect(), || {});
    let (record, stderr) = live.end();
    let stream = check(all.join().unwrap());
    let truth = Truth::read(&record.truth_path());
    assert!(
        stream.sample_loss.get("no reader").is_some_and(|(samples, _)| *samples > 100),
        "{stderr}\n{stream:?}"
    );
    conserved(&stream, &truth, 1_000_000, "one that came late");
    assert!(stderr.contains("no reader"), "{stderr}");
}

/// A pipe of one page whose reader reads a few bytes at a time: it fills up in the middle of every structure.
#[test]
fn stream_is_intact_when_pipe_fills_inside_constants() {
    let _place = beside();
    let record = Record::new().rate(1000).output("-");
    let record = record.option("--pipe-size").option("4k").option("--queue-size").option("256k");
    let mut command = record.command(victim::c("throughput", victim::OPTIMISED), &["3", "unique"]);
    let mut drain = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let stderr = collect(drain.stderr.take().unwrap());
    let pipe = drain.stdout.take().unwrap();
    until(LIMIT, "the pipe's size", || {
        // SAFETY: only queries an open descriptor.
        let size = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) };
        (size == 4096).then_some(())
    });
    let truth = record.truth_path();
    let reader = read_all(pipe, move || {
        if !fs::read_to_string(&truth).is_ok_and(|truth| truth.contains("main")) {
            thread::sleep(Duration::from_millis(150));
        }
    });
    let status = wait(&mut drain, LIMIT, "the recorder");
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    assert_eq!(status.code(), Some(7), "{stderr}");
    let stream = check(reader.join().unwrap());
    assert!(!stream.gaps() && stream.lost.is_empty(), "who is alone is not cut off: {:?}", stream.lost);
    assert!(stream.sample_loss.contains_key("output full"), "the pipe was never full: {stderr}");
    conserved(&stream, &Truth::read(&record.truth_path()), 1_000_000, "a pipe of one page");
}

/// Returns true if a process has a file open.
fn opens(pid: u32, path: &Path) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|to| to == path)
}

#[test]
fn fifo_can_be_reopened_repeatedly() {
    let _place = beside();
    let fifo = |dir: &Path| {
        let path = dir.join("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path.display().to_string()
    };
    let live = Live::start(fifo, &["--rate", "1000", "--flush", "20ms"], "throughput", &["1000000"]);
    let path = live.record.folder().join("fifo");
    for _ in 0..20 {
        let mut file = until(LIMIT, "the FIFO", || File::open(&path).ok());
        let mut start = vec![0; 12_000];
        file.read_exact(&mut start).unwrap();
        assert!(check_start(&start).chunks > 0);
        drop(file);
        // Unread data stays in the FIFO until the recorder has noticed that there is no reader. The next
        // reader would get it.
        until(LIMIT, "the recorder lets the FIFO go", || (!opens(live.drain.id(), &path)).then_some(()));
    }
    let last = read_all(File::open(&path).unwrap(), || {});
    thread::sleep(Duration::from_millis(500));
    signal(programs(live.drain.id())[0], libc::SIGTERM);
    let mut drain = live.drain;
    wait(&mut drain, LIMIT, "the recorder");
    let last = check(last.join().unwrap());
    assert!(last.count(SAMPLE) > 0 && !last.gaps());
}

#[test]
fn tcp_listener_requires_token() {
    let _place = beside();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let output = format!("tcp:{address}");
    let live = Live::start(|_| output.clone(), &["--rate", "1000", "--flush", "20ms"], "throughput", &["3"]);
    let connect = || until(LIMIT, "the port", || TcpStream::connect(&address).ok());
    let silent = connect();
    let said = |words: &[u8]| {
        let mut stream = connect();
        // It may be closed before everything is written.
        let _ = stream.write_all(words);
        stream
    };
    for wrong in [&b"open\n"[..], b"\n", b"open sesame!\n", &[b'x'; 5000], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut got = Vec::new();
        let _ = said(wrong).read_to_end(&mut got);
        assert_eq!(got, b"", "{:?}", String::from_utf8_lossy(wrong));
    }
    // In pieces, as they arrive.
    let mut stream = said(b"open ");
    thread::sleep(Duration::from_millis(100));
    stream.write_all(b"sesame\r\n").unwrap();
    let stream = read_all(stream, || {});
    let relayed = {
        let mut command = Command::new(flightline());
        command.args(["relay", &output, "-o", "-"]).env("FLIGHTLINE_TOKEN", "open sesame");
        let mut relay = spawn(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let out = collect(relay.stdout.take().unwrap());
        (relay, out)
    };
    let (record, stderr) = live.end();
    let stream = check(stream.join().unwrap());
    conserved(&stream, &Truth::read(&record.truth_path()), 1_000_000, "tcp");
    let (mut relay, out) = relayed;
    wait(&mut relay, LIMIT, "the relay");
    nothing_is_missing(&check(out.join().unwrap()), &stream, "relayed");
    assert!(stderr.contains("did not send the correct token"), "{stderr}");
    drop(silent);
}

#[test]
fn invalid_listen_addresses_are_rejected() {
    let _place = beside();
    let record = Record::new();
    let dir = record.folder().to_owned();
    let program = victim::c("throughput", victim::OPTIMISED);
    let refused = |output: &str, token: Option<&str>, more: &[&str]| {
        let mut command = Command::new(flightline());
        command.arg("record").args(more).args(["-o", output, "--"]).arg(&program).arg("1");
        command.env_remove("FLIGHTLINE_TOKEN").env("TRUTH_FILE", dir.join("truth.tsv"));
        token.map(|token| command.env("FLIGHTLINE_TOKEN", token));
        let finished = run(&mut command, LIMIT);
        let stderr = finished.stderr.clone();
        assert!(matches!(finished.code(), 1 | 2), "{output}: {stderr}");
        assert!(!dir.join("truth.tsv").exists(), "the program ran: {output}");
        stderr
    };
    let unix = |name: &str| format!("unix:{}", dir.join(name).display());
    fs::write(dir.join("file"), "mine").unwrap();
    assert!(refused(&unix("file"), None, &[]).contains("not a socket"));
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"mine");
    let _listener = UnixListener::bind(dir.join("live")).unwrap();
    assert!(refused(&unix("live"), None, &[]).contains("another program listens at this socket"));
    assert!(refused("tcp:127.0.0.1:0", None, &[]).contains("--token-file"));
    assert!(refused("tcp:0.0.0.0:0", Some("x"), &[]).contains("--listen-anywhere"));
    assert!(refused("tcp:127.0.0.1", Some("x"), &[]).contains("host and port"));
    assert!(refused("fd:999", None, &[]).contains("fd:999"));
    assert!(refused("-", None, &["--queue-size", "1k"]).contains("queue-size"));
    assert!(refused("-", None, &["--pipe-size", "1"]).contains("pipe-size"));
    assert!(
        refused("tcp:127.0.0.1:0", Some("x"), &["--token-file", "/nonexistent"]).contains("/nonexistent")
    );
    assert!(refused("x.jfr", None, &["--flush", "9ms"]).contains("10ms"));
}

#[test]
fn unix_socket_accepts_only_its_owner() {
    let _place = beside();
    // A socket that a killed recorder left is replaced.
    let stale = |dir: &Path| {
        drop(UnixListener::bind(dir.join("s")).unwrap());
        format!("unix:{}", dir.join("s").display())
    };
    let live = Live::start(stale, &["--rate", "1000"], "throughput", &["2"]);
    let all = read_all(live.connect(), || {});
    let mode = fs::metadata(live.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // SAFETY: only a query.
    let root = unsafe { libc::geteuid() } == 0;
    if root && skip::have_python() {
        // Even if the file's permissions allow access.
        fs::set_permissions(live.socket(), fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(live.record.folder(), fs::Permissions::from_mode(0o755)).unwrap();
        let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(len(s.recv(9)))";
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", script])
            .arg(live.socket());
        let finished = run(&mut command, LIMIT);
        assert_eq!(finished.stdout_text().trim(), "0", "{}", finished.stderr);
    } else if !root {
        skip::skip("not root: cannot run as another user");
    }
    let (record, _) = live.end();
    conserved(&check(all.join().unwrap()), &Truth::read(&record.truth_path()), 1_000_000, "the owner");
}

/// The offset of the last chunk of a stream.
fn last_chunk(stream: &[u8]) -> usize {
    let size = |at: usize| u64::from_be_bytes(stream[at + 8..at + 16].try_into().unwrap()) as usize;
    let mut at = 0;
    while at + size(at) < stream.len() {
        at += size(at);
    }
    at
}

/// Segments of 100 ms of 10,000 events a second take no more than 1.3 times the bytes of one big chunk.
#[test]
fn small_segments_have_low_overhead() {
    let _turn = turn();
    if !skip::perf_allowed(false) {
        return skip::skip(
            "perf_event_open is not allowed: timers do not come to ten thousand events a second",
        );
    }
    let program = victim::c("throughput", victim::OPTIMISED);
    let record = || Record::new().rate(10_000).option("--flush").option("100ms");
    let in_file = record();
    let finished = run(&mut in_file.command(&program, &["3"]), LIMIT);
    assert_eq!(finished.code(), 7);
    let file = fs::read(in_file.path()).unwrap();
    let one = check(file.clone());
    assert_eq!(one.chunks, 1);
    let in_pipe = record().output("-");
    let finished = run(&mut in_pipe.command(&program, &["3"]), LIMIT);
    assert_eq!(finished.code(), 7, "{}", finished.stderr);
    let stream = check(finished.stdout.clone());
    assert!(stream.segments.len() > 20 && !stream.gaps());
    // The last chunk is not full, so it is left out.
    let last = last_chunk(&finished.stdout);
    let stream = check(finished.stdout[..last].to_vec());
    let big = file.len() as f64 / one.count(SAMPLE) as f64;
    // The overhead of segments and chunks is measured per segment, which does not depend on the program's
    // share of the processor: at ten thousand events a second each segment has a thousand. Filler is in
    // chunks that were too old before they were full.
    let more = (last - stream.filler) as f64 - big * stream.count(SAMPLE) as f64;
    let more = more / stream.segments.len() as f64;
    eprintln!(
        "{} segments in {} chunks: {more:.0} bytes more for each; one chunk: {big:.2} bytes a sample; filler {} of {last}",
        stream.segments.len(),
        stream.chunks,
        stream.filler,
    );
    assert!(stream.segments.len() > 20);
    assert!(more <= 0.3 * 1000.0 * big, "{more:.0} bytes more a segment, {big:.2} a sample in one chunk");
}

/// A chunk lasts longer than this program. For a late client the relay requests a new chunk.
#[test]
fn late_relay_client_gets_new_chunk() {
    let _place = beside();
    let live = Live::at_socket(&["--rate", "200", "--flush", "20ms"], "throughput", &["4"]);
    let steady = read_all(live.connect(), || {});
    let relayed = live.record.folder().join("r");
    let mut relay = Command::new(flightline());
    relay.arg("relay").arg(format!("unix:{}", live.socket().display()));
    relay.arg("-o").arg(format!("unix:{}", relayed.display())).stdout(Stdio::null()).stderr(Stdio::null());
    let mut relay = spawn(&mut relay);
    // The first receives the relay's first bytes; the second connects in the middle of a chunk.
    let mut first = connect(&relayed);
    first.read_exact(&mut [0; 5000]).unwrap();
    let first = read_all(first, || {});
    let late = read_all(connect(&relayed), || {});
    let _ = live.end();
    assert_eq!(wait(&mut relay, LIMIT, "the relay").code(), Some(0));
    let (steady, late) = (check(steady.join().unwrap()), check(late.join().unwrap()));
    first.join().unwrap();
    assert!(late.count(SAMPLE) > 0, "{late:?}, {steady:?}");
    nothing_is_missing(&late, &steady, "late");
}

#[test]
fn relay_copies_recordings_and_reports_delivery() {
    let _place = beside();
    let work = Record::new();
    let file = work.path();
    // A file that contains a stream can be read as one.
    let mut command = work.command(victim::c("throughput", victim::OPTIMISED), &["1"]);
    let finished = run(command.args(["--"]), LIMIT);
    assert_eq!(finished.code(), 7);
    let relay = |input: &Path, outputs: &[&str]| {
        let mut command = Command::new(flightline());
        command.arg("relay").arg(input).args(outputs.iter().flat_map(|o| ["-o", o]));
        command
    };
    // A finished recording is relayed unchanged.
    let out = run(&mut relay(&file, &["-"]), LIMIT);
    assert_eq!(out.code(), 0, "{}", out.stderr);
    assert!(out.stdout == fs::read(&file).unwrap());
    // A truncated one ends with its intact data, and a message.
    let torn = work.folder().join("torn");
    fs::write(&torn, &out.stdout[..out.stdout.len() / 2]).unwrap();
    let half = run(&mut relay(&torn, &["-"]), LIMIT);
    assert_eq!(half.code(), 1);
    assert!(half.stderr.contains("ended in the middle of a chunk"));
    let text = work.folder().join("text");
    fs::write(&text, "no recording at all").unwrap();
    let wrong = run(&mut relay(&text, &["-"]), LIMIT);
    let stderr = wrong.stderr.clone();
    assert!(wrong.code() == 1 && stderr.contains("offset 0: no JFR chunk begins here"), "{stderr}");
    // To two outputs, with a report in JSON.
    let socket = work.folder().join("r");
    let at = format!("unix:{}", socket.display());
    let fifo = work.folder().join("in");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut both = spawn(relay(&fifo, &[&at]).arg("--json").stdout(Stdio::piped()).stderr(Stdio::null()));
    let json = collect(both.stdout.take().unwrap());
    let mut feed = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    let reader = read_all(connect(&socket), || {});
    // It connects before the first byte, so it receives everything.
    let clients = || fs::read_to_string("/proc/net/unix").unwrap().matches(socket.to_str().unwrap()).count();
    until(LIMIT, "the reader is let in", || (clients() >= 2).then_some(()));
    thread::sleep(Duration::from_millis(200));
    feed.write_all(&out.stdout).unwrap();
    drop(feed);
    assert_eq!(wait(&mut both, LIMIT, "the relay").code(), Some(0));
    assert!(reader.join().unwrap() == out.stdout);
    let json: serde_json::Value = serde_json::from_slice(&json.join().unwrap()).unwrap();
    assert_eq!(json["bytes"], out.stdout.len());
    assert_eq!(json["outputs"][0]["readers"], 1);
    assert_eq!(json["outputs"][0]["bytesWritten"], out.stdout.len());
    assert_eq!(json["outputs"][0]["lost"]["events"], 0);
}
