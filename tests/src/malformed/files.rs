//! Files that are not recordings, or are incomplete.

use super::Add;
use super::chunk::*;

pub(super) fn add(case: Add<'_>) {
    let sound = Chunk::sound().build().bytes;
    let end = sound.len();
    case("empty", "no byte at all", Vec::new(), 0, &["empty (at offset 0, reading the first chunk header)"]);
    case("one-byte", "only the first byte of the magic", b"F".to_vec(), 0, &["not a JFR chunk"]);
    case(
        "text",
        "a text file",
        b"Not a recording at all, but long enough for a header of one: 68 bytes are asked for.\n".to_vec(),
        0,
        &["not a JFR chunk (no \"FLR\\0\" header of version 1 or 2) (at offset 0"],
    );
    case(
        "gzip",
        "the recording in a gzip file, stored",
        gzip(&sound),
        15,
        &["skipped 15 bytes", "skipped 8 bytes"],
    );
    case(
        "header-torn",
        "the file ends inside the chunk header",
        sound[..40].to_vec(),
        0,
        &["the chunk header is cut: 40 of its 68 bytes are there (at offset 0"],
    );
    case(
        "header-only",
        "nothing behind the chunk header",
        sound[..HEADER].to_vec(),
        0,
        &["bytes before the chunk does"],
    );
    case(
        "event-torn",
        "the file ends inside the last event",
        sound[..end - 3].to_vec(),
        14,
        &["the input ends 3 bytes before the chunk does"],
    );
    case(
        "metadata-torn",
        "the file ends inside the metadata",
        sound[..1000].to_vec(),
        0,
        &["bytes before the chunk does"],
    );
    case(
        "trailing-garbage",
        "bytes behind the last chunk",
        [&sound[..], &[0xa5; 1000]].concat(),
        15,
        &["skipped 1000 bytes"],
    );
    case(
        "zeros-behind",
        "zeros behind the last chunk, as of a file set up in advance",
        [&sound[..], &[0; 4096]].concat(),
        15,
        &["skipped 4096 bytes"],
    );
    case(
        "garbage-between",
        "bytes between two chunks",
        [&sound[..], &[0x5a; 77], &sound].concat(),
        30,
        &["skipped 77 bytes"],
    );
    case(
        "second-chunk-torn",
        "the second of two chunks is cut in its metadata",
        [&sound[..], &sound[..500]].concat(),
        15,
        &["chunk 2"],
    );
    case(
        "ten-thousand-headers",
        "10,000 chunks of a header and nothing else",
        {
            let mut one = sound[..HEADER].to_vec();
            one[8..16].copy_from_slice(&68i64.to_be_bytes());
            one[16..32].fill(0);
            [&one.repeat(10_000)[..], &sound].concat()
        },
        15,
        &[],
    );
}
