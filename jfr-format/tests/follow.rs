//! Follows recordings while they grow: every byte of a real recording, flushed and patched as by a writer.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jfr_format::constants::{FLAG_FINAL, STATE_FINISHED, STATE_UPDATING};
use jfr_format::header::{ChunkHeader, LEN, STATE};
use jfr_format::ids::ChunkOffset;
use jfr_format::read::{Follow, Input, Item, Progress};

const MULTI: &str = "jdk17-multichunk.jfr";

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings").join(name)).unwrap()
}

/// Type, time and size of the events; warnings; chunks.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    events: Vec<(String, Option<i64>, usize)>,
    warnings: Vec<String>,
    /// Size and completeness.
    chunks: Vec<(u64, bool)>,
}

impl Seen {
    fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Events(batch) => self.events.extend(
                batch.events().map(|e| (e.class().name.to_string(), e.start_nanos(), e.payload().len())),
            ),
            Item::Warning(warning) => self.warnings.push(warning.to_string()),
            Item::ChunkEnd(end) => self.chunks.push((end.size, end.complete)),
            Item::ChunkStart(_) => {}
        }
    }

    /// Reads the available items. Returns true at the end.
    fn poll(&mut self, follow: &mut Follow) -> bool {
        loop {
            match follow.poll().unwrap() {
                Progress::Ready => self.take(follow.next().unwrap().unwrap()),
                Progress::Waiting => return false,
                Progress::Ended => return true,
            }
        }
    }

    fn to_the_end(follow: &mut Follow) -> Self {
        let mut seen = Self::default();
        while let Some(item) = follow.next().unwrap() {
            seen.take(item);
        }
        seen
    }

    fn of(bytes: &[u8]) -> Self {
        let mut seen = Self::default();
        let mut input = Input::bytes(bytes.to_vec().into());
        while let Some(item) = input.next().unwrap() {
            seen.take(item);
        }
        seen
    }
}

/// Returns starts and ends of the events of a chunk.
fn boundaries(chunk: &[u8]) -> Vec<usize> {
    let mut at = LEN;
    let mut ends = Vec::new();
    while at < chunk.len() {
        let (mut size, mut shift) = (0, 0);
        for byte in &chunk[at..] {
            size |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        at += size;
        ends.push(at);
    }
    assert_eq!(at, chunk.len());
    ends
}

/// Writes `chunk` at `start` as a live writer would. After each step, calls `after` with the size in the
/// header, up to which a reader must have read.
fn grow(file: &File, start: u64, chunk: &[u8], mut after: impl FnMut(usize)) {
    let done = ChunkHeader::decode(chunk).unwrap();
    let live = ChunkHeader {
        size: LEN as u64,
        checkpoint: ChunkOffset(0),
        metadata: ChunkOffset(0),
        duration_nanos: 0,
        state: 1,
        flags: 1,
        ..done
    };
    file.write_all_at(&live.encode(), start).unwrap();
    after(LEN);
    let ends = boundaries(chunk);
    let mut written = LEN;
    for (generation, at) in (2u8..).zip(ends.chunks(ends.len().div_ceil(7))) {
        let end = *at.last().unwrap();
        // Half an event beyond the size in the next header.
        let more = (end + 5).min(chunk.len());
        file.write_all_at(&chunk[written..more], start + written as u64).unwrap();
        after(written);
        file.write_all_at(&[STATE_UPDATING], start + STATE as u64).unwrap();
        let header = ChunkHeader { size: end as u64, state: generation, ..live };
        file.write_all_at(&header.encode()[..STATE], start).unwrap();
        after(written);
        file.write_all_at(&header.encode()[STATE..], start + STATE as u64).unwrap();
        written = end;
        after(written);
    }
    file.write_all_at(&done.encode(), start).unwrap();
    after(written);
}

fn finished(bytes: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let header = ChunkHeader::decode(rest).unwrap();
        assert_eq!(header.state, STATE_FINISHED);
        let (chunk, more) = rest.split_at(header.size as usize);
        chunks.push(chunk);
        rest = more;
    }
    chunks
}

fn new(path: PathBuf) -> File {
    OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).unwrap()
}

#[test]
fn growing_file_yields_equal_events_within_its_header_size() {
    let bytes = fixture(MULTI);
    let chunks = finished(&bytes);
    assert!(chunks.len() > 1);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grows.jfr");
    let file = new(path.clone());
    let mut follow = Follow::open(&path).unwrap();
    let mut seen = Seen::default();
    let mut grew = 0;
    let mut start = 0;
    for chunk in chunks {
        grow(&file, start, chunk, |vouched| {
            let before = seen.events.len();
            seen.poll(&mut follow);
            assert!(follow.decoder().consumed() <= start + vouched as u64);
            grew += usize::from(seen.events.len() > before);
        });
        start += chunk.len() as u64;
    }
    let rest = Seen::to_the_end(&mut follow);
    seen.events.extend(rest.events);
    seen.warnings.extend(rest.warnings);
    seen.chunks.extend(rest.chunks);
    let whole = Seen::of(&bytes);
    assert_eq!(seen, whole);
    assert!(grew > 2, "events came in {grew} steps");
}

