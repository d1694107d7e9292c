//! A file that grows by steps of any lengths and is then left by its writer: following ends, and gives what reading the
//! whole gives if nothing is wrong with it. The first bytes are the steps, the rest is the recording.
#![no_main]

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use jfr_format::read::{Decoder, Delivery, Follow, Item, Progress};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u16; 4], &[u8])| {
    let (steps, mut rest) = input;
    let path = path();
    let mut file = File::create(&path).expect("a file in memory");
    let mut seen = Seen::default();
    let opened = Follow::open(&path).expect("it is there");
    let mut follow = opened.every(Duration::from_millis(1)).give_up_after(Duration::ZERO);
    for step in steps {
        let (now, later) = rest.split_at(usize::from(step).min(rest.len()));
        file.write_all(now).expect("a file in memory");
        rest = later;
        // Some polls, but not until patience is over.
        if let Ok(Progress::Ready) = follow.poll()
            && let Ok(Some(item)) = follow.next()
        {
            seen.take(item);
        }
    }
    let grown_to = input.1.len() - rest.len();
    while let Some(item) = follow.next().expect("memory does not fail") {
        seen.take(item);
    }
    let mut decoder = Decoder::new(Delivery::Streaming);
    decoder.push(Bytes::copy_from_slice(&input.1[..grown_to]));
    decoder.close();
    let mut whole = Seen::default();
    while let Some(item) = decoder.next() {
        whole.take(item);
    }
    if whole.sound && seen.sound {
        seen.events.sort_unstable();
        whole.events.sort_unstable();
        assert_eq!(seen.events, whole.events);
    }
});

/// In memory; one for each process.
fn path() -> PathBuf {
    PathBuf::from(format!("/dev/shm/jfr-fuzz-{}.jfr", std::process::id()))
}

struct Seen {
    events: Vec<(u64, u64)>,
    /// Nothing was warned of.
    sound: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { events: Vec::new(), sound: true }
    }
}

impl Seen {
    fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Events(batch) => self.events.extend(batch.events().map(|e| (e.offset(), e.class().id))),
            Item::Warning(_) => self.sound = false,
            Item::ChunkEnd(end) => self.sound &= end.complete && end.chunk.header.state == 0,
            Item::ChunkStart(_) => {}
        }
    }
}
