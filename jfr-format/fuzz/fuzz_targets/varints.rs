//! Skipping n integers at once ends where reading them one by one ends.
#![no_main]

use jfr_format::varint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (count, start, data) = input;
    let start = usize::from(start).min(data.len());
    let mut one_by_one = start;
    let read = (0..count).try_for_each(|_| varint::get(data, &mut one_by_one).map(drop));
    let mut at_once = start;
    let skipped = varint::skip(data, &mut at_once, u64::from(count));
    assert_eq!(skipped, read);
    if read.is_ok() {
        assert_eq!(at_once, one_by_one);
    }
});
