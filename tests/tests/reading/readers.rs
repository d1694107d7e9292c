//! The two forms of our recordings, a patched file and the bytes of a pipe, as read by other projects'
//! readers.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use flightline_tests::foreign::{Followed, Stream};
use flightline_tests::run::{beside, collect, run, signal_group, spawn, until, wait};
use flightline_tests::{canonical, foreign};

fn write_demo(folder: &Path, samples: u32, chunk_size: u32) -> (PathBuf, PathBuf) {
    let (patched, fixed) = (folder.join("patched.jfr"), folder.join("fixed.jfr"));
    let mut demo = foreign::write_demo();
    demo.arg(&patched).arg(&fixed).arg(samples.to_string()).arg(chunk_size.to_string());
    run(&mut demo, Duration::from_secs(60)).expect_success("write_demo");
    (patched, fixed)
}

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
fn every_reader_sees_same_samples_in_file_and_pipe_form() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (patched, fixed) = write_demo(folder.path(), 3000, 32 << 10);

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
fn pipe_chunk_headers_have_final_size_and_offsets() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let (patched, fixed) = write_demo(folder.path(), 2000, 32 << 10);

    assert_eq!(chunks(&patched).len(), 1);
    let fixed = chunks(&fixed);
    assert!(fixed.len() > 1, "several chunks");
    for (size, header) in &fixed {
        assert_eq!(*size, 32 << 10);
        let checkpoint = u64::from_be_bytes(header[16..24].try_into().unwrap());
        let metadata = u64::from_be_bytes(header[24..32].try_into().unwrap());
        assert_eq!(checkpoint, size - 64, "the anchor checkpoint");
        assert_eq!(metadata, 68);
        assert_eq!(header[64], 0, "state: finished");
    }
}

#[test]
fn pipe_cut_anywhere_leaves_whole_chunks_readable() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A chunk begins with the metadata, some 20 KB.
    const CHUNK: usize = 64 << 10;
    let (_, fixed) = write_demo(folder.path(), 12_000, CHUNK as u32);
    let whole = chunks(&fixed).len();
    let bytes = std::fs::read(&fixed).unwrap();
    let cut = folder.path().join("cut.jfr");
    std::fs::write(&cut, &bytes[..(whole - 1) * CHUNK]).unwrap();
    foreign::agree(&[&cut]);

    // In the middle of the last chunk: our stream reader still returns everything that was flushed before the
    // cut.
    let torn = &bytes[..(whole - 1) * CHUNK + CHUNK / 4 * 3];
    let kept = canonical::of_file(&cut).unwrap().samples.len();
    let streamed = canonical::of_stream(torn).unwrap();
    assert!(streamed.samples.len() > kept, "{} of the torn chunk", streamed.samples.len() - kept);
    assert!(!streamed.warnings.is_empty(), "the missing end is reported");
}

#[test]
fn live_readers_follow_the_file_while_it_grows() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repository");
    std::fs::create_dir(&repository).unwrap();
    let file = repository.join("growing.jfr");
    let mut demo = foreign::write_demo();
    // Ten flushes, 0.7 s apart; the second recording, of the pipe, is truncated below.
    demo.arg(&file).arg(folder.path().join("pipe.jfr")).args(["1000", "24576", "700"]);
    let mut demo = spawn(demo.stdout(Stdio::null()));
    until(Duration::from_secs(10), "a first flush", || {
        file.metadata().ok().filter(|m| m.len() > 68).map(|_| ())
    });

    let limit = Duration::from_secs(60);
    let followers: Vec<_> = ["jdk17", "jdk25"]
        .iter()
        .flat_map(|jdk| [(*jdk, Followed::File(&file)), (*jdk, Followed::Repository(&repository))])
        .map(|(jdk, what)| {
            let mut child = foreign::follow(jdk, what, limit);
            let out = collect(child.stdout.take().unwrap());
            let err = collect(child.stderr.take().unwrap());
            (format!("{jdk} {what:?}"), child, out, err)
        })
        .collect();
    let mut seen = Vec::new();
    for (who, mut child, out, err) in followers {
        wait(&mut child, limit + Duration::from_secs(10), &who);
        let stream = Stream::parse(&String::from_utf8(out.join().unwrap()).unwrap());
        let errors = String::from_utf8_lossy(&err.join().unwrap()).into_owned();
        assert!(stream.closed, "{who}: {} events, not closed; {errors}", stream.events.len());
        seen.push((who, stream));
    }
    signal_group(demo.id(), libc::SIGKILL);
    demo.wait().unwrap();

    let reference = foreign::lines("jdk25", &file).unwrap();
    assert_eq!(reference.len(), 1000);
    for (who, stream) in seen {
        assert_eq!(stream.sorted(), reference, "{who}");
        let (first, last) = (stream.events[0].at_ns, stream.events[999].at_ns);
        assert!(last - first > 2_000_000_000, "{who}: all at once, within {} ms", (last - first) / 1_000_000);
    }
}
