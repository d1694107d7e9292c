//! Small recordings that expand to huge profiles: memory is bounded and no sample is lost.

use std::io::{Read, Seek};

use bytes::Bytes;
use flightline_consumer::fold::{FoldOptions, TOO_MANY_FRAMES, fold};
use flightline_consumer::folded;
use flightline_consumer::load::{LoadOptions, Loaded, load_recording};
use flightline_consumer::tree::Tree;
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::read::Recording;
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, FileOutput, Geometry};

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(1_000),
    start_epoch_ns: 1_750_000_000_000_000_000,
    ticks_per_second: 1_000_000_000,
};

/// A recording of one chunk, filled by `fill`.
fn recording(fill: impl FnOnce(&mut ChunkWriter)) -> Bytes {
    let file = tempfile::tempfile().unwrap();
    let mut out = FileOutput::new(file).unwrap();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &LINE, FileOffset(0), LINE.start_ticks).unwrap();
    fill(&mut chunk);
    chunk.finish(Ticks(1_000_000), true, &mut out).unwrap();
    let mut file = out.into_inner();
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    Bytes::from(bytes)
}

fn thread(chunk: &mut ChunkWriter, key: u64) {
    chunk
        .constant(schema::THREAD, key, |t| {
            t.string(&format!("worker-{key}")).long(key as i64).null().long(0).key(0);
        })
        .unwrap();
}

fn symbol(chunk: &mut ChunkWriter, key: u64, text: &str) {
    chunk
        .constant(schema::SYMBOL, key, |s| {
            s.string(text);
        })
        .unwrap();
}

fn class(chunk: &mut ChunkWriter, key: u64, name: u64) {
    chunk
        .constant(schema::CLASS, key, |c| {
            c.key(0).key(name).key(0).int(0).boolean(false);
        })
        .unwrap();
}

fn method(chunk: &mut ChunkWriter, key: u64, class: u64, name: u64) {
    chunk
        .constant(schema::METHOD, key, |m| {
            m.key(class).key(name).key(name).int(0).boolean(false);
        })
        .unwrap();
}

/// A stack of frames: method and frame type, leaf first.
fn stack(chunk: &mut ChunkWriter, key: u64, frames: &[(u64, u64)]) {
    chunk
        .constant(schema::STACK_TRACE, key, |s| {
            s.boolean(false).array(frames.len());
            for &(method, kind) in frames {
                s.key(method).int(0).int(0).key(kind);
            }
        })
        .unwrap();
}

fn sample(chunk: &mut ChunkWriter, thread: u64, stack: u64) {
    chunk
        .event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(Ticks(2_000)).key(thread).key(stack).key(thread_state::DEFAULT);
        })
        .unwrap();
}

fn loaded(bytes: Bytes) -> Loaded {
    let loaded = load_recording(&Recording::bytes(bytes), &LoadOptions::default(), 1, |_| {}).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    loaded
}

fn names(tree: &Tree) -> usize {
    tree.labels.iter().map(|label| label.text.len()).sum()
}

/// 20,000 methods of different classes share one name of a megabyte: a file of 2 MB would become 20 GB of
/// text.
#[test]
fn long_name_shared_by_many_methods_has_bounded_text() {
    const METHODS: u64 = 20_000;
    let bytes = recording(|chunk| {
        thread(chunk, 1);
        symbol(chunk, 1, &"nämé".repeat(200_000));
        for key in 2..METHODS + 2 {
            symbol(chunk, key, &format!("c/{key}"));
            class(chunk, key, key);
            method(chunk, key, key, 1);
        }
        let frames: Vec<(u64, u64)> = (2..METHODS + 2).map(|key| (key, frame_type::JIT_COMPILED)).collect();
        stack(chunk, 1, &frames);
        sample(chunk, 1, 1);
    });
    let tree = fold(&loaded(bytes).model, &FoldOptions::default()).unwrap();
    assert_eq!((tree.total, tree.nodes.len() as u64), (1, METHODS));
    assert_eq!(tree.labels.len() as u64, METHODS, "no two became one");
    let text = names(&tree);
    assert!((10 << 20..80 << 20).contains(&text), "{text} bytes of names");
    let mut out = Vec::new();
    folded::write(&tree, &mut out).unwrap();
    assert_eq!(out.iter().filter(|&&byte| byte == b';').count() as u64, METHODS - 1);
    assert!(out.starts_with(format!("c.{}.n", METHODS + 1).as_bytes()) && out.ends_with(b" 1\n"));
}

/// A stack of 200,000 frames in 1,000 threads: 200 million nodes if each thread has its own.
#[test]
fn deep_stack_in_many_threads_has_bounded_nodes() {
    const THREADS: u64 = 1_000;
    const FRAMES: usize = 200_000;
    let bytes = recording(|chunk| {
        for key in 1..=2 {
            symbol(chunk, key, &format!("f{key}"));
            method(chunk, key, 0, key);
        }
        let frames: Vec<(u64, u64)> = (0..FRAMES).map(|at| (1 + at as u64 % 2, frame_type::CPP)).collect();
        stack(chunk, 1, &frames);
        for key in 1..=THREADS {
            thread(chunk, key);
            sample(chunk, key, 1);
        }
    });
    assert!(bytes.len() < 2 << 20, "{} bytes", bytes.len());
    let model = loaded(bytes).model;
    let together = fold(&model, &FoldOptions::default()).unwrap();
    assert_eq!((together.total, together.nodes.len()), (THREADS, FRAMES));
    let apart = fold(&model, &FoldOptions { by_thread: true, ..FoldOptions::default() }).unwrap();
    assert_eq!(apart.total, THREADS);
    assert!(apart.nodes.len() < 4 << 20, "{} boxes", apart.nodes.len());
    let threads: Vec<_> = apart.nodes.iter().filter(|node| node.depth == 0).collect();
    assert_eq!(threads.len() as u64, THREADS);
    assert!(threads.iter().all(|node| node.total == 1));
    // Omitted frames are marked; the frames of the thread's leaf end remain.
    let cut = apart.nodes.windows(10).find(|nodes| &*apart.label(&nodes[1]).text == TOO_MANY_FRAMES).unwrap();
    let path: Vec<&str> = cut[2..].iter().map(|node| &*apart.label(node).text).collect();
    assert_eq!(path, ["f2", "f1", "f2", "f1", "f2", "f1", "f2", "f1"]);
}

/// Each frame has its own frame type, and each must be checked for being the kernel's.
#[test]
fn many_frame_types_are_folded() {
    const TYPES: u64 = 50_000;
    let bytes = recording(|chunk| {
        thread(chunk, 1);
        symbol(chunk, 1, "f");
        method(chunk, 1, 0, 1);
        for key in 1_000..1_000 + TYPES {
            chunk
                .constant(schema::FRAME_TYPE, key, |t| {
                    t.string("Native");
                })
                .unwrap();
        }
        let frames: Vec<(u64, u64)> = (1_000..1_000 + TYPES).map(|key| (1, key)).collect();
        stack(chunk, 1, &frames);
        sample(chunk, 1, 1);
    });
    // Remove the kernel's frame type.
    let mut bytes = bytes.to_vec();
    let at = bytes.windows(6).position(|text| text == b"Kernel").unwrap();
    bytes[at..at + 6].copy_from_slice(b"Colony");
    let tree = fold(&loaded(bytes.into()).model, &FoldOptions::default()).unwrap();
    assert_eq!((tree.total, tree.nodes.len() as u64, tree.labels.len()), (1, TYPES, 1));
}
