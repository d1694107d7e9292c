//! A stream of any bytes, read live: reading ends, pieces of any size give the same samples, and checksums
//! match the received bytes. The first bytes are the lengths of the pieces.
#![no_main]

use flightline_consumer::live::{Feed, Item, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u8; 3], &[u8])| {
    let (steps, bytes) = input;
    let (whole, sound) = read(bytes, &[255]);
    let (pieces, sound_pieces) = read(bytes, &steps);
    // The cost of damage may depend on when it is noticed.
    if sound && sound_pieces {
        assert_eq!(whole, pieces);
    }
});

/// Offsets and stacks of the samples, and whether there was no warning.
fn read(bytes: &[u8], steps: &[u8]) -> (Vec<(u64, String)>, bool) {
    let mut feed = Feed::new(Options { memory: 1 << 20, ..Options::default() });
    let (mut samples, mut sound) = (Vec::new(), true);
    let mut take = |feed: &mut Feed| {
        while let Some(item) = feed.next() {
            match item {
                Item::Sample(sample) => samples.push((sample.offset, format!("{:?}", sample.stack))),
                Item::Warning(warning) => {
                    let _ = warning.to_string();
                    sound = false;
                }
                Item::Segment(segment) => {
                    let range = segment.offset as usize..(segment.offset + segment.size) as usize;
                    assert!(range.end <= bytes.len() && !range.is_empty());
                }
                _ => {}
            }
        }
    };
    let mut rest = bytes;
    let mut steps = steps.iter().cycle();
    while let (false, Some(&step)) = (rest.is_empty(), steps.next()) {
        let step = if step == 255 { rest.len() } else { usize::from(step) * 8 + 1 };
        let (now, later) = rest.split_at(step.min(rest.len()));
        feed.push(now);
        take(&mut feed);
        rest = later;
    }
    feed.close();
    take(&mut feed);
    let stats = feed.stats();
    assert_eq!(stats.bytes, bytes.len() as u64);
    (samples, sound)
}
