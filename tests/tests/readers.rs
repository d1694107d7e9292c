//! The two shapes of our recordings, a patched file and the bytes of a pipe, in the eyes of readers we did not write.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flightline_tests::{canonical, foreign};

/// Chunks in a file, by walking the sizes in their headers.
fn chunks(path: &Path) -> Vec<(u64, [u8; 68])> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    let mut chunks = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let header: [u8; 68] = bytes[at..at + 68].try_into().unwrap();
        assert_eq!(&header[..4], b"FLR\0", "offset {at}");
        let size = u64::from_be_bytes(header[8..16].try_into().unwrap());
        chunks.push((size, header));
        at += size as usize;
    }
    assert_eq!(at, bytes.len(), "the last chunk ends with the file");
    chunks
}

#[test]
fn both_shapes_hold_the_same_samples_for_every_reader() {
    if !foreign::ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (patched, fixed) = foreign::write_demo(folder.path(), 3000, 24 << 10);

    println!("{}", foreign::agree(&[&patched, &fixed]));

    let reference = foreign::lines("jdk25", &patched).unwrap();
    assert_eq!(reference.len(), 3000);
    assert!(reference.iter().all(|l| !l.contains('?')), "unresolved references");
    for path in [&patched, &fixed] {
        assert_eq!(foreign::lines("jdk25", path).unwrap(), reference);
        let ours = canonical::of_file(path).unwrap();
        assert_eq!(ours.warnings, Vec::<String>::new());
        assert_eq!(ours.sorted(), reference);
        assert_eq!(ours.types, foreign::types(path));
        let streamed = canonical::of_stream(File::open(path).unwrap()).unwrap();
        assert_eq!(streamed.warnings, Vec::<String>::new());
        assert_eq!(streamed.sorted(), reference);
    }
}

#[test]
fn headers_of_a_pipe_are_right_before_its_bytes_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let (patched, fixed) = foreign::write_demo(folder.path(), 2000, 24 << 10);

    assert_eq!(chunks(&patched).len(), 1);
    let fixed = chunks(&fixed);
    assert!(fixed.len() > 1, "several chunks");
    for (size, header) in &fixed {
        assert_eq!(*size, 24 << 10);
        let checkpoint = u64::from_be_bytes(header[16..24].try_into().unwrap());
        let metadata = u64::from_be_bytes(header[24..32].try_into().unwrap());
        assert_eq!(checkpoint, size - 64, "the anchor checkpoint");
        assert_eq!(metadata, 68);
        assert_eq!(header[64], 0, "state: finished");
    }
}

#[test]
fn pipe_cut_anywhere_leaves_whole_chunks_readable() {
    if !foreign::ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_, fixed) = foreign::write_demo(folder.path(), 2000, 24 << 10);
    let whole = chunks(&fixed).len();
    let bytes = std::fs::read(&fixed).unwrap();
    let cut = folder.path().join("cut.jfr");
    std::fs::write(&cut, &bytes[..(whole - 1) * (24 << 10)]).unwrap();
    foreign::agree(&[&cut]);

    // In the middle of the last chunk: our stream reader still gives everything that was flushed before the cut.
    let torn = &bytes[..(whole - 1) * (24 << 10) + (14 << 10)];
    let kept = canonical::of_file(&cut).unwrap().samples.len();
    let streamed = canonical::of_stream(torn).unwrap();
    assert!(streamed.samples.len() > kept, "{} of the torn chunk", streamed.samples.len() - kept);
    assert!(!streamed.warnings.is_empty(), "the missing end is told");
}
