//! One pass, two passes, one thread, several: the same events, warnings and chunks of any bytes, damaged or not.
#![no_main]

use bytes::Bytes;
use jfr_format::read::{Decoder, Delivery, Item, Recording};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let want = Seen::new(&bytes, Delivery::WholeChunks, 1);
    let mut one_pass = Seen::new(&bytes, Delivery::KeysOnly, 1);
    if Recording::bytes(bytes.clone()).pieces() > 1 {
        assert_eq!(Seen::new(&bytes, Delivery::WholeChunks, 2), want);
        assert_eq!(Seen::new(&bytes, Delivery::KeysOnly, 2), one_pass);
    }
    if want.most_metadata > 1 {
        // Types that only later metadata declares: one pass has handed out what lay in front of it.
        one_pass.events.clone_from(&want.events);
    }
    assert_eq!(one_pass, want);
});

/// Offsets and types of events, warnings in the order of their offsets, and the ends of chunks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    events: Vec<(u64, u64)>,
    warnings: Vec<(u64, String)>,
    chunks: Vec<(u64, bool)>,
    /// Of any chunk, metadata events.
    most_metadata: u64,
}

impl Seen {
    fn new(bytes: &Bytes, delivery: Delivery, jobs: usize) -> Self {
        let mut all = Self::default();
        let _ = Recording::bytes(bytes.clone()).run(delivery, jobs, Self::drain, |mut seen| {
            all.events.append(&mut seen.events);
            all.warnings.append(&mut seen.warnings);
            all.chunks.append(&mut seen.chunks);
            all.most_metadata = all.most_metadata.max(seen.most_metadata);
            Ok::<(), ()>(())
        });
        all.warnings.sort();
        all
    }

    fn drain(decoder: &mut Decoder) -> Self {
        let mut seen = Self::default();
        while let Some(item) = decoder.next() {
            match item {
                Item::Events(batch) => seen.events.extend(batch.events().map(|e| (e.offset(), e.class().id))),
                Item::ChunkEnd(end) => {
                    let metadata = end.counts.iter().find(|&(id, _)| id == 0);
                    seen.most_metadata =
                        seen.most_metadata.max(metadata.map_or(0, |(_, count)| count.events));
                    seen.chunks.push((end.size, end.complete));
                }
                Item::Warning(warning) => seen.warnings.push((warning.at(), warning.to_string())),
                Item::ChunkStart(_) => {}
            }
        }
        seen
    }
}
