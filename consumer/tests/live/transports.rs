//! Pipes, FIFOs and sockets, read by blocking, by polling and asynchronously.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use flightline_consumer::live::{self, Options, Stream};

use super::make::{Made, SMALL, Seen, Shape, make};

const LARGE: Shape = Shape { chunks: 30, ..SMALL };

fn pipe() -> (PipeReader, PipeWriter) {
    std::io::pipe().unwrap()
}

/// Writes in pieces of varying size, with noticeable pauses.
fn send(mut to: impl Write + Send + 'static, bytes: Vec<u8>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut rest = &bytes[..];
        let mut step = 1;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(step.min(rest.len()));
            to.write_all(now).unwrap();
            rest = later;
            step = step * 7 % 9_001 + 1;
            if step % 5 == 0 {
                thread::yield_now();
            }
        }
    })
}

fn complete(made: &Made, seen: &Seen) {
    assert_eq!(seen.ticks, made.all());
    assert_eq!(seen.warnings, Vec::<String>::new());
    assert_eq!(seen.segments.len(), made.segments.len());
}

fn blocking(stream: Stream) -> Seen {
    let mut seen = Seen::default();
    for item in stream {
        seen.take(item.unwrap());
    }
    seen
}

fn polling(mut stream: Stream) -> Seen {
    let mut seen = Seen::default();
    loop {
        match stream.poll() {
            Poll::Ready(Some(item)) => seen.take(item.unwrap()),
            Poll::Ready(None) => return seen,
            Poll::Pending => assert!(stream.wait(Some(Duration::from_secs(60))).unwrap()),
        }
    }
}

#[cfg(feature = "tokio")]
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[cfg(feature = "tokio")]
fn asynchronous(stream: Stream) -> Seen {
    runtime().block_on(async {
        let mut stream = live::Async::new(stream).unwrap();
        let mut seen = Seen::default();
        while let Some(item) = stream.next().await {
            seen.take(item.unwrap());
        }
        seen
    })
}

/// J19: all three methods yield the same.
#[test]
fn blocking_polling_and_async_reads_are_equal() {
    let made = make(LARGE);
    let mut ways: Vec<fn(Stream) -> Seen> = vec![blocking, polling];
    #[cfg(feature = "tokio")]
    ways.push(asynchronous);
    for way in ways {
        for of in 0..3 {
            let (reader, sender): (OwnedFd, _) = match of {
                0 => {
                    let (reader, writer) = pipe();
                    (reader.into(), send(writer, made.bytes.clone()))
                }
                1 => {
                    let (reader, writer) = UnixStream::pair().unwrap();
                    (reader.into(), send(writer, made.bytes.clone()))
                }
                _ => {
                    let mut file = tempfile::tempfile().unwrap();
                    file.write_all(&made.bytes).unwrap();
                    std::io::Seek::rewind(&mut file).unwrap();
                    (file.into(), thread::spawn(|| {}))
                }
            };
            complete(&made, &way(Stream::new(reader, Options::default()).unwrap()));
            sender.join().unwrap();
        }
    }
}

/// J19: the methods can be mixed on one descriptor without duplicates or gaps.
#[cfg(feature = "tokio")]
#[test]
fn read_methods_can_be_mixed() {
    let made = make(LARGE);
    let (reader, writer) = pipe();
    let sender = send(writer, made.bytes.clone());
    let mut seen = Seen::default();
    let runtime = runtime();
    let _inside = runtime.enter();
    let mut stream = live::Async::new(Stream::new(reader, Options::default()).unwrap()).unwrap();
    let mut turn = 0usize;
    loop {
        turn += 1;
        let item = match turn % 3 {
            0 => stream.get_mut().next(),
            1 => runtime.block_on(stream.next()),
            _ => match stream.get_mut().poll() {
                Poll::Ready(item) => item,
                Poll::Pending => continue,
            },
        };
        match item {
            Some(item) => seen.take(item.unwrap()),
            None => break,
        }
    }
    complete(&made, &seen);
    sender.join().unwrap();
}

/// J20: eight threads share a stream, and each item goes to exactly one of them.
#[test]
fn eight_threads_receive_each_event_once() {
    let made = make(LARGE);
    let (reader, writer) = pipe();
    let sender = send(writer, made.bytes.clone());
    let stream = Arc::new(Mutex::new(Stream::new(reader, Options::default()).unwrap()));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let stream = stream.clone();
            thread::spawn(move || {
                let mut seen = Seen::default();
                loop {
                    let polled = stream.lock().unwrap().poll();
                    match polled {
                        Poll::Ready(Some(item)) => seen.take(item.unwrap()),
                        Poll::Ready(None) => return seen,
                        Poll::Pending => thread::yield_now(),
                    }
                }
            })
        })
        .collect();
    let mut all: Vec<i64> = threads.into_iter().flat_map(|t| t.join().unwrap().ticks).collect();
    all.sort_unstable();
    let mut expected = made.all();
    expected.sort_unstable();
    assert_eq!(all, expected);
    sender.join().unwrap();
}

