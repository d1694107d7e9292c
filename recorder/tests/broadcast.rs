//! Tests one stream with many readers that stop, die, connect late, or read a byte at a time. Each gets a
//! valid recording, with a record of its losses.

#[path = "../../tests/src/stream.rs"]
#[allow(dead_code)] // this test uses only some of it
mod check;

use std::{
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use check::Stream;
use flightline_recorder::stream::{Broadcast, Link, MOST_READERS};
use jfr_format::{
    ids::{FileOffset, Ticks},
    metadata::Declared,
    schema,
    write::{ChunkWriter, ClockLine, FieldWriter, Geometry, Output, min_fixed_size},
};

const SAMPLE: &str = "jdk.ExecutionSample";
const NOTICE: &str = "flightline.Notice";
const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(0),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};

/// Writes a stream into a broadcast.
struct Source {
    to: To,
    chunk: ChunkWriter,
    declared: Declared,
    size: u32,
    now: i64,
    /// Number of samples and notices so far.
    samples: u64,
    notices: u64,
    keys: u64,
}

struct To(Broadcast);

impl Output for To {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes).map_err(io::Error::other)
    }

    fn fill(&mut self, len: usize) -> io::Result<()> {
        self.0.fill(len).map_err(io::Error::other)
    }

    fn patch(&mut self, _: FileOffset, _: &[u8]) -> io::Result<()> {
        panic!("a stream cannot be patched")
    }
}

impl Source {
    fn new(fan: Broadcast, content: u32) -> Source {
        let types = [
            schema::EXECUTION_SAMPLE,
            schema::NOTICE,
            schema::SEGMENT,
            schema::STREAM_LOSS,
            schema::DATA_LOSS,
        ];
        let declared = Declared::new(types);
        let size = min_fixed_size(&declared) + content;
        let mut chunk = Source::begin(&declared, size, 0);
        chunk.enable_segments(0);
        Source { to: To(fan), chunk, declared, size, now: 0, samples: 0, notices: 0, keys: 0 }
    }

    fn begin(declared: &Declared, size: u32, now: i64) -> ChunkWriter {
        ChunkWriter::declaring(declared, Geometry::Fixed { size }, &LINE, FileOffset(0), Ticks(now)).unwrap()
    }

    fn fan(&mut self) -> &mut Broadcast {
        &mut self.to.0
    }

    /// Ends the chunk and starts another.
    fn next_chunk(&mut self) {
        self.chunk.finish(Ticks(self.now), false, &mut self.to).unwrap();
        let next = self.chunk.next_segment().unwrap();
        self.chunk = Source::begin(&self.declared, self.size, self.now);
        self.chunk.enable_segments(next);
    }

    /// Writes a segment with a constant, `samples` samples that refer to it, and a notice of `text` bytes.
    fn segment(&mut self, samples: u64, text: usize) {
        if self.chunk.room() < 20 * samples as usize + text + 200 {
            self.next_chunk();
        }
        self.now += 1;
        self.keys += 1;
        let (now, key) = (Ticks(self.now), self.keys);
        let thread = |t: &mut FieldWriter<'_>| _ = t.string("worker").long(1).null().long(0).key(0);
        self.chunk.constant(schema::THREAD, key, thread).unwrap();
        let stack = |s: &mut FieldWriter<'_>| _ = s.boolean(false).array(0);
        self.chunk.constant(schema::STACK_TRACE, key, stack).unwrap();
        for _ in 0..samples {
            self.chunk
                .event(schema::EXECUTION_SAMPLE, |e| _ = e.ticks(now).key(key).key(key).key(0))
                .unwrap();
        }
        let notice = "n".repeat(text);
        self.chunk.event(schema::NOTICE, |e| _ = e.ticks(now).string(&notice)).unwrap();
        self.chunk.flush(now, &mut self.to).unwrap();
        (self.samples, self.notices) = (self.samples + samples, self.notices + 1);
        self.fan().push();
    }

