//! Fuzzes the parsers of files on disk (run descriptions, chunk file names, timelines) and of HTTP range
//! requests.
#![no_main]

use flightline_service::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else { return };
    match which % 4 {
        0 => fuzzing::description(bytes),
        1 => fuzzing::name(&String::from_utf8_lossy(bytes)),
        2 => {
            let length = bytes.first().map_or(0, |&byte| 1u64.checked_shl(byte.into()).unwrap_or(u64::MAX));
            fuzzing::range(&String::from_utf8_lossy(bytes.get(1..).unwrap_or_default()), length);
        }
        _ => {
            // Most timestamps are close together; some are far apart.
            let mut at = 0i64;
            let moments = bytes.chunks_exact(4).map(|four| {
                let step = i64::from(i16::from_le_bytes([four[0], four[1]]));
                at = at.wrapping_add(step << (four[2] % 48));
                (at, u64::from(four[3]))
            });
            fuzzing::histogram(&moments.collect::<Vec<_>>());
        }
    }
});