#[test]
fn repository_files_are_read_in_start_order() {
    let bytes = fixture(MULTI);
    let chunks = finished(&bytes);
    let directory = tempfile::tempdir().unwrap();
    let mut follow = Follow::open(directory.path()).unwrap();
    let mut seen = Seen::default();
    assert!(!seen.poll(&mut follow));
    for (at, chunk) in chunks.iter().enumerate() {
        // Names whose order differs from that of the starts.
        let file = new(directory.path().join(format!("{}.jfr", 90 - at)));
        let last = at + 1 == chunks.len();
        let mut chunk = chunk.to_vec();
        let mut header = ChunkHeader::decode(&chunk).unwrap();
        header.flags = if last { header.flags | FLAG_FINAL } else { header.flags & !FLAG_FINAL };
        chunk[..LEN].copy_from_slice(&header.encode());
        let mut ended = false;
        grow(&file, 0, &chunk, |_| ended = seen.poll(&mut follow));
        assert_eq!(ended, last);
    }
    assert_eq!(seen, Seen::of(&bytes));
}

#[test]
fn abandoned_file_yields_all_complete_events() {
    let bytes = fixture(MULTI);
    let chunk = finished(&bytes)[0];
    let ends = boundaries(chunk);
    let cut = ends[ends.len() - 2] + 1;
    let mut torn = chunk[..cut].to_vec();
    let header = ChunkHeader {
        size: ends[ends.len() * 2 / 3] as u64,
        state: 3,
        ..ChunkHeader::decode(chunk).unwrap()
    };
    torn[..LEN].copy_from_slice(&header.encode());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("torn.jfr");
    std::fs::write(&path, &torn).unwrap();
    let mut follow =
        Follow::open(&path).unwrap().every(Duration::from_millis(5)).give_up_after(Duration::from_millis(20));
    let seen = Seen::to_the_end(&mut follow);
    let whole = Seen::of(&torn);
    let sorted = |mut seen: Seen| {
        seen.events.sort();
        seen
    };
    assert!(!whole.events.is_empty());
    assert_eq!(sorted(seen), sorted(whole));
}

/// Ends the JVM with the test.
struct Jvm(Child);

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn running_jvm_repository_is_followed_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("Ticks.java");
    let code = "public class Ticks { @jdk.jfr.Name(\"test.Tick\") static class Tick extends jdk.jfr.Event { int n; } \
         public static void main(String[] a) throws Exception { for (int i = 0; i < 40; i++) { \
         Tick t = new Tick(); t.n = i; t.commit(); Thread.sleep(100); } } }";
    std::fs::write(&source, code).unwrap();
    let repository = directory.path().join("repository");
    std::fs::create_dir(&repository).unwrap();
    let child = Command::new("java")
        .arg("-XX:StartFlightRecording:maxsize=0")
        .arg(format!("-XX:FlightRecorderOptions:repository={}", repository.display()))
        .arg(&source)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        eprintln!("skipped: no java");
        return;
    };
    let mut jvm = Jvm(child);
    let patience = Duration::from_secs(120);
    let mut follow =
        Follow::open(&repository).unwrap().every(Duration::from_millis(50)).give_up_after(patience);
    let mut numbers = Vec::new();
    let mut while_running = 0;
    while let Some(item) = follow.next().unwrap() {
        if let Item::Events(batch) = item {
            for event in batch.events().filter(|e| &*e.class().name == "test.Tick") {
                numbers.extend(event.field("n").unwrap().and_then(|n| n.as_i64()));
                while_running += usize::from(jvm.0.try_wait().unwrap().is_none());
            }
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..40).collect::<Vec<i64>>());
    assert!(while_running > 0, "all came after the end");
}

#[test]
fn files_before_since_time_are_skipped() {
    let bytes = fixture(MULTI);
    let chunks = finished(&bytes);
    let directory = tempfile::tempdir().unwrap();
    for (at, chunk) in chunks.iter().enumerate() {
        std::fs::write(directory.path().join(format!("{}.jfr", 90 - at)), chunk).unwrap();
    }
    let start = |at: usize| ChunkHeader::decode(chunks[at]).unwrap().start_nanos;
    for (at, _) in chunks.iter().enumerate() {
        for (since, first) in [(start(at), at), (start(at) - 1, at.saturating_sub(1))] {
            let mut follow = Follow::open(directory.path()).unwrap().since(since);
            let mut seen = Seen::default();
            seen.poll(&mut follow);
            let sizes: Vec<(u64, bool)> = chunks[first..].iter().map(|c| (c.len() as u64, true)).collect();
            assert_eq!(seen.chunks, sizes, "since the start of chunk {at}");
        }
    }
}

#[test]
fn next_file_follows_after_writer_has_ended() {
    let bytes = fixture(MULTI);
    let chunks = finished(&bytes);
    let directory = tempfile::tempdir().unwrap();
    let header = ChunkHeader { state: 3, ..ChunkHeader::decode(chunks[0]).unwrap() };
    std::fs::write(directory.path().join("a.jfr"), [&header.encode()[..], &chunks[0][LEN..]].concat())
        .unwrap();
    std::fs::write(directory.path().join("b.jfr"), chunks[1]).unwrap();
    let mut follow = Follow::open(directory.path()).unwrap();
    let mut seen = Seen::default();
    assert!(!seen.poll(&mut follow) && seen.chunks.is_empty(), "the first chunk is being written");
    follow.let_go().unwrap();
    assert!(!seen.poll(&mut follow) && seen.chunks.is_empty(), "its bytes were taken as they are");
    follow.let_go().unwrap();
    seen.poll(&mut follow);
    let whole = Seen::of(&chunks[..2].concat());
    assert_eq!(seen.events.len(), whole.events.len());
    assert_eq!(seen.chunks.len(), 2);
}