/// Polling returns immediately if there is no data, whatever the descriptor's mode, and does not change that
/// mode. If it blocked, this test would not end.
#[test]
fn polling_never_blocks_or_changes_descriptor_flags() {
    let made = make(SMALL);
    let (pipe_reader, pipe_writer) = pipe();
    let (socket, peer) = UnixStream::pair().unwrap();
    let both: [(OwnedFd, OwnedFd); 2] =
        [(pipe_reader.into(), pipe_writer.into()), (socket.into(), peer.into())];
    for (reader, writer) in both {
        let flags = |fd: &OwnedFd| {
            let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
            text.lines().find(|line| line.starts_with("flags:")).unwrap().to_owned()
        };
        let before = flags(&reader);
        let shared = reader.try_clone().unwrap();
        let mut stream = Stream::new(reader, Options::default()).unwrap();
        assert!(stream.poll().is_pending());
        assert!(!stream.wait(Some(Duration::ZERO)).unwrap());
        let mut writer = File::from(writer);
        let half = made.segments[1].1;
        writer.write_all(&made.bytes[..half]).unwrap();
        assert!(stream.wait(Some(Duration::from_secs(60))).unwrap(), "poll(2) says that there is something");
        let mut seen = Seen::default();
        while let Poll::Ready(Some(item)) = stream.poll() {
            seen.take(item.unwrap());
        }
        assert!(stream.poll().is_pending());
        assert_eq!(seen.ticks, made.all()[..2 * SMALL.samples as usize], "two segments have come");
        assert_eq!(flags(&shared), before);
        drop(writer);
        assert!(stream.all(|item| item.is_ok()));
    }
}

/// Polling does not block if another process takes the data between poll(2) and the read.
#[test]
fn second_pipe_reader_does_not_block_polling() {
    let (reader, mut writer) = pipe();
    let mut thief = reader.try_clone().unwrap();
    let mut stream = Stream::new(reader, Options::default()).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let thief = thread::spawn({
        let stop = stop.clone();
        move || {
            let mut taken = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut buffer = [0; 1];
                taken += thief.read(&mut buffer).unwrap() as u64;
            }
            taken
        }
    });
    for _ in 0..20_000 {
        writer.write_all(&[0]).unwrap();
        let _ = stream.poll();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(writer);
    thief.join().unwrap();
    assert!(stream.stats().bytes <= 20_000);
}

#[test]
fn streams_are_opened_by_name() {
    let made = make(SMALL);
    let folder = tempfile::tempdir().unwrap();

    let path = folder.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let bytes = made.bytes.clone();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            listener.accept().unwrap().0.write_all(&bytes).unwrap();
        }
    });
    for name in [format!("unix:{}", path.display()), path.display().to_string()] {
        complete(&made, &blocking(live::open(&name, Options::default()).unwrap()));
    }
    server.join().unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    let bytes = made.bytes.clone();
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut token = [0; 7];
        client.read_exact(&mut token).unwrap();
        client.write_all(&bytes).unwrap();
        token
    });
    let none = live::open_with_token(&address, None, Options::default()).unwrap_err().to_string();
    assert!(none.contains(&address) && none.contains("FLIGHTLINE_TOKEN"), "{none}");
    complete(&made, &blocking(live::open_with_token(&address, Some("secret"), Options::default()).unwrap()));
    assert_eq!(&server.join().unwrap(), b"secret\n");

    let (reader, writer) = pipe();
    let sender = send(writer, made.bytes.clone());
    let name = format!("fd:{}", reader.as_fd().as_raw_fd());
    complete(&made, &blocking(live::open(&name, Options::default()).unwrap()));
    sender.join().unwrap();
    drop(reader);
    let none = live::open("fd:987654", Options::default()).unwrap_err().to_string();
    assert!(none.starts_with("fd:987654: ") && none.contains("Bad file descriptor"), "{none}");
    assert!(live::open("fd:x", Options::default()).is_err());

    let file = folder.path().join("run.jfr");
    std::fs::write(&file, &made.bytes).unwrap();
    complete(&made, &blocking(live::open(file.to_str().unwrap(), Options::default()).unwrap()));
    let missing = live::open("/nonexistent/run.jfr", Options::default()).unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/run.jfr"), "{missing}");
}

/// A mark is reached once a segment arrives that was written after it, not before.
#[test]
fn waiting_for_mark_ends_with_the_following_segment() {
    let made = make(SMALL);
    let (reader, mut writer) = pipe();
    let mut stream = Stream::new(reader, Options::default()).unwrap();
    let ends: Vec<usize> = made.segments.iter().map(|(_, end)| *end).collect();
    writer.write_all(&made.bytes[..ends[4]]).unwrap();
    // Segments are written 1000, 1001 and 1002 µs after the start of their chunk.
    let mark = super::make::MONOTONIC + 1_000_000_000 + 1_000_500;
    let mut seen = Seen::default();
    assert!(!stream.wait_for(mark, Duration::ZERO, |item| seen.take(item)).unwrap(), "1001 is too near");
    writer.write_all(&made.bytes[ends[4]..ends[5]]).unwrap();
    assert!(stream.wait_for(mark, Duration::from_secs(60), |item| seen.take(item)).unwrap());
    assert_eq!(seen.segments, [0, 1, 2, 3, 4, 5]);
    drop(writer);
    assert!(
        !stream.wait_for(i64::MAX, Duration::from_secs(60), |item| seen.take(item)).unwrap(),
        "it is over"
    );
    assert!(matches!(stream.poll(), Poll::Ready(None)));
}