    /// Ends the stream; `readers` read the rest.
    fn end(&mut self, readers: &mut [&mut Taker]) {
        self.chunk.finish(Ticks(self.now), true, &mut self.to).unwrap();
        self.fan().finish();
        while self.fan().waiting() > 0 {
            self.fan().push();
            readers.iter_mut().for_each(|reader| _ = reader.take(usize::MAX));
        }
        readers.iter_mut().for_each(|reader| _ = reader.take(usize::MAX));
    }
}

/// The reader's end of a link.
struct Taker {
    from: Option<File>,
    got: Vec<u8>,
}

impl Taker {
    /// Connects to a broadcast with a socket.
    fn socket(fan: &mut Broadcast) -> Taker {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        fan.add(Link::new(OwnedFd::from(ours)).unwrap(), "a socket".into()).unwrap();
        Taker { from: Some(File::from(OwnedFd::from(theirs))), got: Vec::new() }
    }

    /// Connects to a broadcast with a pipe of one page.
    fn pipe(fan: &mut Broadcast) -> Taker {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let link = Link::new(write).unwrap();
        link.resize(4096).unwrap();
        fan.add(link, "a pipe".into()).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read));
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        let from = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        Taker { from: Some(from), got: Vec::new() }
    }

    /// Reads at most `most` available bytes. Returns how many.
    fn take(&mut self, most: usize) -> usize {
        let Some(from) = &mut self.from else { return 0 };
        let before = self.got.len();
        let mut buffer = vec![0; most.min(1 << 16)];
        while self.got.len() - before < most {
            let some = buffer.len().min(most - (self.got.len() - before));
            match from.read(&mut buffer[..some]) {
                Ok(0) => break,
                Ok(n) => self.got.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.got.len() - before
    }

    fn checked(&self) -> Stream {
        check::check(self.got.clone())
    }
}

/// Checks that received and lost events add up to the written ones.
#[track_caller]
fn adds_up(stream: &Stream, source: &Source) {
    let seen = (stream.count(SAMPLE) + stream.lost(SAMPLE), stream.count(NOTICE) + stream.lost(NOTICE));
    assert_eq!(seen, (source.samples, source.notices), "{:?}", stream.lost);
}

#[test]
fn all_readers_get_the_same_bytes() {
    let mut source = Source::new(Broadcast::new(64 << 10), 5000);
    let mut takers: Vec<Taker> = (0..5).map(|_| Taker::socket(source.fan())).collect();
    takers.push(Taker::pipe(source.fan()));
    for i in 0..200 {
        source.segment(i % 7, 100);
        for (number, taker) in takers.iter_mut().enumerate() {
            // One of them reads a byte at a time, but keeps up.
            while taker.take(if number == 0 { 1 } else { 999 }) > 0 {}
        }
        source.fan().push();
    }
    let mut all: Vec<&mut Taker> = takers.iter_mut().collect();
    source.end(&mut all);
    let first = takers[0].checked();
    assert!(first.chunks > 3 && first.lost.is_empty() && !first.gaps());
    adds_up(&first, &source);
    assert!(takers.iter().all(|t| t.got == takers[0].got));
}

#[test]
fn stalled_reader_does_not_affect_others() {
    const QUEUE: usize = 8 << 10;
    let mut gaps = 0;
    // It stops and continues at every position within the chunks.
    for stop in 0..60 {
        let mut source = Source::new(Broadcast::new(QUEUE), 12_000);
        let (mut steady, mut stopping) = (Taker::socket(source.fan()), Taker::pipe(source.fan()));
        for i in 0..120 {
            source.segment(3, 400);
            while steady.take(usize::MAX) > 0 {
                source.fan().push();
            }
            if i < stop || i >= stop + 50 {
                while stopping.take(usize::MAX) > 0 {
                    source.fan().push();
                }
            }
            let most = source.fan().readers().iter().map(|r| r.memory_bytes()).max().unwrap();
            assert!(most < QUEUE + 2 * 12_000, "{most} bytes wait");
            assert!(!source.fan().full());
        }
        source.end(&mut [&mut steady, &mut stopping]);
        let (all, some) = (steady.checked(), stopping.checked());
        assert!(all.lost.is_empty() && !all.gaps(), "after {stop}");
        adds_up(&all, &source);
        adds_up(&some, &source);
        assert!(some.lost(SAMPLE) > 0, "it lost nothing: stopped after {stop}");
        // It may have been cut off until the end.
        gaps += u32::from(some.gaps());
        assert!(some.lost.keys().all(|(cause, _)| cause == "reader behind"), "{:?}", some.lost);
        assert!(some.data_lost > 0);
    }
    assert!(gaps > 30, "{gaps}");
}

#[test]
fn single_reader_never_loses_events() {
    const QUEUE: usize = 4 << 10;
    let mut source = Source::new(Broadcast::new(QUEUE), 12_000);
    let mut alone = Taker::pipe(source.fan());
    source.segment(1, 10);
    let (mut asked, mut written) = (0, 1);
    while asked < 500 {
        // Like the recorder, write nothing while it is full.
        if source.fan().full() {
            asked += 1;
            if asked % 10 == 0 {
                alone.take(3000);
                source.fan().push();
            }
        } else {
            source.segment(3, 400);
            written += 1;
        }
        assert!(source.fan().readers()[0].memory_bytes() < QUEUE + 14_000);
    }
    assert!(written > 20, "{written}");
    source.end(&mut [&mut alone]);
    let stream = alone.checked();
    assert!(stream.lost.is_empty() && !stream.gaps());
    adds_up(&stream, &source);
}

#[test]
fn relay_drops_events_even_for_single_reader() {
    const QUEUE: usize = 4 << 10;
    let mut source = Source::new(Broadcast::relaying(QUEUE), 12_000);
    let mut alone = Taker::pipe(source.fan());
    for i in 0..300 {
        source.segment(3, 400);
        if i % 100 > 80 {
            while alone.take(usize::MAX) > 0 {
                source.fan().push();
            }
        }
        assert!(source.fan().readers()[0].memory_bytes() < QUEUE + 14_000);
    }
    source.end(&mut [&mut alone]);
    let stream = alone.checked();
    assert!(stream.gaps());
    adds_up(&stream, &source);
}

#[test]
fn late_reader_starts_at_next_chunk() {
    let mut source = Source::new(Broadcast::new(64 << 10), 12_000);
    let mut first = Taker::socket(source.fan());
    let mut late = Vec::new();
    for _ in 0..20 {
        source.segment(2, 100);
        late.push((Taker::socket(source.fan()), source.samples));
        assert!(source.fan().wants_chunk());
        first.take(usize::MAX);
        source.next_chunk();
        source.segment(1, 10);
        assert!(!source.fan().wants_chunk());
    }
    let mut all: Vec<&mut Taker> = late.iter_mut().map(|(taker, _)| taker).chain([&mut first]).collect();
    source.end(&mut all);
    adds_up(&first.checked(), &source);
    for (taker, missed) in &late {
        let stream = taker.checked();
        assert_eq!(stream.count(SAMPLE) + missed, source.samples);
        // Other readers got these samples, so they are not lost for a reader that connected later.
        assert!(stream.lost.is_empty(), "{:?}", stream.lost);
    }
}

#[test]
fn dead_reader_is_removed_and_unread_events_are_reported() {
    let mut source = Source::new(Broadcast::new(1 << 20), 12_000);
    // No reader is connected.
    source.segment(5, 10);
    assert!(source.fan().full() && source.fan().has_no_reader() && !source.fan().wants_chunk());
    let mut got = 0;
    let mut reported = 0;
    for round in 0..50 {
        let mut taker = Taker::pipe(source.fan());
        source.next_chunk();
        for _ in 0..20 {
            source.segment(3, 400);
        }
        // It has read some whole segments, and the pipe contains more.
        taker.take(if round % 2 == 0 { usize::MAX } else { 2000 * (round % 7) });
        assert!(source.fan().readers()[0].memory_bytes() > 0);
        taker.from = None;
        // A child that another test forks holds the other end too, until it execs.
        let mut gone = source.fan().push();
        for _ in 0..10_000 {
            if !gone.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            gone = source.fan().push();
        }
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].error.kind(), io::ErrorKind::BrokenPipe);
        assert!(source.fan().has_no_reader() && source.fan().waiting() == 0);
        got += taker.got.len();
        reported += 1;
    }
    assert!(got > 0 && reported == 50);
    let lost = source.fan().status().nobody;
    assert!(lost.1 > 0);
    let mut last = Taker::socket(source.fan());
    source.next_chunk();
    source.segment(1, 1);
    assert_eq!(source.fan().status().nobody, (0, 0), "told to the next one");
    source.end(&mut [&mut last]);
    let stream = last.checked();
    assert!(stream.lost.keys().all(|(cause, _)| cause == "no reader"), "{:?}", stream.lost);
    // All samples that dead readers had not read, and those written without a reader. One of the readers may
    // have had a record of losses before.
    assert!(stream.lost(SAMPLE) > 0 && stream.lost(SAMPLE) < source.samples);
}

