//! Tests of the dictionary: keys, costs, chunks.

use super::*;
use jfr_format::{
    ids::{FileOffset, Ticks},
    write::{ClockLine, Geometry},
};

fn chunk() -> ChunkWriter {
    let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 0, ticks_per_second: 1_000_000 };
    ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0)).unwrap()
}

fn method(interner: &mut Interner, image: ImageId, start: u64) -> MethodIndex {
    let origin = || Origin {
        class: format!("lib{image}.so").into(),
        path: format!("/usr/lib/lib{image}.so").into(),
        build_id: "0123456789abcdef".into(),
    };
    interner.method(image, start, || (origin(), format!("f{start}")))
}

fn frame(interner: &mut Interner, image: ImageId, start: u64) -> FrameIndex {
    let method = method(interner, image, start);
    let most = Frame { method, line: u32::MAX, address: u32::MAX, kind: frame_type::CPP };
    interner.frame(most)
}

#[test]
fn call_has_method_callers_and_bounded_cost() {
    let mut interner = Interner::new();
    let [inlined, called, caller] = [1, 2, 3].map(|start| frame(&mut interner, 0, start));
    interner.frames.list[inlined as usize].kind = frame_type::INLINED;
    for (truncated, callers) in [(0, &[caller][..]), (1, &[])] {
        let trace = [&[truncated, inlined, called], callers].concat();
        let trace = interner.trace(&trace);
        let (method, of_callers) = interner.call(trace).unwrap();
        assert_eq!(method, interner.frames.list[called as usize].method);
        assert_eq!(interner.traces.stacks.get(of_callers), [&[truncated], callers].concat());
        let mut to = chunk();
        let (before, cost) = (to.pending(), interner.method_cost(method));
        let key = interner.write_method(method, &mut to);
        let after = to.pending();
        assert!(key != 0 && after > before && after - before <= cost, "{} of {cost}", after - before);
        assert_eq!((interner.write_method(method, &mut to), to.pending()), (key, after));
        interner.next_chunk(usize::MAX);
    }
    assert_eq!(interner.write_method(MethodIndex::MAX, &mut chunk()), 0);
}

#[test]
fn constants_are_written_once_per_chunk_and_within_their_cost() {
    let mut interner = Interner::new();
    let frames: Vec<u32> = (0..100).map(|i| frame(&mut interner, i % 3, u64::from(i))).collect();
    assert_eq!(frame(&mut interner, 1, 1), frames[1]);
    let traces: Vec<u32> = (0..50usize)
        .map(|i| {
            let sequence: Vec<u32> =
                std::iter::once(i as u32 % 2).chain(frames[i..i + 50].to_vec()).collect();
            interner.trace(&sequence)
        })
        .collect();
    for round in 0..2 {
        let mut to = chunk();
        for &trace in &traces {
            let (before, cost) = (to.pending(), interner.cost(trace));
            interner.write(trace, &mut to).unwrap();
            assert!(to.pending() > before && to.pending() - before <= cost, "round {round}");
            let after = to.pending();
            assert_eq!(interner.cost(trace), 0);
            interner.write(trace, &mut to).unwrap();
            assert_eq!(to.pending(), after);
        }
        interner.next_chunk(usize::MAX);
    }
}

#[test]
fn forgotten_traces_get_fresh_keys() {
    let mut interner = Interner::new();
    let m = frame(&mut interner, 1, 1);
    let first = interner.trace(&[0, m]);
    let key = interner.key(first);
    interner.next_chunk(usize::MAX);
    assert_eq!((interner.generation, interner.key(interner.trace_for_test(&[0, m]))), (0, key));
    interner.next_chunk(0);
    assert_eq!(interner.generation, 1);
    let m = frame(&mut interner, 1, 1);
    let again = interner.trace(&[0, m]);
    assert!(interner.key(again) > key);
}

#[test]
fn dictionary_without_lines_stays_without_them_when_it_is_cleared() {
    let mut interner = Interner::with_lines(false);
    frame(&mut interner, 1, 1);
    interner.next_chunk(0);
    assert!(interner.generation == 1 && !interner.lines);
}

impl Interner {
    fn trace_for_test(&self, sequence: &[u32]) -> TraceIndex {
        (0..self.traces.stacks.len() as u32).find(|&i| self.traces.stacks.get(i) == sequence).unwrap()
    }
}

#[test]
fn java_methods_have_their_own_descriptor_and_package() {
    let mut interner = Interner::new();
    let mut java = |class: &str, descriptor: &str| {
        interner.java_method(&JavaMethod {
            class: class.into(),
            name: "run".into(),
            descriptor: descriptor.into(),
            modifiers: 9,
        })
    };
    let methods = [java("a/b/C", "()V"), java("a/b/C", "(I)V"), java("Main", "()V")];
    assert_eq!(java("a/b/C", "(I)V"), methods[1], "known");
    assert_eq!(interner.counts()[2..], [3, 2]);
    let mut to = chunk();
    for method in methods {
        let (before, cost) = (to.pending(), interner.method_cost(method));
        assert_ne!(interner.write_method(method, &mut to), 0);
        assert!(
            to.pending() > before && to.pending() - before <= cost,
            "{} of {cost}",
            to.pending() - before
        );
    }
}
