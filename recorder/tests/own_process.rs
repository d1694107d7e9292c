//! Tests `Recorder::builder()`: this process records itself, with the drain in a thread.

use std::{fs, time::Duration};

use flightline_recorder::{Engine, Recorder};

#[inline(never)]
fn busy(time: Duration) -> u64 {
    let cpu = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    let start = cpu();
    let mut x = 0u64;
    while Duration::from(cpu() - start) < time {
        for i in 0..10_000u64 {
            x = std::hint::black_box(x.wrapping_add(i));
        }
    }
    x
}

fn chunks(bytes: &[u8]) -> usize {
    let (mut at, mut n) = (0, 0);
    while let Some(header) = bytes.get(at..at + 68) {
        assert_eq!(&header[..4], b"FLR\0");
        assert_eq!(header[64], 0, "finished");
        at += u64::from_be_bytes(header[8..16].try_into().unwrap()) as usize;
        n += 1;
    }
    assert_eq!(at, bytes.len());
    n
}

/// Counts the occurrences of a name; every name is written once per chunk.
fn count(bytes: &[u8], name: &[u8]) -> usize {
    bytes.windows(name.len()).filter(|w| *w == name).count()
}

#[test]
fn records_itself_and_stops_on_drop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.jfr");
    let before = threads();
    let recording =
        Recorder::builder().rate(1000.0).output(&path).engine(Engine::Auto).in_process().start().unwrap();
    assert!(Recorder::builder().output(dir.path().join("again.jfr")).in_process().start().is_err(), "twice");
    let later = std::thread::Builder::new().name("later".into()).spawn(|| busy(Duration::from_millis(300)));
    busy(Duration::from_millis(200));
    later.unwrap().join().unwrap();
    recording.flush().unwrap();
    let flushed = fs::metadata(&path).unwrap().len();
    assert!(flushed > 8_000, "{flushed} bytes");
    drop(recording);
    let bytes = fs::read(&path).unwrap();
    assert!(chunks(&bytes) >= 1 && bytes.len() as u64 >= flushed);
    assert!(count(&bytes, b"busy") >= 1 && count(&bytes, b"later") >= 1);
    // About 500 samples of at least 10 bytes.
    assert!(bytes.len() > 8_000 + 350 * 10, "{} bytes", bytes.len());
    // A thread that received the request ends as soon as it gets a processor.
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while threads() != before {
        assert!(std::time::Instant::now() < limit, "threads that stay: {:?}, {before} before", names());
        std::thread::sleep(Duration::from_millis(20));
    }
    busy(Duration::from_millis(50));
    assert_eq!(fs::read(&path).unwrap(), bytes, "nothing is written any more");
    as_a_stream(dir.path());
}

/// The same for a client of a socket.
fn as_a_stream(dir: &std::path::Path) {
    let socket = dir.join("s");
    let address = format!("unix:{}", socket.display());
    let recording = Recorder::builder().rate(1000.0).output(address).in_process().start().unwrap();
    let mut reader = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let read = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut bytes).map(|_| bytes)
    });
    // The first flush accepts the reader.
    recording.flush().unwrap();
    busy(Duration::from_millis(100));
    drop(recording);
    let bytes = read.join().unwrap().unwrap();
    assert!(chunks(&bytes) >= 1 && count(&bytes, b"busy") >= 1, "{} bytes", bytes.len());
    assert!(!socket.exists());
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fn names() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect()
}