#[test]
fn received_and_reported_lost_events_equal_all_events() {
    let mut source = Source::new(Broadcast::new(1 << 20), 12_000);
    let (mut samples, mut reported) = (0, 0);
    for _ in 0..30 {
        // No reader is connected for a while.
        for _ in 0..5 {
            source.segment(3, 50);
        }
        let mut taker = Taker::socket(source.fan());
        source.next_chunk();
        for _ in 0..5 {
            source.segment(2, 50);
        }
        source.next_chunk();
        while source.fan().waiting() > 0 {
            source.fan().push();
            taker.take(usize::MAX);
        }
        taker.take(usize::MAX);
        taker.from = None;
        source.fan().push();
        let stream = taker.checked();
        samples += stream.count(SAMPLE);
        reported += stream.lost(SAMPLE);
    }
    assert_eq!(samples + reported, source.samples);
    assert_eq!(reported, 30 * 15);
}

#[test]
fn truncated_stream_is_completed_for_readers() {
    let mut whole = Source::new(Broadcast::new(1 << 20), 1000);
    let mut taker = Taker::socket(whole.fan());
    for _ in 0..10 {
        whole.segment(3, 50);
    }
    whole.end(&mut [&mut taker]);
    // A relay gets the stream truncated at any byte.
    for end in 0..taker.got.len() {
        let mut fan = Broadcast::relaying(1 << 20);
        let mut reader = Taker::socket(&mut fan);
        fan.append(&taker.got[..end]).unwrap();
        fan.finish();
        while fan.waiting() > 0 {
            fan.push();
            reader.take(usize::MAX);
        }
        reader.take(usize::MAX);
        if reader.got.is_empty() {
            // Not even the first segment was complete.
            assert!(end < 4000, "{end}");
            continue;
        }
        let stream = reader.checked();
        assert!(stream.count(SAMPLE) <= whole.samples && !stream.gaps());
        assert!(stream.chunks <= 1 && stream.segments.len() as u64 * 3 == stream.count(SAMPLE));
    }
}

#[test]
fn reader_count_is_limited() {
    let mut fan = Broadcast::new(1 << 10);
    let _takers: Vec<Taker> = (0..MOST_READERS).map(|_| Taker::socket(&mut fan)).collect();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let refused = fan.add(Link::new(ours.into()).unwrap(), "one more".into());
    assert!(refused.unwrap_err().to_string().contains("64 readers"));
}
